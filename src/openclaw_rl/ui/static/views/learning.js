// Is it learning? The first view: what was learned and whether it held, what waits and why, versions, and what it took.
import { call, useLive } from "../api.js";
import { BeforeAfter, Bars, Card, Doing, Empty, Loaded, Said, StatusChip, Term, TurnLink, VersionLink, When } from "../parts.js";
import { capital, day, lasting, many, numberOf, short, sources, versionName, when } from "../words.js";
import { html } from "../vendor/htm-preact-3.1.1.js";
import { BackButton, isBase } from "./orders.js";

const WAITING = [
  ["served", "for a reaction: nobody has said anything after them yet"],
  ["paired", "for the judge to read the reaction"],
  ["judged", "for the end of their conversation or attempt: it may say what there is to learn"],
  ["ready", "to be learned in the next training step"],
];

export function Learning() {
  const live = useLive("v1/rl/learning");
  return html`<h1>Is it learning?</h1>
    <${Loaded} live=${live}>${(data) => html`<${Found} data=${data} reload=${live.reload} />`}<//>`;
}

function Found({ data, reload }) {
  return html`<p class="headline">${data.headline}</p>
    <${Needed} data=${data} reload=${reload} />
    <div class="grid">
      <div>
        <${Learned} data=${data} />
        <${Waits} data=${data} />
        <${Followed} data=${data} />
      </div>
      <div>
        <${Corrections} data=${data} />
        <${Line} data=${data} reload=${reload} />
        <${Spent} data=${data} />
      </div>
    </div>`;
}

function Needed({ data, reload }) {
  const found = data.diagnosis.filter((one) => one.level === "mend");
  if (!found.length && !data.frozen_since) return null;
  return html`<section class="card needs" aria-labelledby="needs">
    <h2 id="needs">Needs you</h2>
    <ul>
      ${found.map((one) => html`<li><strong><${Said} text=${capital(one.said)} ofReplies /></strong>${one.fix && html`<br /><span class="cure"><${Said} text=${capital(one.fix)} ofReplies /></span>`}</li>`)}
      ${data.frozen_since &&
      html`<li>
        <strong>Training is <${Term} is="frozen">frozen<//> since ${when(data.frozen_since)}.</strong>
        <${Doing} does=${() => call("POST", "v1/rl/unfreeze").then(reload)} done="Training goes on.">Let it go on<//>
      </li>`}
    </ul>
  </section>`;
}

function Learned({ data }) {
  return html`<${Card} title="Learned lately" id="learned">
    ${!data.learned.length &&
    html`<${Empty}>Nothing yet. <a href="#/try">Try it</a>: correct a reply in your own words (“no markdown, please”), and watch it arrive here.<//>`}
    <ol class="learned">
      ${data.learned.slice(0, 6).map(
        (one) => html`<li key=${one.user + one.hint}>
          <blockquote title=${`hint: ${one.hint}`}>${short(one.words)}</blockquote>
          <p>
            learned <${When} at=${one.learned_at} /> from
            ${" "}<${TurnLink} turn=${one.turns[0]}>${many(one.asked, "correction")}<//> of ${one.user}
            ${" "}(<${VersionLink} name=${one.version} />);${" "}<${Held} one=${one} />
          </p>
        </li>`,
      )}
    </ol>
    ${data.learned.length > 6 && html`<p class="note">and ${data.learned.length - 6} more under <a href="#/versions">Versions</a></p>`}
  <//>`;
}

function Held({ one }) {
  if (!one.since) return html`<span>nobody has reacted to a reply since</span>`;
  const kept = one.since - one.again;
  return html`<span class=${one.again ? "worse" : "well"}>
    <${Term} is="held">held<//> in ${kept} of ${many(one.since, "reply", "replies")} since</span
  >${one.again_turns.length > 0 && html`; <${TurnLink} turn=${one.again_turns[0]}>asked for again here<//>`}`;
}

function Corrections({ data }) {
  const last = data.weeks[data.weeks.length - 1];
  const { again, of } = data.asked_twice;
  if (!data.weeks.some((week) => week.judged))
    return html`<${Card} title="Corrections a week" id="corrections">
      <${Empty}>Nobody has <${Term} is="judged">reacted to<//> a reply in the last ${data.weeks.length} weeks.<//><//>`;
  const rows = data.weeks.map((week) => ({ label: day(week.begin), part: week.corrected, of: week.judged }));
  return html`<${Card} title="Corrections a week" id="corrections">
    <${Bars} rows=${rows} caption="Replies judged and corrected in each of the last weeks" part="corrected" of="judged" />
    <p>
      In the last seven days ${last.corrected} of ${many(last.judged, "reply", "replies")} that
      somebody <${Term} is="judged">reacted to<//> ${last.corrected === 1 ? "was" : "were"}
      ${" "}<${Term} is="correction">corrected<//>.
    </p>
    <p class="note">
      ${!of ? "No correction said yet what would have been better." : again ? `Asked for the same more than once: in ${again} of the last ${many(of, "correction")}.` : "Nobody asked for the same more than once."}
    </p>
  <//>`;
}

