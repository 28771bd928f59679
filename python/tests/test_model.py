"""Texts, logits, blocks, checks and plans."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
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
    with pytest.raises(TypeError, match="3 prompts"):
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
        ("temperature is nan: a number is expected", "a", {"temperature": float("nan")}),
        ("temperature is 'hot': a number is expected", "a", {"temperature": "hot"}),
        ("max_new_tokens is 1.5: a whole number is expected", "a", {"max_new_tokens": 1.5}),
        ("num_return_sequences is 0, it must be 1 or more", "a", {"num_return_sequences": 0}),
        ("repetition_penalty is 0.0, it must be above 0", "a", {"repetition_penalty": 0.0}),
        ("seed is -5, it must be 0 or more", "a", {"seed": -5}),
        ("list is empty", [], {}),
        ("token ids are expected", [[1, "a"]], {}),
        ("not int", 7, {}),
        ("vocabulary has 2048", [5000], {}),
        ("more than this model.s maximum context length of 256", "a", {"max_new_tokens": 300}),
        ("top_k is 'many': a whole number is expected", "a", {"top_k": "many"}),
        ("cannot unmarshal", "a", {"priority": "high"}),
        ("cannot be sent", "a", {"priority": float("nan")}),  # what is no JSON would end the process
        ("top_p is inf: a number is expected", "a", {"top_p": float("inf")}),
        ("is no text, number or list", "a", {"schema": {"type": object()}}),
        ("by token id", "a", {"logit_bias": {"x": 1}}),
        ("by token id", "a", {"logit_bias": [1]}),
        ("choice is empty", "a", {"choice": []}),
        ("regex is empty", "a", {"regex": ""}),
        ("bytes: at most", "a" * (65 << 20), {}),
    ]:
        with pytest.raises(greta.UsageError, match=words):
            model.generate(prompts, **options).results()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no such file or folder"):  # a UsageError is a ValueError
        greta.load("nowhere.gguf", process=process)
    with pytest.raises(greta.UsageError, match="did you mean context"):
        greta.load(tolstoy, contxt=5, process=process)
    with pytest.raises(greta.UsageError, match="a text, a number"):
        greta.load(tolstoy, lora=object(), process=process)
    with pytest.raises(greta.UsageError, match="cannot be sent"):
        greta.load(b"model.gguf", process=process)  # type: ignore[arg-type]
    with pytest.raises(greta.OutOfMemoryError, match="cannot be had"):
        greta.empty((1 << 40, 1 << 20))
    assert model.generate("a", top_k=np.int64(1), temperature=np.float32(0.5), max_new_tokens=1).results()
    with pytest.raises(greta.GretaError, match="abacus"):
        greta.load(tolstoy, backend="abacus", process=process)
    with pytest.raises(greta.UsageError, match="chat template"):
        model.tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])


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
    with pytest.raises(greta.UsageError, match="no session"):
        s.decode(1)


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
    for words, bad in [("rows, 64", x[:, :3]), ("rows, 64", x[0]), ("numbers are expected", np.array(["a"]))]:
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

    async def left() -> str:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(
                model.agenerate(["Prince"] * 400, max_new_tokens=200, ignore_eos=True).results(), timeout=0.05
            )
        return await model.agenerate("Prince Andrew", max_new_tokens=12).text()

    assert asyncio.run(left()) == TEXT


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
