"""Tensors of a GPU go to greta and come back without leaving the card. It needs a card, PyTorch and a built greta:

    GRETA_BINARY=./greta PYTHONPATH=python python3 python/tests/device/device_memory.py [ROUNDS]

Each check prints a line; the exit code is 1 where one fails. JAX is tried where it is installed.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

import greta
import greta.torch
from greta import _device

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
SIZES: dict[str, object] = {"D": 256, "F": 512}
failed: list[str] = []


def check(work: Callable[[], Any]) -> None:
    start = time.perf_counter()
    try:
        said = work() or ""
        print(f"ok    {work.__name__}: {said} ({time.perf_counter() - start:.1f} s)", flush=True)
    except Exception:
        failed.append(work.__name__)
        traceback.print_exc()
        print(f"FAIL  {work.__name__}", flush=True)


def refused(kind: type[Exception], words: str, work: Callable[[], Any]) -> None:
    try:
        work()
    except kind as e:
        assert words in str(e), f"{words!r} is not in {e}"
        return
    raise AssertionError(f"nothing was refused: {kind.__name__} …{words}…")


def median(times: list[float]) -> str:
    times.sort()
    return f"median {times[len(times) // 2] * 1e6:.0f} µs, 99 % {times[len(times) * 99 // 100] * 1e6:.0f} µs"


def load(name: str = "mlp_block", **options: Any) -> greta.Model:
    return greta.load(name, backend="hip", set=SIZES, context=8192, **options)


model = load()


def same_values() -> str:
    """What lies on the card gives what the host's memory gives, in and behind other allocations."""
    for n in (1, 7, 64, 1000):
        x = torch.randn(n + 3, 256, device="cuda")[3:]
        want = torch.from_numpy(model(x.cpu().numpy()).copy())
        y = model(x)
        assert isinstance(y, greta.DeviceArray) and y.shape == (n, 256)
        assert torch.equal(torch.from_dlpack(y).cpu(), want), f"{n} rows"
        out = torch.full((n + 2, 256), 7.0, device="cuda")
        assert model(x, out=out[1:-1]).data_ptr() == out[1:-1].data_ptr()
        assert torch.equal(out[1:-1].cpu(), want) and bool((out[0] == 7).all()) and bool((out[-1] == 7).all())
    return "1 to 1000 rows, bit for bit"


def pointers() -> str:
    """The result that PyTorch has is the memory that greta wrote."""
    y = model(torch.randn(4, 256, device="cuda"))
    t, u = torch.from_dlpack(y), torch.from_dlpack(y)
    assert t.data_ptr() == y.address == u.data_ptr()
    del y, u
    gc.collect()
    t += 1  # it lives as long as a tensor has it
    before = len(_device._exported)
    del t
    gc.collect()
    assert len(_device._exported) == before - 1
    return "equal"


def order() -> str:
    """What was started on another stream before is waited for."""
    side = torch.cuda.Stream()
    for i in range(20):
        with torch.cuda.stream(side):
            x = torch.zeros(512, 256, device="cuda")
            torch.cuda._sleep(20_000_000)
            x += i + 1
            got = torch.from_dlpack(model(x))
        assert torch.equal(got.cpu(), torch.from_numpy(model(x.cpu().numpy()).copy())), i
    return "20 times"


def session() -> str:
    """Positions behind each other: a block with attention, its caches in greta."""
    with greta.load("llama2_block", backend="hip", set={**SIZES, "H": 4}, context=512) as block:
        with block.session() as far, block.session() as near:
            for n in (5, 1, 1, 30):
                x = torch.randn(n, 256, device="cuda")
                got = torch.from_dlpack(far.block(x)).cpu()
                assert torch.equal(got, torch.from_numpy(near.block(x.cpu().numpy()).copy())), n
            assert far.pos == near.pos == 37
    return "37 positions"


def operator() -> str:
    """As an operator of PyTorch, compiled too."""
    op = greta.torch.op(model)
    x = torch.randn(2, 16, 256, device="cuda")
    y = op(x)
    assert y.is_cuda and torch.allclose(y.cpu(), op(x.cpu()), atol=1e-6)
    half = op(x.bfloat16())
    assert half.is_cuda and half.dtype == torch.bfloat16
    f = torch.compile(lambda t: torch.relu(op(t)) + 1, backend="aot_eager", fullgraph=True)
    assert torch.equal(f(x), torch.relu(y) + 1)
    return "eager and under torch.compile"


