"""Warnings before the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from fedxray.audit.plan.recorded import BY_ITSELF, ON_WORD, SAME
from fedxray.report.overview import (
    BY_WORD,
    CHANGED,
    MADE_UP,
    NO_PLACE,
    NOT_WHOLE,
    RECORDED,
    SEARCHED,
    notices,
    recorded_notice,
)


def document(data: dict[str, Any], *ledgers: dict[str, Any]) -> dict[str, Any]:
    return {"plan": {"name": "one", "data": data}, "cases": [{"ledger": ledger} for ledger in ledgers]}


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (document({"name": "clinic"}, {}), []),
        (document({"schema": "s.toml"}, {}), [MADE_UP]),
        (document({"path": "a.npz"}, {"recording": {"changed_after": []}}), []),
    ],
)
def test_only_what_applies_is_said(made: dict[str, Any], wanted: list[Any]) -> None:
    assert notices(made) == wanted
    assert recorded_notice(made) == (RECORDED if "recording" in made["cases"][0]["ledger"] else None)


@pytest.mark.parametrize(
    ("owner", "ground"),
    [
        (BY_ITSELF, "recorded by the node itself"),
        (SAME, "proved by the node's own recording, which holds the same replies"),
        (ON_WORD, "treated as the auditor's own on the user's word"),
    ],
)
def test_whose_node_it_is_comes_first(owner: str, ground: str) -> None:
    told = {"recording": {"owner": owner, "node": "417", "rounds": [0, 1, 2], "learnt": [2, 3]}}
    made = document({"path": "a.npz"}, told, told)
    assert recorded_notice(made) == (f"Node 417, {ground}, rounds 0 to 2.", " ".join(RECORDED))
    assert not any("do not look like" in headline for headline, _ in notices(made))


@pytest.mark.parametrize(("fell", "rounds", "said"), [(1, 3, True), (0, 1, True), (1, 2, False), (0, 0, False)])
def test_records_that_do_not_look_like_the_nodes_are_doubted(fell: int, rounds: int, said: bool) -> None:
    told = {"recording": {"owner": BY_ITSELF, "node": "417", "rounds": [0], "learnt": [fell, rounds]}}
    found = [headline for headline, _ in notices(document({"path": "a.npz"}, told, told))]
    text = "These records do not look like what the node trained on: the loss on them fell in {} of {} rounds."
    assert found == ([text.format(fell, rounds)] if said else [])


def test_mods_after_the_recorder_are_named_once() -> None:
    ledger = {"recording": {"changed_after": ["LocalDpMod"]}}
    found = notices(document({"path": "a.npz"}, ledger, ledger))
    assert [headline for headline, _ in found] == [CHANGED[0]]
    assert found[0][1].startswith("LocalDpMod changed the update after it was recorded")


def test_layers_that_are_not_as_the_plan_has_them_are_named() -> None:
    names = [f"layer{place}" for place in range(8)]
    ledger = {"recording": {"not_recorded": names, "frozen_changed": ["head"]}}
    absent, moved = notices(document({"path": "a.npz"}, ledger))
    assert "layer5 and 2 more; the values of the plan's network" in absent[1]
    assert moved[1].startswith("The plan's network does not train head, yet")


def test_a_node_on_the_users_word_is_said_to_be_one() -> None:
    ledger = {"recording": {"owner": ON_WORD, "node": "417"}}
    found = notices(document({"path": "a.npz"}, ledger, ledger))
    assert [headline for headline, _ in found] == [BY_WORD[0]]
    assert "proves that node 417 belongs to the owner of the records" in found[0][1]


def test_a_searched_recipe_is_said_to_be_one() -> None:
    search = {"chosen": {"learning_rate": 0.1, "epochs": 2}, "tried": [], "alike": ["epochs"], "reason": ""}
    ((headline, text),) = notices(document({"path": "a.npz"}, {"recording": {"recipe_searched": search}}))
    assert headline == SEARCHED[0]
    assert "Not recorded and not given: learning_rate (now 0.1) and epochs (now 2)" in text
    assert "Other candidates fit nearly as well for epochs." in text


def test_what_is_not_in_a_recording_is_said_before_the_verdict() -> None:
    told: dict[str, Any] = {"side": "client", "changed_before": None, "changed_after": None}
    told |= {"stopped": ["no space"], "rounds_missing": [[2, 4]]}
    found = dict(notices(document({"path": "a.npz"}, {"recording": told}, {"recording": told})))
    assert list(found) == [NOT_WHOLE, NO_PLACE[0]]
    assert found[NOT_WHOLE].startswith("Rounds missing: 2 to 4 (the first is 0): the node was")
    assert found[NOT_WHOLE].count("Recorder stopped: no space.") == 1


@pytest.mark.parametrize(("clients", "stated"), [(None, False), (2, True), (3, False)])
def test_secure_aggregation_among_two_is_no_protection(clients: int | None, stated: bool) -> None:
    made = document({"path": "a.npz"}, {})
    for case in made["cases"]:
        case["ledger"] = {**(case["ledger"] or {}), "smallest_sum": clients}
    assert any("among two" in headline for headline, _ in notices(made)) == stated
