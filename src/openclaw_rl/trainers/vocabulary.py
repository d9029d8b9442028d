"""Whether two models have the same tokens. Loads no torch: a server checks this before it starts anything."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from openclaw_rl.errors import ConfigError


def check_same_vocabulary(student: Path, teacher: Path) -> None:
    """Raises ConfigError if the two tokenizers do not map every id to the same text."""
    digests = [vocabulary_digest(folder) for folder in (student, teacher)]
    if digests[0] != digests[1]:
        raise ConfigError(
            f"the teacher {teacher} has another vocabulary than the model {student} "
            f"(digests {digests[1][:12]} and {digests[0][:12]}): its probabilities would belong to other tokens",
            fix="name a teacher of the same family with the same tokenizer, or leave trainer.method.teacher_model out",
        )


def vocabulary_digest(folder: Path) -> str:
    """SHA-256 over the text of each id. Raises ConfigError if there is no tokenizer.json."""
    try:
        body = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        pieces = {str(text): int(number) for text, number in _pieces(body["model"]["vocab"])}
        pieces |= {str(item["content"]): int(item["id"]) for item in body.get("added_tokens", [])}
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ConfigError(
            f"{folder} has no tokenizer.json with its vocabulary ({problem!r})",
            fix="name a folder that contains the tokenizer and the weights",
        ) from problem
    listed = sorted((number, text) for text, number in pieces.items())
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def _pieces(vocabulary: object) -> list[tuple[object, int]]:
    """Pairs of text and id. Byte-pair and word-piece vocabularies are tables, a unigram's is a list indexed by id."""
    if isinstance(vocabulary, dict):
        return list(vocabulary.items())
    if isinstance(vocabulary, list):
        return [(item[0], place) for place, item in enumerate(vocabulary)]
    raise TypeError(f"a vocabulary is not a {type(vocabulary).__name__}")
