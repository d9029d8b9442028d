"""A tool's JSON text is made once, and is what it would be if it were made anew."""

from __future__ import annotations

import json

import pytest
from render_models import renderer_of

from openclaw_rl.core.message import Role, Tool, message
from openclaw_rl.render.held import CachedJson, KnownTools

READ = Tool("read", "Reads <b>ünd</b> more.", {"type": "object", "properties": {"b": {"type": "string"}, "a": {}}})
FUNCTION = READ.as_json()["function"]
MANNERS = {
    "{{ tool | tojson }}": json.dumps(READ.as_json(), ensure_ascii=False),
    "{{ tool.function | tojson }}": json.dumps(FUNCTION, ensure_ascii=False),
    "{{ tool.function | tojson(indent=4) }}": json.dumps(FUNCTION, ensure_ascii=False, indent=4),
    "{{ tool.function | tojson(ensure_ascii=true) }}": json.dumps(FUNCTION),
    "{{ tool.function.parameters | tojson(sort_keys=true, separators=(',', ':')) }}": json.dumps(
        dict(READ.parameters), sort_keys=True, separators=(",", ":")
    ),
    "{{ tool.function.parameters.properties | tojson }}": json.dumps(READ.parameters["properties"]),
}


@pytest.mark.parametrize("manner", MANNERS)
def test_a_template_reads_the_same_of_tools_it_has_seen_and_of_new_ones(manner: str) -> None:
    source = "{% for message in messages %}{{ message.content }}{% endfor %}{% for tool in tools %}%s{% endfor %}"
    template = renderer_of(source.replace("%s", manner)).template
    tools = (READ,)
    for each in (tools, tools, [READ]):
        assert template.text([message(Role.USER, "a")], each, generation_prompt=False) == "a" + MANNERS[manner]


def test_only_the_very_same_tools_are_known_again_and_only_where_they_were_written_as_json() -> None:
    known, tools = KnownTools(), (READ,)
    known.keep(tools, known.told(tools))
    assert known.told(tools) is not known.told(tools)  # nothing was written
    told = known.told(tools)
    assert isinstance(told[0], CachedJson)
    assert told[0].text(False, None, None, False) is told[0].text(False, None, None, False)
    assert told[0].text(True, None, None, False) != told[0].text(False, None, None, False)
    known.keep(tools, told)
    assert known.told(tools) is told
    assert known.told((READ,)) is not told
    assert known.told([READ]) == [READ.as_json()]


def test_what_is_remembered_of_tools_is_bounded() -> None:
    known = KnownTools()
    first = (READ,)
    for at in range(65):
        tools = first if not at else (Tool(f"t{at}", "", {}),)
        told = known.told(tools)
        assert isinstance(told[0], CachedJson)
        told[0].text(False, None, None, False)
        known.keep(tools, told)
        if not at:
            kept = told
    assert known.told(first) is not kept  # 64 came behind it
