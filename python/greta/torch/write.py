"""Writes equations as a model file, and their weights as safetensors."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import torch

from .nodes import Node, Source, Weight, reachable

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.int32: "I32",
    torch.uint8: "U8",
}
RESERVED = set(
    "if else as and or not in true false none S C R x pos tokens last k v min max sqrt floor ceil log exp abs "
    "has len count find rfind repeat gguf hf i".split()
)
SYMBOL = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
RESULT = {
    "linear": "p",
    "rmsnorm": "n",
    "layernorm": "n",
    "rope": "r",
    "attention": "a",
    "view": "v",
    "embed": "e",
    "push": "c",
    "add": "s",
    "mul": "m",
    "slice": "t",
    "concat": "j",
    "softmax": "w",
    "topk": "t",
    "chosen": "i",
}


def save_safetensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Writes tensors in the format of safetensors, each aligned to 64 bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blobs: list[bytes] = []
    at = 0
    for name, t in tensors.items():
        t = t.detach().cpu().contiguous()
        if t.dtype not in DTYPES:
            raise ValueError(f"tensor {name} has dtype {t.dtype}; there are {', '.join(map(str, DTYPES))}")
        data = t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
        header[name] = {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for b in blobs:
            f.write(b)


def number(v: float) -> str:
    if float(v) == int(v) and abs(v) < 1e15:
        return str(int(v))
    return f"{v:.6g}" if float(f"{v:.6g}") == v else repr(float(v))


def identifier(text: str, taken: set[str]) -> str:
    """A name of the language, made of a tensor's."""
    text = re.sub(r"\W+", "_", re.sub(r"\.weight$", "", text)).strip("_") or "w"
    if text[0].isdigit():
        text = "w_" + text
    name, n = text, 2
    while name in taken or name in RESERVED:
        name = f"{text}_{n}" if text not in RESERVED or n > 2 else f"w_{text}"
        n += 1
    taken.add(name)
    return name


