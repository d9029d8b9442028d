"""Writes the pages of the documentation that come from the code: settings, commands, routes and the list of decisions.

`python -m benchmarks.reference` after a change of any of them; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from typer import Context
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_group

from openclaw_rl.cli import COMMANDS, app
from openclaw_rl.owner.settings_text import settings_text
from openclaw_rl.serve.app import ROUTES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
_COMMANDS = """\
# Commands

Every command with its options, as `--help` prints them. Each command has the option `--help`; `openclaw-rl` itself
has `--version`.
"""
_ROUTES = """\
# Routes

Every route of the server and the scope that a key needs for it ([keys](security.md#keys)). [The APIs](apis.md) says
what the routes of other APIs accept, ignore and refuse. A running server describes the bodies at `/openapi.json`
(OpenAPI 3.1).
"""
_DECISIONS = """\
# Decisions

One page for each choice that was hard to make, with what was tried instead.
"""


def pages() -> dict[Path, str]:
    """Each generated page, whole."""
    settings = (DOCS / "settings.md").read_text("utf-8")
    return {
        DOCS / "settings.md": settings[: settings.index("```toml")] + _settings(),
        DOCS / "commands.md": "\n".join([_COMMANDS, *_commands()]),
        DOCS / "http.md": "\n".join([_ROUTES, *_routes()]),
        DOCS / "decisions" / "README.md": "\n".join([_DECISIONS, *_decisions()]),
    }


def _settings() -> str:
    advanced = "\n\n## Advanced\n\n`openclaw-rl settings --advanced` prints these.\n\n"
    first, second = settings_text().rstrip("\n"), settings_text(advanced=True).rstrip("\n")
    return f"```toml\n{first}\n```{advanced}```toml\n{second}\n```\n"


def _commands() -> Iterator[str]:
    group = get_group(app)
    for name in COMMANDS:
        command = group.get_command(Context(group), name)
        if isinstance(command, TyperGroup):
            yield f"## {name}\n\n{_prose(command.help)}\n"
            for inner, below in command.commands.items():
                assert isinstance(below, TyperCommand)
                yield from _command(f"{name} {inner}", below, level=3)
        else:
            assert isinstance(command, TyperCommand)
            yield from _command(name, command, level=2)


def _command(name: str, command: TyperCommand, *, level: int) -> Iterator[str]:
    arguments = [one for one in command.params if isinstance(one, TyperArgument)]
    options = [one for one in command.params if isinstance(one, TyperOption) and one.name != "help"]
    words = [(one.metavar or str(one.name)).upper() for one in arguments]
    usage = [word if one.required else f"[{word}]" for word, one in zip(words, arguments, strict=True)]
    yield f"{'#' * level} {name}\n\n`{' '.join(['openclaw-rl', name, *usage])}`\n\n{_prose(command.help)}\n"
    rows = [(word, one.help or "") for word, one in zip(words, arguments, strict=True) if one.help]
    rows += [(", ".join([*one.opts, *one.secondary_opts]), _explained(one)) for one in options]
    if rows:
        yield "| option | what |\n|---|---|"
        yield from (f"| `{left}` | {_cell(right)} |" for left, right in rows)
        yield ""


def _explained(option: TyperOption) -> str:
    """The help with the default, where it does not say it itself."""
    text, value = option.help or "", option.default
    if "[default" in text or isinstance(value, bool) or not isinstance(value, str | int | float | Path):
        return text
    return f"{text} [default: {value}]"


def _prose(text: str | None) -> str:
    """A docstring's paragraphs, each on one line."""
    paragraphs = re.split(r"\n\s*\n", (text or "").strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _routes() -> Iterator[str]:
    yield "| route | what | scope |\n|---|---|---|"
    for method, path, answering, right in ROUTES:
        first = _prose(answering.__doc__).partition("\n")[0]
        plain = re.sub(r"\{(\w+):[^}]*\}", r"{\1}", path)
        yield f"| `{method} {plain}` | {_cell(first)} | {right or ''} |"
    yield ""


def _decisions() -> Iterator[str]:
    for page in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        title = page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        number, rest = page.name[:4], re.sub(r"^\d+: ", "", title)
        yield f"- [{number}]({page.name}): {rest[:1].upper()}{rest[1:]}"
    yield ""


def main() -> None:
    """Writes what changed."""
    for page, text in pages().items():
        if not page.is_file() or page.read_text("utf-8") != text:
            page.write_text(text, "utf-8")
            print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
