"""A trainer of your own: leases batches from a running server, takes a plain step with peft, hands the adapter back.

    openclaw-rl serve                      # with `kind = "external"` under [trainer] in config.toml
    python examples/external_trainer.py http://127.0.0.1:30000 KEY MODEL_FOLDER

The protocol is in docs/external-trainer.md. This client needs torch, transformers and peft, and nothing of this
project. It may be killed at any moment: its lease ends then, and the batch is offered again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

FILES = ("adapter_config.json", "adapter_model.safetensors")
PIECE = 4 << 20  # bytes sent at once
SEED = 0
Train = Callable[..., dict[str, float]]  # as `train` below


class Server:
    """The feed's calls."""

    def __init__(self, url: str, key: str) -> None:
        self.url, self.key = f"{url}/v1/rl/training/leases", key

    def call(self, path: str, body: dict | bytes | None = None) -> bytes:
        """The answer's body. Posts, or gets where there is no `body`. Raises urllib.error.HTTPError."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        kind = "application/json" if isinstance(body, dict) else "application/octet-stream"
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": kind}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=120) as answer:
            return answer.read()

    def lease(self, wait_s: float) -> dict | None:
        """A batch; None where there is none yet."""
        body = self.call("", {"wait_s": wait_s})
        return json.loads(body) if body else None

    def start(self, batch: dict, folder: Path) -> Path | None:
        """The adapter to begin from, as a folder; None for a fresh one."""
        if batch["start"] is None:
            return None
        for name in batch["start"]["files"]:
            (folder / name).write_bytes(self.call(f"/{batch['lease']}/files/{name}"))
        return folder

    def hand_back(self, lease: str, folder: Path, metrics: dict[str, float]) -> None:
        """Sends the adapter and has it taken."""
        digest = hashlib.sha256()
        for name in FILES:
            data = (folder / name).read_bytes()
            digest.update(name.encode() + data)
            for at in range(0, len(data), PIECE):
                self.call(f"/{lease}/files/{name}?offset={at}", data[at : at + PIECE])
        self.call(f"/{lease}/done", {"digest": digest.hexdigest(), "metrics": metrics})


def lessons(sample: dict) -> list[tuple[list[int], list[int], list[float]]]:
    """What a sample teaches, as (prompt, reply, weight of each of the reply's tokens).

    Replies of the teacher are imitated; the policy's own get its score against what is usual for that user.
    """
    shown = [(sample["prompt"], one["tokens"]) for one in sample["shown"]]
    shown += [(one["prompt"], one["reply"]["tokens"]) for one in sample["elsewhere"]]
    found = [(prompt, reply, [1.0] * len(reply)) for prompt, reply in shown]
    if sample["is_taught"]:
        weight = 1.0
    elif sample["outcome"] is not None:
        weight = sample["outcome"]["reward"] - sum(peer["outcome"] for peer in sample["peers"]) / len(sample["peers"])
    else:
        weight = (sample["score"] or 0.0) - (sample["baseline"] or 0.0)
    if weight:
        found.append((sample["prompt"], sample["response"], [weight * trained for trained in sample["mask"]]))
    return found


def loss_of(model: torch.nn.Module, prompt: list[int], reply: list[int], weights: list[float]) -> torch.Tensor:
    """Minus the weighted mean log-probability of the reply after the prompt."""
    ids = torch.tensor([[*prompt, *reply]], device=next(model.parameters()).device)
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()  # [T, V]
    logp = logits.log_softmax(-1).gather(-1, ids[0, len(prompt) :, None])[:, 0]  # [T]
    return -(logp * torch.tensor(weights, device=logp.device)).mean()


def model_of(base: str, start: Path | None, wanted: dict) -> torch.nn.Module:
    """The base model with the adapter to begin from, or a fresh one as the batch wants it."""
    torch.manual_seed(SEED)
    model = AutoModelForCausalLM.from_pretrained(base, dtype="float32")
    if start is not None:
        return PeftModel.from_pretrained(model, start, is_trainable=True)
    targets = wanted["targets"] if wanted["targets"] == "all-linear" else wanted["targets"].split(",")
    config = LoraConfig(r=wanted["rank"], lora_alpha=wanted["alpha"], target_modules=targets, task_type="CAUSAL_LM")
    return get_peft_model(model, config)


def train(base: str, start: Path | None, batch: dict, folder: Path, *, updates: int, lr: float) -> dict[str, float]:
    """Trains the adapter on the batch and saves it in `folder`; what is kept with the version."""
    model = model_of(base, start, batch["adapter"])
    taught = [lesson for sample in batch["samples"] for lesson in lessons(sample)]
    optimiser = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=lr, weight_decay=0.0)
    loss = 0.0
    for _ in range(updates):
        optimiser.zero_grad()
        for prompt, reply, weights in taught:
            share = loss_of(model, prompt, reply, weights) / len(taught)
            share.backward()
            loss += float(share) / updates
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    model.save_pretrained(folder)
    return {"loss": loss, "lessons": float(len(taught))}


def one_step(server: Server, batch: dict, options: argparse.Namespace, train: Train) -> None:
    """Trains on a leased batch and hands back what came of it; the lease is extended meanwhile."""
    lease, has_ended = batch["lease"], threading.Event()

    def extend() -> None:
        while not has_ended.wait(batch["lease_s"] / 3):
            try:
                server.call(f"/{lease}/extend", {})
            except OSError as problem:  # the lease has ended, or the server: handing back will say so
                print(f"the lease was not extended: {problem}", flush=True)

    keeper = threading.Thread(target=extend, daemon=True)
    keeper.start()
    try:
        with tempfile.TemporaryDirectory() as begun, tempfile.TemporaryDirectory() as made:
            start = server.start(batch, Path(begun))
            metrics = train(options.model, start, batch, Path(made), updates=options.updates, lr=options.lr)
            server.hand_back(lease, Path(made), metrics)
            print(f"handed back lease={lease} samples={len(batch['samples'])} loss={metrics['loss']:.4f}", flush=True)
    except torch.OutOfMemoryError as problem:
        server.call(f"/{lease}/give_up", {"why": str(problem)})  # the samples come again in smaller batches
    except urllib.error.HTTPError as problem:
        print(f"refused ({problem.code}): {problem.read().decode()}", flush=True)  # 410: somebody else has the batch
    finally:
        has_ended.set()


def main(train: Train = train) -> None:
    """Takes steps with `train` until it is stopped, or as many as `--steps` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("url", "key", "model"):
        parser.add_argument(name)
    parser.add_argument("--steps", type=int, default=0, help="0: until it is stopped")
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()
    server, done = Server(options.url, options.key), 0
    while not options.steps or done < options.steps:
        batch = server.lease(wait_s=20.0)
        if batch is not None:
            one_step(server, batch, options, train)
            done += 1


if __name__ == "__main__":
    main()
