"""The command `fedxray reproduce`: what it prints, writes and returns."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from fedxray import cli
from fedxray.adversary.view import View
from fedxray.attacks.attributes.from_model import AttributeFromModel
from fedxray.attacks.base import Context
from fedxray.attacks.evidence import Evidence
from fedxray.audit.judge.results import read_results
from fedxray.audit.run import execute
from fedxray.audit.run.audit import WeightedProgress
from fedxray.cli.reproduce import LineProgress
from fedxray.reproduce import document as documents
from fedxray.reproduce.base import REPRODUCTIONS, Request
from fedxray.reproduce.run import job, reproduce
from tests.reproduce import fakes


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("audited", "measured"):
        monkeypatch.setitem(REPRODUCTIONS, f"fake-{name}", f"tests.reproduce.fakes:{name.upper()}")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fedxray", "reproduce", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def test_tables_are_printed_and_written_where_results_go(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "fake-measured", "--engine", "inline", "--row", "far") == 0
    said = capsys.readouterr().out
    assert "Figure 7" in said and "11.0 dB" in said.replace("\N{NO-BREAK SPACE}", " ") and "not in our text" in said
    assert Path("fedxray-out", "fake-measured", "reproduction.json").is_file()
    assert run(monkeypatch, "fake-measured", "--engine", "inline") == 2
    assert "--resume" in capsys.readouterr().err
    assert run(monkeypatch, "fake-measured", "--engine", "inline", "--resume", "--quiet") == 0
    ended = capsys.readouterr()
    assert ended.out == "" and ended.err == ""


def test_failed_cases_are_reported_and_retried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []
    real = AttributeFromModel.attack

    def breaks(self: AttributeFromModel, view: View, context: Context) -> Evidence:
        if self.grid == fakes.OF_GLOBAL:
            tried.append(self.model.name)
            raise ZeroDivisionError("on purpose")
        return real(self, view, context)

    monkeypatch.setattr(AttributeFromModel, "attack", breaks)
    command = ("fake-audited", "--engine", "inline", "--quiet")
    assert run(monkeypatch, *command) == 4
    said = capsys.readouterr()
    assert said.out == "" and "2 of 4 cases failed: global: ZeroDivisionError" in said.err
    rows = documents.read(Path("fedxray-out", "fake-audited"))["rows"]
    statuses = {(row["column"], row["metric"]): (row["statuses"], row["ours"]["n"]) for row in rows}
    assert statuses == {
        ("last", "accuracy"): ({"ok": 2}, 2),
        ("last", "balanced_accuracy"): ({"ok": 2}, 2),
        ("global", "accuracy"): ({"failed": 2}, 0),
    }
    results = read_results(Path("fedxray-out", "fake-audited", "rounds-1"))
    reasons = {case["reason"] for case in results["cases"] if case["status"] == "failed"}
    assert len(reasons) == 1 and re.match(r"ZeroDivisionError in test_cli\.py, line \d+", reasons.pop())
    assert run(monkeypatch, *command, "--resume") == 4, "they are retried, and fail again"
    monkeypatch.setattr(AttributeFromModel, "attack", real)
    assert run(monkeypatch, *command, "--resume") == 0
    assert capsys.readouterr().err.count("2 of 4 cases failed") == 1
    mended = documents.read(Path("fedxray-out", "fake-audited"))
    assert all(row["statuses"] == {"ok": 2} and row["ours"]["n"] == 2 for row in mended["rows"])
    assert mended["command"].count(" && ") == 0 and tried == ["global-model"] * 4


@pytest.mark.parametrize("status", ["diverged", "truncated", "refused"])
def test_cases_without_a_score_end_with_4_however_they_ended(
    status: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, only the status `failed` counted."""
    real = execute._attack_case

    def unscored(plan: Any, store: Any, case: Any) -> None:
        if case.attack == "last":
            return execute.write_failed_case(store, case, "no guess", status)
        return real(plan, store, case)

    monkeypatch.setattr(execute, "_attack_case", unscored)
    assert run(monkeypatch, "fake-audited", "--engine", "inline", "--quiet") == 4
    assert "2 of 4 cases" in capsys.readouterr().err


def test_a_dry_run_counts_cases_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "fake-audited", "--dry-run", "--clients", "3", "--columns", "last") == 0
    assert capsys.readouterr().out.split()[:3] == ["rounds-1", "3", "cases,"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fake-audit",), "Did you mean fake-audited"),
        (("fake-audited", "--row", "rounds-9"), "--row"),
        (("fake-audited", "--columns", "last,nothing"), "--columns"),
        (("fake-audited", "--scale", "tiny"), "--scale"),
        (("fake-audited", "--clients", "0"), "--clients"),
    ],
)
def test_mistakes_print_one_message_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert words in capsys.readouterr().err


