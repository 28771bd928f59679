"""Makes oracle.json: small templates and what jinja2 makes of them in the environment of chat templates.

    pip install jinja2==3.1.6 && python3 oracle.py [count seed] > oracle.json
"""
import datetime, json, random, re, sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Dict:
    """The name dict, as transformers gives it."""

    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
    """Namespaces, as transformers bounds them."""

    def __init__(*args, **kwargs):
        for name in dict(*args[1:], **kwargs):
            check(name)
        jinja2.utils.Namespace.__init__(args[0], *args[1:], **kwargs)

    def __setitem__(self, name, value):
        check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def check(name):
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError("Chat templates cannot store underscore-prefixed attributes on a namespace, "
                                              f"but got {name!r}. Please rename the attribute.")


def env():
    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def fail(message):
        raise jinja2.exceptions.TemplateError(message)

    e.filters["tojson"] = tojson
    e.globals["raise_exception"] = fail
    e.globals["dict"], e.globals["namespace"] = Dict(), Namespace
    e.globals["strftime_now"] = lambda f: datetime.datetime(2026, 1, 2, 3, 4, 5).strftime(f)
    return e


VARS = {
    "s": "Hello World", "u": "naïve ÄÖ 日本 🙂 <b>&'\"", "e": "", "sp": "  a b\tc \n", "n": 7, "z": 0, "neg": -3, "f": 2.5,
    "big": 1e20, "t": True, "no": None, "l": [3, 1, 2], "el": [], "ls": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": [1, {"x": None}], "C": "z"}, "ed": {}, "m": [{"r": "u", "n": 1, "o": {"k": "x"}}, {"r": "A", "n": 2}, {"r": "u", "n": 0}],
    "long": "the quick brown fox jumps over the lazy dog again and again until it well-known stops\nsecond line",
    "nums": [1, 2.5, -4, 10, 3], "mix": [1, "a", None, True, 2.0, [1], {"k": "v"}],
}

ATOMS = ["s", "u", "e", "sp", "n", "z", "neg", "f", "big", "t", "no", "l", "el", "ls", "d", "ed", "m", "long", "nums", "mix",
         "missing", "1", "2", "0", "-1", "3.0", "1e3", "'x'", "'a'", "\"q'\"", "true", "none", "[]", "[1,'a']", "(1,2)", "()",
         "{'a': 1}", "{}", "d.a", "m[0].r", "l[0]", "ls[-1]", "s[0]", "d['b']", "m[1].o", "range(3)"]
FILTERS = ["upper", "lower", "trim", "length", "title", "capitalize", "first", "last", "list", "sort", "unique|list", "join", "join(', ')",
           "tojson", "tojson(indent=2)", "string", "int", "float", "abs", "round", "round(1)", "default('D')", "default('D', true)", "d(1)",
           "reverse", "reverse|list", "replace('a','b')", "replace('l','L',1)", "map('upper')|list", "map(attribute='r')|list",
           "selectattr('n')|list", "selectattr('r','equalto','u')|list", "rejectattr('o','defined')|list", "select('odd')|list",
           "reject('none')|list", "select|list", "max", "min", "sum", "sum(attribute='n')", "batch(2)|list", "slice(2)|list", "batch(2,'-')|list",
           "slice(3,0)|list", "dictsort", "dictsort(by='value')", "dictsort(true)", "items|list", "groupby('r')|list", "indent", "indent(2,true)",
           "truncate(9)", "truncate(9,true)", "truncate(5,true,'~',0)", "wordcount", "wordwrap(10)", "center(20)", "escape", "e|upper",
           "safe", "striptags", "urlencode", "filesizeformat", "filesizeformat(true)", "xmlattr", "format(1)", "attr('r')", "sort(reverse=true)",
           "sort(attribute='n')|map(attribute='n')|list", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "forceescape", "count",
           "tojson(separators=(',',':'))", "sort(case_sensitive=true)", "map('default','x')|list", "map(attribute='q',default='?')|list"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "callable",
         "true", "false", "odd", "even", "lower", "upper", "divisibleby(3)", "divisibleby 2", "eq(1)", "ne 'x'", "in [1,'a']", "sameas none",
         "gt 1", "lessthan 3", "escaped", "in 'abc'", "equalto 'x'", "ge(0)"]
