"""Which rotation a module applies to its queries and keys.

However it is written, a rotation gives each element as a sum of two others times numbers that depend on the position.
From these numbers come which elements are turned together, by which angle a position, and with which factor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .nodes import Node, Source, Weight
    from .values import Builder, Value


Place = tuple[int, int]  # a node and one of its elements
Element = dict[Place, torch.Tensor]  # what an element is the sum of: others, times factors of each position
Turn = tuple[int, float, bool]  # the partner of an element, the angle a position, whether it is the first of the two


class NoRotation(Exception):
    """What is multiplied by numbers that depend on the position is no rotation; the message says why."""


WHAT = "elements are multiplied by numbers that depend on the position, and it is no rotation (rope)"


def rotation(b: "Builder", v: "Value", nodes: torch.Tensor, places: torch.Tensor, factors: torch.Tensor) -> "Node":
    """The node of a value whose factors [terms, S, E] depend on the position."""
    elements = _elements(nodes, places, factors)
    inputs, weights, pairs = _pairs(elements)
    for width in _widths(v.shape):
        if len(elements) % width == 0:
            found = _heads(pairs, len(elements), width)
            if found is not None:
                break
    else:
        raise NoRotation(f"{WHAT} in the order of halves or of pairs of a head")
    start, dims, layout, freqs = found
    source = next((t.source for t in v.terms if t.source is not None), None)
    n = _apply(b, inputs, (weights, source), width, start, dims, layout, freqs)
    return b.graph.view(n, (n.size,))


def _widths(shape: torch.Size) -> list[int]:
    widths, w = [], 1
    for d in reversed(shape):
        w *= d
        if w > 1 and w not in widths:
            widths.append(w)
    return widths


def _elements(nodes: torch.Tensor, places: torch.Tensor, factors: torch.Tensor) -> list[Element]:
    """Of each element the elements that it is the sum of, with their factors a position."""
    out: list[Element] = []
    used = (factors != 0).any(1)
    for e in range(nodes.shape[1]):
        parts: Element = {}
        for t in range(nodes.shape[0]):
            if bool(used[t, e]):
                i = (int(nodes[t, e]), int(places[t, e]))
                parts[i] = parts[i] + factors[t, :, e] if i in parts else factors[t, :, e]
        out.append({i: c for i, c in parts.items() if bool((c.abs() > 1e-12).any())})
    return out


def _pairs(elements: list[Element]) -> tuple[list[Place], list[float], list[Turn | None]]:
    """The input at each element's place and its factor, and for elements that turn (partner, angle, whether first)."""
    by_inputs: dict[frozenset[Place], dict[Place, list[int]]] = {}
    inputs: list[Place] = [(-1, -1)] * len(elements)
    weights = [1.0] * len(elements)
    pairs: list[Turn | None] = [None] * len(elements)
    for e, parts in enumerate(elements):
        if len(parts) > 2 or not parts:
            raise NoRotation(f"{WHAT}: an element is a sum of {len(parts)} others")
        if len(parts) == 2:
            by_inputs.setdefault(frozenset(parts), {}).setdefault(
                max(parts, key=lambda i: abs(float(parts[i][0]))), []
            ).append(e)
            continue
        ((i, c),) = parts.items()
        if float((c - c[0]).abs().max()) > 1e-9:
            raise NoRotation(WHAT)
        inputs[e], weights[e] = i, float(c[0])
    for by_first in by_inputs.values():
        if len(by_first) != 2 or len({len(m) for m in by_first.values()}) != 1:
            raise NoRotation(f"{WHAT}: elements are not turned two by two, from position 0 on")
        (p, firsts), (q, seconds) = by_first.items()
        for a, c in zip(firsts, seconds):
            _pair(elements, a, c, p, q, inputs, weights, pairs)
    return inputs, weights, pairs


def _pair(
    elements: list[Element],
    a: int,
    c: int,
    p: Place,
    q: Place,
    inputs: list[Place],
    weights: list[float],
    pairs: list[Turn | None],
) -> None:
    """Elements a and c are p and q, times their factors, turned by an angle a position."""
    wp, wq = float(elements[a][p][0]), float(elements[c][q][0])
    angle = _angle(elements[a][p] / wp, elements[c][p] / wp)
    if angle < 0:
        a, c, p, q, wp, wq = c, a, q, p, wq, wp
        angle = _angle(elements[a][p] / wp, elements[c][p] / wp)
    t = angle * torch.arange(len(elements[a][p]), dtype=torch.float64)
    for e, i, w, want in ((a, p, wp, t.cos()), (a, q, wq, -t.sin()), (c, p, wp, t.sin()), (c, q, wq, t.cos())):
        if float((elements[e][i] / w - want).abs().max()) > 3e-5:
            raise NoRotation(f"{WHAT} by an angle that grows with the position from 0 on")
    inputs[a], inputs[c], weights[a], weights[c] = p, q, wp, wq
    pairs[a], pairs[c] = (c, angle, True), (a, angle, False)


