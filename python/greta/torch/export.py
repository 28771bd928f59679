"""greta.torch.export: from a module in plain PyTorch to a model file and its weights."""

from __future__ import annotations

import logging
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

import torch

from .._arguments import path as path_of
from .._arguments import wrong
from .._errors import GretaError, UsageError
from .epsilon import AsTraced
from .nodes import Node, Source, plain, reachable
from .operators import NOTHING
from .scores import HIDDEN
from .sparse import Sparse
from .trace import Trace, leaves, mutable, opname, promoted
from .values import Builder, CannotSay, Const, Value
from .write import Text, save_safetensors


@dataclass(frozen=True)
class Problem:
    """What a model file cannot say: the operator of PyTorch, the line of the module's source, and why."""

    operator: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}\n    {self.operator}: {self.why}"


class ExportError(GretaError):
    """The module holds what a model file cannot say. Nothing was written. ``problems`` lists all of it."""

    def __init__(self, problems: Sequence[Problem]):
        self.problems = list(problems)
        super().__init__("this module cannot be said in a model file:\n" + "\n".join(f"  {p}" for p in self.problems))


@dataclass
class Export:
    """What was written: ``model`` and ``weights`` are the files, ``notes`` what to know about them.

    ``error`` is the relative L2 distance of the equations, computed in float64, from the module itself.
    """

    model: Path
    weights: Path
    kind: str
    notes: list[str] = field(default_factory=list)
    error: float = 0.0


MOST_TOKENS = 16  # what the module is traced with: the shapes say the rest
MOST_PROBE = 4500  # tokens at which masks are looked at


def export(
    module: torch.nn.Module,
    example_inputs: Any,
    path: str | Path,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Export:
    """Writes a model file and safetensors that compute what a module of PyTorch does.

    ``example_inputs`` is what the module is called with, a tensor or a tuple: activations ``[1, S, D]`` or ``[S, D]``,
    which make a block, or token ids ``[1, S]``, which make a model; S is at least 4. Beside them may stand the
    positions 0 to S-1, tables of cosines and sines, and masks, whose numbers are taken as they are. A batch is cut to
    its first sequence. ``path`` is a ``.yaml`` file, beside which the ``.safetensors`` file is written, or a folder.

    The module is followed through ``torch.export``'s graph, in evaluation mode. Whatever the order in which it is
    written, the equations are compared with it in float64 before anything is written; dropout is left out, casts
    between floats are too. What a model file cannot say raises :class:`ExportError`, which lists the operators, their
    lines in the source and the reasons.
    """
    if not isinstance(module, torch.nn.Module):
        raise wrong("module", module, "a torch.nn.Module")
    path = Path(path_of("path", path))
    if name is not None and (not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name)):
        raise UsageError(f"name is {name!r}: letters, digits, _, - and . make a model's name")
    args = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    inputs = Inputs(tuple(args), dict(example_kwargs or {}))
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _export(module, inputs, path, name)
    finally:
        for m, training in modes:  # each as it was: parts may have modes of their own
            m.training = training


