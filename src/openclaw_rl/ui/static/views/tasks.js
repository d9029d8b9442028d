// Tasks and runs: how agents' attempts went over time, and each attempt turn by turn.
import { get, useLive, withQuery } from "../api.js";
import { Card, Chip, Empty, Loaded, StateChip, TurnLink, Trouble, VersionLink, When } from "../parts.js";
import { TERMS, day, many } from "../words.js";
import { html, useEffect, useRef, useState } from "../vendor/htm-preact-3.1.1.js";

const FAILURES = { none: "", agent: "the agent failed", environment: "the task or its grader is broken", infrastructure: "a machine or network failed" };

export function Tasks({ rest, query }) {
  if (rest[0]) return html`<${Run} name=${rest[0]} />`;
  return html`<h1>Tasks and runs</h1><${Curves} /><${Runs} query=${query} />`;
}

function Curves() {
  const live = useLive("v1/rl/runs", { every: 10000 });
  return html`<${Loaded} live=${live}>${({ runs }) => {
    if (!runs.length) return html`<${Empty}>No agent has worked on a task yet. <code>openclaw-rl rollout</code> lets the model try some, and <code>openclaw-rl train-agent</code> trains it on them.<//>`;
    return html`<${Card} title="Outcomes over time" id="curves" note="Each point is the mean outcome of an equal share of the attempts, oldest first.">
      <div class="curves">${runs.filter((run) => !run.task || runs.length < 13).map((run) => html`<${Curve} key=${run.environment + run.task} run=${run} />`)}</div><//>`;
  }}<//>`;
}

function Curve({ run }) {
  const name = [run.environment || "tasks", run.task].filter(Boolean).join(": ");
  const shares = run.shares.filter((share) => share.mean !== null);
  const attempts = run.shares.reduce((sum, share) => sum + share.attempts, 0);
  const failed = run.shares.reduce((sum, share) => sum + share.failed, 0);
  if (!shares.length) return html`<figure class="curve"><figcaption>${name}</figcaption><p class="note">no outcome yet</p></figure>`;
  const low = Math.min(0, ...shares.map((share) => share.mean));
  const high = Math.max(1, ...shares.map((share) => share.mean));
  const x = (at) => (shares.length === 1 ? 50 : (at / (shares.length - 1)) * 96 + 2);
  const y = (mean) => 38 - ((mean - low) / (high - low)) * 36;
  const last = shares[shares.length - 1];
  const words = `${name}: mean outcome ${shares[0].mean.toFixed(2)} at first, ${last.mean.toFixed(2)} lately, over ${attempts} attempts`;
  return html`<figure class="curve">
    <figcaption>${run.task ? html`<a href=${withQuery("#/tasks", { task: run.task })}>${name}</a>` : html`<strong>${name}</strong>`}</figcaption>
    <div class="plot"><span aria-hidden="true">${high}</span><span aria-hidden="true">${low}</span><svg viewBox="0 0 100 40" role="img" aria-label=${words}>
      <line class="axis" x1="0" y1=${y(0)} x2="100" y2=${y(0)} />
      <polyline points=${shares.map((share, at) => `${x(at)},${y(share.mean)}`).join(" ")} />
      ${shares.map((share, at) => html`<circle cx=${x(at)} cy=${y(share.mean)} r="1.3"><title>${`${share.mean.toFixed(2)} over ${share.attempts}, until ${day(share.until)}`}</title></circle>`)}
    </svg></div>
    <p class="note">${shares[0].mean.toFixed(2)} at first, ${last.mean.toFixed(2)} lately · ${many(attempts, "attempt")}${failed ? ` · ${failed} broken off` : ""}</p>
  </figure>`;
}

function Runs({ query }) {
  const wanted = { task: query.task, state: query.state, limit: 50 };
  const path = withQuery("v1/rl/episodes", wanted);
  const live = useLive(path, { every: 5000 });
  const [more, setMore] = useState({ rows: [], before: undefined });
  useEffect(() => setMore({ rows: [], before: undefined }), [path]);
  const readMore = (before) =>
    get(withQuery("v1/rl/episodes", { ...wanted, before })).then(
      (found) => setMore((held) => ({ rows: [...held.rows, ...found.episodes], before: found.before })),
      (problem) => setMore((held) => ({ ...held, problem })),
    );
  return html`<${Loaded} live=${live}>${(data) => {
    const rows = [...data.episodes, ...more.rows];
    const before = more.before === undefined ? data.before : more.before;
    if (!rows.length && !query.task) return null;
    return html`<${Card} title="Attempts" id="runs">
      ${query.task && html`<p>Only those at ${query.task}. <a href="#/tasks">Show all</a></p>`}
      <div class="scroll" tabindex="0" role="region" aria-label="Attempts"><table>
        <thead><tr><th scope="col">task</th><th scope="col">when</th><th scope="col">steps</th><th scope="col">outcome</th></tr></thead>
        <tbody>${rows.map((row) => html`<tr key=${row.id}>
          <td><a href=${`#/tasks/${encodeURIComponent(row.id)}`}>${row.task}</a> <span class="note">${row.environment}</span></td>
          <td><${When} at=${row.begun_at} /></td><td>${row.steps}</td>
          <td><${Outcome} row=${row} /></td></tr>`)}</tbody></table></div>
      <${Trouble} problem=${more.problem} />
      ${before && html`<p class="row"><button type="button" onClick=${() => readMore(before)}>Show older ones</button></p>`}
    <//>`;
  }}<//>`;
}

