"""Checks that a server can do what is needed; each error names the option that fixes it."""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path

from openclaw_rl.core.adapter import CONFIG
from openclaw_rl.core.completion import Finish
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.engines.remote.dialect import RemoteRequest
from openclaw_rl.engines.remote.http import ServerRefusal
from openclaw_rl.engines.remote.replica import LOST, Replica
from openclaw_rl.errors import EngineError, ModelError

log = logging.getLogger(__name__)
TEXT = 'The 3 cats said: "naïve — 42,000 km² 🙂"\n\tif x != y: return {"a": [1, 2]}\n'
PROBE = "openclaw-rl-asks-what-adapters-can-be-loaded"
PROBED = 8  # tokens sampled to see which log-probabilities are returned
COLD = 0.01  # temperature: if it is applied, the sampled tokens are almost certain
FAR = 0.1  # nats, the mean over the tokens: more than number formats explain
ADAPTERS = {
    "vllm": "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
    "sglang": "start it with --enable-lora",
}
RAW = {
    "vllm": "start it with --logprobs-mode raw_logprobs",
    "sglang": "start it with SGLANG_RETURN_ORIGINAL_LOGPROB=1 in its environment",
}


async def check_server(replica: Replica, model: Path, tokens: tuple[int, ...], *, rank: int) -> None:
    """Raises ModelError or EngineError if a server cannot do what is needed. `tokens` are those of `TEXT` here."""
    url, name = replica.http.url, replica.dialect.name
    theirs = await replica.dialect.tokenize(replica.http, TEXT)
    if theirs is not None and theirs != tokens:
        raise ModelError(
            f"{url} cuts text into other tokens than {model}: another model or tokenizer runs there",
            fix="serve the same model on both, or set `model` to the one that runs there",
        )
    facts = replica.facts
    if facts is not None and _last(facts.model) != _last(str(model)):
        log.warning("%s serves %s, and `model` is %s: are the weights the same?", url, facts.model, model)
    if facts is not None and facts.grammars not in ("", "llguidance"):
        log.warning("%s compiles grammars with %s: start it with --grammar-backend llguidance", url, facts.grammars)
    if replica.launch is None:  # a server started here was started with adapters enabled
        await _check_adapters(replica, rank)
    await _check_logp(replica, tokens)
    log.info("found %s %s at %s", name, facts.release if facts else "", url)


def _last(model: str) -> str:
    """The model's name, from its path, its name on the hub, or the path of its cached copy."""
    copies = [part for part in Path(model).parts if part.startswith("models--")]
    return (copies[-1].rpartition("--")[2] if copies else Path(model).name).lower()


async def _check_adapters(replica: Replica, rank: int) -> None:
    """Checks the server's own description or, without one, its reply to an adapter without weights."""
    url, facts = replica.http.url, replica.facts
    takes, most = (facts.takes_adapters, facts.largest_rank) if facts else (None, None)
    if takes is False:
        raise _no_adapters(replica, "it was started without")
    if most is not None and most < rank:
        raise _too_large(url, f"its largest rank is {most}", rank)
    if takes:
        return
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-probe-") as folder:
        config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["q_proj"]}
        (Path(folder) / CONFIG).write_text(json.dumps(config), "utf-8")
        try:
            await replica.dialect.load(replica.http, PROBE, Path(folder))
        except ServerRefusal as problem:
            reply = problem.problem.lower()
            has_no_route = problem.status == LOST and "adapter" not in reply
            if has_no_route or ("enable" in reply and "lora" in reply):
                raise _no_adapters(replica, problem.problem) from problem
            if "rank" in reply:
                raise _too_large(url, problem.problem, rank) from problem


def _no_adapters(replica: Replica, problem: str) -> EngineError:
    return EngineError(
        f"{replica.http.url} loads no adapters while it runs: {problem}", fix=ADAPTERS[replica.dialect.name]
    )


def _too_large(url: str, problem: str, rank: int) -> EngineError:
    return EngineError(
        f"{url} takes no adapters of rank {rank}: {problem}",
        fix=f"start it with --max-lora-rank {rank} or more, or set trainer.rank to less",
    )


async def _check_logp(replica: Replica, tokens: tuple[int, ...]) -> None:
    """Compares the log-probabilities of sampled tokens with those of the same text when it is read."""
    url, name = replica.http.url, replica.dialect.name
    try:
        sampled, logp = await _sampled(replica, tokens)
        again, _ = await replica.dialect.score(
            replica.http, (*tokens, *sampled), start=len(tokens), adapter="", top_k=0
        )
    except ServerRefusal as problem:
        raise EngineError(
            f"{url} gives no log-probabilities of what it samples or reads: {problem.problem}", fix=f"update {name}"
        ) from problem
    gap = sum(abs(one - other) for one, other in zip(logp, again, strict=True)) / len(logp)
    if gap > FAR:
        raise EngineError(
            f"{url} gives the log-probabilities of what temperature and cuts leave, not the model's own: those of "
            f"{len(logp)} tokens are {gap:.2g} nats off when the same text is read",
            fix=RAW[name],
        )


async def _sampled(replica: Replica, tokens: tuple[int, ...]) -> tuple[list[int], list[float]]:
    """A few ids that the server samples, and the log-probabilities that it returns for them."""
    ask = RemoteRequest(tokens, Sampling(PROBED, temperature=COLD, seed=0), "", 1)
    ids: list[int] = []
    logp: list[float] = []
    async for piece in replica.dialect.generate(replica.http, ask):
        ids.extend(piece.tokens)
        logp.extend(piece.logp)
        if piece.finish is Finish.CANCELLED:
            break
    if not ids or len(ids) != len(logp):
        raise EngineError(
            f"{replica.http.url} answers without token ids or log-probabilities", fix=f"update {replica.dialect.name}"
        )
    return ids, logp
