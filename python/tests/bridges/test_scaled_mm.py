"""Products of 8-bit floats: relative L2 at most .01 and largest error at most 1, against float64."""

from __future__ import annotations

from conftest import needed

torch = needed("torch")

import pytest  # noqa: E402

import greta  # noqa: E402
from greta.torch import prepack, scaled_mm  # noqa: E402

E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2
KINDS = {E4: "e4m3", E5: "e5m2", torch.float8_e4m3fnuz: "e4m3fnuz", torch.float8_e5m2fnuz: "e5m2fnuz"}


def gates(got, want):
    assert got.shape == want.shape
    assert float((got.double() - want).norm() / want.norm()) <= 0.01
    assert float((got.double() - want).abs().max()) <= 1


@pytest.mark.parametrize("b_type", KINDS)
@pytest.mark.parametrize("a_type", [*KINDS, torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 64, 32), (33, 300, 70), (128, 512, 256)])
def test_gates(a_type, b_type, m, k, n):
    torch.manual_seed(m)
    a, b = torch.randn(m, k).to(a_type), torch.randn(k, n).to(b_type)
    sa, sb, bias = torch.rand(m, 1) + 0.5, torch.rand(1, n) + 0.5, torch.randn(n)
    packed = prepack(b)
    assert packed.kind == KINDS[b_type] and packed.shape == (k, n)
    assert (
        packed.model.info.dtype == "f8" + packed.kind and packed.model.info.weight_bytes == k * n
    )  # the bytes, as they are
    exact = a.double() @ b.double()
    gates(scaled_mm(a, packed, 0.25, 2.0), exact * 0.5)
    gates(scaled_mm(a, packed, sa, sb, bias), exact * sa.double() * sb.double() + bias.double())
    packed.close()


def test_every_byte():
    """Each value of any kind comes out as PyTorch reads it."""
    for t, kind in KINDS.items():
        raw = torch.arange(256, dtype=torch.uint8)
        raw = raw[raw.view(t).float().isfinite()]
        packed = prepack(raw[None, :].contiguous(), kind=kind)
        assert torch.equal(scaled_mm(torch.ones(1, 1), packed, 1, 1)[0], raw.view(t).float())


def test_bytes_name_their_kind():
    b = torch.randn(16, 8).to(E4)
    raw = b.view(torch.uint8)
    a = torch.randn(3, 16).to(E5)
    want = scaled_mm(a, prepack(b), 1.0, 1.0)
    assert torch.equal(scaled_mm(a.view(torch.uint8), prepack(raw, kind="e4m3"), 1, 1, kind="e5m2"), want)
    assert torch.equal(
        scaled_mm(a.view(torch.uint8).numpy(), prepack(raw.numpy(), kind="e4m3"), 1, 1, kind="e5m2"), want
    )
    assert torch.equal(scaled_mm(a, prepack(b.t().contiguous().t()), 1, 1), want)  # any strides
    for wrong, message in [
        (lambda: prepack(raw), "say which floats"),
        (lambda: prepack(b, kind="e4m3"), "for bytes"),
        (lambda: prepack(raw, kind="e3m4"), "e4m3 or e5m2"),
        (lambda: prepack(b.float()), "8|bytes"),
        (lambda: prepack(b[0]), "a matrix"),
        (lambda: scaled_mm(a, b, 1, 1), "no prepacked"),
        (lambda: scaled_mm(a[:, :4], prepack(b), 1, 1), r"\[M, 16\]"),
        (lambda: scaled_mm(a, prepack(b), torch.ones(2), 1), "scale_a"),
        (lambda: scaled_mm(a, prepack(b), 1, torch.ones(3)), "scale_b"),
        (lambda: scaled_mm(a, prepack(b), 1, 1, torch.ones(3)), "bias"),
        (lambda: scaled_mm(a.view(torch.uint8), prepack(b), 1, 1), "say which floats"),
        (lambda: scaled_mm(a, prepack(b), None, 1), "scale_a is None: a number, or 3 of them"),
        (lambda: scaled_mm(a, prepack(b), torch.ones(1, 3), 1), r"scale_a has shape \[1, 3\]: .*\[3\] or \[3, 1\]"),
        (lambda: scaled_mm(a, prepack(b), 1, torch.ones(8, 1)), r"scale_b has shape \[8, 1\]: .*\[8\] or \[1, 8\]"),
        (lambda: prepack(None), "B is None: a tensor"),
        (lambda: scaled_mm(a, prepack(b), 1, 1, out_dtype="f16"), "out_dtype is 'f16'"),
        (lambda: scaled_mm(a.float().requires_grad_(), prepack(b), 1, 1), "A.detach"),
    ]:
        with pytest.raises(greta.UsageError, match=message):
            wrong()


def test_arrays_of_jax():
    """Arrays of ml_dtypes, as JAX's are on the host, say their kind too."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = torch.randn(3, 16)
    for kind, t in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)):
        b = torch.randn(16, 8).to(E4 if kind == "e4m3" else E5)
        packed = prepack(b.view(torch.uint8).numpy().view(t))
        assert packed.kind == kind and torch.equal(scaled_mm(a, packed, 1, 1), scaled_mm(a, prepack(b), 1, 1))


def test_many_rows_and_none():
    b = torch.randn(8, 4).to(E4)
    packed, a = prepack(b), torch.randn(9000, 8)
    gates(scaled_mm(a, packed, 1, 1), a.double() @ b.double())
    assert scaled_mm(a[:0], packed, 1, 1).shape == (0, 4)
    assert scaled_mm(a[:3], packed, 1, 1, out_dtype=torch.bfloat16).dtype == torch.bfloat16