METHODS = ["upper()", "strip()", "strip('a ')", "lstrip()", "rstrip('d')", "split()", "split('o')", "split('o',1)", "rsplit(None,1)", "split(' ')",
           "startswith('H')", "endswith(('d','x'))", "replace('o','0')", "find('o')", "title()", "isdigit()", "isalpha()", "isupper()",
           "splitlines()", "count('o')", "index('o')", "partition('o')", "rpartition('o')", "zfill(9)", "center(15,'*')", "ljust(3)", "rjust(14)",
           "format(1,2)", "get('a')", "get('q','D')", "items()", "keys()|list", "values()|list", "keys()", "copy()", "append(1)", "pop()", "update({})",
           "count(1)", "index(2)", "swapcase()", "casefold()", "removeprefix('He')", "removesuffix('ld')", "join(['a','b'])", "join(ls)",
           "capitalize()", "lower().split('l')", "nothing", "nothing()", "__class__", "encode", "isspace()", "istitle()", "expandtabs(4)"]
BINOPS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
SUBS = ["[0]", "[-1]", "['a']", "[1:]", "[:2]", "[::-1]", "[::2]", "[-2:]", "[5:1:-1]", "[10]", "['upper']", ".r", ".a", ".b", "[none]", "[1:2]", "[true]"]
FORMATS = ["%s", "%d", "%5d|%-5d|", "%05.1f", "%x", "%r", "%+d", "%e", "%g", "%.3s", "%c", "%o", "%%", "%i", "%X", "%#x", "% d"]
SPECS = ["", ":>8", ":<8", ":^9", ":05", ":,", ":.2f", ":x", ":#x", ":e", ":g", ":%", ":+", ":*^12", "!r", "!s:>12", ":.3", ":b", ":n", ":_", ":08.3f"]


def expr(r, depth=2):
    if depth == 0 or r.random() < 0.15:
        return r.choice(ATOMS)
    k = r.random()
    sub = lambda: expr(r, depth - 1)
    if k < 0.3:
        return "%s|%s" % ("(" + sub() + ")", r.choice(FILTERS))
    if k < 0.42:
        return "(%s).%s" % (sub(), r.choice(METHODS))
    if k < 0.67:
        return "(%s %s %s)" % (sub(), r.choice(BINOPS), sub())
    if k < 0.75:
        return "(%s is %s%s)" % (sub(), r.choice(["", "not "]), r.choice(TESTS))
    if k < 0.85:
        return "(%s)%s" % (sub(), r.choice(SUBS))
    if k < 0.88:
        return "(%s if %s else %s)" % (sub(), sub(), sub())
    if k < 0.9:
        return "(not %s)" % sub()
    if k < 0.92:
        return "(-%s)" % sub()
    if k < 0.94:
        return "('%s' %% %s)" % (r.choice(FORMATS), sub())
    if k < 0.96:
        return "('{%s}'.format(%s))" % (r.choice(SPECS), sub())
    if k < 0.98:
        return "[%s, %s]" % (sub(), sub())
    return "{'k': %s}" % sub()


def space(r):
    """A template of whitespace around tags."""
    w = lambda: r.choice(["", " ", "\n", "  \n", "\n  ", "x", " y ", "\t", "\n\n"])
    b, e = (lambda: r.choice(["", "-", "+", ""])), (lambda: r.choice(["", "-", "", "+"]))
    out = w()
    for _ in range(r.randint(1, 4)):
        k = r.random()
        if k < 0.4:
            out += "{%%%s if %s %s%%}%s{%%%s endif %s%%}" % (b(), r.choice(["t", "z"]), e(), w() + w(), b(), e())
        elif k < 0.6:
            out += "{{%s n %s}}" % (r.choice(["", "-"]), r.choice(["", "-"]))
        elif k < 0.75:
            out += "{#%s c %s#}" % (b(), e())
        elif k < 0.85:
            out += "{%%%s raw %s%%}%s{{ x }}%s{%%%s endraw %s%%}" % (b(), r.choice(["", "-"]), w(), w(), b(), e())
        else:
            out += "{%%%s for i in l %s%%}%s{{ i }}%s{%%%s endfor %s%%}" % (b(), e(), w(), w(), b(), e())
        out += w() + w()
    return out


