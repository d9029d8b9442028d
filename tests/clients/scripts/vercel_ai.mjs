// The Vercel AI SDK over an OpenAI-compatible provider: text, streams, tools in steps, structured answers.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { API_KEY, BASE_URL, LONG, PICTURE, call, calls, note, play, say, slowly, smallRoom, waitQuiet, weather } from "./talking.mjs";

const provider = createOpenAICompatible({ name: "openclaw-rl", baseURL: `${BASE_URL}/v1`, apiKey: API_KEY, supportsStructuredOutputs: true });
const model = provider("default");
const WAY = { model, maxRetries: 0 };
const get_weather = tool({
  description: "The weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async (given) => weather(given),
});
const tools = { get_weather };
const schema = z.object({ name: z.string(), age: z.number() });
const TOLD = [["ask", "It is **seven**!"], ["correction", "It is seven."], ["more", "Thirteen."]];

async function chat(messages, content, more = {}) {
  messages.push({ role: "user", content });
  const found = await generateText({ ...WAY, messages, stopWhen: stepCountIs(5), ...more });
  messages.push(...found.responseMessages);
  return found.text;
}
async function plain() {
  const messages = [];
  for (const [kind, words] of TOLD) {
    const text = await chat(messages, await say(kind, [words]), { system: "You help." });
    await note("runs", text === words, text);
  }
}
async function streamed() {
  const messages = [];
  for (const [kind, words] of [["ask", "Seven is the number here."], ["correction", "Seven it is then."]]) {
    messages.push({ role: "user", content: await say(kind, [words]) });
    const found = streamText({ ...WAY, messages });
    let pieces = 0;
    for await (const piece of found.textStream) pieces += piece.length > 0;
    messages.push(...(await found.responseMessages));
    await note("streams", pieces > 2 && (await found.text) === words, `${pieces}`);
  }
}
async function tools_steps() {
  const messages = [];
  await chat(messages, await say("ask", [call("get_weather", { city: "Oslo" }), "Rain."]), { tools });
  await chat(messages, await say("more", [call("get_weather", { city: "Atlantis" }), "There is none."]), { tools });
  const both = calls(["get_weather", { city: "Bergen" }], ["get_weather", { city: "Turku" }]);
  const text = await chat(messages, await say("more", [both, "Fog and snow."]), { tools });
  const last = await chat(messages, await say("correction", ["Six and minus one."]), { tools });
  await note("tools", text === "Fog and snow." && last === "Six and minus one.", [text, last]);
}
async function tools_streamed() {
  const content = await say("ask", [calls(["get_weather", { city: "Porto" }], ["get_weather", { city: "Oslo" }]), "Sun and rain."]);
  const messages = [{ role: "user", content }];
  const found = streamText({ ...WAY, messages, tools, stopWhen: stepCountIs(4) });
  await found.consumeStream();
  messages.push(...(await found.responseMessages));
  const last = await chat(messages, await say("correction", ["Sunny."]), { tools });
  await note("tools", (await found.text) === "Sun and rain." && last === "Sunny.", [await found.text, last]);
}
async function tools_malformed() {
  const messages = [];
  await chat(messages, await say("ask", [call("no_such_tool", { a: 1 }), "I used the wrong tool."]), { tools });
  await chat(messages, await say("more", [call("get_weather", { town: 7 }), "And wrong arguments."]), { tools });
  const last = await chat(messages, await say("correction", ["Never mind it."]), { tools });
  await note("tools", last === "Never mind it.", last);
}
async function structured_output() {
  const prompt = await say("ask", ['{"name":"Ada","age":36}'], " As a record.");
  const found = await generateText({ ...WAY, prompt, output: Output.object({ schema }) });
  await note("structured", (found.output ?? found.experimental_output)?.age === 36);
}
async function structured_object() {
  if (!generateObject) return;
  const found = await generateObject({ ...WAY, prompt: await say("ask", ['{"name":"Ada","age":36}']), schema });
  await note("structured", found.object.age === 36);
}
async function structured_forced() {
  const prompt = await say("ask", [call("get_weather", { city: "Oslo" }), "Rain."], " Use the tool.");
  const found = await generateText({ ...WAY, prompt, tools, toolChoice: "required" });
  await note("structured", found.toolCalls.length === 1);
}
async function image() {
  const content = [{ type: "text", text: await say("look", ["I cannot see."]) }, { type: "image", image: `data:image/png;base64,${PICTURE}` }];
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
    await note("overflow", problem.message.includes("context"), problem.message);
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
    const stop = new AbortController();
    const found = streamText({ ...WAY, messages, abortSignal: stop.signal });
    for await (const piece of found.textStream) {
      heard += piece;
      if (heard.length > 12) {
        stop.abort();
        break;
      }
    }
    await waitQuiet();
  });
  messages.push({ role: "assistant", content: heard });
  await note("cancelled", (await chat(messages, await say("on", ["Hello."]))) === "Hello.", heard);
}
await play(plain, streamed, tools_steps, tools_streamed, tools_malformed, structured_output, structured_object, structured_forced);
await play(image, overflow, cancelled);
