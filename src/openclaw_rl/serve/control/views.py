"""Turns and versions as JSON, for people and for the web page."""

from __future__ import annotations

from collections import Counter

from openclaw_rl.core.message import Json, Role
from openclaw_rl.core.protocols import Renderer
from openclaw_rl.core.sample import Sample, SampledReply
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.serve.control.explain import explained, lesson_explained
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import TurnRow, VersionRow
from openclaw_rl.store.tables.episodes import EpisodeRow
from openclaw_rl.store.tables.overrules import Overrule


def turn_line(row: TurnRow) -> dict[str, Json]:
    """A turn in one line: its session, its state, how it was judged."""
    turn, completion = row.turn, row.turn.completion
    return {
        "id": turn.id,
        "at": turn.at_s,
        "session": turn.session,
        "user": turn.user,
        "agent": turn.agent,
        "api": turn.api,
        "kind": turn.kind.value,
        "why": turn.why,
        "state": None if row.state is None else row.state.value,
        "reason": None if row.reason is None else row.reason.value,
        "finish": completion.finish.value,
        "version": str(completion.version),
        "prompt_tokens": len(turn.prompt),
        "continued_tokens": turn.prompt.continued,
        "tokens": len(completion.tokens),
        "score": None if row.verdict is None else row.verdict.score,
        "hints": 0 if row.verdict is None else len(row.verdict.hints),
        "has_sample": row.has_sample,
        "step": row.step,
        "trained_version": None if row.trained_version is None else str(row.trained_version),
    }


def episode_line(row: EpisodeRow) -> dict[str, Json]:
    """An episode in one line."""
    episode = row.episode
    return {
        "id": episode.id,
        "user": episode.user,
        "task": episode.task,
        "group": episode.group,
        "group_size": episode.group_size,
        "seed": episode.seed,
        "environment": episode.environment,
        "state": episode.state.value,
        "begun_at": episode.begun_s,
        "ended_at": episode.ended_s,
        "outcome": episode.outcome,
        "failure": episode.failure.value,
        "why": episode.why,
        "steps": len({step.step.index for step in row.steps if step.state is not None}),
    }


async def episode_json(store: Store, row: EpisodeRow) -> dict[str, Json]:
    """An episode turn by turn: the reply of each step, its next state, and its state in the ledger.

    `pictures` lists a step's screenshots: `before` it, `after` it.
    """
    found: list[Json] = []
    pictures: dict[int, list[Json]] = {}
    for one in sorted(await store.pictures.of(row.episode.id), key=lambda name: name.is_after):
        pictures.setdefault(one.step, []).append("after" if one.is_after else "before")
    for step in row.steps:
        held = await store.row(step.turn)
        if held is None:
            continue
        after = held.next_state
        samples = await store.effects.samples([step.turn])
        found.append(
            {
                "step": step.step.index,
                "turn": step.turn,
                "observation": step.step.observation,
                "pictures": pictures.get(step.step.index, []),
                "said": held.turn.reply.as_json(),
                "shown": None if after is None else after.text,
                "score": step.score,
                "state": None if held.state is None else held.state.value,
                "reason": None if held.reason is None else held.reason.value,
                "version": str(held.turn.completion.version),
                "peers": len(samples[0].peers) if samples else 0,
                "trained_version": None if held.trained_version is None else str(held.trained_version),
            }
        )
    first = await store.turn(row.steps[0].turn) if row.steps else None
    asked = () if first is None else (item.text for item in first.messages if item.role is Role.USER)
    return episode_line(row) | {"asked": next(iter(asked), None), "turns": found}


def turn_json(row: TurnRow) -> dict[str, Json]:
    """A turn with all its facts."""
    turn, after, thumb = row.turn, row.next_state, row.feedback
    body = turn_line(row)
    body["explained"] = list(explained(row))
    body["parent"] = turn.parent
    step = turn.step
    body["episode"] = (
        None
        if step is None
        else {"id": step.episode, "step": step.index, "observation": step.observation, "score": row.step_score}
    )
    body["group"] = turn.group
    body["messages"] = [item.as_json() for item in turn.messages]
    body["tools"] = [tool.as_json() for tool in turn.tools]
    body["carried"] = [{"id": item.id, "text": item.text, "behind_message": item.at} for item in turn.carried]
    body["reply"] = turn.reply.as_json()
    body["spans"] = [[span.kind.value, span.start, span.stop] for span in turn.completion.spans]
    body["next_state"] = (
        None
        if after is None
        else {"source": after.source.value, "messages": [item.as_json() for item in after.messages]}
    )
    body["verdict"] = None if row.verdict is None else _verdict_json(row.verdict)
    body["feedback"] = None if thumb is None else {"score": thumb.score, "text": thumb.text, "at": thumb.at_s}
    return body


