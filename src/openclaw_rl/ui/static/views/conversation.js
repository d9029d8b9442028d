// One conversation turn by turn: what was said, how it was judged and why, and the owner's word on each.
import { get, useLive, withQuery } from "../api.js";
import { Card, Chip, Loaded, ScoreChip, StateChip, Trouble, VersionLink, When } from "../parts.js";
import { exactly, many, when } from "../words.js";
import { html, useEffect, useState } from "../vendor/htm-preact-3.1.1.js";
import { Overrule } from "./overrule.js";

export function Conversation({ rest }) {
  const path = `v1/rl/conversations/${encodeURIComponent(rest[0] || "")}`;
  const live = useLive(withQuery(path, { limit: 20 }));
  const [older, setOlder] = useState({ turns: [], before: undefined, problem: null });
  useEffect(() => setOlder({ turns: [], before: undefined, problem: null }), [path]);
  const readOlder = (before) =>
    get(withQuery(path, { limit: 20, before })).then(
      (found) => setOlder((held) => ({ turns: [...found.turns, ...held.turns], before: found.before, problem: null })),
      (problem) => setOlder((held) => ({ ...held, problem })),
    );
  return html`<p><a href="#/conversations">All conversations</a></p>
    <h1>Conversation</h1>
    <${Loaded} live=${live}>${(data) => {
      const known = new Set(data.turns.map((turn) => turn.id));
      const turns = [...older.turns.filter((turn) => !known.has(turn.id)), ...data.turns];
      const before = older.before === undefined ? data.before : older.before;
      return html`<p class="note">${data.id}</p>
        <${Trouble} problem=${older.problem} />
        ${before && html`<p><button type="button" onClick=${() => readOlder(before)}>Show earlier turns</button></p>`}
        ${turns.map((turn) => html`<${TurnCard} key=${turn.id} turn=${turn} reload=${live.reload} />`)}
        <p class="row"><a class="button" href=${withQuery("#/forget", { session: data.id })}>Forget this conversation…</a></p>`;
    }}<//>`;
}

/** The turn of an id, in its conversation. */
export function Turn({ rest }) {
  const live = useLive(`v1/rl/turns/${encodeURIComponent(rest[0] || "")}`);
  return html`<h1>One reply</h1>
    <${Loaded} live=${live}>${(found) => {
      const asked = [...found.messages].reverse().find((item) => item.role === "user");
      const turn = { ...found, asked: textOf(asked) };
      return html`<p><a href=${`#/conversation/${encodeURIComponent(turn.session)}`}>The whole conversation</a></p>
        <${TurnCard} turn=${turn} reload=${live.reload} isOpen=${true} />`;
    }}<//>`;
}

const textOf = (message) => {
  if (!message) return "";
  if (typeof message.content === "string") return message.content;
  return (message.content || []).map((part) => part.text || "").join("\n");
};

export function TurnCard({ turn, reload, isOpen = false }) {
  const id = `turn-${turn.id}`;
  const { verdict, next_state: next } = turn;
  return html`<article class="card turn" aria-labelledby=${id}>
    <h2 id=${id} class="facts"><${When} at=${turn.at} /> · ${turn.user} · <${VersionLink} name=${turn.version} />
      ${" "}<${StateChip} state=${turn.state} reason=${turn.reason} />${" "}<${ScoreChip} score=${turn.score} />
      ${turn.overruled.length > 0 && html` <${Chip} kind="strong" title=${exactly(turn.overruled[turn.overruled.length - 1].at)}>your word<//>`}
    </h2>
    <div class="said-by user"><span class="who">asked</span><p>${turn.asked || "(no words)"}</p></div>
    <div class="said-by model"><span class="who">replied</span><p>${textOf(turn.reply)}</p>
      ${(turn.reply.tool_calls || []).map((one) => html`<pre>${one.function ? `${one.function.name}(${one.function.arguments})` : JSON.stringify(one)}</pre>`)}
    </div>
    ${next &&
    html`<div class=${`said-by ${next.source}`}><span class="who">${{ user: "then said", tool: "a tool gave", environment: "was shown" }[next.source]}</span>
      ${next.messages.map((item) => html`<p>${textOf(item)}</p>`)}</div>`}
    <ul class="learns">${(verdict ? verdict.hints : []).map((hint) => html`<li><strong>Hint:</strong> ${hint.text}</li>`)}
      ${turn.episode && html`<li>step ${turn.episode.step + 1} of <a href=${`#/tasks/${encodeURIComponent(turn.episode.id)}`}>an attempt at a task</a></li>`}
      ${turn.trained_version && html`<li>learned by <${VersionLink} name=${turn.trained_version} /></li>`}</ul>
    <${Overrule} turn=${turn} then=${reload} />
    <details open=${isOpen}>
      <summary>How this came about</summary>
      <ul>${turn.explained.map((line) => html`<li>${line}</li>`)}</ul>
      ${verdict && verdict.votes.length > 0 && html`<${Votes} votes=${verdict.votes} />`}
      ${turn.overruled.map((one) => html`<p class="note">${one.by} said ${when(one.at)}: ${words(one)}; before, ${one.judged ? words(one.judged) : "nobody had judged it"}.</p>`)}
      <p class="note">${many(turn.prompt_tokens, "token")} read, ${many(turn.tokens, "token")} written · ${turn.id}</p>
    </details>
  </article>`;
}

const words = (said) =>
  `${{ "-1": "corrected", 0: "neither good nor bad", 1: "good", null: "no score" }[said.score]}${said.hints.length ? ` (“${said.hints.join("”, “")}”)` : ""}`;

const ASKED = { score: "was the reply good?", hint: "what would have been better?", owner: "what its owner said of the same words" };

function Votes({ votes }) {
  return html`<table><caption>Votes of the judge</caption>
    <thead><tr><th scope="col">it was asked</th><th scope="col">vote</th><th scope="col">in its words</th></tr></thead>
    <tbody>${votes.map((vote) => html`<tr><td>${ASKED[vote.asked] ? html`<abbr title=${vote.asked}>${ASKED[vote.asked]}</abbr>` : vote.asked}</td><td>${vote.score ?? "none"}</td><td>${vote.hint || vote.raw}</td></tr>`)}</tbody>
  </table>`;
}
