"""What a version's manifest tells of the settings that decided what it learned."""

from __future__ import annotations

import json
from dataclasses import replace

from openclaw_rl.config import Config
from openclaw_rl.runtime.installation import recipe_of


def test_the_manifest_tells_how_was_taught_when_a_step_was_taken_and_how() -> None:
    config = Config()
    config = replace(config, teach=replace(config.teach, baseline_decay=0.5), train=replace(config.train, max_lag=3))
    told = json.loads(json.dumps(recipe_of(config)))
    assert (told["teach"]["baseline_decay"], told["train"]["max_lag"]) == (0.5, 3)
    assert told["trainer"]["method"]["name"] == config.trainer.method.name.value
