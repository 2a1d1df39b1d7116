"""A reproduction from its request to its files: rows, resuming, extensions, refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from fedxray.audit.judge.results import read_results
from fedxray.audit.run.audit import Completed
from fedxray.audit.workers.engines import Inline
from fedxray.errors import BadInput
from fedxray.files import locked
from fedxray.reproduce import document as documents, run as run_module
from fedxray.reproduce.base import REPRODUCTIONS, Request
from fedxray.reproduce.run import is_reproduction, job, rebuild, reproduce


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("audited", "measured"):
        monkeypatch.setitem(REPRODUCTIONS, f"fake-{name}", f"tests.reproduce.fakes:{name.upper()}")


def run(folder: Path, name: str = "fake-audited", resume: bool = False, **asked: Any) -> Completed:
    rows, columns = asked.pop("rows", ()), asked.pop("columns", ())
    return reproduce(job(name, Request(**asked), rows, columns), folder, resume=resume)


def cells(ended: Completed) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(one["row"], one["column"], one["metric"]): one for one in ended.document["rows"]}


def test_our_numbers_have_published_ones_floors_controls_and_intervals(tmp_path: Path) -> None:
    ended = run(tmp_path / "out")
    by_cell = cells(ended)
    results = read_results(tmp_path / "out" / "rounds-1")
    cell = by_cell["rounds-1", "last", "accuracy"]
    scores = [case["scores"]["accuracy"] for case in results["cases"] if case["attack"] == "last"]
    assert cell["ours"]["mean"] == pytest.approx(sum(scores) / 2)
    assert (cell["ours"]["n"], cell["ours"]["clients"], cell["ours"]["seeds"]) == (2, 2, 1)
    assert cell["paper"] == {"mean": 0.9, "spread": None} and cell["data"] == "clinic"
    assert by_cell["rounds-1", "global", "accuracy"]["paper"] == {"mean": 0.8, "spread": 0.1}
    assert by_cell["rounds-1", "last", "balanced_accuracy"]["paper"] is None
    row = next(one for one in results["summary"] if one["attack"] == "last" and one["metric"] == "accuracy")
    over = cell["floors"][row["over"]]
    assert cell["over"] == row["over"] and over["mean"] == pytest.approx(row["floor"])
    assert [over[name] for name in ("difference", "low", "high")] == [
        pytest.approx(row[name]) for name in ("difference", "low", "high")
    ]
    assert cell["controls"] == row["controls"] and cell["controls"]
    assert {row for row, _, _ in by_cell} == {"rounds-1"}, "the small scale runs its own rows"
    assert (tmp_path / "out" / "rounds-1" / "report.html").is_file()


def test_differences_are_paired_by_client(tmp_path: Path) -> None:
    ended = run(tmp_path / "out", rows=("rounds-1", "rounds-2"))
    by_cell = cells(ended)
    same, across = (
        next(one for one in ended.document["differences"] if (one["rows"][0] == one["rows"][1]) is equal)
        for equal in (True, False)
    )
    last, global_ = (by_cell["rounds-1", name, "accuracy"]["units"] for name in ("last", "global"))
    gaps = [one["value"] - two["value"] for one, two in zip(last, global_, strict=True)]
    assert same["mean"] == pytest.approx(sum(gaps) / 2) and same["n"] == 2
    assert same["paper"] == pytest.approx(0.1) and same["expected"] == "above"
    assert across["rows"] == ["rounds-1", "rounds-2"] and across["verdict"] is None


def test_the_document_fits_its_schema_and_is_read_back(tmp_path: Path) -> None:
    ended = run(tmp_path / "out")
    text = (tmp_path / "out" / "reproduction.json").read_text()
    jsonschema.validate(json.loads(text), documents.schema())
    jsonschema.Draft202012Validator.check_schema(documents.schema())
    assert documents.read(tmp_path / "out") == ended.document
    assert ended.document["command"] == "fedxray reproduce fake-audited --scale small"
    assert str(tmp_path) not in text
    with pytest.raises(BadInput, match="scale"):
        documents.validate({**ended.document, "scale": "large"})


def test_the_page_holds_both_numbers_and_the_reasons(tmp_path: Path) -> None:
    run(tmp_path / "out")
    page = (tmp_path / "out" / "reproduction.md").read_text()
    assert "| 90.0\N{NO-BREAK SPACE}% |" in page and "last (Ours)" in page
    assert "The clinic is invented; 2 clients in place of 100; the small scale" in page
    assert "accuracy: " in page and "inside our interval" in page


def test_an_interrupted_reproduction_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uninterrupted = run(tmp_path / "whole", rows=("rounds-1", "rounds-2"))
    ended: list[str] = []

    def stop(done: int, total: int, label: str) -> None:
        assert total == 8
        ended.append(label)
        if done == 5:
            raise KeyboardInterrupt

    asked = job("fake-audited", Request(), ("rounds-1", "rounds-2"))
    monkeypatch.setattr(run_module, "time", SimpleNamespace(perf_counter=iter([10.0, 17.0, 20.0, 25.0]).__next__))
    with pytest.raises(KeyboardInterrupt):
        reproduce(asked, tmp_path / "cut", progress=stop)
    assert run_module.summarise_history(tmp_path / "cut")["seconds"] == 7.0, "what was interrupted took time too"
    with pytest.raises(BadInput, match="--resume"):
        reproduce(asked, tmp_path / "cut")
    again: list[tuple[int, int]] = []
    resumed = reproduce(
        asked, tmp_path / "cut", resume=True, progress=lambda done, total, _: again.append((done, total))
    )
    assert again[-1] == (3, 3), "five cases were done before"
    assert resumed.document["command"] == asked.command(), "a resumed command is not another command"
    assert resumed.document["seconds"] == 12.0
    assert without_times(resumed.document) == without_times(uninterrupted.document)


def without_times(content: dict[str, Any]) -> dict[str, Any]:
    rows = [{**row, "seconds": None} for row in content["rows"]]
    return {**content, "rows": rows, "seconds": None, "command": None}


def test_more_clients_seeds_columns_and_rows_reuse_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cells(run(tmp_path / "out", columns=("last",)))
    worked: list[str] = []
    real = Inline.run

    def watched(self: Inline, tasks: Any, *more: Any) -> Any:
        worked.extend(task.label for task in tasks if "client" in task.label)
        return real(self, tasks, *more)

    monkeypatch.setattr(Inline, "run", watched)
    more = run(tmp_path / "out", resume=True, clients=3, columns=("last",))
    assert len(worked) == 1 and "client2" in worked[0]
    assert cells(more)["rounds-1", "last", "accuracy"]["units"][:2] == (first["rounds-1", "last", "accuracy"]["units"])
    worked.clear()
    wider = run(tmp_path / "out", resume=True, clients=2, columns=("global",))
    assert len(worked) == 2 and all(label.startswith("global") for label in worked)
    assert cells(wider)["rounds-1", "last", "accuracy"]["ours"]["n"] == 3, "nothing is taken away"
    worked.clear()
    same = run(tmp_path / "out", resume=True, clients=2, columns=("global",))
    assert not worked and same.document["command"].count(" && ") == 2, "commands that computed nothing are not listed"
    assert "--clients 3 --columns last --resume && " in same.document["command"]
    run(tmp_path / "out", resume=True, clients=2, seeds=2, columns=("last",))
    assert all("seed1" in label for label in worked) and worked
    fresh = run(tmp_path / "fresh", clients=3, columns=("last",))
    mean = cells(fresh)["rounds-1", "last", "accuracy"]["ours"]["mean"]
    assert mean == cells(more)["rounds-1", "last", "accuracy"]["ours"]["mean"]


def test_with_nothing_left_results_and_reports_are_unchanged(tmp_path: Path) -> None:
    run(tmp_path / "out")
    files = [tmp_path / "out" / "rounds-1" / name for name in ("results.json", "report.html")]
    before = [file.stat().st_mtime_ns for file in files]
    run(tmp_path / "out", resume=True)
    assert [file.stat().st_mtime_ns for file in files] == before
    os.utime(files[1], ns=(before[0] - 10**9, before[0] - 10**9))
    run(tmp_path / "out", resume=True)
    assert files[1].stat().st_mtime_ns > files[0].stat().st_mtime_ns, "a report older than its results"
    files[1].unlink()
    run(tmp_path / "out", resume=True)
    assert files[1].is_file()


def test_one_command_at_a_time_works_in_a_folder(tmp_path: Path) -> None:
    for name, folder in (("fake-audited", tmp_path / "one"), ("fake-measured", tmp_path / "two")):
        folder.mkdir()
        with locked(folder), pytest.raises(BadInput, match="in use by process"):
            run(folder, name)
        assert [entry.name for entry in folder.iterdir()] == [".lock"]
        run(folder, name)
        with locked(folder), pytest.raises(BadInput, match="in use by process"):
            run(folder, name, resume=True)


def test_the_folder_is_locked_until_everything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    real = documents.write

    def write(content: Any, folder: Path) -> Path:
        with pytest.raises(BadInput, match="in use"), locked(folder):
            pass
        refused.append(folder.name)
        return real(content, folder)

    monkeypatch.setattr(documents, "write", write)
    run(tmp_path / "out", "fake-measured")
    assert refused == ["out"]


def test_the_duration_is_recorded_for_its_own_command(tmp_path: Path) -> None:
    first, second = (run_module.begin(tmp_path, name) for name in ("first", "second"))
    run_module.end(tmp_path, first, 3.0)
    past = [(one["command"], one["seconds"]) for one in run_module.history(tmp_path)]
    assert past == [("first", 3.0), ("second --resume", 0.0)] and first != second
    old = [{"command": "fedxray", "commit": None, "seconds": 2.0}]
    (tmp_path / run_module.HISTORY).write_text(json.dumps(old))
    mark = run_module.begin(tmp_path, "third")
    run_module.end(tmp_path, mark, 4.0)
    assert run_module.summarise_history(tmp_path)["seconds"] == 6.0 and run_module.history(tmp_path)[0] == old[0]


def test_a_repeated_command_is_listed_once(tmp_path: Path) -> None:
    for name in ("first", "second", "second"):
        run_module.begin(tmp_path, name)
    assert run_module.summarise_history(tmp_path)["command"] == "first && second --resume"


def test_a_page_is_written_again_without_running_anything(tmp_path: Path) -> None:
    for name in ("fake-audited", "fake-measured"):
        folder = tmp_path / name
        ended = run(folder, name)
        (folder / "reproduction.json").unlink()
        page = (folder / "reproduction.md").read_text()
        assert is_reproduction(folder) and rebuild(folder).read_text() == page
        assert documents.read(folder) == ended.document
    assert not is_reproduction(tmp_path) and not is_reproduction(tmp_path / "fake-audited" / "rounds-1")


def test_other_settings_are_not_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.reproduce import fakes

    run(tmp_path / "out")
    changed = fakes.plan(Request(), "rounds-1")
    changed["federation"]["learning_rate"] = 0.1
    monkeypatch.setitem(vars(fakes.AUDITED), "plan", lambda request, row: changed)
    with pytest.raises(BadInput, match="differs in federation"):
        run(tmp_path / "out", resume=True)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"name": "fake-audit"}, "Did you mean fake-audited"),
        ({"rows": ("rounds-3",)}, "--row"),
        ({"columns": ("lats",)}, "Did you mean last"),
        ({"scale": "large"}, "--scale"),
        ({"clients": 5}, "at most 4"),
        ({"clients": 0}, "--clients"),
        ({"seeds": 0}, "--seeds"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(tmp_path: Path, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        run(tmp_path / "out", **asked)
    assert not (tmp_path / "out").exists()


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"other files \(thesis.txt\)"):
        run(tmp_path, resume=True)
    with pytest.raises(BadInput, match="a file"):
        run(tmp_path / "thesis.txt")
    run(tmp_path / "out", "fake-measured")
    with pytest.raises(BadInput, match="another reproduction or scale"):
        run(tmp_path / "out", resume=True)


def test_rows_can_be_measured_without_an_audit(tmp_path: Path) -> None:
    ended = run(tmp_path / "out", "fake-measured")
    by_cell = cells(ended)
    assert by_cell["far", "first", "psnr"]["ours"]["mean"] == pytest.approx(11.0)
    assert by_cell["near", "second", "psnr"]["floors"]["chance"]["mean"] == 0.5
    verdicts = [(one["mean"], one["verdict"]) for one in ended.document["differences"]]
    assert verdicts == [(pytest.approx(1.0), "holds")] * 2
    said = " ".join(ended.document["sentences"])
    assert "not in our text" in said and "the second is above the first" in said
    written = (tmp_path / "out" / "far" / "measured.json").stat().st_mtime_ns
    again = run(tmp_path / "out", "fake-measured", resume=True)
    assert (tmp_path / "out" / "far" / "measured.json").stat().st_mtime_ns == written
    assert without_times(again.document) == without_times(ended.document)
    more = run(tmp_path / "out", "fake-measured", resume=True, seeds=4)
    assert cells(more)["far", "first", "psnr"]["ours"]["n"] == 4
