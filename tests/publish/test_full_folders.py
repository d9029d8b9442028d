"""A version of which every weight was trained is checked as adapters are."""

from __future__ import annotations

from pathlib import Path

import pytest
from publish_doubles import safetensors, version

from openclaw_rl.core.adapter import FULL_CONFIG, FULL_WEIGHTS, Adapter, digest_of_folder, files_of, is_full
from openclaw_rl.core.manifest import Manifest, write_manifest
from openclaw_rl.errors import AdapterError
from openclaw_rl.publish.versions import verified


def test_a_whole_model_is_verified_and_a_cut_or_changed_one_is_told(tmp_path: Path) -> None:
    (tmp_path / FULL_CONFIG).write_text("{}")
    weights = tmp_path / FULL_WEIGHTS
    whole = safetensors(b"every weight")
    weights.write_bytes(whole)
    assert is_full(tmp_path) and files_of(tmp_path) == (FULL_CONFIG, FULL_WEIGHTS)
    adapter = Adapter(tmp_path, digest_of_folder(tmp_path), version(1))
    write_manifest(tmp_path, Manifest(version(1), version(0), "step", (), 0, adapter.digest, 1.0))
    assert verified(adapter).version == version(1)
    weights.write_bytes(whole[:-3])
    with pytest.raises(AdapterError, match="truncated: 3 bytes are missing"):
        verified(adapter)
    weights.write_bytes(whole[:-1] + b"?")
    with pytest.raises(AdapterError, match="was changed after training"):
        verified(adapter)
