// The official JavaScript clients against a server whose model answers by rules: node client.mjs URL.
import assert from "node:assert/strict";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";

const url = process.argv[2];
const c = new OpenAI({ baseURL: url + "/v1", apiKey: "x", maxRetries: 0 });
const user = (content) => ({ role: "user", content });
const model = "fake";

const a = await c.chat.completions.create({ model, messages: [user("say hello")] });
assert.equal(a.choices[0].message.content, "hello");

let text = "", usage;
for await (const e of await c.chat.completions.create({ model, messages: [user("say good day")], stream: true, stream_options: { include_usage: true } })) {
  text += e.choices[0]?.delta.content ?? "";
  usage = e.usage ?? usage;
}
assert.equal(text, "good day");
assert.equal(usage.completion_tokens, 9);

const weather = { type: "function", function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } }, parse: JSON.parse, function: ({ city }) => "sunny in " + city } };
const runner = c.chat.completions.runTools({ model, messages: [user('call weather {"city": "Rome"}')], tools: [weather] });
assert.equal(await runner.finalContent(), "The tool said sunny in Rome");
const streamed = c.chat.completions.runTools({ model, stream: true, messages: [user('call weather {"city": "Oslo"}')], tools: [weather] });
assert.equal(await streamed.finalContent(), "The tool said sunny in Oslo");

const schema = { type: "object", properties: { age: { type: "integer" } }, required: ["age"], additionalProperties: false };
const p = await c.chat.completions.parse({ model, messages: [user("x")], response_format: { type: "json_schema", json_schema: { name: "p", strict: true, schema } } });
assert.equal(JSON.parse(p.choices[0].message.content).age, 7);

const r = await c.responses.create({ model, input: "say one" });
assert.equal(r.output_text, "one");
const s = c.responses.stream({ model, input: "think two", previous_response_id: r.id });
let deltas = "";
s.on("response.output_text.delta", (e) => (deltas += e.delta));
assert.equal((await s.finalResponse()).output_text, "It is two");
assert.equal(deltas, "It is two");
assert.equal((await c.responses.retrieve(r.id)).id, r.id);
assert.equal((await c.responses.inputItems.list(r.id)).data.length, 1);

await assert.rejects(c.embeddings.create({ model, input: "x" }), (e) => e instanceof OpenAI.BadRequestError && e.code === "unsupported_model");
await assert.rejects(c.chat.completions.create({ model: "none", messages: [] }), (e) => e instanceof OpenAI.NotFoundError && e.param === "model");
await assert.rejects(c.chat.completions.create({ model, messages: [user("x")], temperature: 9 }), (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature");
const names = [];
for await (const m of c.models.list()) names.push(m.id);
assert.ok(names.includes(model));

const abort = await c.chat.completions.create({ model, messages: [user("say on and on")], max_tokens: 90000, ignore_eos: true, stream: true });
let n = 0;
for await (const _ of abort) if (++n === 5) break; // which aborts
assert.equal(n, 5);

const k = new Anthropic({ baseURL: url, apiKey: "x", maxRetries: 0 });
const m = await k.messages.create({ model, max_tokens: 100, system: "be short", messages: [user("say hello")] });
assert.deepEqual([m.content[0].text, m.stop_reason], ["hello", "end_turn"]);
const ms = k.messages.stream({ model, max_tokens: 2000, messages: [user("think four")], thinking: { type: "enabled", budget_tokens: 1024 } });
let thoughts = "";
ms.on("thinking", (d) => (thoughts += d));
const final = await ms.finalMessage();
assert.deepEqual([thoughts, final.content.map((b) => b.type).join(), final.content[1].text], ["Let me see: four", "thinking,text", "It is four"]);
const tools = [{ name: "weather", input_schema: { type: "object" } }];
const messages = [user('call weather {"city": "Rome"}')];
let t = await k.messages.stream({ model, max_tokens: 200, messages, tools }).finalMessage();
assert.equal(t.stop_reason, "tool_use");
messages.push({ role: "assistant", content: t.content });
messages.push({ role: "user", content: t.content.filter((b) => b.type === "tool_use").map((b) => ({ type: "tool_result", tool_use_id: b.id, content: "wet in " + b.input.city })) });
t = await k.messages.create({ model, max_tokens: 200, messages, tools });
assert.equal(t.content[0].text, "The tool said wet in Rome");
assert.ok((await k.messages.countTokens({ model, messages: [user("hi")] })).input_tokens > 5);
await assert.rejects(k.messages.create({ model: "none", max_tokens: 1, messages: [user("x")] }), (e) => e instanceof Anthropic.NotFoundError && e.error.error.type === "not_found_error");
console.log("openai and @anthropic-ai/sdk: ok");
