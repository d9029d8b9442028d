"""The whole loop in one file: talk to a small model, correct it, and watch it learn.

    serve --> next state --> judge --> hint --> teacher --> LoRA step --> new version --> serve ...

A scripted student has a wish that the model is never told: homework in plain prose, nothing that looks like AI. It asks
for help with word problems, and where a reply does not suit it, it says so as people do. That is all the model gets:
no labels, no reward function. Everything here is the real thing in small; the program adds a server, a store, and
processes, so that none of these steps waits for another. It needs torch, transformers and peft, and about a minute:

    python examples/one_file.py [--sessions 12] [--seed 0] [--model FOLDER]

The model is a toy made for this: it knows such problems, four ways to write, and how to judge a conversation.
"""

from __future__ import annotations

import argparse
import re
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

PACKAGE = Path(__file__).parent.parent / "src" / "openclaw_rl"
SCORE = (PACKAGE / "judge/prompts/score.txt").read_text().strip()  # what the program's own judge is asked
HINT = (PACKAGE / "judge/prompts/hint.txt").read_text().strip()

TEMPERATURE = 0.7  # of replies; judges vote at 0.6
VOTES = 3  # a judge's tries at a score, and at a hint
BATCH = 1  # turns that teach in one optimiser step: one correction is enough
RATE = 6e-3  # of AdamW; a rank-8 adapter on a tiny model wants a high one
ANCHOR = 0.05  # weight of the KL to the base model: without it, the skill goes as the style comes

Chat = list[dict[str, str]]  # [{"role": "user", "content": "..."}, ...]


# ---------------------------------------------------------------------------------------------------------- the student
@dataclass(frozen=True)
class Problem:
    question: str
    answer: str


def problem(rng: Random) -> Problem:
    """A fresh word problem."""
    (who, other), things = rng.sample(("Mia", "Ben", "Lena", "Tom", "Anna", "Paul"), 2), rng.choice(("apples", "cards"))
    start, more, count = rng.randint(6, 15), rng.randint(2, 9), rng.randint(2, 5)
    given = f"{who} has {start} {things}. {other} gives {who} {more} more. How many {things} does {who} have now?"
    taken = f"{who} has {start + more} {things} and gives {more} of them to {other}. How many {things} are left?"
    bought = f"{who} buys {count} boxes with {more} {things} in each. How many {things} does {who} have?"
    return rng.choice(
        (Problem(given, str(start + more)), Problem(taken, str(start)), Problem(bought, str(count * more)))
    )


def follows_wish(reply: str) -> bool:
    """No markdown, no lists, no boxed answer, and a real sentence: a bare number would be no homework."""
    has_markup = re.search(r"^\s*#|\*\*|^\s*[-*+]\s|^\s*\d+[.)]\s|\\boxed|\\\(|\$|`|<", reply, re.MULTILINE)
    return not has_markup and len(re.findall(r"[A-Za-z]+", reply)) >= 4


def is_right(task: Problem, reply: str) -> bool:
    """Whether the last number said is the answer."""
    return re.findall(r"\d+", reply)[-1:] == [task.answer]


def what_next(task: Problem, reply: str, rng: Random) -> str:
    """What the student says to a reply: thanks, or what is wrong with it. It never says it the same way."""
    if not is_right(task, reply):
        return rng.choice(("That is not right. Please check it again.", f"No, it should be {task.answer}."))
    if follows_wish(reply):
        return rng.choice(("Thanks!", "Great, thanks!", "Perfect, thanks.", "That is good, thank you."))
    complaint = rng.choice(("This looks like an AI wrote it", "This reads like a robot", "It does not sound like me"))
    like = rng.choice(("in plain sentences", "like a person would say it", "as a short paragraph", "in ordinary prose"))
    return rng.choice(
        (
            f"{complaint}. Please rewrite it {like}.",
            f"Please write that without bold text, {like}.",
            f"{complaint}. I want it {like}, without headers or numbered steps.",
        )
    )


# ------------------------------------------------------------------------------------------------------------ the model
@dataclass(frozen=True)
class Reply:
    """Ids and log-probabilities exactly as sampled: text is never encoded again to guess what was said."""

    text: str
    prompt: Tensor  # ids the model read
    response: Tensor  # ids it sampled
    logp: Tensor  # nats of each sampled id at temperature 1, under the weights that sampled it


