import assert from "node:assert/strict";
import { createServer } from "node:http";
import { beforeEach, test } from "node:test";

import plugin, { sharedState } from "../index.js";

beforeEach(() => {
  const state = sharedState();
  state.runs.clear();
  state.sessions.clear();
  state.hasWarned = false;
});

/** The plugin as OpenClaw would hold it: its hooks, its provider, what it logged. */
function registered(pluginConfig) {
  const held = { hooks: {}, provider: undefined, warnings: [] };
  plugin.register({
    pluginConfig,
    config: { models: {} },
    runtime: { modelAuth: { resolveApiKeyForProvider: async ({ provider }) => ({ apiKey: `key of ${provider}` }) } },
    logger: { warn: (line) => held.warnings.push(line) },
    on: (name, handler) => (held.hooks[name] = handler),
    registerProvider: (provider) => (held.provider = provider),
  });
  return held;
}

const asked = (_model, _context, options) => options;
const RUN = { runId: "r1", sessionId: "s1", sessionKey: "agent:main:main", agentId: "main", trigger: "user" };

test("a run's requests bear its headers beside those that were there", () => {
  const { hooks, provider } = registered();
  hooks.before_prompt_build({}, RUN);
  const stream = provider.wrapStreamFn({ streamFn: asked });
  const sent = stream({}, {}, { requestId: "r1:model:1", headers: { traceparent: "00" } });
  assert.deepEqual(sent.headers, {
    traceparent: "00",
    "X-Session-Id": "s1",
    "X-Turn-Type": "main",
    "X-Agent-Id": "main",
  });
});

test("a memory flush is side although it bears the id of the user's session", () => {
  const { hooks, provider } = registered();
  hooks.before_prompt_build({}, RUN);
  hooks.before_prompt_build({}, { ...RUN, runId: "r2", trigger: "memory" });
  const sent = provider.wrapStreamFn({ streamFn: asked })({}, {}, { requestId: "r2:model:1", sessionId: "s1" });
  assert.equal(sent.headers["X-Turn-Type"], "side");
});

test("a title is side", () => {
  const sent = registered().provider.wrapSimpleCompletionStreamFn({ streamFn: asked })({}, {}, {});
  assert.deepEqual(sent.headers, { "X-Turn-Type": "side" });
});

test("without the right to see runs nothing is called side, and the log says what to do", () => {
  const { provider, warnings } = registered();
  const stream = provider.wrapStreamFn({ streamFn: asked });
  assert.equal(stream({}, {}, { requestId: "r1:model:1" }).headers, undefined);
  stream({}, {}, { requestId: "r1:model:2" });
  assert.equal(warnings.length, 1);
  assert.match(warnings[0], /allowConversationAccess/);
});

test("a provider without a stream to wrap is left alone", () => {
  assert.equal(registered().provider.wrapStreamFn({}), undefined);
});

test("the hooks of one registration serve the provider of another", () => {
  registered().hooks.before_prompt_build({}, RUN);
  const sent = registered().provider.wrapStreamFn({ streamFn: asked })({}, {}, { requestId: "r1:model:1" });
  assert.equal(sent.headers["X-Turn-Type"], "main");
});

test("the end of a session is told to the server the session talked to, with the provider's key", async (t) => {
  const told = [];
  const server = createServer((request, response) => {
    told.push([request.url, request.headers["x-session-id"], request.headers.authorization]);
    response.end("{}");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { hooks, provider } = registered();
  hooks.before_prompt_build({}, RUN);
  const baseUrl = `http://127.0.0.1:${server.address().port}/v1`;
  provider.wrapStreamFn({ streamFn: asked })({ baseUrl }, {}, { requestId: "r1:model:1" });
  await hooks.session_end({ sessionId: "s1", reason: "compaction" });
  await hooks.session_end({ sessionId: "elsewhere", reason: "reset" });
  assert.deepEqual(told, []);
  await hooks.session_end({ sessionId: "s1", reason: "reset" });
  assert.deepEqual(told, [["/v1/rl/session_done", "s1", "Bearer key of openclaw-rl"]]);
});

test("a server that is away costs a warning and nothing else", async () => {
  const { hooks, provider, warnings } = registered();
  hooks.before_prompt_build({}, RUN);
  const model = { baseUrl: "http://127.0.0.1:1/v1" };
  provider.wrapStreamFn({ streamFn: asked })(model, {}, { requestId: "r1:model:1" });
  await hooks.session_end({ sessionId: "s1", reason: "reset" });
  assert.equal(warnings.length, 1);
});

test("sessions are not ended where the user does not want it", () => {
  assert.equal(registered({ endSessions: false }).hooks.session_end, undefined);
});
