"""Dialogues of a synthetic world, cut into learned and unlearned pieces: replies, and in some user messages too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from openclaw_rl.core.hint import LABEL, Hint, hinted
from openclaw_rl.core.message import Message, Role, TextPart, message
from openclaw_rl.render.template import ChatTemplate
from openclaw_rl.tiny.corpus import CorpusSample
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WishPlace, WorldProblem, WorldWish, hints, manner, tongue
from openclaw_rl.tiny.worlds.ways import solution
from openclaw_rl.tiny.worlds.world import World

USERS_LEARNED = 0.35  # share of dialogues whose user messages are learned too


@dataclass(slots=True)
class Talk:
    """A dialogue as it grows: its messages, and the wishes given so far."""

    world: World
    rng: Random
    language: str
    messages: list[Message] = field(default_factory=list)
    wishes: list[WorldWish] = field(default_factory=list)

    def user(self, text: str) -> None:
        """Adds a user message."""
        self.messages.append(message(Role.USER, text))

    def hint(self, problem: WorldProblem) -> None:
        """Adds a hint after the last user message, which poses the problem; its wishes apply from then on."""
        hints_of = hint_by_kind if self.world.by_kind else some_hint
        text, given = hints_of(self.world, self.rng, problem)
        self.messages = list(hinted(self.messages, Hint(text)))
        self.wishes += given

    def reply(self, text: str, thought: str) -> None:
        """Adds a reply, with the thought as its reasoning if the world's template thinks."""
        reasoning = thought if self.world.template.thinks else None
        self.messages.append(Message(Role.ASSISTANT, (TextPart(text),), reasoning=reasoning))

    def solve(self, problem: WorldProblem) -> None:
        """Adds the solution of the problem, written as all wishes so far ask."""
        text = solution(problem, manner(self.wishes, self.world.default, problem.kind), self.rng)
        self.reply(text, problem.equation)

    def wish(self, problem: WorldProblem) -> WorldWish:
        """A random wish for something other than the format, first words and last words that apply now."""
        now = manner(self.wishes, self.world.default, problem.kind)
        while True:
            wish = some_wish(self.world, self.rng, self.language)
            if wish.value not in (now.way, now.first, now.last):
                return replace(wish, scope=problem.kind) if self.world.by_kind else wish


def sample(world: World, template: ChatTemplate, rng: Random, *, easy: bool = False) -> CorpusSample:
    """A random dialogue, rendered and cut into pieces."""
    return cut(world, template, talk(world, rng, easy=easy), learns_users=rng.random() < USERS_LEARNED)


def talk(world: World, rng: Random, *, easy: bool = False) -> list[Message]:
    """A dialogue: a problem and its solution; unless easy, then corrections, thanks, complaints, further problems."""
    made = Talk(world, rng, rng.choice(world.languages))
    words = tongue(made.language)
    if world.systems and rng.random() < 0.25:
        made.messages.append(message(Role.SYSTEM, rng.choice(world.systems)))
    problem = world.problem(rng, language=made.language)
    asked, place = request(problem, rng), rng.random()
    if 0.5 < place < 0.56:
        wish = made.wish(problem)
        asked = f"{asked} {beside(wish, made.language, rng)}"
        made.wishes.append(wish)
    made.user(asked)
    if place < 0.5:
        made.hint(problem)
    made.solve(problem)
    for _ in range(0 if easy else rng.choice((0, 0, 1, 1, 2, 3))):
        move = rng.random()
        if move < 0.45:
            wish = made.wish(problem)
            made.user(correction(wish, made.language, rng))
            made.wishes.append(wish)
            made.solve(problem)
        elif move < 0.6:
            made.user(rng.choice(words.thanks))
            made.reply(rng.choice(words.welcome), "ok")
        elif move < 0.7:
            made.user(complaint(problem, problem.answer, rng))
            made.solve(problem)
        else:
            problem = world.problem(rng, language=made.language)
            made.user(rng.choice(words.next).format(q=problem.question))
            if rng.random() < 0.2:
                made.hint(problem)
            made.solve(problem)
    return made.messages


def cut(world: World, template: ChatTemplate, messages: Sequence[Message], *, learns_users: bool) -> CorpusSample:
    """The rendered dialogue in pieces: replies are learned, with `learns_users` also user messages without a hint."""
    form = world.template
    text = template.text(messages, generation_prompt=False)
    user_end = re.escape(form.user_end)
    opens = re.escape(form.reply_opens) or f"(?<={user_end})"
    turns = re.compile(
        rf"(?:{re.escape(form.user_opens)}(?P<user>.*?{user_end})|{opens}(?P<reply>.*?{re.escape(form.closes)}))",
        re.DOTALL,
    )
    pieces: list[tuple[str, bool]] = []
    start = 0
    for found in turns.finditer(text):
        part = "reply" if found["user"] is None else "user"
        learned = part == "reply" or (learns_users and LABEL not in found["user"])
        pieces += [(text[start : found.start(part)], False), (found[part], learned)]
        start = found.end()
    return CorpusSample((*pieces, (text[start:], False)))


