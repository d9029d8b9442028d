// What an owner orders about versions, each with what will happen said before.
import { call } from "../api.js";
import { Asking, Doing } from "../parts.js";
import { many, numberOf, versionName } from "../words.js";
import { html } from "../vendor/htm-preact-3.1.1.js";

const scopeOf = (name) => name.slice(0, name.lastIndexOf("."));

/** The versions that the served one was made from, itself included, newest first. */
export function lineOf(rows, name) {
  const found = [];
  for (let row = rows.find((one) => one.version === name); row; row = rows.find((one) => one.version === row.parent)) found.push(row);
  return found;
}

const lost = (row, rows) => {
  const served = rows.find((one) => one.is_current && one.scope === row.scope);
  const upTo = served ? lineOf(rows, served.version) : [];
  const at = upTo.findIndex((one) => one.version === row.version);
  return at < 0 ? [] : upTo.slice(0, at);
};

function Consequences({ row, rows }) {
  const gone = lost(row, rows);
  const learned = [...new Set(gone.flatMap((one) => one.learned || []))];
  return html`<ul>
    <li>From the next request on, answers come from ${versionName(row.version)}.</li>
    ${gone.length > 0 && html`<li>${many(gone.length, "later version is", "later versions are")} kept, and not served any more: ${gone.map((one) => versionName(one.version)).join(", ")}.</li>`}
    ${learned.length > 0 && html`<li>What they learned will not be in answers: “${learned.slice(0, 4).join("”, “")}”.</li>`}
    <li>Training goes on from ${versionName(row.version)}. Answers under way end as they began.</li>
    ${row.pruned_at && html`<li>Its weights were removed to save space and are made again first, which takes a while.</li>`}
  </ul>`;
}

/** "Go back to this": serves an earlier version again. */
export function BackButton({ row, rows, then }) {
  if (row.is_current || row.status !== "live") return null;
  const name = versionName(row.version);
  return html`<${Asking}
    title=${`Go back to ${name}?`}
    confirm="Go back"
    kind="small"
    says=${html`<${Consequences} row=${row} rows=${rows} />`}
    does=${() => call("POST", "v1/rl/rollback", { version: row.version }).then(then)}
    >Go back to ${name}<//
  >`;
}

/** Pins a version, or lifts the pin. */
export function PinButton({ row, rows, then }) {
  const name = versionName(row.version);
  if (row.is_pinned)
    return html`<${Asking}
      title=${`Lift the pin on ${name}?`}
      kind="small"
      confirm="Lift it"
      says="The newest version that passed the tests is served again from the next request on."
      does=${() => call("POST", "v1/rl/unpin", { scope: scopeOf(row.version) }).then(then)}
      >Lift the pin<//
    >`;
  if (row.status !== "live") return null;
  return html`<${Asking}
    title=${`Pin ${name}?`}
    kind="small"
    confirm="Pin it"
    says=${html`<${Consequences} row=${row} rows=${rows} />
      <p>New versions are still made and tested, but none is served until you lift the pin.</p>`}
    does=${() => call("POST", "v1/rl/pin", { version: row.version }).then(then)}
    >Pin this<//
  >`;
}

/** Stops training, or lets it go on. */
export function FreezeButton({ frozenSince, then }) {
  if (frozenSince)
    return html`<${Doing} does=${() => call("POST", "v1/rl/unfreeze").then(then)} done="Training goes on.">Let training go on<//>`;
  return html`<${Asking}
    title="Freeze training?"
    confirm="Freeze"
    says="No training step is taken from now on. Conversations are answered and judged as before; what could be learned waits until you let it go on. A step under way is finished first."
    does=${() => call("POST", "v1/rl/freeze").then(then)}
    >Freeze training<//
  >`;
}

export const isBase = (row) => numberOf(row.version) === 0;
