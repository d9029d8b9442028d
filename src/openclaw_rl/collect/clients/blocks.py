"""Text that no person types, recognised by its shape: complete elements with a compound name, such as
`<system-reminder>...</system-reminder>`, elements whose names say that they contain the owner's words, results of an
agent's steps sent as a user's message, and notices under a heading in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# What a program writes above its owner's words: only others speak of "the user".
_OVER = re.compile(
    r"\s*[^\n]{0,80}\b[Tt]he user (?:has )?"
    r"(?:added|answered|asked|denied|provided|rejected|replied|responded|said|sent|wrote)"
    r"\b[^\n:]{0,80}:\s+(?=\S)"
)
LONGEST = 400_000  # letters; a longer text is not split
# The element names in which programs pass on what their owner typed; the text around such an element is the program's.
_OWNERS = (
    "user[-_](?:query|message|input|request|question|prompt|words|text|feedback|task|answer|reply|said|turn)"
    "|(?:original|current|latest|new)[-_](?:query|message|question|request|user[-_]message)"
)
# These count only if nothing else is left in the text: any of them may also be an element that a user wrote.
_ALONE = re.compile(
    r"\s*<(?P<tag>task|feedback|query|question|request|instructions?|prompt|input|message)>(?P<words>.*)</(?P=tag)\s*>\s*",
    re.DOTALL | re.IGNORECASE,
)
_RESULT = re.compile(
    r"\s*(?:(?:Observations?|Execution logs|(?:Tool|Function|Command|Execution) (?:result|results|output|response))\s*:"
    r"|<(?:returncode|return_code|exit_code|exitcode|tool_response|tool_result|function_results?)\b[^<>\n]*>"
    r"|(?:Attached )?(?:[Mm]edia|[Ii]mages?|[Ff]iles?) (?:from|of) (?:the )?tool(?:'s)? (?:call|result|output)s?:"
    r"\s*(?:\n|\Z)"
    r"|Call id: \S+[ \t]*\n"
    r"|\[[a-z]+(?:_[a-z]+)+\b[^\]\n]*\] Result:)"
)
_NOTICE = re.compile(r"\s*\[(?=[^\]\n]* )[A-Z][A-Z0-9 _:,/-]{11,120}\][ \t]*\n")
RESULT, NOTICE = "<result of a step>", "<notice under a heading in brackets>"
OVER = "<line that speaks of the user>"
_OWNER = re.compile(rf"<(?P<tag>{_OWNERS})>", re.IGNORECASE)
_BLOCK = re.compile(r"<(?P<tag>[A-Za-z][A-Za-z0-9]{0,40}(?:[-_:][A-Za-z0-9]{1,40}){1,8})(?:[ \t][^<>\n]{0,300})?>")
MOST_ELEMENTS = 200  # of a text that are examined: for each the text may have to be searched to its end


def is_result(text: str) -> bool:
    """Whether a text begins like the result of an agent's step, sent as a user's message."""
    return _RESULT.match(text) is not None


def is_notice(text: str) -> bool:
    """Whether a text begins with a heading in brackets and capitals, on a separate line."""
    return _NOTICE.match(text) is not None


def without_blocks(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without such elements and without a line above it that speaks of the user; and their names."""
    if len(text) > LONGEST:
        return text, ()
    over = _OVER.match(text)
    if over is not None:
        inside, found_in = without_blocks(text[over.end() :])
        return inside.strip(), (OVER, *found_in)
    if "</" not in text:
        return text, ()
    wrapped = list(_elements(text, _OWNER))
    if wrapped:
        inside = "\n".join(text[found.end : found.close].strip() for found in wrapped)
        around = _cut(text, wrapped).strip()
        return inside, (f"around <{wrapped[0].tag}>",) if around else ()
    blocks = [found for found in _elements(text, _BLOCK) if _stands_alone(text, found)]
    names = [f"<{found.tag}>" for found in blocks]
    left = _cut(text, blocks).strip() if blocks else text
    alone = _ALONE.fullmatch(left)
    if alone is not None and f"<{alone['tag']}>" not in alone["words"]:
        left = alone["words"].strip()
        names.append(f"around <{alone['tag']}>")
    return (left.strip(), tuple(dict.fromkeys(names))) if names else (text, ())


@dataclass(frozen=True, slots=True)
class _Element:
    """Where an element begins, its opening tag ends, its closing tag begins, and it ends."""

    tag: str
    start: int
    end: int
    close: int
    stop: int


def _elements(text: str, opening: re.Pattern[str]) -> Iterator[_Element]:
    """The elements with such an opening tag and a closing tag, none within another."""
    at, never_closed = 0, set[str]()
    for number, found in enumerate(opening.finditer(text)):
        if number == MOST_ELEMENTS:
            return
        tag = found["tag"]
        if found.start() < at or tag in never_closed:
            continue
        close = text.find(f"</{tag}>", found.end())
        if close < 0:
            never_closed.add(tag)
            continue
        at = close + len(tag) + 3
        yield _Element(tag, found.start(), found.end(), close, at)


def _stands_alone(text: str, found: _Element) -> bool:
    """Whether an element begins a line, and ends one or spans several: within a sentence, a person mentions it."""
    line = text.rfind("\n", 0, found.start) + 1
    if text[line : found.start].strip():
        return False
    after = text.find("\n", found.stop)
    ends_line = not text[found.stop : len(text) if after < 0 else after].strip()
    return ends_line or "\n" in text[found.end : found.close]


def _cut(text: str, elements: Sequence[_Element]) -> str:
    pieces, at = [], 0
    for found in elements:
        pieces.append(text[at : found.start])
        at = found.stop
    return "".join([*pieces, text[at:]])
