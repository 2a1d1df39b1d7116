"""Recordings on disk: complete messages are read, cut-off ones are left out, altered ones are refused."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from safetensors.numpy import load

from fedxray.adversary import roles
from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.federation.folder import read_transcript, write_transcript
from fedxray.federation.recipe import Recipe
from fedxray.federation.recording import reader
from fedxray.federation.recording.format import Said
from fedxray.federation.recording.reader import read_recording
from fedxray.federation.recording.transcribe import choose, transcribe
from fedxray.federation.recording.writer import RecordingWriter, open_folder, pack, write_message
from fedxray.federation.transcript import Reported
from tests.contract.reach import secrets_behind, texts_behind
from tests.federation.messages import training_message

SPACE = Space(kind="table", shape=(2,), target="regression")
ROUNDS = 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording of one node over three rounds."""
    place = tmp_path / "recording"
    writer = RecordingWriter(place, "client")
    for round in range(1, ROUNDS + 1):
        writer.submit(lambda round=round: training_message(round), 0)  # type: ignore[misc]
    writer.wait()
    assert writer.stopped is None
    return place


def add(folder: Path, *messages: Said) -> Path:
    open_folder(folder, "client")
    for message in messages:
        write_message(folder, message)
    return folder


def rounds_of(folder: Path, **which: Any) -> list[int]:
    return choose(read_recording(folder), **which).rounds


def message_files(folder: Path) -> list[Path]:
    return sorted((folder / "messages").iterdir())


