"""Commands that take past steps again: to forget something, or to check that they give the same result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from openclaw_rl.cli.common import Home, home_of, say
from openclaw_rl.errors import ConfigError

if TYPE_CHECKING:
    from openclaw_rl.remake.forget_plan import Certificate
    from openclaw_rl.store.forget.selection import ForgetTarget

app = typer.Typer()
Model = Annotated[
    str | None, typer.Option("--model", help="The model that was served. [default: as in the settings, or bundled]")
]
File = Annotated[
    Path | None, typer.Option("--config", help="A TOML file of settings. [default: config.toml in the home folder]")
]


@app.command()
def forget(
    *,
    session: Annotated[str | None, typer.Option("--session", help="A session, by its name or its client's.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="A user with all sessions, hints and adapter.")] = None,
    turn: Annotated[str | None, typer.Option("--turn", help="A turn, and the turns that continue it.")] = None,
    episode: Annotated[str | None, typer.Option("--episode", help="An episode with all its turns.")] = None,
    before: Annotated[str | None, typer.Option("--before", help="Everything before a day or time: 2026-01-31.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be erased, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    remake: Annotated[
        bool, typer.Option("--remake/--no-remake", help="Make versions again now, or at the next start.")
    ] = True,
    records: Annotated[
        bool, typer.Option("--records", help="Clean files that `export` wrote outside the home folder, too.")
    ] = False,
    home: Home = None,
    model: Model = None,
    config: File = None,
) -> None:
    """Forget a session, a user, a turn, an episode or all before a date: every byte, and what the weights learned.

    Turns that repeat it are erased too, and hints taken from it. Versions that learned from it are removed. They are
    made again without it, from the last version that did not learn from it, and pass the gate like any other. A
    certificate of what was removed is printed and kept. If a server is running, it does all this itself while it
    serves, even if this command is ended by Ctrl-C. Call the command again to see the progress. A forgetting that is
    killed is finished by the next call or the next start.
    """
    from openclaw_rl.config import read_config
    from openclaw_rl.home.folder import address_of
    from openclaw_rl.owner import forget_offline as forgetting
    from openclaw_rl.store.forget.selection import ForgetTarget

    at = home_of(home)
    settings = read_config(config, overrides={"home": str(at), "model": model})
    what = ForgetTarget(
        session=session, user=user, turn=turn, episode=episode, before_s=None if before is None else _moment(before)
    )
    if address_of(at) is not None:
        _by_server(at, what, dry_run=dry_run, yes=yes, remake=remake, records=records)
        return
    earlier = [] if dry_run else asyncio.run(forgetting.finish(settings))
    for certificate in earlier:
        say.print(f"finished what was begun earlier: {forgetting.certificate_path(at, certificate)}", soft_wrap=True)
    try:
        found = asyncio.run(forgetting.preview(at, what))
    except ConfigError:
        if earlier or _was_forgotten(at, what, asyncio.run(forgetting.certificates(at))):
            return
        raise
    if found.is_nothing:
        say.print("there is nothing to forget")
        return
    _show(at, forgetting.summary(found))
    if dry_run:
        return
    _confirm(yes)
    _print_certificate(at, asyncio.run(forgetting.forget(settings, what, remake=remake, has_records=records)))


def _by_server(at: Path, what: ForgetTarget, *, dry_run: bool, yes: bool, remake: bool, records: bool) -> None:
    """The same, through the running server."""
    from openclaw_rl.owner import forget as server

    known = asyncio.run(server.standing(at))
    open_ones = [] if dry_run else [item for item in known if item.phase != server.DONE]
    for item in open_ones:
        say.print(
            f"forgetting {item.id}, asked for at {item.certificate.asked_at}, is under way in the running server",
            soft_wrap=True,
        )
        _wait(at, item.id, remake=remake)
    try:
        found = asyncio.run(server.preview(at, what))
    except ConfigError:
        if open_ones or _was_forgotten(at, what, [item.certificate for item in known]):
            return
        raise
    if not found:
        say.print("there is nothing to forget")
        return
    _show(at, found)
    if dry_run:
        return
    _confirm(yes)
    name = asyncio.run(server.begin(at, what, has_records=records))
    _wait(at, name, remake=remake)


def _was_forgotten(at: Path, what: ForgetTarget, certificates: Sequence[Certificate]) -> bool:
    """Reports that exactly this was forgotten before; a missing name is then not an error."""
    from openclaw_rl.remake.forget_plan import certificate_path, is_about

    found = next((item for item in reversed(certificates) if is_about(item, what)), None)
    if found is not None:
        say.print(f"that was forgotten already: {certificate_path(at, found)}", soft_wrap=True)
    return found is not None


def _wait(at: Path, name: str, *, remake: bool) -> None:
    """Waits until it is done; Ctrl-C ends only the wait."""
    try:
        asyncio.run(_follow(at, name, remake=remake))
    except KeyboardInterrupt:
        say.print("the server finishes it; the same command shows how far it has come", soft_wrap=True)
        raise typer.Exit(130) from None


async def _follow(at: Path, name: str, *, remake: bool) -> None:
    """Shows a forgetting's progress to its end, and the certificate. Raises Exit if versions are not made again."""
    from openclaw_rl.owner import forget as server

    async for now in server.followed(at, name, until_made=remake):
        say.print(now.words, soft_wrap=True)
    _print_certificate(at, now.certificate)
    if remake and now.phase == server.REBUILDING:
        why = now.problem or "this server does not learn: start it without --no-learn"
        say.print(f"[yellow]note:[/] versions are not made again yet: {escape(why)}", soft_wrap=True)
        raise typer.Exit(1)


