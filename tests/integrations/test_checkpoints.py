"""Recordings from checkpoints: any of the formats, by name or by position, and files that execute nothing."""

from __future__ import annotations

import os
import random
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedxray.cli import main
from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.federation.recording.reader import read_recording
from fedxray.federation.recording.transcribe import choose, transcribe
from fedxray.integrations.checkpoints import import_folder, import_pair, read_checkpoint

SPACE = Space(kind="table", shape=(3,), target="regression")


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))


def write(path: Path, model: nn.Module) -> Path:
    """Write a checkpoint in the format of its suffix."""
    state = model.state_dict()
    if path.suffix == ".safetensors":
        save_file(state, path)
    elif path.suffix == ".npz":
        np.savez(path, *[value.numpy() for value in state.values()])
    else:
        torch.save({"epoch": 3, "model": state} if path.suffix == ".pth" else state, path)  # noqa: TID251
    return path


def transcript(folder: Path) -> Any:
    return transcribe(choose(read_recording(folder)), model=network(0), space=SPACE, recipe=Recipe(loss="mse"))


@pytest.mark.parametrize("ending", [".safetensors", ".pt", ".pth", ".npz"])
def test_two_checkpoints_are_one_round(tmp_path: Path, ending: str) -> None:
    before, after = network(1), network(2)
    files = [write(tmp_path / f"{name}{ending}", model) for name, model in (("b", before), ("a", after))]
    import_pair(files[0], files[1], tmp_path / "out", round=4, examples=7, recipe={"epochs": 2})
    recorded = transcript(tmp_path / "out")
    assert recorded.rounds() == [3] and recorded.recorded
    reply = next(one for one in recorded.messages if one.what == "reply")
    assert reply.examples == 7
    for name, value in before.state_dict().items():
        assert torch.equal(recorded.shelf.get("sent/3").params[name], value)
        change = after.state_dict()[name] - value
        assert torch.equal(recorded.shelf.get(reply.parts).params[name], change)
    assert read_recording(tmp_path / "out").messages[0].config == {"epochs": 2}


def test_a_folder_of_rounds(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    for round in range(3):  # counted from 0, as some frameworks do
        write(folder / f"global-{round}.safetensors", network(round))
        if round < 2:
            write(folder / f"local-{round}.pt", network(10 + round))
    (folder / "notes.txt").write_text("x")
    assert import_folder(folder, tmp_path / "out") == [1, 2, 3]
    recorded = transcript(tmp_path / "out")
    assert recorded.rounds() == [0, 1, 2]
    assert [one.round for one in recorded.messages if one.what == "reply"] == [0, 1]


def test_the_files_of_a_flower_tutorial(tmp_path: Path) -> None:
    """Aggregated weights as numpy.savez(f"round-{round}-weights.npz", *arrays)."""
    for round in (1, 2, 10):
        write(tmp_path / f"round-{round}-weights.npz", network(round))
    assert import_folder(tmp_path, tmp_path / "out", sent="round-{round}-weights.npz", reply=None) == [1, 2, 10]
    recorded = transcript(tmp_path / "out")
    assert recorded.rounds() == [0, 1, 9]
    assert torch.equal(recorded.shelf.get("sent/9").params["0.weight"], network(10).state_dict()["0.weight"])


def test_names_of_a_wrapped_network(tmp_path: Path) -> None:
    state = {f"module.{name}": value for name, value in network(0).state_dict().items()}
    save_file(state, tmp_path / "a.safetensors")
    assert set(read_checkpoint(tmp_path / "a.safetensors")) == set(network(0).state_dict())


class Harmful:
    """An object that would make a folder when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def test_nothing_in_a_checkpoint_is_executed(tmp_path: Path) -> None:
    torch.save({"weight": Harmful(str(tmp_path / "made"))}, tmp_path / "evil.pt")  # noqa: TID251
    with pytest.raises(BadInput, match=r"expected a file of tensors .* got posix.mkdir, which is not"):
        read_checkpoint(tmp_path / "evil.pt")
    assert not (tmp_path / "made").exists()


def hostile() -> dict[str, tuple[Any, str]]:
    """Return saved tensors that are no plain weights, each with the message that refuses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layouts that are new or old
        return {
            "expanded": (torch.zeros(1).expand(200_000, 200_000), "tensor 'w' of .*at most .* got 160000000000 bytes"),
            "complex": (torch.zeros(3, dtype=torch.complex64).conj(), "real numbers in tensor 'w', got torch.com"),
            "meta": (torch.zeros(3, device="meta"), "a tensor with values in tensor 'w', got one on meta"),
            "sparse": (torch.eye(3).to_sparse(), "a dense tensor in tensor 'w', got sparse_coo"),
            "rows": (torch.eye(3).to_sparse_csr(), "a dense tensor in tensor 'w', got sparse_csr"),
            "nested": (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "got a nested one"),
            "quantised": (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "plain numbers in tensor 'w'"),
            "half": (torch.zeros(2, dtype=torch.bfloat16), "NumPy knows in tensor 'w', got torch.bfloat16"),
            "eighth": (torch.zeros(2, dtype=torch.float8_e4m3fn), "NumPy knows in tensor 'w'"),
            "unsigned": (torch.zeros(2, dtype=torch.uint16), "numbers of F16.* in tensor 'w', got uint16"),
        }  # fmt: skip


@pytest.mark.parametrize("kind", list(hostile()))
def test_tensors_that_are_no_plain_weights_are_refused(tmp_path: Path, kind: str) -> None:
    value, message = hostile()[kind]
    file = tmp_path / f"{kind}.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save({"w": value}, file)  # noqa: TID251
        with pytest.raises(BadInput, match=message) as refused:
            read_checkpoint(file)
    assert kind in str(refused.value), "the file is named"


def test_the_size_of_an_archive_is_checked_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"w": torch.zeros(200_000)}, tmp_path / "plain.pt")  # noqa: TID251
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(tmp_path / "a.pt", "w", 8) as packed:
        for part in plain.namelist():
            packed.writestr(part, plain.read(part))
    assert (tmp_path / "a.pt").stat().st_size < 5_000
    monkeypatch.setenv("FEDXRAY_MAX_BYTES", "5000")
    with pytest.raises(BadInput, match="unpacked: expected at most 5000 bytes"):
        read_checkpoint(tmp_path / "a.pt")
    monkeypatch.delenv("FEDXRAY_MAX_BYTES")
    with pytest.raises(BadInput, match="parts that are not packed"):  # a directory may state any size of a packed part
        read_checkpoint(tmp_path / "a.pt")