def block(r, depth):
    """Statements: what chat templates are made of."""
    b, e = lambda: r.choice(["{%", "{%-", "{%-"]), lambda: r.choice(["%}", "-%}", "-%}", "%}\n"])
    body = lambda: "".join(block(r, depth - 1) for _ in range(r.randint(1, 3))) if depth else "{{ %s }}" % expr(r, 1)
    x = lambda: expr(r, r.choice([0, 1, 1, 2]))
    k = r.random()
    tag = lambda text: b() + " " + text + " " + e()
    name = r.choice(["a", "b", "v"])
    if k < 0.15:
        return "{{%s %s %s}}" % (r.choice(["", "-"]), x(), r.choice(["", "-"]))
    if k < 0.3:
        return tag("set %s = %s" % (name, x())) + "{{ %s }}" % name
    if k < 0.42:
        return tag("if " + x()) + body() + (tag("elif " + x()) + body() if r.random() < 0.4 else "") + \
            (tag("else") + body() if r.random() < 0.5 else "") + tag("endif")
    if k < 0.6:
        head = r.choice(["for v in " + r.choice(["l", "ls", "m", "d", "nums", "mix", "range(4)", "s", "missing", "[1,2]|map('string')"]),
                         "for k, v in d.items()", "for k, v in " + r.choice(["d|dictsort", "d|items", "m"]), "for v in m if v.n", "for v in " + x()])
        inner = r.choice(["", "{{ loop.index }}", "{{ loop.last }}{{ loop.first }}", "{{ loop.length }}", "{{ loop.nextitem }}", "{{ loop.revindex0 }}",
                          "{{ loop.previtem is defined }}", "{{ v }}", "{{ k }}", "{{ loop.cycle(1,2) }}", "{{ v.r }}"])
        jump = r.choice(["", "", "", tag("if loop.index == 2") + tag("break") + tag("endif"), tag("if loop.first") + tag("continue") + tag("endif")])
        return tag(head) + jump + inner + body() + (tag("else") + body() if r.random() < 0.3 else "") + tag("endfor")
    if k < 0.7:
        sig = r.choice(["x", "x, y=2", "x='d', y=x", "", "x, y=n, z=none"])
        args = r.choice(["", "1", "1, 2", "x=3", "s, y=l", "y=1", "1, q=2", "1, 2, 3, 4", "*l", "**{'x': 1}"])
        inner = r.choice(["{{ x }}", "{{ x }}-{{ y }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller is defined }}", "{{ s }}{{ v }}"])
        call = tag("call mac(%s)" % args) + "in" + tag("endcall") if r.random() < 0.3 else "{{ mac(%s) }}" % args
        return tag("macro mac(%s)" % sig) + inner + body() + tag("endmacro") + call
    if k < 0.8:
        return tag("set ns = namespace(i=0, t='')") + tag("for v in " + r.choice(["l", "ls", "nums"])) + tag("set ns.i = ns.i + 1") + \
            tag("set ns.t = ns.t ~ v") + body() + tag("endfor") + "{{ ns.i }}{{ ns.t }}"
    if k < 0.86:
        return tag("set %s" % name) + body() + tag("endset") + "[{{ %s }}]" % name
    if k < 0.9:
        return tag("filter " + r.choice(["upper", "trim", "replace('a','_')", "indent(2)"])) + body() + tag("endfilter")
    if k < 0.94:
        return tag("with a = %s, b = n" % x()) + body() + "{{ a }}{{ b }}" + tag("endwith")
    if k < 0.97:
        return tag("generation") + body() + tag("endgeneration")
    return r.choice([" text ", "\n", "{# c #}", "{#- c -#}\n", "  \n  ", "x"])


def run(e, source):
    try:
        return {"text": e.from_string(source).render(**json.loads(json.dumps(VARS)))}
    except Exception as x:
        message = x.message if isinstance(x, jinja2.TemplateSyntaxError) else str(x)
        return {"error": "%s: %s" % (type(x).__name__, message)}


def main():
    count, seed = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 2 else (900, 1)
    r, e = random.Random(seed), env()
    fixed = [x for x in open("snippets.txt").read().split("\n---\n")] if seed == 1 else []
    sources = fixed + ["{{ %s }}" % expr(r, r.choice([1, 2, 2, 3])) for _ in range(count)] + [space(r) for _ in range(count // 3)] + \
        ["".join(block(r, 2) for _ in range(r.randint(1, 3))) for _ in range(count // 2)]
    cases = []
    for s in sources:
        if re.search(r"\(([-0-9.e]+|true|none|\(\)|\{.*?\})\)\[[^]]*:", s):
            continue  # jinja2 folds constants, and takes no slice of them then
        got = run(e, s)
        if " object at 0x" in got.get("text", "") or "built-in method" in got.get("text", ""):
            continue  # an address
        if re.search("[0-9]{19}", str(got)) or re.search(r"big|_GroupTuple|Markup.\(|encode|cannot unpack", s + str(got)):
            continue  # integers have 64 bits here; words of Python that nothing depends on
        if re.search(r"\)\[[^]]*:", s) and "{%" not in s:
            continue  # slices of what may be a constant: see above
        cases.append({"source": s, **got})
    json.dump({"jinja2": jinja2.__version__, "vars": VARS, "cases": cases}, sys.stdout, ensure_ascii=False, indent=0)


main()
