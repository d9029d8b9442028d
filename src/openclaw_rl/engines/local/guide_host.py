"""The process that follows grammars: `python -m openclaw_rl.engines.local.guide_host TOKENIZER VOCAB_SIZE END FD`.

Steps are requested over stdin and answered over stdout, in order; grammars are compiled concurrently, on request over
the socket FD. When stdin closes, the engine is gone and the process ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from threading import Thread

from openclaw_rl.core import pipe
from openclaw_rl.core.sampling import Grammar
from openclaw_rl.engines.local.grammars import Grammars
from openclaw_rl.engines.local.guide_wire import Answer, Ask, GrammarRefusal, Open
from openclaw_rl.engines.local.guides import WORD, Guide, LostGuide, fill
from openclaw_rl.errors import RequestError

UNKNOWN = LostGuide("the grammar is not known any more")
COMPILING_NICE = 10  # steps come before compiling: on Linux each thread has its own priority


def main() -> None:
    """Runs until stdin closes."""
    tokenizer, vocab_size, end, descriptor = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to handle
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between the messages
    grammars = Grammars(Path(tokenizer), int(vocab_size), int(end))
    asked = socket.socket(fileno=int(descriptor)).makefile("rwb")
    Thread(target=_compile, args=(grammars, asked), name="grammars", daemon=True).start()
    following = Following(grammars, -(-int(vocab_size) // WORD))
    while (message := pipe.read(sys.stdin.buffer)) is not None:
        if isinstance(message, Open):
            following.open(message)
        elif isinstance(message, Ask):
            pipe.write(out, following.answer(message))
        else:
            raise TypeError(f"no message: {message!r}")
    os._exit(0)  # a grammar may be compiling, and nobody waits for it


def _compile(grammars: Grammars, asked: pipe.Connection) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.nice(COMPILING_NICE)
    while isinstance(grammar := pipe.read(asked), Grammar):
        refusal = None
        try:
            grammars.compile(grammar)
        except RequestError as error:
            refusal = GrammarRefusal(error.problem, error.fix, error.code)
        pipe.write(asked, (refusal,))


class Following:
    """All answers that are following grammars, by number."""

    def __init__(self, grammars: Grammars, words: int) -> None:
        self._grammars = grammars
        self._words = words
        self._guides: dict[int, Guide | LostGuide] = {}

    def open(self, ask: Open) -> None:
        """Adds an answer; its fault, if any, is reported with the next request for it."""
        try:
            self._guides[ask.guide] = self._grammars.guide(ask.grammar, ask.said)
        except RequestError as error:
            self._guides[ask.guide] = LostGuide(error.problem)

    def answer(self, ask: Ask) -> Answer:
        """The tokens that may come next."""
        for number in ask.gone:
            self._guides.pop(number, None)
        guides = [self._guides.get(number, UNKNOWN) for number, _ in ask.guides]
        for guide, (_, taken) in zip(guides, ask.guides, strict=True):
            for token in taken:
                guide.take(token)
        table, forced = fill(guides if ask.next_too else [], self._words)
        problems = {entry: guide.problem for entry, guide in enumerate(guides) if guide.problem}
        ended = tuple(guide.is_over for guide in guides)
        return Answer(table.tobytes(), tuple(forced), tuple(guide.is_complete for guide in guides), ended, problems)


if __name__ == "__main__":
    main()
