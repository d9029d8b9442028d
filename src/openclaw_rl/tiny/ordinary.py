"""Ordinary English and code from the Python installation: the standard library's sources, the language reference."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from random import Random

PACKAGES = ("asyncio", "collections", "concurrent/futures", "email", "http", "importlib", "json", "logging", "unittest")


def files(limit: int | None = None) -> list[Path]:
    """The standard library's source files, sorted within each folder; at most `limit` of them, evenly spread."""
    root = Path(os.__file__).parent
    found = sorted(root.glob("*.py"))
    for package in PACKAGES:
        found += sorted(root.joinpath(package).glob("*.py"))
    return found if limit is None else found[:: max(1, len(found) // limit)][:limit]


def sources(limit: int | None = None) -> list[str]:
    """Code: the text of each of these files."""
    return [path.read_text("utf-8", errors="replace") for path in files(limit)]


def prose(code: Sequence[str]) -> list[str]:
    """English: the language reference's topics, then the docstrings and comments of the code."""
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    return [topics[name] for name in sorted(topics)] + [text for text in map(_spoken, code) if text]


def _spoken(code: str) -> str:
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    found += re.findall(r"^\s*# (.*)$", code, re.MULTILINE)
    return "\n".join(text for text in found if text)


def excerpt(texts: Sequence[str], rng: Random, chars: int) -> str:
    """At most `chars` characters of one of the texts, from the beginning of a line."""
    text = rng.choice(texts)
    start = text.rfind("\n", 0, rng.randrange(max(1, len(text) - chars)) + 1) + 1
    return text[start : start + chars]
