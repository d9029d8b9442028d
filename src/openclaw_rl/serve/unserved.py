"""Paths that clients know and this server does not have: each is answered with what it is not, and where to turn."""

from __future__ import annotations

from openclaw_rl.errors import RequestError

CODE = "unsupported_endpoint"
_AGENTS = "keeps no agents, threads or stores"
_TEXT = "; the model it serves reads and writes text"
_BATCHES = "keeps no batches; send the requests one by one, as many at once as you like"
_JOBS = "takes no jobs; it learns from the conversations it has"
_ELSEWHERE = "point the program at another server for this, or switch it off"
# The part of a path below /v1, and what this server does not do. The first that fits counts.
_PARTS: tuple[tuple[str, str], ...] = (
    ("embeddings", "makes no embeddings; the model it serves writes text"),
    ("engines", "has no engines, as the API has none any more; send the model's name in the body"),
    ("images", f"neither draws nor sees{_TEXT}"),
    ("videos", f"makes no videos{_TEXT}"),
    ("audio", f"neither hears nor speaks{_TEXT}"),
    ("realtime", f"neither hears nor speaks{_TEXT}"),
    ("moderations", "does not moderate"),
    ("rerank", "ranks nothing"),
    ("score", "ranks nothing"),
    ("messages/batches", _BATCHES),
    ("batches", _BATCHES),
    ("fine_tuning", _JOBS),
    ("fine-tunes", _JOBS),
    ("files", "keeps no files; send their text in a message"),
    ("uploads", "keeps no files; send their text in a message"),
    ("assistants", _AGENTS),
    ("threads", _AGENTS),
    ("vector_stores", _AGENTS),
    ("conversations", "gives conversations no id; go on with previous_response_id"),
    ("containers", "runs no code"),
    ("skills", "runs no code"),
    ("evals", "runs no evaluations over HTTP; `openclaw-rl eval` does"),
    ("complete", "has no such API any more; use /v1/messages"),
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
            return _refusal(f"{path} is not served here: this server {why}", _ELSEWHERE)
    return None


def _refusal(problem: str, fix: str) -> RequestError:
    return RequestError(problem, fix=fix, status=404, code=CODE)
