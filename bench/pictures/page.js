"use strict";
// The interactive part of the report: one plot of all results that the form chooses, and two runs beside each other.
// It reads #data, which pictures.go writes, and asks for nothing else.
(() => {
const {runs, results, band} = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const make = (tag, attrs = {}, ...children) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs)) k in e && k !== "list" ? e[k] = v : e.setAttribute(k, v);
  e.append(...children);
  return e;
};
const draw = (tag, attrs, ...children) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
  e.append(...children);
  return e;
};
const day = s => new Date(s * 1000).toISOString().slice(0, 10);
const moment = s => new Date(s * 1000).toISOString().slice(0, 16).replace("T", " ");
const digits = x => x === 0 ? "0" : Math.abs(x) >= 1e5 || Math.abs(x) < 1e-3 ? x.toExponential(2) : String(+x.toPrecision(4));
const seconds = s => s >= 1 ? digits(s) + " s" : s >= 1e-3 ? digits(s * 1e3) + " ms" :
  s >= 1e-6 ? digits(s * 1e6) + " µs" : digits(s * 1e9) + " ns";
const unique = list => [...new Set(list)];
const natural = (a, b) => a.localeCompare(b, "en", {numeric: true});

// What the vertical axis can show: of a result, with the time t.
const measures = {
  time: {label: "time, µs", of: (r, t) => t * 1e6},
  gbs: {label: "GB/s", of: (r, t) => r.bytes ? r.bytes / t / 1e9 : NaN},
  gflops: {label: "GFLOP/s", of: (r, t) => r.flops ? r.flops / t / 1e9 : NaN},
  roof: {label: "% of the modelled roof", of: (r, t) => r.least ? 100 * r.least / t : NaN},
};
const numeric = v => v !== undefined && /^\d+(\.\d+)?$/.test(v);
const across = x => x === "date" ? r => runs[r.run].started :
  x === "size" ? r => +r.params.bytes || r.set || NaN : r => numeric(r.params[x]) ? +r.params[x] : NaN;

// --- the form -----------------------------------------------------------------------------------
function boxes(id, values) {
  for (const v of values) {
    const box = make("input", {type: "checkbox", value: v, checked: true});
    $(id).append(make("label", {}, box, " " + v));
    box.addEventListener("change", () => change(true));
  }
}
const chosen = id => new Set([...$(id).querySelectorAll("input:checked")].map(b => b.value));
for (const [id, on] of [["all-benches", true], ["no-benches", false]]) $(id).addEventListener("click", () => {
  for (const b of $("benches").querySelectorAll("input")) b.checked = on;
  change(true);
});
const devices = unique(runs.map(r => r.device)).sort(natural);
boxes("devices", devices);
boxes("benches", unique(results.map(r => r.bench)).sort(natural));
const first = Math.min(...runs.map(r => r.started)), last = Math.max(...runs.map(r => r.started));
for (const id of ["from", "to"]) {
  Object.assign($(id), {min: day(first), max: day(last), value: day(id === "from" ? first : last)});
  $(id).addEventListener("change", () => change(true));
}

// A choice for each parameter that has several values among what is shown.
const shapes = {};
function choices(list) {
  const params = unique(list.flatMap(r => Object.keys(r.params))).sort();
  $("shapes").replaceChildren($("shapes").firstElementChild);
  for (const p of params) {
    const values = unique(list.map(r => r.params[p]).filter(v => v !== undefined)).sort(natural);
    if (values.length < 2) continue;
    const s = make("select", {id: "shape-" + p});
    s.append(make("option", {value: ""}, "any"), ...values.map(v => make("option", {value: v}, v)));
    if (!values.includes(shapes[p])) delete shapes[p];
    s.value = shapes[p] ?? "";
    s.addEventListener("change", () => {
      s.value ? shapes[p] = s.value : delete shapes[p];
      change(false);
    });
    $("shapes").append(make("label", {}, p + " ", s), " ");
  }
  for (const p of Object.keys(shapes)) if (!params.includes(p)) delete shapes[p];
  const x = $("over").value || "date", can = ["date"];
  if (list.some(r => across("size")(r) > 0)) can.push("size");
  can.push(...params.filter(p => p !== "bytes" && unique(list.map(r => r.params[p]).filter(numeric)).length > 1));
  $("over").replaceChildren(...can.map(c => make("option", {value: c}, c === "size" ? "size in bytes" : c)));
  $("over").value = can.includes(x) ? x : "date";
}

