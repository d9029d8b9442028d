"""Why nothing is learned, or that all is well: what the numbers of an installation say, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from openclaw_rl.core.ledger import DropReason
from openclaw_rl.store.tables.overview import Overview

ENOUGH = 10  # turns or verdicts before anything is concluded from them
MANY = 20
SAME = 20  # votes that all say the same before a judge is suspected
REFUSED = 3  # versions in a row
VERSIONS = 5  # made, before their effect is asked about
FEWER = 0.5  # of the corrections before: whoever can be taught corrects no more than that later on
ASIDE = 0.1  # of as many as were trained on: so many samples set aside are not left to themselves
OFTEN = 0.3  # share of corrected turns that no longer passes for now and then

WHAT_TO_DO: dict[str, str] = {
    DropReason.CUT_BY_LENGTH: "let clients ask for longer answers (max_tokens)",
    DropReason.CANCELLED: "see why clients give up before an answer ends: their timeouts, or a slow engine",
    DropReason.EMPTY: "see whether the model and its chat template fit together",
    DropReason.LOOP: "raise the temperature, or go back a version by `openclaw-rl rollback`",
    DropReason.CONTROL_TOKEN: "nothing, where most requests need no answer; collect.control_tokens names these words",
    DropReason.NO_NEXT_STATE: "have clients send the conversation along, or POST /v1/feedback",
    DropReason.NOT_FOLLOWED: "nothing: other answers to the same were gone on with",
    DropReason.NO_SIGNAL: "nothing, where users are content; else see what the judge votes: `openclaw-rl turns`",
    DropReason.UNHEEDED: "see by `openclaw-rl turns` if hints say what users meant; else use a model that follows them",
    DropReason.MAY_NOT_TEACH: "nothing, where that is meant; else give their keys the scope teach",
    DropReason.REDACTED: "keep secrets out of conversations; store.redact says what counts as one",
    DropReason.REPEATED: "see who repeats one correction so often, or raise train.same_words_a_day",
    DropReason.TOO_MANY: "see who sends so much, or raise train.user_samples_a_day",
    DropReason.IN_VAIN: "see whether what is asked for contradicts itself, or the judge errs; train.in_vain_turns",
    DropReason.MEMORY_ONLY: "set carry to weights or bridge, if the weights are to learn too",
    DropReason.LEARNED: "nothing: it is said without its hints as well",
    DropReason.TOO_LONG: "raise train.max_sample_tokens, where memory allows",
    DropReason.TOO_DEAR: "raise trainer.timeout_s or trainer.threads, or train on a GPU, and start the server again: "
    "they wait for a step then; or lower train.max_sample_tokens to leave such turns out",
    DropReason.STALE: "raise train.max_lag, or lower train.batch_size so that samples wait less",
    DropReason.NOT_FINITE: "lower trainer.lr, or train in float32",
    DropReason.NOT_LEARNABLE: "see why by `openclaw-rl versions` and what was asked for by `openclaw-rl turns`; lower "
    "trainer.lr, use a model that follows the hint when it reads it, or carry = memory",
    DropReason.DAMAGED: "see to the disk, and run `openclaw-rl check`",
    DropReason.TRAINER_FAILED: "see the server's log for why the trainer failed",
}
FEW = 10  # times as many samples learned, and those that cannot be are no more than a note
HARMLESS = frozenset({DropReason.LEARNED, DropReason.FORGOTTEN, DropReason.NOT_FOLLOWED, DropReason.CONTROL_TOKEN})


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"  # worth knowing
    MEND = "mend"  # nothing is learned, or soon nothing will be, until somebody does something


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, which stage it is about, and what to do."""

    level: Level
    stage: str
    said: str
    fix: str = ""

    @property
    def is_warning(self) -> bool:
        """Whether somebody has to do something."""
        return self.level is Level.MEND


