// Try it: a small chat with what is served, the base model beside it, and each correction followed on its way.
import { call, get, useLive, withQuery } from "../api.js";
import { Chip, Doing, Trouble, VersionLink } from "../parts.js";
import { numberOf, versionName } from "../words.js";
import { html, useEffect, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { Differing } from "./compare.js";

const TOY = "openclaw-rl-tiny"; // the model that comes with the package

// Kept while the page is open, so that looking at another view does not end the chat.
let kept = null;
const fresh = () => ({ session: `try-${crypto.getRandomValues(new Uint32Array(2)).join("")}`, said: [] });

export function Chat({ who }) {
  const isAdmin = who.rights.includes("admin");
  const [chat, setChat] = useState(() => kept || fresh());
  const [text, setText] = useState("");
  const [besides, setBesides] = useState(isAdmin);
  const [state, setState] = useState({});
  const end = useRef(null);
  useEffect(() => {
    kept = chat;
    if (chat.said.length && end.current) end.current.scrollIntoView({ block: "nearest" });
  }, [chat]);
  const change = (at, words) =>
    setChat((held) => ({ ...held, said: held.said.map((one, index) => (index === at ? { ...one, ...words } : one)) }));
  const send = async (event) => {
    event.preventDefault();
    const asked = text.trim();
    if (!asked) return;
    setText("");
    setState({ isBusy: true });
    const history = [...chat.said, { role: "user", content: asked }];
    setChat((held) => ({ ...held, said: history }));
    const messages = history.map(({ role, content }) => ({ role, content }));
    try {
      const body = { model: "default", messages, session_id: chat.session };
      const [answer, headers] = await call("POST", "v1/chat/completions", body, { wantsHeaders: true });
      const reply = {
        role: "assistant", content: answer.choices[0].message.content || "",
        turn: headers.get("x-openclaw-rl-turn"), version: headers.get("x-openclaw-rl-version"),
      };
      setChat((held) => ({ ...held, said: [...history, reply] }));
      setState({});
      if (besides) await addBase(history.length, messages, reply, change);
    } catch (problem) {
      setChat((held) => ({ ...held, said: history.slice(0, -1) }));
      setText(asked);
      setState({ problem });
    }
  };
  const over = async () => {
    if (chat.said.length) await call("POST", `v1/sessions/${chat.session}/done`).catch(() => {});
    setChat(fresh());
  };
  return html`<h1>Try it</h1>
    <p class="note">Ask something. If the reply is not as you like it, say so in your next message: that is a correction, and its way into the model is shown below it.
      ${who.model === TOY && " The bundled model is a toy: it solves small word problems, and can hold no real conversation."}</p>
    <div class="chat" role="log" aria-label="The conversation">
      ${chat.said.map((one, at) => html`<${Said} key=${at} one=${one} next=${chat.said[at + 1]} before=${chat.said.slice(0, at)} isAdmin=${isAdmin} />`)}
      ${state.isBusy && html`<p class="loading" role="status">Answering…</p>`}
      <span ref=${end}></span>
    </div>
    <${Trouble} problem=${state.problem} />
    <form class="say" onSubmit=${send}>
      <label for="say" class="unseen">Your message</label>
      <textarea id="say" rows="3" value=${text} onInput=${(event) => setText(event.target.value)} placeholder=${chat.said.length ? "Correct it, thank it, or ask on" : "Mia has 5 apples and gets 7 more. How many apples does she have?"}
        onKeyDown=${(event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && send(event)}></textarea>
      <button class="primary" disabled=${state.isBusy || !text.trim()}>Send</button>
    </form>
    <p class="row">
      ${isAdmin && html`<label><input type="checkbox" checked=${besides} onChange=${(event) => setBesides(event.target.checked)} /> show the base model beside it</label>`}
      <button type="button" onClick=${over} disabled=${!chat.said.length}>End this conversation</button>
    </p>`;
}

/** What the base model says to the same, and the served version at its likeliest. */
async function addBase(at, messages, reply, change) {
  if (numberOf(reply.version) === 0) return;
  try {
    const body = { versions: ["shared.0", reply.version], conversations: [messages], max_tokens: 256 };
    const { compared } = await call("POST", "v1/rl/compare", body);
    change(at, { base: compared[0].answers[0] });
  } catch (problem) {
    change(at, { baseProblem: problem });
  }
}

function Said({ one, next, before, isAdmin }) {
  if (one.role === "user") return html`<div class="said-by user"><span class="who">you</span><p>${one.content}</p></div>`;
  const thumb = (score) => () => call("POST", "v1/feedback", { response_id: one.turn, score });
  return html`<div class="said-by model">
    <span class="who">${versionName(one.version)}</span>
    ${one.base !== undefined
      ? one.base === one.content
        ? html`<p>${one.content}</p><p class="note">The base model says the same.</p>`
        : html`<${Differing} one=${one.base} other=${one.content} names=${["the base model", versionName(one.version)]} />`
      : html`<p>${one.content}</p>`}
    <${Trouble} problem=${one.baseProblem} />
    <p class="row"><${Doing} kind="small" does=${thumb(1)} done="Noted as good.">This was good<//>
      <${Doing} kind="small" does=${thumb(-1)} done="Noted as bad. Say what would have been better in your next message.">This was bad<//></p>
    ${isAdmin && next && html`<${Journey} turn=${one.turn} answered=${one.version} asked=${before} first=${one.content} />`}
  </div>`;
}

/** Where a reply that was reacted to stands: heard, judged, hinted, trained, tried, served. */
function Journey({ turn, answered, asked, first }) {
  const live = useLive(`v1/rl/turns/${encodeURIComponent(turn)}`, { every: 1000 });
  const made = live.data && live.data.trained_version;
  const versions = useLive(made ? "v1/rl/versions" : "", { every: 1000 });
  const [again, setAgain] = useState(null);
  if (!live.data) return null;
  const { state, verdict, next_state: heard, explained } = live.data;
  const row = versions.data && versions.data.versions.find((one) => one.version === made);
  const hints = verdict ? verdict.hints : [];
  const isGood = verdict && verdict.score === 1 && !hints.length;
  const isOver = state === "dropped" || (verdict && !verdict.score && !hints.length);
  const steps = [
    ["heard", heard, heard ? "your next message was taken for the reaction" : "waiting for your next message"],
    ["judged", verdict, verdict ? { "-1": "a correction", 0: "neither good nor bad", 1: "a good reply", null: "the judge could not tell" }[verdict.score] : "the judge is reading"],
    ["hinted", hints.length, hints.length ? `“${hints[0].text}”` : "what would have been better"],
    ["trained", made, made ? html`made <${VersionLink} name=${made} />` : "waits for a training step"],
    ["tried", row && row.status !== "candidate", row ? { candidate: "the tests run", live: "it passed the tests", refused: `refused: ${row.why}` }[row.status] : "by the tests, before it is served"],
    ["served", row && row.is_current, row && row.is_current ? "answers come from it now" : "to everybody"],
  ];
  const shown = isOver ? steps.slice(0, hints.length ? 3 : 2) : steps.filter(([name]) => !(isGood && name === "hinted"));
  const askAgain = async () => {
    const body = { versions: [answered, made], conversations: [asked.map(({ role, content }) => ({ role, content }))], max_tokens: 256 };
    setAgain((await call("POST", "v1/rl/compare", body)).compared[0].answers[1]);
  };
  return html`<ol class="journey" aria-label="The way of your reaction">
      ${shown.map(([name, isDone, words]) => html`<li class=${isDone ? "done" : ""}><strong>${name}</strong> <span>${words}</span>${isDone ? html`<span class="unseen"> (done)</span>` : null}</li>`)}
    </ol>
    ${(isOver || (isGood && !made)) && html`<p class="note">${explained[explained.length - 1]}</p>`}
    ${row && row.is_current && html`<p class="row"><${Doing} does=${askAgain}>Ask the same again<//></p>`}
    ${again !== null && html`<${Differing} one=${first} other=${again} names=${["before", "now"]} />`}`;
}
