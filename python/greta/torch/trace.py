"""Follows the graph of torch.export operator by operator, for one number of tokens."""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Callable

import torch

from .experts import Picked, Places
from .operators import JOINS, MOVES, NOTHING, SAME, UNARY, Operators
from .scores import Attention
from .values import BESIDE, Builder, CannotSay, Complex, Const, Scores, Term, Value, joined, scalar

ASSERTS = {
    "_assert_async",
    "_assert_scalar",
    "_assert_tensor_metadata",
    "sym_constrain_range",
    "_assert_async_msg",
    "sym_constrain_range_for_size",
}
LIKE = {f"new_{n}" for n in ("ones", "zeros", "full", "empty")} | {f"{n}_like" for n in ("ones", "zeros", "full", "empty")}
TORCH = os.path.dirname(torch.__file__)


def promoted(x: Any) -> Any:
    """Numbers in double precision, whatever the module computes in."""
    if isinstance(x, torch.dtype):
        if x.is_complex:
            return torch.complex128
        return torch.float64 if x.is_floating_point else x
    if isinstance(x, torch.Tensor):
        if x.is_complex():
            return x.to(torch.complex128)
        return x.to(torch.float64) if x.is_floating_point() else x
    if isinstance(x, (list, tuple)):
        return type(x)(promoted(i) for i in x)
    return x


