"""What the commands about versions read and do: by the running server if there is one, else in the store."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import aiohttp

from openclaw_rl.config import Config, read_config
from openclaw_rl.core.message import Json, Message, Role, message
from openclaw_rl.core.version import PolicyVersion, named_version, parse_version
from openclaw_rl.errors import ConfigError
from openclaw_rl.home.folder import address_of
from openclaw_rl.home.reach import asked, opened
from openclaw_rl.publish import swap
from openclaw_rl.serve.control.views import versions_json
from openclaw_rl.store.db import Store

MOST_A_PAGE = 500  # versions, as `/v1/rl/versions` gives them


async def version_tree(home: Path, *, limit: int | None = None) -> dict[str, Json]:
    """The newest versions, or all, with what each learned, which are pinned, and whether training is frozen."""
    if address_of(home) is not None:
        return await paged(partial(_asked_page, home), limit)
    async with opened(home, to_read=True) as store:
        return await paged(partial(_read_page, store), limit)


async def paged(read: Callable[[int, str | None], Awaitable[dict[str, Json]]], limit: int | None) -> dict[str, Json]:
    """Pages joined, oldest first; other fields come from the newest page."""
    found = await read(min(limit or MOST_A_PAGE, MOST_A_PAGE), None)
    rows, before = found["versions"], found["before"]
    assert isinstance(rows, list)
    while before is not None and (limit is None or len(rows) < limit):
        size = MOST_A_PAGE if limit is None else min(limit - len(rows), MOST_A_PAGE)
        earlier = await read(size, str(before))
        assert isinstance(earlier["versions"], list)
        rows, before = [*earlier["versions"], *rows], earlier["before"]
        found["current"] = {**_mapped(earlier["current"]), **_mapped(found["current"])}
    return {**found, "versions": rows, "before": before}


async def _asked_page(home: Path, limit: int, before: str | None) -> dict[str, Json]:
    query = urlencode({"learned": "true", "limit": limit, **({} if before is None else {"before": before})})
    return await asked(home, "GET", f"/v1/rl/versions?{query}")


async def _read_page(store: Store, limit: int, before: str | None) -> dict[str, Json]:
    start = None if before is None else parse_version(before)
    return await versions_json(store, limit=limit, before=start, with_learned=True)


def _mapped(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


async def roll_back(home: Path, name: str) -> str:
    """Serves an earlier version again and says so. Raises ConfigError for one that cannot be served."""
    version = named_version(name)
    if address_of(home) is not None:
        await asked(home, "POST", "/v1/rl/rollback", {"version": str(version)})
        return f"version {version} is being served"
    async with opened(home) as store:
        await swap.rollback(store, version)
    return f"version {version} will be served from the next start on"


async def pin(home: Path, name: str) -> str:
    """Pins a version, and says so. Raises ConfigError for one that cannot be served."""
    version = named_version(name)
    if address_of(home) is not None:
        await asked(home, "POST", "/v1/rl/pin", {"version": str(version)})
        return f"version {version} is served until `openclaw-rl unpin`, whatever is trained meanwhile"
    async with opened(home) as store:
        await swap.pin(store, version, at_s=time.time())
    return f"version {version} will be served from the next start on, until `openclaw-rl unpin`"


async def unpin(home: Path, scope: str) -> str:
    """Serves the newest version again, and says which that is. Raises ConfigError if none was pinned."""
    if address_of(home) is not None:
        version = str((await asked(home, "POST", "/v1/rl/unpin", {"scope": scope}))["version"])
        return f"version {version} is being served"
    async with opened(home) as store:
        found = await swap.unpin(store, scope)
    return f"version {found} will be served from the next start on"


async def freeze(home: Path, *, is_frozen: bool) -> str:
    """Stops or resumes training, and says so."""
    if address_of(home) is not None:
        await asked(home, "POST", "/v1/rl/freeze" if is_frozen else "/v1/rl/unfreeze")
    else:
        async with opened(home) as store:
            if is_frozen:
                await store.orders.freeze(at_s=time.time())
            else:
                await store.orders.unfreeze()
    if is_frozen:
        return "nothing is trained until `openclaw-rl unfreeze`; turns are judged, and wait"
    return "training continues"


async def compared(home: Path, names: Sequence[str], prompts: Path | None, *, max_tokens: int) -> dict[str, Json]:
    """Replies of versions to the same prompts: those of a file, else of the latest conversations."""
    versions = [named_version(name) for name in names]
    texts = [] if prompts is None else await asyncio.to_thread(read_prompts, prompts)
    if address_of(home) is not None:
        body: dict[str, Json] = {
            "versions": [str(version) for version in versions],
            "prompts": [*texts],
            "max_tokens": max_tokens,
        }
        return await asked(home, "POST", "/v1/rl/compare", body, limit=aiohttp.ClientTimeout(total=None))
    config = read_config(overrides={"home": str(home)})
    return await _compared_offline(config, versions, [(message(Role.USER, text),) for text in texts], max_tokens)


def read_prompts(path: Path) -> list[str]:
    """The prompts of a file, one on each line: plain text, or JSON with `prompt`. Raises ConfigError."""
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(
            f"{path} cannot be read: {problem}", fix="give a text file with one prompt per line"
        ) from problem
    return [_prompt(line) for line in lines]


def _prompt(line: str) -> str:
    try:
        held = json.loads(line)
    except ValueError:
        return line
    return str(held["prompt"]) if isinstance(held, dict) and "prompt" in held else line


async def _compared_offline(
    config: Config, versions: list[PolicyVersion], prompts: list[tuple[Message, ...]], max_tokens: int
) -> dict[str, Json]:
    """Loads the model for it: no server runs."""
    from openclaw_rl.engines.open import open_engine
    from openclaw_rl.home.models import model_folder
    from openclaw_rl.publish.compare import Comparison
    from openclaw_rl.publish.swap import ServedVersions
    from openclaw_rl.render.renderer import ChatRenderer
    from openclaw_rl.render.template import read_template

    folder = await asyncio.to_thread(model_folder, config.model)
    async with opened(config.home, to_read=True) as store:
        renderer = ChatRenderer(await asyncio.to_thread(read_template, folder), config.render)
        engine = await open_engine(config.engine, folder, rank=config.trainer.rank)
        try:
            comparison = Comparison(
                store, engine, renderer, ServedVersions(store, engine), renderer.ends(engine.info.eos_ids)
            )
            found = await comparison.of(versions, prompts, max_tokens=max_tokens)
        finally:
            await engine.aclose()
    rows: list[Json] = [
        {"messages": [item.as_json() for item in one.asked], "answers": list(one.answers), "same": one.is_same}
        for one in found
    ]
    return {"versions": [str(version) for version in versions], "compared": rows}
