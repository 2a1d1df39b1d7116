"""Transcripts in folders: what was written is read back, and nothing else is accepted."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from safetensors.torch import load_file, save
from torch import nn

from fedxray.adversary import roles
from fedxray.errors import BadInput
from fedxray.federation import folder as shards
from fedxray.federation.folder import FolderShelf, read_transcript, transcript_bytes, write_transcript
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.federation.transcript import MemoryShelf, Parts, Transcript
from fedxray.files import NoSpaceError
from tests.federation.runs import federation, network, space

INDEX = "transcript.json"


def recorded(folder: Path, run: Federation, shard_bytes: int = 3000) -> Transcript:
    transcript, _ = simulate(run, seed=3, shelf=FolderShelf(folder, shard_bytes=shard_bytes))
    write_transcript(transcript, folder)
    return transcript


def reread(folder: Path, model: nn.Module | None = None) -> Transcript:
    """Read a folder and every tensor in it."""
    transcript = read_transcript(folder, model=model or network("norm"), space=space())
    for message in transcript.messages:
        transcript.shelf.get(message.parts)
    return transcript


def assert_same(left: Transcript, right: Transcript) -> None:
    assert left.messages == right.messages
    assert (left.loss, left.clients, left.secure_aggregation) == (right.loss, right.clients, right.secure_aggregation)
    for key in {message.parts for message in left.messages}:
        one, other = left.shelf.get(key), right.shelf.get(key)
        for before, after in ((one.params, other.params), (one.buffers, other.buffers)):
            assert list(before) == list(after)
            for name, value in before.items():
                assert torch.equal(value, after[name]) and value.dtype == after[name].dtype


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished folder of several shards, with parameters and buffers."""
    folder = tmp_path_factory.mktemp("good") / "run"
    recorded(folder, federation(model="norm", rounds=3, recipe={"batch_size": 4}, sizes=(8, 4)))
    assert len(list(folder.glob("tensors-*"))) > 2
    return folder


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "copy"))


def change_index(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))


def replace_shard(folder: Path, number: int, content: bytes) -> None:
    """Put other bytes into a shard and make the index agree, as an attacker would."""

    def agree(index: dict[str, Any]) -> None:
        index["shards"][number].update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())

    (folder / f"tensors-{number:05d}.safetensors").write_bytes(content)
    change_index(folder, agree)


@pytest.mark.parametrize(
    "run",
    [
        federation(),
        federation(model="norm", recipe={"batch_size": 4}, sizes=(8, 4)),
        federation(model="norm", recipe={"batch_size": 4, "batch_norm": "local"}, sizes=(8, 4)),
        federation(secure_aggregation=True, participation=0.5),
        federation(recipe={"algorithm": "fedsgd"}, record=(0,), rounds=3),
        federation(dtype=torch.float64),
    ],
    ids=["plain", "norm-shared", "norm-local", "masked", "gradients", "float64"],
)
def test_a_written_transcript_is_read_back(tmp_path: Path, run: Federation) -> None:
    streamed = recorded(tmp_path / "a", run)
    in_memory, _ = simulate(run, seed=3)
    read = read_transcript(tmp_path / "a", model=run.model, space=run.space)
    assert_same(in_memory, streamed)
    assert_same(in_memory, read)
    write_transcript(in_memory, tmp_path / "b")
    assert_same(in_memory, read_transcript(tmp_path / "b", model=run.model, space=run.space))


def test_a_transcript_can_be_copied_from_folder_to_folder(good: Path, tmp_path: Path) -> None:
    transcript = reread(good)
    write_transcript(transcript, tmp_path / "again")
    assert_same(transcript, reread(tmp_path / "again"))
    with pytest.raises(BadInput, match="finished"):
        transcript.shelf.put("new", Parts({}))


def test_the_order_of_parameters_is_the_models(good: Path) -> None:
    transcript = reread(good)
    names = [name for name, _ in network("norm").named_parameters()]
    assert list(transcript.shelf.get("global/0").params) == names