// --- the plot -----------------------------------------------------------------------------------
const W = 960, H = 460, left = 76, right = 14, top = 12, bottom = 46;
const svg = $("plot"), tip = $("tip");
let view, whole, points = [], series = [], at = -1; // view and whole: {x0, x1, y0, y1}, in the axes' own scale

function selected(shaped) {
  const dev = chosen("devices"), bench = chosen("benches"), from = $("from").value, to = $("to").value;
  return results.filter(r => {
    const run = runs[r.run], d = day(run.started);
    return dev.has(run.device) && bench.has(r.bench) && (!from || d >= from) && (!to || d <= to) &&
      (!shaped || Object.entries(shapes).every(([k, v]) => r.params[k] === v));
  });
}

function nameOf(r, without) {
  const p = Object.entries(r.params).filter(([k]) => k !== without && !(without === "size" && /^(bytes|n|chunks|blocks)$/.test(k)));
  return [r.bench, ...p.map(([k, v]) => k + "=" + v), r.config, r.cache, r.clock === "host" ? "host" : ""].filter(Boolean).join(" ");
}

// change draws anew; with narrow the choices of shapes follow what is chosen above them.
function change(narrow) {
  if (narrow) choices(selected(false));
  const list = selected(true), x = $("over").value, y = measures[$("show").value], get = across(x);
  points = [];
  series = [];
  const of = new Map();
  for (const r of list) {
    const p = {r, x: get(r), y: y.of(r, r.time), a: y.of(r, r.lo), b: y.of(r, r.hi)};
    if (!isFinite(p.x) || !isFinite(p.y)) continue;
    const key = runs[r.run].device + "\0" + nameOf(r, x);
    if (!of.has(key)) {
      of.set(key, series.length);
      series.push({name: nameOf(r, x), device: runs[r.run].device, points: []});
    }
    p.s = of.get(key);
    series[p.s].points.push(p);
  }
  for (const s of series) s.points.sort((a, b) => a.x - b.x || a.r.run - b.r.run);
  points = series.flatMap(s => s.points);
  points.forEach((p, i) => p.i = i);
  at = -1;
  hide();
  $("count").textContent = points.length + " of " + results.length + " results in " + series.length + " series" +
    (points.length < list.length ? "; " + (list.length - points.length) + " have no such figure" : "");
  fit();
  render();
}

const spread = (values) => values.length && Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > 20;
let logx, logy;
function fit() {
  const xs = points.map(p => p.x), ys = points.flatMap(p => [p.y, p.a, p.b]).filter(isFinite);
  logx = $("over").value !== "date" && spread(xs);
  logy = spread(ys);
  const range = (values, log) => {
    const v = log ? values.map(Math.log10) : values;
    let lo = v.reduce((a, b) => Math.min(a, b), Infinity), hi = v.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!(hi > lo)) {
      const half = Math.abs(lo || 1) * 0.1;
      return [lo - half, lo + half];
    }
    const room = (hi - lo) * 0.05;
    return [lo - room, hi + room];
  };
  const [x0, x1] = points.length ? range(xs, logx) : [0, 1], [y0, y1] = points.length ? range(ys, logy) : [0, 1];
  whole = {x0, x1, y0, y1};
  view = {...whole};
}
const px = x => left + ((logx ? Math.log10(x) : x) - view.x0) / (view.x1 - view.x0) * (W - left - right);
const py = y => H - bottom - ((logy ? Math.log10(y) : y) - view.y0) / (view.y1 - view.y0) * (H - top - bottom);

function ticks(lo, hi, log, date) {
  const out = [];
  if (date) {
    const steps = [60, 300, 900, 3600, 4 * 3600, 86400, 2 * 86400, 7 * 86400, 30 * 86400, 365 * 86400];
    const step = steps.find(s => (hi - lo) / s <= 9) ?? 365 * 86400 * Math.ceil((hi - lo) / 365 / 86400 / 7);
    for (let t = Math.ceil(lo / step) * step; t <= hi; t += step) out.push([t, step < 86400 ? moment(t).slice(5) : day(t)]);
    return out;
  }
  if (log && hi - lo > 0.7) {
    for (let e = Math.floor(lo); e <= hi; e++) for (const m of hi - lo < 2.5 ? [1, 2, 5] : [1]) {
      const v = m * 10 ** e;
      if (Math.log10(v) >= lo && Math.log10(v) <= hi) out.push([v, digits(v)]);
    }
    return out;
  }
  const [a, b] = log ? [10 ** lo, 10 ** hi] : [lo, hi];
  const raw = (b - a) / 6, mag = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find(m => m * mag >= raw) * mag;
  for (let k = Math.ceil(a / step); k * step <= b; k++) out.push([k * step, digits(+(k * step).toPrecision(12))]);
  return out;
}