@dataclass(frozen=True, slots=True)
class Signs:
    """What is looked at. What only a running server knows has defaults that say nothing.

    `counts` are the ledger's. `calls` are the judge's today, `calls_limit` 0 without a limit. `reused` is the share of
    prompt tokens that needed no reading, in requests that go on from a turn.
    """

    counts: Mapping[str, int]
    seen: Overview
    needed: int
    ready: int
    learns: bool = True
    is_live: bool = False
    judge_s: float | None = None
    judge_error: str = ""
    calls: int = 0
    calls_limit: int = 0
    train_error: str = ""
    train_waits: str = ""
    is_training: bool = False
    doing: str = ""  # what training does at this moment
    publish_notice: str = ""
    reused: float | None = None
    problems: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)  # stages, and why they broke lately

    def count(self, name: str) -> int:
        """A number of the ledger."""
        return self.counts.get(name, 0)


def story(signs: Signs) -> str:
    """Where learning stands, in one sentence."""
    main, side = signs.count("main"), signs.count("side")
    if main + side == 0:
        return _nothing(signs)
    if not signs.learns:
        return f"learning is off; {_many(main, 'main turn')} were stored"
    if main == 0:
        return f"all {side} turns were side requests: there is nothing to learn from"
    judged_0 = f"{signs.seen.zeros} judged 0"
    parts = [
        f"{_many(main, 'main turn')}, {signs.seen.paired} {_have(signs.seen.paired)} a next state, {judged_0}, "
        f"{signs.ready} ready",
        _next_step(signs),
    ]
    if signs.count("paired"):
        parts.append(f"{signs.count('paired')} wait for the judge")
    if signs.judge_error:
        parts.append(f"the judge does not answer ({signs.judge_error})")
    elif signs.judge_s is not None:
        parts.append(f"the judge answers in {signs.judge_s:.1f} s")
    parts.append(f"{signs.count('trained')} were trained on, {signs.count('dropped')} were dropped")
    if signs.reused is not None:
        parts.append(f"prompt tokens reused: {signs.reused:.0%}")
    if signs.publish_notice:
        parts.append(signs.publish_notice)
    return "; ".join(parts)


def learning_findings(signs: Signs) -> tuple[Finding, ...]:
    """What keeps turns from being learned from, stage by stage; one that says so where nothing does."""
    if signs.count("main") + signs.count("side") == 0:
        return (
            *_broken(signs),
            Finding(Level.NOTE, "serve", _nothing(signs), "point a client at the server"),
        )
    found = [*_broken(signs), *_served(signs), *_collected(signs), *_judged(signs), *_dropped(signs), *_trained(signs)]
    if not any(item.level is Level.MEND for item in found):
        found[:0] = _learns(signs)
    return tuple(found)


def _learns(signs: Signs) -> Iterator[Finding]:
    """Whether turns are learned from, where nothing is to be mended."""
    frozen_s = signs.seen.frozen_since_s
    if frozen_s is not None:
        since = datetime.fromtimestamp(frozen_s).strftime("%Y-%m-%d %H:%M")
        said = f"training is frozen by your order since {since}: turns are judged, and wait"
        yield Finding(Level.NOTE, "learn", said, "`openclaw-rl unfreeze` lets it go on")
    elif signs.learns:
        when = "when enough are ready" if signs.is_live else "once a server runs and enough are ready"
        yield Finding(Level.OK, "learn", f"turns are learned from, or will be {when}")
    if signs.seen.pinned:
        which = ", ".join(signs.seen.pinned)
        fix = "`openclaw-rl unpin` serves the newest that passed the gate"
        yield Finding(Level.NOTE, "publish", f"pinned by your order: {which}; what is trained is not served", fix)


def _broken(signs: Signs) -> Iterator[Finding]:
    for stage, why in signs.broken.items():
        fix = "see the server's log; answers are served all the same, and the stage is begun again by itself"
        yield Finding(Level.MEND, stage, why, fix)


def _served(signs: Signs) -> Iterator[Finding]:
    if not signs.learns:
        yield Finding(Level.NOTE, "serve", "learning is off: turns are stored only", "start it without --no-learn")
    if signs.problems.get("serve"):
        yield Finding(Level.NOTE, "serve", f"the last request that failed: {signs.problems['serve']}")


