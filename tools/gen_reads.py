#!/usr/bin/env python3
"""Writes internal/hfclass/reads.txt, and reads.txt.gz, which is in the program: which keys of config.json
transformers' classes read, of the model_types and the keys that the files in models/ speak of.

  pip install torch transformers==5.24.0 pyyaml; tools/gen_reads.py models/*.yaml

It reads transformers' source: of the classes that the auto classes have for a model_type, and of all that these
mention, what they take of a configuration; and of the configuration's class, from which keys that is made. What it
cannot follow counts as read; it prints what should be looked at.
"""
import ast
import collections
import functools
import gzip
import importlib.util
import os
import re
import sys
import types
import typing

import yaml

import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

ROOT = os.path.dirname(transformers.__file__)
# What the files read of any config.json for what it says of the file, not of the class.
ALWAYS = {"model_type", "architectures", "text_config", "num_nextn_predict_layers", "num_mtp_layers",
          "per_layer_config", "sentence_transformers", "sbert_ce_default_activation_function", "vocab_size"}
# Objects of which each key is told apart.
OBJECTS = ("attn_config", "ffn_config")
# What any class with rope_parameters makes of them (convert_rope_params_to_dict, standardize_rope_params).
ROPE = {"rope_scaling", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings",
        "max_position_embeddings", "default_theta"}
# Model_types that many folders have whose class, of their own, has other keys.
OTHERWISE = ("nomic_bert", "xlm-roberta")
# Lists of a word for each layer, which any class refuses that have others.
WORDS = {"layer_types": transformers.configuration_utils.ALLOWED_ATTN_LAYER_TYPES
         + tuple(transformers.configuration_utils._LEGACY_LAYER_TYPE_REMAP),
         "mlp_layer_types": transformers.configuration_utils.ALLOWED_MLP_LAYER_TYPES}
# Modules whose reading of configurations is of caches, of generating and of loading, or is said above.
BEYOND = re.compile(r"transformers\.(cache_utils|modeling_flash_attention_utils|generation|utils|modeling_utils"
                    r"|configuration_utils|processing_utils|modeling_outputs|activations|loss|pytorch_utils|quantizers|image|video|audio|feature"
                    r"|tokenization|core_model_loading|conversion_mapping|trainer|training_args|models\.auto|integrations\.(?!moe))")
CONFIG = re.compile(r"(config|cfg)s?$")


# Statements that make nothing.
IDLE = (ast.Raise, ast.Pass, ast.Assert, ast.Import, ast.ImportFrom, ast.Continue, ast.Break)


