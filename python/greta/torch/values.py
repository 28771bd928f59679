"""What the tensors of a module are while it is translated.

A :class:`Const` is a tensor that no input changes: it is computed, in float64. A :class:`Value` knows of every
element which element of which equation's result it is, times which numbers: so every view, slice, transposition,
concatenation and rotation of the module is followed by doing the same to the numbers of the elements, and only what
computes becomes an equation. :class:`Complex` is two values. :class:`Scores` are a product of queries and keys on
their way through the softmax.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Callable

import torch

from .nodes import Graph, Node, Source, Weight, plain
from .rotation import NoRotation, rotation


class CannotSay(Exception):
    """What greta's model files cannot say; the message says why."""


BESIDE = "constants are put beside activations: that is for activations only"


@dataclass
class Const:
    value: Any
    source: Source | None = None
    rows: str | None = None  # the first rows of this tensor

    @property
    def shape(self) -> torch.Size:
        return self.value.shape


@dataclass
class Term:
    """index: of each element, the number of the element that it is; times: by what it is multiplied."""

    index: torch.Tensor
    times: torch.Tensor | None = None
    source: Source | None = None

    def factor(self) -> torch.Tensor:
        if self.times is None:
            return torch.ones(self.index.shape, dtype=torch.float64)
        return self.times.expand(self.index.shape)


@dataclass
class Value:
    """A tensor that depends on the inputs: the sum of its terms."""

    terms: list[Term]
    ints: bool = False  # token ids as they came

    @property
    def shape(self) -> torch.Size:
        return self.terms[0].index.shape

    def follow(self, do: Callable[[torch.Tensor], Any]) -> Any:
        """Does to the elements' numbers what the module does to the elements; several results give several."""
        results: list[list[Term]] = []
        for t in self.terms:
            index = do(t.index)
            times = None if t.times is None else do(t.factor())
            if isinstance(index, torch.Tensor):
                index, times = [index], [times]
                single = True
            else:
                single = False
                times = times or [None] * len(index)
            for i, (a, b) in enumerate(zip(index, times)):
                if i == len(results):
                    results.append([])
                results[i].append(Term(a, b, t.source))
        values = [Value(r) for r in results]
        return values[0] if single else values


@dataclass
class Complex:
    re: Value
    im: Value


@dataclass
class Scores:
    """softmax(cap(scale * q·k) + mask): q and k are [S, H, K]. order says of each element of the module's tensor which
    score it is: (head * S + query) * S + key."""

    q: Value
    k: Value
    order: torch.Tensor
    scale: float = 1.0
    cap: float = 0.0
    bias: torch.Tensor | None = None  # [H, S, S], what masks add where they hide nothing
    inner: float = 0.0  # scores are tanh(inner * scale * q·k), not yet multiplied
    hidden: torch.Tensor | None = None  # [S, S]
    masked: bool = False
    keys: tuple[tuple[str, int, int], ...] = ()  # operators by which the masks came, which dimensions queries and keys are
    sinks: torch.Tensor | None = None  # [H], a score each that has no value; in order they are -1
    stage: str = "scores"  # scores, tanh, exp, sum, max, logs, logsum, probs

    @property
    def shape(self) -> torch.Size:
        return self.order.shape


def same(parts: list[Value]) -> list[list[Term]]:
    """Gives all values as many terms, where need be with terms that are zero."""
    most = max(len(p.terms) for p in parts)
    out = []
    for p in parts:
        terms = list(p.terms)
        while len(terms) < most:
            index = p.terms[0].index
            terms.append(Term(index, torch.zeros((), dtype=torch.float64)))
        out.append(terms)
    return out


def joined(parts: list[Value], do: Callable[[list[torch.Tensor]], torch.Tensor]) -> Value:
    """A value made of several by a concatenation or the like."""
    terms = []
    for column in zip(*same(parts)):
        index = do([t.index for t in column])
        times, source = None, None
        if any(t.times is not None for t in column):
            times = do([t.factor() for t in column])
        if len({t.source for t in column}) == 1:
            source = column[0].source
        terms.append(Term(index, times, source))
    return Value(terms)


