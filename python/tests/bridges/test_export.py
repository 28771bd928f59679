"""Blocks in plain PyTorch become model files that compute the same."""

from __future__ import annotations

from conftest import needed

torch = needed("torch")

import blocks  # noqa: E402
import others  # noqa: E402
import pytest  # noqa: E402

import greta.torch  # noqa: E402

SAID = [
    "Llama",
    "Qwen3",
    "Gemma2",
    "GemmaWide",
    "Complex",
    "NeoX",
    "GPT2",
    "GPTJ",
    "MLA",
    "Plain",
    "Whole",
    "Quirky",
    "Alibi",
    "Odd",
    "Written",
    "Unused",
    "Grouped",
    "KeysFirst",
    "MultiQuery",
    "Turned",
    "Masked",
    "HiddenBeforeScale",
    "Logarithms",
    "Sinks",
    "TwoProducts",
    "Matrices",
    "Routed",
]


def made(name):
    torch.manual_seed(11)
    module = getattr(blocks if hasattr(blocks, name) else others, name)().eval()
    example = module.example() if hasattr(module, "example") else torch.randn(1, 12, 64)
    return module, example if isinstance(example, tuple) else (example,)


@pytest.mark.parametrize("name", SAID)
def test_agrees(name, tmp_path):
    module, example = made(name)
    written = greta.torch.export(module, example, tmp_path / f"{name}.yaml")
    assert written.error < 1e-6
    x = torch.randn(example[0].shape, dtype=torch.float64) if example[0].is_floating_point() else example[0]
    rest = [e.double() if e.is_floating_point() else e for e in example[1:]]
    with torch.no_grad():
        want = module.double()(x, *rest)
    with greta.load(written.model, weights=written.weights, kv="f32", context=40, exact=True) as model:
        assert model.info.kind == written.kind
        for one, ref in zip(
            x.reshape(-1, *x.shape[-2:]) if written.kind == "block" else x,
            want.reshape(-1, *want.shape[-2:]) if written.kind == "block" else want,
        ):
            got = model(one.float().numpy()) if written.kind == "block" else model.logits(one.tolist())
            got = torch.from_numpy(got.copy()).double()
            assert float((got - ref).norm() / ref.norm()) < 1e-4
            assert float((got - ref).abs().max()) < 1e-4 * float(ref.abs().max())
        assert model.check().ok


def text_of(module, example, tmp_path, **options):
    return greta.torch.export(module, example, tmp_path / "m.yaml", **options).model.read_text()


def test_operators_are_greta_s(tmp_path):
    """What has an operator of its own is said by it, and weights keep their names."""
    text = text_of(*made("Gemma2"), tmp_path)
    assert "softcap=20" in text and "window=5" in text and "form=tanh" in text and "scale=0.25" in text
    assert text.count("rmsnorm(") == 4 and "hf: n1.weight +1" in text and "hf: gate.weight" in text
    assert "pow(" not in text and "tanh(" not in text
    assert "window=40" in text_of(*made("GemmaWide"), tmp_path)  # the example has 13 tokens
    text = text_of(*made("MultiQuery"), tmp_path)
    assert "window=37" in text and "float[C, 1, 8]" in text
    text = text_of(*made("Turned"), tmp_path)
    assert "alibi=8" in text and "slope=0.5" in text and text.count("attention(") == 2
    text = text_of(*made("Qwen3"), tmp_path)
    assert "base=1000000" in text and "float[C, 2, 32]" in text and text.count("rmsnorm(") == 4
    written = greta.torch.export(*made("Written"), tmp_path / "m.yaml")
    text = written.model.read_text()
    assert "rope(" in text and "embed(pos, table" in text and "hf: conv.weight" in text
    assert not any("takes no more" in n for n in written.notes)  # a mask of -1e9 is no window of so many
    text = text_of(*made("Logarithms"), tmp_path)
    assert "chunk=4" in text and text.count("attention(") == 2
    text = text_of(*made("Sinks"), tmp_path)
    assert "pos, sinks, " in text and "window=4" in text and "hf: sinks}" in text and "float[C, 2, 8]" in text
    text = text_of(*made("TwoProducts"), tmp_path)
    assert text.count("attention(") == 1 and "float[C, 1, 12]" in text
    text = text_of(*made("Matrices"), tmp_path)
    assert text.count("rope(") == 6 and "base=1000)" in text and "base=50)" in text and "rope_factors" in text
    text = text_of(*made("Routed"), tmp_path)
    assert text.count("linear_id(") == 2 and "mix(" in text
    text = text_of(*made("Whole"), tmp_path)
    assert text.count("window=6") == 1 and "softcap(" in text and text.count("attention(") == 2


