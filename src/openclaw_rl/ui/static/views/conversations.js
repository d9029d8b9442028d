// Conversations: a list with a search and filters. The server looks for half a second at a time; the page goes on asking.
import { get, useLive, withQuery } from "../api.js";
import { Chip, Empty, Loaded, Trouble, When } from "../parts.js";
import { STATES, TERMS, many, short, when } from "../words.js";
import { html, useEffect, useRef, useState } from "../vendor/htm-preact-3.1.1.js";

const KINDS = [["", "everything"], ["talk", "talks"], ["attempt", "attempts at tasks"]];
const SCORES = [["", "any"], ["-1", "a corrected reply"], ["1", "a good reply"], ["0", "neither"]];

export function Conversations({ query }) {
  const [more, setMore] = useState({ rows: [], before: undefined, problem: null, isBusy: false });
  const wanted = { q: query.q, user: query.user, state: query.state, score: query.score, kind: query.kind };
  const isChosen = Object.values(wanted).some(Boolean);
  const path = withQuery("v1/rl/conversations", { ...wanted, limit: 30 });
  const live = useLive(path, { every: isChosen ? 60000 : 5000 });
  const asked = useRef(path);
  asked.current = path;
  useEffect(() => setMore({ rows: [], before: undefined, problem: null, isBusy: false }), [path]);
  const submit = (event) => {
    event.preventDefault();
    location.hash = withQuery("#/conversations", Object.fromEntries(new FormData(event.target)));
  };
  const readMore = async (before) => {
    setMore((held) => ({ ...held, isBusy: true }));
    try {
      const found = await get(withQuery("v1/rl/conversations", { ...wanted, limit: 30, before }));
      if (asked.current !== path) return;
      setMore((held) => ({
        rows: [...held.rows, ...found.conversations], before: found.before, looked: found.looked_to, problem: null, isBusy: false,
      }));
    } catch (problem) {
      if (asked.current === path) setMore((held) => ({ ...held, problem, isBusy: false }));
    }
  };
  const known = new Set(live.data ? live.data.conversations.map((row) => row.id) : []);
  const rows = live.data ? [...live.data.conversations, ...more.rows.filter((row) => !known.has(row.id))] : [];
  const before = more.before === undefined ? live.data && live.data.before : more.before;
  const looked = more.before === undefined ? live.data && live.data.looked_to : more.looked;
  const goesOn = !rows.length && before && !more.problem;
  useEffect(() => {
    if (goesOn) readMore(before); // nothing found yet: it looks back until something is, or the end is reached
  }, [goesOn, before]);
  return html`<h1>Conversations</h1>
    <form class="filters" role="search" onSubmit=${submit} key=${path}>
      <label>Words in it <input name="q" type="search" defaultValue=${query.q || ""} maxlength="200" /></label>
      <label>Whose <input name="user" defaultValue=${query.user || ""} placeholder="anybody" /></label>
      <label>What
        <select name="kind">${KINDS.map(([name, words]) => html`<option value=${name} selected=${(query.kind || "") === name}>${words}</option>`)}</select></label>
      <label>With a reply that
        <select name="state">
          <option value="">is in any state</option>
          ${Object.entries(STATES).filter(([name]) => name !== "side").map(([name, [words]]) => html`<option value=${name} selected=${query.state === name}>${words}</option>`)}
        </select></label>
      <label>Judged as
        <select name="score">${SCORES.map(([name, words]) => html`<option value=${name} selected=${(query.score || "") === name}>${words}</option>`)}</select></label>
      <button class="primary">Search</button>
    </form>
    <${Loaded} live=${live}>${() => html`
      <div role="status">${!rows.length && html`<${Empty}>${before ? `Looking… nothing ${sinceWhen(looked)}.` : isChosen ? "No conversation is like that." : html`Nobody has talked to it yet. <a href="#/try">Try it</a>, or point a program at the server.`}<//>`}</div>
      <ul class="rows">${rows.map((row) => html`<${Row} key=${row.id} row=${row} />`)}</ul>
      <${Trouble} problem=${more.problem} />
      ${before && !goesOn && html`<p class="row"><button type="button" disabled=${more.isBusy} onClick=${() => readMore(before)}>${more.isBusy ? "Looking…" : isChosen ? "Look further back" : "Show older ones"}</button></p>`}`}<//>`;
}

const sinceWhen = (seconds) => `since ${when(seconds).replace(/^on /, "")}`;

function Row({ row }) {
  return html`<li>
    <a href=${`#/conversation/${encodeURIComponent(row.id)}`}>
      <span class="asked">${short(row.asked || "(no words)", 120)}</span>
      <span class="said">${short(row.said, 120)}</span>
      <span class="facts">
        <${When} at=${row.seen_at} /> · ${row.user} · ${many(row.turns, "reply", "replies")}
        ${row.corrected > 0 && html` <${Chip} kind="bad">${row.corrected} corrected<//>`}
        ${row.states.trained > 0 && html` <${Chip} kind="good">${row.states.trained} learned<//>`}
        ${row.episode ? html` <${Chip} title=${TERMS.episode}>attempt at a task<//>` : row.is_open && html` <${Chip}>goes on<//>`}
      </span>
    </a>
  </li>`;
}