const colour = i => "var(--s" + i % 8 + ")";
const dash = i => ["", "6 4", "2 3"][Math.floor(i / 8) % 3];
function render() {
  const clip = draw("g", {"clip-path": "url(#inside)"}), out = [
    draw("defs", {}, draw("clipPath", {id: "inside"}, draw("rect", {x: left, y: top, width: W - left - right, height: H - top - bottom})))];
  const text = (x, y, anchor, words, more = {}) => draw("text", {x, y, "text-anchor": anchor, fill: "var(--ink)", ...more}, words);
  for (const [v, word] of ticks(view.x0, view.x1, logx, $("over").value === "date"))
    out.push(draw("line", {x1: px(v), x2: px(v), y1: top, y2: H - bottom, stroke: "var(--faint)"}), text(px(v), H - bottom + 17, "middle", word));
  for (const [v, word] of ticks(view.y0, view.y1, logy))
    out.push(draw("line", {x1: left, x2: W - right, y1: py(v), y2: py(v), stroke: "var(--faint)"}), text(left - 6, py(v) + 4, "end", word));
  out.push(text((left + W - right) / 2, H - 8, "middle", $("over").selectedOptions[0]?.textContent ?? ""),
    text(0, 0, "middle", measures[$("show").value].label, {transform: "translate(16 " + (top + H - bottom) / 2 + ") rotate(-90)"}));
  series.forEach((s, i) => {
    if (s.points.length > 1) clip.append(draw("path", {fill: "none", stroke: colour(i), "stroke-width": 1.4, "stroke-dasharray": dash(i),
      d: "M" + s.points.map(p => px(p.x) + " " + py(p.y)).join("L")}));
    for (const p of s.points) {
      if (isFinite(p.a) && isFinite(p.b)) clip.append(draw("line", {x1: px(p.x), x2: px(p.x), y1: py(p.a), y2: py(p.b), stroke: colour(i)}));
      clip.append(draw("circle", {cx: px(p.x), cy: py(p.y), r: p.i === at ? 7 : 4, fill: colour(i), "data-i": p.i,
        stroke: p.i === at ? "var(--ink)" : "none", "stroke-width": 2}));
    }
  });
  out.push(clip, draw("rect", {x: left, y: top, width: W - left - right, height: H - top - bottom, fill: "none", stroke: "var(--ink)"}));
  if (!points.length) out.push(text(W / 2, H / 2, "middle", "Nothing is chosen that has this figure."));
  svg.replaceChildren(...out);
  const shown = 16;
  $("legend").replaceChildren(...series.slice(0, shown).map((s, i) => make("li", {},
    draw("svg", {width: 26, height: 10, "aria-hidden": "true"}, draw("line", {x1: 0, x2: 26, y1: 5, y2: 5, stroke: colour(i),
      "stroke-width": 3, "stroke-dasharray": dash(i)})), " " + s.name + (devices.length > 1 ? ", " + s.device : ""))));
  if (series.length > shown) $("legend").append(make("li", {}, "and " + (series.length - shown) + " more: choose fewer"));
  svg.dataset.view = JSON.stringify(view);
}