def times() -> str:
    rows = []
    for n in (1, 64, 4096):
        x, out = torch.randn(n, 256, device="cuda"), torch.empty(n, 256, device="cuda")
        host = greta.empty((n, 256))
        took: list[list[float]] = [[], []]
        for i in range(300):
            a = time.perf_counter()
            model(x, out=out)
            b = time.perf_counter()
            model(host)
            c = time.perf_counter()
            if i >= 20:
                took[0].append(b - a)
                took[1].append(c - b)
        rows.append(f"{n} rows: {median(took[0])}; the host's memory: {median(took[1])}")
    return "; ".join(rows)


def large() -> str:
    """A gigabyte's tensor is opened, its last rows are used, and it is closed."""
    x = torch.randn(1 << 20, 256, device="cuda")
    out = torch.empty(4, 256, device="cuda")
    want = torch.from_numpy(model(x[-4:].cpu().numpy()).copy())
    took = []
    for i in range(220):
        a = time.perf_counter()
        model(x[-4:], out=out)
        if i >= 20:
            took.append(time.perf_counter() - a)
    assert torch.equal(out.cpu(), want)
    return f"1 GiB by handle: {median(took)}"


def leaks() -> str:
    """Many times without a leak, on the card and in the process; results that are forgotten are freed."""
    x, out = torch.randn(64, 256, device="cuda"), torch.empty(64, 256, device="cuda")
    pid = model._process.pid

    def used() -> tuple[int, int, int]:
        gc.collect()
        torch.cuda.synchronize()
        with open(f"/proc/{pid}/status") as f:
            resident = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
        return torch.cuda.mem_get_info()[0], resident, len(os.listdir(f"/proc/{pid}/fd"))

    for _ in range(50):
        model(x, out=out)
        model(x)
    before = used()
    for i in range(ROUNDS):
        model(x, out=out) if i % 2 else model(x)
    after = used()
    assert before[0] - after[0] <= 4 << 20, f"{before[0] - after[0]} bytes of the card are gone"
    assert after[1] - before[1] < 64 << 10, f"greta has grown by {after[1] - before[1]} KiB"
    assert after[2] <= before[2] + 2, f"{after[2] - before[2]} more files are open"
    assert not _device._exported
    return (
        f"{ROUNDS} times: the card {before[0] - after[0]:+d} bytes, greta {after[1] - before[1]:+d} KiB and "
        f"{after[2] - before[2]:+d} files"
    )


def refusals() -> str:
    x = torch.randn(4, 256, device="cuda")
    refused(greta.UsageError, "float16", lambda: model(x.half()))
    refused(greta.UsageError, "not contiguous", lambda: model(torch.randn(256, 4, device="cuda").T))
    refused(greta.UsageError, "the output has", lambda: model(x, out=torch.empty(3, 256, device="cuda")))
    refused(greta.UsageError, "out lies in the host's memory", lambda: model(x, out=torch.empty(4, 256)))
    refused(greta.UsageError, "expected is [rows, 256]", lambda: model(torch.randn(4, 128, device="cuda")))
    with greta.load("mlp_block", set=SIZES) as cpu:
        refused(greta.UnsupportedError, "runs on the backend cpu", lambda: cpu(x))
        wire = _device.DeviceTensor(x, "x").wire
        number = cpu.session()._id
        args = {"session": number, "x": wire, "out": wire}
        refused(greta.UnsupportedError, "opens no memory of a GPU", lambda: cpu._process.call("run-session", args))
    wire = _device.DeviceTensor(x, "x").wire
    number = model.session()._id
    elsewhere = {**wire, "device": {**wire["device"], "location": "0000:ff:00.0"}}
    args = {"session": number, "x": elsewhere, "out": wire}
    refused(greta.UnsupportedError, "the card at 0000:ff:00.0", lambda: model._process.call("run-session", args))
    longer = {**wire, "device": {**wire["device"], "bytes": 1 << 40}}
    args = {"session": number, "x": longer, "out": wire}
    said = "a false size is refused"
    try:
        refused(greta.UnsupportedError, "bytes, not", lambda: model._process.call("run-session", args))
    except AssertionError:
        said = "a false size is NOT noticed by this driver"
    broken = {**wire, "device": {**wire["device"], "handle": "AAAA" * 21 + "AA=="}}
    args = {"session": number, "x": broken, "out": wire}
    refused(greta.UnsupportedError, "", lambda: model._process.call("run-session", args))
    with open("/dev/null") as null:  # a descriptor that is none of the driver's
        false = [os.memfd_create("false"), os.dup(null.fileno()), *os.pipe()]
    for fd in false:
        device = {k: v for k, v in wire["device"].items() if k != "handle"}
        lent = {**wire, "device": {**device, "fd": model._process.lend(fd)}}
        args = {"session": number, "x": lent, "out": wire}
        words = "none of memory of a card"
        refused(greta.UnsupportedError, words, lambda args=args: model._process.call("run-session", args))
        os.close(fd)
    model(x)  # it goes on
    return said


