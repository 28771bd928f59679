"""RMSNorm in Triton: greta kernels import-triton examples/kernels/rms_triton.py --arch sm_90,gfx942 -o DIR."""

import triton
import triton.language as tl


@triton.jit
def rms(x, w, y, d, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * d
    y += row * d
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, d, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < d, other=0.0)
        squares += v * v
    by = 1 / tl.sqrt(tl.sum(squares, 0) / d + eps)
    for start in range(0, d, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < d)
        g = tl.load(w + at, mask=at < d)
        tl.store(y + at, v * by * g, mask=at < d)


# What a model file would say under kernels:; num_warps and num_stages are Triton's.
greta = {
    "rms": {
        "op": "rmsnorm",
        "args": ["x", "w", "y", "D", "f32(eps)"],
        "grid": "rows",
        "constants": {"BLOCK": [512, 1024, 2048], "num_warps": [4, 8]},
    }
}
