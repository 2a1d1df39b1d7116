"""Source inference by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedxray.adversary.view import Observation, ObservedModel, SourceRecords, View
from fedxray.attacks.floors import ChanceOfSources, OwnerShare
from fedxray.attacks.local_model.baselines import LocalModelOracle
from fedxray.attacks.source import SourceFromModel, SourceMajority, best_fitting, votes_against
from fedxray.data.dataset import Records
from fedxray.errors import Refused
from fedxray.seeds import fork
from tests.attacks.by_hand import linear, table, view_with

ASKED = SourceRecords(x=torch.tensor([[1.0], [1.0], [1.0]]), y=torch.tensor([1.0, 2.1, 2.9]), counts=(1, 0, 2))


def view_of(slopes: dict[tuple[int, int], float]) -> View:
    """A server's view in which clients returned these slopes, by round and client."""
    view = view_with(linear([[0.0]]), table(1), source_records=ASKED)
    seen = tuple(
        Observation(
            round=round,
            start={"weight": torch.zeros(1, 1)},
            update={"weight": torch.full((1, 1), slope)},
            kind="weights",
            contributors=(client,),
            examples=None,
        )
        for (round, client), slope in slopes.items()
    )
    return replace(view, observations=seen)


def test_the_model_that_fits_best_names_the_client() -> None:
    view = view_of({(0, 0): 1.0, (0, 2): 2.0, (0, 5): 3.0})
    for attack in (SourceMajority(), SourceFromModel()):
        found = attack.run(view, generator=fork(0))
        assert found.kind == "sources" and found.tensors["owners"].tolist() == [0, 2, 5]


def test_rounds_vote_and_the_last_model_alone_does_not() -> None:
    slopes = {(0, 0): 1.0, (0, 1): 3.0, (1, 0): 1.0, (1, 1): 3.0, (2, 0): 3.0, (2, 1): 1.0}
    view = view_of(slopes)
    assert SourceMajority().run(view, generator=fork(0)).tensors["owners"].tolist() == [0, 1, 1]
    assert SourceFromModel().run(view, generator=fork(0)).tensors["owners"].tolist() == [1, 0, 0]


def test_ties_go_to_the_lower_loss() -> None:
    fits = torch.tensor([[[1.0, 2.0, 9.0]], [[5.0, 3.0, 9.0]]])
    assert votes_against(fits).argmin(-1).tolist() == [1]
    assert votes_against(fits.flip(-1)).argmin(-1).tolist() == [1]


def test_absent_clients_and_broken_losses_get_no_vote() -> None:
    nan, inf = float("nan"), float("inf")
    assert votes_against(torch.tensor([[[nan, 2.0, inf]], [[nan, 3.0, 4.0]]])).argmin(-1).tolist() == [1]
    most = torch.tensor([[[1.0, 2.0]], [[1.0, 2.0]], [[nan, 2.0]]])
    assert votes_against(most).argmin(-1).tolist() == [0]


def test_a_round_with_one_reply_tells_nothing() -> None:
    with pytest.raises(Refused, match="two clients"):
        SourceMajority().run(view_of({(0, 0): 1.0, (1, 1): 2.0}), generator=fork(0))
    found = SourceFromModel().run(view_of({(0, 0): 1.0, (1, 1): 2.0}), generator=fork(0))
    assert found.tensors["owners"].tolist() == [0, 1, 1]


def test_what_is_known_of_one_client_is_not_taken_for_all() -> None:
    view = view_of({(0, 0): 1.0, (0, 1): 2.0})
    knowledge = replace(view.grants, names=("oracle-records", "source-records"), oracle={"oracle-records": ASKED})
    with pytest.raises(Refused, match="oracle-records"):
        SourceFromModel(model=LocalModelOracle()).run(replace(view, grants=knowledge), generator=fork(0))


def test_an_oracle_fits_a_model_to_the_records_of_every_client() -> None:
    view = view_of({(0, 0): 0.0, (0, 1): 0.0, (0, 2): 0.0})
    view = replace(view, globals=(ObservedModel(0, {"weight": torch.zeros(1, 1)}, {}),))
    groups = tuple(Records(torch.ones(4, 1), torch.full((4,), slope)) for slope in (1.0, 2.0, 3.0))
    names = ("oracle-groups", "source-records")
    knowledge = replace(view.grants, names=names, oracle={"oracle-groups": groups})
    attack = SourceFromModel(model=LocalModelOracle(steps=300, rates=(0.1,)))
    found = attack.run(replace(view, grants=knowledge), generator=fork(0))
    assert found.tensors["owners"].tolist() == [0, 1, 2]


def test_floors() -> None:
    view = view_of({}).without_messages()
    even = ChanceOfSources().run(view, generator=fork(0)).tensors["probabilities"]
    assert torch.equal(even, torch.tensor([[0.5, 0.0, 0.5]]).expand(3, 3))  # one client has none of these records
    assert OwnerShare().run(view, generator=fork(0)).tensors["owners"].tolist() == [2, 2, 2]


def test_of_equal_votes_the_mean_counts_over_rounds_in_which_a_client_took_part() -> None:
    """By the sum of its losses the client that took part once would win."""
    fits = torch.tensor([[[0.5, 0.6, torch.inf]], [[torch.inf, 0.3, 9.0]]])  # [rounds, records, clients]
    assert votes_against(fits).argmin(-1).tolist() == [1]


def test_clients_that_fit_equally_well_share_the_records() -> None:
    asked = SourceRecords(x=torch.randn(600, 4, generator=fork(0)), y=torch.zeros(600), counts=(200, 200, 200))
    view: Any = SimpleNamespace(clients=(0, 1, 2), grants=SimpleNamespace(source_records=asked))
    tied = torch.zeros(600, 3)
    tied[:300, 1] = 1.0  # between the first and the last
    owners = best_fitting(view, tied).tensors["owners"]
    assert 1 not in owners[:300].tolist()
    assert all(120 < int((owners[:300] == client).sum()) < 180 for client in (0, 2))
    assert all(70 < int((owners[300:] == client).sum()) < 130 for client in range(3))
    nobody = best_fitting(view, torch.full((600, 3), torch.nan)).tensors["owners"]
    assert {0, 1, 2} == set(nobody.tolist())


def test_tied_votes_are_shared() -> None:
    fits = torch.zeros(2, 1, 3)  # two rounds, one record
    assert torch.equal(*votes_against(fits)[0, :2].reshape(2, 1))
    fits[1, 0, 2] = -1.0
    assert int(votes_against(fits).argmin()) == 2
