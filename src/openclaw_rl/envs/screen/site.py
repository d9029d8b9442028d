"""The files that a page may request; all else is refused."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

HOST = "task.test"  # a name that exists in no network
ORIGIN = f"http://{HOST}"
MOST_FILE_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class Site:
    """Pages of one task: texts by path, then files below a folder. `start` is a path, optionally with a query."""

    start: str
    texts: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    is_proven: bool = True  # our own pages: if one crashes, the machine is at fault

    @property
    def url(self) -> str:
        """Where the task begins."""
        return f"{ORIGIN}/{self.start.lstrip('/')}"

    def read(self, url: str) -> tuple[str, bytes] | None:
        """The type and content of a requested file; None if it is not the task's."""
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.netloc != HOST:
            return None
        path = unquote(parts.path).lstrip("/")
        kind = mimetypes.guess_type(path)[0] or "text/html"
        if path in self.texts:
            return kind, self.texts[path].encode()
        if self.folder is None:
            return None
        top = self.folder.resolve()
        try:
            file = (top / path).resolve()
            if not file.is_relative_to(top) or not file.is_file() or file.stat().st_size > MOST_FILE_BYTES:
                return None
            return kind, file.read_bytes()
        except (OSError, ValueError):
            return None