def lesson_json(sample: Sample, turn: Turn, renderer: Renderer) -> dict[str, Json]:
    """The sample made of a turn: its signals, what a teacher reads, and sampled replies that nobody was served."""
    return {
        "explained": lesson_explained(sample, turn),
        "score": sample.score,
        "baseline": sample.baseline,
        "hints": [hint.text for hint in sample.hints],
        "is_promoted": sample.is_promoted,
        "is_taught": sample.is_taught,
        "rehearses": list(sample.rehearses),
        "own": _reply_json(sample.own, renderer),
        "shown": [_reply_json(reply, renderer) for reply in sample.shown],
    }


def _reply_json(reply: SampledReply | None, renderer: Renderer) -> Json:
    if reply is None:
        return None
    return {"reply": renderer.decode(reply.tokens)[0].as_json(), "version": str(reply.version)}


def version_json(row: VersionRow, *, is_current: bool) -> dict[str, Json]:
    """A version: what made it, and its status."""
    return {
        "version": str(row.version),
        "scope": row.version.scope,
        "number": row.version.number,
        "parent": None if row.parent is None else str(row.parent),
        "upon": None if row.upon is None else str(row.upon),
        "status": row.status.value,
        "why": row.why,
        "made_at": row.made_s,
        "digest": row.digest,
        "pruned_at": row.pruned_s,
        "turns": list(row.turns),
        "rehearsed": list(row.rehearsed),
        "metrics": dict(row.metrics),
        "is_current": is_current,
    }


async def versions_json(
    store: Store, *, limit: int, before: PolicyVersion | None = None, with_learned: bool = False
) -> dict[str, Json]:
    """The newest versions, or those made before one, oldest first; which are served, pinned, and whether all is frozen.

    `before` is the version to page on from. If requested, also what each was to learn, in the words of its hints, from
    how many turns of which kind, and why a version with pruned weights cannot be restored.
    """
    held = await store.keeping.page(limit=limit + 1, before=before)
    rows, pins = held[-limit:], await store.orders.pins()
    scopes = dict.fromkeys((SHARED, *(row.version.scope for row in rows)))
    current = {scope: await store.current(scope) for scope in scopes}
    is_asked = with_learned and any(row.pruned_s is not None for row in rows)
    erased = await store.keeping.erased(rows[-1].version) if is_asked else {}
    lessons = await store.effects.lessons([turn for row in rows for turn in row.turns] if with_learned else [])
    found: list[Json] = []
    for row in rows:
        line = version_json(row, is_current=current[row.version.scope] == row.version)
        line["is_pinned"] = pins.get(row.version.scope) == row.version
        if with_learned:
            own = [lessons[turn] for turn in row.turns if turn in lessons]
            line["learned"] = list(dict.fromkeys(text for lesson in own for text in lesson.hints))
            line["from"] = dict(Counter(lesson.kind for lesson in own))
            lost = erased.get(row.version)
            line["erased"] = None if lost is None else {"version": str(lost.version), "samples": lost.samples}
        found.append(line)
    return {
        "versions": found,
        "before": str(rows[0].version) if len(held) > limit else None,
        "current": {scope: str(version) for scope, version in current.items()},
        "pins": {scope: str(version) for scope, version in pins.items()},
        "frozen_since": await store.orders.frozen_since_s(),
    }


def overrule_json(said: Overrule) -> dict[str, Json]:
    """An owner's verdict that replaced the judge's, and the judge's."""
    judged: Json = None if said.judged is None else {"score": said.judged[0], "hints": list(said.judged[1])}
    return {
        "turn": said.turn,
        "at": said.at_s,
        "by": said.key_name,
        "score": said.score,
        "hints": list(said.hints),
        "judged": judged,
    }


def _verdict_json(verdict: Verdict) -> dict[str, Json]:
    return {
        "score": verdict.score,
        "source": verdict.source.value,
        "mean": verdict.mean,
        "hints": [{"text": hint.text, "source": hint.source.value} for hint in verdict.hints],
        "votes": [
            {
                "asked": vote.asked,
                "score": vote.score,
                "hint": vote.hint,
                "raw": vote.raw,
                "judge": vote.judge,
                "seconds": vote.seconds,
            }
            for vote in verdict.votes
        ],
    }
