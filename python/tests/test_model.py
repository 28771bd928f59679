"""Texts, logits, blocks, checks and plans."""

from __future__ import annotations

import asyncio
import gc
import json
import pickle
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import greta

ROOT = Path(__file__).resolve().parents[2]
TEXT = " was sitting in the middle of the room, and the"


def test_text(model: greta.Model) -> None:
    pieces = list(model.generate("Prince Andrew", max_new_tokens=12))
    assert "".join(pieces) == TEXT
    tokens = [p.token for p in pieces if p.token is not None]
    assert len(tokens) == 12 and model.tokenizer.decode(tokens) == TEXT.strip()
    assert all(p.prompt == 0 and p.choice == 0 and p.logprob is None for p in pieces)
    assert model.generate("Prince Andrew", max_new_tokens=12).text == TEXT


def test_same_as_the_program(model: greta.Model, tolstoy: Path, process: greta.Process) -> None:
    command = [process.binary, "run", str(tolstoy), "--context", "256", "-p", "The prince", "-n", "30", "--json", "-"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    (answer,) = model.generate("The prince", max_new_tokens=30).results()
    assert answer.tokens == report["generated_tokens"]
    assert answer.prompt_tokens == report["prompt_tokens"]
    assert answer.text == report["text"]


def test_batch(model: greta.Model) -> None:
    ids = model.tokenizer.encode("Prince Andrew")
    prompts: list[greta.Prompt] = ["Prince Andrew", ids, "The old man"]
    g = model.generate(prompts, max_new_tokens=12, num_return_sequences=2)
    answers = g.results()
    assert [(a.prompt, a.choice) for a in answers] == [(p, c) for p in range(3) for c in range(2)]
    assert [a.text for a in answers[:4]] == [TEXT] * 4
    assert all(a.stop == "max" and len(a.tokens) == 12 for a in answers)
    assert answers[2].prompt_tokens == ids
    with pytest.raises(greta.UsageError, match="3 prompts"):
        g.text


def test_sampling(model: greta.Model) -> None:
    def draw(seed: int, **more: Any) -> str:
        return model.generate("Prince", max_new_tokens=20, temperature=1.0, seed=seed, **more).text

    assert draw(1) == draw(1)
    assert len({draw(s) for s in range(5)}) > 1
    greedy = model.generate("Prince", max_new_tokens=20).text
    assert draw(3, top_k=1) == greedy
    assert draw(1, top_k=np.int64(50), top_p=np.float32(0.5)) == draw(1, top_k=50, top_p=0.5)  # NumPy's numbers too
    assert model.generate("Prince", max_new_tokens=20, do_sample=True, seed=1).text == draw(1)
    (a,) = model.generate("Prince", max_new_tokens=3, logprobs=2).results()
    assert len(a.logprobs) == 3 and len(a.top[0]) == 2 and a.top[0][0][0] == a.tokens[0]
    assert a.logprobs[0] == pytest.approx(a.top[0][0][1])
    first = a.tokens[0]
    assert model.generate("Prince", max_new_tokens=1, logit_bias={first: -100}).results()[0].tokens != [first]


def test_ends(model: greta.Model) -> None:
    (a,) = model.generate("Prince Andrew", max_new_tokens=40, stop_strings="middle").results()
    assert (a.text, a.stop, a.stop_text) == (" was sitting in the ", "stop", "middle")
    (a,) = model.generate("Prince Andrew", max_new_tokens=200).results()
    assert a.stop == "end" and a.tokens[-1] in model.tokenizer.eos_token_ids
    (a,) = model.generate("Prince Andrew", max_new_tokens=0, ignore_eos=True).results()
    assert a.stop == "context"
    (a,) = model.generate("Prince Andrew", max_new_tokens=20, choice=[" yes", " no"]).results()
    assert a.text in (" yes", " no")
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer", "maximum": 9}},
        "required": ["age"],
        "additionalProperties": False,
    }
    (a,) = model.generate("Prince", max_new_tokens=60, schema=schema).results()
    assert 0 <= abs(json.loads(a.text)["age"])


