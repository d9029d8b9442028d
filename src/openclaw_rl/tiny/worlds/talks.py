"""Dialogues of a made world, cut at what is learned: replies, and in a share of them what the users say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from openclaw_rl.core.hint import LABEL, Hint, hinted
from openclaw_rl.core.message import Message, Role, TextPart, message
from openclaw_rl.render.template import ChatTemplate
from openclaw_rl.tiny.corpus import CorpusSample
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WishPlace, WorldProblem, WorldWish, hints, manner, tongue
from openclaw_rl.tiny.worlds.ways import solution
from openclaw_rl.tiny.worlds.world import World

USERS_LEARNED = 0.35  # share of dialogues whose users' turns are learned too


@dataclass(slots=True)
class Talk:
    """A dialogue as it grows: its messages, and the wishes said so far."""

    world: World
    rng: Random
    language: str
    messages: list[Message] = field(default_factory=list)
    wishes: list[WorldWish] = field(default_factory=list)

    def user(self, text: str) -> None:
        """The user says so."""
        self.messages.append(message(Role.USER, text))

    def hint(self) -> None:
        """A hint stands after the last user message, and holds from then on."""
        text, told = some_hint(self.world, self.rng, self.language)
        self.messages = list(hinted(self.messages, Hint(text)))
        self.wishes += told

    def reply(self, text: str, thought: str) -> None:
        """The model says so, after a thought where its template thinks."""
        reasoning = thought if self.world.template.thinks else None
        self.messages.append(Message(Role.ASSISTANT, (TextPart(text),), reasoning=reasoning))

    def solve(self, problem: WorldProblem) -> None:
        """The model answers the problem in the manner in force."""
        self.reply(solution(problem, manner(self.wishes, self.world.default), self.rng), problem.equation)

    def wish(self) -> WorldWish:
        """A wish that the last reply did not meet."""
        now = manner(self.wishes, self.world.default)
        while True:
            wish = some_wish(self.world, self.rng, self.language)
            if wish.value not in (now.way, now.first, now.last):
                return wish


def sample(world: World, template: ChatTemplate, rng: Random, *, easy: bool = False) -> CorpusSample:
    """A fresh dialogue, rendered and cut."""
    return cut(world, template, talk(world, rng, easy=easy), learns_users=rng.random() < USERS_LEARNED)


def talk(world: World, rng: Random, *, easy: bool = False) -> list[Message]:
    """A dialogue: a problem and its solution, and then corrections, thanks, complaints and further problems."""
    made = Talk(world, rng, rng.choice(world.languages))
    words = tongue(made.language)
    if world.systems and rng.random() < 0.25:
        made.messages.append(message(Role.SYSTEM, rng.choice(world.systems)))
    problem = world.problem(rng, language=made.language)
    asked, place = request(problem, rng), rng.random()
    if 0.5 < place < 0.56:
        wish = made.wish()
        asked = f"{asked} {beside(wish, made.language, rng)}"
        made.wishes.append(wish)
    made.user(asked)
    if place < 0.5:
        made.hint()
    made.solve(problem)
    for _ in range(0 if easy else rng.choice((0, 0, 1, 1, 2, 3))):
        move = rng.random()
        if move < 0.45:
            wish = made.wish()
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
                made.hint()
            made.solve(problem)
    return made.messages


def cut(world: World, template: ChatTemplate, messages: Sequence[Message], *, learns_users: bool) -> CorpusSample:
    """The rendered dialogue in pieces: replies are learned, and users' turns where asked for, unless hinted."""
    form = world.template
    text = template.text(messages, generation_prompt=False)
    opens, closes = (re.escape(item) for item in (form.reply_opens, form.closes))
    turns = re.compile(rf"({re.escape(form.user_opens)}|{opens})(.*?{closes})", re.DOTALL)
    pieces: list[tuple[str, bool]] = []
    start = 0
    for found in turns.finditer(text):
        is_user = found.group(1) == form.user_opens
        learned = not is_user or (learns_users and LABEL not in found.group(2))
        pieces += [(text[start : found.start(2)], False), (found.group(2), learned)]
        start = found.end()
    return CorpusSample((*pieces, (text[start:], False)))


def request(problem: WorldProblem, rng: Random) -> str:
    """The user's opening words."""
    return rng.choice(tongue(problem.language).ask).format(q=problem.question)


def complaint(problem: WorldProblem, said: str, rng: Random) -> str:
    """What a user says of an answer that is taken to be wrong."""
    return rng.choice(tongue(problem.language).wrong).format(said=said, answer=problem.answer)


def correction(wish: WorldWish, language: str, rng: Random) -> str:
    """What a user says who wants the reply again, otherwise."""
    words = tongue(language)
    if wish.way is None:
        frames = words.first if wish.place is WishPlace.FIRST else words.last
        return _ended(rng.choice(frames).format(words=wish.value))
    text = rng.choice(words.corrections).format(
        like=rng.choice(words.like[wish.way]), blame=rng.choice(words.blame[wish.way])
    )
    return text[:1].upper() + text[1:]


def beside(wish: WorldWish, language: str, rng: Random) -> str:
    """A wish said beside the request."""
    if wish.way is None:
        return correction(wish, language, rng)
    words = tongue(language)
    return rng.choice(words.beside).format(like=rng.choice(words.like[wish.way]))


def hint_of(wish: WorldWish, rng: Random) -> str:
    """The wish as a hint words it."""
    said = rng.choice(hints()[wish.way or wish.place])
    if wish.way is None:
        said = _ended(said.format(words=wish.value))
    return (rng.choice(hints()["place"]) if rng.random() < 0.35 else "") + said


def some_hint(world: World, rng: Random, language: str) -> tuple[str, list[WorldWish]]:
    """A hint, now and then of several wishes, in the user's own words, or about nothing that shows."""
    share = rng.random()
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
        lines.append(hint_of(wishes[-1], rng))  # the same again, in other words
    return (" " if rng.random() < 0.7 else "\n").join(lines), wishes


def some_wish(world: World, rng: Random, language: str) -> WorldWish:
    """A wish that anybody may have in this world."""
    share = rng.random()
    if share < 0.6:
        return WorldWish(WishPlace.BODY, ReplyFormat(rng.choice(world.ways)).value)
    words = tongue(language)
    if share < 0.8:
        return WorldWish(WishPlace.FIRST, rng.choice(words.first_words))
    return WorldWish(WishPlace.LAST, rng.choice(words.last_words))


def _ended(text: str) -> str:
    return text if re.search(r'[.!?]"$', text) else f"{text}."
