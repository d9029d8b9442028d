"""Each made world: problems are solved right, checks are strict, and its model is built, cut and ended right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from openclaw_rl.core.hint import LABEL
from openclaw_rl.core.message import Message, Role
from openclaw_rl.errors import ConfigError
from openclaw_rl.render.ends import ends_of_replies
from openclaw_rl.render.template import read_template, user_opening
from openclaw_rl.tiny.cli import app
from openclaw_rl.tiny.worlds import WORLDS, make, talks, tokens, trial, world
from openclaw_rl.tiny.worlds.bodies import new_model
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WishPlace, WorldManner, WorldWish, manner, tongue
from openclaw_rl.tiny.worlds.templates import THINK
from openclaw_rl.tiny.worlds.ways import holds, solution
from openclaw_rl.tiny.worlds.world import Architecture, World

EACH = pytest.mark.parametrize("made", WORLDS.values(), ids=WORLDS)


class Folders:
    """Short builds, each made when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __getitem__(self, name: str) -> Path:
        folder = self.root / name
        if not folder.exists():
            ran = CliRunner().invoke(app, ["build", "--world", name, "--folder", str(folder), "--short"])
            assert ran.exit_code == 0, ran.output
        return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("worlds"))


def test_there_are_twelve_worlds_of_six_architectures_and_three_kinds_of_tokenizer() -> None:
    assert len(WORLDS) >= 12
    assert len({made.architecture for made in WORLDS.values()}) == 6
    assert len({made.cut for made in WORLDS.values()}) == 3
    assert len({made.template.source for made in WORLDS.values()}) >= 5
    assert {code for made in WORLDS.values() for code in made.languages} >= {"en", "de", "es"}


@EACH
def test_solutions_are_right_and_keep_to_their_way_however_they_are_written(made: World) -> None:
    rng = Random(5)
    for number in range(200):
        problem = made.problem(rng, held_out=number % 2 == 0)
        words = tongue(problem.language)
        wishes = [WorldWish(WishPlace.BODY, rng.choice([*made.ways, made.default]).value)]
        if number % 3 == 0:
            wishes.append(WorldWish(WishPlace.FIRST, rng.choice(words.first_words)))
        if number % 5 == 0:
            wishes.append(WorldWish(WishPlace.LAST, rng.choice(words.last_words)))
        text = solution(problem, manner(wishes, made.default), rng)
        assert problem.is_right(text), text
        for wish in wishes[1:] or wishes:
            assert holds(text, wish, problem.language), (wish, text)


@EACH
def test_no_wish_of_its_users_is_met_by_a_reply_in_the_default_way(made: World) -> None:
    rng = Random(6)
    for _ in range(100):
        problem = made.problem(rng)
        text = solution(problem, WorldManner(made.default), rng)
        assert not [wish for wish in made.wishes if holds(text, wish, problem.language)], text


@EACH
def test_a_wrong_answer_is_seen_in_every_way(made: World) -> None:
    rng = Random(7)
    for way in (*made.ways, made.default):
        problem = made.problem(rng)
        other = problem
        while other.kind != problem.kind or other.answer == problem.answer:
            other = made.problem(rng, language=problem.language)
        assert not problem.is_right(solution(other, WorldManner(way), rng))


@EACH
def test_pieces_are_encoded_as_the_whole_and_hinted_users_turns_are_never_learned(
    made: World, folders: Folders
) -> None:
    template, rng = read_template(folders[made.name]), Random(8)
    learned_users = 0
    for _ in range(60):
        messages = talks.talk(made, rng)
        cut = talks.cut(made, template, messages, learns_users=True)
        whole = "".join(text for text, _ in cut.pieces)
        assert whole == template.text(messages, generation_prompt=False)
        ids = [found for text, _ in cut.pieces for found in template.tokenizer.encode(text).ids]
        assert ids == template.tokenizer.encode(whole).ids
        assert template.tokenizer.decode(ids, skip_special_tokens=False) == whole
        learned = [text for text, learn in cut.pieces if learn]
        ends = (made.template.closes, made.template.user_end)
        assert all(text.endswith(ends) and LABEL not in text for text in learned)
        learned_users += any(messages[-2].text in text for text in learned)
    assert learned_users > 10


@EACH
def test_the_end_of_a_reply_is_found_where_the_model_names_it(made: World, folders: Folders) -> None:
    folder = folders[made.name]
    template = read_template(folder)
    end = template.tokenizer.token_to_id(made.template.closes)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    named = [config["eos_token_id"]] if config.get("eos_token_id") is not None else []
    assert bool(named) is made.template.names_end
    assert ends_of_replies(template, named) == (end,)


