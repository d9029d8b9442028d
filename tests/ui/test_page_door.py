"""The page's door: what a browser is let in for, what keeps other pages out, and what the page itself may load."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import aiohttp
import pytest
from serve_doubles import Serving
from yarl import URL

from openclaw_rl.core.message import Json
from openclaw_rl.core.rights import KnownKey
from openclaw_rl.serve.door.auth import LIFE_S, MOST, SignIns
from openclaw_rl.ui.page import page_files

OWN = {"X-OpenClaw-RL-Page": "1", "Sec-Fetch-Site": "same-origin"}
STATIC = files("openclaw_rl.ui").joinpath("static")


async def browser(server: Serving, key: str = "secret") -> aiohttp.ClientSession:
    """A browser that has signed in; its cookie jar takes cookies of an address, as browsers do."""
    session = aiohttp.ClientSession(server.url, cookie_jar=aiohttp.CookieJar(unsafe=True))
    async with session.post("/ui/session", json={"key": key}, headers=OWN) as answer:
        assert answer.status == 200, await answer.text()
    return session


async def status_of(
    session: aiohttp.ClientSession, method: str, path: str, headers: dict[str, str], body: Json = None
) -> int:
    async with session.request(method, path, headers=headers, json=body) as answer:
        await answer.read()
        return answer.status


async def test_the_page_needs_no_key_and_holds_none_of_what_was_said(paged: Serving) -> None:
    async with aiohttp.ClientSession(paged.url) as session:
        async with session.get("/") as answer:
            page, policy = await answer.text(), answer.headers["Content-Security-Policy"]
            assert answer.status == 200 and answer.content_type == "text/html"
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|<style|\sstyle=", page)  # nothing inline to forbid
        for name, file in page_files().items():
            async with session.get(f"/ui/{name}") as answer:
                assert await answer.read() == file.body  # the client unpacks it
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert await status_of(session, "GET", f"/ui/{name}", {"If-None-Match": file.tag}) == 304


async def test_nothing_but_the_pages_own_files_is_given(paged: Serving) -> None:
    async with aiohttp.ClientSession(paged.url) as session:
        for path in (
            "/ui/../page.py",
            "/ui/%2e%2e/page.py",
            "/ui/nothing.js",
            "/ui/views/",
            "/ui/views/..%2f..%2fpage.py",
        ):
            async with session.get(URL(paged.url + path, encoded=True)) as answer:
                assert answer.status == 404, path


async def test_the_cookie_is_no_key_and_no_script_reads_it(paged: Serving) -> None:
    session = await browser(paged)
    (cookie,) = session.cookie_jar
    assert cookie["httponly"] and cookie["samesite"] == "Strict" and "secret" not in cookie.value
    assert cookie.key == f"openclaw_rl_{URL(paged.url).port}"
    assert await status_of(session, "GET", "/v1/rl/learning", OWN) == 200
    assert await status_of(session, "DELETE", "/ui/session", OWN) == 200
    session.cookie_jar.update_cookies({cookie.key: cookie.value}, URL(paged.url))
    assert await status_of(session, "GET", "/v1/rl/learning", OWN) == 401  # signed out on the server too
    await session.close()


@pytest.mark.parametrize(
    "headers",
    [
        {},  # a form of another page sends no header of its own
        {"X-OpenClaw-RL-Page": "1", "Sec-Fetch-Site": "cross-site"},
        {"X-OpenClaw-RL-Page": "1", "Sec-Fetch-Site": "same-site"},  # another port of this machine
        {"X-OpenClaw-RL-Page": "1", "Origin": "http://evil.example"},
        {"X-OpenClaw-RL-Page": "1", "Origin": "http://127.0.0.1:1"},
        {"X-OpenClaw-RL-Page": "1", "Origin": "null"},
    ],
)
async def test_what_other_pages_send_with_the_cookie_changes_nothing(paged: Serving, headers: dict[str, str]) -> None:
    session = await browser(paged)
    assert await status_of(session, "POST", "/v1/rl/rollback", headers, {"version": 0}) == 403
    assert await status_of(session, "POST", "/v1/rl/freeze", headers) == 403
    assert await status_of(session, "DELETE", "/ui/session", headers) == 403
    assert await status_of(session, "POST", "/ui/session", headers, {"key": "secret"}) == 403
    assert paged.rolled == []
    assert await status_of(session, "POST", "/v1/rl/freeze", OWN) == 200
    await session.close()


async def test_behind_a_proxy_that_changes_the_host_the_browsers_own_word_counts(paged: Serving) -> None:
    session = await browser(paged)
    behind = {**OWN, "Origin": "https://learns.example"}
    assert await status_of(session, "POST", "/v1/rl/freeze", behind) == 200
    async with session.post("/ui/session", json={"key": "secret"}, headers=behind) as answer:
        assert answer.status == 200 and "Secure" in answer.headers["Set-Cookie"]
    await session.close()


async def test_another_page_reads_nothing_with_the_cookie(paged: Serving) -> None:
    session = await browser(paged)
    assert await status_of(session, "GET", "/v1/rl/conversations", {"Sec-Fetch-Site": "cross-site"}) == 403
    assert (
        await status_of(session, "GET", "/v1/rl/conversations", {"Sec-Fetch-Site": "none"}) == 200
    )  # typed by a person
    await session.close()


async def test_scopes_hold_for_the_cookie_as_for_the_key(paged: Serving) -> None:
    session = await browser(paged, "guests")
    async with session.get("/ui/session") as answer:
        assert await answer.json() == {"name": "guest", "rights": ["chat"], "model": "tiny", "program": "0.1.0"}
    assert await status_of(session, "GET", "/v1/rl/learning", OWN) == 403
    assert await status_of(session, "GET", "/v1/rl/events", OWN) == 403
    assert await status_of(session, "POST", "/v1/feedback", OWN, {"score": 1, "session_id": "s"}) == 403
    await session.close()


async def test_a_revoked_key_signs_its_browsers_out(paged: Serving, others: list[KnownKey]) -> None:
    session = await browser(paged, "clerks")
    assert await status_of(session, "GET", "/v1/rl/settings", OWN) == 200
    others.clear()
    assert await status_of(session, "GET", "/v1/rl/settings", OWN) == 401
    await session.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"key": "wrong"}', 401),
        (b'{"key": 5}', 400),
        (b"{", 400),
        (b"{}", 400),
        (b'{"key": "%s"}' % (b"k" * 5000), 413),
    ],
)
async def test_what_is_no_key_is_refused_in_words(paged: Serving, body: bytes, status: int) -> None:
    async with (
        aiohttp.ClientSession(paged.url) as session,
        session.post("/ui/session", data=body, headers=OWN) as answer,
    ):
        assert answer.status == status and (await answer.json())["error"]["message"]
        assert "Set-Cookie" not in answer.headers
    async with aiohttp.ClientSession(paged.url) as session, session.get("/ui/session") as answer:
        assert (answer.status, await answer.json()) == (200, {"name": None})


async def test_a_key_in_the_headers_goes_before_a_cookie(paged: Serving) -> None:
    session = await browser(paged, "guests")
    assert await status_of(session, "GET", "/v1/rl/settings", {"Authorization": "Bearer secret"}) == 200
    assert await status_of(session, "GET", "/v1/rl/settings", {"x-api-key": "wrong"}) == 401
    await session.close()


async def test_sign_ins_are_bounded_and_end(paged: Serving) -> None:
    now_s = [0.0]
    signed = SignIns(paged.parts.keys, clock=lambda: now_s[0])
    made = _Request({"X-OpenClaw-RL-Page": "1"})
    first, _ = signed.begin(made, "secret")  # type: ignore[arg-type]
    made.cookies = {"openclaw_rl_80": first}
    assert signed.caller(made).name == "owner"  # type: ignore[arg-type]
    now_s[0] = LIFE_S + 1
    with pytest.raises(Exception, match="not signed in"):
        signed.caller(made)  # type: ignore[arg-type]
    for _ in range(MOST + 5):
        signed.begin(made, "secret")  # type: ignore[arg-type]
    assert len(signed._held) == MOST


class _Request:
    """As much of a request as the door looks at."""

    method, host = "POST", "here:80"

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers
        self.cookies: dict[str, str] = {}


def test_the_page_loads_nothing_from_elsewhere_and_what_is_vendored_is_listed() -> None:
    held = page_files()
    for name, file in held.items():
        text = file.body.decode()
        if not name.startswith("vendor/"):
            assert not re.search(r"https?://(?!www\.w3\.org)", text), name
            assert "innerHTML" not in text and "dangerouslySet" not in text and "eval(" not in text, name
            assert len(text.splitlines()) <= 400, name
        for asked in re.findall(r'from "(\.[^"]+)"', text):
            assert str((Path("/") / name).parent.joinpath(asked).resolve()).lstrip("/") in held, (name, asked)
    listed = STATIC.joinpath("vendor", "THIRD_PARTY.md").read_text("utf-8")
    for name in held:
        if name.startswith("vendor/"):
            assert name.removeprefix("vendor/") in listed
