// The page: a conversation as a tree of branches, its stream, and the live view of the batch.
"use strict";

const $ = (id) => document.getElementById(id);
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"];
const root = { role: "root", children: [], chosen: 0 };
let models = [];
let running = null; // AbortController of the answer under way

const headers = () => {
  const h = { "Content-Type": "application/json" };
  if ($("key").value) h.Authorization = "Bearer " + $("key").value;
  return h;
};
const say = (text, bad) => { $("status").textContent = text; $("status").className = bad ? "bad" : ""; };

// path gives the messages from the beginning to a node, or to the end of the chosen branches.
function path(to) {
  const out = [];
  if (to) { for (let n = to; n !== root; n = n.parent) out.unshift(n); return out; }
  for (let n = root.children[root.chosen]; n; n = n.children[n.chosen]) out.push(n);
  return out;
}

function add(parent, role, content) {
  const n = { role, content, parent, children: [], chosen: 0, reasoning: "", tokens: [] };
  parent.chosen = parent.children.push(n) - 1;
  return n;
}

function button(text, label, action) {
  const b = el("button", { type: "button", textContent: text });
  b.setAttribute("aria-label", label);
  b.addEventListener("click", action);
  return b;
}

function render() {
  const chat = $("chat");
  const bottom = chat.scrollHeight - chat.scrollTop - chat.clientHeight < 60;
  chat.replaceChildren(...path().map(article));
  if (bottom) chat.scrollTop = chat.scrollHeight;
}

function article(n) {
  const a = el("article", { className: n.role + (n.busy ? " busy" : "") });
  n.view = a;
  a.setAttribute("aria-busy", String(!!n.busy)); // read aloud when it is whole
  a.append(el("h3", { textContent: n.role === "user" ? "You" : "Model" }));
  const thoughts = el("details", { className: "thoughts", open: !!n.busy });
  thoughts.append(el("summary", { textContent: "Reasoning" }), el("span"));
  thoughts.hidden = !n.reasoning;
  thoughts.lastChild.textContent = n.reasoning;
  const body = el("div", { className: "body" });
  if (n.role === "user") body.append(el("p", { textContent: n.content, style: "white-space: pre-wrap" }));
  else markdown(n.content, body);
  a.append(thoughts, body);
  if (n.tokens.length && n.showTokens) a.append(tokenView(n));
  a.append(actions(n));
  return a;
}

function actions(n) {
  const row = el("div", { className: "actions" });
  const siblings = n.parent.children;
  if (siblings.length > 1) {
    const go = (d) => () => { if (!running) { n.parent.chosen = (n.parent.chosen + d + siblings.length) % siblings.length; render(); } };
    row.append(button("‹", "Previous branch", go(-1)), `${n.parent.chosen + 1}/${siblings.length}`, button("›", "Next branch", go(1)));
  }
  if (n.busy) return row;
  if (n.role === "user") row.append(button("Edit", "Edit this message", () => edit(n)));
  else row.append(button("Again", "Answer again", () => !running && answer(n.parent)));
  row.append(button("Copy", "Copy this message", () => navigator.clipboard && navigator.clipboard.writeText(n.content)));
  if (n.tokens.length) row.append(button("Probabilities", "Show token probabilities", () => { n.showTokens = !n.showTokens; render(); }));
  if (n.note) row.append(n.note);
  return row;
}

// edit makes a branch of another message at the same place.
function edit(n) {
  if (running) return;
  const field = el("textarea", { value: n.content, rows: 3 });
  field.setAttribute("aria-label", "Edited message");
  const done = () => { if (field.value.trim()) answer(add(n.parent, "user", field.value)); };
  field.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); done(); }
    if (e.key === "Escape") { e.stopPropagation(); render(); }
  });
  n.view.replaceChildren(el("div", { className: "edit" }, field, el("div", { className: "actions" }, button("Send", "Send the edited message", done), button("Cancel", "Cancel editing", render))));
  field.focus();
}

