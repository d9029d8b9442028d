"""Counters of what was served, in Prometheus's format. One registry for each server."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_MOST_NAMES = 100  # distinct ignored parameters and kinds that get a label of their own; clients choose these names
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


@dataclass(slots=True)
class Reuse:
    """How many ids prompts that continue a served turn have in all, and how many of these were reused."""

    tokens: int = 0
    cached: int = 0

    @property
    def share(self) -> float | None:
        """The reused share; None before the first such prompt."""
        return self.cached / self.tokens if self.tokens else None

    def add(self, tokens: int, cached: int) -> None:
        """Counts one more prompt."""
        self.tokens += tokens
        self.cached += cached


class Metrics:
    """What the server counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "openclaw_rl_requests", "Requests answered.", ("route", "status"), registry=self.registry
        )
        self.turns = Counter(
            "openclaw_rl_turns", "Answers by kind and finish.", ("kind", "finish"), registry=self.registry
        )
        self.prompt_tokens = Counter("openclaw_rl_prompt_tokens", "Ids of prompts.", registry=self.registry)
        self.cached_tokens = Counter(
            "openclaw_rl_prompt_tokens_cached",
            "Ids of prompts whose keys and values were reused.",
            registry=self.registry,
        )
        self.continued_tokens = Counter(
            "openclaw_rl_prompt_tokens_continued", "Ids of prompts kept from a served turn.", registry=self.registry
        )
        self.reuse = Reuse()
        self.reused = Gauge(
            "openclaw_rl_prompt_tokens_reused_share",
            "Of the ids of prompts that continue a turn, the share whose keys and values were reused.",
            registry=self.registry,
        )
        self.reused.set_function(lambda: math.nan if self.reuse.share is None else self.reuse.share)
        self.sampled_tokens = Counter("openclaw_rl_sampled_tokens", "Ids sampled.", registry=self.registry)
        self.sampling = 0  # answers, now
        self.in_flight = Gauge("openclaw_rl_in_flight", "Answers being sampled.", registry=self.registry)
        self.in_flight.set_function(lambda: self.sampling)
        self.first_token_s = Histogram(
            "openclaw_rl_first_token_seconds", "From request to first token.", buckets=_SECONDS, registry=self.registry
        )
        self.answer_s = Histogram(
            "openclaw_rl_answer_seconds", "From request to last token.", buckets=_SECONDS, registry=self.registry
        )
        self.ignored = Counter(
            "openclaw_rl_ignored_parameters", "Request parameters not known here.", ("name",), registry=self.registry
        )
        self.prompts = Gauge("openclaw_rl_prompts", "Prompts by how they were made.", ("how",), registry=self.registry)
        self.placeholders = Counter(
            "openclaw_rl_placeholders",
            "Images, files and blocks that stood in a prompt as words.",
            ("kind",),
            registry=self.registry,
        )
        self.replaced: dict[str, int] = {}  # the same by kind, for the status
        self._names: set[str] = set()

    def ignore(self, name: str) -> None:
        """One more request had this parameter."""
        if name not in self._names and len(self._names) >= _MOST_NAMES:
            name = "other"
        self._names.add(name)
        self.ignored.labels(name[:64]).inc()

    def replace(self, kind: str, times: int) -> None:
        """Counts more placeholders of this kind."""
        if kind not in self.replaced and len(self.replaced) >= _MOST_NAMES:
            kind = "other"
        self.replaced[kind] = self.replaced.get(kind, 0) + times
        self.placeholders.labels(kind).inc(times)

    def text(self) -> bytes:
        """All metrics in Prometheus's format."""
        return generate_latest(self.registry)
