"""The snippets of docs/ci.md that send results to MLflow and W&B, run with stand-ins for both packages."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.report.states import make_results, make_row

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")
SNIPPETS = {re.search(r"mlflow|wandb", text)[0]: text for text in re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)}  # type: ignore[index]


@pytest.mark.parametrize("package", ["mlflow", "wandb"])
def test_a_snippet_sends_the_gain_of_every_judged_row(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are those that MLflow accepts, and rows that differ only in awareness do not collide."""
    swept = [make_row("leaks", defence="noise[scale=0.1]", aware=aware) for aware in (True, False)]
    document = make_results(make_row("leaks"), *swept, make_row("suspected", attack="x", difference=None))
    (tmp_path / "results.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    sent: dict[str, Any] = {}
    runs: list[str] = []

    @contextmanager
    def begin(*, project: str = "", name: str = "", run_name: str = "") -> Iterator[SimpleNamespace]:
        runs.append(name or run_name)
        yield SimpleNamespace(summary=sent)

    def log_metric(name: str, value: float) -> None:
        assert re.fullmatch(r"[\w./ :-]+", name) and name not in sent and isinstance(value, float)
        sent[name] = value

    stand_in = SimpleNamespace(start_run=begin, init=begin, log_metric=log_metric)
    monkeypatch.setitem(sys.modules, package, stand_in)  # type: ignore[arg-type]
    code = SNIPPETS[package]
    assert len(code.splitlines()) <= 10
    exec(compile(code, "docs/ci.md", "exec"), {})
    assert runs == [document["plan"]["name"]]
    assert sorted(value for value in sent.values() if value is not None) == [0.164] * 3
    assert len(sent) == (3 if package == "mlflow" else 4)
