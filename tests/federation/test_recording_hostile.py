"""Malicious recordings: each bad message costs itself alone, and every error is a refusal."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from fedxray.audit.recorded.prepare import holdings
from fedxray.errors import BadInput
from fedxray.federation.recording.reader import read_recording
from fedxray.federation.recording.transcribe import choose
from fedxray.federation.recording.writer import open_folder, write_message
from tests.federation.messages import training_message

DEEP = "[" * 900 + "]" * 900


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording of one node over two rounds."""
    open_folder(tmp_path, "client")
    for round in (1, 2):
        write_message(tmp_path, training_message(round, config={"lr": 0.1, "sizes": [1, 2], "on": True, "name": "ä"}))
    return tmp_path


def first(folder: Path) -> Path:
    return min((folder / "messages").iterdir())


def with_config(text: str) -> Callable[[Path], None]:
    """A change of the first message: the JSON of its config."""

    def change(folder: Path) -> None:
        path = first(folder)
        facts = {**json.loads(path.read_text()), "config": "HERE"}
        path.write_text(json.dumps(facts).replace('"HERE"', text))

    return change


def with_arrays(content: bytes, names: list[str]) -> Callable[[Path], None]:
    """A change of the first message: the file of what was sent."""

    def change(folder: Path) -> None:
        digest = hashlib.sha256(content).hexdigest()
        (folder / "arrays" / f"{digest}.safetensors").write_bytes(content)
        kept = {"sha256": digest, "bytes": len(content), "names": names}
        facts = {**json.loads(first(folder).read_text()), "sent": kept}
        first(folder).write_text(json.dumps(facts))

    return change


def raw(dtype: str, shape: list[int], data: bytes) -> bytes:
    """A file of one array as its header says, whatever that is."""
    header = {"weight": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def of_dtype(dtype: torch.dtype) -> bytes:
    return save({"weight": torch.zeros(1, 2), "bias": torch.zeros(1).to(dtype)})


def test_plain_values_of_a_config_are_read(folder: Path) -> None:
    found = read_recording(folder).messages[0].config
    assert repr(found) == "{'lr': 0.1, 'sizes': [1, 2], 'on': True, 'name': 'ä'}"


@pytest.mark.parametrize(
    "text",
    [
        f'{{"a": {DEEP}}}',
        '{"a": {"b": 1}}',
        '{"a": null}',
        '{"a": "\\ud800"}',
        '{"a": ["\\udfff"]}',
        '{"\\ud800": 1}',
        '{"local-epochs": 1' + "0" * 400 + "}",
        '{"lr": 1e400}',
    ],
)
def test_a_config_that_is_not_plain_costs_its_message(folder: Path, text: str) -> None:
    with_config(text)(folder)
    found = read_recording(folder)
    assert [one.round for one in found.messages] == [2]
    (words,) = found.cut
    assert words.startswith("message ") and words.encode()
    assert len(found.digest()) == 64 and choose(found).rounds == [1]
    assert any("left out" in line for line in holdings(found))


def test_a_round_that_cannot_be_costs_its_message(folder: Path) -> None:
    facts = json.loads(first(folder).read_text())
    first(folder).write_text(json.dumps({**facts, "round": 2**50}))
    assert [one.round for one in read_recording(folder).messages] == [2]


def test_names_of_files_may_be_any_bytes(folder: Path) -> None:
    place = os.fsencode(folder / "messages") + b"/00\xff.json"
    try:
        Path(os.fsdecode(place)).write_text("{")
    except OSError:
        pytest.skip("this disk takes names in UTF-8 alone")
    found = read_recording(folder)
    (words,) = found.cut
    assert words.startswith("message 00\N{REPLACEMENT CHARACTER}.json: ")
    assert len(found.digest()) == 64 and choose(found).rounds == [0, 1]


@pytest.mark.parametrize(
    ("content", "names", "words"),
    [
        (of_dtype(torch.float8_e4m3fn), ["weight", "bias"], "float8_e4m3fn in array bias, which is not read"),
        (of_dtype(torch.float8_e8m0fnu), ["weight", "bias"], "numbers of 'F8_E8M0', which are not read"),
        (of_dtype(torch.uint16), ["weight", "bias"], "uint16 in array bias"),
        (of_dtype(torch.uint64), ["weight", "bias"], "uint64 in array bias"),
        (of_dtype(torch.complex64), ["weight", "bias"], "complex64 in array bias"),
        (raw("F4", [4], b"ab"), ["weight"], "F4"),
        (raw("F32", [1] * 200, b"abcd"), ["weight"], "dimensions"),
        (raw("F32", [0, 2**62, 2**62], b""), ["weight"], ""),
    ],
)
def test_strange_arrays_cost_their_message(folder: Path, content: bytes, names: list[str], words: str) -> None:
    with_arrays(content, names)(folder)
    found = read_recording(folder)
    chosen = choose(found)
    assert chosen.rounds == [1]
    assert chosen.lost[0].startswith("train of round 0 with node 7: ") and words in chosen.lost[0]
    lines = holdings(found)
    assert any(line.startswith("left out    train of round 0 with node 7: ") for line in lines)
    assert any("weight [1, 2] float32" in line for line in lines)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (of_dtype(torch.uint16), "in array bias, got U16"),
        (raw("F32", [1] * 200, b"abcd"), "at most 64 dimensions of array weight, got 200"),
    ],
)
def test_the_form_of_strange_arrays_is_refused_by_name(folder: Path, content: bytes, words: str) -> None:
    with_arrays(content, ["weight", "bias"])(folder)
    found = read_recording(folder)
    with pytest.raises(BadInput) as caught:
        found.forms(found.messages[0].sent)
    assert words in str(caught.value)


def test_a_recording_of_strange_arrays_alone_is_shown(folder: Path) -> None:
    for path in sorted((folder / "messages").iterdir())[1:]:
        path.unlink()
    with_arrays(of_dtype(torch.uint16), ["weight", "bias"])(folder)
    lines = holdings(read_recording(folder))
    assert "arrays      none that can be used" in lines


def test_whole_numbers_of_any_size_are_no_error() -> None:
    from fedxray.audit.recorded.recipe import _plain, _possible

    value: Any = 10**400
    assert _plain("epochs", value) == value and not _possible("epochs", value)
    assert _plain("epochs", 3.0) == 3 and isinstance(_plain("epochs", 3.0), int)
