"""The repr of what users hold: short, and without any value of a record, a label or a tensor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from fedxray.adversary import roles
from fedxray.adversary.disclose import GRANTS, disclose
from fedxray.attacks.evidence import of_attributes, of_images, of_membership, of_model
from fedxray.data.dataset import Column, Dataset, Records, Space
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.params import parameters_of

SECRET, TARGET = 7351.25, 6182.75  # numbers that nothing else prints
LONGEST = 400
OF_CLASSES = {"label-counts", "batch-labels", "bn-statistics", "metrics"}


def secret_space() -> Space:
    columns = (
        Column(name="age", kind="continuous", positions=(0,), low=0.0, high=SECRET),
        Column(
            name="smoker", kind="categorical", positions=(1,), categories=("no", f"{SECRET}"), codes=((0.0,), (SECRET,))
        ),
    )
    return Space(kind="table", shape=(2,), target="regression", columns=columns, sensitive="smoker")


def secret_records(count: int) -> Records:
    return Records(torch.full((count, 2), SECRET), torch.full((count,), TARGET))


def own_records(client: int) -> Records:
    """Records that no other client holds."""
    records = secret_records(4)
    return Records(records.x * (1 + client / 1e5), records.y)


def holders() -> Iterator[object]:
    """Every object that a user of the Python interface may print."""
    space = secret_space()
    records = secret_records(5)
    yield from (space, records, records.take(torch.tensor([0, 2])))
    yield Dataset(name="own.csv", x=records.x, y=records.y, space=space, raw={"age": np.full(5, SECRET)}, private=True)
    model = nn.Linear(2, 1)
    for parameter in model.parameters():
        nn.init.constant_(parameter, SECRET)
    federation = Federation(
        space=space,
        clients=tuple(own_records(client) for client in range(12)),
        holdout=tuple(secret_records(2) for _ in range(12)),
        public=secret_records(3),
        model=model,
        recipe=Recipe(loss="mse", learning_rate=1e-12),
    )
    transcript, truth = simulate(federation, seed=0)
    yield from (transcript, truth, transcript.shelf.get(transcript.messages[0].parts))
    names = [name for name in GRANTS if name not in OF_CLASSES]
    grants = disclose(truth, names, client=1, seats=(0,))
    view = roles.curious_client(transcript, seat=0, own=[truth.train[0]], grants=grants)
    server = roles.server(transcript, client=1, grants=grants)
    yield from (grants, view, *view.own, *view.observations, *view.globals, server, *server.observations[:1])
    yield from (grants.public_attributes, grants.source_records, server.without_messages())
    yield of_attributes(records.x[:, :1])
    yield of_images(records.x, records.y)
    yield of_membership(records.y)
    yield of_model(parameters_of(model))


def test_a_repr_is_short_and_shows_no_value() -> None:
    seen = set()
    for holder in holders():
        text = repr(holder)
        assert text.startswith(type(holder).__name__) and len(text) <= LONGEST, text
        assert not [part for part in ("7351", "6182", "7.35", "6.18", "tensor(", "array(") if part in text], text
        seen.add(type(holder).__name__)
    named = {"Dataset", "Evidence", "Grants", "Observation", "Records", "Transcript", "Truth", "View"}
    assert named <= seen


def test_a_repr_states_shapes_and_names() -> None:
    records = secret_records(5)
    data = Dataset(name="own.csv", x=records.x, y=records.y, space=secret_space())
    assert repr(records) == "Records(5 of shape [2])"
    assert repr(data) == (
        "Dataset('own.csv', records=5, space=Space('table', shape=[2], target='regression', columns=[age, smoker]))"
    )
    assert repr(of_images(torch.zeros(3, 1, 8, 8))) == (
        "Evidence('images', status='ok', target=None, tensors=[inputs [3, 1, 8, 8]])"
    )


def test_printing_an_observation_fetches_no_tensor() -> None:
    space, records = secret_space(), secret_records(4)
    federation = Federation(
        space=space, clients=(records, records), model=nn.Linear(2, 1), recipe=Recipe(loss="mse", learning_rate=1e-12)
    )
    transcript, _ = simulate(federation, seed=0)
    view = roles.server(transcript, client=1)

    def fails(key: str) -> Tensor:
        raise AssertionError(key)

    transcript.shelf.get = fails  # type: ignore[assignment,method-assign]
    assert repr(view).startswith("View('server', target=1, observations=2")
    assert "round=0" in repr(view.observations[0])
