"""Compiled grammars, kept by their text. The library is llguidance, loaded with the first grammar."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from openclaw_rl.core.sampling import Grammar
from openclaw_rl.engines.grammar_problems import problem_of
from openclaw_rl.engines.local.guides import Guide
from openclaw_rl.engines.local.recent import Recent
from openclaw_rl.errors import RequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MOST_KEPT = 256
MOST_KEPT_CHARS = 8_000_000
MOST_CHARS = 400_000  # of one grammar
PROBED = 4  # tokens along a new grammar
MOST_COMPILE_S = 5.0
INSTALL = "install the engine's grammar library: pip install 'openclaw-rl[local]'"


class Grammars:
    """Compiles in the calling thread, and makes a new guide for each answer. Safe for several threads."""

    def __init__(self, tokenizer: Path, vocab_size: int, end: int) -> None:
        self._source = tokenizer
        self._vocab_size = vocab_size
        self._end = end
        self._tokenizer: LLTokenizer | None = None
        self._lock = threading.Lock()
        self._kept: Recent[LLMatcher] = Recent(most=MOST_KEPT, most_chars=MOST_KEPT_CHARS)

    def holds(self, grammar: Grammar) -> bool:
        """Whether it is compiled already."""
        with self._lock:
            return grammar.text in self._kept

    def compile(self, grammar: Grammar) -> None:
        """Raises RequestError if the library refuses it, or it is too large."""
        if self.holds(grammar):
            return
        check_size(grammar)
        begin = time.perf_counter()
        made = self._compiled(grammar.text)
        seconds = time.perf_counter() - begin
        if seconds > MOST_COMPILE_S:
            raise _refused(f"it took {seconds:.1f} s to compile, at most {MOST_COMPILE_S:.0f} s are given to one")
        with self._lock:
            self._kept.put(grammar.text, made)

    def guide(self, grammar: Grammar, said: tuple[int, ...] = ()) -> Guide:
        """A guide positioned after the tokens `said`. Raises RequestError as `compile`."""
        self.compile(grammar)
        with self._lock:
            held = self._kept.get(grammar.text)
        guide = Guide((held or self._compiled(grammar.text)).deep_copy(), grammar.ends, self._end)
        if said:
            guide.go_on(said)
        return guide

    def _compiled(self, text: str) -> LLMatcher:
        try:
            from llguidance import LLMatcher, LLParserLimits, LLTokenizer
        except ModuleNotFoundError as error:
            raise RequestError(
                f"answers cannot be constrained to a format here: {error.name} is not installed",
                fix=INSTALL,
                code="unsupported_parameter",
            ) from error
        with self._lock:
            if self._tokenizer is None:
                try:
                    source = self._source.read_text("utf-8")
                    # the model may have more ids than its tokenizer knows
                    self._tokenizer = LLTokenizer(source, n_vocab=self._vocab_size, eos_token=self._end)
                except (OSError, ValueError) as error:
                    raise _refused(f"the tokenizer of {self._source.parent.name} cannot be read: {error}") from error
            tokenizer = self._tokenizer
        limits = LLParserLimits(verbose_errors=False)

        def tried(grammar: str) -> str:
            return LLMatcher(tokenizer, grammar, log_level=0, limits=limits).get_error()

        text = _in_lark(text)
        made = LLMatcher(tokenizer, text, log_level=0, limits=limits)
        if made.is_error():
            raise _refused(problem_of(made.get_error(), text, tried))
        _follow(made.deep_copy(), text, tried)
        return made


def check_size(grammar: Grammar) -> None:
    """Raises RequestError for a grammar that is too long to be compiled."""
    if len(grammar.text) > MOST_CHARS:
        raise _refused(f"it has {len(grammar.text)} characters, and at most {MOST_CHARS} are compiled")


def _in_lark(text: str) -> str:
    """The grammar with its GBNF parts rewritten in Lark. Raises RequestError if one is not valid GBNF."""
    if not text.startswith("{"):
        return text
    from llguidance.gbnf_to_lark import any_to_lark

    held = json.loads(text)
    for part in held["grammars"]:
        if "gbnf" in part:
            try:
                part["lark_grammar"] = any_to_lark(part.pop("gbnf"))
            except Exception as error:  # the library has no exception class for all its errors
                raise _refused(f"the grammar is not valid GBNF: {error}") from error
    return json.dumps(held)


def _follow(matcher: LLMatcher, text: str, tried: Callable[[str], str]) -> None:
    """Takes a few steps along the grammar: a grammar too large for the library fails there. Raises RequestError."""
    for _ in range(PROBED):
        found = matcher.compute_ff_tokens()
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        token = found[0] if found else (mask & -mask).bit_length() - 1
        if token < 0 or matcher.is_stopped() or not matcher.consume_token(token):
            break
    if matcher.is_error():
        raise _refused(problem_of(matcher.get_error(), text, tried))
    if matcher.is_stopped() and not matcher.is_accepting():
        raise _refused("no answer could ever be complete")


def _refused(why: str) -> RequestError:
    return RequestError(
        f"the answer cannot be constrained to this format: {why}",
        fix="simplify the schema or grammar, or leave it out",
        code="unsupported_format",
    )
