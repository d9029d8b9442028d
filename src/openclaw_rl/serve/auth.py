"""API keys: who may ask, told apart by name, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from openclaw_rl.errors import RequestError

OPEN = "local"  # the name of whoever asks where no key is configured


class Keys:
    """The keys that are accepted, kept as hashes. Without any, everybody is let in as `local`."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._hashes = {name: _hash(key) for name, key in keys.items()}

    @property
    def is_open(self) -> bool:
        """Whether no key is asked for."""
        return not self._hashes

    def name_of(self, headers: Mapping[str, str]) -> str:
        """Whose key this is. Raises RequestError (401) without a right one."""
        if self.is_open:
            return OPEN
        given = _given(headers)
        if not given:
            raise RequestError(
                "this server asks for an API key",
                fix="send it as `Authorization: Bearer KEY`",
                status=401,
                code="missing_api_key",
            )
        digest = _hash(given)
        found = [name for name, known in self._hashes.items() if hmac.compare_digest(known, digest)]
        if not found:
            raise RequestError(
                "the API key is not one of this server's",
                fix="check the key your client is configured with",
                status=401,
                code="invalid_api_key",
            )
        return found[0]


def _given(headers: Mapping[str, str]) -> str:
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
