// OpenClaw's side of an OpenClaw-RL server: adds headers to the model requests of the provider "openclaw-rl", and says
// when a session is over. The provider itself (address, key, models) stays in the user's configuration. The server
// works without this plugin; it then reads the same facts from the text of the prompts, where most of them stand.

import { doneUrl, headersFor, isOver, remember, runOf } from "./headers.js";

const PROVIDER = "openclaw-rl"; // the key under models.providers, and the manifest's
const DONE_TIMEOUT_MS = 1500; // at shutdown OpenClaw gives all sessions together two seconds

export default {
  id: "openclaw-rl",
  name: "OpenClaw-RL",
  description: "Names session, kind of turn and user in the requests to an OpenClaw-RL server.",

  register(api) {
    const config = api.pluginConfig ?? {};
    const runs = new Map(); // run id -> what before_prompt_build told of the run
    const servers = new Map(); // session id -> the address and key its requests went to
    let isToldOfRuns = false;
    let hasWarned = false;

    // The only hook that knows what set a run off. It changes nothing in the prompt.
    api.on("before_prompt_build", (_event, run) => {
      isToldOfRuns = true;
      if (!run?.runId) return;
      const { sessionId, sessionKey, agentId, trigger, inputProvenance, channel, senderId } = run;
      remember(runs, run.runId, { sessionId, sessionKey, agentId, trigger, inputProvenance, channel, senderId });
    });

    // Headers for requests of agent runs: the run is known by the request's id. A memory flush bears the id of the
    // session it is about, so sessions would not do.
    const wrapRun = ({ streamFn }) =>
      streamFn &&
      ((model, context, options) => {
        const run = runs.get(runOf(options?.requestId));
        if (!isToldOfRuns) {
          warnOnce();
          return streamFn(model, context, options); // better no headers than everything called side
        }
        return send(streamFn, model, context, options, run);
      });

    // Headers for single questions of the client's own, such as a session's title.
    const wrapQuestion = ({ streamFn }) =>
      streamFn && ((model, context, options) => send(streamFn, model, context, options, undefined));

    function send(streamFn, model, context, options, run) {
      const ours = headersFor(run, { sessionId: options?.sessionId, config });
      const session = ours["X-Session-Id"];
      if (session && model?.baseUrl) remember(servers, session, { baseUrl: model.baseUrl, apiKey: options?.apiKey });
      return streamFn(model, context, { ...options, headers: { ...options?.headers, ...ours } });
    }

    function warnOnce() {
      if (hasWarned) return;
      hasWarned = true;
      api.logger?.warn?.(
        "openclaw-rl: may not see what sets runs off, so no headers are sent; " +
          "set plugins.entries.openclaw-rl.hooks.allowConversationAccess to true",
      );
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
      const server = servers.get(event.sessionId);
      if (!server || !isOver(event.reason)) return; // never asked anything of our server, or goes on later
      try {
        const answer = await fetch(doneUrl(server.baseUrl), {
          method: "POST",
          headers: {
            ...(server.apiKey && { Authorization: `Bearer ${server.apiKey}` }),
            "X-Session-Id": event.sessionId,
            "X-Session-Done": "1",
          },
          signal: AbortSignal.timeout(DONE_TIMEOUT_MS),
        });
        if (!answer.ok) api.logger?.warn?.(`openclaw-rl: the end of a session was answered ${answer.status}`);
      } catch (problem) {
        // The server will end the session when it has been idle; nothing is lost.
        api.logger?.warn?.(`openclaw-rl: the end of a session could not be told: ${problem?.message ?? problem}`);
      }
    });
  },
};
