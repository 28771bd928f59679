"""From products of queries and keys over masks and the softmax to greta's attention."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from .nodes import Node, plain
from .operators import MOVES, SAME
from .values import Builder, CannotSay, Const, Scores, Value, scalar

HIDDEN = -1e4  # a score below this, after the scores' own size, takes no part


class Attention:
    """Follows scores; attends when they meet the values."""

    def __init__(self, builder: Builder):
        self.b = builder
        self.g = builder.graph
        self.windows: dict[str, int] = {}
        self.current = ""
        self.keys: dict[int, list[str]] = {}  # where the masks of an attention are applied
        self.caches = 0

    def tokens_at(self, v: Value, axis: int) -> bool:
        """Whether the tokens are this dimension."""
        axis %= len(v.shape)
        if v.shape[axis] != self.b.tokens:
            return False
        token, _ = self.b.rows_of(v)
        view = [1] * len(v.shape)
        view[axis] = self.b.tokens
        return torch.equal(token, torch.arange(self.b.tokens).reshape(view).expand(v.shape))

    def heads(self, v: Value, axis: int) -> Value:
        """[S, heads, width] of a value whose tokens and width are its last dimensions in some order."""
        v = v.follow(lambda t: t.movedim(axis, 0))
        return v.follow(lambda t: t.reshape(self.b.tokens, -1, t.shape[-1]))

    def product(self, x: Value, y: Value) -> Scores:
        if len(x.shape) < 2 or len(y.shape) < 2:
            raise CannotSay("a product of vectors")
        if not (self.tokens_at(x, -2) and self.tokens_at(y, -1)):
            raise CannotSay(
                "a product of two activations that is neither that of queries and keys nor of probabilities and values"
            )
        lead = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        shape = torch.Size((*lead, self.b.tokens, self.b.tokens))
        y = y.follow(lambda t: t.transpose(-1, -2))
        q, k = (v.follow(lambda t: t.expand(*lead, *t.shape[-2:])) for v in (x, y))
        return Scores(self.heads(q, -2), self.heads(k, -2), shape)

    # What happens to scores

    def scores(self, name: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        s = next((a for a in args if isinstance(a, Scores)), None)
        if s is None:
            raise CannotSay(
                "scores are put beside others: greta's attention has neither sinks nor a second set of keys"
            )
        first = args[0] is s
        other = (args[1] if first else args[0]) if len(args) > 1 else None
        if name in SAME or name in ("dropout", "native_dropout"):
            if name != "native_dropout" and name == "dropout" and (args[2] if len(args) > 2 else False) and args[1]:
                raise CannotSay("dropout in training: export the module after .eval()")
            return (s, None) if name == "native_dropout" else s
        if name in ("matmul", "bmm", "mm") and first and isinstance(other, Value):
            return self.attend(s, other)
        if name in MOVES:
            rest = [a.value if isinstance(a, Const) else a for a in args[1:]]
            rest = [torch.empty(a.shape) if isinstance(a, (Value, Scores)) else a for a in rest]
            if name == "view":
                target = torch.ops.aten.reshape.default
            return self.move(s, target, rest, kwargs)
        if s.stage == "scores" and name in ("mul", "div", "multiply"):
            by = self.number(other)
            if by is not None and by != 0 and (first or name != "div") and s.mask is None:
                if s.cap and by != 1:
                    raise CannotSay("scores are scaled again behind their soft cap")
                return replace(s, scale=s.scale * (by if name != "div" else 1 / by))
        if s.stage == "scores" and name == "tanh" and s.mask is None and not s.cap:
            return replace(s, stage="tanh", inner=s.scale)
        if s.stage == "tanh" and name in ("mul", "div", "multiply"):
            by = self.number(other)
            if by is not None and by > 0:
                by = by if name != "div" else 1 / by
                return replace(s, stage="scores", cap=by, scale=s.inner * by)
        if s.stage == "scores" and name in ("add", "sub", "masked_fill", "where"):
            return self.masked(s, name, args, kwargs)
        if s.stage == "scores" and name in ("softmax", "_softmax"):
            if args[1] % len(s.shape) != len(s.shape) - 1:
                raise CannotSay("a softmax over the queries")
            return replace(s, stage="probs")
        if s.stage in ("scores", "exp") and name in ("amax", "max", "sum"):
            d = args[1] if len(args) > 1 else None
            d = d[0] if isinstance(d, (list, tuple)) and len(d) == 1 else d
            if isinstance(d, int) and d % len(s.shape) == len(s.shape) - 1:
                keep = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
                stage = {"scores": "max", "exp": "sum"}[s.stage]
                if (stage == "sum") == (name == "sum"):
                    shape = torch.Size((*s.shape[:-1], 1)) if keep else s.shape[:-1]
                    r = replace(s, stage=stage, shape=shape)
                    return (r, None) if name == "max" else r
        if s.stage == "scores" and name == "exp":
            return replace(s, stage="exp")
        if s.stage == "exp" and name == "div" and first and isinstance(other, Scores) and other.stage == "sum":
            return replace(s, stage="probs")
        raise CannotSay(
            "between queries · keys and the softmax, greta's attention has a scale, a soft cap and a mask; "
            "behind the softmax, the values"
        )

    @staticmethod
    def number(x: Any) -> float | None:
        if isinstance(x, Const):
            return scalar(x)
        return float(x) if isinstance(x, (int, float)) else None

    def move(self, s: Scores, target: Any, rest: list[Any], kwargs: dict[str, Any]) -> Scores:
        """Scores may be seen under another shape where the last two dimensions stay what they are."""
        numbers = torch.arange(math.prod(s.shape)).reshape(s.shape)
        moved = target(numbers, *rest, **kwargs)
        if (
            not isinstance(moved, torch.Tensor)
            or moved.numel() != numbers.numel()
            or moved.shape[-1] != s.shape[-1]
            or not torch.equal(moved.flatten(), numbers.flatten())
        ):
            raise CannotSay("scores are moved about")
        if s.stage in ("scores", "tanh", "exp", "probs") and moved.shape[-2:] != s.shape[-2:]:
            raise CannotSay("scores are moved about")
        return replace(s, shape=moved.shape)

    def masked(self, s: Scores, name: str, args: list[Any], kwargs: dict[str, Any]) -> Scores:
        if name == "sub" and isinstance(args[1], Scores):
            if args[1].stage == "max" and args[0] is s:
                return s  # the softmax does not see it
            raise CannotSay("a difference of scores")
        if name in ("add", "sub"):
            other = args[1] if args[0] is s else args[0]
            if not isinstance(other, Const):
                if isinstance(other, (int, float)) and name == "add":
                    return s
                raise CannotSay("a mask that depends on the inputs")
            sign = (1 if name == "add" else -1) * kwargs.get("alpha", 1)
            if name == "sub" and args[0] is not s:
                raise CannotSay("a mask minus scores")
            return self.hide(s, other.value.to(torch.float64) * sign)
        if name == "masked_fill":
            where, fill = args[1], args[2]
        else:
            where, fill = args[0], args[2]
            if args[1] is not s:
                where, fill = Const(~where.value.bool()), args[1]
        fill = self.number(fill)
        if not isinstance(where, Const) or fill is None or fill > HIDDEN:
            raise CannotSay("a mask that depends on the inputs, or hidden scores that are not far below the others")
        hidden = where.value.bool() if name == "masked_fill" else ~where.value.bool()
        return self.hide(s, torch.zeros(hidden.shape, dtype=torch.float64).masked_fill(hidden, -math.inf))

    def hide(self, s: Scores, mask: torch.Tensor, given: bool = True) -> Scores:
        keys = (*s.keys, self.current) if given else s.keys
        mask = mask.expand(s.shape)
        flat = mask.reshape(-1, *mask.shape[-2:])
        hidden = flat[0] <= HIDDEN
        if not bool(((flat <= HIDDEN) == hidden).all()):
            raise CannotSay("a mask that hides other tokens from some heads than from others")
        rest = torch.where(hidden, 0.0, flat - flat.diagonal(dim1=-2, dim2=-1)[..., None])
        alibi = s.alibi
        if float(rest.abs().max()) > 1e-9:
            alibi = self.slopes(rest, hidden)
            if s.alibi:
                raise CannotSay("two biases on scores")
        before = s.hidden if s.hidden is not None else torch.zeros_like(hidden)
        return replace(s, mask=flat[0], hidden=before | hidden, keys=keys, alibi=alibi)

    @staticmethod
    def slopes(rest: torch.Tensor, hidden: torch.Tensor) -> float:
        """The exponent of ALiBi's slopes, where a bias is that: head h's is -2^(-exponent (h+1) / heads) a distance."""
        heads, n, _ = rest.shape
        slope = rest[:, n - 1, n - 2]
        distance = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).to(torch.float64)
        want = torch.where(hidden, 0.0, slope[:, None, None] * distance)
        if heads & (heads - 1) == 0 and bool((slope < 0).all()) and float((rest - want).abs().max()) < 1e-5:
            exponents = -torch.log2(-slope) * heads / (torch.arange(heads) + 1)
            if float((exponents - exponents[0]).abs().max()) < 1e-4:
                return round(float(exponents[0]), 4)
        raise CannotSay("a mask that adds other numbers to the scores that are seen than 0 or ALiBi's slopes")

    # Attention

    def seen(self, hidden: torch.Tensor | None) -> dict[str, Any]:
        """Which of greta's attributes say what a mask hides."""
        n = self.b.tokens
        if hidden is None or not bool(hidden.any()):
            return {"both": True}
        distance = torch.arange(n)[:, None] - torch.arange(n)[None, :]
        visible = ~hidden
        if bool((visible & (distance < 0)).any()):
            raise CannotSay("a mask that shows a token some of those behind it")
        if not bool(visible.diagonal().all()):
            raise CannotSay("a mask that hides a token from itself")
        window = int(visible[n - 1].sum())
        want = (distance >= 0) & (distance < window)
        if not torch.equal(visible, want):
            raise CannotSay("a mask that is neither causal nor a sliding window")
        return {} if window == n else {"window": window}

    def attend(self, s: Scores, v: Value) -> Value:
        if s.stage != "probs":
            raise CannotSay("scores times values without a softmax between")
        if not self.tokens_at(v, -2):
            raise CannotSay("probabilities are multiplied by something else than the values of the tokens")
        lead = torch.broadcast_shapes(s.shape[:-2], v.shape[:-2])
        v = v.follow(lambda t: t.expand(*lead, *t.shape[-2:]))
        if math.prod(lead) != s.q.shape[1]:
            raise CannotSay("the values have more heads than the scores")
        y = self.node(
            s.q,
            s.k,
            self.heads(v, -2),
            s.scale,
            s.cap,
            {**self.seen(s.hidden), **({"alibi": s.alibi} if s.alibi else {})},
        )
        self.keys.setdefault(id(y), []).extend(s.keys)
        return self.b.last(y, torch.Size((*lead, self.b.tokens, v.shape[-1])), len(lead))

    def whole(self, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: Any, gqa: bool) -> Value:
        if not all(isinstance(x, Value) and self.tokens_at(x, -2) for x in (q, k, v)):
            raise CannotSay("queries, keys or values whose tokens are not the second last dimension")
        if gqa:
            per = q.shape[-3] // k.shape[-3]
            k, v = (x.follow(lambda t: t.repeat_interleave(per, -3)) for x in (k, v))
        lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
        wide = [self.heads(x.follow(lambda t: t.expand(*lead, *t.shape[-2:])), -2) for x in (q, k)]
        s = Scores(
            wide[0],
            wide[1],
            torch.Size((*lead, self.b.tokens, self.b.tokens)),
        )
        s = replace(s, scale=q.shape[-1] ** -0.5 if scale is None else float(scale), stage="probs")
        if mask is not None:
            if not isinstance(mask, Const):
                raise CannotSay("a mask that depends on the inputs")
            m = mask.value
            if m.dtype == torch.bool:
                m = torch.zeros(m.shape, dtype=torch.float64).masked_fill(~m, -math.inf)
            s = self.hide(s, m)
        if causal:
            n = self.b.tokens
            s = self.hide(s, torch.full((n, n), -math.inf, dtype=torch.float64).triu(1), False)
        return self.attend(s, v)

    def unique(self, v: Value) -> tuple[list[int], list[int]]:
        """The heads that differ, and for each head which of them it is."""
        rows = torch.cat([torch.stack((t.index.double(), t.factor())) for t in v.terms]).movedim(2, 0).flatten(1)
        seen: dict[bytes, int] = {}
        of = [seen.setdefault(r.contiguous().numpy().tobytes(), len(seen)) for r in rows]
        return [of.index(i) for i in range(len(seen))], of

    def node(self, q: Value, k: Value, v: Value, scale: float, cap: float, seen: dict[str, Any]) -> Node:
        heads = q.shape[1]
        (keys, key_of), (values, value_of) = self.unique(k), self.unique(v)
        groups = len(keys)
        even = [h // (heads // groups) for h in range(heads)] if heads % groups == 0 else None
        if key_of == value_of == even:
            k, v = k.follow(lambda t: t[:, keys]), v.follow(lambda t: t[:, values])
        nq, nk, nv = (self.b.resolve(x) for x in (q, k, v))
        nq, scale = self.without_factor(nq, scale)
        nk, scale = self.without_factor(nk, scale)
        if scale <= 0:
            raise CannotSay(f"scores times {scale:g}")
        nq, nk, nv = (self.g.view(n, tuple(x.shape[1:])) for n, x in ((nq, q), (nk, k), (nv, v)))
        attrs: dict[str, Any] = {"scale": scale, **seen}
        if cap:
            attrs["softcap"] = cap
        pos = self.g.node("pos")
        if not seen.get("both"):
            nk = self.g.node("push", (nk, pos), nk.shape, state="k", of=self.caches)
            nv = self.g.node("push", (nv, pos), nv.shape, state="v", of=self.caches)
            self.caches += 1
        return self.g.node("attention", (nq, nk, nv, pos), (heads, v.shape[2]), **attrs)

    @staticmethod
    def without_factor(n: Node, scale: float) -> tuple[Node, float]:
        """A factor on all queries, or all keys, is one on the scores."""
        below = plain(n)
        if below.op == "affine" and below.attrs["plus"] == 0 and below.attrs["by"] > 0:
            return below.below, scale * below.attrs["by"]
        return n, scale
