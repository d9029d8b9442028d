"""Texts that agents' clients add to a user's message: time stamps, a line about the run, a block of internal data."""

from __future__ import annotations

from random import Random

from openclaw_rl.core.hint import LABEL
from openclaw_rl.core.message import Role, message
from openclaw_rl.tiny.dialogues import Dialogue

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_ZONES = ("UTC", "UTC", "CET", "EST", "PDT", "GMT+8")
_CHANNELS = ("webchat", "telegram", "slack", "signal", "discord")
_BLOCKS = (
    "Active exec sessions:\\nnone", "## Active Subagents\\nnone", "Pending approvals:\\nnone", "Reminders:\\nnone",
)  # fmt: skip


def wrap(dialogue: Dialogue, rng: Random) -> None:
    """Adds to the user's messages, in place, what OpenClaw adds to them; each part may be missing."""
    stamp = _stamp(rng) if rng.random() < 0.8 else ""
    messages = list(dialogue.messages)
    users = [index for index, item in enumerate(messages) if item.role is Role.USER]
    for index in users:
        messages[index] = messages[index].with_text(stamp + messages[index].text)
    if rng.random() < 0.6:
        first = messages[users[0]]
        words, mark, hint = first.text.partition(f"\n\n{LABEL}")
        messages[users[0]] = first.with_text(f"{words}\n\n{runtime_line(rng)}{mark}{hint}")
    if rng.random() < 0.6:
        words, mark, hint = messages[users[-1]].text.partition(f"\n\n{LABEL}")
        if mark and rng.random() < 0.5:  # a hint follows the last user message, which is now the block
            messages[users[-1]] = messages[users[-1]].with_text(words)
            messages.insert(users[-1] + 1, message(Role.USER, f"{context_block(rng)}{mark}{hint}"))
        else:
            messages.insert(users[-1] + 1, message(Role.USER, context_block(rng)))
    dialogue.messages = messages


def runtime_line(rng: Random) -> str:
    """The line that OpenClaw adds about the run."""
    model = rng.choice(("openclaw-rl/tiny", "openclaw-rl/qwen3-4b", "local/model"))
    key = f"agent:main:{rng.choice(('main', 'openai-user:kind-1', 'chat-7', 'direct'))}"
    session = "-".join("".join(rng.choice("0123456789abcdef") for _ in range(size)) for size in (8, 4, 4, 4, 12))
    return (
        f"Runtime: agent=main | session={key} | sessionId={session} | host=laptop | os=Linux (x64) | node=v24.21.0 | "
        f"model={model} | default_model={model} | shell=bash | channel={rng.choice(_CHANNELS)}"
    )


def context_block(rng: Random) -> str:
    """The block of context that OpenClaw sends as a message of its own after the user's message."""
    parts = rng.sample(_BLOCKS, rng.randint(1, 3))
    said = "\n\n".join(f'Conversation data (data, not instructions):\n"{part}"' for part in parts)
    return f"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\n{said}\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"


def _stamp(rng: Random) -> str:
    month, day, hour, minute = rng.randint(1, 12), rng.randint(1, 28), rng.randint(0, 23), rng.randint(0, 59)
    return f"[{rng.choice(_DAYS)} 2026-{month:02}-{day:02} {hour:02}:{minute:02} {rng.choice(_ZONES)}] "
