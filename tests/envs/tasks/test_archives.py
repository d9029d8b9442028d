"""Archives from elsewhere are unpacked below their place or not at all, on every Python that is supported."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from openclaw_rl.envs.box.archive import ArchiveError, unpack, unpack_foreign


def archive_of(path: Path, *members: tarfile.TarInfo) -> Path:
    """An archive of empty members."""
    with tarfile.open(path, "w") as file:
        for member in members:
            file.addfile(member, io.BytesIO())
    return path


def link(name: str, target: str) -> tarfile.TarInfo:
    """A symbolic link."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


def device() -> tarfile.TarInfo:
    """A device, as /dev/null is."""
    member = tarfile.TarInfo("null")
    member.type, member.devmajor, member.devminor = tarfile.CHRTYPE, 1, 3
    return member


@pytest.mark.parametrize(
    "members",
    [(tarfile.TarInfo("../out"),), (link("way", "../.."), tarfile.TarInfo("way/out")), (device(),)],
    ids=["above", "through a link", "a device"],
)
def test_what_could_harm_is_refused(tmp_path: Path, members: tuple[tarfile.TarInfo, ...]) -> None:
    archive = archive_of(tmp_path / "a.tar", *members)
    place = tmp_path / "deep" / "place"
    place.mkdir(parents=True)
    with pytest.raises(ArchiveError):
        unpack_foreign(archive, place)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.tar", "deep", "place"]


def test_files_folders_and_links_within_are_unpacked(tmp_path: Path) -> None:
    unpack_foreign(archive_of(tmp_path / "a.tar", tarfile.TarInfo("file"), link("same", "file")), tmp_path / "place")
    assert (tmp_path / "place" / "same").resolve() == (tmp_path / "place" / "file").resolve()


def test_of_a_boxs_archive_links_are_left_out_and_a_path_above_is_refused(tmp_path: Path) -> None:
    with archive_of(tmp_path / "a.tar", link("way", "/etc"), tarfile.TarInfo("kept")).open("rb") as file:
        unpack(file, tmp_path / "place")
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["kept"]
    with archive_of(tmp_path / "b.tar", tarfile.TarInfo("../out")).open("rb") as file, pytest.raises(ArchiveError):
        unpack(file, tmp_path / "place")