class Builder:
    """Makes equations of values."""

    def __init__(self, tokens: int):
        self.graph = Graph(tokens)
        self.tokens = tokens
        self.params: dict[str, torch.Tensor] = {}

    # Elements

    def owner(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of each element the number of its node, its token and its place in the token's row."""
        bases = torch.tensor([n.base for n in self.graph.nodes])
        at = torch.searchsorted(bases, index.contiguous(), right=True) - 1
        sizes = torch.tensor([max(n.size, 1) for n in self.graph.nodes])[at]
        rest = index - bases[at]
        return at, rest // sizes, rest % sizes

    def rows_of(self, v: Value) -> tuple[torch.Tensor, torch.Tensor]:
        """The token of each element, and its place among the elements of that token, by the module's order."""
        token: torch.Tensor | None = None
        for t in v.terms:
            if t.times is not None and bool(t.times.isnan().any()):
                raise CannotSay(BESIDE)
            _, s, _ = self.owner(t.index)
            used = t.factor() != 0
            if token is None:
                token = s.clone()
            elif bool(((token != s) & used).any()):
                raise CannotSay("elements of different tokens are added: a step sees other tokens by attention alone")
        assert token is not None
        flat = token.flatten()
        count = flat.numel() // self.tokens
        if self.tokens > 1 and flat.numel() and bool((flat == flat[0]).all()):
            raise CannotSay(
                "one token goes on alone: give the results of all tokens, greta takes the last one's itself; "
                "a loop over the tokens is a recurrence, which a model file has not"
            )
        if count * self.tokens != flat.numel() or not torch.equal(
            torch.bincount(flat, minlength=self.tokens), torch.full((self.tokens,), count)
        ):
            raise CannotSay("it holds some tokens more often than others: every token of a step has the same elements")
        order = torch.argsort(flat, stable=True)
        place = torch.empty_like(flat)
        place[order] = torch.arange(flat.numel()) % count
        return token, place.reshape(token.shape)

    def by_token(self, v: Value) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Nodes and places [terms, E], the same for all tokens, and factors [terms, S, E]."""
        token, _ = self.rows_of(v)
        order = torch.argsort(token.flatten(), stable=True)
        nodes, places, factors = [], [], []
        for t in v.terms:
            at, _, place = self.owner(t.index)
            factor = t.factor().flatten()[order].reshape(self.tokens, -1)
            at, place = (u.flatten()[order].reshape(self.tokens, -1) for u in (at, place))
            if not (bool((at == at[:1]).all()) and bool((place == place[:1]).all())):
                raise CannotSay("what is taken of a token depends on its position: that is neither a view nor a slice")
            nodes.append(at[0])
            places.append(place[0])
            factors.append(factor)
        return torch.stack(nodes), torch.stack(places), torch.stack(factors)

    def fresh(self, n: Node, like: Value | tuple[torch.Tensor, torch.Tensor]) -> Value:
        """The result of a node as a value of the module's shape, its elements in the order of those of like."""
        token, place = like if isinstance(like, tuple) else self.rows_of(like)
        return Value([Term(n.base + token * max(n.size, 1) + place)])

    def last(self, n: Node, lead: torch.Size, axis: int) -> Value:
        """The result of a node, whose tokens are dimension axis of the shape."""
        index = n.base + torch.arange(self.tokens * max(n.size, 1)).reshape(self.tokens, -1)
        sizes = list(lead)
        del sizes[axis]
        return Value([Term(index.reshape(self.tokens, *sizes).movedim(0, axis))])

    # Making one node of a value

    def features(self, v: Value) -> tuple[int, ...]:
        """The sizes of a token's row, as the module's shape has them."""
        token, _ = self.rows_of(v)
        shape = list(v.shape)
        for d in range(len(shape)):
            view = [1] * len(shape)
            view[d] = self.tokens
            if shape[d] == self.tokens and torch.equal(token, torch.arange(self.tokens).reshape(view).expand(v.shape)):
                del shape[d]
                return tuple(shape)
        return (math.prod(shape) // self.tokens,)

    def resolve(self, v: Value) -> Node:
        """The node whose rows are a value's elements, each token's in the module's order; of shape [E]."""
        nodes, places, factors = self.by_token(v)
        used = (factors != 0).any(1)
        constant = bool((factors == factors[:, :1]).all())
        if not constant:
            try:
                n = rotation(self, v, nodes, places, factors)
            except NoRotation as e:
                raise CannotSay(str(e)) from None
            return self.graph.view(n, (n.size,))
        total: Node | None = None
        count = nodes.shape[1]
        for i, t in enumerate(v.terms):
            if not bool(used[i].any()):
                continue
            part = self.gather(nodes[i], places[i], v.shape)
            part = self.scaled(self.graph.view(part, (count,)), factors[i, 0], t.source, v.shape)
            total = part if total is None else self.sum(total, part)
        if total is None:
            raise CannotSay("a value that is zero whatever the inputs are")
        return self.graph.view(total, (count,))

    def sum(self, a: Node, b: Node) -> Node:
        return self.graph.binary("add", self.graph.view(a, (a.size,)), self.graph.view(b, (b.size,)))[0]

    def scaled(self, n: Node, by: torch.Tensor, source: Source | None, shape: torch.Size) -> Node:
        """A node's row [E] times numbers [E]."""
        g = self.graph
        if bool(((by - 1).abs() < 1e-12).all()):
            by = torch.ones_like(by)
        below = plain(n)
        norm = below.op in ("rmsnorm", "layernorm") and len(below.inputs) == 1
        kept = norm and source is not None and self.params[source.name].numel() == below.shape[-1]
        if bool((by == by[0]).all()) and not kept:
            if float(by[0]) != 1 and below.op == "tanh":
                n = g.view(below, below.shape)
            return g.view(g.unary("affine", n, by=float(by[0]), plus=0.0), (by.numel(),))
        width = below.shape[-1] if kept else self.period(by, shape)
        w = self.named(by[:width], source, "scale")
        if norm and below.shape[-1] == width and bool((by.reshape(-1, width) == by[:width]).all()):
            return g.view(g.node(below.op, (below.inputs[0], w), below.shape, **below.attrs), (by.numel(),))
        rows = g.view(n, (by.numel(),) if width == by.numel() else (by.numel() // width, width))
        return g.view(g.binary("mul", rows, w)[0], (by.numel(),))

    @staticmethod
    def period(row: torch.Tensor, shape: torch.Size) -> int:
        """The shortest end of the shape of which a row is a repetition."""
        width = 1
        for d in reversed(shape):
            width *= d
            if d > 1 and row.numel() % width == 0 and bool((row.reshape(-1, width) == row[:width]).all()):
                return width
        return row.numel()

    def named(self, value: torch.Tensor, source: Source | None, hint: str) -> Weight:
        """A weight that is a tensor of the module, where its numbers are that tensor's, or a new one."""
        if source is not None and source.name in self.params:
            have = self.params[source.name].to(torch.float64)
            if source.transposed:
                have = have.t() if have.dim() == 2 else have
            have = have + source.plus
            if have.numel() == value.numel() and torch.allclose(have.reshape(value.shape), value, rtol=1e-12, atol=0):
                value = have.reshape(value.shape)
                squeezed = [d for d in have.shape if d != 1]
                if squeezed == [d for d in value.shape if d != 1] and not (source.transposed and source.plus):
                    return self.graph.weight(value, source, hint)
        hint = source.name if source is not None else hint
        return self.graph.weight(value, None, hint)

    def found(self, value: torch.Tensor, hint: str) -> Weight:
        """A weight that is the tensor of the module with these numbers, or a new one."""
        for name, t in self.params.items():
            if t.shape == value.shape and torch.equal(t.to(torch.float64), value):
                return self.graph.weight(value, Source(name), hint)
        return self.graph.weight(value, None, hint)

    def gather(self, nodes: torch.Tensor, places: torch.Tensor, shape: torch.Size) -> Node:
        """The node whose row is these elements of other nodes."""
        if bool((nodes == nodes[0]).all()):
            return self.take(self.graph.nodes[int(nodes[0])], places, shape)
        for width in self.widths(shape, nodes.numel()):
            rows = nodes.reshape(-1, width)
            if not bool((rows == rows[:1]).all()):
                continue
            cuts = [0, *(int(i) + 1 for i in torch.nonzero(rows[0, 1:] != rows[0, :-1]).flatten()), width]
            if len(cuts) > 7:
                continue
            spots = places.reshape(-1, width)
            parts = []
            for a, b in zip(cuts, cuts[1:]):
                piece = self.take(
                    self.graph.nodes[int(rows[0, a])], spots[:, a:b].flatten(), torch.Size((rows.shape[0], b - a))
                )
                parts.append(self.graph.view(piece, (rows.shape[0], b - a) if rows.shape[0] > 1 else (b - a,)))
            size = (rows.shape[0], width) if rows.shape[0] > 1 else (width,)
            return self.graph.node("concat", tuple(parts), size, axis=len(size))
        raise CannotSay("its elements come from several results, in no order that a concatenation of slices gives")

    @staticmethod
    def widths(shape: torch.Size, count: int) -> list[int]:
        """The whole row first, then the ends of the shape."""
        widths, w = [], 1
        for d in reversed(shape):
            w *= d
            if w <= count and count % w == 0 and w > 1 and w not in widths:
                widths.append(w)
        if count not in widths:
            widths.append(count)
        return sorted(widths, reverse=True)

    def take(self, n: Node, places: torch.Tensor, shape: torch.Size) -> Node:
        """The node whose row is these places of a node's row."""
        g, count, size = self.graph, places.numel(), max(n.size, 1)
        first = int(places[0])
        run = torch.arange(count)
        if torch.equal(places, first + run):
            if count == size:
                return n
            return g.node("slice", (g.view(n, (size,)),), (count,), **{"from": first, "to": first + count, "axis": 1})
        for width in self.widths(shape, count)[::-1] + [1]:
            rows = places.reshape(-1, width)
            if rows.shape[0] < 2 or not torch.equal(rows, rows[:, :1] + torch.arange(width)):
                continue
            starts = rows[:, 0]
            step = int(starts[1] - starts[0])
            if step > 0 and size % step == 0 and torch.equal(starts, starts[0] + step * torch.arange(len(starts))):
                begin = int(starts[0])
                inner, outer = begin % step, begin // step
                if inner + width <= step:
                    x = g.view(n, (size // step, step))
                    if outer != 0 or len(starts) != size // step:
                        x = g.node(
                            "slice",
                            (x,),
                            (len(starts), step),
                            **{"from": outer, "to": outer + len(starts), "axis": 1},
                        )
                    if width == step:
                        return x
                    return g.node(
                        "slice", (x,), (len(starts), width), **{"from": inner, "to": inner + width, "axis": 2}
                    )
            heads = torch.unique_consecutive(starts)
            for kind, unique in (("beside", heads), ("behind", starts[: self.first_repeat(starts)])):
                per = len(starts) // max(len(unique), 1)
                if not 0 < len(unique) < len(starts) or len(starts) % len(unique):
                    continue
                again = unique.repeat_interleave(per) if kind == "beside" else unique.repeat(per)
                if torch.equal(again, starts):
                    few = (unique[:, None] + torch.arange(width)).flatten()
                    x = g.view(self.take(n, few, torch.Size((len(unique), width))), (len(unique), width))
                    return g.node("expand", (x,), (len(starts), width), to=len(starts), copy=kind)
        if n.op == "linear" and len(n.shape) == 1:
            w = n.inputs[1]
            assert isinstance(w, Weight)
            inputs = [n.inputs[0], self.graph.weight(w.value[places], None, w.source.name if w.source else w.hint)]
            if len(n.inputs) > 2:
                b = n.inputs[2]
                assert isinstance(b, Weight)
                inputs.append(self.graph.weight(b.value[places], None, b.source.name if b.source else b.hint))
            return g.node("linear", tuple(inputs), (count,))
        if n.op == "view":
            return self.take(n.below, places, shape)
        cuts = [0, *(int(i) + 1 for i in torch.nonzero(places[1:] != places[:-1] + 1).flatten()), count]
        if len(cuts) <= 7:
            parts = tuple(self.take(n, places[a:b], torch.Size((b - a,))) for a, b in zip(cuts, cuts[1:]))
            return g.node("concat", tuple(g.view(p, (p.size,)) for p in parts), (count,), axis=1)
        raise CannotSay(
            "the elements of a token are put into another order, which no view, slice or concatenation gives"
        )

    @staticmethod
    def first_repeat(starts: torch.Tensor) -> int:
        again = torch.nonzero(starts[1:] == starts[0]).flatten()
        return int(again[0]) + 1 if len(again) else len(starts)

    def constants(self, v: Value, c: torch.Tensor, source: Source | None) -> Value:
        """A value times a constant."""
        shape = torch.broadcast_shapes(v.shape, c.shape)
        terms = []
        for t in v.terms:
            times = c if t.times is None else t.times * c
            terms.append(Term(t.index.expand(shape), times.expand(shape), source if t.times is None else t.source))
        return Value(terms)


def scalar(c: Const) -> float | None:
    """The one number that a constant is everywhere."""
    v = c.value
    if not isinstance(v, torch.Tensor):
        return float(v)
    if v.numel() == 0 or v.is_complex():
        return None
    first = v.flatten()[0]
    return float(first) if bool((v == first).all()) else None


__all__ = [
    "BESIDE",
    "Builder",
    "CannotSay",
    "Complex",
    "Const",
    "Scores",
    "Term",
    "Value",
    "joined",
    "replace",
    "scalar",
]
