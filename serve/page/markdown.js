// Markdown, code and simple math as elements: no text of a model ever becomes HTML.
"use strict";

const el = (name, props = {}, ...children) => {
  const e = Object.assign(document.createElement(name), props);
  e.append(...children);
  return e;
};

const MATHML = "http://www.w3.org/1998/Math/MathML";
const m = (name, ...children) => {
  const e = document.createElementNS(MATHML, name);
  e.append(...children);
  return e;
};

const SYMBOLS = { alpha: "α", beta: "β", gamma: "γ", delta: "δ", epsilon: "ε", zeta: "ζ", eta: "η", theta: "θ", lambda: "λ", mu: "μ", nu: "ν", xi: "ξ", pi: "π", rho: "ρ", sigma: "σ", tau: "τ", phi: "φ", chi: "χ", psi: "ψ", omega: "ω", Gamma: "Γ", Delta: "Δ", Theta: "Θ", Lambda: "Λ", Sigma: "Σ", Phi: "Φ", Psi: "Ψ", Omega: "Ω", Pi: "Π", sum: "∑", prod: "∏", int: "∫", infty: "∞", partial: "∂", nabla: "∇", cdot: "·", times: "×", div: "÷", pm: "±", le: "≤", leq: "≤", ge: "≥", geq: "≥", ne: "≠", neq: "≠", approx: "≈", equiv: "≡", to: "→", rightarrow: "→", Rightarrow: "⇒", leftarrow: "←", in: "∈", notin: "∉", subset: "⊂", cup: "∪", cap: "∩", forall: "∀", exists: "∃", ldots: "…", dots: "…", cdots: "⋯", quad: " ", ",": " ", ";": " ", "!": "", "{": "{", "}": "}", "%": "%", "\\": " ", left: "", right: "" };
const WORDS = new Set(["sin", "cos", "tan", "log", "ln", "exp", "lim", "max", "min", "det", "dim", "gcd"]);

const DEEPEST = 50; // quotes in quotes, groups in groups

// math makes MathML of a piece of TeX: fractions, roots, indices, Greek, the usual signs.
function math(tex, block) {
  let at = 0, depth = 0;
  const atom = () => {
    while (tex[at] === " ") at++;
    const c = tex[at];
    if (c === undefined || c === "}") return null;
    if (c === "{" && depth < DEEPEST) { at++; depth++; const r = row(); depth--; if (tex[at] === "}") at++; return r; }
    if (c === "\\") {
      const w = /^\\([A-Za-z]+|.)/.exec(tex.slice(at));
      if (!w) { at++; return m("mo", "\\"); }
      at += w[0].length;
      const name = w[1];
      if (name === "frac") return m("mfrac", atom() || m("mrow"), atom() || m("mrow"));
      if (name === "sqrt") return m("msqrt", atom() || m("mrow"));
      if (["text", "mathrm", "mathbf", "operatorname"].includes(name)) {
        const t = /^\s*\{([^{}]*)\}/.exec(tex.slice(at));
        if (t) { at += t[0].length; return m("mtext", t[1]); }
      }
      if (WORDS.has(name)) return m("mi", name);
      if (name in SYMBOLS) return m(/[a-zA-Z]/.test(name) && /\p{L}/u.test(SYMBOLS[name]) ? "mi" : "mo", SYMBOLS[name]);
      return m("mtext", w[0]);
    }
    const n = /^\d+(\.\d+)?/.exec(tex.slice(at));
    if (n) { at += n[0].length; return m("mn", n[0]); }
    at++;
    return m(/[A-Za-z]/.test(c) ? "mi" : "mo", c);
  };
  const row = () => {
    const r = m("mrow");
    for (let a = atom(); a; a = atom()) {
      let sub, sup;
      while (tex[at] === "_" || tex[at] === "^") {
        const which = tex[at++];
        const x = atom() || m("mrow");
        if (which === "_") sub = x; else sup = x;
      }
      r.append(sub && sup ? m("msubsup", a, sub, sup) : sub ? m("msub", a, sub) : sup ? m("msup", a, sup) : a);
    }
    return r;
  };
  const e = m("math");
  if (block) e.setAttribute("display", "block");
  e.setAttribute("aria-label", tex);
  while (at < tex.length) { e.append(row()); if (tex[at] === "}") at++; }
  return e;
}

