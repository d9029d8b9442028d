// What a client's script says to the stage, as talking.py does it for Python.
const STAGE = process.env.STAGE;
export const BASE_URL = process.env.BASE_URL;
export const API_KEY = process.env.API_KEY;
export const LONG = "The lighthouse keeper wrote down the weather of every single day in his book. ";
export const PICTURE =
  "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC";

export async function direct(what, said = {}) {
  const answer = await fetch(`${STAGE}/${what}`, { method: "POST", body: JSON.stringify(said) });
  return answer.json();
}
export async function say(kind, replies, more = "") {
  return (await direct("say", { kind, replies, more })).typed;
}
export const call = (name, given) => ({ calls: [[name, given]] });
export const calls = (...made) => ({ calls: made });
export const note = (what, good, detail = "") =>
  process.env.BUNDLED || direct("note", { what, good: Boolean(good), detail: (typeof detail === "string" ? detail : JSON.stringify(detail) ?? "").slice(0, 600) });
export async function smallRoom(more) {
  const state = await direct("state");
  await direct("context", { tokens: more ? state.prompt_tokens + more : 0 });
}
export async function waitQuiet() {
  for (let at = 0; at < 200 && (await direct("state")).running; at++) await new Promise((done) => setTimeout(done, 100));
}
export async function slowly(act) {
  await direct("slow", { is_slow: true });
  try {
    await act();
  } finally {
    await waitQuiet();
    await direct("slow", { is_slow: false });
  }
}
const COLUMNS = { structured: "structured", plain: "runs", streamed: "streams", tools: "tools" };
export async function play(...acts) {
  for (const act of acts) {
    if (process.env.BUNDLED && !["plain", "plain_chat"].includes(act.name)) continue;
    await direct("talk", { name: act.name });
    try {
      await act();
    } catch (problem) {
      console.error(problem);
      const word = Object.keys(COLUMNS).find((each) => act.name.includes(each));
      const detail = `${act.name}: ${problem.name}: ${problem.message}`.slice(0, 600);
      await direct("note", { what: word ? COLUMNS[word] : act.name, good: false, detail });
    } finally {
      await direct("context", { tokens: 0 });
      await direct("slow", { is_slow: false });
    }
  }
}
const WEATHER = { oslo: "4 degrees, rain", bergen: "6 degrees, fog", turku: "-1 degrees, snow", porto: "17 degrees, sun" };
export function weather({ city }) {
  const found = WEATHER[String(city).toLowerCase()];
  if (!found) throw new Error(`no weather station in ${city}`);
  return `${city}: ${found}`;
}
