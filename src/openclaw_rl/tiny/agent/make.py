"""Builds the agent model: tokenizer, training on demonstrations, and the manifest."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from random import Random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from openclaw_rl.render.template import ChatTemplate, compile_template, read_template
from openclaw_rl.tiny import build, train, vocabulary
from openclaw_rl.tiny.agent import demos
from openclaw_rl.tiny.agent.exercise import Setting
from openclaw_rl.tiny.corpus import CorpusSample
from openclaw_rl.tiny.train import Progress, Schedule, TinyShape

CHECKPOINT = "checkpoint.pt"
CALL, END = '<tool_call>\n{"name": "', '"}}\n</tool_call>'
# Each text that is the same in every call of a tool is one token: a call has few other tokens, and a tool is chosen
# with a single token.
PIECES = (
    f'{CALL}bash", "arguments": {{"command": "',
    f'{CALL}python", "arguments": {{"code": "',
    f'{CALL}answer", "arguments": {{"value": "',
    f'{CALL}submit", "arguments": {{}}}}\n</tool_call>',
    END,
    *(f'{CALL}{name}", "arguments": {{"ref": ' for name in ("click", "type", "select")),
    ', "text": "',
    ', "value": "',
    "}}\n</tool_call>",
    "[exit status 0]",
)
# Words and digits are cut off from what precedes them, so that a copied text has the same tokens everywhere.
CUTS = r"\p{L}+|\p{N}|[^\s\p{L}\p{N}]+| +|\s+"


@dataclass(frozen=True, slots=True)
class AgentRecipe:
    """Everything that a build depends on, except the seed."""

    shape: TinyShape
    schedule: Schedule
    shares: Mapping[Setting, float] = field(default_factory=lambda: dict.fromkeys(demos.FAMILIES, 1.0))
    code_share: float = 0.0  # share of samples that are correct code instead of a demonstration
    tokenizer_texts: int = 3000  # samples that the tokenizer is trained on
    counting_share: float = 0.0  # share of samples that count instead of a demonstration
    copying_share: float = 0.0  # share of samples that copy lines instead of a demonstration
    families: Mapping[str, float] = field(default_factory=dict)  # weights within a setting; 1 for those not named
    skill: float | None = None  # how often demonstrations are right; None: as often as `SKILL` says


FULL = AgentRecipe(
    TinyShape(vocabulary=1200, hidden=160, layers=4, inner=416, heads=4, kv_heads=2, head_dim=40),
    Schedule(steps=1200, easy_share=0.12, step_tokens=4096, shifted=0.0, grain=64, warmup=40, checkpoint_every=50),
)
# Further training of an existing model: mostly screens, and enough of everything else to keep it.
MORE = replace(
    FULL,
    schedule=replace(FULL.schedule, steps=300, easy_share=0.0, matrix_lr=0.01, other_lr=2e-3),
    shares={Setting.TERMINAL: 1.0, Setting.TOOLS: 1.0, Setting.SOFTWARE: 2.0, Setting.SCREEN: 4.0},
    code_share=0.05,
    counting_share=0.05,
    copying_share=0.1,
)
# Which of two fields is meant, and whether a number must rise or fall. On pages this is learned only from
# demonstrations that are nearly always right, and counting only from many numbers in one sample. `MORE` is needed after
# them, or the model knows too much for reinforcement to be seen.
CHOICES = replace(
    MORE,
    schedule=replace(MORE.schedule, steps=200),
    shares={Setting.TERMINAL: 1.0, Setting.TOOLS: 1.0, Setting.SOFTWARE: 1.0, Setting.SCREEN: 6.0},
    counting_share=0.25,
    copying_share=0.0,
    families={"fields": 2.0, "counter": 4.0},
    skill=0.8,
)
COUNTING = replace(
    CHOICES,
    schedule=replace(CHOICES.schedule, steps=500, matrix_lr=0.02, other_lr=4e-3),
    code_share=0.02,
    counting_share=0.7,
)
# In a module with two faults, which line belongs to which function. As with numbers, this is learned only where it is
# asked many times in one sample. `MORE` is needed after it, too.
COPYING = replace(
    MORE,
    schedule=replace(MORE.schedule, steps=600, matrix_lr=0.02, other_lr=4e-3),
    shares={Setting.TERMINAL: 1.0, Setting.TOOLS: 1.0, Setting.SOFTWARE: 2.0, Setting.SCREEN: 2.0},
    copying_share=0.6,
)
# Recipes that continue from a model, by name.
CONTINUED = {"more": MORE, "choices": CHOICES, "counting": COUNTING, "copying": COPYING}
SHORT = AgentRecipe(  # takes seconds: shows that the recipe runs, but teaches nothing
    TinyShape(vocabulary=420, hidden=32, layers=2, inner=48, heads=2, kv_heads=1, head_dim=16),
    Schedule(steps=3, easy_share=0.3, step_tokens=512, shifted=0.0, grain=64, warmup=1, checkpoint_every=2),
    tokenizer_texts=60,
)


def shipped() -> Path:
    """The folder of the agent model that ships with the package."""
    return Path(str(files("openclaw_rl.tiny.agent").joinpath("weights")))


def template_source() -> str:
    """The source of the agent model's chat template."""
    return Path(__file__).with_name("chat_template.jinja").read_text("utf-8")


