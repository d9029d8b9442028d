"""Generated requests against every route of a live server: the real engine on the bundled model, a real store.

Schemathesis makes valid and invalid requests from the served description; `benchmarks.fuzz_fields` puts every wrong
value into every field of it; `benchmarks.fuzz_raw` makes what no description covers. Counted are answers of 5xx, and
what is still in flight when all is over and nobody asks any more.
SEED chooses another run of the same length.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import requests

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.fuzz_fields import field_shots
from benchmarks.fuzz_raw import Shot, shots, status_of
from benchmarks.http import KEY, bundled_model, serving
from openclaw_rl.core.message import Json

if TYPE_CHECKING:
    from schemathesis import APIOperation, Case, GenerationMode

HEADERS = {"Authorization": f"Bearer {KEY}"}
SETTINGS = """
[serve]
most_tokens = 4
max_choices = 3
any_model_name = true
[engine]
max_rows = 4
"""
BY_HAND = 4000
EVERY = 11  # of the wrong values in fields, in a quick run
ANSWER_S = 60.0
SETTLE_S = 60.0


@dataclass(slots=True)
class Tally:
    """What came back."""

    cases: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)  # what was asked and answered with 5xx, or not at all

    def note(self, status: int | None, asked: str) -> None:
        """One more answer."""
        self.cases += 1
        self.statuses["none" if status is None else f"{status // 100}xx"] += 1
        if status is not None and status >= 500:
            self.fail(f"{status}: {asked}")

    def fail(self, what: str) -> None:
        """One that must not be."""
        self.failures.append(what)
        progress(what[:600])


def main() -> None:
    """Prints the figures."""
    seed = int(os.environ.get("SEED", "1"))
    model = bundled_model()
    figures: Figures = dict.fromkeys(("cases", "server_errors", "stuck_slots"))
    if model is None:
        progress("there is no bundled model to serve")
    else:
        figures = asyncio.run(_fuzzed(model, seed))
    figures["conditions"] = conditions("bundled", threads=1, seeds=[seed], repeats=1)
    finish(figures)


async def _fuzzed(model: Path, seed: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "fuzz.toml"
        config.write_text(SETTINGS, "utf-8")
        async with serving(model, "--no-learn", "--config", str(config)) as url:
            if not url:
                raise RuntimeError("the server did not start")
            return await asyncio.to_thread(_thrown, url, seed)


def _thrown(url: str, seed: int) -> Figures:
    """All kinds at once, so that the server has three clients at any time."""
    made, fields, raw = Tally(), Tally(), Tally()
    described: Json = requests.get(f"{url}/openapi.json", timeout=ANSWER_S).json()
    assert isinstance(described, dict)
    by_hand = shots(seed, BY_HAND // 8 if is_quick() else BY_HAND)
    by_field = field_shots(described, every=EVERY if is_quick() else 1)
    begin = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        for done in [
            pool.submit(_described, url, made, seed),
            pool.submit(_fired, url, fields, by_field, "by field"),
            pool.submit(_fired, url, raw, by_hand, "by hand"),
        ]:
            done.result()
    failures = [*made.failures, *fields.failures, *raw.failures]
    return {
        "cases": made.cases + fields.cases + raw.cases,
        "server_errors": len(failures),
        "stuck_slots": _stuck(url),
        "generated": made.cases,
        "by_field": fields.cases,
        "by_hand": raw.cases,
        "statuses": dict(sorted((made.statuses + fields.statuses + raw.statuses).items())),
        "seconds": round(time.monotonic() - begin, 1),
        "failures": [failure[:400] for failure in failures[:20]],
    }


def _fired(url: str, tally: Tally, fired: Iterator[Shot], kind: str) -> None:
    port = int(url.rpartition(":")[2])
    for at, shot in enumerate(fired):
        asked = f"{shot.name} {shot.data[:300]!r}"
        try:
            tally.note(status_of(shot, port), asked)
        except TimeoutError:
            tally.fail(f"no answer: {asked}")
        if at % 500 == 499:
            progress(f"{at + 1} {kind}: {dict(tally.statuses)}")


def _described(url: str, tally: Tally, seed: int) -> None:
    """Valid and invalid requests for every operation of the served description."""
    import schemathesis
    from schemathesis import GenerationMode

    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    with requests.Session() as session:
        for operation in operations:
            has_body = operation.method.upper() in ("POST", "PUT")
            examples = (10 if has_body else 5) if is_quick() else (40 if has_body else 12)
            for mode in GenerationMode:
                before = tally.cases
                _throw(operation, mode, session, tally, examples=examples, seed=seed)
                progress(f"{operation.label} {mode.value}: {tally.cases - before}, {dict(tally.statuses)}")


def _throw(
    operation: APIOperation,
    mode: GenerationMode,
    session: requests.Session,
    tally: Tally,
    *,
    examples: int,
    seed: int,
) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(operation.as_strategy(generation_mode=mode))
    def ask(case: Case) -> None:
        try:
            answer = case.call(session=session, headers=HEADERS, timeout=ANSWER_S)
        except requests.Timeout:
            tally.fail(f"no answer: {case.as_curl_command()}")
            return
        except requests.RequestException:  # the server hung up on what is no HTTP, or requests would not send it
            tally.note(None, "")
            return
        tally.note(answer.status_code, case.as_curl_command() if answer.status_code >= 500 else "")

    with contextlib.suppress(hypothesis.errors.Unsatisfiable):  # an operation of which nothing is invalid
        ask()


def _stuck(url: str) -> int:
    """Answers in flight and rows held once all is quiet; one more where a plain request is not answered."""
    until = time.monotonic() + SETTLE_S
    held = -1
    while held and time.monotonic() < until:
        lines = requests.get(f"{url}/metrics", timeout=ANSWER_S).text.splitlines()
        gauge = next(line for line in lines if line.startswith("openclaw_rl_in_flight "))
        engine = requests.get(f"{url}/v1/rl/status", headers=HEADERS, timeout=ANSWER_S).json()["engine"]
        held = int(float(gauge.split()[1])) + engine["running"] + engine["waiting"]
        time.sleep(0.5)
    body: dict[str, Json] = {"messages": [{"role": "user", "content": "2 + 2?"}], "max_tokens": 2}
    answer = requests.post(f"{url}/v1/chat/completions", json=body, headers=HEADERS, timeout=ANSWER_S)
    return held + (answer.status_code != 200)


if __name__ == "__main__":
    main()
