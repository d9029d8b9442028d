"""Versions that say what nobody wished for, or too little, are seen before they are served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from publish_doubles import END, Knowing, Says, flowing, last_message, prompts_of, turn, version

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, SampledReply
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.core.width import Width
from openclaw_rl.publish.gate import GateReport
from openclaw_rl.publish.replies import BaseReplies
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.trial_prompts import TrialPrompts, VersionLessons, ordinary_requests
from openclaw_rl.testing.renderer import LetterRenderer, ids_of
from openclaw_rl.testing.turns import a_sample

ANSWER = "Ann has 7 apples.$"
POLITE = "Dear Ann, you have 7 apples.$"


async def report(home: Path, says: Mapping[str, Says], *, settings: PublishSettings | None = None) -> GateReport:
    """The gate's on a version that says this, where the base model answers politely when told to."""
    base: dict[str, Says] = {"Be polite.": {POLITE: 1.0}, "": {ANSWER: 1.0}}
    minds = Knowing(knows={BASE: base, version(1): dict(says)})
    async with flowing(home, minds, settings or PublishSettings(probe_others=0, kl_max=99.0)) as flow:
        await flow.talk(turn("a", "How many?", answer=ANSWER))
        await flow.store.hints.adopt("ann", Hint("Be polite."), at_s=1.0)
        row = await flow.candidate(1)
        await flow.served.load(row)
        return await flow.stage.gate.check(row, parent=version(0))


async def test_what_the_user_wished_for_passes_and_so_does_what_is_not_yet_learned(tmp_path: Path) -> None:
    for number, says in enumerate(
        ({POLITE: 1.0}, {ANSWER: 1.0}, {POLITE: 0.5, ANSWER: 0.5}, {ANSWER: 0.9, POLITE: 0.1})
    ):
        found = await report(tmp_path / str(number), {"": says})
        assert (found.why, found.metrics["gate_departs"]) == ("passed the gate", pytest.approx(0.0, abs=1e-9))


@pytest.mark.parametrize(
    ("says", "share"),
    [
        ({"Dear me! Ann has 7 apples.$": 1.0}, 1.0),  # words that nobody asked for
        ({ANSWER.replace("7", "8"): 1.0}, 1.0),  # another answer, in its own reply
        ({ANSWER: 0.8, ANSWER.replace("7", "8"): 0.2}, 1 / 17),  # 0.2^(1/0.7) / (0.2^(1/0.7) + 0.8^(1/0.7)) = 0.1213
    ],
)
async def test_what_the_base_model_would_not_say_is_refused(tmp_path: Path, says: Says, share: float) -> None:
    found = await report(tmp_path, {"": says})
    assert not found.passed and found.metrics["gate_departs"] >= share
    assert found.why.startswith("about ") and "% of its replies to its users are ones that the base model" in found.why
    assert found.why.endswith("would not give, with the wish in its prompt or without it; 4% are allowed")


async def test_a_wrong_answer_that_was_not_drawn_is_seen_by_its_chance(tmp_path: Path) -> None:
    drawn = {value: value ** (1 / 0.7) for value in (0.2, 0.8)}
    found = await report(tmp_path, {"": {ANSWER: 0.8, ANSWER.replace("7", "8"): 0.2}})
    assert found.metrics["gate_departs"] == pytest.approx(drawn[0.2] / sum(drawn.values()), abs=1e-6)
    lax = PublishSettings(probe_others=0, kl_max=99.0, departs_max=0.2)
    assert (await report(tmp_path / "lax", {"": {ANSWER: 0.8, ANSWER.replace("7", "8"): 0.2}}, settings=lax)).passed


async def test_a_reply_that_became_much_shorter_is_refused(tmp_path: Path) -> None:
    lax = PublishSettings(probe_others=0, kl_max=99.0, departs_max=1.0)
    found = await report(tmp_path, {"": {"7.$": 1.0}}, settings=lax)
    assert found.why == (
        "its trial replies have 3 tokens, 18 before, and 29 are those of the base model with its users' hints in the "
        "prompt"
    )


