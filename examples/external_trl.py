"""A trainer of your own with TRL: the feed's calls of external_trainer.py, and a step by TRL's SFTTrainer.

    openclaw-rl serve                      # with `kind = "external"` under [trainer] in config.toml
    python examples/external_trl.py http://127.0.0.1:30000 KEY MODEL_FOLDER

Needs trl beside torch, transformers and peft. The batches hold ids as served, so nothing is tokenised again: TRL is
given `input_ids` and `labels`. Replies that the teacher sampled with the hint are imitated, which is what SFTTrainer
does. The policy's own replies are weighted by their score against what is usual for that user (REINFORCE with a
baseline), for which its loss is replaced. GRPOTrainer and RLOOTrainer compare several replies to one prompt that they
sampled themselves; a conversation has one reply, which was sampled hours ago, so they do not fit.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from external_trainer import lessons, main, model_of
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

UNTRAINED = -100  # the label of what is not trained, as everywhere in transformers


class WeightedTrainer(SFTTrainer):
    """SFTTrainer whose tokens have weights: 1 imitates, a negative one makes less likely, 0 leaves out."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Minus the weighted mean log-probability of the replies. Shapes: ids, labels and weights [B, T]."""
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        labels, weights = inputs["labels"][:, 1:], inputs["weights"][:, 1:]
        trained = labels != UNTRAINED
        logp = outputs.logits[:, :-1].float().log_softmax(-1)
        logp = logp.gather(-1, labels.masked_fill(~trained, 0).unsqueeze(-1)).squeeze(-1)  # [B, T - 1]
        each = -(logp * weights * trained).sum(-1) / trained.sum(-1).clamp(min=1)  # [B]
        # The trainer adds up what accumulates where it counts tokens itself, and takes the mean where it does not.
        loss = each.mean() / (self.args.gradient_accumulation_steps if num_items_in_batch is not None else 1)
        return (loss, outputs) if return_outputs else loss


def rows_of(batch: dict) -> list[dict[str, list]]:
    """What the batch teaches, in TRL's form for data that is tokenised already, and a weight for each token."""
    return [
        {
            "input_ids": [*prompt, *reply],
            "labels": [*[UNTRAINED] * len(prompt), *reply],
            "weights": [*[0.0] * len(prompt), *weights],
        }
        for sample in batch["samples"]
        for prompt, reply, weights in lessons(sample)
    ]


def collated(rows: list[dict[str, list]]) -> dict[str, torch.Tensor]:
    """Rows of different lengths as one batch, filled up at their ends."""
    longest = max(len(row["input_ids"]) for row in rows)

    def filled(name: str, value: float) -> torch.Tensor:
        return torch.tensor([[*row[name], *[value] * (longest - len(row[name]))] for row in rows])

    mask = torch.tensor([[n < len(row["input_ids"]) for n in range(longest)] for row in rows]).long()
    found = {"input_ids": filled("input_ids", 0), "labels": filled("labels", UNTRAINED)}
    return found | {"weights": filled("weights", 0.0), "attention_mask": mask}


def train(base: str, start: Path | None, batch: dict, folder: Path, *, updates: int, lr: float) -> dict[str, float]:
    """Trains the adapter on the batch with TRL and saves it in `folder`; what is kept with the version."""
    rows = rows_of(batch)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = WeightedTrainer(
            model=model_of(base, start, batch["adapter"]),
            args=SFTConfig(
                output_dir=scratch,
                num_train_epochs=updates,  # an update is one pass over the batch
                per_device_train_batch_size=1,
                gradient_accumulation_steps=max(1, len(rows)),
                learning_rate=lr,
                lr_scheduler_type="constant",
                max_grad_norm=1.0,
                max_length=None,
                bf16=torch.cuda.is_available(),
                use_cpu=not torch.cuda.is_available(),
                gradient_checkpointing=False,
                remove_unused_columns=False,
                logging_strategy="no",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list(rows),
            data_collator=collated,
            processing_class=AutoTokenizer.from_pretrained(base),
        )
        result = trainer.train()
        trainer.model.save_pretrained(folder)
    return {"loss": float(result.training_loss), "lessons": float(len(rows))}


if __name__ == "__main__":
    main(train)
