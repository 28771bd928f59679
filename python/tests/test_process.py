"""The two processes: ends, crashes, interrupts, shared memory, speed."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import greta
from greta import _process, _shared

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc and memfd are Linux'")


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie, which its parent has not waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(what: Any, seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return bool(what())


def script(text: str, *args: str) -> subprocess.Popen[str]:
    """A Python program that uses greta."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def memory_of(pid: int | str = "self") -> int:
    """How often shared memory of ours is open or mapped in a process."""
    count = Path(f"/proc/{pid}/maps").read_text().count("memfd:greta")
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += "memfd:greta" in os.readlink(fd)
        except OSError:
            pass
    return count


def test_close(tolstoy: Path) -> None:
    p = greta.Process()
    m = greta.load(tolstoy, process=p)
    assert p.alive and p.version and p.pid
    p.close()
    assert not p.alive
    with pytest.raises(greta.ProcessDied, match="closed"):
        m.logits([1])
    p.close()
    m.close()


@linux
def test_end_of_program(tolstoy: Path) -> None:
    """A program that ends without closing anything leaves no process."""
    run = script("import greta, sys; m = greta.load(sys.argv[1]); print(m._process.pid)", str(tolstoy))
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, err
    assert eventually(lambda: not alive(int(out)))


@linux
@pytest.mark.parametrize("fork", [False, True])
def test_python_killed(tolstoy: Path, fork: bool) -> None:
    """kill -9 of Python ends greta with its memory, also where a fork holds the pipe open."""
    run = script(
        """
        import greta, os, sys, time
        m = greta.load(sys.argv[1], context=512)
        x = greta.empty(1 << 20)
        keep = m.logits([1] * 400)
        child = os.fork() if sys.argv[2] == "True" else 0
        if sys.argv[2] == "True" and child == 0:
            time.sleep(600)
        print(m._process.pid, child, flush=True)
        m.generate(["Prince"] * 2000, max_new_tokens=100, ignore_eos=True).results()
        """,
        str(tolstoy),
        str(fork),
    )
    assert run.stdout is not None
    pid, child = (int(x) for x in run.stdout.readline().split())
    assert alive(pid)
    run.kill()
    run.wait()
    try:
        assert eventually(lambda: not alive(pid)), "greta goes on without Python"
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
        run.communicate()


@linux
def test_greta_killed(tolstoy: Path) -> None:
    """kill -9 of greta is an exception in every thread that waits, and a new process takes over."""
    p = greta.Process()
    m = greta.load(tolstoy, process=p)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            m.generate(["Prince"] * 5000, max_new_tokens=100, ignore_eos=True).results()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for t in threads:
        t.start()
    time.sleep(0.1)
    os.kill(p.pid, signal.SIGKILL)
    for t in threads:
        t.join(30)
    assert len(errors) == 3 and all(isinstance(e, greta.ProcessDied) for e in errors)
    assert "SIGKILL" in str(errors[0]) and isinstance(errors[0], greta.ProcessDied) and errors[0].returncode == -9
    assert not p.alive
    with pytest.raises(greta.ProcessDied, match="SIGKILL"):
        m.logits([1])
    p.close()


def test_last_lines(tmp_path: Path) -> None:
    """What the process said before it died stands in the exception; a program that is no greta is none."""
    fake = tmp_path / "fake.py"
    fake.write_text("import sys; sys.stderr.write('no such driver\\n'); sys.exit(5)")
    program = tmp_path / "greta"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {fake}\n")
    program.chmod(0o755)
    with pytest.raises(greta.ProtocolError, match="(?s)exit code 5.*no such driver"):
        greta.Process(str(program))
    fake.write_text("print('I am something else, and say so at length', flush=True); input()")
    with pytest.raises(greta.ProtocolError, match="no frame"):
        greta.Process(str(program))
    with pytest.raises(greta.ProtocolError, match="does not start"):
        greta.Process(str(tmp_path / "nothing"))


def test_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_process, "PROTOCOL", 99)
    with pytest.raises(greta.VersionError, match="version 99.*same release"):
        greta.Process()


