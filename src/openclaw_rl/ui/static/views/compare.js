// Two versions that answer the same, side by side, with the words that differ.
import { call } from "../api.js";
import { Card, Trouble } from "../parts.js";
import { differing, versionName } from "../words.js";
import { html, useState } from "../vendor/htm-preact-3.1.1.js";

export function Differing({ one, other, names }) {
  const sides = differing(one, other);
  return html`<div class="sides">
    ${sides.map((pieces, at) => html`<div><h3>${names[at]}</h3>
      <p class="answer">${pieces.map(([words, isSame]) => (isSame || !words.trim() ? words : html`<mark>${words}</mark>`))}</p></div>`)}
  </div>`;
}

/** Asks for both answers. Where a version is `chosen`, it is compared with the one that it was made from. */
export function Compare({ versions, chosen }) {
  const [found, setFound] = useState({ rows: null, problem: null, isBusy: false });
  const current = versions.find((row) => row.is_current);
  const names = versions.map((row) => row.version);
  const one = versions.find((row) => row.version === chosen && names.includes(row.parent));
  const [first, second] = one ? [one.parent, one.version] : [names[0], current ? current.version : names[names.length - 1]];
  if (names.length < 2) return null;
  const submit = async (event) => {
    event.preventDefault();
    const form = Object.fromEntries(new FormData(event.target));
    setFound({ rows: null, problem: null, isBusy: true });
    try {
      const body = { versions: [form.one, form.other], prompts: form.prompt.trim() ? [form.prompt] : [], max_tokens: 256 };
      const { compared } = await call("POST", "v1/rl/compare", body);
      setFound({ rows: compared, names: [form.one, form.other].map(versionName), problem: null, isBusy: false });
    } catch (problem) {
      setFound({ rows: null, problem, isBusy: false });
    }
  };
  const options = (chosen) => [...names].reverse().map((name) => html`<option value=${name} selected=${name === chosen}>${versionName(name)}</option>`);
  return html`<${Card} title="Two versions, one question" id="compare">
    <form class="filters" onSubmit=${submit}>
      <label>First <select name="one">${options(first)}</select></label>
      <label>Second <select name="other">${options(second)}</select></label>
      <label class="wide">Question <input name="prompt" placeholder="empty: what was asked in the latest conversations" /></label>
      <button class="primary" disabled=${found.isBusy}>${found.isBusy ? "Answering…" : "Compare"}</button>
    </form>
    <${Trouble} problem=${found.problem} />
    <div role="status">${found.rows && found.rows.map((row) => html`<div class="compared">
      <p class="asked">${row.messages.map((item) => (typeof item.content === "string" ? item.content : (item.content || []).map((part) => part.text || "").join(" "))).join(" … ")}</p>
      ${row.same ? html`<p class="note">Both say the same:</p><p class="answer">${row.answers[0]}</p>` : html`<${Differing} one=${row.answers[0]} other=${row.answers[1]} names=${found.names} />`}
    </div>`)}</div>
  <//>`;
}
