"""What an agent sees of a command: its output, cut to a budget, and how it ended."""

from __future__ import annotations

from openclaw_rl.envs.box.sandbox import KilledBy, Output, ShellResult

WHY = {
    KilledBy.MEMORY: "it needed more memory than there is",
    KilledBy.OUTPUT: "it printed too much",
    KilledBy.CPU: "it used too much CPU time",
    KilledBy.FILE_SIZE: "it wrote a file that is too large",
    KilledBy.DISK: "the disk was full",
    KilledBy.SIGNAL: "it was killed",
}


def shown(done: ShellResult, *, most_characters: int, timeout_s: float) -> str:
    """The output, then one line in brackets that names the exit status and what ended the command early."""
    ending = f"exit status {done.exit_status}"
    if done.killed_by is KilledBy.TIMEOUT:
        ending += f": stopped, it took longer than {timeout_s:g} s"
    elif done.killed_by is not None and not (done.killed_by is KilledBy.SIGNAL and done.is_shell_lost):
        ending += f": {WHY[done.killed_by]}"
    if done.is_shell_lost:
        ending += "; the shell ended: a new one starts in the same folder, without its variables"
    text = cut(done.output, most_characters)
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}[{ending}]"


def cut(output: Output, most_characters: int) -> str:
    """The text of a stream in a limited number of characters, with a line that gives the number left out."""
    if not output.cut_bytes:
        text = (output.head + output.tail).decode("utf-8", "replace")
        if len(text) <= most_characters:
            return text
        head = tail = text
    else:
        head, tail = (part.decode("utf-8", "replace") for part in (output.head, output.tail))
        text = head + tail
    half = most_characters // 2
    head, tail = head[:half], tail[-half:]
    left_out = len(text) + output.cut_bytes - len(head) - len(tail)
    return f"{head}\n[... {left_out} characters left out ...]\n{tail}"