function Waits({ data }) {
  const rows = WAITING.filter(([state]) => data.ledger[state]);
  const notes = data.diagnosis.filter((one) => one.level !== "mend");
  return html`<${Card} title="What waits, and why" id="waits">
    <p>${data.doing ? html`Now: <${Said} text=${data.doing} />.` : data.why_waiting ? html`No training now: <${Said} text=${data.why_waiting} />.` : "Nothing is under way."}</p>
    ${rows.length > 0 &&
    html`<ul>
      ${rows.map(([state, why]) => html`<li><a href=${`#/conversations?state=${state}`}>${many(data.ledger[state], "reply waits", "replies wait")}</a> ${why}</li>`)}
    </ul>`}
    <ul class="findings">
      ${notes.map((one) => html`<li class=${one.level}><${Said} text=${capital(one.said)} ofReplies />${one.fix && html`<br /><span class="cure"><${Said} text=${capital(one.fix)} ofReplies /></span>`}</li>`)}
    </ul>
  <//>`;
}

function Line({ data, reload }) {
  const groups = inGroups([...data.versions].reverse());
  return html`<${Card} title="Versions" id="line">
    <ol class="line">
      ${groups.slice(0, 8).map(
        (rows) => html`<li key=${rows[0].version} class=${rows[0].status}>
          <p><${VersionLink} name=${rows[0].version} /> <${StatusChip} row=${rows[0]} /></p>
          <p class="note">
            ${isBase(rows[0]) ? "before anything was learned" : html`made <${When} at=${rows[0].made_at} /> from ${sources(rows[0])}`}${rows[0].learned.length > 0 && html`: ${short(rows[0].learned.join(" · "), 110)}`}
            ${rows[0].status === "refused" && html`<br /><${Said} text=${capital(short(rows[0].why, 160))} />`}
            ${rows.length > 1 && html`<br />${many(rows.length - 1, "version", "versions")} before it ${rows.length === 2 ? "was" : "were"} refused too.`}
          </p>
          <${BackButton} row=${rows[0]} rows=${data.versions} then=${reload} />
        </li>`,
      )}
    </ol>
    ${groups.length > 8 && html`<p><a href="#/versions">All versions</a></p>`}
  <//>`;
}

/** Refused versions in a row as one group, every other version as one of its own. */
function inGroups(rows) {
  const found = [];
  for (const row of rows) {
    const last = found[found.length - 1];
    if (last && row.status === "refused" && last[0].status === "refused") last.push(row);
    else found.push([row]);
  }
  return found;
}

function Followed({ data }) {
  const rows = data.versions.filter((row) => "gate_wish" in row.metrics && row.status !== "candidate").slice(-4).reverse();
  if (!rows.length) return null;
  const most = Math.max(0.05, ...rows.flatMap((row) => [row.metrics.gate_wish_before, row.metrics.gate_wish]));
  return html`<${Card} title="Wishes followed" id="followed" note=${html`<${Term} is="distance">How far<//> replies were from what was wished for, before and after each version. Shorter is closer.`}>
    ${rows.map(
      (row) => html`<div key=${row.version} class="followed">
        <p><${VersionLink} name=${row.version} />: ${row.learned.length ? `“${short(row.learned.join("”, “"), 90)}”` : "earlier wishes, kept"}</p>
        <${BeforeAfter} before=${row.metrics.gate_wish_before} after=${row.metrics.gate_wish} most=${most} />
      </div>`,
    )}
  <//>`;
}

function Spent({ data }) {
  const { steps, seconds, tokens } = data.spent;
  const served = data.current.shared || "shared.0";
  return html`<${Card} title="What learning took" id="spent">
    <dl class="figures">
      <div><dt>training steps</dt><dd>${steps.toLocaleString()}</dd></div>
      <div><dt>time</dt><dd>${lasting(seconds)}</dd></div>
      <div><dt><${Term} is="tokens">tokens<//> trained on</dt><dd>${Math.round(tokens).toLocaleString()}</dd></div>
      <div><dt>served now</dt><dd>${numberOf(served) ? html`<${VersionLink} name=${served} />` : versionName(served)}</dd></div>
    </dl>
  <//>`;
}
