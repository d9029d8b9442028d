"""The Python that runs in a box and keeps its state from call to call. It is sent as text: standard library only.

Each call runs in a fork. A fork whose call succeeds replaces its parent; one that is killed, or ends its process,
leaves the parent, with every variable as it was before the call.

Requests and answers are lines of two named pipes: JSON with the code; a number as a shell's exit status.
"""

import ast
import contextlib
import gc
import json
import linecache
import os
import resource
import sys
import traceback
import types

OK, RAISED, EXITED, NO_PROCESS = 0, 1, 2, 3
NAME = "<call {}>"
OURS: "list[int]" = []  # the pipes that the code's processes must not keep open; none while the fork is our own


def main(request_path: str, answer_path: str, memory_mb: int, preload: str) -> None:
    """Serves calls until the requests end."""
    requests = os.open(request_path, os.O_RDONLY)
    answers = os.open(answer_path, os.O_WRONLY)
    if memory_mb:
        most = memory_mb << 20
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    with contextlib.suppress(AttributeError):  # before Python 3.11
        sys.set_int_max_str_digits(0)  # a call has a time limit of its own
    os.register_at_fork(after_in_child=_let_go)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    for name in filter(None, preload.split(",")):
        with contextlib.suppress(ImportError):
            __import__(name)
    _say(answers, "ready")
    number = 0
    while line := _line(requests):
        number += 1
        _call(json.loads(line), number, module, (requests, answers))


def _call(code: str, number: int, module: types.ModuleType, pipes: "tuple[int, int]") -> None:
    """Runs a call in a fork. It returns in the process that has the new state; the other one ends."""
    requests, answers = pipes
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()  # existing objects are not scanned again, and so not copied
    done, done_write = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(done)
        os.close(done_write)
        print("the box has no process left for this call", flush=True)
        _say(answers, str(NO_PROCESS))
        return
    if child:
        os.close(done_write)
        has_followed = os.read(done, 1) == b"."
        if has_followed:
            os._exit(0)
        os.close(done)
        _, status = os.waitpid(child, 0)
        _say(answers, str(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else EXITED))
        return
    os.close(done)
    OURS.extend((requests, answers, done_write))
    ended = _run(code, NAME.format(number), module)
    OURS.clear()
    with contextlib.suppress(BrokenPipeError):  # the code has ended its parent
        os.write(done_write, b".")
    os.close(done_write)
    _say(answers, str(ended))


def _let_go() -> None:
    """In a process that the code forked: closes our pipes, so that readers notice its end."""
    for fd in OURS:
        with contextlib.suppress(OSError):
            os.close(fd)


def _run(code: str, name: str, module: types.ModuleType) -> int:
    """Runs code, and prints the value of its last line, as an interactive Python does."""
    own = os.getpid()
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec", dont_inherit=True), module.__dict__)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), module.__dict__)
            if value is not None:
                module.__dict__["_"] = value
                print(repr(value))
        ended = OK
    except BaseException as problem:  # every exception of the code is shown to its author
        is_end = isinstance(problem, SystemExit) and not problem.code  # exit() at the end of a script is not a mistake
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        if not is_end and os.getpid() == own:
            _show(problem)
        ended = OK if is_end else RAISED
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    if os.getpid() != own:  # the code forked, and this is not the process of the call
        os._exit(ended)
    return ended


def _show(problem: BaseException) -> None:
    """Prints a traceback from the first line of the code on."""
    trace = problem.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<call "):
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(problem), problem, trace))
    except BaseException as other:  # an exception that cannot be printed
        text = f"{type(problem).__name__} (it cannot be printed: {type(other).__name__})\n"
    with contextlib.suppress(OSError):
        os.write(1, text.encode("utf-8", "backslashreplace"))


def _line(fd: int) -> bytes:
    """The next line; empty at the end."""
    read = bytearray()
    while not read.endswith(b"\n"):
        piece = os.read(fd, 1 << 16)
        if not piece:
            return b""
        read += piece
    return bytes(read)


def _say(fd: int, line: str) -> None:
    os.write(fd, line.encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
