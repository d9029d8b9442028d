"""The feed for a trainer elsewhere, over real HTTP: clients that die at each stage, come late or send nonsense."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from safetensors.numpy import save_file
from serve_doubles import serving

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, StepReport, digest_of_folder
from openclaw_rl.core.message import Json
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import TrainerError
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.store.db import Store
from openclaw_rl.testing.clock import Clock
from openclaw_rl.trainers.external.trainer import ExternalTrainer
from openclaw_rl.trainers.settings import TrainerSettings

SETTINGS = TrainerSettings(kind="external", rank=2, alpha=4.0, lease_s=100.0)
LAYER = "model.layers.0.mlp.up_proj"
ONE = PolicyVersion("shared", 1)
SAMPLE = Sample(
    turn="t1", session="s", user="ann", prompt=(1, 2), response=(3, 4), logp=(-0.5, -0.25), mask=(True, False),
    version=BASE, score=-1.0, hints=(HintPrompt("Be brief.", (1, 9, 2)),),
)  # fmt: skip


@dataclass
class Feed:
    """A client of the feed, the trainer behind it, and the step under way."""

    http: aiohttp.ClientSession
    trainer: ExternalTrainer
    folder: Path
    clock: Clock
    steps: list[asyncio.Task[StepReport]] = field(default_factory=list)

    def begin(self, *, resume: Path | None = None) -> asyncio.Task[StepReport]:
        self.steps.append(asyncio.create_task(self.trainer.step([SAMPLE], resume=resume)))
        return self.steps[-1]

    async def call(self, path: str, body: Json = None, *, data: bytes | None = None) -> tuple[int, dict[str, Json]]:
        sent = {"data": data} if data is not None else {"json": {} if body is None else body}
        async with self.http.post(f"/v1/rl/training/leases{path}", **sent) as answer:  # type: ignore[arg-type]
            return answer.status, {} if answer.status == 204 else await answer.json()

    async def lease(self) -> str:
        status, body = await self.call("", {"wait_s": 5})
        assert status == 200, body
        return str(body["lease"])

    async def send(self, lease: str, folder: Path, *, piece: int = 1 << 20) -> str:
        for name in (CONFIG, WEIGHTS):
            data = (folder / name).read_bytes()
            for at in range(0, len(data), piece):
                status, body = await self.call(f"/{lease}/files/{name}?offset={at}", data=data[at : at + piece])
                assert status == 200, body
        return digest_of_folder(folder)

    async def done(self, lease: str, digest: str, **metrics: float) -> tuple[int, dict[str, Json]]:
        return await self.call(f"/{lease}/done", {"digest": digest, "metrics": metrics})


def adapter(
    folder: Path, *, layer: str = LAYER, columns: int = 4, fill: float = 0.5, rank: int = 2, **config: Json
) -> Path:
    folder.mkdir(parents=True)
    name = f"base_model.model.{layer}"
    weights = {
        f"{name}.lora_A.weight": np.full((rank, columns), fill, np.float32),
        f"{name}.lora_B.weight": np.ones((6, rank), np.float32),
    }
    save_file(weights, folder / WEIGHTS)
    body = {"peft_type": "LORA", "r": rank, "lora_alpha": 4, "target_modules": ["up_proj"], **config}
    (folder / CONFIG).write_text(json.dumps(body))
    return folder


@pytest.fixture
async def feed(renderer: ChatRenderer, store: Store, tmp_path: Path) -> AsyncIterator[Feed]:
    async with feeding(renderer, store, tmp_path) as made:
        yield made


@asynccontextmanager
async def feeding(renderer: ChatRenderer, store: Store, folder: Path) -> AsyncIterator[Feed]:
    model, clock = folder / "model", Clock(0.0)
    model.mkdir(exist_ok=True)
    save_file({f"{LAYER}.weight": np.zeros((6, 4), np.float32)}, model / "model.safetensors")
    trainer = ExternalTrainer(model, SETTINGS, folder / "received", clock)

    def change(parts: ServeParts) -> ServeParts:
        return replace(parts, training=trainer)

    async with serving(renderer, store, change=change) as server:
        headers = {"Authorization": "Bearer secret"}
        async with aiohttp.ClientSession(server.url, headers=headers) as http:
            made = Feed(http, trainer, folder, clock)
            yield made
            for step in made.steps:
                step.cancel()
                with suppress(asyncio.CancelledError, TrainerError):
                    await step
            await trainer.aclose()


async def test_a_batch_is_leased_trained_and_written_once(feed: Feed) -> None:
    assert await feed.call("") == (204, {})
    step, made = feed.begin(), adapter(feed.folder / "made")
    status, batch = await feed.call("", {"wait_s": 5})
    samples = batch["samples"]
    assert status == 200 and isinstance(samples, list) and isinstance(samples[0], dict)
    assert batch["start"] is None and batch["adapter"] == {"rank": 2, "alpha": 4.0, "targets": "all-linear"}
    held = {name: samples[0][name] for name in ("turn", "prompt", "response", "logp", "mask", "version", "score")}
    assert held == {
        "turn": "t1", "prompt": [1, 2], "response": [3, 4], "logp": [-0.5, -0.25], "mask": [True, False],
        "version": "shared.0", "score": -1.0,
    }  # fmt: skip
    assert samples[0]["hints"] == [{"text": "Be brief.", "tokens": [1, 9, 2]}]
    assert await feed.call("") == (204, {})  # it is leased to one alone
    lease = str(batch["lease"])
    digest = await feed.send(lease, made, piece=50)
    assert (await feed.done(lease, digest, loss=0.5, seconds=3.0))[1]["repeated"] is False
    assert await step == StepReport(True, {"loss": 0.5})
    assert (await feed.done(lease, digest))[1]["repeated"] is True  # its answer was not heard
    assert (await feed.done(lease, "0" * 64))[0] == 409
    assert (await feed.call(f"/{lease}/extend"))[0] == 409
    written = await feed.trainer.export(feed.folder / "version", ONE)
    assert written.digest == digest == digest_of_folder(feed.folder / "version")


async def test_a_client_that_dies_in_the_middle_leaves_the_batch_to_the_next(feed: Feed) -> None:
    step, made = feed.begin(), adapter(feed.folder / "made")
    other = adapter(feed.folder / "other", fill=0.25)
    first = await feed.lease()
    await feed.send(first, other)
    feed.clock.advance(60)
    assert (await feed.call(f"/{first}/extend"))[1]["left_s"] == 100.0
    feed.clock.advance(60)
    assert (await feed.call(""))[0] == 204  # 120 s after the lease: it was extended
    feed.clock.advance(41)
    second = await feed.lease()
    assert second != first
    status, body = await feed.done(first, digest_of_folder(other))
    assert status == 410 and "has ended" in str(body["error"])
    for path in ("extend", "give_up"):
        assert (await feed.call(f"/{first}/{path}", {"why": "late"}))[0] == 410
    assert (await feed.call(f"/{first}/files/{CONFIG}", data=b"x"))[0] == 410
    digest = await feed.send(second, made)
    assert (await feed.done(second, digest))[0] == 200
    assert (await step).took_step
    assert (await feed.trainer.export(feed.folder / "version", ONE)).digest == digest


async def test_an_ended_lease_that_nobody_took_over_is_late_too(feed: Feed) -> None:
    step, made = feed.begin(), adapter(feed.folder / "made")
    lease = await feed.lease()
    digest = await feed.send(lease, made)
    feed.clock.advance(101)
    assert (await feed.done(lease, digest))[0] == 410 and not step.done()


async def test_after_a_restart_the_batch_comes_under_another_lease(feed: Feed) -> None:
    step, made = feed.begin(), adapter(feed.folder / "made")
    old = await feed.lease()
    digest = await feed.send(old, made)
    step.cancel()  # as the server's end does
    with suppress(asyncio.CancelledError):
        await step
    assert (await feed.done(old, digest))[0] == 410
    again = feed.begin()
    lease = await feed.lease()
    assert (await feed.done(lease, digest))[0] == 422  # what was sent under the old one is gone
    await feed.send(lease, made)
    assert (await feed.done(lease, digest))[0] == 200
    assert (await again).took_step


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"layer": "model.layers.0.mlp.gate"}, "not a linear layer of this model"),
        ({"columns": 8}, "has the shape"),
        ({"fill": float("nan")}, "not finite"),
        ({"fill": float("inf")}, "not finite"),
        ({"rank": 3}, "it has r 3"),
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "IA3"}, "not that of a LoRA adapter"),
    ],
)
async def test_an_adapter_that_does_not_fit_is_refused_and_may_be_sent_again(
    feed: Feed, how: dict[str, Json], words: str
) -> None:
    step = feed.begin()
    bad, good = adapter(feed.folder / "bad", **how), adapter(feed.folder / "good")  # type: ignore[arg-type]
    lease = await feed.lease()
    status, body = await feed.done(lease, await feed.send(lease, bad))
    assert status == 422 and words in str(body["error"]) and not step.done()
    assert (await feed.done(lease, await feed.send(lease, good)))[0] == 200
    assert (await step).took_step


async def test_a_file_cut_short_or_changed_on_the_way_is_refused(feed: Feed) -> None:
    feed.begin()
    made, lease = adapter(feed.folder / "made"), await feed.lease()
    digest = await feed.send(lease, made)
    path, data = f"/{lease}/files/{WEIGHTS}", (made / WEIGHTS).read_bytes()
    assert (await feed.done(lease, hashlib.sha256(b"").hexdigest()))[0] == 422
    assert (await feed.call(f"{path}?offset={len(data) + 5}", data=b"x"))[0] == 409
    assert (await feed.call(f"{path}?offset={len(data) - 5}", data=data[-5:]))[0] == 200  # sent again
    assert (await feed.call(path, data=data[:-5]))[1]["bytes"] == len(data) - 5
    (made / WEIGHTS).write_bytes(data[:-5])
    status, body = await feed.done(lease, digest_of_folder(made))
    assert status == 422 and "cut short" in str(body["error"])
    (made / WEIGHTS).write_bytes(data)
    await feed.send(lease, made)
    assert (await feed.done(lease, digest))[0] == 200


async def test_a_step_begins_from_the_adapter_that_is_served(feed: Feed) -> None:
    start = adapter(feed.folder / "shared.1")
    step = feed.begin(resume=start)
    _, batch = await feed.call("", {"wait_s": 5})
    assert batch["start"] == {"version": "shared.1", "files": [CONFIG, WEIGHTS]}
    lease = str(batch["lease"])
    for name in (CONFIG, WEIGHTS):
        async with feed.http.get(f"/v1/rl/training/leases/{lease}/files/{name}") as answer:
            assert (answer.status, await answer.read()) == (200, (start / name).read_bytes())
    async with feed.http.get(f"/v1/rl/training/leases/{lease}/files/manifest.json") as answer:
        assert answer.status == 404
    assert (await feed.done(lease, await feed.send(lease, start)))[0] == 200
    assert (await step).took_step


async def test_a_client_that_gives_up_fails_the_step_in_its_own_words(feed: Feed) -> None:
    step, lease = feed.begin(), await feed.lease()
    assert (await feed.call(f"/{lease}/give_up", {"why": "out of memory"}))[0] == 200
    with pytest.raises(TrainerError, match="out of memory"):
        await step
    assert (await feed.call(f"/{lease}/extend"))[0] == 410


async def test_a_server_that_trains_by_itself_says_so(renderer: ChatRenderer, store: Store) -> None:
    async with serving(renderer, store) as server, aiohttp.ClientSession(server.url) as http:
        async with http.get("/v1/rl/training", headers={"Authorization": "Bearer secret"}) as answer:
            assert answer.status == 409 and "trainer.kind" in str(await answer.json())
        async with http.get("/v1/rl/training") as answer:
            assert answer.status == 401
