"""A graph of greta's as an operator of PyTorch."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

from conftest import needed

torch = needed("torch")

import pytest  # noqa: E402

import greta  # noqa: E402
import greta.torch  # noqa: E402
from greta import _shared  # noqa: E402


@pytest.fixture(scope="module")
def op():
    made = greta.torch.op("mlp_block", set={"D": 64, "F": 96}, kv="f32", context=1024)
    yield made
    made.model.close()


def test_values_and_batches(op):
    x = torch.randn(3, 5, 64)
    y = op(x)
    assert y.shape == (3, 5, 64) and y.dtype == torch.float32
    for one, got in zip(x, y):
        assert torch.equal(got, torch.from_numpy(op.model(one.numpy()).copy()))
    assert op(x.bfloat16()).dtype == torch.bfloat16
    assert torch.allclose(op(x.double()), y.double())
    for empty in ((0, 5, 64), (2, 0, 64), (0, 0, 64)):
        assert op(torch.empty(empty, dtype=torch.float16)).shape == empty


def test_opcheck(op):
    torch.library.opcheck(op, (torch.randn(2, 4, 64),), test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",
        pytest.param(
            "inductor",
            marks=pytest.mark.skipif(
                shutil.which("g++") is None or not Path(sysconfig.get_path("include"), "Python.h").exists(),
                reason="inductor needs a C++ compiler and Python's headers",
            ),
        ),
    ],
)
def test_compile(op, backend):
    def f(x):
        return torch.relu(op(x * 2)) + 1

    x = torch.randn(1, 6, 64)
    got = torch.compile(f, backend=backend, fullgraph=True)(x)
    assert torch.allclose(got, f(x), atol=1e-6)


def test_export(op):
    class M(torch.nn.Module):
        def forward(self, x):
            return op(x) + 1

    x = torch.randn(1, 6, 64)
    program = torch.export.export(M(), (x,))
    assert "torch.ops.greta" in str(program.graph)
    assert torch.equal(program.module()(x), op(x) + 1)


def test_no_copies(op, monkeypatch):
    """Memory of empty() is what greta reads, and results are mapped, not copied."""
    x = greta.torch.empty(1, 1024, 64)
    x.copy_(torch.randn(1, 1024, 64))
    seen = []
    whole = _shared.locate
    monkeypatch.setattr("greta._model._shared.locate", lambda a: seen.append(whole(a)) or seen[-1])
    monkeypatch.setattr("greta._model._shared.empty", lambda *_: pytest.fail("the input was copied"))
    y = op(x)
    assert len(seen) == 1 and seen[0] is not None and seen[0][1] == 0
    assert y.shape == x.shape and y.is_contiguous()
    y += 1  # it is the caller's
    x.zero_()
    assert float(op(x).abs().max()) == 0  # a block of products: what greta reads is the memory as it is now


def test_model_of_tokens(tolstoy):
    made = greta.torch.op(tolstoy, context=64, kv="f32")
    ids = torch.tensor([[1, 5, 9], [1, 5, 7]])
    y = made(ids)
    assert y.shape == (2, 3, 2048) and torch.equal(y[0, :2], y[1, :2])
    with pytest.raises(greta.UsageError, match="token ids"):
        made(ids.float())
    made.model.close()


def test_refusals(op):
    with pytest.raises(greta.UsageError, match=r"takes \[..., S, 64\]"):
        op(torch.randn(3, 5))
    with pytest.raises(greta.UsageError, match="activations"):
        op(torch.ones(3, 64, dtype=torch.int64))
    with pytest.raises(greta.ArgumentTypeError, match="x is None: a tensor of PyTorch is expected"):
        op(None)
    with pytest.raises(greta.UsageError, match="letters, digits and _"):
        greta.torch.op(op.model, name=5)
    assert greta.torch.empty((2, 3)).shape == greta.torch.empty(2, 3).shape == (2, 3)
    with pytest.raises(greta.GretaError, match="1024"):
        op(torch.randn(1025, 64))
    x = torch.randn(1, 2, 64, requires_grad=True)
    with pytest.raises(RuntimeError, match="forward only"):
        op(x).sum().backward()
    name = op._name if hasattr(op, "_name") else ""
    if name:
        with pytest.raises(greta.UsageError, match="another name"):
            greta.torch.op(op.model, name=name)
    with pytest.raises(greta.UsageError, match="is loaded"):
        greta.torch.op(op.model, context=3)


def test_tensors_by_dlpack(op):
    """A model takes PyTorch's tensors by themselves; what DLPack does not hand over is named, with what to do."""
    block, x = op.model, torch.randn(5, 64)
    want = torch.from_numpy(block(x).copy())
    for rows in (5, 1000):  # what comes in the message, and what lies in shared memory
        many = torch.randn(rows, 64)
        assert torch.equal(torch.from_dlpack(block(many)), torch.from_numpy(block(many).copy()))
    for same in (x.double(), x.T.contiguous().T, torch._neg_view(-x)):
        assert torch.equal(torch.from_numpy(block(same).copy()), want)
    for other in (x.bfloat16(), x.clone().requires_grad_(), x.to_sparse(), x.to(torch.float8_e4m3fn)):
        with pytest.raises(greta.UsageError, match="cannot be handed over.*x.detach"):
            block(other)
    with pytest.raises(greta.UsageError, match="no memory"):
        block(torch.empty(3, 64, device="meta"))
    with pytest.raises(greta.UsageError, match="make an operator's name"):
        greta.torch.op(block, name="a b-c")
