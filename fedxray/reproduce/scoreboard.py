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
class Claim:
    """What a table or figure says, and how our results are compared with it."""

    paper: str  # the page on it
    place: str
    says: str
    by: str = ""  # the reproduction; empty: none, and `why` states the reason
    only: tuple[str, ...] = ()  # beginnings of the columns that count; default: all
    rows: tuple[str, ...] = ()  # beginnings of the rows that count; default: all
    metrics: tuple[str, ...] = ()
    # Expected side of left minus right in place of the reproduction's: above, below, same (within the margin), not
    # above or not below (by more than the margin).
    expects: tuple[tuple[str, str, str], ...] = ()
    searched: bool = False  # whether the claim is that a search lowers the loss
    why: str = ""  # reason of ours for what does not hold, or cannot be tested

    def counts(self, entry: Mapping[str, Any], *columns: str) -> bool:
        """Whether an entry of a document with these columns is part of the claim."""
        rows = entry["rows"] if "rows" in entry else [entry["row"]]
        return (
            (not self.only or all(column.startswith(self.only) for column in columns))
            and (not self.rows or all(row.startswith(self.rows) for row in rows))
            and (not self.metrics or entry["metric"] in self.metrics)
        )


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
    return "undecided" if entry["side"] == "undecided" else "holds" if entry["side"] == expected else "reversed"


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
QUALITY = ("psnr", "ssim", "lpips")  # of images; retrieval, which the papers do not have, is at its ceiling too often
# Rows of the figures of LMRA that are compared: (left, right, side of left)
TABLES = ("leaf", "adult", "flights")
LESS_RECORDS_ABOVE = tuple((f"{data}-64", f"{data}-1024", "above") for data in TABLES)
FEWER_CLIENTS_ABOVE = tuple(("leaf-10", f"leaf-{clients}", "above") for clients in (20, 100))
SMALL_BATCH_BELOW = tuple((f"{data}-{size}", f"{data}-2000", "below") for data in TABLES for size in (32, 128))
FEWER_EPOCHS_ABOVE = tuple((f"{data}-1", f"{data}-{epochs}", "above") for data in TABLES for epochs in (5, 10))
# parameter, points lost, reproduction, pairs of rows
FACES_SWEEPS = (
    ("batches", "9.2", "lmra-batch-size", tuple((f"att-faces-{size}", "att-faces-64") for size in (4, 16))),
    ("epochs", "5.1", "lmra-epochs", tuple(("att-faces-1", f"att-faces-{epochs}") for epochs in (5, 10))),
)
METHOD, SETTINGS, PICTURES = "a drawing of the method", "it lists settings", "pictures without a number"
EXPECTED = " (our expectation: that appendix is not in our text)"