@pytest.mark.parametrize("way", ["picked", "scatter", "mask", "where", "index"])
def test_mixtures(way, tmp_path):
    """Experts are computed for the tokens that choose them alone, however the module says it."""
    torch.manual_seed(3)
    module = blocks.Mixture(way).eval()
    x = module.example()
    written = greta.torch.export(module, x, tmp_path / "m.yaml")
    text = written.model.read_text()
    assert written.error < 1e-6 and "topk(" in text and "mix(" in text and "linear(" in text
    assert text.count("linear_id(") == (3 if way in ("picked", "scatter") else 2)
    if way not in ("picked", "scatter"):
        assert "experts.$e.gate_up.weight" in text and "experts.$e.down.bias" in text
    with torch.no_grad():
        want = module.double()(x.double()).float()[0]
    with greta.load(written.model, weights=written.weights, kv="f32", context=64, exact=True) as model:
        assert float((torch.from_numpy(model(x[0].numpy()).copy()) - want).norm() / want.norm()) < 1e-4
        assert model.check().ok


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_norm_without_a_number(dtype, tmp_path):
    """What is added under the root is the type's, which shows where activations are small."""

    class Norms(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.n, self.l = torch.nn.RMSNorm(8), torch.nn.Linear(8, 8, bias=False)

        def forward(self, x):
            return self.l(self.n(x)) + torch.nn.functional.rms_norm(x.float(), (8,)).to(x.dtype)

    t = getattr(torch, dtype)
    module = Norms().to(t)
    written = greta.torch.export(module, torch.randn(1, 6, 8, dtype=t), tmp_path / "m.yaml")
    x = (torch.randn(6, 8) * 1e-3).to(t)
    with greta.load(written.model, weights=written.weights, kv="f32", exact=True) as model:
        got = torch.from_numpy(model(x.float().numpy()).copy())
    with torch.no_grad():
        want = module(x[None])[0].float()
    assert float((got - want).norm() / want.norm()) < {"float32": 1e-6}.get(dtype, 1e-2)


def test_no_mask_is_noted(tmp_path):
    """Such a block cannot be run token by token, as greta run does it."""
    module = torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True).eval()
    written = greta.torch.export(module, torch.randn(1, 6, 16), tmp_path / "m.yaml")
    assert "both=true" in written.model.read_text() and "a sequence is one step" in written.notes[-1]


def test_refusals_are_listed(tmp_path):
    with pytest.raises(greta.torch.ExportError) as e:
        text_of(*made("Refused"), tmp_path)
    problems = {p.operator: p for p in e.value.problems}
    assert {"aten.conv1d", "aten.cumsum"} <= {k.removesuffix(".default") for k in problems}
    assert any("sort" in k for k in problems)
    assert all("blocks.py:" in p.where for p in e.value.problems)
    assert not (tmp_path / "m.yaml").exists()
    with pytest.raises(greta.torch.ExportError, match="other tokens by attention alone"):
        text_of(*made("Flip"), tmp_path)
    with pytest.raises(greta.torch.ExportError, match="give the results of all tokens"):
        text_of(*made("LastOnly"), tmp_path)


class Block(torch.nn.Module):
    """A block that one thing is wrong with."""

    def __init__(self, forward):
        super().__init__()
        self.n, self.l = torch.nn.GroupNorm(2, 8), torch.nn.Linear(8, 8)
        self.lstm, self.gru = torch.nn.LSTM(8, 8), torch.nn.GRU(8, 8)
        self.register_buffer("cache", torch.zeros(1, 12, 8))
        self.step = forward

    def forward(self, x):
        return self.step(self, x)


def causal(s, shift=0):
    return torch.full((s, s), float("-inf")).triu(1 + shift)


def attend(x, mask):
    return torch.softmax(x @ x.transpose(1, 2) + mask, -1) @ x


def sinks(x):
    p = torch.cat((x @ x.transpose(1, 2) + causal(x.shape[1]), torch.ones(1, x.shape[1], 2)), -1).softmax(-1)
    return p[..., :-2] @ x


def apart(x):
    p = (x @ x.transpose(1, 2) + causal(x.shape[1])).softmax(-1)
    return p[..., :6, :] @ x


def write(y, x):
    y[..., 0::2] = x[..., :4]
    return y


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda m, x: torch.sin(m.l(x)), "aten.sin: no operator"),
        (lambda m, x: m.n(m.l(x).transpose(1, 2)).transpose(1, 2), "group_norm: over the tokens"),
        (lambda m, x: m.lstm(x)[0], "aten.lstm.input: a recurrence over the tokens"),
        (lambda m, x: m.gru(x)[0].mul_(2), "aten.gru.input: a recurrence over the tokens"),
        (lambda m, x: torch.stack([m.l(x[:, i]) for i in range(x.shape[1])], 1), "a loop over the tokens is a recurr"),
        (lambda m, x: sinks(m.l(x)), "aten.cat: scores are put beside others than one number"),
        (lambda m, x: apart(m.l(x)), "some scores are taken"),
        (lambda m, x: x, "it is the input itself"),
        (lambda m, x: m.l(write(torch.zeros_like(x), x)), "constants are put beside activations"),
        (lambda m, x: write(m.l(x), torch.zeros_like(x)), "constants are put beside activations"),
        (lambda m, x: attend(m.l(x), causal(x.shape[1], 1)), "shows a token some of those behind it"),
        (lambda m, x: attend(m.l(x), torch.arange(12.0) ** 2 * torch.ones(12, 12) / 9), "adds other numbers"),
        (lambda m, x: m.l(x) * torch.arange(x.shape[1])[:, None], "no rotation"),
        (lambda m, x: m.l(x) + torch.arange(x.shape[1])[:, None], "depend on the position"),
        (lambda m, x: m.l(x)[:, -1], "give the results of all tokens"),
        (lambda m, x: (m.l(x), x * 2), "2 tensors"),
        (lambda m, x: torch.roll(m.l(x), 1, 1) + x, "different tokens meet"),
        (lambda m, x: m.cache.add_(m.l(x)), "keeps state in a buffer"),
        (lambda m, x: torch.ones(3), "does not depend on the inputs"),
        (lambda m, x: m.l(x) if x.sum() > 0 else x, "cannot follow it"),
        (lambda m, x: torch.softmax(x @ x.transpose(1, 2), 1) @ x, "something else than the values"),
    ],
)
def test_refused(forward, message, tmp_path):
    with pytest.raises(greta.torch.ExportError, match=message):
        text_of(Block(forward).eval(), torch.randn(1, 12, 8), tmp_path)


