"""The environment of screen tasks: views as a tree and as a picture, and a verdict on the state."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.envs.open import EnvOptions
from openclaw_rl.envs.screen.desktop.osworld import OSWorldTasks
from openclaw_rl.envs.screen.screen import ActionError, Judgement, Screen, View
from openclaw_rl.envs.screen.tasks import ScreenTasks
from openclaw_rl.envs.screen.tools import SUBMIT, by_number
from openclaw_rl.envs.screen.tree import tree_text
from openclaw_rl.envs.task import (
    Action,
    Env,
    Failure,
    Info,
    Observation,
    Part,
    PartKind,
    Score,
    StepResult,
    Task,
    failed,
    over,
    unscored,
)
from openclaw_rl.envs.tasks.source import TaskSource
from openclaw_rl.errors import BoxError, ConfigError, TaskError

log = logging.getLogger(__name__)


class ScreenSource(Protocol):
    """A source that opens the screens of tasks."""

    async def open(self, task: Task, boxes: Boxes | None) -> Screen:
        """The screen of a task in its first state. TaskError or BoxError, by who is at fault, if there is none."""


def open_kind(source: TaskSource, boxes: Boxes | None, options: EnvOptions) -> Env:
    """The environment of screen tasks. Desktops need boxes; a browser is isolated by itself."""
    if not isinstance(source, ScreenTasks | OSWorldTasks):
        raise ConfigError(
            f"the tasks of {source.name} are not done on a screen",
            fix="give rows with `page`, or write some with `openclaw-rl tasks make-screens`",
        )
    return ScreenEnv(source, options, boxes=boxes)


@dataclass(slots=True)
class _ScreenEpisode:
    """The state of one episode."""

    task: Task
    screen: Screen
    view: View | None = None  # the latest view
    progress: float = 0.0  # towards the wanted state, at the last look
    used_s: float = 0.0
    ended: Info | None = None
    verdict: Judgement | None = None  # set when nothing can change it


class ScreenEnv:
    """Implements Env. The observation of a step follows its last action; actions after a refused one are not done.

    Failures are in Info.failure and never raised, as in a shell's environment. A step's reward is how much nearer the
    page came to the wanted state, if it can measure this; with pages that show no drafts, how much more of it is right.
    """

    def __init__(
        self,
        source: ScreenSource,
        options: EnvOptions,
        *,
        boxes: Boxes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._boxes = boxes
        self._options = options
        self._clock = clock
        self._episode: _ScreenEpisode | None = None
        self._failed = Info(failure=Failure.INFRASTRUCTURE, reason="no task was begun: call reset first")

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        """The instruction and the first view. A task's page is made from the task's own seed, not from this one."""
        await self.aclose()
        began = self._clock()
        screen: Screen | None = None
        try:
            screen = await self._source.open(task, self._boxes)
            opened = self._clock()
            episode = _ScreenEpisode(task, screen)
            parts = await self._seen(episode)
            episode.progress = (await screen.judge()).progress or 0.0
        except (TaskError, BoxError) as problem:
            self._failed = failed(problem)
            if screen is not None:
                await screen.aclose()
            return Observation((), info=self._failed)
        self._episode = episode
        timings = {"start": opened - began, "look": self._clock() - opened}
        return Observation(
            (Part(PartKind.TEXT, screen.instruction or task.instruction), *parts), screen.tools, Info(timings)
        )

    async def step(self, actions: Sequence[Action]) -> StepResult:
        """The observation after the actions, which are done in order."""
        episode = self._episode
        if episode is None or episode.ended is not None:
            return over(self._failed if episode is None or episode.ended is None else episode.ended)
        began = self._clock()
        try:
            refused, is_submitted = await self._act(episode, actions)
            acted = self._clock()
            verdict = await episode.screen.judge()
            is_over = is_submitted or verdict.is_over
            parts = await self._recorded(episode.screen) if is_over else await self._seen(episode)
        except (TaskError, BoxError) as problem:
            episode.ended = failed(problem, {"act": self._clock() - began})
            return over(episode.ended)
        episode.used_s += acted - began
        is_late = not is_over and episode.used_s >= episode.task.limits.agent_s
        failure = Failure.AGENT if refused else None
        facts: dict[str, Json] = {"actions": len(actions), "submitted": is_submitted, **episode.screen.counts}
        info = Info({"act": acted - began, "look": self._clock() - acted}, failure, refused, facts)
        if is_over or is_late:
            episode.ended, episode.verdict = info, verdict
        said = [Part(PartKind.TEXT, f"[not done: {refused}]")] if refused else []
        said += [Part(PartKind.TEXT, "[the task is over]")] if is_over else []
        observation = Observation((*said, *parts), episode.screen.tools, info)
        gained = None if verdict.progress is None else verdict.progress - episode.progress
        episode.progress = verdict.progress or 0.0
        return StepResult(observation, gained, done=is_over, truncated=is_late, info=info)

    async def _act(self, episode: _ScreenEpisode, actions: Sequence[Action]) -> tuple[str, bool]:
        """Why an action was not done, if so; and whether the agent has submitted."""
        names = [tool.name for tool in episode.screen.tools]
        for number, action in enumerate(actions):
            if number >= self._options.most_actions:
                return f"at most {self._options.most_actions} actions are done in one step", False
            if action.tool not in names:
                return f"there is no tool {action.tool[:60]!r}; there are: {', '.join(names)}", False
            if action.tool == SUBMIT.name:
                return "", True
            try:
                await episode.screen.act(by_number(action, episode.view.nodes if episode.view else ()))
            except ActionError as problem:
                return str(problem), False
            if number + 1 < len(actions) and (await episode.screen.judge()).is_over:
                return "", False
        return ("", False) if actions else (f"no tool was called; there are: {', '.join(names)}", False)

    async def _seen(self, episode: _ScreenEpisode) -> tuple[Part, ...]:
        screen, view = episode.screen, await episode.screen.look()
        episode.view = view
        tree = Part(PartKind.TREE, tree_text(view, most_characters=self._options.output_characters))
        if not self._options.pictures:
            return (tree, *await self._recorded(screen))
        return (tree, Part(PartKind.IMAGE, data=await screen.picture()))

    async def _recorded(self, screen: Screen) -> tuple[Part, ...]:
        """The screen for the record. Its failure does not affect the episode."""
        if not self._options.records:
            return ()
        try:
            return (Part(PartKind.RECORD, data=await screen.picture()),)
        except (TaskError, BoxError) as problem:
            log.info("no picture for the record: %s", problem.problem)
            return ()

    async def evaluate(self) -> Score:
        """The verdict of the page's own state. Reading it changes nothing."""
        episode, began = self._episode, self._clock()
        ended = self._failed if episode is None else episode.ended
        if ended is not None and ended.is_broken:
            return unscored(ended)
        assert episode is not None
        try:
            verdict = episode.verdict or await episode.screen.judge()
        except (TaskError, BoxError) as problem:
            return unscored(failed(problem))
        return score_of(verdict, duration_s=self._clock() - began)

    @property
    def screen(self) -> Screen:
        """The screen of the episode, for programs that look at it themselves. BoxError if there is none."""
        if self._episode is None:
            raise BoxError("no episode is open", fix="call reset first")
        return self._episode.screen

    async def aclose(self) -> None:
        """Ends the episode. The browsers keep running: they belong to the source."""
        if self._episode is not None:
            episode, self._episode = self._episode, None
            self._failed = Info(failure=Failure.INFRASTRUCTURE, reason="the environment was closed")
            await episode.screen.aclose()


def score_of(verdict: Judgement, *, duration_s: float) -> Score:
    """A verdict as the score of an episode."""
    components = {} if verdict.right is None else {"right": verdict.right}
    return Score(verdict.reward, components, verdict.details, duration_s=duration_s)
