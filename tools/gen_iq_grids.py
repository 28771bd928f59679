#!/usr/bin/env python3
"""Writes weights/quant/iqgrids.bin, the lattices of GGUF's iq formats, from the PyPI package gguf.

  pip install gguf numpy; tools/gen_iq_grids.py weights/quant/iqgrids.bin

Each lattice follows the one before: its points in order, each number as its place among the lattice's
levels, in 2 bits (iq2_xxs, iq2_xs, iq2_s, iq1_s) or 4 bits (iq3_xxs, iq3_s), lowest bits first.
"""
import sys
import numpy as np
from gguf import quants

out = bytearray()
for name, bits in [("IQ2_XXS", 2), ("IQ2_XS", 2), ("IQ2_S", 2), ("IQ1_S", 2), ("IQ3_XXS", 4), ("IQ3_S", 4)]:
    q = getattr(quants, name)
    q.init_grid()
    grid = np.array(q.grid).reshape(-1)
    at = {float(v): i for i, v in enumerate(q.grid_map)}
    codes = np.array([at[float(v)] for v in grid], dtype=np.uint8)
    per = 8 // bits
    codes = codes.reshape(-1, per)
    out += bytes(sum(codes[:, i].astype(np.uint32) << (bits * i) for i in range(per)).astype(np.uint8))
open(sys.argv[1], "wb").write(out)
print(len(out), "bytes")
