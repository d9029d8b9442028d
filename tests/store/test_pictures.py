"""Screenshots of episodes on disk: kept whole, bounded, checked, and gone with the steps they belong to."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from forget_doubles import holds

from openclaw_rl.config import Config
from openclaw_rl.core.episode import Episode, EpisodeEnd, EpisodeStep
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.doctor.check import check_home
from openclaw_rl.errors import RequestError, StoreError
from openclaw_rl.owner.forget_offline import forget, preview, summary
from openclaw_rl.runtime.serving import DAY_S, retain
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.selection import ForgetTarget
from openclaw_rl.store.pictures import FOLDER, PictureName, png_problem
from openclaw_rl.testing.png import a_png
from openclaw_rl.testing.turns import a_turn

SECRET = "quince-anchor-velvet"


async def an_episode(store: Store, name: str, *, steps: int = 2, words: str = "") -> None:
    """An ended episode with a picture before each step and one after the last."""
    await store.episodes.begin(Episode(name, "ann", "task", 0.0))
    for index in range(steps):
        turn = a_turn(f"{name}.{index}", session=name, user="ann", parent=f"{name}.{index - 1}" if index else None)
        turn = replace(turn, at_s=float(index), step=EpisodeStep(name, index, "screen"))
        await store.add_turn(turn, chain=f"{name} {index}", seen_s=0.0)
        await store.pictures.keep(PictureName(name, index), a_png(index, words=words))
    await store.pictures.keep(PictureName(name, steps - 1, is_after=True), a_png(200, words=words))
    await store.episodes.end(name, EpisodeEnd(1.0), at_s=5.0)


def files(home: Path) -> int:
    return sum(path.is_file() for path in (home / FOLDER).rglob("*"))


async def test_a_picture_is_kept_for_its_owner_alone_outside_the_stores_file(store: Store, tmp_path: Path) -> None:
    await an_episode(store, "k:one", words=SECRET)
    assert await store.pictures.read(PictureName("k:one", 1)) == a_png(1, words=SECRET)
    assert await store.pictures.of("k:one") == {
        PictureName("k:one", 0), PictureName("k:one", 1), PictureName("k:one", 1, is_after=True)
    }  # fmt: skip
    assert (await store.pictures.read(PictureName("k:one", 0, is_after=True))) is None
    assert await store.pictures.of("k:two") == frozenset()
    held = holds(tmp_path, SECRET)
    assert len(held) == 3 and not any("store.db" in name for name in held)
    for path in (tmp_path / FOLDER).rglob("*.png"):
        assert path.stat().st_mode & 0o077 == 0
        assert "one" not in str(path.relative_to(tmp_path))  # names say nothing


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GIF89a", "does not begin as one"),
        (a_png()[:-5], "cut off"),
        (a_png()[:-12], "cut off"),
        (a_png() + b"x", "something after its end"),
        (a_png(width=9000, height=1), "9000 and 1 pixels"),
        (a_png().replace(b"IDAT", b"IDOT"), "damaged"),
    ],
)
async def test_what_is_no_whole_png_is_refused_and_leaves_nothing(
    store: Store, tmp_path: Path, data: bytes, said: str
) -> None:
    assert said in png_problem(data)
    await an_episode(store, "k:one", steps=1)
    with pytest.raises(RequestError, match="not a whole PNG"):
        await store.pictures.keep(PictureName("k:one", 0), data)
    assert await store.pictures.read(PictureName("k:one", 0)) == a_png(0)  # the one before stays
    with pytest.raises(RequestError, match="has taken no step 1"):
        await store.pictures.keep(PictureName("k:one", 1), a_png())
    with pytest.raises(RequestError, match="has taken no step 0"):
        await store.pictures.keep(PictureName("k:other", 0), a_png())
    assert files(tmp_path) == 2


async def test_the_oldest_go_when_there_are_too_many_bytes_and_the_newest_never_does(tmp_path: Path) -> None:
    size = len(a_png(words="x" * 10_000))
    store = await Store.open(tmp_path, picture_bytes=6 * size)
    await store.episodes.begin(Episode("k:one", "ann", "task", 0.0))
    for index in range(8):
        turn = replace(a_turn(f"t{index}", session="k:one"), step=EpisodeStep("k:one", index, "screen"))
        await store.add_turn(turn, chain=f"{index}")
        name = PictureName("k:one", index)
        await store.pictures.keep(name, a_png(words="x" * 10_000))
        os.utime(tmp_path / FOLDER / name.path, (index, index))
        assert files(tmp_path) <= 6
    assert sorted(name.step for name in await store.pictures.of("k:one")) == [2, 3, 4, 5, 6, 7]  # two made room for 6
    with pytest.raises(RequestError, match=f"Send at most {6 * size}"):
        await store.pictures.keep(PictureName("k:one", 0), a_png(words="x" * 70_000))
    await store.aclose()


async def test_with_room_for_none_none_is_kept(tmp_path: Path) -> None:
    store = await Store.open(tmp_path, picture_bytes=0)
    with pytest.raises(RequestError, match="keeps no pictures"):
        await store.pictures.keep(PictureName("k:one", 0), a_png())
    assert not (tmp_path / FOLDER).exists()
    await store.aclose()


@pytest.mark.parametrize(
    ("what", "left", "went"),
    [
        (ForgetTarget(episode="k:one"), 3, 3),
        (ForgetTarget(turn="k:one.1"), 4, 2),  # the first step stays, and what was seen before it
        (ForgetTarget(user="ann"), 0, 6),
    ],
)
async def test_what_is_forgotten_leaves_no_picture(tmp_path: Path, what: ForgetTarget, left: int, went: int) -> None:
    store = await Store.open(tmp_path)
    await an_episode(store, "k:one", words=SECRET)
    await an_episode(store, "k:two")
    await store.aclose()
    assert len(holds(tmp_path, SECRET)) == 3
    assert summary(await preview(tmp_path, what))["pictures"] == went
    certificate = await forget(Config(home=tmp_path), what, remake=False)
    assert (certificate.removed["pictures"], files(tmp_path)) == (went, left)
    assert len(holds(tmp_path, SECRET)) == (1 if what.turn else 0)
    store = await Store.open(tmp_path)
    with pytest.raises(RequestError, match="has taken no step"):
        await store.pictures.keep(PictureName("k:one", 1), a_png(words=SECRET))
    await store.aclose()
    assert len(holds(tmp_path, SECRET)) == (1 if what.turn else 0)


async def test_a_killed_forgetting_takes_the_pictures_when_it_is_finished(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    await an_episode(store, "k:one", words=SECRET)
    await store.aclose()
    folder = next((tmp_path / FOLDER).iterdir())
    (folder / "9.png.new").write_bytes(a_png(words=SECRET))  # cut off while it was written
    (tmp_path / FOLDER / "stray").mkdir()
    os.symlink(tmp_path.parent, tmp_path / FOLDER / "stray" / "0.png")
    with pytest.raises(StoreError, match="points outside"):  # as far as the first thing that cannot be removed
        await forget(Config(home=tmp_path), ForgetTarget(episode="k:one"), remake=False)
    (tmp_path / FOLDER / "stray" / "0.png").unlink()
    await forget(Config(home=tmp_path), ForgetTarget(before_s=-1.0), remake=False)
    assert holds(tmp_path, SECRET) == [] and files(tmp_path) == 0


async def test_what_is_too_old_goes_with_its_pictures(store: Store, tmp_path: Path) -> None:
    await an_episode(store, "k:one", words=SECRET)
    for index in range(2):
        assert await store.drop(f"k:one.{index}", DropReason.STALE)
    await store.end_session("k:one", why="done", at_s=6.0)
    assert await retain(store, 1.0, now_s=lambda: 9 * DAY_S) == 2
    assert files(tmp_path) == 0


async def test_a_picture_placed_beside_a_sweep_stays(store: Store) -> None:
    await store.episodes.begin(Episode("k:one", "ann", "task", 0.0))

    async def take(index: int) -> None:
        turn = replace(a_turn(f"t{index}", session="k:one"), step=EpisodeStep("k:one", index, "screen"))
        await store.add_turn(turn, chain=f"{index}")
        await store.pictures.keep(PictureName("k:one", index), a_png(index))

    swept = [store.pictures.sweep() for _ in range(60)]
    found = await asyncio.gather(*swept, *(take(index) for index in range(60)))
    assert found[:60] == [0] * 60
    assert len(await store.pictures.of("k:one")) == 60


async def test_check_finds_damaged_and_stray_pictures_and_puts_them_aside(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    await an_episode(store, "k:one")
    await store.aclose()
    assert check_home(tmp_path).is_sound
    folder = next((tmp_path / FOLDER).iterdir())
    (folder / "0.png").write_bytes(a_png()[:30])
    (folder / "7.png").write_bytes(a_png())
    found = check_home(tmp_path)
    assert sorted(item.what.split("/")[-1] for item in found.findings) == [
        "0.png is damaged: it is cut off", "7.png belongs to no step in the store"
    ]  # fmt: skip
    assert check_home(tmp_path, repair=True).is_sound and check_home(tmp_path).findings == ()
    assert files(tmp_path) == 2 and len([*(tmp_path / "aside").glob("*.png.*")]) == 2
