"""Messages to ids and back: a request that goes on from a served turn keeps the ids that were sampled and read.

Nothing is ever encoded again to guess what was sampled. A prompt is made of blocks (see `shape`), each with a key that
tells what its messages mean; a block whose key stood in the served turn keeps its ids, the served reply keeps those
that were sampled, and only the rest is encoded. Two renderings a request are enough, however long the conversation:
the served turn with its reply, and the new one. Where they disagree on a block both have, the template rewrites
history, and the prompt is encoded whole.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock

from openclaw_rl.core.completion import Span
from openclaw_rl.core.hint import Hint, hinted
from openclaw_rl.core.message import Json, Message, Role, Tool
from openclaw_rl.core.prompt import Prompt, Segment
from openclaw_rl.core.turn import Turn
from openclaw_rl.render.detokenise import TokenBytes
from openclaw_rl.render.matching import Block, matching
from openclaw_rl.render.meaning import key_of, key_of_text
from openclaw_rl.render.parsers import StreamParser, family_of, parser_of
from openclaw_rl.render.parsers.plain import PlainParser
from openclaw_rl.render.shape import Run, Shape, is_append_only, shape_of
from openclaw_rl.render.template import ChatTemplate

Piece = tuple[Sequence[int], str]  # ids and the key of what they render
_KEPT_ENCODINGS = 64
_LONG_CHARS = 1000  # shorter text is encoded faster than it is worth keeping
_OPENING_IDS = 16  # an answer's opening is looked at this far back for a think mark


class ChatRenderer:
    """Renders for one model. `stats` counts prompts by how they were made, and renderings.

    `first` goes on from nothing; `continued` holds the served reply as sampled; `rejoined` only what was before an
    edited reply; `rewritten` met a template that changes history; `whole` had no blocks to be told apart.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self.template = template
        self.table = TokenBytes(template.tokenizer)
        self.family = family_of(template)
        self.is_append_only = is_append_only(template)
        self.stats: Counter[str] = Counter()
        self._shape = shape_of(template)
        self._encoded: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._lock = Lock()  # prompts may be made in threads

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        served: Turn | None,
        *,
        options: Mapping[str, Json] | None = None,
    ) -> Prompt:
        """The ids for these messages, going on from `served` where they do. Raises RequestError.

        `options` are arguments of the template, such as `enable_thinking`.
        """
        if served is None:
            self.stats["first"] += 1
            return self._whole(messages, tools, options)
        found = self._going_on(messages, tools, served, options)
        return self._whole(messages, tools, options) if found is None else found

    def hinted(self, turn: Turn, hint: Hint) -> Prompt:
        """The turn's own prompt with a hint behind the last user message; all other ids stay as served."""
        return self.reread(turn, hinted(turn.read, hint))

    def reread(self, turn: Turn, messages: Sequence[Message]) -> Prompt:
        """The turn's own prompt with other words in some of its messages; all other ids stay as served."""
        was = turn.read
        if tuple(messages) == was:
            return turn.prompt
        cut = self._blocks(messages, turn.tools, turn.options, opened=True)
        segments = turn.prompt.segments
        if cut is None or len(messages) != len(was) or len(segments) != len(cut[0]) + 1:
            return self._whole(messages, turn.tools, turn.options)
        runs, blocks = cut
        keys = self._keys(messages, turn.tools, runs)
        pieces: list[Piece] = []
        for segment, block, key, (start, stop) in zip(segments[:-1], blocks[:-1], keys, runs, strict=True):
            if tuple(messages[start:stop]) == was[start:stop]:
                pieces.append((turn.prompt.tokens[segment.start : segment.stop], segment.key))
            else:
                pieces.append((self._encode(block), key))
        pieces.append((turn.prompt.tokens[segments[-1].start :], segments[-1].key))
        return _joined(pieces, turn.prompt.tokens)

    def parser(self, prompt: Prompt | None = None, *, call_prefix: str = "call_") -> StreamParser:
        """A parser for the answer to this prompt; ids of tool calls begin with `call_prefix`."""
        opening = "" if prompt is None else self.table.text(prompt.tokens[-_OPENING_IDS:])
        return parser_of(self.family, self.table, opening=opening, call_prefix=call_prefix)

    def text_parser(self) -> StreamParser:
        """A parser for what follows bare text: nothing in it is thinking or a call."""
        return PlainParser(self.table)

    def decode(self, tokens: Sequence[int]) -> tuple[Message, tuple[Span, ...]]:
        """A whole answer as a message, and which tokens are what."""
        parser = self.parser()
        parser.feed(tokens)
        parser.finish()
        return parser.message(), parser.spans()

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of bare text, for prompts that are no conversation."""
        return tuple(self.template.encode(text))

    def _whole(self, messages: Sequence[Message], tools: Sequence[Tool], options: Mapping[str, Json] | None) -> Prompt:
        text = self._text(messages, tools, options, opened=True)
        cut = self._cut(text, messages, tools, opened=True)
        if cut is None:
            self.stats["whole"] += 1
            return _joined([(self._encode(text), key_of_text(text))], ())
        runs, blocks = cut
        keys = self._keys(messages, tools, runs)
        keys.append(key_of_text(blocks[-1]))
        return _joined([(self._encode(block), key) for block, key in zip(blocks, keys, strict=True)], ())

    def _going_on(
        self, messages: Sequence[Message], tools: Sequence[Tool], served: Turn, options: Mapping[str, Json] | None
    ) -> Prompt | None:
        """The prompt made of what the served turn had; None where nothing of it can be kept."""
        shape, read = self._shape, served.read
        old_runs = None if shape is None else shape.runs(read, served.tools)
        runs = None if shape is None else shape.runs(messages, tools)
        segments = served.prompt.segments
        if shape is None or old_runs is None or runs is None or len(segments) != len(old_runs) + 1:
            return None
        keys = self._keys(messages, tools, runs)
        old = [
            _block(segment.key, read[start:stop])
            for segment, (start, stop) in zip(segments[:-1], old_runs, strict=True)
        ]
        new = [_block(key, messages[start:stop]) for key, (start, stop) in zip(keys, runs, strict=True)]
        pairs = matching([*old, _block(key_of((served.reply,)), (served.reply,))], new)
        spoken = (*read, served.reply)
        same = _with_served_forms(messages, runs, spoken, [*old_runs, (len(spoken) - 1, len(spoken))], pairs)
        before = self._blocks(spoken, served.tools, served.options, opened=False)
        after = self._blocks(same, tools, options, opened=True)
        if before is None or after is None or not pairs:
            return None
        if not _agree(before[1], after[1], pairs) or not _keeps_thinking(before[1][-1], served.reply):
            self.stats["rewritten"] += 1
            return None
        pieces: list[Piece] = []
        for index, (block, key) in enumerate(zip(after[1][:-1], keys, strict=True)):
            at = pairs.get(index)
            if at is None:
                pieces.append((self._encode(block), key))
            elif at < len(old_runs):
                pieces.append((served.prompt.tokens[segments[at].start : segments[at].stop], key))
            else:
                pieces.append((self._reply_ids(served, shape), key))
        pieces.append((self._encode(after[1][-1]), key_of_text(after[1][-1])))
        self.stats["continued" if len(old_runs) in pairs.values() else "rejoined"] += 1
        return _joined(pieces, (*served.prompt.tokens, *served.completion.tokens))

    def _reply_ids(self, served: Turn, shape: Shape) -> tuple[int, ...]:
        """What opened the reply, what was sampled, and what of the template's ending was not sampled already."""
        opening = served.prompt.tokens[served.prompt.segments[-1].start :]
        sampled = served.completion.tokens
        tail = self._encode(shape.tail)
        shared = next((size for size in range(len(tail), 0, -1) if sampled[-size:] == tail[:size]), 0)
        return (*opening, *sampled, *tail[shared:])

    def _keys(self, messages: Sequence[Message], tools: Sequence[Tool], runs: Sequence[Run]) -> list[str]:
        """One key for each run; the tools are told in the first."""
        return [key_of(messages[start:stop], () if index else tools) for index, (start, stop) in enumerate(runs)]

    def _blocks(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        options: Mapping[str, Json] | None,
        *,
        opened: bool,
    ) -> tuple[list[Run], list[str]] | None:
        text = self._text(messages, tools, options, opened=opened)
        return self._cut(text, messages, tools, opened=opened)

    def _text(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        options: Mapping[str, Json] | None,
        *,
        opened: bool,
    ) -> str:
        self.stats["renders"] += 1
        return self.template.text(messages, tools, generation_prompt=opened, options=options)

    def _cut(
        self, text: str, messages: Sequence[Message], tools: Sequence[Tool], *, opened: bool
    ) -> tuple[list[Run], list[str]] | None:
        runs = None if self._shape is None else self._shape.runs(messages, tools)
        if self._shape is None or runs is None:
            return None
        blocks = self._shape.blocks(text, messages, runs, opened=opened)
        return None if blocks is None else (runs, blocks)

    def _encode(self, text: str) -> tuple[int, ...]:
        if len(text) < _LONG_CHARS:
            return tuple(self.template.encode(text))
        with self._lock:
            found = self._encoded.get(text)
            if found is not None:
                self._encoded.move_to_end(text)
                return found
        found = tuple(self.template.encode(text))
        with self._lock:
            self._encoded[text] = found
            if len(self._encoded) > _KEPT_ENCODINGS:
                self._encoded.popitem(last=False)
        return found


