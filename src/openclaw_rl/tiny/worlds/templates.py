"""Chat templates of synthetic worlds: the texts that open and close each message, and their special tokens."""

from __future__ import annotations

from dataclasses import dataclass

THINK = ("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class Template:
    """A chat template, and the texts with which its messages begin and end.

    `special` are the special tokens: the first one pads. `closes` is the one that ends a reply. It ends a user's
    message, too, unless `user_closes` names another one. `names_end` is False if only the tokenizer's settings name the
    end of a reply, and not the model's configuration. With `thinks` every reply begins with thinking.
    """

    source: str
    user_opens: str
    reply_opens: str
    closes: str
    special: tuple[str, ...]
    names_end: bool = True
    thinks: bool = False
    user_closes: str = ""

    @property
    def user_end(self) -> str:
        """The special token that ends a user's message."""
        return self.user_closes or self.closes


_CHATML = """
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' }}{%- endif -%}
"""
CHATML = Template(
    _CHATML.strip(),
    "<|im_start|>user\n",
    "<|im_start|>assistant\n",
    "<|im_end|>",
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
)

_HEADERS = """
{{- '<|begin_of_text|>' -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}{{- raise_exception('system messages are not supported') -}}{%- endif -%}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}
"""
HEADERS = Template(  # refuses system messages
    _HEADERS.strip(),
    "<|start_header_id|>user<|end_header_id|>\n\n",
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "<|eot_id|>",
    ("<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
)

_FRONTED = """
{%- set start = 0 -%}
{%- set front = '' -%}
{%- if messages[0].role == 'system' -%}
{%- set front = messages[0].content + '\\n\\n' -%}
{%- set start = 1 -%}
{%- endif -%}
{%- for message in messages[start:] -%}
"""  # each message; a system text is put in front of the first user's words, as `front`
_TURNS = (
    "{{- '<bos>' -}}"
    + _FRONTED
    + """{%- set role = 'model' if message.role == 'assistant' else message.role -%}
{{- '<start_of_turn>' + role + '\\n' + (front if loop.first else '') + message.content + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' }}{%- endif -%}
"""
)
TURNS = Template(  # has no system message: its text is put in front of the first user message
    _TURNS.strip(),
    "<start_of_turn>user\n",
    "<start_of_turn>model\n",
    "<end_of_turn>",
    ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
)

_BARS = """
{%- for message in messages -%}
{%- if message.role == 'user' -%}{{- '<|user|>' + message.content + '<|end|>' }}
{%- elif message.role == 'assistant' -%}{{- '<|bot|>' + message.content + '<|end|>' }}
{%- else -%}{{- '<|' + message.role + '|>' + message.content + '<|end|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|bot|>' }}{%- endif -%}
"""
BARS = Template(  # only the tokenizer's settings name the token that ends a reply
    _BARS.strip(),
    "<|user|>",
    "<|bot|>",
    "<|end|>",
    ("<|pad|>", "<|system|>", "<|user|>", "<|bot|>", "<|tool|>", "<|end|>"),
    names_end=False,
)

_THINKING = """
{%- for message in messages -%}
{%- if message.role == 'assistant' and message.reasoning_content -%}
{{- '<s>assistant\\n<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' + message.content + '</s>\\n' }}
{%- else -%}
{{- '<s>' + message.role + '\\n' + message.content + '</s>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<s>assistant\\n' }}{%- endif -%}
"""
THINKING = Template(  # each reply begins with thinking without being asked, and earlier thinking stays in the prompt
    _THINKING.strip(),
    "<s>user\n",
    "<s>assistant\n",
    "</s>",
    ("<unk>", "<s>", "</s>", "[INST]", "[/INST]"),
    thinks=True,
)

_ROLES = """
{%- if messages[0].role != 'system' -%}{{- '[SYS]Sei hilfreich. Sé amable.[END]\\n' }}{%- endif -%}
{%- for message in messages -%}
{%- set role = {'system': '[SYS]', 'user': '[USER]', 'assistant': '[BOT]', 'tool': '[TOOL]'}[message.role] -%}
{{- role + message.content + '[END]\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '[BOT]' }}{%- endif -%}
"""
ROLES = Template(  # adds a system text of its own if there is none
    _ROLES.strip(), "[USER]", "[BOT]", "[END]", ("[PAD]", "[SYS]", "[USER]", "[BOT]", "[TOOL]", "[END]")
)

_INST = (
    "{{- '<s>' -}}"
    + _FRONTED
    + """{%- if message.role == 'user' -%}{{- '[INST] ' + (front if loop.first else '') + message.content + '[/INST]' }}
{%- elif message.role == 'assistant' -%}{{- ' ' + message.content + '</s>' }}
{%- else -%}{{- raise_exception('only users and assistants are supported') -}}
{%- endif -%}
{%- endfor -%}
"""
)
INST = Template(  # marks only users' messages: what ends one is followed by the reply, and both begin with a blank
    _INST.strip(), "[INST]", "", "</s>", ("<unk>", "<s>", "</s>", "[INST]", "[/INST]"), user_closes="[/INST]"
)
