#!/usr/bin/env python3
"""Writes model.safetensors and expected.safetensors beside a config.json: random weights in bf16, and what transformers
computes with exactly these in float64. Sizes are config.json's, so that a smaller folder is an edited config.json.

  pip install torch transformers==5.24.0 safetensors; tools/gen_family.py testdata/families/NAME...

Of several seeds the first is taken whose greedy tokens are chosen by a margin that float32 does not reach.
"""
import math
import os
import re
import sys
import tempfile

import numpy
import safetensors.numpy
import safetensors.torch  # before float32 is another: it has a table of types
import torch

# What classes compute in float32 is in float64 too.
torch.float = torch.float32 = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)
import transformers  # noqa: E402

PICTURES = re.compile(r"(model\.)?(vi[st]|vq|audio|encoder|projector)\w*\.")  # tensors of what reads them or hears, which are left out
MARGIN, PROMPT, LENGTH, GREEDY = 2e-3, 12, 48, 32


def fill(model, seed):
    """Weights that keep activations' size, norms near what they begin at, decays as trained models have them."""
    g = torch.Generator().manual_seed(seed)
    state = model.state_dict()  # with biases that are buffers; tables that a class computes are left as they are
    biases = [(n, b) for n, b in model.named_buffers() if n in state and b.is_floating_point() and b.dim() < 2]
    for name, p in list(model.named_parameters()) + biases:
        r, low = torch.randn(p.shape, generator=g, dtype=torch.float64), name.lower()
        if "a_log" in low:
            v = torch.log(torch.rand(p.shape, generator=g, dtype=torch.float64) * 4 + 0.5)
        elif low.endswith("dt_bias") or "time_decay" in low:
            v = r * 0.5 - 1
        elif low.endswith(("sqk", "s_gate", "lambda_1", "lambda_2", "logit_scale")):  # stored as multiples of it
            v = model.config.initializer_range * (1 + r * 0.2)
        elif p.dim() >= 2:
            v = r / math.sqrt(4 if "conv" in low else p.shape[-1])
        elif "norm" in low and low.endswith("weight") or low.endswith((".d", "layer_scalar", "_scale")):
            v = (1 if p.mean() > 0.5 else 0) + r * 0.1
        else:
            v = r * 0.1
        p.copy_(v.to(torch.bfloat16))
    for name, table in model.named_buffers():  # which experts a token has
        if name in state and name.endswith("tid2eid"):
            table.copy_(torch.randint(model.config.n_routed_experts, table.shape, generator=g))


def greedy(model, prompt):
    """What follows a prompt, and by how much each token was ahead of the second."""
    ids, margin = prompt, math.inf
    for _ in range(GREEDY):
        logits = model(ids, use_cache=False).logits[0, -1]
        best = logits.topk(2).values
        margin = min(margin, float(best[0] - best[1]))
        ids = torch.cat([ids, logits.argmax()[None, None]], 1)
    return ids[0, PROMPT:], margin


@torch.no_grad()
def write(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    config._experts_implementation = config.get_text_config()._experts_implementation = "eager"
    cls = getattr(transformers, config.architectures[0])
    model = cls._from_config(config, attn_implementation="eager", dtype=torch.float64)
    model.eval()
    vocab = config.get_text_config().vocab_size
    g = torch.Generator().manual_seed(3)
    ids = torch.randint(3, vocab, (2, LENGTH), generator=g)
    prompt = torch.randint(3, vocab, (1, PROMPT), generator=g)
    for seed in range(100):
        fill(model, seed)
        model.tie_weights()
        after, margin = greedy(model, prompt)
        if margin > MARGIN and len(set(after.tolist())) > 2:
            break
    logits = model(ids, use_cache=False).logits
    causal = float((model(ids[:, :20], use_cache=False).logits - logits[:, :20]).abs().max())
    with tempfile.TemporaryDirectory() as to:
        model.to(torch.bfloat16).save_pretrained(to)
        stored = safetensors.torch.load_file(os.path.join(to, "model.safetensors"))
    text = {name: x for name, x in stored.items() if not PICTURES.match(name)}
    safetensors.torch.save_file(text, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    expected = {"input_ids": ids, "logits": logits, "greedy_prompt": prompt[0], "greedy": after}
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    safetensors.numpy.save_file(
        {name: numpy.ascontiguousarray(x.numpy().astype("float32" if x.is_floating_point() else "int32"))
         for name, x in expected.items()},
        os.path.join(folder, "expected.safetensors"),
        metadata={"reference": f"{versions}, float64 throughout, eager attention", "greedy_min_margin": repr(margin),
                  "causal_difference": repr(causal)})
    bytes_ = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print(f"{folder}: {bytes_} bytes, seed {seed}, deviation of logits {logits.std():.3f}, least margin {margin:.1e}, "
          f"tokens {len(set(after.tolist()))}, causal difference {causal:.1e}", flush=True)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        write(path)