CLAIMS: tuple[Claim, ...] = (
    Claim(paper="dlf", place="Figure 1", says="Overview of the attack.", why=METHOD),
    Claim(
        paper="dlf",
        place="Table 1",
        says="Simulating the client's epochs with an order-invariant prior reconstructs more images than without it, "
        "and both more than an attack on FedSGD.",
        by="dlf-table1",
        why="the prior is measured on the stand-in alone",
    ),
    Claim(
        paper="dlf",
        place="Table 2",
        says="Interpolated label counts are more accurate than those from either end of the round.",
        by="dlf-table2",
    ),
    Claim(
        paper="dlf",
        place="Table 3",
        says="With inferred labels the attack still reconstructs more than attacks on FedSGD.",
        by="dlf-table3",
        why="four writers",
    ),
    Claim(paper="dlf", place="Figure 2", says="Reconstructions of Table 3.", why=PICTURES),
    Claim(
        paper="dlf",
        place="Table 4",
        says="Of the order-invariant priors the mean of squares does best.",
        by="dlf-table4",
    ),
    Claim(
        paper="dlf",
        place="Figure 3",
        says="The matched average over epochs is better than any single epoch.",
        by="dlf-averaging",
    ),
    Claim(paper="dlf", place="Table 6", says=f"Defences lower quality, noise most{EXPECTED}.", by="dlf-defences"),
    Claim(
        paper="dlf",
        place="Table 7",
        says=f"Trained networks leak less than fresh ones{EXPECTED}.",
        by="dlf-trained",
        only=("dlf",),
        expects=tuple(("femnist-10x5-after-0", f"femnist-10x5-after-{rounds}", "above") for rounds in (5, 10)),
    ),
    Claim(
        paper="dlf",
        place="Table 8",
        says=f"Knowing the labels of every batch helps{EXPECTED}.",
        by="dlf-order",
        expects=(("batches-known", "counts-known", "above"),),
    ),
    Claim(
        paper="dlf", place="Table 5", says="Details of the appendix.", why="the table is not in the text that we have"
    ),
    Claim(paper="awa", place="Table 1", says="The four cases.", why=SETTINGS),
    Claim(paper="awa", place="Table 2", says="Ranges of the search.", why=SETTINGS),
    Claim(paper="awa", place="Table 3", says="Weights that the search chose.", why=SETTINGS),
    Claim(
        paper="awa",
        place="Figure 1",
        says="Over 50 trials of Bayesian optimisation the smallest loss keeps falling.",
        by="awa-search",
        searched=True,
    ),
    Claim(paper="awa", place="Figure 2", says="Reconstructions of Table 4.", why=PICTURES),
    Claim(
        paper="awa",
        place="Table 4",
        says="Weighted layers (AWA) reconstruct better than AGIC and DLG in all four cases.",
        by="awa-table4",
    ),
    Claim(paper="awa", place="Figure 3", says="Reconstructions after 3,000 steps.", why=PICTURES),
    Claim(
        paper="awa",
        place="Figure 4",
        says="More steps keep helping; SSIM exceeds 0.9 within 1,500 steps.",
        by="awa-iterations",
        expects=(("awa-250", "awa-100", "above"), ("awa-1000", "awa-250", "above"), ("awa-3000", "awa-1000", "above")),
        why="beyond 250 steps one group of images, which has no interval",
    ),
    Claim(
        paper="awa",
        place="Contribution 3",
        says="Updates of all stages of training can be inverted.",
        by="awa-stages",
        expects=(("after-0", "after-4", "same"),),
        why="other images explain the update of a trained network nearly as well",
    ),
    Claim(
        paper="aia",
        place="Figure 1, records",
        says="From gradients of a regression attributes are inferred at chance once a client has 256 records.",
        by="aia-regression-dataset-size",
        only=("grad",),
        rows=("regression",),
    ),
    Claim(
        paper="aia",
        place="Figure 1, tasks",
        says="From gradients of a classification they are still inferred (71 % with 256 records).",
        by="aia-regression-dataset-size",
        only=("grad",),
        expects=(("classification-256", "regression-256", "above"),),
        why="the published iterative attack fails on both tasks; in closed form its objective gives 99 and 72 %",
    ),
    Claim(
        paper="aia",
        place="Figure 1, global model",
        says="A model attack on the global model is at least as good as gradients on a regression.",
        by="aia-regression-dataset-size",
        only=("global", "grad"),
        rows=("regression",),
        expects=(("global", "grad", "not below"),),
    ),
    Claim(
        paper="aia",
        place="Figure 1, local model",
        says="From the optimal local model attributes are inferred up to 30 points better than from the global one.",
        by="aia-regression-dataset-size",
        only=("oracle", "global"),
        rows=("regression",),
        expects=(("oracle", "global", "above"),),
    ),
    Claim(
        paper="aia",
        place="Figure 2",
        says="The larger the batch, the nearer the reconstructed linear model.",
        by="aia-regression-toy",
    ),
    Claim(
        paper="aia",
        place="Table 1",
        says="Gradients < reconstructed model < 10 active rounds < 50 active rounds = optimal local model.",
        by="aia-regression-table1",
        why="six client-runs; Connecticut stands in for Louisiana",
    ),
    Claim(
        paper="aia",
        place="Table 1, Louisiana's columns",
        says="With hundreds of columns 50 active rounds infer more than 10, and than the passive attack.",
        by="aia-regression-width",
    ),
    Claim(
        paper="aia",
        place="Figure 3 (left)",
        says="Accuracy rises with heterogeneity, for the model more than for gradients.",
        by="aia-regression-heterogeneity",
    ),
    Claim(
        paper="aia",
        place="Figure 3 (centre), batch size",
        says="Accuracy from models falls slightly with the batch size.",
        by="aia-regression-batch-size",
        expects=(("32", "256", "above"),),
    ),
    Claim(
        paper="aia",
        place="Figure 3 (centre), gradients",
        says="With every batch size models reveal more than gradients, passively and actively.",
        by="aia-regression-batch-size",
        expects=(("model", "grad", "above"), ("active-50", "active-50-grad", "above")),
        why="with batches of 256 a client takes few steps, and its last reply is far from its optimum",
    ),
    Claim(
        paper="aia",
        place="Figure 3 (right)",
        says="The model does not depend on the local epochs, gradients fall to chance.",
        by="aia-regression-epochs",
    ),
    Claim(
        paper="aia",
        place="Figure 4",
        says="Clients with fewer records are more exposed.",
        by="aia-regression-client-size",
    ),
    Claim(paper="aia", place="Section 5.2", says="50 active rounds suffice.", by="aia-regression-rounds"),
    Claim(paper="aia", place="Section 6", says="On classification gradients reveal more.", by="aia-classification"),
    Claim(
        paper="aia",
        place="Table 2 (Appendix C.1)",
        says="Linear models are reconstructed exactly: they reveal what the optimal local model does.",
        by="aia-regression-linear",
        expects=(("linear", "oracle", "same"),),
    ),
    Claim(
        paper="aia",
        place="Appendix C.2",
        says="The starting round of the active attack was examined.",
        by="aia-regression-start-round",
    ),
    Claim(
        paper="aia",
        place="Table 3 (Appendix C)",
        says="DP-SGD at epsilon 1 lowers the accuracy of all attacks.",
        by="aia-regression-dp",
        expects=tuple((x, f"{x}, dp-sgd", "above") for x in ("grad-closed", "model", "active-50-grad", "active-50")),
    ),
    Claim(
        paper="lmra",
        place="Figure 1",
        says="Images from the reconstructed model are better than those from the last reply and the global model.",
        by="lmra-images",
    ),
    Claim(
        paper="lmra",
        place="Table 1, models",
        says="The heuristic's model is nearer to the client's optimum than the last reply and the global model.",
        by="lmra-table1",
        only=("heuristic", "global", "last"),
        metrics=("zest",),
        why="its model is the last reply within the spread of the messages, also at the paper's size",
    ),
    Claim(
        paper="lmra",
        place="Table 1, attributes",
        says="The heuristic's model reveals attributes better than gradients, the last reply and the global model.",
        by="lmra-table1",
        only=("aia-",),
        why="the optimum is below the floor on Adult and 4.9 points above it on Leaf, so there is little to gain",
    ),
    Claim(
        paper="lmra",
        place="Table 1, sources",
        says="The heuristic's model reveals sources better than a vote and the last reply.",
        by="lmra-table1",
        only=("sia-",),
        why="its models fit the clients' records no better than the last replies do",
    ),
    Claim(
        paper="lmra",
        place="Table 1, images",
        says="The heuristic's model gives better images of a class than the last reply and the global model.",
        by="lmra-table1",
        only=("sra-",),
    ),
    Claim(
        paper="lmra",
        place="Figure 2, gradients",
        says="Attributes from gradients fall with the size of the local data.",
        by="lmra-dataset-size",
        only=("aia-gradients",),
        expects=LESS_RECORDS_ABOVE,
    ),
    Claim(
        paper="lmra",
        place="Figure 2, models",
        says="Attributes from the reconstructed model are stable as the local data grow.",
        by="lmra-dataset-size",
        only=("aia-heuristic",),
        expects=tuple((left, right, "same") for left, right, _ in LESS_RECORDS_ABOVE),
    ),
    Claim(
        paper="lmra",
        place="Figure 2, order",
        says="With many records attributes from the reconstructed model are above those from gradients.",
        by="lmra-dataset-size",
        rows=tuple(right for _, right, _ in LESS_RECORDS_ABOVE),
        expects=(("aia-heuristic", "aia-gradients", "above"),),
    ),
    *(
        Claim(
            paper="lmra",
            place=f"Figure 3, gradients, {parameter}",
            says=f"Images from gradients lose {lost} points as {parameter} increase.",
            by=by,
            only=("sra-gradients",),
            expects=tuple((left, right, "above") for left, right in pairs),
            why="at both sizes images from gradients are below a mean image" if parameter == "batches" else "",
        )
        for parameter, lost, by, pairs in FACES_SWEEPS
    ),
    *(
        Claim(
            paper="lmra",
            place=f"Figure 3, models, {parameter}",
            says=f"Images from the reconstructed model are kept or improve as {parameter} increase.",
            by=by,
            only=("sra-heuristic",),
            expects=tuple((left, right, "not above") for left, right in pairs),
            why="those from the last reply fall as much, probably since fewer local steps train the network less"
            if parameter == "batches"
            else "",
        )
        for parameter, _, by, pairs in FACES_SWEEPS
    ),
    Claim(
        paper="lmra",
        place="Figure 4, impact",
        says="The number of clients has a limited impact on the reconstructed model and attributes from it.",
        by="lmra-clients",
        only=("heuristic", "aia-heuristic"),
        metrics=("zest", "accuracy"),
        expects=tuple((left, right, "same") for left, right, _ in FEWER_CLIENTS_ABOVE),
    ),
    Claim(
        paper="lmra",
        place="Figure 4, decrease",
        says="Source inference and attributes from gradients decrease a little with the number of clients.",
        by="lmra-clients",
        only=("sia-majority", "sia-heuristic", "aia-gradients"),
        expects=FEWER_CLIENTS_ABOVE,
    ),
    Claim(
        paper="lmra",
        place="Table 2",
        says="Airlines' optimal models differ from the global one by 4 to 25 % of its norm, 11.2 % on average.",
        by="lmra-heterogeneity",
        rows=("flights",),
        why="six other airlines stand in for the private prices, and our optima are trained to the end",
    ),
    Claim(
        paper="lmra",
        place="Figure 5",
        says="The optimal models of Adult's three clients with doctorates are far from those of the others.",
        by="lmra-distances",
    ),
    Claim(paper="lmra", place="Table 3", says="Shares of Adult's clients.", why=SETTINGS),
    Claim(paper="lmra", place="Table 4", says="Shares of the clients with faces.", why=SETTINGS),
    Claim(paper="lmra", place="Table 5", says="Settings for flights.", why=SETTINGS),
    Claim(paper="lmra", place="Table 6", says="Settings for Adult.", why=SETTINGS),
    Claim(paper="lmra", place="Table 7", says="Settings for Leaf.", why=SETTINGS),
    Claim(paper="lmra", place="Table 8", says="Settings for faces.", why=SETTINGS),
    Claim(
        paper="lmra",
        place="Table 9",
        says="The heuristic's model predicts the client's records better than the last reply.",
        by="lmra-table9",
    ),
    *(
        Claim(
            paper="lmra",
            place=f"Figure 6, {what}",
            says=f"Larger batches help {helped}.",
            by="lmra-batch-size",
            only=(column,),
            metrics=(metric,),
            expects=SMALL_BATCH_BELOW,
        )
        for what, helped, column, metric in (
            ("models", "the reconstruction of the local model", "heuristic", "zest"),
            ("gradients", "attributes from gradients", "aia-gradients", "accuracy"),
        )
    ),
    Claim(
        paper="lmra",
        place="Figure 7, gradients",
        says="Attributes from gradients fall with the local epochs.",
        by="lmra-epochs",
        only=("aia-gradients",),
        expects=FEWER_EPOCHS_ABOVE,
    ),
    Claim(
        paper="lmra",
        place="Figure 7, models",
        says="Attributes from the reconstructed model are kept or improve with the local epochs.",
        by="lmra-epochs",
        only=("aia-heuristic",),
        expects=tuple((left, right, "not above") for left, right, _ in FEWER_EPOCHS_ABOVE),
    ),
    Claim(
        paper="lmra",
        place="Figure 7, sources",
        says="Source inference is insensitive to the local epochs.",
        by="lmra-epochs",
        only=("sia-heuristic", "sia-majority"),
        expects=tuple((left, right, "same") for left, right, _ in FEWER_EPOCHS_ABOVE),
    ),
    *(
        Claim(
            paper="lmra",
            place=f"{place}, order",
            says="Attributes and sources from the reconstructed model are above those of the baselines in all settings"
            + (", but for sources on Leaf at a batch of 128." if by == "lmra-batch-size" else "."),
            by=by,
            expects=(("aia-heuristic", "aia-gradients", "above"), ("sia-heuristic", "sia-majority", "above")),
        )
        for place, by in (("Figure 6", "lmra-batch-size"), ("Figure 7", "lmra-epochs"))
    ),
    Claim(
        paper="lmra",
        place="Table 10",
        says="DP-SGD, mixup and both lower all attacks; the heuristic stays above the baselines.",
        by="lmra-table10",
        why="without a defence the heuristic is not above them here either",
    ),
    Claim(paper="curious", place="Figure 1", says="Overview of the attack.", why=METHOD),
    Claim(paper="curious", place="Table 1", says="Assumptions of attacks.", why="a comparison without numbers"),
    *(Claim(paper="curious", place=f"Figure {n}", says="Reconstructions.", why=PICTURES) for n in (2, 3, 4, 8, 10)),
    Claim(
        paper="curious",
        place="Figure 5",
        says="Quality falls gradually with the number of clients.",
        by="curious-clients",
        rows=("lenet",),
        metrics=QUALITY,
    ),
    Claim(
        paper="curious",
        place="Figure 5, residual networks",
        says="Quality falls gradually with the number of clients.",
        by="curious-clients",
        rows=("resnet9",),
        metrics=QUALITY,
    ),
    *(
        Claim(
            paper="curious",
            place=f"Figure 5, {network}",
            says="Quality falls with larger networks.",
            by="curious-clients",
            metrics=("psnr", "ssim"),
            expects=tuple((f"lenet-{k}-4photos", f"{network}-{k}-4photos", "above") for k in (2, 4, 8)),
        )
        for network in ("resnet9", "resnet18")
    ),
    Claim(
        paper="curious",
        place="Figure 6, images",
        says="Quality falls with the images of a client.",
        by="curious-batch-and-steps",
        rows=("2-clients-batch", "4-clients-batch"),
        metrics=QUALITY,
    ),
    Claim(
        paper="curious",
        place="Figure 6, local steps",
        says="Quality falls with the local steps where there are many clients.",
        by="curious-batch-and-steps",
        rows=("2-clients-steps", "4-clients-steps"),
        metrics=QUALITY,
        why="between 2 clients treating both as one costs little",
    ),
    Claim(
        paper="curious",
        place="Figure 7",
        says="Direct postprocessing improves LPIPS.",
        by="curious-restoration",
        metrics=("lpips",),
        expects=(("raw+ddrm-sample", "raw", "below"),),
        why="a small prior trained here, on images of 32 pixels, for which AlexNet's last maps are 1 x 1",
    ),
    Claim(
        paper="curious",
        place="Figure 9",
        says="FedInverse gives what is typical of a class (here: more than plain inversion of the model).",
        by="curious-fedinverse",
        metrics=("class_ssim", "class_recognised"),
        expects=(("mi-hsic", "model-inversion", "above"),),
        why="the paper's claim is by eye",
    ),
    Claim(
        paper="curious",
        place="Figure 11",
        says="Quality falls fast as the guessed learning rate leaves the true one.",
        by="curious-unknown-lr",
    ),
    Claim(
        paper="curious",
        place="Figure 12",
        says="Even and uneven divisions of the images give the same quality.",
        by="curious-uneven",
        metrics=QUALITY,
        expects=tuple((f"{clients}-uneven", f"{clients}-even", "same") for clients in (2, 4, 6, 8)),
    ),
    Claim(
        paper="curious",
        place="Figure 13",
        says="LPIPS does not depend much on the learning rate of the inversion.",
        by="curious-inversion-lr",
        metrics=("lpips",),
        expects=tuple((rate, "0.1", "same") for rate in ("0.02", "0.05", "0.2", "0.5")),
    ),
    Claim(
        paper="curious",
        place="Figure 14, gap",
        says="An upper bound that simulates every client is above the attack on the sum, where steps are many.",
        by="curious-upper-bound",
        rows=("2-clients-steps-8", "4-clients-steps-8", "6-clients-steps-8", "8-clients-steps-8"),
        metrics=QUALITY,
    ),
    Claim(
        paper="curious",
        place="Figure 14, steps",
        says="With local steps the attack on the sum loses quality.",
        by="curious-upper-bound",
        only=("one-client",),
        metrics=QUALITY,
    ),
    Claim(
        paper="curious",
        place="Figure 14, bound",
        says="The upper bound does not depend on local steps.",
        by="curious-upper-bound",
        only=("upper-bound",),
        metrics=("psnr",),
        expects=tuple((f"{k}-clients-steps-1", f"{k}-clients-steps-8", "same") for k in (2, 4, 6, 8)),
    ),
    Claim(
        paper="curious",
        place="Figure 15, LPIPS",
        says="Direct postprocessing has worse LPIPS than a GAN.",
        by="curious-restoration",
        metrics=("lpips",),
        expects=(("raw+ddrm-sample", "raw+gan", "above"),),
    ),
    Claim(
        paper="curious",
        place="Figure 15, SSIM",
        says="Direct postprocessing has a similar SSIM as a GAN.",
        by="curious-restoration",
        metrics=("ssim",),
        expects=(("raw+ddrm-sample", "raw+gan", "same"),),
    ),
    *(Claim(paper="curious", place=f"Figure {n}", says="Reconstructions.", why=PICTURES) for n in range(16, 24)),
)
