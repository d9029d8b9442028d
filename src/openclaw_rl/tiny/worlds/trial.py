"""What a made model can do, on problems that training never saw: right, in its default way, and as it is told."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from openclaw_rl.core.hint import Hint, hinted
from openclaw_rl.core.message import Message, Role, TextPart, message
from openclaw_rl.render.template import read_template
from openclaw_rl.tiny import scores
from openclaw_rl.tiny.cases import SkillCase
from openclaw_rl.tiny.worlds import talks
from openclaw_rl.tiny.worlds.parts import WishPlace, WorldProblem, WorldWish, manner, tongue
from openclaw_rl.tiny.worlds.ways import follows, holds, solution
from openclaw_rl.tiny.worlds.world import World

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TEMPERATURE = 0.6
KNOWN_REQUESTS = 3000
LEAST_PAIRS, LIKELY = 3, 0.9  # neighbours in a request, and how many of them are known ones


@dataclass(frozen=True, slots=True)
class TrialQuestion:
    """A problem as it is put to the model, and the wishes its reply should keep to."""

    problem: WorldProblem
    messages: tuple[Message, ...]
    wishes: tuple[WorldWish, ...] = ()


def of(world: World, folder: Path, *, count: int, seed: int = 0, max_new: int = 120) -> dict[str, float]:
    """Shares over `count` held-out problems each.

    By kind right and in the default way; by wish, right and as wished, after a hint and after a correction; and how
    many of the requests that the model makes up itself could be the world's.
    """
    rng = Random(f"{world.name} {seed}")
    found: dict[str, float] = {}
    model = loaded(folder)

    def tried(name: str, asked: Sequence[TrialQuestion]) -> None:
        replies = answered(world, folder, asked, model=model, seed=seed, max_new=max_new)
        pairs = list(zip(asked, replies, strict=True))
        found[f"{name}: right"] = _share([item.problem.is_right(reply) for item, reply in pairs])
        found[f"{name}: as wished"] = _share([_kept(world, item, reply) for item, reply in pairs])

    for kind in world.kinds:
        tried(kind, [_unhinted(world, kind, rng) for _ in range(count)])
    for wish in all_wishes(world):
        tried(f"hint {wish.value}", [_hinted(world, (wish,), rng) for _ in range(count)])
        if wish in world.wishes:
            tried(f"correction {wish.value}", [_corrected(world, wish, rng) for _ in range(count)])
    tried("two hints", [_hinted_twice(world, rng) for _ in range(count)])
    requests = made_up(world, folder, model=model, count=count, seed=seed, max_new=max_new)
    found["requests made up: likely"] = _share(are_likely(world, requests, rng))
    return found


def made_up(
    world: World, folder: Path, *, model: PreTrainedModel, count: int, seed: int = 0, max_new: int = 80
) -> list[str]:
    """What the model goes on with after the opening of a user's first turn, at temperature 1."""
    import torch

    template, asked = read_template(folder), "Quartz?"
    opening = template.text((message(Role.USER, asked),), generation_prompt=True).partition(asked)[0]
    prompts = [template.encode(opening)] * count
    torch.manual_seed(seed)
    end = template.tokenizer.token_to_id(world.template.closes)
    made = scores.sampled(model, prompts, 1.0, max_new, end=end)
    texts = [template.tokenizer.decode(ids, skip_special_tokens=False) for ids in made]
    return [text.partition(world.template.closes)[0] for text in texts]


def are_likely(world: World, requests: Sequence[str], rng: Random) -> list[bool]:
    """Whether each could be a request of the world: nearly all neighbouring words are neighbours in real ones too."""
    known = [talks.request(world.problem(rng), rng) for _ in range(KNOWN_REQUESTS)]
    pairs = {pair for text in known for pair in _pairs(text)}
    shares = [[pair in pairs for pair in _pairs(text)] for text in requests]
    return [len(share) >= LEAST_PAIRS and sum(share) / len(share) >= LIKELY for share in shares]


def _pairs(text: str) -> list[tuple[str, str]]:
    words = re.sub(r"\d+|\b\w(-\w)+", "1", text).split()  # numbers and spelled-out words are all alike
    return list(itertools.pairwise(words))


def all_wishes(world: World) -> tuple[WorldWish, ...]:
    """The ways that anybody asks for, and the first and last words that this world's users want."""
    ways = [WorldWish(WishPlace.BODY, way.value) for way in world.ways]
    return (*ways, *(wish for wish in world.wishes if wish.way is None))


def loaded(folder: Path) -> PreTrainedModel:
    """The model of a folder, in full precision."""
    import torch
    from transformers import AutoModelForCausalLM

    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model


def answered(
    world: World,
    folder: Path,
    asked: Sequence[TrialQuestion],
    *,
    model: PreTrainedModel,
    seed: int = 0,
    max_new: int = 120,
) -> list[str]:
    """The model's replies at temperature 0.6, without the closing token."""
    import torch

    template = read_template(folder)
    torch.manual_seed(seed)
    cases = [SkillCase(item.messages, lambda _: True) for item in asked]
    end = template.tokenizer.token_to_id(world.template.closes)
    return scores.answered(model, template, cases, TEMPERATURE, max_new=max_new, at_once=50, end=end)


def _kept(world: World, asked: TrialQuestion, reply: str) -> bool:
    text = reply.rsplit("</think>", 1)[-1].strip()
    if not asked.wishes:
        return follows(text, world.default, asked.problem.language)
    return all(holds(text, wish, asked.problem.language) for wish in asked.wishes)


def _unhinted(world: World, kind: str, rng: Random) -> TrialQuestion:
    problem = world.problem(rng, kinds=(kind,), held_out=True)
    return TrialQuestion(problem, (message(Role.USER, talks.request(problem, rng)),))


def _hinted(world: World, wishes: tuple[WorldWish, ...], rng: Random) -> TrialQuestion:
    return _with_hints(_unhinted(world, rng.choice(tuple(world.kinds)), rng), wishes, rng)


def _hinted_twice(world: World, rng: Random) -> TrialQuestion:
    """With a way to write, and words to begin with in the problem's own language."""
    asked = _unhinted(world, rng.choice(tuple(world.kinds)), rng)
    words = rng.choice(tongue(asked.problem.language).first_words)
    return _with_hints(
        asked, (WorldWish(WishPlace.BODY, rng.choice(world.ways).value), WorldWish(WishPlace.FIRST, words)), rng
    )


def _with_hints(asked: TrialQuestion, wishes: tuple[WorldWish, ...], rng: Random) -> TrialQuestion:
    text = " ".join(talks.hint_of(wish, rng) for wish in wishes)
    return TrialQuestion(asked.problem, hinted(asked.messages, Hint(text)), wishes)


def _corrected(world: World, wish: WorldWish, rng: Random) -> TrialQuestion:
    asked = _unhinted(world, rng.choice(tuple(world.kinds)), rng)
    thought = asked.problem.equation if world.template.thinks else None
    text = solution(asked.problem, manner((), world.default), rng)
    reply = Message(Role.ASSISTANT, (TextPart(text),), reasoning=thought)
    said = message(Role.USER, talks.correction(wish, asked.problem.language, rng))
    return TrialQuestion(asked.problem, (*asked.messages, reply, said), (wish,))


def _share(good: Sequence[bool]) -> float:
    return round(sum(good) / len(good), 4)
