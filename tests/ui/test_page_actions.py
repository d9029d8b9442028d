"""What an owner does on the page, in a real browser on a real server: `make test-page`."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import Any

from browser_parts import SHOTS, SLOW, findings, opened, press_until, shown, until
from page_parts import AT_ODDS, KEY, PROBLEMS, WISH, PageServer, converse, settled

from openclaw_rl.core.hint import NOT_LEARNED
from openclaw_rl.store.connection import NAME

pytestmark = SLOW
TRIES = 4  # the toy may answer without markdown at once, or learn what the gate refuses


def test_versions_are_compared_and_the_words_that_differ_are_marked(taught: PageServer, browser: Any) -> None:
    with opened(browser, taught) as page:
        shown(page, "versions")
        page.get_by_label("First").select_option("shared.0")
        page.get_by_label("Second").select_option("shared.1")
        page.get_by_role("textbox", name="Question").fill(PROBLEMS[0])
        page.get_by_role("button", name="Compare").click()
        page.locator(".compared mark").first.wait_for(timeout=120_000)
        page.locator(".compared").screenshot(path=str(SHOTS / "compared.png"))


def test_going_back_pinning_and_freezing_say_before_what_will_happen(taught: PageServer, browser: Any) -> None:
    with opened(browser, taught) as page:
        shown(page, "versions/shared.0")
        page.get_by_role("region", name="The base model").get_by_role("button", name="Go back to").click()
        box = page.get_by_role("dialog")
        assert "What they learned will not be in answers" in box.inner_text()
        page.screenshot(path=str(SHOTS / "going-back.png"))
        box.get_by_role("button", name="Cancel").click()
        assert taught.call("GET", "/healthz")["version"] != "shared.0"
        page.get_by_role("region", name="The base model").get_by_role("button", name="Go back to").click()
        box.get_by_role("button", name="Go back").click()
        until(page, "document.querySelector('[aria-labelledby=one]').innerText.includes('served now')")
        assert taught.call("GET", "/healthz")["version"] == "shared.0"
        shown(page, "versions/shared.1")
        one = page.get_by_role("region", name="Version 1")
        one.get_by_role("button", name="Pin this").click()
        box.get_by_role("button", name="Pin it").click()
        one.get_by_text("pinned", exact=True).wait_for()
        assert taught.call("GET", "/healthz")["version"] == "shared.1"
        one.get_by_role("button", name="Lift the pin").click()
        box.get_by_role("button", name="Lift it").click()
        one.get_by_role("button", name="Pin this").wait_for()
        page.get_by_role("button", name="Freeze training").click()
        box.get_by_role("button", name="Freeze", exact=True).click()
        page.get_by_text("training is frozen").wait_for()
        shown(page, "learning")
        page.get_by_role("button", name="Let it go on").click()
        until(page, "!document.querySelector('.headline').innerText.includes('paused')")
    taught.call("POST", "/v1/rl/rollback", {"version": "shared.1"})


def test_wishes_are_added_edited_retired_and_those_at_odds_stand_apart(taught: PageServer, browser: Any) -> None:
    with opened(browser, taught) as page:
        shown(page, "wishes")
        odds = page.get_by_role("region", name="At odds with each other")
        assert all(wish in odds.inner_text() for wish in AT_ODDS)
        page.get_by_label("What is wished for").fill("Sign every letter with Bob.")
        page.get_by_role("button", name="Add").click()
        row = page.locator("li", has_text="Sign every letter")
        row.get_by_role("button", name="Edit").click()
        page.get_by_label("In other words").fill("Sign every letter with Ann.")
        page.get_by_role("button", name="Save").click()
        row = page.locator("li", has_text="with Ann.")
        row.get_by_role("button", name="Retire").click()
        resting = page.get_by_role("region", name="Resting")
        resting.locator("li", has_text="with Ann.").get_by_role("button", name="Use again").click()
        row.get_by_role("button", name="Retire").wait_for()
        row.get_by_role("button", name="Remove").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        until(page, "!document.body.innerText.includes('with Ann.')")


def test_a_wish_that_could_not_be_learned_stands_under_in_prompts_with_what_it_costs(
    taught: PageServer, browser: Any
) -> None:
    wish = "Sign every letter with Zoe."
    name = str(taught.call("PUT", "/v1/rl/hints", {"text": wish})["id"])
    with closing(sqlite3.connect(taught.home / NAME)) as sql:  # as after a rollback
        assert sql.execute("UPDATE hints SET why = ? WHERE id = ?", (NOT_LEARNED, name)).rowcount
        sql.commit()
    with opened(browser, taught) as page:
        shown(page, "wishes")
        group = page.get_by_role("region", name="In prompts")
        assert wish in group.inner_text() and "tokens a prompt" in group.inner_text()
        page.screenshot(path=str(SHOTS / "in_prompts.png"), full_page=True)
        row = page.locator("li", has_text="with Zoe.")
        row.get_by_role("button", name="Remove").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        until(page, "!document.body.innerText.includes('with Zoe.')")


def test_the_base_model_answers_beside_what_is_served(taught: PageServer, browser: Any, axe: str) -> None:
    with opened(browser, taught) as page:
        shown(page, "try")
        say = page.get_by_label("Your message")
        say.fill(PROBLEMS[0])
        say.press("Enter")
        page.locator(".sides mark").first.wait_for(timeout=120_000)
        page.screenshot(path=str(SHOTS / "beside.png"), full_page=True)
        assert findings(page, axe) == []
        page.get_by_role("button", name="End this conversation").click()
        until(page, "!document.querySelector('.said-by')")


def test_a_correction_is_followed_until_it_is_served(taught: PageServer, browser: Any, axe: str) -> None:
    with opened(browser, taught) as page:
        for _ in range(TRIES):
            taught.call("POST", "/v1/rl/rollback", {"version": "shared.0"})
            page.reload()
            shown(page, "try")
            page.get_by_label("Your message").fill(PROBLEMS[3])
            page.get_by_role("button", name="Send").click()
            page.locator(".said-by.model").first.wait_for(timeout=120_000)
            page.get_by_label("Your message").fill(WISH)
            page.get_by_role("button", name="Send").click()
            journey = page.get_by_label("The way of your reaction").first
            journey.get_by_text("your next message was taken for the reaction").wait_for(timeout=60_000)
            journey.get_by_text("a correction").wait_for(timeout=60_000)
            settled(taught, versions=1)
            page.wait_for_timeout(5000)  # the page looks again every 3 s
            if "answers come from it now" in journey.inner_text():
                break
        assert "made version" in journey.inner_text() and "it passed the tests" in journey.inner_text()
        page.get_by_role("button", name="Ask the same again").click()
        page.locator(".sides mark").first.wait_for(timeout=120_000)
        page.screenshot(path=str(SHOTS / "journey.png"), full_page=True)
        assert findings(page, axe) == []


def test_runs_have_a_curve_and_are_read_step_by_step(taught: PageServer, browser: Any) -> None:
    with opened(browser, taught) as page:
        shown(page, "tasks")
        assert page.get_by_role("img", name=re.compile("tools: mean outcome .* over 12 attempts")).count() == 1
        page.get_by_role("link", name="tools: sum-2").click()
        page.get_by_text("Only those at sum-2.").wait_for()
        until(page, "document.querySelectorAll('table tbody tr').length === 4")
        page.get_by_role("link", name="sum-2", exact=True).first.click()
        page.get_by_role("heading", name="One attempt").wait_for()
        page.get_by_text("step 1 of 1").wait_for()
        assert "the answer was compared" in page.locator("main").inner_text()
        page.get_by_role("link", name="all that is known of this step").click()
        page.get_by_role("link", name="an attempt at a task").click()
        page.get_by_role("heading", name="One attempt").wait_for()
        shown(page, "conversations")
        assert page.get_by_text("attempt at a task", exact=True).count() >= 12


def test_forgetting_shows_its_plan_before_and_its_certificate_after(taught: PageServer, browser: Any, axe: str) -> None:
    converse(taught, "secret", "My cat is called Mozart the Second.", "ok")
    with opened(browser, taught) as page:
        shown(page, "conversation/owner%3Asecret")
        page.get_by_role("link", name="Forget this conversation").click()
        page.get_by_text("2 replies with their requests").wait_for()
        page.screenshot(path=str(SHOTS / "forgetting.png"))
        page.get_by_role("button", name="Erase one conversation for good").click()
        page.get_by_text("Erased: 2 replies with their requests, 1 conversation").wait_for(timeout=120_000)
        until(page, "document.querySelector('.wishes').innerText.includes('done')", seconds=120)
        page.get_by_text("The certificate").first.click()
        page.screenshot(path=str(SHOTS / "certificate.png"), full_page=True)
        assert findings(page, axe) == []
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save the certificate").first.click()
        assert saved.value.suggested_filename.startswith("forgotten-")
    found = taught.call("GET", "/v1/rl/conversations?q=Mozart")["conversations"]
    assert found == []


def test_keys_are_made_shown_once_and_revoked(taught: PageServer, browser: Any) -> None:
    with opened(browser, taught) as page:
        shown(page, "keys")
        page.get_by_label("Whose").fill("carl")
        page.get_by_role("button", name="Make it").click()
        key = page.locator("code.key").inner_text()
        assert taught.call("GET", "/v1/models", key=key)
        page.screenshot(path=str(SHOTS / "key.png"))
        page.get_by_role("button", name="Revoke the key of carl").click()
        page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        page.get_by_text("revoked").wait_for()
        assert key not in page.evaluate("JSON.stringify(localStorage)")


def test_a_key_without_the_right_sees_the_chat_alone(taught: PageServer, browser: Any) -> None:
    with opened(browser, taught, key=taught.guest) as page:
        page.get_by_role("heading", name="Try it").wait_for()
        assert page.locator("nav a").all_inner_texts() == ["Try it"]
        page.evaluate("location.hash = '#/keys'")
        page.wait_for_timeout(300)
        page.get_by_role("heading", name="Try it").wait_for()
        page.get_by_label("Your message").fill(PROBLEMS[0])
        page.get_by_role("button", name="Send").click()
        page.get_by_role("button", name="This was good").click()
        page.get_by_text("Noted as good.").wait_for()


def test_settings_say_where_each_comes_from(taught: PageServer, browser: Any) -> None:
    with opened(browser, taught) as page:
        shown(page, "settings")
        row = page.locator(".settings > div", has_text="train.batch_size")
        assert "config.toml" in row.inner_text() and "default: 16" in row.inner_text()
        page.get_by_label("Find").fill("judge.votes")
        page.get_by_text("default", exact=True).first.wait_for()
        assert KEY not in page.content()


def test_words_of_users_are_text_and_never_run(taught: PageServer, browser: Any) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    converse(taught, "evil", evil)
    with opened(browser, taught) as page:
        shown(page, "conversation/owner%3Aevil")
        page.get_by_text("onerror").first.wait_for()
        assert page.locator("main img, main script").count() == 0
        assert page.title() != "owned"


def test_it_is_used_by_keyboard_alone(taught: PageServer, browser: Any) -> None:
    with opened(browser, taught) as page:
        page.get_by_text("Yes. It has learned").wait_for()
        page.reload()
        page.get_by_text("Yes. It has learned").wait_for()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.innerText") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        press_until(page, "Tab", lambda: page.evaluate("document.activeElement.innerText").startswith("Go back to"))
        page.keyboard.press("Enter")
        page.get_by_role("dialog").wait_for()
        assert page.evaluate("document.activeElement.closest('dialog') !== null")
        page.keyboard.press("Escape")
        until(page, "!document.querySelector('dialog')")
        assert page.evaluate("document.activeElement.innerText").startswith("Go back to")
