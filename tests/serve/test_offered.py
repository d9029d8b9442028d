"""Equal bytes give the very same tools, other bytes others; what is left out is left out each time."""

from __future__ import annotations

import msgspec

from openclaw_rl.serve.apis.chat.wire import ChatBody, ToolCache, fields_of, parsed

BODY = b'{"messages":[{"role":"user","content":"a"}],"tools":[{"function":{"name":"%b","parameters":{"a":1}}%b}]}'


def _asked(name: bytes, rest: bytes = b"") -> tuple[ChatBody, msgspec.Raw]:
    raw, fields = fields_of(BODY % (name, rest))
    return parsed(raw, ChatBody), fields["tools"]


def test_tools_of_equal_bytes_are_the_same_object_and_of_others_are_not() -> None:
    offered = ToolCache()
    found = []
    for name in (b"read", b"read", b"write"):
        body, raw = _asked(name)
        assert body.tools is not None
        found.append(offered.tools(body.tools, raw))
    assert found[0] is found[1]
    assert [each[0].name for each in found] == ["read", "read", "write"]
    assert found[0][0].parameters == {"a": 1}


def test_a_kind_that_others_would_run_is_left_out_again() -> None:
    offered = ToolCache()
    for _ in range(2):
        body, raw = _asked(b"read", b',"type":"computer"')
        assert body.tools is not None
        assert offered.tools(body.tools, raw) == ()
