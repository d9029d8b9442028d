"""A tokenizer trained on the spot, and templates of several manners."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from openclaw_rl.render.encoding import TokenBytes
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import ChatTemplate, compile_template

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN_ADDED = ["<think>", "</think>", "<tool_call>", "</tool_call>"]

# As stock Qwen3 does: thinking is written only behind the last thing a user asked, tool results share one block.
REWRITING = """
{%- set ns = namespace(last=0) -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- if tools -%}<|im_start|>system\n{%- for tool in tools -%}{{ tool | tojson }}\n{%- endfor -%}
<|im_end|>\n{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
{{- '<|im_start|>assistant\n' -}}
{%- if loop.index0 > ns.last and message.reasoning_content -%}
{{- '<think>\n' + message.reasoning_content.strip('\n') + '\n</think>\n\n' -}}
{%- endif -%}
{{- message.content -}}
{%- for call in message.tool_calls or [] -%}
{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' -}}
{{- (call.function.arguments | tojson) + '}\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- elif message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
{%- else -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""
# No token begins an assistant's message here, so no block can be told from the next.
SHAPELESS = """
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}{{ message.content }}<|endoftext|>
{%- else -%}[INST] {{ message.content }} [/INST]{%- endif -%}
{%- endfor -%}
"""
# As some reasoning models do: thinking is opened for every answer and never written into history.
FORGETFUL = """
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n<think>\n' -}}{%- endif -%}
"""
# Leaves out every system message but the first.
SKIPPING = """
{%- for message in messages -%}
{%- if loop.first or message.role != 'system' -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""


@cache
def tokenizer() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = "user assistant system read the file homework.txt and write the answer hello there thanks a lot of it"
    made.train_from_iterator([text, '{"name": "read", "arguments": {"path": "homework.txt"}}'] * 4, trainer)
    made.add_tokens(PLAIN_ADDED)
    return made


def bundled_source() -> str:
    return files("openclaw_rl.tiny").joinpath("chat_template.jinja").read_text("utf-8")


def renderer_of(source: str) -> ChatRenderer:
    return ChatRenderer(ChatTemplate(tokenizer(), compile_template(source), {"eos_token": "<|im_end|>"}))


@cache
def _letter_ids() -> dict[bytes, int]:
    table = TokenBytes(tokenizer())
    return {table(token): token for token in range(tokenizer().get_vocab_size()) if len(table(token)) == 1}


def letters(text: str) -> tuple[int, ...]:
    """The text with one id for each byte: never how it would be encoded."""
    return tuple(_letter_ids()[bytes((byte,))] for byte in text.encode())
