"""Equations of a model file as a graph, and what they compute in float64.

A node is one call of an operator of greta's. Its value has a row for each token; ``shape`` is what one row has,
so a node of shape ``(4, 16)`` is a tensor ``[S, 4, 16]``. Equal calls are one node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Source:
    """Which tensor of the module a constant is: its name, what was added to it, and whether it is transposed."""

    name: str
    plus: float = 0.0
    transposed: bool = False


@dataclass(eq=False)
class Weight:
    """A constant operand of an equation."""

    value: torch.Tensor
    source: Source | None
    hint: str


@dataclass(eq=False)
class Node:
    """One call of an operator."""

    op: str
    inputs: tuple["Node | Weight", ...]
    attrs: dict[str, Any]
    shape: Shape
    where: str = ""
    base: int = 0
    root: "Node | None" = None
    function: Any = field(default=None, repr=False)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def below(self) -> "Node":
        """The first operand, which is no weight."""
        n = self.inputs[0]
        assert isinstance(n, Node)
        return n


# A number that stands for a function of one element, by which compositions are recognised.
PROBE = torch.linspace(-5.5, 5.5, 97, dtype=torch.float64)

UNARY = {
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "floor": torch.floor,
    "softplus": torch.nn.functional.softplus,
    "erf": torch.erf,
    "relu2": lambda x: torch.relu(x) ** 2,
}

KNOWN = [
    ("silu", {}, torch.nn.functional.silu),
    ("gelu", {"form": "erf"}, lambda x: torch.nn.functional.gelu(x)),
    ("gelu", {"form": "tanh"}, lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    ("relu2", {}, UNARY["relu2"]),
]


class Graph:
    """The nodes of one translation, for steps of ``tokens`` tokens."""

    def __init__(self, tokens: int):
        self.tokens = tokens
        self.nodes: list[Node] = []
        self.where = ""
        self._known: dict[Any, Node] = {}
        self._next = 0
        self._weights: dict[Shape, list[Weight]] = {}

    # Making nodes

    def node(self, op: str, inputs: tuple[Node | Weight, ...] = (), shape: Shape = (), **attrs: Any) -> Node:
        key = (op, tuple(id(i) for i in inputs), shape, tuple(sorted((k, repr(v)) for k, v in attrs.items())))
        if key in self._known:
            return self._known[key]
        n = Node(op, inputs, attrs, tuple(shape), self.where, self._next)
        self._next += self.tokens * max(n.size, 1)
        self._known[key] = n
        self.nodes.append(n)
        return n

    def weight(self, value: torch.Tensor, source: Source | None = None, hint: str = "w") -> Weight:
        value = value.detach().to(torch.float64).contiguous()
        for w in self._weights.get(tuple(value.shape), []):
            if w.source == source and torch.equal(w.value, value):
                return w
        w = Weight(value, source, hint)
        self._weights.setdefault(tuple(value.shape), []).append(w)
        return w

    def view(self, n: Node, shape: Shape) -> Node:
        shape = tuple(int(d) for d in shape) or (1,)
        if n.shape == shape:
            return n
        if n.op == "view":
            return self.view(n.below, shape)
        return self.node("view", (n,), shape)

    def unary(self, op: str, x: Node, **attrs: Any) -> Node:
        """A function of each element. A composition that is one of greta's functions becomes that."""
        if op == "affine":
            by, plus = attrs["by"], attrs["plus"]
            if x.op == "affine":
                by, plus, x = by * x.attrs["by"], plus + by * x.attrs["plus"], x.below
            if abs(by - 1) < 1e-12:
                by = 1.0
            if by == 1 and plus == 0:
                return x
            attrs = {"by": by, "plus": plus}
            cap = self._cap(x, by, plus)
            if cap is not None:
                return cap
        if op == "pow":
            if attrs["p"] == 1:
                return x
            if x.op == "pow" and x.attrs["p"] in (0.5, -0.5, -1.0):
                return self.unary("pow", x.below, p=x.attrs["p"] * attrs["p"])
        n = self.node(op, (x,), x.shape, **attrs)
        if n.root is None:
            n.root = x.root or x
            inner = x.function or (lambda v: v)
            n.function = lambda v: elementwise(n, [inner(v)])
        return n

    def _cap(self, x: Node, by: float, plus: float) -> Node | None:
        """by * tanh(y / by) is a soft cap."""
        if x.op != "tanh" or plus != 0 or by <= 0:
            return None
        y = x.below
        inner = y.attrs["by"] if y.op == "affine" and y.attrs["plus"] == 0 else 1.0
        if abs(inner * by - 1) > 1e-6:
            return None
        return self.unary("softcap", y.below if y.op == "affine" else y, cap=by)

    def recognised(self, n: Node) -> tuple[Node, float]:
        """A node and a factor that are the same function of the same elements, in greta's own operator if there is."""
        if n.function is None or n.root is None or n.root is n.inputs[0] and len(n.inputs) == 1:
            return n, 1.0
        y = n.function(PROBE)
        for op, attrs, f in KNOWN:
            want = f(PROBE)
            factor = float((y * want).sum() / (want * want).sum())
            if factor != 0 and float((y / factor - want).abs().max()) < 2e-6:
                return self.unary(op, self.view(n.root, n.shape), **attrs), factor
        return n, 1.0

    def binary(self, op: str, x: Node, y: Node | Weight) -> tuple[Node, float]:
        """An operation of two tensors, of which the second may have sizes of one; and a factor on the result."""
        if isinstance(y, Node):
            if op == "mul":
                norm = self._norm(x, y) or (self._norm(y, x) if x.shape == y.shape else None)
                if norm is not None:
                    return norm
            if op == "div":
                norm = self._norm(x, self.unary("pow", y, p=-1.0))
                if norm is not None:
                    return norm
            if op == "sub" and x.op == "add" and y in x.inputs:  # (y + z) - y
                for i in x.inputs:
                    if isinstance(i, Node) and i is not y and i.shape == x.shape:
                        return i, 1.0
            if op == "mul" and x is y:
                return self.unary("pow", x, p=2.0), 1.0
        shape = tuple(x.shape)
        if isinstance(y, Node) and len(y.shape) == len(x.shape):
            shape = tuple(max(a, b) for a, b in zip(x.shape, y.shape))
        if (
            isinstance(y, Weight)
            and op == "add"
            and x.op == "linear"
            and len(x.inputs) == 2
            and y.value.shape == (x.shape[-1],)
        ):
            return self.node("linear", (*x.inputs, y), x.shape), 1.0
        n = self.node(op, (x, y), shape)
        if n.root is None and isinstance(y, Node) and x.shape == y.shape:
            a, b = (x.root or x), (y.root or y)
            if a is b or x is b or y is a:
                root = a if a is b else (x if x is b else y)
                fa = (lambda v: v) if x is root else x.function
                fb = (lambda v: v) if y is root else y.function
                if fa is not None and fb is not None:
                    n.root = root
                    n.function = lambda v: elementwise(n, [fa(v), fb(v)])
                    return self.recognised(n)
        return n, 1.0

    def _norm(self, x: Node, r: Node) -> tuple[Node, float] | None:
        """x * (mean(x²) * a + eps)^-½ is an RMSNorm, over √a."""
        if not r.shape or r.shape[-1] != 1 or not x.shape:
            return None
        r = plain(r)
        if r.op != "pow" or r.attrs["p"] != -0.5:
            return None
        u, a, eps = plain(r.below), 1.0, 0.0
        if u.op == "affine":
            a, eps, u = u.attrs["by"], u.attrs["plus"], plain(u.below)
        if u.op != "mean" or a <= 0 or eps < 0 or u.below.shape[-1] != x.shape[-1]:
            return None
        sq = plain(u.below)
        if sq.op != "pow" or sq.attrs["p"] != 2.0 or plain(sq.below) is not plain(x):
            return None
        x = plain(x) if plain(x).shape == x.shape else x
        return self.node("rmsnorm", (x,), x.shape, eps=eps / a), a**-0.5

    def mean(self, x: Node) -> Node:
        return self.node("mean", (x,), (*x.shape[:-1], 1))

    # What it computes

    def run(self, out: Node, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The result for inputs x, tokens and pos, in float64."""
        done: dict[int, torch.Tensor] = {}
        needed = {id(n) for n in reachable(out)}
        for n in self.nodes:
            if id(n) not in needed:
                continue
            if n.op in ("x", "tokens", "pos"):
                v = inputs[n.op]
            else:
                v = compute(n, [i.value if isinstance(i, Weight) else done[id(i)] for i in n.inputs])
            done[id(n)] = v
        return done[id(out)]


def plain(n: Node) -> Node:
    return n.below if n.op == "view" else n


def reachable(out: Node) -> list[Node]:
    """The nodes that a result needs, in an order in which they can be computed."""
    seen: set[int] = set()
    order: list[Node] = []
    stack: list[tuple[Node, bool]] = [(out, False)]
    while stack:
        n, ready = stack.pop()
        if ready:
            order.append(n)
            continue
        if id(n) in seen:
            continue
        seen.add(id(n))
        stack.append((n, True))
        stack.extend((i, False) for i in reversed(n.inputs) if isinstance(i, Node))
    return order


def elementwise(n: Node, v: list[torch.Tensor]) -> torch.Tensor:
    a = n.attrs
    match n.op:
        case "affine":
            return v[0] * a["by"] + a["plus"]
        case "pow":
            return v[0] ** a["p"]
        case "softcap":
            return torch.tanh(v[0] / a["cap"]) * a["cap"]
        case "gelu":
            return torch.nn.functional.gelu(v[0], approximate="tanh" if a["form"] == "tanh" else "none")
        case "clamp":
            return v[0].clamp(a["low"], a["high"])
        case "add":
            return v[0] + v[1]
        case "sub":
            return v[0] - v[1]
        case "mul":
            return v[0] * v[1]
        case "div":
            return v[0] / v[1]
        case "min":
            return torch.minimum(v[0], v[1])
        case "max":
            return torch.maximum(v[0], v[1])
        case "greater":
            return (v[0] > v[1]).to(torch.float64)
    return UNARY[n.op](v[0])


def compute(n: Node, v: list[torch.Tensor]) -> torch.Tensor:
    """The float64 meaning of an operator, as docs/language.md and `greta ops` have it."""
    a, rows = n.attrs, v[0].shape[0]
    match n.op:
        case "view":
            return v[0].reshape(rows, *n.shape)
        case "linear":
            return torch.nn.functional.linear(v[0], v[1], v[2] if len(v) > 2 else None)
        case "per_head":
            return torch.einsum("shk,hnk->shn", v[0], v[1])
        case "embed":
            return v[1][v[0].long()]
        case "rmsnorm":
            y = v[0] * (v[0].pow(2).mean(-1, keepdim=True) + a["eps"]) ** -0.5
            return y * v[1] if len(v) > 1 else y
        case "layernorm":
            return torch.nn.functional.layer_norm(v[0], v[0].shape[-1:], *v[1:], eps=a["eps"])
        case "mean":
            return v[0].mean(-1, keepdim=True)
        case "sum":
            return v[0].sum(-1, keepdim=True)
        case "largest":
            return v[0].amax(-1, keepdim=True)
        case "softmax":
            return v[0].softmax(-1)
        case "slice":
            return v[0].narrow(a["axis"], a["from"], a["to"] - a["from"])
        case "concat":
            return torch.cat(v, a["axis"])
        case "expand":
            g = v[0].shape[1]
            if a["copy"] == "behind":
                return v[0].repeat(1, a["to"] // g, 1)
            return v[0].repeat_interleave(a["to"] // g, 1)
        case "rope":
            return rotate(v, a)
        case "push":
            return v[0]
        case "topk" | "chosen":
            return v[0].topk(a["k"], -1)[0 if n.op == "topk" else 1]
        case "lookup":
            return v[1][v[0].long()]
        case "gather":
            return v[0].gather(-1, v[1].long())
        case "mix":
            return torch.einsum("sun,su->sn", v[0], v[1])
        case "linear_id":
            y = torch.einsum("suk,sunk->sun", v[0].expand(-1, v[2].shape[1], -1), v[1][v[2].long()])
            return y + v[3][v[2].long()] if len(v) > 3 else y
        case "attention":
            return attend(v, a)
    if len(v) == 2 and v[1].dim() == v[0].dim() - 1 and n.op == "expand":
        raise AssertionError(n.op)
    return elementwise(n, v)


def rotate(v: list[torch.Tensor], a: dict[str, Any]) -> torch.Tensor:
    x, pos = v[0], v[1].to(torch.float64)
    dims, half = a["dims"], a["dims"] // 2
    freqs = a["base"] ** (-2.0 * torch.arange(half, dtype=torch.float64) / dims)
    if len(v) > 2:
        freqs = freqs / v[2]
    t = pos[:, None, None] * freqs
    cos, sin = t.cos() * a.get("attn_factor", 1.0), t.sin() * a.get("attn_factor", 1.0)
    part, rest = x[..., :dims], x[..., dims:]
    if a["layout"] == "half":
        p, q = part[..., :half], part[..., half:]
        y = torch.cat((p * cos - q * sin, q * cos + p * sin), -1)
    else:
        p, q = part[..., ::2], part[..., 1::2]
        y = torch.stack((p * cos - q * sin, q * cos + p * sin), -1).flatten(-2)
    return torch.cat((y, rest), -1)


def attend(v: list[torch.Tensor], a: dict[str, Any]) -> torch.Tensor:
    q, k, value, pos = v[0], v[1], v[2], v[3]
    per = q.shape[1] // k.shape[1]
    k, value = k.repeat_interleave(per, 1), value.repeat_interleave(per, 1)
    scores = torch.einsum("shd,thd->hst", q, k) * a["scale"]
    if a.get("softcap"):
        scores = torch.tanh(scores / a["softcap"]) * a["softcap"]
    distance = pos[:, None] - pos[None, :]
    if a.get("alibi"):
        heads = q.shape[1]
        power = 1 << (heads.bit_length() - 1)
        place = torch.cat((torch.arange(1, power + 1) / power, (torch.arange(heads - power) * 2 + 1) / (2 * power)))
        slope = a.get("slope", 1.0) * 2.0 ** (-a["alibi"] * place.to(torch.float64))
        scores = scores - slope[:, None, None] * distance
    if not a.get("both"):
        hidden = distance < 0
        if a.get("window"):
            hidden = hidden | (distance >= a["window"])
        if a.get("chunk"):
            hidden = hidden | (pos[:, None] // a["chunk"] != pos[None, :] // a["chunk"])
        scores = scores.masked_fill(hidden, -math.inf)
    if len(v) > 4:  # sinks
        scores = torch.cat((scores, v[4][:, None, None].expand(-1, scores.shape[1], 1)), -1)
    return torch.einsum("hst,thd->shd", scores.softmax(-1)[..., : len(pos)], value)
