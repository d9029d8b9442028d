"""Pages in a real browser: what is seen of them, what can be done, and how it is judged."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from made_pages import Pages

from openclaw_rl.agents.actions import AgentCall, picture_of, result_messages
from openclaw_rl.envs.open import EnvOptions
from openclaw_rl.envs.screen import miniwob
from openclaw_rl.envs.screen.env import ScreenEnv
from openclaw_rl.envs.screen.families.catalogue import FAMILIES
from openclaw_rl.envs.screen.solving import action_of, find
from openclaw_rl.envs.screen.tasks import ScreenTasks, family_tasks
from openclaw_rl.envs.screen.tree import tree_text
from openclaw_rl.envs.task import Action, Failure, PartKind, Split, StepResult
from openclaw_rl.envs.tasks.check import TaskVerdict, check_sources
from openclaw_rl.envs.tasks.source import Attempt

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", FAMILIES)
async def test_the_start_of_a_family_fails_and_its_solution_passes(name: str, source: ScreenTasks) -> None:
    tasks = ScreenTasks(name, family_tasks(name, train=1, test=2), browser=source.browsers.options)
    report = await check_sources([tasks], None, at_once=2, tell=lambda one: None)  # type: ignore[arg-type]
    assert [(one.verdict, one.reason) for one in report.checked] == [(TaskVerdict.SOUND, "")] * 3


async def test_pages_of_small_families_are_short(source: ScreenTasks) -> None:
    for family in FAMILIES.values():
        if family.is_small:
            for task in family_tasks(family.name, train=2, test=1):
                screen = await source.open(task)
                assert len(tree_text(await screen.look(), most_characters=2_000)) + len(task.instruction) < 400
                await screen.aclose()


async def test_a_wrong_end_is_scored_0_and_a_right_one_1(source: ScreenTasks) -> None:
    (task,) = family_tasks("fields", train=1, test=0)
    env = ScreenEnv(source, EnvOptions())
    first = await env.reset(task)
    assert first.parts[0].text == task.instruction
    view = await env.screen.look()
    save = find(view, "Save")
    assert save is not None
    after = await env.step([Action("click", {"ref": save.ref})])
    assert after.done and after.info.failure is None
    score = await env.evaluate()
    assert (score.reward, score.failure) == (0.0, None)
    # the episode is over: nothing can be mended any more
    again = await env.step([Action("click", {"ref": 1})])
    assert again.done
    assert (await env.evaluate()).reward == 0.0
    await env.aclose()


@pytest.mark.parametrize("name", ["fields", "choices"])
async def test_saving_a_form_as_it_is_earns_nothing(name: str, source: ScreenTasks) -> None:
    for task in family_tasks(name, train=3, test=0):
        env = ScreenEnv(source, EnvOptions())
        await env.reset(task)
        save = find(await env.screen.look(), "Save")
        assert save is not None
        step = await env.step([Action("click", {"ref": save.ref})])
        assert step.done and step.reward == 0.0
        await env.aclose()


@pytest.mark.parametrize("name", ["counter", "fields", "choices", "checks"])
async def test_what_is_entered_and_not_saved_yet_earns_its_part(name: str, source: ScreenTasks) -> None:
    for task in family_tasks(name, train=4, test=0):
        env = ScreenEnv(source, EnvOptions())
        await env.reset(task)
        earned = []
        for move in FAMILIES[name].plan(int(str(task.metadata["seed"])), task.split).moves:
            earned.append((await env.step([action_of(await env.screen.look(), move)])).reward)
        assert all(one is not None and one > 0 for one in earned[:-1]) and len(earned) > 1
        assert earned[-1] == 0.0  # saving adds nothing to what it saves
        assert (await env.evaluate()).is_success
        await env.aclose()


async def test_steps_earn_what_they_bring_closer_to_the_goal(source: ScreenTasks) -> None:
    (task,) = [one for one in family_tasks("mail", train=20, test=0) if one.instruction.startswith("Star")][:1]
    env = ScreenEnv(source, EnvOptions())
    await env.reset(task)
    screen = env.screen
    earned = []
    for name in (task.instruction.split(" from ")[1].split(",")[0], "Star", "Inbox", "Log out"):
        view = await screen.look()
        node = find(view, name) or next(one for one in view.nodes if one.ref and _row_has(view.nodes, one.row, name))
        earned.append((await env.step([Action("click", {"ref": node.ref})])).reward)
    # 3 of 4 lists are right at the start; starring makes the fourth right
    assert earned == [0.0, 0.25, 0.0, 0.0]
    assert (await env.evaluate()).is_success
    await env.aclose()


def _row_has(nodes: object, row: int, name: str) -> bool:
    return bool(row) and any(one.row == row and name in one.name for one in nodes)  # type: ignore[attr-defined]


async def test_bad_actions_are_the_agents_and_end_nothing(pages: Pages) -> None:
    env = pages.env()
    await env.reset(
        pages.task(body='<button id="go">Go</button><input disabled><div id="over" style="display:none"></div>')
    )
    for action, reason in (
        (Action("click", {"ref": 99}), "there is no [99]"),
        (Action("click", {}), "needs `ref`"),
        (Action("run_script", {"code": "task.clicks = 1"}), "there is no tool"),
        (Action("type", {"ref": 1, "text": "x"}), "takes no text"),
        (Action("click", {"ref": 2}), "is disabled"),
        (Action("select", {"ref": 1, "value": "x"}), "not a select"),
        (Action("click_at", {"x": 9000, "y": 1}), "outside of the screen"),
        (Action("press", {"key": "F12"}), "no key"),
    ):
        after = await env.step([action, Action("click", {"ref": 1})])
        assert after.info.failure is Failure.AGENT and not after.done
        assert reason in after.observation.text, after.observation.text
    assert (await env.evaluate()).reward == 0.0  # what came after a refused action was not done
    assert (await env.step([])).info.failure is Failure.AGENT
    after = await env.step([Action("click", {"ref": 1}), Action("submit", {})])
    assert after.done and after.info.failure is None
    assert (await env.evaluate()).is_success
    await env.aclose()


async def test_what_covers_an_element_or_takes_it_away_is_said(pages: Pages) -> None:
    env = pages.env()
    body = '<button id="go">Go</button><p style="position:fixed;inset:0;background:#eee">wait</p>'
    await env.reset(pages.task(body=body))
    assert "covered" in (await env.step([Action("click", {"ref": 1})])).observation.text
    await env.reset(pages.task("setTimeout(() => button.remove(), 600);"))
    after: StepResult | None = None
    for _ in range(40):
        after = await env.step([Action("press", {"key": "Tab"})])
        if '"Go"' not in after.observation.text:
            break
    assert after is not None and "no [1]" in (await env.step([Action("click", {"ref": 1})])).observation.text
    await env.aclose()


FIELDS = """<input id="a" aria-label="Text" value="old"><input type="date" aria-label="Day">
<input type="range" min="0" max="9" aria-label="Loud"><select aria-label="Size"><option>Small<option>Large</select>
<div contenteditable aria-label="Note" style="min-height:20px">x</div>
<div style="height:2000px"></div><button id="go">Go</button>"""


async def test_each_kind_of_field_takes_its_value_by_real_events(pages: Pages) -> None:
    script = """const seen = {}; addEventListener("input", (event) => { const one = event.target;
      seen[one.getAttribute("aria-label")] = one.value === undefined ? one.textContent : one.value; });
      task.state = () => seen;"""
    env = pages.env()
    first = await env.reset(pages.task(script, body=FIELDS))
    assert "scroll down" in first.text and '"Go"' not in first.text
    texts = {1: "new", 2: "2026-03-14", 3: "7", 5: "a note"}
    await env.step([Action("type", {"ref": ref, "text": text}) for ref, text in texts.items()])
    after = await env.step([Action("select", {"ref": 4, "value": "large"})])
    state = await env.screen.judge()
    for name, value in {"Text": "new", "Day": "2026-03-14", "Loud": "7", "Size": "Large", "Note": "a note"}.items():
        assert f'{name} is "{value}"' in state.details
    bad = await env.step([Action("type", {"ref": 2, "text": "tomorrow"})])
    assert "does not take" in bad.observation.text
    for _ in range(8):
        after = await env.step([Action("scroll", {"direction": "down"})])
    assert '"Go"' in after.observation.text and "scroll up" in after.observation.text
    await env.aclose()


async def test_pixels_reach_what_elements_do_and_a_picture_is_given_when_asked_for(pages: Pages) -> None:
    env = pages.env(pictures=True)
    body = '<button id="go" style="position:absolute;left:100px;top:50px;width:80px;height:30px">Go</button>'
    first = await env.reset(pages.task(body=body))
    assert [part.kind for part in first.parts] == [PartKind.TEXT, PartKind.TREE, PartKind.IMAGE]
    assert first.parts[2].data.startswith(b"\x89PNG")
    assert int.from_bytes(first.parts[2].data[16:20], "big") == 640
    await env.step([Action("click_at", {"x": 300, "y": 300})])
    assert (await env.evaluate()).reward == 0.0
    await env.step([Action("click_at", {"x": 140, "y": 65})])
    assert (await env.evaluate()).is_success
    await env.aclose()


async def test_a_picture_for_the_record_is_taken_of_the_end_too_and_stands_in_no_text(pages: Pages) -> None:
    env = pages.env(records=True)
    first = await env.reset(pages.task(body='<button id="go">Go</button>'))
    assert [part.kind for part in first.parts] == [PartKind.TEXT, PartKind.TREE, PartKind.RECORD]
    assert picture_of(first).startswith(b"\x89PNG") and result_messages(AgentCall("", None), first)[0] == {
        "role": "user", "content": first.text
    }  # fmt: skip
    over = await env.step([Action("submit", {})])
    assert over.done and [part.kind for part in over.observation.parts] == [PartKind.TEXT, PartKind.RECORD]
    assert over.observation.text == "[the task is over]"
    await env.aclose()


async def test_a_page_cannot_change_how_it_is_seen(pages: Pages) -> None:
    script = """globalThis.screenKit = { look: () => ({ nodes: [] }) }; Array.prototype.map = () => [];
      Element.prototype.getAttribute = () => "forged"; JSON.stringify = () => "{}";"""
    env = pages.env()
    first = await env.reset(pages.task(script))
    assert '[1] button "Go"' in first.text
    await env.aclose()


async def test_an_attempt_is_judged_on_a_page_of_its_own(source: ScreenTasks) -> None:
    (task,) = family_tasks("counter", train=1, test=0)
    solved = await source.solve(task, Attempt())
    assert (await source.judge(task, Attempt())).reward == 0.0
    assert (await source.judge(task, solved)).is_success
    assert (await source.judge(task, solved)).is_success
    assert (await source.judge(task, Attempt(answer='[["click", {"ref": 77}]]'))).reward == 0.0


@pytest.mark.skipif(importlib.util.find_spec("miniwob") is None, reason="MiniWoB++ is not installed")
async def test_miniwob_pages_repeat_by_seed_and_give_their_raw_reward(source: ScreenTasks) -> None:
    env = ScreenEnv(source, EnvOptions())
    seen = []
    for seed in (3, 3, 4):
        first = await env.reset(miniwob.task_of("miniwob/click-button", seed, Split.TRAIN))
        assert first.text.startswith("Click on the ")
        seen.append(first.text)
    assert seen[0] == seen[1] != seen[2]
    name = seen[2].split('"')[1]
    button = find(await env.screen.look(), name, role="button")
    assert button is not None
    assert (await env.step([Action("click", {"ref": button.ref})])).done
    assert (await env.evaluate()).is_success
    await env.reset(miniwob.task_of("miniwob/click-button", 4, Split.TRAIN))
    wrong = next(one for one in (await env.screen.look()).nodes if one.role == "button" and one.name != name)
    assert (await env.step([Action("click", {"ref": wrong.ref})])).done
    assert (await env.evaluate()).reward == 0.0
    await env.aclose()


@pytest.mark.skipif(importlib.util.find_spec("miniwob") is None, reason="MiniWoB++ is not installed")
def test_miniwob_has_its_pages_and_test_seeds_of_their_own() -> None:
    assert len(miniwob.pages()) == 130
    train, test = (miniwob.task_of("miniwob/click-button", 3, split) for split in Split)
    assert train.metadata["seed"] != test.metadata["seed"]
    assert Path(str(train.metadata["page"])).name == "click-button"
