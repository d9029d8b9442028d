"""What is private never reaches the disk, and what was masked is not learned from."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from store_doubles import said

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.masked import Private, marks_in
from openclaw_rl.core.message import Message, Role, TextPart, ToolCall, message
from openclaw_rl.core.next_state import Feedback
from openclaw_rl.store.db import Store
from openclaw_rl.store.redact.masker import NO_IDS, OVERLAP, PIECE, Masker, is_luhn
from openclaw_rl.store.settings import Redact
from openclaw_rl.testing.turns import a_turn

# Made up: each has the form of the real thing and belongs to nobody. Put together here, so that no scanner takes them
# for real ones.
KEY = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q" * 2
SECRETS = {
    "openai": KEY,
    "anthropic": "sk-ant-api03-" + "Zx9_Yw8-Vu7Ts6Rq5Po4" * 2,
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "github": "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "fine-grained github": "github_pat_" + "11ABCDEFG0" * 6,
    "gitlab": "glpat-" + "x1Y2z3A4b5C6d7E8f9G0",
    "google": "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "hugging face": "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz12345678",
    "slack": "xoxb-" + "123456789012-abcdefABCDEF",
    "stripe": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "json web token": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "npm": "//registry.example/:_authToken=" + "npm_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "twilio": "SK" + "0123456789abcdef" * 2,
    "private key": "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIEow==\nabc\n-----END RSA PRIVATE KEY-----",
}


@pytest.fixture(scope="module")
def masker() -> Masker:
    return Masker.of(tuple(Redact))


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_masked_and_the_words_around_it_stay(masker: Masker, name: str) -> None:
    text = masker.text(f"please use {SECRETS[name]} for it")
    assert SECRETS[name] not in text
    assert text.startswith("please use ") and text.endswith(" for it")
    assert marks_in(text) == Counter({Private.SECRET: 1})


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('password = "hunter2hunter2"', 'password = "[masked: secret]"'),
        ("Authorization: Bearer abcDEF123456abcDEF123456", "Authorization: Bearer [masked: secret]"),
        ("postgres://bob:pw1@db/x", "postgres://bob:[masked: secret]@db/x"),
        ("pay with 4111 1111 1111 1111 now", "pay with [masked: card number] now"),
        ("5555-5555-5555-4444", "[masked: card number]"),
        ("ask bob@example.com", "ask [masked: e-mail address]"),
    ],
)
def test_what_something_calls_private_is_masked(masker: Masker, text: str, kept: str) -> None:
    assert masker.text(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "What is 12 * 34? The answer is 408.",
        "4111 1111 1111 1112",  # no check digit
        "order 1732183612345678 of today",  # a time in microseconds
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",  # a digest
        "def f(token: Optional[str] = None, password: str = '') -> None: ...",
        "commit 1907067a, version 2.13.0, 192.168.1.20:30000",
        "my password is wrong, what now?",
    ],
)
def test_what_only_looks_like_it_stays(masker: Masker, text: str) -> None:
    assert masker.text(text) == text


def test_check_digits_are_those_of_the_standard() -> None:
    # 7992739871 has the check digit 3, the worked example of ISO/IEC 7812-1
    assert [digit for digit in range(10) if is_luhn(f"7992739871{digit}")] == [3]


@pytest.mark.parametrize("at", [PIECE - OVERLAP - 20, PIECE - 20, PIECE, 3 * PIECE])
def test_a_secret_in_a_long_text_is_found_wherever_it_stands(masker: Masker, at: int) -> None:
    text = masker.text(f"{'word ' * (at // 5)} {KEY} {'word ' * 20_000}")
    assert KEY not in text and marks_in(text)[Private.SECRET] == 1


async def test_a_turn_with_a_secret_is_kept_without_it_and_without_ids_and_never_learned_from(
    tmp_path: Path, masker: Masker
) -> None:
    call = Message(Role.ASSISTANT, tool_calls=(ToolCall("c", "login", f'{{"key": "{KEY}"}}'),), reasoning=f"use {KEY}")
    asked = Message(Role.USER, (TextPart(f"my key is {KEY}, and mail bob@example.com"),))
    turn = replace(a_turn("t"), messages=(asked,), reply=call)
    store = await Store.open(tmp_path, masker=masker)
    await store.add_turn(turn, chain="c")
    await store.add_turn(a_turn("plain"), chain="d")
    row, plain = await store.row("t"), await store.row("plain")
    found = await store.turn("t")
    await store.aclose()
    assert row is not None and plain is not None and found is not None
    assert (row.state, row.reason) == (State.DROPPED, DropReason.REDACTED)
    assert (row.turn.prompt, row.turn.completion.tokens) == (NO_IDS, ())
    assert plain.turn.prompt != NO_IDS and plain.turn.completion.tokens
    assert "3 secrets" in row.turn.why and "1 e-mail address" in row.turn.why
    assert (plain.state, plain.turn) == (State.SERVED, a_turn("plain"))  # nothing private, nothing changed
    assert turn.messages == (asked,) and len(turn.prompt) == len(a_turn("t").prompt)  # what was served is as it was
    assert not _bytes_hold(tmp_path, KEY)


async def test_the_judge_and_every_hint_see_what_followed_without_its_secrets(tmp_path: Path, masker: Masker) -> None:
    store = await Store.open(tmp_path, masker=masker)
    await store.add_turn(a_turn("t"), chain="c")
    await store.pair(said("t", f"no, use {KEY}"))
    await store.add_feedback(Feedback("t", -1, f"you should have used {KEY}", 1.0))
    [(turn, next_state, feedback)] = await store.paired(limit=9)
    await store.aclose()
    assert turn == a_turn("t")  # its own ids hold no secret: it may be learned from
    assert next_state.messages == (message(Role.USER, "no, use [masked: secret]"),)
    assert feedback is not None and feedback.text == "you should have used [masked: secret]"
    assert not _bytes_hold(tmp_path, KEY)


async def test_without_anything_to_mask_everything_is_kept(tmp_path: Path) -> None:
    turn = replace(a_turn("t"), messages=(message(Role.USER, KEY),))
    store = await Store.open(tmp_path, masker=Masker.of(()))
    await store.add_turn(turn, chain="c")
    assert await store.turn("t") == turn
    await store.aclose()


def _bytes_hold(folder: Path, text: str) -> bool:
    return any(text.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())
