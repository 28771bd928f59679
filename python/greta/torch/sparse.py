"""A sum over all experts, each times a number that is zero for tokens which do not choose it, as one over the chosen."""

from __future__ import annotations

import re
from typing import Any

import torch

from .nodes import Node, Source, Weight, elementwise, plain, reachable
from .values import Builder


class Apart(Exception):
    """The experts are not the same network with other weights."""


BOTH = {"add", "mul", "max", "min"}
PAIRS = BOTH | {"sub", "div", "greater"}


class Sparse:
    """For the result of a graph."""

    def __init__(self, builder: Builder, keys: dict[int, Any]):
        self.b, self.g, self.keys = builder, builder.graph, keys
        self.done: dict[tuple[int, ...], tuple[Node, bool]] = {}

    def result(self, out: Node) -> Node:
        """The result, with sums over the chosen where there were sums over all."""
        left = {id(n) for n in reachable(out) if n.op == "add"}
        while True:
            order = reachable(out)
            if not any(n.op == "lookup" for n in order):
                return out
            for n in reversed(order):
                if n.op != "add" or id(n) not in left:
                    continue
                new = self.chosen_only(n, out)
                left.discard(id(n))
                if new is not None:
                    out = self.replaced(out, n, new)
                    left |= {id(m) for m in reachable(out) if m.op == "add" and id(m) not in {id(o) for o in order}}
                    break
            else:
                return out

    def terms(self, n: Node) -> list[Node]:
        p = plain(n)
        if p.op == "add" and all(isinstance(i, Node) and i.size == p.size for i in p.inputs):
            return [t for i in p.inputs if isinstance(i, Node) for t in self.terms(i)]
        return [p]

    def chosen_only(self, n: Node, out: Node) -> Node | None:
        parts = self.terms(n)
        for e in [m for m in reachable(n) if m.op == "chosen"]:
            count = e.below.size
            found: dict[int, tuple[Node, Node]] = {}
            rest, numbers = [], None
            for t in parts:
                gate = self.gate(t, e)
                if gate is None:
                    rest.append(t)
                    continue
                if numbers is None:
                    numbers = self.run(e)
                which = self.expert(self.run(gate[1]), numbers, count)
                if which is None or which in found:
                    return None
                found[which] = gate
            if len(found) != count:
                continue
            try:
                y, each = self.together([found[i][0] for i in range(count)], e)
            except Apart:
                continue
            if not each:
                continue
            p = self.weights([found[i][1] for i in range(count)], e)
            new = self.g.node("mix", (self.g.view(y, (e.size, n.size)), p), (n.size,))
            for r in rest:
                new = self.g.binary("add", self.g.view(r, (n.size,)), new)[0]
            return self.g.view(new, n.shape)
        return None

    def gate(self, t: Node, e: Node) -> tuple[Node, Node] | None:
        """What a term multiplies by a number for each token, which depends on what is chosen."""
        if t.op == "affine" and t.attrs["plus"] == 0:
            inner = self.gate(plain(t.below), e)
            return (inner[0], self.g.unary("affine", inner[1], **t.attrs)) if inner else None
        if t.op != "mul":
            return None
        for a, b in (t.inputs, t.inputs[::-1]):
            if isinstance(a, Node) and isinstance(b, Node) and b.size == 1 and any(m is e for m in reachable(b)):
                inner = self.gate(plain(a), e)
                if inner is None:
                    return a, self.g.view(b, (1,))
                return inner[0], self.g.binary("mul", self.g.view(inner[1], (1,)), self.g.view(b, (1,)))[0]
        return None

    def run(self, n: Node) -> torch.Tensor:
        """A node's values for some random tokens."""
        generator = torch.Generator().manual_seed(5)
        order = reachable(n)
        rows = 4 * max([64, *(m.below.size for m in order if m.op == "chosen")])
        feed: dict[str, torch.Tensor] = {"pos": torch.arange(rows)}
        for m in order:
            if m.op == "x":
                feed["x"] = torch.randn((rows, *m.shape), generator=generator, dtype=torch.float64)
            if m.op == "embed" and isinstance(m.inputs[1], Weight) and m.below.op == "tokens":
                feed["tokens"] = torch.randint(len(m.inputs[1].value), (rows,), generator=generator)
        return self.g.run(n, feed).reshape(rows, -1)

    @staticmethod
    def expert(gate: torch.Tensor, numbers: torch.Tensor, count: int) -> int | None:
        """The expert outside of whose tokens a gate is zero."""
        used = gate[:, 0] != 0
        fits = [i for i in range(count) if not bool((used & ~(numbers == i).any(1)).any())]
        return fits[0] if len(fits) == 1 else None

    def weights(self, gates: list[Node], e: Node) -> Node:
        """[k]: the gates of the chosen."""
        belows = [plain(g) for g in gates]
        mix = plain(belows[0].below)
        if mix.op == "mix" and all(
            b.op == "slice" and plain(b.below) is mix and b.attrs["from"] == i for i, b in enumerate(belows)
        ):
            p = mix.inputs[1]
            if isinstance(p, Node) and isinstance(mix.inputs[0], Node) and mix.inputs[0].inputs[0] is e:
                return self.g.view(p, (e.size,))
        row = [self.g.view(g, (1,)) for g in gates]
        while len(row) > 1:
            groups = [row[i : i + 6] for i in range(0, len(row), 6)]
            row = [
                self.g.node("concat", tuple(r), (sum(n.size for n in r),), axis=1) if len(r) > 1 else r[0]
                for r in groups
            ]
        return self.g.node("gather", (row[0], e), (e.size,))

    def together(self, nodes: list[Node], e: Node) -> tuple[Node, bool]:
        """The same equation of all experts, for the chosen: [k, …], or what it is where it is the same for all."""
        first = nodes[0]
        if all(n is first for n in nodes):
            return first, False
        key = tuple(map(id, nodes))
        if key not in self.done:
            if any(n.op != first.op or n.shape != first.shape or n.attrs != first.attrs for n in nodes) or any(
                len(n.inputs) != len(first.inputs) for n in nodes
            ):
                raise Apart
            self.done[key] = self.equation(nodes, e), True
        return self.done[key]

    def equation(self, nodes: list[Node], e: Node) -> Node:
        first, g = nodes[0], self.g
        shape = (e.size, *first.shape)
        x, each = self.together([n.below for n in nodes], e)
        if first.op == "linear":
            width = first.below.shape[-1]
            if len(first.shape) != 1:
                raise Apart
            inputs: list[Any] = [g.view(x, (e.size if each else 1, width)), self.stacked([n.inputs[1] for n in nodes]), e]
            if len(first.inputs) > 2:
                inputs.append(self.stacked([n.inputs[2] for n in nodes]))
            return g.node("linear_id", tuple(inputs), shape)
        others = [[n.inputs[i] for n in nodes] for i in range(1, len(first.inputs))]
        if first.op in PAIRS and isinstance(first.inputs[1], Node):
            y, other = self.together([n for n in others[0] if isinstance(n, Node)], e)
            if not each and first.op in BOTH:
                x, y, each, other = y, x, other, each
            if not each or not other and first.below.shape != shape[1:]:
                raise Apart
            return g.node(first.op, (x, y if other else g.view(y, (1, *y.shape))), shape, **first.attrs)
        if any(o is not row[0] for row in others for o in row) or not each:
            raise Apart
        attrs = dict(first.attrs)
        if first.op in ("slice", "concat") and not others:
            attrs["axis"] += 1
        elif first.op not in ("view", "rmsnorm", "layernorm", "softmax", "mean", "sum", "largest") and not self.unary(first):
            raise Apart
        return g.node(first.op, (x, *(row[0] for row in others)), shape, **attrs)

    @staticmethod
    def unary(n: Node) -> bool:
        try:
            return len(n.inputs) == 1 and elementwise(n, [torch.ones(1, dtype=torch.float64)]).shape == (1,)
        except (KeyError, IndexError):
            return False

    def stacked(self, weights: list[Any]) -> Weight:
        """The tensors of all experts as one: by a pattern of their names, or one of the module's."""
        if not all(isinstance(w, Weight) and w.value.shape == weights[0].value.shape for w in weights):
            raise Apart
        value = torch.stack([w.value for w in weights])
        names = [w.source.name if w.source and w.source == Source(w.source.name) else "" for w in weights]
        for m in re.finditer(r"(?<![^.])0(?![^.])", names[0]):
            pattern = names[0][: m.start()] + "$e" + names[0][m.end() :]
            if all(pattern.replace("$e", str(i)) == n for i, n in enumerate(names)):
                return self.g.weight(value, Source(pattern))
        for name, t in self.b.params.items():
            if t.shape == value.shape and torch.equal(t.to(torch.float64), value):
                return self.g.weight(value, Source(name))
        return self.g.weight(value, None, "experts")

    def replaced(self, out: Node, old: Node, new: Node) -> Node:
        """The graph with one node in another's place."""
        now = {id(old): new}
        for n in reachable(out):
            if id(n) in now:
                continue
            inputs = tuple(now.get(id(i), i) for i in n.inputs)
            if all(a is b for a, b in zip(inputs, n.inputs)):
                continue
            m = now[id(n)] = self.g.node(n.op, inputs, n.shape, **n.attrs)
            m.where = n.where
            if id(n) in self.keys:
                self.keys[id(m)] = self.keys[id(n)]
        return now.get(id(out), out)

