"""Runs real clients against a real server and writes the table: `run.py [NAME ...]`, all of them without a name.

Each client is installed, given a home and a server of its own, and taken through its conversations. What the
server received becomes a fixture; what it made of it, a row of build/clients/table.md. A client that breaks is a row
too. After that the client talks to `openclaw-rl serve` with the bundled model, unless SCRIPTED=1 is set. With AGAIN=1
nothing is run: what was noted the last time is labelled and judged again; AGAIN=bundled runs the last part alone.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fixtures
from installing import FOLDER, HERE, ROOT, clients, installed, node, release
from labels import labelled
from table import row_of, written

from benchmarks.http import KEY
from openclaw_rl.evals.server import free_port

CLIENT_S = 900.0  # in which a client has gone through all of it
START_S = 60.0  # in which a client has sent its request


class Place:
    """Where a client runs: its installation, a home and a project of its own, and the server's addresses."""

    def __init__(self, client: dict, folder: Path, ports: tuple[str, str], run: Path) -> None:
        self.client, self.folder = client, folder
        self.home, self.project = run / "home", run / "project"
        self.base_url, self.stage = (f"http://127.0.0.1:{port}" for port in ports)
        for place in (self.home, self.project, self.home / "tmp"):
            place.mkdir(parents=True, exist_ok=True)
        self.is_bundled = False
        self._make_project()

    def _make_project(self) -> None:
        """A small project of a person called Ada, under git, which some clients ask for."""
        (self.project / "README.md").write_text("# Shopping\n\nNotes about what to buy.\n", "utf-8")
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        for words in (("init", "-q", "-b", "main"), ("add", "."), (*who, "commit", "-q", "-m", "Begin")):
            subprocess.run(["git", *words], cwd=self.project, check=True, capture_output=True)
        (self.home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.com\n", "utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """For the client's processes: nothing of this machine's own settings, and no way out but loopback."""
        python, scripts = self.folder / "venv" / "bin", HERE / "scripts"
        return {
            "PATH": os.pathsep.join([str(python), str(node().parent), "/usr/local/bin", "/usr/bin", "/bin"]),
            "HOME": str(self.home),
            "TMPDIR": str(self.home / "tmp"),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(scripts),
            "NODE_PATH": str(self.folder / "node_modules"),
            "BASE_URL": self.base_url,
            "API_KEY": KEY,
            "STAGE": self.stage,
            **({"BUNDLED": "1"} if self.is_bundled else {}),
            "HTTPS_PROXY": "http://127.0.0.1:9",  # telemetry and updates end here
            "HTTP_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1,localhost",
            "DO_NOT_TRACK": "1",
            "NO_COLOR": "1",
        }

    def run(self, command: list[str], *, timeout_s: float = 180.0, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs one command of the client in its project."""
        running = subprocess.Popen(
            command,
            cwd=self.project,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = running.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # with all that it has started
            out, err = running.communicate()
            err += f"\nended after {timeout_s:g} s"
        return subprocess.CompletedProcess(command, running.returncode, out, err)

    @contextmanager
    def interrupted(
        self, command: list[str], after_s: float, started: Callable[[], bool], **more: str
    ) -> Iterator[None]:
        """Runs the command, and interrupts it as a person would, so long after an answer has begun."""
        running = subprocess.Popen(
            command,
            cwd=self.project,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        begin = time.monotonic()
        while not started() and time.monotonic() - begin < START_S:
            time.sleep(0.1)
        time.sleep(after_s)
        os.killpg(running.pid, signal.SIGINT)
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        yield


def main() -> None:
    """Runs the clients named, or all."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it, and so would clients
    known, again = clients(), os.environ.get("AGAIN", "")
    names = [name for name in sys.argv[1:] if name in known] or list(known)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        client, begin = known[name], time.monotonic()
        print(f"== {name}", file=sys.stderr, flush=True)
        try:
            kept = _bundled_note(name)
            noted = _noted(name) if again else _played(client)
            if not os.environ.get("SCRIPTED") and again in ("", "bundled"):
                noted["notes"] = [each for each in noted["notes"] if each["what"] != "bundled model"]
                noted["notes"].append(_with_the_bundled_model(client))
            elif kept is not None and kept not in noted["notes"]:
                noted["notes"].append(kept)
            _path(name).write_text(json.dumps(noted, ensure_ascii=False), "utf-8")
            labels = labelled(noted)
            row = row_of(client, release(client), noted, labels)
            head = {"client": name, "release": release(client), "format": 1}
            path = HERE / "fixtures" / f"{name}-{release(client)}.jsonl.gz"
            for old in path.parent.glob(f"{name}-[0-9]*.jsonl.gz"):
                old.unlink()
            fixtures.write(path, head, noted, labels, _places(name))
        except Exception as problem:  # the next client's turn
            traceback.print_exc()
            row = {"client": name, "release": release(client), "failed": str(problem)[-300:]}
        row["seconds"] = round(time.monotonic() - begin)
        (FOLDER / f"row-{name}.json").write_text(json.dumps(row, ensure_ascii=False, indent=1), "utf-8")
    rows = [json.loads(path.read_text("utf-8")) for name in known if (path := FOLDER / f"row-{name}.json").is_file()]
    (FOLDER / "table.md").write_text(written(rows), "utf-8")
    print(written(rows))


def _noted(name: str) -> dict:
    """What the last run noted, to be labelled and judged again."""
    return json.loads(_path(name).read_text("utf-8"))


def _bundled_note(name: str) -> dict | None:
    """What came of the last talk with the bundled model."""
    notes = _noted(name)["notes"] if _path(name).is_file() else []
    return next((note for note in notes if note["what"] == "bundled model"), None)


def _path(name: str) -> Path:
    return FOLDER / name / "run" / "noted.json"


def _played(client: dict) -> dict:
    """Takes a client through its conversations; gives what the stage noted."""
    folder, run = installed(client), FOLDER / client["name"] / "run"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    with _stage(client, run) as ports:
        _act(Place(client, folder, ports, run))
    return _noted(client["name"])


@contextmanager
def _stage(client: dict, run: Path) -> Iterator[tuple[str, str]]:
    """The ports of a scripted server and of its directions; what it noted is in `noted.json` afterwards."""
    ways = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), str(HERE)])}
    command = [sys.executable, str(HERE / "stage.py"), str(run / "server"), str(run / "noted.json"), client["name"]]
    with (run / "stage.log").open("w") as log:
        stage = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=ways
        )
        assert stage.stdout is not None and stage.stdin is not None
        try:
            ports = stage.stdout.readline().split()
            if len(ports) != 2:
                raise RuntimeError(f"the stage did not come up: {(run / 'stage.log').read_text()[-1000:]}")
            yield ports[0], ports[1]
        finally:
            stage.stdin.close()
            stage.wait(60)