def test_a_broadcast_is_stored_once(good: Path) -> None:
    stored = [name for shard in sorted(good.glob("tensors-*")) for name in load_file(shard)]
    assert len(stored) == len(set(stored))
    kept = {name.split(":")[0] for name in stored}
    assert {f"global/{round}" for round in range(4)} == {key for key in kept if key.startswith("global/")}


def test_shards_stay_small_and_little_waits_in_memory(tmp_path: Path) -> None:
    shelf = FolderShelf(tmp_path / "run", shard_bytes=10_000)
    for key in range(40):
        shelf.put(str(key), Parts({"w": torch.full((500,), float(key))}))
        assert shelf._waiting_bytes <= 10_000
    for key in (0, 17, 39):
        assert torch.equal(shelf.get(str(key)).params["w"], torch.full((500,), float(key)))
    assert all(path.stat().st_size <= 12_000 for path in (tmp_path / "run").iterdir())


def test_a_shelf_keeps_copies(tmp_path: Path) -> None:
    for shelf in (FolderShelf(tmp_path / "run"), MemoryShelf()):
        value = torch.zeros(2)
        shelf.put("key", Parts({"w": value}))
        value += 1
        assert torch.equal(shelf.get("key").params["w"], torch.zeros(2))


def test_a_large_tensor_gets_its_own_shard(tmp_path: Path) -> None:
    shelf = FolderShelf(tmp_path / "run", shard_bytes=1000)
    shelf.put("a", Parts({"small": torch.ones(2), "large": torch.ones(5000), "last": torch.ones(3)}))
    shelf.flush()
    assert len(list((tmp_path / "run").iterdir())) == 3
    assert list(shelf.get("a").params) == ["small", "large", "last"]