def test_binary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = Path(greta.__file__).parent / "bin" / "greta"
    if own.exists():
        assert greta.find_binary() == str(own)
        return
    monkeypatch.setenv("GRETA_BINARY", str(tmp_path / "none"))
    with pytest.raises(greta.BinaryNotFoundError, match="no such program$"):
        greta.find_binary()
    (tmp_path / "text").write_text("no program")
    for name, words in [("text", "may not be executed: chmod"), (".", "a folder, a program is expected")]:
        monkeypatch.setenv("GRETA_BINARY", str(tmp_path / name))
        with pytest.raises(greta.BinaryNotFoundError, match=words):
            greta.find_binary()
    (tmp_path / "there").write_text("#!/bin/sh\n")
    (tmp_path / "there").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for name, words in [("there", "this folder is ./there"), ("greta-is-nowhere", "no such program on the PATH$")]:
        monkeypatch.setenv("GRETA_BINARY", name)
        with pytest.raises(greta.BinaryNotFoundError, match=words):
            greta.find_binary()
    monkeypatch.delenv("GRETA_BINARY")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(greta.BinaryNotFoundError, match="install a wheel"):
        greta.find_binary()


def test_interrupt(tolstoy: Path) -> None:
    """Ctrl-C ends a generation, or any other wait, and the process goes on."""
    run = script(
        """
        import greta, sys, threading, os, signal, time, _thread
        m = greta.load(sys.argv[1])
        pid = m._process.pid
        def later():
            time.sleep(0.3)
            os.killpg(os.getpgid(0), signal.SIGINT)  # as a terminal does: to the whole group
        for work in (lambda: m.generate(["Prince"] * 5000, max_new_tokens=400, ignore_eos=True).results(),
                     lambda: [None for _ in m.generate(["Prince"] * 5000, max_new_tokens=400, ignore_eos=True)],
                     lambda: [m.logits([1] * 500) for _ in range(10000)]):
            try:
                threading.Thread(target=later).start()  # in here: it may be late to start
                work()
                print("it was not interrupted")
            except KeyboardInterrupt:
                pass
            assert m._process.alive and m._process.pid == pid
            assert m.generate("Prince Andrew", max_new_tokens=3).text == " was sitting in"
        print("went on")
        """,
        str(tolstoy),
    )
    out, err = run.communicate(timeout=120)
    assert out == "went on\n", err


@linux
@pytest.mark.parametrize("work", ["generate", "logits"])
def test_interrupt_while_sending(tolstoy: Path, work: str) -> None:
    """A request that is interrupted on its way to greta is cancelled there: it would hold up those behind it."""
    with greta.Process() as p:
        model = greta.load(tolstoy, context=512, process=p)
        ended: dict[int, Any] = {}
        deliver = p._deliver

        def watch(message: dict[str, Any], payload: memoryview) -> None:
            if "event" not in message:
                ended[message["id"]] = message.get("error", {}).get("code", "ok")
            deliver(message, payload)

        p._deliver = watch  # type: ignore[method-assign]
        os.kill(p.pid, signal.SIGSTOP)  # the pipe is full before the request is

        def later() -> None:
            assert eventually(p._writing.locked)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        thread = threading.Thread(target=later)
        try:
            with pytest.raises(KeyboardInterrupt):
                thread.start()
                if work == "generate":
                    model.generate(["Prince" * 4] * 20000, max_new_tokens=400, ignore_eos=True).results()
                else:
                    model.logits([1] * 400_000)
        finally:
            thread.join()
            os.kill(p.pid, signal.SIGCONT)
        request = p.number() - 1
        assert eventually(lambda: request in ended, 100) and ended[request] in ("canceled", "usage")
        assert not p._pending
        assert model.generate("Prince Andrew", max_new_tokens=3).text == " was sitting in"


def test_cancel(model: greta.Model) -> None:
    def busy() -> int:
        return len(model._process._pending)

    g = model.generate(["Prince"] * 1000, max_new_tokens=200, ignore_eos=True)
    for i, _ in enumerate(g):
        if i == 5:
            break  # leaving the loop cancels
    assert eventually(lambda: busy() == 0)
    assert any(a.text for a in g.partial) and not all(a.stop for a in g.partial)
    with pytest.raises(greta.CanceledError):
        g.results()
    g = model.generate(["Prince"] * 1000, max_new_tokens=200, ignore_eos=True)
    g.cancel()
    g.cancel()
    assert eventually(lambda: busy() == 0)
    model.generate(["Prince"] * 1000, max_new_tokens=200, ignore_eos=True)  # nobody holds it
    gc.collect()
    assert eventually(lambda: busy() == 0)
    with model.generate(["Prince"] * 1000, max_new_tokens=200, ignore_eos=True):
        pass
    assert eventually(lambda: busy() == 0)
    assert model.generate("Prince Andrew", max_new_tokens=3).text == " was sitting in"


