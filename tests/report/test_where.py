"""Where it leaks: clients, classes, records and rounds in order, and nothing of their contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedxray.audit.judge import results
from fedxray.audit.judge.results import document
from fedxray.metrics.units import GLUE
from fedxray.report import build_report
from fedxray.report.where import breakdowns, by_round, power_lines

MARKUP = "<script>alert(1)</script>"


def case(seed: int, client: int, value: float, *, attack: str = "a", **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"id": f"{attack}.{seed}.{client}", "seed": seed, "defence": "none", "attack": attack}
    made |= {"role": "server", "client": client, "aware": None, "oracle": False, "status": "ok", "reason": None}
    made |= {"ledger": {"rounds_seen": [0]}, "scores": {"accuracy": value}, "rounds_spent": 0, "seconds": 0.0}
    made |= {"floors": {"majority": {"accuracy": 0.5}}, "controls": {}}
    made["by_class"] = {
        "accuracy": {
            "ill": {"mean": value, "n": 3, "floors": {"majority": 0.2}},
            MARKUP: {"mean": 0.5, "n": 9, "floors": {"majority": 0.6}},
        }
    }
    made["exposed"] = {
        "accuracy": [{"record": 10 * seed + client, "value": 1.0, "sure": value}, {"record": 99, "value": 0.5}]
    }
    return made | changes


def leaking(**changes: Any) -> dict[str, Any]:
    cases = [
        case(seed, client, 0.8 + 0.02 * client + 0.001 * seed, **changes) for seed in range(5) for client in (0, 1, 2)
    ]
    return document({"name": "x", "attack": [{"name": "a"}]}, {}, cases, [])


def test_clients_stand_in_the_order_of_their_gain() -> None:
    place = breakdowns(leaking())[0]
    assert [line.name for line in place.clients] == ["client 2", "client 1", "client 0"]
    assert place.clients[0].sample == "5 runs" and place.clients[0].gain.startswith("+34.2")
    assert place.title == "a, run by the server, no defence" and place.metric == "accuracy"


def test_clients_beyond_the_worst_are_a_distribution() -> None:
    cases = [case(seed, client, 0.6 + 0.001 * client + 0.0001 * seed) for seed in range(5) for client in range(101)]
    place = breakdowns(document({"name": "x", "attack": [{"name": "a"}]}, {}, cases, []))[0]
    assert [line.name for line in place.clients] == [f"client {client}" for client in range(100, 88, -1)]
    assert place.more_clients.replace(GLUE, " ") == (
        "89 more clients with smaller gains. Gain of all 101: median +15.0 points, 80 % of them +11.0 to +19.0 points."
    )
    assert breakdowns(leaking())[0].more_clients == ""


def test_a_client_is_called_by_its_name_where_the_data_says_so() -> None:
    named = leaking(ledger={"rounds_seen": [0], "target_name": "north"})
    assert breakdowns(named)[0].clients[0].name == "client 2 (north)"


def test_classes_are_compared_with_the_guess_about_the_same_class() -> None:
    place = breakdowns(leaking())[0]
    assert [line.name for line in place.classes] == ["ill", MARKUP]
    assert place.classes[0].sample == "45 records" and place.classes[1].gain.startswith("\N{MINUS SIGN}10")


def test_records_are_named_by_place_and_score_the_worst_first() -> None:
    records = breakdowns(leaking())[0].records
    assert len(records) == 10
    assert records[0][0] == "client 2, seed 4, record 42" and records[0][1].startswith("100")
    assert records[0][2] == "0.844"


def test_what_did_not_leak_is_not_taken_apart() -> None:
    cases = [case(seed, client, 0.5) for seed in range(4) for client in (0, 1)]
    assert breakdowns(document({"name": "x"}, {}, cases, [])) == []


def test_the_same_attack_on_several_rounds_is_put_side_by_side() -> None:
    cases = [
        case(seed, client, 0.6 + 0.1 * first, attack=label, ledger={"rounds_seen": [first]})
        for label, first in (("late", 2), ("early", 0))
        for seed in range(3)
        for client in (0, 1)
    ]
    parts = [
        {"name": "a", "label": "late", "rounds": [2]},
        {"name": "a", "label": "early", "rounds": "first"},
        {"name": "b"},
    ]
    found = by_round(document({"name": "x", "attack": parts}, {}, cases, []))
    assert len(found) == 1 and found[0].title == "accuracy by round, no defence"
    assert [line.name for line in found[0].lines] == ["early: rounds 0", "late: rounds 2"]
    assert by_round(document({"name": "x", "attack": parts[:1]}, {}, cases, [])) == []


def test_the_page_shows_places_and_power_and_takes_names_for_text(tmp_path: Path) -> None:
    made = leaking()
    power = {"attack": MARKUP, "role": "server", "metric": "accuracy", "planted": "attributes", "mean": 0.9}
    power |= {"floor": 0.5, "over": "majority", "difference": 0.4, "low": 0.3, "high": 0.5, "n": 6}
    made["power"] = [power | {"margin": 0.05, "passed": False, "reason": f"not seen {MARKUP}"}]
    assert power_lines(made)[0]["gain"].startswith("+40")
    results.write(made, tmp_path)
    text = build_report(tmp_path).read_text(encoding="utf-8")
    assert "<script" not in text and "accuracy by class" in text and "Most exposed records" in text
    assert "client 2, seed 4, record 42" in text and "&lt;script&gt;" in text
