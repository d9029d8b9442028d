"""Masks private text in turns, next states and feedback before they are stored.

The served turn in memory is unchanged: it keeps its ids and can be continued exactly. On the disk, a turn with private
text has marks in its text and no ids, since ids would reveal the text; it is never learned from
(docs/decisions/0006-redaction.md).
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from openclaw_rl.core.completion import Completion
from openclaw_rl.core.hashing import hashed
from openclaw_rl.core.masked import Private, mark, told
from openclaw_rl.core.message import ImagePart, Json, Message, TextPart, Tool
from openclaw_rl.core.next_state import Feedback, NextState
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.turn import Turn
from openclaw_rl.store.settings import Redact

LONG_CHARS = 65_536  # searching this much takes a few hundredths of a second
REMEMBERED_LONG = 64  # long texts with something private, with what was found in them
REMEMBERED = 20_000  # texts known to have nothing private: every request repeats its whole conversation
NO_IDS = Prompt((0,))
Result = TypeVar("Result")
PIECE, OVERLAP = 32_768, 4_096  # letters
_LEAST = 8  # characters of a secret; anything shorter is a word
# Formats of providers that detect-secrets has no detector for, each with its fixed beginning.
_KEYS = re.compile(
    r"\bsk-(?:ant-|proj-|or-v1-|openclaw-|svcacct-)?[A-Za-z0-9_-]{20,}"
    r"|\bnpm_[A-Za-z0-9]{36}"
    r"|\bhf_[A-Za-z0-9]{30,}"
    r"|\bAIza[0-9A-Za-z_-]{35}"
    r"|\bgithub_pat_[0-9A-Za-z_]{40,}"
    r"|\bgl(?:pat|ptt|dt|rt)-[0-9A-Za-z_-]{20,}"
    r"|\bxai-[A-Za-z0-9]{40,}"
    r"|\bgsk_[A-Za-z0-9]{40,}"
    r"|\bwhsec_[A-Za-z0-9+/=]{24,}"
    r"|\bya29\.[0-9A-Za-z_-]{20,}"
    r"|\bdop_v1_[0-9a-f]{64}"
    r"|\bshpat_[0-9a-fA-F]{32}"
    r"|\bSG\.[0-9A-Za-z_-]{16,}\.[0-9A-Za-z_-]{16,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_=-]{8,}(?:\.[A-Za-z0-9_.+/=-]*)?"
)
_PEM = re.compile(r"-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END (?:[A-Z]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BEARER = re.compile(r"(?i)\b(?:bearer|basic|token)\s+([A-Za-z0-9._~+/-]{20,}={0,2})")
# A value assigned to a name such as key, secret or password; a single word is a type or a placeholder.
_ASSIGNED = re.compile(
    r"(?i)(?:api[_-]?key|secret(?:[_-]?key)?|access[_-]?key|auth[_-]?token|access[_-]?token|refresh[_-]?token|"
    r"client[_-]?secret|private[_-]?key|passwd|password|passphrase)['\"]?\s{0,3}(?:=>|:=|=|:)\s{0,3}['\"]?"
    r"([^\s'\",;<>{}()\[\]]{8,})"
)
_IN_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,64}:([^\s:/@]{3,128})@", re.IGNORECASE)
_CARD = re.compile(r"(?<![\w.-])(?:\d[ -]?){12,18}\d(?![\w-])")
_EMAIL = re.compile(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,5}\b")
_DETECTORS = (
    ("artifactory", "ArtifactoryDetector"),
    ("aws", "AWSKeyDetector"),
    ("azure_storage_key", "AzureStorageKeyDetector"),
    ("cloudant", "CloudantDetector"),
    ("discord", "DiscordBotTokenDetector"),
    ("github_token", "GitHubTokenDetector"),
    ("gitlab_token", "GitLabTokenDetector"),
    ("ibm_cloud_iam", "IbmCloudIamDetector"),
    ("ibm_cos_hmac", "IbmCosHmacDetector"),
    ("mailchimp", "MailchimpDetector"),
    ("openai", "OpenAIDetector"),
    ("pypi_token", "PypiTokenDetector"),
    ("sendgrid", "SendGridDetector"),
    ("slack", "SlackDetector"),
    ("softlayer", "SoftlayerDetector"),
    ("square_oauth", "SquareOAuthDetector"),
    ("stripe", "StripeDetector"),
    ("telegram_token", "TelegramBotTokenDetector"),
    ("twilio", "TwilioKeyDetector"),
)


@dataclass(slots=True)
class Masker:
    """Replaces what its finders find with marks: in the store's writing thread; `look` may run concurrently."""

    finders: tuple[Finder, ...]
    counted: Counter[Private] = field(default_factory=Counter)
    _clean: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _held: OrderedDict[str, list[Found]] = field(default_factory=OrderedDict)  # by long texts
    _lock: threading.Lock = field(default_factory=threading.Lock)  # for what is remembered, never held during a search

    @classmethod
    def of(cls, kinds: Sequence[Redact]) -> Masker:
        """A masker of these kinds."""
        return cls(finders(kinds))

    def text(self, text: str) -> str:
        """The text with marks; the text itself if it has nothing private."""
        if not self.finders or len(text) < 6:
            return text
        found = self._found(text)
        if not found:
            return text
        pieces, at = list[str](), 0
        for item in found:
            pieces += [text[at : item.start], mark(item.kind)]
            self.counted[item.kind] += 1
            at = item.stop
        return "".join((*pieces, text[at:]))

    def look(self, texts: Iterable[str]) -> None:
        """Searches long texts, so that `text` need not. May run concurrently with it."""
        for text in texts:
            if self.finders:
                self._found(text)

    def _found(self, text: str) -> list[Found]:
        """The private pieces of the text, from memory if it was searched before."""
        digest = hashed((text,))
        with self._lock:
            if digest in self._clean:
                self._clean.move_to_end(digest)
                return []
            if digest in self._held:
                return self._held[digest]
        found = _apart(item for finder in self.finders for item in finder(text))
        with self._lock:
            if not found:
                self._clean[digest] = None
                if len(self._clean) > REMEMBERED:
                    self._clean.popitem(last=False)
            elif len(text) > LONG_CHARS:
                self._held[digest] = found
                if len(self._held) > REMEMBERED_LONG:
                    self._held.popitem(last=False)
        return found

    def json(self, value: Json) -> Json:
        """The same data with its texts masked, except names of fields."""
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.json(item) for item in value]
            case dict():
                return {name: self.json(item) for name, item in value.items()}
        return value

    def message(self, item: Message) -> Message:
        """The message, its reasoning and its calls masked; the message itself if nothing was."""
        masked = replace(
            item,
            content=tuple(self._part(part) for part in item.content),
            reasoning=None if item.reasoning is None else self.text(item.reasoning),
            tool_calls=tuple(replace(call, arguments=self.text(call.arguments)) for call in item.tool_calls),
        )
        return item if masked == item else masked

    def turn(self, turn: Turn) -> Turn:
        """The turn as it may be stored: the turn itself, or one with marks and without ids."""
        before = Counter(self.counted)
        masked = replace(
            turn,
            messages=tuple(self.message(item) for item in turn.messages),
            tools=tuple(self._tool(item) for item in turn.tools),
            reply=self.message(turn.reply),
            options=self._mapping(turn.options),
            shown=self._mapping(turn.shown),
            carried=tuple(replace(item, text=self.text(item.text)) for item in turn.carried),
        )
        found = self.counted - before
        if not found:
            return turn
        completion = turn.completion
        return replace(
            masked,
            prompt=NO_IDS,
            completion=Completion((), (), (), completion.version, completion.finish),
            why=f"{turn.why}; masked before it was stored: {told(found)}, and its ids are not kept",
        )

    def next_state(self, next_state: NextState) -> NextState:
        """The next state, masked: the judge and every hint see only this."""
        return replace(next_state, messages=tuple(self.message(item) for item in next_state.messages))

    def feedback(self, feedback: Feedback) -> Feedback:
        """The feedback with its words masked."""
        return feedback if feedback.text is None else replace(feedback, text=self.text(feedback.text))

    def _part(self, part: TextPart | ImagePart) -> TextPart | ImagePart:
        if isinstance(part, TextPart):
            return TextPart(self.text(part.text))
        return part if part.url.startswith("data:") else ImagePart(self.text(part.url))

    def _tool(self, item: Tool) -> Tool:
        return replace(item, description=self.text(item.description), parameters=self._mapping(item.parameters))

    def _mapping(self, held: Mapping[str, Json]) -> dict[str, Json]:
        return {name: self.json(value) for name, value in held.items()}