// --- tooltips, by pointer and by arrows -----------------------------------------------------------
function hide() { tip.hidden = true; }
function show(i) {
  at = i;
  const p = points[i], r = p.r, run = runs[r.run];
  const line = (...words) => make("div", {}, ...words);
  tip.replaceChildren(make("b", {}, nameOf(r)), line(run.device + (run.driver ? ", driver " + run.driver : "")),
    line(seconds(r.time) + ", 95 % " + seconds(r.lo) + " to " + seconds(r.hi) + ", n = " + r.n),
    ...(r.bytes ? [line(digits(r.bytes / r.time / 1e9) + " GB/s")] : []),
    ...(r.flops ? [line(digits(r.flops / r.time / 1e9) + " GFLOP/s")] : []),
    ...(r.least ? [line(digits(100 * r.least / r.time) + " % of the modelled roof (" + r.binds + ")")] : []),
    line(moment(run.started) + " UTC" + (run.commit ? ", commit " + run.commit.slice(0, 12) : "") + (r.kernel ? ", " + r.kernel : "")),
    line(make("code", {}, run.command)));
  tip.hidden = false;
  const box = svg.getBoundingClientRect(), scale = box.width / W, w = tip.offsetWidth;
  const x = Math.min(W, Math.max(0, px(p.x))) * scale, y = Math.min(H, Math.max(0, py(p.y))) * scale;
  tip.style.left = Math.max(0, Math.min(x + 14, box.width - w)) + "px";
  tip.style.top = y + 16 + "px";
  render();
}
const near = e => {
  const box = svg.getBoundingClientRect(), x = (e.clientX - box.left) * W / box.width, y = (e.clientY - box.top) * H / box.height;
  let best = -1, least = 18 ** 2;
  for (const p of points) {
    const d = (px(p.x) - x) ** 2 + (py(p.y) - y) ** 2;
    if (d < least) [best, least] = [p.i, d];
  }
  return {best, x, y};
};

// --- zoom -----------------------------------------------------------------------------------------
function zoom(factor, fx = 0.5, fy = 0.5) { // fx, fy: the place that stays, as parts of the view
  const w = (view.x1 - view.x0) * factor, h = (view.y1 - view.y0) * factor;
  if (w > 1.05 * (whole.x1 - whole.x0)) return reset();
  if (w < 1e-6 * (whole.x1 - whole.x0)) return;
  const x0 = view.x0 + fx * (view.x1 - view.x0 - w), y0 = view.y0 + fy * (view.y1 - view.y0 - h);
  view = {x0, x1: x0 + w, y0, y1: y0 + h};
  hide();
  render();
}
function pan(dx, dy) {
  const w = (view.x1 - view.x0) * dx, h = (view.y1 - view.y0) * dy;
  view = {x0: view.x0 + w, x1: view.x1 + w, y0: view.y0 + h, y1: view.y1 + h};
  hide();
  render();
}
function reset() {
  view = {...whole};
  hide();
  render();
}
const part = (x, y) => [(x - left) / (W - left - right), (H - bottom - y) / (H - top - bottom)];
$("zoom-in").addEventListener("click", () => zoom(0.6));
$("zoom-out").addEventListener("click", () => zoom(1 / 0.6));
$("zoom-reset").addEventListener("click", reset);
svg.addEventListener("wheel", e => {
  if (!e.ctrlKey && document.activeElement !== svg) return; // the page scrolls
  e.preventDefault();
  const {x, y} = near(e);
  zoom(e.deltaY < 0 ? 0.8 : 1.25, ...part(x, y));
}, {passive: false});
let drag;
svg.addEventListener("pointerdown", e => {
  if (e.button !== 0) return;
  const {x, y} = near(e);
  drag = {x, y, frame: draw("rect", {fill: "var(--s0)", "fill-opacity": 0.15, stroke: "var(--s0)"})};
  svg.setPointerCapture(e.pointerId);
});
svg.addEventListener("pointermove", e => {
  const {best, x, y} = near(e);
  if (!drag) return best >= 0 ? best !== at || tip.hidden ? show(best) : undefined : hide();
  const f = {x: Math.min(x, drag.x), y: Math.min(y, drag.y), width: Math.abs(x - drag.x), height: Math.abs(y - drag.y)};
  for (const [k, v] of Object.entries(f)) drag.frame.setAttribute(k, v);
  if (!drag.frame.parentNode) svg.append(drag.frame);
});
svg.addEventListener("pointerup", e => {
  if (!drag) return;
  const {x, y} = near(e), [ax, ay] = part(Math.min(x, drag.x), Math.max(y, drag.y)), [bx, by] = part(Math.max(x, drag.x), Math.min(y, drag.y));
  const wide = Math.abs(x - drag.x) > 8 && Math.abs(y - drag.y) > 8;
  drag.frame.remove();
  drag = undefined;
  if (!wide) return;
  const w = view.x1 - view.x0, h = view.y1 - view.y0;
  view = {x0: view.x0 + ax * w, x1: view.x0 + bx * w, y0: view.y0 + ay * h, y1: view.y0 + by * h};
  render();
});
svg.addEventListener("pointercancel", () => { drag?.frame.remove(); drag = undefined; });
svg.addEventListener("pointerleave", () => { if (!drag && document.activeElement !== svg) hide(); });
svg.addEventListener("dblclick", reset);
svg.addEventListener("blur", hide);
svg.addEventListener("keydown", e => {
  const step = {ArrowRight: 1, ArrowLeft: -1}[e.key], row = {ArrowDown: 1, ArrowUp: -1}[e.key];
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.shiftKey && step) pan(step * 0.2, 0);
  else if (e.shiftKey && row) pan(0, -row * 0.2);
  else if (step && points.length) show((at + step + points.length + (at < 0 && step < 0 ? 1 : 0)) % points.length);
  else if (row && points.length) {
    const s = at < 0 ? 0 : (points[at].s + row + series.length) % series.length;
    show(series[s].points[0].i);
  } else if (e.key === "Home" && points.length) show(0);
  else if (e.key === "End" && points.length) show(points.length - 1);
  else if (e.key === "+" || e.key === "=") at >= 0 ? zoom(0.6, ...part(px(points[at].x), py(points[at].y))) : zoom(0.6);
  else if (e.key === "-") zoom(1 / 0.6);
  else if (e.key === "0") reset();
  else if (e.key === "Escape") hide();
  else return;
  e.preventDefault();
});
for (const id of ["show", "over"]) $(id).addEventListener("change", () => change(false));
$("again").addEventListener("click", () => {
  for (const b of document.querySelectorAll("#devices input, #benches input")) b.checked = true;
  for (const p of Object.keys(shapes)) delete shapes[p];
  $("from").value = day(first);
  $("to").value = day(last);
  $("show").value = "time";
  $("over").value = "date";
  change(true);
});

