"""The engine itself: a synchronous object with `step()`. No thread, no asyncio; the child process drives it.

A step admits requests, plans one pass over all of them, runs the model once, samples, and returns the result.
"""

from __future__ import annotations

import math
from collections import deque

import torch
from torch import Tensor

from openclaw_rl.core.completion import Finish, Scores
from openclaw_rl.core.engine import EngineStats
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.local.adapters import BASE_SLOT, Adapters, AdapterWeights
from openclaw_rl.engines.local.attention import RowPiece
from openclaw_rl.engines.local.cache import Cache, block_size
from openclaw_rl.engines.local.copies import FullCopies
from openclaw_rl.engines.local.graphs import DecodeGraphs, Recorder
from openclaw_rl.engines.local.masks import GrammarSource, Guided, MaskSource
from openclaw_rl.engines.local.model import ServedModel
from openclaw_rl.engines.local.pace import LEAST, LEAST_IDLE, MOST, Counts, Pace
from openclaw_rl.engines.local.passes import Passes, PromptPiece
from openclaw_rl.engines.local.rows import CacheSpace, Row, sampling_row, scoring_row
from openclaw_rl.engines.local.sampler import Draw, DrawnTokens, sample, top_of, uniform
from openclaw_rl.engines.local.wire import ScoreJob, StepOutput, Submit
from openclaw_rl.engines.settings import EngineSettings

LOGITS_AT_ONCE = 1 << 24  # numbers of logits that scores may use in one pass
SCORES_AT_ONCE = 8


