"""Which rotation a module applies to its queries and keys.

However it is written, a rotation gives each element as a sum of two others times numbers that depend on the position.
From these numbers come which elements are turned together, by which angle a position, and with which factor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .nodes import Node
    from .values import Builder, Value


class NoRotation(Exception):
    """What is multiplied by numbers that depend on the position is no rotation; the message says why."""


WHAT = "elements are multiplied by numbers that depend on the position, and it is no rotation (rope)"


def rotation(b: "Builder", v: "Value", nodes: torch.Tensor, places: torch.Tensor, factors: torch.Tensor) -> "Node":
    """The node of a value whose factors [terms, S, E] depend on the position."""
    elements = _elements(nodes, places, factors)
    keys = [tuple(sorted((i, tuple(c.tolist())) for i, c in e.items())) for e in elements]
    unique: dict[object, int] = {}
    where = []
    for k in keys:
        where.append(unique.setdefault(k, len(unique)))
    first = {w: e for e, w in reversed(list(enumerate(where)))}
    few = [elements[first[i]] for i in range(len(unique))]
    inputs, pairs = _pairs(few)
    widths = [w for w in _widths(v.shape) if len(few) % w == 0]
    for width in widths:
        found = _heads(pairs, len(few), width)
        if found is not None:
            break
    else:
        raise NoRotation(f"{WHAT} in the order of halves or of pairs of a head")
    start, dims, layout, freqs, factor = found
    n = _apply(b, inputs, width, len(few), start, dims, layout, freqs, factor)
    n = b.graph.view(n, (n.size,))
    if len(few) == len(elements):
        return n
    return b.graph.view(b.take(n, torch.tensor(where), v.shape), (len(elements),))


def _widths(shape: torch.Size) -> list[int]:
    widths, w = [], 1
    for d in reversed(shape):
        w *= d
        if w > 1 and w not in widths:
            widths.append(w)
    return widths


def _elements(nodes: torch.Tensor, places: torch.Tensor, factors: torch.Tensor) -> list[dict]:
    """Of each element the elements that it is the sum of, with their factors a position."""
    out: list[dict] = []
    used = (factors != 0).any(1)
    for e in range(nodes.shape[1]):
        parts: dict = {}
        for t in range(nodes.shape[0]):
            if bool(used[t, e]):
                i = (int(nodes[t, e]), int(places[t, e]))
                parts[i] = parts[i] + factors[t, :, e] if i in parts else factors[t, :, e]
        out.append({i: c for i, c in parts.items() if bool((c.abs() > 1e-12).any())})
    return out


def _pairs(elements: list[dict]) -> tuple[list, list]:
    """The input at each element's place, and for the elements that turn (partner, angle a position, factor, first)."""
    by_inputs: dict = {}
    for e, parts in enumerate(elements):
        if len(parts) > 2 or not parts:
            raise NoRotation(f"{WHAT}: an element is a sum of {len(parts)} others")
        if len(parts) == 2:
            by_inputs.setdefault(frozenset(parts), []).append(e)
    inputs: list = [None] * len(elements)
    pairs: list = [None] * len(elements)
    for e, parts in enumerate(elements):
        if len(parts) == 1:
            (i, c), = parts.items()
            if float((c - c[0]).abs().max()) > 1e-9 or abs(float(c[0]) - 1) > 1e-9:
                raise NoRotation(WHAT)
            inputs[e] = i
    for both, members in by_inputs.items():
        if len(members) != 2:
            raise NoRotation(f"{WHAT}: {len(members)} elements are made of the same two others")
        a, c = members
        p = max(both, key=lambda i: abs(float(elements[a][i][0])))
        q, = both - {p}
        angle, factor = _angle(elements[a][p], elements[c][p])
        if angle < 0:
            a, c, p, q = c, a, q, p
            angle, factor = _angle(elements[a][p], elements[c][p])
        t = angle * torch.arange(len(elements[a][p]), dtype=torch.float64)
        want = {(a, p): t.cos(), (a, q): -t.sin(), (c, p): t.sin(), (c, q): t.cos()}
        for (e, i), w in want.items():
            if float((elements[e][i] - factor * w).abs().max()) > 3e-5 * max(1.0, factor):
                raise NoRotation(f"{WHAT} by an angle that grows with the position from 0 on")
        inputs[a], inputs[c] = p, q
        pairs[a], pairs[c] = (c, angle, factor, True), (a, angle, factor, False)
    return inputs, pairs


