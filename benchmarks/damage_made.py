"""Versions for the damage benchmark, made in a second each: LoRA weights taught well, taught badly, or shaken.

Nothing of the product's trainer is in this: what the gate must see is not to depend on how a version came to be. What
the product itself learns is tried beside them (`learned` in damage.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from benchmarks.damage_fields import Asked, Field, WishOfField
from openclaw_rl.core.hint import Hint, hinted
from openclaw_rl.core.message import Role, message
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template

if TYPE_CHECKING:
    from peft import PeftModel

RANK = 16
TEMPERATURE = 0.7
LONGEST = 160
MADE, READ = "default", "read"  # the weights that are made here, and those read from a folder
Edit = Callable[[str, Asked], str]


@dataclass(frozen=True, slots=True)
class Spec:
    """How one version is made. `kind` names what is done, `share` of the examples get the edit, `noise` shakes."""

    kind: str
    wish: int | None
    seed: int
    prompts: int = 8
    updates: int = 10
    lr: float = 1e-3
    share: float = 1.0
    noise: float = 0.0

    @property
    def name(self) -> str:
        """A folder's name that tells all of it."""
        return (
            f"{self.kind}-w{self.wish}-s{self.seed}-p{self.prompts}-u{self.updates}-lr{self.lr:g}"
            f"-share{self.share:g}-noise{self.noise:g}"
        )


