"""The product's own server in the process of a benchmark or a test, around an engine that whoever starts it brings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from benchmarks.http import KEY, bundled_model
from openclaw_rl.collect.stage import Collect
from openclaw_rl.core.message import Json
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.sampling import Grammar
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines.local.grammars import Grammars
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.serve.app import build_app, runner_of
from openclaw_rl.serve.door.auth import Keys
from openclaw_rl.serve.parts import Control, ServeParts
from openclaw_rl.serve.settings import ServeSettings
from openclaw_rl.store.db import Store
from openclaw_rl.testing.listening import listening

CONTEXT = 1_000_000  # tokens: room enough for whatever is said


def parts_around(store: Store, renderer: ChatRenderer, engine: Engine, collect: Collect) -> ServeParts:
    """The product's server over these, with one owner's key; nobody learns, and no version is put back."""

    async def status() -> Mapping[str, Json]:
        return {}

    async def rollback(version: PolicyVersion) -> None:
        raise NotImplementedError

    return ServeParts(
        engine=engine,
        renderer=renderer,
        collector=collect,
        store=store,
        control=Control(store.add_feedback, collect.done, status, rollback, collect.session_name),
        current=lambda user: BASE,
        models=("default",),
        context_length=CONTEXT,
        eos_ids=renderer.template.eos_ids(),
        keys=Keys({"owner": KEY}),
    )


def open_to_all(parts: ServeParts) -> ServeParts:
    """The same for requests without a key, whatever model they name."""
    return replace(parts, keys=Keys({}), settings=ServeSettings(any_model_name=True))


def served(parts: ServeParts) -> AbstractAsyncContextManager[str]:
    """The address of the server while the context lasts."""
    return listening(runner_of(build_app(parts)))


def grammar_check(renderer: ChatRenderer) -> Callable[[Grammar], Awaitable[None]]:
    """Looks at grammars as the local engine does, for engines that take any; the renderer is the bundled model's."""
    template, model = renderer.template, bundled_model()
    assert model is not None
    grammars = Grammars(model / "tokenizer.json", template.tokenizer.get_vocab_size(), template.eos_ids()[0])

    async def check(grammar: Grammar) -> None:
        await asyncio.to_thread(grammars.compile, grammar)

    return check