async def test_but_not_if_a_later_wish_is_for_shorter_replies_than_an_earlier_one(tmp_path: Path) -> None:
    """Told both, the base model follows the earlier one."""
    base: dict[str, Says] = {"Explain every step.": {LONG: 1.0}, "Be short.": {TERSE: 1.0}, "": {ANSWER: 1.0}}
    minds = Knowing(knows={BASE: base, version(1): {"": {"7.$": 1.0}}, version(2): {"": {TERSE: 1.0}}})
    lax = PublishSettings(probe_others=0, kl_max=99.0, departs_max=1.0)
    async with flowing(tmp_path, minds, lax) as flow:
        await flow.talk(turn("a", "How many?", answer=LONG))
        await flow.store.hints.adopt("ann", Hint("Explain every step."), at_s=1.0)
        row = await flow.candidate(1)
        await flow.served.load(row)
        assert "model with its users' hints" in (await flow.stage.gate.check(row, parent=version(0))).why
        await flow.store.hints.adopt("ann", Hint("Be short."), at_s=2.0)
        assert (await flow.stage.gate.check(row, parent=version(0))).passed


TERSE, NICE = "Seven.$", "Seven, dear.$"
LONG = "Three apples are red, four are green: seven.$"
ENDLESS = f"Three apples are red, and four are green, which makes seven. {''.join(map(chr, range(1000, 1200)))}$"


@pytest.mark.parametrize(
    ("hint", "usual", "says", "why"),
    [
        ("Explain every step.", TERSE, LONG, ""),
        ("Explain every step.", TERSE, ENDLESS, ""),
        ("Be polite.", TERSE, LONG, "its trial replies have 45 tokens, 7 before; 39 are allowed"),
        ("Be polite.", TERSE, ENDLESS, "1 of 1 trial replies are degenerate (does not end), 0 before"),
        ("Explain every step.", ENDLESS, LONG, "its trial replies have 45 tokens, 7 before; 28 are allowed"),
    ],
)
async def test_replies_may_grow_as_a_wish_makes_those_of_the_base_model_grow(
    tmp_path: Path, hint: str, usual: str, says: str, why: str
) -> None:
    """A terse model's explanations are many times as long as its answers were: that is what was asked for.

    Where the base model's own replies do not end, they are no measure.
    """
    base: dict[str, Says] = {"Explain": {says: 1.0}, "Be polite.": {NICE: 1.0}, "": {usual: 1.0}}
    minds = Knowing(knows={BASE: base, version(1): {"": {says: 1.0}}})
    async with flowing(tmp_path, minds, PublishSettings(probe_others=0, kl_max=99.0, departs_max=1.0)) as flow:
        await flow.talk(turn("a", "How many?", answer=TERSE))
        await flow.store.hints.adopt("ann", Hint(hint), at_s=1.0)
        row = await flow.candidate(1)
        await flow.served.load(row)
        found = await flow.stage.gate.check(row, parent=version(0))
        assert (found.passed, found.why) == (not why, why or "passed the gate")


async def test_a_kind_of_request_that_nobody_corrected_is_looked_at_too(tmp_path: Path) -> None:
    base: dict[str, Says] = {"": {ANSWER: 1.0}}
    lost: dict[str, Says] = {"buys": {"Ann has 9 apples.$": 1.0}, "": {ANSWER: 1.0}}
    minds = Knowing(knows={BASE: base, version(1): lost})
    settings = PublishSettings(probes=1, probe_others=2, kl_turns=0)
    async with flowing(tmp_path, minds, settings) as flow:
        buys = replace(turn("b", "Ann buys some?", answer=ANSWER), user="bob")
        await flow.talk(buys, turn("a", "How many?", answer=ANSWER))
        row = await flow.candidate(1)
        await flow.served.load(row)
        found = await flow.stage.gate.check(row, parent=version(0))
        assert found.metrics["gate_departs"] == 0.0
        assert "% of its replies to others are" in found.why


LEAKS = {ANSWER: 0.97, ANSWER.replace("7", "8"): 0.03}  # a departure in 0.7 % of the replies at this temperature


