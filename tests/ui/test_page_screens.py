"""An attempt's screens on the page, in a real browser: seen step by step, enlarged, and gone when forgotten."""

from __future__ import annotations

import time
import urllib.error
from typing import Any
from urllib.parse import quote

import pytest
from browser_parts import SHOTS, SLOW, findings, opened, shown, until
from page_parts import PageServer

pytestmark = SLOW
LOADED = "[...document.querySelectorAll('.screen img')].every(one => one.complete && one.naturalWidth === 640)"
LARGE = "document.querySelector('dialog.viewer img').naturalWidth === 640"


@pytest.mark.parametrize("look", [("light", 1440), ("dark", 360)], ids=str)
def test_each_step_shows_its_screen_and_the_arrow_keys_lead_through_them(
    taught: PageServer, screened: str, browser: Any, axe: str, look: tuple[str, int]
) -> None:
    scheme, width = look
    SHOTS.mkdir(parents=True, exist_ok=True)
    run = taught.call("GET", f"/v1/rl/episodes/{quote(screened)}")
    turns: list[dict[str, Any]] = run["turns"]  # type: ignore[assignment]
    assert run["outcome"] == 1.0 and [turn["pictures"] for turn in turns[:-1]] == [["before"]] * (len(turns) - 1)
    assert turns[-1]["pictures"] == ["before", "after"]
    with opened(browser, taught, scheme=scheme, width=width) as page:
        shown(page, f"tasks/{screened}")
        buttons = page.locator("button.screen")
        assert buttons.count() == len(turns) + 1
        for place in range(buttons.count()):  # they are loaded as they come into view
            buttons.nth(place).scroll_into_view_if_needed()
        until(page, LOADED)
        assert "Sign up as Eva Adams" in page.get_by_role("region", name="What was asked").inner_text()
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=str(SHOTS / f"screens-{width}-{scheme}.png"), full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert findings(page, axe) == []
        first = page.get_by_role("button", name="The screen before step 1: enlarge")
        first.focus()
        page.keyboard.press("Enter")
        box = page.get_by_role("dialog", name="Screens of this attempt")
        box.get_by_role("img", name="The screen before step 1").wait_for()
        until(page, LARGE)
        assert f"1 of {len(turns) + 1}" in box.inner_text() and "then did:" in box.inner_text()
        assert findings(page, axe) == []
        page.keyboard.press("ArrowRight")
        box.get_by_role("img", name="The screen before step 2").wait_for()
        for _ in range(len(turns) + 3):
            page.keyboard.press("ArrowRight")
        box.get_by_role("img", name="The screen at the end").wait_for()
        until(page, LARGE)
        page.screenshot(path=str(SHOTS / f"screen-large-{width}-{scheme}.png"))
        box.get_by_role("button", name="Earlier").click()
        box.get_by_role("img", name=f"The screen before step {len(turns)}").wait_for()
        page.keyboard.press("Escape")
        until(page, "!document.querySelector('dialog')")
        assert page.evaluate("document.activeElement.className") == "screen"  # where it was opened from


def test_a_forgotten_attempt_leaves_no_screen(taught: PageServer, screened: str, browser: Any) -> None:
    folder = taught.home / "pictures"
    held = len([*folder.glob("*/*")])
    last = len(taught.call("GET", f"/v1/rl/episodes/{quote(screened)}")["turns"]) - 1  # type: ignore[arg-type]
    planned = taught.call("POST", "/v1/rl/forget", {"episode": screened, "dry_run": True})
    assert planned["goes"]["pictures"] == held == last + 2  # type: ignore[index, call-overload]
    with opened(browser, taught) as page:
        shown(page, f"tasks/{screened}")
        assert page.locator("button.screen").count() == held
        taught.call("POST", "/v1/rl/forget", {"episode": screened})
        with pytest.raises(urllib.error.HTTPError, match="404"):
            taught.call("GET", f"/v1/rl/episodes/{quote(screened)}")
        end_s = time.monotonic() + 120.0  # files go after the rows
        while [*folder.glob("*/*")]:
            assert time.monotonic() < end_s
            time.sleep(0.1)
    certificates = taught.call("GET", "/v1/rl/forget")["forgettings"]
    assert certificates[-1]["certificate"]["removed"]["pictures"] == held  # type: ignore[index, call-overload]
