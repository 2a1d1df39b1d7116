"""What is said of a recording: its rounds, what is not in it, and where the recorder stood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedxray.audit.plan.recorded import BY_ITSELF
from fedxray.audit.recorded.describe import (
    NOT_KNOWN,
    heading,
    measured_filters,
    place,
    recordings_of,
    shortcomings,
    whole_facts,
)
from fedxray.federation.recording.reader import read_recording
from fedxray.federation.recording.transcribe import choose
from fedxray.federation.recording.writer import open_folder, write_message
from fedxray.report.terminal import summary_lines
from tests.federation.messages import training_message as said
from tests.report.synthetic import make_document

WHOLE = {"side": "client", "node": "7", "rounds": [0, 1, 2], "changed_before": [], "changed_after": []}


def facts(folder: Path, *messages: Any, side: Any = "client") -> dict[str, Any]:
    open_folder(folder, side)
    for message in messages:
        write_message(folder, message)
    return whole_facts(choose(read_recording(folder)))


def test_a_whole_recording_has_no_shortcomings(tmp_path: Path) -> None:
    found = facts(tmp_path, *(said(round, inside=(), outside=()) for round in (1, 2, 3)))
    assert (found["rounds_missing"], found["stopped"], found["cut_off"]) == ([], [], 0)
    assert shortcomings(found) == []
    assert place(WHOLE | found) == "training > recorder > network"
    assert heading(WHOLE) == "client side, node 7, 3 rounds (0 to 2)"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    bad = {"weight": np.full((1, 2), np.nan, np.float32), "bias": np.zeros(1, np.float32)}
    open_folder(tmp_path, "client")
    (tmp_path / "stopped-1.txt").write_text("no space\n")
    found = facts(tmp_path, said(1), said(4, reply=bad), said(5), said(9))
    assert found["rounds_missing"] == [[1, 3], [5, 7]]
    assert shortcomings(found) == [
        ("rounds missing", "1 to 3, 5 to 7 (the first is 0): the node was not picked then, or was not recorded"),
        ("recorder stopped", "no space"),
        ("message left out", "1 (train of round 3 with node 7: values that are not finite)"),
    ]


def test_rounds_without_a_reply_are_said_unless_replies_are_hidden(tmp_path: Path) -> None:
    found = facts(tmp_path / "open", said(1), said(2, reply=None), said(3, reply=None))
    assert found["unanswered"] == [1, 2]
    assert shortcomings(found) == [("replies missing", "1 to 2: nothing came back, or it was not recorded")]
    hidden = (said(round, reply=None, secure=True) for round in (1, 2))
    assert shortcomings(facts(tmp_path / "hidden", *hidden, side="server")) == []


def test_long_lists_are_cut_short() -> None:
    reported = {"stopped": list("abcde"), "cut_off": 9, "left_out": ["x", "y", "z"]}
    assert shortcomings(reported) == [
        ("recorder stopped", "a; b; c; and 2 more"),
        ("messages left out", "9 (x; y; z; and 6 more)"),
    ]
    assert heading({**WHOLE, "rounds": list(range(0, 40, 2))}).endswith("14, 16, 18, ... 38)")


def test_mods_stand_in_the_order_in_which_the_update_met_them(tmp_path: Path) -> None:
    """They are recorded from the network inwards."""
    found = facts(tmp_path, said(1, inside=("noise", "clip"), outside=("sizes", "secagg")))
    assert place(WHOLE | found) == "training > clip > noise > recorder > secagg > sizes > network"


def test_filters_that_changed_nothing_are_named(tmp_path: Path) -> None:
    same, other = {"filters_changed": False}, {"filters_changed": True}
    told = [
        said(round, inside=("Cut",), outside=(), config=config) for round, config in ((1, same), (2, same), (3, other))
    ]
    found = facts(tmp_path / "idle", *told, said(4, inside=(), outside=(), config=same))
    text = "Cut in rounds 0 to 1: the update was equal before and after, up to rounding"
    assert measured_filters(found) == [("filters without effect", text)] and shortcomings(found) == []
    assert measured_filters(facts(tmp_path / "busy", said(1, inside=("Cut",), outside=(), config=other))) == []


def test_every_filter_that_changed_nothing_is_named_where_each_was_measured(tmp_path: Path) -> None:
    lists = [["Cut"], ["Cut", "Late"], []]
    told = [
        said(round, inside=("Late", "Cut"), outside=(), config={"filters_idle": idle})
        for round, idle in enumerate(lists, 1)
    ]
    rest = "the update was equal before and after, up to rounding"
    assert measured_filters(facts(tmp_path, *told)) == [
        ("filters without effect", f"Cut in rounds 0 to 1: {rest}"),
        ("filters without effect", f"Late in round 1: {rest}"),
    ]


@pytest.mark.parametrize("changed", [True, False])
def test_filters_that_were_only_measured_together_are_so_named(tmp_path: Path, changed: bool) -> None:
    found = measured_filters(facts(tmp_path, said(1, inside=("Late", "Cut"), config={"filters_changed": changed})))
    together = ("filters measured together", "Cut, Late: which of them changed the update is not known")
    idle = ("filters without effect", "Cut, Late in round 0: the update was equal before and after, up to rounding")
    assert found == ([together] if changed else [idle])


@pytest.mark.parametrize(
    ("side", "messages", "wanted"),
    [
        ("client", [said(1, inside=(), outside=()), said(2)], NOT_KNOWN),
        ("client", [said(1, inside=(), outside=None)], NOT_KNOWN),
        ("server", [said(1)], "at the server"),
        ("checkpoints", [said(1)], ""),
    ],
)
def test_where_the_recorder_stood(tmp_path: Path, side: str, messages: list[Any], wanted: str) -> None:
    found = facts(tmp_path, *messages, side=side)
    assert place({"side": side, **found}) == wanted
    assert (found["changed_before"] is None) == (wanted == NOT_KNOWN)


def test_what_strangers_wrote_does_not_act_upon_a_terminal() -> None:
    reported = {**WHOLE, "node": "7\x1b[2J\n8", "changed_after": ["\x07mod"], "stopped": ["a\u202eb"]}
    assert heading(reported).startswith("client side, node 7\N{REPLACEMENT CHARACTER}[2J 8")
    assert "\x07" not in place(reported) and "\u202e" not in shortcomings(reported)[0][1]


def test_the_summary_in_the_terminal_says_it_once_for_each_recording() -> None:
    reported = {**WHOLE, "rounds_missing": [[3, 4]], "stopped": ["no space"], "learnt": [1, 3], "owner": BY_ITSELF}
    found = make_document()
    for case in found["cases"][1:]:
        case["ledger"]["recording"] = dict(reported)
    assert recordings_of(found) == [reported]
    lines = summary_lines(found)
    assert lines[2:7] == [
        "  recording: client side, node 7, 3 rounds (0 to 2); recorder: training > recorder > network",
        "  owner of the node: node 7, recorded by the node itself",
        "  ! These records do not look like what the node trained on: the loss on them fell in 1 of 3 rounds",
        "  ! rounds missing: 3 to 4 (the first is 0): the node was not picked then, or was not recorded",
        "  ! recorder stopped: no space",
    ]