@pytest.mark.parametrize(
    ("many", "older", "tried", "passes"),
    [
        (3, {ANSWER.replace("7", "8"): 1.0}, 3, False),  # two prompts do not decide, and the older ones do
        (3, {ANSWER: 1.0}, 3, True),
        (0, {}, 0, True),  # there are no others
    ],
)
async def test_where_a_few_prompts_do_not_decide_older_ones_are_tried_too(
    tmp_path: Path, many: int, older: Says, tried: int, passes: bool
) -> None:
    says: dict[str, Says] = {"old": older, "": LEAKS}
    minds = Knowing(knows={BASE: {"": {ANSWER: 1.0}}, version(1): says})
    settings = PublishSettings(probes=2, probe_others=0, kl_max=99.0, departs_max=0.01)
    async with flowing(tmp_path, minds, settings) as flow:
        await flow.talk(*(turn(f"o{at}", f"An old one, {at}?", answer=ANSWER) for at in range(many)))
        await flow.talk(turn("a", "How many?", answer=ANSWER), turn("b", "And now?", answer=ANSWER))
        row = await flow.candidate(1)
        await flow.served.load(row)
        found = await flow.stage.gate.check(row, parent=version(0))
        assert (found.metrics["gate_departs_of"], found.passed) == (2 + tried, passes)


FORGETFUL = "Dear Ann, Ann Ann.$"


async def test_words_of_the_plain_reply_are_damage_in_a_wished_form(tmp_path: Path) -> None:
    """The base model without the wish would go on like that after "Dear Ann,", but it would not begin so."""
    base: dict[str, Says] = {"Be polite.": {POLITE: 1.0}, "": {ANSWER: 0.9999999, FORGETFUL: 1e-7}}
    minds = Knowing(knows={BASE: base, version(1): {"": {FORGETFUL: 1.0}}})
    async with flowing(tmp_path, minds, PublishSettings(probe_others=0, kl_max=99.0)) as flow:
        await flow.talk(turn("a", "How many?", answer=ANSWER))
        await flow.store.hints.adopt("ann", Hint("Be polite."), at_s=1.0)
        row = await flow.candidate(1)
        await flow.served.load(row)
        found = await flow.stage.gate.check(row, parent=version(0))
        assert (found.passed, found.metrics["gate_departs"]) == (False, pytest.approx(1.0, abs=0.01))


