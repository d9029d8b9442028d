"""The template and tokenizer of a model folder, read without transformers, and what is said where they are broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from render_models import bundled_source, tokenizer

from openclaw_rl.core.message import Message, Role, ToolCall, message
from openclaw_rl.errors import ModelError
from openclaw_rl.render.template import ChatTemplate, compile_template, read_template

CALLED = Message(Role.ASSISTANT, (), tool_calls=(ToolCall("a", "read", '{"path": "ü"}'),))


def _folder(place: Path) -> Path:
    tokenizer().save(str(place / "tokenizer.json"))
    (place / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": {"content": "<|im_end|>"}, "chat_template": bundled_source()}), "utf-8"
    )
    return place


def test_a_folder_is_read_with_its_template_and_end_mark(tmp_path: Path) -> None:
    template = read_template(_folder(tmp_path))
    assert template.eos_ids() == (template.tokenizer.token_to_id("<|im_end|>"),)
    assert template.text([message(Role.USER, "hi")], generation_prompt=True) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_of_its_own_file_comes_before_the_one_in_the_settings(tmp_path: Path) -> None:
    (_folder(tmp_path) / "chat_template.jinja").write_text("own", "utf-8")
    assert read_template(tmp_path).text([], generation_prompt=False) == "own"


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("tokenizer.json", None, "no tokenizer.json"),
        ("tokenizer.json", "{", "cannot be read"),
        ("tokenizer_config.json", "{", "not valid JSON"),
        ("tokenizer_config.json", "{}", "no chat template"),
    ],
)
def test_a_broken_folder_says_what_is_missing(tmp_path: Path, file: str, text: str | None, says: str) -> None:
    path = _folder(tmp_path) / file
    if text is None:
        path.unlink()
    else:
        path.write_text(text, "utf-8")
    with pytest.raises(ModelError, match=says):
        read_template(tmp_path)


def test_arguments_are_data_and_text_where_a_template_joins_them_to_text() -> None:
    data = (
        "{%- for m in messages -%}{%- for c in m.tool_calls or [] -%}"
        "{{ c.function.arguments | tojson }}"
        "{%- endfor -%}{%- endfor -%}"
    )
    text = data.replace("c.function.arguments | tojson", "'=' + c.function.arguments")
    for source, written in ((data, '{"path": "ü"}'), (text, '={"path": "ü"}')):
        template = ChatTemplate(tokenizer(), compile_template(source), {})
        assert template.text([CALLED], generation_prompt=False) == written
