"""Messages to ids and back: a request that continues a served turn keeps the ids that were sampled and read.

Sampled text is never encoded again to guess its ids. The new conversation is matched with the served one by meaning,
every served reply gets the form in which it was read, and the whole is rendered once and cut into blocks (see
`shape`). A block with unchanged text keeps its ids, a reply keeps the sampled ones, and only the rest is
encoded. If the template now writes a reply differently, it rewrites history: then the prompt is
what the template says, and nothing is shared.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from openclaw_rl.core.completion import Span
from openclaw_rl.core.hint import Hint, hinted
from openclaw_rl.core.message import Json, Message, Tool
from openclaw_rl.core.prompt import Prompt, Segment
from openclaw_rl.core.sampling import Grammar
from openclaw_rl.core.turn import Turn
from openclaw_rl.render.continuation import ContinuedPrompt, alike, continued
from openclaw_rl.render.encoding import TokenBytes, TooManyTokens, count, longest_token
from openclaw_rl.render.ends import ends_of_replies
from openclaw_rl.render.forms import AnswerForm, Speech, grammar_of
from openclaw_rl.render.held import BoundedCache
from openclaw_rl.render.parsers import Family, StreamParser, family_of, opens_thinking, parser_of, writes_fences
from openclaw_rl.render.parsers.mistral import with_nine_letters
from openclaw_rl.render.parsers.plain import PlainParser
from openclaw_rl.render.settings import RenderSettings
from openclaw_rl.render.shape import BlockKey, PromptBlock, RenderedBlocks, is_append_only, read_key, shape_of
from openclaw_rl.render.template import ChatTemplate, settled, user_opening

log = logging.getLogger(__name__)
Piece = tuple[Sequence[int], str]  # ids and the key of what they render
Part = tuple[PromptBlock, Sequence[int] | None, str]  # a block, and the ids and key it has already
_KEPT = {"most": 64, "most_size": 1_000_000}
_KEPT_FORMS, _KEPT_FORM_CHARS = 4096, 4_000_000
_LONG_CHARS = 1000  # shorter text is encoded faster than looked up
_OPENING_IDS = 16  # an answer's opening is searched this far back for a think mark


class ChatRenderer:
    """Renders for one model. `stats` counts prompts by how they were made, and renderings.

    `first` has no served turn; `continued` begins with every id of the served prompt and reply; `spliced` holds the
    served reply as sampled, but something before it changed; `rejoined` keeps only the part before an edited
    reply; `rewritten` met a template that changes history; `whole` could not be cut into blocks.
    """

    def __init__(self, template: ChatTemplate, settings: RenderSettings | None = None) -> None:
        self.template = settled(template)
        self.table = TokenBytes(template.tokenizer)
        self.family = _family(self.template, settings or RenderSettings())
        self.is_append_only = is_append_only(self.template)
        self._longest = longest_token(template.tokenizer)
        self.stats: Counter[str] = Counter()
        self._ends: dict[tuple[int, ...], tuple[int, ...]] = {}
        # Both may be asked from several threads, in which prompts are made.
        self._encoded: BoundedCache[tuple[str, str], tuple[int, ...]] = BoundedCache(**_KEPT)
        # ids and digests of the template's own text
        self._own: BoundedCache[tuple[str, str], tuple[tuple[int, ...], str]] = BoundedCache(**_KEPT)
        # long blocks by their digests: texts are compared faster than they are digested
        self._blocks: BoundedCache[str, tuple[str, str]] = BoundedCache(**_KEPT)
        self._openings: BoundedCache[tuple[int, ...], str] = BoundedCache(**_KEPT)
        self._leads: dict[str, int] = {}  # the number of ids of each added token before a block
        # replies as they were read, by their segments' keys
        self._forms: BoundedCache[str, Message] = BoundedCache(most=_KEPT_FORMS, most_size=_KEPT_FORM_CHARS)
        added = template.tokenizer.get_added_tokens_decoder().items()
        self._added = {item.content: token for token, item in added}
        self._is_opened = opens_thinking(self.template)
        self._is_fenced = self.family is Family.DEEPSEEK and writes_fences(self.template)
        self.shape = shape_of(self.template, self.ids_of)

    def ends(self, named: Sequence[int]) -> tuple[int, ...]:
        """The ids that end a reply, those `named` by the model's configurations first. Raises ModelError for none."""
        if (key := tuple(named)) not in self._ends:
            self._ends[key] = ends_of_replies(self.template, named)
        return self._ends[key]

    @property
    def held(self) -> dict[str, int]:
        """The size in memory, in letters; each kind has a bound."""
        encoded = self._encoded.size + self._blocks.size + self._own.size
        return {"render_encoded_chars_held": encoded, "render_form_chars_held": self._forms.size}

    def let_go(self) -> None:
        """Drops everything that was rendered and read so far."""
        for held in (self._encoded, self._own, self._blocks, self._openings, self._forms):
            held.let_go()

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        served: Turn | None,
        *,
        options: Mapping[str, Json] | None = None,
        most: int | None = None,
    ) -> Prompt:
        """The ids for these messages, continuing `served` if they do. Raises RequestError.

        `options` are arguments of the template, such as `enable_thinking`. Raises TooManyTokens as soon as it is known
        that there are more ids than `most`, usually before anything is encoded.
        """
        if served is None:
            self.stats["first"] += 1
            return self._whole(messages, tools, options, most)
        found = continued(self, messages, tools, served, options)
        if found is None:
            return self._whole(messages, tools, options, most)
        if isinstance(found, str):
            self.stats[found] += 1
            return self._whole(messages, tools, options, most)
        return self._joined_on(found, served, most)

    def count(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, options: Mapping[str, Json] | None = None
    ) -> int:
        """The number of ids of these messages alone, without a limit. Raises RequestError."""
        return sum(self._count(block) for block in self._blocks_of(messages, tools, options))

    def hinted(self, turn: Turn, hint: Hint) -> Prompt:
        """The turn's own prompt with a hint after the last user message; all other ids stay as served."""
        return self.reread(turn, hinted(turn.read, hint))

    def reread(self, turn: Turn, messages: Sequence[Message]) -> Prompt:
        """The turn's own prompt with other words in some of its messages; all other ids stay as served."""
        was = turn.read
        if tuple(messages) == was:
            return turn.prompt
        cut = self.cut(messages, turn.tools, turn.options)
        segments = turn.prompt.segments
        keys = [read_key(segment.key) for segment in segments[:-1]]
        if (
            cut is None
            or len(messages) != len(was)
            or [key and key.run for key in keys] != [block.run for block in cut.blocks]
        ):
            return self._whole(messages, turn.tools, turn.options)
        pieces: list[Piece] = []
        for segment, key, block in zip(segments[:-1], keys, cut.blocks, strict=True):
            start, stop = block.run
            is_sampled = key is not None and key.sampled is not None
            is_same = (
                tuple(messages[start:stop]) == was[start:stop] if is_sampled else key and self.is_of(block, key.digest)
            )
            pieces.append(
                (turn.prompt.tokens[segment.start : segment.stop], segment.key)
                if is_same
                else self._encoded_piece(block)
            )
        pieces.append((turn.prompt.tokens[segments[-1].start :], segments[-1].key))
        return _joined(pieces, (turn.prompt.tokens,))

    def user_opening(self) -> tuple[Prompt, int] | None:
        """The ids before a user's first words, and the id after them; None if the template does not show them."""
        found = user_opening(self.template, (), (), None)
        return None if found is None or not found.ids else (Prompt(found.ids), found.end)

    def parser(
        self, prompt: Prompt | None = None, *, call_prefix: str = "call_", tools: Sequence[Tool] | None = None
    ) -> StreamParser:
        """A parser for the answer to this prompt; ids of tool calls begin with `call_prefix`.

        `tools` are those that were offered; None leaves open whether any were.
        """
        opening = "" if prompt is None else self._opening(prompt)
        return parser_of(self.family, self.table, opening=opening, call_prefix=call_prefix, tools=tools)

    def grammar(
        self, form: AnswerForm, prompt: Prompt | None, ends: tuple[int, ...], *, is_bare: bool
    ) -> Grammar | None:
        """The grammar that constrains the answer to this prompt to a form; None if none can. Raises RequestError."""
        opening = "" if prompt is None or is_bare else self._opening(prompt)
        marks, fenced, opened = self._added.get, self._is_fenced, self._is_opened
        speech = Speech(self.family, opening, ends, marks, is_fenced=fenced, is_bare=is_bare, is_opened=opened)
        return grammar_of(form, speech)

    def _opening(self, prompt: Prompt) -> str:
        """The text before an answer to this prompt: the same for most, so it is cached by its ids."""
        ids = prompt.tokens[-_OPENING_IDS:]
        if prompt.segments:
            ids = ids[-(prompt.segments[-1].stop - prompt.segments[-1].start) :]
        found = self._openings.get(ids)
        if found is None:
            found = self.table.text(ids)
            self._openings.put(ids, found, size=len(found))
        return found

    def text_parser(self) -> StreamParser:
        """A parser for what follows bare text: nothing in it is thinking or a call."""
        return PlainParser(self.table)

    def decode(self, tokens: Sequence[int]) -> tuple[Message, tuple[Span, ...]]:
        """A whole answer as a message, and the kinds of its tokens."""
        parser = self.parser()
        parser.feed(tokens)
        parser.finish()
        return parser.message(), parser.spans()

    def encode(self, text: str, *, most: int | None = None) -> tuple[int, ...]:
        """Ids of bare text, for prompts that are not conversations. Raises TooManyTokens if they are above
        `most`."""
        _check(self.least(text), most)
        return tuple(self.template.encode(text, most=most))

    def least(self, text: str) -> int:
        """The least number of ids of the text, at no cost."""
        return 0 if self._longest is None else self._longest.least(text)

    def cut(
        self, messages: Sequence[Message], tools: Sequence[Tool], options: Mapping[str, Json] | None
    ) -> RenderedBlocks | None:
        """The conversation in blocks, with an opened answer; None if they cannot be distinguished."""
        self.stats["renders"] += 1
        if self.family is Family.MISTRAL:
            messages = with_nine_letters(messages)
        rendering = self.template.rendered(messages, tools, generation_prompt=True, options=options)
        return None if self.shape is None else self.shape.borders.cut(rendering, len(messages))

    def form_of(self, key: str, tokens: Sequence[int], tools: Sequence[Tool]) -> Message | None:
        """The served reply in this segment of a prompt, as it was read from the sampled ids."""
        parsed = read_key(key)
        if parsed is None or parsed.sampled is None:
            return None
        found = self._forms.get(key)
        if found is not None:
            return found
        opening, ending = parsed.sampled  # after a restart it is read again
        parser = self.parser(Prompt(tuple(tokens[:opening])) if opening else None, tools=tools)
        parser.feed(tokens[opening : len(tokens) - ending])
        parser.finish()
        self._keep_form(key, parser.message())
        return parser.message()

    def ids_of(self, text: str, after: str, most: int | None = None) -> tuple[int, ...]:
        """Ids of a block's text in its place after the added token `after`. Raises TooManyTokens above `most`."""
        return self._ids(text, after, most) if len(text) < _LONG_CHARS else self.kept_ids(text, after, most)

    def is_of(self, block: PromptBlock, digest: str) -> bool:
        """Whether this is the block's digest."""
        return self._blocks.get(digest) == (block.after, block.text) or block.digest == digest

    def kept_ids(self, text: str, after: str, most: int | None = None) -> tuple[int, ...]:
        """The same ids, stored if they are likely to be needed again."""
        found = self._encoded.get((after, text))
        if found is None:
            found = self._ids(text, after, most)
            self._encoded.put((after, text), found, size=len(text))
        return found

    def _ids(self, text: str, after: str, most: int | None) -> tuple[int, ...]:
        lead = self._lead(after) if text else 0
        return self.encode(after + text if lead else text, most=None if most is None else most + lead)[lead:]

    def _lead(self, after: str) -> int:
        """The number of ids of the added token before a block."""
        lead = self._leads.get(after)
        if lead is None:
            lead = self._leads[after] = len(self.encode(after)) if after else 0
        return lead

    def _count(self, block: PromptBlock) -> int:
        lead = self._lead(block.after)
        return count(self.template.tokenizer, block.after + block.text if lead else block.text) - lead

    def _whole(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        options: Mapping[str, Json] | None,
        most: int | None = None,
    ) -> Prompt:
        blocks = self._blocks_of(messages, tools, options)
        return _joined(self._pieces([(block, None, "") for block in blocks], most))

    def _blocks_of(
        self, messages: Sequence[Message], tools: Sequence[Tool], options: Mapping[str, Json] | None
    ) -> list[PromptBlock]:
        """The conversation in blocks; in one if they cannot be distinguished."""
        cut = self.cut(messages, tools, options)
        if cut is not None:
            return [*cut.blocks, cut.opening]
        self.stats["whole"] += 1
        if self.family is Family.MISTRAL:
            messages = with_nine_letters(messages)
        text = self.template.text(messages, tools, generation_prompt=True, options=options)
        return [PromptBlock((0, len(messages)), text, "")]

    def _pieces(self, parts: Sequence[Part], most: int | None) -> list[Piece]:
        """The ids of blocks, if they have none yet. Raises TooManyTokens as soon as that is known."""
        least = [self.least(block.text) if ids is None else len(ids) for block, ids, _ in parts]
        total, pieces = sum(least), list[Piece]()
        _check(total, most)
        for (block, ids, key), at_least in zip(parts, least, strict=True):
            left = None if most is None else most - (total - at_least)
            pieces.append(self._encoded_piece(block, left) if ids is None else (ids, key))
            total += len(pieces[-1][0]) - at_least
            _check(total, most)
        return pieces

    def _encoded_piece(self, block: PromptBlock, most: int | None = None) -> Piece:
        if block.run[0] == block.run[1]:  # the template's own words, such as an answer's opening, do not change
            return self._own_piece(block)
        ids = self.ids_of(block.text, block.after, most)
        digest = block.digest
        if len(block.text) >= _LONG_CHARS:
            self._blocks.put(digest, (block.after, block.text), size=len(block.text))
        return ids, str(BlockKey(block.run, digest))

    def _own_piece(self, block: PromptBlock) -> Piece:
        found = self._own.get((block.after, block.text))
        if found is None:
            found = self.ids_of(block.text, block.after), block.digest
            self._own.put((block.after, block.text), found, size=len(block.text))
        return found[0], str(BlockKey(block.run, found[1]))

    def _joined_on(self, found: ContinuedPrompt, served: Turn, most: int | None) -> Prompt:
        for key, form in found.forms.items():
            self._keep_form(key, form)
        stays = found.stays[-1].stop if found.stays else 0
        pieces = self._pieces(found.pieces, None if most is None else most - stays)
        before = (served.prompt.tokens, served.completion.tokens)
        prompt = _joined(pieces, before, found.shared, found.stays)
        size = len(before[0]) + len(before[1])
        if not found.holds_reply:
            self.stats["rejoined"] += 1
        else:
            self.stats["continued" if prompt.continued == size else "spliced"] += 1
        return prompt

    def _keep_form(self, key: str, form: Message) -> None:
        calls = sum(len(call.arguments) for call in form.tool_calls)
        self._forms.put(key, form, size=len(key) + len(form.text) + len(form.reasoning or "") + calls)