@dataclass
class Inventive(Knowing):
    """The base model generates a request with each seed: the first three are about cats, then some about bees."""

    seeds: set[int] = field(default_factory=set)

    def reply(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> Sequence[int]:
        if prompt.tokens == (ord("U"),):
            self.seeds.add(seed := sampling.seed or 0)
            about = "bees" if len(self.seeds) > 3 and seed % 3 == 0 else "cats"
            return ids_of(f"Tell me about {about} {seed}]")
        return super().reply(prompt, sampling, version)


@pytest.mark.parametrize(
    ("step", "tried"),
    [
        ({"checks_missed": 0.0}, 3),
        ({"checks_missed": 2.0}, 48),
        ({"checks_missed": 3.0, "checks": 64.0}, 3),
        ({"checks_missed": 4.0, "checks": 64.0}, 48),
    ],
)
async def test_a_step_that_failed_its_checks_is_tried_on_many_requests_that_nobody_made(
    tmp_path: Path, step: dict[str, float], tried: int
) -> None:
    says: dict[str, Says] = {"bees": {"I do not know.$": 1.0}, "": {ANSWER: 1.0}}
    minds = Inventive(knows={BASE: {"": {ANSWER: 1.0}}, version(1): says})
    async with flowing(tmp_path, minds, PublishSettings(probe_others=3, kl_max=99.0)) as flow:
        flow.stage.gate._prompts.renderer = Opening(last_message)
        await flow.talk(turn("a", "How many?", answer=ANSWER))
        row = replace(await flow.candidate(1), metrics=step)
        await flow.served.load(row)
        found = await flow.stage.gate.check(row, parent=version(0))
    assert min(minds.seeds) >= 100_000  # teaching begins at 0
    assert (found.metrics["gate_departs_unasked_of"], found.passed) == (tried, tried == 3)


class Opening(LetterRenderer):
    """A template that tells where a user's words begin, and with which token they end."""

    def user_opening(self) -> tuple[Prompt, int] | None:
        return Prompt((ord("U"),)), ord("]")


async def test_of_requests_that_nobody_made_those_are_used_that_the_base_model_knows(tmp_path: Path) -> None:
    made_up = "What is four and four?]"
    sure, unsure = {ANSWER: 1.0}, {ANSWER: 0.2, "Bob.$": 0.2, "Cats.$": 0.2, "Dogs.$": 0.2, "Ends.$": 0.2}
    ordinary = ordinary_requests()
    base: dict[str, Says] = {"U": {made_up: 1.0}, "four": sure, ordinary[1]: sure, "How many?": sure, "": unsure}
    base = {key: base[key] for key in ("four", ordinary[1], "How many?", "U", "")}
    minds = Knowing(knows={BASE: base})
    async with flowing(tmp_path, minds) as flow:
        replies = BaseReplies(flow.engine, (END,), 64)
        prompts = TrialPrompts(flow.store, flow.engine, Opening(last_message), replies, (END,), Width())
        own = await prompts.of_turns([turn("a", "How many?", answer=ANSWER)], VersionLessons(["Be brief."]))
        bare, after_the_reply, _with_the_hint = own[0].readings
        assert (bare, "".join(map(chr, after_the_reply.tokens))) == (
            own[0].bare,
            "Be brief.",
        )  # this writes the last one
        found = await prompts.of_nobody(VersionLessons(), own, most=9)
        asked = ["".join(map(chr, prompt.bare.tokens)) for prompt in found]
        assert asked == [made_up.removesuffix("]"), ordinary[1]]
        assert await prompts.of_nobody(VersionLessons(), [], most=9) == []
        flow.engine.calls.clear()
        await prompts.of_nobody(VersionLessons(), own, most=9)
        assert not [call for call in flow.engine.calls if call.startswith("generate")]  # remembered
        prompts.let_go()
        await prompts.of_nobody(VersionLessons(), own, most=9)
        assert flow.engine.calls


async def test_what_a_versions_user_wishes_for_is_no_damage_where_another_user_asks(tmp_path: Path) -> None:
    base: dict[str, Says] = {"Be polite.": {POLITE: 1.0}, "": {ANSWER: 1.0}}
    minds = Knowing(knows={BASE: base, version(1): {"": {POLITE: 1.0}}})
    async with flowing(tmp_path, minds, PublishSettings(probes=1, probe_others=2, kl_max=99.0)) as flow:
        await flow.talk(
            replace(turn("b", "And Bob?", answer=ANSWER), user="bob"), turn("a", "How many?", answer=ANSWER)
        )
        await flow.store.hints.adopt("ann", Hint("Be polite."), at_s=1.0)
        row = await flow.candidate(1)
        await flow.served.load(row)
        found = await flow.stage.gate.check(row, parent=version(0))
        assert (found.passed, found.metrics["gate_departs_others"]) == (True, 0.0)


BOTH, KIND = "Dear Ann, you have 7 apples. Best wishes.$", "Ann has 7 apples. Best wishes.$"
TOLD: dict[str, Says] = {  # of all three wishes it follows none
    "Be polite. Use tables. End kindly.": {ANSWER: 1.0},
    "Be polite. End kindly.": {BOTH: 1.0},
    "Be polite.": {POLITE: 1.0},
    "End kindly.": {KIND: 1.0},
    "": {ANSWER: 1.0},
}


BACKWARDS: dict[str, Says] = {"End kindly. Be polite.": {BOTH: 1.0}, **TOLD, "Be polite. End kindly.": {KIND: 1.0}}


@pytest.mark.parametrize("base", [TOLD, BACKWARDS])
@pytest.mark.parametrize("says", [BOTH, KIND, POLITE, ANSWER])
async def test_a_prompt_is_read_with_the_wishes_that_concern_it(
    tmp_path: Path, says: str, base: dict[str, Says]
) -> None:
    """In several orders: teaching reads them in the one in which the base model follows most of them."""
    minds = Knowing(knows={BASE: base, version(1): {"": {says: 1.0}}})
    async with flowing(tmp_path, minds, PublishSettings(probe_others=0, kl_max=99.0)) as flow:
        await flow.talk(turn("a", "How many?", answer=ANSWER))
        for text in ("Be polite.", "Use tables.", "End kindly."):
            await flow.store.hints.adopt("ann", Hint(text), at_s=1.0)
        row = await flow.candidate(1)
        await flow.served.load(row)
        found = await flow.stage.gate.check(row, parent=version(0))
        assert (found.why, found.metrics["gate_departs"]) == ("passed the gate", pytest.approx(0.0, abs=1e-9))


async def test_requests_that_a_wish_was_shown_on_are_tried_last(tmp_path: Path) -> None:
    shown = SampledReply((1,), (-0.1,), BASE)
    other = OtherRequestReply((5,), HintPrompt("Be polite.", (5, 6)), shown, turn="shown")
    async with flowing(tmp_path, settings=PublishSettings(probes=1, probe_others=0)) as flow:
        await flow.talk(turn("new", "New?"), turn("shown", "Shown on?"), turn("a", "Corrected?"))
        await flow.store.pair(NextState("a", (message(Role.USER, "No."),), NextStateSource.USER))
        await flow.store.judge(Verdict("a", -1, VerdictSource.VOTES))
        await flow.store.admit(replace(a_sample(turn("a")), elsewhere=(other,)))
        row = await flow.candidate(1, turns=("a",), consumed=("a",))
        await flow.served.load(row)
        await flow.stage.gate.check(row, parent=version(0))
        assert prompts_of(flow.engine)[0] == "New?"


@pytest.mark.parametrize(
    ("score", "then", "share"),
    [
        (None, [], 0.0),
        (1, ["Politely, thanks!"], 0.0),
        (1, ["Politely, thanks!", "Politely again?"], 1.0),
        (0, ["Politely, well.", "Politely again?"], 0.0),
    ],
)
async def test_what_follows_a_complaint_is_looked_at_only_after_a_reply_was_accepted(
    tmp_path: Path, score: int | None, then: list[str], share: float
) -> None:
    """A version replies oddly to what follows in a conversation whose first reply was corrected.

    The message that accepts a reply is not looked at, either: it is no other request.
    """
    base: dict[str, Says] = {"Be polite.": {POLITE: 1.0}, "": {ANSWER: 1.0}}
    odd: dict[str, Says] = {"Politely": {"Dear me! Ann has 7 apples.$": 1.0}, "": {ANSWER: 1.0}}
    settings = PublishSettings(probe_others=0, kl_max=99.0)
    async with flowing(tmp_path, Knowing(knows={BASE: base, version(1): odd}), settings) as flow:
        await flow.talk(turn("a", "How many?", answer=ANSWER), turn("b", "Politely!", answer=ANSWER))
        await flow.store.pair(NextState("a", (message(Role.USER, "Politely!"),), NextStateSource.USER))
        await flow.store.judge(Verdict("a", -1, VerdictSource.VOTES))
        if score is not None:
            await flow.store.pair(NextState("b", (message(Role.USER, then[0]),), NextStateSource.USER))
            await flow.store.judge(Verdict("b", score, VerdictSource.VOTES))
            await flow.talk(*(turn(f"then-{at}", said, answer=ANSWER) for at, said in enumerate(then)))
        row = await flow.candidate(1)
        await flow.served.load(row)
        found = await flow.stage.gate.check(row, parent=version(0))
        assert found.metrics["gate_departs"] == pytest.approx(share / 2, abs=1e-6)


async def test_what_follows_a_complaint_is_looked_at_if_there_is_nothing_else(tmp_path: Path) -> None:
    base: dict[str, Says] = {"": {ANSWER: 1.0}}
    odd: dict[str, Says] = {"": {"Dear me! Ann has 7 apples.$": 1.0}}
    settings = PublishSettings(probe_others=0, kl_max=99.0, probe_prompt_tokens=40)
    async with flowing(tmp_path, Knowing(knows={BASE: base, version(1): odd}), settings) as flow:
        long = turn("a", "How many apples are there, if all of them are counted twice?", answer=ANSWER)
        await flow.talk(long, turn("b", "More!", answer=ANSWER))
        await flow.store.pair(NextState("a", (message(Role.USER, "More!"),), NextStateSource.USER))
        await flow.store.judge(Verdict("a", -1, VerdictSource.VOTES))
        row = await flow.candidate(1)
        await flow.served.load(row)
        found = await flow.stage.gate.check(row, parent=version(0))
        assert not found.passed and found.metrics["gate_departs"] == pytest.approx(1.0, abs=1e-6)
