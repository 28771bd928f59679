"""The notebooks run from top to bottom, and what is kept of them is small; the magics do what they say."""

from __future__ import annotations

import html
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
    shell.run_line_magic("greta", "bench op add --m 1 --n 64 -r 3 --min-time 1ms --no-store --progress=false")
    assert len(shown) == 1 and "| add " in shown[0].data


def test_bench_is_live(shell, monkeypatch):
    """While it runs, a line says what is measured, and goes with the end."""
    shown = []

    class Handle:
        def update(self, what):
            shown.append(what.data)

    def display(what, display_id=False):
        shown.append(what.data)
        return Handle()

    monkeypatch.setattr(greta.notebook, "display", display)
    shell.run_line_magic("greta", "bench op add --m 1,2 --n 64 -r 3 --min-time 1ms --no-store")
    assert len(shown) == 4 and shown[2] == "", shown
    assert "value='0' max='2'" in shown[0] and "1 of 2: add m=1 n=64" in shown[0]
    assert "value='1' max='2'" in shown[1] and "2 of 2: add m=2 n=64" in shown[1]
    assert shown[3].count("| add ") == 2


def test_page_in_a_cell(tmp_path):
    """The interactive page of what a cell has measured stands in a cell, whole and without a file."""
    cells = [
        "%load_ext greta.notebook",
        "%greta bench op add --m 1,2 --n 64 -r 3 --min-time 1ms --store r.sqlite",
        "%greta report --store r.sqlite --title Mine",
        "import greta.notebook; greta.notebook.report(store='r.sqlite', height=300)",
        "greta.notebook.report(store='r.sqlite', device='no such device')",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    client = nbclient.NotebookClient(
        book, timeout=300, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [c.outputs for c in book.cells]
    assert not any(o.output_type == "error" for some in outputs[:4] for o in some), outputs
    line, table = outputs[1]
    assert line.data["text/html"] == "" and "| add " in table.data["text/markdown"]
    for some, height in ((outputs[2], 720), (outputs[3], 300)):
        (page,) = some
        text = page.data["text/html"]
        assert text.startswith("<iframe sandbox=") and f"height: {height}px" in text
        inside = html.unescape(text.partition('srcdoc="')[2].rpartition('"')[0])
        assert "<svg" in inside and "<script" in inside and inside.rstrip().endswith("</html>")
    assert "Mine" in outputs[2][0].data["text/html"]
    assert [o.ename for o in outputs[4] if o.output_type == "error"] == ["UsageError"]
    assert [f.name for f in tmp_path.iterdir() if f.suffix == ".html"] == []


@pytest.mark.parametrize(
    ("line", "cell", "message"),
    [
        ("", None, "VERB"),
        ("x.yaml", MODEL, "the cell is the model file"),
        ("--as 1x", MODEL, "a name of Python"),
        ("--set", MODEL, "wants a value"),
        ("bench op silu --m '", None, "No closing quotation"),
        ("--save nowhere/at/all.yaml", MODEL, "nowhere/at/all.yaml: No such file"),
        ("report --nope", None, "unknown flag: --nope"),
    ],
)
def test_usage(shell, line, cell, message):
    with pytest.raises(greta.notebook.UsageError, match=message):
        shell.run_cell_magic("greta", line, cell) if cell else shell.run_line_magic("greta", line)
    with pytest.raises(greta.ArgumentTypeError, match="height is 'tall'"):
        greta.notebook.report(height="tall")
