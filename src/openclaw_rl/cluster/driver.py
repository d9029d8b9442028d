"""The process that talks to Ray: reads calls on stdin, answers on stdout, and ends when stdin closes.

Ray ends a program that loses its cluster, and takes over signals. So the server does not talk to it directly: this
process may end and be replaced. However it ends, Ray then ends its actors with their
processes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from typing import BinaryIO

from openclaw_rl.cluster.calls import Call, CallFailure, End, Forget, Join, Place, Send, StartProcess, Wait
from openclaw_rl.core import pipe
from openclaw_rl.core.logs import set_up_logging
from openclaw_rl.errors import ConfigError, OpenClawRLError

log = logging.getLogger(__name__)
NOT_INSTALLED = CallFailure(
    "Ray is not installed here",
    "run `pip install 'openclaw-rl[ray]'`, and then `pip install ray==...` of the cluster's release",
    True,
)


def main() -> None:
    """Serves calls until stdin closes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Ray prints nodes' output to stdout; send it to stderr, away from the answers
    set_up_logging(logging.WARNING, text="cluster: %(message)s")
    asyncio.run(_serve(answers))
    os._exit(0)


async def _serve(answers: BinaryIO) -> None:
    loop = asyncio.get_running_loop()
    calls: asyncio.Queue[tuple[int, Call] | None] = asyncio.Queue(maxsize=256)

    def listen() -> None:
        while True:
            said = pipe.read(sys.stdin.buffer)
            asyncio.run_coroutine_threadsafe(calls.put(said), loop).result()  # type: ignore[arg-type]
            if said is None:
                return

    threading.Thread(target=listen, daemon=True).start()
    try:
        from openclaw_rl.cluster.joining import RayCluster
    except ModuleNotFoundError:
        first = await calls.get()
        pipe.write(answers, (0 if first is None else first[0], NOT_INSTALLED))
        return
    cluster: RayCluster | None = None
    running: set[asyncio.Task[None]] = set()

    async def answer(number: int, call: Call) -> None:
        try:
            found = await _answer(cluster, call)
        except OpenClawRLError as problem:
            found = CallFailure(problem.problem, problem.fix, isinstance(problem, ConfigError))
        except Exception as problem:  # the edge of a call: the caller must get the error
            log.exception("the call broke")
            found = CallFailure(f"{type(problem).__name__}: {problem}")
        pipe.write(answers, (number, found))

    while (said := await calls.get()) is not None:
        number, call = said
        if isinstance(call, Join):
            try:
                cluster = RayCluster.join(call)
                pipe.write(answers, (number, await cluster.reserve(call)))
            except OpenClawRLError as problem:
                pipe.write(
                    answers, (number, CallFailure(problem.problem, problem.fix, isinstance(problem, ConfigError)))
                )
            continue
        task = asyncio.create_task(answer(number, call))
        running.add(task)
        task.add_done_callback(running.discard)
    if cluster is not None:
        cluster.leave()


async def _answer(cluster: object, call: Call) -> object:
    from openclaw_rl.cluster.joining import RayCluster

    if not isinstance(cluster, RayCluster):
        raise TypeError(f"{type(call).__name__} came before Join")
    match call:
        case Place():
            return await cluster.place(call)
        case Send():
            return await cluster.send(call)
        case Wait():
            return await cluster.wait(call.place)
        case Forget():
            await cluster.forget(call)
        case StartProcess():
            await cluster.start(call)
        case End():
            await cluster.end(call.place)
        case _:
            raise TypeError(f"no call is a {type(call).__name__}")
    return None


if __name__ == "__main__":
    main()
