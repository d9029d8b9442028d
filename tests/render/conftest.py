"""Renderers over templates of several manners."""

from __future__ import annotations

import pytest
from render_models import REWRITING, SHAPELESS, bundled_source, renderer_of

from openclaw_rl.render.renderer import ChatRenderer


@pytest.fixture
def renderer() -> ChatRenderer:
    return renderer_of(bundled_source())


@pytest.fixture
def rewriting() -> ChatRenderer:
    return renderer_of(REWRITING)


@pytest.fixture
def shapeless() -> ChatRenderer:
    return renderer_of(SHAPELESS)