def _show(at: Path, found: Mapping[str, int]) -> None:
    table = Table("what goes", "how much", title=f"Forgetting in {at}")
    for name, count in found.items():
        table.add_row(name, str(count))
    Console(stderr=True).print(table)


def _confirm(yes: bool) -> None:
    if not yes and not typer.confirm("Forget all of this? There is no way back", err=True):
        raise typer.Exit(1)


def _print_certificate(at: Path, certificate: Certificate) -> None:
    from openclaw_rl.owner import forget_offline as forgetting

    print(msgspec.json.format(msgspec.json.encode(certificate), indent=1).decode())
    say.print(f"kept in {forgetting.certificate_path(at, certificate)}", soft_wrap=True)
    for path in certificate.records_elsewhere:
        say.print(
            f"[yellow]note:[/] {escape(path)} is outside {escape(str(at))} and was left as it is; it may "
            "contain what was forgotten. Remove it, or forget with --records",
            soft_wrap=True,
        )


@app.command()
def replay(
    *,
    version: Annotated[
        str | None, typer.Option("--version", help="Which version. [default: the one trained last]")
    ] = None,
    method: Annotated[str | None, typer.Option("--method", help="Another method: binary, opd, combine, ...")] = None,
    rank: Annotated[int | None, typer.Option("--rank", help="Another rank of the LoRA weights.", min=1)] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="The model served; for another one, words and hints are carried over.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A new folder for the adapter.")] = None,
    into: Annotated[
        Path | None, typer.Option("--into", help="A new home folder, for example for another model.")
    ] = None,
    as_version: Annotated[
        bool, typer.Option("--as-version", help="Make it a version that the gate checks at the next start.")
    ] = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="Restore the weights of a version that were removed to save space.")
    ] = False,
    home: Home = None,
    config: File = None,
) -> None:
    """Take the steps of a version again from the stored samples, and compare the digests.

    On one machine equal settings give equal bits. With another method, rank or model the same batches give another
    adapter: it is written to --out, or becomes a version. For another model, words and hints are carried over into a
    new home folder (--into). With --restore only steps with removed weights are taken, and weights are restored if
    their digest is the same. The report is JSON; exit code 1 means that digests differ. The server must be stopped.
    """
    from openclaw_rl.config import read_config
    from openclaw_rl.core.version import named_version
    from openclaw_rl.remake import replay as replaying
    from openclaw_rl.trainers.settings import Method

    settings = read_config(config, overrides={"home": str(home_of(home)), "model": model})
    if method is not None and method not in set(Method):
        raise ConfigError(f"--method is {method!r}", fix=f"give one of {', '.join(Method)}")
    changed = replaying.ReplayChanges(None if method is None else Method(method), rank)
    if restore:
        if version is None or changed != replaying.ReplayChanges() or out or into or as_version:
            raise ConfigError("--restore restores one version exactly as it was", fix="combine it with --version only")
        report = asyncio.run(replaying.restore(settings, named_version(version)))
    else:
        report = asyncio.run(
            replaying.replay(
                settings,
                version=None if version is None else named_version(version),
                change=None if changed == replaying.ReplayChanges() else changed,
                out=out,
                into=into,
                as_version=as_version,
                is_model_given=model is not None,
            )
        )
    print(msgspec.json.format(msgspec.json.encode(report), indent=1).decode())
    if report.digest_equal is False:
        raise typer.Exit(1)


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ConfigError(
            f"--before is {text!r}", fix="write a day such as 2026-01-31, or a moment such as 2026-01-31T18:00"
        ) from None
