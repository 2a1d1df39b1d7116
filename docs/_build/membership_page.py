"""Builds the tables of membership attacks from docs/results/bench/membership.json, and prints what they must show.

python docs/_build/membership_page.py [FILE]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).resolve().parents[1] / "results" / "bench" / "membership.json"
SETTINGS = {
    "adult": "Adult",
    "adult-dirichlet": "Adult,&nbsp;D",
    "acs-income": "ACS",
    "acs-income-dirichlet": "ACS,&nbsp;D",
    "cifar10-1": "CIFAR,&nbsp;E&nbsp;1",
    "cifar10-1-dirichlet": "E&nbsp;1,&nbsp;D",
    "cifar10-5": "E&nbsp;5",
    "cifar10-5-dirichlet": "E&nbsp;5,&nbsp;D",
    "femnist": "FEMNIST",
    "femnist-dirichlet": "FEMNIST,&nbsp;D",
}
DEFENCES = {"dp-sgd-8": "ε&nbsp;8", "dp-sgd-1": "ε&nbsp;1", "mixup": "mixup"}
UNDER_DEFENCES = ("loss", "cosine", "fedmia II", "reference", "from-updates", "best", "best, sums")
BEST, LOSS, SUMS = "best", "loss", ", sums"
WITHIN, GAIN, WEAK = 0.01, 0.05, 0.70  # what membership-best must show, in AUC

Cell = Mapping[str, Any]  # one setting under one defence
Content = Mapping[str, Mapping[str, Cell]]


def tables(content: Content) -> str:
    """Return all tables and the sentence on membership-best, in Markdown."""
    plain = {name: content[name]["none"] for name in SETTINGS if "none" in content.get(name, {})}
    attacks = list(dict.fromkeys(attack for cell in plain.values() for attack in cell["attacks"]))
    runs = sorted({cell["runs"] for cell in plain.values()})
    defended = [
        (f"{SETTINGS[name]},&nbsp;{DEFENCES[defence]}", content[name][defence])
        for name in SETTINGS
        for defence in DEFENCES
        if defence in content.get(name, {})
    ]
    return "\n".join(
        [
            f"ROC AUC with 95 % intervals over {' or '.join(map(str, runs))} runs:\n",
            _table([(SETTINGS[name], cell) for name, cell in plain.items()], attacks, "auc", 1.0, 2),
            f"{sentence(content)}\n",
            "True-positive rate at 1 % false positives, in %, mean of the clients' curves by members:\n",
            _table([(SETTINGS[name], cell) for name, cell in plain.items()], attacks, "tpr_at_1pct_fpr", 100.0, 1),
            "Under defences, AUC:\n",
            _table(defended, UNDER_DEFENCES, "auc", 1.0, 2),
        ]
    )


def _table(columns: Sequence[tuple[str, Cell]], attacks: Sequence[str], metric: str, scale: float, digits: int) -> str:
    """Return a line per attack and a column per setting; the best attack that sees single replies is bold."""
    tops = {
        title: max((found(cell, one, metric) for one in attacks if not one.endswith(SUMS)), default=0.0)
        for title, cell in columns
    }
    lines = [["attack", *tops], ["---"] * (len(columns) + 1)]
    for attack in attacks:
        cells = [_cell(cell, attack, metric, scale, digits, tops[title]) for title, cell in columns]
        lines.append([attack.replace(" ", "&nbsp;"), *cells])
    return "".join(f"|{'|'.join(line)}|\n" for line in lines)


def _cell(cell: Cell, attack: str, metric: str, scale: float, digits: int, top: float) -> str:
    mean, *ends = cell["attacks"].get(attack, {}).get(metric) or [None]
    if mean is None:
        return "–"
    half = f"±{scale * (ends[1] - ends[0]) / 2:.{digits}f}" if ends else ""
    text = f"{scale * mean:.{digits}f}"
    return (f"**{text}**" if mean == top else text) + half


def found(cell: Cell, attack: str, metric: str = "auc") -> float:
    """Return the mean of a metric, 0 where it was not measured."""
    return float((cell["attacks"].get(attack, {}).get(metric) or [0.0])[0])


def criteria(content: Content) -> list[dict[str, Any]]:
    """Return for every setting and defence how membership-best compares with single attacks and with the loss."""
    lines = []
    for name in SETTINGS:
        for defence, cell in content.get(name, {}).items():
            single = {one: found(cell, one) for one in cell["attacks"] if one != BEST and not one.endswith(SUMS)}
            strongest = max(single, key=lambda one: single[one])
            best, loss = found(cell, BEST), found(cell, LOSS)
            lines.append(
                {
                    "setting": name,
                    "defence": defence,
                    "runs": cell["runs"],
                    "best": best,
                    "strongest": strongest,
                    "behind": single[strongest] - best,
                    "within": single[strongest] - best <= WITHIN + 1e-9,
                    "gain": best - loss,
                    "weak": loss < WEAK,
                    "gains": best - loss >= GAIN - 1e-9,
                }
            )
    return lines


def sentence(content: Content) -> str:
    """Return both criteria in a sentence, without defences."""
    lines = [line for line in criteria(content) if line["defence"] == "none"]
    weak = [line for line in lines if line["weak"]]
    least = min(weak, key=lambda line: line["gain"])
    within = sum(line["within"] for line in lines)
    behind = max(lines, key=lambda line: line["behind"])
    return (
        f"`membership-best` is within 1 point of the best single attack in {within} of {len(lines)} settings (farthest "
        f"behind in {SETTINGS[behind['setting']]}: {100 * behind['behind']:.1f} points), and 5 points or more above "
        f"`membership-loss` in {sum(line['gains'] for line in weak)} of {len(weak)} where that is below 0.7 (least: "
        f"{100 * least['gain']:.0f})."
    )


def main() -> None:
    """Print both criteria for every setting and defence."""
    content = json.loads((Path(sys.argv[1]) if len(sys.argv) > 1 else MEASURED).read_text(encoding="utf-8"))
    for line in criteria(content):
        weak = f"gain over loss {100 * line['gain']:+.1f} ({'yes' if line['gains'] else 'NO'})" if line["weak"] else ""
        print(
            f"{line['setting']:22}{line['defence']:10}{line['runs']} runs  best {line['best']:.3f}  "
            f"{line['strongest']} {100 * line['behind']:+5.1f} points ({'yes' if line['within'] else 'NO'})  {weak}"
        )
    print(sentence(content).replace("&nbsp;", " "))


if __name__ == "__main__":
    main()
