"""What a text model cannot be shown stands in its prompt by name, in every API: no session is lost over a picture."""

from __future__ import annotations

import base64
import json
import typing
from collections.abc import Mapping

import aiohttp
import pytest
import typing_extensions
from anthropic.types import beta
from serve_doubles import Serving

from openclaw_rl.core.message import Message, Role
from openclaw_rl.serve.request.unseen import Placeholders, data_facts, own_line, text_in

KEY = {"Authorization": "Bearer secret"}
PIXELS = base64.b64encode(bytes(34 * 1024)).decode()
NOTES = base64.b64encode("Grüße\nzwei".encode()).decode()
PNG = "[image: image/png, 34 KB, not shown to a text model]"


async def _ask(server: Serving, path: str, body: Mapping[str, object]) -> tuple[tuple[Message, ...], str]:
    """The messages as the model reads them, and the header that tells of placeholders."""
    server.says("I see")
    async with aiohttp.ClientSession(headers=KEY) as http, http.post(server.url + path, json=body) as answer:
        assert answer.status == 200, await answer.text()
        return server.book.turns[-1].messages, answer.headers.get("x-openclaw-rl-placeholders", "")


def _chat(*parts: object, role: str = "user", **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "look"}, {"role": role, "content": [*parts], **more}]}


async def test_a_chat_part_that_is_no_text_is_named(server: Serving) -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXELS}", "detail": "high"}}
    words = {"type": "text", "text": "What is this?"}
    audio = {"type": "input_audio", "input_audio": {"data": PIXELS, "format": "wav"}}
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PIXELS}"}}
    text = {"type": "file", "file": {"filename": "n.txt", "file_data": f"data:text/plain;base64,{NOTES}"}}
    messages, told = await _ask(server, "/v1/chat/completions", _chat(words, image, audio, file, text, {"type": "hum"}))
    assert messages[1].text == (
        f"What is this?\n{PNG}\n\n[audio: wav, 34 KB, not shown to a text model]\n"
        "\n[file: a.pdf, application/pdf, 34 KB, not shown to a text model]\n\nn.txt\nGrüße\nzwei\n"
        "\n[hum: not shown to a text model]\n"
    )
    assert told == "audio=1, file=1, hum=1, image=1"


async def test_an_image_in_a_chat_tool_result_is_named(server: Serving) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    image = {"type": "image_url", "image_url": {"url": "https://a.example/b.png?signature=1"}}
    body = {
        "messages": [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": [image]},
        ]
    }
    messages, told = await _ask(server, "/v1/chat/completions", body)
    assert messages[2].text == "[image: https://a.example/b.png, not shown to a text model]\n" and told == "image=1"


async def test_an_image_in_an_anthropic_tool_result_is_named_now_and_later(server: Serving) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXELS}}
    found = {"type": "tool_reference", "tool_name": "mcp__x__read"}
    said: list[dict[str, object]] = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [found, image]}, image],
        },
    ]
    messages, told = await _ask(server, "/v1/messages", {"max_tokens": 9, "messages": said})
    assert messages[2].text == f"[tool_reference: mcp__x__read]\n{PNG}" and messages[3].text == f"{PNG}\n"
    assert told == "image=2, tool_reference=1"
    said += [{"role": "assistant", "content": "I see"}, {"role": "user", "content": "go on"}]
    later, _ = await _ask(server, "/v1/messages", {"max_tokens": 9, "messages": said})
    assert later[: len(messages)] == messages


async def test_a_document_with_text_is_read_and_one_without_is_named(server: Serving) -> None:
    parts = [
        {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "one"}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "two"}]}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PIXELS}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "document", "source": 3},
        {"type": "search_result", "source": "http://x", "title": "S", "content": [{"type": "text", "text": "three"}]},
    ]
    messages, told = await _ask(
        server, "/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": parts}]}
    )
    assert messages[0].text == (
        "T\none\n\ntwo\n\n[document: application/pdf, 34 KB, not shown to a text model]\n"
        "\n[document: file_1, not shown to a text model]\n\n[document: not shown to a text model]\n\nS\nhttp://x\nthree\n"
    )
    assert told == "document=3"


def _kinds(union: object) -> list[str]:
    """The `type` of each parameter that the official client knows in a union of them."""
    found: set[str] = set()
    for param in typing.get_args(union):
        if typing_extensions.is_typeddict(param):
            hint = typing_extensions.get_type_hints(param)["type"]
            found.update(str(name) for name in typing.get_args(hint))
    return sorted(found)