def _with_the_bundled_model(client: dict) -> dict:
    """A plain conversation with `openclaw-rl serve` as it is installed, the bundled model answering."""
    folder, run = installed(client), FOLDER / client["name"] / "run-bundled"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    port = str(free_port())
    home = run / "server-bundled"
    command = [sys.executable, "-m", "openclaw_rl", "serve", "--home", str(home), "--port", port, "--api-key", KEY]
    ways = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OPENCLAW_RL_SERVE_ANY_MODEL_NAME": "1"}
    with (run / "serve.log").open("w") as log, _stage(client, run) as ports:
        serve = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ways)
        try:
            _wait_until_up(f"http://127.0.0.1:{port}/healthz", serve)
            place = Place(client, folder, (port, ports[1]), run)
            place.is_bundled = True
            _act(place)
            asked = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/rl/turns?limit=20", headers={"authorization": f"Bearer {KEY}"}
            )
            with urllib.request.urlopen(asked, timeout=30) as answer:
                turns = json.load(answer)
        finally:
            serve.terminate()
            serve.wait(60)
    count = len(turns.get("turns") or turns.get("data") or [])
    return {"what": "bundled model", "good": count >= 2, "detail": f"{count} turns answered"}


def _wait_until_up(url: str, serve: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and serve.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.3)
    raise RuntimeError("the server with the bundled model did not come up")


def _act(place: Place) -> None:
    script = place.client.get("script")
    if script is None:
        os.environ["STAGE"] = place.stage
        sys.path.insert(0, str(HERE / "scripts"))
        talking = importlib.import_module("talking")
        talking._STAGE, talking.BUNDLED = place.stage, place.is_bundled
        driver = importlib.import_module(f"drivers.{place.client['name'].replace('-', '_')}")
        driver.drive(place)
        return
    program = str(node()) if script.endswith(".mjs") else str(place.folder / "venv" / "bin" / "python")
    source = HERE / "scripts" / script
    if script.endswith(".mjs"):  # modules are looked up from where a file lies
        for each in (source, HERE / "scripts" / "talking.mjs"):
            (place.folder / each.name).write_text(each.read_text("utf-8"), "utf-8")
        source = place.folder / source.name
    done = place.run([program, str(source)], timeout_s=CLIENT_S)
    (place.home.parent / "client.log").write_text(done.stdout + done.stderr, "utf-8")
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-800:])


def _places(name: str) -> dict[str, str]:
    run = FOLDER / name / "run"
    return {
        str(run / "project"): "/home/ada/project",
        str(run / "home"): "/home/ada",
        str(run): "/home/ada",
        str(FOLDER / name): "/opt/client",
        str(ROOT): "/opt",
        KEY: "key",
    }


if __name__ == "__main__":
    main()
