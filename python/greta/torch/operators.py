"""What PyTorch's operators are in greta's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from .epsilon import of_type
from .experts import Experts, Picked, Places
from .nodes import Graph, Node, Source, plain
from .values import Builder, CannotSay, Complex, Const, Scores, Term, Value, joined, scalar

if TYPE_CHECKING:
    from .scores import Attention

NOTHING = object()  # what follows from an operator that cannot be said
# Operators that move elements and compute nothing: done to the elements' numbers.
MOVES = {
    "view",
    "reshape",
    "_unsafe_view",
    "permute",
    "transpose",
    "t",
    "expand",
    "unsqueeze",
    "squeeze",
    "slice",
    "select",
    "chunk",
    "split",
    "split_with_sizes",
    "unbind",
    "flatten",
    "unflatten",
    "repeat",
    "repeat_interleave",
    "flip",
    "roll",
    "movedim",
    "moveaxis",
    "swapaxes",
    "swapdims",
    "narrow",
    "tile",
    "broadcast_to",
    "expand_as",
    "view_as",
    "reshape_as",
    "tensor_split",
    "index_select",
    "mT",
    "numpy_T",
    "diagonal",
    "rot90",
    "unsafe_split",
    "unsafe_chunk",
    "adjoint",
    "hsplit",
    "unfold",
}
SAME = {
    "clone",
    "contiguous",
    "alias",
    "detach",
    "to",
    "_to_copy",
    "type_as",
    "lift_fresh_copy",
    "lift_fresh",
    "float",
    "double",
    "half",
    "bfloat16",
    "detach_",
    "_autocast_to_reduced_precision",
    "_autocast_to_full_precision",
}
JOINS = {"cat": "cat", "concat": "cat", "concatenate": "cat", "stack": "stack", "hstack": "hstack"}
UNARY = {"silu", "sigmoid", "tanh", "relu", "exp", "log", "sqrt", "abs", "floor", "softplus", "erf"}


class Operators(Experts):
    """Methods op_NAME, each of an operator of PyTorch: of values, constants and numbers, as its arguments are there."""

    b: Builder
    g: Graph
    attention: "Attention"
    dtype = torch.float32  # of the first operand, in the module

    def move(self, name: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Puts elements elsewhere, as an operator does that computes nothing."""
        raise NotImplementedError

    # Functions of elements

    def node(self, v: Value) -> tuple[Node, tuple[torch.Tensor, torch.Tensor]]:
        return self.b.resolve(v), self.b.rows_of(v)

    def unary(self, op: str, v: Any, **attrs: Any) -> Value:
        n, rows = self.node(v)
        n, factor = self.g.recognised(self.g.unary(op, n, **attrs))
        return self.times(self.b.fresh(n, rows), factor)

    def times(self, v: Value, by: float) -> Value:
        return v if by == 1 else self.b.constants(v, torch.tensor(float(by), dtype=torch.float64), None)

    def op_gelu(self, x: Value, approximate: str = "none") -> Value:
        return self.unary("gelu", x, form="tanh" if approximate == "tanh" else "erf")

    def op_neg(self, x: Value) -> Value:
        return self.times(x, -1)

    def op_square(self, x: Value) -> Value:
        return self.op_pow(x, 2)

    def op_rsqrt(self, x: Value) -> Value:
        return self.unary("pow", x, p=-0.5)

    def op_sqrt(self, x: Value) -> Value:
        return self.unary("pow", x, p=0.5)

    def op_reciprocal(self, x: Value) -> Value:
        return self.unary("pow", x, p=-1.0)

    def op_pow(self, x: Any, p: Any) -> Value:
        p = scalar(p) if isinstance(p, Const) else p
        if not isinstance(x, Value) or not isinstance(p, (int, float)):
            raise CannotSay("a power whose exponent is no number")
        return self.unary("pow", x, p=float(p))

    def op_clamp(self, x: Value, min: Any = None, max: Any = None) -> Value:
        low, high = (
            float(m) if m is not None else s for m, s in ((min, -3.4028234663852886e38), (max, 3.4028234663852886e38))
        )
        return self.unary("clamp", x, low=low, high=high)

    def op_clamp_min(self, x: Value, min: Any) -> Value:
        return self.op_clamp(x, min=min)

    def op_clamp_max(self, x: Value, max: Any) -> Value:
        return self.op_clamp(x, max=max)

    def op_hardtanh(self, x: Value, low: float = -1.0, high: float = 1.0) -> Value:
        return self.op_clamp(x, low, high)

    def op_relu6(self, x: Value) -> Value:
        return self.op_clamp(x, 0.0, 6.0)

    def op_leaky_relu(self, x: Value, slope: float = 0.01) -> Value:
        if not 0 <= slope <= 1:
            raise CannotSay(f"a slope of {slope}: it is said as the larger of x and slope * x")
        return self.extreme("max", x, self.times(x, slope)) if slope else self.unary("relu", x)

    def op_expm1(self, x: Value) -> Value:
        return self.plus(self.unary("exp", x), -1)

    def op_log1p(self, x: Value) -> Value:
        return self.unary("log", self.plus(x, 1))

    def op_elu(self, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
        below = self.op_expm1(self.op_clamp(self.times(x, input_scale), max=0.0))
        return self.op_add(self.times(self.unary("relu", x), scale), self.times(below, alpha * scale))

    def op_celu(self, x: Value, alpha: float = 1) -> Value:
        return self.op_elu(x, alpha, 1, 1 / alpha)

    def op_selu(self, x: Value) -> Value:
        return self.op_elu(x, 1.6732632423543772, 1.0507009873554805)

    def op_lerp(self, x: Value, y: Value, weight: Any) -> Value:
        return self.op_add(x, self.op_mul(self.op_sub(y, x), weight))

    def op_gt(self, x: Any, y: Any) -> Value:
        """1 where x > y, else 0."""
        pair = []
        for v, other in ((x, y), (y, x)):
            if not isinstance(v, Value):
                by = scalar(v) if isinstance(v, Const) else float(v)
                if by is None:
                    raise CannotSay("a comparison with several numbers")
                n, rows = self.node(other)
                v = self.b.fresh(self.g.node("affine", (n,), n.shape, by=0.0, plus=by), rows)
            pair.append(v)
        a, b, shapes = self.broadcast(*pair)
        return self.combine("greater", a, b, shapes)

    def op_lt(self, x: Any, y: Any) -> Value:
        return self.op_gt(y, x)

    def op_ge(self, x: Any, y: Any) -> Value:
        return self.op_rsub(self.op_gt(y, x), 1)

    def op_le(self, x: Any, y: Any) -> Value:
        return self.op_ge(y, x)

    def op_where(self, mask: Any, x: Any = None, y: Any = None) -> Any:
        if x is None:
            return self.op_where_one(mask)
        if not isinstance(mask, Value):
            raise CannotSay("what is taken of a token depends on its position")
        if isinstance(x, Value) or isinstance(y, Value):
            return self.op_add(self.op_mul(self.op_sub(x, y), mask), y)
        return self.op_add(self.op_mul(mask, x), self.op_mul(self.op_rsub(mask, 1), y))

    def op_masked_fill(self, x: Value, mask: Any, by: Any) -> Value:
        return self.op_where(mask, by, x)

    def op_sym_size(self, x: Any, dim: int) -> int:
        return int(x.shape[dim])

    def op_mish(self, x: Value) -> Value:
        return self.op_mul(x, self.unary("tanh", self.unary("softplus", x)))

    def op_log_sigmoid(self, x: Value) -> Value:
        return self.times(self.unary("softplus", self.times(x, -1)), -1)

    # Functions of two tensors

    def op_add(self, x: Any, y: Any, alpha: float = 1) -> Value:
        if alpha != 1:
            y = self.times(y, alpha) if isinstance(y, Value) else number(y, alpha)
        if not isinstance(x, Value):
            x, y = y, x
        if not isinstance(y, Value):
            return self.plus(x, y)
        x, y, shape = self.broadcast(x, y)
        if shape[0] == shape[1] and self.linear_in_same(x, y):
            return Value(merged(x.terms + y.terms))
        return self.combine("add", x, y, shape)

    op_iadd = op_add

    def linear_in_same(self, x: Value, y: Value) -> bool:
        """Both are sums of elements of the same node, so that their sum may still be a rotation."""
        owners = [self.b.owner(t.index)[0] for t in x.terms + y.terms]
        first = owners[0]
        varies = any(t.times is not None and t.times.numel() > 1 for t in x.terms + y.terms)
        return varies and len(owners) <= 8 and all(torch.equal(o, first) for o in owners[1:])

    def plus(self, x: Value, y: Any) -> Value:
        by = scalar(y) if isinstance(y, Const) else float(y)
        if by == 0 and (not isinstance(y, Const) or y.value.numel() == 1):
            return x
        if by is not None and (not isinstance(y, Const) or torch.broadcast_shapes(x.shape, y.shape) == x.shape):
            return self.unary("affine", x, by=1.0, plus=by)
        if torch.broadcast_shapes(x.shape, y.shape) != x.shape:
            raise CannotSay(f"a constant {list(y.shape)} is larger than what it is added to, {list(x.shape)}")
        n, rows = self.node(x)
        token, place = rows
        row = torch.zeros(self.b.tokens, n.size, dtype=torch.float64)
        row[token.flatten(), place.flatten()] = y.value.to(torch.float64).expand(x.shape).flatten()
        if not bool((row == row[:1]).all()):
            if y.rows is not None:
                return self.op_add(x, self.table(y, x))
            raise CannotSay(
                "numbers that depend on the position are added, and they are no rows of a tensor of the module: "
                "keep their table in a buffer, and add its first rows"
            )
        width = self.b.period(row[0], x.shape)
        w = self.b.named(row[0, :width], y.source, "bias")
        below = plain(n)
        if below.op in ("layernorm",) and len(below.inputs) == 2 and below.shape[-1] == width:
            n = self.g.node("layernorm", (*below.inputs, w), below.shape, **below.attrs)
        elif below.op == "linear" and len(below.inputs) == 2 and below.shape[-1] == width:
            n = self.g.node("linear", (*below.inputs, w), below.shape)
        else:
            n = self.g.binary("add", self.g.view(n, (n.size // width, width) if width < n.size else (width,)), w)[0]
        return self.b.fresh(n, rows)

    def table(self, y: Const, like: Value) -> Value:
        """The first rows of a tensor, as many as there are tokens: a table that the positions choose from."""
        assert y.rows is not None
        whole = self.b.params[y.rows].to(torch.float64)
        while whole.dim() > 2 and whole.shape[0] == 1:
            whole = whole[0]
        if whole.dim() != 2 or not torch.equal(y.value.reshape(-1), whole[: self.b.tokens].reshape(-1)):
            raise CannotSay(
                "numbers that depend on the position are added, and they are not the rows of a matrix from 0 on"
            )
        n = self.g.node("embed", (self.g.node("pos"), self.b.named(whole, Source(y.rows), y.rows)), (whole.shape[1],))
        return self.b.last(n, torch.Size((self.b.tokens, whole.shape[1])), 0).follow(lambda t: t.reshape(y.shape))

    def op_sub(self, x: Any, y: Any, alpha: float = 1) -> Value:
        if isinstance(y, Value):
            if isinstance(x, Value) and alpha == 1 and not self.linear_in_same(x, y):
                a, b, shapes = self.broadcast(x, y)
                if torch.broadcast_shapes(*shapes) == shapes[0]:
                    return self.combine("sub", a, b, shapes)
            return self.op_add(self.times(y, -alpha), x)
        return self.op_add(x, number(y, -alpha))

    def op_rsub(self, x: Value, y: Any, alpha: float = 1) -> Value:
        return self.op_sub(y, x, alpha)

    def op_mul(self, x: Any, y: Any) -> Any:
        if not isinstance(x, Value):
            x, y = y, x
        if not isinstance(y, Value):
            if isinstance(y, Const) and y.value.is_complex():
                raise CannotSay("activations times complex numbers")
            v = y.value if isinstance(y, Const) else torch.tensor(float(y), dtype=torch.float64)
            return self.b.constants(x, v.to(torch.float64), y.source if isinstance(y, Const) else None)
        x, y, shape = self.broadcast(x, y)
        return self.combine("mul", x, y, shape)

    op_multiply = op_mul

    def op_div(self, x: Any, y: Any, rounding_mode: Any = None) -> Value:
        if rounding_mode is not None:
            raise CannotSay("a division that rounds")
        if not isinstance(y, Value):
            if isinstance(y, Const):
                return self.op_mul(x, Const(1 / y.value.to(torch.float64)))
            return self.times(x, 1 / float(y))
        if not isinstance(x, Value):
            return self.op_mul(self.op_reciprocal(y), x)
        x, y, shape = self.broadcast(x, y)
        return self.combine("div", x, y, shape)

    op_true_divide = op_divide = op_div

    def op_maximum(self, x: Any, y: Any) -> Value:
        return self.extreme("max", x, y)

    def op_minimum(self, x: Any, y: Any) -> Value:
        return self.extreme("min", x, y)

    def extreme(self, op: str, x: Any, y: Any) -> Value:
        if not isinstance(x, Value):
            x, y = y, x
        if isinstance(y, Const):
            by = scalar(y)
            if by is None:
                raise CannotSay("the constant is not one number")
            return self.op_clamp(x, **({"min": by} if op == "max" else {"max": by}))
        x, y, shape = self.broadcast(x, y)
        return self.combine(op, x, y, shape)

    def broadcast(self, x: Value, y: Value) -> tuple[Value, Value, tuple[torch.Size, torch.Size]]:
        rank = max(len(x.shape), len(y.shape))
        x, y = (v.follow(lambda t: t.reshape((1,) * (rank - t.dim()) + tuple(t.shape))) for v in (x, y))
        return x, y, (x.shape, y.shape)

    def combine(self, op: str, x: Value, y: Value, shapes: tuple[torch.Size, torch.Size]) -> Value:
        """An operation of two values; factors of a product and a quotient are left to its result."""
        out = torch.broadcast_shapes(*shapes)
        left = None
        norm = self.norm(op, x, y, out) if op in ("mul", "div") else None
        if norm is not None:
            return norm
        if op in ("mul", "div"):
            x, left = self.without_factor(x)
            y, right = self.without_factor(y)
            if right is not None:
                right = right if op == "mul" else 1 / right
                left = right if left is None else left * right
        if shapes[0] != out and shapes[1] == out and op in ("add", "mul", "max", "min"):
            x, y, shapes = y, x, (shapes[1], shapes[0])
        whole = x.follow(lambda t: t.expand(out))
        rows = self.b.rows_of(whole)
        if not torch.equal(rows[0], self.b.rows_of(y.follow(lambda t: t.expand(out)))[0]):
            raise CannotSay("elements of different tokens meet: a step sees other tokens by attention alone")
        if shapes[0] == shapes[1]:
            a, b = self.b.resolve(x), self.b.resolve(y)
        else:
            a, b = self.spread(x, y, out)
        n, factor = self.g.binary(op, a, b)
        v = self.times(self.b.fresh(n, rows), factor)
        return v if left is None else self.b.constants(v, left, None)

    def norm(self, op: str, x: Value, y: Value, out: torch.Size) -> Value | None:
        """An RMSNorm, of a value as it is or without the constants that it is multiplied by."""
        if op == "mul" and y.shape == out and x.shape != out:
            x, y = y, x
        if y.shape == out or x.shape != out or y.shape[-1] != 1 or len(x.terms) != 1:
            return None
        y, over = self.without_factor(y)
        for bare in (False, True):
            v = Value([Term(x.terms[0].index)]) if bare else x
            a, b = self.spread(v, y, out)
            n, factor = self.g.binary(op, a, b)
            if n.op != "rmsnorm":
                continue
            r = self.times(self.b.fresh(n, self.b.rows_of(x)), factor)
            if over is not None:
                r = self.times(r, float(over) if op == "mul" else 1 / float(over))
            if bare and x.terms[0].times is not None:
                r = self.b.constants(r, x.terms[0].factor(), x.terms[0].source)
            return r
        return None

    def spread(self, x: Value, y: Value, out: torch.Size) -> tuple[Node, Node]:
        """Two nodes of as many dimensions, of which some are one."""
        token, _ = self.b.rows_of(x.follow(lambda t: t.expand(out)))
        axis = None
        for d, size in enumerate(out):
            view = [1] * len(out)
            view[d] = self.b.tokens
            if size == self.b.tokens and torch.equal(token, torch.arange(size).reshape(view).expand(out)):
                axis = d
        sizes = []
        for v in (x, y):
            shape = list(v.shape)
            if axis is None or shape[axis] != self.b.tokens:
                raise CannotSay("tensors of different shapes, whose tokens are not one dimension of both")
            del shape[axis]
            sizes.append(shape)
        keep = [d for d in range(len(sizes[0])) if sizes[0][d] != 1 or sizes[1][d] != 1]
        shapes = [tuple(s[d] for d in keep) for s in sizes]
        a, b = (self.g.view(self.b.resolve(v), s) for v, s in zip((x, y), shapes))
        return a, b

    def without_factor(self, v: Value) -> tuple[Value, torch.Tensor | None]:
        if len(v.terms) != 1 or v.terms[0].times is None:
            return v, None
        times = v.terms[0].times
        if times.numel() > 1 and scalar(Const(times)) is None:
            return v, None
        return Value([Term(v.terms[0].index)]), times.flatten()[0]

    # Functions of rows

    def rows(self, x: Value, dim: Any) -> tuple[Value, int, int]:
        """The value with the dimension last, which is then one row each, its width, and where it was."""
        dims = [dim] if isinstance(dim, int) else list(dim or range(len(x.shape)))
        if len(dims) != 1:
            raise CannotSay("over several dimensions at once")
        d = dims[0] % len(x.shape)
        width = x.shape[d]
        x = x.follow(lambda t: t.movedim(d, -1))
        token, _ = self.b.rows_of(x)
        if not bool((token == token[..., :1]).all()):
            raise CannotSay("over the tokens: a step sees other tokens by attention alone")
        return x, width, d

    def reduce(self, op: str, x: Value, dim: Any, keep: bool, **attrs: Any) -> Value:
        x, width, d = self.rows(x, dim)
        n = self.b.resolve(x)
        n = self.g.view(n, (n.size // width, width) if n.size > width else (width,))
        inner, by, plus = plain(n), 1.0, 0.0
        if op == "mean" and inner.op == "affine":
            by, plus = inner.attrs["by"], inner.attrs["plus"]
            n = self.g.view(inner.below, n.shape)
        y = self.g.node(op, (n,), (*n.shape[:-1], 1), **attrs)
        y = self.g.unary("affine", y, by=by, plus=plus)
        v = self.b.fresh(y, x.follow(lambda t: t[..., 0]))
        return v.follow(lambda t: t.unsqueeze(d)) if keep else v

    def along(self, x: Value, dim: Any) -> int | None:
        """A dimension whose sum is that of its slices: within a token, and not the last of what lies side by side."""
        d = dim if isinstance(dim, int) else dim[0] if dim is not None and len(dim) == 1 else None
        if d is None or d % len(x.shape) == len(x.shape) - 1 or x.shape[d] > 64:
            return None
        token, _ = self.b.rows_of(x)
        d %= len(x.shape)
        return d if bool((token == token.narrow(d, 0, 1)).all()) else None

    def summed(self, x: Value, d: int, keep: bool) -> Value:
        """A sum over a dimension that is not the last: of products with numbers each it is a mix."""
        tail, count = x.shape[d + 1 :], x.shape[d]
        x, factor = self.without_factor(x)
        if factor is not None:
            return self.times(self.summed(x, d, keep), float(factor))
        n = plain(self.b.resolve(x))
        if n.op == "mul" and len(n.inputs) == 2 and isinstance(n.inputs[1], Node) and n.shape[:1] == (count,):
            p, size = n.inputs[1], n.size // count
            if p.size == count and len(n.shape) == 2 and math.prod(tail) == size:
                y = self.g.node("mix", (self.g.view(n.below, (count, size)), self.g.view(p, (count,))), (size,))
                v = self.b.fresh(y, self.b.rows_of(x.follow(lambda t: t.select(d, 0))))
                return v.follow(lambda t: t.unsqueeze(d)) if keep else v
        total: Any = None
        for i in range(count):
            part = x.follow(lambda t: t.narrow(d, i, 1) if keep else t.select(d, i))
            total = part if total is None else self.op_add(total, part)
        assert isinstance(total, Value)
        return total

    def op_mean(self, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
        return self.reduce("mean", x, dim, keepdim)

    def op_sum(self, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
        width = x.shape[dim if isinstance(dim, int) else dim[0]] if dim or dim == 0 else 0
        d = self.along(x, dim)
        if d is not None:
            return self.summed(x, d, keepdim)
        return self.times(self.reduce("mean", x, dim, keepdim), float(width))

    def op_amax(self, x: Value, dim: Any = (), keepdim: bool = False) -> Value:
        return self.reduce("largest", x, dim, keepdim)

    def op_max(self, x: Value, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, (Value, Const)):
            return self.extreme("max", x, dim)
        index: Any = NOTHING
        try:
            index = self.op_argmax(x, dim, keepdim)
        except CannotSay:
            pass
        return (self.reduce("largest", x, dim, keepdim), index)

    def op_var(
        self, x: Value, dim: Any = None, correction: Any = 1, keepdim: bool = False, unbiased: Any = None
    ) -> Value:
        if isinstance(correction, bool) or unbiased is not None:
            correction = int(correction if unbiased is None else unbiased)
        d = dim if isinstance(dim, int) else (dim or [None])[0]
        if d is None:
            raise CannotSay("over all dimensions")
        width = x.shape[d]
        centred = self.op_sub(x, self.op_mean(x, dim, True))
        return self.times(self.op_mean(self.op_square(centred), dim, keepdim), width / (width - (correction or 0)))

    def op_var_mean(self, x: Value, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Any:
        return self.op_var(x, dim, correction, keepdim), self.op_mean(x, dim, keepdim)

    def op_linalg_vector_norm(
        self, x: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Value:
        if ord != 2:
            raise CannotSay("a norm other than the root of the sum of squares")
        return self.op_sqrt(self.op_sum(self.op_square(x), dim, keepdim))

    op_norm = op_linalg_vector_norm

    def op_softmax(self, x: Value, dim: int, *_: Any, **__: Any) -> Value:
        x, width, d = self.rows(x, dim)
        n, rows = self.node(x)
        n = self.g.view(n, (n.size // width, width) if n.size > width else (width,))
        y = self.g.node("softmax", (n,), n.shape)
        return self.b.fresh(y, rows).follow(lambda t: t.movedim(-1, d))

    def op_rms_norm(self, x: Value, shape: Any, weight: Any = None, eps: Any = None) -> Value:
        if len(shape) != 1:
            raise CannotSay("a norm over several dimensions")
        return self.normed("rmsnorm", x, weight, None, of_type(self.dtype) if eps is None else eps)

    def op_layer_norm(
        self, x: Value, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
    ) -> Value:
        if len(shape) != 1:
            raise CannotSay("a norm over several dimensions")
        return self.normed("layernorm", x, weight, bias, eps)

    def op_native_layer_norm(self, x: Value, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
        return self.op_layer_norm(x, shape, weight, bias, eps), NOTHING, NOTHING

    def op_group_norm(
        self, x: Value, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
    ) -> Value:
        """Of channels [N, C, …]: a group is a row of [N, groups, …], which must be one token's."""
        n, channels = x.shape[:2]
        grouped = x.follow(lambda t: t.reshape(n, groups, -1))
        v = self.normed("layernorm", grouped, None, None, eps).follow(lambda t: t.reshape(x.shape))
        shape = (channels, *(1 for _ in x.shape[2:]))
        for w, do in ((weight, self.op_mul), (bias, self.op_add)):
            if w is not None:
                v = do(v, w if len(x.shape) == 2 else Const(w.value.reshape(shape)))
        return v

    def op_native_group_norm(
        self, x: Value, weight: Any, bias: Any, n: int, channels: int, rest: int, groups: int, eps: float
    ) -> Any:
        return self.op_group_norm(x, groups, weight, bias, eps), NOTHING, NOTHING

    def normed(self, op: str, x: Value, weight: Any, bias: Any, eps: float) -> Value:
        x, width, _ = self.rows(x, -1)
        n, rows = self.node(x)
        n = self.g.view(n, (n.size // width, width) if n.size > width else (width,))
        if n.op == "view" and n.below.shape == n.shape:
            n = n.below
        v = self.b.fresh(self.g.node(op, (n,), n.shape, eps=float(eps)), rows)
        if weight is not None:
            v = self.op_mul(v, weight)
        return v if bias is None else self.op_add(v, bias)

    def op_batch_norm(
        self,
        x: Value,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        training: bool,
        momentum: float,
        eps: float,
        *_: Any,
    ) -> Value:
        if training or not isinstance(mean, Const) or not isinstance(var, Const):
            raise CannotSay("a norm by the statistics of the batch: only kept ones, after .eval(), are constants")
        by = (var.value + eps) ** -0.5 * (weight.value if weight is not None else 1)
        plus = (bias.value if bias is not None else 0) - mean.value * by
        shape = (-1, *(1 for _ in x.shape[2:]))
        return self.op_add(self.op_mul(x, Const(by.reshape(shape))), Const(plus.reshape(shape)))

    def op_native_batch_norm_legit_no_training(
        self, x: Value, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
    ) -> Any:
        return self.op_batch_norm(x, weight, bias, mean, var, False, momentum, eps), NOTHING, NOTHING

    # What sees other tokens

    def op_lstm(self, *_: Any) -> Value:
        raise CannotSay("a recurrence over the tokens: a step sees other tokens by attention alone")

    op_gru = op_rnn_tanh = op_rnn_relu = op_lstm

    def op_conv1d(
        self, x: Value, w: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Value:
        plain = all(v in (one, [one]) for v, one in ((groups, 1), (stride, 1), (padding, 0)))
        if not isinstance(w, Const) or w.shape[2:] != (1,) or not plain:
            raise CannotSay("a convolution over the tokens: a step sees other tokens by attention alone")
        source = w.source if w.source is None or not (w.source.plus or w.source.transposed) else None
        y = self.linear(x.follow(lambda t: t.transpose(-1, -2)), w.value[..., 0], source, bias)
        return y.follow(lambda t: t.transpose(-1, -2))

    def op_convolution(
        self, x: Value, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, turned: bool, _: Any, groups: int
    ) -> Value:
        return self.op_conv1d(x, w, bias, stride, padding, dilation, 0 if turned else groups)

    # Products

    def op_linear(self, x: Any, weight: Any, bias: Any = None) -> Value:
        if not isinstance(weight, Const) or not isinstance(x, Value):
            return self.op_matmul(x, weight.follow(lambda t: t.t()) if isinstance(weight, Value) else weight)
        return self.linear(x, weight.value, weight.source, bias)

    def linear(self, x: Value, w: torch.Tensor, source: Any, bias: Any) -> Value:
        if bias is None and bool((w.abs().sum(1) == 1).all()) and bool((w == -1).any()):  # signs, as of turned halves
            moved = self.sparse(x, w.t(), 1)
            if moved is not None:
                return moved
        x, width, _ = self.rows(x, -1)
        n = self.permuted(x, w)
        if n is not None:
            below, w2 = n
            w, source, rows_in = w2, None, below
        else:
            rows_in = self.b.resolve(x)
        rows_in = self.g.view(rows_in, (rows_in.size // width, width) if rows_in.size > width else (width,))
        inputs: list[Any] = [rows_in, self.b.named(w, source, "weight")]
        if bias is not None:
            if not isinstance(bias, Const):
                raise CannotSay("a bias that depends on the inputs")
            inputs.append(self.b.named(bias.value.reshape(-1).expand(w.shape[0]), bias.source, "bias"))
        y = self.g.node("linear", tuple(inputs), (*rows_in.shape[:-1], w.shape[0]))
        like = x.follow(lambda t: t[..., 0])
        token, place = self.b.rows_of(like)
        index = y.base + (token * y.size)[..., None] + (place * w.shape[0])[..., None] + torch.arange(w.shape[0])
        return Value([Term(index)])

    def permuted(self, x: Value, w: torch.Tensor) -> tuple[Node, torch.Tensor] | None:
        """A permutation of a whole result before a product is one of the matrix's columns."""
        if len(x.terms) != 1 or x.terms[0].times is not None:
            return None
        nodes, places, _ = self.b.by_token(x)
        n = self.g.nodes[int(nodes[0, 0])]
        if not bool((nodes == nodes[0, 0]).all()) or nodes.shape[1] != w.shape[1] or max(n.size, 1) != w.shape[1]:
            return None
        order = places[0]
        if torch.equal(order, torch.arange(len(order))) or not torch.equal(
            order.sort().values, torch.arange(len(order))
        ):
            return None
        columns = torch.empty_like(w)
        columns[:, order] = w
        return n, columns

    def op_addmm(self, bias: Any, x: Any, w: Any, beta: float = 1, alpha: float = 1) -> Value:
        y = self.op_matmul(x, w)
        y = self.times(y, alpha)
        return self.op_add(y, bias, alpha=beta)

    def op_matmul(self, x: Any, y: Any) -> Any:
        if isinstance(x, Value) and isinstance(y, Const):
            if y.value.dim() == 2:
                s = y.source
                s = type(s)(s.name, s.plus, not s.transposed) if s is not None else None
                return self.linear(x, y.value.t(), s, None)
            lead = y.value.shape[:-2]
            if y.value.dim() > 2 and math.prod(lead) == 1:
                out = self.linear(x, y.value.reshape(y.value.shape[-2:]).t(), y.source, None)
                rank = max(len(x.shape), y.value.dim())
                return out.follow(lambda t: t.reshape((1,) * (rank - t.dim()) + tuple(t.shape)))
            if y.value.dim() > 2:
                return self.per_head(x, y.value, y.source)
        if isinstance(x, Const) and isinstance(y, Value) and x.value.dim() == 2 and len(y.shape) >= 2:
            return self.linear(y.follow(lambda t: t.transpose(-1, -2)), x.value, x.source, None).follow(
                lambda t: t.transpose(-1, -2)
            )
        if isinstance(x, Value) and isinstance(y, Value):
            return self.attention.product(x, y)
        raise CannotSay("a product of these operands")

    op_mm = op_bmm = op_matmul

    def op_baddbmm(self, bias: Any, x: Any, w: Any, beta: float = 1, alpha: float = 1) -> Any:
        y = self.op_matmul(x, w)
        if isinstance(y, Scores):
            y = self.attention.scores("mul", None, [y, alpha], {})
            zero = isinstance(bias, Const) and (beta == 0 or not bool(bias.value.any()))
            return y if zero else self.attention.scores("add", None, [y, number(bias, beta)], {})
        return self.op_add(self.times(y, alpha), bias, alpha=beta)

    def einsum(self, equation: str, operands: list[Any]) -> Any:
        """A product of two tensors as one of matrices; of more, one after the other."""
        equation = named(equation, [len(o.shape) for o in operands])
        if len(operands) < 2:
            raise CannotSay("an einsum of one tensor")
        (left, right, *more), out = equation.split("->")[0].split(","), equation.split("->")[1]
        if more:
            rest = set("".join(more) + out)
            between = "".join(dict.fromkeys(c for c in left + right if c in rest))
            first = self.einsum(f"{left},{right}->{between}", operands[:2])
            return self.einsum(f"{','.join([between, *more])}->{out}", [first, *operands[2:]])
        if any(len(set(t)) != len(t) for t in (left, right, out)) or set(out) - set(left + right):
            raise CannotSay("an einsum with a dimension twice in one tensor")
        x, y = operands
        if isinstance(x, Const) and isinstance(y, Const):
            return Const(torch.einsum(equation, x.value, y.value))
        sizes = {c: n for t, v in ((left, x), (right, y)) for c, n in zip(t, v.shape)}
        both = [c for c in out if c in left and c in right]
        inner = [c for c in left if c in right and c not in out]
        mine, theirs = [c for c in out if c not in right], [c for c in out if c not in left]
        if len(both) + len(inner) + len(mine) != len(left) or len(both) + len(inner) + len(theirs) != len(right):
            raise CannotSay("an einsum that sums one tensor by itself")

        if isinstance(x, Value) and isinstance(y, Scores):
            return self.einsum(f"{right},{left}->{out}", [y, x])
        if isinstance(x, Picked) != isinstance(y, Picked):
            if isinstance(x, Picked):
                return self.chosen_product(x, left, y, right, out)
            return self.chosen_product(y, right, x, left, out)
        if isinstance(x, Value) and isinstance(y, Value) and len(inner) == 1:
            if any(self.attention.tokens_at(v, t.index(c)) for t, v in ((left, x), (right, y)) for c in both):
                return self.token_product(x, left, y, right, (both, inner, mine, theirs), out)

        def matrices(v: Any, names: str, rows: list[str], columns: list[str]) -> Any:
            order = [names.index(c) for c in [*both, *rows, *columns]]
            shape = [sizes[c] for c in both] + [
                math.prod(sizes[c] for c in rows),
                math.prod(sizes[c] for c in columns),
            ]
            if isinstance(v, Scores):
                return self.attention.move(v, lambda t: t.permute(order).reshape(shape), [], {})
            if isinstance(v, Const):
                return Const(v.value.permute(order).reshape(shape), v.source)
            return v.follow(lambda t: t.permute(order).reshape(shape))

        a, b = matrices(x, left, mine, inner), matrices(y, right, inner, theirs)
        z = self.attention.scores("matmul", None, [a, b], {}) if isinstance(a, Scores) else self.op_matmul(a, b)
        names = [*both, *mine, *theirs]
        shape, order = [sizes[c] for c in names], [names.index(c) for c in out]
        if isinstance(z, Scores):
            return self.attention.move(z, lambda t: t.reshape(shape).permute(order), [], {})
        return z.follow(lambda t: t.reshape(shape).permute(order))

    def token_product(
        self, x: Value, left: str, y: Value, right: str, parts: tuple[list[str], ...], out: str
    ) -> Value:
        """An einsum of two tensors of the same tokens, over one dimension."""
        both, inner, mine, theirs = parts
        names = [*both, *inner, *mine, *theirs]

        def aligned(v: Value, t: str) -> Value:
            sizes = dict(zip(t, v.shape))
            order = [t.index(c) for c in names if c in t]
            return v.follow(lambda e: e.permute(order).reshape([sizes.get(c, 1) for c in names]))

        z = self.op_sum(self.op_mul(aligned(x, left), aligned(y, right)), len(both))
        names.remove(inner[0])
        return z.follow(lambda t: t.permute([names.index(c) for c in out]))

    @staticmethod
    def sparse(x: Value, w: torch.Tensor, most: int) -> Value | None:
        """x [..., R, K] times w [..., K, N] of which no column has more numbers than most: sums of elements, and so a move
        or a rotation of them."""
        at = (w != 0).reshape(-1, *w.shape[-2:]).any(0)
        count = int(at.sum(0).max())
        if count > most:
            return None
        rows = torch.argsort(at.to(torch.int8), dim=0, descending=True, stable=True)[: max(count, 1)]
        terms = []
        for row in rows:
            by = torch.gather(w, -2, row.expand(*w.shape[:-2], 1, -1)) * torch.gather(at, 0, row[None])[0]
            for t in x.terms:
                index = t.index[..., row]
                shape = torch.broadcast_shapes(index.shape, by.shape)
                times = by if t.times is None else t.factor()[..., row] * by
                terms.append(Term(index.expand(shape), times.expand(shape), t.source))
        return Value(merged(terms))

    def per_head(self, x: Value, w: torch.Tensor, source: Any) -> Value:
        """x [..., H, S, K] times w [H, K, N]: a matrix for each head."""
        lead = torch.broadcast_shapes(x.shape[:-2], w.shape[:-2])
        x = x.follow(lambda t: t.expand(*lead, *t.shape[-2:]))
        token, _ = self.b.rows_of(x)
        want = torch.arange(self.b.tokens)[:, None].expand(x.shape) if x.shape[-2] == self.b.tokens else None
        if want is None or not torch.equal(token, want):
            turned = self.sparse(x, w, 2)
            if turned is not None:
                return turned
            raise CannotSay("a product whose matrices are chosen by something else than heads")
        heads = math.prod(lead)
        w = w.expand(*lead, *w.shape[-2:]).reshape(heads, *w.shape[-2:]).transpose(-1, -2)
        n = self.g.view(self.b.resolve(x), (heads, x.shape[-1]))
        y = self.g.node("per_head", (n, self.b.named(w, source, "weight")), (heads, w.shape[1]))
        return self.b.last(y, torch.Size((*lead, self.b.tokens, w.shape[1])), len(lead))

    def op_embedding(self, w: Any, ids: Any, *_: Any, **__: Any) -> Value:
        if not isinstance(w, Const) or not isinstance(ids, Value):
            raise CannotSay("an embedding whose table depends on the inputs")
        if self.chosen(ids) is not None:
            return self.pick(w, ids)
        n = self.b.resolve(ids)
        n = plain(n)
        if n.op != "tokens":
            raise CannotSay("an embedding of something else than the token ids or the positions")
        token, _ = self.b.rows_of(ids)
        y = self.g.node("embed", (n, self.b.named(w.value, w.source, "embedding")), (w.value.shape[1],))
        index = y.base + token[..., None] * y.size + torch.arange(y.size)
        return Value([Term(index)])

    def op_scaled_dot_product_attention(
        self,
        q: Any,
        k: Any,
        v: Any,
        mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: Any = None,
        enable_gqa: bool = False,
        attn_mask: Any = None,
    ) -> Value:
        if dropout_p:
            raise CannotSay("dropout in attention: export the module after .eval()")
        return self.attention.whole(q, k, v, mask if mask is not None else attn_mask, is_causal, scale, enable_gqa)

    # Complex numbers

    def op_view_as_complex(self, x: Value) -> Complex:
        return Complex(x.follow(lambda t: t[..., 0]), x.follow(lambda t: t[..., 1]))

    def op_complex(self, re: Any, im: Any) -> Complex:
        return Complex(re, im)

    def complex(self, name: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        z = next((a for a in args if isinstance(a, Complex)), None)
        if z is None:
            raise CannotSay("complex numbers are put beside others: they are for rotations by constants only")
        if name == "view_as_real":
            return joined([z.re, z.im], lambda p: torch.stack(p, -1))
        if name in ("real", "imag"):
            return z.re if name == "real" else z.im
        if name in SAME:
            return z
        if name in MOVES:
            return Complex(
                self.move(name, target, [z.re, *args[1:]], kwargs), self.move(name, target, [z.im, *args[1:]], kwargs)
            )
        if name in ("mul", "multiply"):
            c = args[1] if args[0] is z else args[0]
            if isinstance(c, Const):
                re, im = (
                    (Const(c.value.real.clone()), Const(c.value.imag.clone()))
                    if c.value.is_complex()
                    else (c, Const(torch.zeros((), dtype=torch.float64)))
                )
                return Complex(
                    self.op_sub(self.op_mul(z.re, re), self.op_mul(z.im, im)),
                    self.op_add(self.op_mul(z.re, im), self.op_mul(z.im, re)),
                )
        raise CannotSay("complex numbers are for rotations by constants only")


def merged(terms: list[Term]) -> list[Term]:
    """Terms of the same elements as one."""
    out: list[Term] = []
    for t in terms:
        for i, have in enumerate(out):
            if torch.equal(have.index, t.index):
                out[i] = Term(t.index, have.factor() + t.factor())
                break
        else:
            out.append(t)
    return out


def named(equation: str, ranks: list[int]) -> str:
    """An einsum's equation with a name for every dimension, and with its result."""
    given, arrow, out = equation.partition("->")
    tensors = given.split(",")
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in equation]
    more = [r - len(t.replace("...", "")) if "..." in t else 0 for t, r in zip(tensors, ranks)]
    dots = "".join(free[: max(more)])
    if not arrow:
        letters = given.replace("...", "").replace(",", "")
        out = ("..." if "..." in given else "") + "".join(c for c in sorted(set(letters)) if letters.count(c) == 1)
    tensors = [t.replace("...", dots[len(dots) - n :]) for t, n in zip(tensors, more)]
    return ",".join(tensors) + "->" + out.replace("...", dots)


def number(c: Any, by: float) -> Any:
    return Const(c.value * by) if isinstance(c, Const) else c * by
