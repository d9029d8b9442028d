from __future__ import annotations

import io
import json
import re
from xml.etree import ElementTree

from rich.console import Console

from openclaw_rl.evals.client import ClientReply, TurnNews
from openclaw_rl.evals.demo.report import as_html, as_json, headline
from openclaw_rl.evals.demo.run import DemoView, shortened
from openclaw_rl.evals.learning import Measuring, SessionStarted, Spoke
from openclaw_rl.evals.people.users import Check
from openclaw_rl.evals.records import Example, LearningReport, Measurement, SessionRecord, TurnRecord
from openclaw_rl.evals.share import Share

GOOD, BAD = Check(True, True, True), Check(False, True, True)
NEWS = TurnNews("t", "trained", "", -1, (-1, -1, None), ("Write <b>plainly</b>.",))


def session(number: int, *, is_good: bool) -> SessionRecord:
    first = TurnRecord(
        "2 + 2?", ClientReply("**4**", "t", f"shared.{number - 1}", "stop"), BAD, "No markdown please.", NEWS
    )
    last = TurnRecord("2 + 2?", ClientReply("The answer is 4.", "t", f"shared.{number - 1}", "stop"), GOOD, "Thanks!")
    return SessionRecord(number, (last,) if is_good else (first, last), 1.5, True)


def measurement(label: str, wish: int, right: int) -> Measurement:
    example = Example("How many?", "## Solution <script>", BAD)
    return Measurement(label, 0, "shared.0", Share(wish, 50), Share(right, 50), 0, 80.0, (example,))


def report(*, good: tuple[bool, ...] = (False, True, True, True)) -> LearningReport:
    sessions = tuple(session(number, is_good=is_good) for number, is_good in enumerate(good, 1))
    measurements = (measurement("before", 1, 49), measurement("converged", 48, 48), measurement("after", 49, 49))
    return LearningReport("student", "no markdown", 7, 0.7, sessions, measurements, 0, 3, 61.26)


def test_the_figures_have_the_keys_that_are_promised() -> None:
    figures = as_json(report(), model="bundled")
    assert {key: figures[key] for key in ("sessions", "converged_at", "wish_before", "wish_after")} == {
        "sessions": 4,
        "converged_at": 4,
        "wish_before": 0.02,
        "wish_after": 0.98,
    }
    assert (figures["accuracy_before"], figures["accuracy_after"]) == (0.98, 0.98)
    assert (figures["refused"], figures["versions"], figures["seconds"]) == (0, 3, 61.3)
    assert json.loads(json.dumps(figures)) == figures


def test_what_was_not_measured_is_null() -> None:
    empty = LearningReport("student", "no markdown", 0, 0.7, (), (), 0, 0, 1.0)
    figures = as_json(empty, model="bundled")
    names = ("converged_at", "wish_before", "wish_after", "accuracy_before", "accuracy_after")
    assert [figures[name] for name in names] == [None] * 5
    assert as_html(empty, model="bundled")


def test_a_measurement_before_alone_is_no_measurement_after() -> None:
    one = LearningReport("student", "", 0, 0.7, (), (measurement("before", 1, 49),), 0, 0, 1.0)
    assert as_json(one, model="bundled")["wish_after"] is None


def test_the_page_stands_alone_and_holds_text_as_text() -> None:
    page = as_html(report(), model="bundled")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "Write &lt;b&gt;plainly&lt;/b&gt;." in page
    assert not re.search(r'(src|href)="', page)


def test_every_plot_is_well_formed_and_marks_each_session() -> None:
    plots = re.findall(r"<svg.*?</svg>", as_html(report(), model="bundled"), re.DOTALL)
    assert len(plots) == 3
    first = ElementTree.fromstring(plots[0])
    dots = [item.get("class") for item in first.iter("{http://www.w3.org/2000/svg}circle")]
    assert dots == ["dot off", "dot", "dot", "dot"]
    for plot in plots:
        ElementTree.fromstring(plot)


def test_the_headline_says_whether_it_learned() -> None:
    # one correction, in the first of four sessions
    assert headline(report()) == (
        "It learned: the wish held three sessions running at session 4, after 1 correction; "
        "now 98 % of first replies follow it"
    )
    assert headline(report(good=(False, True))) == ("After 2 sessions the wish was not yet met three times in a row")


def shown(*, is_terminal: bool) -> str:
    out = io.StringIO()
    with DemoView(Console(file=out, force_terminal=is_terminal, width=150, highlight=False)) as view:
        view.say("starting")
        view(Measuring("before", 1, 2))
        view(measurement("before", 1, 49))
        view(SessionStarted(1, 24))
        view(Spoke("user", "Please solve this."))
        view(Spoke("model", "**4**", "shared.0", False))
        view(session(1, is_good=False))
    return out.getvalue()


def test_without_a_terminal_the_story_is_plain_lines() -> None:
    lines = shown(is_terminal=False)
    assert "\x1b" not in lines
    for words in ("session 1", "Please solve this.", "✗ shared.0", "-1 (-1, -1)", "hint: Write <b>plainly</b>."):
        assert words in lines
    assert "0 of 1 first replies met the rule, 1 corrections" in lines


def test_in_a_terminal_the_last_picture_stands_with_all_there_is_to_see() -> None:
    picture = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown(is_terminal=True))
    for words in ("1 of up to 24", "0 %, 0 in a row of 3", "shared.0", "wish 2 %, right 98 %", "hint: Write"):
        assert words in picture


def test_long_words_are_cut_to_one_line() -> None:
    assert shortened("a\nb  c") == "a b c"
    assert shortened("x" * 20, 10) == "x" * 9 + "…"
