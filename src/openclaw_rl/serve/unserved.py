"""Paths that clients know and this server does not have: each is answered with what it is not, and where to turn."""

from __future__ import annotations

from openclaw_rl.errors import RequestError

CODE = "unsupported_endpoint"
_AGENTS = "no agents, threads or stores are kept here"
_ELSEWHERE = "point the program at another server for this, or switch it off"
# The part of a path below /v1, and what this server does not do. The first that fits counts.
_PARTS: tuple[tuple[str, str], ...] = (
    ("embeddings", "it makes no embeddings: the model served here writes text"),
    ("engines", "engines have gone from the API: send the model's name in the body"),
    ("images", "it neither draws nor sees: the model served here reads and writes text"),
    ("videos", "it makes no videos: the model served here reads and writes text"),
    ("audio", "it neither hears nor speaks: the model served here reads and writes text"),
    ("realtime", "it neither hears nor speaks: the model served here reads and writes text"),
    ("moderations", "it does not moderate"),
    ("rerank", "it ranks nothing"),
    ("score", "it ranks nothing"),
    ("messages/batches", "it keeps no batches: send the requests one by one, as many at once as you like"),
    ("batches", "it keeps no batches: send the requests one by one, as many at once as you like"),
    ("fine_tuning", "it learns from the conversations it has, and takes no jobs"),
    ("fine-tunes", "it learns from the conversations it has, and takes no jobs"),
    ("files", "it keeps no files: send their text in a message"),
    ("uploads", "it keeps no files: send their text in a message"),
    ("assistants", _AGENTS),
    ("threads", _AGENTS),
    ("vector_stores", _AGENTS),
    ("conversations", "conversations have no id of their own here: go on with previous_response_id"),
    ("containers", "it runs no code"),
    ("skills", "it runs no code"),
    ("evals", "it runs no evaluations over HTTP: `openclaw-rl eval` does"),
    ("complete", "this API has gone: use /v1/messages"),
)
_BELOW_V1 = ("chat/completions", "completions", "responses", "messages")
_OLLAMA = ("api/chat", "api/generate", "api/tags", "api/show", "api/embed", "api/embeddings", "api/version")


def unserved(path: str) -> RequestError | None:
    """The refusal of a path that is known and not served; None for one that nobody knows.

    With 404, since clients try a 501 again and again.
    """
    held = path.strip("/")
    if held.startswith("v1/v1/"):
        return _refusal(f"{path} holds /v1 twice", "take /v1 off the client's base URL")
    if held in _BELOW_V1:
        return _refusal(f"{path} lacks /v1", "set the client's base URL to one that ends in /v1")
    if held in _OLLAMA:
        return _refusal(
            f"{path} is Ollama's", "set the client to an OpenAI-compatible server, its base URL ending in /v1"
        )
    below = held.removeprefix("v1/")
    for part, why in _PARTS:
        if below == part or below.startswith(f"{part}/"):
            return _refusal(f"{path} is not served here: {why}", _ELSEWHERE)
    return None


def _refusal(problem: str, fix: str) -> RequestError:
    return RequestError(problem, fix=fix, status=404, code=CODE)
