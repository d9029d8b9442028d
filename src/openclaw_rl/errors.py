"""Every kind of error this project raises for people: what is wrong, with the value, then what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class OpenClawRLError(Exception):
    """An error for a person: printed without a traceback, with `fix` under it."""

    def __init__(self, problem: str, *, fix: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        """The problem and, where there is one, what to do about it."""
        return f"{self.problem}. {self.fix[:1].upper()}{self.fix[1:]}" if self.fix else self.problem


class ConfigError(OpenClawRLError):
    """A setting, option or path cannot be used."""


class ModelError(OpenClawRLError):
    """A model folder, its tokenizer or its template cannot be used."""


class AdapterError(OpenClawRLError):
    """An adapter is truncated, non-finite, of the wrong shape or not what its digest says."""


class StoreError(OpenClawRLError):
    """The store is corrupt, newer than this program, or held by another process."""


class DamageError(StoreError):
    """Bytes in the store are no longer what was written."""


class DiskError(StoreError):
    """Nothing can be written: the disk is full, read-only, not ours or broken. What is stored is sound."""


class RequestError(OpenClawRLError):
    """A client's mistake: answered with `status` and a body in the shape of the API that was called."""

    def __init__(
        self,
        problem: str,
        *,
        fix: str = "",
        status: int = 400,
        code: str | None = None,
        param: str | None = None,
        retry_s: int | None = None,
    ) -> None:
        super().__init__(problem, fix=fix)
        self.status = status
        self.code = code
        self.param = param
        self.retry_s = retry_s  # after how long the same may be asked again


class ContextError(RequestError):
    """More tokens than the model's context holds, in OpenAI's words; `serve.failures` has the other APIs' words.

    Clients look for these words, and shorten the conversation then. `tokens` is how many there are, or the least that
    there must be where counting them would take too long.
    """

    def __init__(self, tokens: int, most: int, *, param: str) -> None:
        super().__init__(
            f"This model's maximum context length is {most} tokens. However, your messages resulted in {tokens} tokens",
            fix="Please reduce the length of the messages.",
            code="context_length_exceeded",
            param=param,
        )
        self.tokens = tokens
        self.most = most


class EngineError(OpenClawRLError):
    """The engine cannot do what was asked of it, or its process is gone."""


class EngineAwayError(EngineError):
    """No server of the engine answers at present; each is tried again, so the same may be asked again."""


class BeyondContextError(EngineError):
    """What was asked has more tokens than the model's context holds."""


class ClusterError(EngineError):
    """A cluster or a node of it is gone, or cannot do what was asked; it is tried again."""


class TrainerError(OpenClawRLError):
    """A step failed; the samples are kept."""


class StepTooCostlyError(TrainerError):
    """A step took more time or memory than there is. `after_s` is when it was given up, None where it was memory."""

    def __init__(self, problem: str, *, fix: str = "", after_s: float | None = None) -> None:
        super().__init__(problem, fix=fix)
        self.after_s = after_s


class JudgeError(OpenClawRLError):
    """A judge did not answer, or answered nonsense; the turn waits."""


class BoxError(OpenClawRLError):
    """A box cannot be made, is gone, or cannot do what was asked; never the fault of what ran inside it."""


class PoolError(BoxError):
    """A pool of environments refuses or cannot do what was asked. `failure` says whose fault it is, where known.

    On the server it becomes an answer with `status` and `code`; on the client it is made of one.
    """

    def __init__(
        self,
        problem: str,
        *,
        fix: str = "",
        status: int = 400,
        code: str = "invalid_request",
        failure: str | None = None,
        retry_s: int | None = None,
    ) -> None:
        super().__init__(problem, fix=fix)
        self.status = status
        self.code = code
        self.failure = failure  # as envs.task.Failure names it
        self.retry_s = retry_s  # after how long the same may be asked again


class TaskError(OpenClawRLError):
    """A task, its files, its solution or its grader cannot be used."""


@contextmanager
def first_error() -> Iterator[None]:
    """Raises the first error of a task group, which cancelled its other tasks, without the group."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group.exceptions[0].__cause__


def innermost(problem: BaseException) -> BaseException:
    """The first error in a group of groups; any other error itself."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


def first_line(problem: BaseException) -> str:
    """What a library says that it could not do, without the rest of a long message; its kind if it says nothing."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0][:300]