def test_wrong_arguments(model: greta.Model, process: greta.Process, tolstoy: Path) -> None:
    for words, prompts, options in [
        ("did you mean temperature", "a", {"temprature": 1}),
        ("leave temperature out", "a", {"do_sample": False, "temperature": 1.0}),
        ("temperature is -1", "a", {"temperature": -1}),
        ("temperature is nan: a finite number is expected", "a", {"temperature": float("nan")}),
        ("temperature is 'hot': a number is expected", "a", {"temperature": "hot"}),
        ("max_new_tokens is 1.5: a whole number is expected", "a", {"max_new_tokens": 1.5}),
        ("num_return_sequences is 0, it must be 1 or more", "a", {"num_return_sequences": 0}),
        ("max_new_tokens is 100.*: at most 92", "a", {"max_new_tokens": 10**30}),
        ("seed is a number of 333 bits: at most 18446744073709551615 is", "a", {"seed": 10**100}),
        ("seed is 18446744073709551616: at most", "a", {"seed": 1 << 64}),
        ("temperature is .*: a finite number is expected", "a", {"temperature": 10**400}),
        ("num_return_sequences is 1000000000, of 1 prompts: at most", "a", {"num_return_sequences": 10**9}),
        ("repetition_penalty is 0.0, it must be above 0", "a", {"repetition_penalty": 0.0}),
        ("seed is -5, it must be 0 or more", "a", {"seed": -5}),
        ("list is empty", [], {}),
        (r"prompts\[0\]\[1\] is 'a': a token id", [[1, "a"]], {}),
        (r"prompts\[1\]\[0\] is 1000.*: no vocabulary has", [[1], [10**30]], {}),
        ("prompts is 7: a text, a list of token ids", 7, {}),
        ("vocabulary has 2048", [5000], {}),
        ("more than this model.s maximum context length of 256", "a", {"max_new_tokens": 300}),
        ("top_k is 'many': a whole number is expected", "a", {"top_k": "many"}),
        ("priority is 'high': a whole number is expected", "a", {"priority": "high"}),
        ("cannot be sent: Out of range", "a", {"schema": {"a": float("nan")}}),  # what is no JSON would end the process
        ("top_p is inf: a finite number is expected", "a", {"top_p": float("inf")}),
        ("is no text, number or list", "a", {"schema": {"type": object()}}),
        ("logit_bias: a token's id is 'x': a whole number", "a", {"logit_bias": {"x": 1}}),
        (r"logit_bias\[5\] is 'x': a number is expected", "a", {"logit_bias": {5: "x"}}),
        ("by token id", "a", {"logit_bias": [1]}),
        ("choice is empty", "a", {"choice": []}),
        ("regex is empty", "a", {"regex": ""}),
        ("bytes: at most", "a" * (65 << 20), {}),
    ]:
        with pytest.raises(greta.UsageError, match=words):
            model.generate(prompts, **options).results()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no such file or folder"):  # a UsageError is a ValueError
        greta.load("nowhere.gguf", process=process)
    with pytest.raises(greta.UsageError, match="belongs to its process"):
        pickle.dumps(model)
    with pytest.raises(greta.UsageError, match="did you mean context"):
        greta.load(tolstoy, contxt=5, process=process)
    with pytest.raises(greta.UsageError, match="--kv-tokens 1000.*…: a whole number that is not as large is expected"):
        greta.load(tolstoy, kv_tokens=10**50, process=process)
    with pytest.raises(greta.OutOfMemoryError, match="cannot be had"):
        greta.empty((1 << 40, 1 << 20))
    assert model.generate("a", top_k=np.int64(1), temperature=np.float32(0.5), max_new_tokens=1).results()
    with pytest.raises(greta.GretaError, match="abacus"):
        greta.load(tolstoy, backend="abacus", process=process)
    with pytest.raises(greta.UsageError, match="chat template"):
        model.tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])


