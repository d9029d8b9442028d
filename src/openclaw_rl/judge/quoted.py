"""Whose words a text holds: what its author wrote, without what they quoted; and foreign text that talks to its reader.

A person forwards a mail, pastes a page or quotes an answer: those words are not theirs, and must neither score a reply
nor word a hint. What tools fetched may be voted on, but not the lines in it that are written for whoever reads them.
"""

from __future__ import annotations

import re

LEFT_OUT = "[quoted text left out]"
LINE_LEFT_OUT = "[a line left out]"
# From such a line on, all that follows was written by somebody else.
_FORWARDED = re.compile(
    r"^[ \t>]*(?:-{2,}[ \t]*(?:original|forwarded)[ \t]+message[ \t]*-{2,}"
    r"|begin forwarded message:"
    r"|_{10,}[ \t]*$"
    r"|from:[ \t].{1,200}\n[ \t>]*(?:sent|date|to|subject|reply-to):[ \t])",
    re.IGNORECASE | re.MULTILINE,
)
_REPLIED = re.compile(r"^[ \t]*on .{4,120} wrote:[ \t]*$", re.IGNORECASE | re.MULTILINE)
_QUOTE_LINE = re.compile(r"^[ \t]*>.*(?:\n|\Z)", re.MULTILINE)
_TAGS = (
    "article|attachment|context|document|doc|email|file|mail|message|page|quote|quoted|result|results|search_results"
)
_TAGGED = re.compile(
    rf"<(?P<tag>(?:web_?|tool_?|forwarded_?|retrieved_?)?(?:{_TAGS}|blockquote|output|html))\b[^>\n]{{0,200}}>"
    r".*?(?:</(?P=tag)\s*>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_FENCED = re.compile(
    r"^[ \t]*(?P<fence>```+|~~~+)[ \t]*(?:text|txt|plain|md|markdown|html|xml|email|mail|eml|quote|page|web)[ \t]*\n"
    r".*?(?:^[ \t]*(?P=fence)[ \t]*$|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_BETWEEN = re.compile(
    r"^[ \t]*(?:-{3,}|={3,}|#{3,}|\*{3,})[ \t]*(?:begin|start)\b[^\n]{0,80}\n.*?"
    r"(?:^[ \t]*(?:-{3,}|={3,}|#{3,}|\*{3,})[ \t]*end\b[^\n]{0,80}$|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
# A short quotation is a name, or the words that were wanted; a long one is somebody else's.
_LONG_QUOTED = re.compile(r"\"[^\"]{40,}\"|“[^”]{40,}”|„[^“”]{40,}[“”]|«[^»]{40,}»")
# A line that speaks to a model, a judge or a grader, or that holds the marks in which judges answer.
_ADDRESSES = re.compile(
    r"\\boxed|\[/?hint|<<<|>>>|<\|?(?:im_start|im_end|system|assistant)|\[/?inst\]"
    r"|\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|prompt|rule|above|previous|prior|everything)"
    r"|\b(?:system|developer) (?:prompt|message|note|override)\b|\bnew instructions?\b"
    r"|\b(?:judge|grader|grading|evaluator|reviewer|rater|assessor|scorer|reward model)s?\b"
    r"|\b(?:score|rate|grade|rating|verdict|vote|hint|reward)\b.{0,60}"
    r"(?:[+-]?\s?1\b|\bone\b|positive|negative|max|full|this|the reply)"
    r"|\b(?:assistants?|models?|a\.?i\.?s?|llms?|agents?|chatbots?)\b.{0,30}"
    r"\b(?:must|should|shall|have to|need to|are (?:now|required))\b"
    r"|\bfrom now on\b|\bremember (?:to|that|this)\b|\bin (?:all )?future (?:replies|answers|responses)\b",
    re.IGNORECASE,
)


def own_words(text: str) -> str:
    """What the author of a text wrote; a mark stands where they quoted somebody or something else."""
    for pattern in (_TAGGED, _FENCED, _BETWEEN):
        text = pattern.sub(LEFT_OUT + "\n", text)
    text = _LONG_QUOTED.sub(LEFT_OUT, text)
    for pattern in (_FORWARDED, _REPLIED):
        found = pattern.search(text)
        if found is not None:
            text = f"{text[: found.start()]}{LEFT_OUT}"
    text = _QUOTE_LINE.sub(LEFT_OUT + "\n", text)
    return re.sub(rf"(?:{re.escape(LEFT_OUT)}\s*)+", LEFT_OUT + "\n", text).strip()


def has_own_words(text: str) -> bool:
    """Whether anything is left of a text without what it quotes."""
    return bool(own_words(text).replace(LEFT_OUT, "").strip())


def disarmed(text: str) -> str:
    """Foreign text without the lines that are addressed to whoever reads it."""
    if _ADDRESSES.search(text) is None:
        return text
    lines = [LINE_LEFT_OUT if _ADDRESSES.search(line) else line for line in text.split("\n")]
    return "\n".join(lines)
