"""Products of 8-bit floats with scales."""

from __future__ import annotations

import itertools
import tempfile
import weakref
from pathlib import Path
from typing import Any

import torch

import greta

from .._arguments import shown, wrong
from .._errors import ArgumentTypeError, UnsupportedError, UsageError
from .op import tensor
from .write import save_safetensors

KINDS = {
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
}
MOST_ROWS = 4096  # of one step

_names = itertools.count(1)


def _eight_bits(x: Any, kind: str | None, what: str) -> torch.Tensor:
    """A tensor of 8-bit floats; kind says which they are, for bytes alone."""
    if not isinstance(x, torch.Tensor):
        name = getattr(getattr(x, "dtype", None), "name", "")
        theirs = next((k for k, t in KINDS.items() if str(t) == "torch." + name), None)  # of ml_dtypes, as JAX has them
        try:
            x = torch.from_numpy(x.view("uint8") if theirs else x)
        except TypeError as e:
            raise ArgumentTypeError(f"{what} is {shown(x)}: a tensor, or an array of NumPy's, is expected: {e}") from e
        if theirs:
            x = x.view(KINDS[theirs])
    if x.device.type != "cpu":
        raise UnsupportedError(f"{what} lies on {x.device}: tensors of the CPU are expected; call it with .cpu()")
    if kind is not None and kind not in KINDS:
        raise UsageError(f"kind={kind!r}: {' or '.join(KINDS)} is expected")
    if x.dtype == torch.uint8:
        if kind is None:
            raise UsageError(f"{what} holds bytes (uint8): say which floats they are: kind= {', '.join(KINDS)}")
        return x.view(KINDS[kind])
    if kind is not None:
        raise UsageError(f"kind={kind!r} is for bytes (uint8); {what} says itself that it is {x.dtype}")
    return x


class Prepacked:
    """A matrix of 8-bit floats, ``[K, N]``, loaded into greta once. ``kind`` says which: e4m3, e5m2, e4m3fnuz, e5m2fnuz.

    ``close()`` frees it; so does the end of the object.
    """

    def __init__(self, b: torch.Tensor, options: dict[str, Any]):
        self.kind = next(k for k, t in KINDS.items() if t == b.dtype)
        self.k, self.n = b.shape
        with tempfile.TemporaryDirectory(prefix="greta-scaled-mm") as folder:
            path = Path(folder)
            save_safetensors(path / "b.safetensors", {"b": b.view(torch.uint8).t().contiguous().view(b.dtype)})
            (path / "b.yaml").write_text(
                f"block: scaled_mm_{next(_names)}\nin:\n  x: float[S, {self.k}]\nweights:\n"
                f"  w: {{shape: [{self.n}, {self.k}], hf: b}}\nbody:\n  y: linear(x, w)\nout: y\n"
            )
            self.model = greta.load(
                path / "b.yaml", weights=path / "b.safetensors", context=MOST_ROWS, cache="off", **options
            )
        self._end = weakref.finalize(self, _close, self.model)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.k, self.n)

    def close(self) -> None:
        self._end()


def _close(model: "greta.Model") -> None:
    try:
        model.close()
    except greta.GretaError:
        pass  # its process has ended


def prepack(B: Any, *, kind: str | None = None, **options: Any) -> Prepacked:
    """Loads the matrix ``B`` ``[K, N]`` of 8-bit floats for ``scaled_mm``; its bytes stay what they are.

    ``B`` is a tensor of ``float8_e4m3fn``, ``float8_e5m2``, ``float8_e4m3fnuz`` or ``float8_e5m2fnuz``, or bytes
    (``uint8``, of NumPy too) with ``kind="e4m3"``, ``"e5m2"``, ``"e4m3fnuz"`` or ``"e5m2fnuz"``. ``options`` are those
    of ``greta.load``, such as ``backend``. Raises UsageError where it is none of these.
    """
    b = _eight_bits(B, kind, "B")
    if b.dtype not in KINDS.values():
        raise UsageError(f"B is of {b.dtype}: {', '.join(map(str, KINDS.values()))}, or bytes with kind=, are expected")
    if b.dim() != 2 or not b.numel():
        raise UsageError(f"B has shape {list(b.shape)}: a matrix [K, N] is expected")
    if options.get("backend", "cpu") == "cpu":
        options.setdefault("exact", True)
    return Prepacked(b, options)


def scaled_mm(
    A: Any,
    B: Prepacked,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    *,
    kind: str | None = None,
    out_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """``(A · B) * scale_a * scale_b + bias``, ``[M, N]`` of ``out_dtype``, accumulated in float32.

    ``A`` ``[M, K]`` is of 8-bit floats, of any kind whatever B's is, or of ``float32``, ``float16`` or
    ``bfloat16``; of bytes with ``kind``. ``scale_a`` is a number, or one for each row ``[M]`` or ``[M, 1]``;
    ``scale_b`` a number, or one for each column ``[N]`` or ``[1, N]``; ``bias`` is ``[N]``. Raises UsageError for
    other shapes and types.
    """
    if not isinstance(B, Prepacked):
        raise ArgumentTypeError("B is no prepacked matrix: scaled_mm takes what prepack(B) gives")
    a = _eight_bits(A, kind, "A")
    if a.dtype not in (*KINDS.values(), torch.float32, torch.float16, torch.bfloat16):
        raise UsageError(f"A is of {a.dtype}: 8-bit floats, float32, float16 or bfloat16 are expected")
    if a.dim() != 2 or a.shape[1] != B.k:
        raise UsageError(f"A has shape {list(a.shape)}: [M, {B.k}] is expected, for B is {list(B.shape)}")
    if a.requires_grad:
        raise UsageError("A wants a gradient, which greta does not compute: give A.detach()")
    if not isinstance(out_dtype, torch.dtype):
        raise wrong("out_dtype", out_dtype, "a type of PyTorch's floats")
    if not out_dtype.is_floating_point:
        raise UsageError(f"out_dtype={out_dtype}: a type of floats is expected")
    m = a.shape[0]
    by_row = _factors(scale_a, "scale_a", m, (m, 1)).reshape(-1, 1)
    by_column = _factors(scale_b, "scale_b", B.n, (1, B.n)).reshape(1, -1)
    x = a.to(torch.float32).contiguous()
    parts = [tensor(B.model(rows.numpy())) for rows in x.split(MOST_ROWS)] if m else []
    y = torch.cat(parts) if parts else torch.empty(0, B.n)
    y = y * by_row * by_column
    if bias is not None:
        bias = torch.as_tensor(bias, dtype=torch.float32)
        if bias.shape != (B.n,):
            raise UsageError(f"bias has shape {list(bias.shape)}: [{B.n}] is expected")
        y = y + bias
    return y.to(out_dtype)


def _factors(scale: Any, what: str, count: int, form: tuple[int, int]) -> torch.Tensor:
    wanted = f"a number, or {count} of them in the shape [{count}] or {list(form)}, are expected"
    try:
        s = torch.as_tensor(scale, dtype=torch.float32)
    except (RuntimeError, TypeError, ValueError) as e:
        raise UsageError(f"{what} is {shown(scale)}: {wanted}") from e
    if s.numel() != 1 and s.shape not in ((count,), form):
        raise UsageError(f"{what} has shape {list(s.shape)}: {wanted}")
    return s
