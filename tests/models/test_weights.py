"""Initial weights from a file: read back exactly, converted from flax, and refused with a message."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from fedxray.errors import BadInput
from fedxray.models import build
from fedxray.models.weights import load_weights, weights_path
from fedxray.seeds import fork
from tests.models.spaces import images


def network(seed: int) -> nn.Module:
    return build("cnn-femnist", images(62, 1, 28), generator=fork(seed))


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_a_file_replaces_the_drawn_weights(tmp_path: Path, suffix: str) -> None:
    saved, model = network(0).state_dict(), network(1)
    path = tmp_path / f"start.{suffix}"
    if suffix == "npz":
        np.savez(path, **{name: value.numpy() for name, value in saved.items()})  # type: ignore[arg-type]
    else:
        save_file(saved, path)
    load_weights(model, path)
    assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())


def test_arrays_of_another_byte_order(tmp_path: Path) -> None:
    saved, model = network(0).state_dict(), network(1)
    np.savez(tmp_path / "w.npz", **{name: value.numpy().astype(">f4") for name, value in saved.items()})  # type: ignore[arg-type]
    load_weights(model, tmp_path / "w.npz")
    assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())


def test_flax_layers_compute_the_same(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    shapes = {"Conv_0": (3, 3, 1, 32), "Conv_1": (3, 3, 32, 64), "Dense_0": (3136, 100), "last_layer": (100, 62)}
    arrays = {f"{name}/kernel": draw.normal(size=shape) * 0.1 for name, shape in shapes.items()}
    arrays |= {f"{name}/bias": draw.normal(size=shape[-1]) for name, shape in shapes.items()}
    np.savez(tmp_path / "flax.npz", **arrays)  # type: ignore[arg-type]
    model = network(0).double()
    load_weights(model, tmp_path / "flax.npz")
    x = torch.tensor(draw.normal(size=(2, 28, 28, 1)))
    theirs = x  # the same network by explicit sums, in flax's order of axes
    for name in ("Conv_0", "Conv_1"):
        kernel, bias = (torch.tensor(arrays[f"{name}/{part}"]) for part in ("kernel", "bias"))
        size = theirs.shape[1]
        padded = functional.pad(theirs, (0, 0, 1, 1, 1, 1))
        windows = [padded[:, i : i + size, j : j + size] @ kernel[i, j] for i in range(3) for j in range(3)]
        theirs = (torch.stack(windows).sum(0) + bias).relu()
        theirs = theirs.view(2, size // 2, 2, size // 2, 2, -1).mean(dim=(2, 4))
    for name in ("Dense_0", "last_layer"):
        kernel, bias = (torch.tensor(arrays[f"{name}/{part}"]) for part in ("kernel", "bias"))
        theirs = theirs.flatten(1) @ kernel + bias
        theirs = theirs.relu() if name == "Dense_0" else theirs
    assert torch.allclose(model(x.permute(0, 3, 1, 2)), theirs)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head.bias": None}, "without .?head.bias"),
        ({"other": torch.zeros(2)}, "other.? beside them"),
        ({"head.bias": torch.zeros(3)}, r"head.bias of shape \[62\].*shape \[3\]"),
        ({"head.bias": torch.full((62,), torch.nan)}, "finite"),
        ({"head.bias": torch.full((62,), 1e300, dtype=torch.float64)}, "finite numbers as float32"),
        ({"head.bias": torch.zeros(62, dtype=torch.complex64)}, "real numbers in head.bias.*complex64"),
        ({"head.bias": torch.zeros(62).to(torch.float8_e4m3fn)}, "real numbers in head.bias.*float8"),
        ({"head.bias": torch.zeros(62, dtype=torch.bool)}, "real numbers in head.bias.*bool"),
    ],
)
def test_wrong_weights(tmp_path: Path, change: dict[str, torch.Tensor | None], words: str) -> None:
    given = {**network(0).state_dict(), **change}
    save_file({name: value for name, value in given.items() if value is not None}, tmp_path / "w.safetensors")
    with pytest.raises(BadInput, match=words):
        load_weights(network(1), tmp_path / "w.safetensors")


@pytest.mark.parametrize("content", [b"", b"\x80\x04N.", b"\x08\0\0\0\0\0\0\0{}      "])
@pytest.mark.parametrize("suffix", ["safetensors", "npz", "pt"])
def test_wrong_files(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"w.{suffix}"
    path.write_bytes(content)
    with pytest.raises(BadInput):
        load_weights(network(1), path)


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, data = tmp_path / "plan", tmp_path / "data"
    for folder in (beside, data):
        folder.mkdir()
    monkeypatch.setenv("FEDXRAY_DATA", str(data))
    with pytest.raises(BadInput, match=r"w\.npz"):
        weights_path("w.npz", beside)
    (data / "w.npz").touch()
    assert weights_path("w.npz", beside) == data / "w.npz"
    (beside / "w.npz").touch()
    assert weights_path("w.npz", beside) == beside / "w.npz"


def test_the_network_of_the_authors(data_folder: Path) -> None:
    model = network(0)
    load_weights(model, weights_path("models/dlf_femnist_flax_seed0.npz", data_folder))
    dense = model.get_parameter("dense.weight")
    assert abs(float(dense.detach().std()) * 3136**0.5 - 1) < 0.02 and not model.get_parameter("head.bias").any()
