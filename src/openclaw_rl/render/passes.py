"""Which part of a rendered conversation each message produced, reported by the template while it runs.

Every template walks over its messages in a loop that writes. The compiled template reports when a pass over a
message begins and when the loop is over; the length of the text at that moment is where a message's part starts.
The text itself does not change, so a template's marks within a conversation do no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import jinja2
from jinja2 import meta, nodes

_NOTE_PASS, _NOTE_END, _NOTES = "note_pass_of_message", "note_end_of_messages", "notes_of_passes"
_NAMES = "names_that_are_read"


@dataclass(frozen=True, slots=True)
class Rendering:
    """A conversation as text, and the template's passes.

    `starts` contains (message, offset) for passes, and (None, offset) for the end of a loop that writes; `ends` are
    the offsets at which each such loop ended, by its number, and `loops` the loops that met a message.
    """

    text: str
    starts: tuple[tuple[int | None, int], ...]
    ends: Mapping[int, int]
    loops: frozenset[int]


def compiled(environment: jinja2.Environment, source: str) -> jinja2.Template:
    """The template, which reports its passes to `rendered`."""
    environment.filters |= {_NOTE_PASS: _note_pass, _NOTE_END: _note_end}
    tree = environment.parse(source)
    names = frozenset(meta.find_undeclared_variables(tree))
    numbers = count()
    for parent in [tree, *tree.find_all(nodes.Node)]:
        for _, held in parent.iter_fields():
            if isinstance(held, list) and any(isinstance(item, nodes.For) for item in held):
                held[:] = list(_with_notes(held, environment, numbers))
    held = {**environment.globals, _NAMES: names}
    return jinja2.Template.from_code(environment, environment.compile(tree), held, lambda: True)


def names_read(template: jinja2.Template) -> frozenset[str]:
    """The names that a template from `compiled` reads and does not set: its possible arguments."""
    found = template.globals[_NAMES]
    assert isinstance(found, frozenset)
    return found


def rendered(
    template: jinja2.Template, messages: Sequence[Mapping[str, object]], given: Mapping[str, object]
) -> Rendering:
    """The text and where each message's part starts. Raises what the template raises."""
    notes = _Notes(messages)
    words = {**given, "messages": list(messages), _NOTES: notes}
    pieces: list[str] = []
    for piece in template.generate(words):
        pieces.append(piece)
        notes.size += len(piece)
    return Rendering("".join(pieces), tuple(notes.starts), notes.ends, frozenset(notes.loops))


class _Notes:
    """The reports of the template so far; `size` is the length of its text."""

    def __init__(self, messages: Sequence[Mapping[str, object]]) -> None:
        self.size = 0
        self.starts: list[tuple[int | None, int]] = []
        self.ends: dict[int, int] = {}
        self.loops: set[int] = set()
        self._index = {id(item): index for index, item in enumerate(messages)}

    def note_pass(self, loop: int, item: object) -> None:
        """A pass of this loop begins; only passes over messages count."""
        index = self._index.get(id(item))
        if index is not None:
            self.loops.add(loop)
            self.starts.append((index, self.size))

    def note_end(self, loop: int) -> None:
        """This loop is over."""
        self.ends[loop] = self.size
        if loop in self.loops:
            self.starts.append((None, self.size))


def _with_notes(held: Sequence[object], environment: jinja2.Environment, numbers: Iterator[int]) -> Iterator[object]:
    for item in held:
        yield item
        if isinstance(item, nodes.For) and isinstance(item.target, nodes.Name) and _writes(item):
            number = nodes.Const(next(numbers))
            met = nodes.Filter(nodes.Name(item.target.name, "load"), _NOTE_PASS, [number], [], None, None)
            item.body = [_done(met, environment, item.lineno), *item.body]
            yield _done(nodes.Filter(number, _NOTE_END, [], [], None, None), environment, item.lineno)


def _writes(loop: nodes.For) -> bool:
    """Whether passes write more than white space: loops that only look something up do not count."""
    for output in loop.find_all(nodes.Output):
        for item in output.nodes:
            if not isinstance(item, nodes.TemplateData) or item.data.strip():
                return True
    return False


@jinja2.pass_context
def _note_pass(context: jinja2.runtime.Context, item: object, loop: int) -> None:
    """Records a pass. It is a filter, since the sandbox checks every call, and a loop over tools has one per tool."""
    notes = context.parent[_NOTES]
    assert isinstance(notes, _Notes)
    notes.note_pass(loop, item)


@jinja2.pass_context
def _note_end(context: jinja2.runtime.Context, loop: int) -> None:
    """Records the end of a loop."""
    notes = context.parent[_NOTES]
    assert isinstance(notes, _Notes)
    notes.note_end(loop)


def _done(noted: nodes.Filter, environment: jinja2.Environment, line: int) -> nodes.Node:
    """The filter as a statement, which writes nothing."""
    return nodes.ExprStmt(noted).set_lineno(line).set_environment(environment)
