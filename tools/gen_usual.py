#!/usr/bin/env python3
"""Writes models/usual/transformers.yaml: what the configuration classes of transformers give for keys that a folder's
config.json lacks, of the families and the keys that the files in models/ speak of.

  pip install torch transformers==5.24.0; tools/gen_usual.py models/*.yaml > models/usual/transformers.yaml

Left out are lists, nulls, sizes that a file cannot do without, and what a class computes from sizes: a value is taken
where the class itself names it, or where it stands in an object (rope_parameters) and is the same for a larger model.
"""
import json
import re
import sys

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

WIDTHS = ("hidden_size", "n_embd", "d_model", "intermediate_size")
COUNTS = ("num_attention_heads", "n_head", "n_heads", "num_hidden_layers", "n_layer", "n_layers", "num_layers")
OTHERWISE = ("step3p5",)  # whose files have other keys for the same, which what is usual would hide
OBJECTS = ("rope_parameters", "attn_config", "ffn_config")
FOLLOWING = ("rope_parameters.main.", "rope_parameters.compress.")  # what a class makes of other keys


def flat(values, before=""):
    """The values of nested objects by dotted keys."""
    out = {}
    for key, value in values.items():
        if isinstance(value, dict):
            out.update(flat(value, f"{before}{key}."))
        else:
            out[f"{before}{key}"] = value
    return out


def larger(cls, plain):
    """The same class for a model four times as wide, with twice the heads and layers; as it is where it refuses that."""
    sizes = {k: v * (4 if k in WIDTHS else 2) for k, v in plain.items() if k in WIDTHS + COUNTS and isinstance(v, int)}
    try:
        return flat(cls(**sizes).to_dict()), sizes
    except Exception:  # each class checks its sizes in its own way
        return flat(plain), sizes


def usual(cls, keys):
    """What a class gives for keys that a configuration lacks."""
    plain = cls().to_dict()
    other, sizes = larger(cls, plain)
    out = {}
    for key, value in flat(plain).items():
        if key not in keys or key in sizes or key.startswith(FOLLOWING) or key in ("model_type", "vocab_size", "pad_token_id") or other.get(key) != value:
            continue
        if not isinstance(value, (bool, int, float, str)) or value in (float("inf"), float("-inf")):
            continue
        if key.split(".")[0] in OBJECTS or getattr(cls, key, None) == value:
            out[key] = value
    theta = getattr(cls, "default_theta", None)
    if isinstance(theta, (int, float)) and "rope_parameters.rope_theta" in out:
        out.setdefault("rope_theta", theta)
    return out


def main(paths):
    text = "".join(open(path).read() for path in paths)
    words = set(re.findall(r"[\w-]+", text))
    keys = set()
    for line in text.splitlines():
        if "shape:" not in line and (found := re.match(r"  \w+:\s*\{.*?hf: ([^,}]*)", line)):
            keys |= {key.strip() for key in found.group(1).split("|")}
    print("# What transformers takes for a key that config.json lacks: for each key its values, and behind each the")
    print(f"# model_types that have it. tools/gen_usual.py writes this; transformers {transformers.__version__}. A key with dots"
          " is one of an")
    print("# object, and holds where there is no such object.")
    have = {}
    for kind in sorted(CONFIG_MAPPING_NAMES):
        quoted = re.search(rf"""['"]{re.escape(kind)}['"]""", text)
        if not quoted and MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind) not in words:
            continue
        cls = CONFIG_MAPPING[kind]
        if getattr(cls, "sub_configs", None) and kind != "dbrx":  # several modalities: text_config has a type of its own
            continue
        if kind in OTHERWISE:
            continue
        for key, value in usual(cls, keys).items():
            have.setdefault(key, {}).setdefault(json.dumps(value), []).append(kind)
    for key, values in sorted(have.items()):
        print(f"{key}:")
        for value, kinds in sorted(values.items()):
            print(f"- [{', '.join([value] + kinds)}]")


if __name__ == "__main__":
    main(sys.argv[1:])
