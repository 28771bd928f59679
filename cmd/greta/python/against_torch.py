"""Runs a folder's model through transformers in float64 and writes what each module of it takes and gives.

against_torch.py FOLDER OUT TOKENS: greta runs it (greta check FOLDER --against torch). TOKENS is 1,2,3. OUT is a file
of safetensors: "logits", and "in:NAME" and "out:NAME" of the decoder's layers and of modules with weights that run
once. The last line of standard output is JSON: the names of the layers, the versions, and notes; or {"error": ...}.
"""

import json
import os
import sys
import warnings

warnings.simplefilter("ignore")
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false",
                  CUDA_VISIBLE_DEVICES="")


class Mistake(Exception):
    pass


def need(name, how):
    try:
        return __import__(name)
    except ImportError as e:
        if e.name and e.name.split(".")[0] != name:
            raise Mistake(f"{name} of {sys.executable} cannot be imported: {e}") from e
        raise Mistake(f"{sys.executable} has no {name}: {how}, or name another Python by --python") from e


def first(value, torch):
    """The tensor of a module's operands or results."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (tuple, list)) and value:
        return first(value[0], torch)
    return None


def layers_of(model, torch):
    """The list of the decoder's layers: the shortest name of a list that is as long as the configuration says."""
    config = model.config.get_text_config()
    count = getattr(config, "num_hidden_layers", None)
    lists = [(name, m) for name, m in model.named_modules() if isinstance(m, torch.nn.ModuleList) and len(m) == count]
    if not lists:
        return []
    name, found = min(lists, key=lambda x: (x[0].count("."), len(x[0])))
    return [f"{name}.{i}" for i in range(len(found))]


def load(folder, torch, transformers):
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as e:
        raise Mistake(f"transformers {transformers.__version__} does not take {folder}: {e}") from e
    config._experts_implementation = "eager"
    notes = []
    for attention in ("eager", None):
        try:
            model, info = AutoModelForCausalLM.from_pretrained(
                folder, config=config, torch_dtype=torch.float64, attn_implementation=attention,
                local_files_only=True, trust_remote_code=False, output_loading_info=True)
            break
        except ValueError as e:
            if attention is None or "ager" not in str(e):
                raise Mistake(f"transformers {transformers.__version__} does not load {folder}: {e}") from e
    tied = set(getattr(model, "_tied_weights_keys", None) or [])
    missing = [n for n in info.get("missing_keys", []) if n not in tied]
    if missing:
        some = ", ".join(sorted(missing)[:4])
        notes.append(f"transformers found no tensor for {some} ({len(missing)} in all) and made numbers up")
    return model.eval().double(), notes


def run(folder, out, tokens):
    torch = need("torch", "PyTorch for the CPU is wanted (pip install torch)")
    transformers = need("transformers", "pip install transformers")
    need("safetensors", "pip install safetensors")
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    model, notes = load(folder, torch, transformers)
    layers = layers_of(model, torch)
    if not layers:
        notes.append("the list of the decoder's layers was not found: blocks are not compared")
    seen, calls = {}, {}

    def before(name):
        def hook(_, args, kwargs):
            calls[name] = calls.get(name, 0) + 1
            x = first(args, torch)
            if x is None:
                x = first(kwargs.get("hidden_states"), torch)
            if x is not None and x.is_floating_point():
                seen["in:" + name] = x.detach().double().clone()
        return hook

    def after(name):
        def hook(_, args, kwargs, result):
            x = first(result, torch)
            if x is not None and x.is_floating_point():
                seen["out:" + name] = x.detach().double().clone()
        return hook

    for name, m in model.named_modules():
        if name in layers or any(True for _ in m.parameters(recurse=False)):
            m.register_forward_pre_hook(before(name), with_kwargs=True)
            m.register_forward_hook(after(name), with_kwargs=True)
    with torch.no_grad():
        logits = model(torch.tensor([tokens]), use_cache=False).logits
    tensors = {"logits": logits[0].double().contiguous()}
    for key, x in seen.items():
        if calls[key.split(":", 1)[1]] == 1:
            tensors[key] = x.contiguous()
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    save_file(tensors, out)
    return {"layers": layers, "versions": versions, "notes": notes}


if __name__ == "__main__":
    try:
        print(json.dumps(run(sys.argv[1], sys.argv[2], [int(t) for t in sys.argv[3].split(",")])))
    except Mistake as e:
        print(json.dumps({"error": str(e)}))
    except Exception as e:
        print(json.dumps({"error": f"transformers failed: {type(e).__name__}: {e}"}))