class Model:
    """One frozen base and one adapter. With the adapter it is the policy; without, it is judge, teacher and anchor."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.net = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")).eval()
        self.adapter = [weight for weight in self.net.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.adapter, lr=RATE, weight_decay=0.0)
        self.version = 0

    def _weights(self, *, base: bool) -> AbstractContextManager[None]:
        return self.net.disable_adapter() if base else nullcontext()

    def ids(self, chat: Chat) -> Tensor:
        text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return torch.tensor(self.tokenizer.encode(text, add_special_tokens=False))

    @torch.no_grad()
    def sample(self, chats: list[Chat], *, temperature: float, base: bool = False) -> list[Reply]:
        """One answer to each chat, sampled together."""
        prompts = [self.ids(chat) for chat in chats]
        end = self.tokenizer.eos_token_id
        padded = torch.nn.utils.rnn.pad_sequence([ids.flip(0) for ids in prompts], batch_first=True, padding_value=end)
        lengths = torch.tensor([len(ids) for ids in prompts])
        seen = (torch.arange(padded.shape[1]) < lengths[:, None]).flip(1)  # padding stands on the left
        with self._weights(base=base):
            out = self.net.generate(
                input_ids=padded.flip(1), attention_mask=seen.long(), max_new_tokens=200, pad_token_id=end,
                do_sample=True, temperature=temperature, top_k=0, top_p=1.0,
                return_dict_in_generate=True, output_logits=True,
            )  # fmt: skip
        sampled = out.sequences[:, padded.shape[1] :]
        logp = torch.stack(out.logits, 1).log_softmax(-1).gather(-1, sampled[..., None])[..., 0]  # [chats, T]
        replies = []
        for prompt, ids, nats in zip(prompts, sampled, logp, strict=True):
            length = int((ids != end).cumprod(0).sum()) + 1  # the end mark is sampled, and trained, too
            text = self.tokenizer.decode(ids[: length - 1], skip_special_tokens=False)
            replies.append(Reply(text.strip(), prompt, ids[:length], nats[:length]))
        return replies

    def logp(self, prompt: Tensor, response: Tensor, *, base: bool = False) -> Tensor:
        """Nats of every id of the vocabulary at each place of the response: [T, V]."""
        ids = torch.cat((prompt, response))[None]
        with self._weights(base=base):
            logits = self.net(ids, logits_to_keep=len(response) + 1).logits[0, :-1]
        return logits.log_softmax(-1)


# ------------------------------------------------------------------------------------------------------------ the judge
@dataclass(frozen=True)
class Turn:
    """A reply, the chat it answered, what came next, and what the judge made of that."""

    chat: Chat
    reply: Reply
    next_state: str
    score: int
    hint: str | None


def judge(model: Model, chat: Chat, reply: Reply, next_state: str) -> Turn:
    """The base model votes on what happened next, and says what the reply should have known."""
    blocks = {
        "history": "\n".join(f"{said['role']}: {said['content']}" for said in chat[:-1]),
        "request": f"user: {chat[-1]['content']}",
        "reply": f"assistant: {reply.text}",
        "next": f"user: {next_state}",
    }
    body = "\n".join(f"<<<{name}\n{text}\n{name}>>>" for name, text in blocks.items() if text)
    asked = [[{"role": "system", "content": text}, {"role": "user", "content": body}] for text in (SCORE, HINT)]
    answers = [reply.text for reply in model.sample(asked * VOTES, temperature=0.6, base=True)]
    votes = [vote for vote in map(_vote, answers[0::2]) if vote is not None]
    hints = [hint for hint in map(_hint, answers[1::2]) if hint is not None]
    score = next((vote for vote in (-1, 0, 1) if 2 * votes.count(vote) > len(votes)), 0)  # a tie is 0
    return Turn(chat, reply, next_state, score, max(hints, key=len, default=None))


def _vote(answer: str) -> int | None:
    """The last boxed -1, 0 or 1; anything else is no vote."""
    boxed = re.findall(r"\\boxed\{\s*([+-]?\d+)\s*\}", answer)
    return int(boxed[-1]) if boxed and int(boxed[-1]) in (-1, 0, 1) else None


def _hint(answer: str) -> str | None:
    """The hint, where the judge says that there is one and it says something."""
    found = re.search(r"\[HINT_START\](.*?)\[HINT_END\]", answer, re.DOTALL)
    return found[1].strip() if found and _vote(answer) == 1 and len(found[1].strip()) > 10 else None


# --------------------------------------------------------------------------------------------------------- the learning
def step(model: Model, turns: list[Turn]) -> dict[str, float]:
    """One optimiser step over turns as they were sampled; it makes the next version.

    The teacher is the base model that reads the hint. It does not write: at each place where the student *did* go, it
    says what it would have said next, had the hint been known. The student is drawn towards that (forward KL, over the
    whole vocabulary: a word that the student never samples can be taught too).
    """
    hinted_tokens = sum(len(turn.reply.response) for turn in turns if turn.hint)
    all_tokens = sum(len(turn.reply.response) for turn in turns)
    distance, anchor = 0.0, 0.0
    for turn in turns:
        reply = turn.reply
        logp = model.logp(reply.prompt, reply.response)
        with torch.no_grad():
            logp_base = model.logp(reply.prompt, reply.response, base=True)
        gap = (logp_base - logp).gather(-1, reply.response[:, None])[:, 0]
        kl = gap.exp() - gap - 1  # k3 at what was sampled: never negative, 0 where both agree
        loss = ANCHOR * kl.sum() / all_tokens
        anchor += float(kl.detach().sum()) / all_tokens
        if turn.hint:
            with torch.no_grad():
                logp_teacher = model.logp(model.ids(with_hint(turn.chat, turn.hint)), reply.response, base=True)
            to_teacher = (logp_teacher.exp() * (logp_teacher - logp)).sum(-1)  # [T]
            loss = loss + to_teacher.sum() / hinted_tokens
            distance += float(to_teacher.detach().sum()) / hinted_tokens
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.adapter, 1.0)
    model.optimizer.step()
    model.optimizer.zero_grad()
    model.version += 1  # a server would write the adapter to a folder and swap it in between two tokens
    return {"distance": distance, "kl": anchor}


def with_hint(chat: Chat, hint: str) -> Chat:
    """The chat with the hint after the last thing the user said: what the teacher reads."""
    return [*chat[:-1], {"role": "user", "content": f"{chat[-1]['content']}\n\n[user's hint] {hint}"}]


# ------------------------------------------------------------------------------------------------------------- the loop
def session(model: Model, rng: Random) -> tuple[list[Turn], bool]:
    """One conversation about one problem, up to three corrections; and whether the first reply was good."""
    task = problem(rng)
    chat: Chat = [{"role": "user", "content": task.question}]
    turns: list[Turn] = []
    is_good = []
    while not any(is_good) and len(turns) < 4:
        reply = model.sample([chat], temperature=TEMPERATURE)[0]
        is_good.append(follows_wish(reply.text) and is_right(task, reply.text))
        said = what_next(task, reply.text, rng)
        turns.append(judge(model, chat, reply, said))
        show("student", chat[-1]["content"])
        show("model", reply.text)
        chat = [*chat, {"role": "assistant", "content": reply.text}, {"role": "user", "content": said}]
    show("student", chat[-1]["content"])
    for turn in turns:
        show("judge", f"{turn.score:+d} {'hint: ' + turn.hint if turn.hint else 'no hint'}")
    return turns, is_good[0]


def measure(model: Model, seed: int, count: int) -> str:
    """How many first replies to fresh problems follow the wish, and how many are right; nobody learns from these."""
    rng = Random(f"measure {seed}")
    tasks = [problem(rng) for _ in range(count)]
    torch.manual_seed(seed)
    chats = [[{"role": "user", "content": task.question}] for task in tasks]
    replies = [reply.text for reply in model.sample(chats, temperature=TEMPERATURE)]
    wish = sum(map(follows_wish, replies))
    right = sum(is_right(task, reply) for task, reply in zip(tasks, replies, strict=True))
    return f"version {model.version}: {wish} of {count} follow the wish, {right} of {count} are right"


def show(who: str, said: str) -> None:
    """One line of the story."""
    line = " ".join(said.split())
    print(f"  {who:>8}  {line if len(line) <= 100 else line[:97] + '...'}", flush=True)


def main() -> None:
    """Talks, learns, and tells what came of it."""
    options = argparse.ArgumentParser(description="The whole loop in one file.")
    options.add_argument("--model", type=Path, default=PACKAGE / "tiny" / "weights")
    options.add_argument("--sessions", type=int, default=12)
    options.add_argument("--measured", type=int, default=40, help="problems measured before and after")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    logging.disable_progress_bar()  # of loading, which takes a blink
    warnings.simplefilter("ignore")
    model, rng = Model(given.model), Random(given.seed)
    before = measure(model, given.seed, given.measured)
    torch.manual_seed(given.seed)
    waiting: list[Turn] = []
    for number in range(1, given.sessions + 1):
        print(f"session {number}, version {model.version}")
        turns, was_good = session(model, rng)
        print(f"  {'the first reply was good' if was_good else 'it took corrections'}")
        waiting += turns
        while len(waiting) >= BATCH:
            batch, waiting = waiting[:BATCH], waiting[BATCH:]
            if any(turn.hint for turn in batch):  # where nothing is to be learned, the weights do not move
                report = step(model, batch)
                print(f"  version {model.version}: {report['distance']:.2f} nats a token from the teacher")
    print(f"\nbefore  {before}\nafter   {measure(model, given.seed, given.measured)}")


if __name__ == "__main__":
    main()
