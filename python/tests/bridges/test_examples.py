"""The examples of docs/pytorch.md run, in their order; those of a package that is not installed are left out."""

import functools
import importlib.util
import re
from pathlib import Path

import greta

ROOT = Path(__file__).resolve().parents[3]


def there(name):
    return importlib.util.find_spec(name) is not None


def test_examples(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "pytorch.md").read_text("utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    scope = {"__name__": __name__}  # which PyTorch imports
    if there("torch"):
        import torch

        # What needs no compiler of C++.
        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
        scope.update(
            block=torch.nn.Sequential(torch.nn.RMSNorm(2048, eps=1e-6), torch.nn.Linear(2048, 2048, bias=False)),
            x=torch.randn(16, 2048),
            A=torch.randn(3, 64),
            B=torch.randn(64, 32).to(torch.float8_e4m3fn),
            scale_a=2.0,
            scale_b=torch.ones(32),
            bias=torch.zeros(32),
        )
    run = 0
    with greta.load("mlp_block", set={"D": 64, "F": 128}, context=64) as model:
        for example in examples:
            needs = "jax" if "jax" in example else "torch"
            if there(needs):
                own = dict(scope, model=model) if needs == "jax" else scope
                exec(compile(example, "docs/pytorch.md", "exec"), own)
                run += 1
                if needs == "jax":
                    import numpy as np

                    assert np.allclose(own["f"](np.ones((3, 64), np.float32)), 2 * model(np.ones((3, 64))), rtol=1e-3)
    assert len(examples) == 4 and run == 3 * there("torch") + there("jax")
    if there("torch"):
        assert scope["y"].shape == (16, 2048) and scope["C"].shape == (3, 32)
        assert scope["f"](scope["x"]).min() >= 0
