"""The rule on simulated audits, cut down from `bench/simulations.py`: false alarms, reassurance and power."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.judge import statistics

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def simulations(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.setattr(statistics, "DRAWS", 499)
    import simulations as module

    yield module
    sys.modules.pop("simulations", None)


@pytest.mark.parametrize("design", [1, 2, 4, 9, 11])  # one run, few records, three of each, ten clients, unequal ones
def test_audits_without_a_leak_are_rarely_called_one(simulations: Any, design: int) -> None:
    rows = {1: 60, 5: 40, 20: 15}
    tables = list(simulations.false_leaks([simulations.DESIGNS[design]], rows))
    for count, audits in rows.items():
        wrong = sum(row[f"rows {count}"] for row in tables) / len(tables)
        assert wrong <= 0.05 + 3 * (0.05 * 0.95 / (audits * len(tables))) ** 0.5


def test_a_leak_of_two_margins_is_never_reassured_away_and_none_is_sometimes(simulations: Any) -> None:
    for row in simulations.reassured(800):
        assert row["margins 4"] == 0 and row["margins 2"] <= 0.02 and row["margins 1"] <= 0.12
    assert row["margins 0"] > 0.9  # 20 runs, 160 + 40 records


def test_large_leaks_are_found_where_the_rule_before_found_few(simulations: Any) -> None:
    design = simulations.Design(3, 3, 50, 0.1, 0.3)
    draw = simulations.np.random.default_rng(0)
    leaking = simulations.draw_shares(design, 60, draw, gain=0.39)
    facts = simulations.share_facts(leaking)
    found = [
        simulations.verdicts([row, *simulations.share_facts(simulations.draw_shares(design, 9, draw))])[0]
        for row in facts
    ]
    assert found.count("leaks") >= 55 and simulations.old_leaks(leaking.gains, 10).sum() < 40
