"""What users of the toy world say: wishes about style, corrections, hints, thanks, complaints, remarks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from openclaw_rl.tiny.problems import Problem
from openclaw_rl.tiny.styles import Style

# How users who want a style describe it ("Please write it {like}"), and what they do not want ("without {no}").
_LIKE: dict[Style, tuple[str, ...]] = {
    Style.NATURAL: (
        "in plain sentences", "like a person", "like a person would say it", "in natural words", "in ordinary prose",
        "the way a student would write it", "as if a human wrote it", "in your own plain words",
        "as a short paragraph", "in simple natural language", "like normal handwriting", "as plain text",
        
    ),
    Style.DETAILED: (
        "in more detail", "with every step explained", "with the reason for each step",
        "in a specific and detailed way", "more thoroughly", "step by step with a reason each time",
        "with all the details", "more specifically", "so that I see why each step is done", "with exact explanations",
    ),
    Style.FRIENDLY: (
        "in a friendly way", "in a warm tone", "with kind words", "in a more encouraging tone", "more kindly",
        "in a nicer and warmer way", "with some encouragement", "in a cheerful voice", "with a friendly greeting",
        "as a kind teacher would",
    ),
    Style.AI: (
        "with headers and bold text", "in markdown", "as numbered steps in markdown", "with a boxed answer",
        "in a structured markdown format", "with a header and numbered bold steps",
    ),
}  # fmt: skip
_NO: dict[Style, tuple[str, ...]] = {
    Style.NATURAL: (
        "markdown", "bold text", "headers", "numbered steps", "bullet points", "lists", "boxed answers", "formatting",
        "asterisks", "LaTeX", "hash signs", "AI looks", "bold words", "numbered lists", "headings", "boxes",
    ),
    Style.DETAILED: ("gaps", "vague words", "short cuts", "missing reasons"),
    Style.FRIENDLY: ("a cold tone", "dry words", "stiff words", "harsh words"),
    Style.AI: ("plain prose", "unstructured text"),
}  # fmt: skip
_COMPLAINT: dict[Style, tuple[str, ...]] = {
    Style.NATURAL: (
        "This looks like an AI wrote it", "That looks too much like a chatbot",
        "My teacher will see that a machine wrote this", "This reads like a robot", "That has far too much formatting",
        "Nobody writes homework with bold headers", "I cannot hand in something that looks generated",
        "All those symbols look like AI", "It does not sound like me",
    ),
    Style.DETAILED: (
        "That is too short", "This is too vague", "I need to know more", "That is not specific enough",
        "The student will not learn from so little", "It leaves out the reasons", "I cannot see why you did that",
    ),
    Style.FRIENDLY: (
        "That sounds cold", "This is too dry", "That could hurt a child", "It sounds so stern", "The tone is not kind",
        "My pupils need a warmer voice", "That feels unfriendly",
    ),
    Style.AI: ("That is hard to read", "I miss some structure", "There is no formatting at all"),
}  # fmt: skip

_CORRECTION_FRAMES = (
    "Please write that {like}.", "Please write that without the {no}, {like}.", "Can you redo it {like}?",
    "{complaint}. Please rewrite it {like}.", "{complaint}. No {no}, please.",
    "Please write that without {no}, {like}.", "Again please, {like}.",
    "Could you do it again without {no} and {no2}?", "I asked for homework help. {complaint}. Write it {like}.",
    "Rewrite this {like}, without {no}.", "{complaint}. Do it again {like}.", "Drop {no} and write it {like}.",
    "I would rather have it {like}.", "Not like that. I want it {like}, without {no}.",
    "{complaint}. I want it {like}.", "Redo this without {no} or {no2}.",
    "{complaint}, so do it over {like} and without {no}.", "Hmm, {like} please.", "Try again, but {like}.",
    "Once more, {like}.", "Could you put it {like}?", "Make it {like}, please.", "One more time {like}.",
    "Try to say it {like}.", "I would like that {like}.",
)  # fmt: skip
_HELD_OUT_CORRECTIONS = (
    "Sorry, but I need this {like}, not with {no}.", "{complaint}. Could I have it {like} instead?",
    "Please change it: {like}, and without {no}.", "Try once more and put it {like}.",
)  # fmt: skip
_WISH_FRAMES = (
    "Please write it {like}.", "Answer {like}, please.", "Write the answer {like}, without {no}.",
    "Please do it without {no}.", "I want the answer {like}.", "No {no} and no {no2}, please.", "Say it {like}.",
    "Do not use {no}; write {like}.",
)  # fmt: skip
_STATED: dict[Style, tuple[str, ...]] = {  # the hints that a judge writes: the whole wish
    Style.NATURAL: (
        "The user wants plain sentences like a person writes, without markdown, bold text or numbered steps.",
        "Write the answer in plain natural sentences: no headers, no bold text, no numbered steps and no boxed answer.",
        "The user does not want the answer to look like AI. Write plain sentences without any markdown.",
        "You should write like a person would, in ordinary sentences without markdown, lists or a boxed answer.",
    ),
    Style.DETAILED: (
        "The user wants a detailed and specific answer that gives the reason for each step.",
        "Explain every step in detail and say why it is done.",
        "You should be specific: go through each step and give the reason for it.",
    ),
    Style.FRIENDLY: (
        "The user wants a warm and friendly tone with kind, encouraging words.",
        "Write in a friendly way and encourage the reader.",
        "You should use a warm and kind tone instead of a dry one.",
    ),
    Style.AI: (
        "The user wants markdown with headers, bold text, numbered steps and a boxed answer.",
        "Use a structured markdown format with a header, numbered bold steps and a boxed answer.",
    ),
}
_HINT_FRAMES = (
    "The user wants the answer {like}, without {no}.", "Write {like}; avoid {no} and {no2}.",
    "You should have written it {like}.", "The student dislikes {no} and {no2}. Answer {like}.",
    "Avoid {no} and write {like}.", "The reply should be written {like}, with no {no}.",
    "Answer {like}, without {no} or {no2}.", "This user prefers answers {like}.",
    "The user does not want {no}. Write {like}.", "Write the whole reply {like}.",
    "The answer was wanted {like} and without {no}.", "Next time write {like}, not with {no}.",
    "{complaint}. Write {like}.", "Keep the reply free of {no} and {no2}; say it {like}.",
    "You should know that the user likes replies {like}.",
)  # fmt: skip
_IDLE_HINTS = (
    "Check the numbers once more.", "Read the question carefully.", "The user has school tomorrow.",
    "Be sure that the answer is right.", "The numbers in the question are right.",
    "The user asked for the last number.", "Add and subtract with care.", "The file is in the same folder.",
    "Look at all of the numbers.",
)  # fmt: skip
_SYSTEM_FRAMES = (
    "Always write {like}.", "About this user: wants replies {like}, without {no}.",
    "Remember: the user wants answers {like}.", "Write all replies {like}. Never use {no}.",
    "The user dislikes {no}. Answer {like}.", "Keep replies {like}.",
)  # fmt: skip
_THANKS = (
    "{thank}!", "{thank}.", "{great}, {thank}!", "{great}! {good}.", "{good}, {thank}.", "{great}, {good}.",
    "{good}. {thank}!", "{thank}, {good}.", "{great}.", "{good}.", "{yes}, {good}.", "{yes}. {thank}.",
    "{yes}, {great}!", "{thank}, {great}.",
)  # fmt: skip
_THANK_WORDS = {
    "thank": ("thanks", "thank you", "thanks a lot", "thank you very much", "many thanks", "thanks for this"),
    "great": (
        "great", "perfect", "super", "cool", "nice", "very good", "lovely", "excellent", "okay, good", "much better",
    ),
    "good": (
        "that helps a lot", "that is what I needed", "that works for me", "I understand it now", "that looks right",
        "I can use that", "now I get it", "this is good", "I like this", "that is how I want it", "I will use it",
        "that was helpful", "it is clear now", "this is fine",
    ),
    "yes": ("yes", "yes, exactly", "okay", "all right", "ah, I see", "exactly", "oh good"),
}  # fmt: skip
_HELD_OUT_THANKS = ("Wonderful, thanks a lot!", "Thank you so much, that is good.", "Okay great, I can use this.")
_WELCOMES = ("You are welcome.", "You are welcome. Send me the next one when you like.", "Glad that it helps.")
_REMARKS = (
    "My {person} is {busy}.", "It is {weather} {place} today.", "I have to {chore} soon.", "One moment, {event}.",
    "I am {busy} right now.", "{place}, it is {weather}.", "Tomorrow I will {chore}.", "Hm, {event}.", "Oh, {event}.",
    "We have {lesson} on {day}.", "I like {lesson}.", "My {person} will {chore} on {day}.", "Let me look, {event}.",
)  # fmt: skip
_HELD_OUT_REMARKS = (
    "It was very {weather} {place}.", "Your {person} is {busy}?", "Wait, {event}.", "On {day} I will {chore}.",
)  # fmt: skip
_REMARK_WORDS = {
    "person": ("brother", "sister", "mother", "father", "cat", "dog", "friend", "uncle", "grandma", "neighbour"),
    "busy": ("asleep", "cooking", "making tea", "watching", "reading", "sitting in the kitchen", "singing", "at work"),
    "weather": ("cold", "warm", "raining", "sunny", "windy", "dark", "noisy", "quiet", "foggy"),
    "place": ("here", "outside", "in the garden", "at school", "in town", "in the kitchen"),
    "chore": ("eat lunch", "go to bed", "walk the dog", "go home", "clean my room", "catch the bus", "play football"),
    "event": ("the phone rings", "my pencil broke", "someone is at the door", "the bus was late", "my tea is cold"),
    "lesson": ("school", "music", "sports", "history", "a party", "pizza"),
    "day": ("Monday", "Tuesday", "Friday", "Sunday"),
}
_WRONG = (
    "That is not right. Please check it again.", "I think {said} is wrong. Can you check?",
    "No, it should be {answer}.", "The answer is wrong. It must be {answer}.",
    "My teacher says {said} is not correct.", "You made a mistake, try again.", "I get {answer}, not {said}.",
    "Something is off with {said}.", "Check your numbers again, please.", "{said} is wrong.",
    "The result is not correct.", "{said} cannot be right, please calculate again.",
    "The book says {answer}, not {said}.",
)  # fmt: skip
_ASK = (
    "{question}", "Please solve this: {question}", "Can you help me with this problem? {question}",
    "{question} Please help me.", "Here is my homework: {question}", "Solve this problem. {question}",
    "I need help with this one: {question}", "Hi! {question}", "Question: {question}",
)  # fmt: skip
_NEXT = (
    "Next one: {question}", "Now this one: {question}", "Here is another: {question}",
    "And the next problem: {question}", "Okay, next. {question}", "Thanks! Next problem: {question}", "{question}",
)  # fmt: skip


def request(problem: Problem, rng: Random) -> str:
    """The user's first message: a problem, and often a request for help."""
    return rng.choice(_ASK).format(question=problem.question)


