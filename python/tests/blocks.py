"""Decoder blocks in plain PyTorch, each written in its own way."""

from __future__ import annotations

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1 + 0.2 * torch.randn(dim))

    def forward(self, x):
        dtype = x.dtype
        x = x.float() if dtype != torch.float64 else x
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Llama(nn.Module):
    """Half rotation, grouped heads by expand, explicit softmax and additive mask."""

    def __init__(self, dim=64, heads=4, groups=2, width=16, inner=96, theta=10000.0):
        super().__init__()
        self.heads, self.groups, self.width = heads, groups, width
        self.input_layernorm = RMSNorm(dim)
        self.post_attention_layernorm = RMSNorm(dim)
        self.q_proj = nn.Linear(dim, heads * width, bias=False)
        self.k_proj = nn.Linear(dim, groups * width, bias=False)
        self.v_proj = nn.Linear(dim, groups * width, bias=False)
        self.o_proj = nn.Linear(heads * width, dim, bias=False)
        self.gate_proj = nn.Linear(dim, inner, bias=False)
        self.up_proj = nn.Linear(dim, inner, bias=False)
        self.down_proj = nn.Linear(inner, dim, bias=False)
        self.register_buffer("inv_freq", 1.0 / theta ** (torch.arange(0, width, 2).float() / width), persistent=False)

    def forward(self, x):
        batch, seq, _ = x.shape
        h = self.input_layernorm(x)
        q = self.q_proj(h).view(batch, seq, self.heads, self.width).transpose(1, 2)
        k = self.k_proj(h).view(batch, seq, self.groups, self.width).transpose(1, 2)
        v = self.v_proj(h).view(batch, seq, self.groups, self.width).transpose(1, 2)
        t = torch.arange(seq, device=x.device, dtype=self.inv_freq.dtype)
        freqs = torch.outer(t, self.inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos()[None, None], emb.sin()[None, None]
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        n = self.heads // self.groups
        k = k[:, :, None].expand(batch, self.groups, n, seq, self.width).reshape(batch, self.heads, seq, self.width)
        v = v[:, :, None].expand(batch, self.groups, n, seq, self.width).reshape(batch, self.heads, seq, self.width)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.width)
        mask = torch.full((seq, seq), float("-inf"), device=x.device).triu(1)
        p = F.softmax(scores + mask, dim=-1)
        a = (p @ v).transpose(1, 2).contiguous().view(batch, seq, -1)
        x = x + self.o_proj(a)
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))
