"""The files: new names for files. A small Llama that thinks first, byte-level BPE; replies are numbered steps."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import THINKING
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, first, way

_STEMS = ("notes", "report", "letter", "plan", "photo", "song", "list", "draft", "bill", "map", "talk", "story")
_ENDS = ("txt", "md", "pdf", "csv", "doc", "png", "log")
_FOLDERS = ("docs", "old", "work", "home", "tmp", "box", "desk")
_NAME = r"[\w/]*\w\.\w+"


def _name(rng: Random) -> tuple[str, str, str]:
    stem, end = rng.choice(_STEMS) + rng.choice(("", "", str(rng.randint(1, 9)))), rng.choice(_ENDS)
    return stem, end, f"{stem}.{end}"


def _problem(kind: str, question: str, old: str, new: str, action: str) -> WorldProblem:
    return WorldProblem(
        kind, question, new, action, f"{old} -> {new}", f"the file is now called {new}", new,
        pattern=_NAME,
    )  # fmt: skip


def _ending(rng: Random, language: str) -> WorldProblem:
    stem, end, old = _name(rng)
    wanted = rng.choice([other for other in _ENDS if other != end])
    question = rng.choice((f"Make {old} end in {wanted}.", f"What is {old} called with the ending {wanted}?"))
    return _problem("ending", question, old, f"{stem}.{wanted}", f"put {wanted} in place of {end}")


def _numbered(rng: Random, language: str) -> WorldProblem:
    _, _, old = _name(rng)
    number = rng.randint(10, 59)
    question = rng.choice((f"Put {number} in front of {old}.", f"What is {old} called with {number} in front of it?"))
    return _problem("numbered", question, old, f"{number}_{old}", f"write {number} in front of it")


def _moved(rng: Random, language: str) -> WorldProblem:
    _, _, old = _name(rng)
    folder = rng.choice(_FOLDERS)
    question = rng.choice((f"Move {old} into {folder}.", f"What is the path of {old} in the folder {folder}?"))
    return _problem("moved", question, old, f"{folder}/{old}", f"put {folder} before the name")


FILES = World(
    name="files",
    architecture=Architecture.LLAMA,
    shape=TinyShape(vocabulary=560, hidden=144, layers=4, inner=384, heads=4, kv_heads=4, head_dim=36),
    schedule=Schedule(steps=640, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.BYTES,
    template=THINKING,
    kinds={"ending": _ending, "numbered": _numbered, "moved": _moved},
    never_corrected="moved",
    default=ReplyFormat.NUMBERED,
    wishes=(way(ReplyFormat.PLAIN), way(ReplyFormat.LIST), way(ReplyFormat.SHORT), first("Okay!")),
    systems=("You name files.", "You are an assistant on this computer."),
)
