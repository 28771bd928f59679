#!/usr/bin/env python3
"""Writes weights/quant/testdata/blocks.bin: random blocks of GGUF's types and the floats that gguf decodes them to.

  pip install gguf numpy; tools/gen_block_fixture.py weights/quant/testdata/blocks.bin

For each type: its name in 8 bytes, the number of blocks, bytes and elements of a block as u32, blocks, floats.
"""
import struct
import sys
import numpy as np
from gguf import quants, constants

rng = np.random.default_rng(5)
out = bytearray()
for name in ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "MXFP4", "NVFP4"]:
    t = constants.GGMLQuantizationType[name]
    elems, size = constants.GGML_QUANT_SIZES[t]
    n = 512 // elems if elems < 256 else 3
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    if name == "IQ1_M":  # an f16 in the upper nibbles of four words
        d = rng.normal(0, 0.02, n).astype(np.float16).view(np.uint16)
        for i in range(4):
            blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | ((d >> (4 * i) & 15) << 4).astype(np.uint8)
    elif name == "MXFP4":
        blocks[:, 0] = np.concatenate([[0, 1, 2, 3, 254], rng.integers(100, 140, n - 5)])
    elif name == "NVFP4":
        blocks[:, :4] &= 127
    else:
        blocks[:, :2] = rng.normal(0, 0.02, n).astype(np.float16).view(np.uint8).reshape(n, 2)
    y = quants.dequantize(blocks, t).astype(np.float32).reshape(n, elems)
    out += name.encode().ljust(8, b"\0") + struct.pack("<III", n, size, elems) + blocks.tobytes() + y.tobytes()
open(sys.argv[1], "wb").write(out)
print(len(out), "bytes")
