"""The time left: good to a factor of 2 after a tenth of the work, on recorded timings; no test reads a clock."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.workers.engines import Inline, Task
from fedxray.cli.time_left import LONG, EstimatedProgress, groups_of

# Expected seconds, start and end of every task of three audits, by the CPU time that it took on one of two cores.
RECORDED = json.loads(Path(__file__).with_name("timings.json").read_text(encoding="utf-8"))
FEW = 3.5  # seconds by which a statement may always be wrong


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time that was set."""
        return self.now


def stated(stages: list[dict[str, Any]], *, slow: float = 1.0) -> list[tuple[str, float, float | None, float]]:
    """Return stage, part of its time that has passed, stated and true time left, at many moments of a recording."""
    clock, found = Clock(), []
    meter = EstimatedProgress(clock=clock)
    for stage in stages:
        began, tasks = slow * stage["began"], stage["tasks"]
        end = slow * max(task[2] for task in tasks.values())
        events = [(slow * task[1], 1, label) for label, task in tasks.items()]
        events += [(slow * task[2], 0, label) for label, task in tasks.items()]
        moments = [(began + part * (end - began) / 100, 2, "") for part in range(10, 100, 2)]
        clock.now, done = began, 0
        meter.weigh({label: task[0] for label, task in tasks.items()})
        for clock.now, what, label in sorted([*events, *moments]):
            if what == 0:
                done += 1
                meter.end(label, done, len(tasks))
            elif what == 1:
                meter.start(label)
            else:
                found.append(
                    (stage["stage"], (clock.now - began) / (end - began), meter.seconds_left(), end - clock.now)
                )
        assert meter.share_done() == pytest.approx(1.0) and meter.seconds_left() == 0
    return found


@pytest.mark.parametrize("slow", [1.0, 5.0], ids=["free", "busy"])
@pytest.mark.parametrize("recorded", RECORDED, ids=[recording["name"] for recording in RECORDED])
def test_the_time_left_is_good_to_a_factor_of_2_after_a_tenth_of_the_work(
    recorded: dict[str, Any], slow: float
) -> None:
    """Also on a computer that is slower than the one that was estimated, but for the first seconds there."""
    statements = stated(recorded["stages"], slow=slow)
    first = recorded["stages"][0]["stage"]
    wrong = [
        (stage, round(part, 2), left, true)
        for stage, part, left, true in statements
        if left is not None
        and abs(left - true) > FEW * slow
        and not true / 2.1 <= left <= 2.1 * true
        and (slow == 1 or stage != first or part > 0.4)
    ]
    assert not wrong
    assert sum(left is not None for _, _, left, _ in statements) > 0.8 * len(statements)


@pytest.mark.parametrize("wrong", [{}, {"cheap": 3.0, "dear": 0.5}, {"cheap": 0.3, "dear": 2.0}])
def test_kinds_of_tasks_correct_their_own_expectation(wrong: dict[str, float]) -> None:
    draw, expected, clock = random.Random(0), {"cheap": 1.0, "dear": 30.0}, Clock()
    for slow in (0.5, 1.0, 4.0):  # the machine against the one that was estimated
        tasks = [
            (kind, f"{kind}.seed{seed}.client{place}") for seed in range(5) for place in range(8) for kind in expected
        ]
        real = [slow * expected[kind] * wrong.get(kind, 1.0) * draw.uniform(0.7, 1.4) for kind, _ in tasks]
        meter, clock.now = EstimatedProgress(clock=clock), 0.0
        meter.weigh({label: expected[kind] for kind, label in tasks})
        assert meter.seconds_left() is None
        for done, ((_, label), seconds) in enumerate(zip(tasks, real, strict=True), 1):
            meter.start(label)
            clock.now += seconds
            meter.end(label, done, len(tasks))
            left = meter.seconds_left()
            if 0.1 <= clock.now / sum(real) < 0.95:
                assert left is not None and 0.5 < left / (sum(real) - clock.now) < 2


def test_tasks_that_run_at_once_share_the_time_and_a_running_one_counts_down() -> None:
    clock = Clock()
    meter = EstimatedProgress(clock=clock)
    meter.weigh({f"dlf.seed0.client{place}": 100.0 for place in range(6)})
    for place in (0, 1):
        meter.start(f"dlf.seed0.client{place}")
    clock.now = 100.0
    for place in (0, 1):
        meter.end(f"dlf.seed0.client{place}", place + 1, 6)
        meter.start(f"dlf.seed0.client{place + 2}")
    assert meter.seconds_left() == pytest.approx(200)
    clock.now = 150.0
    assert meter.seconds_left() == pytest.approx(150)
    assert meter.share_done() == pytest.approx(0.5)
    meter.weigh({"dlf.seed1.client0": 100.0})  # what is known serves the next stage
    assert meter.seconds_left() == pytest.approx(100) and meter.share_done() == 0
    meter.forget()
    assert meter.seconds_left() is None


def test_what_a_worker_loads_for_its_first_task_is_not_expected_of_the_others() -> None:
    clock = Clock()
    meter = EstimatedProgress(clock=clock)
    meter.weigh({f"none.seed{seed}": 0.1 for seed in range(10)} | {"dlf.server.none.seed0.client0": LONG})
    meter.start("none.seed0")
    clock.now = 10.0
    meter.end("none.seed0", 1, 11)
    left = meter.seconds_left()
    assert left is not None and LONG <= left < 1.5 * LONG


def test_a_late_task_makes_those_of_its_kind_longer() -> None:
    clock = Clock()
    meter = EstimatedProgress(clock=clock)
    meter.weigh({"none.seed0": 10.0} | {f"dlf.seed0.client{place}": 10.0 for place in range(5)})
    meter.start("none.seed0")
    clock.now = 10.0
    meter.end("none.seed0", 1, 6)
    meter.start("dlf.seed0.client0")
    clock.now = 50.0
    left = meter.seconds_left()
    assert left is not None and left == pytest.approx(2 + 4 * 10 * 2)  # a fifth of it, and twice as long for the rest


def test_without_expected_seconds_all_tasks_count_the_same() -> None:
    clock = Clock()
    meter = EstimatedProgress(clock=clock)
    assert meter.seconds_left() is None and meter.share_done() == 0
    clock.now = 30.0
    meter.end("row", 1, 4)
    assert meter.seconds_left() == pytest.approx(90) and meter.share_done() == 0.25


def test_groups_leave_out_seed_client_and_digest_only() -> None:
    label = "dlf-8.server.none.seed3.client12-0123456789"
    assert groups_of(label) == groups_of("dlf-8.server.none.seed0.client1-abcdefabcd")
    assert groups_of(label)[2:] == ("case dlf-8", "case dlf-8.server.none.seed.client")
    assert groups_of(label) != groups_of("dlf-1.server.none.seed3.client12-0123456789")
    assert groups_of("planted.dlf.server.seed1.everyone-0123456789")[1:3] == ("case", "case planted.dlf")
    assert groups_of("none.seed0-0123456789")[1:3] == ("run", "run none")


def test_engines_report_what_starts() -> None:
    class Noted:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def start(self, label: str) -> None:
            self.seen.append(f"start {label}")

        def __call__(self, done: int, total: int, label: str) -> None:
            self.seen.append(f"end {label}")

    noted = Noted()
    Inline().run([Task(label=name, function="builtins:str", item=name) for name in "ab"], noted)
    assert noted.seen == ["start a", "end a", "start b", "end b"]