class Inputs:
    """The example's tensors, and which of their dimensions are the tokens."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.args, self.kwargs = args, kwargs
        flat = [t for t in leaves((list(args), kwargs)) if isinstance(t, torch.Tensor)]
        if not flat:
            raise UsageError("example_inputs holds no tensor: activations [1, S, D] or token ids [1, S] are expected")
        first = flat[0]
        self.is_tokens = not first.is_floating_point()
        rank = first.dim()
        if self.is_tokens and rank not in (1, 2) or not self.is_tokens and rank not in (2, 3):
            raise UsageError(
                f"the first input has shape {list(first.shape)}: activations [1, S, D] or [S, D], or token ids "
                "[1, S] or [S] are expected"
            )
        self.batched = rank == (2 if self.is_tokens else 3)
        self.batch = first.shape[0] if self.batched else 1
        self.tokens = first.shape[1 if self.batched else 0]
        self.first = first
        if self.tokens < 4:
            raise UsageError(f"the example has {self.tokens} tokens: give at least 4, so that their order can be seen")
        self.tables = any(
            t.dim() > 1 and t is not first and t.is_floating_point() or t.dtype in (torch.bool, torch.complex64)
            for t in flat[1:]
        )

    def at(self, tokens: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The example with another number of tokens, of one sequence."""

        def cut(t: Any) -> Any:
            if isinstance(t, (list, tuple)):
                return type(t)(cut(i) for i in t)
            if isinstance(t, dict):
                return {k: cut(v) for k, v in t.items()}
            if not isinstance(t, torch.Tensor):
                return t
            first = t is self.first
            if first or t.dim() and t.shape[0] == self.batch and self.batch > 1:
                t = t[:1] if self.batched else t
            for d in range(t.dim()):
                if t.shape[d] != self.tokens or first and d != (1 if self.batched else 0):
                    continue
                if tokens <= self.tokens:
                    t = t.narrow(d, 0, tokens)
                elif first:
                    t = torch.cat([t] * (tokens // self.tokens + 1), d).narrow(d, 0, tokens)
                elif not t.is_floating_point() and t.dtype != torch.bool:
                    shape = [1] * t.dim()
                    shape[d] = tokens
                    t = (
                        torch.arange(tokens, dtype=t.dtype)
                        .reshape(shape)
                        .expand(*(s if i != d else tokens for i, s in enumerate(t.shape)))
                    )
                else:
                    raise CannotSay("tables that are given cannot become longer")
            return t.clone()

        return cut(self.args), cut(self.kwargs)


@dataclass
class Pass:
    """A module followed with one number of tokens."""

    trace: Trace
    builder: Builder
    out: Any
    program: Any


def follow(module: torch.nn.Module, inputs: Inputs, tokens: int, constants_only: bool = False) -> Pass:
    args, kwargs = inputs.at(tokens)
    level = logging.getLogger("torch").level
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    try:
        with _unlimited():
            program = torch.export.export(module, args, kwargs, strict=True)
    except Exception as strict:
        try:  # Python that it cannot analyse, as of transformers, is run with tensors that take notes
            program = torch.export.export(module, args, kwargs, strict=False)
        except Exception:
            text = str(strict).strip().split("\n")[0][:300]
            raise ExportError(
                [Problem("torch.export", type(module).__name__, f"PyTorch itself cannot follow it: {text}")]
            ) from strict
    finally:
        logging.getLogger("torch").setLevel(level)
    if any(n.op == "call_function" and mutable(n.target) for n in program.graph.nodes):
        try:
            program = program.run_decompositions({})
        except Exception:  # as of what is done for tokens that the inputs choose: it is followed as it stands
            pass
    result = _walk(program, inputs, tokens, args, kwargs, constants_only)
    for _ in range(4):
        table = _decompositions(program, result.trace)
        if not table or constants_only:
            break
        try:
            program = program.run_decompositions(table)
        except Exception:  # what is unknown stays it
            break
        result = _walk(program, inputs, tokens, args, kwargs, constants_only)
    return result


def _unlimited() -> Any:
    """PyTorch counts what it has followed of one piece of code, its own modules' calls together, and stops after
    eight: exports share nothing that would become too much."""
    import torch._dynamo.config as config

    limits = ("cache_size_limit", "recompile_limit", "accumulated_cache_size_limit", "accumulated_recompile_limit")
    return config.patch({name: 1 << 30 for name in limits if hasattr(config, name)})


def _decompositions(program: Any, trace: Trace) -> dict[Any, Any]:
    """PyTorch's own decompositions of the operators that are not known here."""
    unknown = {p[0] for p in trace.problems if p[2].startswith("no operator of a model file")}
    if not unknown:
        return {}
    table = torch.export.default_decompositions()
    found = {}
    for n in program.graph.nodes:
        if n.op == "call_function" and str(n.target).replace(".default", "") in unknown:
            try:
                found[n.target] = table[n.target]
            except KeyError:
                pass
    return found


def _walk(program: Any, inputs: Inputs, tokens: int, args: Any, kwargs: Any, constants_only: bool) -> Pass:
    builder = Builder(tokens)
    trace = Trace(builder)
    trace.constants_only = constants_only
    sig = program.graph_signature
    builder.params = dict(program.state_dict)
    for k, v in program.constants.items():
        if isinstance(v, torch.Tensor):
            builder.params.setdefault(k, v)
    leaf = iter(torch.utils._pytree.tree_flatten((args, kwargs))[0])
    named = {**sig.inputs_to_parameters, **sig.inputs_to_buffers, **sig.inputs_to_lifted_tensor_constants}
    given: list[Any] = []
    seen_first = False
    for n in program.graph.nodes:
        if n.op != "placeholder":
            continue
        if n.name in named:
            target = named[n.name]
            t = builder.params[target]
            given.append(Const(promoted(t.detach()), Source(target) if t.is_floating_point() else None))
            continue
        v = next(leaf)
        if isinstance(v, torch.Tensor) and not seen_first:
            seen_first = True
            width = () if inputs.is_tokens else (v.shape[-1],)
            x = builder.graph.node("tokens" if inputs.is_tokens else "x", (), width)
            size = max(x.size, 1)
            value = builder.last(x, torch.Size((tokens, *width)), 0).follow(lambda t: t.reshape(v.shape))
            assert size
            value.ints = inputs.is_tokens
            given.append(value)
        elif isinstance(v, torch.Tensor):
            given.append(Const(promoted(v)))
        else:
            given.append(v)
    outs = trace.run(program.graph_module, given)
    mutated = [s.target for s in sig.output_specs if s.kind.name in ("BUFFER_MUTATION", "USER_INPUT_MUTATION")]
    if mutated:
        trace.problems.append(
            (
                "copy_",
                ", ".join(map(str, mutated)),
                "the module keeps state in a buffer: leave its cache out, greta has its own",
            )
        )
    skip = len(mutated)
    outs = [o for o in leaves(outs)[skip:] if o is not None]
    results = [o for o in outs if not isinstance(o, (Const, int, float, str, bool))]
    if len(results) > 1 and not trace.problems:
        trace.problems.append(
            (
                "output",
                "the module's result",
                f"it gives {len(results)} tensors that depend on the "
                "inputs: a model file has one result; return that alone",
            )
        )
    out = results[0] if results else None
    if out is None and not trace.problems and not constants_only:
        trace.problems.append(("output", "the module's result", "it does not depend on the inputs"))
    if trace.problems or constants_only:
        return Pass(trace, builder, None, program)
    try:
        if not isinstance(out, Value):
            raise CannotSay("it is neither activations nor logits")
        builder.rows_of(out)
        if not any(trace.attention.tokens_at(out, d) for d in range(len(out.shape))):
            raise CannotSay("its tokens are not in their order")
        lead = builder.features(out)
        n = builder.resolve(out)
        if plain(n).op in ("x", "tokens"):
            raise CannotSay("it is the input itself")
        n = builder.graph.view(n, (n.size // lead[-1], lead[-1]) if n.size > lead[-1] else (n.size,))
        if len(n.shape) > 1:
            n = builder.graph.view(n, (n.size,))
        if n.op == "view" and n.below.shape == n.shape:
            n = n.below
        n = Sparse(builder, trace.attention.keys).result(n)
        return Pass(trace, builder, n, program)
    except CannotSay as e:
        trace.problems.append(("output", "the module's result", str(e)))
        return Pass(trace, builder, None, program)


def _export(module: torch.nn.Module, inputs: Inputs, path: Path, name: str | None) -> Export:
    notes: list[str] = []
    if inputs.batch > 1:
        notes.append(f"the example has {inputs.batch} sequences: the file computes one, as greta does them each")
    tokens = min(inputs.tokens, MOST_TOKENS)
    other = tokens - 1 if inputs.tables or tokens > 8 else tokens + 3
    first = follow(module, inputs, tokens)
    if first.trace.problems:
        raise ExportError(_unique(first.trace.problems))
    second = follow(module, inputs, other)
    if second.trace.problems:
        raise ExportError(_unique(second.trace.problems))
    title = f"{type(module).__name__}, written by greta.torch.export."
    if name is None:
        stem = path.stem if path.suffix in (".yaml", ".yml") else path.name
        name = re.sub(r"\W+", "_", stem) or "module"
    _windows(module, inputs, (first, second), notes)
    texts = []
    for p in (first, second):
        text = Text(p.out, p.builder.params, name, title)
        texts.append((text.render(), text))
    if texts[0][0] != texts[1][0]:
        a, b = (t[0].splitlines() for t in texts)
        line = next((f"{x.strip()!r} and {y.strip()!r}" for x, y in zip(a, b) if x != y), "their lengths")
        raise ExportError(
            [
                Problem(
                    "torch.export",
                    type(module).__name__,
                    f"with {tokens} and {other} tokens it is not the same network: {line}",
                )
            ]
        )
    error = max(_distance(module, inputs, p, n) for p, n in ((first, tokens), (second, other)))
    if not error <= 1e-4:
        raise ExportError(
            [
                Problem(
                    "greta.torch.export",
                    type(module).__name__,
                    "the equations do not compute what the "
                    f"module does: relative error {error:.2g}. This is a mistake of the exporter; please "
                    "report the module",
                )
            ]
        )
    _longer(module, inputs, first, notes)
    rendered, text = texts[0]
    if text.derived:
        notes.append("tensors that the module has not as they are: " + ", ".join(text.derived))
    ops = {n.op for n in text.order}
    if "chosen" in ops and not ops & {"linear_id", "gather"}:
        notes.append("every expert is computed for every token: their sum is not that of one network with other weights")
    if any(n.attrs.get("both") for n in text.order):
        notes.append("attention without a mask sees the tokens behind too: a sequence is one step")
    if path.suffix in (".yaml", ".yml"):
        model, weights = path, path.with_suffix(".safetensors")
        path.parent.mkdir(parents=True, exist_ok=True)
    else:
        path.mkdir(parents=True, exist_ok=True)
        model, weights = path / "greta.yaml", path / "model.safetensors"
    save_safetensors(weights, text.tensors)
    model.write_text(rendered)
    return Export(model, weights, "model" if text.is_model else "block", notes, error)


def _longer(module: torch.nn.Module, inputs: Inputs, p: Pass, notes: list[str]) -> None:
    """Compares once more with more tokens than were followed: a module may do otherwise from some number on."""
    tokens = inputs.tokens if inputs.tables else max(inputs.tokens, 2 * MOST_TOKENS + 5)
    if tokens <= p.builder.tokens:
        return
    try:
        error = _distance(module, inputs, p, tokens)
    except Exception as e:
        text = str(e).strip().split("\n")[0][:120]
        notes.append(f"compared with at most {p.builder.tokens} tokens: with {tokens} the module does not run ({text})")
        return
    if not error <= 1e-4:
        why = f"with {tokens} tokens it computes something else than with {p.builder.tokens}: relative error {error:.2g}"
        raise ExportError([Problem("the module's result", type(module).__name__, why)])


def _unique(problems: list[tuple[str, str, str]]) -> list[Problem]:
    return list(dict.fromkeys(Problem(*p) for p in problems))


def _windows(module: torch.nn.Module, inputs: Inputs, passes: tuple[Pass, Pass], notes: list[str]) -> None:
    """A window that the example is too short to show: masks are looked at once more with more tokens."""
    keyed = []
    for p in passes:
        keys = p.trace.attention.keys
        keyed.append(
            [
                (n, keys[id(n)])
                for n in reachable(p.out)
                if n.op == "attention" and keys.get(id(n)) and not {"window", "chunk", "both"} & set(n.attrs)
            ]
        )
    if not keyed[0]:
        return
    shortest = min(p.builder.tokens for p in passes)
    (numbers, sizes), (others, _) = (_literals(p.program) for p in passes)
    longer = sorted({n + 3 for n in numbers & others if n >= shortest} | {n for n in sizes if n > shortest})
    if not longer:
        return
    if inputs.tables:
        notes.append(f"the mask is seen for {inputs.tokens} tokens, as it is given: a window of more would not show")
        return
    for probe in [n for n in longer if n <= MOST_PROBE][::-1]:
        try:
            wide = follow(module, inputs, probe, constants_only=True)
            break
        except (ExportError, CannotSay, RuntimeError):
            continue
    else:
        notes.append(f"masks are seen for {inputs.tokens} tokens: the module takes no more")
        return
    if probe < longer[-1]:
        notes.append(f"masks are seen for {probe} tokens: a window of more would not show")
    for nodes in keyed:
        for n, names in nodes:
            hidden = torch.zeros(probe, dtype=torch.bool)  # of the last token
            for m, query, key in ((m, q, k) for name, q, k in names for m in wide.trace.masks.get(name, [])):
                if key and query and m.dim() >= -key and m.shape[key] == probe:
                    if m.dim() >= -query:
                        m = m.narrow(query, m.shape[query] - 1, 1)
                    row = m.movedim(key, -1).reshape(-1, probe)[0]
                    hidden |= row != row[-1] if m.dtype == torch.bool else row <= -1e4  # a token sees itself
            seen = int((~hidden).sum())
            if seen < probe:
                n.attrs["window"] = seen


def _literals(program: Any) -> tuple[set[int], set[int]]:
    """The whole numbers in a graph, and the sizes of its buffers."""
    numbers: set[int] = set()
    sizes: set[int] = set()
    for n in program.graph.nodes:
        if n.op == "call_function" and opname(n.target) not in ("view", "reshape", "linear", "expand"):
            numbers |= {
                abs(int(a))
                for a in leaves((n.args, n.kwargs))
                if isinstance(a, (int, float)) and not isinstance(a, bool) and HIDDEN < a < 1 << 40 and int(a) == a
            }
    for t in program.graph_signature.inputs_to_buffers.values():
        v = program.state_dict.get(t, program.constants.get(t))
        if isinstance(v, torch.Tensor):
            sizes |= set(v.shape)
    return numbers, sizes


def _distance(module: torch.nn.Module, inputs: Inputs, p: Pass, tokens: int) -> float:
    """How far the equations are from the module, both in float64, on random activations."""
    import copy

    args, kwargs = inputs.at(tokens)
    generator = torch.Generator().manual_seed(7)
    random = None

    def change(t: Any) -> Any:
        nonlocal random
        if isinstance(t, (list, tuple)):
            return type(t)(change(i) for i in t)
        if isinstance(t, dict):
            return {k: change(v) for k, v in t.items()}
        if not isinstance(t, torch.Tensor):
            return t
        if random is None:
            random = torch.randn(t.shape, generator=generator, dtype=torch.float64) if t.is_floating_point() else t
            return random
        return promoted(t)

    args, kwargs = change(args), change(kwargs)
    assert random is not None
    double = copy.deepcopy(module).double()
    try:
        with AsTraced(p.program):
            want = double(*args, **kwargs)
    except RuntimeError:  # it insists on single precision somewhere
        args, kwargs = (
            torch.utils._pytree.tree_map(
                lambda t: t.float() if isinstance(t, torch.Tensor) and t.dtype == torch.float64 else t, a
            )
            for a in (args, kwargs)
        )
        with AsTraced(p.program):
            want = copy.deepcopy(module).float()(*args, **kwargs)
    tensors = [t for t in torch.utils._pytree.tree_flatten(want)[0] if isinstance(t, torch.Tensor)]
    want = tensors[0].to(torch.float64)
    feed = {
        "pos": torch.arange(tokens),
        "tokens" if inputs.is_tokens else "x": random.reshape(tokens, *random.shape[2:]) if inputs.batched else random,
    }
    got = p.builder.graph.run(p.out, feed).reshape(-1)
    want = want.reshape(tokens, -1).reshape(-1)
    if got.numel() != want.numel():
        return float("inf")
    return float((got - want).norm() / want.norm().clamp_min(1e-300))


__all__ = ["Export", "ExportError", "Problem", "export", "NOTHING", "Node"]
