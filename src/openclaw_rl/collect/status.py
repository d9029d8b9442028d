"""What keeps requests from becoming turns that are learned from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.finding import Finding, Level, many

ENOUGH = 10  # turns before anything is concluded from them
MANY = 20


def collect_findings(facts: StoreFacts) -> Iterator[Finding]:
    """Whether main turns arrive, are divided into sessions, and have next states."""
    seen, main, side = facts.seen, facts.count("main"), facts.count("side")
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
    if seen.main >= ENOUGH and facts.seen.paired == 0:
        yield Finding(
            Level.MEND,
            "collect",
            f"none of {many(main, 'main turn')} has a next state: no request continued from a served reply",
            "have the client send the whole conversation with each request, with replies as they were served, or name "
            "the session (X-Session-Id), or POST /v1/feedback",
        )
        if seen.unnamed == seen.main and seen.sessions == seen.main:
            yield Finding(
                Level.MEND,
                "collect",
                f"no sessions were recognised: each of the last {seen.main} main turns is alone in its session",
                "have the client send X-Session-Id, or the earlier messages of the conversation",
            )
    yield from _spoken(seen.told)
    if seen.main >= MANY and seen.sessions == 1:
        is_learned_from = facts.count("trained") > 0
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
            f"{doubts} times it was unclear whether the owner or a program spoke; so nothing was judged yet",
            "have the client send X-Turn-Type: main with its user's own words, or write a rule file (docs/clients.md)",
        )