def test_model_closed_meanwhile(tolstoy: Path, process: greta.Process) -> None:
    m = greta.load(tolstoy, process=process)
    g = m.generate(["Prince"] * 1000, max_new_tokens=200, ignore_eos=True)
    m.close()
    with pytest.raises(greta.CanceledError, match="the model llama was closed meanwhile"):
        g.results()


def test_dropped(tolstoy: Path, process: greta.Process) -> None:
    """A model or session that nobody holds is freed in greta, without a garbage collection; what uses it holds it."""

    def there(op: str, **args: int) -> bool:
        try:
            process.call(op, args)
        except (greta.CanceledError, greta.UsageError):  # it is being closed, or was
            return False
        return True

    gc.collect()
    gc.disable()
    try:
        m = greta.load(tolstoy, process=process)
        m.logits("Prince")
        session = m.session()
        kept, number = session._id or 0, m._number()
        session.decode(1)
        del session
        assert eventually(lambda: not there("rewind", session=kept, pos=0)) and there("plan", model=number)
        g = m.generate("Prince Andrew", max_new_tokens=3)
        tokenizer = m.tokenizer
        del m
        assert tokenizer.decode(tokenizer.encode("Prince")) == "Prince"
        del tokenizer
        assert g.text == " was sitting in" and there("plan", model=number)
        del g
        assert eventually(lambda: not there("plan", model=number))
        assert greta.load(tolstoy, process=process).generate("Prince Andrew", max_new_tokens=3).text == " was sitting in"
        with greta.load(tolstoy, process=process).session() as s:
            assert s.decode(1).shape == (2048,)
    finally:
        gc.enable()


def test_many_sessions(model: greta.Model) -> None:
    """Sessions of their own do not disturb each other."""
    sessions = [model.session() for _ in range(20)]
    prompts = [[1, 300 + i, 400 + i] for i in range(20)]
    for k in range(3):
        rows = [s.decode(p[k]) for s, p in zip(sessions, prompts)]
    for row, p in zip(rows, prompts):
        want = model.logits(p)[-1]
        assert np.linalg.norm(row - want) < 2e-2 * np.linalg.norm(want)
    for s in sessions:
        s.close()


def test_fork(tolstoy: Path) -> None:
    """A fork cannot use its parent's process, and says so."""
    run = script(
        """
        import greta, os, sys
        m = greta.load(sys.argv[1])
        if os.fork() == 0:
            try:
                m.logits([1])
            except greta.ProcessDied as e:
                assert "forked" in str(e)
                own = greta.load(sys.argv[1])
                assert own.generate("Prince Andrew", max_new_tokens=1).text == " was"
                own._process.close()
                os._exit(7)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.wait()[1]), m.generate("Prince Andrew", max_new_tokens=1).text)
        """,
        str(tolstoy),
    )
    out, err = run.communicate(timeout=60)
    assert out == "7  was\n", err