def without_handle() -> str:
    """Memory that has no handle for other processes: by a descriptor where it lies, or copied on the card, in and out."""
    text = (
        "import torch, greta\n"
        "from greta._device import DeviceTensor\n"
        "x, out = torch.randn(4, 256, device='cuda'), torch.zeros(6, 256, device='cuda')\n"
        "m = greta.load('mlp_block', backend='hip', set={'D': 256, 'F': 512})\n"
        "want = torch.from_numpy(m(x.cpu().numpy()).copy())\n"
        "assert torch.equal(torch.from_dlpack(m(x)).cpu(), want)\n"
        "m(x, out=out[1:5])\n"
        "assert torch.equal(out[1:5].cpu(), want) and not out[0].any() and not out[5].any()\n"
        "t = DeviceTensor(x, 'x', m._lender)\n"
        "print('copied' if t.copied else 'by a descriptor' if 'fd' in t.wire['device'] else 'by a handle', flush=True)\n"
        "del t\n"
    )
    alone = "import torch\nx = torch.randn(4, 256, device='cuda')\nprint(float(x.sum()), flush=True)\n"
    said, wrong = [], []
    for value, expected in (
        ("expandable_segments:True", ("by a descriptor", "copied")),  # which, is PyTorch's choice of what it exports
        ("backend:cudaMallocAsync", ("copied",)),
    ):
        variables = {"PYTORCH_CUDA_ALLOC_CONF": value, "PYTORCH_ALLOC_CONF": value}
        run = script_of(["-c", text], variables)
        if run.returncode == 0 and run.stdout.strip() in expected:
            said.append(f"{value}: {run.stdout.strip()}")
            continue
        plain = script_of(["-c", alone], variables)
        wrong.append(f"{told(value, run)}\n{told('PyTorch alone, ' + value, plain)}\n(expected is {expected})")
    assert not wrong, "\n".join(wrong)
    return "; ".join(said)


def greta_killed() -> str:
    """kill -9 of greta is an exception; the tensors stay."""
    with greta.Process() as p, greta.load("mlp_block", backend="hip", set=SIZES, process=p) as m:
        x = torch.randn(4, 256, device="cuda")
        y = torch.from_dlpack(m(x))
        os.kill(p.pid, 9)
        refused(greta.ProcessDied, "", lambda: m(x))
        assert bool(torch.isfinite(y).all())
    return "an exception"


def two_devices() -> str:
    if torch.cuda.device_count() < 2:
        return "one card only"
    x = torch.randn(4, 256, device="cuda:1")
    refused(greta.UnsupportedError, "move the tensor", lambda: model(x))
    with greta.load("mlp_block", backend="hip", device="1", set=SIZES) as second:
        got = torch.from_dlpack(second(x))
        assert got.device.index == 1 and torch.equal(got.cpu(), torch.from_numpy(model(x.cpu().numpy()).copy()))
    return "the second card's tensor on the second card"


def with_jax() -> str:
    """JAX's arrays, of each of its allocators: jax_memory.py."""
    try:
        import jax  # noqa: F401
    except ImportError:
        return "JAX is not installed"
    said, wrong = [], []
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jax_memory.py")
    for name, expected, variables in (
        ("a pool that grows", "lent", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
        (
            "a pool made at first",
            "lent",
            {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"},
        ),
        ("platform", "lent", {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}),
        ("cuda_async", "copied", {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}),
    ):
        run = script_of([script, expected, str(ROUNDS)], variables)
        if run.returncode == 0:
            said.append(f"\n      {name}: {run.stdout.strip()}")
        else:
            wrong.append(told(name, run))
    assert not wrong, "\n".join([*wrong, *said])
    return "".join(said)


def script_of(args: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "faulthandler", *args]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300)


def told(name: str, run: subprocess.CompletedProcess[str]) -> str:
    """What became of a program that failed."""
    return f"{name}: exit code {run.returncode}\nstdout: {run.stdout.strip()}\nstderr: {run.stderr.strip()[-3000:]}"


for work in (
    same_values,
    pointers,
    order,
    session,
    operator,
    times,
    large,
    refusals,
    without_handle,
    greta_killed,
    two_devices,
    with_jax,
    leaks,
):
    check(work)
print(torch.cuda.get_device_name(), torch.__version__, f"greta {model._process.version}")
sys.exit(f"{len(failed)} failed: {', '.join(failed)}" if failed else 0)