def test_examples_are_checked(tmp_path):
    m = torch.nn.Linear(8, 8)
    with pytest.raises(greta.UsageError, match="at least 4"):
        text_of(m, torch.randn(1, 2, 8), tmp_path)
    with pytest.raises(greta.UsageError, match="activations"):
        text_of(m, torch.randn(8), tmp_path)
    with pytest.raises(greta.ArgumentTypeError, match="path is 5: a path"):
        greta.torch.export(m, torch.ones(1, 5, 8), 5)
    with pytest.raises(greta.ArgumentTypeError, match="module is <function.*Module is expected"):
        greta.torch.export(lambda x: x, torch.ones(1, 5, 8), tmp_path / "x.yaml")
    with pytest.raises(greta.UsageError, match="no tensor"):
        text_of(m, (), tmp_path)
    assert issubclass(greta.torch.ExportError, greta.GretaError)


def test_modes_of_parts(tmp_path):
    """Parts of a module keep modes of their own."""
    m = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5).eval()).train()
    m[1].eval()
    text_of(m, torch.randn(1, 6, 8), tmp_path)
    assert m.training and m[0].training and not m[1].training


def test_another_network_from_some_length_on(tmp_path):
    m = Block(lambda m, x: m.l(x) if x.shape[1] < 30 else m.l(m.l(x))).eval()
    with pytest.raises(greta.torch.ExportError, match="with 37 tokens it computes something else than with 12: rel"):
        text_of(m, torch.randn(1, 12, 8), tmp_path)
    short = Block(lambda m, x: m.l(x) + m.l(x[:, :20])).eval()
    written = greta.torch.export(short, torch.randn(1, 12, 8), tmp_path / "short.yaml")
    assert "compared with at most 12 tokens: with 37 the module does not run" in written.notes[0]


class Reading(torch.nn.Module):
    """It looks at its own signature, as transformers does, which PyTorch's analysis of code does not follow."""

    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.l(x) if "x" in type(self).forward.__code__.co_varnames else x


def test_code_that_cannot_be_analysed(tmp_path):
    assert "linear(" in text_of(Reading(), torch.randn(1, 6, 8), tmp_path)


def test_transformers(tmp_path):
    """A whole model of transformers."""
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(
        "qwen3",
        hidden_size=64,
        intermediate_size=96,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_hidden_layers=2,
        vocab_size=100,
        max_position_embeddings=64,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    ids = torch.randint(0, 100, (1, 40))
    module = Logits(model)
    written = greta.torch.export(module, ids[:, :8], tmp_path / "qwen3.yaml")
    with torch.no_grad():
        want = module.eval().double()(ids)[0]
    with greta.load(written.model, weights=written.weights, kv="f32", context=64, exact=True) as m:
        got = torch.from_numpy(m.logits(ids[0].tolist())).double()
    assert float((got - want).norm() / want.norm()) < 1e-4


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


def test_many_exports(tmp_path):
    """PyTorch follows a piece of code, such as the call of its own modules, eight times; exports go on."""
    for n in range(4, 14):
        assert greta.torch.export(torch.nn.Linear(8, 8), torch.randn(1, n, 8), tmp_path / f"{n}.yaml").error == 0


def test_folder_and_mode(tmp_path):
    """A folder is what greta runs by its name; the module's mode is left as it was."""
    m = torch.nn.Sequential(torch.nn.Linear(8, 8, dtype=torch.bfloat16), torch.nn.Dropout(0.5)).train()
    e = greta.torch.export(m, torch.randn(2, 6, 8, dtype=torch.bfloat16), tmp_path / "out", name="tiny")
    assert m.training and m[1].training and (e.model, e.weights) == (
        tmp_path / "out" / "greta.yaml",
        tmp_path / "out" / "model.safetensors",
    )
    assert "block: tiny" in e.model.read_text() and "2 sequences" in e.notes[0]
    with greta.load(tmp_path / "out", context=8) as model:
        assert model.info.dtype == "bf16"