@pytest.mark.parametrize("role", ["assistant", "user"])
async def test_no_block_that_anthropics_client_knows_costs_the_session(server: Serving, role: str) -> None:
    kinds = _kinds(beta.BetaContentBlockParam)
    assert len(kinds) > 20
    whole = {"text": "t", "tool_use_id": "c", "id": "c", "name": "n", "input": {}, "thinking": "hm", "signature": "s"}
    contents: list[object] = [{}, {"content": "c"}, {"content": {"type": "x"}}, {"content": [{"type": "x"}]}]
    for kind in [*kinds, "not_known_yet"]:
        for content in contents:
            if kind == "tool_result" and role == "assistant":
                continue  # an assistant gives none
            block = {"type": kind, **whole, **content}  # type: ignore[dict-item]
            said = [{"role": "user", "content": "a"}, {"role": role, "content": [block]}]
            body = {"max_tokens": 9, "messages": [*said, {"role": "user", "content": "b"}]}
            messages, _ = await _ask(server, "/v1/messages", body)
            assert messages[-1].text == "b"


async def test_items_of_other_servers_are_named_in_a_responses_history(server: Serving) -> None:
    given: list[dict[str, object]] = [
        {"role": "user", "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{PIXELS}"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done"},
        {"type": "function_call", "call_id": "c2", "name": "view_image", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_image", "image_url": "data:,x"}]},
        {"type": "shell_call_output", "call_id": "c3", "output": [{"stdout": "x", "outcome": {"type": "exit"}}]},
        {"type": "computer_call_output", "call_id": "c4", "output": {"type": "computer_screenshot", "image_url": "x"}},
        {"type": "compaction", "encrypted_content": "xyz"},
        {"role": "user", "content": [{"type": "input_file", "filename": "a.pdf", "file_data": PIXELS}]},
    ]
    messages, told = await _ask(server, "/v1/responses", {"input": given})
    assert [(item.role, item.text) for item in messages] == [
        (Role.USER, f"{PNG}\n"),
        (Role.ASSISTANT, "[web_search_call: not shown to a text model]\n"),
        (Role.TOOL, "Done"),
        (Role.ASSISTANT, ""),
        (Role.TOOL, "[image: text/plain, 1 bytes, not shown to a text model]"),
        (Role.TOOL, "[shell_call_output: not shown to a text model]"),
        (Role.TOOL, "[computer_call_output: not shown to a text model]"),
        (Role.ASSISTANT, "[compaction: not shown to a text model]\n"),
        (Role.USER, "[file: a.pdf, 34 KB, not shown to a text model]\n"),
    ]
    assert [(call.name, json.loads(call.arguments)) for call in messages[1].tool_calls] == [
        ("apply_patch", {"input": "*** Begin"})
    ]
    assert told == "compaction=1, computer_call_output=1, file=1, image=2, shell_call_output=1, web_search_call=1"


async def test_placeholders_are_counted_by_kind(server: Serving) -> None:
    image = {"type": "image_url", "image_url": f"data:image/png;base64,{PIXELS}"}
    for _ in range(2):
        await _ask(server, "/v1/chat/completions", _chat(image, image))
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}/metrics") as answer:
        assert 'openclaw_rl_placeholders_total{kind="image"} 4.0' in await answer.text()
    assert server.parts.metrics.replaced == {"image": 4}


async def test_a_kind_of_a_clients_own_making_cannot_write_headers(server: Serving) -> None:
    _, told = await _ask(server, "/v1/chat/completions", _chat({"type": "A\r\nx: y" + "z" * 99}))
    assert told == "a_x_y" + "z" * 35 + "=1"


def test_a_size_is_that_of_the_bytes() -> None:
    for size, words in ((0, "0 bytes"), (1, "1 bytes"), (1023, "1023 bytes"), (1024, "1 KB"), (3 << 20, "3.0 MB")):
        data = base64.b64encode(bytes(size)).decode()
        assert data_facts(data, "image/png") == ("image/png", words)
        assert data_facts(f"data:image/png;base64,{data}") == ("image/png", words)
    assert data_facts("data:text/plain,hello") == ("text/plain", "5 bytes")


def test_only_data_of_a_text_type_is_read_as_text() -> None:
    assert text_in(NOTES, "text/markdown") == "Grüße\nzwei" == text_in(f"data:text/plain;charset=utf-8;base64,{NOTES}")
    assert text_in(NOTES, "application/pdf") is None and text_in(NOTES) is None
    assert text_in("%%%", "text/plain") is None
    assert text_in(base64.b64encode(b"\xff\xfe").decode(), "text/plain") is None


def test_a_name_cannot_end_its_placeholder() -> None:
    assert Placeholders().named("file", "a]\n[x", "y" * 500) == f"[file: a x, {'y' * 120}, not shown to a text model]"
    assert own_line("[x]", is_first=True) == "[x]\n" and own_line("[x]", is_first=False) == "\n[x]\n"
