"""A user's own network: what is accepted, what is refused and why."""

from __future__ import annotations

import pytest
import torch

from fedxray.errors import BadInput
from fedxray.models import from_factory
from fedxray.seeds import fork
from tests.models.spaces import table

HERE = "tests.models.factories"


@pytest.mark.parametrize("name", ["with_space", "without_argument", "with_default", "collecting", "in_double", "Own"])
def test_accepted(name: str) -> None:
    model = from_factory(f"{HERE}:{name}", table(4), fork(0))
    weight = next(model.parameters())
    assert model.eval()(torch.zeros(5, 4, dtype=weight.dtype)).shape == (5, 1)


def test_weights_follow_the_generator_and_nothing_else() -> None:
    torch.manual_seed(1)
    first = from_factory(f"{HERE}:Own", table(4), fork(7))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    with torch.device("meta"):
        second = from_factory(f"{HERE}:Own", table(4), fork(7))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first.get_parameter("scale"), second.get_parameter("scale"))
    assert not torch.equal(
        first.get_parameter("scale"), from_factory(f"{HERE}:Own", table(4), fork(8)).get_parameter("scale")
    )


def test_trying_out_changes_neither_statistics_nor_modes() -> None:
    model = from_factory(f"{HERE}:partly_frozen", table(4), fork(0))
    assert not model.get_buffer("2.num_batches_tracked").any() and not model.get_buffer("2.running_mean").any()
    assert [layer.training for layer in model.children()] == [True, True, False, True, True] and model.training


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no-colon", "module:function"),
        (":build", "module:function"),
        ("module:", "module:function"),
        ("package_that_is_not_there.models:build", "PYTHONPATH"),
        (f"{HERE}:missing", "nothing of that name"),
        (f"{HERE}:not_callable", "got int"),
        (f"{HERE}:keyword_only", "space"),
        (f"{HERE}:two_arguments", "space, width"),
        (f"{HERE}:returns_a_number", "nn.Module"),
        (f"{HERE}:wrong_input", "inputs [2, 4]"),
        (f"{HERE}:wrong_output", "[2, 2]"),
        (f"{HERE}:Flat", "last dimension"),
        (f"{HERE}:Pair", "got tuple"),
        (f"{HERE}:nothing_to_train", "trainable"),
    ],
)
def test_refused_with_a_reason(path: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        from_factory(path, table(4), fork(0))
    assert caught.value.argument == "factory" and words in str(caught.value)


def test_an_error_inside_the_module_is_told_with_its_place(tmp_path, monkeypatch) -> None:
    (tmp_path / "fedxray_test_broken.py").write_text("x = 1\nraise KeyError('inside')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match=r"KeyError: 'inside' \(in .*fedxray_test_broken\.py:2\)"):
        from_factory("fedxray_test_broken:build", table(4), fork(0))


BREAKING = """
import sys
import torch
from torch import nn

def raises(space):
    raise ValueError("boom")

def leaves(space):
    sys.exit(7)

def inside_torch(space):
    return nn.Linear(-1, 3)

class Odd(nn.Linear):
    def forward(self, x):
        raise KeyError("blank")

def odd(space):
    return Odd(4, 1)
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", r"ValueError: boom \(in .*breaking\.py:7\)"),
        ("leaves", r"SystemExit: 7 \(in .*breaking\.py:10\)"),
        ("inside_torch", r"RuntimeError: .* \(in .*breaking\.py:13\)"),
        ("odd", r"inputs \[2, 4\], got KeyError: 'blank' \(in .*breaking\.py:17\)"),
    ],
)
def test_whatever_a_factory_raises_is_told_with_its_place(tmp_path, monkeypatch, name, words) -> None:
    (tmp_path / "fedxray_test_breaking.py").write_text(BREAKING)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match=words):
        from_factory(f"fedxray_test_breaking:{name}", table(4), fork(0))


def test_a_factory_without_a_signature_is_refused() -> None:
    with pytest.raises(BadInput, match="a function with a signature"):
        from_factory("builtins:dict", table(4), fork(0))
