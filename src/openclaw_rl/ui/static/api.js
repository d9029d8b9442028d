// Talking to the server: requests with the sign-in cookie, and a stream of events that says when to look again.
import { useCallback, useEffect, useRef, useState } from "./vendor/htm-preact-3.1.1.js";

export class Problem extends Error {
  constructor(status, message, fix, code) {
    super(message);
    Object.assign(this, { status, fix: fix || "", code });
  }
}

const AGAIN_MS = 3000;
const listeners = new Set();
let stream = null;
let whenSignedOut = () => {};

export function onSignedOut(then) {
  whenSignedOut = then;
}

/** The answer's body; with `wantsHeaders` also its headers. Throws a Problem with what to do about it. */
export async function call(method, path, body, { wantsHeaders = false } = {}) {
  const headers = { "X-OpenClaw-RL-Page": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Problem(0, "The server does not answer.", "See whether it runs; this page tries again by itself.");
  }
  const text = await answer.text();
  let found = {};
  try {
    found = JSON.parse(text);
  } catch {
    // an answer that is not JSON is a problem of its own, told below
  }
  if (!answer.ok) {
    const { message = `The server answered ${answer.status}.`, fix = "", code } = found.error || {};
    if (answer.status === 401 && path !== "ui/session") whenSignedOut();
    throw new Problem(answer.status, apart(message, fix), fix, code);
  }
  return wantsHeaders ? [found, answer.headers] : found;
}

/** What is wrong without what to do about it, which the server's message ends with. */
function apart(message, fix) {
  if (!fix || !message.toLowerCase().endsWith(fix.toLowerCase())) return message;
  return `${message.slice(0, -fix.length).replace(/[.:]?\s*$/, "")}.`;
}

export const get = (path) => call("GET", path);

/** Path and query, without what is empty. */
export function withQuery(path, query) {
  const held = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return held.length ? `${path}?${new URLSearchParams(held)}` : path;
}

let tellLive = null;

/** Follows the server's events while the page is seen: a browser gives one server six connections, over all its tabs. */
export function listen(isLive) {
  tellLive = isLive;
  open();
}

export function hangUp() {
  tellLive = null;
  shut();
}

function open() {
  shut();
  if (!tellLive || document.hidden) return;
  stream = new EventSource("v1/rl/events");
  stream.addEventListener("changed", () => {
    tellLive(true);
    listeners.forEach((listener) => listener());
  });
  stream.onopen = () => tellLive(true);
  stream.onerror = lost;
}

/** A browser connects again by itself after a break, and gives up at any answer but a stream: it is asked for why. */
async function lost() {
  tellLive(false);
  if (stream.readyState !== EventSource.CLOSED) return;
  shut();
  const who = await get("ui/session").catch(() => null);
  if (who && !who.name) whenSignedOut();
  else if (tellLive) setTimeout(() => stream || open(), AGAIN_MS);
}

function shut() {
  if (stream) stream.close();
  stream = null;
}

document.addEventListener("visibilitychange", open);

/** What a path answers, read again when something changed, at most every `every` ms and while the page is seen. */
export function useLive(path, { every = 3000 } = {}) {
  const [state, setState] = useState({ data: null, problem: null });
  const last = useRef(0);
  const timer = useRef(0);
  const asked = useRef("");
  const read = useCallback(async () => {
    clearTimeout(timer.current);
    timer.current = 0;
    if (!path) return;
    last.current = Date.now();
    asked.current = path;
    try {
      const data = await get(path);
      if (asked.current === path) setState({ data, problem: null });
    } catch (problem) {
      // What is there no more is shown no more: it may have been forgotten.
      if (asked.current === path) setState((held) => ({ data: problem.status === 404 ? null : held.data, problem }));
    }
  }, [path]);
  useEffect(() => {
    setState({ data: null, problem: null });
    read();
    const changed = () => {
      if (document.hidden || timer.current) return;
      timer.current = setTimeout(read, Math.max(0, every - (Date.now() - last.current)));
    };
    listeners.add(changed);
    return () => {
      asked.current = "";
      clearTimeout(timer.current);
      timer.current = 0;
      listeners.delete(changed);
    };
  }, [read]);
  return { ...state, reload: read };
}
