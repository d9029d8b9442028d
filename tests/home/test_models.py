"""Which folder a model is, what clients call it, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.errors import ModelError
from openclaw_rl.home.models import BUNDLED_NAME, model_folder, served_name


def test_the_bundled_model_has_a_folder_and_a_name_of_its_own() -> None:
    assert (model_folder("bundled") / "config.json").is_file()
    assert served_name("bundled") == BUNDLED_NAME


def test_a_folder_is_called_by_its_last_part_and_a_hub_name_stays(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    assert served_name(str(folder)) == "my-model"
    assert served_name("Qwen/Qwen3-4B") == "Qwen/Qwen3-4B"


@pytest.mark.parametrize("name", ["./none", "~none/of/it", "a/b/c"])
def test_a_folder_that_is_not_there_is_said_so(name: str) -> None:
    with pytest.raises(ModelError, match="there is no model folder"):
        model_folder(name)


def test_a_folder_without_a_configuration_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        model_folder(str(tmp_path))
