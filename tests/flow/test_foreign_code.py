"""What a person can name to the program, or finds in its folder, is never run: no module of a model's, no pickle."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.config import Config
from openclaw_rl.core.adapter import WEIGHTS
from openclaw_rl.core.manifest import version_folder
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.doctor.install import installation_findings
from openclaw_rl.errors import AdapterError, ModelError
from openclaw_rl.publish.gate import Gate
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.stage import PublishStage
from openclaw_rl.publish.swap import ServedVersions, rollback
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.store.db import Store
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.folders import lived_in
from openclaw_rl.testing.foreign import trapped, was_left
from openclaw_rl.tiny.world import bundled_model
from openclaw_rl.trainers import checkpoint
from openclaw_rl.trainers.model import load_frozen
from openclaw_rl.trainers.settings import TrainerSettings

TWO = PolicyVersion(SHARED, 2)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """What is there once foreign code has run."""
    return tmp_path / "it-was-run"


@pytest.fixture
def model(tmp_path: Path, mark: Path) -> Path:
    """A model folder of a kind nobody knows, with modules that leave the mark and weights that are a pickle."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in (each for each in bundled_model().iterdir() if each.is_file()):
        if path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    for name in ("configuration_own.py", "modeling_own.py"):
        (folder / name).write_text(f"import os\nos.close(os.open({str(mark)!r}, os.O_CREAT))\n")
    facts = json.loads((folder / "config.json").read_text())
    own = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    (folder / "config.json").write_text(json.dumps({**facts, "model_type": "own", "auto_map": own}))
    (folder / "model.safetensors").write_bytes(trapped(mark))
    return folder


@pytest.fixture
async def home(tmp_path: Path, mark: Path) -> Path:
    """A folder whose served version is a pickle."""
    await lived_in(tmp_path / "home")
    folder = version_folder(tmp_path / "home", TWO)
    (folder / WEIGHTS).unlink()
    (folder / "adapter_model.bin").write_bytes(trapped(mark))
    return tmp_path / "home"


def test_serve_refuses_a_model_that_brings_its_own_code(model: Path, tmp_path: Path, mark: Path) -> None:
    arguments = ["serve", "--model", str(model), "--home", str(tmp_path / "fresh"), "--port", "0"]
    result = CliRunner().invoke(app, arguments, input="y\n" * 9)
    assert isinstance(result.exception, ModelError)
    assert "needs Python code from its own folder, which is never run" in result.exception.problem
    assert not was_left(mark)


def test_the_doctor_says_so_too_and_asks_for_no_leave(
    model: Path, tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    said = [item.said for item in installation_findings(Config(home=tmp_path, model=str(model)), is_live=True)]
    assert any("needs Python code from its own folder, which is never run" in text for text in said), said
    assert not was_left(mark)


def test_a_trainer_opens_no_such_model(model: Path, mark: Path) -> None:
    with pytest.raises(ModelError):
        load_frozen(model, TrainerSettings(device="cpu"))
    assert not was_left(mark)


def test_a_trainer_goes_on_from_no_pickle(home: Path, mark: Path) -> None:
    with pytest.raises(AdapterError, match="has no adapter that training can continue from"):
        checkpoint.read(version_folder(home, TWO), {})
    (version_folder(home, TWO) / "adapter_model.bin").rename(version_folder(home, TWO) / WEIGHTS)
    with pytest.raises(AdapterError, match="has no adapter that training can continue from"):
        checkpoint.read(version_folder(home, TWO), {})
    assert not was_left(mark)


async def test_a_start_serves_the_version_before_one_that_became_a_pickle(home: Path, mark: Path) -> None:
    store = await Store.open(home)
    engine, settings = ScriptedEngine([]), PublishSettings()
    served = ServedVersions(store, engine)
    renderer = ChatRenderer(read_template(bundled_model()))
    stage = PublishStage(store, served, Gate(store, engine, renderer, (0,), settings), settings)
    await stage.start()
    assert served.current() == PolicyVersion(SHARED, 1)
    assert "it has no adapter_model.safetensors; adapter_model.bin is a pickle" in stage.status.notice
    with pytest.raises(AdapterError, match=r"adapter_model.bin is a pickle, which is never opened"):
        await rollback(store, TWO, served=served)
    assert set(engine.versions) == {BASE, PolicyVersion(SHARED, 1)}
    await store.aclose()
    assert not was_left(mark)


def test_check_names_it(home: Path, mark: Path) -> None:
    result = CliRunner().invoke(app, ["check", "--home", str(home)])
    assert result.exit_code != 0
    assert "adapter_model.bin is a pickle, which is never opened" in " ".join(result.output.split())
    assert not was_left(mark)