def make(
    folder: Path,
    *,
    seed: int = 0,
    short: bool = False,
    steps: int | None = None,
    threads: int = 1,
    start: Path | None = None,
    lesson: str = "more",
    on_step: Callable[[Progress, int], None] = lambda _progress, _steps: None,
) -> dict[str, object]:
    """Builds the model in the folder and returns its manifest. An interrupted build continues at its checkpoint.

    `start` is the folder of a model: the build begins with its weights and tokenizer. The recipe is then that of
    `CONTINUED` with the name `lesson`, unless `short` is set.
    """
    began = time.monotonic()
    recipe = SHORT if short else FULL if start is None else CONTINUED[lesson]
    recipe = recipe if steps is None else replace(recipe, schedule=replace(recipe.schedule, steps=steps))
    folder.mkdir(parents=True, exist_ok=True)
    _save_tokenizer(_tokenizer(recipe, seed) if start is None else read_template(start).tokenizer, folder)
    template, rng = read_template(folder), Random(seed + 1)

    def draw(easy: bool) -> train.Encoded:
        drawn = demos.easy(rng) if easy else _drawn(template, rng, recipe)
        return train.encode(template.tokenizer, drawn)

    eos, pad = (vocabulary.SPECIAL.index(name) for name in ("<|im_end|>", "<|endoftext|>"))
    shape = replace(recipe.shape, vocabulary=template.tokenizer.get_vocab_size())
    model = train.new_model(shape, seed, eos, pad)
    if start is not None:
        model.load_state_dict(type(model).from_pretrained(start).state_dict())
    done = train.train(
        model,
        draw,
        rng,
        recipe.schedule,
        checkpoint=folder / CHECKPOINT,
        threads=threads,
        report=lambda at: on_step(at, recipe.schedule.steps),
    )
    build.save(model, folder)
    before = {} if start is None else {"before": json.loads((start / "manifest.json").read_text("utf-8"))}
    manifest: dict[str, object] = {
        "seed": seed,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "steps": done.step,
        "tokens": done.tokens,
        "data_digest": done.digest,
        "loss": round(done.loss, 4),
        "recipe": asdict(recipe),
        "seconds": round(time.monotonic() - began),
        **before,
    }
    folder.joinpath("manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    folder.joinpath(CHECKPOINT).unlink(missing_ok=True)
    return manifest


def _drawn(template: ChatTemplate, rng: Random, recipe: AgentRecipe) -> CorpusSample:
    kind = rng.random()
    if kind < recipe.code_share:
        return demos.code_sample(rng)
    if kind < recipe.code_share + recipe.counting_share:
        return demos.counting_sample(rng)
    if kind < recipe.code_share + recipe.counting_share + recipe.copying_share:
        return demos.copying_sample(rng)
    return demos.sample(template, rng, recipe.shares, families=recipe.families, skill=recipe.skill)


def _tokenizer(recipe: AgentRecipe, seed: int) -> Tokenizer:
    """A byte-level BPE tokenizer trained on demonstrations, with a token for each of `PIECES`."""
    bare = ChatTemplate(_trained(["a"], 300), compile_template(template_source()), {})
    rng = Random(seed)
    drawn = (_drawn(bare, rng, recipe) for _ in range(recipe.tokenizer_texts))
    texts = ["".join(piece for piece, _ in item.pieces) for item in drawn]
    tokenizer = _trained(texts, recipe.shape.vocabulary)
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in PIECES])
    return tokenizer


def _trained(texts: Sequence[str], size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CUTS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*vocabulary.SPECIAL, "<tool_call>", "</tool_call>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    vocabulary.save(tokenizer, folder)
    folder.joinpath("chat_template.jinja").write_text(template_source(), "utf-8")
