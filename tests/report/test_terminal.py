"""The summary in the terminal."""

from __future__ import annotations

import io
import tomllib
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from fedxray.metrics.units import GLUE
from fedxray.report import print_summary, summary_lines
from fedxray.report.overview import answer, cards
from tests.report.states import ROWS, make_results, make_row
from tests.report.synthetic import make_document


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return make_document()


def printed(document: dict[str, Any], width: int = 100) -> str:
    out = io.StringIO()
    print_summary(document, Console(file=out, width=width))
    return out.getvalue()


def test_headline_then_a_line_per_primary_row_then_next_steps() -> None:
    rows = [make_row(), make_row("no leak found", defence="dp-sgd", aware=True)]
    rows.append(make_row(metric="balanced_accuracy", primary=False, state=None, verdict=None))
    document = make_results(*rows)
    document["cases"][0] |= {"status": "diverged", "scores": {}}
    lines = summary_lines(document)
    assert lines[0].startswith("digits-pilot: It leaks without a defence; no leak found under dp-sgd. Largest: ")
    assert lines[1] == "1 of 90 cases failed: attribute-from-model: diverged. They never count as safety."
    title = f"  attribute-from-model (server), accuracy, margin 5{GLUE}points: "
    assert lines[2:4] == [
        f"{title}no defence, 78.6{GLUE}%, 62.2{GLUE}%, +16.4 (6.6 to 26.2), leaks",
        f"{title}dp-sgd, aware, 62.8{GLUE}%, 62.2{GLUE}%, +0.6 (−2.0 to 3.0), no leak found",
    ]
    assert lines[4:] == ["Next steps:", *(f"  - {text}" for text, _ in answer(document, cards(document)).steps[1:])]


def test_a_leak_whose_interval_includes_0_is_explained_under_its_table() -> None:
    note = "In these 3 runs it is not luck (p = 0.009); the interval is for other runs."
    document = make_results(make_row(low=-0.089))
    assert note in printed(document).splitlines() and f"  {note}" in summary_lines(document)
    rows = [make_row(low=-0.089), make_row("no leak found", defence="dp-sgd", aware=True)]
    assert f"no defence: {note}" in printed(make_results(*rows)).splitlines()
    assert "not luck" not in printed(make_results(make_row(low=0.01))).partition("Next steps")[0]


@pytest.mark.parametrize("kind", ROWS)
def test_every_state_fits_into_80_columns(kind: str) -> None:
    rows = [make_row(kind, defence="gaussian-noise", aware=False, low=-0.999, high=0.999)]
    lines = printed(make_results(*rows), width=80).splitlines()
    assert max(len(line) for line in lines if not line.startswith("      ")) <= 80, "all but what is pasted"
    (line,) = [line for line in lines if line.startswith("gaussian-noise, unaware ")]
    assert line.rstrip().endswith(ROWS[kind]["state"])


def test_a_command_stands_on_a_line_of_its_own() -> None:
    lines = printed(make_results(make_row("suspected")), width=80).splitlines()
    assert lines[-1].rstrip() == "      fedxray audit PLAN.toml --resume --seeds 5"


@pytest.mark.parametrize("width", [40, 80])
def test_snippets_and_commands_are_not_wrapped(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    attack = "attribute-from-model"
    snippet = f'{{ name = "{attack}", label = "{attack} with prior", prior = "floor" }}'
    command = f"fedxray audit {'folder of the clinic/' * 4}plan.toml --resume --seeds 5"
    document = make_results(make_row())
    steps = (("Add to the plan:", snippet), ("About 2 more seeds would settle it:", command))
    found = replace(answer(document, cards(document)), steps=steps)
    monkeypatch.setattr("fedxray.report.terminal.answer", lambda document, made: found)
    lines = [line.strip() for line in printed(document, width=width).splitlines()]
    assert snippet in lines and command in lines
    assert tomllib.loads(f"attack = [{snippet}]")["attack"][0]["prior"] == "floor"


def test_the_tables_hold_every_primary_row_and_call_no_oracle_a_leak(made: dict[str, Any]) -> None:
    text = printed(made)
    assert "tpr_at_1pct_fpr" not in text and "membership-loss (server), auc" in text
    oracle = text[text.index("local-model-oracle (server)") : text.index("Next steps")]
    assert "upper bound" in oracle and "leaks" not in oracle


def test_names_cannot_command_the_terminal(made: dict[str, Any]) -> None:
    row = {**made["summary"][0], "attack": "[bold red]x[/]\x1b[31m", "defence": "\x1b]0;t\x07\n"}
    changed = {**made, "summary": [row], "plan": {"name": "n\x1b[2J"}}
    text = printed(changed) + "\n".join(summary_lines(changed))
    assert "\x1b" not in text and "\x07" not in text
    assert "[bold red]x[/]" in text


def test_long_lines_are_wrapped_under_their_text(made: dict[str, Any]) -> None:
    lines = printed(made, width=80).splitlines()
    assert max(map(len, lines)) <= 80
    first = next(index for index, line in enumerate(lines) if line.startswith("  - "))
    assert lines[first + 1].startswith("    ") and lines[first + 1][4] != " "