def next_request(problem: Problem, rng: Random) -> str:
    """The user's message with a further problem in the same session."""
    return rng.choice(_NEXT).format(question=problem.question)


def correction(style: Style, rng: Random, *, held_out: bool = False) -> str:
    """A follow-up message that asks for the same again in the style; held-out wordings are never in training."""
    return _filled(_HELD_OUT_CORRECTIONS if held_out else _CORRECTION_FRAMES, style, rng)


def wish(style: Style, rng: Random) -> str:
    """A sentence that asks for the style and is added to a request."""
    return _filled(_WISH_FRAMES, style, rng)


def wish_hint(style: Style, rng: Random) -> str:
    """A hint, addressed to the assistant, that states the requested style in one or two sentences."""
    return stated_wish(style, rng) if rng.random() < 0.4 else _filled(_HINT_FRAMES, style, rng)


def stated_wish(style: Style, rng: Random) -> str:
    """The hint that a judge writes if a user asks for the style."""
    return rng.choice(_STATED[style])


def states(hint: str, style: Style) -> bool:
    """Whether a hint asks for the style in words that a judge was taught."""
    return any(stated in hint for stated in _STATED[style])


def idle_hint(rng: Random) -> str:
    """A hint that says nothing about style."""
    return rng.choice(_IDLE_HINTS)


