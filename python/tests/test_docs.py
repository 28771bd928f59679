"""The examples of docs/python.md run, in their order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text("utf-8"), re.M | re.S)


def test_examples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "testdata").symlink_to(ROOT / "testdata")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    examples = blocks(ROOT / "docs" / "python.md")
    assert len(examples) >= 6
    scope: dict[str, Any] = {"__name__": "example"}
    for text in examples:
        exec(compile(text, "docs/python.md", "exec"), scope)


def test_readme(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    (text,) = blocks(ROOT / "python" / "README.md")
    exec(compile(text.replace("model.gguf", "testdata/tolstoy-2.7m"), "README.md", "exec"), {})
    assert len(capsys.readouterr().out) > 20
