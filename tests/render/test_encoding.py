"""Long texts get the ids that one plain call gives, and others run meanwhile."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable

import pytest
from test_renderer import served
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.render.encoding import LONG_CHARS, TooManyTokens, count, encoded, longest_token
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.testing.families import STAND_INS, StandIn

PIECES = (
    "The file holds two problems. ", "\n\n    ", "ünïcödé ", "もう一度お願いします。", "🙂👩‍👩‍👧", "e\u0301",
    "<|im_end|>", "[INST]", "\t\r\n", "====",
    "12345678", " ", "\x00", "</think>", "don't", "\u200b",
)  # fmt: skip


def odd_text(seed: int, chars: int) -> str:
    source = random.Random(seed)
    return "".join(itertools.islice(iter(lambda: source.choice(PIECES), None), chars // 2))[:chars]


def plain_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def bytes_bpe() -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: at for at, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize("family", STAND_INS, ids=lambda family: family.name)
def test_a_long_text_has_the_ids_of_one_plain_call_in_every_family(family: StandIn) -> None:
    tokenizer = family.template().tokenizer
    longest = longest_token(tokenizer)
    assert longest is not None
    for chars in (0, 7, LONG_CHARS - 1, LONG_CHARS, 40_000):
        text = odd_text(chars, chars)
        ids = plain_ids(tokenizer, text)
        assert encoded(tokenizer, text) == ids
        assert count(tokenizer, text) == len(ids)
        assert longest.least(text) <= len(ids)


def test_more_ids_than_are_allowed_are_refused_and_as_many_are_not() -> None:
    tokenizer, text = bytes_bpe(), "a" * 5_000
    assert len(encoded(tokenizer, text, most=5_000)) == 5_000
    with pytest.raises(TooManyTokens) as caught:
        encoded(tokenizer, text, most=4_999)
    assert caught.value.least == 5_000


def test_the_least_that_a_text_has_is_told_from_the_longest_token() -> None:
    tokenizer = bytes_bpe()
    tokenizer.add_tokens(["=" * 32])
    longest = longest_token(tokenizer)
    assert longest is not None
    text = "=" * 3_200  # 100 of the longest
    assert longest.least(text) == len(plain_ids(tokenizer, text)) == 100
    assert longest.least(text + "=") == 101
    assert longest.least("") == 0


def test_what_is_composed_before_it_is_encoded_counts_as_less() -> None:
    tokenizer = bytes_bpe()
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken("ᾂ" * 8, normalized=True)])
    longest = longest_token(tokenizer)
    assert longest is not None
    text = "\u03b1\u0313\u0300\u0345" * 8 * 50  # each four become one letter
    assert longest.least(text) <= len(plain_ids(tokenizer, text)) == 50
    assert longest.least("=" * 800) == 100  # ASCII stays as it is


def _with(change: Callable[[Tokenizer], None]) -> Tokenizer:
    tokenizer = bytes_bpe()
    change(tokenizer)
    return tokenizer


def _strips_beside_a_mark(tokenizer: Tokenizer) -> None:
    tokenizer.add_tokens([AddedToken("<mark>", rstrip=True, normalized=False)])


def _drops_white_space(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), tokenizer.pre_tokenizer])


def _strips(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.Strip()


def _cuts(tokenizer: Tokenizer) -> None:
    tokenizer.enable_truncation(10)


@pytest.mark.parametrize("change", [_strips_beside_a_mark, _drops_white_space, _strips, _cuts])
def test_nothing_is_told_of_a_tokenizer_that_may_leave_text_out(change: Callable[[Tokenizer], None]) -> None:
    assert longest_token(bytes_bpe()) is not None
    assert longest_token(_with(change)) is None


def test_nothing_is_told_of_a_tokenizer_that_does_not_know_every_byte() -> None:
    unknown = Tokenizer(models.BPE({"a": 0, "<unk>": 1}, [], unk_token="<unk>", fuse_unk=True))
    assert len(plain_ids(unknown, "b" * 100)) == 1
    assert longest_token(unknown) is None
    words = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    assert longest_token(words) is None


def test_others_run_while_a_long_text_is_encoded() -> None:
    thread = threading.Thread(target=encoded, args=(bytes_bpe(), odd_text(1, 3_000_000)))
    began = turned = time.perf_counter()
    silence = 0.0
    thread.start()
    while thread.is_alive():
        now = time.perf_counter()
        silence, turned = max(silence, now - turned), now
    thread.join()
    assert silence < (turned - began) / 3  # nearly all of it, where the call holds the interpreter


TALK = (
    message(Role.SYSTEM, "You help."),
    message(Role.USER, "hello there " * 1_000),
    message(Role.ASSISTANT, "hi"),
    message(Role.USER, "and then?"),
)


@pytest.mark.parametrize("kind", ["renderer", "rewriting", "shapeless"])
def test_a_prompt_is_refused_only_where_it_does_not_fit(kind: str, request: pytest.FixtureRequest) -> None:
    renderer: ChatRenderer = request.getfixturevalue(kind)
    whole = renderer.prompt(TALK, (), None)
    assert renderer.count(TALK, ()) == len(whole)
    assert renderer.prompt(TALK, (), None, most=len(whole)).tokens == whole.tokens
    for most in (0, len(whole) // 100, len(whole) - 1):
        with pytest.raises(TooManyTokens) as caught:
            renderer.prompt(TALK, (), None, most=most)
        assert most < caught.value.least <= len(whole)


def test_what_can_never_fit_is_not_encoded(renderer: ChatRenderer) -> None:
    asked = (message(Role.USER, "hello there " * 20_000),)
    with pytest.raises(TooManyTokens):
        renderer.prompt(asked, (), None, most=10)
    assert renderer.held["render_encoded_chars_held"] < 1_000  # what was encoded is held
    assert len(renderer.prompt(asked, (), None)) > 10
    assert renderer.held["render_encoded_chars_held"] > len(asked[0].text)


def test_a_text_that_is_no_conversation_is_refused_in_the_same_way(renderer: ChatRenderer) -> None:
    ids = renderer.encode("hello " * 2_000)
    assert renderer.encode("hello " * 2_000, most=len(ids)) == ids
    with pytest.raises(TooManyTokens):
        renderer.encode("hello " * 2_000, most=len(ids) - 1)


def test_a_conversation_that_goes_on_is_refused_only_where_it_does_not_fit(renderer: ChatRenderer) -> None:
    sampled = (*renderer.encode("yes"), renderer.template.eos_ids()[0])
    turn = served(renderer, TALK[:2], sampled)
    talk: tuple[Message, ...] = (*TALK[:2], turn.reply, message(Role.USER, "more " * 500))
    whole = renderer.prompt(talk, (), turn)
    assert renderer.prompt(talk, (), turn, most=len(whole)) == whole
    with pytest.raises(TooManyTokens):
        renderer.prompt(talk, (), turn, most=len(whole) - 1)
