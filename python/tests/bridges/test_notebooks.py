"""The notebooks run from top to bottom, and what is kept of them is small; the magics do what they say."""

from __future__ import annotations

from pathlib import Path

from conftest import needed

nbclient = needed("nbclient")

import nbformat  # noqa: E402
import pytest  # noqa: E402

import greta  # noqa: E402
import greta.notebook  # noqa: E402

BOOKS = sorted((Path(__file__).resolve().parents[3] / "docs" / "notebooks").glob("*.ipynb"))


def test_there_are_three():
    assert len(BOOKS) == 3


@pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)
def test_runs(path, tmp_path):
    kept = nbformat.read(path, 4)
    assert path.stat().st_size < 64 << 10
    assert any(c.get("outputs") for c in kept.cells)
    assert not any(o.output_type == "error" for c in kept.cells for o in c.get("outputs", []))
    book = nbformat.from_dict(kept)
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = [(len(a.get("outputs", [])) > 0, len(b.get("outputs", [])) > 0) for a, b in zip(kept.cells, book.cells)]
    assert all(a == b for a, b in said), "a cell that printed something prints nothing now, or the other way round"


MODEL = """block: tiny
in:
  x: float[S, D]
params: {D: 32}
weights:
  w: {shape: [D, D], hf: w}
body:
  y: x + relu(linear(x, w))
out: y
"""


@pytest.fixture(scope="module")
def shell():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "greta.notebook")
    yield shell
    InteractiveShell.clear_instance()


def test_cell(shell, capsys, tmp_path):
    shell.run_cell_magic(
        "greta", f"--as tiny --save {tmp_path}/t.yaml --set D=16 --kv f32 --context 64 --no-limits", MODEL
    )
    out = capsys.readouterr().out
    assert "self-consistent" in out and "STATUS=" in out and (tmp_path / "t.yaml").read_text() == MODEL
    tiny = shell.user_ns["tiny"]
    assert isinstance(tiny, greta.Model) and tiny.info.width == 16 and tiny.info.context == 64


def test_cell_that_is_wrong(shell, capsys):
    with pytest.raises(greta.notebook.Failed) as e:
        shell.run_cell_magic("greta", "", MODEL.replace("relu", "relo"))
    assert e.value.code == 2
    out = capsys.readouterr().out
    assert "relo" in out and "tiny.yaml:8" in out and "^" in out


def test_bench_is_a_table(shell, monkeypatch):
    shown = []
    monkeypatch.setattr(greta.notebook, "display", shown.append)
    shell.run_line_magic("greta", "bench op add --m 1 --n 64 -r 3 --min-time 1ms --no-store")
    assert len(shown) == 1 and "| add " in shown[0].data


@pytest.mark.parametrize(
    ("line", "cell", "message"),
    [
        ("", None, "VERB"),
        ("x.yaml", MODEL, "the cell is the model file"),
        ("--as 1x", MODEL, "a name of Python"),
        ("--set", MODEL, "wants a value"),
    ],
)
def test_usage(shell, line, cell, message):
    with pytest.raises(greta.notebook.UsageError, match=message):
        shell.run_cell_magic("greta", line, cell) if cell else shell.run_line_magic("greta", line)
