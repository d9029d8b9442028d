"""Every family of our own pages, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from openclaw_rl.envs.screen.families.family import PageFamily
from openclaw_rl.envs.screen.families.forms import FORMS
from openclaw_rl.envs.screen.families.lists import LISTS
from openclaw_rl.envs.screen.families.small import SMALL

FAMILIES: Mapping[str, PageFamily] = MappingProxyType({one.name: one for one in (*SMALL, *FORMS, *LISTS)})