// tokenView shows each token on a colour of its probability; a token opens what could have come.
function tokenView(n) {
  const box = el("div", { className: "tokens" });
  box.setAttribute("aria-label", "Token probabilities");
  for (const t of n.tokens) {
    const p = Math.exp(t.logprob);
    const b = el("button", { type: "button", textContent: t.token });
    b.style.background = `hsl(${Math.round(120 * p)} 70% 72%)`;
    b.title = `${(100 * p).toFixed(1)} %`;
    b.setAttribute("aria-label", `${t.token}, ${(100 * p).toFixed(1)} percent`);
    b.addEventListener("click", () => {
      const old = box.querySelector(".choices");
      const mine = old && old.previousSibling === b;
      if (old) old.remove();
      if (mine) return;
      const list = el("div", { className: "choices" });
      for (const x of t.top_logprobs || []) {
        const q = Math.exp(x.logprob);
        const bar = el("span", { className: "bar" });
        bar.style.width = Math.max(1, 120 * q) + "px";
        list.append(el("div", {}, bar, `${JSON.stringify(x.token)} ${(100 * q).toFixed(2)} %`));
      }
      b.after(list);
    });
    box.append(b);
  }
  return box;
}

// request is what is asked of the server: a conversation, or its text where the model has no chat template.
function request(parent) {
  const name = $("model").value;
  const model = models.find((x) => x.id === name) || {};
  const q = { model: name, stream: true, stream_options: { include_usage: true } };
  for (const id of NUMBERS) {
    const v = $(id).value.trim();
    if (v !== "" && !((id === "top_k" || id === "min_p") && +v === 0) && !((id === "repetition_penalty" || id === "top_p") && +v === 1)) q[id] = +v;
  }
  const messages = path(parent).map((n) => ({ role: n.role, content: n.content }));
  if ($("system").value.trim()) messages.unshift({ role: "system", content: $("system").value });
  if (model.loaded && !model.chat) {
    q.prompt = messages.map((x) => x.content).join("");
    if (!q.max_tokens) q.max_tokens = 128;
    if ($("logprobs").checked) q.logprobs = 5;
    return ["v1/completions", q];
  }
  q.messages = messages;
  if ($("logprobs").checked) { q.logprobs = true; q.top_logprobs = 5; }
  return ["v1/chat/completions", q];
}

