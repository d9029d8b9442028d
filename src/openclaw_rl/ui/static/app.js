// The page's frame: signing in, the list of views, which of them is shown, and whether it is live.
import { Problem, call, get, hangUp, listen, onSignedOut } from "./api.js";
import { Trouble } from "./parts.js";
import { html, render, useEffect, useRef, useState } from "./vendor/htm-preact-3.1.1.js";
import { Chat } from "./views/chat.js";
import { Conversation, Turn } from "./views/conversation.js";
import { Conversations } from "./views/conversations.js";
import { Forget } from "./views/forget.js";
import { Keys } from "./views/keys.js";
import { Learning } from "./views/learning.js";
import { Settings } from "./views/settings.js";
import { Tasks } from "./views/tasks.js";
import { Versions } from "./views/versions.js";
import { Wishes } from "./views/wishes.js";

// Name in the address, name for people, what shows it, the right it needs.
const VIEWS = [
  ["learning", "Is it learning?", Learning, "admin"],
  ["conversations", "Conversations", Conversations, "admin"],
  ["versions", "Versions", Versions, "admin"],
  ["wishes", "Wishes", Wishes, "admin"],
  ["try", "Try it", Chat, "chat"],
  ["tasks", "Tasks and runs", Tasks, "admin"],
  ["forget", "Forget", Forget, "admin"],
  ["keys", "Keys", Keys, "admin"],
  ["settings", "Settings", Settings, "admin"],
];
const HIDDEN = { conversation: [Conversation, "conversations"], turn: [Turn, "conversations"] };

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decodeURIComponent);
  return { name: name || "learning", rest, query: Object.fromEntries(new URLSearchParams(query || "")) };
}

const OUT = new Problem(401, "You are signed out.", "The server was started again, the key was revoked, or a week is over. Sign in again.");

function SignIn({ then, why }) {
  const [problem, setProblem] = useState(why);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      then({ ...(await call("POST", "ui/session", { key: new FormData(event.target).get("key") })), isNew: true });
    } catch (found) {
      setProblem(found);
    }
    setBusy(false);
  };
  useEffect(() => {
    document.title = "Sign in · OpenClaw-RL";
  }, []);
  return html`<main class="sign-in">
    <img src="ui/icon.svg" alt="" width="48" height="48" />
    <h1>OpenClaw-RL</h1>
    <form onSubmit=${submit}>
      <label for="key">API key</label>
      <input id="key" name="key" type="password" autocomplete="current-password" required aria-describedby="where" />
      <p id="where" class="note">
        The server's own key is in the file <code>api_key</code> of its home folder (usually
        <code> ~/.openclaw-rl</code>). Other keys show what their rights allow.
      </p>
      <${Trouble} problem=${problem} />
      <button class="primary" disabled=${isBusy}>Sign in</button>
    </form>
  </main>`;
}

function Navigation({ at, who }) {
  const bar = useRef(null);
  useEffect(() => {
    const list = bar.current.firstElementChild;
    const here = list.querySelector("[aria-current]");
    if (!here) return;
    // Not scrollIntoView: that also moves the place from which Tab goes on, past the link that skips all this.
    const [link, shown] = [here, list].map((one) => one.getBoundingClientRect());
    list.scrollLeft += Math.min(0, link.left - shown.left) + Math.max(0, link.right - shown.right);
  }, [at]);
  return html`<nav aria-label="Views" ref=${bar}>
    <ul>
      ${VIEWS.filter(([, , , right]) => who.rights.includes(right)).map(
        ([name, words]) =>
          html`<li key=${name}>
            <a href=${`#/${name}`} aria-current=${name === at ? "page" : undefined}>${words}</a>
          </li>`,
      )}
    </ul>
  </nav>`;
}

function useTheme() {
  const [theme, setTheme] = useState(() => localStorage.getItem("theme") || "");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  const isDark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return [isDark, () => setTheme(isDark ? "light" : "dark")];
}

function Frame({ who, signOut }) {
  const [here, setHere] = useState(place);
  const [isLive, setLive] = useState(true);
  const [isDark, turnTheme] = useTheme();
  const main = useRef(null);
  const isFirst = useRef(!who.isNew);
  const isAdmin = who.rights.includes("admin");
  useEffect(() => {
    const moved = () => setHere(place());
    addEventListener("hashchange", moved);
    if (isAdmin) listen(setLive);
    return () => {
      removeEventListener("hashchange", moved);
      hangUp();
    };
  }, []);
  const fallback = isAdmin ? "learning" : "try";
  const name = here.name in HIDDEN ? HIDDEN[here.name][1] : here.name;
  const [, words, view, right] = VIEWS.find(([known]) => known === name) || VIEWS.find(([known]) => known === fallback);
  const mayNot = !who.rights.includes(right);
  const View = here.name in HIDDEN ? HIDDEN[here.name][0] : view;
  useEffect(() => {
    document.title = `${words} · OpenClaw-RL`;
    if (!isFirst.current) main.current.focus();
    isFirst.current = false;
  }, [here.name, here.rest.join("/")]);
  useEffect(() => {
    if (mayNot) location.hash = `#/${fallback}`;
  }, [mayNot]);
  const skip = (event) => {
    event.preventDefault();
    main.current.focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header>
      <a class="brand" href=${`#/${fallback}`} aria-label="OpenClaw-RL"><img src="ui/icon.svg" alt="" width="24" height="24" /><span>OpenClaw-RL</span></a>
      <span class="model" title="the model that is served">${who.model}</span>
      ${isAdmin &&
      html`<span class=${isLive ? "live" : "dead"} role="status">${isLive ? "live" : "not connected"}</span>`}
      <span class="room"></span>
      <button type="button" onClick=${turnTheme}>${isDark ? "Light" : "Dark"}</button>
      <button type="button" onClick=${signOut} title=${`signed in with the key of ${who.name}`}>Sign out</button>
    </header>
    <div class="body">
      <${Navigation} at=${name} who=${who} />
      <main id="main" tabindex="-1" ref=${main}>
        ${mayNot ? null : html`<${View} key=${here.name} rest=${here.rest} query=${here.query} who=${who} />`}
      </main>
    </div>`;
}

function App() {
  const [who, setWho] = useState(undefined);
  const [why, setWhy] = useState(null);
  useEffect(() => {
    onSignedOut(() => {
      setWhy(OUT);
      setWho(null);
    });
    get("ui/session").then((found) => setWho(found.name ? found : null), () => setWho(null));
  }, []);
  const signOut = async () => {
    await call("DELETE", "ui/session").catch(() => {});
    setWhy(null);
    setWho(null);
  };
  if (who === undefined) return html`<p class="loading">Loading…</p>`;
  return who ? html`<${Frame} who=${who} signOut=${signOut} />` : html`<${SignIn} then=${setWho} why=${why} />`;
}

const root = document.getElementById("page");
root.textContent = "";
render(html`<${App} />`, root);
