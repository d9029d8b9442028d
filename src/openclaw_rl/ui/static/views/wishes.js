// Wishes: the hints that are kept for users. In use, learned, resting, at odds; edited, added, retired.
import { call, useLive } from "../api.js";
import { Asking, Card, Chip, Doing, Empty, Loaded, Term, TurnLink, VersionLink, When } from "../parts.js";
import { many } from "../words.js";
import { html, useState } from "../vendor/htm-preact-3.1.1.js";

const CARRY = {
  weights: ["Wishes are taught to the model. Only those that it could not learn are added to prompts.", "weights"],
  memory: ["Wishes are added to every prompt of their user; the weights are left alone.", "memory"],
  bridge: ["Wishes are added to prompts until the weights follow them.", "bridge"],
};

const UNLEARNED = html`What was corrected is learned in the next training steps. A wish that you added here is only taught next to other corrections of the
  same person. To have wishes followed from the next request on, set <code>carry = "bridge"</code>.`;

export function Wishes() {
  const live = useLive("v1/rl/hints");
  return html`<h1>Wishes</h1>
    <${Loaded} live=${live}>${(data) => html`<${Found} data=${data} reload=${live.reload} />`}<//>`;
}

function Found({ data, reload }) {
  const { hints, carry } = data;
  const texts = new Map(hints.map((hint) => [hint.id, hint.text]));
  const inUse = hints.filter((hint) => hint.state === "in_use");
  const isLeft = (hint) => carry === "weights" && hint.needs_prompt;
  const odds = inUse.filter((hint) => hint.opposes.length);
  // With carry = weights nothing is taken out of use: that a served version learned it is all there is to say.
  const isLearned = (hint) => !isLeft(hint) && (hint.is_followed || (carry === "weights" && hint.state === "in_use" && hint.learned_by !== null));
  const groups = [
    ["odds", "At odds with each other", odds, "By their words, both of a pair may not be possible at once. Change or retire one if that is so."],
    ["active", carry === "weights" ? "Not learned yet" : "In use", inUse.filter((hint) => !odds.includes(hint) && !isLearned(hint) && !isLeft(hint)), carry === "weights" && UNLEARNED],
    ["left", "In prompts", inUse.filter((hint) => isLeft(hint) && !odds.includes(hint)), "The model could not learn these without damage, so they are put into their user's prompts."],
    ["learned", "Learned", hints.filter((hint) => isLearned(hint) && !odds.includes(hint)), "A version that learned it is served: the model follows it without being told."],
    ["resting", "Resting", hints.filter((hint) => hint.state === "retired" && !hint.is_followed)],
  ];
  const cost = inUse.filter((hint) => carry !== "weights" || isLeft(hint)).reduce((sum, hint) => sum + hint.tokens, 0);
  return html`
    ${CARRY[carry] && html`<p>${CARRY[carry][0]} <span class="note">(<${Term} is=${CARRY[carry][1]}>carry = ${carry}<//>)</span></p>`}
    ${cost > 0 && html`<p>Together those in use cost up to ${many(cost, "token")} in each prompt.</p>`}
    <${Add} then=${reload} />
    ${!hints.length && html`<${Empty}>No wish is kept yet. They come from corrections, or are added here.<//>`}
    ${groups.map(([id, title, rows, note]) => rows.length > 0 && html`<${Card} title=${`${title} (${rows.length})`} id=${id} note=${note}>
      <ul class="wishes">${rows.map((hint) => html`<${Wish} key=${hint.id} hint=${hint} texts=${texts} carry=${carry} reload=${reload} />`)}</ul>
    <//>`)}`;
}

function Wish({ hint, texts, carry, reload }) {
  const [text, setText] = useState(null);
  const path = `v1/rl/hints/${encodeURIComponent(hint.id)}`;
  const save = async () => {
    await call("PUT", path, { text });
    setText(null);
    await reload();
  };
  return html`<li>
    ${text === null
      ? html`<blockquote>${hint.text}</blockquote>`
      : html`<label>In other words <textarea rows="2" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>`}
    ${hint.opposes.map((name) => html`<p class="worse">at odds with “${texts.get(name)}”</p>`)}
    <p class="note">of ${hint.user} · ${hint.why} · since <${When} at=${hint.changed_at} />
      ${hint.learned_by && html` · learned by <${VersionLink} name=${hint.learned_by} />`}
      ${hint.times > 1 && html` · asked for ${hint.times} times`}
      ${hint.turn && html` · <${TurnLink} turn=${hint.turn}>where it was said<//>`}
      ${(carry !== "weights" || hint.needs_prompt) && hint.state === "in_use" && html` <${Chip}>${many(hint.tokens, "token")} a prompt<//>`}</p>
    <p class="row">
      ${text === null
        ? html`<button type="button" class="small" onClick=${() => setText(hint.text)}>Edit</button>`
        : html`<${Doing} kind="small primary" does=${save}>Save<//><button type="button" class="small" onClick=${() => setText(null)}>Cancel</button>`}
      ${hint.state === "in_use"
        ? html`<${Doing} kind="small" does=${() => call("PUT", path, { state: "retired" }).then(reload)}>Retire<//>`
        : html`<${Doing} kind="small" does=${() => call("PUT", path, { state: "in_use" }).then(reload)}>Use again<//>`}
      <${Asking} kind="small" title="Remove this wish?" confirm="Remove" says="It is removed from the list. What the weights learned from it stays; forget the conversation to take that out too."
        does=${() => call("DELETE", path).then(reload)}>Remove<//>
    </p>
  </li>`;
}

function Add({ then }) {
  const [text, setText] = useState("");
  const [user, setUser] = useState("");
  const add = async () => {
    await call("PUT", "v1/rl/hints", user.trim() ? { text, user: user.trim() } : { text });
    setText("");
    await then();
  };
  return html`<${Card} title="Add a wish" id="add">
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label class="wide">What is wished for <input value=${text} onInput=${(event) => setText(event.target.value)} maxlength="4096" placeholder="Answer in plain sentences." /></label>
      <label>Whose <input value=${user} onInput=${(event) => setUser(event.target.value)} placeholder="yours" /></label>
      <${Doing} kind="primary" does=${add} done="It is kept." disabled=${!text.trim()}>Add<//>
    </form>
  <//>`;
}