def test_wrong_types(model: greta.Model, block: greta.Model, process: greta.Process, tolstoy: Path) -> None:
    """An argument of a wrong type is named, with what it is and what is expected: a UsageError that is a TypeError."""
    t, session = model.tokenizer, model.session()
    bad: Any
    for words, bad in {
        "texts is None: a list of texts is expected": lambda: model.embed(None),  # type: ignore[arg-type]
        r"texts\[1\] is None: a text is expected": lambda: model.embed(["a", None]),  # type: ignore[list-item]
        r"texts\[0\] is b'a'": lambda: model.embed([b"a"]),  # type: ignore[list-item]
        "normalize is 'no': True or False": lambda: model.embed("a", normalize="no"),  # type: ignore[arg-type]
        "path is 5: a path, or a built-in model's name,": lambda: greta.load(5),  # type: ignore[arg-type]
        "path is b'model.gguf'": lambda: greta.load(b"model.gguf"),  # type: ignore[arg-type]
        "set is 5: a dict of the": lambda: greta.load(tolstoy, set=5, process=process),  # type: ignore[arg-type]
        r"set\['D'\] is None: a text, a number": lambda: greta.load(tolstoy, set={"D": None}, process=process),
        "lora is <object": lambda: greta.load(tolstoy, lora=object(), process=process),
        "context is 1.5: a whole": lambda: greta.load(tolstoy, context=1.5, process=process),  # type: ignore[arg-type]
        "process is 'mine'": lambda: greta.load(tolstoy, process="mine"),  # type: ignore[arg-type]
        "shape is 'x': a whole number or several": lambda: greta.empty("x"),  # type: ignore[arg-type]
        "shape is 2.5": lambda: greta.empty((1, 2.5)),  # type: ignore[arg-type]
        "nbytes is 2.5": lambda: greta.SharedMemory(2.5),  # type: ignore[arg-type]
        "ignore_eos is 'yes'": lambda: model.generate("a", ignore_eos="yes"),
        "choice is 'yes': a list of texts": lambda: model.generate("a", choice="yes"),
        "stop_strings is 5": lambda: model.generate("a", stop_strings=5),
        "schema is '{}': a dict": lambda: model.generate("a", schema="{}"),
        "logit_bias is 5": lambda: model.generate("a", logit_bias=5),
        "text is None": lambda: t.encode(None),  # type: ignore[arg-type]
        "texts is 'abc': a list": lambda: t.encode_batch("abc"),
        "tokens is 5: a list of token ids": lambda: t.decode(5),  # type: ignore[arg-type]
        r"batch\[0\] is 5": lambda: t.decode_batch([5]),  # type: ignore[list-item]
        r"messages\[0\] is 5: a dict with": lambda: t.apply_chat_template([5]),  # type: ignore[list-item]
        "pos is '1'": lambda: session.rewind("1"),  # type: ignore[arg-type]
        "token is 'a'": lambda: session.decode("a"),  # type: ignore[arg-type]
        "all is 1": lambda: session.prefill([1], all=1),  # type: ignore[arg-type]
        "the tensor is None: an array of numbers": lambda: block(None),
        "the tensor is an array of bool": lambda: block(np.zeros((2, 64), bool)),
        "stage is 5": lambda: model.plan(5),  # type: ignore[arg-type]
        "tolerance is 'x'": lambda: model.check(tolerance="x"),  # type: ignore[arg-type]
        r"env\['A'\] is 5": lambda: greta.Process(env={"A": 5}),  # type: ignore[dict-item]
    }.items():
        with pytest.raises(greta.ArgumentTypeError, match=words) as failed:
            bad()
        assert isinstance(failed.value, (greta.UsageError, TypeError)) and isinstance(failed.value, ValueError)
    with pytest.raises(greta.UsageError, match="no content"):
        t.apply_chat_template([{"role": "user"}])
    with pytest.raises(greta.UsageError, match="no array of numbers: .*inhomogeneous"):
        block([[1], [1, 2]])
    for size in (np.int64(2), 2):  # NumPy's numbers are numbers
        assert greta.empty(size).shape == (2,)  # type: ignore[arg-type]
        with greta.load("mlp_block", set={"D": np.int32(64), "F": 128}, context=size, process=process) as m:  # type: ignore[arg-type]
            assert m.info.context == 2


