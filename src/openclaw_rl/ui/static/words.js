// The program's terms in plain words. What a term means exactly stands in `TERMS`, shown when it is pointed at.
export const TERMS = {
  correction: "A reply that the next message found wrong: judged -1 (next state, verdict).",
  judged: "Replies that somebody reacted to. The judge read the reaction and gave -1, 0 or +1.",
  version: "A numbered set of weights. Number 0 is the model before it learned anything (the base model).",
  gate: "Every new version is tested before it is served: its files, its replies, what it was to learn and what it knew.",
  hint: "One to three sentences that would have improved the reply, as the judge worded them or you did.",
  held: "Of the replies since that somebody reacted to, those after which the same was not asked for again.",
  distance:
    "How far the version is, without being told, from what the base model says once it reads the hint: the divergence " +
    "of their next-token distributions, in nats a token.",
  frozen: "No training step is taken. Turns are judged, and wait.",
  pinned: "This version is served whatever is trained meanwhile.",
  weights: "carry = weights: wishes are learned from; only those that could not be learned are added to prompts.",
  memory: "carry = memory: wishes are added to prompts; the weights are left alone.",
  bridge: "carry = bridge: wishes are added to prompts until the weights follow them.",
  tokens: "Pieces of words that the model reads and writes. Each one in a prompt costs time with every request.",
  session: "A conversation: the requests that continue each other.",
  episode: "An attempt of an agent at a task; each turn is a step, and the environment gives the outcome at the end.",
  nats: "Nats a token: how differently two versions choose the next piece of a word. 0 is not at all; 0.1 is easily noticed.",
  outcome: "What the environment gave at the end: usually 1 for solved and 0 for not solved.",
};

export const STATES = {
  served: ["waits for a reaction", "served: nothing followed this reply yet"],
  paired: ["waits for the judge", "paired: somebody reacted; the judge has yet to read it"],
  judged: ["waits for the end", "judged: what was said of it alone gives nothing to learn; how its conversation or attempt ends may"],
  ready: ["waits to be learned", "ready: a sample that the next training step uses"],
  trained: ["learned", "trained: a step has used it and made a version"],
  dropped: ["nothing to learn", "dropped: it teaches nothing; the reason is given below"],
  side: ["not learned from", "side: a request that a program makes for itself, such as a title"],
};

// Why a turn taught nothing, as far as the name of the reason is not plain.
export const REASONS = {
  cut_by_length: "cut by their length",
  cancelled: "the client went away",
  empty: "empty answers",
  loop: "said one thing over and over",
  unheeded: "the hint changes nothing",
  misheard: "the user meant something else",
  redacted: "held something private",
  said_before: "said just before",
  repeated: "said too often in a day",
  learned: "followed already",
  stale: "too old",
  excluded: "left out by an owner",
  forgotten: "forgotten",
  damaged: "damaged on the disk",
  control_token: "signals of a program",
  no_next_state: "nobody reacted",
  not_followed: "went on from another answer",
  no_signal: "the reaction taught nothing",
  may_not_teach: "by a key that may not teach",
  too_many: "too many in a day",
  in_vain: "corrected in vain",
  memory_only: "kept in prompts only",
  no_spread: "all attempts did alike",
  environment_failed: "the task was broken",
  infrastructure_failed: "a machine failed",
  too_long: "too long to learn from",
  too_dear: "too costly to learn from",
  not_finite: "numbers were not finite",
  not_learnable: "could not be learned",
  trainer_failed: "the trainer failed",
};

// The program's terms for a reply, wherever it explains itself.
export const PLAIN = {
  turn: "reply",
  turns: "replies",
  "turn dropped": "reply taught nothing",
  "turns dropped": "replies taught nothing",
  "main turn": "reply",
  "main turns": "replies",
  "main turn dropped": "reply taught nothing",
  "main turns dropped": "replies taught nothing",
};

// What a version was made from, by the kinds of its turns.
const SOURCES = [
  ["corrected", "correction"],
  ["praised", "reply that was praised", "replies that were praised"],
  ["attempts", "step of attempts at tasks", "steps of attempts at tasks"],
  ["others", "other reply", "other replies"],
];

/** What a version was made from: "2 corrections and 1 reply that was praised". */
export function sources(row) {
  const found = SOURCES.filter(([kind]) => (row.from || {})[kind]).map(([kind, one, several]) => many(row.from[kind], one, several));
  return found.join(" and ") || many(row.turns.length, "reply", "replies");
}

export const SCORES = {
  "-1": ["corrected", "bad"],
  0: ["neither good nor bad", "flat"],
  1: ["good", "good"],
};

export const STATUSES = {
  candidate: ["being tested", "candidate: it has yet to pass the gate"],
  live: ["passed", "live: it passed the gate"],
  refused: ["refused", "refused: it did not pass the gate, and was never served"],
};

export const RIGHTS = {
  chat: "ask for answers",
  feedback: "give thumbs and corrections",
  teach: "teach: what is said with it is learned from",
  admin: "see everything and change what was learned",
};

/** "version 3", with whose it is where it is not everybody's. */
export function versionName(name) {
  if (!name) return "";
  const at = name.lastIndexOf(".");
  const [scope, number] = [name.slice(0, at), name.slice(at + 1)];
  const what = number === "0" ? "the base model" : `version ${number}`;
  return scope === "shared" ? what : `${what} of ${scope}`;
}

export const numberOf = (name) => Number(name.slice(name.lastIndexOf(".") + 1));

export const many = (count, one, several) => `${count.toLocaleString()} ${count === 1 ? one : several || `${one}s`}`;

const DAY = 86400;

/** When something was, as people say it: today, on Tuesday, on 3 May. */
export function when(seconds) {
  if (!seconds) return "never";
  const at = new Date(seconds * 1000);
  const midnight = new Date().setHours(0, 0, 0, 0) / 1000;
  const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  if (seconds >= midnight) return `today at ${clock}`;
  if (seconds >= midnight - DAY) return `yesterday at ${clock}`;
  if (seconds >= midnight - 6 * DAY) return `on ${at.toLocaleDateString([], { weekday: "long" })} at ${clock}`;
  const year = at.getFullYear() === new Date().getFullYear() ? undefined : "numeric";
  return `on ${at.toLocaleDateString([], { day: "numeric", month: "short", year })}`;
}

export const exactly = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleString() : "");

export const day = (seconds) => new Date(seconds * 1000).toLocaleDateString([], { day: "numeric", month: "short" });

export function lasting(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const short = (text, most = 140) => (text.length > most ? `${text.slice(0, most - 1).trimEnd()}…` : text);

/** Both texts as pieces [words, whether the other one has them there], by the longest common run of words. */
export function differing(one, other) {
  const [left, right] = [one, other].map((text) => text.split(/(\s+)/).filter(Boolean).slice(0, 1200));
  const table = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i--)
    for (let j = right.length - 1; j >= 0; j--)
      table[i][j] = left[i] === right[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  const found = [[], []];
  const put = (side, word, isSame) => {
    const last = found[side][found[side].length - 1];
    if (last && last[1] === isSame) last[0] += word;
    else found[side].push([word, isSame]);
  };
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      put(0, left[i++], true);
      put(1, right[j++], true);
    } else if (j >= right.length || (i < left.length && table[i + 1][j] >= table[i][j + 1])) put(0, left[i++], false);
    else put(1, right[j++], false);
  }
  return found;
}
