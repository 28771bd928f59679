"""Compiles the kernels of a file with Triton for targets that need not be here.

import_triton.py FILE OUT ARCH...: greta runs it (greta kernels import-triton) and reads the JSON that it writes
on standard output: a list of kernels, or {"error": ...}. docs/custom-kernels.md says what FILE has.
"""

import importlib.util
import itertools
import json
import os
import re
import sys
import warnings

warnings.simplefilter("ignore")

TYPES = {"f32": "fp32", "f16": "fp16", "bf16": "bf16", "i32": "i32", "f64": "fp64", "f8_e4m3": "fp8e4nv",
         "f8_e5m2": "fp8e5", "f8_e4m3fnuz": "fp8e4b8", "f8_e5m2fnuz": "fp8e5b16"}
NUMBERS = {"i32": "i32", "u32": "u32", "i64": "i64", "u64": "u64", "f32": "fp32"}
OPTIONS = ("num_warps", "num_stages")
KEYS = {"op", "equation", "kernel", "args", "grid", "constants", "types", "when", "tolerance", "always"}


class Mistake(Exception):
    pass


def target(arch):
    from triton.backends.compiler import GPUTarget

    if m := re.fullmatch(r"sm_(\d+)", arch):
        return GPUTarget("cuda", int(m[1]), 32), "cubin"
    if re.fullmatch(r"gfx[0-9a-f]+", arch):
        return GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32), "hsaco"
    raise Mistake(f"--arch {arch}: sm_90 or gfx942 is expected, and the like")


def signature(name, entry, fn):
    """Gives each parameter of the function its type, by the operands and numbers of args in their order."""
    operands = entry["operands"]
    types, constants = {}, entry.get("constants", {})
    given = list(entry["args"])
    for p in fn.params:
        if p.is_constexpr:
            if p.name not in constants:
                raise Mistake(f"{name}: constants: {p.name} of the function is missing")
            types[p.name] = "constexpr"
            continue
        if not given:
            raise Mistake(f"{name}: args: nothing is given for the parameter {p.name}")
        arg = str(given.pop(0)).strip()
        m = re.fullmatch(r"(\w+)\((.*)\)", arg)
        if arg in operands:
            t = entry.get("types", {}).get(arg, operands[arg])
            if not isinstance(t, str) or t not in TYPES:
                raise Mistake(f"{name}: types: {arg}: one of {', '.join(TYPES)} is expected, not {t}")
            types[p.name] = "*" + TYPES[t]
        else:
            types[p.name] = NUMBERS[m[1]] if m and m[1] in NUMBERS else "i32"
    if given:
        raise Mistake(f"{name}: args: {', '.join(map(str, given))}: the function has no more parameters")
    unknown = set(constants) - {p.name for p in fn.params} - set(OPTIONS)
    if unknown:
        raise Mistake(f"{name}: constants: the function has no {', '.join(sorted(unknown))}")
    return types


def parameters(compiled, entry):
    """Counts the parameters of the compiled function."""
    if "ptx" in compiled.asm:
        head = re.search(r"\.entry\s+" + re.escape(entry) + r"\s*\((.*?)\)", compiled.asm["ptx"], re.S)
        return head[1].count(".param") if head else 0
    args = re.search(r"\.args:\n(.*?)\n    \.[a-z_]+:", compiled.asm["amdgcn"], re.S)
    return args[1].count(".value_kind:") - args[1].count("hidden_") if args else 0


def main(path, out, archs, operators):
    import triton
    from triton.compiler import ASTSource

    spec = importlib.util.spec_from_file_location("kernels", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(module)
    kernels = getattr(module, "greta", None)
    if not isinstance(kernels, dict) or not kernels:
        raise Mistake(f'{path}: it says nothing of its kernels: greta = {{"name": {{"op": ..., "args": [...], "grid": '
                      '...}} is expected')
    result = []
    for name, entry in kernels.items():
        if not isinstance(entry, dict) or set(entry) - KEYS or not {"op", "args", "grid"} <= set(entry):
            raise Mistake(f"{name}: op, args and grid are expected, and of {', '.join(sorted(KEYS))} what is wanted")
        if entry["op"] not in operators:
            raise Mistake(f"{name}: there is no operator {entry['op']}; greta ops lists them")
        entry = {**entry, "operands": operators[entry["op"]]}
        fn = getattr(module, entry.get("kernel", name), None)
        if not isinstance(fn, triton.runtime.JITFunction):
            raise Mistake(f"{name}: {entry.get('kernel', name)} is no function with @triton.jit in {path}")
        types = signature(name, entry, fn)
        constants = {"num_warps": 4, **entry.get("constants", {})}
        lists = {k: list(v) if isinstance(v, (list, tuple)) else [v] for k, v in sorted(constants.items())}
        for arch in archs:
            gpu, kind = target(arch)
            variants = []
            for values in itertools.product(*lists.values()):
                chosen = dict(zip(lists, values))
                options = {k: v for k, v in chosen.items() if k in OPTIONS}
                source = ASTSource(fn=fn, signature=types,
                                   constexprs={k: v for k, v in chosen.items() if k not in OPTIONS})
                compiled = triton.compile(source, target=gpu, options=options)
                m = compiled.metadata
                if getattr(m, "global_scratch_size", 0) or getattr(m, "profile_scratch_size", 0):
                    raise Mistake(f"{name}: it needs scratch memory, which greta does not give")
                if getattr(m, "num_ctas", 1) != 1 or getattr(m, "launch_cooperative_grid", False):
                    raise Mistake(f"{name}: clusters and cooperative grids cannot be launched")
                own = sum(t != "constexpr" for t in types.values())
                more = parameters(compiled, m.name) - own
                if more < 0:
                    raise Mistake(f"{name}: the compiled function has fewer parameters than {own}")
                file = ".".join([name, arch, *(str(v) for v in values), kind])
                with open(os.path.join(out, file), "wb") as f:
                    f.write(compiled.asm[kind])
                variants.append({"constants": chosen, "file": file, "shared": m.shared, "more": more, "entry": m.name,
                                 "block": gpu.warp_size * m.num_warps})
            result.append({"name": name, "arch": arch, "kind": kind, "warp": gpu.warp_size, "constants": lists,
                           "variants": variants, "triton": triton.__version__,
                           **{k: v for k, v in entry.items() if k not in ("kernel", "constants", "operands")}})
    return result


if __name__ == "__main__":
    say, sys.stdout = sys.stdout, sys.stderr  # what the file prints is not the answer
    try:
        answer = main(sys.argv[1], sys.argv[2], sys.argv[4:], json.loads(sys.argv[3]))
    except Mistake as e:
        answer = {"error": str(e)}
    except ImportError as e:
        answer = {"error": f"{e}: Python {sys.version.split()[0]} at {sys.executable} needs Triton (pip install triton), "
                           "or --python names one that has it"}
    except Exception as e:  # the user's file, or Triton's compiler
        answer = {"error": f"{type(e).__name__}: {e}"}
    json.dump(answer, say)
