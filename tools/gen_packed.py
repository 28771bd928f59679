#!/usr/bin/env python3
"""Writes weights/packed/testdata: matrices as quantised checkpoints keep them, and the numbers that they stand for.

  pip install numpy torch safetensors transformers compressed-tensors bitsandbytes
  tools/gen_packed.py weights/packed/testdata

"want" comes from the libraries' own decoders where they run on a processor (compressed-tensors, bitsandbytes,
transformers' mxfp4), from the formats' formulas in float64 else (gptq, awq, fp8 blocks).
"""
import json
import os
import sys
import numpy as np
import torch
from safetensors.torch import save_file

OUT = sys.argv[1]
rng = np.random.default_rng(11)
N, K = 64, 128


def write(name, config, tensors, want, stem="m"):
    d = os.path.join(OUT, name)
    os.makedirs(d, exist_ok=True)
    json.dump({"architectures": ["TestForCausalLM"], "quantization_config": config}, open(os.path.join(d, "config.json"), "w"),
              indent=1)
    ts = {(k if k.startswith("/") else stem + "." + k).lstrip("/"): v.contiguous() for k, v in tensors.items()}
    ts["want"] = torch.as_tensor(np.asarray(want, dtype=np.float32)).contiguous()
    save_file(ts, os.path.join(d, "model.safetensors"))
    print(name, sum(v.numel() * v.element_size() for v in ts.values()))