class Core:
    """Requests in, tokens out, one step at a time."""

    def __init__(
        self,
        served: ServedModel,
        cache: Cache,
        adapters: Adapters,
        settings: EngineSettings,
        held: tuple[GrammarSource, MaskSource],
        *,
        counts: Counts,
        recorder: Recorder | None = None,
    ) -> None:
        self.served = served
        self.adapters = adapters
        self.copies = FullCopies(settings.max_full_versions)
        graphs = None if recorder is None else DecodeGraphs(served, cache, adapters, recorder, most=settings.max_rows)
        self._passes = Passes(served, cache, adapters, self.copies, graphs=graphs)
        self._most_rows = settings.max_rows
        largest = min(block_size(served.context_length), 1 << (cache.tokens.bit_length() - 1))
        self.context = min(served.context_length, largest)
        self.room = CacheSpace(cache, context=self.context, largest=largest)
        layers = sum(layer.numbers for layer in served.layers.values())
        weights = sum(linear.in_features * linear.out_features for linear in served.linears.made.values())
        self.grammars, self._masks = held
        self.pace = Pace(weights, 1.5 * layers, settings.step_target_ms / 1e3)
        self._waiting: deque[Row] = deque()
        self._jobs: deque[Row] = deque()
        self._reading: list[Row] = []
        self._running: list[Row] = []
        self._failed: list[tuple[int, str]] = []
        self._counts = counts

    # -- commands
    def submit(self, ask: Submit, guide: Guided | None = None) -> None:
        """Queues a request; the guide constrains its answer to its grammar."""
        slot = self._take_up(ask.version)
        if slot is None:
            self._failed.append((ask.id, f"version {ask.version} is not loaded"))
            return
        vocab_size = self.served.vocab_size
        self._waiting.append(sampling_row(ask, slot, self.context, vocab_size=vocab_size, guide=guide))

    def score(self, job: ScoreJob) -> None:
        """Queues a score."""
        slot = self._take_up(job.version)
        if slot is None:
            self._failed.append((job.id, f"version {job.version} is not loaded"))
            return
        self._jobs.append(scoring_row(job, slot))

    def cancel(self, request: int) -> None:
        """Drops a request before the next step; if it has ended, nothing happens."""
        for rows in (self._waiting, self._jobs, self._reading, self._running):
            for row in rows:
                if row.id == request:
                    rows.remove(row)
                    self._end(row)
                    return

    def install(self, weights: AdapterWeights | ServedModel, version: PolicyVersion, digest: str) -> None:
        """Makes a version ready. If it raises AdapterError or EngineError, nothing has changed."""
        if isinstance(weights, ServedModel):
            self.copies.install(weights, version, digest)
            return
        self.adapters.install(weights, version, digest)
        for name, stack in self.adapters.stacks.items():
            self.served.linears.made[name].stack = stack

    def unload(self, version: PolicyVersion) -> None:
        """Unloads a version once nothing runs on it."""
        gone = self.adapters.unload(version) or self.copies.unload(version)
        if gone is not None:
            self.room.forget(gone)

    def flush(self) -> None:
        """Drops all cached prefixes, and those of running and waiting requests when they end."""
        self.room.flush((*self._waiting, *self._jobs, *self._reading, *self._running))

    def _take_up(self, version: PolicyVersion) -> int | None:
        """The slot of this version, counted as used by one more request; None if it is not loaded."""
        slot = BASE_SLOT if self.copies.holds(version) else self.adapters.slot_of(version)
        if slot is not None:
            self.adapters.use(slot)
            self.copies.use(version)
        return slot

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running or self._reading or self._waiting or self._jobs or self._failed or self.room.unwiped)

    def stats(self) -> EngineStats:
        """The counters."""
        return EngineStats(
            running=len(self._running) + len(self._reading),
            waiting=len(self._waiting) + len(self._jobs),
            cached_tokens=self.room.kept.tokens,
            tokens_sampled=self._counts.sampled,
            prompt_tokens_read=self._counts.read,
            prompt_tokens_reused=self._counts.reused,
            steps=self._counts.steps,
            step_ms_p50=self._counts.time_ms(0.5),
            step_ms_p99=self._counts.time_ms(0.99),
            unwiped_tokens=self.room.unwiped,
            versions=tuple(str(version) for version in (*self.adapters.versions(), *self.copies.versions())),
        )

    # -- one step
    @torch.inference_mode()
    def step(self) -> StepOutput:
        """Admits, runs the model once over all rows, samples. Returns the result of every row that advanced."""
        begin = self._counts.clock()
        out = StepOutput(failed=self._failed)
        self._failed = []
        self.room.wipe_some()
        self._make_room()
        readings = self._choose()
        rows = sorted(self._running, key=lambda row: row.place.base)
        if not rows and not readings:
            return out
        kept, speaking = self._kept(rows, readings)
        guided = {at: row.guide for at, row in enumerate(speaking) if row.guide is not None}
        masking = self._masks.begin(guided) if guided else None
        logits = self._passes.logits(rows, readings, kept)
        if speaking:
            draws = [Draw(row.sampling, uniform(row.seed, row.drawn), row.leanings) for row in speaking if row.sampling]
            masks = None if masking is None else masking()
            self._speak(speaking, sample(logits[: len(speaking)], draws, masks), out)
        for reading, scores in self._scoring(readings, logits, len(speaking)):
            self._note_scores(reading.row, scores, out)
        self._after(begin, len(rows), readings)
        return out

    def _make_room(self) -> None:
        """Moves rows that outgrew their block; one without room waits and is read again."""
        for row in list(self._running):
            if not self.room.grow(row):
                self._running.remove(row)
                self.room.end(row)
                row.read_again()
                self._waiting.appendleft(row)

    def _choose(self) -> list[PromptPiece]:
        """The pieces of prompts that this pass reads: those begun before, then new ones, while there is time.

        Every other pass reads the shortest first: a new question must not wait until a long conversation is read.
        """
        budget_s = self.pace.budget_s(len(self._running))
        if not budget_s:
            return []
        readings: list[PromptPiece] = []
        total = scored = 0
        most_scored = max(LEAST, LOGITS_AT_ONCE // self.served.vocab_size)
        if self._counts.steps % 2:
            self._admit()
            begun = sorted(self._reading, key=lambda row: (row.score is not None, row.unread))
        else:
            begun = list(self._reading)
        while row := (begun.pop(0) if begun else self._admit()):
            count = self.pace.tokens(row.stored, budget_s=budget_s)
            if not readings:
                count = max(count, LEAST if self._running or row.score is not None else LEAST_IDLE)
            count = min(count, row.unread, MOST - total)
            if row.score is not None:
                count = min(count, most_scored - scored)
                scored += count
            if count <= 0:
                break
            readings.append(PromptPiece(row, RowPiece(row.place, row.stored, row.stored + count)))
            budget_s = max(0.0, budget_s - self.pace.seconds(row.stored, count))
            total += count
        return readings

    def _admit(self) -> Row | None:
        """The next request that gets a place, or None. Requests come before scores, since users wait for them."""
        asking = sum(row.score is None for row in self._reading)
        if self._waiting and len(self._running) + asking < self._most_rows:
            row = self._waiting[0]
            if self.room.place(row, (*self._running, *self._reading)):
                return self._begin(self._waiting.popleft())
        if self._jobs and len(self._reading) - asking < SCORES_AT_ONCE:
            row = self._jobs[0]
            if self.room.place(row, (*self._running, *self._reading)):
                return self._begin(self._jobs.popleft())
        return None

    def _begin(self, row: Row) -> Row:
        self._reading.append(row)
        self._counts.reused += row.cached
        return row

    def _kept(self, rows: list[Row], readings: list[PromptPiece]) -> tuple[list[int], list[Row]]:
        """Where in the pass logits are needed: for the rows that sample, then for scores; and the sampling rows."""
        kept, speaking = list(range(len(rows))), list(rows)
        scored: list[int] = []
        at = len(rows)
        for reading in readings:
            row, piece = reading.row, reading.piece
            count = piece.stop - piece.start
            if row.score is not None:
                first = max(piece.start, row.score.start - 1)
                scored.extend(range(at + first - piece.start, at + count))
            elif piece.stop == row.goal:
                kept.append(at + count - 1)
                speaking.append(row)
            at += count
        return kept + scored, speaking

    def _speak(self, rows: list[Row], drawn: DrawnTokens, out: StepOutput) -> None:
        """Enters what was sampled, and ends the rows that are done."""
        for entry, row in enumerate(rows):
            if row.guide is not None and row.guide.problem:
                self._fail(row, row.guide.problem, out)
                continue
            if not math.isfinite(drawn.logp[entry]) or not math.isfinite(drawn.logp_sampled[entry]):
                self._fail(row, f"version {row.version} computes numbers that are not finite", out)
                continue
            self._enter(row, entry, drawn, out)
            is_new = row in self._reading
            if is_new:
                self._reading.remove(row)
            if row.is_said or row.left <= 0:
                out.ended[len(out.rows) - 1] = Finish.STOP if row.is_said else Finish.LENGTH
                if not is_new:
                    self._running.remove(row)
                self._end(row)
            elif is_new:
                self._running.append(row)
        self._counts.sampled += len(out.rows)

    def _enter(self, row: Row, entry: int, drawn: DrawnTokens, out: StepOutput) -> None:
        row.take(drawn.tokens[entry])
        spot = len(out.rows)
        out.rows.append(row.id)
        out.tokens.append(drawn.tokens[entry])
        out.logp_sampled.append(drawn.logp_sampled[entry])
        out.logp.append(drawn.logp[entry])
        if entry in drawn.top:
            out.top[spot] = drawn.top[entry]
        if entry in drawn.masked:
            out.masked[spot] = drawn.masked[entry]
        if not row.has_spoken:
            row.has_spoken = True
            out.cached[spot] = row.cached

    def _scoring(
        self, readings: list[PromptPiece], logits: Tensor, at: int
    ) -> list[tuple[PromptPiece, tuple[Tensor, int]]]:
        """The logits of each scored piece, and the position of the token that its first one predicts."""
        parts = []
        for reading in readings:
            job, piece = reading.row.score, reading.piece
            if job is not None:
                first = max(piece.start, job.start - 1)
                count = max(0, piece.stop - first)
                parts.append((reading, (logits[at : at + count], first + 1)))
                at += count
        return parts

    def _note_scores(self, row: Row, part: tuple[Tensor, int], out: StepOutput) -> None:
        logits, first = part
        job = row.score
        if job is not None and logits.shape[0]:
            logp_all = torch.log_softmax(logits.float(), -1)
            targets = torch.tensor(row.tokens[first : first + logits.shape[0]], device=logits.device)
            row.logp.extend(logp_all.gather(1, targets[:, None])[:, 0].tolist())
            if job.top_k:
                row.top.extend(top_of(logp_all, job.top_k))
        if row.unread or job is None:
            return
        self._reading.remove(row)
        if all(math.isfinite(value) for value in row.logp):
            out.scored.append((row.id, Scores(job.start, tuple(row.logp), tuple(row.top))))
            self._end(row)
        else:
            self._fail(row, f"version {row.version} computes numbers that are not finite", out)

    # -- ends
    def _end(self, row: Row) -> None:
        self.room.end(row)
        gone = self.adapters.leave(row.slot) or self.copies.leave(row.version)
        if gone is not None:
            self.room.forget(gone)

    def _fail(self, row: Row, problem: str, out: StepOutput) -> None:
        for rows in (self._reading, self._running):
            if row in rows:
                rows.remove(row)
        self.room.spoil(row)
        self._end(row)
        out.failed.append((row.id, problem))

    def _after(self, begin: float, rows: int, readings: list[PromptPiece]) -> None:
        pieces = [(reading.piece.start, reading.piece.stop - reading.piece.start) for reading in readings]
        self.pace.saw(self._counts.step(begin, sum(count for _, count in pieces)), pieces, rows)
