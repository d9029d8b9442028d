// The official openai library for Node: chat completions, responses, tools, structured answers.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { API_KEY, BASE_URL, LONG, PICTURE, call, calls, note, play, say, slowly, smallRoom, waitQuiet, weather } from "./talking.mjs";

const client = new OpenAI({ baseURL: `${BASE_URL}/v1`, apiKey: API_KEY, maxRetries: 0 });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const FUNCTION = { name: "get_weather", description: "The weather of a city.", parameters };
const tools = [{ type: "function", function: FUNCTION }];
const Person = z.object({ name: z.string(), age: z.number() });

function ran(given) {
  try {
    return weather(JSON.parse(given));
  } catch (problem) {
    return `Error: ${problem.message}`;
  }
}
async function chat(messages, content, more = {}) {
  messages.push({ role: "user", content });
  for (;;) {
    const made = await client.chat.completions.create({ model: "default", messages, ...more });
    const reply = made.choices[0].message;
    messages.push(reply);
    if (!reply.tool_calls?.length) return reply.content;
    for (const each of reply.tool_calls)
      messages.push({ role: "tool", tool_call_id: each.id, content: ran(each.function.arguments) });
  }
}
const TOLD = [["ask", "It is **seven**!"], ["correction", "It is seven."], ["more", "Thirteen."]];

async function plain_chat() {
  const messages = [{ role: "system", content: "You help." }];
  for (const [kind, words] of TOLD) await note("runs", (await chat(messages, await say(kind, [words]))) === words);
}
async function plain_responses() {
  let last;
  for (const [kind, words] of TOLD) {
    last = await client.responses.create({ model: "default", input: await say(kind, [words]), previous_response_id: last?.id });
    await note("runs", last.output_text === words);
  }
}
async function streamed_chat() {
  const messages = [];
  for (const [kind, words] of [["ask", "Seven is the number here."], ["correction", "Seven it is then."]]) {
    messages.push({ role: "user", content: await say(kind, [words]) });
    const runner = client.chat.completions.stream({ model: "default", messages });
    let pieces = 0;
    runner.on("content", () => pieces++);
    const text = await runner.finalContent();
    messages.push({ role: "assistant", content: text });
    await note("streams", text === words && pieces > 2, `${pieces}`);
  }
}
async function tools_chat() {
  const messages = [];
  await chat(messages, await say("ask", [call("get_weather", { city: "Oslo" }), "Rain."]), { tools });
  await chat(messages, await say("more", [call("get_weather", { city: "Atlantis" }), "There is none."]), { tools });
  const both = calls(["get_weather", { city: "Bergen" }], ["get_weather", { city: "Turku" }]);
  const text = await chat(messages, await say("more", [both, "Fog and snow."]), { tools });
  const last = await chat(messages, await say("correction", ["Six and minus one."]), { tools });
  await note("tools", text === "Fog and snow." && last === "Six and minus one.", [text, last]);
}
async function tools_run() {
  const given = { type: "function", function: { ...FUNCTION, parse: JSON.parse, function: (city) => weather(city) } };
  const content = await say("ask", [call("get_weather", { city: "Porto" }), "Sun."]);
  const runner = client.chat.completions.runTools({ model: "default", stream: true, messages: [{ role: "user", content }], tools: [given] });
  await note("tools", (await runner.finalContent()) === "Sun.");
}
async function structured_chat() {
  const messages = [{ role: "user", content: await say("ask", ['{"name":"Ada","age":36}'], " As a record.") }];
  const made = await client.chat.completions.parse({ model: "default", messages, response_format: zodResponseFormat(Person, "person") });
  await note("structured", made.choices[0].message.parsed?.age === 36);
}
async function structured_forced() {
  const messages = [{ role: "user", content: await say("ask", [call("get_weather", { city: "Oslo" })], " Use the tool.") }];
  const made = await client.chat.completions.create({ model: "default", messages, tools, tool_choice: "required" });
  await note("structured", made.choices[0].message.tool_calls?.length === 1);
}
async function image() {
  const url = `data:image/png;base64,${PICTURE}`;
  const content = [{ type: "text", text: await say("look", ["I cannot see."]) }, { type: "image_url", image_url: { url } }];
  try {
    await note("image", true, await chat([], content));
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
    await note("overflow", problem.code === "context_length_exceeded", problem.message);
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
    const stream = await client.chat.completions.create({ model: "default", messages, stream: true });
    for await (const each of stream) {
      heard += each.choices[0]?.delta?.content ?? "";
      if (heard.length > 12) break;
    }
    await waitQuiet();
  });
  messages.push({ role: "assistant", content: heard });
  await note("cancelled", (await chat(messages, await say("on", ["Hello."]))) === "Hello.", heard);
}
await play(plain_chat, plain_responses, streamed_chat, tools_chat, tools_run, structured_chat, structured_forced, image, overflow, cancelled);
