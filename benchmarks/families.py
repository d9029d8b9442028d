"""Which models can be served and trained: a tiny one with random weights of every family that transformers knows.

Each family, in a process of its own: the local engine serves it, the trainer takes steps on votes, the engine serves
the adapter, and its log-probabilities are held against the trainer's and those of transformers. Families whose
configuration cannot be made small by the common names are skipped and counted. About five seconds of one core a
family. The last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict

from benchmarks.common import Figures, conditions, finish, is_quick, progress

AT_MOST_S = 300.0  # a family that takes longer has failed
SOME = ("llama", "phi3", "gemma3", "gemma4", "gpt_oss", "qwen3_5_text")  # with QUICK=1
GAP = 1e-4  # nats: rounding in float32 is a tenth of it at most, a wrong model's error many times


def main() -> None:
    """Runs the families and prints the figures."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="*", default=[], help="transformers' names of model types; all if left out")
    chosen = parser.parse_args().families or (SOME if is_quick() else sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
    results: dict[str, Figures] = {}
    for number, family in enumerate(chosen, 1):
        results[family] = in_a_process(family)
        progress(f"{number} of {len(chosen)}: {family}: {results[family]['result']}")
    finish(figures(results))


def in_a_process(family: str) -> Figures:
    """What became of a family; a crash is a result too."""
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-family-") as folder:
        command = [sys.executable, "-m", "benchmarks.families_one", family, folder]
        own = os.environ | {"OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=AT_MOST_S, env=own, check=False)
        except subprocess.TimeoutExpired:
            return {"result": "broken", "why": f"took longer than {AT_MOST_S:.0f} s"}
    last = done.stdout.strip().rpartition("\n")[2]
    if done.returncode or not last.startswith("{"):
        return {"result": "broken", "why": (done.stderr.strip().splitlines() or ["no output"])[-1][:300]}
    found: Figures = json.loads(last)
    return found


def figures(results: dict[str, Figures]) -> Figures:
    """Families by result, the largest gaps, and why something failed."""
    by_result: dict[str, list[str]] = defaultdict(list)
    for family, found in results.items():
        by_result[str(found["result"])].append(family)
    live = [found for found in results.values() if "engine_gap" in found]
    return {
        "benchmark": "families",
        "families": len(results),
        "counts": dict(Counter(str(found["result"]) for found in results.values())),
        "by_result": dict(by_result),
        "why": {family: found["why"] for family, found in results.items() if found.get("why")},
        "largest_gap_nats": {
            key: max((float(str(found[key])) for found in live), default=None)
            for key in ("engine_gap", "trainer_gap", "peft_gap")
        },
        "peft_differs": [family for family, found in results.items() if float(str(found.get("peft_gap", 0.0))) > GAP],
        "conditions": conditions("random, tiny", threads=1, seeds=[0], repeats=1),
    }


if __name__ == "__main__":
    main()
