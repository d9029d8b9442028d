// OpenClaw's side of an OpenClaw-RL server: adds headers to the model requests of the provider "openclaw-rl", and says
// when a session is over. The provider itself (address, key, models) stays in the user's configuration. The server
// works without this plugin; it then reads the same facts from the text of the prompts, where most of them stand.

import { doneUrl, headersFor, isOver, remember, runOf } from "./headers.js";

const PROVIDER = "openclaw-rl"; // the key under models.providers, and the manifest's
const DONE_TIMEOUT_MS = 1500; // at shutdown OpenClaw gives all sessions together two seconds

// What is known of runs and sessions. OpenClaw evaluates this module afresh for each purpose it registers it for, and
// calls the hooks of one copy and the provider of another, so it has to stand outside the module.
const SHARED = Symbol.for("openclaw-rl.state");

/** `runs`: run id -> what before_prompt_build told of it. `sessions`: session id -> the base URL it talked to. */
export function sharedState() {
  return (globalThis[SHARED] ??= { runs: new Map(), sessions: new Map(), hasWarned: false });
}

export default {
  id: "openclaw-rl",
  name: "OpenClaw-RL",
  description: "Names session, kind of turn and user in the requests to an OpenClaw-RL server.",

  register(api) {
    const config = api.pluginConfig ?? {};
    const state = sharedState();

    // The only hook that knows what set a run off. It changes nothing in the prompt.
    api.on("before_prompt_build", (_event, run) => {
      if (!run?.runId) return;
      const { sessionId, sessionKey, agentId, trigger, inputProvenance, channel, senderId } = run;
      remember(state.runs, run.runId, { sessionId, sessionKey, agentId, trigger, inputProvenance, channel, senderId });
    });

    // Requests of agent runs: the run is known by the request's id. The session would not do, since a memory flush
    // bears the id of the session it is about.
    const wrapRun = ({ streamFn }) =>
      streamFn &&
      ((model, context, options) => {
        if (state.runs.size === 0) return unmarked(streamFn, model, context, options);
        return send(streamFn, model, context, options, state.runs.get(runOf(options?.requestId)));
      });

    // Single questions of the client's own, such as a session's title.
    const wrapQuestion = ({ streamFn }) =>
      streamFn && ((model, context, options) => send(streamFn, model, context, options, undefined));

    function send(streamFn, model, context, options, run) {
      const ours = headersFor(run, { sessionId: options?.sessionId, config });
      if (ours["X-Session-Id"]) remember(state.sessions, ours["X-Session-Id"], model?.baseUrl);
      return streamFn(model, context, { ...options, headers: { ...options?.headers, ...ours } });
    }

    // Without the hook everything would be called side and nothing learned: then the server's own rules know more.
    function unmarked(streamFn, model, context, options) {
      if (!state.hasWarned) {
        state.hasWarned = true;
        warn("may not see what sets runs off, so no headers are sent; set plugins.entries.openclaw-rl.hooks.allowConversationAccess to true");
      }
      return streamFn(model, context, options);
    }

    function warn(text) {
      api.logger?.warn?.(`openclaw-rl: ${text}`);
    }

    async function sayOver(session, baseUrl) {
      const auth = await api.runtime?.modelAuth?.resolveApiKeyForProvider?.({ provider: PROVIDER, cfg: api.config });
      const answer = await fetch(doneUrl(baseUrl), {
        method: "POST",
        headers: {
          ...(auth?.apiKey && { Authorization: `Bearer ${auth.apiKey}` }),
          "X-Session-Id": session,
          "X-Session-Done": "1",
        },
        signal: AbortSignal.timeout(DONE_TIMEOUT_MS),
      });
      if (!answer.ok) warn(`the end of a session was answered ${answer.status}`);
    }

    api.registerProvider({
      id: PROVIDER,
      label: "OpenClaw-RL",
      auth: [], // the key stands in the provider's configuration
      wrapStreamFn: wrapRun,
      wrapSimpleCompletionStreamFn: wrapQuestion,
    });

    if (config.endSessions === false) return;
    api.on("session_end", async (event) => {
      const baseUrl = state.sessions.get(event.sessionId);
      if (!baseUrl || !isOver(event.reason)) return; // never asked anything of our server, or goes on later
      try {
        await sayOver(event.sessionId, baseUrl);
      } catch (problem) {
        // The server will end the session when it has been idle; nothing is lost.
        warn(`the end of a session could not be told: ${problem?.message ?? problem}`);
      }
    });
  },
};