class Text:
    """The text of a model file for the node that is the result."""

    def __init__(self, out: Node, params: dict[str, torch.Tensor], name: str, title: str):
        self.out, self.params, self.name, self.title = out, params, name, title
        self.order = reachable(out)
        self.pairs = {(n.op, id(n.below), n.attrs["k"]): n for n in self.order if n.op in ("topk", "chosen")}
        self.uses: dict[int, int] = {}
        for n in self.order:
            for i in n.inputs:
                self.uses[id(i)] = self.uses.get(id(i), 0) + 1
        self.uses[id(out)] = self.uses.get(id(out), 0) + 2
        self.taken: set[str] = set()
        self.names: dict[int, str] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.weights: list[str] = []
        self.states: list[str] = []
        self.derived: list[str] = []
        self.counts: dict[str, int] = {}
        self.body: list[str] = []
        self.taken.update(("x", "tokens", "pos"))

    @property
    def is_model(self) -> bool:
        return any(n.op == "tokens" for n in self.order)

    # Weights

    def weight(self, w: Weight) -> str:
        if id(w) in self.names:
            return self.names[id(w)]
        label = self.names[id(w)] = identifier(w.source.name if w.source else w.hint + "_", self.taken)
        shape = ", ".join(map(str, w.value.shape))
        if w.source is not None:
            tensor = w.source.name
            for name in [tensor.replace("$e", str(i)) for i in range(len(w.value))] if "$e" in tensor else [tensor]:
                self.tensors[name] = self.params[name]
            plus = f" +{number(w.source.plus)}" if w.source.plus else ""
            if w.source.plus not in (0, 1):
                plus, tensor = "", self.new(w)
            hf = tensor + (".T" if w.source.transposed else "") + plus
        else:
            hf = self.new(w)
        self.weights.append(f"  {label + ':':<24} {{shape: [{shape}], hf: {hf}}}")
        return label

    def new(self, w: Weight) -> str:
        """A tensor that the module has not as it is: computed from its own."""
        base = f"computed.{identifier(w.hint, set())}"
        name, n = base, 2
        while name in self.tensors:
            name, n = f"{base}.{n}", n + 1
        dtype = torch.float32
        like = self.params.get(w.source.name if w.source else w.hint)
        if (
            like is not None
            and like.dtype in (torch.bfloat16, torch.float16)
            and torch.equal(w.value.to(like.dtype).to(torch.float64), w.value)
        ):
            dtype = like.dtype
        self.tensors[name] = w.value.to(dtype)
        self.derived.append(name)
        return name

    # Equations

    def result(self, n: Node) -> str:
        """A new name for a node's result."""
        letter = RESULT.get(n.op, n.op if n.op not in RESERVED else n.op + "_")
        if len(letter) > 1:
            letter = letter[0] if letter[0] not in "xS" else "y"
        while True:
            self.counts[letter] = self.counts.get(letter, 0) + 1
            name = f"{letter}{self.counts[letter]}"
            if name not in self.taken:
                self.taken.add(name)
                return name

    def operand(self, n: Node | Weight, inner: bool = True) -> str:
        """What stands for a node in another's equation: a name, or its own equation where only that uses it."""
        if isinstance(n, Weight):
            return self.weight(n)
        if n.op in ("x", "tokens", "pos"):
            return n.op
        if id(n) in self.names:
            return self.names[id(n)]
        if n.op in ("topk", "chosen"):
            return self.choice(n)
        if n.op == "push":
            name = f"{n.attrs['state']}{n.attrs['of']}"
            cache = identifier(f"{name}_cache", self.taken)
            self.states.append(f"  {cache}: float[C, {', '.join(map(str, n.shape))}]")
            text = f"push({cache}, {self.operand(n.inputs[0])}, pos)"
        else:
            text = self.call(n)
            if inner and self.uses.get(id(n), 0) == 1 and len(text) < 72 and n.op not in SYMBOL:
                return text
        name = self.names[id(n)] = self.result(n)
        self.body.append(f"  {name + ':':<5} {text}")
        return name

    def choice(self, n: Node) -> str:
        """The one or the other result of a topk."""
        both = [m for op in ("topk", "chosen") for m in (self.pairs.get((op, id(n.below), n.attrs["k"])),)]
        names = [self.result(m or n) for m in both]
        text = self.operand(n.below)
        self.body.append(f"  {', '.join(names) + ':':<5} topk({text}, k={n.attrs['k']})")
        for m, name in zip(both, names):
            if m is not None:
                self.names[id(m)] = name
        return self.names[id(n)]

    def call(self, n: Node) -> str:
        if n.op == "lookup":
            k, width = n.shape
            return f"embed({self.simple(n.inputs[0])} as [S*{k}], {self.weight(self.second(n))}) as [S, {k}, {width}]"
        if n.op == "view":
            return f"{self.simple(n.inputs[0])} as [{', '.join(['S', *map(str, n.shape)])}]"
        if n.op in SYMBOL:
            a, b = (self.simple(i) for i in n.inputs)
            return f"{a} {SYMBOL[n.op]} {b}"
        if n.op == "affine" and n.attrs["plus"] == 0:
            return f"{self.simple(n.inputs[0])} * {number(n.attrs['by'])}"
        args = [self.operand(i) for i in n.inputs]
        args += [f"{k}={self.attribute(v)}" for k, v in n.attrs.items()]
        return f"{n.op}({', '.join(args)})"

    @staticmethod
    def second(n: Node) -> Weight:
        w = n.inputs[1]
        assert isinstance(w, Weight)
        return w

    def simple(self, n: Node | Weight) -> str:
        """An operand of a sign, or of as: a name or a call."""
        text = self.operand(n, inner=isinstance(n, Weight) or n.op not in (*SYMBOL, "view", "affine"))
        return text

    @staticmethod
    def attribute(v: Any) -> str:
        if isinstance(v, bool):
            return "true" if v else "false"
        return v if isinstance(v, str) else number(v)

    def render(self) -> str:
        model = self.is_model
        out = self.out
        text = self.operand(out, inner=False)
        if model:
            self.body.append(f"  {'logits:':<5} rows({text}, last)")
            text = "logits"
        elif text == "x":
            raise ValueError("the result is the input itself")
        needs_pos = any(n.op == "pos" for n in self.order)
        lines = [
            "# yaml-language-server: $schema=schema.json",
            *(f"# {t}" for t in self.title.splitlines()),
            f"{'model' if model else 'block'}: {self.name}",
            "in:",
        ]
        if model:
            lines += ["  tokens: i32[S]"]
        else:
            width = next(n for n in self.order if n.op == "x").shape[-1]
            lines += [f"  x:   float[S, {width}]"]
        if needs_pos:
            lines += ["  pos: i32[S]"]
        if model:
            lines += ["  last: i32[R]"]
        if self.weights:
            lines += ["weights:", *self.weights]
        if self.states:
            lines += ["state:", *self.states]
        lines += ["body:", *self.body, f"out: {text}"]
        return "\n".join(lines) + "\n"


__all__ = ["Text", "save_safetensors", "Source"]