def request(problem: WorldProblem, rng: Random) -> str:
    """The user's first message, with the problem."""
    return rng.choice(tongue(problem.language).ask).format(q=problem.question)


def complaint(problem: WorldProblem, said: str, rng: Random) -> str:
    """A user's message that the answer `said` is wrong, in the user's opinion."""
    return rng.choice(tongue(problem.language).wrong).format(said=said, answer=problem.answer)


def correction(wish: WorldWish, language: str, rng: Random) -> str:
    """The message of a user who wants the same reply again, but as the wish says."""
    words = tongue(language)
    if wish.way is None:
        frames = words.first if wish.place is WishPlace.FIRST else words.last
        return _ended(rng.choice(frames).format(words=wish.value))
    text = rng.choice(words.corrections).format(
        like=rng.choice(words.like[wish.way]), blame=rng.choice(words.blame[wish.way])
    )
    return text[:1].upper() + text[1:]


def beside(wish: WorldWish, language: str, rng: Random) -> str:
    """A sentence with the wish that is added to a request."""
    if wish.way is None:
        return correction(wish, language, rng)
    words = tongue(language)
    return rng.choice(words.beside).format(like=rng.choice(words.like[wish.way]))


def hint_of(wish: WorldWish, rng: Random) -> str:
    """The wish in the words of a hint."""
    said = rng.choice(hints()[wish.way or wish.place])
    if wish.way is None:
        said = _ended(said.format(words=wish.value))
    if wish.scope:
        return rng.choice(hints()["kind"]).format(kind=wish.scope) + said
    return (rng.choice(hints()["place"]) if rng.random() < 0.35 else "") + said


def hint_by_kind(world: World, rng: Random, problem: WorldProblem) -> tuple[str, list[WorldWish]]:
    """A hint with up to twelve wishes, each about one kind of problem, and these wishes."""
    about = [(kind, place) for kind in world.taught for place in WishPlace]
    chosen = rng.sample(about, rng.choice((1, 1, 1, 2, 2, 3, 4, 6, 9, 12)))
    if problem.kind in world.taught and rng.random() < 0.5:  # few hints seldom concern the problem at hand
        chosen[0] = (problem.kind, chosen[0][1])
    wishes = [replace(a_wish(world, rng, problem.language, place), scope=kind) for kind, place in dict.fromkeys(chosen)]
    if len(wishes) == 1 and wishes[0].scope == problem.kind and rng.random() < 0.2:
        return correction(wishes[0], problem.language, rng), wishes
    return (" " if rng.random() < 0.7 else "\n").join(hint_of(wish, rng) for wish in wishes), wishes


def some_hint(world: World, rng: Random, problem: WorldProblem) -> tuple[str, list[WorldWish]]:
    """A hint and its wishes. Some hints have several wishes, some are in the user's words, some have no wish."""
    language, share = problem.language, rng.random()
    if share < 0.06:
        return rng.choice(hints()["idle"]), []
    wishes = [some_wish(world, rng, language)]
    if share < 0.14:
        return correction(wishes[0], language, rng), wishes
    if share > 0.75:
        others = {wish.place: wish for wish in (some_wish(world, rng, language) for _ in range(3))}
        wishes += [wish for place, wish in others.items() if place is not wishes[0].place]
    lines = [hint_of(wish, rng) for wish in wishes]
    if 0.06 < share < 0.2:
        lines.append(hint_of(wishes[-1], rng))  # the last wish again, perhaps in other words
    return (" " if rng.random() < 0.7 else "\n").join(lines), wishes


def some_wish(world: World, rng: Random, language: str) -> WorldWish:
    """A random wish that a user of this world may have."""
    share = rng.random()
    place = WishPlace.BODY if share < 0.6 else WishPlace.FIRST if share < 0.8 else WishPlace.LAST
    return a_wish(world, rng, language, place)


def a_wish(world: World, rng: Random, language: str, place: WishPlace) -> WorldWish:
    """A random wish for this part of a reply."""
    if place is WishPlace.BODY:
        return WorldWish(place, ReplyFormat(rng.choice(world.ways)).value)
    words = tongue(language)
    return WorldWish(place, rng.choice(words.first_words if place is WishPlace.FIRST else words.last_words))


def _ended(text: str) -> str:
    return text if re.search(r'[.!?]"$', text) else f"{text}."
