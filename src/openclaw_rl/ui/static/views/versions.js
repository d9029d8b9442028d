// Versions: which was made from which, what each learned and from which turns, what the tests measured, and ways back.
import { useLive, withQuery } from "../api.js";
import { BeforeAfter, Card, Empty, Loaded, Said, ScoreChip, StatusChip, Term, TurnLink, VersionLink, When } from "../parts.js";
import { capital, many, short, sources, versionName } from "../words.js";
import { html, useState } from "../vendor/htm-preact-3.1.1.js";
import { Compare } from "./compare.js";
import { BackButton, FreezeButton, PinButton, isBase, lineOf } from "./orders.js";

// What the gate measures, in words. The exact name stands beside it.
const MEASURES = {
  gate_turns: "requests it was tried on",
  gate_kl: "distance from the base model (nats a token)",
  gate_kept: "distance from what earlier wishes ask for",
  gate_kept_before: "that distance before",
  gate_yielded: "earlier wishes that were given up for the new one",
  gate_faults: "degenerate replies, such as empty or endless ones",
  gate_faults_before: "degenerate replies before",
  gate_length: "tokens in a reply, in the mean",
  gate_length_told: "tokens in the base model's replies that read the wish",
  gate_repetition: "share of a reply that repeats itself",
  gate_departs: "share of replies to its users that the base model would not give",
  gate_departs_others: "that share in replies to other users",
  gate_departs_unasked: "that share in replies to nobody in particular",
  gate_approval: "how much likelier it makes praised replies",
  gate_tasks: "share of test tasks solved",
};

export function Versions({ rest }) {
  const [size, setSize] = useState(50);
  const live = useLive(withQuery("v1/rl/versions", { learned: "true", limit: size }));
  return html`<h1>Versions</h1>
    <${Loaded} live=${live}>${(data) => html`
      <p class="row"><${FreezeButton} frozenSince=${data.frozen_since} then=${live.reload} />
        <span class="note">${data.frozen_since && html`training is <${Term} is="frozen">frozen<//> · `}served now: <${VersionLink} name=${data.current.shared || "shared.0"} /></span></p>
      ${rest[0] && html`<${One} name=${rest[0]} data=${data} reload=${live.reload} />`}
      <${Compare} key=${rest[0]} versions=${data.versions} chosen=${rest[0]} />
      <${Tree} data=${data} reload=${live.reload} />
      ${data.before && html`<p class="row"><button type="button" onClick=${() => setSize(Math.min(500, size * 2))}>Show older ones</button></p>`}
    `}<//>`;
}

/** The newest first. The line that leads to what is served stands straight; what was made from it and led nowhere is folded away. */
function Tree({ data, reload }) {
  const rows = data.versions;
  const names = new Set(rows.map((row) => row.version));
  const below = (name) => rows.filter((row) => row.parent === name);
  const served = new Set(rows.filter((row) => row.is_current).flatMap((row) => lineOf(rows, row.version)));
  const Branch = ({ row }) => {
    const next = below(row.version);
    const straight = next.find((one) => served.has(one)) || next.filter((one) => one.status !== "refused").pop();
    const others = next.filter((one) => one !== straight);
    const refused = others.filter((one) => one.status === "refused" && !below(one.version).length);
    const rest = others.filter((one) => !refused.includes(one));
    return html`${straight && html`<${Branch} key=${straight.version} row=${straight} />`}<${Node} row=${row} rows=${rows} reload=${reload}>
        ${rest.length > 0 && html`<ol class="tree">${rest.map((one) => html`<${Branch} key=${one.version} row=${one} />`)}</ol>`}
        ${refused.length > 0 && html`<details><summary>${many(refused.length, "version")} made from it ${refused.length === 1 ? "was" : "were"} refused</summary>
          <ol class="tree">${refused.map((one) => html`<${Node} key=${one.version} row=${one} rows=${rows} reload=${reload} />`)}</ol></details>`}
      <//>`;
  };
  return html`<${Card} title="Which was made from which" id="tree">
    ${!rows.length && html`<${Empty}>No version was made yet.<//>`}
    <ol class="tree">${rows.filter((row) => !names.has(row.parent)).map((row) => html`<${Branch} key=${row.version} row=${row} />`)}</ol>
  <//>`;
}

function Node({ row, rows, reload, children }) {
  return html`<li class=${row.status}>
    <p><${VersionLink} name=${row.version} /> <${StatusChip} row=${row} /></p>
    <p class="note">${isBase(row) ? "before anything was learned" : html`made <${When} at=${row.made_at} /> from ${sources(row)}`}
      ${row.learned.length > 0 && html`: ${short(row.learned.join(" · "), 160)}`}</p>
    ${row.status === "refused" && html`<p class="note"><${Said} text=${capital(short(row.why, 240))} /></p>`}
    <${BackButton} row=${row} rows=${rows} then=${reload} />
    ${children}
  </li>`;
}

/** The replies that a version learned from: what was asked, and what was said to the reply. */
function Sources({ row }) {
  const live = useLive(`v1/rl/versions/${encodeURIComponent(row.version)}`, { every: 60000 });
  return html`<h3>From ${sources(row)}</h3><${Loaded} live=${live}>${({ turns, more }) => html`
    <ul class="sources">${turns.map((turn) => html`<li key=${turn.id}><${TurnLink} turn=${turn.id}>${short(turn.asked || "(no words)", 100)}<//>${" "}<${ScoreChip} score=${turn.score} />
      ${turn.next_state && html`<br /><span class="note">${turn.is_step ? "then was shown" : "then was said"}: ${short(turn.next_state, 140)}</span>`}</li>`)}</ul>
    ${more > 0 && html`<p class="note">and ${more} more</p>`}`}<//>`;
}

function One({ name, data, reload }) {
  const row = data.versions.find((one) => one.version === name);
  if (!row) return html`<${Empty}>${versionName(name)} is not among those below.<//>`;
  const measures = Object.keys(MEASURES).filter((key) => key in row.metrics).map((key) => [key, row.metrics[key]]);
  const title = versionName(row.version);
  return html`<${Card} title=${capital(title)} id="one">
    <p><${StatusChip} row=${row} /></p>
    ${row.why && row.status === "refused" && html`<p><${Said} text=${capital(row.why)} /></p>`}
    <p class="row"><${BackButton} row=${row} rows=${data.versions} then=${reload} /><${PinButton} row=${row} rows=${data.versions} then=${reload} /></p>
    ${row.learned.length > 0 && html`<h3>Learned</h3><ul>${row.learned.map((text) => html`<li>${text}</li>`)}</ul>`}
    ${row.turns.length > 0 && html`<${Sources} row=${row} />`}
    ${row.rehearsed.length > 0 && html`<p class="note">${many(row.rehearsed.length, "earlier sample was", "earlier samples were")} rehearsed, so that nothing is lost.</p>`}
    ${"gate_wish" in row.metrics && html`<h3><${Term} is="distance">Distance from what was wished for<//></h3>
      <${BeforeAfter} before=${row.metrics.gate_wish_before} after=${row.metrics.gate_wish} />`}
    ${measures.length > 0 && html`<details><summary>What the <${Term} is="gate">tests<//> measured</summary>
      <table><thead><tr><th scope="col">measure</th><th scope="col">value</th><th scope="col">its name</th></tr></thead>
      <tbody>${measures.map(([key, value]) => html`<tr><td>${MEASURES[key]}</td><td>${Number(value.toPrecision(4))}</td><td><code>${key}</code></td></tr>`)}</tbody></table></details>`}
  <//>`;
}
