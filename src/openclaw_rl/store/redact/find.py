"""Where a text holds something private: the detectors of detect-secrets, and rules of our own for what they lack."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from openclaw_rl.core.masked import Private
from openclaw_rl.store.settings import Redact

PIECE, OVERLAP = 32_768, 4_096  # letters
_LEAST = 8  # letters of a secret; what is shorter is a word
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
# A value that something called a key, secret or password is set to; a lone word is a type or a placeholder.
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


@dataclass(frozen=True, slots=True)
class Found:
    """A piece of a text that is to be masked."""

    start: int
    stop: int
    kind: Private


Finder = Callable[[str], Iterator[Found]]


def finders(kinds: Sequence[Redact]) -> tuple[Finder, ...]:
    """What looks for these kinds. Loading the detectors takes a few tenths of a second, once."""
    found: list[Finder] = []
    if Redact.KEYS in kinds:
        found += [private_keys, in_pieces(_own_rules), in_pieces(_library())]
    if Redact.CARDS in kinds:
        found.append(in_pieces(_cards))
    if Redact.EMAILS in kinds:
        found.append(in_pieces(_emails))
    return tuple(found)


def _library() -> Finder:
    """The detectors of detect-secrets that know a format. They only read: none asks a service whether a key works.

    Left out are those that guess by entropy or by a variable's name, and would mask digests and identifiers.
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
    """Whole blocks, however long; they are looked for in the whole text, and at once where there are none."""
    at = 0
    while "PRIVATE KEY" in text and (begin := _PEM.search(text, at)) is not None:
        end = _PEM_END.search(text, begin.end())
        at = len(text) if end is None else end.end()
        yield Found(begin.start(), at, Private.SECRET)


def in_pieces(find: Finder) -> Finder:
    """As `find`, a piece of a long text at a time: a search holds up every other thread until it has ended.

    The pieces overlap by more than a secret is long; what is found twice is one.
    """

    def found(text: str) -> Iterator[Found]:
        for start in range(0, max(1, len(text) - OVERLAP), PIECE - OVERLAP):
            for item in find(text[start : start + PIECE]):
                yield Found(start + item.start, start + item.stop, item.kind)

    return found


def _is_random(value: str) -> bool:
    """Whether a value looks made rather than written: letters beside digits."""
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
