"""One episode in a browser: its context, its pages, and the events on them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.screen import tools as kit
from openclaw_rl.envs.screen.browsers import BrowserPlace, Browsers
from openclaw_rl.envs.screen.screen import ActionError, BrowserError, Events, Judgement, PageError, View
from openclaw_rl.envs.screen.site import Site
from openclaw_rl.envs.screen.tree import view_of
from openclaw_rl.envs.task import Action

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Dialog, Download, Page, Route, WebSocketRoute

KIT = Path(__file__).with_name("looking.js")
MOST_DIALOGS = 20  # of one action: a page that opens more never stops
MOST_WINDOWS = 5
SCROLL = 0.8  # share of the screen's height
SET_BY_VALUE = ("date", "time", "month", "week", "datetime-local", "color", "range")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class PageTask:
    """The start of an episode in a browser, and how it is judged."""

    site: Site
    state: str  # a function in the page that returns its state; `judged` then scores the state
    judged: Callable[[Json], Judgement]
    begin: str = ""  # a function run once after the page was loaded; it may give the instruction
    wants_all: bool = False  # plain text can be clicked too


class BrowserPage:
    """Meets Screen."""

    def __init__(self, browsers: Browsers, place: BrowserPlace, task: PageTask) -> None:
        self._browsers = browsers
        self._place = place
        self._task = task
        self._events = Events()
        self._pages: list[Page] = []
        self._active = 0
        self._sessions: dict[Page, tuple[CDPSession, str]] = {}
        self.instruction = ""
        self._dialogs = 0
        self._is_crashed = False
        self._is_closed = False

    @classmethod
    async def open(cls, browsers: Browsers, task: PageTask) -> BrowserPage:
        """The page of a task, loaded. PageError if it does not load, BrowserError if there is no browser."""
        page = cls(browsers, await browsers.open(), task)
        try:
            await page._guard(page._load(), "loading the page", browsers.options.load_s)
        except BaseException:
            await page.aclose()
            raise
        return page

    async def _load(self) -> None:
        context = self._place.context
        context.on("dialog", self._on_dialog)
        await context.route("**/*", self._on_request)
        await context.route_web_socket("**/*", self._on_socket)
        first = await context.new_page()
        self._add(first)
        context.on("page", self._on_page)
        await first.goto(self._task.site.url, wait_until="load", timeout=self._browsers.options.load_s * 1000)
        if self._task.begin:
            self.instruction = str(await first.evaluate(self._task.begin) or "")

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Tools by element, by pixel, for windows if there are several, and `submit`."""
        several = (kit.SWITCH,) if len(self._pages) > 1 else ()
        return (*kit.BY_ELEMENT, *kit.BY_PIXEL, *several, kit.SUBMIT)

    @property
    def counts(self) -> Mapping[str, Json]:
        """Dialogs, windows, downloads, refused requests and sockets."""
        return MappingProxyType(dict(self._events.counted))

    async def look(self) -> View:
        """The visible part of the window in front."""
        seen = await self._guard(
            self._call("look", {"all": self._task.wants_all}), "reading the page", self._browsers.options.action_s
        )
        notes = self._events.take_notes()
        if len(self._pages) > 1:
            notes = (*notes, f"window {self._active + 1} of {len(self._pages)} is shown")
        return view_of(seen, notes)

    async def picture(self) -> bytes:
        """The visible part as a PNG."""
        answer = await self._guard(
            self._send("Page.captureScreenshot", {"format": "png"}), "a screenshot", self._browsers.options.action_s
        )
        data = answer.get("data")
        if not isinstance(data, str):
            raise PageError("the page gives no screenshot")
        return base64.b64decode(data)

    async def act(self, action: Action) -> None:
        """Does the action with real mouse and keyboard events."""
        self._dialogs = 0
        done = DOES.get(action.tool)
        if done is None:
            raise ActionError(f"there is no tool {action.tool[:60]!r}")
        await self._guard(done(self, action), f"the page's answer to {action.tool}", self._browsers.options.action_s)
        await self._guard(self._settled(), f"the page's answer to {action.tool}", self._browsers.options.action_s)

    async def judge(self) -> Judgement:
        """The verdict on the state of the task's first page."""
        if not self._pages:
            raise self._windowless()
        state = await self._guard(
            self._pages[0].evaluate(self._task.state), "reading the page's state", self._browsers.options.action_s
        )
        return self._task.judged(state)

    async def aclose(self) -> None:
        """Releases the context."""
        if not self._is_closed:
            self._is_closed = True
            await self._browsers.give_back(self._place)

    # Queries of the page, in an isolated world that its scripts cannot reach.

    @property
    def _page(self) -> Page:
        if not self._pages:
            raise self._windowless()
        return self._pages[min(self._active, len(self._pages) - 1)]

    async def _send(self, method: str, parameters: dict[str, Json]) -> dict[str, Json]:
        session, _ = await self._session()
        answer: dict[str, Json] = await session.send(method, parameters)
        return answer

    async def _session(self) -> tuple[CDPSession, str]:
        page = self._page
        if page not in self._sessions:
            session = await self._place.context.new_cdp_session(page)
            tree = await session.send("Page.getFrameTree")
            self._sessions[page] = session, str(tree["frameTree"]["frame"]["id"])
        return self._sessions[page]

    async def _call(self, name: str, *arguments: Json) -> dict[str, Json]:
        session, frame = await self._session()
        world = await session.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "openclaw-rl"})
        call = f"screenKit.{name}({', '.join(json.dumps(one) for one in arguments)})"
        asked = {"contextId": world["executionContextId"], "returnByValue": True, "awaitPromise": True}
        known = f"globalThis.screenKit ? {call} : null"
        answer = await session.send("Runtime.evaluate", {**asked, "expression": known})
        if answer["result"].get("value") is None and "exceptionDetails" not in answer:
            text = await asyncio.to_thread(KIT.read_text, "utf-8")
            answer = await session.send("Runtime.evaluate", {**asked, "expression": f"{text}\n{call}"})
        value = answer["result"].get("value")
        if not isinstance(value, dict):
            raise PageError(f"the page cannot be read: {json.dumps(answer)[:300]}")
        problem = value.get("problem")
        if isinstance(problem, str):
            raise ActionError(problem)
        return value

    async def _settled(self) -> None:
        """Waits until the page is loaded and drawn again."""
        page = self._page
        if page.url != "about:blank":
            await page.wait_for_load_state("load", timeout=self._browsers.options.load_s * 1000)
        await self._call("settled")
        await self._see_windows()

    async def _see_windows(self) -> None:
        """Waits until every window that the page opened is known here: the browser reports them a little later."""
        for _ in range(40):
            session, frame = await self._session()  # a main frame has the id of its target
            there = (await session.send("Target.getTargets"))["targetInfos"]
            own = next((one["browserContextId"] for one in there if one["targetId"] == frame), None)
            count = sum(one["type"] == "page" and one["browserContextId"] == own for one in there)
            if own is None or count <= len(self._pages):
                return
            await asyncio.sleep(0.05)

    # The actions.

    async def _click(self, action: Action) -> None:
        spot = await self._call("place", kit.whole(action, "ref"))
        await self._page.mouse.click(_float(spot, "x"), _float(spot, "y"))

    async def _type(self, action: Action) -> None:
        ref, text = kit.whole(action, "ref"), kit.words(action, "text")
        spot = await self._call("place", ref)
        if spot.get("type") in SET_BY_VALUE:
            await self._call("assign", ref, text)
            return
        if spot.get("tag") == "select":
            await self._call("choose", ref, text)
            return
        if not spot.get("takesText"):
            raise ActionError(f"[{ref}] takes no text")
        await self._page.mouse.click(_float(spot, "x"), _float(spot, "y"))
        await self._call("mark", ref)
        if text:
            await self._enter(text)
        else:
            await self._page.keyboard.press("Delete")

    async def _enter(self, text: str) -> None:
        keyboard = self._page.keyboard
        await (keyboard.type(text) if len(text) <= 100 else keyboard.insert_text(text))

    async def _select(self, action: Action) -> None:
        await self._call("choose", kit.whole(action, "ref"), kit.words(action, "value"))

    async def _press(self, action: Action) -> None:
        await self._page.keyboard.press(kit.key_of(action))

    async def _scroll(self, action: Action) -> None:
        across, down = kit.direction_of(action)
        ref = kit.whole(action, "ref") if action.arguments.get("ref") is not None else 0
        size = self._browsers.options
        await self._call("scroll", ref, round(across * size.width * SCROLL), round(down * size.height * SCROLL))

    async def _drag(self, action: Action) -> None:
        start = await self._call("place", kit.whole(action, "ref"))
        end = await self._call("place", kit.whole(action, "to"))
        await self._dragged((_float(start, "x"), _float(start, "y")), (_float(end, "x"), _float(end, "y")))

    async def _dragged(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        mouse = self._page.mouse
        await mouse.move(*start)
        await mouse.down()
        await mouse.move(*end, steps=6)
        await mouse.up()

    async def _click_at(self, action: Action) -> None:
        await self._page.mouse.click(*self._point(action, "x", "y"))

    async def _drag_at(self, action: Action) -> None:
        await self._dragged(self._point(action, "x", "y"), self._point(action, "to_x", "to_y"))

    async def _type_text(self, action: Action) -> None:
        await self._enter(kit.words(action, "text"))

    async def _window(self, action: Action) -> None:
        wanted = kit.whole(action, "number")
        if not 1 <= wanted <= len(self._pages):
            raise ActionError(f"there is no window {wanted}; there are {len(self._pages)}")
        self._active = wanted - 1
        await self._page.bring_to_front()

    def _point(self, action: Action, across: str, down: str) -> tuple[float, float]:
        x, y, size = kit.number(action, across), kit.number(action, down), self._browsers.options
        if not (0 <= x < size.width and 0 <= y < size.height):
            raise ActionError(f"{x:g},{y:g} is outside of the screen of {size.width} x {size.height}")
        return x, y

    # Events.

    async def _on_request(self, route: Route) -> None:
        request = route.request
        found = await asyncio.to_thread(self._task.site.read, request.url)
        if found is not None:
            await route.fulfill(body=found[1], content_type=found[0])
            return
        if not request.url.endswith("/favicon.ico"):
            self._events.add("refused", f"refused, there is no network: {request.url}")
        if request.is_navigation_request() and request.frame.parent_frame is None:
            await route.fulfill(status=204)  # the visible page stays
        else:
            await route.abort("blockedbyclient")

    async def _on_socket(self, socket: WebSocketRoute) -> None:
        self._events.add("refused", f"refused, there is no network: {socket.url}")
        await socket.close()

    async def _on_dialog(self, dialog: Dialog) -> None:
        self._dialogs += 1
        self._events.add("dialogs", f"the page showed a dialog, answered with OK ({dialog.type}): {dialog.message}")
        if self._dialogs <= MOST_DIALOGS:
            await dialog.accept(dialog.default_value)

    async def _on_page(self, page: Page) -> None:
        if len(self._pages) >= MOST_WINDOWS:
            self._events.add("windows_refused", f"a window was closed: {MOST_WINDOWS} are open")
            await page.close()
            return
        self._add(page)
        self._events.add("windows", f"window {len(self._pages)} was opened")

    def _add(self, page: Page) -> None:
        page.on("crash", self._on_crash)
        page.on("close", self._on_close)
        page.on("download", self._on_download)
        self._pages.append(page)
        self._active = len(self._pages) - 1

    def _on_crash(self, _page: Page) -> None:
        self._is_crashed = True

    def _on_close(self, page: Page) -> None:
        self._sessions.pop(page, None)
        if page in self._pages and not self._is_closed:
            self._pages.remove(page)
            self._active = max(0, min(self._active, len(self._pages) - 1))

    def _on_download(self, download: Download) -> None:
        self._events.add("downloads", f"a download was refused: {download.suggested_filename}")

    async def _guard(self, work: Awaitable[Value], what: str, seconds: float) -> Value:
        """The result, or an error that says who is at fault."""
        from playwright.async_api import Error

        try:
            return await asyncio.wait_for(self._or_crash(work), seconds)
        except (TimeoutError, Error) as problem:
            raise self._fault(what, seconds, problem) from problem

    async def _or_crash(self, work: Awaitable[Value]) -> Value:
        """The result; a crash or too many dialogs end the wait, since no answer follows."""
        doing = asyncio.ensure_future(work)
        try:
            while True:
                done, _ = await asyncio.wait([doing], timeout=0.25)
                if done:
                    return doing.result()
                if self._is_crashed or self._dialogs > MOST_DIALOGS or not self._place.browser.is_connected():
                    raise TimeoutError
        finally:
            doing.cancel()
            await asyncio.wait([doing])

    def _windowless(self) -> PageError | BrowserError:
        if not self._place.browser.is_connected():
            return BrowserError("the browser ended", fix="the episode can be begun again")
        return PageError("the page closed its own window")

    def _fault(self, what: str, seconds: float, problem: BaseException) -> PageError | BrowserError:
        said = str(problem).strip().splitlines()[0][:200] if str(problem).strip() else ""
        if not self._pages or not self._place.browser.is_connected():
            return self._windowless()
        if self._dialogs > MOST_DIALOGS:
            return PageError(f"the page opens dialogs without end: {self._dialogs} at one action")
        blame: type[PageError | BrowserError] = BrowserError if self._task.site.is_proven else PageError
        if self._is_crashed:
            return blame("the page crashed: it needed more memory than there is, or hit a fault of the browser")
        if isinstance(problem, TimeoutError) or "Timeout" in said:
            return blame(f"{what} took longer than {seconds:g} s")
        return blame(f"{what} failed: {said}")


DOES: Mapping[str, Callable[[BrowserPage, Action], Awaitable[None]]] = {
    "click": BrowserPage._click,
    "type": BrowserPage._type,
    "select": BrowserPage._select,
    "press": BrowserPage._press,
    "scroll": BrowserPage._scroll,
    "drag": BrowserPage._drag,
    "click_at": BrowserPage._click_at,
    "type_text": BrowserPage._type_text,
    "drag_at": BrowserPage._drag_at,
    "window": BrowserPage._window,
}


def _float(spot: dict[str, Json], name: str) -> float:
    value = spot.get(name)
    if not isinstance(value, int | float):
        raise PageError(f"the page gives no {name} of an element")
    return float(value)