def change(path: Path, **facts: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def test_a_written_recording_is_read_back(folder: Path) -> None:
    found = read_recording(folder)
    assert [(one.round, one.examples, one.node) for one in found.messages] == [(1, 4, "7"), (2, 4, "7"), (3, 4, "7")]
    arrays = found.arrays(found.messages[1].sent)
    assert list(arrays) == ["weight", "bias"]
    assert torch.equal(arrays["weight"], torch.full((1, 2), 2.0))
    assert folder.stat().st_mode & 0o077 == 0


def test_a_recorded_transcript_can_be_kept_as_a_folder(folder: Path, tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    found = transcribe(choose(read_recording(folder)), model=model, space=SPACE, recipe=Recipe(loss="mse"))
    write_transcript(found, tmp_path / "kept")
    kept = read_transcript(tmp_path / "kept", model=model, space=SPACE)
    assert kept.recorded and kept.rounds() == [0, 1, 2]
    for message in found.messages:
        for name, value in found.shelf.get(message.parts).params.items():
            assert torch.equal(kept.shelf.get(message.parts).params[name], value)
    assert torch.equal(kept.shelf.get("reply/1").params["weight"], torch.full((1, 2), 0.5))


def test_what_a_node_reported_is_kept_too(folder: Path, tmp_path: Path) -> None:
    for path, loss in zip(message_files(folder), (0.5, 0.25, math.inf), strict=True):
        change(path, config={"metric loss": 1e999 if math.isinf(loss) else loss, "lr": 0.1})
    model = torch.nn.Linear(2, 1)
    found = transcribe(choose(read_recording(folder)), model=model, space=SPACE, recipe=Recipe(loss="mse"))
    write_transcript(found, tmp_path / "kept")
    kept = read_transcript(tmp_path / "kept", model=model, space=SPACE)
    assert kept.reported == found.reported == {round: Reported(metrics={"loss": 0.5 / (1 + round)}) for round in (0, 1)}


def test_what_fetches_a_recorded_message_knows_no_other(folder: Path) -> None:
    recording = read_recording(folder)
    model = torch.nn.Linear(2, 1)
    found = transcribe(choose(recording), model=model, space=SPACE, recipe=Recipe(loss="mse"), secure_aggregation=True)
    view = roles.curious_client(found, seat=1)
    seen, texts = [message.sent.sha256 for message in recording.messages], set(texts_behind(view))
    assert not secrets_behind(view) and texts & set(seen)
    assert not texts & {message.reply.sha256 for message in recording.messages if message.reply is not None}
    alone = texts_behind(found.shelf.reader("sent/1"))
    assert seen[1] in alone and not set(alone) & {seen[0], seen[2]}


def test_a_recording_cut_off_is_read_up_to_there(folder: Path) -> None:
    last = message_files(folder)[-1]
    reply = folder / "arrays" / f"{json.loads(last.read_text())['reply']['sha256']}.safetensors"
    reply.write_bytes(reply.read_bytes()[:-3])
    found = read_recording(folder)
    assert [one.round for one in found.messages] == [1, 2]
    assert found.cut == ("train of round 2 with node 7: arrays that are missing or cut off",)
    reply.unlink()
    assert rounds_of(folder) == [0, 1]
    last.rename(last.with_name(".part-" + "a" * 32))  # what a dying process leaves
    assert read_recording(folder).cut == () and rounds_of(folder) == [0, 1]


def test_a_process_that_is_killed_leaves_whole_messages(tmp_path: Path) -> None:
    """The file of facts is the last of a message, so a kill between the two leaves no half message."""
    code = f"""
import os, sys
from fedxray.federation.recording import writer
from tests.federation.messages import training_message
writer.open_folder(writer.Path({str(tmp_path / "r")!r}), "client")
writer.write_message(writer.Path({str(tmp_path / "r")!r}), training_message(1))
real = writer.write_whole
def dying(path, *more, **settings):
    if path.parent.name == "messages":
        os._exit(9)
    real(path, *more, **settings)
writer.write_whole = dying
writer.write_message(writer.Path({str(tmp_path / "r")!r}), training_message(2))
"""
    finished = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False)
    assert finished.returncode == 9
    assert rounds_of(tmp_path / "r") == [0]


def test_a_missing_round_is_a_gap(folder: Path) -> None:
    message_files(folder)[1].unlink()
    assert rounds_of(folder) == [0, 2]


def test_rounds_without_numbers_are_counted(tmp_path: Path) -> None:
    early, late = (training_message(None, what="evaluate", reply=None) for _ in range(2))
    add(tmp_path / "r", early, training_message(None), training_message(None), late)
    chosen = choose(read_recording(tmp_path / "r"))
    assert chosen.rounds == [0, 1] and list(chosen.ended) == [1], "an evaluation follows the training before it"
    add(tmp_path / "n", training_message(5), training_message(None, what="evaluate", reply=None), training_message(6))
    chosen = choose(read_recording(tmp_path / "n"))
    assert chosen.rounds == [4, 5] and list(chosen.ended) == [4]


def test_a_node_that_joined_late_has_its_own_rounds(folder: Path) -> None:
    add(folder, training_message(3, node="8"))
    assert rounds_of(folder, node="8") == [2]
    expected = r"data.node: expected a node of this recording: 7 \(3 rounds from 0 to 2\); 8 \(1 round: 2\)"
    with pytest.raises(BadInput, match=expected + ', got nothing. Name it: node = "7"'):
        choose(read_recording(folder))
    with pytest.raises(BadInput, match="got '9'"):
        choose(read_recording(folder), node="9")


def test_a_node_that_only_evaluated(folder: Path) -> None:
    add(folder, training_message(1, node="8", what="evaluate", reply=None))
    with pytest.raises(BadInput, match=r"8, which only evaluated. Nodes that trained: 7"):
        choose(read_recording(folder), node="8")


def test_two_runs_in_one_folder(folder: Path) -> None:
    add(folder, training_message(1, run="2"))
    with pytest.raises(BadInput, match=r"transcript.run: expected a run of this recording: 1; 2, got nothing"):
        choose(read_recording(folder))
    assert rounds_of(folder, run="2") == [0]
    add(folder, training_message(2, run="1", reply=training_message(3).reply))
    with pytest.raises(BadInput, match="two for round 1"):
        choose(read_recording(folder), run="1")


def test_two_sides_do_not_share_a_folder(folder: Path) -> None:
    writer = RecordingWriter(folder, "server")
    writer.submit(lambda: training_message(4), 0)
    writer.wait()
    assert "Give each side its own folder" in str(writer.stopped)
    assert rounds_of(folder) == [0, 1, 2]


def altered(folder: Path) -> None:
    for file in (folder / "arrays").iterdir():
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(bytes(content))


def linked(path: Path) -> None:
    outside = path.parents[2] / "outside.json"
    shutil.copy(path, outside)
    path.unlink()
    path.symlink_to(outside)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda folder: shutil.rmtree(folder), "expected a recording with recording.json, got none"),
        (lambda folder: change(folder / "recording.json", kind="other"), 'expected kind = "fedxray recording"'),
        (lambda folder: change(folder / "recording.json", format=2), "newer fedxray"),
        (lambda folder: change(folder / "recording.json", side="moon"), "side client, server or checkpoints"),
        (lambda folder: shutil.rmtree(folder / "messages"), "at least one complete message, got none"),
        (lambda folder: shutil.rmtree(folder / "arrays"), "none; 3 are incomplete, first train of round 0"),
    ],
)
def test_altered_files_are_refused(folder: Path, harm: Callable[[Path], None], words: str) -> None:
    harm(folder)
    with pytest.raises(BadInput, match=words):
        read_recording(folder)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: path.write_text("{"), "damaged or cut-off content"),
        (lambda path: path.write_text(""), "damaged or cut-off content"),
        (lambda path: path.write_bytes(b"\0" * 300), "damaged or cut-off content"),
        (lambda path: path.write_text('{"a": ' + " " * 5_000_000 + "1}"), "5000008 bytes"),
        (lambda path: path.write_text("[1, 2]"), ": Input should be a valid dictionary"),
        (lambda path: change(path, round=0), "round: "),
        (lambda path: change(path, round=10**9), "round: "),
        (lambda path: change(path, extra=1), "extra: "),
        (lambda path: change(path, sent={"sha256": "../../x", "bytes": 1, "names": []}), "sent.sha256: "),
        (linked, "something else"),
        (lambda path: (path.unlink(), path.mkdir()), "something else"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "something else"),
    ],
)
def test_a_bad_message_is_left_out_and_listed(folder: Path, harm: Callable[[Path], object], words: str) -> None:
    bad = message_files(folder)[0]
    harm(bad)
    found = read_recording(folder)
    assert [one.round for one in found.messages] == [2, 3]
    assert len(found.cut) == 1
    assert found.cut[0].startswith(f"message {bad.name}: ") and words in found.cut[0]
    assert choose(found).lost == found.cut


