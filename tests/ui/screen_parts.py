"""An attempt on a real screen at a running server: each reply is held to the right call, each screen is sent."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

from page_parts import KEY, PageServer

from openclaw_rl.agents.actions import calls_of, first_messages, picture_of, result_messages
from openclaw_rl.agents.endpoint import PolicyEndpoint
from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.open import EnvOptions
from openclaw_rl.envs.screen.env import ScreenEnv
from openclaw_rl.envs.screen.tasks import ScreenTasks, family_tasks
from openclaw_rl.envs.tasks.source import Attempt

FAMILY = "form"


async def attempted(server: PageServer) -> str:
    """The id of an episode of some steps whose screens the server keeps."""
    source = ScreenTasks(FAMILY, family_tasks(FAMILY, train=1, test=0))
    env = ScreenEnv(source, EnvOptions(records=True, output_characters=1200))
    try:
        (task,) = source.tasks.values()
        seen = await env.reset(task)
        begun = server.call("POST", "/v1/rl/episodes", {"task": task.id, "environment": "screen"})
        name, messages, tools = str(begun["id"]), first_messages(seen), seen.tools
        async with PolicyEndpoint(server.url, KEY) as endpoint:
            for step, (tool, arguments) in enumerate(json.loads((await source.solve(task, Attempt())).answer)):
                body = _said(server, messages, _only(tool, arguments), name=name, step=step)
                assert await endpoint.send_picture(name, step, picture_of(seen)) == ""
                (call,) = calls_of(body, tools)
                assert call.action is not None, call.problem
                result = await env.step([call.action])
                seen, messages = result.observation, [*messages, body, *result_messages(call, result.observation)]
                if result.done:
                    break
            assert await endpoint.send_picture(name, step, picture_of(seen), is_after=True) == ""
        score = await env.evaluate()
        server.call("POST", f"/v1/rl/episodes/{name}/end", {"outcome": score.reward, "why": score.details})
        return name
    finally:
        await env.aclose()
        await source.aclose()


def _only(tool: str, arguments: dict[str, Json]) -> Tool:
    """A tool that can be called in one way."""
    fields: dict[str, Json] = {key: {"const": value} for key, value in arguments.items()}
    return Tool(tool, "Do it.", {"type": "object", "properties": fields, "required": [*fields]})


def _said(server: PageServer, messages: list[Json], tool: Tool, *, name: str, step: int) -> dict[str, Json]:
    """The model's reply, which the offer lets be this one call alone."""
    asked: Json = {
        "messages": messages,
        "tools": [tool.as_json()],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 120,
        "episode": {"id": name, "step": step, "observation": "screen"},
    }
    choices = server.call("POST", "/v1/chat/completions", asked)["choices"]
    assert isinstance(choices, list) and isinstance(choices[0], dict) and isinstance(choices[0]["message"], dict)
    return choices[0]["message"]


def screen_attempt(server: PageServer) -> str:
    """As `attempted`, in a thread: Playwright's loop runs in that of the tests."""
    with ThreadPoolExecutor(1) as alone:
        return alone.submit(asyncio.run, attempted(server)).result()
