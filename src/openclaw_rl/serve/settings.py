"""What the server can be told."""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How clients are answered."""

    host: str = "127.0.0.1"
    """The address to listen on; anything but loopback needs a key."""
    port: int = 30000
    """The port to listen on; 0 takes a free one."""
    api_key: str = ""
    """The key clients must bring; from the environment or the command line only. Empty on loopback: no key is asked."""
    model_name: str = ""
    """The name clients ask for; empty takes the model's own. `default` always works too."""
    any_model_name: bool = False
    """Answer whatever model name a request gives, for clients whose name cannot be changed."""
    max_body_bytes: int = 32 * 1024 * 1024
    """Larger requests are answered 413."""
    default_max_tokens: int = 0
    """Tokens of an answer where the request names no limit; 0 leaves it to the context length."""
    most_tokens: int = 0
    """The most tokens of an answer whatever a request names; 0 leaves it to the context length."""
    temperature: float | None = None
    """Where the request names none; unset takes the model's own generation settings, else 1."""
    top_p: float | None = None
    """Where the request names none; unset takes the model's own, else 1."""
    top_k: int | None = None
    """Where the request names none; unset takes the model's own, else 0 (off)."""
    min_p: float | None = None
    """Where the request names none; unset takes the model's own, else 0 (off)."""
    max_choices: int = 16
    """The most answers (`n`) one request may ask for."""
    max_buffer_bytes: int = 256 * 1024
    """How far a client may lag behind its stream before sampling's hand-over waits for it."""
    stalled_s: float = 120.0
    """A client that has not caught up with its stream for so long is cut off, as one that went away."""
    body_s: float = 60.0
    """A request's body must have arrived within this time."""
    keepalive_s: float = 75.0
    """A connection without a request is closed after this time; a request's headers must arrive within it too."""
    finish_s: float = 600.0
    """How long a server that was asked to stop finishes what it is answering; what takes longer is cut off."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"serve.port is {self.port}", fix="use a number from 0 to 65535")
        if self.max_body_bytes < 1024:
            raise ConfigError(f"serve.max_body_bytes is {self.max_body_bytes}", fix="allow at least 1024")
        if self.default_max_tokens < 0:
            raise ConfigError(f"serve.default_max_tokens is {self.default_max_tokens}", fix="it is 0 or more")
        if self.most_tokens < 0:
            raise ConfigError(f"serve.most_tokens is {self.most_tokens}", fix="it is 0 or more")
        if min(self.stalled_s, self.body_s, self.keepalive_s, self.finish_s) <= 0:
            raise ConfigError(
                "serve.stalled_s, body_s, keepalive_s and finish_s are times", fix="make them longer than 0 seconds"
            )
        if self.max_choices < 1:
            raise ConfigError(f"serve.max_choices is {self.max_choices}", fix="it is at least 1")
