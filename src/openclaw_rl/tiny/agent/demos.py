"""Demonstrations: what a scripted agent does with an exercise, as the conversation that the model is trained on."""

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

# The families for reinforcement learning, and those that are demonstrated but held back from it.
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
# The families of unseen tasks. Pages have contents that only these tasks use; others differ in numbers and names.
UNSEEN = {**FAMILIES, Setting.SCREEN: pages.UNSEEN}
UNSEEN_HELD_BACK = {**HELD_BACK, Setting.SCREEN: pages.UNSEEN_HELD_BACK}
# The families that are demonstrated: all of them.
DEMONSTRATED = {setting: {**known, **HELD_BACK[setting]} for setting, known in FAMILIES.items()}
DEMONSTRATED[Setting.SCREEN] = pages.REWORDED


def _tool(name: str, *arguments: str) -> Tool:
    properties: dict[str, Json] = {argument: {"type": "string"} for argument in arguments}
    return Tool(name, "", {"type": "object", "properties": properties})


# The tools that the environments offer; the model's template shows only their names.
TOOLS: dict[Setting, tuple[Tool, ...]] = {
    Setting.TERMINAL: (_tool("bash", "command"), _tool("submit")),
    Setting.TOOLS: (_tool("python", "code"), _tool("answer", "value")),
    Setting.SOFTWARE: (_tool("bash", "command"), _tool("submit")),
    Setting.SCREEN: (*BY_ELEMENT, *BY_PIXEL, SUBMIT),
}


def exercise(
    setting: Setting,
    rng: Random,
    *,
    families: Mapping[str, Family] | None = None,
    weights: Mapping[str, float] | None = None,
) -> Exercise:
    """A random exercise of a setting, from the given families or from all that are demonstrated.

    `weights` say how often each family is chosen; 1 for those it does not name.
    """
    known = families or DEMONSTRATED[setting]
    (name,) = rng.choices(tuple(known), [(weights or {}).get(name, 1.0) for name in known])
    return known[name](rng)


def dialogue(exercise: Exercise, moves: tuple[Move, ...]) -> Dialogue:
    """The conversation in which these moves are made, with the result of each but the last."""
    spoken = [message(Role.USER, exercise.instruction + exercise.opening)]
    for number, move in enumerate(moves):
        call = ToolCall(f"call_{number}", move.tool, json.dumps(dict(move.arguments)))
        spoken.append(Message(Role.ASSISTANT, tool_calls=(call,)))
        if number < len(moves) - 1:
            spoken.append(Message(Role.TOOL, (TextPart(shown(move)),), tool_call_id=call.id))
    return Dialogue(spoken, [True] * len(moves), TOOLS[exercise.setting])


def shown(move: Move) -> str:
    """The text that the environment shows after a move."""
    if move.tool == "bash":
        output = f"{move.output.removesuffix(chr(10))}\n" if move.output else ""
        return f"{output}[exit status {move.status}]"
    return f"{move.output}\n" if move.tool == "python" else move.output


def easy(rng: Random) -> CorpusSample:
    """A line of words and numbers two or three times, from which copying is learned before anything else."""
    known = (*WORDS, *pages.POOL, *terminal.KEYS, *map(str, range(2, 100)))
    line = " ".join(rng.choice(known) for _ in range(rng.randint(6, 20)))
    return CorpusSample((("\n".join([line] * rng.choice((2, 3))), True), ("<|endoftext|>", True)))


def code_sample(rng: Random) -> CorpusSample:
    """Correct code without a task."""
    return CorpusSample(((repairs.lesson(rng), True), ("<|endoftext|>", True)))


def counting_sample(rng: Random) -> CorpusSample:
    """Whether a number must rise, fall or stay, many times: the moves of a counter's page, each in one token.

    In half of the samples other numbers follow a press, until one is as wanted. So nothing can be told from how often
    was pressed.
    """
    pieces, goes_on, shown = [], rng.random() < 0.5, 0
    while shown < 20:
        name, wanted, by = rng.choice(pages.POOL), rng.randint(0, 12), rng.randint(-3, 3)
        asked = f"Set {name} to {wanted} and press OK.\n"
        while True:
            move = "+" if by > 0 else "-" if by < 0 else "OK"
            pieces += [(f"{asked}{name}: {wanted - by}\n", False), (f'"{move}\n\n', True)]
            asked, shown = "", shown + 1
            if by == 0 or not goes_on:
                break
            by = rng.randint(-3, 3)
    return CorpusSample((*pieces, ("<|endoftext|>", True)))


def copying_sample(rng: Random) -> CorpusSample:
    """Which line belongs to which function, many times: the beginnings of repairs, without what is put in."""
    source, requests = repairs.looked_up(rng)
    pieces = [(source, False)]
    for asked, lines in requests:
        pieces.append((asked, False))
        for line in lines:
            pieces += [("\nsed -i 's|", False), (f"{line}|", True)]
        pieces.append(("\n", False))
    return CorpusSample((*pieces, ("<|endoftext|>", True)))


def sample(
    template: ChatTemplate,
    rng: Random,
    shares: Mapping[Setting, float],
    *,
    families: Mapping[str, float] | None = None,
    skill: float | None = None,
) -> CorpusSample:
    """A random demonstration in one of the settings, right as often as `skill`, or else the setting's `SKILL`, says.

    `shares` are the weights of the settings, `families` those of the families within a setting.
    """
    (setting,) = rng.choices([*shares], [*shares.values()])
    made = exercise(setting, rng, weights=families)
    return rendered(template, dialogue(made, made.demonstrated(rng, skill)))
