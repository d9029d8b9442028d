"""The agent model: what its tokenizer and template make of calls, its recipe, and what it ships with."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from openclaw_rl.core.message import Role, message
from openclaw_rl.render.template import ChatTemplate, read_template
from openclaw_rl.tiny.agent import demos, make
from openclaw_rl.tiny.agent.exercise import WORDS, Setting
from openclaw_rl.tiny.cli import app
from openclaw_rl.tiny.corpus import rendered

MOST_BYTES = 8_000_000


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return read_template(make.shipped())


@pytest.mark.parametrize("setting", [*demos.FAMILIES])
def test_a_demonstration_has_the_ids_of_its_whole_text_and_each_prompt_begins_with_the_one_before(
    setting: Setting, template: ChatTemplate
) -> None:
    rng = Random(1)
    for _ in range(20):
        made = demos.exercise(setting, rng)
        talk = demos.dialogue(made, made.attempts[0])
        sample = rendered(template, talk)
        text = "".join(piece for piece, _ in sample.pieces)
        ids = [one for piece, _ in sample.pieces for one in template.encode(piece)]
        assert ids == template.encode(text)
        for end in [place for place, item in enumerate(talk.messages) if item.role is Role.ASSISTANT]:
            prompt = template.text(talk.messages[:end], talk.tools, generation_prompt=True)
            assert text.startswith(prompt)
            assert ids[: len(template.encode(prompt))] == template.encode(prompt)


def test_what_every_call_holds_is_one_token_each(template: ChatTemplate) -> None:
    for piece in make.PIECES:
        assert len(template.encode(piece)) == 1, piece
    assert [word for word in WORDS if len(template.encode(word)) > 1] == []
    made = demos.exercise(Setting.TERMINAL, Random(0), families={"rename": demos.FAMILIES[Setting.TERMINAL]["rename"]})
    (_, call, *_) = demos.dialogue(made, made.attempts[0]).messages
    written = f"{make.PIECES[0]}{json.loads(call.tool_calls[0].arguments)['command']}{make.END}"
    assert len(template.encode(written)) <= 13  # mv, two names of files, and what stands between them


def test_a_prompt_names_each_tool_and_its_arguments_and_nothing_more_of_it(template: ChatTemplate) -> None:
    text = template.text([message(Role.USER, "Go.")], demos.TOOLS[Setting.TOOLS], generation_prompt=True)
    system, _, rest = text.partition("<|im_start|>user")
    assert system == "<|im_start|>system\npython(code)\nanswer(value)\n<|im_end|>\n"
    assert rest == "\nGo.<|im_end|>\n<|im_start|>assistant\n"


def test_the_short_recipe_runs_goes_on_where_it_was_stopped_and_comes_to_the_same(tmp_path: Path) -> None:
    whole = make.make(tmp_path / "whole", short=True)

    def stop(progress: object, _steps: int) -> None:
        if getattr(progress, "step", 0) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make.make(tmp_path / "again", short=True, on_step=stop)
    again = make.make(tmp_path / "again", short=True)
    assert (again["data_digest"], again["loss"]) == (whole["data_digest"], whole["loss"])
    assert not (tmp_path / "again" / make.CHECKPOINT).exists()
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "again")]
    assert weights[0] == weights[1]


def test_a_build_that_starts_from_a_model_begins_with_its_tokenizer_and_weights(tmp_path: Path) -> None:
    first = make.make(tmp_path / "first", short=True)
    more = make.make(tmp_path / "more", short=True, steps=0, start=tmp_path / "first")
    make.make(tmp_path / "fresh", short=True, steps=0)
    assert (more["before"], more["steps"], first["steps"]) == (first, 0, 3)
    for name in ("tokenizer.json", "model.safetensors"):
        one, two, fresh = ((tmp_path / folder / name).read_bytes() for folder in ("first", "more", "fresh"))
        assert one == two, name
    assert fresh != one


def test_each_lesson_is_a_recipe_of_its_own_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    for name, recipe in make.CONTINUED.items():
        made = make.make(tmp_path / name, steps=0, start=make.shipped(), lesson=name)
        assert made["recipe"] == asdict(replace(recipe, schedule=replace(recipe.schedule, steps=0)))
    started = ["agent", "--folder", str(tmp_path / "x"), "--start", str(make.shipped())]
    for given, problem in (
        ([*started, "--lesson", "singing"], "is not one of: more, choices, counting, copying"),
        ([*started[:3], "--lesson", "counting"], "name its folder with --start"),
    ):
        ran = CliRunner().invoke(app, given)
        assert ran.exit_code == 2
        assert problem in " ".join(ran.output.replace("│", "").split())
    assert not (tmp_path / "x").exists()


def test_what_counting_shows_is_right_and_in_the_tokens_of_a_click(template: ChatTemplate) -> None:
    has_gone_on = []
    for seed in range(10):
        pieces = demos.counting_sample(Random(seed)).pieces
        asked_once, wanted = 0, 0
        for (asked, is_asked), (move, is_move) in zip(pieces[:-1:2], pieces[1:-1:2], strict=True):
            *told, now = (int(found) for found in re.findall(r"-?\d+", asked))
            asked_once += bool(told)
            wanted = told[0] if told else wanted
            assert move == ('"+' if wanted > now else '"-' if wanted < now else '"OK') + "\n\n"
            assert (is_asked, is_move) == (False, True)
        has_gone_on.append(asked_once < len(pieces) // 2)
    assert {*has_gone_on} == {True, False}
    only = dict.fromkeys(demos.DEMONSTRATED[Setting.SCREEN], 0.0) | {"counter": 1.0}
    made = demos.exercise(Setting.SCREEN, Random(0), weights=only)
    assert made.family == "counter"
    said = "".join(piece for piece, _ in rendered(template, demos.dialogue(made, made.attempts[0])).pieces)
    assert {*template.encode(said)} & {template.encode(move)[0] for move in ('"+\n', '"-\n')}


def test_what_copying_asks_for_is_the_line_of_the_named_function(template: ChatTemplate) -> None:
    for seed in range(10):
        (source, _), *pieces, _ = demos.copying_sample(Random(seed)).pieces
        bodies = {
            found[1]: re.sub(r"[*\[\].]", ".", found[2])
            for found in re.finditer(r"def (\w+)\(.*\):\n    return (.+)", source)
        }
        named: list[str] = []
        for text, is_learned in pieces:
            if is_learned:
                assert text == f"{bodies[named.pop(0)]}|"
            elif text.strip() and "sed" not in text:
                assert named == []
                named = re.findall(r"(?:^|Mend |and )(\w+)(?= and | in |\.$)", re.sub(r" Mend (it|them)\.$", "", text))
                assert len(named) in {1, 2}
    line = "a % b|"
    command = template.encode(f"sed -i 's|{line}a + b|' x.py")
    assert " ".join(map(str, template.encode(line))) in " ".join(map(str, command))


def test_what_ships_is_small_and_says_how_it_was_made() -> None:
    folder = make.shipped()
    assert sum(path.stat().st_size for path in folder.iterdir()) < MOST_BYTES
    held = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert (held["steps"], held["seed"]) == (make.MORE.schedule.steps, 0)
    first = held  # made from nothing, then continued
    while "before" in first:
        first = first["before"]
    assert first["steps"] == make.FULL.schedule.steps
    assert (folder / "chat_template.jinja").read_text("utf-8") == make.template_source()
