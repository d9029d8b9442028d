"""The log-probabilities of a stream's events, which are written without the objects that other answers have."""

import json
import math
from pathlib import Path

from tokenizers import Tokenizer

from openclaw_rl.core.completion import Finish, SampledToken
from openclaw_rl.core.version import BASE
from openclaw_rl.render.encoding import TokenBytes
from openclaw_rl.serve.answers import entries_json, token_entries
from openclaw_rl.tiny.world import bundled_model


def test_a_streams_entries_are_those_of_a_whole_answer() -> None:
    table = TokenBytes(Tokenizer.from_file(str(Path(bundled_model()) / "tokenizer.json")))
    end = min(table.special)
    half = next(token for token in range(4000) if "\ufffd" in table(token).decode("utf-8", "replace"))
    quote = next(token for token in range(4000) if b'"' in table(token))
    tokens = [
        SampledToken(half, -0.25, -0.5, BASE, top=((half, -0.5), (quote, -1e-7), (7, -math.inf))),
        SampledToken(quote, -0.25, -123.456789012345, BASE),
        SampledToken(end, -0.25, 0.0, BASE),  # special, but not the end
        SampledToken(end, -0.25, -0.1, BASE, finish=Finish.STOP),
    ]
    for sampled in (tokens, tokens[1:2], tokens[3:], []):
        assert json.loads(f"[{entries_json(sampled, table).decode()}]") == token_entries(sampled, table)
    assert len(token_entries(tokens, table)) == 3