def test_large_messages(model: greta.Model) -> None:
    """Long requests of several threads beside short ones keep whole."""
    text = "the prince " * 20000
    sizes: list[int] = []

    def work() -> None:
        for _ in range(3):
            sizes.append(len(model.tokenizer.encode(text)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for _ in range(200):
        model._process.call("ping", {})
    for t in threads:
        t.join()
    assert len(set(sizes)) == 1 and len(sizes) == 12 and sizes[0] > 20000


@linux
def test_shared_memory(block: greta.Model, model: greta.Model) -> None:
    """Tensors in shared memory are not copied, live as long as they are used, and leave nothing."""
    process = block._process
    gc.collect()
    before = memory_of(process.pid), memory_of()
    x = greta.empty((3000, 64))
    x[...] = np.random.default_rng(2).standard_normal(x.shape, dtype=np.float32)
    assert _shared.locate(x) is not None and _shared.locate(x[5:]) is not None
    wire, payload, _ = greta._model._tensor(x[1:2001])
    assert wire["offset"] == 64 * 4 and len(payload) == 0
    y = block(x[1:2001])
    assert np.array_equal(y, block(np.array(x[1:2001])))
    logits = [model.logits([1] * 100) for _ in range(20)]
    del x
    logits[0] += 1  # still mapped, and ours to change
    del logits, y, wire, _
    gc.collect()
    assert eventually(lambda: (memory_of(process.pid), memory_of()) == before)
    with pytest.raises(greta.UsageError, match="nbytes is 0, it must be 1 or more"):
        greta.SharedMemory(0)


@linux
def test_handles(process: greta.Process) -> None:
    """A gigabyte is handed over by a handle, again and again, without a leak."""
    memory = greta.SharedMemory(1 << 30)
    memory.buffer[0], memory.buffer[-1] = 17, 42
    count = 10_000 if os.environ.get("GRETA_STRESS") else 200
    before = memory_of(process.pid)
    took = []
    for _ in range(count):
        start = time.perf_counter()
        answer, _data = process.call("attach", {"path": memory.path, "bytes": memory.nbytes})
        took.append(time.perf_counter() - start)
        assert (answer["first"], answer["last"]) == (17, 42)
        process.call("detach", {"handle": answer["handle"]})
    assert memory_of(process.pid) == before
    took.sort()
    print(
        f"a gigabyte by handle, {count} times: median {took[count // 2] * 1e6:.0f} µs, "
        f"99 % {took[count * 99 // 100] * 1e6:.0f} µs"
    )
    if os.environ.get("GRETA_STRESS"):
        assert took[count // 2] < 1e-3


def test_round_trips(process: greta.Process) -> None:
    """10,000 round trips. Their times are printed, and held to 100 µs where GRETA_STRESS is set."""
    took = []
    for _ in range(10_000):
        start = time.perf_counter()
        process.call("ping", {})
        took.append(time.perf_counter() - start)
    took.sort()
    mean = sum(took) / len(took)
    print(
        f"10,000 round trips: mean {mean * 1e6:.1f} µs, median {took[5000] * 1e6:.1f} µs, "
        f"99 % {took[9900] * 1e6:.1f} µs"
    )
    if os.environ.get("GRETA_STRESS"):
        assert mean < 100e-6


def test_dlpack(block: greta.Model) -> None:
    """Tensors of DLPack come and go without a copy."""

    class Foreign:
        """A tensor of another package's."""

        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **kw: Any) -> Any:
            return self.array.__dlpack__(**kw)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    x = np.random.default_rng(3).standard_normal((4, 64)).astype(np.float32)
    assert np.array_equal(block(Foreign(x)), block(x))
    if _shared.SHARING:
        mine = greta.empty((4, 64))
        mine[...] = x
        assert _shared.locate(_shared.as_array(Foreign(mine))) is not None  # the same memory
    out = block(x)
    back = np.from_dlpack(out)
    assert back.__array_interface__["data"][0] == out.__array_interface__["data"][0]

    class Device(Foreign):
        def __dlpack_device__(self) -> Any:
            return (2, 0)

    with pytest.raises(greta.UnsupportedError, match="runs on the backend cpu.*backend=.hip"):
        block(Device(x))


def test_without_numpy(tolstoy: Path) -> None:
    """Texts need no NumPy; logits are a memoryview then."""
    run = script(
        """
        import sys
        sys.modules["numpy"] = None
        import greta
        with greta.load(sys.argv[1]) as m:
            print(m.generate("Prince Andrew", max_new_tokens=2).text)
            small, large = m.logits([1, 2, 3]), m.logits([1] * 300)
            print(small.shape, large.shape, small.format, abs(small[0, 0] - m.logits([1])[0, 0]) < 0.02)
            try:
                greta.empty(3)
            except greta.MissingPackageError as e:
                print(e)
        """,
        str(tolstoy),
    )
    out, err = run.communicate(timeout=60)
    assert (
        out == " was sitting\n(3, 2048) (300, 2048) f True\ngreta.empty needs the package numpy: pip install numpy\n"
    ), err


def test_bench(process: greta.Process) -> None:
    frame = greta.bench("op", "silu", m=[1, 2], n=64, cache="warm", min_time="1ms", no_store=True, process=process)
    assert list(frame["verdict"]) == ["ok", "ok"] and (frame["median_s"] > 0).all()
    with pytest.raises(greta.UsageError, match="results come as rows"):
        greta.bench("op", "silu", output="csv", process=process)
    with pytest.raises(greta.UsageError, match="nothing"):
        greta.bench("op", "nothing", process=process)
    assert json.dumps(
        greta.bench.rows("op", "silu", n=64, cache="warm", min_time="1ms", no_store=True, process=process)
    )
