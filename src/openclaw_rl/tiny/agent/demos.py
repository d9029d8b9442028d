"""Demonstrations: what a scripted agent does with an exercise, as the conversation that the model is taught by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random

from openclaw_rl.core.message import Json, Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.envs.screen.tools import BY_ELEMENT, BY_PIXEL, SUBMIT
from openclaw_rl.render.template import ChatTemplate
from openclaw_rl.tiny.agent import pages, repairs, sums, terminal
from openclaw_rl.tiny.agent.exercise import WORDS, Exercise, Family, Move, Setting
from openclaw_rl.tiny.corpus import CorpusSample, rendered
from openclaw_rl.tiny.dialogues import Dialogue

# What is learned by reinforcement, and what is taught but held back from it.
FAMILIES: dict[Setting, dict[str, Family]] = {
    Setting.TERMINAL: terminal.FAMILIES,
    Setting.TOOLS: sums.FAMILIES,
    Setting.SOFTWARE: repairs.FAMILIES,
    Setting.SCREEN: pages.FAMILIES,
}
HELD_BACK: dict[Setting, dict[str, Family]] = {
    Setting.TERMINAL: terminal.HELD_BACK,
    Setting.TOOLS: sums.HELD_BACK,
    Setting.SOFTWARE: repairs.HELD_BACK,
    Setting.SCREEN: pages.HELD_BACK,
}
# From what unseen tasks are drawn: pages keep some contents for them alone, the others differ in numbers and names.
UNSEEN = {**FAMILIES, Setting.SCREEN: pages.UNSEEN}
UNSEEN_HELD_BACK = {**HELD_BACK, Setting.SCREEN: pages.UNSEEN_HELD_BACK}
# What the model is taught by: all families.
DEMONSTRATED = {setting: {**known, **HELD_BACK[setting]} for setting, known in FAMILIES.items()}
DEMONSTRATED[Setting.SCREEN] = pages.REWORDED


def _tool(name: str, *arguments: str) -> Tool:
    properties: dict[str, Json] = {argument: {"type": "string"} for argument in arguments}
    return Tool(name, "", {"type": "object", "properties": properties})


# As the environments offer them; the model's template shows names alone.
TOOLS: dict[Setting, tuple[Tool, ...]] = {
    Setting.TERMINAL: (_tool("bash", "command"), _tool("submit")),
    Setting.TOOLS: (_tool("python", "code"), _tool("answer", "value")),
    Setting.SOFTWARE: (_tool("bash", "command"), _tool("submit")),
    Setting.SCREEN: (*BY_ELEMENT, *BY_PIXEL, SUBMIT),
}


def exercise(setting: Setting, rng: Random, *, families: Mapping[str, Family] | None = None) -> Exercise:
    """A fresh exercise of a setting, of one of the families or of any."""
    known = families or DEMONSTRATED[setting]
    return known[rng.choice(tuple(known))](rng)


def dialogue(exercise: Exercise, moves: tuple[Move, ...]) -> Dialogue:
    """The conversation in which these moves are made."""
    spoken = [message(Role.USER, exercise.instruction + exercise.opening)]
    for number, move in enumerate(moves):
        call = ToolCall(f"call_{number}", move.tool, json.dumps(dict(move.arguments)))
        spoken.append(Message(Role.ASSISTANT, tool_calls=(call,)))
        if number < len(moves) - 1:
            spoken.append(Message(Role.TOOL, (TextPart(shown(move)),), tool_call_id=call.id))
    return Dialogue(spoken, [True] * len(moves), TOOLS[exercise.setting])


def shown(move: Move) -> str:
    """What the environment shows after a move."""
    if move.tool == "bash":
        output = f"{move.output.removesuffix(chr(10))}\n" if move.output else ""
        return f"{output}[exit status {move.status}]"
    return f"{move.output}\n" if move.tool == "python" else move.output


def easy(rng: Random) -> CorpusSample:
    """Words and numbers said twice or more, which teaches to copy before anything else has to be learned."""
    known = (*WORDS, *pages.POOL, *terminal.KEYS, *map(str, range(2, 100)))
    line = " ".join(rng.choice(known) for _ in range(rng.randint(6, 20)))
    return CorpusSample((("\n".join([line] * rng.choice((2, 3))), True), ("<|endoftext|>", True)))


def sample(
    template: ChatTemplate, rng: Random, shares: Mapping[Setting, float], *, code_share: float = 0.0
) -> CorpusSample:
    """A fresh demonstration of one of the settings, the right one as seldom as a scripted agent finds it.

    A share of the samples is code that is right, and no task.
    """
    if rng.random() < code_share:
        return CorpusSample(((repairs.lesson(rng), True), ("<|endoftext|>", True)))
    (setting,) = rng.choices([*shares], [*shares.values()])
    made = exercise(setting, rng)
    return rendered(template, dialogue(made, made.demonstrated(rng)))