def _collected(signs: Signs) -> Iterator[Finding]:
    seen, main, side = signs.seen, signs.count("main"), signs.count("side")
    if main == 0 or (seen.main == 0 and seen.side >= MANY):
        why = f" (mostly: {seen.side_why})" if seen.side_why else ""
        which = f"all {side} turns" if main == 0 else f"the last {seen.side} turns"
        yield Finding(
            Level.MEND,
            "collect",
            f"{which} were side requests, so nothing is learned from them{why}",
            "have the client send X-Turn-Type: main with the user's own turns; `openclaw-rl turns` says why of each",
        )
        return
    if seen.main >= ENOUGH and signs.seen.paired == 0:
        yield Finding(
            Level.MEND,
            "collect",
            f"none of {_many(main, 'main turn')} has a next state: nobody was seen to answer a reply",
            "have the client send the whole conversation with each request, with replies as they were served, or name "
            "the session (X-Session-Id), or POST /v1/feedback",
        )
        if seen.unnamed == seen.main and seen.sessions == seen.main:
            yield Finding(
                Level.MEND,
                "collect",
                f"no session could be told: each of the last {seen.main} main turns stands alone in one of its own",
                "have the client send X-Session-Id, or the earlier messages of the conversation",
            )
    yield from _spoken(seen.told)
    if seen.main >= MANY and seen.sessions == 1:
        is_learned_from = signs.count("trained") > 0
        yield Finding(
            Level.NOTE if is_learned_from else Level.MEND,
            "collect",
            f"the last {seen.main} main turns all belong to one session",
            "right if it is one long conversation; else the client sends the same session name for all of them",
        )


def _spoken(told: Mapping[str, int]) -> Iterator[Finding]:
    """What was made of requests that were not simply their owner's, and whether too much of it is doubt."""
    if not told:
        return
    listed = ", ".join(f"{count} x {clause}" for clause, count in told.items())
    yield Finding(Level.NOTE, "collect", f"of the last requests: {listed}", "`openclaw-rl turns ID` says why of each")
    doubts = sum(count for clause, count in told.items() if clause.startswith("spoke: nobody (") and "counts" in clause)
    if doubts >= ENOUGH:
        yield Finding(
            Level.NOTE,
            "collect",
            f"{doubts} times nobody could tell whether the owner or a program spoke; nothing was judged for it yet",
            "have the client send X-Turn-Type: main with its user's own words, or write a rule file (docs/clients.md)",
        )


def _judged(signs: Signs) -> Iterator[Finding]:
    waiting = signs.count("paired")
    if signs.calls_limit and signs.calls >= signs.calls_limit:
        yield Finding(
            Level.MEND,
            "judge",
            f"today's {signs.calls_limit} calls to the judge are spent; {_many(waiting, 'turn')} wait",
            "wait for tomorrow (UTC), or raise judge.daily_calls",
        )
    elif signs.judge_error:
        yield Finding(
            Level.MEND,
            "judge",
            f"the judge does not answer, {_many(waiting, 'turn')} wait: {signs.judge_error}",
            "see whether it runs at judge.url, and with judge.model and its key",
        )
    elif waiting and not signs.is_live:
        yield Finding(Level.NOTE, "judge", f"{_many(waiting, 'turn')} wait for the judge until a server runs")
    scores = signs.seen.scores
    total, abstained = sum(scores.values()), scores.get(None, 0)
    if total >= ENOUGH and abstained * 2 >= total:
        yield Finding(
            Level.MEND,
            "judge",
            f"the judge gave no valid vote on {abstained} of the last {total} turns",
            "use a larger judge (judge.url, judge.model), or raise judge.max_tokens so that it gets to its vote",
        )
    elif total >= SAME and len(scores) == 1:
        yield Finding(
            Level.MEND,
            "judge",
            f"the judge voted {next(iter(scores))} on each of the last {total} turns, which tells nothing",
            "look at its votes: `openclaw-rl turns ID`; use a larger judge if they are wrong",
        )


