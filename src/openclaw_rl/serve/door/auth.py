"""API keys: who may ask and for what, distinguished by name, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.rights import ALL_RIGHTS, NO_LIMITS, KnownKey, Limits, Right
from openclaw_rl.errors import RequestError

OWNER = "owner"  # the name of the installation's own key
OPEN = "local"  # the name of whoever asks where no key is configured


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is, and what they may do."""

    name: str
    rights: frozenset[Right] = ALL_RIGHTS
    limits: Limits = NO_LIMITS

    def check(self, right: Right) -> None:
        """Raises RequestError (403) where the key does not have this right."""
        if right not in self.rights:
            raise RequestError(
                f"the API key {self.name!r} may not {MEANS[right]}",
                fix=f"use a key with the scope {right.value}: `openclaw-rl keys list` shows them",
                status=403,
                code="insufficient_scope",
            )


MEANS = {
    Right.CHAT: "ask for answers",
    Right.FEEDBACK: "give feedback",
    Right.TEACH: "teach",
    Right.ADMIN: "look at or change what was learned",
}


def no_others() -> Sequence[KnownKey]:
    """No key beside those given in the clear."""
    return ()


class Keys:
    """The keys that are accepted, kept as hashes. Without any, everybody is let in as `local`.

    `keys` are the owner's, with every right; `others` gives those kept in the home folder, as they are now. `used` is
    told the name of each key that was accepted.
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
        """Whose key this is. Raises RequestError (401) without a right one."""
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
        """Whose key this is the hash of. Raises RequestError (401) where it is no key's, or was revoked."""
        accepted = (*self._own, *self._others())
        # All are compared, so that the time taken says nothing of which one was nearly right.
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
        """Whether a key may say by X-User-Id whose words it brings, as what stands before many users does."""
        if name == OPEN or any(known.name == name for known in self._own):
            return True
        return any(known.name == name and Right.ADMIN in known.rights for known in self._others())


def key_digest(key: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def _given(headers: Mapping[str, str]) -> str:
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()