def _angle(cos: torch.Tensor, sin: torch.Tensor) -> float:
    """The angle a position, sharpened from position to position."""
    t = torch.atan2(sin, cos)
    angle = float(t[1]) if len(t) > 1 else 0.0
    for s in range(2, len(t)):
        turns = round((angle * s - float(t[s])) / (2 * math.pi))
        angle = (float(t[s]) + 2 * math.pi * turns) / s
    return angle


def _heads(pairs: list[Turn | None], count: int, width: int) -> tuple[int, int, str, list[float]] | None:
    """start, dims, layout and angles, the same in every head of a width; None where it is otherwise."""
    first: list[Turn | None] | None = None
    for h in range(0, count, width):
        head: list[Turn | None] = []
        for e in range(width):
            p = pairs[h + e]
            if p is not None and not h <= p[0] < h + width:
                return None
            head.append(None if p is None else (p[0] - h, p[1], p[2]))
        if first is None:
            first = head
        elif any(
            (x is None) != (y is None) or x and y and (x[0] != y[0] or x[2] != y[2] or abs(x[1] - y[1]) > 1e-6)
            for x, y in zip(head, first)
        ):
            return None
    turned = {e: p for e, p in enumerate(first or []) if p is not None}
    if not turned:
        return None
    low, high = min(turned), max(turned)
    for start, dims in ((low, high + 1 - low), (0, width)):
        half = dims // 2
        if dims % 2:
            continue
        for layout in ("half", "pair"):
            partner = (
                {start + i: start + i + half for i in range(half)}
                if layout == "half"
                else {start + 2 * i: start + 2 * i + 1 for i in range(half)}
            )
            if all(partner.get(e) == p[0] or partner.get(p[0]) == e for e, p in turned.items()):
                # An angle is negative where the second turns before the first.
                angles = {e: p[1] if p[2] else -p[1] for e, p in turned.items()}
                return start, dims, layout, [angles.get(e, 0.0) for e in sorted(partner)]
    return None


def _apply(
    b: "Builder",
    inputs: list[Place],
    weighted: tuple[list[float], Source | None],
    width: int,
    start: int,
    dims: int,
    layout: str,
    freqs: list[float],
) -> "Node":
    g = b.graph
    count = len(inputs)
    shape = torch.Size((count // width, width))
    x = b.gather(torch.tensor([i[0] for i in inputs]), torch.tensor([i[1] for i in inputs]), shape)
    weights, source = torch.tensor(weighted[0], dtype=torch.float64), weighted[1]
    factor = float(weights[0])
    if bool((weights == factor).all()):
        x = g.view(x, tuple(shape))
    else:
        factor = 1.0
        x = g.view(b.scaled(g.view(x, (count,)), weights, source, shape), tuple(shape))
    attrs: dict[str, Any] = {"dims": dims, "layout": layout}
    operands: list[Weight] = []
    base = power(freqs, dims)
    if base is None:
        attrs["base"] = 10000.0
        plain = [10000.0 ** (-2 * i / dims) for i in range(len(freqs))]
        values = torch.tensor([p / f if f != 0 else 1e30 for p, f in zip(plain, freqs)], dtype=torch.float32)
        operands.append(g.weight(values, None, "rope_factors"))
    else:
        attrs["base"] = base
    heads = count // width
    part = x
    if start + dims < width or start > 0:
        if start > 0:
            part = g.node("slice", (x,), (heads, width - start), **{"from": start, "to": width, "axis": 2})
    y = g.node("rope", (part, g.node("pos"), *operands), part.shape, **attrs)
    if start > 0:
        rest = g.node("slice", (x,), (heads, start), **{"from": 0, "to": start, "axis": 2})
        y = g.node("concat", (rest, y), (heads, width), axis=2)
    return g.unary("affine", y, by=factor, plus=0.0)


def power(freqs: list[float], dims: int) -> float | None:
    """The base of which the angles are the powers base^(-2i/dims); None where they are none."""
    if len(freqs) < 1 or abs(freqs[0] - 1) > 1e-6 or min(freqs) <= 0:
        return None
    if len(freqs) == 1:
        return 10000.0
    last = len(freqs) - 1
    base = freqs[last] ** (-dims / (2.0 * last))

    def fits(base: float, within: float) -> bool:
        return all(abs(base ** (-2.0 * i / dims) / f - 1) < within for i, f in enumerate(freqs))

    for digits in range(1, 8):
        round_base = float(f"{base:.{digits}g}")
        if fits(round_base, 1e-6):
            return round_base
    return base if fits(base, 1e-6) else None