def _apart(found: Iterable[Found]) -> list[Found]:
    """The pieces in order, overlapping ones joined."""
    apart: list[Found] = []
    for item in sorted(found, key=lambda each: (each.start, -each.stop)):
        if apart and item.start < apart[-1].stop:
            apart[-1] = replace(apart[-1], stop=max(apart[-1].stop, item.stop))
        else:
            apart.append(item)
    return apart


class LongTexts:
    """Searches the long texts of turns and next states, one after the other, and then has them written.

    This takes a second for a megabyte, and the end of an answer waits for the writing thread. So it is done before
    that thread's work: the masks found are remembered, and the thread only applies them.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._last: asyncio.Future[Any] | None = None

    def written(self, texts: Sequence[str], write: Callable[[], Awaitable[Result]]) -> asyncio.Future[Result]:
        """The result of `write`, which begins once these texts and all earlier ones were searched.

        It finishes even if its caller is cancelled.
        """
        task = asyncio.ensure_future(self._after(self._last, texts, write))
        self._last = task
        return asyncio.shield(task)

    async def settled(self) -> None:
        """Returns once everything queued until now is written."""
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last])

    async def _after(
        self, before: asyncio.Future[Any] | None, texts: Sequence[str], write: Callable[[], Awaitable[Result]]
    ) -> Result:
        if before is not None and not before.done():
            await asyncio.wait([before])
        await asyncio.to_thread(self._masker.look, texts)
        return await write()


def long_texts(messages: Iterable[Message]) -> list[str]:
    """The texts of these messages that take long to search."""
    texts = [part.text for item in messages for part in item.content if isinstance(part, TextPart)]
    texts += [call.arguments for item in messages for call in item.tool_calls]
    return [text for text in texts if len(text) > LONG_CHARS]


@dataclass(frozen=True, slots=True)
class Found:
    """A piece of a text to mask."""

    start: int
    stop: int
    kind: Private


Finder = Callable[[str], Iterator[Found]]


def finders(kinds: Sequence[Redact]) -> tuple[Finder, ...]:
    """The finders of these kinds: the detectors of detect-secrets, and the project's rules for what they lack.

    Loading the detectors takes a few tenths of a second, once.
    """
    found: list[Finder] = []
    if Redact.KEYS in kinds:
        found += [private_keys, in_pieces(_own_rules), in_pieces(_library())]
    if Redact.CARDS in kinds:
        found.append(in_pieces(_cards))
    if Redact.EMAILS in kinds:
        found.append(in_pieces(_emails))
    return tuple(found)


def _library() -> Finder:
    """The detectors of detect-secrets that know a format. They only read: none calls a service to check a key.

    Those that guess by entropy or by a variable's name are left out: they would mask digests and identifiers.
    """
    from importlib import import_module

    from detect_secrets.plugins.base import RegexBasedDetector

    patterns: list[re.Pattern[str]] = []
    for module, name in _DETECTORS:
        detector = vars(import_module(f"detect_secrets.plugins.{module}"))[name]()
        assert isinstance(detector, RegexBasedDetector)
        patterns += detector.denylist

    def find(text: str) -> Iterator[Found]:
        for pattern in patterns:
            for match in pattern.finditer(text):
                if len(match[0]) >= _LEAST:
                    yield Found(match.start(), match.end(), Private.SECRET)

    return find


def _own_rules(text: str) -> Iterator[Found]:
    for pattern, group in ((_KEYS, 0), (_BEARER, 1), (_ASSIGNED, 1)):
        for match in pattern.finditer(text):
            if _is_random(match[group]):
                yield Found(match.start(group), match.end(group), Private.SECRET)
    if "://" in text:
        for match in _IN_URL.finditer(text):
            yield Found(match.start(1), match.end(1), Private.SECRET)


def private_keys(text: str) -> Iterator[Found]:
    """Complete key blocks, however long, found in the whole text; a text without any returns at once."""
    at = 0
    while "PRIVATE KEY" in text and (begin := _PEM.search(text, at)) is not None:
        end = _PEM_END.search(text, begin.end())
        at = len(text) if end is None else end.end()
        yield Found(begin.start(), at, Private.SECRET)


def in_pieces(find: Finder) -> Finder:
    """As `find`, but a piece of a long text at a time: a search blocks every other thread until it has ended.

    The pieces overlap by more than the length of a secret; a piece found twice counts once.
    """

    def found(text: str) -> Iterator[Found]:
        for start in range(0, max(1, len(text) - OVERLAP), PIECE - OVERLAP):
            for item in find(text[start : start + PIECE]):
                yield Found(start + item.start, start + item.stop, item.kind)

    return found


def _is_random(value: str) -> bool:
    """Whether a value looks generated rather than written: it mixes letters and digits."""
    return any(letter.isdigit() for letter in value) and any(letter.isalpha() for letter in value)


def _cards(text: str) -> Iterator[Found]:
    for match in _CARD.finditer(text):
        digits = "".join(letter for letter in match[0] if letter.isdigit())
        if digits[0] in "23456" and len(set(digits)) > 1 and is_luhn(digits):
            yield Found(match.start(), match.end(), Private.CARD)


def _emails(text: str) -> Iterator[Found]:
    for match in _EMAIL.finditer(text):
        yield Found(match.start(), match.end(), Private.EMAIL)


def is_luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of the others (ISO/IEC 7812-1)."""
    doubled = [int(digit) * (2 if at % 2 else 1) for at, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0
