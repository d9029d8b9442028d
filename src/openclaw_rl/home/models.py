"""Where a model's folder is: the bundled one, a path, or a name on the Hugging Face hub."""

from __future__ import annotations

import json
from pathlib import Path

from openclaw_rl.errors import ModelError

BUNDLED = "bundled"
BUNDLED_NAME = "openclaw-rl-tiny"


def model_folder(name: str) -> Path:
    """The folder of a model, downloaded first if `name` is a name on the hub. Raises ModelError."""
    return local_folder(name) or _from_hub(name)


def local_folder(name: str) -> Path | None:
    """The folder of a model on this machine; None for one on the hub. Raises ModelError."""
    if name == BUNDLED:
        from openclaw_rl.tiny.world import bundled_model

        return bundled_model()
    folder = _path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(f"{folder} holds no config.json", fix="name a folder that `save_pretrained` wrote")
        return folder
    if folder.exists() or name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ModelError(
            f"there is no model folder {name}", fix="give a folder, a hub name such as Qwen/Qwen3-4B, or `bundled`"
        )
    return None


def named_ends(folder: Path) -> tuple[int, ...]:
    """The ids that end a reply by the model's own configurations, generation first; none if they name none."""
    found: dict[int, None] = {}
    for file in ("generation_config.json", "config.json"):
        try:
            held = json.loads((folder / file).read_text("utf-8"))
        except (OSError, ValueError):  # the file is optional; if it is faulty, loading the model reports that
            continue
        for body in (held, held.get("text_config")) if isinstance(held, dict) else ():
            ids = body.get("eos_token_id") if isinstance(body, dict) else None
            found |= dict.fromkeys(one for one in (ids if isinstance(ids, list) else [ids]) if isinstance(one, int))
    return tuple(found)


def served_name(name: str) -> str:
    """A model's name for clients: the bundled one's own name, the last part of a folder, or the name on the hub."""
    if name == BUNDLED:
        return BUNDLED_NAME
    folder = _path(name)
    return folder.resolve().name if folder.is_dir() else name


def _path(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # `~` of a user that does not exist
        return Path(name)


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as problem:
        first = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise ModelError(
            f"{name} is neither a local folder nor available from the hub ({first})",
            fix="check the name and the network, or give the path of a folder",
        ) from problem
