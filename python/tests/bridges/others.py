"""Decoder blocks in ways of writing that are met often and that blocks.py has not."""

from __future__ import annotations

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

DIM, HEADS, WIDTH = 32, 4, 8


def heads_of(x, n=HEADS):
    return x.view(x.shape[0], x.shape[1], n, -1).transpose(1, 2)


class Base(nn.Module):
    def __init__(self, groups=HEADS):
        super().__init__()
        self.groups = groups
        self.norm = nn.RMSNorm(DIM)  # its number under the root is the type's
        self.q, self.k, self.v = (nn.Linear(DIM, n * WIDTH, bias=False) for n in (HEADS, groups, groups))
        self.o = nn.Linear(HEADS * WIDTH, DIM, bias=False)

    def ready(self, x):
        h = self.norm(x)
        q, k, v = heads_of(self.q(h)), heads_of(self.k(h), self.groups), heads_of(self.v(h), self.groups)
        per = HEADS // self.groups
        return q, k.repeat_interleave(per, 1), v.repeat_interleave(per, 1)

    def done(self, x, a):
        return x + self.o(a.transpose(1, 2).flatten(2))

    @staticmethod
    def example():
        return torch.randn(1, 10, DIM)


class HiddenBeforeScale(Base):
    """Scores that are hidden, held above the type's lowest number, and scaled only then; masks made like the scores."""

    def forward(self, x):
        q, k, v = self.ready(x)
        w = q @ k.mT
        s = w.shape[-1]
        seen = w.new_ones(s, s, dtype=torch.float32).tril().to(torch.bool)
        w = w.masked_fill(seen.logical_not(), -torch.inf)
        w = torch.max(w, torch.tensor(torch.finfo(w.dtype).min)) / math.sqrt(WIDTH)
        x = self.done(x, F.softmax(w, -1) @ v)
        q, k, v = self.ready(x)
        w = torch.nan_to_num(q @ k.mT)
        w += torch.zeros(s, s).fill_(float("-inf")).type_as(w).triu(1)
        w = torch.where(torch.ones_like(w).tril() > 0, w * WIDTH**-0.5, torch.full_like(w, -torch.inf))
        return self.done(x, w.softmax(-1) @ v)


