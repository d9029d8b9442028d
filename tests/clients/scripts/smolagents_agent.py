"""smolagents: an agent that calls tools, one that writes code, gone on with by `reset=False`."""

from __future__ import annotations

from contextlib import suppress

from PIL import Image
from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool
from talking import (
    API_KEY,
    BASE_URL,
    BOTH_CITIES,
    call,
    direct,
    note,
    note_image,
    play,
    say,
    slow,
    too_long,
    wait_quiet,
)
from talking import weather as looked_up

model = OpenAIModel(model_id="default", api_base=f"{BASE_URL}/v1", api_key=API_KEY, client_kwargs={"max_retries": 0})


@tool
def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: Its name.
    """
    return looked_up(city)


def answer(words: str) -> dict:
    """The call by which its agents end."""
    return call("final_answer", answer=words)


def code(text: str) -> str:
    """A reply of an agent that writes code."""
    return f"Thought: I do it.\n<code>\n{text}\n</code>"


def plain_code() -> None:
    agent = CodeAgent(tools=[], model=model, max_steps=4, verbosity_level=0)
    told = [
        ("ask", code("x = 3 + 4\nprint(x)"), code("final_answer('**7**')")),
        ("correction", code("final_answer('7')")),
    ]
    told.append(("more", code("1 / 0"), "no code at all", code("final_answer('13')")))
    texts = [str(agent.run(say(kind, *replies), reset=not at)) for at, (kind, *replies) in enumerate(told)]
    note("runs", texts == ["**7**", "7", "13"], texts)


def tools() -> None:
    agent = ToolCallingAgent(tools=[get_weather], model=model, max_steps=4, verbosity_level=0)
    told = [
        ("ask", call("get_weather", city="Oslo"), answer("Rain.")),
        ("more", call("get_weather", city="Atlantis"), answer("Nowhere.")),
    ]
    told += [("more", BOTH_CITIES, answer("Fog and snow.")), ("correction", answer("Six and minus one."))]
    texts = [str(agent.run(say(kind, *replies), reset=not at)) for at, (kind, *replies) in enumerate(told)]
    note("tools", texts == ["Rain.", "Nowhere.", "Fog and snow.", "Six and minus one."], texts)


def tools_code() -> None:
    agent = CodeAgent(tools=[get_weather], model=model, max_steps=4, verbosity_level=0)
    told = [("ask", code("print(get_weather('Oslo'))"), code("final_answer('Rain.')"))]
    told += [("more", code("print(get_weather('Atlantis'))"), code("final_answer('Nowhere.')"))]
    told.append(("correction", code("final_answer('There is none.')")))
    texts = [str(agent.run(say(kind, *replies), reset=not at)) for at, (kind, *replies) in enumerate(told)]
    note("tools", texts == ["Rain.", "Nowhere.", "There is none."], texts)


def streamed() -> None:
    agent = CodeAgent(tools=[], model=model, max_steps=3, verbosity_level=0, stream_outputs=True)
    for at, (kind, words) in enumerate((("ask", "seven"), ("correction", "Seven."))):
        steps = list(agent.run(say(kind, code(f"final_answer('{words}')")), stream=True, reset=not at))
        note("streams", len(steps) > 4, len(steps))


def planned() -> None:
    agent = ToolCallingAgent(tools=[get_weather], model=model, max_steps=4, verbosity_level=0, planning_interval=2)
    plan = {"kind": "plan", "where": "any", "has": ["You are a world expert at analyzing a situation"]}
    direct("errands", errands=[{**plan, "reply": "1. Look.\n2. Say it.\n<end_plan>"}])
    text = str(agent.run(say("ask", call("get_weather", city="Porto"), answer("Sun."))))
    again = str(agent.run(say("correction", answer("Sunny.")), reset=False))
    note("planning", (text, again) == ("Sun.", "Sunny."), [text, again])


def structured() -> None:
    agent = CodeAgent(tools=[], model=model, max_steps=2, verbosity_level=0, use_structured_outputs_internally=True)
    reply = '{"thought": "I know it.", "code": "final_answer(7)"}'
    found = agent.run(say("ask", reply))
    note("structured", found == 7, found)


def image() -> None:
    agent = CodeAgent(tools=[], model=model, max_steps=2, verbosity_level=0)
    text, red = say("look", code("final_answer('red')")), Image.new("RGB", (8, 8), "red")
    note_image(lambda: agent.run(text, images=[red]))


def overflow() -> None:
    agent = CodeAgent(tools=[], model=model, max_steps=2, verbosity_level=0)
    agent.run(say("ask", code("final_answer('Short.')")))
    too_long(lambda text: agent.run(text, reset=False), code("final_answer('Too long.')"))
    note("overflow", str(agent.run(say("correction", code("final_answer('Shorter.')")), reset=False)) == "Shorter.")


def cancelled() -> None:
    agent = CodeAgent(tools=[], model=model, max_steps=2, verbosity_level=0, stream_outputs=True)
    agent.run(say("ask", code("final_answer('First.')")))
    with slow():
        stream = agent.run(say("tell", "Once upon a time there was a lighthouse. " * 6), stream=True, reset=False)
        for at, _ in enumerate(stream):
            if at > 5:
                break
        with suppress(RuntimeError):  # it answers its being closed with one more step
            stream.close()
        wait_quiet()
    note("cancelled", str(agent.run(say("on", code("final_answer('Hello.')")), reset=False)) == "Hello.")


play(plain_code, tools, tools_code, streamed, planned, structured, image, overflow, cancelled)
