"""The settings of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from openclaw_rl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How clients are answered."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset(
        {
            "body_s", "keepalive_s", "max_buffer_bytes", "max_choices", "min_p", "stalled_s", "top_k",
        }
    )  # fmt: skip

    host: str = "127.0.0.1"
    """The address to listen on; anything but loopback needs a key. Change it when other machines should reach the
    server."""
    port: int = 30000
    """The port to listen on; 0 takes a free one. Change it when the port is taken, or a client expects another."""
    api_key: str = ""
    """The key clients must bring; from the environment or the command line only. Empty on loopback: no key is asked.
    Change it when clients need a key that you choose."""
    model_name: str = ""
    """The model name that clients send; empty takes the model's own. `default` always works too. Change it when clients
    should send a name of your choice."""
    any_model_name: bool = False
    """Answer whatever model name a request gives, for clients whose name cannot be changed. Change it when a client
    sends a model name that you cannot change."""
    tls_cert: str = ""
    """A PEM file with the server's certificate chain; with `tls_key` the server speaks HTTPS. Change it when the server
    itself should speak HTTPS."""
    tls_key: str = ""
    """The PEM file with the certificate's private key. Change it with serve.tls_cert."""
    plain_public: bool = False
    """Allow listening without TLS on an address that others can reach, for example behind a proxy that does TLS. Change
    it when a proxy in front does TLS, or the network is trusted."""
    allowed_origins: tuple[str, ...] = ()
    """The web pages, by origin, whose scripts may read answers; empty for none. Change it when a web page calls the
    server from a browser."""
    requests_a_minute: int = 0
    """How many requests each key may make in a minute; 0 for no limit. A key may have limits of its own. Change it when
    one key must not take all of the server's capacity."""
    tokens_a_minute: int = 0
    """How many tokens, prompts and answers together, each key may use in a minute; 0 for no limit. Change it when one
    key must not take all of the server's capacity with long requests."""
    feedback_a_minute: int = 120
    """How many thumbs and corrections each key may send to /v1/feedback in a minute; 0 for no limit. Change it when
    thumbs come from a program that sends many."""
    max_body_bytes: int = 32 * 1024 * 1024
    """The largest request, in bytes. Larger ones are answered with 413. Change it when requests contain large
    documents, or when strangers may send requests."""
    default_max_tokens: int = 0
    """The most tokens of an answer if the request names no limit; 0 leaves it to the context length. Change it when
    clients name no limit and answers get too long."""
    most_tokens: int = 0
    """The most tokens of an answer whatever a request names; 0 leaves it to the context length. Change it when no
    answer may be longer than this, whatever the client asks."""
    temperature: float | None = None
    """Used if a request names no temperature. If unset: the model's own default, else 1. Change it when clients
    name none and the model's own default is not what you want."""
    top_p: float | None = None
    """Used if a request names no top_p. If unset: the model's own default, else 1. Change it when clients name none and
    the model's own default is not what you want."""
    top_k: int | None = None
    """Used if a request names no top_k. If unset: the model's own default, else 0 (off)."""
    min_p: float | None = None
    """Used if a request names no min_p. If unset: the model's own default, else 0 (off)."""
    max_choices: int = 16
    """The most answers (`n`) one request may ask for."""
    max_buffer_bytes: int = 256 * 1024
    """How many bytes of its stream a client may leave unread before its answer waits."""
    stalled_s: float = 120.0
    """A client that has not caught up with its stream after this many seconds is disconnected. Change it when
    clients stop reading for longer than two minutes, for example in a debugger."""
    body_s: float = 60.0
    """A request's body must have arrived within this time."""
    keepalive_s: float = 75.0
    """A connection without a request is closed after this time; a request's headers must arrive within it too. Change
    it when a proxy in front keeps connections longer than 75 s."""
    max_connections: int = 2000
    """How many connections may be open at once, idle ones included; a further one is answered with 503 and closed.
    Change it when more clients connect, or when strangers may connect."""
    finish_s: float = 600.0
    """After a stop signal, how many seconds running answers may take to finish. Longer ones are cut off. Change it
    when a stop should end sooner; match it to the grace period of systemd or Kubernetes."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"serve.port is {self.port}", fix="use a number from 0 to 65535")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ConfigError("serve.tls_cert and serve.tls_key belong together", fix="give both, or neither")
        if min(self.requests_a_minute, self.tokens_a_minute, self.feedback_a_minute) < 0:
            raise ConfigError("a limit a minute is negative", fix="it is 0 or more; 0 is no limit")
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
        if self.max_connections < 1:
            raise ConfigError(f"serve.max_connections is {self.max_connections}", fix="it is at least 1")
        if self.max_choices < 1:
            raise ConfigError(f"serve.max_choices is {self.max_choices}", fix="it is at least 1")
