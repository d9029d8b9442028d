"""Settings come from one file, the environment and the command line, in that order, and a mistake is named."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from openclaw_rl.config import ENVIRONMENT, RENAMED, UNUSED, read_config, unused_names
from openclaw_rl.errors import ConfigError
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.owner.settings_text import settings_text
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.train.settings import TrainSettings
from openclaw_rl.trainers.settings import Method

ROOT = Path(__file__).parent.parent.parent


def _file(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, "utf-8")
    return path


def test_the_command_line_outranks_the_environment_which_outranks_the_file(tmp_path: Path) -> None:
    file = _file(tmp_path, "[serve]\nport = 1\nhost = 'filed'\n[judge]\nvotes = 7\n")
    config = read_config(
        file, environment={"PORT": "2", "HOST": "named"}, overrides={"serve.port": 3, "serve.host": None}
    )
    assert (config.serve.port, config.serve.host, config.judge.votes) == (3, "named", 7)


def test_names_from_earlier_systems_still_work() -> None:
    words = {
        "HF_CKPT": "m",
        "PRM_M": "5",
        "SGLANG_API_KEY": "k",
        "JUDGE_API_KEY": "j",
        "OPENCLAW_COMBINE_W_RL": "0.5",
        "PATH": "/bin",
    }
    config = read_config(environment=words, overrides={"home": "somewhere"})
    assert (
        config.model == "m" and config.judge.votes == 5 and config.serve.api_key == "k" and config.judge.api_key == "j"
    )
    assert config.trainer.method.w_rl == 0.5


def test_names_that_mean_nothing_here_are_answered_with_why() -> None:
    words = {"SAVE_CKPT": "/ckpt", "PRM_MODEL_PATH": "judge", "NUM_GPUS": "", "PATH": "/bin"}
    assert read_config(environment=words, overrides={"home": "somewhere"}).judge.model == "judge"
    told = unused_names(words)
    assert [line.partition(" ")[0] for line in told] == ["SAVE_CKPT"]
    assert all(" is not used here: " in line for line in told)
    assert not set(UNUSED) & set(ENVIRONMENT)


def test_names_of_weights_and_biases_choose_it_as_a_sink(tmp_path: Path) -> None:
    file = _file(tmp_path, "[metrics]\nsinks = ['tensorboard']\n")
    words = {"USE_WANDB": "1", "WANDB_PROJECT": "mine", "WANDB_KEY": "secret"}
    metrics = read_config(file, environment=words).metrics
    assert ([*metrics.sinks], metrics.project, metrics.wandb_key) == (["tensorboard", "wandb"], "mine", "secret")
    assert read_config(file, environment={"USE_WANDB": "0"}).metrics.sinks == ("tensorboard",)
    with pytest.raises(ConfigError, match=r"holds the secret metrics\.wandb_key"):
        read_config(_file(tmp_path, "[metrics]\nwandb_key = 'secret'\n"), environment={})


def test_own_adapters_and_training_every_weight_exclude_each_other() -> None:
    wanted = {"home": "somewhere", "train.scopes": "shared+user"}
    assert read_config(environment={}, overrides=wanted).train.scopes.has_shared
    with pytest.raises(ConfigError, match=r"trainer\.parameters is full and train\.scopes shared\+user"):
        read_config(environment={}, overrides={**wanted, "trainer.parameters": "full"})


def test_nested_tables_and_closed_sets_of_words_are_read(tmp_path: Path) -> None:
    config = read_config(_file(tmp_path, "[trainer.method]\nname = 'binary'\n[trainer]\nlr = 1e-4\n"), environment={})
    assert config.trainer.method.name is Method.BINARY and config.trainer.lr == 1e-4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[train]\nbatch_sise = 4\n", r"train\.batch_sise is not a setting.*Did you mean train\.batch_size"),
        ("[train]\nbatch_size = 'four'\n", r"train\.batch_size is 'four'"),
        ("[train]\nbatch_size = 0\n", r"train: batch_size is 0"),
        ("[trainer.method]\nname = 'magic'\n", r"trainer\.method\.name is 'magic'"),
        ("train = 3\n", r"train is 3.*\[train\]"),
        ("[train\n", r"is not valid TOML"),
        ("[serve]\napi_key = 'secret'\n", r"holds the secret serve\.api_key"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_config(_file(tmp_path, text), environment={})


def test_a_file_that_is_not_there_is_an_error_and_a_home_without_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / "none.toml", environment={})
    assert read_config(environment={}, overrides={"home": str(tmp_path)}).home == tmp_path


def test_the_documentation_lists_every_setting_as_it_is() -> None:
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    assert settings_text() in page and settings_text(advanced=True) in page
    meant = "\n".join(
        line.removeprefix("# ") if re.match(r"# \w+ = ", line) else line for line in settings_text().splitlines()
    )
    assert tomllib.loads(meant)["train"]["batch_size"] == 16


def test_settings_that_were_renamed_go_on_working_under_their_old_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[train]\nbatch_size = 3\nin_vain_turns = 5\n[hints]\nmost = 4\n")
    config = read_config(file, environment={})
    assert (config.train.batch_size, config.teach.in_vain_turns, config.teach.most) == (3, 5, 4)
    assert "the setting train.in_vain_turns is now called teach.in_vain_turns" in caplog.text
    assert read_config(environment={"OPENCLAW_RL_HOME": str(tmp_path)}, overrides={"hints.most": 7}).teach.most == 7
    file.write_text("[hints]\nmost = 4\n[teach]\nmost = 5\n")
    with pytest.raises(ConfigError, match=r"hints\.most and teach\.most are both given"):
        read_config(file, environment={})


def test_every_renamed_setting_is_one_now() -> None:
    names = set(f"{settings_text()} {settings_text(advanced=True)}".split())
    parts = {"teach": TeachSettings(), "train": TrainSettings()}
    for old, new in RENAMED.items():
        part, _, name = new.partition(".")
        assert name in names and hasattr(parts[part], name), old


def test_rehearsal_and_demonstrations_may_still_be_set_by_their_old_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[train]\nriders = 2\nrides_again = 3\n[teach]\nelsewhere = 1\n[hints]\nshown_replies = false\n")
    config = read_config(file, environment={})
    assert (config.train.rehearsal_samples, config.train.rehearse_again) == (2, 3)
    assert (config.teach.other_requests, config.teach.demonstrations) == (1, False)
    assert "the setting train.riders is now called train.rehearsal_samples" in caplog.text


def test_advanced_settings_are_shown_apart_and_every_other_one_says_when_to_change_it() -> None:
    plain, advanced = settings_text(), settings_text(advanced=True)
    assert "# kl_max" not in plain and "# kl_max" in advanced and "# strictness" in plain
    lines = plain.splitlines()[2:]
    settings = [at for at, line in enumerate(lines) if re.match(r"# \w+ (=|is unset)", line)]
    silent = [lines[at] for at in settings if not re.search(r"(Change it|Use|Take|Set it) ", lines[at - 1])]
    assert len(settings) <= 110 and silent == []


def test_the_page_names_each_judge_setting_that_a_classifier_does_not_use() -> None:
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    paragraph = next(part for part in page.split("\n\n") if part.startswith("**With a classifier as judge**"))
    named = set(re.findall(r"`(\w+)`", paragraph))
    source = "".join(
        (ROOT / "src/openclaw_rl/judge" / name).read_text("utf-8") for name in ("classifier.py", "stage.py")
    )
    used = set(re.findall(r"self\.settings\.(\w+)", source)) - {"daily_calls"}  # of a budget, which it does not have
    chooses = {"url", "model"}  # which judge it is
    assert named == {field.name for field in fields(JudgeSettings)} - used - chooses
