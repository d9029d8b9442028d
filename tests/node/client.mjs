// The official Node client against a server whose answers are scripted; tests/serve/test_node_client.py writes the
// script in this order, and reads what is printed here: one JSON object.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY, maxRetries: 0 });
const model = "tiny";
const hello = [{ role: "user", content: "hello" }];
const parameters = { type: "object", properties: { path: { type: "string" } }, required: ["path"], additionalProperties: false };
const chatTools = [{ type: "function", function: { name: "read", description: "Reads.", parameters } }];
const tools = [{ type: "function", name: "read", description: "Reads.", parameters, strict: true }];
const told = {};

async function refused(promise) {
  try {
    await promise;
    return null;
  } catch (problem) {
    return { kind: problem.constructor.name, status: problem.status, code: problem.code, param: problem.param };
  }
}

const whole = await client.chat.completions.create({ model, messages: hello });
told.chat = { text: whole.choices[0].message.content, finish: whole.choices[0].finish_reason, usage: whole.usage };

const pieces = [];
let usage = null;
const stream = await client.chat.completions.create({
  model, messages: hello, stream: true, stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  if (chunk.choices[0]?.delta?.content) pieces.push(chunk.choices[0].delta.content);
  if (chunk.usage) usage = chunk.usage;
}
told.chatStream = { text: pieces.join(""), pieces: pieces.length, usage };

let reasoning = ""; // the helper keeps the last piece alone of what is not in OpenAI's own API
const runner = client.chat.completions.stream({ model, messages: hello, tools: chatTools });
runner.on("chunk", (chunk) => (reasoning += chunk.choices[0]?.delta?.reasoning_content ?? ""));
const calling = await runner.finalChatCompletion();
const said = calling.choices[0].message;
told.chatCalls = {
  finish: calling.choices[0].finish_reason,
  reasoning,
  calls: said.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]),
};
const results = said.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: "A" }));
const after = await client.chat.completions.create({ model, messages: [...hello, said, ...results], tools: chatTools });
told.chatLoop = after.choices[0].message.content;

const stopped = await client.chat.completions.create({ model, messages: hello, stop: ["STOP"] });
told.chatStop = [stopped.choices[0].message.content, stopped.choices[0].finish_reason];
const short = await client.chat.completions.create({ model, messages: hello, max_completion_tokens: 2 });
told.chatLength = short.choices[0].finish_reason;

const response = await client.responses.create({ model, input: "hello", instructions: "Be kind." });
told.response = { text: response.output_text, status: response.status, usage: response.usage };

const kinds = [];
const numbers = [];
const events = client.responses.stream({ model, input: "hello", tools });
for await (const event of events) {
  kinds.push(event.type);
  numbers.push(event.sequence_number);
}
const first = await events.finalResponse();
const calls = first.output.filter((item) => item.type === "function_call");
told.responseStream = {
  kinds,
  numbers,
  types: first.output.map((item) => item.type),
  calls: calls.map((call) => [call.name, JSON.parse(call.arguments)]),
};
const looped = await client.responses.create({
  model,
  tools,
  previous_response_id: first.id,
  input: calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: "A" })),
});
told.responseLoop = looped.output_text;
told.responseFetched = (await client.responses.retrieve(looped.id)).output_text;
const cut = await client.responses.create({ model, input: "hello", max_output_tokens: 2 });
told.responseLength = [cut.status, cut.incomplete_details.reason];

for (const ask of [
  () => client.chat.completions.create({ model, messages: hello, stream: true }),
  () => client.responses.create({ model, input: "hello", stream: true }),
]) {
  const given = await ask();
  for await (const event of given) break; // leaving the loop closes the connection
  given.controller.abort();
}

told.unknownModel = await refused(client.chat.completions.create({ model: "nobody", messages: hello }));
told.forced = await refused(client.responses.create({ model, input: "hello", tools, tool_choice: "required" }));
told.unknownResponse = await refused(client.responses.create({ model, input: "x", previous_response_id: "resp_x" }));
console.log(JSON.stringify(told));
