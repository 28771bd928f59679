"""Experts that a token chooses: what a module makes of the numbers of the chosen ones, in greta's own operators.

The numbers are a node `chosen`, one of the results of greta's topk. A comparison with a number, a one-hot vector, a
scatter into zeros are elements of a node that has 1 where an expert is chosen: with it every expert is computed for every
token, as such modules do or as it comes to; a sum over all experts that is left in the end becomes one over the chosen
(`sparse`). What a module does for the tokens of an expert alone (`where`, an index, `index_add`) is followed as if it
were done for all tokens and left out for the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .nodes import Graph, Node, Source, Weight
from .values import Builder, CannotSay, Const, Term, Value

MOST = 512  # experts


@dataclass
class Places:
    """Where a mask holds: what ``torch.where`` gives for one dimension of it. The rows are the tokens, all of them."""

    mask: Value
    dim: int
    tokens: int

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.tokens,))


@dataclass
class Picked:
    """A weight [E, …] for each chosen expert, [tokens, k, …]."""

    weight: torch.Tensor
    source: Source | None
    index: Value

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.index.shape, *self.weight.shape[1:]))


class Experts:
    """Methods of Operators."""

    b: Builder
    g: Graph

    def chosen(self, v: Any) -> Node | None:
        """The node whose elements these are, where they are numbers of experts."""
        if not isinstance(v, Value) or len(v.terms) != 1 or v.terms[0].times is not None:
            return None
        nodes, _, _ = self.b.owner(v.terms[0].index)
        n = self.g.nodes[int(nodes.flatten()[0])]
        return n if n.op == "chosen" and bool((nodes == nodes.flatten()[0]).all()) else None

    def op_topk(self: Any, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
        x, width, d = self.rows(x, dim)
        if d != len(x.shape) - 1 or not largest:
            raise CannotSay("the largest of the last dimension can be chosen, no others")
        n = self.b.resolve(x)
        if n.size != width or not 0 < k <= width <= MOST:
            raise CannotSay("experts are chosen once a token")
        rows = self.b.rows_of(x.follow(lambda t: t[..., :k]))
        p, e = (self.g.node(op, (n,), (k,), k=k) for op in ("topk", "chosen"))
        index = self.b.fresh(e, rows)
        index.ints = True
        return self.b.fresh(p, rows), index

    def op_argmax(self: Any, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        if not isinstance(dim, int):
            raise CannotSay("over all dimensions")
        v = self.op_topk(x, 1, dim)[1]
        return v if keepdim else v.follow(lambda t: t[..., 0])

    def hot(self, e: Node, width: int) -> Node:
        """[k, E]: 1 where an expert is chosen."""
        eye = self.g.weight(torch.eye(width, dtype=torch.float64), None, "experts")
        return self.g.node("lookup", (e, eye), (e.size, width))

    def columns(self, v: Value, at: torch.Tensor) -> Value:
        """The elements of the one-hot vectors of numbers of experts, at other numbers."""
        e = self.chosen(v)
        assert e is not None
        width = e.below.size
        if at.is_floating_point() and not bool((at == at.floor()).all()) or bool(((at < 0) | (at >= width)).any()):
            raise CannotSay(f"experts are compared with what is none of the {width}")
        n = self.hot(e, width)
        _, token, place = self.b.owner(v.terms[0].index)
        base = n.base + (token * e.size + place) * width

        return Value([Term(base + at.long())])

    def op_one_hot(self: Any, v: Value, classes: int = -1) -> Value:
        e = self.chosen(v)
        if e is None or classes not in (-1, e.below.size):
            raise CannotSay("one-hot vectors of something else than the chosen of all experts")
        return self.columns(v.follow(lambda t: t[..., None]), torch.arange(e.below.size))

    def op_eq(self: Any, x: Any, y: Any) -> Value:
        if not isinstance(x, Value):
            x, y = y, x
        if self.chosen(x) is None or isinstance(y, Value):
            raise CannotSay("a comparison of activations")
        y = y.value if isinstance(y, Const) else torch.tensor(y)
        return self.columns(x, y)

    def op_ne(self: Any, x: Any, y: Any) -> Value:
        return self.op_rsub(self.op_eq(x, y), 1)

    def op_any(self: Any, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        if dim is None:
            raise CannotSay("the module chooses what it computes while it runs")
        return self.op_amax(x, dim, keepdim)

    def op_scatter(self: Any, base: Any, dim: int, index: Value, src: Any, *_: Any, **__: Any) -> Value:
        e = self.chosen(index)
        zero = isinstance(base, Const) and not bool(base.value.any())
        if e is None or not zero or dim % len(base.shape) != len(base.shape) - 1 or base.shape[-1] != e.below.size:
            raise CannotSay("elements are put where the inputs say: that is for the chosen of all experts, into zeros")
        if not isinstance(src, Value):
            by = src.value.flatten()[0] if isinstance(src, Const) else src
            src = self.b.fresh(self.g.node("topk", e.inputs, e.shape, k=e.size), self.b.rows_of(index))
            p = self.g.node("affine", (self.b.resolve(src),), e.shape, by=0.0, plus=float(by))
        else:
            if src.shape != index.shape:
                raise CannotSay("more elements are given than put")
            p = self.b.resolve(src)
        n = self.g.node("mix", (self.hot(e, base.shape[-1]), self.g.view(p, e.shape)), (base.shape[-1],))
        lead = index.follow(lambda t: t[..., :1].expand(*t.shape[:-1], base.shape[-1]))

        _, token, _ = self.b.owner(lead.terms[0].index)
        return Value([Term(n.base + token * n.size + torch.arange(n.size))])

    op_scatter_add = op_scatter

    def op_gather(self: Any, x: Value, dim: int, index: Value, *_: Any, **__: Any) -> Value:
        e = self.chosen(index)
        if e is None or not isinstance(x, Value) or dim % len(x.shape) != len(x.shape) - 1:
            raise CannotSay("elements are chosen by what the inputs are")
        n = self.b.resolve(x)
        if n.size != e.below.size:
            raise CannotSay("the chosen are taken from something else than from all experts")
        return self.b.fresh(self.g.node("gather", (n, e), e.shape), self.b.rows_of(index))

    # Weights of the chosen

    def pick(self: Any, w: Const, index: Value) -> Any:
        """w[index]: numbers for each chosen expert, or matrices."""
        e = self.chosen(index)
        assert e is not None
        if w.value.shape[0] != e.below.size:
            raise CannotSay(f"a tensor of {w.value.shape[0]} is indexed by numbers of {e.below.size} experts")
        if w.value.dim() > 2:
            return Picked(w.value.to(torch.float64), w.source, index)
        table = w.value.to(torch.float64).reshape(len(w.value), -1)
        n = self.g.node("lookup", (e, self.b.named(table, w.source, "weight")), (e.size, table.shape[1]))
        _, token, place = self.b.owner(index.terms[0].index)
        at = n.base + (token * e.size + place)[..., None] * table.shape[1] + torch.arange(table.shape[1])

        return Value([Term(at.reshape(*index.shape, *w.value.shape[1:]))])

    def picked(self: Any, name: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """An operator of weights of the chosen: a turn of the matrices, or a product with activations."""
        p = next((a for a in args if isinstance(a, Picked)), None)
        if p is None:
            raise CannotSay("weights of chosen experts are put beside others")
        if name in ("clone", "contiguous", "alias", "detach", "to", "_to_copy", "type_as"):
            return p
        lead = len(p.index.shape)
        if name in ("transpose", "mT", "permute", "swapaxes", "adjoint") and args[0] is p:
            order = list(range(len(p.shape)))
            if name == "permute":
                order = [d % len(order) for d in args[1]]
            else:
                a, b = (d % len(order) for d in (args[1:3] if len(args) > 2 else (-2, -1)))
                order[a], order[b] = order[b], order[a]
            if order[:lead] != list(range(lead)):
                raise CannotSay("weights of chosen experts are turned with their places")
            w = p.weight.permute(0, *(d - lead + 1 for d in order[lead:]))
            return Picked(w, None, p.index)
        if name in ("matmul", "bmm") and p.weight.dim() == 3:
            other = args[1] if args[0] is p else args[0]
            names = "ABCDEFG"[:lead]
            if isinstance(other, Value) and args[0] is p and other.shape[-1:] == (1,):
                y = self.chosen_product(p, f"{names}nk", other.follow(lambda t: t[..., 0]), f"{names}k", names + "n")
                return y.follow(lambda t: t[..., None])
            if isinstance(other, Value) and args[1] is p and other.shape[-2:-1] == (1,):
                y = self.chosen_product(p, f"{names}kn", other.follow(lambda t: t[..., 0, :]), f"{names}k", names + "n")
                return y.follow(lambda t: t[..., None, :])
        raise CannotSay("weights of chosen experts: a product of each matrix with the token's activations is known")

    def chosen_product(self: Any, p: Picked, names: str, x: Value, xs: str, out: str) -> Value:
        """An einsum of weights of the chosen experts and activations, as linear_id."""
        lead, rest = names[: len(p.index.shape)], names[len(p.index.shape) :]
        inner = [c for c in rest if c in xs and c not in out]
        rows = [c for c in rest if c in out]
        if len(inner) != 1 or len(rows) != 1 or len(rest) != 2 or set(xs) - set(lead + inner[0]) or rows[0] in xs:
            raise CannotSay("weights of chosen experts in an einsum of another kind than a product of each matrix")
        if set(out) != set(lead + rows[0]):
            raise CannotSay("an einsum that sums over the chosen experts with their weights")
        e = self.chosen(p.index)
        assert e is not None
        w = p.weight if rest == rows[0] + inner[0] else p.weight.transpose(1, 2)
        sizes = dict(zip(names, p.shape))
        index = p.index.follow(lambda t: t[..., None].expand(*t.shape, sizes[inner[0]]))
        _, token, place = self.b.owner(index.terms[0].index)
        # The activations that each chosen expert takes: a row for all, or a row for each.
        order = [xs.index(c) for c in lead + inner[0] if c in xs]
        shape = [sizes[c] if c in xs else 1 for c in lead + inner[0]]
        x = x.follow(lambda t: t.permute(order).reshape([s if c in xs and t.shape[xs.index(c)] != 1 else 1
                                                         for c, s in zip(lead + inner[0], shape)]))
        whole = x.follow(lambda t: t.expand(index.shape))
        if not torch.equal(self.b.rows_of(whole)[0], token):
            raise CannotSay("chosen experts take the activations of other tokens")
        n = self.b.resolve(x)
        a = n.size // sizes[inner[0]]
        if a not in (1, e.size):
            raise CannotSay("chosen experts take other activations than the token's")
        y = self.linear_id(self.g.view(n, (a, sizes[inner[0]])), w, p.source, None, e)
        at = y.base + (token[..., 0] * e.size + place[..., 0])[..., None] * w.shape[1] + torch.arange(w.shape[1])

        names = lead + rows[0]
        return Value([Term(at.permute([names.index(c) for c in out]))])

    def linear_id(self, x: Node, w: torch.Tensor, source: Source | None, bias: Weight | None, e: Node) -> Node:
        inputs: tuple[Any, ...] = (x, self.b.named(w, source, "experts"), e)
        return self.g.node("linear_id", inputs if bias is None else (*inputs, bias), (e.size, w.shape[1]))

    # The tokens of an expert

    def op_where_one(self: Any, mask: Value) -> list[Places]:
        self.mask_of(mask)
        return [Places(mask, d, self.b.tokens) for d in range(len(mask.shape))]

    op_nonzero_numpy = op_where_one

    def mask_of(self: Any, mask: Value) -> int:
        """The dimension of a mask that the tokens are."""
        if len(mask.shape) <= 2 and isinstance(mask, Value):
            for d in range(len(mask.shape)):
                if self.attention.tokens_at(mask, d):
                    return d
        raise CannotSay("what is chosen by the inputs is neither experts of tokens nor tokens")

    def holds(self: Any, mask: Value) -> Value:
        """[S]: 1 for tokens that a mask, of the token's choices, has anywhere."""
        d = self.mask_of(mask)
        return mask if len(mask.shape) == 1 else self.op_sum(mask, 1 - d)

    def at_places(self: Any, x: Any, indices: list[Any]) -> Value:
        """x[where(mask)]: as if for all tokens."""
        places = [(d, i) for d, i in enumerate(indices) if isinstance(i, Places)]
        if not isinstance(x, Value) or any(i is not None for i in indices if not isinstance(i, Places)):
            raise CannotSay("elements are chosen by what the inputs are")
        mask = places[0][1].mask
        t = self.mask_of(mask)
        if any(p.mask is not mask for _, p in places):
            raise CannotSay("elements are chosen by two masks at once")
        tokens = [d for d, p in places if p.dim == t]
        if len(tokens) != 1 or not self.attention.tokens_at(x, tokens[0]):
            raise CannotSay("what is taken for the tokens of an expert has no tokens")
        if len(places) == 1:
            return x
        (other,) = (d for d, p in places if p.dim != t)
        aligned = mask if t == 0 else mask.follow(lambda m: m.t())
        x = x.follow(lambda v: v.movedim((tokens[0], other), (0, 1)))
        more = [1] * (len(x.shape) - 2)
        return self.op_sum(self.op_mul(x, aligned.follow(lambda m: m.reshape(*m.shape, *more))), 1)

    def op_index_add(
        self: Any, x: Any, dim: int, index: Any, v: Value, alpha: float = 1
    ) -> Value:
        if not isinstance(index, Places) or not self.attention.tokens_at(v, dim):
            raise CannotSay("rows are added to rows that the inputs choose")
        v = self.times(v, alpha)
        gate = self.holds(index.mask)
        shape = [1] * len(v.shape)
        shape[dim] = -1
        return self.op_add(self.op_mul(v, gate.follow(lambda t: t.reshape(shape))), x)
