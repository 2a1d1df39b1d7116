"""The scoreboard: every table and figure of the five papers in one row, with the claim, our numbers and a verdict.

Numbers and verdicts come from documents of reproductions alone (`reproduction.json`). A claim is tested by the order of
columns that the paper reports and by its published numbers:

- *holds*: every order is shown, and every published number lies within our interval, which is not too wide (place() in
  document.py);
- *holds in order*: no order is reversed, and at least as many are shown as are undecided;
- *does not hold*: orders are reversed or absent, no fewer than are shown, or none is undecided; or, without any order,
  no published number is met. An order is absent where our whole interval lies within the margin around 0 and off the
  published difference;
- *undecided*: anything else, such as intervals that include 0, or a single unit, which has none.

Of an order or number in several documents the one with the most units counts. Where the paper says that nothing
changes, an order is shown if the whole interval lies within the metric's margin; where it says that something is kept
or improves, if the interval ends within it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedxray.metrics import units
from fedxray.metrics.table import metric as metric_named
from fedxray.reproduce.claims import CLAIMS, Claim

Document = Mapping[str, Any]
Verdict = Literal["holds", "holds in order", "does not hold", "undecided", "not testable here", "not measured yet"]
VERDICTS: tuple[Verdict, ...] = (
    "holds", "holds in order", "does not hold", "undecided", "not testable here", "not measured yet",
)  # fmt: skip
PAPERS = {
    "dlf": "Dimitrov et al. 2022 (DLF)",
    "awa": "Song et al. 2023 (AWA)",
    "aia": "Diana et al. 2025 (AIA)",
    "lmra": "Driouich et al. (LMRA)",
    "curious": '"curious client" (2024)',
}
HEAD = ("place", "claim", "command", "scale", "clients x seeds", "fedxray (95 % interval), paper", "verdict")
SHOWN = 2  # numbers or differences of a row
STAND_INS = {"femnist-like": "femnist"}  # data set -> the one in whose place it stands


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim with what was measured about it, in words."""

    claim: Claim
    verdict: Verdict
    reason: str
    scale: str = "–"
    units: str = "–"
    numbers: str = "–"

    def cells(self) -> tuple[str, ...]:
        """Return the row of the page."""
        claim = self.claim
        command = f"`fedxray reproduce {claim.by}`" if claim.by else "–"
        shown = f"**{self.verdict}**" + (f": {self.reason}" if self.reason else "")
        return claim.place, claim.says, command, self.scale, self.units, self.numbers, shown


def judge(claim: Claim, documents: Iterable[Document]) -> Judged:
    """Return the verdict on a claim from the documents of its reproduction."""
    if not claim.by:
        return Judged(claim=claim, verdict="not testable here", reason=claim.why)
    own = _on_real_data([content for content in documents if content["name"] == claim.by])
    rows = _numbers(claim, own)
    if not rows:
        return Judged(claim=claim, verdict="not measured yet", reason="")
    pairs = [(entry, _order(claim, entry)) for entry in _differences(claim, own)]
    orders = [(entry, order) for entry, order in pairs if order is not None]
    orders += _searches(claim, own)
    published = [row for row in rows if row["paper"] is not None]
    verdict, reason = _verdict([order for _, order in orders], [row["place"] for row in published])
    if claim.why and verdict in ("does not hold", "undecided"):
        reason = f"{reason}; {claim.why}"
    shown = [_difference(entry) for entry, _ in orders if "left" in entry] + [_number(row) for row in published]
    shown = shown or [_number(row) for row in rows]
    more = f"; {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return Judged(
        claim=claim,
        verdict=verdict,
        reason=reason,
        scale=", ".join(sorted({content["scale"] for content in own})),
        units=_span([row["ours"]["clients"] for row in rows]) + " x " + _span([row["ours"]["seeds"] for row in rows]),
        numbers="; ".join(shown[:SHOWN]) + more,
    )


def _on_real_data(own: Sequence[Document]) -> list[Document]:
    """Return the documents without what was measured on a stand-in, where others hold its real data set."""
    found = {row["data"] for content in own for row in content["rows"] if row["ours"]["n"]}
    replaced = {stand_in for stand_in, real in STAND_INS.items() if real in found}
    kept: list[Document] = []
    for content in own:
        left_out = {row["row"] for row in content["rows"] if row["data"] in replaced}
        rows = [row for row in content["rows"] if row["row"] not in left_out]
        pairs = [entry for entry in content["differences"] if not left_out.intersection(entry["rows"])]
        kept += [{**content, "rows": rows, "differences": pairs}] if rows else []
    return kept


def _numbers(claim: Claim, own: Sequence[Document]) -> list[Mapping[str, Any]]:
    """Return the measured numbers of a claim; of one in several documents that with the most units."""
    most: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for content in own:
        for row in content["rows"]:
            key = (row["row"], row["column"], row["metric"], row["data"], content["scale"])
            counts = claim.counts(row, row["column"]) and row["ours"]["n"]
            if counts and (key not in most or row["ours"]["n"] > most[key]["ours"]["n"]):
                most[key] = row
    return list(most.values())


def _differences(claim: Claim, own: Sequence[Document]) -> list[Mapping[str, Any]]:
    """Return the differences that the paper speaks of; of one in several documents that with the most units.

    Of a table with numbers these are the differences of two of them, and those that the claim itself names.
    """
    named = {(left, right) for left, right, _ in claim.expects}
    most: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for content in own:
        for entry in content["differences"]:
            if entry["paper"] is None and content["paper"]["numbers"] and _pair(entry) not in named:
                continue
            key = (entry["left"], entry["right"], *entry["rows"], entry["metric"])
            if key not in most or entry["n"] > most[key]["n"]:
                most[key] = entry
    return list(most.values())


def _order(claim: Claim, entry: Mapping[str, Any]) -> str | None:
    """Return whether an order of the paper holds, is undecided or reversed; None where the paper states none."""
    if not claim.counts(entry, entry["left"], entry["right"]):
        return None
    expected = next((side for left, right, side in claim.expects if (left, right) == _pair(entry)), None)
    if expected is None:
        order = None if claim.expects or entry["expected"] is None else entry["verdict"] or "undecided"
        return "reversed" if order == "undecided" and _is_absent(entry) else order
    if entry["side"] is None:
        return "undecided"
    margin = metric_named(entry["metric"]).margin
    if expected == "same":
        return "holds" if _within(entry) else "reversed" if max(entry["low"], -entry["high"]) > margin else "undecided"
    if expected in ("not above", "not below"):
        low, high = (entry["low"], entry["high"]) if expected == "not above" else (-entry["high"], -entry["low"])
        return "holds" if high <= margin else "reversed" if low > margin else "undecided"
    if entry["side"] == "undecided":
        return "reversed" if _is_absent(entry) else "undecided"
    return "holds" if entry["side"] == expected else "reversed"


def _within(entry: Mapping[str, Any]) -> bool:
    """Return whether the whole interval of a difference lies within the margin of its metric around 0."""
    return entry["low"] is not None and max(-entry["low"], entry["high"]) <= metric_named(entry["metric"]).margin


def _is_absent(entry: Mapping[str, Any]) -> bool:
    return _within(entry) and entry["paper"] is not None and not entry["low"] <= entry["paper"] <= entry["high"]


def _pair(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return both sides of a difference: the columns, or of one column the rows."""
    if entry["left"] == entry["right"]:
        return entry["rows"][0], entry["rows"][1]
    return entry["left"], entry["right"]


def _searches(claim: Claim, own: Sequence[Document]) -> list[tuple[Mapping[str, Any], str]]:
    """Return for every search whether its lowest loss is below that of its starts."""
    if not claim.searched:
        return []
    losses = {
        (entry["row"], entry["column"], entry["seed"], entry["client"]): entry
        for content in own
        for entry in content.get("searches", ())
        if entry.get("loss_of_starts") is not None
    }
    return [(entry, "holds" if entry["loss"] < entry["loss_of_starts"] else "reversed") for entry in losses.values()]


def _verdict(orders: Sequence[str], places: Sequence[str | None]) -> tuple[Verdict, str]:
    """Return the verdict and its count; the rule is at the top of the file."""
    count, met = Counter(orders), Counter(places)
    shown, against, open_ = count["holds"], count["reversed"], count["undecided"]
    parts = []
    if orders:
        parts.append(f"{shown} of {len(orders)} orders shown, {against} reversed or absent")
    if places:
        wide = f", {met['too wide']} within one too wide" if met["too wide"] else ""
        parts.append(f"{met['around']} of {len(places)} numbers within our interval{wide}")
    reason = ", ".join(parts) or "no order or number of the paper to compare with"
    if not orders and not any(places):
        return "undecided", reason
    if not open_ and not against and met["around"] == len(places):
        return "holds", reason
    if not orders:
        return ("undecided" if met["around"] or met["too wide"] else "does not hold"), reason
    if not against and shown >= max(1, open_):
        return "holds in order", reason
    return ("does not hold" if against and (against >= shown or not open_) else "undecided"), reason


def _difference(entry: Mapping[str, Any]) -> str:
    metric, (first, second) = entry["metric"], _pair(entry)
    within = units.between(entry["low"], entry["high"], metric, sign=True)
    ours = f"{units.value(entry['mean'], metric, sign=True)} ({within})"
    paper = "" if entry["paper"] is None else f", paper {units.value(entry['paper'], metric, sign=True)}"
    return f"{first} − {second}, {metric}: {ours}{paper}"


def _number(row: Mapping[str, Any]) -> str:
    metric, ours = row["metric"], row["ours"]
    shown = f"{units.value(ours['mean'], metric)} ({units.between(ours['low'], ours['high'], metric)})"
    paper = "" if row["paper"] is None else f", paper {units.value(row['paper']['mean'], metric)}"
    return f"{row['row']} {row['column']}, {metric}: {shown}{paper}"


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def page(documents: Sequence[Document]) -> str:
    """Return the page, with one table for each paper."""
    judged = [judge(claim, documents) for claim in CLAIMS]
    count = Counter(one.verdict for one in judged)
    total = ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS)
    parts = [f"# Scoreboard\n\n{len(judged)} claims: {total}.\n\n{OPENING}"]
    for paper, title in PAPERS.items():
        own = [HEAD, ("---",) * len(HEAD), *(one.cells() for one in judged if one.claim.paper == paper)]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in own)
        parts.append(f"## {title}\n\n{table}\n")
    return "\n".join(parts)


OPENING = """Every table and figure of the five papers. Numbers and verdicts follow from stored results of
`fedxray reproduce`. *Holds*: every order of columns is shown by a paired interval, and every published number lies
within ours, which is not too wide. *Holds in order*: no order is reversed, and at least as many are shown as are
undecided. *Does not hold*: orders are reversed, or absent (within the margin around 0 and off the published
difference), no fewer than are shown or with none undecided, or no number is met. *Undecided*: everything else.
`docs/generate.py` builds this page; `fedxray reproduce --all` builds it from its own runs.
"""
