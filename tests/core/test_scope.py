"""Scopes are named so that no two owners share one, on any disk and in any header."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.core.scope import LONGEST, Owner, Scopes, own_scope, owner_of, scope_of, trained_scopes
from openclaw_rl.core.version import PolicyVersion, parse_version


def test_a_scope_reads_like_its_owner() -> None:
    assert scope_of(Owner.USER, "ann") == "user-ann"
    assert scope_of(Owner.USER, "Ann.B") == "user-=41nn=2E=42"
    assert scope_of(Owner.AGENT, "night shift") == "agent-night=20shift"
    assert scope_of(Owner.USER, "é/=") == "user-=C3=A9=2F=3D"


@settings(deadline=None)
@given(st.text(min_size=1, max_size=10), st.sampled_from(Owner))
def test_a_scope_tells_its_owner_again_and_can_name_a_version(name: str, owner: Owner) -> None:
    scope = scope_of(owner, name)
    assert scope is not None and scope.isascii() and scope == scope.strip() and "/" not in scope and "." not in scope
    assert owner_of(scope) == (owner, name)
    assert parse_version(str(PolicyVersion(scope, 7))) == PolicyVersion(scope, 7)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=10), st.text(min_size=1, max_size=10))
def test_different_names_differ_even_where_case_does_not_count(one: str, other: str) -> None:
    left, right = scope_of(Owner.USER, one), scope_of(Owner.USER, other)
    assert left is not None and right is not None
    assert (left.casefold() == right.casefold()) == (one == other)


def test_who_cannot_be_called_anything_has_no_scope() -> None:
    assert scope_of(Owner.USER, "") is None
    assert scope_of(Owner.USER, "a" * (LONGEST - 4)) is None
    assert owner_of("shared") is None and owner_of("ann") is None


@pytest.mark.parametrize(
    ("scopes", "own", "trained"),
    [
        (Scopes.SHARED, None, ("shared",)),
        (Scopes.USER, "user-ann", ("user-ann",)),
        (Scopes.AGENT, "agent-clerk", ("agent-clerk",)),
        (Scopes.SHARED_USER, "user-ann", ("shared", "user-ann")),
        (Scopes.SHARED_AGENT, "agent-clerk", ("shared", "agent-clerk")),
    ],
)
def test_the_setting_says_who_is_served_by_what_and_what_a_turn_trains(
    scopes: Scopes, own: str | None, trained: tuple[str, ...]
) -> None:
    assert own_scope(scopes, user="ann", agent="clerk") == own
    assert trained_scopes(scopes, user="ann", agent="clerk") == trained


def test_an_agent_without_a_name_is_everybodys() -> None:
    assert own_scope(Scopes.AGENT, user="ann", agent="default") is None
    assert trained_scopes(Scopes.AGENT, user="ann", agent="default") == ("shared",)