def _block(key: str, messages: Sequence[Message]) -> Block:
    return Block(key, any(item.role is Role.ASSISTANT for item in messages))


def _with_served_forms(
    messages: Sequence[Message],
    runs: Sequence[Run],
    spoken: Sequence[Message],
    old_runs: Sequence[Run],
    pairs: Mapping[int, int],
) -> list[Message]:
    """The messages, those of matched blocks in the form the served turn has them: trimmed text and the like undone."""
    same = list(messages)
    for new, old in pairs.items():
        (start, stop), (old_start, old_stop) = runs[new], old_runs[old]
        same[start:stop] = spoken[old_start:old_stop]
    return same


def _agree(before: Sequence[str], after: Sequence[str], pairs: Mapping[int, int]) -> bool:
    """Whether the template writes each block the same way in both conversations."""
    return all(before[old] == after[new] for new, old in pairs.items())


def _keeps_thinking(block: str, reply: Message) -> bool:
    return not reply.reasoning or reply.reasoning.strip() in block


def _joined(pieces: Sequence[Piece], served: Sequence[int]) -> Prompt:
    tokens: list[int] = []
    segments: list[Segment] = []
    for ids, key in pieces:
        segments.append(Segment(len(tokens), len(tokens) + len(ids), key))
        tokens.extend(ids)
    return Prompt(tuple(tokens), tuple(segments), continued=_shared(tokens, served))


def _shared(tokens: Sequence[int], served: Sequence[int]) -> int:
    """How many leading ids both have; halving, since comparing slices is much faster than a loop."""
    ours, theirs = tuple(tokens), tuple(served)
    low, high = 0, min(len(ours), len(theirs))
    while low < high:
        middle = (low + high + 1) // 2
        if ours[low:middle] == theirs[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
