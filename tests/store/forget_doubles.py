"""A store with a conversation that is to be forgotten in the middle of others, and every byte of a folder."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from store_doubles import said

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.sample import HintPrompt
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.testing.turns import a_sample, a_turn, ids_of


def asked(*words: str) -> tuple[Message, ...]:
    """A user's words with replies between them."""
    found: list[Message] = []
    for word in words:
        found += [message(Role.USER, word), message(Role.ASSISTANT, f"reply to {word[:20]}")]
    return tuple(found[:-1])


async def taught(
    store: Store,
    name: str,
    words: tuple[str, ...],
    *,
    session: str,
    user: str = "ann",
    then: str = "no, shorter",
    hint: str = "",
    parent: str | None = None,
    at_s: float = 1000.0,
) -> None:
    """A turn that stands READY, its next state, votes and hint stored."""
    turn = a_turn(
        name, asked(*words), f"reply to {words[-1][:20]}", session=session, user=user, parent=parent, at_s=at_s
    )
    await store.add_turn(turn, chain=f"chain {name}", prefix=f"prefix {name}")
    await store.pair(said(name, then))
    hints = (Hint(hint),) if hint else ()
    votes = (Vote("score", f"they said {then}: \\boxed{{-1}}", -1, None, "base", 0.1),)
    verdict = Verdict(name, -1, VerdictSource.VOTES, votes=votes, hints=hints)
    await store.judge(verdict, keep=hints[0] if hints else None)
    sample = a_sample(turn, score=-1.0)
    if hint:
        sample = replace(sample, hints=(HintPrompt(hint, ids_of(f"{words[-1]} {hint}")),))
    await store.admit(sample)


async def stepped(
    store: Store, number: int, *turns: str, parent: int | None = None, folder: Path | None = None
) -> None:
    """A step over these turns; its version is live and served."""
    version = PolicyVersion("shared", number)
    row = VersionRow(
        version,
        PolicyVersion("shared", number - 1 if parent is None else parent),
        folder,
        f"digest {number}",
        VersionStatus.CANDIDATE,
        "",
        float(number),
        turns=turns,
        metrics={"loss": 0.5},
    )
    await store.commit_step(StepRecord(f"step {number}", 0.0, 1.0, turns, (), {"loss": 0.5}, row))
    await store.settle(version, VersionStatus.LIVE, "passed the gate", {})
    await store.set_current(version, why="passed the gate")


def holds(folder: Path, phrase: str) -> list[str]:
    """The files in which the phrase stands, as text, as ids, or within anything compressed by zlib."""
    ids = b"".join(byte.to_bytes(4, "little") for byte in phrase.encode())
    needles = (phrase.encode(), phrase.encode("utf-16-le"), ids)
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            if any(needle in piece for needle in needles for piece in (data, *_inflated(data))):
                found.append(path.name)
    return found


def _inflated(data: bytes) -> Iterator[bytes]:
    """What begins anywhere in the bytes as a zlib stream, as far as it can be read."""
    at = data.find(b"\x78")
    while at >= 0:
        if data[at + 1 : at + 2] in (b"\x01", b"\x5e", b"\x9c", b"\xda"):
            inflater, piece = zlib.decompressobj(), b""
            try:
                for start in range(at, len(data), 256):
                    piece += inflater.decompress(data[start : start + 256])
                    if inflater.eof:
                        break
            except zlib.error:
                pass
            if piece:
                yield piece
        at = data.find(b"\x78", at + 1)
