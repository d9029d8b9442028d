// What several views are made of.
import { html, useEffect, useRef, useState } from "./vendor/htm-preact-3.1.1.js";
import { PLAIN, REASONS, SCORES, STATES, STATUSES, TERMS, capital, exactly, numberOf, versionName, when } from "./words.js";

/** A word with its exact meaning, shown when it is pointed at. */
export function Term({ is, children }) {
  return html`<abbr title=${TERMS[is]}>${children}</abbr>`;
}

export const When = ({ at }) => html`<time title=${exactly(at)}>${when(at)}</time>`;

export function Card({ title, id, note, children }) {
  return html`<section class="card" aria-labelledby=${id}>
    <h2 id=${id}>${title}</h2>
    ${note && html`<p class="note">${note}</p>`} ${children}
  </section>`;
}

export const Chip = ({ kind = "flat", title, children }) =>
  html`<span class=${`chip ${kind}`} title=${title}>${children}</span>`;

export function StateChip({ state, reason }) {
  const [words, title] = STATES[state || "side"];
  const why = reason ? `: ${REASONS[reason] || reason.replaceAll("_", " ")}` : "";
  return html`<${Chip} kind=${state === "trained" ? "good" : "flat"} title=${reason ? `${title} (${reason})` : title}>${words}${why}<//>`;
}

export function ScoreChip({ score }) {
  if (score === null || score === undefined) return null;
  const [words, kind] = SCORES[score];
  return html`<${Chip} kind=${kind} title=${`score ${score}`}>${words}<//>`;
}

export function StatusChip({ row }) {
  const [words, title] = numberOf(row.version) ? STATUSES[row.status] : ["where it began", TERMS.version];
  const kind = { live: "good", refused: "bad", candidate: "flat" }[row.status];
  return html`<${Chip} kind=${kind} title=${title}>${words}<//>${row.is_current &&
    html` <${Chip} kind="strong" title="current: answers come from it">served now<//>`}${row.is_pinned &&
    html` <${Chip} title=${TERMS.pinned}>pinned<//>`}`;
}

export const VersionLink = ({ name }) =>
  name ? html`<a href=${`#/versions/${encodeURIComponent(name)}`}>${versionName(name)}</a>` : null;

export const TurnLink = ({ turn, children }) => html`<a href=${`#/turn/${encodeURIComponent(turn)}`}>${children}</a>`;

// Commands whose work can be done on this page.
const HERE = { versions: "versions", rollback: "versions", freeze: "versions", unfreeze: "versions", pin: "versions", unpin: "versions",
  turns: "conversations", inspect: "conversations", hints: "wishes", forget: "forget", keys: "keys", settings: "settings", top: "learning" };

// Commands, names with underscores, reasons of one word after a count ("3 unheeded, 2 no_signal"), and terms.
const COUNTED = Object.keys(REASONS).filter((name) => !name.includes("_")).join("|");
const SAID = new RegExp(
  "(`[^`]*`|(?<!\\.)\\b[a-z]+(?:_[a-z]+)+\\b|(?<=\\d )(?:" + COUNTED + ")(?=[,;.]|$)" +
    "|\\bnats a token\\b|\\b(?:main )?turns?(?: dropped)?\\b)",
  "i",
);

/** The program's own words: commands in backquotes as code, those that this page can do as links; terms in plain words.

 `ofReplies` says that its turns are replies, and not what the verb means. */
