"""Grammars followed in a separate process, as the engine sees it.

Masks are made there while this process runs the model. In a thread of this process they would be slower, and slow the
model down: the two would wait for the interpreter in turn.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from openclaw_rl.core import pipe
from openclaw_rl.core.sampling import Grammar
from openclaw_rl.engines.local.grammars import MOST_KEPT, MOST_KEPT_CHARS, check_size
from openclaw_rl.engines.local.guide_wire import Answer, Ask, GrammarRefusal, Open
from openclaw_rl.engines.local.masks import Guided, Masks, Unpacking
from openclaw_rl.engines.local.recent import Recent
from openclaw_rl.errors import RequestError

log = logging.getLogger(__name__)
MODULE = "openclaw_rl.engines.local.guide_host"
STARTS = 3  # of the process, for one step
ANSWER_S = 30.0  # a process that takes longer for a step is ended: all answers wait for it


class RemoteGuide:
    """An answer whose grammar is followed in the other process."""

    def __init__(self, number: int, grammar: Grammar, said: tuple[int, ...], process: GuideProcess) -> None:
        self.number = number
        self.grammar = grammar
        self.said = list(said)
        self.untold = 0  # how many of the last tokens were not sent yet
        self.start = 0  # the start of the process that has this guide
        self.is_complete = False
        self.problem = ""
        self.is_over = False
        self._process = process

    def take(self, token: int) -> None:
        """The answer continued with this token; the process receives it with the next step."""
        if self.is_complete and token in self.grammar.ends:
            self.is_over = True
            return
        self.said.append(token)
        self.untold += 1
        if not self.grammar.ends:
            self._process.ask([self])  # only the grammar decides whether it ends here

    def told(self) -> tuple[int, ...]:
        """The tokens that were not sent to the process yet; they count as sent now."""
        fresh = tuple(self.said[len(self.said) - self.untold :]) if self.untold else ()
        self.untold = 0
        return fresh


class GuideProcess:
    """Starts the process with the first grammar, and again if it died, which loses nothing."""

    def __init__(self, tokenizer: Path, vocab_size: int, end: int, device: torch.device) -> None:
        self._arguments = (str(tokenizer), str(vocab_size), str(end))
        self._unpacking = Unpacking(vocab_size, device)
        self._numbers = itertools.count()
        self._gone: list[int] = []
        self._known: Recent[bool] = Recent(most=MOST_KEPT, most_chars=MOST_KEPT_CHARS)
        self._compiling = threading.Lock()
        self._sending = threading.RLock()  # of everything below
        self._starts = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._asked: pipe.Connection | None = None

    @property
    def pid(self) -> int:
        """The process's id; 0 if none was started."""
        return 0 if self._child is None else self._child.pid

    # -- grammars; from any thread
    def holds(self, grammar: Grammar) -> bool:
        """Whether it is compiled already."""
        with self._sending:
            return grammar.text in self._known

    def compile(self, grammar: Grammar) -> None:
        """Raises RequestError if the library refuses it, or it is too large."""
        if self.holds(grammar):
            return
        check_size(grammar)
        with self._compiling:
            for _ in range(STARTS):
                answer = self._compiled(grammar)
                if answer is not None:
                    break
                self.close()
            else:
                raise RequestError(
                    "the process that compiles answer formats ended each time it was given this one",
                    fix="simplify the schema or grammar, or leave it out",
                    code="unsupported_format",
                )
        if answer[0] is not None:
            raise RequestError(answer[0].problem, fix=answer[0].fix, code=answer[0].code)
        with self._sending:
            self._known.put(grammar.text, True)

    def _compiled(self, grammar: Grammar) -> tuple[GrammarRefusal | None] | None:
        with self._sending:
            self._started()
            asked = self._asked
        assert asked is not None
        try:
            pipe.write(asked, grammar)
            answer = pipe.read(asked)
        except (OSError, ValueError):  # it died, or another thread noticed first and ended it
            return None
        return answer if isinstance(answer, tuple) else None

    def guide(self, grammar: Grammar, said: tuple[int, ...] = ()) -> RemoteGuide:
        """A guide positioned after the tokens `said`. Raises RequestError as `compile`."""
        self.compile(grammar)
        with self._sending:
            self._known.get(grammar.text)
            guide = RemoteGuide(next(self._numbers), grammar, said, self)
            weakref.finalize(guide, self._gone.append, guide.number)
        return guide

    # -- steps
    def begin(self, guides: Mapping[int, Guided]) -> Callable[[], Masks]:
        """Returns a function that waits for the masks of a step's rows with a guide, by row."""
        held = [guide for guide in guides.values() if isinstance(guide, RemoteGuide)]
        is_sent = self._sent(held)

        def masks() -> Masks:
            answer = self._answer(held, is_sent)
            if answer is None:
                size = self._unpacking.words * 4 * len(held)
                answer = Answer(b"\xff" * size, (False,) * len(held), (), (), {})
                for guide in held:
                    guide.problem = "the process that follows answer formats ended again and again"
            self._heed(held, answer)
            bits = np.frombuffer(answer.bits, dtype=np.uint8).reshape(len(held), -1)
            return self._unpacking.masks(tuple(guides), bits, answer.forced)

        return masks

    def ask(self, guides: list[RemoteGuide]) -> None:
        """Finds out whether these answers are over."""
        answer = self._answer(guides, self._sent(guides, next_too=False), next_too=False)
        if answer is not None:
            self._heed(guides, answer)

    def _heed(self, guides: list[RemoteGuide], answer: Answer) -> None:
        for guide, is_complete, is_over in zip(guides, answer.complete, answer.over, strict=False):
            guide.is_complete, guide.is_over = is_complete, is_over
        for entry, problem in answer.problems.items():
            guides[entry].problem = problem

    def _sent(self, guides: list[RemoteGuide], *, next_too: bool = True) -> bool:
        """Whether the request was sent; guides that the process does not know are opened there first."""
        with self._sending:
            child = self._started()
            assert child.stdin is not None
            gone = tuple(self._gone)
            del self._gone[: len(gone)]
            try:
                for guide in guides:
                    if guide.start != self._starts:
                        guide.start, guide.untold = self._starts, 0
                        pipe.write(child.stdin, Open(guide.number, guide.grammar, tuple(guide.said)))
                pipe.write(child.stdin, Ask(tuple((guide.number, guide.told()) for guide in guides), gone, next_too))
            except OSError:
                return False
        return True

    def _read(self) -> Answer | None:
        assert self._child is not None and self._child.stdout is not None
        try:
            # nothing is buffered here: one answer is read completely before the next request
            readable = pipe.is_readable(self._child.stdout.fileno(), ANSWER_S)
            answer = pipe.read(self._child.stdout) if readable else None
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, Answer) else None

    def _answer(self, guides: list[RemoteGuide], is_sent: bool, *, next_too: bool = True) -> Answer | None:
        """The answer; if none comes, that of a new process, which receives all tokens of these answers."""
        answer = self._read() if is_sent else None
        for _ in range(STARTS):
            if answer is not None:
                break
            self.close()
            log.warning("the process that follows answer formats ended or hung; it is started again")
            answer = self._read() if self._sent(guides, next_too=next_too) else None
        return answer

    # -- the process
    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            ours, its = socket.socketpair()
            with ours, its:
                command = [sys.executable, "-m", MODULE, *self._arguments, str(its.fileno())]
                self._child = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(its.fileno(),)
                )
                self._asked = ours.makefile("rwb")
                self._starts += 1
        return self._child

    def close(self) -> None:
        """Ends the process; the next grammar starts it again."""
        with self._sending:
            child, self._child = self._child, None
            if child is None:
                return
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout, self._asked):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._known = Recent(most=MOST_KEPT, most_chars=MOST_KEPT_CHARS)