def test_logits(model: greta.Model) -> None:
    ids = model.tokenizer.encode("Prince Andrew was sitting")
    x = model.logits(ids)
    assert x.shape == (len(ids), 2048) and x.dtype == np.float32
    assert int(x[-1].argmax()) == model.generate(ids, max_new_tokens=1).results()[0].tokens[0]
    assert model.logits("Prince Andrew was sitting", last=True).shape == (2048,)
    long = model.logits(ids * 30)  # large: in shared memory, where there is any
    assert np.array_equal(long[: len(ids)], x) or np.allclose(long[: len(ids)], x, rtol=2e-2, atol=0.2)
    long[0, 0] = 5  # it is ours
    with pytest.raises(greta.UsageError, match="no tokens"):
        model.logits([])


def test_session(model: greta.Model) -> None:
    ids = model.tokenizer.encode("Prince Andrew was")
    want = model.logits(ids)
    with model.session() as s, model.session() as other:
        for i, t in enumerate(ids):
            row = s.decode(t)
            other.prefill(ids[:1])
            assert np.linalg.norm(row - want[i]) < 2e-2 * np.linalg.norm(want[i])
        assert s.pos == len(ids)
        s.rewind(1)
        assert s.pos == 1 and s.prefill(ids[1:], all=True).shape == (len(ids) - 1, 2048)
        with pytest.raises(greta.UsageError):
            s.rewind(100)
    for act in (lambda: s.decode(1), lambda: s.reset(), lambda: s.prefill([1])):
        with pytest.raises(greta.UsageError, match="the session is closed"):
            act()


def test_block(block: greta.Model) -> None:
    x = np.random.default_rng(1).standard_normal((5, 64), dtype=np.float32)
    y = block(x)
    assert y.shape == (5, 64) and not np.array_equal(x, y)
    assert np.array_equal(block(x), y)
    big = np.tile(x, (200, 1))  # in shared memory
    assert np.allclose(block(big)[:5], y, rtol=1e-4, atol=1e-5)
    with block.session() as s:
        first, rest = s.block(x[:2]), s.block(x[2:])
        assert np.allclose(np.vstack([first, rest]), y, rtol=1e-4, atol=1e-5)
    for words, bad in [("rows, 64", x[:, :3]), ("rows, 64", x[0]), ("array of numbers is expected", np.array(["a"]))]:
        with pytest.raises(greta.UsageError, match=words):
            block(bad)
    with pytest.raises(greta.UsageError, match="is a block"):
        block.generate([1]).results()


def test_tokenizer(model: greta.Model) -> None:
    t = model.tokenizer
    assert t.vocab_size == 2048 and t.bos_token_id == 1 and t.eos_token_ids == (2,)
    ids = t.encode("Prince Andrew")
    assert ids[0] == 1 and t.encode("Prince Andrew", add_special_tokens=False) == ids[1:]
    assert t.decode(ids) == "Prince Andrew"
    assert t.decode_batch(t.encode_batch(["a", "the prince"])) == ["a", "the prince"]
    assert t.decode(np.array(ids)) == "Prince Andrew"  # type: ignore[arg-type]
    assert len(t.convert_ids_to_tokens(ids)) == len(ids)