def _angle(cos: torch.Tensor, sin: torch.Tensor) -> tuple[float, float]:
    """The angle a position, sharpened from position to position, and the length."""
    t = torch.atan2(sin, cos)
    angle = float(t[1]) if len(t) > 1 else 0.0
    for s in range(2, len(t)):
        turns = round((angle * s - float(t[s])) / (2 * math.pi))
        angle = (float(t[s]) + 2 * math.pi * turns) / s
    return angle, float((cos * cos + sin * sin).sqrt().mean())


def _heads(pairs: list, count: int, width: int):
    """start, dims, layout, angles and factor, the same in every head of a width; None where it is otherwise."""
    first = None
    for h in range(0, count, width):
        head = []
        for e in range(width):
            p = pairs[h + e]
            if p is not None and not h <= p[0] < h + width:
                return None
            head.append(None if p is None else (p[0] - h, round(p[1], 9), round(p[2], 6), p[3]))
        if first is None:
            first, sharp = head, pairs[h:h + width]
        elif head != first:
            return None
    turned = [e for e, p in enumerate(first) if p is not None]
    if not turned or len({first[e][2] for e in turned}) != 1:
        return None
    factor = sharp[turned[0]][2]
    leaders = [e for e in turned if first[e][3]]
    for start, dims in ((turned[0], turned[-1] + 1 - turned[0]), (0, width)):
        if dims % 2:
            continue
        half = dims // 2
        for layout in ("half", "pair"):
            partner = {start + i: start + i + half for i in range(half)} if layout == "half" else \
                {start + 2 * i: start + 2 * i + 1 for i in range(half)}
            if not all(partner.get(e) == first[e][0] for e in leaders):
                continue
            order = sorted(partner)
            if len(leaders) < half and factor != 1:
                continue
            return start, dims, layout, [sharp[e][1] if e in leaders else 0.0 for e in order], factor
    return None


def _apply(b: "Builder", inputs: list, width: int, count: int, start: int, dims: int, layout: str,
           freqs: list[float], factor: float) -> "Node":
    g = b.graph
    nodes = torch.tensor([i[0] for i in inputs])
    places = torch.tensor([i[1] for i in inputs])
    x = g.view(b.gather(nodes, places, torch.Size((count // width, width))), (count // width, width))
    attrs: dict = {"dims": dims, "layout": layout}
    operands: list = []
    base = power(freqs, dims)
    if base is None:
        attrs["base"] = 10000.0
        plain = [10000.0 ** (-2 * i / dims) for i in range(len(freqs))]
        values = torch.tensor([p / f if f > 0 else 1e30 for p, f in zip(plain, freqs)], dtype=torch.float64)
        operands.append(g.weight(values, None, "rope_factors"))
    else:
        attrs["base"] = base
    if abs(factor - 1) > 1e-6:
        attrs["scaling"], attrs["attn_factor"] = "factors", factor
    heads = count // width
    part = x
    if start + dims < width or start > 0:
        if start > 0:
            part = g.node("slice", (x,), (heads, width - start), **{"from": start, "to": width, "axis": 2})
    y = g.node("rope", (part, g.node("pos"), *operands), part.shape, **attrs)
    if start > 0:
        rest = g.node("slice", (x,), (heads, start), **{"from": 0, "to": start, "axis": 2})
        y = g.node("concat", (rest, y), (heads, width), axis=2)
    return y


def power(freqs: list[float], dims: int) -> float | None:
    """The base of which angles are the powers base^(-2i/dims); None where they are none."""
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
