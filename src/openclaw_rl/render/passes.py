"""Which part of a rendered conversation each message gave, told by the template itself while it runs.

Every template walks over its messages in a loop that writes. The compiled template is made to say when a pass over a
message begins and when the loop is over; how much text had been written by then is where a message's part starts.
The text itself is never touched, so a conversation that holds a template's own marks shifts nothing.
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
    """A conversation as text, and what the template did on the way.

    `starts` holds (message, offset) as passes began, and (None, offset) where a loop that writes was over; `ends` are
    the offsets at which each such loop ended, by its number, and `loops` those of them that met a message.
    """

    text: str
    starts: tuple[tuple[int | None, int], ...]
    ends: Mapping[int, int]
    loops: frozenset[int]


def compiled(environment: jinja2.Environment, source: str) -> jinja2.Template:
    """The template, telling about its passes to whoever renders it by `rendered`."""
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
    """The names that a template from `compiled` reads and does not set: what it can be given."""
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
    """What the template said so far; `size` is how much it has written."""

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
    """Whether passes write anything but white space: loops that only look something up do not count."""
    for output in loop.find_all(nodes.Output):
        for item in output.nodes:
            if not isinstance(item, nodes.TemplateData) or item.data.strip():
                return True
    return False


@jinja2.pass_context
def _note_pass(context: jinja2.runtime.Context, item: object, loop: int) -> None:
    """Notes a pass. A filter, since the sandbox looks into every call, and a loop over tools has one a tool."""
    notes = context.parent[_NOTES]
    assert isinstance(notes, _Notes)
    notes.note_pass(loop, item)


@jinja2.pass_context
def _note_end(context: jinja2.runtime.Context, loop: int) -> None:
    """Notes the end of a loop."""
    notes = context.parent[_NOTES]
    assert isinstance(notes, _Notes)
    notes.note_end(loop)


def _done(noted: nodes.Filter, environment: jinja2.Environment, line: int) -> nodes.Node:
    """The filter as a statement, which writes nothing."""
    return nodes.ExprStmt(noted).set_lineno(line).set_environment(environment)