function Outcome({ row }) {
  if (row.outcome !== null) return html`<${Chip} kind=${row.outcome > 0 ? "good" : "bad"} title=${TERMS.outcome}>${Number(row.outcome.toPrecision(3))}<//>`;
  if (row.failure !== "none") return html`<${Chip} kind="bad">${FAILURES[row.failure]}<//>`;
  return html`<${Chip}>goes on<//>`;
}

function Run({ name }) {
  const live = useLive(`v1/rl/episodes/${encodeURIComponent(name)}`);
  const [at, setAt] = useState(null);
  return html`<p><a href="#/tasks">All tasks and runs</a></p><h1>One attempt</h1>
    <${Loaded} live=${live}>${(run) => {
    const screens = screensOf(run);
    const shown = (step, when) => screens.filter((screen) => screen.turn === step.turn && screen.when === when)
      .map((screen) => html`<${Thumbnail} key=${screen.src} screen=${screen} open=${() => setAt(screens.indexOf(screen))} />`);
    return html`
      <p>Task <strong>${run.task}</strong>${run.environment && html` in ${run.environment}`}, begun <${When} at=${run.begun_at} />. <${Outcome} row=${run} /></p>
      ${run.why && html`<p>${run.why}</p>`}
      ${run.asked && html`<section class="card" aria-label="What was asked"><div class="said-by environment"><span class="who">was asked</span><pre>${run.asked}</pre></div></section>`}
      ${run.turns.map((step) => html`<article class="card turn" key=${step.turn} aria-label=${`step ${step.step + 1}`}>
        <h2 class="facts">step ${step.step + 1} of ${run.steps} · <${VersionLink} name=${step.version} /> <${StateChip} state=${step.state} reason=${step.reason} />${step.score !== null && html` <${Chip}>reward ${step.score}<//>`}</h2>
        <div class="acted">${shown(step, "before")}<div>
        <div class="said-by model"><span class="who">did</span><p>${said(step.said)}</p>
          ${(step.said.tool_calls || []).map((one) => html`<pre>${called(one)}</pre>`)}</div>
        ${step.shown && html`<div class="said-by environment"><span class="who">then was shown (${step.observation})</span><pre>${step.shown}</pre></div>`}
        </div></div>
        ${shown(step, "after")}
        <p class="note"><${TurnLink} turn=${step.turn}>all that is known of this step<//></p>
      </article>`)}
      ${at !== null && screens[at] && html`<${Viewer} screens=${screens} at=${at} go=${setAt} />`}`;
  }}<//>`;
}

/** The screens of an attempt in their order. Several answers to one step have one screen. */
function screensOf(run) {
  const known = new Set();
  return run.turns.flatMap((step) => step.pictures.map((when) => {
    const src = `v1/rl/episodes/${encodeURIComponent(run.id)}/steps/${step.step}/picture?when=${when}`;
    const words = when === "after" ? "The screen at the end" : `The screen before step ${step.step + 1}`;
    return { turn: step.turn, when, src, words, did: when === "before" ? doing(step.said) : "" };
  })).filter((screen) => !known.has(screen.src) && known.add(screen.src));
}

function Thumbnail({ screen, open }) {
  const [isGone, setGone] = useState(false);
  if (isGone) return html`<p class="note">${screen.words}: removed, to make room for newer ones or to forget.</p>`;
  return html`<button type="button" class="screen" onClick=${open} aria-label=${`${screen.words}: enlarge`}>
    <img src=${screen.src} alt="" loading="lazy" decoding="async" onError=${() => setGone(true)} /></button>`;
}

/** One screen as large as fits; the arrow keys lead to the others. */
function Viewer({ screens, at, go }) {
  const box = useRef(null);
  useEffect(() => box.current.showModal(), []);
  const step = (by) => go(Math.min(screens.length - 1, Math.max(0, at + by)));
  const pressed = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) step(by);
  };
  const { src, words, did } = screens[at];
  return html`<dialog ref=${box} class="viewer" aria-label="Screens of this attempt" onClose=${() => go(null)} onKeyDown=${pressed}>
    <p class="row"><button type="button" onClick=${() => step(-1)} aria-disabled=${at === 0}>Earlier</button>
      <button type="button" onClick=${() => step(1)} aria-disabled=${at === screens.length - 1}>Later</button>
      <span class="note">${at + 1} of ${screens.length}</span><span class="room"></span>
      <button type="button" onClick=${() => box.current.close()}>Close</button></p>
    <img src=${src} alt=${words} />
    <p role="status"><strong>${words}</strong>${did && html`<br /><span class="note">then did: <code>${did}</code></span>`}</p>
  </dialog>`;
}

const called = (one) => (one.function ? `${one.function.name} ${plainly(one.function.arguments)}` : JSON.stringify(one));
const doing = (message) => (message.tool_calls || []).map(called).join("\n") || said(message);
const said = (message) => (typeof message.content === "string" ? message.content : (message.content || []).map((part) => part.text || "").join("\n"));

/** Arguments without the spaces and line breaks that the model put between them; as they are where they are no JSON. */
function plainly(text) {
  try {
    return Object.entries(JSON.parse(text)).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(" ");
  } catch {
    return text;
  }
}