def test_the_folder_is_private_and_must_be_empty(tmp_path: Path) -> None:
    FolderShelf(tmp_path / "run").put("key", Parts({"w": torch.ones(1)}))
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    (tmp_path / "run" / "note.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"empty folder.*note\.txt"):
        FolderShelf(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="can be written"):
        FolderShelf(tmp_path / "file")


def test_a_key_is_kept_once_and_finite(tmp_path: Path) -> None:
    shelf = FolderShelf(tmp_path / "run")
    shelf.put("key", Parts({"w": torch.ones(1)}))
    with pytest.raises(BadInput, match="not stored yet"):
        shelf.put("key", Parts({"w": torch.ones(1)}))
    with pytest.raises(BadInput, match="finite"):
        shelf.put("other", Parts({"w": torch.tensor([float("nan")])}))
    with pytest.raises(BadInput, match="complex"):
        shelf.put("third", Parts({"w": torch.ones(1, dtype=torch.complex64)}))


def test_reading_maps_but_does_not_load(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening reads no shard at all, and one key touches only its own shards."""
    shards._opened.cache_clear()
    opened: list[str] = []
    monkeypatch.setattr("fedxray.federation.folder.safe_open", lambda path, **_: opened.append(path.name) or _Spy(path))
    transcript = read_transcript(good, model=network("norm"), space=space())
    assert opened == []
    transcript.shelf.get("global/0")
    assert 0 < len(opened) < len(list(good.glob("tensors-*")))
    shards._opened.cache_clear()


class _Spy:
    """A shard that refuses to be read whole."""

    def __init__(self, path: Path) -> None:
        from safetensors import safe_open

        self._inner = safe_open(path, framework="pt", device="cpu")

    def keys(self) -> list[str]:
        return list(self._inner.keys())

    def get_slice(self, name: str) -> Any:
        return self._inner.get_slice(name)

    def get_tensor(self, name: str) -> Any:
        assert name.startswith("global/0:")
        return self._inner.get_tensor(name)


def test_estimate_covers_the_folder(tmp_path: Path) -> None:
    wide = nn.Sequential(nn.Linear(5, 300), nn.BatchNorm1d(300), nn.Linear(300, 3))
    for number, run in enumerate(
        (
            federation((8, 4, 4), model=wide, recipe={"batch_size": 4}, rounds=6),
            federation((8, 4, 4), model=wide, recipe={"batch_size": 4, "batch_norm": "local"}, rounds=6),
            federation((8, 4, 4), model=wide, recipe={"batch_size": 4}, rounds=6, participation=0.3, record=(1, 3)),
            federation(rounds=20),
        )
    ):
        folder = tmp_path / str(number)
        recorded(folder, run, shard_bytes=60_000)
        actual = sum(path.stat().st_size for path in folder.iterdir())
        assert actual <= transcript_bytes(run) <= 1.6 * actual + 4096


# --- bad input ---


def test_a_transcript_cut_in_half(copy: Path) -> None:
    shard = copy / "tensors-00001.safetensors"
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    with pytest.raises(BadInput, match=r"tensors-00001.*expected \d+ bytes, got \d+: it was cut"):
        reread(copy)


def test_an_index_cut_in_half(copy: Path) -> None:
    text = (copy / INDEX).read_bytes()
    (copy / INDEX).write_bytes(text[: len(text) // 2])
    with pytest.raises(BadInput, match="a complete JSON file"):
        reread(copy)


def test_an_unfinished_recording(copy: Path) -> None:
    (copy / INDEX).unlink()
    with pytest.raises(BadInput, match="no such file"):
        reread(copy)
    with pytest.raises(BadInput, match="no such file"):
        reread(copy / "nowhere")


def test_an_altered_shard_is_found_at_its_first_use(copy: Path) -> None:
    shard = copy / "tensors-00000.safetensors"
    content = bytearray(shard.read_bytes())
    content[-3] ^= 1
    shard.write_bytes(content)
    transcript = read_transcript(copy, model=network("norm"), space=space())
    with pytest.raises(BadInput, match=r"SHA-256.*altered"):
        transcript.shelf.get("global/0")


def test_missing_linked_and_foreign_shards(copy: Path, tmp_path: Path) -> None:
    shard = copy / "tensors-00000.safetensors"
    kept = shard.rename(tmp_path / "kept")
    with pytest.raises(BadInput, match="no such file"):
        reread(copy)
    shard.symlink_to(kept)
    with pytest.raises(BadInput, match="a link"):
        reread(copy)
    shard.unlink()
    shard.mkdir()
    with pytest.raises(BadInput, match="plain file"):
        reread(copy)
    shard.rmdir()
    replace_shard(copy, 0, b"not tensors at all")
    with pytest.raises(BadInput, match="a shard of tensors"):
        reread(copy)


def test_a_linked_index(copy: Path, tmp_path: Path) -> None:
    kept = (copy / INDEX).rename(tmp_path / "kept.json")
    (copy / INDEX).symlink_to(kept)
    with pytest.raises(BadInput, match="a link"):
        reread(copy)


@pytest.mark.parametrize(
    "name",
    ["../tensors-00000.safetensors", "/etc/passwd", "tensors-00000.safetensors\n", "a/b.safetensors", "", "x.pkl",
     "tensors-00000.safetensors\0", ".", "tensors-٠٠٠٠٠.safetensors"],
)  # fmt: skip
def test_shard_names_are_plain(copy: Path, name: str) -> None:
    change_index(copy, lambda index: index["shards"][0].update(name=name))
    with pytest.raises(BadInput, match=r"shards\.0\.name"):
        reread(copy)


def _set(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(index: dict[str, Any]) -> None:
        inner: Any = index
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("format", to=2), "newer fedxray"),
        (_set("format", to="1"), "format"),
        (_set("kind", to="flower"), "Name a folder that fedxray recorded"),
        (_set("loss", to="__import__"), "a loss of"),
        (_set("clients", to=0), "clients"),
        (_set("clients", to=1), "client 1 of 1"),
        (_set("surprise", to=1), "surprise"),
        (_set("params", "0.weight", "shape", to=[4, 6]), r"'0.weight' float32 \[4, 5\], got float32 \[4, 6\]"),
        (_set("params", "0.weight", "dtype", to="float64"), "Give the network that was trained"),
        (_set("params", "0.weight", "dtype", to="complex64"), r"params\.0\.weight\.dtype"),
        (_set("params", "extra", to={"shape": [], "dtype": "float32"}), "'extra' absent"),
        (_set("shards", 0, "bytes", to=10**12), r"shards\.0\.bytes"),
        (_set("shards", 0, "sha256", to="0" * 63), r"shards\.0\.sha256"),
        (_set("shards", 1, "name", to="tensors-00000.safetensors"), "named twice"),
        (_set("places", "global/0", "shards", to=[99]), "listed shards"),
        (_set("places", "global/0", "shards", to=[]), "none in the shards"),
        (_set("places", "global/0", "holds", to=["buffers"]), "another kind"),
        (_set("places", "global/0", "holds", to=["code"]), "holds"),
        (_set("messages", 0, "parts", to="gone"), "in no shard"),
        (_set("messages", 0, "readers", to=["server", "root"]), "unknown reader 'root'"),
        (_set("messages", 0, "readers", to=["client:7"]), "unknown reader 'client:7'"),
        (_set("messages", 0, "readers", to=["server", "server"]), "its reader 'server' is named twice"),
        (_set("messages", 0, "readers", to=["client:00"]), "unknown reader 'client:00'"),
        (_set("messages", 0, "readers", to=[]), "saw no broadcast"),
        (_set("messages", 0, "client", to=None), "belongs to one client"),
        (_set("messages", 0, "client", to=1), "saw no broadcast|there twice"),
        (_set("messages", 0, "round", to=-1), "round"),
        (_set("messages", 0, "round", to=True), "round"),
        (_set("messages", 0, "what", to="order"), "what"),
        (_set("messages", 1, "contributors", to=[0, 0]), "named twice"),
        (_set("messages", 1, "contributors", to=[5]), "contributors"),
        (_set("messages", 1, "tampered", to=1), "tampered"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(
    copy: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    change_index(copy, change)
    with pytest.raises(BadInput, match=message):
        reread(copy)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "complete JSON"),
        (b"[]", "something else"),
        (b"\xff\xfe", "complete JSON"),
        (b'{"kind": "a", "kind": "b"}', "same name twice"),
        (b'{"format": NaN}', "NaN is no JSON number"),
        (b"[" * 100_000, "RecursionError|complete JSON"),
        (b'{"format": ' + b"9" * 5000 + b"}", "complete JSON"),
    ],
)
def test_text_that_is_no_index(copy: Path, text: bytes, message: str) -> None:
    (copy / INDEX).write_bytes(text)
    with pytest.raises(BadInput, match=message):
        reread(copy)


def test_another_model_is_refused(good: Path) -> None:
    with pytest.raises(BadInput, match=r"Give the network that was trained"):
        reread(good, network("mlp"))
    with pytest.raises(BadInput, match="float64"):
        reread(good, network("norm", torch.float64))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.full((4, 5), float("inf")), "finite"),
        (torch.full((4, 5), float("nan")), "finite"),
        (torch.zeros(5, 4), r"float32 \[4, 5\], got F32 \[5, 4\]"),
        (torch.zeros(4, 5, dtype=torch.float64), "got F64"),
        (torch.zeros(4, 5, dtype=torch.complex64), "got C64"),
    ],
)
def test_tensors_that_do_not_fit_the_model(copy: Path, value: torch.Tensor, message: str) -> None:
    tensors = load_file(copy / "tensors-00000.safetensors")
    tensors["global/0:params:0.weight"] = value
    replace_shard(copy, 0, save(tensors))
    with pytest.raises(BadInput, match=message):
        reread(copy)


def test_a_missing_tensor(copy: Path) -> None:
    tensors = load_file(copy / "tensors-00000.safetensors")
    del tensors["global/0:params:0.weight"]
    replace_shard(copy, 0, save(tensors))
    with pytest.raises(BadInput, match=r"the tensor 'global/0:params:0.weight'"):
        reread(copy)


def test_sizes_are_capped(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDXRAY_MAX_BYTES", "1000")
    with pytest.raises(BadInput, match="at most 1000 bytes"):
        reread(copy)
    monkeypatch.setenv("FEDXRAY_MAX_BYTES", str((copy / INDEX).stat().st_size))
    replace_shard(copy, 0, b"0" * 100_000)
    monkeypatch.setenv("FEDXRAY_MAX_BYTES", str((copy / INDEX).stat().st_size))
    with pytest.raises(BadInput, match=r"tensors-00000.*at most"):
        reread(copy)


@pytest.fixture
def tiny_files() -> Iterator[None]:
    """A limit of 2,000 bytes on every file that is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("tiny_files")
def test_no_space_left(tmp_path: Path) -> None:
    shelf = FolderShelf(tmp_path / "run", shard_bytes=5000)
    with pytest.raises(NoSpaceError, match=r"no space left for tensors.*Free some space"):
        for key in range(9):
            shelf.put(str(key), Parts({"w": torch.ones(900)}))
    assert list((tmp_path / "run").iterdir()) == []


def test_a_killed_write_leaves_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    transcript, _ = simulate(federation(), seed=0)
    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        write_transcript(transcript, tmp_path / "run")
    monkeypatch.undo()
    with pytest.raises(BadInput, match="no such file"):
        reread(tmp_path / "run", network())


# --- fuzzing: a transcript or BadInput, nothing else ---

FUZZ = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def transcript_or_refusal(folder: Path) -> None:
    try:
        transcript = reread(folder)
        roles.server(transcript, client=0), roles.eavesdropper(transcript, client=1)
        roles.curious_client(transcript, seat=0), roles.secure_aggregation(transcript)
    except BadInput:
        return
    assert isinstance(transcript, Transcript)


def paths(value: Any, here: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(place for step, child in inner for place in paths(child, (*here, step)))]


@FUZZ
@given(text=st.binary(max_size=200))
def test_random_bytes_as_an_index(copy: Path, text: bytes) -> None:
    (copy / INDEX).write_bytes(text)
    transcript_or_refusal(copy)


@FUZZ
@given(data=st.data())
def test_a_mutated_index(good: Path, copy: Path, data: st.DataObject) -> None:
    index = json.loads((good / INDEX).read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from([path for path in paths(index) if path]))
        inner: Any = index
        for step in place[:-1]:
            inner = inner[step]
        if data.draw(st.booleans()):
            inner[place[-1]] = data.draw(JSON)
        else:
            del inner[place[-1]]
        if not index:
            break
    (copy / INDEX).write_text(json.dumps(index))
    transcript_or_refusal(copy)


@FUZZ
@given(data=st.data())
def test_a_mutated_shard(good: Path, copy: Path, data: st.DataObject) -> None:
    """Bytes are changed, cut or added, in the header more often than not, and the index is made to agree."""
    content = bytearray((good / "tensors-00000.safetensors").read_bytes())
    header = struct.unpack("<Q", content[:8])[0]
    for _ in range(data.draw(st.integers(1, 4))):
        last = min(len(content), 8 + header if data.draw(st.booleans()) else len(content)) - 1
        place = data.draw(st.integers(0, max(0, last)))
        width = data.draw(st.integers(0, 3))
        content[place : place + width] = data.draw(st.binary(max_size=4))
    shutil.copyfile(good / INDEX, copy / INDEX)
    replace_shard(copy, 0, bytes(content))
    transcript_or_refusal(copy)


@FUZZ
@given(content=st.binary(max_size=100), length=st.integers(0, 2**64 - 1))
def test_random_bytes_as_a_shard(good: Path, copy: Path, content: bytes, length: int) -> None:
    shutil.copyfile(good / INDEX, copy / INDEX)
    replace_shard(copy, 0, struct.pack("<Q", length) + content)
    transcript_or_refusal(copy)
