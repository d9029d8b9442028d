"""The page's views in a real browser, on a real server that has learned something: `make test-page`."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from browser_parts import SHOTS, SLOW, findings, opened, shown, until
from page_parts import KEY, PROBLEMS, THANKS, WISH, PageServer, converse

pytestmark = SLOW
VIEWS = {
    "learning": "Is it learning?",
    "conversations": "Conversations",
    "versions": "Versions",
    "wishes": "Wishes",
    "try": "Try it",
    "tasks": "Tasks and runs",
    "forget": "Forget",
    "keys": "Keys",
    "settings": "Settings",
}
LOOKS = [("light", 1440), ("dark", 1440), ("light", 360), ("dark", 360)]


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_every_view_fits_is_accessible_and_shows_no_error(
    taught: PageServer, browser: Any, axe: str, scheme: str, width: int
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    first = first_conversation(taught)
    run = taught.call("GET", "/v1/rl/episodes")["episodes"][0]["id"]  # type: ignore[index, call-overload]
    more = {f"conversation/{first}": "Conversation", f"tasks/{run}": "One attempt", "versions/shared.1": "Versions"}
    with opened(browser, taught, scheme=scheme, width=width) as page:
        for view, title in {**VIEWS, **more}.items():
            shown(page, view)
            assert page.get_by_role("heading", level=1).inner_text() == title
            page.wait_for_timeout(300)
            name = re.sub(r"\W+", "-", view.partition("/")[0] if view in VIEWS else f"one-{view.partition('/')[0]}")
            page.screenshot(path=str(SHOTS / f"{name}-{width}-{scheme}.png"), full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} is wider than {width}"
            assert findings(page, axe) == [], view


def first_conversation(server: PageServer) -> str:
    rows = server.call("GET", "/v1/rl/conversations?limit=200&score=-1")["conversations"]
    assert isinstance(rows, list)
    return next(str(row["id"]) for row in rows if isinstance(row, dict) and str(row["id"]).endswith("monday"))


def test_signing_in_needs_a_right_key_and_out_forgets_it(taught: PageServer, browser: Any, axe: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(taught.url)
    page.get_by_label("API key").fill("sk-wrong")
    page.get_by_role("button", name="Sign in").click()
    assert "not one of this server's" in page.get_by_role("alert").inner_text()
    assert findings(page, axe) == []
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector("nav a")
    cookie = context.cookies()[0]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict") and KEY not in cookie["value"]
    assert page.evaluate("document.cookie") == ""
    page.reload()
    page.wait_for_selector("nav a")  # still signed in
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("API key").wait_for()
    assert context.cookies() == []
    context.close()


def test_the_first_view_says_what_was_learned_in_the_users_words(taught: PageServer, browser: Any) -> None:
    taught.call("POST", "/v1/rl/rollback", {"version": "shared.1"})
    with opened(browser, taught) as page:
        main = page.locator("main")
        main.get_by_text("Yes. It has learned").wait_for()
        card = page.get_by_role("region", name="Learned lately")
        card.get_by_text("held in").wait_for()  # the first view is made at most every other second
        assert WISH in card.inner_text()
        held = re.search(r"held in (\d+) of (\d+) repl", card.inner_text())
        assert held is not None and int(held[2]) >= 3 and held[1] == held[2]
        assert "1 correction" in card.inner_text()
        waits = page.get_by_role("region", name="What waits, and why").inner_text()
        assert "the hint changes nothing" in waits and "unheeded" not in waits  # reasons are told in plain words
        card.get_by_role("link", name="1 correction").click()
        page.get_by_role("heading", name="One reply").wait_for()
        page.get_by_text(PROBLEMS[0]).first.wait_for()


def test_it_is_live(taught: PageServer, browser: Any) -> None:
    with opened(browser, taught) as page:
        page.get_by_text("live", exact=True).wait_for()
        shown(page, "conversations")
        converse(taught, "while-watched", "Say hello to the watcher, please.")
        page.get_by_text("Say hello to the watcher, please.").wait_for(timeout=20_000)


def test_a_break_is_said_and_mended_and_whoever_is_signed_out_learns_why(taught: PageServer, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(taught.url)
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    page.get_by_text("live", exact=True).wait_for()
    page.route("**/v1/rl/**", lambda route: route.abort())
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # it connects again
    page.get_by_text("not connected").wait_for()
    shown(page, "wishes")
    assert page.get_by_role("alert").inner_text().startswith("The server does not answer.")
    page.unroute("**/v1/rl/**")
    page.get_by_text("live", exact=True).wait_for()
    page.get_by_text("Add a wish").wait_for()
    context.clear_cookies()
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.get_by_label("API key").wait_for()
    assert page.get_by_role("alert").inner_text().startswith("You are signed out.")
    context.close()


def test_what_was_forgotten_while_it_is_looked_at_is_shown_no_more(taught: PageServer, browser: Any) -> None:
    converse(taught, "gone", "My parrot is called Ludwig.", "ok")
    rows = taught.call("GET", "/v1/rl/conversations/owner%3Agone")["turns"]
    assert isinstance(rows, list) and isinstance(rows[0], dict)
    context = browser.new_context()
    page = context.new_page()
    page.goto(taught.url)
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector("nav a")
    shown(page, f"turn/{rows[0]['id']}")
    page.get_by_text("My parrot is called Ludwig.").first.wait_for()
    taught.call("POST", "/v1/rl/forget", {"session": "owner:gone"})
    until(page, "!document.body.innerText.includes('Ludwig')")
    told = page.get_by_role("alert").inner_text()
    assert told.startswith("There is no turn") and told.count("lists them") == 1
    context.close()


def test_conversations_are_searched_and_filtered(taught: PageServer, browser: Any) -> None:
    with opened(browser, taught) as page:
        shown(page, "conversations")
        page.get_by_label("Words in it").fill("MARKDOWN")
        page.get_by_role("button", name="Search").click()
        listed = "[...document.querySelectorAll('ul.rows li')]"
        found = f"row => row.innerText.includes({json.dumps(PROBLEMS[0])}) && row.innerText.includes('1 corrected')"
        until(page, f"location.hash.includes('MARKDOWN') && {listed}.some({found})")
        page.get_by_label("Words in it").fill("zebra crossing")
        page.get_by_role("button", name="Search").click()
        page.get_by_text("No conversation is like that.").wait_for()
        page.get_by_label("Words in it").fill("")
        for kind, no in (("attempt", ""), ("talk", "!")):
            page.get_by_label("What").select_option(kind)
            page.get_by_role("button", name="Search").click()
            test = f"row => {no}row.innerText.includes('attempt at a task')"
            until(page, f"location.hash.includes('kind={kind}') && {listed}.length && {listed}.every({test})")
        page.get_by_label("Judged as").select_option("-1")
        page.get_by_role("button", name="Search").click()
        every = f"{listed}.length && {listed}.every(row => row.innerText.includes('corrected'))"
        until(page, f"location.hash.includes('score=-1') && {every}")


def test_two_clicks_overrule_the_judge_and_the_turn_is_learned_from_as_said(taught: PageServer, browser: Any) -> None:
    converse(taught, "overruled", PROBLEMS[1], "hm")
    with opened(browser, taught) as page:
        shown(page, "conversation/owner%3Aoverruled")
        card = page.locator("article").first
        card.get_by_role("button", name="Overrule…").click()
        card.get_by_label("What would have been better").fill("Begin with the word Sure.")
        card.get_by_role("button", name="bad").click()
        card.get_by_text("the turn is judged as you say").wait_for()
        card.get_by_text("your word").wait_for()
        assert "Begin with the word Sure." in card.inner_text()
        card.get_by_text("How this came about").click()
        card.get_by_text("judged -1 by its owner, in the judge's place").wait_for()
    held = taught.call("GET", "/v1/rl/overruled")["overruled"]
    assert isinstance(held, list) and isinstance(held[0], dict)
    assert (held[0]["score"], held[0]["hints"], held[0]["by"]) == (-1, ["Begin with the word Sure."], "owner")
    assert held[0]["reply"] and held[0]["next_state"] == "hm"


def test_a_reply_is_called_good_a_hint_is_struck_and_a_turn_left_out(taught: PageServer, browser: Any) -> None:
    taught.call("POST", "/v1/rl/freeze")
    converse(taught, "more-words", PROBLEMS[2], WISH, THANKS)
    with opened(browser, taught) as page:
        shown(page, "conversation/owner%3Amore-words")
        first = page.locator("article").first
        first.get_by_text("corrected").first.wait_for()
        first.get_by_role("button", name="Overrule…").click()
        first.get_by_role("button", name="Strike this hint").first.click()
        first.get_by_text("your word").wait_for()
        until(page, "!document.querySelector('article').innerText.includes('Hint:')")
        second = page.locator("article").nth(2)
        second.get_by_role("button", name="This was good").click()
        second.get_by_text("your word").wait_for()
        second.get_by_role("button", name="Leave out").click()
        page.get_by_role("dialog").get_by_role("button", name="Leave it out").click()
        second.get_by_text("nothing to learn: left out by an owner").wait_for()
        second.get_by_role("link", name="Forget…").click()
        page.get_by_role("heading", name="Forget", level=1).wait_for()
        assert page.get_by_label("its id").input_value()
        page.get_by_text("1 reply with its request").wait_for()  # what would go is there without asking
        page.get_by_role("button", name="Erase one reply for good").wait_for()
    taught.call("POST", "/v1/rl/unfreeze")
