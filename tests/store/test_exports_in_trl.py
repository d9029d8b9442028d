"""What is exported, read and trained on by the libraries it is for: TRL's trainers, and datasets as verl reads them.

`make test-metrics` makes an environment with them.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path

import pytest
from test_export_forms import filled, written

from openclaw_rl.core.message import Json
from openclaw_rl.home.models import model_folder
from openclaw_rl.owner.inspection import _as_parquet
from openclaw_rl.store.forms import ExportForm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("trl") is None, reason="trl is not installed; run `make test-metrics`"),
    # TRL's and transformers' own
    pytest.mark.filterwarnings("ignore"),
]
ONCE: dict[str, Json] = {
    "max_steps": 1,
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
    "save_strategy": "no",
    "per_device_train_batch_size": 2,
}


async def exported(form: ExportForm, tmp_path: Path, *, parquet: bool = False) -> str:
    store = await filled(tmp_path / "home")
    path = tmp_path / ("rows.parquet" if parquet else "rows.jsonl")
    assert await written(store, form, path)
    await store.aclose()
    if parquet:
        _as_parquet(path)
    return str(path)


@pytest.mark.parametrize("form", [ExportForm.TRL_SFT, ExportForm.TRL_KTO, ExportForm.TRL_DPO, ExportForm.TRL_IDS])
@pytest.mark.parametrize("kind", ["json", "parquet"])
async def test_trl_takes_a_step_over_each_of_its_forms(tmp_path: Path, form: ExportForm, kind: str) -> None:
    import trl
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = await exported(form, tmp_path, parquet=kind == "parquet")
    data = load_dataset(kind, data_files=path, split="train", cache_dir=str(tmp_path / "cache"))
    trainers = {
        ExportForm.TRL_SFT: (trl.SFTTrainer, trl.SFTConfig),
        ExportForm.TRL_KTO: (trl.KTOTrainer, trl.KTOConfig),
        ExportForm.TRL_DPO: (trl.DPOTrainer, trl.DPOConfig),
        ExportForm.TRL_IDS: (trl.SFTTrainer, trl.SFTConfig),
    }
    trainer_kind, config = trainers[form]
    more = {"completion_only_loss": True} if form is ExportForm.TRL_IDS else {}
    folder = str(model_folder("bundled"))
    trainer = trainer_kind(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype="float32"),
        args=config(output_dir=str(tmp_path / "out"), **ONCE, **more),
        train_dataset=data,
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    if form is ExportForm.TRL_IDS:
        for prepared, row in zip(trainer.train_dataset, data, strict=True):
            assert [label for label in prepared["labels"] if label != -100] == row["completion_ids"]
    result = trainer.train()
    assert trainer.state.global_step == 1 and math.isfinite(result.training_loss)


async def test_verls_rows_are_read_from_parquet_and_rendered_by_the_template(tmp_path: Path) -> None:
    from datasets import load_dataset
    from transformers import AutoTokenizer

    path = await exported(ExportForm.VERL, tmp_path, parquet=True)
    rows = load_dataset("parquet", data_files=path, split="train", cache_dir=str(tmp_path / "cache"))
    tokenizer = AutoTokenizer.from_pretrained(str(model_folder("bundled")))
    for row in rows:
        assert {"data_source", "prompt", "ability", "reward_model", "extra_info", "responses"} <= set(row)
        assert set(row["reward_model"]) == {"style", "ground_truth"}
        assert tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True)
        assert len(row["extra_info"]["response_ids"]) == len(row["extra_info"]["rollout_log_probs"])