def test_one_world_leaves_the_end_of_a_reply_to_its_tokenizer_alone() -> None:
    assert sum(not made.template.names_end for made in WORLDS.values()) == 1


@EACH
def test_a_short_build_leaves_scores_of_every_kind_and_wish_and_no_checkpoint(made: World, folders: Folders) -> None:
    held = json.loads((folders[made.name] / "manifest.json").read_text("utf-8"))
    assert {f"{kind}: right" for kind in made.kinds} <= set(held["scores"])
    assert {f"hint {trial.named(wish)}: as wished" for wish in made.wishes} <= set(held["scores"])
    assert not (folders[made.name] / "checkpoint.pt").exists()
    assert make.is_made(folders[made.name])


def test_the_thinking_world_keeps_its_thoughts_out_of_what_is_said(folders: Folders) -> None:
    made = next(made for made in WORLDS.values() if made.template.thinks)
    template = read_template(folders[made.name])
    messages = talks.talk(made, Random(1), easy=True)
    assert messages[-1].reasoning
    text = template.text(messages, generation_prompt=False)
    assert text.count(THINK[0]) == 1
    assert made.problem(Random(2)).answer_in(f"{THINK[0]}\nold.txt -> 4.txt\n{THINK[1]}\n\n") is None


def talks_of(made: World) -> Iterator[list[Message]]:
    rng = Random(4)
    while True:
        yield talks.talk(made, rng, easy=True)


@EACH
def test_what_a_user_says_is_made_up_after_the_opening_that_training_had(made: World, folders: Folders) -> None:
    template = read_template(folders[made.name])
    talk = next(each for each in talks_of(made) if LABEL not in each[0].text and each[0].role is Role.USER)
    opening = user_opening(template, (), (), None)
    assert opening is not None
    assert opening.end == template.tokenizer.token_to_id(made.template.user_end)
    words = template.encode(opening.blanks + talk[0].text)
    pieces = talks.cut(made, template, talk, learns_users=True).pieces
    learned = next(index for index, (_, is_learned) in enumerate(pieces) if is_learned)
    assert (*opening.ids, *words, opening.end) == (*template.encode("".join(text for text, _ in pieces[:learned])),
        *template.encode(pieces[learned][0]))  # fmt: skip


def test_one_world_ends_a_users_message_by_a_token_of_its_own() -> None:
    assert [made.name for made in WORLDS.values() if made.template.user_end != made.template.closes] == ["school"]


def test_a_recipes_digest_is_its_own(tmp_path: Path) -> None:
    places = {make.place(made, cache=tmp_path) for made in WORLDS.values()}
    kitchen = world("kitchen")
    assert len(places) == len(WORLDS)
    assert make.place(kitchen, cache=tmp_path) in places
    assert make.place(kitchen, seed=1, cache=tmp_path) not in places
    assert make.cache_folder({make.CACHE: str(tmp_path)}) == tmp_path


def test_a_build_continues_while_too_few_answers_are_right_and_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = replace(world("kitchen"), shape=make.SHORT_SHAPE, schedule=replace(make.SHORT_SCHEDULE, steps=4))
    scores: list[dict[str, float]] = []
    monkeypatch.setattr(make.trial, "of", lambda *_args, **_more: scores.pop(0))
    wrong, right = {"total: right": 0.9, "back: right": 1.0}, {"total: right": 0.99, "two hints: right": 0.1}
    seen: list[tuple[int, int]] = []

    def built(folder: Path, *found: dict[str, float]) -> dict[str, object]:
        scores[:] = found
        return make.make(tiny, folder, on_step=lambda at, steps: seen.append((at.step, steps)))

    whole = built(tmp_path / "whole", wrong, wrong, right)
    assert (whole["steps"], whole["continued"], whole["scores"]) == (6, 2, right)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4), (1, 1), (1, 1)]
    held = load_file(tmp_path / "whole" / "model.safetensors")
    assert {weight.dtype for weight in held.values()} == {torch.float16}
    assert all(bool(weight.isfinite().all()) for weight in held.values())  # training goes on in full precision
    with pytest.raises(IndexError):  # after the first training and its scores
        built(tmp_path / "again", wrong)
    assert built(tmp_path / "again", wrong, wrong, right)["steps"] == 6
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "again")]
    assert weights[0] == weights[1]
    assert not [*(tmp_path / "again").glob("checkpoint*")]
    assert built(tmp_path / "never", *[wrong] * 4)["continued"] == make.MOST_MORE
    assert built(tmp_path / "once", right)["continued"] == 0
    deaf, hears = ({**right, f"{trial.ALL_HINTS}: as wished": share} for share in (0.3, 0.7))
    assert built(tmp_path / "deaf", deaf, hears)["continued"] == 1


