"""What the hint commands do: through the running server if there is one, else in the store."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import quote

from openclaw_rl.config import read_config
from openclaw_rl.core.hint import Carry, Hint, HintSource
from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError
from openclaw_rl.home.folder import address_of
from openclaw_rl.home.reach import asked, opened
from openclaw_rl.serve.control.hints import hint_json

PATH = "/v1/rl/hints"
OWNER = "owner"
NOT_IN_PROMPTS = "no hint is in a prompt: with these settings the weights learn what is asked for (docs/hints.md)"


async def hints_of(home: Path, user: str | None) -> list[dict[str, Json]]:
    """The kept hints, of one user or of all, as `/v1/rl/hints` lists them."""
    if address_of(home) is not None:
        query = "" if user is None else f"?user={quote(user, safe='')}"
        listed = (await asked(home, "GET", PATH + query))["hints"]
        assert isinstance(listed, list)
        return [item for item in listed if isinstance(item, dict)]
    async with opened(home, to_read=True) as store:
        kept = await (store.hints.everyone() if user is None else store.hints.of_user(user))
        return [hint_json(item) for item in kept]


async def add_hint(home: Path, text: str, user: str | None) -> str:
    """Takes a hint into use and says so."""
    hint = Hint(_words(text), HintSource.OWNER)
    if address_of(home) is not None:
        body: dict[str, Json] = {"text": hint.text, "user": user}
        return _taken(home, str((await asked(home, "PUT", PATH, body))["id"]))
    async with opened(home) as store:
        kept = await store.hints.adopt(user or OWNER, hint, at_s=time.time(), why="added by hand")
        return _taken(home, kept.id)


async def change_hint(home: Path, name: str, *, text: str | None = None) -> str:
    """Gives a hint other words or, without any, retires it, and says so. Raises ConfigError if there is none."""
    done = f"{name} is retired" if text is None else _taken(home, name)
    if address_of(home) is not None:
        body: dict[str, Json] = {"state": "retired"} if text is None else {"text": _words(text)}
        await asked(home, "PUT", f"{PATH}/{quote(name, safe='')}", body)
        return done
    async with opened(home) as store:
        if await store.hints.get(name) is None:
            raise _unknown(name)
        if text is None:
            await store.hints.retire(name, why="retired by hand", at_s=time.time())
        else:
            await store.hints.edit(name, _words(text), at_s=time.time())
        return done


async def remove_hint(home: Path, name: str) -> str:
    """Forgets a hint and says so. Raises ConfigError if there is none."""
    if address_of(home) is not None:
        await asked(home, "DELETE", f"{PATH}/{quote(name, safe='')}")
    else:
        async with opened(home) as store:
            if not await store.hints.remove(name):
                raise _unknown(name)
    return f"{name} is forgotten"


def stand_in_prompts(home: Path) -> bool:
    """Whether the folder's settings put kept hints into prompts."""
    return read_config(overrides={"home": str(home)}).carry is not Carry.WEIGHTS


def _taken(home: Path, name: str) -> str:
    return f"{name} is in use" if stand_in_prompts(home) else f"{name} is kept; {NOT_IN_PROMPTS}"


def _words(text: str) -> str:
    if not text.strip():
        raise ConfigError("the hint is empty", fix="write one to three sentences")
    return text.strip()


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"there is no hint {name}", fix="`openclaw-rl hints list` shows them")