def stream(codes, bits, axis):
    """codes as a stream of bits in words along an axis"""
    c = np.moveaxis(np.asarray(codes, dtype=np.uint64), axis, 0)
    n = c.shape[0]
    out = np.zeros((n * bits // 32,) + c.shape[1:], dtype=np.uint64)
    for i in range(n):
        at = i * bits
        out[at // 32] |= c[i] << np.uint64(at % 32) & np.uint64(0xffffffff)
        if at % 32 + bits > 32:
            out[at // 32 + 1] |= c[i] >> np.uint64(32 - at % 32)
    return torch.from_numpy(np.moveaxis(out, 0, axis).astype(np.uint32).view(np.int32).copy())


def gptq(name, bits, group, sym, order=False, v2=False):
    groups = K // group
    q = rng.integers(0, 1 << bits, (K, N))
    z = np.full((groups, N), 1 << (bits - 1)) if sym else rng.integers(1, 1 << bits, (groups, N))
    s = rng.uniform(.001, .02, (groups, N)).astype(np.float16)
    g = rng.permutation(K) // group if order else np.arange(K) // group
    want = ((q - z[g]) * s[g].astype(np.float64)).T
    cfg = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": sym, "desc_act": order,
           "checkpoint_format": "gptq_v2" if v2 else "gptq"}
    write(name, cfg, {"qweight": stream(q, bits, 0), "qzeros": stream(z if v2 else z - 1, bits, 1),
                      "scales": torch.from_numpy(s), "g_idx": torch.from_numpy(g.astype(np.int32))}, want)


gptq("gptq4_sym", 4, 64, True)
gptq("gptq4_order", 4, 32, True, order=True)
gptq("gptq4_v2", 4, 32, False, v2=True)
gptq("gptq8", 8, 64, True)
gptq("gptq3", 3, 128, False)

order = [0, 2, 4, 6, 1, 3, 5, 7]
q, z = rng.integers(0, 16, (K, N)), rng.integers(0, 16, (K // 64, N))
s = rng.uniform(.001, .02, (K // 64, N)).astype(np.float16)
words = lambda c: torch.from_numpy(
    sum(c.reshape(c.shape[0], -1, 8)[:, :, order[i]].astype(np.uint64) << np.uint64(4 * i) for i in range(8)).astype(np.uint32).view(
        np.int32).copy())
write("awq", {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"},
      {"qweight": words(q), "qzeros": words(z), "scales": torch.from_numpy(s)},
      ((q - z[np.arange(K) // 64]) * s[np.arange(K) // 64].astype(np.float64)).T)

w = torch.randn(N, K, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
import bitsandbytes.functional as bnb
for name, kind, nested in [("bnb_nf4", "nf4", False), ("bnb_nf4_nested", "nf4", True), ("bnb_fp4", "fp4", False)]:
    codes, state = bnb.quantize_4bit(w, blocksize=64, quant_type=kind, compress_statistics=nested)
    want = bnb.dequantize_4bit(codes, state)
    t = {"weight": codes}
    t.update({"weight." + k: v for k, v in state.as_dict(packed=True).items()})
    # the library gives bf16: the same in float64 from its own tables
    am = state.absmax
    if nested:
        am = bnb.dequantize_blockwise(state.absmax, state.state2).float() + state.offset
    flat = np.stack([codes.numpy().reshape(-1) >> 4, codes.numpy().reshape(-1) & 15], 1).reshape(-1)
    exact = (state.code.numpy()[flat].astype(np.float64) * np.repeat(am.numpy(), 64)).reshape(N, K)
    assert np.abs(exact - want.float().numpy()).max() < 0.01 * np.abs(exact).max(), name
    write(name, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind,
                 "bnb_4bit_use_double_quant": nested}, t, exact)
scb = w.float().abs().amax(1)
i8 = torch.round(w.float() * 127 / scb[:, None]).to(torch.int8)
write("bnb_int8", {"quant_method": "bitsandbytes", "load_in_8bit": True},
      {"weight": i8, "SCB": scb, "weight_format": torch.tensor(0, dtype=torch.uint8)},
      i8.double().numpy() * (scb.double().numpy() / 127)[:, None])

from compressed_tensors.quantization import QuantizationScheme, QuantizationArgs
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8


def ct(name, format, scheme, state, exact=None):
    c = BaseCompressor.get_value_from_registry(format)
    packed = c.compress(dict(state), scheme)
    raw = dict(packed)
    want = c.decompress({k: v.clone() if hasattr(v, "clone") else v for k, v in packed.items()}, scheme)["weight"].detach()
    if exact:  # the library rounds to bf16
        rough, want = want, exact(packed)
        assert (rough.double() - want).abs().max() < 0.01 * want.abs().max(), name
    write(name, {"quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": {"weights": {
        "num_bits": scheme.weights.num_bits, "type": scheme.weights.type, "symmetric": scheme.weights.symmetric,
        "strategy": scheme.weights.strategy, "group_size": scheme.weights.group_size}}}}, raw, want.float().numpy())


f = w.float()
for name, bits, group, sym in [("ct_int4", 4, 32, True), ("ct_int4_asym", 4, 64, False), ("ct_int8", 8, None, True),
                               ("ct_int3", 3, 32, True)]:
    args = QuantizationArgs(num_bits=bits, type="int", symmetric=sym, strategy="group" if group else "channel", group_size=group)
    parts = f.reshape(N, -1, group or K)
    if sym:
        sc = parts.abs().amax(2) / (2**(bits - 1) - .5)
        zp = torch.zeros_like(sc, dtype=torch.int8)
    else:
        lo, hi = parts.amin(2), parts.amax(2)
        sc = (hi - lo) / (2**bits - 1)
        zp = None
    sc = sc.to(torch.float16).float()
    if zp is None:
        zp = torch.clamp(torch.round(-lo / sc) - 2**(bits - 1), -2**(bits - 1), 2**(bits - 1) - 1).to(torch.int8)
    state = {"weight": f, "weight_scale": sc}
    if not sym:
        state["weight_zero_point"] = zp
    ct(name, "pack-quantized", QuantizationScheme(targets=["Linear"], weights=args), state)

sc = f.abs().amax(1, keepdim=True) / 448
ct("ct_fp8", "float-quantized", QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(
    num_bits=8, type="float", symmetric=True, strategy="channel")), {"weight": f, "weight_scale": sc})
sc = f.abs().amax(1, keepdim=True) / 127
ct("ct_naive8", "int-quantized", QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(
    num_bits=8, type="int", symmetric=True, strategy="channel")), {"weight": f, "weight_scale": sc})
gs = 448 * 6 / f.abs().max()
sc = (f.reshape(N, -1, 16).abs().amax(2) / 6 * gs).clamp(.01, 448).to(torch.float8_e4m3fn).float()
ct("ct_nvfp4", "nvfp4-pack-quantized", QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(
    num_bits=4, type="float", symmetric=True, strategy="tensor_group", group_size=16)),
   {"weight": f, "weight_scale": sc, "weight_global_scale": gs.reshape(1)},
   lambda p: unpack_fp4_from_uint8(p["weight_packed"], N, K, dtype=torch.float32).double() * p["weight_scale"].double()
   .repeat_interleave(16, 1) / p["weight_global_scale"].double())
sc = 2.0**torch.floor(torch.log2(f.reshape(N, -1, 32).abs().amax(2) / 4))
ct("ct_mxfp4", "mxfp4-pack-quantized", QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(
    num_bits=4, type="float", symmetric=True, strategy="group", group_size=32)), {"weight": f, "weight_scale": sc})

# fp8 in blocks of [24, 64], as "weight_scale_inv", the last block of rows cut
q = torch.clamp(f * 100, -448, 448).to(torch.float8_e4m3fn)
s = torch.rand(3, 2, generator=torch.Generator().manual_seed(4)) * .01
big = s.double().repeat_interleave(24, 0)[:N].repeat_interleave(64, 1)
write("fp8_blocks", {"quant_method": "fp8", "weight_block_size": [24, 64]}, {"weight": q, "weight_scale_inv": s},
      (q.double() * big).numpy())

# gpt-oss' experts by transformers' decoder, whose result is transposed
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
b = torch.from_numpy(rng.integers(0, 256, (2, N, K // 32, 16), dtype=np.uint8))
e = torch.from_numpy(rng.integers(118, 128, (2, N, K // 32), dtype=np.uint8))
y = convert_moe_packed_tensors(b, e, dtype=torch.float32)
y = y.transpose(1, 2) if y.shape[1] == K else y
write("mxfp4_experts", {"quant_method": "mxfp4"}, {"/m.experts.gate_up_proj_blocks": b, "/m.experts.gate_up_proj_scales": e},
      y.numpy())