const INLINE = /(`+)([^`]|[^`].*?[^`])\1(?!`)|\$\$([^$]+)\$\$|\\\[((?:(?!\\\[).)+?)\\\]|\\\(((?:(?!\\\().)+?)\\\)|\$(?! )([^$\n]*[^$\s\\])\$(?!\d)|\*\*(?=\S)(.+?\S?)\*\*|__(?=\S)(.+?)__|\*(?=\S)([^*]+?)\*|~~(.+?)~~|\[([^[\]]+)\]\((https?:\/\/[^\s)]+)\)|(https?:\/\/[^\s<>"')]+)/s;

function inline(text, into) {
  for (let r = INLINE.exec(text); r; r = INLINE.exec(text)) {
    if (r.index) into.append(text.slice(0, r.index));
    const [all, , code, dd, br, par, d, strong, strong2, em, del, label, url, bare] = r;
    if (code !== undefined) into.append(el("code", { textContent: code }));
    else if (dd || br) into.append(math(dd || br, true));
    else if (par || d) into.append(math(par || d, false));
    else if (strong || strong2) into.append(inline(strong || strong2, el("strong")));
    else if (em) into.append(inline(em, el("em")));
    else if (del) into.append(inline(del, el("del")));
    else if (url) into.append(inline(label, el("a", { href: url, rel: "noopener noreferrer", target: "_blank" })));
    else if (bare) into.append(el("a", { href: bare, rel: "noopener noreferrer", target: "_blank", textContent: bare }));
    text = text.slice(r.index + all.length);
  }
  into.append(text);
  return into;
}

const TOKEN = /(\/\/[^\n]*|#[^\n]*|--[^\n]*|\/\*[\s\S]*?\*\/)|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`)|\b(\d[\w.]*)\b|\b(func|function|return|if|else|for|while|def|class|import|from|package|const|let|var|type|struct|interface|switch|case|break|continue|in|not|and|or|True|False|None|true|false|null|nil|new|async|await|try|except|catch|finally|throw|raise|public|private|static|void|int|select|where|fn|impl|match|mut|use|pub)\b/g;

function highlight(code, into) {
  let last = 0;
  for (const r of code.matchAll(TOKEN)) {
    into.append(code.slice(last, r.index), el("span", { className: r[1] ? "com" : r[2] ? "str" : r[3] ? "num" : "kw", textContent: r[0] }));
    last = r.index + r[0].length;
  }
  into.append(code.slice(last));
  return into;
}

// markdown puts a text's blocks into an element.
function markdown(text, into, depth = 0) {
  into.replaceChildren();
  const lines = text.split("\n");
  let i = 0;
  const item = /^(\s*)([-*+]|\d+[.)])\s+(.*)/;
  const list = (indent) => {
    const ordered = /\d/.test(item.exec(lines[i])[2]);
    const l = el(ordered ? "ol" : "ul");
    while (i < lines.length) {
      const r = item.exec(lines[i]);
      if (!r) { if (lines[i].trim() && /^\s+/.test(lines[i]) && l.lastChild) { inline("\n" + lines[i++].trim(), l.lastChild); continue; } break; }
      if (r[1].length < indent) break;
      if (r[1].length > indent + 1 && l.lastChild) { l.lastChild.append(list(r[1].length)); continue; }
      l.append(inline(r[3], el("li")));
      i++;
    }
    return l;
  };
  while (i < lines.length) {
    const line = lines[i];
    let r;
    if ((r = /^\s*(```+|~~~+)\s*([\w+#-]*)/.exec(line))) {
      const body = [];
      for (i++; i < lines.length && !lines[i].trim().startsWith(r[1]); i++) body.push(lines[i]);
      i++;
      const code = body.join("\n");
      const copy = el("button", { type: "button", textContent: "Copy", title: "Copy the code" });
      copy.addEventListener("click", () => navigator.clipboard && navigator.clipboard.writeText(code));
      into.append(el("pre", {}, highlight(code, el("code", { className: r[2] ? "language-" + r[2] : "" })), copy));
    } else if (/^\s*(\$\$|\\\[)\s*$/.test(line)) {
      const body = [];
      for (i++; i < lines.length && !/^\s*(\$\$|\\\])\s*$/.test(lines[i]); i++) body.push(lines[i]);
      i++;
      into.append(math(body.join(" "), true));
    } else if ((r = /^(#{1,6})\s+(.*)/.exec(line))) {
      into.append(inline(r[2], el("h4"))); i++;
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      into.append(el("hr")); i++;
    } else if (line.startsWith(">") && depth < DEEPEST) {
      const body = [];
      for (; i < lines.length && lines[i].startsWith(">"); i++) body.push(lines[i].replace(/^>\s?/, ""));
      const q = el("blockquote");
      markdown(body.join("\n"), q, depth + 1);
      into.append(q);
    } else if (item.test(line)) {
      into.append(list(item.exec(line)[1].length));
    } else if (line.includes("|") && /^\s*\|?[\s:|-]+\|[\s:|-]*$/.test(lines[i + 1] || "")) {
      const cells = (l) => l.trim().replace(/^\||\|$/g, "").split("|").map((c) => c.trim());
      const t = el("table");
      t.append(el("tr", {}, ...cells(line).map((c) => inline(c, el("th", { scope: "col" })))));
      for (i += 2; i < lines.length && lines[i].includes("|"); i++) t.append(el("tr", {}, ...cells(lines[i]).map((c) => inline(c, el("td")))));
      into.append(t);
    } else if (!line.trim()) {
      i++;
    } else {
      const body = [];
      for (; i < lines.length && lines[i].trim() && !/^(\s*(```|~~~)|#{1,6}\s|>|\s*(\$\$|\\\[)\s*$)/.test(lines[i]) && !(body.length && item.test(lines[i])); i++) body.push(lines[i]);
      if (!body.length) body.push(lines[i++]);
      into.append(inline(body.join("\n"), el("p")));
    }
  }
}