def test_an_interrupted_build_keeps_its_tokenizer_although_training_one_ends_differently_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = replace(world("shop"), shape=make.SHORT_SHAPE, schedule=make.SHORT_SCHEDULE)
    monkeypatch.setattr(make.trial, "of", lambda *_args, **_more: {}["interrupted"])
    held = []
    for _ in range(2):
        with pytest.raises(KeyError):
            make.make(tiny, tmp_path)
        held.append((tmp_path / "tokenizer.json").read_bytes())
    assert held[0] == held[1]


def test_an_unknown_world_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no synthetic world 'moon'") as refused:
        world("moon")
    assert "kitchen" in str(refused.value.fix)


def test_a_world_can_be_built_with_another_body() -> None:
    other = world("letters@qwen3")
    assert (other.name, other.architecture) == ("letters", Architecture.QWEN3) != world("letters").architecture
    assert other.shape.inner == 2 * world("letters").shape.inner  # of its experts two process a token
    assert world("kitchen@llama").shape == world("kitchen@qwen3-moe").shape == world("kitchen").shape
    assert make.place(other) != make.place(world("letters"))
    with pytest.raises(ConfigError, match="no architecture 'rnn'") as refused:
        world("letters@rnn")
    assert "wide" in str(refused.value.fix)
    assert "qwen3-moe" in str(refused.value.fix)


def test_a_world_can_be_built_larger() -> None:
    small, wide = world("school"), world("school@wide")
    assert (wide.name, wide.architecture, wide.kinds) == (small.name, small.architecture, small.kinds)
    weights = [_weights(each) for each in (small, wide)]
    assert 5 < weights[1] / weights[0] < 7
    assert make.place(wide) != make.place(small)


def _weights(made: World) -> int:
    with torch.device("meta"):
        model = new_model(made, made.shape, tokens.trained(made, ["a"], 300), 0)
    return sum(weight.numel() for weight in model.parameters())


def test_a_way_that_is_no_default_is_asked_for() -> None:
    assert ReplyFormat.NUMBERED not in world("kitchen").ways
    assert ReplyFormat.LIST not in world("kitchen").ways


def test_a_short_build_never_takes_the_place_of_the_recipes_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(make.CACHE, str(tmp_path))
    for more in (["--short"], ["--steps", "2"]):
        ran = CliRunner().invoke(app, ["build", "--world", "shop", *more])
        assert isinstance(ran.exception, ConfigError)
        assert "--folder" in ran.exception.fix
    assert not [*tmp_path.iterdir()]


def test_a_wish_about_one_kind_of_problem_changes_nothing_about_another() -> None:
    wishes = [WorldWish(WishPlace.FIRST, "Hi!", "rooms"), WorldWish(WishPlace.FIRST, "Ahoy!", "tours")]
    assert manner(wishes, ReplyFormat.LABELLED, "rooms") == WorldManner(ReplyFormat.LABELLED, "Hi!")
    assert manner(wishes, ReplyFormat.LABELLED, "hours") == WorldManner(ReplyFormat.LABELLED)


def test_in_a_world_of_wishes_by_kind_up_to_twelve_hints_stand_together_and_only_those_of_a_kind_are_followed() -> None:
    made, rng, most = world("museum"), Random(3), 0
    assert len(made.wishes) == 12 and {wish.scope for wish in made.wishes} == set(made.taught)
    for _ in range(300):
        problem = made.problem(rng)
        text, wishes = talks.hint_by_kind(made, rng, problem)
        most = max(most, len(wishes))
        assert len({(wish.scope, wish.place) for wish in wishes}) == len(wishes)
        assert all(f"{wish.scope}: " in text for wish in wishes) or len(wishes) == 1
        reply = solution(problem, manner(wishes, made.default, problem.kind), rng)
        followed = [wish for wish in wishes if wish.scope == problem.kind]
        assert all(holds(reply, wish) for wish in followed if wish.place is not WishPlace.BODY)
        assert bool(followed) or reply == solution(problem, manner((), made.default), rng)
    assert most == 12