def _family(template: ChatTemplate, settings: RenderSettings) -> Family:
    if settings.format != "auto":
        return Family(settings.format)
    found = family_of(template)
    if found is None:
        log.warning(
            "no known format of thinking and tool calls in the model's template: answers are read as plain text; "
            "set render.format if it has one"
        )
        return Family.PLAIN
    log.info("answers are read as format=%s", found.value)
    return found


def _joined(
    pieces: Sequence[Piece],
    served: Sequence[tuple[int, ...]] = (),
    shared: int = 0,
    stays: Sequence[Segment] = (),
) -> Prompt:
    """One prompt of the segments that keep their place in `served`, and of the pieces after them.

    `shared` leading ids are known to be those of `served`; the others are compared.
    """
    start = stays[-1].stop if stays else 0
    tail: list[int] = []
    segments = list(stays)
    for ids, key in pieces:
        segments.append(Segment(start + len(tail), start + len(tail) + len(ids), key))
        tail.extend(ids)
    tokens = served[0][:start] + tuple(tail) if stays else tuple(tail)
    rest, at = list[int](), 0
    for ids in served:
        rest.extend(ids[max(0, shared - at) :])
        at += len(ids)
    shared += alike(tokens[shared : shared + len(rest)], rest)
    return Prompt(tokens, tuple(segments), continued=shared)


def _check(least: int, most: int | None) -> None:
    if most is not None and least > most:
        raise TooManyTokens(least)
