"""The peer of the trainer's benchmark: the train part of TRL's GRPOTrainer, given what it would have generated."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.common import VOCAB


class TrlStep:
    """One GRPO step of TRL on ready completions: loss, backward, clip, AdamW. No generation, no rewards."""

    def __init__(self, folder: Path, *, rank: int, lr: float) -> None:
        from datasets import Dataset
        from peft import LoraConfig
        from tokenizers import Tokenizer, models
        from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
        from trl import GRPOConfig, GRPOTrainer

        words = {f"t{number}": number for number in range(VOCAB)}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="t0")), eos_token="t1", pad_token="t0"
        )
        self._folder = TemporaryDirectory()
        config = GRPOConfig(
            output_dir=self._folder.name,
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=16,
            num_generations=8,
            max_completion_length=311,
            learning_rate=lr,
            gradient_checkpointing=False,
            report_to=[],
            disable_tqdm=True,
        )
        self._trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            args=config,
            train_dataset=Dataset.from_list([{"prompt": "t5"}] * 16),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            processing_class=tokenizer,
            peft_config=LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"),
        )
        self._trainer.create_optimizer_and_scheduler(num_training_steps=1000)
        self._trainer.current_gradient_accumulation_steps = 1
        self._trainer.model.train()

    def step(self, prompts: torch.Tensor, completions: torch.Tensor, advantages: torch.Tensor) -> float:
        """The loss. [16, P] and [16, C] ids, [16] advantages."""
        trainer = self._trainer
        inputs = {
            "prompt_ids": prompts,
            "prompt_mask": torch.ones_like(prompts),
            "completion_ids": completions,
            "completion_mask": torch.ones_like(completions),
            "advantages": advantages,
            "num_items_in_batch": torch.tensor(completions.numel()),
        }
        loss = trainer.compute_loss(trainer.model, inputs)
        trainer.accelerator.backward(loss)
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        return float(loss.detach())