def test_chat_template(tolstoy: Path, tmp_path: Path, process: greta.Process) -> None:
    """A begin token comes where the template writes it, as with transformers."""
    (tmp_path / "t.jinja").write_text("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}")
    for template, begin in (("texts", [1]), (str(tmp_path / "t.jinja"), [])):
        with greta.load(tolstoy, context=64, chat_template=template, process=process) as m:
            ids = m.tokenizer.apply_chat_template([{"role": "user", "content": "Prince"}])
            assert ids == begin + m.tokenizer.encode("Prince", add_special_tokens=False) + [2] * (not begin)


def test_check_and_plan(model: greta.Model, block: greta.Model) -> None:
    r = model.check()
    assert r and r.ok and r.verdict == "self-consistent" and 0 < r.worst <= r.limit and len(r.ops) > 10
    assert not block.check(tolerance=1e-12)
    assert "rmsnorm" in model.plan("graph") and "arena" in model.plan()
    assert model.plan("graph", format="dot").startswith("digraph")
    with pytest.raises(greta.UsageError, match="there are spec"):
        model.plan("dream")


def test_embed(model: greta.Model, process: greta.Process, tmp_path: Path) -> None:
    folder = ROOT / "testdata" / "encoders" / "bert"
    texts = ["the prince", "a room", "the prince was sitting in the room"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    out = subprocess.run(
        [process.binary, "embed", str(folder), str(tmp_path / "texts.txt")], check=True, capture_output=True
    ).stdout
    want = np.array([json.loads(line)["embedding"] for line in out.splitlines()], np.float32)
    with greta.load(folder, process=process) as m:
        assert m.info.kind == "embed" and m.info.width == want.shape[1]
        x = m.embed(texts)
        assert x.shape == want.shape and np.allclose(x, want, rtol=1e-4, atol=1e-5)
        assert np.allclose(m.embed(texts[1]), want[1], rtol=1e-4, atol=1e-5)
        unit = m.embed(texts, normalize=True, dimensions=4)
        assert unit.shape == (3, 4) and np.allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-5)
        assert m.tokenizer.encode("the prince")
        wrong: list[tuple[str, Callable[[], object]]] = [
            ("vectors have", lambda: m.embed("a", dimensions=10**6)),
            ("no text", lambda: m.embed([])),
            ("vectors of texts", lambda: m.generate("a").text),
            ("no logits", lambda: m.logits([1])),
            ("no sessions", m.session),
            ("next tokens", m.check),
            ("prompt", lambda: m.embed("a", prompt="nothing")),
            ("tokens", lambda: m.embed("the prince " * 2000, truncate=False)),
        ]
        for words, call in wrong:
            with pytest.raises(greta.UsageError, match=words):
                call()
    with pytest.raises(greta.UsageError, match="task=embed"):
        model.embed("a")
    with pytest.raises(greta.UsageError, match="dream"):
        greta.load(folder, process=process, task="dream")
    with pytest.raises(greta.UsageError, match="dream"):
        greta.load(folder, process=process, pooling="dream")