def _dropped(signs: Signs) -> Iterator[Finding]:
    dropped, main = signs.count("dropped"), signs.count("main")
    reasons = {name[8:]: many for name, many in signs.counts.items() if name.startswith("dropped.") and many}
    if not reasons:
        return
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    told = ", ".join(f"{many} {name}" for name, many in ordered)
    harmful = [(name, many) for name, many in ordered if name not in HARMLESS]
    is_most = main >= ENOUGH and sum(many for _, many in harmful) * 2 > main and not signs.count("trained")
    fix = WHAT_TO_DO.get(harmful[0][0], "") if harmful else ""
    yield Finding(
        Level.MEND if is_most else Level.NOTE, "train", f"{dropped} of {_many(main, 'main turn')} dropped: {told}", fix
    )


def _trained(signs: Signs) -> Iterator[Finding]:
    if signs.train_error:
        yield Finding(Level.MEND, "train", f"the last step failed: {signs.train_error}", _after(signs.train_error))
    elif signs.ready and not signs.is_training and signs.train_waits and signs.seen.frozen_since_s is None:
        yield Finding(Level.NOTE, "train", f"no step now: {signs.train_waits}")
    if signs.seen.refused_in_a_row >= REFUSED:
        yield Finding(
            Level.MEND,
            "publish",
            f"the gate refused the last {signs.seen.refused_in_a_row} versions, the newest because "
            f"{signs.seen.refused_why}",
            "lower trainer.lr, or see `openclaw-rl versions`; publish.kl_max and publish.probe_margin set the bounds",
        )
    yield from _too_dear(signs)
    in_vain = signs.count(f"dropped.{DropReason.NOT_LEARNABLE}")
    if in_vain and in_vain * FEW >= signs.count("trained"):
        yield Finding(
            Level.MEND,
            "train",
            f"{_many(in_vain, 'sample')} cannot be learned: versions made from them were refused each time, or no "
            "update came nearer to what was wanted",
            WHAT_TO_DO[DropReason.NOT_LEARNABLE],
        )
    yield from _in_vain(signs)
    if signs.publish_notice:
        yield Finding(Level.MEND, "publish", signs.publish_notice, "see `openclaw-rl versions` and the server's log")


def _too_dear(signs: Signs) -> Iterator[Finding]:
    """Samples that this machine has not the time or the memory for; many of them are to be mended."""
    aside = signs.count(f"dropped.{DropReason.TOO_DEAR}")
    if aside:
        level = Level.MEND if aside >= ASIDE * signs.count("trained") else Level.NOTE
        said = (
            f"{_many(aside, 'sample')} set aside: a step over one of them takes more time or memory than there is here"
        )
        yield Finding(level, "train", said, WHAT_TO_DO[DropReason.TOO_DEAR])


def _in_vain(signs: Signs) -> Iterator[Finding]:
    """Users who correct about as often as before, although versions were made meanwhile or hints found to be no use."""
    unheeded = signs.count(f"dropped.{DropReason.UNHEEDED}")
    if signs.seen.versions + unheeded < VERSIONS:
        return
    tried = f"{_many(signs.seen.versions, 'version')} made"
    tried += f" and {_many(unheeded, 'correction')} that changed nothing" if unheeded else ""
    for one in signs.seen.contentment:
        if one.judged < ENOUGH or one.later < OFTEN * one.judged or one.later <= FEWER * one.earlier:
            continue
        yield Finding(
            Level.MEND,
            "learn",
            f"{one.user} corrected {one.later} of the last {one.judged} replies and {one.earlier} of the {one.judged} "
            f"before, over {tried}: what this user teaches does not add up",
            "see what was asked for (`openclaw-rl hints list`, `openclaw-rl turns`): wishes that contradict each other "
            "cannot be learned, and a judge that errs teaches at random; `openclaw-rl rollback` goes back",
        )


def _after(error: str) -> str:
    """What to do about a step that failed."""
    if "disk is full" in error or "No space left" in error:
        return "free some space; the step is taken again by itself"
    return "see the server's log"


def _nothing(signs: Signs) -> str:
    if signs.seen.has_forgotten:
        return "no turn is stored: what was forgotten is gone, and nothing has been served since"
    return "nothing has been served yet"


def _next_step(signs: Signs) -> str:
    if signs.is_training:
        return signs.doing or "a step is being taken"
    if signs.seen.frozen_since_s is not None:
        return "training is frozen"
    return f"a step needs {signs.needed}" + (f"; {signs.doing}" if signs.doing else "")


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"
