"""Drift: by template, how often a conversation goes on exactly through a client that rewrites, and never in silence.

Each stand-in of a published template holds conversations with tools, parallel calls, thinking, odd white space and
many scripts; replies are written as that family's models write them, or are whatever a random model samples. The real
engine records log-probabilities; transformers computes them again behind the ids as stored, and, for contrast, behind
the conversation encoded anew from its text.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from benchmarks.common import Figures, conditions, finish, is_quick, make_model, progress
from benchmarks.drift_talks import TOOLS, Talk
from openclaw_rl.core.completion import Completion, Finish, completion_of
from openclaw_rl.core.message import Message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn, TurnKind
from openclaw_rl.core.version import BASE
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.render.parsers import Family
from openclaw_rl.render.parsers.mistral import with_nine_letters
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.testing.families import STAND_INS, VOCAB
from openclaw_rl.testing.rewriting import Rewriting, ThinkingTreatment, claimed, is_honest
from openclaw_rl.testing.writing import end_of, written

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
WHATEVER_TOKENS = 24  # of a reply that nobody wrote
CONTRAST_EVERY = 3  # turns whose conversation is encoded anew as well
WAYS = ("continued", "spliced", "rejoined", "rewritten", "whole")


@dataclass(slots=True)
class Tally:
    """What happened to one template's turns."""

    turns: int = 0
    goes_on: int = 0
    unchanged: int = 0  # of those that go on: the client changed nothing in front of the reply
    exact: int = 0  # of these: all ids of the served prompt and reply lead the new prompt
    mismatches: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    gaps: list[float] = field(default_factory=list)
    anew: list[float] = field(default_factory=list)


def main() -> None:
    """Prints the figures."""
    torch.set_num_threads(1)
    seeds = [0] if is_quick() else [0, 1]
    with tempfile.TemporaryDirectory() as place:
        model = make_model(Path(place) / "model", vocab_size=VOCAB, **SIZES)
        tallies = asyncio.run(_held(model, seeds))
    every = list(tallies.values())
    figures: Figures = {
        "by_template": {name: _figures(tally) for name, tally in tallies.items()},
        "continued_exactly_share": _share(sum(each.exact for each in every), sum(each.unchanged for each in every)),
        "logp_gap_mean": fmean(gap for each in every for gap in each.gaps),
        "silent_mismatches": sum(each.mismatches for each in every),
        "turns": sum(each.turns for each in every),
    }
    name = f"random Qwen3, 2 layers, hidden 64, vocabulary {VOCAB}; a tokenizer a family, trained on the spot"
    figures["conditions"] = conditions(name, threads=1, seeds=seeds, repeats=1)
    finish(figures)


async def _held(model: Path, seeds: Sequence[int]) -> dict[str, Tally]:
    """All conversations of all templates."""
    engine = await LocalEngine.start(EngineSettings(model=str(model), device="cpu", dtype="float32", threads=1))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alone: nn.Module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        found: dict[str, Tally] = {}
        for stand_in in STAND_INS:
            tally = found[stand_in.name] = Tally()
            for seed in seeds:
                for thinking in ThinkingTreatment:
                    for is_quiet in (True, False):
                        talk = Talk(stand_in, Rewriting(thinking=thinking), is_quiet, seed)
                        await _hold(talk, engine, alone, tally)
            progress(f"{stand_in.name}: {_figures(tally)}")
        return found
    finally:
        await engine.aclose()


async def _hold(talk: Talk, engine: LocalEngine, alone: nn.Module, tally: Tally) -> None:
    """One conversation, every prompt of it checked and every reply computed again."""
    renderer = ChatRenderer(talk.model.template())
    served: Turn | None = None
    while (messages := talk.request()) is not None:
        before = Counter(renderer.stats)
        prompt = renderer.prompt(messages, TOOLS, served)
        tally.turns += 1
        if served is not None:
            _judge(talk, renderer, (messages, prompt), served, tally)
            tally.ways.update({way: renderer.stats[way] - before[way] for way in WAYS})
        completion = await _sampled(talk, renderer, engine, prompt)
        served = _turn(talk, renderer, messages, prompt, completion)
        again = _logp(alone, prompt.tokens, completion.tokens)
        tally.gaps += [abs(told - found) for told, found in zip(completion.logp, again, strict=True)]
        if tally.turns % CONTRAST_EVERY == 0:
            anew = _logp(alone, renderer.encode(_as_sent(renderer, messages)), completion.tokens)
            tally.anew += [abs(told - found) for told, found in zip(completion.logp, anew, strict=True)]
        talk.answer(served)