export function Said({ text, ofReplies = false }) {
  return text.split(SAID).map((piece) => {
    if (piece.startsWith("`")) {
      const code = html`<code>${piece.slice(1, -1)}</code>`;
      const view = HERE[(piece.match(/^`openclaw-rl ([a-z]+)/) || [])[1]];
      return view ? html`<a href=${`#/${view}`}>${code}</a>` : code;
    }
    if (piece === "nats a token") return html`<${Term} is="nats">${piece}<//>`;
    const plain = ofReplies && PLAIN[piece.toLowerCase()];
    if (plain) return html`<span title=${piece}>${/^[A-Z]/.test(piece) ? capital(plain) : plain}</span>`;
    return REASONS[piece] ? html`<abbr title=${piece}>${REASONS[piece]}</abbr>` : piece;
  });
}

/** What went wrong and what to do about it. */
export function Trouble({ problem }) {
  if (!problem) return null;
  return html`<div class="trouble" role="alert">
    <strong><${Said} text=${capital(problem.message)} /></strong>${problem.fix && html`<br /><${Said} text=${capital(problem.fix)} />`}
  </div>`;
}

/** What a view shows until its data is there. */
export function Loaded({ live, children }) {
  if (!live.data && !live.problem) return html`<p class="loading" role="status">Loading…</p>`;
  return html`<${Trouble} problem=${live.problem} />${live.data && children(live.data)}`;
}

/** A button that does something over HTTP: it says so while it does, and what went wrong. */
export function Doing({ does, done, children, kind = "", label, disabled = false, pressed }) {
  const [state, setState] = useState({});
  const press = async () => {
    setState({ isBusy: true });
    try {
      const told = await does();
      setState({ told: typeof told === "string" ? told : done });
    } catch (problem) {
      setState({ problem });
    }
  };
  return html`<span class="doing"
    ><button type="button" class=${kind} onClick=${press} disabled=${disabled || state.isBusy} aria-label=${label} aria-pressed=${pressed}>
      ${state.isBusy ? "…" : children}</button
    ><span role="status">${state.told && html`<span class="told">${state.told}</span>`}</span
    ><${Trouble} problem=${state.problem}
  /></span>`;
}

/** A button that first says what will happen, and asks. */
export function Asking({ title, does, confirm, kind = "", children, says, label }) {
  const box = useRef(null);
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (isOpen && box.current && !box.current.open) box.current.showModal();
  }, [isOpen]);
  const shut = () => {
    if (box.current) box.current.close();
    setOpen(false);
  };
  const act = async () => {
    const told = await does();
    shut();
    return told;
  };
  return html`<button type="button" class=${kind} aria-label=${label} onClick=${() => setOpen(true)}>${children}</button>
    ${isOpen &&
    html`<dialog ref=${box} onClose=${() => setOpen(false)} aria-label=${title}>
      <h2>${title}</h2>
      <div class="says">${typeof says === "function" ? says() : says}</div>
      <p class="row">
        <${Doing} does=${act} kind="primary">${confirm}<//>
        <button type="button" onClick=${shut}>Cancel</button>
      </p>
    </dialog>`}`;
}

/** Bars with a table for those who do not see them. `rows`: {label, part, of}. */
export function Bars({ rows, caption, part, of }) {
  const most = Math.max(1, ...rows.map((row) => row.of));
  const width = 100 / rows.length;
  return html`<figure class="bars">
    <svg viewBox="0 0 100 40" preserveAspectRatio="none" aria-hidden="true">
      ${rows.map((row, at) => {
        const [whole, bit] = [(row.of / most) * 38, (row.part / most) * 38];
        const x = at * width + width * 0.15;
        return html`<rect class="whole" x=${x} y=${40 - whole} width=${width * 0.7} height=${whole} />
          <rect class="part" x=${x} y=${40 - bit} width=${width * 0.7} height=${bit} />`;
      })}
    </svg>
    <div class="labels" aria-hidden="true">${rows.map((row) => html`<span>${row.label}</span>`)}</div>
    <div class="unseen"><table>
      <caption>${caption}</caption>
      <thead><tr><th scope="col">from</th><th scope="col">${of}</th><th scope="col">${part}</th></tr></thead>
      <tbody>${rows.map((row) => html`<tr><td>${row.label}</td><td>${row.of}</td><td>${row.part}</td></tr>`)}</tbody>
    </table></div>
  </figure>`;
}

/** A distance before and after, as two bars of which `most` is the longest. */
export function BeforeAfter({ before, after, most = Math.max(before, after, 0.05) }) {
  const bar = (value, kind) =>
    html`<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class=${kind} width=${Math.max(1, (value / most) * 100)} height="6" rx="1" />
    </svg>`;
  return html`<div class="before-after">
    <span>before</span>${bar(before, "part")}<span>${before.toFixed(3)}</span>
    <span>after</span>${bar(after, "fine")}<span>${after.toFixed(3)}</span>
  </div>`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