class Trace(Operators):
    """One pass through a graph: ``problems`` lists (operator, where, why) of what cannot be said."""

    def __init__(self, builder: Builder):
        self.b = builder
        self.g = builder.graph
        self.attention = Attention(builder)
        self.problems: list[tuple[str, str, str]] = []
        self.masks: dict[str, list[torch.Tensor]] = {}
        self.constants_only = False
        self.current = ""

    # The graph

    def run(self, module: torch.fx.GraphModule, inputs: list[Any], path: str = "") -> list[Any]:
        env: dict[torch.fx.Node, Any] = {}
        given = iter(inputs)
        wanted = needed(module.graph)
        for n in module.graph.nodes:
            if n not in wanted and n.op != "placeholder":
                continue  # nothing of the result comes of it
            if n.op == "placeholder":
                env[n] = next(given)
            elif n.op == "get_attr":
                env[n] = self.attribute(module, n.target)
            elif n.op == "call_function":
                self.current = self.attention.current = path + n.name
                self.g.where = place(n)
                env[n] = self.call(module, n, env, path)
                if mutable(n.target) and n.args and isinstance(n.args[0], torch.fx.Node):
                    env[n.args[0]] = env[n]
            elif n.op == "output":
                return torch.fx.map_arg(n.args[0], lambda a: env[a])
        raise AssertionError("a graph without an output")

    @staticmethod
    def attribute(module: torch.nn.Module, target: str) -> Any:
        for part in target.split("."):
            module = getattr(module, part)
        if isinstance(module, torch.Tensor):
            return Const(promoted(module.detach()))
        return module

    def call(self, module: torch.fx.GraphModule, n: torch.fx.Node, env: dict[torch.fx.Node, Any], path: str) -> Any:
        args = torch.fx.map_arg(n.args, lambda a: env[a])
        kwargs = torch.fx.map_arg(n.kwargs, lambda a: env[a])
        if n.target is operator.getitem and args[0] is not NOTHING:
            return args[0][args[1]]
        if any(a is NOTHING for a in leaves((args, kwargs))):
            if self.constants_only:
                self.note_masks(args, kwargs)
            return NOTHING  # follows from a problem that is listed
        name = opname(n.target)
        subs = [a for a in args if isinstance(a, torch.fx.GraphModule)]
        try:
            if subs:
                if not name.startswith("wrap_with"):
                    raise CannotSay("the module chooses what it computes while it runs")
                at = list(args).index(subs[0])
                return self.run(subs[0], list(args[at + 1 :]), path + n.name + ".")
            if name in ASSERTS:
                return None
            data = [a for a in leaves((args, kwargs)) if isinstance(a, (Value, Complex, Scores, Places, Picked))]
            if not data:
                return self.constant(n.target, name, args, kwargs)
            if self.constants_only:
                self.note_masks(args, kwargs)
                return NOTHING
            self.dtype = getattr(n.all_input_nodes[0].meta.get("val"), "dtype", torch.float32)
            if name in ("index", "index_put"):
                args = (args[0], self.masks_of(n.args[1], args[1]), *args[2:])
            return self.apply(name, n.target, list(args), dict(kwargs))
        except CannotSay as e:
            self.problems.append((str(n.target).replace(".default", ""), place(n), str(e)))
        except Exception as e:
            self.problems.append(
                (str(n.target), place(n), f"its operands are not understood ({type(e).__name__}: {e})")
            )
        return NOTHING

    def note_masks(self, args: Any, kwargs: Any) -> None:
        """In a pass over constants alone: those that meet something that depends on the inputs."""
        for a in leaves((args, kwargs)):
            if isinstance(a, Const) and isinstance(a.value, torch.Tensor) and a.value.dim() >= 2:
                self.masks.setdefault(self.current, []).append(a.value)

    # Constants

    def constant(self, target: Any, name: str, args: Any, kwargs: Any) -> Any:
        def plain(x: Any) -> Any:
            if isinstance(x, Const):
                return x.value
            if isinstance(x, (list, tuple)):
                return type(x)(plain(i) for i in x)
            return promoted(x)

        values, named = plain(args), {k: plain(v) for k, v in kwargs.items()}
        if not callable(target):
            raise CannotSay("an operator of an unknown kind")
        result = target(*values, **named)
        first = next((a for a in leaves(args) if isinstance(a, Const)), None)

        def wrap(v: Any) -> Any:
            if isinstance(v, torch.Tensor):
                c = Const(promoted(v))
                if first is not None:
                    c.source, c.rows = self.source(name, first, args, kwargs, v)
                return c
            if isinstance(v, (list, tuple)):
                return [wrap(i) for i in v]
            return v

        return wrap(result)

    def source(self, name: str, c: Const, args: Any, kwargs: Any, result: torch.Tensor) -> Any:
        """Which tensor of the module a constant still is after an operator, and of which it is the first rows."""
        if name == "embedding" and isinstance(args[1], Const) and c.source is not None:
            ids = args[1].value.flatten()
            if torch.equal(ids, torch.arange(len(ids))):
                return None, c.source.name
        if c.source is None:
            moved = name in SAME or name in ("unsqueeze", "view", "expand", "reshape", "slice")
            return None, (c.rows if moved and result.numel() == c.value.numel() else None)
        s = c.source
        if name in SAME or name in MOVES and result.numel() == c.value.numel():
            if name in ("t", "transpose", "permute", "mT", "numpy_T") and c.value.dim() == 2:
                return type(s)(s.name, s.plus, not s.transposed), None
            return s, None
        if name in ("slice", "narrow"):
            begin = args[2] if len(args) > 2 else kwargs.get("start")
            have, cut = (next((i for i, d in enumerate(t.shape) if d != 1), 0) for t in (c.value, result))
            if not begin and c.value.shape[have + 1 :] == result.shape[cut + 1 :] and have == cut:
                return None, s.name
        if name in ("add", "rsub", "sub") and len(args) > 1:
            others = [a for a in args[:2] if a is not c]
            by = others[0] if others else None
            by = scalar(by) if isinstance(by, Const) else by
            if name == "add" and isinstance(by, (int, float)) and kwargs.get("alpha", 1) == 1 and not s.transposed:
                return type(s)(s.name, s.plus + by, False), None
        return None, None

    # Operators

    def apply(self, name: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name != "einsum" and any(isinstance(a, Picked) for a in args):
            return self.picked(name, target, args, kwargs)
        if name in LIKE:
            return self.like(name, args, kwargs)
        if isinstance(args[0], Const) and name in (*SAME, "expand_as", "view_as", "reshape_as"):
            if name in SAME:
                return args[0]  # in the type of what depends on the inputs
            return Const(target(args[0].value, torch.empty(args[1].shape)), args[0].source)
        if name == "einsum":
            return self.einsum(args[0].replace(" ", ""), args[1])
        if any(isinstance(a, Scores) for a in leaves((args, kwargs))):
            return self.attention.scores(name, target, args, kwargs)
        if any(isinstance(a, Complex) for a in leaves((args, kwargs))):
            return self.complex(name, target, args, kwargs)
        if name in ("dropout", "feature_dropout", "native_dropout", "alpha_dropout"):
            training = args[2] if len(args) > 2 else kwargs.get("train", False)
            if training and args[1] != 0:
                raise CannotSay("dropout in training: export the module after .eval()")
            return (args[0], None) if name == "native_dropout" else args[0]
        if name in SAME:
            dtype = next((a for a in leaves((args[1:], kwargs)) if isinstance(a, torch.dtype)), None)
            if dtype is not None and not dtype.is_floating_point and self.is_float(args[0]):
                raise CannotSay(f"activations become {dtype}: they are floats")
            return args[0]
        if name in MOVES:
            return self.move(name, target, args, kwargs)
        if name in JOINS:
            return self.join(name, args, kwargs)
        if name in ("slice_scatter", "select_scatter"):
            return self.written(target, args, kwargs)
        method = getattr(self, "op_" + name.strip("_"), None)
        if method is not None:
            return method(*args, **kwargs)
        if name.rstrip("_") in UNARY:
            if len(args) > 1 or kwargs:
                if name != "softplus" or [a for a in args[1:] if a not in (1, 20)]:
                    raise CannotSay("this form of it")
            return self.unary(name.rstrip("_"), args[0])
        raise CannotSay("no operator of a model file does this")

    def is_float(self, v: Any) -> bool:
        if not isinstance(v, Value) or v.ints:
            return False
        nodes, _, _ = self.b.owner(v.terms[0].index)
        return {self.g.nodes[int(n)].op for n in nodes.unique()} - {"tokens", "chosen", "lookup"} != set()

    def move(self, name: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if any(isinstance(a, Value) for a in args[1:]) and name not in ("expand_as", "view_as", "reshape_as"):
            raise CannotSay("what moves depends on the inputs")
        if not isinstance(args[0], Value):
            raise CannotSay("a constant takes its form after the inputs")
        rest = [a.value if isinstance(a, Const) else a for a in args[1:]]
        rest = [torch.empty(a.shape) if isinstance(a, Value) else a for a in rest]
        if name in ("view", "_unsafe_view"):
            if rest and isinstance(rest[0], torch.dtype):
                raise CannotSay("the bytes are seen as another type")
            target = torch.ops.aten.reshape.default
        return args[0].follow(lambda t: target(t, *rest, **kwargs))

    def join(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Value:
        parts = args[0]
        if not all(isinstance(p, Value) for p in parts):
            raise CannotSay(BESIDE)
        return joined(list(parts), lambda p: getattr(torch, JOINS[name])(p, *args[1:], **kwargs))

    def written(self, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Value:
        """A part of a tensor written anew. Of a constant only that may be used which has been written over."""
        base = args[0]
        if not isinstance(args[1], Value):
            raise CannotSay(BESIDE)
        if not isinstance(base, Value):
            shape = base.shape
            base = Value([Term(torch.zeros(shape, dtype=torch.long), torch.full(shape, math.nan, dtype=torch.float64))])
        v = joined([base, args[1]], lambda p: target(p[0], p[1], *args[2:], **kwargs))
        for t in v.terms:
            if t.times is not None and bool((t.times == 1).all()):
                t.times = None
        return v

    def op_index(self, x: Any, indices: Any) -> Value | Const:
        if any(isinstance(i, Places) for i in indices):
            if isinstance(x, Const) and x.value.dim() and bool((x.value == x.value[:1]).all()):
                return x  # every token's is the same
            return self.at_places(x, list(indices))
        if not isinstance(x, Value) or any(isinstance(i, Value) for i in indices):
            if isinstance(x, Const) and len(indices) == 1:
                return self.op_embedding(x, indices[0])
            raise CannotSay("elements are chosen by what the inputs are")
        at = tuple(slice(None) if i is None else i.value for i in indices)
        return x.follow(lambda t: t[at])

    def masks_of(self, nodes: Any, indices: Any) -> list[Any]:
        """Indices, those that are masks of the inputs' as the elements that a mask has, a dimension each."""
        found: list[Any] = []
        for n, i in zip(nodes, indices):
            mask = isinstance(i, Value) and n.meta["val"].dtype == torch.bool
            found += [Places(i, d, self.b.tokens) for d in range(len(i.shape))] if mask else [i]
        return found

    def op_index_put(self, x: Any, indices: Any, v: Any, accumulate: bool = False) -> Any:
        """x[indices] = v, or += v."""
        places = [(d, i) for d, i in enumerate(indices) if isinstance(i, Places)]
        if any(isinstance(i, Value) for i in indices) or places and len(places) < sum(i is not None for i in indices):
            raise CannotSay("elements are written where the inputs say")
        if places:
            first, mask = places[0][0], places[0][1].mask
            if any(p.mask is not mask for _, p in places):
                raise CannotSay("elements are chosen by two masks at once")
            one = not isinstance(v, Value) and scalar(v) is not None
            if not one and len(places) == 1:
                token = self.mask_of(mask)
                if places[0][1].dim != token:
                    raise CannotSay("values are written for each choice of the tokens, not for the tokens")
                mask = self.holds(mask)
            elif not one:
                raise CannotSay("several values are written where a mask of elements says")
            behind = [1] * (len(x.shape) - first - len(places))
            mask = mask.follow(lambda m: m.reshape(*m.shape, *behind))
            return self.op_add(self.op_mul(mask, v), x) if accumulate else self.op_where(mask, v, x)
        at = tuple(slice(None) if i is None else i.value for i in indices)
        if accumulate:
            raise CannotSay("elements are added to elements by their numbers")

        def put_in(t: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
            t = t.clone()
            t[at] = part
            return t

        if isinstance(v, Value):
            return self.written(put_in, [x, v], {})
        one, zero = (torch.full(x.shape, float(i), dtype=torch.float64) for i in (1, 0))
        keep, put = put_in(one, torch.zeros(())), put_in(zero, v.value.to(torch.float64))
        y = self.op_mul(x, Const(keep))
        return self.op_add(y, Const(put)) if bool(put.any()) else y

    def like(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Const:
        """A constant that has only its shape or its type from what depends on the inputs."""
        rest = [a.value if isinstance(a, Const) else a for a in args[1:]]
        shape = args[0].shape if name.endswith("_like") else rest.pop(0)
        fill = rest[0] if "full" in name and rest else kwargs.get("fill_value", 0)
        if "ones" in name:
            fill = 1
        dtype = kwargs.get("dtype") or (torch.int64 if getattr(args[0], "ints", False) else torch.float64)
        return Const(promoted(torch.full(tuple(shape), fill, dtype=dtype)))

    def op_copy(self, x: Any, y: Any, *_: Any) -> Any:
        return y.follow(lambda t: t.expand(x.shape)) if isinstance(y, Value) else y


def leaves(x: Any) -> list[Any]:
    if isinstance(x, (list, tuple)):
        return [l for i in x for l in leaves(i)]
    if isinstance(x, dict):
        return [l for i in x.values() for l in leaves(i)]
    return [x]


def needed(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The nodes that the result needs."""
    found: set[torch.fx.Node] = set()
    for n in reversed(graph.nodes):
        if n.op == "output" or n in found:
            found.update((n, *n.all_input_nodes))
    return found


def mutable(target: Any) -> bool:
    """Whether an operator writes into its operands."""
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.is_mutable


def opname(target: Any) -> str:
    schema = getattr(target, "_schema", None)
    name = schema.name.split("::")[-1] if schema is not None else getattr(target, "__name__", str(target))
    return name.rstrip("_") if not name.startswith("_") and name.endswith("_") else name


def place(n: torch.fx.Node) -> str:
    """The line of the module's source that an operator comes from."""
    trace = (n.meta.get("stack_trace") or "").strip().splitlines()
    for i in range(len(trace) - 1, -1, -1):
        line = trace[i].strip()
        if line.startswith("File ") and not line.split('"')[1].startswith(TORCH):
            parts = line.split('"')
            number = parts[2].split("line ")[1].split(",")[0]
            source = trace[i + 1].strip() if i + 1 < len(trace) else ""
            return f"{parts[1]}:{number}: {source}"
    return n.name


__all__ = ["Trace", "mutable", "opname", "place", "leaves", "promoted", "Callable"]