def _judge(
    talk: Talk, renderer: ChatRenderer, asked: tuple[Sequence[Message], Prompt], served: Turn, tally: Tally
) -> None:
    """Whether the prompt is what it claims to be: what was served, id for id, or what the template says."""
    messages, prompt = asked
    before = served.prompt.tokens + served.completion.tokens
    leads = prompt.tokens[: len(before)] == before
    told = _as_sent(renderer, talk.as_served(messages, claimed(prompt)))
    is_right = is_honest(prompt, told, talk.replies(), renderer.table)
    goes_on = claimed(prompt) or prompt.continued  # else nothing is claimed: the prompt is as it was sent
    tally.mismatches += not is_right or bool(goes_on and prompt.continued != _shared(prompt.tokens, before))
    tally.goes_on += 1
    if not talk.is_changed:
        tally.unchanged += 1
        tally.exact += leads


async def _sampled(talk: Talk, renderer: ChatRenderer, engine: LocalEngine, prompt: Prompt) -> Completion:
    """A reply of this family, cut into tokens at random, scored by the engine; or whatever it samples."""
    intent = talk.intent()
    ends = tuple(renderer.encode(end)[0] for end in talk.model.ends)
    if intent is None:
        asked = Sampling(WHATEVER_TOKENS, seed=talk.random.randrange(2**31), stop_ids=ends)
        tokens = [token async for token in engine.generate(prompt, asked, BASE)]
        return completion_of(tokens, BASE, tokens[-1].finish or Finish.LENGTH)
    opening = renderer.table.text(prompt.tokens[prompt.segments[-1].start :])
    text = written(talk.model, intent, opening=opening)
    ids = (*_cut(renderer, text, talk.random), *renderer.encode(end_of(talk.model, intent)))
    scores = await engine.score(Prompt((*prompt.tokens, *ids)), start=len(prompt), version=BASE)
    return Completion(ids, scores.logp, scores.logp, BASE, Finish.STOP)


def _cut(renderer: ChatRenderer, text: str, source: random.Random) -> list[int]:
    """The text's ids, but encoded in pieces, so that they are not those of the whole."""
    ids: list[int] = []
    at = 0
    while at < len(text):
        size = source.randint(1, 12)
        mark = text.find("<", at + 1)
        stop = min(at + size, mark) if mark > 0 and text[at] != "<" else at + size
        close = max(text.find(end, at) + len(end) if text.find(end, at) >= 0 else 0 for end in (">", "]"))
        stop = close if text[at] in "<[" and at < close < at + 40 else stop
        ids += renderer.ids_of(text[at:stop], "" if not renderer.shape else renderer.shape.borders.starts[0])
        at = stop
    return ids


def _turn(
    talk: Talk, renderer: ChatRenderer, messages: Sequence[Message], prompt: Prompt, completion: Completion
) -> Turn:
    parser = renderer.parser(prompt, call_prefix=f"call_{talk.seed}_{talk.asked}_", tools=TOOLS)
    parser.feed(completion.tokens)
    parser.finish()
    return Turn(
        id=f"{talk.asked}",
        session="drift",
        user="user",
        agent="agent",
        kind=TurnKind.MAIN,
        why="benchmark",
        messages=tuple(messages),
        tools=TOOLS,
        prompt=prompt,
        completion=completion,
        reply=parser.message(),
        at_s=0.0,
    )


def _as_sent(renderer: ChatRenderer, messages: Sequence[Message]) -> str:
    sent = with_nine_letters(messages) if renderer.family is Family.MISTRAL else messages
    return renderer.template.text(sent, TOOLS, generation_prompt=True)


def _logp(alone: nn.Module, prompt: Sequence[int], sampled: Sequence[int]) -> list[float]:
    with torch.inference_mode():
        logits = alone(input_ids=torch.tensor([[*prompt, *sampled]])).logits[0, len(prompt) - 1 : -1]
    chosen = torch.tensor(sampled)[:, None]
    values: list[float] = torch.log_softmax(logits.float(), -1).gather(1, chosen)[:, 0].tolist()
    return values


def _shared(tokens: Sequence[int], before: Sequence[int]) -> int:
    count = 0
    for ours, theirs in zip(tokens, before, strict=False):
        if ours != theirs:
            break
        count += 1
    return count


def _figures(tally: Tally) -> Figures:
    kept = tally.ways["continued"] + tally.ways["spliced"]
    return {
        "continued_exactly_share": _share(tally.exact, tally.unchanged),
        "reply_kept_share": _share(kept, tally.goes_on),
        "rewritten_share": _share(tally.ways["rewritten"], tally.goes_on),
        "logp_gap_mean": fmean(tally.gaps) if tally.gaps else None,
        "logp_gap_mean_encoded_anew": fmean(tally.anew) if tally.anew else None,
        "silent_mismatches": tally.mismatches,
        "turns": tally.turns,
        "prompts": {way: tally.ways[way] for way in WAYS},
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


if __name__ == "__main__":
    main()