class Logarithms(Base):
    """Softmax by logarithms, a learned scale for each head, tokens that see their own chunk alone."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(HEADS, 1, 1) + 0.5)

    def forward(self, x):
        q, k, v = self.ready(x)
        i = torch.arange(x.shape[1])
        seen = i[:, None] >= i
        w = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.scale.exp().clamp(max=100)
        x = self.done(x, F.log_softmax(w.masked_fill(~seen, -1e9), -1).exp() @ v)
        q, k, v = self.ready(x)
        w = (q @ k.mT / WIDTH**0.5).masked_fill(~(seen & (i[:, None] // 4 == i // 4)), -torch.inf)
        return self.done(x, torch.exp(w - torch.logsumexp(w, -1, keepdim=True)) @ v)


class Sinks(Base):
    """A learned score for each head beside those of the keys, which takes its share and has no value."""

    def __init__(self):
        super().__init__(groups=2)
        self.sinks = nn.Parameter(torch.randn(HEADS))

    def forward(self, x):
        q, k, v = self.ready(x)
        s = x.shape[1]
        hidden = torch.full((s, s), float("-inf")).triu(1) + torch.full((s, s), float("-inf")).tril(-4)
        w = q @ k.mT * WIDTH**-0.5 + hidden
        w = torch.cat((w, self.sinks.reshape(1, -1, 1, 1).expand(x.shape[0], -1, s, -1)), -1)
        w = w - w.max(-1, keepdim=True).values
        return self.done(x, w.softmax(-1)[..., :-1] @ v)


class TwoProducts(Base):
    """Scores as the sum of two products: heads without a rotation, and a rotated part that all heads share."""

    def __init__(self):
        super().__init__()
        self.turned = nn.Linear(DIM, HEADS * 4 + 4, bias=False)
        f = torch.outer(torch.arange(32).float(), 100.0 ** -(torch.arange(2) / 2))
        self.register_buffer("turns", torch.polar(torch.ones_like(f), f), persistent=False)

    def turn(self, x):
        z = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2)) * self.turns[: x.shape[1], None]
        return torch.view_as_real(z).flatten(3).to(x.dtype)

    def forward(self, x):
        b, s, _ = x.shape
        h = self.norm(x)
        q, c = self.q(h).view(b, s, HEADS, WIDTH), self.k(h).view(b, s, HEADS, WIDTH)[:, :, 0]
        q2, c2 = self.turned(h).split((HEADS * 4, 4), -1)
        q2, c2 = self.turn(q2.view(b, s, HEADS, 4)), self.turn(c2[:, :, None])[:, :, 0]
        w = torch.einsum("bshc,btc->bsht", q, c) + torch.einsum("bshr,btr->bsht", q2, c2)
        w = (w * 12**-0.5 + torch.full((s, s), float("-inf")).triu_(1).unsqueeze(1)).softmax(-1)
        return x + self.o(torch.einsum("bsht,btc->bshc", w, c).flatten(2))


class Matrices(Base):
    """A rotation as a matrix for each position, as a matrix of signs for pairs, and the other way round with some
    angles of zero; a permutation as a matrix."""

    def __init__(self):
        super().__init__()
        turn = torch.zeros(32, WIDTH, WIDTH)
        for p in range(32):
            for i in range(WIDTH // 2):
                t = p * 1000.0 ** (-2 * i / WIDTH)
                turn[p, 2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor(
                    [[math.cos(t), -math.sin(t)], [math.sin(t), math.cos(t)]]
                )
        self.register_buffer("turn", turn)
        self.register_buffer("signs", torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
        self.register_buffer("order", torch.eye(DIM)[torch.randperm(DIM)])
        angles = torch.cat((0.1 ** torch.linspace(0, 1, WIDTH // 4), torch.zeros(WIDTH // 4)))
        self.register_buffer("back", torch.outer(torch.arange(32).float(), angles))

    def by_position(self, x):  # [B, H, S, W]
        b, h, s, w = x.shape
        y = torch.bmm(x.permute(2, 0, 1, 3).reshape(s, b * h, w), self.turn[:s].transpose(1, 2))
        return y.view(s, b, h, w).permute(1, 2, 0, 3)

    def by_signs(self, x):
        t = torch.outer(torch.arange(x.shape[2]), 50.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)).repeat_interleave(2, -1)
        turned = torch.einsum("ij,bhsnj->bhsni", self.signs, x.unflatten(-1, (-1, 2))).flatten(-2)
        return x * t.cos() + turned * t.sin()

    def backwards(self, x):
        (a, b), t = x.chunk(2, -1), self.back[: x.shape[2]]
        return torch.cat((a * t.cos() + b * t.sin(), a * -t.sin() + b * t.cos()), -1)

    def forward(self, x):
        for turn in (self.by_position, self.by_signs, self.backwards):
            q, k, v = self.ready(x @ self.order)
            x = self.done(x, F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True))
        return x


class Routed(nn.Module):
    """Each expert's result times the number of its choice, added to the rows of its tokens."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, 5, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(DIM, 24), nn.SiLU(), nn.Linear(24, DIM)) for _ in range(5))

    def forward(self, x):
        t = x.view(-1, x.shape[-1])
        p = self.router(t).sigmoid()
        chosen = torch.topk(p + torch.linspace(0, 0.2, 5), 2, -1)[1]
        p = p.gather(1, chosen)
        y = torch.zeros_like(t)
        for i, expert in enumerate(self.experts):
            token, place = torch.where(chosen == i)
            y[token] += expert(t[token]) * p[token, place, None]
        return x + y.view(x.shape)

    @staticmethod
    def example():
        return torch.randn(1, 9, DIM)
