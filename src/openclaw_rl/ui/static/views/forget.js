// Forget: what would go is counted first; afterwards the certificate says what went.
import { call, useLive } from "../api.js";
import { Card, Doing, Empty, Loaded, Trouble, When } from "../parts.js";
import { many } from "../words.js";
import { html, useEffect, useState } from "../vendor/htm-preact-3.1.1.js";

const KINDS = [
  ["session", "one conversation", "its name"],
  ["user", "everything of a person", "the person's name"],
  ["turn", "one reply", "its id"],
  ["episode", "one attempt at a task", "its id"],
  ["before", "everything before a day", "the day"],
];
const PHASES = { erasing: "being erased", rebuilding: "erased; versions are made again without it", at_gate: "erased; versions made again are being tested", done: "done" };
const GOES = {
  turns: ["reply with its request", "replies with their requests"], sessions: ["conversation"], hints: ["wish", "wishes"], episodes: ["attempt at a task", "attempts at tasks"],
  "versions that saw it": ["version learned from it: made again without it", "versions learned from it or stand on one that did: made again without it"],
  "next states": ["reaction to a reply", "reactions to replies"], verdicts: ["verdict of the judge", "verdicts of the judge"], feedback: ["thumb", "thumbs"],
  samples: ["training sample"], pictures: ["screenshot"], versions: ["version"],
};

export function Forget({ query }) {
  const first = KINDS.find(([kind]) => query[kind]) || KINDS[0];
  const [kind, setKind] = useState(first[0]);
  const [value, setValue] = useState(query[first[0]] || "");
  const [plan, setPlan] = useState(null);
  const [problem, setProblem] = useState(null);
  const live = useLive("v1/rl/forget", { every: 1000 });
  useEffect(() => {
    if (query[kind]) look().catch(setProblem); // who came from what is to be forgotten sees at once what would go
  }, []);
  const what = () => ({ [kind]: kind === "before" ? new Date(`${value}T00:00`).getTime() / 1000 : value.trim() });
  const look = async () => setProblem(null) || setPlan(await call("POST", "v1/rl/forget", { ...what(), dry_run: true }));
  const forget = async () => {
    await call("POST", "v1/rl/forget", what());
    setPlan(null);
    setValue("");
    await live.reload();
  };
  const [, words, hint] = KINDS.find(([name]) => name === kind);
  return html`<h1>Forget</h1>
    <p>What is forgotten is erased from every file, and the versions that learned from it are made again without it. It cannot be taken back.</p>
    <${Card} title="What is to be forgotten" id="what">
      <form class="filters" onSubmit=${(event) => event.preventDefault()}>
        <label>What <select value=${kind} onChange=${(event) => { setKind(event.target.value); setPlan(null); }}>
          ${KINDS.map(([name, text]) => html`<option value=${name} selected=${name === kind}>${text}</option>`)}</select></label>
        <label class="wide">${hint} <input value=${value} type=${kind === "before" ? "date" : "text"} onInput=${(event) => { setValue(event.target.value); setPlan(null); }} /></label>
        <${Doing} kind="primary" does=${look} disabled=${!value.trim()}>See what would go<//>
      </form>
      ${!plan && !value && html`<p class="note">The names are filled in if you come from a reply or a conversation: <em>Forget…</em> stands below each.</p>`}
      <${Trouble} problem=${problem} />
      <div role="status">${plan && (plan.is_nothing
        ? html`<${Empty}>Nothing of that is here.<//>`
        : html`<h3>This would go</h3><${Counts} goes=${plan.goes} />
          <p class="note">It goes at once. Versions that learned from it are made again without it, and tested, while serving goes on.</p>
          <${Doing} kind="danger" does=${forget}>Erase ${words} for good<//>`)}</div>
    <//>
    <${Loaded} live=${live}>${({ forgettings }) => html`<${Card} title="Certificates" id="certificates">
      ${!forgettings.length && html`<${Empty}>Nothing was forgotten yet.<//>`}
      <ul class="wishes">${[...forgettings].reverse().map((one) => html`<${Certificate} key=${one.id} one=${one} />`)}</ul>
    <//>`}<//>`;
}

function Counts({ goes }) {
  return html`<ul>${Object.entries(goes).filter(([, count]) => count).map(([name, count]) => html`<li>${counted(name, count)}</li>`)}</ul>`;
}

const counted = (name, count) => (GOES[name] ? many(count, ...GOES[name]) : `${count} ${name}`);

function Certificate({ one }) {
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(one.certificate, null, 2)], { type: "application/json" }));
    link.download = `forgotten-${one.id}.json`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const { removed = {}, finished_at: finished, kind } = one.certificate;
  const counts = Object.entries(removed).filter(([, count]) => count).map(([name, count]) => counted(name.replaceAll("_", " "), count));
  const what = KINDS.find(([name]) => name === kind);
  return html`<li>
    <p><strong>${what ? what[1] : kind}</strong>: ${PHASES[one.phase] || one.phase}${one.of > 0 && one.phase !== "done" && ` (${one.made} of ${one.of})`}${finished && html`, <${When} at=${Date.parse(finished) / 1000} />`}</p>
    ${counts.length > 0 && html`<p>Erased: ${counts.join(", ")}.</p>`}
    ${one.problem && html`<${Trouble} problem=${{ message: one.problem }} />`}
    <${Facts} facts=${one.certificate} />
    <p class="row"><button type="button" class="small" onClick=${save}>Save the certificate</button></p>
  </li>`;
}

/** Every line of the certificate. Names in it are digests: whoever knows a name can check it, and nobody can read it. */
function Facts({ facts }) {
  const value = (held) => {
    if (Array.isArray(held)) return held.length ? held.map((item) => (typeof item === "string" ? item : JSON.stringify(item))).join(", ") : "none";
    if (typeof held === "object" && held) return Object.entries(held).map(([key, item]) => `${key.replaceAll("_", " ")}: ${item}`).join(", ");
    return String(held);
  };
  const rows = Object.entries(facts).filter(([, held]) => held !== null && held !== "");
  return html`<details><summary>The certificate</summary><dl class="facts-list">${rows.map(([name, held]) => html`<div><dt>${name.replaceAll("_", " ")}</dt><dd>${value(held)}</dd></div>`)}</dl></details>`;
}
