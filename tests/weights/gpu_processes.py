"""The processes of the tests on a GPU: the engine's child, and a trainer that says what it takes.

python gpu_processes.py MODEL WARM FOLDER RESULT    trains a step, with weights lent in FOLDER ("" is none)
"""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from openclaw_rl.core import pipe
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.version import BASE
from openclaw_rl.engines.local.wire import Ready, Start
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Method, MethodSettings, TrainerSettings
from openclaw_rl.weights.lending import Loans
from openclaw_rl.weights.parts import is_equal

SIZES = {  # layers, hidden, between, vocabulary: 2 MB, and 134 M weights
    "tiny": (2, 128, 256, 256),
    "large": (8, 1024, 4096, 8192),
}


def save_model(folder: Path, size: str) -> Path:
    """A random model."""
    layers, hidden, between, vocabulary = SIZES[size]
    torch.manual_seed(7)
    config = AutoConfig.for_model(
        "qwen3", num_hidden_layers=layers, hidden_size=hidden, intermediate_size=between, vocab_size=vocabulary,
        num_attention_heads=hidden // 64, num_key_value_heads=hidden // 128, head_dim=64,
        max_position_embeddings=2048, tie_word_embeddings=True, pad_token_id=0,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@contextlib.contextmanager
def engine_on(device: str, model: Path, dtype: str) -> Iterator[subprocess.Popen[bytes]]:
    """The engine's child process, ready."""
    words = [sys.executable, "-m", "openclaw_rl.engines.local.host"]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdin is not None and child.stdout is not None
        pipe.write(child.stdin, Start(EngineSettings(model=str(model), device=device, dtype=dtype, cache_tokens=4096)))
        answer = pipe.read(child.stdout)
        assert isinstance(answer, Ready), answer
        yield child
    finally:
        child.kill()
        child.communicate()


def settings_for(device: str, dtype: str, *, updates: int = 1) -> TrainerSettings:
    """A step of one update, or one that takes long."""
    name, rate = (Method.BINARY, 1e-3) if updates == 1 else (Method.TOPK, 1e-6)
    plain = TrainerSettings(device=device, dtype=dtype, rank=4, alpha=8.0, method=MethodSettings(name=name))
    return replace(plain, lr=rate, updates=updates, enough=0.0)


def samples(count: int = 3, *, hinted: bool = False) -> list[Sample]:
    """Turns that are praised, or corrected."""
    hints = (HintPrompt("say the other thing", (1, 2, 3, 40, 41, 42, 43)),) if hinted else ()
    response = tuple(range(10, 58))
    return [
        Sample(
            turn=str(number), session="session", user="user", prompt=(1, 2, 3 + number), response=response,
            logp=(-5.5,) * len(response), mask=(True,) * len(response), version=BASE,
            score=None if hinted else 1.0, hints=hints,
        )
        for number in range(count)
    ]  # fmt: skip


def main(model: Path, warm: Path, folder: str, result: Path) -> None:
    """Prints in JSON what opening the model took of the GPU, and writes its logits and the weights after a step."""
    settings = settings_for("cuda", "float32")
    device = torch.device("cuda", torch.cuda.current_device())
    LoraTrainer.open(warm, settings).step(samples())  # what libraries allocate at first use
    loans = Loans(Path(folder)) if folder else None
    is_equal(torch.zeros(1 << 20), torch.zeros(1 << 20, device=device))
    _tidy()
    free, allocated = torch.cuda.mem_get_info(device)[0], torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    trainer = LoraTrainer.open(model, settings, loans=loans)
    peak = torch.cuda.max_memory_allocated(device) - allocated
    _tidy()
    facts = {
        "weights": trainer.model.parameters * 4,
        "taken": free - torch.cuda.mem_get_info(device)[0],
        "allocated": torch.cuda.memory_allocated(device) - allocated,
        "peak": peak,
    }
    ids = torch.arange(1, 65, device=device)[None]
    with torch.no_grad():
        logits = trainer.model.logits(trainer.model.hidden(ids)[0])
    report = trainer.step(samples())
    if loans is not None:
        loans.check()
    learned = {name: one.cpu() for name, one in trainer.model.weights().items()}
    torch.save({"logits": logits.cpu(), **learned}, result)
    print(json.dumps(facts | {"took_step": report.took_step, "is_shared": loans is not None and bool(loans._held)}))


def _tidy() -> None:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