class Module:
    """A module's definitions by name, and where it has its other names from."""

    def __init__(self, name):
        self.name, self.defs, self.froms = name, {}, {}
        spec = importlib.util.find_spec(name)
        self.package = name if spec.submodule_search_locations else name.rpartition(".")[0]
        with open(spec.origin) as file:
            tree = ast.parse(file.read())
        self.add(tree.body)

    def add(self, body):
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                self.defs[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.defs[target.id] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self.defs[node.target.id] = node
            elif isinstance(node, ast.ImportFrom):
                where = node.module or ""
                if node.level:
                    parts = self.package.split(".")
                    where = ".".join(parts[:len(parts) - node.level + 1] + ([node.module] if node.module else []))
                for alias in node.names:
                    self.froms[alias.asname or alias.name] = (where, alias.name)
            elif isinstance(node, (ast.If, ast.Try, ast.With)):
                for part in ("body", "orelse", "finalbody"):
                    self.add(getattr(node, part, []))


@functools.cache
def module(name):
    return Module(name)


def find(name, where):
    """The definition of a name of a module of transformers: the module and the node."""
    mod = module(where)
    if name in mod.defs:
        return mod, mod.defs[name]
    if name in mod.froms:
        other, name = mod.froms[name]
        if other.startswith("transformers.") and not BEYOND.match(other) and importlib.util.find_spec(other):
            return find(name, other)
    return None


def last(node):
    """The last word of a dotted expression."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


class Reads(ast.NodeVisitor):
    """What a definition takes of configurations: attributes of what is called one or is annotated as one, words that
    getattr and hasattr are asked for, and any other word, which may be a key; and what it mentions."""

    def __init__(self):
        self.keys, self.names, self.configs, self.unclear = set(), set(), set(), []

    def visit_FunctionDef(self, node):
        args = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        for arg in args:
            if arg.annotation is not None and "Config" in ast.unparse(arg.annotation):
                self.configs.add(arg.arg)
        for part in node.body + node.decorator_list + node.args.defaults + [d for d in node.args.kw_defaults if d]:
            self.visit(part)

    def is_config(self, node):
        if isinstance(node, ast.Subscript):  # per_layer_config[i]
            node = node.value
        if isinstance(node, ast.Call):  # config.get_text_config()
            return "config" in last(node.func)
        return bool(CONFIG.search(last(node))) or last(node) in self.configs

    def visit_Assign(self, node):
        if self.is_config(node.value):
            self.configs |= {last(t) for t in node.targets}
        self.generic_visit(node)

    def visit_Attribute(self, node):
        if self.is_config(node.value):
            self.keys.add(node.attr)
        self.visit(node.value)

    def visit_Name(self, node):
        self.names.add(node.id)

    def visit_Constant(self, node):
        if isinstance(node.value, str) and re.fullmatch(r"\w+", node.value):
            self.keys.add(node.value)

    def visit_Expr(self, node):
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.visit(node.value)

    def visit_Call(self, node):
        if last(node.func) in ("getattr", "hasattr") and len(node.args) > 1 and self.is_config(node.args[0]):
            if not isinstance(node.args[1], ast.Constant):
                self.unclear.append(ast.unparse(node))
        self.generic_visit(node)


@functools.cache
def reads(where, name):
    found = Reads()
    found.visit(module(where).defs[name])
    return found


def reached(starts):
    """What the definitions and all that they mention take of configurations."""
    seen, todo, keys, unclear = set(), list(starts), set(), []
    while todo:
        where, name = todo.pop()
        got = find(name, where)
        if got is None or (got[0].name, name) in seen:
            continue
        mod, node = got
        name = getattr(node, "name", name)
        seen.add((mod.name, name))
        if isinstance(node, ast.ClassDef) and name.endswith("Config"):
            continue
        r = reads(mod.name, name) if name in mod.defs else None
        if r is None:
            continue
        keys |= r.keys
        unclear += r.unclear
        todo += [(mod.name, other) for other in r.names]
    return keys, seen, unclear


class Parts:
    """The parts of classes that only a configuration's word gives them: biases of products, and modules; "" is the word
    of a bias that none has. What classes give in several ways is left out."""

    def __init__(self, seen):
        self.found = {}
        for where, name in seen:
            node = module(where).defs.get(name)
            for f in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(f, ast.FunctionDef) and f.name == "__init__":
                    self.own = {}
                    self.walk(f.body, True)

    def word(self, node):
        """The key that an expression is, True and False where it is that, None where it is not known."""
        if isinstance(node, ast.Constant):
            return bool(node.value)
        if isinstance(node, ast.Attribute) and CONFIG.search(last(node.value)):
            return node.attr
        if isinstance(node, ast.Attribute) and last(node.value) == "self":
            return self.own.get(node.attr)
        return None

    def walk(self, body, when):
        for s in body:
            if isinstance(s, ast.If):
                key = self.word(s.test)
                self.walk(s.body, key if when is True and isinstance(key, str) else None)
                self.walk(s.orelse, None)
            elif isinstance(s, (ast.For, ast.With, ast.Try)):
                self.walk(s.body, when if isinstance(s, ast.With) else None)
            elif isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Attribute):
                self.assign(s.targets[0].attr, s.value, when)

    def assign(self, name, value, when):
        if isinstance(value, ast.Attribute):
            self.own[name] = self.word(value)
        if not isinstance(value, ast.Call):
            return
        self.found.setdefault(name + ".", set()).add(when)
        if last(value.func) == "Linear":
            bias = [k.value for k in value.keywords if k.arg == "bias"] + value.args[2:3]
            self.found.setdefault(name + ".bias", set()).add(self.word(bias[0]) if bias else True)
        else:
            self.found.setdefault(name + ".bias", set()).add(None)

    def lines(self, cls, spoken):
        """As the table writes them: + behind a key that counts as true where it is absent."""
        for part, words in self.found.items():
            word = next(iter(words))
            if len(words) == 1 and word not in (None, True) and part.split(".")[0] in spoken:
                yield f"{part}={word or ''}" + ("+" if word and getattr(cls, word, None) else "")


class Makes:
    """From what the attributes of a configuration's class are made: its methods, statement by statement."""

    def __init__(self, cls):
        self.deps, self.methods, self.read = {}, {}, set()
        for base in cls.__mro__:
            if not base.__module__.startswith("transformers.models."):
                continue
            for node in module(base.__module__).defs[base.__name__].body:
                if isinstance(node, ast.FunctionDef):
                    self.methods.setdefault(node.name, []).append(node)
        for name, all in self.methods.items():
            for node in all:
                if name.startswith("validate"):
                    continue
                if name in ("__post_init__", "__init__"):
                    self.run(node.body, set())
                elif any(last(getattr(d, "func", d)) == "setter" for d in node.decorator_list):
                    self.run(node.body, {name})
                else:  # a property, or a method that is called by its name
                    self.run(node.body, set(), name)

    def depend(self, target, sources):
        self.deps.setdefault(target, set()).update(sources)

    def sources(self, *nodes):
        out = set()
        for node in nodes:
            for n in ast.walk(node) if node is not None else ():
                if isinstance(n, ast.Attribute):
                    out.add(n.attr)
                elif isinstance(n, ast.Name):
                    out.add("$" + n.id)
                elif isinstance(n, ast.Constant) and isinstance(n.value, str) and re.fullmatch(r"\w+", n.value):
                    out.add(n.value)
                elif isinstance(n, ast.JoinedStr):  # f"swa_{name}", which may be any key that begins so
                    pattern = "".join(part.value if isinstance(part, ast.Constant) else "*" for part in n.values)
                    if re.fullmatch(r"\w{3,}\*", pattern):
                        out.add(pattern)
        return out

    def targets(self, node):
        if isinstance(node, (ast.Tuple, ast.List)):
            return set().union(*map(self.targets, node.elts))
        if isinstance(node, ast.Starred):
            return self.targets(node.value)
        if isinstance(node, ast.Subscript):  # kwargs["key"], self.table["key"]
            out = self.targets(node.value)
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                out.add(node.slice.value)
            return out
        return {"$" + node.id} if isinstance(node, ast.Name) else {node.attr}

    def assign(self, targets, sources):
        for t in targets:
            self.depend(t, sources)

    def run(self, body, when, method=None):
        for s in body:
            if isinstance(s, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
                for t in s.targets if isinstance(s, ast.Assign) else [s.target]:
                    self.assign(self.targets(t), self.sources(s.value) | when)
            elif isinstance(s, ast.If):
                walrus = [n for n in ast.walk(s.test) if isinstance(n, ast.NamedExpr)]
                for n in walrus:
                    self.assign(self.targets(n.target), self.sources(n.value) | when)
                inner = when | self.sources(s.test)
                self.run(s.body, inner, method)
                self.run(s.orelse, inner, method)
            elif isinstance(s, ast.For):
                self.assign(self.targets(s.target), self.sources(s.iter) | when)
                self.run(s.body + s.orelse, when | self.sources(s.iter), method)
            elif isinstance(s, ast.While):
                self.run(s.body, when | self.sources(s.test), method)
            elif isinstance(s, ast.With):
                self.run(s.body, when, method)
            elif isinstance(s, ast.Try):
                self.run(s.body + s.orelse + s.finalbody + [x for h in s.handlers for x in h.body], when, method)
            elif isinstance(s, ast.Return):
                self.assign({method} if method else set(), self.sources(s.value) | when)
            elif isinstance(s, ast.Expr):
                self.call(s.value, when)
            elif isinstance(s, (ast.FunctionDef, ast.ClassDef, ast.Delete)):
                self.read |= self.sources(s)
            elif not isinstance(s, IDLE):
                self.read |= self.sources(s)

    def call(self, value, when):
        if isinstance(value, ast.Constant):
            return
        if not isinstance(value, ast.Call):
            self.read |= self.sources(value)
            return
        f, args = value.func, value.args + [k.value for k in value.keywords]
        text = ast.unparse(f)
        if text.startswith(("logger.", "warnings.")) or last(f) in ("__post_init__", "__init__") and "super()" in text:
            if value.keywords:
                for k in value.keywords:
                    if k.arg:
                        self.depend(k.arg, self.sources(k.value) | when)
            return
        if last(f) == "setattr" and isinstance(value.args[1], ast.Constant):
            self.depend(value.args[1].value, self.sources(value.args[2]) | when)
            return
        if last(f) in ("setdefault", "pop", "update", "append", "extend") and isinstance(f, ast.Attribute):
            sources = self.sources(*args) | when
            targets = self.targets(f.value) if isinstance(f.value, (ast.Name, ast.Attribute, ast.Subscript)) else set()
            if last(f) in ("setdefault", "pop") and value.args and isinstance(value.args[0], ast.Constant):
                targets.add(value.args[0].value)
            self.assign(targets, sources)
            return
        if last(f) in self.methods or last(f) in ("validate", "standardize_rope_params", "validate_rope", "setattr"):
            self.read |= self.sources(*args) | (when if last(f) == "setattr" else set())
            return
        self.read |= self.sources(value) | when

    def close(self, keys):
        """All that these attributes are made from."""
        done, todo = set(), list(keys | self.read)
        while todo:
            k = todo.pop()
            if k not in done:
                done.add(k)
                todo += self.deps.get(k, ())
        return done


def classes(kind):
    """The classes that the auto classes have for a model_type."""
    out = set()
    for name, mapping in vars(modeling_auto).items():
        if name.startswith("MODEL_") and name.endswith("_MAPPING_NAMES") and kind in mapping:
            got = mapping[kind]
            out |= set(got if isinstance(got, (tuple, list)) else [got])
    return out


def starts(kind):
    """Where to begin: those classes, or for a part of a model, which has none, all that lies beside its configuration."""
    names = classes(kind)
    if names:
        return [(getattr(transformers, name).__module__, name) for name in names]
    where = CONFIG_MAPPING[kind].__module__.replace(".configuration_", ".modeling_")
    return [(where, name) for name in module(where).defs]


def takes(kind, part=False):
    """The keys that the classes of a model_type read, and what has parts; None where they cannot be known."""
    cls = CONFIG_MAPPING[kind]
    keys, seen, unclear = reached(starts(kind))
    parts = Parts(seen)
    for text in unclear:
        print(f"{kind}: {text}", file=sys.stderr)
    mapped = dict(getattr(cls, "attribute_map", {}))
    makes = Makes(cls)
    before = None
    while before != keys:
        before = set(keys)
        keys = makes.close(keys)
        keys |= {a for a, b in mapped.items() if b in keys} | {mapped[k] for k in keys if k in mapped}
        if "rope_parameters" in keys or "rope_scaling" in keys:
            keys |= ROPE | {"rope_parameters"}
    text = cls.sub_configs_defaults.get("text_config")
    if text is not None and not part:  # where it says no model_type of its own, or all stands outside
        if text.model_type not in CONFIG_MAPPING_NAMES:
            return None
        keys |= takes(text.model_type, True)[0]
    return keys, parts


def spoken(paths):
    """The keys that model files read, as the table tells them apart."""
    keys = set()
    for path in paths:
        with open(path) as file:
            params = [p for part in yaml.safe_load_all(file) for p in (part.get("params") or {}).values()]
        for p in params:
            if isinstance(p, dict) and "hf" in p:
                for key in str(p["hf"]).split("|"):
                    parts = key.strip().split(".")
                    keys.add(".".join(parts[:2 if parts[0] in OBJECTS else 1]))
    return keys - ALWAYS


def kinds(text):
    words = set(re.findall(r"[\w-]+", text))
    for kind in sorted(CONFIG_MAPPING_NAMES):
        if kind in OTHERWISE:
            continue
        if re.search(rf"""['"]{re.escape(kind)}['"]""", text) or classes(kind) & words:
            yield kind


def forms(hint):
    """What a declared type may be, but for None: names of classes, list and dict."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return set().union(*map(forms, typing.get_args(hint)))
    of = typing.get_origin(hint) or hint
    if of is type(None):
        return set()
    if of in (list, tuple):
        return {list}
    return {dict} if of is dict or typing.is_typeddict(of) else {of}


def declared(kinds):
    """The keys that all classes of model_types which declare them declare as one form."""
    found = collections.defaultdict(set)
    for kind in kinds:
        hints = typing.get_type_hints(CONFIG_MAPPING[kind], localns={"torch": types.SimpleNamespace(dtype=str, Tensor=str)})
        for key, hint in hints.items():
            found[key] |= forms(hint)
    return {form: sorted(k for k, of in found.items() if of == {form} and k != "architectures" and k[0] != "_")
            for form in (list, dict)}


def nests(kind):
    """Whether rope_parameters hold by the kind of layer alone: what stands in the object itself is taken nowhere."""
    flat = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1234.0}
    try:
        got = CONFIG_MAPPING[kind](rope_parameters=dict(flat)).rope_parameters
    except Exception:  # which it refuses
        return False
    kinds = [v for v in got.values() if isinstance(v, dict)] if isinstance(got, dict) else []
    return bool(kinds) and not any(v.get(k) == flat[k] for v in kinds for k in flat)


def missing(text):
    """The classes of match: that transformers lacks: those of folders that bring their own."""
    found = set()
    for match in re.findall(r"^match:(.*?)^\w", text, re.S | re.M):
        found |= {word for word in re.findall(r"\b[A-Z]\w+", match) if not hasattr(transformers, word)}
    return sorted(found)


def spoken_of(text):
    """The model_types that the files know by name."""
    lists = re.findall(r"model_type, among: \"\[(.*?)\]\"", text)
    return {kind for known in lists for kind in re.findall(r"'([^']+)'", known)}


def main(paths):
    keys = spoken(paths)
    text = "".join(open(path).read() for path in paths)
    words = set(re.findall(r"\w+", text))
    table = {}
    for kind in kinds(text):
        if (taken := takes(kind)) is not None:
            got, parts = taken
            begins = tuple(k[:-1] for k in got if k.endswith("*"))
            table[kind] = {k for k in keys if k in got or k.startswith(begins)
                           or k.split(".")[0] in OBJECTS and set(k.split(".")) <= got}
            table[kind] |= set(parts.lines(CONFIG_MAPPING[kind], words))
    lines = []
    say = lambda *words: lines.append(" ".join(words))
    say("# Which keys of config.json transformers' classes read, of those that the files in models/ speak of: a")
    say("# model_type, another whose keys it reads too, those that it reads beside them, and with a sign before them")
    say("# those that it does not. After \"none\" stand those that no class reads, after \"classes\" those of match: that")
    say("# transformers lacks, after \"others\" the model_types that the files know and the table does not, and after the")
    say("# names of lists the words that such a list may have in any class. A part with = is one that the class does")
    say("# not have, with a key behind that one that it has where that is true (+: or absent). After \"nests\" stand those")
    say("# that take rope_parameters by the kind of layer alone, after \"lists\" and \"objects\" keys that are such in any class.")
    say(f"# tools/gen_reads.py writes this; transformers {transformers.__version__}.")
    say("= classes", *missing(text))
    say("= others", *sorted(spoken_of(text) - set(table) - {"none"}))
    for key, allowed in WORDS.items():
        say("=", key, *allowed)
    say("= nests", *sorted(filter(nests, table)))
    for form, key in ((list, "lists"), (dict, "objects")):
        say("=", key, *declared(table)[form])
    say("= none", *sorted(keys - set().union(*table.values())))
    write(table, say)
    text = "\n".join(lines) + "\n"
    where = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "internal", "hfclass", "reads.txt")
    with open(where, "w") as file:
        file.write(text)
    with open(where + ".gz", "wb") as file:
        file.write(gzip.compress(text.encode(), 9, mtime=0))


def write(table, say):
    """Each set by how it differs from the nearest that was written before."""
    written, lines = {".": set()}, {}
    nearest = {kind: (size(set(), keys), ".") for kind, keys in table.items()}
    while nearest:
        kind = min(nearest, key=lambda k: (nearest[k][0], k))
        _, other = nearest.pop(kind)
        keys = written[kind] = table[kind]
        lines[kind] = [kind, other, *sorted(keys - written[other]), *("-" + k for k in sorted(written[other] - keys))]
        for k, (cost, _) in nearest.items():
            now = size(keys, table[k]) + len(kind)
            if now < cost:
                nearest[k] = now, kind
    for kind in sorted(lines):
        say(*lines[kind])


def size(a, b):
    """How long the difference of two sets is, written."""
    return sum(len(k) + 1 for k in b - a) + sum(len(k) + 2 for k in a - b)


if __name__ == "__main__":
    main(sys.argv[1:])
