"""Where a server may listen, and that nobody else reads its files."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from openclaw_rl.errors import ConfigError
from openclaw_rl.home.exposure import check_exposure, close_folder, is_loopback, tls_of
from openclaw_rl.serve.settings import ServeSettings


@pytest.mark.parametrize(
    ("host", "answer"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True)]
    + [(host, False) for host in ("0.0.0.0", "::", "192.168.1.2", "example.com", "", "localhost.example.com")],
)
def test_only_this_machine_reaches_loopback(host: str, answer: bool) -> None:
    assert is_loopback(host) is answer


def test_a_public_address_needs_tls_or_an_explicit_word() -> None:
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0 can be reached from other machines") as problem:
        check_exposure(ServeSettings(host="0.0.0.0", api_key="k"))
    assert "--tls-cert" in problem.value.fix and "--plain-public" in problem.value.fix
    check_exposure(ServeSettings(host="127.0.0.1"))
    check_exposure(ServeSettings(host="0.0.0.0", plain_public=True))
    check_exposure(ServeSettings(host="0.0.0.0", tls_cert="c.pem", tls_key="k.pem"))


def test_half_a_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match="belong together"):
        ServeSettings(tls_cert="c.pem")


def test_a_certificate_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("nothing", "utf-8")
    with pytest.raises(ConfigError, match="cannot be used"):
        tls_of(ServeSettings(tls_cert=str(tmp_path / "c.pem"), tls_key=str(tmp_path / "c.pem")))
    assert tls_of(ServeSettings()) is None


def test_files_that_others_could_read_are_closed_and_links_left_alone(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / "versions" / "1").mkdir(parents=True)
    open_file, script, mine = home / "store.db", home / "versions" / "1" / "run", home / "api_key"
    for path, mode in ((open_file, 0o644), (script, 0o755), (mine, 0o600), (elsewhere, 0o644)):
        path.touch()
        path.chmod(mode)
    home.chmod(0o755)
    (home / "link").symlink_to(elsewhere)
    assert close_folder(home) == []
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, open_file, script, mine, elsewhere)}
    assert modes == {"home": 0o700, "store.db": 0o600, "run": 0o700, "api_key": 0o600, "elsewhere": 0o644}


def test_a_folder_that_is_not_there_yet_is_no_trouble(tmp_path: Path) -> None:
    assert close_folder(tmp_path / "none") == []


def test_a_certificate_and_its_key_make_a_server_that_speaks_tls(tmp_path: Path) -> None:
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "1",
    ]
    try:
        subprocess.run(
            [*made, "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert)],
            check=True,
            capture_output=True,
            env={"PATH": os.environ["PATH"]},
        )
    except FileNotFoundError:
        pytest.skip("openssl is not here to make a certificate")
    assert tls_of(ServeSettings(tls_cert=str(cert), tls_key=str(key))) is not None
