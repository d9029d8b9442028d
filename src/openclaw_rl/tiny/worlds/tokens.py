"""Tokenizers of synthetic worlds, each trained on its own dialogues."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from string import ascii_letters, digits, punctuation
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from openclaw_rl.tiny.worlds.templates import THINK
from openclaw_rl.tiny.worlds.world import TokenizerKind, World

_BLANK = "▁"
_OTHER_LETTERS = "äöüßÄÖÜáéíóúñ¿¡ÁÉÍÓÚÑ"
# Words with the blank in front, numbers, punctuation with the line ends after it, line ends, blanks.
_CUTS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def trained(world: World, texts: Sequence[str], size: int) -> Tokenizer:
    """A tokenizer of at most `size` entries, trained on the texts, with the special tokens of the world's template."""
    special = [*world.template.special, *(THINK if world.template.thinks else ())]
    if world.cut is TokenizerKind.PIECES:
        return _pieces(special, texts, size)
    if world.cut is TokenizerKind.MERGES:
        return _merges(special, texts, size)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_CUTS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _pieces(special: list[str], texts: Sequence[str], size: int) -> Tokenizer:
    """A unigram tokenizer: the likeliest pieces of words, with a mark for blanks; line ends are tokens of their own."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Metaspace(_BLANK, "never", split=True)]
    )
    tokenizer.decoder = decoders.Metaspace(_BLANK, "never", split=True)
    known = [*ascii_letters, *digits, *punctuation, *_OTHER_LETTERS, _BLANK, "\n"]
    trainer = trainers.UnigramTrainer(
        vocab_size=size,
        special_tokens=["<unknown>", *special],
        unk_token="<unknown>",
        initial_alphabet=known,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _merges(special: list[str], texts: Sequence[str], size: int) -> Tokenizer:
    """A BPE tokenizer of characters with a mark for blanks; line ends and numbers are cut off from other text.

    A number up to 99 should have the same token everywhere. When its pieces differed from place to place, arithmetic
    was learned far more slowly.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="<unknown>"))
    alone = pre_tokenizers.Split(Regex(r"\n|\d+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([alone, pre_tokenizers.Metaspace(_BLANK, "never", split=True)])
    tokenizer.decoder = decoders.Metaspace(_BLANK, "never", split=True)
    known = [*ascii_letters, *digits, *punctuation, *_OTHER_LETTERS, _BLANK, "\n"]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<unknown>", *special], initial_alphabet=known, show_progress=False
    )
    numbers = [" ".join(map(str, range(100)))] * (1 + len(texts) // 20)
    tokenizer.train_from_iterator([*texts, *numbers], trainer)
    return tokenizer


def save(tokenizer: Tokenizer, world: World, folder: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and the chat template, as transformers and the product read them."""
    written = json.loads(tokenizer.to_str())
    for added in written["added_tokens"]:
        added["special"] = added["content"] not in THINK  # decoding must not skip the marks of thinking
    folder.joinpath("tokenizer.json").write_text(json.dumps(written, ensure_ascii=False), "utf-8")
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": world.template.closes,
        "pad_token": world.template.special[0],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 32768,
    }
    folder.joinpath("tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    folder.joinpath("chat_template.jinja").write_text(world.template.source, "utf-8")
