"""What benchmarks share: the model they run on, the conditions they state, and their last line."""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

Figures = dict[str, object]
VOCAB = 4096


def is_quick() -> bool:
    """Whether QUICK=1 asks for a look instead of a full run."""
    return os.environ.get("QUICK") == "1"


def end_servers_on_term() -> None:
    """From here on SIGTERM ends this program as Ctrl-C does, so that the servers that it started end with it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def progress(text: str) -> None:
    """One line for whoever watches."""
    print(text, file=sys.stderr, flush=True)


def make_model(folder: Path, *, seed: int = 0, **other: int) -> Path:
    """A random Qwen3 of 4.2 M parameters: 4 layers, hidden 256, vocabulary 4096, context 32,768; or of other sizes."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": 256,
        "intermediate_size": 768,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "max_position_embeddings": 32768,
    }
    Qwen3ForCausalLM(Qwen3Config(**{"tie_word_embeddings": True, **sizes, **other})).save_pretrained(folder)
    return folder


def conditions(model: str, *, threads: int, seeds: list[int], repeats: int) -> Figures:
    """Where and with what a benchmark ran."""
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_name(),
        "threads": threads,
        "load_at_end": [round(value, 2) for value in os.getloadavg()],
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in ("torch", "transformers", "peft", "openclaw-rl")},
        },
        "model": model,
        "seeds": seeds,
        "repeats": repeats,
        "quick": is_quick(),
    }


def finish(figures: Figures) -> None:
    """The last line: one JSON object on standard output."""
    print(json.dumps(figures), flush=True)


def quantile(values: list[float], share: float) -> float:
    """The value below which the share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
