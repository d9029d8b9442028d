"""Where a reply ends: by the configurations, by the tokenizer, by what the template writes after it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openclaw_rl.errors import ModelError
from openclaw_rl.render.ends import ends_of_replies, written_end
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import ChatTemplate
from openclaw_rl.testing.families import STAND_INS, StandIn


def template_of(model: StandIn, *, eos: str | None) -> ChatTemplate:
    template = ChatRenderer(model.template()).template
    special = {name: text for name, text in template.special.items() if name != "eos_token"}
    return replace(template, special=special | ({} if eos is None else {"eos_token": eos}))


@pytest.mark.parametrize("model", STAND_INS, ids=lambda model: model.name)
def test_what_a_template_writes_after_a_reply_is_an_end_that_its_makers_name(model: StandIn) -> None:
    template = template_of(model, eos=model.eos)
    written = written_end(template)
    name = None if written is None else template.tokenizer.id_to_token(written)
    assert name in (*model.ends, None)
    assert (name is None) == (model.name == "glm45")  # it writes nothing after a reply


def test_a_tokenizer_that_alone_names_the_end_is_heard() -> None:
    template = template_of(STAND_INS[0], eos="<|endoftext|>")
    end = template.tokenizer.token_to_id("<|endoftext|>")
    assert end in ends_of_replies(template, ())


def test_a_template_that_alone_writes_the_end_is_heard() -> None:
    template = template_of(STAND_INS[0], eos=None)
    assert ends_of_replies(template, ()) == (template.tokenizer.token_to_id("<|im_end|>"),)


def test_a_token_that_stands_within_replies_too_is_no_end() -> None:
    harmony = next(model for model in STAND_INS if model.name == "gpt_oss")
    template = template_of(harmony, eos=None)
    assert template.tokenizer.token_to_id("<|end|>") not in ends_of_replies(template, ())


def test_plain_text_that_an_architecture_names_by_default_ends_nothing() -> None:
    template = template_of(STAND_INS[0], eos=None)
    plain = template.encode("a")[0]
    assert plain not in ends_of_replies(template, (plain,))


def test_a_model_without_any_end_is_refused_with_what_to_do() -> None:
    template = template_of(next(model for model in STAND_INS if model.name == "glm45"), eos=None)
    with pytest.raises(ModelError, match="replies would never end") as refused:
        ends_of_replies(template, ())
    assert "tokenizer_config.json" in refused.value.fix
    assert ends_of_replies(template, (7,)) == (7,)
