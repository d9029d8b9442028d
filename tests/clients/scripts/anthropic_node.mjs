// The official anthropic library for Node: messages, streams, tools, a tool runner's loop, structured answers.
import Anthropic from "@anthropic-ai/sdk";
import { API_KEY, BASE_URL, LONG, PICTURE, call, calls, note, play, say, slowly, smallRoom, waitQuiet, weather } from "./talking.mjs";

const client = new Anthropic({ baseURL: BASE_URL, apiKey: API_KEY, maxRetries: 0 });
const WAY = { model: "default", max_tokens: 500 };
const input_schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: "get_weather", description: "The weather of a city.", input_schema }];
const TOLD = [["ask", "It is **seven**!"], ["correction", "It is seven."], ["more", "Thirteen."]];

function ran(made) {
  try {
    return { type: "tool_result", tool_use_id: made.id, content: weather(made.input) };
  } catch (problem) {
    return { type: "tool_result", tool_use_id: made.id, content: problem.message, is_error: true };
  }
}
async function chat(messages, content, more = {}) {
  messages.push({ role: "user", content });
  for (;;) {
    const reply = await client.messages.create({ ...WAY, messages, ...more });
    messages.push({ role: "assistant", content: reply.content });
    const made = reply.content.filter((each) => each.type === "tool_use");
    if (!made.length) return reply.content.filter((each) => each.type === "text").map((each) => each.text).join("");
    messages.push({ role: "user", content: made.map(ran) });
  }
}
async function plain() {
  const messages = [];
  for (const [kind, words] of TOLD) await note("runs", (await chat(messages, await say(kind, [words]), { system: "You help." })) === words);
}
async function streamed() {
  const messages = [];
  for (const [kind, words] of [["ask", "Seven is the number here."], ["correction", "Seven it is then."], ["more", "Eight it is."]]) {
    messages.push({ role: "user", content: await say(kind, [words]) });
    let pieces = 0;
    const stream = client.messages.stream({ ...WAY, messages }).on("text", () => pieces++);
    messages.push({ role: "assistant", content: (await stream.finalMessage()).content });
    await note("streams", pieces > 2, `${pieces}`);
  }
}
async function tools_results() {
  const messages = [];
  await chat(messages, await say("ask", [call("get_weather", { city: "Oslo" }), "Rain."]), { tools });
  await chat(messages, await say("more", [call("get_weather", { city: "Atlantis" }), "There is none."]), { tools });
  const both = calls(["get_weather", { city: "Bergen" }], ["get_weather", { city: "Turku" }]);
  const text = await chat(messages, await say("more", [both, "Fog and snow."]), { tools });
  const last = await chat(messages, await say("correction", ["Six and minus one."]), { tools });
  await note("tools", text === "Fog and snow." && last === "Six and minus one.", [text, last]);
}
async function tools_streamed() {
  const messages = [{ role: "user", content: await say("ask", [call("get_weather", { city: "Porto" }), "Sun."]) }];
  const first = await client.messages.stream({ ...WAY, messages, tools }).finalMessage();
  messages.push({ role: "assistant", content: first.content });
  messages.push({ role: "user", content: first.content.filter((each) => each.type === "tool_use").map(ran) });
  const second = await client.messages.stream({ ...WAY, messages, tools }).finalMessage();
  messages.push({ role: "assistant", content: second.content });
  const last = await chat(messages, await say("correction", ["Sunny."]), { tools });
  await note("tools", first.stop_reason === "tool_use" && last === "Sunny.", [first.stop_reason, last]);
}
async function structured_forced() {
  for (const tool_choice of [{ type: "any" }, { type: "tool", name: "get_weather" }]) {
    const messages = [{ role: "user", content: await say("ask", [call("get_weather", { city: "Oslo" })], " Use the tool.") }];
    const reply = await client.messages.create({ ...WAY, messages, tools, tool_choice });
    await note("structured", reply.stop_reason === "tool_use", tool_choice);
  }
}
async function image() {
  const source = { type: "base64", media_type: "image/png", data: PICTURE };
  try {
    await note("image", true, await chat([], [{ type: "image", source }, { type: "text", text: await say("look", ["I cannot see."]) }]));
  } catch (problem) {
    await note("image", problem.message.includes("image"), problem.message);
  }
}
async function overflow() {
  const messages = [];
  await chat(messages, await say("ask", ["Short."]));
  await smallRoom(200);
  try {
    await chat(messages, await say("long", ["Too long."], LONG.repeat(40)));
    await note("overflow", false, "nothing was said");
  } catch (problem) {
    await note("overflow", problem.message.includes("prompt is too long:"), problem.message);
  }
  await smallRoom(0);
  messages.pop();
  await note("overflow", (await chat(messages, await say("correction", ["Shorter."]))) === "Shorter.");
}
async function cancelled() {
  const messages = [];
  await chat(messages, await say("ask", ["First."]));
  let heard = "";
  messages.push({ role: "user", content: await say("tell", ["Once upon a time there was a lighthouse. ".repeat(6)]) });
  await slowly(async () => {
    const stream = client.messages.stream({ ...WAY, messages });
    stream.on("text", (piece) => {
      heard += piece;
      if (heard.length > 12) stream.abort();
    });
    await stream.done().catch(() => undefined);
    await waitQuiet();
  });
  messages.push({ role: "assistant", content: heard.trim() });
  await note("cancelled", (await chat(messages, await say("on", ["Hello."]))) === "Hello.", heard);
}
await play(plain, streamed, tools_results, tools_streamed, structured_forced, image, overflow, cancelled);