def test_async(model: greta.Model) -> None:
    async def pieces() -> str:
        return "".join([p async for p in model.agenerate("Prince Andrew", max_new_tokens=12)])

    async def all_at_once() -> list[str]:
        results = await asyncio.gather(
            *(pieces() for _ in range(5)), model.agenerate("Prince Andrew", max_new_tokens=12).text()
        )
        return list(results)

    assert asyncio.run(all_at_once()) == [TEXT] * 6
    # Before a loop runs; what is in the first may not be taken by another.
    assert asyncio.run(model.agenerate("Prince Andrew", max_new_tokens=12).text()) == TEXT
    long = model.agenerate("Prince Andrew", max_new_tokens=200)

    async def first() -> str:
        return await long.__aiter__().__anext__()

    asyncio.run(first())
    with pytest.raises(greta.GretaError, match="another event loop|was cancelled"):
        asyncio.run(long.results())

    async def left() -> str:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(
                model.agenerate(["Prince"] * 400, max_new_tokens=200, ignore_eos=True).results(), timeout=0.05
            )
        return await model.agenerate("Prince Andrew", max_new_tokens=12).text()

    assert asyncio.run(left()) == TEXT

    async def failed() -> None:
        g = model.agenerate([[1, 5000]])
        for _ in range(2):  # an error stays one
            with pytest.raises(greta.UsageError, match="vocabulary has 2048"):
                await g.results()
        with pytest.raises(greta.UsageError, match="vocabulary has 2048"):
            async for _piece in g:
                pass

    asyncio.run(failed())

    async def shared() -> None:
        g = model.agenerate("Prince Andrew", max_new_tokens=12)
        a, b = await asyncio.wait_for(asyncio.gather(g.results(), g.text()), 30)  # both wait for one end
        assert a[0].text == b == TEXT
        g = model.agenerate(["Prince"] * 400, max_new_tokens=200, ignore_eos=True)

        def later() -> None:  # in another thread
            while not any(a.text for a in g.partial):
                time.sleep(0.01)
            g.cancel()

        threading.Thread(target=later, daemon=True).start()
        with pytest.raises(greta.CanceledError):
            await asyncio.wait_for(g.results(), 30)
        model.agenerate(["Prince"] * 400, max_new_tokens=200, ignore_eos=True)  # nobody holds it
        gc.collect()
        for _ in range(200):
            if not model._process._pending:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the generation that nobody holds goes on")

    asyncio.run(shared())


def test_waiting_threads(model: greta.Model) -> None:
    """Several threads wait for one generation: its end, and its cancellation, reach all of them."""

    def both(g: greta.Generation, act: Any) -> list[Any]:
        ends: list[Any] = []

        def work() -> None:
            try:
                ends.append(g.results()[0].text)
            except greta.GretaError as e:
                ends.append(type(e))

        threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for t in threads:
            t.start()
        act()
        for t in threads:
            t.join(30)
        return ends

    assert both(model.generate("Prince Andrew", max_new_tokens=12), lambda: None) == [TEXT] * 3
    g = model.generate(["Prince"] * 400, max_new_tokens=200, ignore_eos=True)

    def later() -> None:
        time.sleep(0.3)
        g.cancel()

    assert both(g, later) == [greta.CanceledError] * 3
    assert both(model.generate([[5000]]), lambda: None) == [greta.UsageError] * 3


def test_threads(model: greta.Model) -> None:
    texts: list[str] = []

    def work() -> None:
        for _ in range(3):
            texts.append(model.generate("Prince Andrew", max_new_tokens=12).text)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert texts == [TEXT] * 24


def test_several_models(tolstoy: Path, process: greta.Process) -> None:
    with greta.load(tolstoy, dtype="f32", process=process) as a, greta.load(tolstoy, context=16, process=process) as b:
        assert a.info.dtype == "f32" and a.info.context == 512 and b.info.context == 16
        assert a.generate("Prince Andrew", max_new_tokens=8).text == b.generate("Prince Andrew", max_new_tokens=8).text
    with pytest.raises(greta.UsageError, match="closed"):
        a.logits([1])
    a.close()  # twice is once


def test_another_folder(tolstoy: Path, process: greta.Process, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Relative paths are those of Python's folder, also where it was changed behind the start of greta's process."""
    (tmp_path / "ein Ordner ü").mkdir()
    (tmp_path / "ein Ordner ü" / "model").symlink_to(tolstoy.resolve())
    monkeypatch.chdir(tmp_path / "ein Ordner ü")
    with greta.load("model", process=process) as m, greta.load("mlp_block", weights=None, process=process) as b:
        assert m.generate("Prince Andrew", max_new_tokens=1).text == " was"
        assert b.info.kind == "block"
    with pytest.raises(greta.UsageError, match="^nowhere.gguf: no such file"):
        greta.load("nowhere.gguf", process=process)