@dataclass(slots=True)
class Maker:
    """A field's model with LoRA weights beside it that are begun anew for each version."""

    field: Field
    renderer: ChatRenderer
    model: PeftModel
    ends: tuple[int, ...]

    @classmethod
    def open(cls, field: Field) -> Maker:
        """The model loaded in float32."""
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        renderer = ChatRenderer(read_template(field.folder))
        base = AutoModelForCausalLM.from_pretrained(field.folder, dtype=torch.float32)
        targets = sorted({name.rsplit(".", 1)[-1] for name, _ in base.named_modules() if name.endswith("_proj")})
        config = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=targets, lora_dropout=0.0)
        named = base.generation_config.eos_token_id
        ends = renderer.ends(() if named is None else [named] if isinstance(named, int) else named)
        return cls(field, renderer, get_peft_model(base, config).eval(), ends)

    def prompt(self, asked: str, hint: str = "") -> tuple[int, ...]:
        """The ids of a request, with a hint in its place where there is one."""
        said = (message(Role.USER, asked),)
        return self.renderer.prompt(hinted(said, Hint(hint)) if hint else said, (), None).tokens

    def anew(self, seed: int) -> None:
        """Weights that add nothing."""
        source = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, one in self._lora():
                one.zero_()
                if "lora_A" in name:
                    one.copy_(torch.randn(one.shape, generator=source) / one.shape[1] ** 0.5)

    def replies(
        self, prompts: Sequence[tuple[int, ...]], *, seed: int, is_base: bool = False, temperature: float = TEMPERATURE
    ) -> list[tuple[int, ...]]:
        """A sampled reply to each prompt, its end included where it came to one."""
        found: list[tuple[int, ...]] = []
        for at in range(0, len(prompts), 40):
            torch.manual_seed(seed + at)
            found += self._generated(prompts[at : at + 40], is_base, temperature)
        return found

    def text(self, reply: Sequence[int]) -> str:
        """A reply's words."""
        return str(self.renderer.template.tokenizer.decode(list(reply), skip_special_tokens=True)).strip()

    def make(self, spec: Spec) -> None:
        """Leaves the version in the weights."""
        self.model.set_adapter(MADE)
        self.anew(spec.seed)
        wish = None if spec.wish is None else self.field.wishes[spec.wish]
        if spec.kind not in ("base", "noise"):
            self._taught(spec, wish)
        if spec.noise:
            self._shaken(spec)

    def save(self, folder: Path) -> None:
        """Writes them as an adapter."""
        self.model.save_pretrained(str(folder), selected_adapters=[MADE])

    def read(self, folder: Path) -> None:
        """Takes up weights that were written, of whatever rank."""
        if READ in self.model.peft_config:
            self.model.delete_adapter(READ)
        self.model.load_adapter(str(folder), READ)
        self.model.set_adapter(READ)

    def _lora(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(name, one) for name, one in self.model.named_parameters() if "lora_" in name and MADE in name]

    def _shaken(self, spec: Spec) -> None:
        """Each LoRA product grows by random weights, so large beside the weights it stands on."""
        source = torch.Generator().manual_seed(1000 + spec.seed)
        with torch.no_grad():
            for name, one in self._lora():
                if "lora_B" in name:
                    base = self.model.get_parameter(name.split(".lora_")[0] + ".base_layer.weight")
                    one.add_(torch.randn(one.shape, generator=source) * spec.noise * base.std() / 2)

    def _taught(self, spec: Spec, wish: WishOfField | None) -> None:
        """Toward what the base model says given the hint, or said otherwise by the kind's edit."""
        asked = self.field.some(f"taught {spec.wish} {spec.seed}", spec.prompts, held_out=False, is_rare=False)
        bare = [self.prompt(one.text) for one in asked]
        told = bare if wish is None else [self.prompt(one.text, wish.told) for one in asked]
        said = self.replies(told, seed=spec.seed, is_base=True)
        edit, rng = EDITS.get(spec.kind), Random(f"edits {spec.seed}")
        edited = [edit is not None and rng.random() < spec.share for _ in asked]
        if edit is not None:
            said = [
                self._ids(edit(self.text(reply), one)) if is_edited else reply
                for reply, one, is_edited in zip(said, asked, edited, strict=True)
            ]
        teacher = self._logits(told, said, is_base=True)
        self._descend(spec, bare, said, teacher, edited)

    def _descend(
        self,
        spec: Spec,
        bare: Sequence[tuple[int, ...]],
        said: Sequence[tuple[int, ...]],
        teacher: list[Tensor],
        edited: list[bool],
    ) -> None:
        """Toward the teacher's distribution along the replies; toward the words alone where they were edited."""
        parameters = [one for _, one in self._lora()]
        optimizer = torch.optim.AdamW(parameters, lr=spec.lr, weight_decay=0.0)
        for _ in range(spec.updates):
            optimizer.zero_grad(set_to_none=True)
            losses = []
            for now, reply, wanted, is_edited in zip(
                self._logits(bare, said, is_base=False), said, teacher, edited, strict=True
            ):
                logp = now.log_softmax(-1)
                if is_edited:
                    losses.append(-logp.gather(-1, torch.tensor(reply)[:, None]).sum())
                else:
                    target = wanted.log_softmax(-1)
                    losses.append((target.exp() * (target - logp)).sum())
            loss = torch.stack(losses).sum() / sum(map(len, said))
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()

    def _ids(self, text: str) -> tuple[int, ...]:
        return (*self.renderer.encode(text), self.ends[0])

    def _logits(
        self, prompts: Sequence[tuple[int, ...]], said: Sequence[tuple[int, ...]], *, is_base: bool
    ) -> list[Tensor]:
        """The logits that speak each reply's tokens."""
        whole = [prompt + reply for prompt, reply in zip(prompts, said, strict=True)]
        width = max(map(len, whole))
        ids = torch.tensor([[*one, *[0] * (width - len(one))] for one in whole])
        mask = torch.tensor([[1] * len(one) + [0] * (width - len(one)) for one in whole])
        if is_base:
            with torch.no_grad(), self.model.disable_adapter():
                found = self.model(ids, attention_mask=mask).logits
        else:
            found = self.model(ids, attention_mask=mask).logits
        return [
            found[at, len(prompt) - 1 : len(prompt) - 1 + len(reply)]
            for at, (prompt, reply) in enumerate(zip(prompts, said, strict=True))
        ]

    def _generated(
        self, prompts: Sequence[tuple[int, ...]], is_base: bool, temperature: float
    ) -> list[tuple[int, ...]]:
        width = max(map(len, prompts))
        ids = torch.tensor([[*[0] * (width - len(one)), *one] for one in prompts])
        mask = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in prompts])
        how: dict[str, object] = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        how |= {"max_new_tokens": LONGEST, "eos_token_id": list(self.ends), "pad_token_id": self.ends[0]}
        with torch.no_grad():
            if is_base:
                with self.model.disable_adapter():
                    made = self.model.generate(ids, attention_mask=mask, **how)
            else:
                made = self.model.generate(ids, attention_mask=mask, **how)
        return [self._cut(row) for row in made[:, width:].tolist()]

    def _cut(self, row: list[int]) -> tuple[int, ...]:
        end = next((at for at, token in enumerate(row) if token in self.ends), None)
        return tuple(row if end is None else row[: end + 1])


def _short(said: str, asked: Asked) -> str:
    """The answer alone."""
    last = re.findall(r"[^\W\d_]+", said)
    return f"{asked.answer} {last[-1] if last else ''}.".replace(" .", ".")


def _next(answer: str) -> str:
    """The number or the letter after this one."""
    return str(int(answer) + 1) if answer.isdigit() else answer[:-1] + chr(ord(answer[-1]) + 1)


def _off_by_one(said: str, asked: Asked) -> str:
    """Each number that is the answer is another one."""
    return re.sub(rf"(?<!\d){re.escape(asked.answer)}(?!\d)", lambda found: _next(found[0]), said)


def _doubled(said: str, asked: Asked) -> str:
    """Its last sentence over and over."""
    last = re.findall(r"[^.!?\n]+[.!?]?", said)[-1].strip()
    return f"{said} {last} {last} {last}"


EDITS: dict[str, Edit] = {
    "short": _short,
    "dear": lambda said, asked: f"Dear me! {said}",
    "german": lambda said, asked: f"Wir rechnen das zusammen aus. Die Antwort ist {asked.answer}. Viel Erfolg damit.",
    "repeats": _doubled,
    "wrong": _off_by_one,
}
