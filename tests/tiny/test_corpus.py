"""Training samples: what is learned, what is only read, and what the judge is taught."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from openclaw_rl.judge.prompt import Question
from openclaw_rl.render.template import ChatTemplate, read_template
from openclaw_rl.tiny import dialogues, vocabulary
from openclaw_rl.tiny.corpus import rendered, sample
from openclaw_rl.tiny.judging import situation
from openclaw_rl.tiny.train import encode


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplate:
    folder: Path = tmp_path_factory.mktemp("model")
    prose = ["Some ordinary English, and a little code: def add(a, b): return a + b\n" * 20]
    vocabulary.save(vocabulary.train(prose, prose, Random(0), size=600, world_samples=40), folder)
    return read_template(folder)


def test_only_the_assistants_words_are_learned_up_to_their_end(template: ChatTemplate) -> None:
    rng = Random(1)
    for _ in range(60):
        dialogue = dialogues.session(rng, thinking=rng.random() < 0.3)
        pieces = rendered(template, dialogue).pieces
        learned = [text for text, learn in pieces if learn]
        assert len(learned) == sum(dialogue.learned)
        assert all(text.endswith("<|im_end|>") and not text.startswith("<think>") for text in learned)
        assert not any("[user's hint]" in text for text in learned)


def test_pieces_put_together_are_the_rendered_dialogue_and_its_ids(template: ChatTemplate) -> None:
    rng = Random(2)
    for _ in range(60):
        dialogue = dialogues.file_session(rng, thinking=rng.random() < 0.3)
        made = rendered(template, dialogue)
        whole = template.text(dialogue.messages, dialogue.tools, generation_prompt=False)
        assert "".join(text for text, _ in made.pieces) == whole
        assert list(encode(template.tokenizer, made).ids) == template.encode(whole)


def test_the_same_seed_gives_the_same_samples(template: ChatTemplate) -> None:
    prose = ["ordinary text, line by line\n" * 80]
    drawn = []
    for seed in (3, 3, 4):
        rng = Random(seed)
        drawn.append([sample(template, prose, rng, easy=index < 10) for index in range(30)])
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_what_a_judge_is_taught_has_the_form_its_prompts_ask_for() -> None:
    rng = Random(5)
    seen = set()
    for _ in range(400):
        judged = situation(rng)
        score, hint = judged.answer(Question.SCORE), judged.answer(Question.HINT)
        assert score.endswith(f"\\boxed{{{judged.score}}}")
        assert hint.endswith("\\boxed{1}") if judged.hint else hint == "\\boxed{-1}"
        assert judged.hint is None or judged.score == -1  # what went well needs no hint
        seen.add(judged.score)
    assert seen == {-1, 0, 1}


def test_a_judge_is_asked_with_the_products_own_prompt() -> None:
    judged = situation(Random(6))
    asked = judged.prompt(Question.SCORE)
    assert asked[0].text.startswith("You judge one reply")
    assert judged.reply.text in asked[1].text
