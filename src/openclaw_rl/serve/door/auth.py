"""Who may call which routes: keys, and browsers that are signed in on the page."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from aiohttp import web

from openclaw_rl.core.rights import ALL_RIGHTS, NO_LIMITS, KnownKey, Limits, Right
from openclaw_rl.errors import RequestError

OWNER = "owner"  # the name of the installation's own key
OPEN = "local"  # the name of every caller if no key is configured
MEANS = {
    Right.CHAT: "ask for answers",
    Right.FEEDBACK: "give feedback",
    Right.TEACH: "teach",
    Right.ADMIN: "look at or change what was learned",
}
PAGE_HEADER = "X-OpenClaw-RL-Page"
MOST = 1000  # browsers at once; the one that signed in first must sign in again
LIFE_S = 7 * 86400.0
SAFE = ("GET", "HEAD")
NOT_SIGNED_IN = RequestError(
    "this browser is not signed in", fix="sign in on the page with an API key", status=401, code="missing_api_key"
)


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, and its rights."""

    name: str
    rights: frozenset[Right] = ALL_RIGHTS
    limits: Limits = NO_LIMITS

    def check(self, right: Right) -> None:
        """Raises RequestError (403) if the key does not have this right."""
        if right not in self.rights:
            raise RequestError(
                f"the API key {self.name!r} may not {MEANS[right]}",
                fix=f"use a key with the scope {right.value}: `openclaw-rl keys list` shows them",
                status=403,
                code="insufficient_scope",
            )


def no_others() -> Sequence[KnownKey]:
    """No keys besides those of the settings."""
    return ()


class Keys:
    """API keys and their rights, distinguished by name, compared in constant time.

    Accepted keys are kept as hashes. Without any, every caller is `local`.

    `keys` are the owner's, with every right; `others` returns those kept in the home folder, as they are now. `used` is
    called with the name of each key that was accepted.
    """

    def __init__(
        self,
        keys: Mapping[str, str],
        others: Callable[[], Sequence[KnownKey]] = no_others,
        used: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._own = tuple(KnownKey(name, key_digest(key), ALL_RIGHTS) for name, key in keys.items())
        self._others = others
        self._used = used

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """The caller with this key. Raises RequestError (401) without a valid key."""
        accepted = (*self._own, *self._others())
        if not accepted:
            return Caller(OPEN)
        given = _given(headers)
        if not given:
            raise RequestError(
                "this server requires an API key",
                fix="send it as `Authorization: Bearer KEY`",
                status=401,
                code="missing_api_key",
            )
        return self.of_digest(key_digest(given))

    def of_digest(self, digest: str) -> Caller:
        """The caller whose key has this hash. Raises RequestError (401) if no key has it, or it was revoked."""
        accepted = (*self._own, *self._others())
        # All are compared, so that the time taken does not reveal which one was nearly right.
        found = [known for known in accepted if hmac.compare_digest(known.digest, digest)]
        if not found or not found[0].is_valid:
            raise RequestError(
                "the API key was revoked" if found else "the API key is not one of this server's",
                fix="ask the owner of the server for another"
                if found
                else "check the key your client is configured with",
                status=401,
                code="invalid_api_key",
            )
        self._used(found[0].name)
        return Caller(found[0].name, found[0].rights, found[0].limits)

    def may_teach(self, name: str) -> bool:
        """Whether turns of this key make samples now. A key that was revoked teaches nothing more."""
        if name == OPEN or any(known.name == name for known in self._own):
            return True
        known = next((known for known in self._others() if known.name == name), None)
        return known is not None and known.is_valid and Right.TEACH in known.rights

    def may_name(self, name: str) -> bool:
        """Whether a key may name the user with X-User-Id, as a gateway for many users does."""
        if name == OPEN or any(known.name == name for known in self._own):
            return True
        return any(known.name == name and Right.ADMIN in known.rights for known in self._others())


def key_digest(key: str) -> str:
    """The hash that is kept of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def _given(headers: Mapping[str, str]) -> str:
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()


@dataclass(slots=True)
class SignIns:
    """Browsers signed in on the page. A browser has a random token in a cookie that no script can read, never the key.

    A cookie is sent by the browser itself, so a request with one counts only if it comes from this server's own page:
    `SameSite=Strict` keeps it from other sites, and as other ports of this machine are the same site to a browser, what
    the browser says of where a request comes from is checked too. What changes something also needs a header of the
    page's own, which other origins cannot send unasked.

    The browsers that are signed in, by the hash of their token, in memory alone: a restart signs them out.
    """

    keys: Keys
    clock: Callable[[], float] = time.monotonic
    _held: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict)  # token's hash -> key's hash, until

    def begin(self, request: web.Request, key: str) -> tuple[str, Caller]:
        """A new token for the owner of this key. Raises RequestError: 401 for a wrong key, 403 from another origin."""
        check_origin(request)
        caller = self.keys.caller({"x-api-key": key})
        token = secrets.token_urlsafe(32)
        self._held[key_digest(token)] = (key_digest(key), self.clock() + LIFE_S)
        while len(self._held) > MOST:
            self._held.popitem(last=False)
        return token, caller

    def end(self, request: web.Request) -> None:
        """This browser is signed out."""
        check_origin(request)
        self._held.pop(key_digest(request.cookies.get(cookie_name(request), "")), None)

    def caller(self, request: web.Request) -> Caller:
        """The caller, by the key in the headers or, without one, by the cookie. Raises RequestError."""
        if "Authorization" in request.headers or "x-api-key" in request.headers:
            return self.keys.caller(request.headers)
        token = request.cookies.get(cookie_name(request))
        if token is None:
            return self.keys.caller(request.headers)
        check_origin(request)
        key, until_s = self._held.get(key_digest(token), ("", 0.0))
        if self.clock() > until_s:
            raise NOT_SIGNED_IN
        return self.keys.of_digest(key)


def cookie_name(request: web.Request) -> str:
    """A different name for each port: servers on one machine share their cookies."""
    return f"openclaw_rl_{urlsplit(f'//{request.host}').port or 0}"


def check_origin(request: web.Request) -> None:
    """Raises RequestError (403) if the browser reports another page as the sender, or it cannot be this page."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    # Browsers send `Sec-Fetch-Site` over https and on this machine; otherwise the origin must equal the host.
    is_elsewhere = origin is not None and urlsplit(origin).netloc != request.host
    is_foreign = is_elsewhere if site is None else site not in ("same-origin", "none")
    is_bare = request.method not in SAFE and PAGE_HEADER not in request.headers
    if is_foreign or is_bare:
        raise RequestError(
            "a request with the page's cookie came from elsewhere",
            fix="programs send their key as `Authorization: Bearer KEY`; the cookie is the page's alone",
            status=403,
            code="wrong_origin",
        )
