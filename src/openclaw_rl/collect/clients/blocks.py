"""Text that no person types, known by its shape alone: whole elements with a compound name, such as
`<system-reminder>...</system-reminder>`, elements that say themselves that the owner's words stand inside, results of
an agent's steps that stand in a user's place, and notices under a heading in brackets.
"""

from __future__ import annotations

import re

LONGEST = 400_000  # letters; a longer text is taken as it is
# The names under which programs hand on what their owner typed; what stands around such an element is the program's.
_OWNERS = (
    "user[-_](?:query|message|input|request|question|prompt|words|text|feedback|task|answer|reply|said|turn)"
    "|(?:original|current|latest|new)[-_](?:query|message|question|request|user[-_]message)"
)
# These say so only where nothing is left beside them: any of them may be somebody's element in a text.
_ALONE = re.compile(
    r"\s*<(?P<tag>task|feedback|query|question|request|instructions?|prompt|input|message)>(?P<words>.*)</(?P=tag)\s*>\s*",
    re.DOTALL | re.IGNORECASE,
)
_RESULT = re.compile(
    r"\s*(?:(?:Observations?|Execution logs|(?:Tool|Function|Command|Execution) (?:result|results|output|response))\s*:"
    r"|<(?:returncode|return_code|exit_code|exitcode|tool_response|tool_result|function_results?)\b[^<>\n]*>"
    r"|\[[a-z]+(?:_[a-z]+)+\b[^\]\n]*\] Result:)"
)
_NOTICE = re.compile(r"\s*\[(?=[^\]\n]* )[A-Z][A-Z0-9 _:,/-]{11,120}\][ \t]*\n")
RESULT, NOTICE = "<result of a step>", "<notice under a heading in brackets>"
_OWNER = re.compile(rf"<(?P<tag>{_OWNERS})>(?P<words>.*?)</(?P=tag)\s*>", re.DOTALL | re.IGNORECASE)
_BLOCK = re.compile(
    r"(?:(?<=\n)|\A)[ \t]*<(?P<tag>[A-Za-z][A-Za-z0-9]*(?:[-_:][A-Za-z0-9]+)+)(?:[ \t][^<>\n]{0,300})?>"
    r".*?</(?P=tag)\s*>[ \t]*(?:\n|\Z)",
    re.DOTALL,
)
# The same where the words go on in the line: the element itself must then span lines, as no code in a sentence does.
_INLINE = re.compile(
    r"(?:(?<=\n)|\A)[ \t]*<(?P<tag>[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)+)>[ \t]*\n.*?\n[ \t]*</(?P=tag)\s*>",
    re.DOTALL,
)


def is_result(text: str) -> bool:
    """Whether a text begins as what an agent's step gave back, sent as a user's message."""
    return _RESULT.match(text) is not None


def is_notice(text: str) -> bool:
    """Whether a text begins with a heading in brackets and capitals, on a line of its own."""
    return _NOTICE.match(text) is not None


def without_blocks(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without such elements, and their names."""
    if "</" not in text or len(text) > LONGEST:
        return text, ()
    wrapped = list(_OWNER.finditer(text))
    if wrapped:
        inside = "\n".join(found["words"].strip() for found in wrapped)
        around = _OWNER.sub("", text).strip()
        return inside, (f"around <{wrapped[0]['tag']}>",) if around else ()
    names: list[str] = []

    def cut(found: re.Match[str]) -> str:
        names.append(f"<{found['tag']}>")
        return ""

    left = _INLINE.sub(cut, _BLOCK.sub(cut, text))
    alone = _ALONE.fullmatch(left)
    if alone is not None and f"<{alone['tag']}>" not in alone["words"]:
        left = alone["words"].strip()
        names.append(f"around <{alone['tag']}>")
    return (left.strip(), tuple(dict.fromkeys(names))) if names else (text, ())
