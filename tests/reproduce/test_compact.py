"""Few lines of a result for written pages."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.compact import gains, numbers


def row(metric: str, mean: float | None, **more: Any) -> dict[str, Any]:
    ours = {"mean": mean, "low": 17.0, "high": 19.0, "clients": 4, "seeds": 1, "n": 4}
    return {
        "row": "one", "column": "dlf", "metric": metric, "ours": ours, "paper": None, "over": None, "floors": {}, **more
    }  # fmt: skip


def test_a_line_holds_all_metrics_of_a_row_and_column() -> None:
    paper, floors = {"mean": 21.2, "spread": None}, {"mean-image": {"mean": 16.9}}
    cells = [row("psnr", 18.0, paper=paper, over="mean-image", floors=floors), row("ssim", None)]
    head, lines = numbers({"rows": cells}, ("psnr", "ssim", "rec"))
    assert head == ("row", "attack", "clients x seeds", "psnr", "ssim", "rec")
    (line,) = lines
    assert line[:3] == ("one", "`dlf`", "4 x 1")
    assert " " not in line[3], "no line ends within a number"
    assert line[3].replace("\xa0", " ") == "18.0 dB<br>(17.0 to 19.0 dB)<br>[21.2 dB]<br>floor 16.9 dB"
    assert line[4:] == ("–", "–"), "not measured, and not asked"


def test_differences_say_between_what_and_where() -> None:
    shared = {"metric": "psnr", "mean": 0.5, "low": 0.1, "high": 0.9, "n": 4, "paper": None}
    within = {**shared, "left": "dlf", "right": "other", "rows": ["one", "one"]}
    across = {**shared, "left": "dlf", "right": "dlf", "rows": ["one", "two"], "paper": 2.0, "low": None}
    _, lines = gains({"differences": [within, across]}, ("psnr",))
    told = [tuple(cell.replace("\xa0", " ") for cell in line) for line in lines]
    assert told[0] == ("`dlf` − `other`", "one", "4", "+0.5 dB<br>(+0.1 to +0.9 dB)")
    assert told[1] == ("`dlf`", "one − two", "4", "+0.5 dB<br>[+2.0 dB]")


def test_other_metrics_are_left_out() -> None:
    assert numbers({"rows": [row("rec", 0.5)]}, ("psnr",))[1] == []