def test_a_recording_of_bad_messages_alone_is_refused(folder: Path) -> None:
    for path in message_files(folder):
        path.write_text("{")
    with pytest.raises(BadInput, match="at least one complete message, got none; 3 are incomplete, first message 0"):
        read_recording(folder)


def arrays_file(folder: Path, message: Said, part: str = "reply") -> Path:
    """Where the arrays of a message lie."""
    digest = hashlib.sha256(pack(getattr(message, part))).hexdigest()
    return folder / "arrays" / f"{digest}.safetensors"


def test_altered_arrays_cost_their_own_round_only(folder: Path) -> None:
    """As a machine that lost its power leaves them: the right size, other bytes."""
    torn = arrays_file(folder, training_message(2))
    content = torn.read_bytes()
    torn.write_bytes(content[:-4] + bytes(4))
    chosen = choose(read_recording(folder))
    assert chosen.rounds == [0, 2]
    assert chosen.lost == ("train of round 1 with node 7: others: it was altered",)
    add(
        folder, training_message(4, sent=training_message(2).reply)
    )  # the recording continues and needs these arrays again
    assert torn.read_bytes() == content
    assert choose(read_recording(folder)).rounds == [0, 1, 2, 3]
    torn.write_bytes(content[:10])
    assert choose(read_recording(folder)).rounds == [0, 2]
    add(folder, training_message(5, sent=training_message(2).reply))
    assert choose(read_recording(folder)).rounds == [0, 1, 2, 3, 4]


def test_a_recording_without_a_complete_training(folder: Path) -> None:
    altered(folder)
    with pytest.raises(BadInput, match="at least one complete training of node 7, got none; train of round 2"):
        choose(read_recording(folder))


@pytest.mark.parametrize("part", ["sent", "reply"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_lose_their_round_alone(folder: Path, part: str, value: float) -> None:
    bad = {"weight": np.full((1, 2), value, np.float32), "bias": np.zeros(1, np.float32)}
    add(folder, training_message(4, **{part: bad}), training_message(5))
    chosen = choose(read_recording(folder))
    assert chosen.rounds == [0, 1, 2, 4]
    assert chosen.lost == ("train of round 3 with node 7: values that are not finite",)


def test_a_lost_message_does_not_shift_rounds_without_numbers(tmp_path: Path) -> None:
    bad = {"weight": np.full((1, 2), np.nan, np.float32), "bias": np.zeros(1, np.float32)}
    add(tmp_path, training_message(None), training_message(None, reply=bad), training_message(None))
    chosen = choose(read_recording(tmp_path))
    assert chosen.rounds == [0, 2] and chosen.lost == ("train of round ? with node 7: values that are not finite",)


def test_two_evaluations_in_one_round(folder: Path) -> None:
    """Of the same model they are one; of different ones it is unknown which ended the round."""
    first, second, other = training_message(2).sent, training_message(3).sent, training_message(1).sent
    about: dict[str, Any] = {"what": "evaluate", "reply": None}
    add(folder, training_message(1, sent=first, **about), training_message(1, sent=first, **about))
    add(folder, training_message(2, sent=second, **about), training_message(2, sent=other, **about))
    chosen = choose(read_recording(folder))
    assert list(chosen.ended) == [0] and chosen.rounds == [0, 1, 2]
    assert chosen.lost == ("evaluate of round 1 with node 7: 2 different models for the end of one round",)


def test_a_training_that_was_tried_again(folder: Path) -> None:
    add(folder, training_message(4, reply=None), training_message(4))
    assert choose(read_recording(folder)).trained[3].reply is not None


def test_two_recorders_of_one_node_count_once(folder: Path) -> None:
    add(
        folder,
        training_message(1),
        training_message(2),
        training_message(4, reply=None),
        training_message(4, reply=None),
    )
    chosen = choose(read_recording(folder))
    assert chosen.rounds == [0, 1, 2, 3] and chosen.lost == ()
    add(folder, training_message(2, reply=training_message(3).reply))
    with pytest.raises(BadInput, match="got two for round 1"):
        choose(read_recording(folder))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"round": 10**9}, "round: "),
        ({"round": 0}, "round: "),
        ({"examples": 2**60}, "examples: "),
        ({"node": "n" * 501}, "node: "),
        ({"sent": {"w" * 501: np.zeros(1, np.float32)}}, "sent.names.0: "),
        ({"config": {"long": "x" * 5_000_000}}, "5000"),
    ],
)
def test_nothing_is_written_that_cannot_be_read(folder: Path, settings: dict[str, Any], words: str) -> None:
    before = message_files(folder)
    with pytest.raises(BadInput, match=f"message: expected facts that can be read again.*got {words}"):
        add(folder, replace(training_message(4), **settings))
    assert message_files(folder) == before


