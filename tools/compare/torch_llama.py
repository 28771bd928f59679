#!/usr/bin/env python3
"""Times Llama-2-7B's shape in PyTorch: f16, library calls in a captured graph, random weights.

Prefill of 512 tokens, and decode of one token that attends to 128 and to 2112 positions, all of
them read. Each figure is the median of replays, the logits' way to the host included. Needs a
CUDA or ROCm build of PyTorch and 15 GB on the card.
"""
import statistics
import time

import torch
import torch.nn.functional as F

HIDDEN, FFN, HEADS, LAYERS, VOCABULARY, CONTEXT = 4096, 11008, 32, 32, 32000, 2560
WIDTH = HIDDEN // HEADS
OPTIONS = dict(device="cuda", dtype=torch.float16)


def weights(*shape):
    return torch.randn(*shape, **OPTIONS) * 0.02


class Block:
    def __init__(self):
        self.qkv, self.out = weights(3 * HIDDEN, HIDDEN), weights(HIDDEN, HIDDEN)
        self.gate_up, self.down = weights(2 * FFN, HIDDEN), weights(HIDDEN, FFN)
        self.norm1, self.norm2 = torch.ones(HIDDEN, **OPTIONS), torch.ones(HIDDEN, **OPTIONS)
        self.keys = torch.zeros(1, HEADS, CONTEXT, WIDTH, **OPTIONS)
        self.values = torch.zeros_like(self.keys)

    def __call__(self, x, cos, sin, first, seen):
        tokens = x.shape[0]
        y = F.rms_norm(x, (HIDDEN,), self.norm1, 1e-5)
        q, k, v = F.linear(y, self.qkv).view(tokens, 3, HEADS, WIDTH).permute(1, 2, 0, 3).unbind(0)
        self.keys[0, :, first:first + tokens] = rotate(k, cos, sin)
        self.values[0, :, first:first + tokens] = v
        a = F.scaled_dot_product_attention(rotate(q, cos, sin)[None], self.keys[:, :, :seen],
                                           self.values[:, :, :seen], is_causal=tokens > 1)
        x = x + F.linear(a[0].transpose(0, 1).reshape(tokens, HIDDEN), self.out)
        gate, up = F.linear(F.rms_norm(x, (HIDDEN,), self.norm2, 1e-5), self.gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def measure(name, blocks, head, tokens, first, seen, repeats):
    x = weights(tokens, HIDDEN)
    at = torch.arange(first, first + tokens, device="cuda")[:, None]
    angles = at * 10000.0 ** (-torch.arange(WIDTH // 2, device="cuda") / (WIDTH // 2))
    cos, sin = angles.cos().half(), angles.sin().half()

    def step():
        y = x
        for block in blocks:
            y = block(y, cos, sin, first, seen)
        return F.linear(y[-1:], head)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = step()
    times = []
    for i in range(5 + repeats):
        start = time.perf_counter()
        graph.replay()
        logits.cpu()
        if i >= 5:
            times.append(time.perf_counter() - start)
    t = statistics.median(times)
    print(f"{name}: {tokens / t:.1f} tokens/s, {1e3 * t:.3f} ms, n = {repeats}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    with torch.no_grad():
        blocks, head = [Block() for _ in range(LAYERS)], weights(VOCABULARY, HIDDEN)
        measure("decode, 128 positions", blocks, head, 1, 64, 128, 128)
        measure("decode, 2112 positions", blocks, head, 1, 2048, 2112, 64)
        measure("prefill 512", blocks, head, 512, 0, 512, 20)
