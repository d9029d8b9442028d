"""mini-swe-agent in a terminal: a task, commands confirmed and rejected, a new task where it has finished."""

from __future__ import annotations

from talking import call, calls, direct, note, play, say, slow, wait_quiet
from terminal import Terminal

FINISH = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
DONE = "Agent wants to finish"


def bash(text: str) -> tuple[str, dict]:
    """A call of its one tool."""
    return ("bash", {"command": text})


class Talks:
    """Its conversations."""

    def __init__(self, place) -> None:
        self.place, self.program = place, str(place.folder / "venv" / "bin" / "mini")
        self.env = {
            **place.environment,
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_GLOBAL_CONFIG_DIR": str(place.home / "mswea"),
            "OPENAI_API_KEY": place.environment["API_KEY"],
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
        }
        (place.project / "notes.txt").write_text("apples 3\npears 4\n")

    def begin(self, task: str, *more: str, config: str = "mini.yaml") -> Terminal:
        words = ["-m", "openai/default", "-t", task, "-c", config, *more, "-o", str(self.place.home / "run.json")]
        words += ["-c", f"model.model_kwargs.api_base={self.place.base_url}/v1"]
        return Terminal([self.program, *words], cwd=self.place.project, env=self.env)

    def end(self, terminal: Terminal, name: str) -> None:
        (self.place.home.parent / f"client-{name}.log").write_text(terminal.shown)
        terminal.close()

    def plain(self) -> None:
        run = self.begin(say("ask", calls(bash("cat notes.txt")), calls(bash(FINISH))), "-y")
        first = run.wait_for(DONE, timeout_s=60)
        run.type(
            say(
                "correction", calls(bash("ls /nowhere/at/all; exit 3")), calls(bash("echo better")), calls(bash(FINISH))
            )
        )
        second = run.wait_for(DONE, timeout_s=60)
        run.type(say("more", calls(bash(FINISH))))
        third = run.wait_for(DONE, timeout_s=60)
        self.end(run, "plain")
        note("runs", first and second and third, [first, second, third])
        note("tools", second and "returncode" in run.shown, run.shown[-200:])

    def tools_parallel(self) -> None:
        both = calls(bash("echo one"), bash("cat /nowhere; exit 4"))
        run = self.begin(say("ask", both, {"text": "I think about it."}, calls(bash(FINISH))), "-y")
        good = run.wait_for(DONE, timeout_s=60)
        run.type(say("correction", call("no_such_tool", a=1), calls(bash(FINISH))))
        good = good and run.wait_for(DONE, timeout_s=60)
        self.end(run, "parallel")
        note("tools", good, "" if good else run.shown[-500:])

    def rejected(self) -> None:
        run = self.begin(say("ask", calls(bash("rm -r old")), calls(bash("echo kept")), calls(bash(FINISH))))
        run.wait_for("Execute 1 action(s)?", timeout_s=60)
        run.type(say("correction", calls(bash("echo kept")), calls(bash(FINISH))))
        run.wait_for("Execute 1 action(s)?", timeout_s=60)
        run.type("")
        run.wait_for("Execute 1 action(s)?", timeout_s=60)
        run.type("")
        good = run.wait_for(DONE, timeout_s=60)
        self.end(run, "rejected")
        note("rejected", good, "" if good else run.shown[-500:])

    def cancelled(self) -> None:
        text = say("tell", "Once upon a time there was a lighthouse by the sea. " * 40)
        with slow():
            run = self.begin(text, "-y")
            for _ in range(120):
                if direct("state")["running"] or not run.wait_for("", timeout_s=0.5):
                    break
                run.wait_for("never shown", timeout_s=0.5)
            run.wait_for("never shown", timeout_s=4)
            run.interrupt()
            run.wait_for("Interrupted", timeout_s=10)
            wait_quiet(5)
        run.type(say("on", calls(bash(FINISH))))
        good = run.wait_for(DONE, timeout_s=60)
        self.end(run, "cancelled")
        note("cancelled", good, "" if good else run.shown[-500:])

    def text_based(self) -> None:
        def block(text: str) -> str:
            return f"THOUGHT: I run it.\n\n```mswea_bash_command\n{text}\n```"

        name = "mini_textbased.yaml"
        more = ("-y", "--model-class", "litellm_textbased")
        run = self.begin(say("ask", block("cat notes.txt"), block("exit 3"), block(FINISH)), *more, config=name)
        good = run.wait_for(DONE, timeout_s=60)
        run.type(say("correction", "I forgot the block.", block(FINISH)))
        good = good and run.wait_for(DONE, timeout_s=60)
        self.end(run, "text")
        note("tools", good, "" if good else run.shown[-500:])


def drive(place) -> None:
    """All its conversations."""
    direct("errands", errands=[])
    talks = Talks(place)
    play(talks.plain, talks.tools_parallel, talks.rejected, talks.cancelled, talks.text_based)