def test_damaged_files_of_torch_are_bad_input(tmp_path: Path) -> None:
    """Some bytes changed: every error of torch becomes bad input."""
    draw = random.Random(0)
    file, refused = tmp_path / "a.pt", 0
    for old in (False, True):
        torch.save(network(0).state_dict(), file, _use_new_zipfile_serialization=not old)  # noqa: TID251
        content = file.read_bytes()
        for _ in range(60):
            changed = bytearray(content)
            for _ in range(3):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            file.write_bytes(bytes(changed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    arrays = read_checkpoint(file)
                except BadInput:
                    refused += 1
                else:  # only numbers were changed, or nothing that counts
                    assert all(np.isfinite(value).all() for value in arrays.values())
    assert 0 < refused < 120


def archive(path: Path, instructions: bytes) -> Path:
    """Write a file in the archive format of torch, with these instructions."""
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("archive/data.pkl", instructions)
        packed.writestr("archive/version", "3\n")
        packed.writestr("archive/byteorder", "little")
    return path


TWICE = b"\x80\x02)q\x00" + b"h\x00h\x00\x86q\x00" * 40  # a tuple that holds the one before it twice


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        (TWICE + b"}h\x00K\x01s.", "a tuple of more than 1000 parts"),
        (b"\x80\x02" + b"(" + b"K\x01" * 2000 + b"t.", "a tuple of more than 1000 parts"),
        (b"\x80\x02}(K\x01\x85K\x02u.", "names that are neither text nor number"),
        (b"\x80\x02}\x8a\x0c" + b"\x01" * 12 + b"K\x01s.", "names that are neither text nor number"),
        (b"\x80\x02ccollections\nOrderedDict\n]\x85R.", "OrderedDict that is filled"),
        (b"\x80\x02" + b"N" * 5_000_000 + b".", "5000003 bytes of instructions"),
        (b"\x80\x02h\x07.", "damaged or cut-off content"),
        (b"\x80\x02u.", "damaged or cut-off content"),
        (b"\x80\x02R.", "damaged or cut-off content"),
    ],
)
def test_instructions_that_would_never_end_are_refused(tmp_path: Path, instructions: bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_checkpoint(archive(tmp_path / "a.pt", instructions))
    if b"N" * 5_000_000 not in instructions:
        (tmp_path / "old.pt").write_bytes(instructions)  # without an archive, as torch once wrote it
        with pytest.raises(BadInput, match=f"{message}|damaged"):
            read_checkpoint(tmp_path / "old.pt")


def test_what_training_scripts_save_is_read(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    saved = {"epoch": 3, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "best": 0.5}
    for old in (False, True):
        torch.save(saved, tmp_path / "a.pt", _use_new_zipfile_serialization=not old)  # noqa: TID251
        assert set(read_checkpoint(tmp_path / "a.pt")) == set(model.state_dict())


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    state = network(0).state_dict()
    name = next(iter(state))
    save_file({**state, name: torch.full_like(state[name], float("nan"))}, tmp_path / "a.safetensors")
    with pytest.raises(BadInput, match=f"finite numbers in tensor '{name}', got NaN or infinity"):
        read_checkpoint(tmp_path / "a.safetensors")


def test_a_missing_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"expected a file, got none\. Check the path\."):
        read_checkpoint(tmp_path / "a.pt")


def test_positions_are_not_compared_with_names(tmp_path: Path) -> None:
    state = network(0).state_dict()
    np.savez(tmp_path / "a.npz", *[value.numpy() for value in state.values()])
    save_file(state, tmp_path / "b.safetensors")
    with pytest.raises(BadInput, match=r"arrays by position, as in a.npz, got arrays by name\. Save both"):
        import_pair(tmp_path / "a.npz", tmp_path / "b.safetensors", tmp_path / "out")


def test_names_must_be_text(tmp_path: Path) -> None:
    torch.save({1: torch.zeros(2), "1": torch.zeros(3)}, tmp_path / "a.pt")  # noqa: TID251
    with pytest.raises(BadInput, match="1 in place of a name"):
        read_checkpoint(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.bin", b"x", "a file of .safetensors, .pt, .pth, .npz"),
        ("a.safetensors", b"x", "a safetensors file"),
        ("a.pt", b"x", "a file of tensors"),
        ("a.npz", b"x", "an NPZ file"),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_checkpoint(tmp_path / name)


def test_content_other_than_weights_is_refused(tmp_path: Path) -> None:
    torch.save({"lr": 0.1, "step": 3}, tmp_path / "a.pt")  # noqa: TID251
    with pytest.raises(BadInput, match="a state dict: names and tensors, got a dictionary with lr, step"):
        read_checkpoint(tmp_path / "a.pt")
    save_file({"a": torch.zeros(2, dtype=torch.bfloat16)}, tmp_path / "b.safetensors")
    with pytest.raises(BadInput, match="Save the weights as float32"):
        read_checkpoint(tmp_path / "b.safetensors")
    with pytest.raises(BadInput, match="expected a file, got none"):
        read_checkpoint(tmp_path / "none.pt")


def test_two_networks_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.pt", network(0))
    write(tmp_path / "b.pt", nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 1)))
    with pytest.raises(BadInput, match=r"the same arrays as a.pt: '0.weight' \[2, 3\], got \[2, 4\]"):
        import_pair(tmp_path / "a.pt", tmp_path / "b.pt", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("files", "settings", "message"),
    [
        ([], {}, r"expected files called global-{round}.\*, got an empty folder"),
        (["x-1.pt"], {}, "got x-1.pt"),
        (["global-1.pt", "global-1.npz"], {}, "one file for round 1"),
        (["global-1.pt", "local-2.pt"], {}, "the model that was sent in round 2"),
        (["global-1.pt"], {}, r'files? called local-{round}.\*, got global-1.pt. .* --reply ""'),
        (["global-1.pt"], {"sent": "global.pt"}, "a file name with {round} in it"),
    ],
)
def test_folders_without_matching_files_are_refused(
    tmp_path: Path, files: list[str], settings: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    for name in files:
        write(folder / name, network(0))
    with pytest.raises(BadInput, match=message):
        import_folder(folder, tmp_path / "out", **settings)


def test_an_old_recording_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "global-1.pt", network(0))
    import_folder(tmp_path, tmp_path / "out", reply=None)
    with pytest.raises(BadInput, match="a new or empty folder"):
        import_folder(tmp_path, tmp_path / "out", reply=None)


