import assert from "node:assert/strict";
import { test } from "node:test";

import { doneUrl, headersFor, isOver, remember, runOf, turnType, userOf } from "../headers.js";

const RUN = { runId: "r1", sessionId: "s1", sessionKey: "agent:main:openai-user:mia", agentId: "main", trigger: "user" };

test("a step belongs to its run, and a compaction within the run does not", () => {
  assert.equal(runOf("r1:model:12"), "r1");
  assert.equal(runOf("r1:compaction:7:model:1"), "r1:compaction:7");
  assert.equal(runOf(undefined), undefined);
});

test("a user's turn is main; the client's own errands are side", () => {
  assert.equal(turnType(RUN), "main");
  assert.equal(turnType({ ...RUN, trigger: "manual" }), "main");
  for (const trigger of ["heartbeat", "cron", "memory", "overflow", undefined])
    assert.equal(turnType({ ...RUN, trigger }), "side", `trigger ${trigger}`);
  for (const kind of ["cron", "subagent", "acp", "boot", "helper", "hook", "internal-session-effects"])
    assert.equal(turnType({ ...RUN, sessionKey: `agent:main:${kind}:x` }), "side", kind);
  assert.equal(turnType({ ...RUN, sessionKey: "agent:main:cronies" }), "main");
  assert.equal(turnType({ ...RUN, inputProvenance: { kind: "inter_session" } }), "side");
  assert.equal(turnType(undefined), "side");
});

test("the headers say session, kind, user and agent, and leave out what is not known", () => {
  assert.deepEqual(headersFor({ ...RUN, senderId: "42", channel: "telegram" }), {
    "X-Session-Id": "s1",
    "X-Turn-Type": "main",
    "X-User-Id": "telegram:42",
    "X-Agent-Id": "main",
  });
  assert.deepEqual(headersFor(undefined, { sessionId: "s1" }), { "X-Session-Id": "s1", "X-Turn-Type": "side" });
});

test("a configured user outranks the channel's sender", () => {
  assert.equal(userOf({ senderId: "42" }, { user: "mia" }), "mia");
  assert.equal(userOf({ senderId: "42" }), "42");
  assert.equal(userOf(RUN), undefined);
});

test("a value that no header could hold is escaped", () => {
  assert.equal(headersFor({ ...RUN, senderId: "Zoë\nX-Evil: 1" })["X-User-Id"], "Zo%C3%AB%0AX-Evil%3A%201");
});

test("a session that was compacted or whose gateway stops goes on later", () => {
  for (const reason of ["new", "reset", "idle", "daily", "deleted"]) assert.ok(isOver(reason), reason);
  for (const reason of ["compaction", "shutdown", "restart"]) assert.ok(!isOver(reason), reason);
});

test("the end of a session is told under /v1 whichever way the base URL is written", () => {
  for (const base of ["http://h:1/v1", "http://h:1/v1/", "http://h:1", "http://h:1/"])
    assert.equal(doneUrl(base), "http://h:1/v1/rl/session_done");
});

test("only the newest are remembered", () => {
  const map = new Map();
  for (const key of ["a", "b", "a", "c"]) remember(map, key, 1, 2);
  assert.deepEqual([...map.keys()], ["a", "c"]);
});