def test_a_log_has_the_remaining_time() -> None:
    said, now = list[str](), [0.0]
    lines = LineProgress(clock=lambda: now[0], write=said.append)
    assert isinstance(lines, WeightedProgress)
    for now[0], done, label in ((30.0, 0, "run"), (60.0, 2, "row case")):
        lines(done, 4, label)
    assert said == ["0/4 after 30 s: run", "2/4 after 60 s, about 60 s left: row case"]


def test_the_remaining_time_follows_the_estimates() -> None:
    said, now = list[str](), [0.0]
    lines = LineProgress(clock=lambda: now[0], write=said.append)
    lines.weigh({"a short": 10.0, "b long": 80.0, "b other": 10.0})
    for now[0], done, label in ((10.0, 1, "a short"), (90.0, 2, "b long")):
        lines(done, 3, label)
    assert said == ["1/3 after 10 s, about 2 min left: a short", "2/3 after 2 min, about 10 s left: b long"]


def test_all_rows_are_estimated_before_the_first_begins_and_logged(tmp_path: Path) -> None:
    printed: list[str] = []
    lines = LineProgress(clock=lambda: 0.0, write=printed.append)
    asked = job("fake-audited", Request(scale="small"), ("rounds-1", "rounds-2"), ("last",))
    reproduce(asked, tmp_path / "out", progress=lines)
    labels = {line.rpartition(": ")[2] for line in printed}
    assert {label.partition(" ")[0] for label in labels} == {"rounds-1", "rounds-2"} and len(labels) == len(printed)
    assert lines.waiting and not lines.costs and not lines.running  # everything was expected, and has ended
    lines = (tmp_path / "out" / "log").read_text().splitlines()
    assert "fedxray reproduce fake-audited" in lines[0] and "4 cases in 2 rows" in lines[0]
    assert [line.partition("Z ")[2] for line in lines[1:]] == [
        f"rounds-{number}: ended, 0 of 2 cases failed" for number in (1, 2)
    ]


def test_all_reproductions_and_their_scoreboard(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {name: REPRODUCTIONS[name] for name in ("fake-audited", "fake-measured")}
    monkeypatch.setattr("fedxray.reproduce.base.REPRODUCTIONS", few)  # items taken out come back in another order
    assert run(monkeypatch) == run(monkeypatch, "fake-audited", "--all") == run(monkeypatch, "--all", "--row", "x") == 2
    capsys.readouterr()
    assert run(monkeypatch, "--all", "--engine", "inline", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "fake-audited rounds-1" in said and "In total about" in said and not Path("fedxray-out").exists()
    assert run(monkeypatch, "--all", "--engine", "inline", "--quiet") == 0
    assert "not measured yet" in Path("fedxray-out", "all", "scoreboard.md").read_text("utf-8")
    few["fake-broken"] = "tests.reproduce.fakes:ABSENT"
    assert run(monkeypatch, "--all", "--engine", "inline", "--quiet") == 4  # the others are continued
    assert "fake-broken: left out" in capsys.readouterr().err and not Path("fedxray-out", "all", "fake-broken").exists()


def test_what_is_left_out_is_grouped_by_its_data_and_not_in_the_total(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    few = {"fake-audited": REPRODUCTIONS["fake-audited"], "fake-measured": REPRODUCTIONS["fake-measured"]}
    few |= {name: "tests.reproduce.fakes:MISSING" for name in ("fake-missing", "fake-missing-too")}
    monkeypatch.setattr("fedxray.reproduce.base.REPRODUCTIONS", few)
    for name in ("FEDXRAY_DATA", "FEDXRAY_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    assert run(monkeypatch, "--all", "--engine", "inline", "--dry-run") == 0
    said = capsys.readouterr()
    assert "fake-missing" not in said.out, "rows of what is left out are not listed: they are not in the total"
    (line,) = said.err.splitlines()
    assert line == (
        "fedxray: data set adult missing: 2 reproductions left out (fake-missing, fake-missing-too): "
        "fedxray data get adult"
    )
    end = "; 1 reproduction measured directly not counted; 2 reproductions left out (data missing)."
    assert said.out.splitlines()[-1].startswith("In total about ") and said.out.rstrip().endswith(end)
