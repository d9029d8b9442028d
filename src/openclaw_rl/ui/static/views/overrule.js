// The owner's word on a reply: two clicks to overrule the judge, to reword or strike a hint, to leave it out.
import { call, withQuery } from "../api.js";
import { Asking, Doing } from "../parts.js";
import { html, useState } from "../vendor/htm-preact-3.1.1.js";

const LEARNED = "A version has learned from this reply already. Your word is kept to train the judge; to take it out of the weights, forget it.";

export function Overrule({ turn, then }) {
  const [isOpen, setOpen] = useState(false);
  if (!turn.state || turn.episode) return null;
  const hints = turn.verdict ? turn.verdict.hints.map((hint) => hint.text) : [];
  const judge = (score, texts) => async () => {
    const told = await call("PUT", `v1/rl/turns/${encodeURIComponent(turn.id)}/verdict`, { score, hints: texts });
    await then();
    return `${told.said}.`;
  };
  return html`<div class="overrule">
    <${Doing} does=${judge(1, [])} disabled=${turn.score === 1} kind="small">This was good<//>
    <button type="button" class="small" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>Overrule…</button>
    <${Asking} title="Leave this reply out?" kind="small" confirm="Leave it out"
      says=${turn.trained_version ? LEARNED : "It stays in the conversation and is never learned from."}
      does=${() => call("POST", `v1/rl/turns/${encodeURIComponent(turn.id)}/exclude`).then(then)}>Leave out<//>
    <a class="button small" href=${withQuery("#/forget", { turn: turn.id })}>Forget…</a>
    ${isOpen && html`<${Anew} turn=${turn} hints=${hints} judge=${judge} />`}
  </div>`;
}

/** Another verdict or another hint, each at one press. What is typed counts with whichever is pressed. */
function Anew({ turn, hints, judge }) {
  const [texts, setTexts] = useState(hints.length ? hints : [""]);
  const change = (at, text) => setTexts(texts.map((held, index) => (index === at ? text : held)));
  const without = (at) => texts.filter((_, index) => index !== at);
  const wanted = (held) => held.map((text) => text.trim()).filter(Boolean);
  const score = turn.score ?? -1;
  const strike = (at) => async () => {
    const told = await judge(score, wanted(without(at)))();
    setTexts(without(at).length ? without(at) : [""]);
    return told;
  };
  return html`<form class="anew" onSubmit=${(event) => event.preventDefault()}>
    ${turn.state === "trained" && html`<p class="note">${LEARNED}</p>`}
    <div role="group" aria-label="The reply was" class="row"><span>The reply was</span>
      ${[[-1, "bad", texts], [0, "neither", texts], [1, "good", []]].map(([value, words, held]) => html`<${Doing} key=${words} kind="small" does=${judge(value, wanted(held))} pressed=${turn.score === value}>${words}<//>`)}
    </div>
    ${texts.map((text, at) => html`<label>What would have been better
        <textarea rows="2" value=${text} onInput=${(event) => change(at, event.target.value)} placeholder="for example: Write plain sentences without markdown."></textarea></label>
      ${hints.includes(text) && html`<${Doing} kind="small" does=${strike(at)}>Strike this hint<//>`}`)}
    <p class="row"><${Doing} kind="primary" does=${judge(hints.length ? score : -1, wanted(texts))} disabled=${!wanted(texts).length}>Keep these words<//>
      ${texts.length < 8 && html`<button type="button" onClick=${() => setTexts([...texts, ""])}>Another hint</button>`}</p>
  </form>`;
}
