"""Facts of Flower's messages: only values that a recording can hold are read."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedxray.errors import BadInput
from fedxray.federation.recording.format import MOST_FACTS, MOST_ROUNDS
from fedxray.integrations.flower import config_of, examples_of, node_partition, round_of, to_numpy


def message(config: dict[str, Any], group: str = "") -> Message:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 2, 3
    return Message(RecordDict({"config": ConfigRecord(config)}), 7, "train", group_id=group)


@pytest.mark.parametrize(
    ("config", "group", "wanted"),
    [
        ({"server-round": 3}, "9", 3),
        ({"server-round": 0}, "9", 9),
        ({"server-round": True}, "9", 9),
        ({"server-round": MOST_ROUNDS}, "9", 9),
        ({}, "0", None),
        ({"server-round": MOST_ROUNDS - 1}, "", MOST_ROUNDS - 1),
        ({}, "0001200", 1200),
        ({}, "1763260830", None),  # seconds
        ({}, "1763260830123456789", None),  # nanoseconds
        ({}, "9" * 5000, None),
        ({}, "²", None),
        ({}, "", None),
    ],
)
def test_the_round(config: dict[str, Any], group: str, wanted: int | None) -> None:
    assert round_of(message(config, group)) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(4, 4), (4.0, 4), (0, 0), (-1, None), (2.5, None), (float("nan"), None), (float("inf"), None), (1e300, None)],
)
def test_the_number_of_examples(value: Any, wanted: int | None) -> None:
    assert examples_of(RecordDict({"m": MetricRecord({"num-examples": value})})) == wanted


@pytest.mark.parametrize(("value", "wanted"), [(2, 2), (-1, None), (2**60, None), ("2", None), (True, None)])
def test_the_partition(value: Any, wanted: int | None) -> None:
    assert node_partition(Context(1, 2, {"partition-id": value}, RecordDict(), {})) == wanted


def test_a_large_config_is_recorded_as_far_as_it_fits() -> None:
    words = {f"text-{number}": "\N{GRINNING FACE}" * 999 for number in range(2000)}
    content = message({**words, "list": ["x" * 900] * 900, "nan": float("nan"), "lr": 0.5}).content
    config = config_of(content)
    assert config["lr"] == 0.5 and "list" not in config and "nan" not in config
    assert 100 < len(config) < 2000 and len(json.dumps(config)) < MOST_FACTS


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
        np.array(3, dtype=np.int64),
        np.zeros((0, 4), dtype=np.float16),
    ],
    ids=["rows", "columns", "single", "empty"],
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_arrays_equal_those_that_numpy_wrote(value: np.ndarray[Any, Any], version: tuple[int, int]) -> None:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, value, version=version, allow_pickle=False)
    sent = SimpleNamespace(stype="numpy.ndarray", data=stream.getvalue())
    unpacked = to_numpy({"w": sent})["w"]
    assert unpacked.dtype == value.dtype and unpacked.shape == value.shape and np.array_equal(unpacked, value)


def test_arrays_of_python_objects_are_refused() -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([{}, []], dtype=object), allow_pickle=True)
    with pytest.raises(BadInput, match="array: expected numbers, got Python objects"):
        to_numpy({"w": SimpleNamespace(stype="numpy.ndarray", data=stream.getvalue())})