def test_altered_arrays_are_refused_when_they_are_read(folder: Path) -> None:
    altered(folder)
    found = read_recording(folder)
    with pytest.raises(BadInput, match="altered"):
        found.arrays(found.messages[0].sent)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
        st.tuples(
            st.sampled_from(["<f2", "<f4", "<f8", "|u1", "|i1", "<i2", "<i4", "<i8", "|b1"]),
            st.lists(st.integers(0, 4), max_size=3),
        ),
        max_size=5,
    )
)
def test_files_are_those_of_safetensors(forms: dict[str, tuple[str, list[int]]]) -> None:
    """What is packed is read back by the library, in every dtype and shape, also through another order in memory."""
    drawn = np.random.default_rng(0)
    arrays = {
        name: np.asfortranarray(drawn.integers(0, 2, shape)).astype(dtype) for name, (dtype, shape) in forms.items()
    }
    found = load(pack(arrays))
    assert set(found) == set(arrays)
    for name, value in arrays.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape
        assert np.array_equal(found[name], value)


def test_other_arrays_are_refused() -> None:
    with pytest.raises(BadInput, match="array 'a': expected numbers of BOOL, F16"):
        pack({"a": np.array(["text"])})


def test_different_recordings_have_different_digests(folder: Path) -> None:
    before = read_recording(folder).digest()
    assert read_recording(folder).digest() == before
    add(folder, training_message(4))
    assert read_recording(folder).digest() != before


def test_notes_of_recorders_that_stopped_are_read(folder: Path) -> None:
    before = read_recording(folder)
    assert before.stops == ()
    for name, text in (("a", "no space\nTraceback"), ("b", "no \x1b[2Jspace"), ("c", "no space\n"), ("d", "")):
        (folder / f"stopped-{name}.txt").write_text(text)
    (folder / "stopped-e.txt").symlink_to(folder / "recording.json")
    after = read_recording(folder)
    assert after.stops == ("no space", "no \N{REPLACEMENT CHARACTER}[2Jspace", "no reason given")
    assert after.digest() != before.digest()
    shutil.rmtree(folder / "messages")
    with pytest.raises(BadInput, match="one complete message, got none; the recorder stopped: no space"):
        read_recording(folder)


@pytest.mark.parametrize(
    ("rounds", "others", "wanted"),
    [
        ([1, 2, 3], [], ()),
        ([1, 4], [], ((1, 2),)),
        ([3, 5, 9], [], ((0, 1), (3, 3), (5, 7))),
        ([1, 2], [4], ((2, 3),)),
        ([10**9 - 1], [], ((0, 10**9 - 3),)),
        ([None, None], [7], ()),
    ],
)
def test_rounds_without_a_training_are_gaps(
    tmp_path: Path, rounds: list[int | None], others: list[int], wanted: tuple[Any, ...]
) -> None:
    add(
        tmp_path,
        *(training_message(round) for round in rounds),
        *(training_message(round, node="8") for round in others),
    )
    assert choose(read_recording(tmp_path), node="7").missing == wanted


def test_untrusted_names_do_not_act_upon_a_terminal(folder: Path) -> None:
    add(folder, training_message(1, node="8\x1b[2J\n9"))
    with pytest.raises(BadInput) as caught:
        choose(read_recording(folder))
    assert "8\N{REPLACEMENT CHARACTER}[2J 9 (1 round" in str(caught.value) and "\x1b" not in str(caught.value)


def test_more_messages_than_can_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_MESSAGES", 2)
    found = read_recording(folder)
    assert [one.round for one in found.messages] == [1, 2]
    assert found.cut == ("1 messages after the first 2: too many to be read",)
