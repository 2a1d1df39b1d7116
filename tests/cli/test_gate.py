"""`fedxray gate` and `fedxray compare` from the command line: what they print, write and return."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fedxray import cli
from fedxray.audit.judge import results
from fedxray.audit.judge.gate import Judged
from fedxray.cli.decide import gate_lines
from tests.report.synthetic import make_document

LIMIT = '[[gate]]\nattack = "membership-loss"\nmetric = "auc_over_floor"\ndefence = "{}"\nlimit = {}\n'


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    document = make_document()
    for row in document["summary"]:
        if row["primary"] and row["defence"] == "dp-sgd" and row["attack"] == "membership-loss":
            row |= {"state": "no leak found", "verdict": "no leak found"}  # as after a passed power check
    return document


@pytest.fixture
def folder(made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "pilot"
    place.mkdir()
    results.write(made, place)
    return place


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["fedxray", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


@pytest.mark.parametrize(
    ("defence", "limit", "code", "word"),
    [("dp-sgd", 0.3, 0, "passed"), ("none", 0.01, 1, "FAILED"), ("none", 0.15, 3, "inconclusive")],
)
def test_the_exit_code_is_the_outcome(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    defence: str,
    limit: float,
    code: int,
    word: str,
) -> None:
    policy = folder.parent / "policy.toml"
    policy.write_text(LIMIT.format(defence, limit))
    arguments = ("gate", folder, "--policy", policy, "--junit", "gate.xml", "--sarif", "gate.sarif")
    assert run(monkeypatch, *arguments) == code
    assert capsys.readouterr().out.startswith(word)
    root = ElementTree.parse(folder.parent / "gate.xml").getroot()
    assert int(root.get("failures", "")) == (code == 1) and int(root.get("errors", "")) == (code == 3)
    result = json.loads((folder.parent / "gate.sarif").read_bytes())["runs"][0]["results"][0]
    place = result["locations"][0]["physicalLocation"]
    line = 1 + LIMIT.splitlines().index("[[gate]]")
    assert place == {"artifactLocation": {"uri": "policy.toml"}, "region": {"startLine": line}}
    assert result["level"] == {0: "none", 1: "error", 3: "warning"}[code]


def test_without_limits_or_with_a_wrong_one_it_is_usage(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "gate", folder) == 2 and "--policy" in capsys.readouterr().err
    policy = folder.parent / "policy.toml"
    policy.write_text(LIMIT.format("nun", 0.1))
    assert run(monkeypatch, "gate", folder, "--policy", policy) == 2
    assert "none" in capsys.readouterr().err and not (folder.parent / "gate.xml").exists()
    assert run(monkeypatch, "gate", folder.parent / "nowhere") == 2


def test_one_failed_limit_outweighs_an_open_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = folder.parent / "policy.toml"
    policy.write_text(LIMIT.format("none", 0.15) + LIMIT.format("none", 0.01) + LIMIT.format("dp-sgd", 0.3))
    assert run(monkeypatch, "gate", folder, "--policy", policy) == 1


def test_compare_ends_with_1_where_something_got_worse(
    folder: Path, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worse = copy.deepcopy(made)
    for row in worse["summary"]:
        if row["metric"] == "auc" and row["defence"] == "none":
            row |= {"difference": 0.4, "low": 0.39, "high": 0.41}
    other = folder.parent / "next"
    other.mkdir()
    results.write(worse, other)
    assert run(monkeypatch, "compare", folder, folder) == 0
    assert "Nothing got worse" in capsys.readouterr().out
    assert run(monkeypatch, "compare", folder, other) == 1
    assert "Worse, beyond the intervals:\n  membership-loss (server), none: auc" in capsys.readouterr().out
    assert run(monkeypatch, "compare", other, folder) == 0
    assert run(monkeypatch, "compare", folder, folder.parent / "nowhere") == 2


def test_a_verdict_that_became_a_leak_is_worse(
    folder: Path, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, old = copy.deepcopy(made), folder.parent / "old.json"
    for row in before["summary"]:
        if row["state"] == "leaks":
            row |= {"state": "suspected", "verdict": "inconclusive"}
    results.write(before, old)
    assert run(monkeypatch, "compare", old, folder) == 1
    text = capsys.readouterr().out
    assert "Worse by the verdict" in text and "    suspected → leaks" in text
    before["cases"] = [case for case in before["cases"] if case["seed"] == before["cases"][0]["seed"]]
    results.write(before, old)  # with fewer runs it was only not settled
    assert run(monkeypatch, "compare", old, folder) == 0
    assert "Verdict changed" in capsys.readouterr().out


def test_names_cannot_steer_the_terminal() -> None:
    made = Judged(
        attack="a\x1b[2J",
        metric="auc",
        limit=0.1,
        defence="none",
        asked=None,
        role="server",
        aware=None,
        outcome="pass",
        value=0.0,
        low=0.0,
        high=0.0,
        reason="\x1b]0;x\x07",
        state="\x1b",
    )
    assert "\x1b" not in "".join(gate_lines([made]))


def test_recommend_takes_its_limits_from_a_policy_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("policy.toml").write_text(LIMIT.format("none", 0.3), encoding="utf-8")
    assert run(monkeypatch, "recommend", folder, "--policy", "policy.toml") == 0
    assert "membership-loss: auc_over_floor at most 0.3" in capsys.readouterr().out
    Path("policy.toml").write_text(LIMIT.format("none", -5), encoding="utf-8")
    assert run(monkeypatch, "recommend", folder, "--policy", "policy.toml") == 1
    assert "No recommendation" in capsys.readouterr().out