def system_wish(style: Style, rng: Random) -> str:
    """A line of a system text that asks for the style."""
    return _filled(_SYSTEM_FRAMES, style, rng)


def thanks(rng: Random, *, held_out: bool = False) -> str:
    """The message of a satisfied user."""
    text = rng.choice(_HELD_OUT_THANKS if held_out else _THANKS)
    text = text.format_map({slot: rng.choice(words) for slot, words in _THANK_WORDS.items()})
    return re.sub(r"(^|[.!] )([a-z])", lambda found: found[1] + found[2].upper(), text)


def welcome(rng: Random) -> str:
    """The assistant's short reply to thanks."""
    return rng.choice(_WELCOMES)


def remark(rng: Random, *, held_out: bool = False) -> str:
    """A user's message that has nothing to do with the reply."""
    frame = rng.choice(_HELD_OUT_REMARKS if held_out else _REMARKS)
    text = frame.format_map({slot: rng.choice(words) for slot, words in _REMARK_WORDS.items()})
    return text[:1].upper() + text[1:]


def wrong(problem: Problem, rng: Random, *, said: str = "") -> str:
    """A complaint that the answer `said` is wrong; it may name the right answer."""
    return rng.choice(_WRONG).format(said=said or "that", answer=problem.answer)


def _filled(frames: Sequence[str], style: Style, rng: Random) -> str:
    no, second = rng.sample(_NO[style], 2)
    text = rng.choice(frames).format(
        like=rng.choice(_LIKE[style]), no=no, no2=second, complaint=rng.choice(_COMPLAINT[style])
    )
    return text[:1].upper() + text[1:]