// events gives the data of a stream's events.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const frames = held.split("\n\n");
    held = frames.pop();
    for (const f of frames) {
      const data = f.split("\n").filter((l) => l.startsWith("data: ")).map((l) => l.slice(6)).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

function take(n, event) {
  if (event.error) throw new Error(event.error.message);
  if (event.usage) n.usage = event.usage;
  const c = (event.choices || [])[0];
  if (!c) return;
  const d = c.delta || { content: c.text };
  n.content += d.content || "";
  n.reasoning += d.reasoning_content || "";
  for (const call of d.tool_calls || []) n.content += (call.function.name ? "\n\n`" + call.function.name + "` " : "") + (call.function.arguments || "");
  const l = c.logprobs;
  if (l && l.content) n.tokens.push(...l.content);
  else if (l && l.tokens) l.tokens.forEach((t, i) => n.tokens.push({ token: t, logprob: l.token_logprobs[i], top_logprobs: Object.entries(l.top_logprobs[i] || {}).map(([token, logprob]) => ({ token, logprob })).sort((a, b) => b.logprob - a.logprob) }));
  if (c.finish_reason) n.finish = c.finish_reason;
}

async function answer(parent) {
  const [where, q] = request(parent);
  const n = add(parent, "assistant", "");
  n.busy = true;
  running = new AbortController();
  $("stop").hidden = false;
  $("send").disabled = true;
  say("");
  render();
  const start = performance.now();
  let first = 0, drawn = 0;
  const draw = () => {
    drawn = 0;
    if (!n.view) return;
    const [, thoughts, body] = n.view.children;
    thoughts.hidden = !n.reasoning;
    thoughts.lastChild.textContent = n.reasoning;
    const chat = $("chat");
    const bottom = chat.scrollHeight - chat.scrollTop - chat.clientHeight < 60;
    markdown(n.content, body);
    if (bottom) chat.scrollTop = chat.scrollHeight;
  };
  try {
    const r = await fetch(where, { method: "POST", headers: headers(), body: JSON.stringify(q), signal: running.signal });
    if (!r.ok) throw new Error(((await r.json()).error || {}).message || r.statusText);
    const ignored = r.headers.get("X-Greta-Ignored-Fields");
    for await (const e of events(r)) {
      first = first || performance.now();
      take(n, e);
      if (!drawn) drawn = requestAnimationFrame(draw);
    }
    const s = (performance.now() - first) / 1000;
    const tokens = n.usage ? n.usage.completion_tokens : 0;
    n.note = `${tokens} tokens, ${s > 0 ? Math.round(tokens / s) : 0} a second, first after ${Math.round(first - start)} ms${n.finish === "length" ? ", cut off" : ""}${ignored ? ", ignored: " + ignored : ""}`;
    say(`Answer complete: ${tokens} tokens`);
  } catch (e) {
    if (e.name === "AbortError") { say("Stopped"); n.note = "stopped"; } else { say(e.message, true); n.note = e.message; }
  }
  n.busy = false;
  n.showTokens = $("logprobs").checked && n.tokens.length > 0;
  running = null;
  $("stop").hidden = true;
  $("send").disabled = false;
  render();
}

function send() {
  const text = $("text").value.trim();
  if (running || !text) return;
  $("text").value = "";
  const all = path();
  answer(add(all.length ? all[all.length - 1] : root, "user", text));
}

async function loadModels() {
  try {
    const r = await fetch("v1/models", { headers: headers() });
    const list = await r.json();
    if (!r.ok) throw new Error(list.error.message);
    const old = $("model").value;
    models = list.data;
    $("model").replaceChildren(...models.map((x) => el("option", { value: x.id, textContent: x.id })));
    if (models.some((x) => x.id === old)) $("model").value = old;
  } catch (e) { say(e.message + " (Settings has a field for the API key)", true); }
}

let watching = null;
async function watch() {
  watching = new AbortController();
  try {
    const r = await fetch("live/requests", { headers: { ...headers(), Accept: "text/event-stream" }, signal: watching.signal });
    if (!r.ok) throw new Error((await r.json()).error.message);
    for await (const f of events(r)) showLive(f);
  } catch (e) { if (e.name !== "AbortError") $("live-speed").textContent = e.message; }
}

function showLive(f) {
  $("live-speed").textContent = `${f.requests.length} requests, ${Math.round(f.tokens_per_second)} tokens a second`;
  $("live-models").replaceChildren(...f.models.map((x) => {
    const box = el("div");
    const meter = el("meter", { min: 0, max: Math.max(x.pages, 1), value: x.pages_used });
    meter.setAttribute("aria-label", "pages of the cache in use");
    const list = el("dl");
    const rows = [["device", x.device], ["rows", `${x.last_rows} of ${x.rows}`], ["running, waiting", `${x.running}, ${x.waiting}`], ["pages", `${x.pages_used} of ${x.pages}`],
      ["steps", x.steps], ["prefix found", x.prefix_queries ? Math.round(100 * x.prefix_hits / x.prefix_queries) + " %" : "–"], ["preempted", x.preemptions]];
    for (const [k, v] of rows) list.append(el("dt", { textContent: k }), el("dd", { textContent: v }));
    box.append(el("strong", { textContent: x.name }), meter, list);
    return box;
  }));
  $("live-rows").replaceChildren(...f.requests.map((x) => el("tr", {}, ...[x.key || x.id.slice(4, 10), x.state, x.prompt_tokens, x.tokens + (x.max_tokens ? "/" + x.max_tokens : ""), Math.round(x.tokens_per_second), x.seconds.toFixed(1)].map((v) => el("td", { textContent: v })))));
}

const toggle = (b, panel) => () => {
  const open = $(panel).hidden;
  $(panel).hidden = !open;
  $(b).setAttribute("aria-expanded", String(open));
  if (panel === "live") { if (open) watch(); else if (watching) watching.abort(); }
};
$("settings-button").addEventListener("click", toggle("settings-button", "settings"));
$("live-button").addEventListener("click", toggle("live-button", "live"));
$("form").addEventListener("submit", (e) => { e.preventDefault(); send(); });
$("settings").addEventListener("submit", (e) => e.preventDefault());
$("stop").addEventListener("click", () => running && running.abort());
$("new").addEventListener("click", () => { if (running) running.abort(); root.children = []; root.chosen = 0; say(""); render(); $("text").focus(); });
$("key").addEventListener("change", loadModels);
$("text").addEventListener("keydown", (e) => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); } });
document.addEventListener("keydown", (e) => { if (e.key === "Escape" && running) running.abort(); });
loadModels();
$("text").focus();
