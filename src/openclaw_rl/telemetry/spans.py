"""Traces of turns by OTLP: each turn is a separate trace, and its id finds its spans again hours later.

The ids of traces and spans are derived from the ids of turns and versions, so nothing is remembered between a
request and the step, gate and version that learned from it, even over a restart. A version has a trace as well; its
spans and those of its turns are linked.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from openclaw_rl.core.event import EventKind
from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError
from openclaw_rl.telemetry.records import Record

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

NAMES = ("request", "stored", "judged", "sample", "step", "gate", "served", "dropped")
REQUEST = "request"
VERSION = "version "  # the prefix of names of versions' traces
MOST_OPEN = 10_000  # turns whose last change is remembered
_STATES = {"judged": "judged", "ready": "sample", "dropped": "dropped"}


@dataclass(frozen=True, slots=True)
class SpanFacts:
    """One span: `about` names its trace, a turn or a version; `links` name others. Times in seconds since the epoch."""

    name: str
    about: str
    began_s: float
    ended_s: float
    facts: Mapping[str, Json] = field(default_factory=dict)
    links: tuple[str, ...] = ()


@dataclass(slots=True)
class SpanMaker:
    """Makes spans of events. It only remembers when stages began; without that, a span has no length."""

    _moved_s: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def of(self, record: Record) -> Iterator[SpanFacts]:
        """The spans that an event completes."""
        kind, at_s = str(record["kind"]), _number(record["at_s"], 0.0)
        turns = [str(turn) for turn in _listed(record["turns"])]
        facts = record["facts"] if isinstance(record["facts"], dict) else {}
        began_s = _number(record["began_s"], at_s)
        if kind == EventKind.TURN:
            about = {**facts, "version": record["version"]}
            yield SpanFacts(REQUEST, turns[0], began_s, at_s, about)
            yield SpanFacts("stored", turns[0], at_s, at_s)
            self._moved(turns[0], at_s)
        elif kind == EventKind.STATE:
            since_s = self._moved_s.get(turns[0], at_s)
            name = _STATES.get(str(facts.get("state")))
            if name is not None:
                yield SpanFacts(name, turns[0], since_s, at_s, facts)
            self._moved(turns[0], at_s)
        else:
            yield from _of_version(kind, str(record["version"]), turns, (began_s, at_s), facts)

    def _moved(self, turn: str, at_s: float) -> None:
        self._moved_s[turn] = at_s
        self._moved_s.move_to_end(turn)
        if len(self._moved_s) > MOST_OPEN:
            self._moved_s.popitem(last=False)


def _of_version(
    name: str, version: str, turns: Sequence[str], times: tuple[float, float], facts: Mapping[str, Json]
) -> Iterator[SpanFacts]:
    began_s, at_s = times
    ended_s = _number(facts.get("ended_s"), at_s)
    about: dict[str, Json] = {key: value for key, value in facts.items() if key not in ("metrics", "ended_s")}
    about["version"] = version
    metrics = facts.get("metrics")
    numbers = {f"metrics.{key}": value for key, value in metrics.items()} if isinstance(metrics, dict) else {}
    yield SpanFacts(name, f"{VERSION}{version}", began_s, ended_s, {**about, **numbers}, tuple(turns))
    for turn in turns:
        yield SpanFacts(name, turn, began_s, ended_s, about, (f"{VERSION}{version}",))


def trace_id(about: str, installation: str = "") -> int:
    """128 bits: for a turn from its id alone, for a version from the installation too."""
    seed = f"{installation} {about}" if about.startswith(VERSION) else about
    return int.from_bytes(hashlib.sha256(f"trace {seed}".encode()).digest()[:16], "big")


def span_id(about: str, name: str, began_s: float | None = None) -> int:
    """64 bits. The first span of a trace is found by name, since the others are its children."""
    when = "" if name == _root(about) else f" {began_s!r}"
    return int.from_bytes(hashlib.sha256(f"span {about} {name}{when}".encode()).digest()[:8], "big")


@dataclass(frozen=True, slots=True)
class SpanSink:
    """Exports spans by OTLP/HTTP."""

    maker: SpanMaker
    made: SpanWriter

    def take(self, records: Sequence[Record]) -> None:
        """Sends the spans of these events."""
        self.made.send([span for record in records for span in self.maker.of(record)])

    def close(self) -> None:
        """Ends the exporter."""
        self.made.close()


class SpanWriter:
    """OpenTelemetry spans, and the exporter that sends them to the collector."""

    def __init__(self, endpoint: str, installation: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource

        self._endpoint, self._installation = endpoint, installation
        self._exporter = OTLPSpanExporter(endpoint=endpoint)
        self._resource = Resource({"service.name": "openclaw-rl", "service.instance.id": installation})

    def send(self, spans: Sequence[SpanFacts]) -> None:
        """Sends them. Raises ConfigError if the collector does not take them."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        if spans and self._exporter.export([self._made(span) for span in spans]) is not SpanExportResult.SUCCESS:
            raise ConfigError(f"the collector at {self._endpoint} does not take spans", fix="see traces.endpoint")

    def close(self) -> None:
        """Ends it."""
        self._exporter.shutdown()

    def _made(self, span: SpanFacts) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Link, SpanContext, TraceFlags

        def context(about: str, name: str, began_s: float | None = None) -> SpanContext:
            trace = trace_id(about, self._installation)
            flags = TraceFlags(TraceFlags.SAMPLED)
            return SpanContext(trace, span_id(about, name, began_s), is_remote=False, trace_flags=flags)

        root = _root(span.about)
        facts = {f"openclaw_rl.{key}": value for key, value in span.facts.items()}
        if root == REQUEST:
            facts["openclaw_rl.turn"] = span.about
        links = [Link(context(each, _root(each))) for each in span.links]
        return ReadableSpan(
            span.name,
            context=context(span.about, span.name, span.began_s),
            parent=None if span.name == root else context(span.about, root),
            resource=self._resource,
            attributes={key: value for key, value in facts.items() if isinstance(value, str | bool | int | float)},
            links=links,
            start_time=int(span.began_s * 1e9),
            end_time=int(max(span.began_s, span.ended_s) * 1e9),
        )


def span_sink(options: dict[str, str]) -> SpanSink:
    """Traces to `endpoint`; OTEL_EXPORTER_OTLP_HEADERS in the environment may hold a key for it."""
    return SpanSink(SpanMaker(), SpanWriter(options["endpoint"], options["run_id"]))


def _root(about: str) -> str:
    """The first span of a trace."""
    return "step" if about.startswith(VERSION) else REQUEST


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _number(value: Json, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise
