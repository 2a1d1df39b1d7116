"""Builds the tables of membership attacks from docs/results/bench/membership.json, and prints what they must show.

python docs/_build/membership_page.py [FILE]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
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
OF_PEOPLE = ("cosine", "from-updates", "best")
BEST, LOSS, SUMS = "best", "loss", ", sums"
COST, OTHER = "cpu_ms_per_record_and_round", "auc_subject_other"
WITHIN, GAIN, WEAK = 0.01, 0.05, 0.70  # what membership-best must show, in AUC

Cell = Mapping[str, Any]  # one setting under one defence
Content = Mapping[str, Mapping[str, Cell]]


def tables(content: Content) -> str:
    """Return all tables and the sentence on membership-best, in Markdown."""
    plain = {SETTINGS[name]: content[name]["none"] for name in SETTINGS if "none" in content.get(name, {})}
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
            _table(list(plain.items()), attacks, "auc", 1.0, 2)
            + _line("CPU ms of best", [_figure(cell["attacks"].get(BEST, {}).get(COST), 2) for cell in plain.values()])
            + _accuracies(plain.values()),
            f"{sentence(content)}{compared(content)}\n",
            "True-positive rate at 1 % false positives, in % (about 1,000 non-members a run, of all clients):\n",
            _table(list(plain.items()), attacks, "tpr_at_1pct_fpr", 100.0, 1),
            "Under defences that the attacker does not use, AUC:\n",
            _table(defended, UNDER_DEFENCES, "auc", 1.0, 2)
            + _line("strongest single attack", [_strongest(cell) for _, cell in defended])
            + _line("runs", [str(cell["runs"]) for _, cell in defended])
            + _accuracies([cell for _, cell in defended]),
        ]
    )


def _line(title: str, cells: Iterable[str]) -> str:
    return f"|{'|'.join([title, *cells])}|\n".replace(" ", "&nbsp;")


def _accuracies(cells: Iterable[Cell]) -> str:
    return _line("accuracy", [_figure(cell.get("utility", {}).get("accuracy"), 2) for cell in cells])


def _figure(values: Sequence[float] | None, digits: int) -> str:
    """Return a mean with half its interval; a dash where nothing was measured."""
    if not values:
        return "–"
    mean, *ends = values
    return f"{mean:.{digits}f}" + (f"±{(ends[1] - ends[0]) / 2:.{digits}f}" if ends else "")


def _singles(cell: Cell) -> dict[str, float]:
    """Return the AUC of every attack that sees single replies, but membership-best."""
    return {one: found(cell, one) for one in cell["attacks"] if one != BEST and not one.endswith(SUMS)}


def _strongest(cell: Cell) -> str:
    single = _singles(cell)
    name = max(single, key=lambda one: single[one])
    return f"{name} {_cell(cell, name, 'auc', 1.0, 2, max(single[name], found(cell, BEST)))}"


def _table(columns: Sequence[tuple[str, Cell]], attacks: Sequence[str], metric: str, scale: float, digits: int) -> str:
    """Return a line per attack and a column per setting; the best of all that see single replies is bold."""
    tops = {
        title: max((found(cell, one, metric) for one in cell["attacks"] if not one.endswith(SUMS)), default=0.0)
        for title, cell in columns
    }
    lines = [_line("attack", tops), _line("---", ["---"] * len(columns))]
    for attack in attacks:
        lines.append(
            _line(attack, [_cell(cell, attack, metric, scale, digits, tops[title]) for title, cell in columns])
        )
    return "".join(lines)


def _cell(cell: Cell, attack: str, metric: str, scale: float, digits: int, top: float) -> str:
    values = cell["attacks"].get(attack, {}).get(metric) or []
    text, sign, half = _figure([scale * value for value in values], digits).partition("±")
    return (f"**{text}**" if values and values[0] == top else text) + sign + half


def found(cell: Cell, attack: str, metric: str = "auc") -> float:
    """Return the mean of a metric, 0 where it was not measured."""
    return float((cell["attacks"].get(attack, {}).get(metric) or [0.0])[0])


def criteria(content: Content) -> list[dict[str, Any]]:
    """Return for every setting and defence how membership-best compares with single attacks and with the loss."""
    lines = []
    for name in SETTINGS:
        for defence, cell in content.get(name, {}).items():
            single = _singles(cell)
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
    """Return both criteria in a sentence, without defences and under them."""
    lines = [line for line in criteria(content) if line["defence"] == "none"]
    defended = [line for line in criteria(content) if line["defence"] != "none"]
    weak = [line for line in lines if line["weak"]]
    least = min(weak, key=lambda line: line["gain"])
    under = f" Under defences it is within 1 point in {_within(defended)}." if defended else ""
    return (
        f"Without a defence, `membership-best` is within 1 point of the best single attack in {_within(lines)}, and 5 "
        f"points or more above `membership-loss` in {sum(line['gains'] for line in weak)} of {len(weak)} where that is "
        f"below 0.7 (least: {100 * least['gain']:.0f}).{under}"
    )


def _within(lines: Sequence[Mapping[str, Any]]) -> str:
    far = max(lines, key=lambda line: line["behind"])
    defence = f",&nbsp;{DEFENCES[far['defence']]}" if far["defence"] in DEFENCES else ""
    return (
        f"{sum(line['within'] for line in lines)} of {len(lines)} settings (farthest behind in "
        f"{SETTINGS[far['setting']]}{defence}: {100 * far['behind']:.1f} points)"
    )


def compared(content: Content) -> str:
    """Return how fedmia does in a setting near that of its paper, in a sentence; empty where it was not measured."""
    cell = content.get("cifar100-long", {}).get("none")
    if cell is None:
        return ""
    fedmia, *others = (f"{one} {found(cell, one):.2f}" for one in ("fedmia II", "cosine", "from-updates"))
    runs = f"{cell['runs']} run{'s' if cell['runs'] > 1 else ''}"
    return (
        f" With CIFAR-100 for forty rounds, as Zhu et al. 2025 in small ({runs}): {fedmia}, {' and '.join(others)}; "
        "their measure, the TPR at 0.1 % FPR, needs more non-members."
    )


def people(content: Content) -> str:
    """Return what is found of FEMNIST's writers, in a sentence."""
    cell = content["femnist"]["none"]
    sides = ("auc_subject_from_1", "auc_subject_from_5", "auc_subject")
    asked = (f"{attack} {', '.join(f'{found(cell, attack, side):.2f}' for side in sides)}" for attack in OF_PEOPLE[:2])
    others = (f"{attack} {_between(cell['attacks'][attack][OTHER])}" for attack in (LOSS, *OF_PEOPLE))
    return (
        f"FEMNIST by writer, {cell['runs']} runs of 12 rounds, from one, five and all images: "
        f"{'; '.join(asked)}; from images never trained on (95 % intervals): "
        f"{', '.join(others)}.\n"
    )


def _between(values: Sequence[float]) -> str:
    mean, *ends = (f"{value:.2f}" for value in values)
    return f"{mean} ({'–'.join(ends)})" if ends else mean


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
