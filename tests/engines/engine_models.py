"""What the engine's tests are made of: tiny models, adapters, and the same computed by transformers and peft alone."""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from openclaw_rl.core.adapter import CONFIG, Adapter, digest_of_folder
from openclaw_rl.core.completion import Finish, Scores
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines.local.adapters import read_adapter
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.wire import ScoreJob, StepOutput, Submit, Top

VOCAB = 160
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,  # far from uniform, so that a wrong key shows
}


def make_model(family: str, folder: Path) -> None:
    """Writes a random model of a family."""
    import transformers as hf

    torch.manual_seed(7)
    moe = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1}
    sliding = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
    linear = {"num_experts": 4, "layer_types": ["linear_attention", "full_attention"]}
    makers = {
        "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**COMMON, tie_word_embeddings=True, eos_token_id=3)),
        "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**COMMON)),
        "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**COMMON)),
        "gemma": lambda: hf.GemmaForCausalLM(hf.GemmaConfig(**COMMON)),
        "gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**COMMON, **sliding, attn_logit_softcapping=0.5)),
        "gptoss": lambda: hf.GptOssForCausalLM(hf.GptOssConfig(**COMMON, **sliding, num_local_experts=4)),
        "qwen3next": lambda: hf.Qwen3NextForCausalLM(hf.Qwen3NextConfig(**COMMON, **linear)),
        "gemma3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**COMMON, **sliding)),
        "qwen3moe": lambda: hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(**COMMON, **moe)),
        "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**COMMON, sliding_window=16)),
    }
    model = makers[family]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("bias", "sinks")):
                nn.init.normal_(parameter)  # transformers starts them at zero, which would hide their loss
    model.save_pretrained(folder)


def plain_model(folder: Path, adapter: Adapter | None = None) -> nn.Module:
    """The model as transformers and peft compute it."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model: nn.Module = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    if adapter is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peft calls what transformers is about to rename
            model = PeftModel.from_pretrained(model, str(adapter.folder))
    return model.eval()


@torch.no_grad()
def plain_logp(model: nn.Module, tokens: list[int] | tuple[int, ...]) -> Tensor:
    """Log-probabilities [tokens, V] of a plain forward."""
    logits: Tensor = model(input_ids=torch.tensor([list(tokens)])).logits
    return torch.log_softmax(logits[0].float(), -1)


def write_adapter(model: Path, folder: Path, version: PolicyVersion, *, rank: int, **options: object) -> Adapter:
    """A random adapter made by peft, over all linears, or over those of attention where experts are no linears."""
    from peft import LoraConfig, get_peft_model

    if not (folder / CONFIG).exists():
        values = {"target_modules": _targets(model), "lora_alpha": 2 * rank, **options}
        torch.manual_seed(version.number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as above
            wrapped = get_peft_model(plain_model(model), LoraConfig(r=rank, **values))
            for name, parameter in wrapped.named_parameters():
                if "lora_" in name:
                    nn.init.normal_(parameter, std=0.15)
            wrapped.save_pretrained(folder)
    return Adapter(folder, digest_of_folder(folder), version)


def _targets(model: Path) -> str | list[str]:
    return ["q_proj", "k_proj", "v_proj", "o_proj"] if model.name in ("qwen3moe", "gptoss") else "all-linear"


def install(core: Core, adapter: Adapter) -> None:
    """Reads and installs, as the host does."""
    core.install(read_adapter(adapter, core.adapters.linears()), adapter.version, adapter.digest)


def prompt_of(size: int, seed: int = 0) -> tuple[int, ...]:
    """Random ids."""
    source = random.Random(f"{size}:{seed}")
    return tuple(source.randrange(4, VOCAB) for _ in range(size))


@dataclass
class StepClock:
    """The time on a machine on which each step takes `rows_s`, and each token of a prompt `token_s` besides."""

    rows_s: float
    token_s: float
    core: Core | None = None

    def __call__(self) -> float:
        if self.core is None:
            return 0.0
        stats = self.core.stats()
        return stats.steps * self.rows_s + stats.prompt_tokens_read * self.token_s


@dataclass(slots=True)
class Answer:
    """What came of one request."""

    tokens: list[int] = field(default_factory=list)
    logp_sampled: list[float] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    top: list[Top] = field(default_factory=list)
    finish: Finish | None = None
    cached: int = 0
    problem: str = ""
    masked: list[tuple[float, bool]] = field(default_factory=list)
    scores: Scores | None = None


def ask(request: int, prompt: tuple[int, ...], version: PolicyVersion = BASE, **sampling: object) -> Submit:
    """A request whose seed is its number."""
    values = {"max_tokens": 12, **sampling}
    return Submit(request, prompt, Sampling(**values), version, seed=request)  # type: ignore[arg-type]


def enter(step: StepOutput, answers: dict[int, Answer]) -> None:
    """Adds what a step did to the answers."""
    for spot, request in enumerate(step.rows):
        answer = answers.setdefault(request, Answer())
        answer.tokens.append(step.tokens[spot])
        answer.logp_sampled.append(step.logp_sampled[spot])
        answer.logp.append(step.logp[spot])
        answer.top.append(step.top.get(spot, ()))
        answer.finish = step.ended.get(spot)
        answer.masked.extend([step.masked[spot]] if spot in step.masked else [])
        answer.cached += step.cached.get(spot, 0)
    for request, scores in step.scored:
        answers.setdefault(request, Answer()).scores = scores
    for request, problem in step.failed:
        answers.setdefault(request, Answer()).problem = problem


def run(core: Core, *work: Submit | ScoreJob, answers: dict[int, Answer] | None = None) -> dict[int, Answer]:
    """Steps until all work is done."""
    answers = {} if answers is None else answers
    for item in work:
        if isinstance(item, Submit):
            core.submit(item)
        else:
            core.score(item)
    while core.has_work:
        enter(core.step(), answers)
    return answers


def off_by(model: nn.Module, prompt: tuple[int, ...], answer: Answer) -> float:
    """The largest difference of an answer's log-probabilities to a plain forward over the same ids."""
    logp = plain_logp(model, [*prompt, *answer.tokens])
    start = len(prompt) - 1
    return max(abs(float(logp[start + at, token]) - answer.logp[at]) for at, token in enumerate(answer.tokens))
