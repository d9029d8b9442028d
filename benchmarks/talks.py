"""Conversations that try exact tokens: tools, thinking, many scripts, cut answers, clients that change things."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.common import VOCAB
from openclaw_rl.core.message import Json
from openclaw_rl.tiny.world import HOMEWORK_TOOLS

TURNS = 5
SAYINGS = (
    "Anna has 12 apples and buys 7 more. How many apples does she have?",
    "Bitte kürzer und ohne Überschriften, danke schön.",
    "もう一度、日本語で説明してください。",
    "Спасибо! А если яблок было бы 15?",
    "Emoji please: 🙂👩‍👩‍👧 and a bit of naïve café talk…",
    "Please read homework.txt and write the answer into it.",
    "Thanks, that was too long. No bold text, no lists.",
    "What is 3 * 14 + 5?",
)
RESULTS = ("Problem 1: 5 + 8 = ?", "ok, 42 bytes written", "Ошибка: файл не найден", "空のファイル")


@dataclass(slots=True)
class Talk:
    """One conversation. `request` gives the next body, None at the end; `answer` takes what came back."""

    name: str
    seed: int
    uses_tools: bool = False
    thinks: bool = False
    drops_reasoning: bool = False
    limit: int = 48
    temperature: float = 0.8
    messages: list[dict[str, Json]] = field(default_factory=list)
    asked: int = 0

    def request(self) -> dict[str, Json] | None:
        """The next request's body."""
        if self.asked == TURNS:
            return None
        self.asked += 1
        if not self.messages or self.messages[-1]["role"] == "assistant":
            source = random.Random(f"{self.name}/{self.asked}")
            self.messages.append({"role": "user", "content": source.choice(SAYINGS)})
        body: dict[str, Json] = {
            "model": "default",
            "messages": [*self.messages],
            "max_tokens": self.limit,
            "temperature": self.temperature,
            "seed": self.seed * 1000 + self.asked,
        }
        if self.uses_tools:
            body["tools"] = [tool.as_json() for tool in HOMEWORK_TOOLS]
        if self.thinks:
            body["chat_template_kwargs"] = {"enable_thinking": True}
        return body

    def answer(self, choice: dict[str, Json]) -> None:
        """Keeps the reply as clients do: ids of calls without their marks, reasoning kept or dropped."""
        reply = choice["message"]
        assert isinstance(reply, dict)
        kept: dict[str, Json] = {"role": "assistant", "content": reply["content"]}
        if reply.get("reasoning_content") and not self.drops_reasoning:
            kept["reasoning_content"] = reply["reasoning_content"]
        calls = reply.get("tool_calls") or []
        assert isinstance(calls, list)
        kept_calls: list[Json] = []
        results: list[dict[str, Json]] = []
        for index, call in enumerate(calls):
            assert isinstance(call, dict)
            name = str(call["id"]).replace("_", "")
            kept_calls.append({**call, "id": name})
            text = RESULTS[(self.asked + index) % len(RESULTS)]
            results.append({"role": "tool", "tool_call_id": name, "content": text})
        if kept_calls:
            kept["tool_calls"] = kept_calls
        self.messages.append(kept)
        self.messages += results


def talks(seed: int) -> list[Talk]:
    """Every combination of tools, thinking, and a client that drops reasoning; and one of answers that are cut."""
    found = [
        Talk(
            f"talk-{seed}-{tools:d}{thinks:d}{drops:d}",
            seed,
            uses_tools=tools,
            thinks=thinks,
            drops_reasoning=drops,
        )
        for tools in (False, True)
        for thinks in (False, True)
        for drops in (False, True)
    ]
    for talk in found:
        start = {"role": "system", "content": "You are a helpful assistant. Réponds brièvement."}
        talk.messages.append(dict(start))
    return [*found, Talk(f"talk-{seed}-cut", seed, limit=5), Talk(f"talk-{seed}-greedy", seed, temperature=0.0)]


def stand_in_tokenizer(folder: Path, texts: Sequence[str] = SAYINGS + RESULTS) -> Path:
    """A tokenizer and the bundled template for a random model, where the bundled one is not there."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - 8, special_tokens=marks, initial_alphabet=alphabet, show_progress=False
    )
    source = files("openclaw_rl.tiny").joinpath("chat_template.jinja").read_text("utf-8")
    sources = [path.read_text("utf-8") for path in Path(__file__).parent.glob("*.py")]
    tokenizer.train_from_iterator([*texts, source, *sources], trainer)
    tokenizer.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(source, "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}), "utf-8")
    return folder