// --- two runs ---------------------------------------------------------------------------------------
const inRun = runs.map((_, i) => results.filter(r => r.run === i));
for (const id of ["run-a", "run-b"]) {
  runs.forEach((r, i) => inRun[i].length && $(id).append(make("option", {value: i},
    moment(r.started) + " · " + r.device + (r.commit ? " · " + r.commit.slice(0, 8) : "") + " · " + r.command)));
  $(id).addEventListener("change", compare);
}
// The newest run, and the newest before it that has most in common with it.
function pair() {
  const b = runs.findLastIndex((_, i) => inRun[i].length);
  const names = new Set(inRun[b]?.map(r => nameOf(r)));
  let a = b, most = 0;
  for (let i = 0; i < b; i++) {
    const n = inRun[i].filter(r => names.has(nameOf(r))).length;
    if (n > 0 && n >= most) [a, most] = [i, n];
  }
  return [a, b];
}
function compare() {
  const a = +$("run-a").value, b = +$("run-b").value, before = new Map(inRun[a].map(r => [nameOf(r), r]));
  const rows = inRun[b].filter(r => before.has(nameOf(r))).map(r => ({name: nameOf(r), a: before.get(nameOf(r)), b: r}));
  for (const r of rows) {
    r.ratio = r.b.time / r.a.time;
    const apart = r.b.lo > r.a.hi || r.b.hi < r.a.lo;
    r.word = !apart || Math.abs(r.ratio - 1) <= band ? "as before" : r.ratio > 1 ? "slower" : "faster";
  }
  rows.sort((x, y) => y.ratio - x.ratio);
  const count = w => rows.filter(r => r.word === w).length;
  $("compared").textContent = a === b ? "Choose two different runs." : rows.length === 0 ? "These runs have no benchmark in common." :
    rows.length + " in common: " + count("slower") + " slower, " + count("faster") + " faster, " + count("as before") +
    " as before (their 95 % intervals meet, or the medians are within " + 100 * band + " %). " +
    (inRun[a].length - rows.length) + " only in A, " + (inRun[b].length - rows.length) + " only in B.";
  $("comparison").hidden = a === b || rows.length === 0;
  $("comparison").tBodies[0].replaceChildren(...(a === b ? [] : rows).map(r => make("tr", {className: r.word.replace(" ", "-")},
    ...[r.name, seconds(r.a.time), seconds(r.b.time), r.ratio.toFixed(3), r.word, r.a.n + ", " + r.b.n].map(c => make("td", {}, c)))));
}
if (results.length) {
  [$("run-a").value, $("run-b").value] = pair();
  compare();
  change(true);
} else $("explore").hidden = true;
})();
