from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fedxray.audit.plan import make_plan
from fedxray.audit.run.grid import Case, expand, run_id
from fedxray.errors import BadInput
from tests.audit.plans import tiny

HERE = Path(__file__).parents[1]
OWN = {"factory": "nowhere:defend", "label": "own"}


def grid(**changes: Any) -> tuple[list[Any], list[Case]]:
    return expand(make_plan(tiny(**changes), HERE))


def attacked(clients: int, **attack: Any) -> list[int]:
    _, cases = grid(data={"clients": clients}, attack=[{"name": "attribute-from-model", **attack}])
    return [case.client for case in cases]


def test_the_grid_is_attacks_by_defences_by_awareness_by_seeds_by_clients() -> None:
    attacks = [{"name": "attribute-from-model"}, {"name": "membership-loss", "targets": [1]}]
    runs, cases = grid(seeds=[3, 5], defence=[{"name": "none"}, OWN], attack=attacks)
    assert [(run.defence, run.seed) for run in runs] == [("none", 3), ("none", 5), ("own", 3), ("own", 5)]
    first = [case for case in cases if case.attack == "attribute-from-model"]
    assert [(case.defence, case.aware, case.seed, case.client) for case in first] == [
        (defence, aware, seed, client)
        for defence, aware in (("none", None), ("own", False), ("own", True))
        for seed in (3, 5)
        for client in (0, 1)
    ]
    assert [case.client for case in cases[len(first) :]] == [1] * 6
    assert {case.run for case in cases} == {run.id for run in runs}


def test_targets() -> None:
    assert attacked(4) == [0, 1, 2, 3]
    assert attacked(4, targets=4) == [0, 1, 2, 3]
    assert attacked(4, targets=[3, 0]) == [3, 0]
    assert attacked(4, role="curious-client") == [1, 2, 3]
    assert attacked(4, role="curious-client", seat=[1, 2]) == [0, 3]
    assert attacked(4, role="curious-client", targets=3) == [1, 2, 3]


def test_a_number_of_targets_is_drawn_at_random_by_the_first_seed() -> None:
    part = {"name": "attribute-from-model", "targets": 5}
    few, more = attacked(100, targets=5), attacked(100, targets=20)
    assert len(set(few)) == 5 and set(few) < set(more) and few == sorted(few) and few != [0, 1, 2, 3, 4]
    assert few == attacked(100, targets=5)
    draws = {
        seed: {case.client for case in grid(data={"clients": 100}, seeds=[seed, 0], attack=[part])[1]}
        for seed in range(1, 41)
    }
    assert all(len(draw) == 5 for draw in draws.values())
    assert len({client for draw in draws.values() for client in draw}) > 60  # everyone's turn comes


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        ({"targets": [4]}, "does not exist"),
        ({"targets": []}, "an empty list"),
        ({"targets": 5}, "at most 4"),
        ({"role": "curious-client", "targets": [0]}, "is the seat of the curious client"),
        ({"role": "curious-client", "targets": 4}, "at most 3"),
        ({"role": "curious-client", "seat": [0, 1, 2, 3]}, "a client besides the curious one"),
        ({"role": "curious-client", "seat": 4}, "clients from 0 to 3"),
    ],
)
def test_impossible_targets_are_refused(attack: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        attacked(4, **attack)


def test_ids_are_stable_and_safe_as_file_names() -> None:
    _, cases = grid(attack=[{"name": "attribute-from-model", "label": "Ä/../b [x=1]"}])
    assert cases[0].id == "b-x-1-.server.none.seed0.client0-" + cases[0].id.rpartition("-")[2]
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,120}", case.id) for case in cases)
    assert run_id("none", 0) == "none.seed0-f9ad680ea4", "ids must not change, or old audits cannot be resumed"


@given(st.lists(st.text(min_size=1, max_size=200), min_size=2, max_size=6, unique=True), st.integers(0, 9))
def test_different_defences_have_different_ids_even_where_case_is_ignored(labels: list[str], seed: int) -> None:
    ids = [run_id(label, seed) for label in labels]
    assert len({one.lower() for one in ids}) == len(labels)
    assert all(re.fullmatch(r"[a-z0-9._-]{1,120}", one) and ".." not in one[:2] for one in ids)


def test_ids_differ_in_every_part() -> None:
    runs, cases = grid(seeds=[0, 1, 10], defence=[{"name": "none"}, OWN], data={"clients": 12})
    assert len({case.id for case in cases}) == len(cases) and len({run.id for run in runs}) == len(runs)


def test_a_grid_of_too_many_cases_is_refused_before_it_is_laid_out() -> None:
    document = tiny(data={"clients": 100_000}, seeds=[0, 1, 2])
    with pytest.raises(BadInput, match="at most 200,000 cases in an audit, got 300,000"):
        expand(make_plan(document, Path()))
    few = tiny(data={"clients": 100_000}, attack=[{"name": "attribute-from-model", "targets": 2}])
    assert len(expand(make_plan(few, Path()))[1]) == 2


@pytest.mark.parametrize(
    ("role", "hidden"), [("curious-client", False), ("secure-aggregation", False), ("server", True)]
)
def test_a_sum_of_some_clients_is_not_held_against_all(role: str, hidden: bool) -> None:
    """Grants and scores would be of clients that the sum knows nothing of, and the failure would look like safety."""
    name = "labels-idlg" if role == "server" else "curious-client"
    content: dict[str, Any] = {
        "data": {"name": "digits", "clients": 4},
        "model": {"name": "mlp"},
        "attack": [{"name": name, "role": role}],
    }

    def asked(share: float) -> list[int | None]:
        federation = {"rounds": 1, "participation": share, "secure_aggregation": hidden}
        return [case.client for case in expand(make_plan({**content, "federation": federation}, HERE))[1]]

    with pytest.raises(BadInput, match="2 of 4 clients"):
        asked(0.5)
    assert asked(1.0) == asked(0.9) == [None]  # nine tenths of four are all of them


def test_single_replies_of_some_clients_are_fine() -> None:
    content = {
        "data": {"name": "digits", "clients": 4},
        "model": {"name": "mlp"},
        "federation": {"rounds": 1, "participation": 0.5},
        "attack": [{"name": "inverting-gradients", "role": "server"}],
    }
    assert [case.client for case in expand(make_plan(content, HERE))[1]] == [0, 1, 2, 3]
