"""The plan: sizes out of config.json, what roles take, where they go, what is said if they do not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.core.width import IDLE
from openclaw_rl.errors import ConfigError, ModelError
from openclaw_rl.plan.placing import GIB, PlanQuestion, placed
from openclaw_rl.plan.shape import ModelShape, read_shape
from openclaw_rl.plan.simulation import CARDS, Card, Habits, forecast
from openclaw_rl.plan.takes import MemorySettings, ProcessMemory, policy, trainer
from openclaw_rl.weights.forms import LowBitsLinear, lower

SIZES: dict[str, object] = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 300,
    "max_position_embeddings": 4096,
}
MIXTURE: dict[str, object] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
FAMILIES: dict[str, dict[str, object]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {},
    "qwen3": {"tie_word_embeddings": True},
    "gemma": {},
    "gemma2": {},
    "gemma3_text": {},
    "qwen3_moe": {**MIXTURE, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
    "qwen2_moe": {**MIXTURE, "shared_expert_intermediate_size": 96},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
}
QWEN3_4B = {
    "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "max_position_embeddings": 40960, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture
def four_billion(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_4B))
    return tmp_path


def _made(family: str) -> tuple[torch.nn.Module, AutoConfig]:
    config = AutoConfig.for_model(family, **SIZES, **FAMILIES[family])
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config), config


@pytest.mark.parametrize("family", FAMILIES)
def test_the_count_of_weights_is_that_of_the_model_itself(family: str, tmp_path: Path) -> None:
    model, config = _made(family)
    config.save_pretrained(tmp_path)
    shape = read_shape(tmp_path)
    assert shape.total == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("family", ["qwen3", "gemma", "qwen3_moe"])
def test_weights_in_few_bits_are_those_that_are_lowered(family: str, tmp_path: Path) -> None:
    config = AutoConfig.for_model(family, **SIZES, **FAMILIES[family])
    config.save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_config(config)
    lower(model, model.get_output_embeddings(), "8bit", dtype=torch.float32, device=torch.device("cpu"))
    low = sum(one.codes.numel() for one in model.modules() if isinstance(one, LowBitsLinear))
    assert read_shape(tmp_path).lowered == low


def test_a_token_meets_only_the_experts_that_are_chosen(tmp_path: Path) -> None:
    AutoConfig.for_model("qwen3_moe", **SIZES, **MIXTURE).save_pretrained(tmp_path)
    shape = read_shape(tmp_path)
    # 4 layers x 8 experts x 3 matrices of 128 x 64; a token meets 2 of the 8
    assert shape.expert == 4 * 8 * 3 * 128 * 64
    assert shape.total - shape.active == 4 * 6 * 3 * 128 * 64 + 300 * 128  # and one of embedding and head
    # LoRA stands beside attention alone: rank x (inputs + outputs) of q, k, v and o
    assert shape.lora(8) == 4 * 8 * ((128 + 128) + 2 * (128 + 64) + (128 + 128))


def _sizes(role: ProcessMemory) -> dict[str, int]:
    return {item.name: item.size for item in role.items}


def test_the_engines_share_is_worked_by_hand(four_billion: Path) -> None:
    shape = read_shape(four_billion)
    found = _sizes(policy(shape, MemorySettings(is_gpu=True, users=3, context=5000)))
    assert found["base weights"] == 2 * shape.total == 2 * 4_022_468_096
    # 5,000 tokens lie in a block of 8,192; 36 layers x 8 heads x 128 x 2 numbers of 2 bytes
    assert found["keys and values"] == 3 * 8192 * 36 * 8 * 128 * 2 * 2
    # a piece of 1,024 tokens after 5,000: the mask, its bits and 4 repetitions for the heads that share a key head
    assert found["masks"] == 1024 * 5000 * (32 // 8 + 2) * 2
    # 4 slots of rank 32: q, k and v are one linear of 3 parts, gate and up one of 2
    numbers = 36 * (3 * (2560 + 6144) + (4096 + 2560) + 2 * (2560 + 2 * 9728) + (9728 + 2560))
    assert found["adapters"] == 4 * 32 * numbers * 2


def test_the_trainers_share_is_worked_by_hand(four_billion: Path) -> None:
    shape = read_shape(four_billion)
    settings = MemorySettings(is_gpu=True, rank=16)
    lora = 16 * 36 * ((2560 + 4096) + 2 * (2560 + 1024) + (4096 + 2560) + 3 * (2560 + 9728))
    found = _sizes(trainer(shape, settings))
    assert found["LoRA and optimiser"] == lora * 8
    assert found["scopes in memory"] == 0  # in main memory
    assert _sizes(trainer(shape, replace(settings, is_gpu=False)))["scopes in memory"] == lora * 4 * 2
    # 4 prompts of 8,192 tokens; 36 layers x 8 heads x 128 x 2 numbers of 2 bytes
    assert found["prompts as keys and values"] == 4 * 8192 * 36 * 8 * 128 * 2 * 2
    few = _sizes(trainer(shape, replace(settings, weights="4bit")))
    # half a byte and a 4-byte scale for 64 of the linear layers' weights; the embedding stays
    assert few["base weights in 4 bits"] == shape.linear // 2 + 4 * shape.linear // 64
    assert few["weights in all bits"] == 2 * (shape.embedding + shape.small)
    again = replace(settings, recompute_layers=True)
    # 16,384 tokens of the prompts are read together
    assert _sizes(trainer(shape, again))["a step"] == 16_384 * (6 * 2560 + 6 * 9728) * 2
    # a longer one alone
    long = _sizes(trainer(shape, replace(again, context=20_000, samples=1, reply=64)))
    assert long["a step"] == 20_000 * (6 * 2560 + 6 * 9728) * 2


def test_what_a_step_keeps_is_worked_by_hand(four_billion: Path) -> None:
    shape = read_shape(four_billion)
    settings = MemorySettings(is_gpu=True, rank=16, context=1024, samples=1)
    logits_and_weights = 16 * 151_936 * 4 * 6 + shape.lora(16) * 20  # gradient, and the points to go back to
    # of each of 512 reply tokens 8 hidden states, attention and the MLP; of each of 1,024 prompt tokens the keys and
    # values of 8 heads of 128 and the mask for the 4 heads that share one, in 36 layers and once more as a gradient
    whole = 512 * 36 * (8 * 2560 + (4 * 32 + 2 * 8) * 128 + 4 * 9728) * 2 + 1024 * (2 * 8 * 128 + 4 * 512) * 37 * 2
    assert _sizes(trainer(shape, settings))["a step"] == whole + logits_and_weights
    # 2.2 hidden states a layer, and the keys and values of one layer and its gradient
    again = 512 * 36 * 5632 * 2 + 1024 * (2 * 8 * 128 + 4 * 512) * 2 * 2
    found = _sizes(trainer(shape, replace(settings, recompute_layers=True)))
    assert found["a step"] == again + logits_and_weights


def test_float32_on_a_cpu_is_laid_out_twice_for_the_trainer(four_billion: Path) -> None:
    shape = read_shape(four_billion)
    found = _sizes(trainer(shape, MemorySettings(is_gpu=False, dtype="float32")))
    assert found["base weights"] == 4 * (2 * (shape.linear + shape.embedding) + shape.embedding + shape.small)


def test_on_one_gpu_the_trainer_reads_the_engines_weights(four_billion: Path) -> None:
    shape, settings = read_shape(four_billion), MemorySettings(is_gpu=True)
    one, two, none = (placed(PlanQuestion(shape, settings, gpus, 80 * GIB)) for gpus in (1, 2, 0))
    weights = [
        [
            item.size
            for device in found.devices
            for role in device.roles
            for item in role.items
            if item.name == "base weights"
        ]
        for found in (one, two, none)
    ]
    own = 2 * (shape.linear + shape.embedding + shape.small)
    assert weights[0] == [own, 0] and weights[1] == [own, own]
    assert weights[2][1] > 0  # what processes share on a CPU counts for each
    saved = one.devices[0].taken + own - sum(device.taken for device in two.devices)
    assert abs(saved) <= 2  # bytes, of rounding


def test_replies_to_long_prompts_are_learned_from_one_by_one(four_billion: Path) -> None:
    shape, settings = read_shape(four_billion), MemorySettings(is_gpu=True, reply=256, samples=1, context=8000)
    one = _sizes(trainer(shape, settings))["a step"]
    assert _sizes(trainer(shape, replace(settings, samples=2)))["a step"] == one
    short = replace(settings, context=200)  # 456 x 256 comparisons each: two together are cheaper than apart
    steps = [_sizes(trainer(shape, replace(short, samples=count)))["a step"] for count in (1, 2, 3)]
    assert steps[0] < steps[1] == steps[2]


def test_roles_go_where_most_is_left(four_billion: Path) -> None:
    shape = read_shape(four_billion)
    two = placed(PlanQuestion(shape, MemorySettings(is_gpu=True), 2, 24 * GIB, judge=shape))
    assert two.devices[0].roles[0].name == "policy"
    assert sorted(role.name for device in two.devices for role in device.roles) == ["judge", "policy", "trainer"]
    assert ("trainer.device", "cuda:1") in two.settings
    own = placed(PlanQuestion(shape, MemorySettings(is_gpu=True), 1, 80 * GIB, teacher=shape))
    assert [role.name for role in own.devices[0].roles] == ["policy", "trainer and teacher"]
    assert own.fits and own.changes == ()


def test_what_does_not_fit_says_what_would_help(four_billion: Path) -> None:
    shape = read_shape(four_billion)
    asked = PlanQuestion(shape, MemorySettings(is_gpu=True, users=2, context=8192), 1, 20 * GIB)
    found = placed(asked)
    assert not found.fits
    shorter = ["a cont"] * 3
    assert [change[:6] for change in found.changes] == ["8 bits", "4 bits", *shorter, "1 user", "2 GPUs"]
    assert all("then it fits" in change for change in found.changes)
    changed = placed(replace(asked, settings=replace(asked.settings, weights="4bit")))
    assert changed.fits and ("engine.weights", "4bit") in changed.settings
    hopeless = placed(replace(asked, memory=GIB))
    assert "even with all of these" in hopeless.changes[0] and "vllm" in hopeless.changes[1]


def test_speeds_are_worked_by_hand() -> None:
    shape = ModelShape("m", "llama", 64, 1, 2, 2, 32, 100, 4096, True, 0, 0, (), 0)
    assert shape.active == 6400
    card = Card("slow", 1e6, 1e6)
    settings = MemorySettings(is_gpu=False, dtype="float32", users=2, context=100)
    habits = Habits(10, 4, 1.0, replies=5, updates=20, answers=16, readings=3)
    assert habits.at_once == IDLE
    found = forecast(shape, settings, card, habits, is_shared=False)
    # read: 6,400 x 4 bytes, and 2 users x 100 tokens x 128 numbers x 4 bytes; computed: 2 x 6,400 x 2 operations
    assert found.decode_ms == pytest.approx(1e3 * (25_600 + 102_400) / 1e6)
    # 2 x 6,400 x 10 tokens at 0.4 of a million operations a second, half of both users' before one's own
    assert found.answer_s == pytest.approx(0.32 + 4 * 0.128)
    assert found.turns_a_minute == pytest.approx(60 * 2 / (0.832 + 1.0))
    assert found.tokens_a_second_most == pytest.approx(2 / 0.128)
    # one sample: 100 + 5 x (10 + 2 x 4) tokens read, 3 x 20 x 5 x 4 computed both ways: 2 x 6,400 x 1,390 / 400,000
    assert found.step_s == pytest.approx(44.48 * found.samples_a_step)
    assert found.samples_a_step >= 1.0
    # 8 rows compute 8 x 2 x 6,400 operations, which takes longer than to read 82,944 bytes; 3 x 14 tokens are read, too
    asked = 16 * 4 / 8 * 0.1024 + 3 * 14 * 2 * 6_400 / 400_000
    assert found.asking_s == pytest.approx(asked)
    wide = forecast(shape, settings, Card("wide", 1e6, 1e7), habits, is_shared=False)
    assert wide.asking_s == pytest.approx(16 * 4 / 8 * (25_600 + 57_344) / 1e6 + 3 * 14 * 2 * 6_400 / 4_000_000)
    assert found.served_s == pytest.approx(found.asking_s + found.step_s)
    assert found.load == pytest.approx(found.turns_a_minute / 60 * 0.1 * 44.48)
    together = forecast(shape, settings, card, habits, is_shared=True)
    assert together.load == pytest.approx(found.turns_a_minute / 60 * 0.1 * (2 * 44.48 + found.asking_s))


def test_more_users_get_fewer_tokens_each_and_more_together(four_billion: Path) -> None:
    shape, habits = read_shape(four_billion), Habits(corrected=0.01)
    few, many = (
        forecast(shape, MemorySettings(is_gpu=True, users=users), CARDS["h100"], habits, is_shared=False)
        for users in (1, 32)
    )
    assert few.load < many.load < 1
    assert few.tokens_a_second_each > many.tokens_a_second_each
    assert few.tokens_a_second_most < many.tokens_a_second_most
    assert few.seconds_between_steps > many.seconds_between_steps


def test_a_trainer_that_falls_behind_is_named(four_billion: Path) -> None:
    ask = ["plan", "--model", str(four_billion), "--memory", "80", "--card", "h100", "--users"]
    few, many = (CliRunner().invoke(app, [*ask, users]) for users in ("1", "64"))
    assert "falls behind" not in few.output and "versions old" in few.output
    assert "learning falls behind: a correction takes the trainer" in many.output and "versions old" not in many.output


def test_a_reply_without_tokens_is_refused(four_billion: Path) -> None:
    done = CliRunner().invoke(app, ["plan", "--model", str(four_billion), "--reply", "0"])
    assert done.exit_code and isinstance(done.exception, ConfigError)
    assert "a reply of 0" in str(done.exception)


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"model_type": "llama", "hidden_size": 64}'])
def test_a_file_that_is_not_a_models_configuration_is_refused(tmp_path: Path, body: str) -> None:
    (tmp_path / "config.json").write_text(body)
    with pytest.raises(ModelError, match=r"config\.json"):
        read_shape(tmp_path)


def test_an_attention_that_is_not_known_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**QWEN3_4B, "kv_lora_rank": 512}))
    with pytest.raises(ModelError, match="does not know"):
        read_shape(tmp_path)


def test_a_question_that_makes_no_sense_is_refused(four_billion: Path) -> None:
    shape = read_shape(four_billion)
    with pytest.raises(ConfigError, match="40960"):
        PlanQuestion(shape, MemorySettings(is_gpu=True, context=50_000), 1, GIB)
    with pytest.raises(ConfigError, match="GPUs"):
        PlanQuestion(shape, MemorySettings(is_gpu=True), -1, GIB)


def test_the_command_prints_how_each_number_came_about(four_billion: Path) -> None:
    words = ["plan", "--model", str(four_billion), "--gpus", "1", "--memory", "80", "--explain"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "computed from the model's configuration, not measured" in done.output
    assert "4 users x 8192 tokens (a block of the cache) x 73728 numbers x 2 bytes" in done.output


def test_the_command_as_json_adds_up_and_ends_with_1_if_it_does_not_fit(four_billion: Path) -> None:
    words = ["plan", "--model", str(four_billion / "config.json"), "--gpus", "2", "--memory", "8", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["fits"] is False and found["changes"]
    for device in found["devices"]:
        assert device["taken"] == sum(item["bytes"] for item in device["roles"])
        assert all(role["bytes"] == sum(one["size"] for one in role["items"]) for role in device["roles"])
        assert all(one["how"] for role in device["roles"] for one in role["items"])


@pytest.mark.parametrize("words", [("--weights", "3bit"), ("--dtype", "int8"), ("--card", "abacus")])
def test_the_command_refuses_what_it_does_not_know(four_billion: Path, words: tuple[str, str]) -> None:
    done = CliRunner().invoke(app, ["plan", "--model", str(four_billion), *words])
    assert done.exit_code != 0 and isinstance(done.exception, ConfigError)
