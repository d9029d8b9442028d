// What a request is, in headers an OpenClaw-RL server reads. Pure functions: index.js does the talking to OpenClaw.

// Runs that a person began. The others are heartbeat, cron, memory (flush) and overflow (compaction).
const USERS_TRIGGERS = new Set(["user", "manual"]);

// Sessions the client keeps for itself: automations, subagents, memory flushes and the like.
const INTERNAL_KEY = /^agent:[^:]+:(cron|subagent|acp|boot|helper|hook|internal-session-effects)(:|$)/;

// A run's requests are called RUN:model:1, RUN:model:2 ...; a compaction within it RUN:compaction:...:model:1.
const STEP = /:model:\d+$/;

/** The run a request belongs to, from the id OpenClaw gives each request; undefined where it has none. */
export function runOf(requestId) {
  return requestId === undefined ? undefined : String(requestId).replace(STEP, "");
}

/** "main" where a user speaks in a conversation of theirs, else "side". `run` is the context of before_prompt_build. */
export function turnType(run) {
  if (!run || INTERNAL_KEY.test(run.sessionKey ?? "")) return "side";
  if (run.inputProvenance?.kind === "inter_session") return "side"; // another session's agent speaks, no user
  return USERS_TRIGGERS.has(run.trigger) ? "main" : "side";
}

/** Who speaks: as configured, else the sender a channel names. Undefined leaves it to the API key. */
export function userOf(run, config = {}) {
  if (config.user) return config.user;
  if (!run?.senderId) return undefined;
  return run.channel ? `${run.channel}:${run.senderId}` : run.senderId;
}

/** The headers for one request. `run` is what is known of its run, undefined for the client's own requests. */
export function headersFor(run, { sessionId, config } = {}) {
  return withoutEmpty({
    "X-Session-Id": run?.sessionId ?? run?.sessionKey ?? sessionId,
    "X-Turn-Type": turnType(run),
    "X-User-Id": userOf(run, config),
    "X-Agent-Id": run?.agentId,
  });
}

/** Whether a session that ends for this reason has really been said farewell to: none of these go on afterwards. */
export function isOver(reason) {
  return !["compaction", "shutdown", "restart"].includes(reason);
}

/** Where the server is told that a session is over; the base URL may end in /v1 or not, as the API has it. */
export function doneUrl(baseUrl) {
  return `${baseUrl.replace(/\/+$/, "").replace(/\/v1$/, "")}/v1/rl/session_done`;
}

/** The newest entries of a map, oldest first out, so that a gateway that runs for months holds no more than these. */
export function remember(map, key, value, most = 1000) {
  map.delete(key);
  map.set(key, value);
  while (map.size > most) map.delete(map.keys().next().value);
}

function withoutEmpty(headers) {
  const told = Object.entries(headers).filter(([, value]) => value !== undefined && value !== "");
  return Object.fromEntries(told.map(([name, value]) => [name, headerSafe(String(value))]));
}

// Header values hold no line breaks and nothing beyond ASCII; what a user may be called, does.
function headerSafe(value) {
  return /^[\x20-\x7e]+$/.test(value) ? value : encodeURIComponent(value);
}
