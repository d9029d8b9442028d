"""Stand-ins for published models: each family's template structure and tokens, and a tokenizer made on the spot.

Templates are in `templates/`, in our own words; vocabularies are small and all of one size, so that one random model
can speak any of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from openclaw_rl.render.parsers import Family
from openclaw_rl.render.template import ChatTemplate, compile_template

VOCAB = 1024
_TEXT = (
    "user assistant system tool functions analysis commentary final json name arguments parameters path content query",
    "You help people with their homework. Answer briefly, in the language you were asked in, and without headings.",
    '{"name": "read", "arguments": {"path": "homework.txt", "lines": 3, "all": true}}\n{"type": "function"}',
    "Let me read the file first. The file holds two problems; the answer is 12. Thanks, that was too long.",
    "Bitte kürzer. Спасибо, а если пять? もう一度お願いします。 🙂 naïve café",
)


@dataclass(frozen=True, slots=True)
class StandIn:
    """One model's template. `ends` are the ids its answers end with; `added` are tokens that are not special."""

    name: str
    family: Family
    special: tuple[str, ...]
    ends: tuple[str, ...]
    added: tuple[str, ...] = ()
    bos: str = ""
    has_thinking: bool = False
    is_sentence_piece: bool = False

    @property
    def eos(self) -> str:
        """The tokenizer's own mark of an answer's end."""
        return self.ends[0]

    def template(self) -> ChatTemplate:
        """Template and tokenizer."""
        source = files("openclaw_rl.testing").joinpath("templates", f"{self.name}.jinja").read_text("utf-8")
        return ChatTemplate(
            tokenizer_of(self), compile_template(source), {"bos_token": self.bos, "eos_token": self.eos}
        )


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_THINK = ("<think>", "</think>")
_CALL = ("<tool_call>", "</tool_call>")
_DEEPSEEK = (
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
    "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>",
)  # fmt: skip
_MISTRAL = (
    "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
    "[TOOL_CALLS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]",
)  # fmt: skip
_KIMI = (
    "[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>",
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>",
    "<|tool_call_argument_begin|>",
)  # fmt: skip
_GLM = ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
_LLAMA = (
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>",
)  # fmt: skip
_HARMONY = (
    "<|startoftext|>", "<|endoftext|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>",
    "<|return|>", "<|call|>",
)  # fmt: skip

STAND_INS: tuple[StandIn, ...] = (
    StandIn("qwen3", Family.HERMES, _CHATML, _CHATML[2:], (*_THINK, *_CALL, "<tool_response>", "</tool_response>"),
            has_thinking=True),
    StandIn("qwen_coder", Family.QWEN_CODER, _CHATML, _CHATML[2:], _CALL),
    StandIn("llama3", Family.LLAMA, _LLAMA, ("<|eot_id|>", "<|eom_id|>"), bos="<|begin_of_text|>"),
    StandIn("deepseek_v3", Family.DEEPSEEK, _DEEPSEEK, _DEEPSEEK[1:2], _THINK, bos=_DEEPSEEK[0], has_thinking=True),
    StandIn("deepseek_v31", Family.DEEPSEEK, _DEEPSEEK, _DEEPSEEK[1:2], _THINK, bos=_DEEPSEEK[0], has_thinking=True),
    StandIn("glm45", Family.GLM, _GLM, ("<|endoftext|>", "<|user|>", "<|observation|>"),
            (*_THINK, *_CALL, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_response>",
             "</tool_response>"), has_thinking=True),
    StandIn("kimi_k2", Family.KIMI, _KIMI, ("<|im_end|>",), _THINK),
    StandIn("mistral_v3", Family.MISTRAL, _MISTRAL[:9], ("</s>",), bos="<s>", is_sentence_piece=True),
    StandIn("mistral_v11", Family.MISTRAL, _MISTRAL, ("</s>",), bos="<s>"),
    StandIn("gpt_oss", Family.HARMONY, _HARMONY, ("<|return|>", "<|call|>"), has_thinking=True),
)  # fmt: skip


@cache
def tokenizer_of(model: StandIn) -> Tokenizer:
    """A byte-level BPE, or one of pieces with bytes to fall back on, with this family's own tokens."""
    made = Tokenizer(models.BPE())
    if model.is_sentence_piece:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
    alphabet = [] if model.is_sentence_piece else pre_tokenizers.ByteLevel.alphabet()
    size = VOCAB - len(model.special) - len(model.added) - (257 if model.is_sentence_piece else 0)
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(_TEXT * 4, trainer)
    if model.is_sentence_piece:
        made = _with_bytes(made)
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in model.special])
    made.add_tokens([AddedToken(token, special=False, normalized=False) for token in model.added])
    spare = VOCAB - made.get_vocab_size()
    made.add_special_tokens(
        [AddedToken(f"<|spare_{index}|>", special=True, normalized=False) for index in range(spare)]
    )
    return made


def _with_bytes(trained: Tokenizer) -> Tokenizer:
    """The same pieces, and a token for every byte that no piece has."""
    body = json.loads(trained.to_str())
    vocabulary = body["model"]["vocab"]
    for piece in ("<unk>", *(f"<0x{byte:02X}>" for byte in range(256))):
        vocabulary[piece] = len(vocabulary)
    body["model"].update(byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    body["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    return Tokenizer.from_str(json.dumps(body))
