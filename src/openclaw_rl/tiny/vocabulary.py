"""The bundled model's tokenizer: byte-level BPE over ordinary English and code and over the toy world's own texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from openclaw_rl.render.template import ChatTemplate, compile_template
from openclaw_rl.tiny import agents
from openclaw_rl.tiny.corpus import sample

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
# Words, single digits, punctuation with the line ends after it, line ends, blanks: the pattern by which Qwen cuts text.
CUTS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def template_source() -> str:
    """The chat template that ships with the model."""
    return Path(__file__).with_name("chat_template.jinja").read_text("utf-8")


def train(code: Sequence[str], prose: Sequence[str], rng: Random, *, size: int, world_samples: int) -> Tokenizer:
    """A byte-level BPE tokenizer of at most `size` entries, including the special tokens.

    All of the prose is read twice, but only every third text of the code, because agents' prompts are mostly English.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CUTS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    bare = ChatTemplate(tokenizer, compile_template(template_source()), {})
    drawn = (sample(bare, prose, rng) for _ in range(world_samples))
    world = ["".join(piece for piece, _ in item.pieces) for item in drawn]
    made = [agents.system_text(rng, chars=4000) + agents.tool_schemas(rng, count=8) for _ in range(world_samples // 5)]
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*SPECIAL, *MARKS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*code[::3], *prose, *prose, *world, *made], trainer)
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and the chat template, as transformers and the product read them."""
    # Decoding must not skip the marks, because readers need <think> and <tool_call>: they are not special tokens.
    written = json.loads(tokenizer.to_str())
    for added in written["added_tokens"]:
        added["special"] = added["content"] in SPECIAL
    text = json.dumps(written, ensure_ascii=False, separators=(",", ":"))
    folder.joinpath("tokenizer.json").write_text(text, "utf-8")
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 32768,
    }
    folder.joinpath("tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    folder.joinpath("chat_template.jinja").write_text(template_source(), "utf-8")
