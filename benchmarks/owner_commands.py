"""Every command of the program as `benchmarks.owner` calls it; a command without a case here ends the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

TASKS = str(Path(__file__).parent.parent / "examples" / "tasks" / "code")
LIBRARY = str(Path(__file__).parent.parent / "examples" / "library")
HINT = "Answer in one sentence."


class Cost(StrEnum):
    """How long a call takes."""

    CHEAP = "cheap"  # below a second or two: no model is loaded
    MODEL = "model"  # loads the bundled model: five to twenty seconds
    LONG = "long"  # starts servers of its own; it knows nothing of the folder in hand


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a command. In `words`, {home}, {out}, {session}, {turn} and {hint} stand for what a case has."""

    command: str
    options: tuple[str, ...] = ()
    cost: Cost = Cost.CHEAP
    writes: bool = False  # into the folder in hand
    forgets: bool = False  # what belongs to {session}
    has_home: bool = True
    may_refuse_beside_server: bool = False  # where a server runs on the folder itself

    @property
    def name(self) -> str:
        """How it is called in what is reported."""
        return " ".join((self.command, *self.options)).replace("{out}/", "").strip()

    @property
    def words(self) -> tuple[str, ...]:
        """What is typed after `openclaw-rl`."""
        return (*self.command.split(), *self.options, *(("--home", "{home}") if self.has_home else ()))


SERVE = Call("serve", cost=Cost.MODEL, writes=True, may_refuse_beside_server=True)
CALLS = (
    Call("settings", has_home=False),
    Call("init", ("--model", "bundled", "--force"), writes=True),
    *(Call(f"service {name}", ("--print",), has_home=False) for name in ("install", "uninstall")),
    Call("service status", ("--name", "openclaw-rl-that-nobody-has"), has_home=False),
    Call("status"),
    Call("top", ("--once",)),
    Call("inspect"),
    Call("inspect", ("--json",)),
    Call("turns"),
    Call("turns", ("{turn}",)),
    Call("versions", ("--turns",)),
    Call("versions", ("--json",)),
    Call("doctor"),
    Call("check"),
    Call("check", ("--repair",), writes=True, may_refuse_beside_server=True),
    Call("export", ("{out}/records.jsonl",), writes=True),
    Call("export", ("{out}/anns.jsonl", "--user", "ann"), writes=True),
    Call("rollback", ("shared.2",), writes=True),
    Call("pin", ("shared.3",), writes=True),
    Call("unpin", ("user-ann",), writes=True),
    Call("freeze", writes=True),
    Call("unfreeze", writes=True),
    Call("plan", ("--model", "bundled", "--gpus", "0", "--memory", "64"), has_home=False),
    Call("connect", ("--list",), has_home=False),
    Call("connect", ("openclaw", "--file", "{out}/openclaw.json", "--no-test")),
    Call("forget", ("--session", "{session}", "--dry-run")),
    Call("forget", ("--session", "{session}", "--yes", "--no-remake"), writes=True, forgets=True),
    Call("hints list"),
    Call("hints add", (HINT,), writes=True),
    Call("hints edit", ("{hint}", HINT), writes=True),
    Call("hints retire", ("{hint}",), writes=True),
    Call("hints remove", ("{hint}",), writes=True),
    Call("keys list"),
    Call("keys add", ("bob",), writes=True),
    Call("keys revoke", ("ann",), writes=True),
    SERVE,
    Call("diff", ("0", "2", "--max-tokens", "8"), cost=Cost.MODEL),
    Call("forget", ("--turn", "{turn}", "--yes"), cost=Cost.MODEL, writes=True, forgets=True),
    Call("replay", cost=Cost.MODEL, may_refuse_beside_server=True),
    Call(
        "replay",
        ("--version", "shared.1", "--method", "binary", "--out", "{out}/replayed"),
        cost=Cost.MODEL,
        may_refuse_beside_server=True,
    ),
    Call("tasks check", (TASKS, "--box", "plain"), has_home=False),
    Call(
        "tasks make-swe",
        (LIBRARY, "--box", "plain", "--most", "1", "--tries", "1", "--out", "{out}/swe"),
        cost=Cost.LONG,
        has_home=False,
    ),
    Call("tasks make-screens", ("{out}/screens", "--train", "1", "--test", "1"), has_home=False),
    *(Call(f"pool {name}", ("--help",), has_home=False) for name in ("serve", "status", "drain")),
    *(
        Call(name, ("--tasks", TASKS, "--env", "software", "--split", "all", *more), may_refuse_beside_server=True)
        for name, more in (("rollout", ()), ("train-agent", ("--episodes", "1")), ("eval tasks", ()))
    ),
    Call("tiny score", ("--count", "1"), cost=Cost.LONG, has_home=False),
    Call("tiny build", ("--folder", "{out}/tiny", "--short"), cost=Cost.LONG, has_home=False),
    Call("tiny agent", ("--folder", "{out}/tiny-agent", "--short"), cost=Cost.LONG, has_home=False),
    Call("tiny agent-tasks", ("--folder", "{out}/agent-tasks", "--train", "2"), cost=Cost.LONG, has_home=False),
    Call("tiny judge", ("--folder", "{out}/tiny-judge", "--short"), cost=Cost.LONG, has_home=False),
    Call("demo", ("--out", "{out}/demo", "--sessions", "1"), cost=Cost.LONG, has_home=False),
    Call("eval judge", ("--quick", "--json", "{out}/judge.json"), cost=Cost.LONG, has_home=False),
    Call("eval wordings", ("--quick", "--json", "{out}/wordings.json"), cost=Cost.LONG, has_home=False),
    Call(
        "eval personalization",
        ("--method", "recipe", "--seeds", "1", "--sessions", "1", "--probes", "1", "--folder", "{out}/eval"),
        cost=Cost.LONG,
        has_home=False,
    ),
    Call(
        "eval wishes",
        ("--carry", "memory", "--seeds", "1", "--sessions", "1", "--probes", "1", "--folder", "{out}/eval"),
        cost=Cost.LONG,
        has_home=False,
    ),
)


def calls(*costs: Cost, has_home: bool = True) -> list[Call]:
    """The calls of these costs; with `has_home` only those about a folder."""
    return [call for call in CALLS if call.cost in costs and (call.has_home or not has_home)]


def check_complete() -> None:
    """Ends the benchmark where the program has a command that no call is of, or a call is of no command."""
    from openclaw_rl.cli import command_names

    known = set(command_names())
    called = {call.command for call in CALLS}
    if known != called:
        raise SystemExit(f"commands without a case: {sorted(known - called)}; cases of none: {sorted(called - known)}")
