"""`openclaw-rl init`: the first settings, from three questions or from flags."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openclaw_rl.cli.common import Home, say
from openclaw_rl.core.hint import Carry
from openclaw_rl.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from openclaw_rl.home.machine import Advice
    from openclaw_rl.serve.settings import ServeSettings

app = typer.Typer()
EVERYWHERE = "0.0.0.0"


class Audience(StrEnum):
    """Who may use the server. Both need a key; the first is made at the first start."""

    ME = "me"  # programs on this machine
    OTHERS = "others"  # other machines, too


_WHO = {
    Audience.ME: "only programs on this machine reach it",
    Audience.OTHERS: "other machines reach it; everybody needs a key: `openclaw-rl keys add NAME` makes one",
}
_CARRY = {
    Carry.WEIGHTS: "what users ask for is learned and never put into prompts",
    Carry.MEMORY: "what users ask for is put into prompts, and nothing is learned from it",
    Carry.BRIDGE: "what users ask for is put into prompts until the weights follow it",
}


@app.command()
def init(
    *,
    model: Annotated[
        str | None, typer.Option("--model", help="A model folder, a hub name such as Qwen/Qwen3-0.6B, or `bundled`.")
    ] = None,
    who: Annotated[
        Audience | None, typer.Option("--who", help="Who may use it: programs on this machine, or others with a key.")
    ] = None,
    carry: Annotated[
        Carry | None, typer.Option("--carry", help="What is done with a user's wishes while the weights learn.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="For others: a PEM file, to speak HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="For others: its private key.")] = None,
    plain_public: Annotated[
        bool, typer.Option("--plain-public", help="For others, without TLS: the network is trusted.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing settings.")] = False,
    home: Home = None,
) -> None:
    """Write the first settings: which model, who may use it, and how users' wishes are used.

    In a terminal, asks for everything that no option gives. Looks at the machine and recommends the engine's settings.
    Starts and downloads nothing; the next command is printed.
    """
    from openclaw_rl.config import FILE_NAME, read_config
    from openclaw_rl.home.exposure import check_exposure
    from openclaw_rl.home.folder import write_own
    from openclaw_rl.home.machine import advice, this_machine, weights_bytes
    from openclaw_rl.serve.settings import ServeSettings

    # An empty file: the present settings may be damaged, and are about to be replaced.
    folder = read_config(Path(os.devnull), overrides={"home": None if home is None else str(home)}).home.absolute()
    file = folder / FILE_NAME
    if file.exists() and not force:
        raise ConfigError(f"{file} is there already", fix="edit it, or give --force to write over it")
    name, weights_folder = _model(model)
    audience = who or Audience(_asked("Who may use it?", {one.value: text for one, text in _WHO.items()}))
    kept = carry or Carry(_asked("What is done with wishes?", {one.value: text for one, text in _CARRY.items()}))
    is_shared = audience is Audience.OTHERS
    where = ServeSettings(
        host=EVERYWHERE if is_shared else "127.0.0.1",
        tls_cert=_absolute(tls_cert),
        tls_key=_absolute(tls_key),
        plain_public=plain_public,
    )
    check_exposure(where)
    machine = this_machine()
    size = None if weights_folder is None else weights_bytes(weights_folder)
    advised = advice(machine, weights=size, is_toy=name == "bundled", is_shared=is_shared)
    write_own(file, "\n".join(_lines(name, kept, where, advised)) + "\n")
    read_config(file, overrides={"home": str(folder)})
    say.print(f"this machine: {machine}", soft_wrap=True, markup=False)
    if advised.warning:
        say.print(f"note: {advised.warning}", soft_wrap=True, markup=False)
    if weights_folder is None and name != "bundled":
        say.print(f"{name} is downloaded at the first start", soft_wrap=True, markup=False)
    say.print(f"wrote {file}", soft_wrap=True, markup=False)
    say.print("next: look whether it can run, then serve it", markup=False)
    for command in ("doctor", "serve"):
        print(f"openclaw-rl {command} --home {shlex.quote(str(folder))}")


def _model(given: str | None) -> tuple[str, Path | None]:
    """The model's name, and its folder if local. Raises ModelError; at a terminal it asks again."""
    from openclaw_rl.home.models import local_folder

    question = "Which model? A folder, a hub name such as Qwen/Qwen3-0.6B, or `bundled`, a toy"
    while True:
        if given is None and not sys.stdin.isatty():
            raise ConfigError("there is no terminal to ask on, and no --model", fix="give --model; see --help")
        name = given or str(typer.prompt(question, default="bundled", err=True))
        try:
            folder = None if name == "bundled" else local_folder(name)
        except ModelError as problem:
            if given is not None:
                raise
            say.print(str(problem), soft_wrap=True, markup=False)
            continue
        return (name, None) if folder is None else (str(folder.resolve()), folder)


def _asked(question: str, choices: dict[str, str]) -> str:
    """One of the choices; the first if there is no terminal."""
    first = next(iter(choices))
    if not sys.stdin.isatty():
        return first
    say.print(question, markup=False)
    for choice, text in choices.items():
        say.print(f"  {choice}: {text}", soft_wrap=True, markup=False)
    while True:
        answer = str(typer.prompt(" or ".join(choices), default=first, err=True)).strip()
        if answer in choices:
            return answer


def _absolute(path: Path | None) -> str:
    return "" if path is None else str(path.expanduser().absolute())


def _lines(model: str, carry: Carry, where: ServeSettings, advised: Advice) -> Iterator[str]:
    """The file's lines: chosen and recommended settings, each with a reason."""
    yield "# Settings of OpenClaw-RL, written by `openclaw-rl init`. `openclaw-rl settings` prints all there are."
    yield "# A model folder, a name on the Hugging Face hub, or `bundled` for the toy model in the package."
    yield f"model = {_text(model)}"
    yield f"# {_CARRY[carry].capitalize()}."
    yield f"carry = {_text(carry.value)}"
    yield ""
    yield "[serve]"
    is_shared = where.host == EVERYWHERE
    yield f"# {'Other machines reach it, with a key' if is_shared else 'Only programs on this machine reach it'}."
    yield f"host = {_text(where.host)}"
    if where.tls_cert:
        yield "# The certificate and its key, to speak https."
        yield f"tls_cert = {_text(where.tls_cert)}"
        yield f"tls_key = {_text(where.tls_key)}"
    if where.plain_public:
        yield "# Without TLS: the network is trusted, or a proxy in front does TLS."
        yield "plain_public = true"
    table = ""
    for name, value, why in advised.settings:
        part, _, key = name.partition(".")
        if part != table:
            table = part
            yield f"\n[{part}]"
        yield f"{key} = {_text(value) if isinstance(value, str) else value}  # {why}"


def _text(value: str) -> str:
    """A TOML string; JSON's escapes are TOML's."""
    return json.dumps(value)
