"""From products of queries and keys over masks and the softmax to greta's attention."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from .nodes import Node, plain
from .operators import MOVES, SAME
from .values import Builder, CannotSay, Const, Scores, Term, Value, joined, scalar

HIDDEN = -1e4  # a score below this, after the scores' own size, takes no part
NO_SCORE = -1  # in an order: what is no score but a sink


class Attention:
    """Follows scores; attends when they meet the values."""

    def __init__(self, builder: Builder):
        self.b = builder
        self.g = builder.graph
        self.current = ""
        self.keys: dict[int, list[tuple[str, int, int]]] = {}  # where the masks of an attention are applied
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

    def token_of(self, v: Value, lead: torch.Size) -> tuple[Value, torch.Tensor]:
        """[L, N, K] of a value [lead, N, K], and the token of each row [L, N], which is one's alone."""
        v = v.follow(lambda t: t.expand(*lead, *t.shape[-2:]).reshape(-1, *t.shape[-2:]))
        token, _ = self.b.rows_of(v)
        if not bool((token == token[..., :1]).all()):
            raise CannotSay(
                "a product of two activations that is neither that of queries and keys nor of probabilities and values"
            )
        return v, token[..., 0]

    def product(self, x: Value, y: Value) -> Scores:
        """x [..., R, K] · y [..., K, C]: the rows are the queries of all heads, in whatever order, the columns the keys
        of all tokens; or the other way round."""
        if len(x.shape) < 2 or len(y.shape) < 2:
            raise CannotSay("a product of vectors")
        lead = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        (x, rows), (y, columns) = (
            self.token_of(v, lead) for v in (x, y.follow(lambda t: t.transpose(-1, -2)))
        )
        if self.in_order(columns):
            q, k, order = self.by_head(x, rows, y)
        elif self.in_order(rows):
            q, k, order = self.by_head(y, columns, x)
            order = order.transpose(-1, -2)
        else:
            raise CannotSay("a product of queries and keys neither of which are all tokens in their order")
        return Scores(q, k, order.reshape(*lead, *order.shape[-2:]))

    def in_order(self, tokens: torch.Tensor) -> bool:
        n = self.b.tokens
        return tokens.shape[-1] == n and torch.equal(tokens, torch.arange(n).expand(tokens.shape))

    def by_head(self, q: Value, token: torch.Tensor, k: Value) -> tuple[Value, Value, torch.Tensor]:
        """Queries and keys [S, H, K] of rows [L, R] of any tokens and of keys [L, S] in their order."""
        n, (_, rows) = self.b.tokens, token.shape
        at = torch.argsort(token.flatten(), stable=True).reshape(n, -1)
        of = at // rows
        if not bool((of == of[:1]).all()):
            raise CannotSay("queries of one head meet the keys of another at other positions")
        head = torch.empty(token.numel(), dtype=torch.long)
        head[at] = torch.arange(at.shape[1]).expand(at.shape)
        order = (head.reshape(token.shape) * n + token)[..., None] * n + torch.arange(n)
        return (
            q.follow(lambda t: t.reshape(-1, t.shape[-1])[at]),
            k.follow(lambda t: t[of[0]].movedim(1, 0)),
            order,
        )

    # What happens to scores

    def scores(self, name: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        s = next((a for a in args if isinstance(a, Scores)), None)
        if s is None:
            return self.beside(name, args, kwargs)
        first = args[0] is s
        other = (args[1] if first else args[0]) if len(args) > 1 else None
        if name in SAME or name in ("dropout", "native_dropout"):
            if name != "native_dropout" and name == "dropout" and (args[2] if len(args) > 2 else False) and args[1]:
                raise CannotSay("dropout in training: export the module after .eval()")
            return (s, None) if name == "native_dropout" else s
        if name in ("matmul", "bmm", "mm") and first and isinstance(other, Value):
            return self.attend(s, other)
        if name in ("matmul", "bmm", "mm") and isinstance(other, Value):  # values times probabilities, both turned
            turned = other.follow(lambda t: t.transpose(-1, -2))
            y = self.attend(replace(s, order=s.order.transpose(-1, -2)), turned)
            return y.follow(lambda t: t.transpose(-1, -2))
        if name in MOVES:
            rest = [a.value if isinstance(a, Const) else a for a in args[1:]]
            rest = [torch.empty(a.shape) if isinstance(a, (Value, Scores)) else a for a in rest]
            if name in ("view", "_unsafe_view"):
                target = torch.ops.aten.reshape.default
            return self.move(s, target, rest, kwargs)
        if s.stage == "scores" and name in ("mul", "div", "multiply") and s.sinks is None:
            by = self.number(other)
            if by is not None and (by > 0 or by != 0 and not s.masked) and (first or name != "div"):
                if s.cap and by != 1:
                    raise CannotSay("scores are scaled again behind their soft cap")
                by = by if name != "div" else 1 / by
                return replace(s, scale=s.scale * by, bias=None if s.bias is None else s.bias * by)
            if isinstance(other, Const) and first and not s.masked and not s.cap:
                return self.by_heads(s, other.value.to(torch.float64) ** (1 if name != "div" else -1))
        if s.stage == "scores" and name in ("max", "maximum", "clamp", "clamp_min", "nan_to_num"):
            low = self.number(other if len(args) > 1 else kwargs.get("min"))
            if name == "nan_to_num" or low is not None and low <= HIDDEN and len(args) < 3 and "max" not in kwargs:
                return s  # nothing that is seen lies so low
        if name == "add" and isinstance(other, Scores) and kwargs.get("alpha", 1) == 1:
            return self.sum(s, other)
        if s.stage == "scores" and name == "tanh" and not s.masked and not s.cap:
            return replace(s, stage="tanh", inner=s.scale)
        if s.stage == "tanh" and name in ("mul", "div", "multiply"):
            by = self.number(other)
            if by is not None and by > 0:
                by = by if name != "div" else 1 / by
                return replace(s, stage="scores", cap=by, scale=s.inner * by)
        if s.stage == "scores" and name in ("add", "sub", "masked_fill", "where"):
            return self.masked(s, name, args, kwargs)
        if s.stage == "scores" and name in ("softmax", "_softmax"):
            return replace(self.facing(s, args[1]), stage="probs")
        if s.stage in ("scores", "exp") and name in ("amax", "max", "sum"):
            d = args[1] if len(args) > 1 else None
            d = d[0] if isinstance(d, (list, tuple)) and len(d) == 1 else d
            if isinstance(d, int):
                s = self.facing(s, d)
                keep = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
                stage = {"scores": "max", "exp": "sum"}[s.stage]
                if (stage == "sum") == (name == "sum"):
                    r = replace(s, stage=stage, order=s.order.amin(d, keepdim=keep))
                    return (r, None) if name == "max" else r
        if s.stage == "scores" and name == "exp":
            return replace(s, stage="exp")
        if s.stage == "scores" and name in ("log_softmax", "_log_softmax"):
            return replace(self.facing(s, args[1]), stage="logs")
        if s.stage == "logs" and name == "exp":
            return replace(s, stage="probs")
        if s.stage == "scores" and name == "logsumexp":
            (d,) = [args[1]] if isinstance(args[1], int) else args[1]
            keep = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
            s = self.facing(s, d)
            return replace(s, stage="logsum", order=s.order.amin(d, keepdim=keep))
        if s.stage == "exp" and name == "div" and first and isinstance(other, Scores) and other.stage == "sum":
            return replace(s if other.q is s.q else self.swapped(s), stage="probs")
        raise CannotSay(
            "between queries · keys and the softmax, greta's attention has a scale, a soft cap and a mask; "
            "behind the softmax, the values"
        )

    def by_heads(self, s: Scores, by: torch.Tensor) -> Scores:
        """Scores times a number for each head, which the queries take."""
        shape = torch.broadcast_shapes(by.shape, s.shape)
        head = s.order.expand(shape) // (self.b.tokens * self.b.tokens)
        of = torch.zeros(s.q.shape[1], dtype=torch.float64)
        of[head.flatten()] = by.expand(shape).flatten()
        if not torch.equal(of[head], by.expand(shape)):
            raise CannotSay("scores times numbers that are not one for each head")
        return replace(s, q=self.b.constants(s.q, of[:, None], None), order=s.order.expand(shape))

    def sum(self, a: Scores, b: Scores) -> Scores:
        """Two products for the same heads are one of queries and keys side by side."""
        shape = torch.broadcast_shapes(a.shape, b.shape)
        plain = all(s.stage == "scores" and not s.masked and not s.cap for s in (a, b))
        if not plain or a.q.shape[1] != b.q.shape[1] or not torch.equal(a.order.expand(shape), b.order.expand(shape)):
            raise CannotSay("scores of other heads, or after a cap or a mask, are added to scores")
        one = torch.ones((), dtype=torch.float64)
        q = joined([self.b.constants(s.q, s.scale * one, None) for s in (a, b)], lambda p: torch.cat(p, -1))
        k = joined([a.k, b.k], lambda p: torch.cat(p, -1))
        return replace(a, q=q, k=k, order=a.order.expand(shape), scale=1.0)

    def beside(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Scores:
        """Scores beside a number for each head that every query sees as one more key without values: sinks."""
        parts = args[0] if args and isinstance(args[0], (list, tuple)) else []
        dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        s = parts[0] if len(parts) == 2 else None
        if name not in ("cat", "concat", "concatenate") or not isinstance(s, Scores) or not isinstance(parts[1], Const):
            raise CannotSay("scores are put beside others: greta's attention has no second set of keys")
        dim %= len(s.shape)
        sink = parts[1].value.to(torch.float64).movedim(dim, -1)
        if s.stage != "scores" or s.sinks is not None or sink.shape[-1] != 1:
            raise CannotSay("scores are put beside others than one number for each head (sinks)")
        s = self.facing(s, dim)
        head = s.order.movedim(dim, -1)[..., 0] // (self.b.tokens * self.b.tokens)
        sinks = torch.zeros(s.q.shape[1], dtype=torch.float64)
        sinks[head.flatten()] = sink[..., 0].expand(head.shape).flatten()
        if not torch.equal(sinks[head], sink[..., 0].expand(head.shape)):
            raise CannotSay("numbers beside the scores that are not the same for every query of a head (sinks)")
        order = torch.cat((s.order, torch.full_like(s.order.narrow(dim, 0, 1), NO_SCORE)), dim)
        return replace(s, order=order, sinks=sinks)

    @staticmethod
    def number(x: Any) -> float | None:
        if isinstance(x, Const):
            return scalar(x)
        return float(x) if isinstance(x, (int, float)) else None

    def facing(self, s: Scores, dim: int) -> Scores:
        """Scores over whose dimension dim the keys go, all tokens in their order."""
        n, order = self.b.tokens, s.order.movedim(dim, -1)
        if s.sinks is not None and order.shape[-1] == n + 1 and bool((order[..., n] == NO_SCORE).all()):
            order = order[..., :n]
        step = order - order[..., :1]
        if step.shape[-1] == n and torch.equal(step, torch.arange(n).expand(step.shape)):
            return s
        if step.shape[-1] != n or not torch.equal(step, n * torch.arange(n).expand(step.shape)):
            raise CannotSay("a softmax over something else than all keys of a query")
        return self.swapped(s)

    def swapped(self, s: Scores) -> Scores:
        """Queries as keys and keys as queries."""
        n = self.b.tokens
        key, query = s.order % n, s.order // n % n
        hidden, bias = (t.transpose(-1, -2) if t is not None else None for t in (s.hidden, s.bias))
        keys = tuple((k, b, a) for k, a, b in s.keys)
        return replace(s, q=s.k, k=s.q, order=s.order + (n - 1) * (key - query), hidden=hidden, bias=bias,
            keys=keys)

    def move(self, s: Scores, target: Any, rest: list[Any], kwargs: dict[str, Any]) -> Scores:
        """Scores may be seen under another shape, and put into another order."""
        moved = target(s.order, *rest, **kwargs)
        whole = s.order.numel()
        if s.stage == "probs" and s.sinks is not None and isinstance(moved, torch.Tensor) and bool((moved >= 0).all()):
            whole = int((s.order >= 0).sum())  # the sinks' share is left out
        if not isinstance(moved, torch.Tensor) or moved.numel() != whole:
            raise CannotSay("some scores are taken, or taken more than once")
        return replace(s, order=moved)

    def masked(self, s: Scores, name: str, args: list[Any], kwargs: dict[str, Any]) -> Scores:
        if name == "sub" and isinstance(args[1], Scores):
            if args[1].stage == "max" and args[0] is s:
                return s  # the softmax does not see it
            if args[1].stage == "logsum" and args[0] is s:
                return replace(s if args[1].q is s.q else self.swapped(s), stage="logs")
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
        if s.sinks is not None:
            raise CannotSay("a mask behind the sinks")
        shape = torch.broadcast_shapes(mask.shape, s.shape)
        if math.prod(shape) != s.order.numel():
            raise CannotSay("a mask of more scores than there are")
        n, order, mask = self.b.tokens, s.order.reshape(shape), mask.expand(shape)
        key, query = order % n, order // n % n
        keys = s.keys
        if given:
            over = [next((d - len(shape) for d in range(len(shape)) if self.varies(t, d)), 0) for t in (query, key)]
            keys = (*s.keys, (self.current, over[0], over[1]))
        flat = torch.empty(order.numel(), dtype=torch.float64)
        flat[order.flatten()] = mask.flatten()
        flat = flat.reshape(-1, n, n)
        hidden = flat[0] <= HIDDEN
        if not bool(((flat <= HIDDEN) == hidden).all()):
            raise CannotSay("a mask that hides other tokens from some heads than from others")
        bias = torch.where(hidden, 0.0, flat) if s.bias is None else s.bias + torch.where(hidden, 0.0, flat)
        before = s.hidden if s.hidden is not None else torch.zeros_like(hidden)
        return replace(s, order=order, masked=True, hidden=before | hidden, keys=keys, bias=bias)

    @staticmethod
    def varies(t: torch.Tensor, dim: int) -> bool:
        return not torch.equal(t, t.narrow(dim, 0, 1).expand(t.shape))

    @staticmethod
    def slopes(bias: torch.Tensor | None, hidden: torch.Tensor | None) -> dict[str, float]:
        """ALiBi's attributes, where a bias is that: head h's slope on the distance is -slope * 2^(-alibi (h+1) / n) for n
        heads, a power of two; of other numbers behind those of the power below every second one of the power above."""
        if bias is None or hidden is None:
            return {}
        rest = torch.where(hidden, 0.0, bias - bias.diagonal(dim1=-2, dim2=-1)[..., None])
        if float(rest.abs().max()) < 1e-9:
            return {}
        heads, n, _ = rest.shape
        slope = -rest[:, n - 1, n - 2]
        distance = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).to(torch.float64)
        want = torch.where(hidden, 0.0, -slope[:, None, None] * distance)
        if bool((slope > 0).all()) and float((rest - want).abs().max()) < 1e-5:
            power = 1 << (heads.bit_length() - 1)
            place = torch.cat((torch.arange(1, power + 1) / power, (torch.arange(heads - power) * 2 + 1) / (2 * power)))
            place, log = place.to(torch.float64), -torch.log2(slope)
            alibi = 8.0
            if heads > 1:
                alibi = float((log[1] - log[0]) / (place[1] - place[0]))
            alibi = round(alibi, 4)
            if alibi > 0:
                by = log - alibi * place
                if float((by - by[0]).abs().max()) < 1e-4:
                    factor = 2.0 ** -float(by.mean())
                    return {"alibi": alibi, **({"slope": factor} if abs(factor - 1) > 1e-5 else {})}
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
            chunk = int(visible[:, 0].sum())  # the first tokens, which see the first
            part = torch.arange(n) // chunk
            if torch.equal(visible, (distance >= 0) & (part[:, None] == part)):
                return {"chunk": chunk}
            raise CannotSay("a mask that is neither causal nor a sliding window nor one of chunks")
        return {} if window == n else {"window": window}

    def attend(self, s: Scores, v: Value) -> Value:
        if s.stage != "probs":
            raise CannotSay("scores times values without a softmax between")
        n = self.b.tokens
        lead = torch.broadcast_shapes(s.shape[:-2], v.shape[:-2])
        order = s.order.expand(*lead, *s.shape[-2:])
        rows = order[..., 0]
        if not torch.equal(order, rows[..., None] + torch.arange(order.shape[-1])) or bool((rows % n).any()):
            raise CannotSay("probabilities are multiplied by something else than the values of the tokens")
        v, token = self.token_of(v, lead)
        if not self.in_order(token):
            raise CannotSay("probabilities are multiplied by something else than the values of the tokens")
        query, head = rows // n % n, rows // (n * n)
        of = torch.full((s.q.shape[1],), -1)
        group = torch.arange(len(token))[:, None].expand(len(token), rows.shape[-1]).reshape(head.shape)
        of[head.flatten()] = group.flatten()
        if not torch.equal(of[head], group) or bool((of < 0).any()):
            raise CannotSay("the values have more heads than the scores")
        values = v.follow(lambda t: t[of].movedim(1, 0))
        y = self.node(s, values, {**self.seen(s.hidden), **self.slopes(s.bias, s.hidden)})
        self.keys.setdefault(id(y), []).extend(s.keys)
        heads, width = y.shape
        return Value([Term(y.base + ((query * heads + head) * width)[..., None] + torch.arange(width))])

    def whole(self, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: Any, gqa: bool) -> Value:
        if not all(isinstance(x, Value) and self.tokens_at(x, -2) for x in (q, k, v)):
            raise CannotSay("queries, keys or values whose tokens are not the second last dimension")
        if gqa:
            per = q.shape[-3] // k.shape[-3]
            k, v = (x.follow(lambda t: t.repeat_interleave(per, -3)) for x in (k, v))
        s = self.product(q, k.follow(lambda t: t.transpose(-1, -2)))
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

    def node(self, s: Scores, v: Value, seen: dict[str, Any]) -> Node:
        q, k, scale, heads = s.q, s.k, s.scale, s.q.shape[1]
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
        if s.cap:
            attrs["softcap"] = s.cap
        sinks = () if s.sinks is None else (self.b.found(s.sinks, "sinks"),)
        pos = self.g.node("pos")
        if not seen.get("both"):
            nk = self.g.node("push", (nk, pos), nk.shape, state="k", of=self.caches)
            nv = self.g.node("push", (nv, pos), nv.shape, state="v", of=self.caches)
            self.caches += 1
        return self.g.node("attention", (nq, nk, nv, pos, *sinks), (heads, v.shape[2]), **attrs)

    @staticmethod
    def without_factor(n: Node, scale: float) -> tuple[Node, float]:
        """A factor on all queries, or all keys, is one on the scores."""
        below = plain(n)
        if below.op == "affine" and below.attrs["plus"] == 0 and below.attrs["by"] > 0:
            return below.below, scale * below.attrs["by"]
        return n, scale