@pytest.mark.parametrize("there", [False, True])
def test_a_failed_import_leaves_nothing(tmp_path: Path, there: bool) -> None:
    """The third round is another network: rounds one and two must not look like a complete recording."""
    out = tmp_path / "out"
    if there:
        out.mkdir()
    for round in (1, 2, 3):
        write(tmp_path / f"global-{round}.pt", network(round) if round < 3 else nn.Linear(3, 2))
    with pytest.raises(BadInput, match=r"global-3.pt.*the same arrays as global-1.pt"):
        import_folder(tmp_path, out, reply=None)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == (["out"] if there else [])
    assert not there or not list(out.iterdir())
    (tmp_path / "global-3.pt").unlink()
    import_folder(tmp_path, out, reply=None)
    assert sorted(path.name for path in out.iterdir()) == ["arrays", "messages", "recording.json"]
    assert len(read_recording(out).messages) == 2


def test_replies_with_another_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "global-1.pt", network(0))
    write(tmp_path / "client-1.pt", network(1))
    with pytest.raises(BadInput, match=r"--reply: expected at least one file called local-.*got client-1.pt"):
        import_folder(tmp_path, tmp_path / "out")


def test_weights_are_of_one_kind(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(2), "count": torch.tensor(3.5)}, tmp_path / "a.safetensors")
    save_file({"w": torch.zeros(2, dtype=torch.int64), "count": torch.tensor(3)}, tmp_path / "b.safetensors")
    save_file({"w": torch.zeros(2, dtype=torch.float16), "count": torch.tensor(3)}, tmp_path / "c.safetensors")
    with pytest.raises(BadInput, match=r"b.safetensors.*'w' of float32, as in a.safetensors, got int64"):
        import_pair(tmp_path / "a.safetensors", tmp_path / "b.safetensors", tmp_path / "out")
    import_pair(tmp_path / "a.safetensors", tmp_path / "c.safetensors", tmp_path / "out")


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"learning_rate": float("nan")}, "--learning-rate: expected a number above 0 and up to 1e6, got nan"),
        ({"learning_rate": float("inf")}, "--learning-rate"),
        ({"learning_rate": -0.1}, "--learning-rate"),
        ({"momentum": 1.0}, "--momentum: expected a number from 0 up to but below 1, got 1.0"),
        ({"momentum": float("nan")}, "--momentum"),
        ({"epochs": 10**10}, "--epochs"),
    ],
)
def test_recipes_out_of_range_are_refused(tmp_path: Path, recipe: dict[str, Any], message: str) -> None:
    for name in ("global-1.pt", "local-1.pt"):
        write(tmp_path / name, network(0))
    with pytest.raises(BadInput, match=message):
        import_folder(tmp_path, tmp_path / "out", recipe=recipe)
    with pytest.raises(BadInput, match=message):
        import_pair(tmp_path / "global-1.pt", tmp_path / "local-1.pt", tmp_path / "out", recipe=recipe)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    write(tmp_path / "a.pt", network(0))
    with pytest.raises(BadInput, match="--out: expected a folder that can be written"):
        import_pair(tmp_path / "a.pt", tmp_path / "a.pt", tmp_path / "a.pt" / "out")


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["fedxray", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, seed in (("before", 0), ("after", 1), ("global-1", 0), ("local-1", 1)):
        write(tmp_path / f"{name}.safetensors", network(seed))
    recipe = ["--epochs", "2", "--batch-size", "8", "--learning-rate", "0.1", "--momentum", "0.9", "--examples", "5"]
    assert command(monkeypatch, "import", "checkpoints", "before.safetensors", "after.safetensors", *recipe) == 0
    assert "recording: 1 round (0, the first is 0), 1 with a reply" in capsys.readouterr().out
    first = read_recording("recording").messages[0]
    assert first.config == {"epochs": 2, "batch_size": 8, "learning_rate": 0.1, "momentum": 0.9}
    assert first.examples == 5
    assert command(monkeypatch, "import", "show", "recording") == 0
    message = capsys.readouterr().out
    assert (
        "checkpoints side, 1 messages" in message and "node checkpoints 1 rounds (0), 1 replies, 5 examples" in message
    )
    assert "sent along  epochs, batch_size, learning_rate, momentum" in message
    assert "arrays      4, 11 numbers in all" in message and "0.weight [2, 3] float32" in message
    assert command(monkeypatch, "import", "show", "nowhere") == 2
    for round in (2, 3):
        write(tmp_path / f"global-{round}.safetensors", network(round))
    assert command(monkeypatch, "import", "rounds", ".", "--out", "other") == 0
    assert "other: 3 rounds (0 to 2, the first is 0), 1 with a reply" in capsys.readouterr().out
    assert command(monkeypatch, "import", "rounds", ".", "--out", "other") == 2
    assert "a new or empty folder" in capsys.readouterr().err
