"""Equal bytes give the very same tools, other bytes others; what is refused is refused each time."""

from __future__ import annotations

import msgspec
import pytest

from openclaw_rl.errors import RequestError
from openclaw_rl.serve.offered import Offered
from openclaw_rl.serve.wire import ChatBody, fields_of, parsed

BODY = b'{"messages":[{"role":"user","content":"a"}],"tools":[{"function":{"name":"%b","parameters":{"a":1}}%b}]}'


def _asked(name: bytes, rest: bytes = b"") -> tuple[ChatBody, msgspec.Raw]:
    raw, fields = fields_of(BODY % (name, rest))
    return parsed(raw, ChatBody), fields["tools"]


def test_tools_of_equal_bytes_are_the_same_object_and_of_others_are_not() -> None:
    offered = Offered()
    found = []
    for name in (b"read", b"read", b"write"):
        body, raw = _asked(name)
        assert body.tools is not None
        found.append(offered.tools(body.tools, raw))
    assert found[0] is found[1]
    assert [each[0].name for each in found] == ["read", "read", "write"]
    assert found[0][0].parameters == {"a": 1}


def test_a_kind_that_is_not_known_is_refused_again() -> None:
    offered = Offered()
    for _ in range(2):
        body, raw = _asked(b"read", b',"type":"computer"')
        assert body.tools is not None
        with pytest.raises(RequestError, match="computer"):
            offered.tools(body.tools, raw)
