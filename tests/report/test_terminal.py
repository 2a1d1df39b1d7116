"""The summary in the terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from fedxray.report import print_summary, summary_lines
from fedxray.report.overview import next_steps
from tests.report.synthetic import make_document


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return make_document()


def printed(document: dict[str, Any], width: int = 100) -> str:
    out = io.StringIO()
    print_summary(document, Console(file=out, width=width))
    return out.getvalue()


def test_lines_hold_verdicts_and_findings(made: dict[str, Any]) -> None:
    lines = summary_lines(made)
    assert lines[0] == "digits-pilot: 160 cases, 2 failed or cut off"
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["none", "leaks"],
        ["gaussian-noise", "leaks"],
        ["dp-sgd", "inconclusive"],
    ]
    assert lines[4].endswith("(deployed)")
    assert lines[5] == "Worst findings:" and len(lines[6:9]) == 3
    assert lines[6].startswith("  - The server reconstructs training images")
    assert "inverting-gradients" in lines[6] and "Level: client." in lines[6]
    assert lines[9:] == ["Next steps:", *(f"  - {step}" for step in next_steps(made))]


def test_the_tables_hold_every_row_and_call_no_oracle_a_leak(made: dict[str, Any]) -> None:
    text = printed(made)
    assert sum(verdict in text for verdict in ("leaks", "inconclusive", "upper bound")) == 3
    oracle = text[text.index("local-model-oracle (server)") : text.index("digits-pilot")]
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
