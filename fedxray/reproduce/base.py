"""Descriptions of published tables and figures, and the list of those that can be reproduced.

A `Reproduction` holds the rows and columns of one table, the published numbers, the plan of every row and the
differences between columns that the paper reports. The tables of a paper are in the module of that name. Nothing here
imports torch, so that listing all reproductions is quick.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fedxray.errors import BadInput, unknown_name
from fedxray.lookup import load

SCALES = ("small", "paper")
Number = float | tuple[float, float]  # a published mean, or one with its published spread
Published = Mapping[str, Mapping[str, Mapping[str, Number]]]  # row -> column -> metric -> number
NOT_IN_TEXT = "not in our text"
NO_TABLE = "none of its tables"  # `Paper.place` of what the paper does not have


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of a reproduction: its scale, the number of clients and seeds, and whether controls are run."""

    scale: str = "small"
    clients: int | None = None  # None: as many as the scale has
    seeds: int | None = None
    controls: bool = True  # False: an attack runs once, not once more for every control

    def __post_init__(self) -> None:
        """Refuse an unknown scale and numbers below 1."""
        if self.scale not in SCALES:
            raise unknown_name("--scale", self.scale, SCALES)
        for option, given in (("--clients", self.clients), ("--seeds", self.seeds)):
            if given is not None and given < 1:
                raise BadInput(option, expected="a whole number of at least 1", got=given, remedy="Leave it out.")

    @property
    def is_small(self) -> bool:
        """Whether the small scale is asked for, which takes minutes."""
        return self.scale == "small"

    def pick_clients(self, *, small: int, paper: int, most: int | None = None) -> int:
        """Return the number of clients: as asked, else that of the scale; the data has at most `most`."""
        wanted = self.clients if self.clients is not None else small if self.is_small else paper
        if most is not None and wanted > most:
            if self.clients is None:
                return most
            remedy = "Ask for fewer."
            raise BadInput("--clients", expected=f"at most {most} with this data", got=wanted, remedy=remedy)
        return wanted

    def pick_seeds(self, *, small: int = 1, paper: int = 1) -> list[int]:
        """Return the seeds 0, 1, ...: as many as asked, else as many as the scale has."""
        return list(range(self.seeds if self.seeds is not None else small if self.is_small else paper))


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """A column of the table: one metric of one attack, by the label that the attack has in the plans."""

    attack: str
    metric: str
    title: str = ""  # default: the label
    called: str = ""  # the paper's name for it
    defence: str = "none"
    aware: bool | None = None

    @property
    def name(self) -> str:
        """The column without its metric, as it is printed and given to --columns."""
        return self.title or self.attack


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two columns that are compared unit by unit (client and seed), in every row or between two rows."""

    left: str
    right: str
    rows: tuple[str, str] | None = None  # left in the first row against right in the second
    metrics: tuple[str, ...] = ()  # default: all that both columns have
    expected: Literal["above", "below"] | None = None  # the paper's finding about left against right

    @property
    def name(self) -> str:
        """The difference as it is printed."""
        if self.rows is None:
            return f"{self.left} minus {self.right}"
        return f"{self.left} in {self.rows[0]} minus {self.right} in {self.rows[1]}"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """The published side of a table: where it is and what it says."""

    title: str
    place: str  # "Table 1"
    clients: int | None = None
    numbers: Published = field(default_factory=dict)  # empty: not in our text, then the trend is compared
    trend: str = ""  # what the text says about the numbers
    once: bool = False  # one printed number stands in several rows: the paper did not compare these rows


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One measured value of one client in one run."""

    seed: int
    client: int | None
    value: float


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A cell that was measured directly, without an audit."""

    column: str
    metric: str
    units: tuple[Unit, ...]
    floors: Mapping[str, float] = field(default_factory=dict)


PlanOf = Callable[[Request, str], dict[str, Any]]
Measure = Callable[[Request, str], list[Measured]]
Fill = Callable[[dict[str, Any], Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Follows:
    """An earlier row whose results enter the plan of a row."""

    row: str
    fill: Fill  # (plan in plain values, results of the earlier row) -> the plan that is run


@dataclass(frozen=True, kw_only=True)
class Sought:
    """The true values of searched settings (a function of the plan), and quotients of two settings to be listed."""

    true: Callable[[Mapping[str, Any]], Mapping[str, float]]
    quantities: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # name -> (above, below)


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """One published table or figure; its rows are audits (`plan`) or measured directly (`measure`)."""

    name: str
    shows: str  # one sentence
    paper: Paper
    rows: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    plan: PlanOf | None = None
    measure: Measure | None = None
    follows: Mapping[str, Follows] = field(default_factory=dict)  # rows that need another one's results
    sought: Sought | None = None  # for searches whose answer is known; the attacks never see it
    small_rows: tuple[str, ...] = ()  # the rows of the small scale; default: all
    row_is: str = ""  # what the name of a row states, such as a batch size
    differences: tuple[Difference, ...] = ()
    why: str = ""  # known reasons of our setting for numbers that differ from the paper's

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        if (self.plan is None) == (self.measure is None):
            raise ValueError(f"{self.name}: give either plan or measure")
        invalid = [row for row in self.rows if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", row)]
        named = [*self.small_rows, *self.paper.numbers, *(r for d in self.differences for r in d.rows or ())]
        if invalid or not set(named) <= set(self.rows) or len(set(self.rows)) < len(self.rows):
            raise ValueError(f"{self.name}: rows {invalid or sorted(set(named) - set(self.rows))}")
        order = {row: index for index, row in enumerate(self.rows)}
        if any(order.get(earlier.row, len(order)) >= order.get(row, -1) for row, earlier in self.follows.items()):
            raise ValueError(f"{self.name}: a row follows one that does not stand before it")
        titles = {column.name for column in self.columns}
        used = {name for pair in self.differences for name in (pair.left, pair.right)}
        used |= {name for columns in self.paper.numbers.values() for name in columns}
        if not used <= titles:
            raise ValueError(f"{self.name}: no column is called {sorted(used - titles)}")

    def chosen_rows(self, wanted: tuple[str, ...], request: Request) -> tuple[str, ...]:
        """Return the rows that were asked for, in the order of the table; else those of the scale."""
        for row in wanted:
            if row not in self.rows:
                raise unknown_name("--row", row, self.rows)
        if wanted:
            return tuple(row for row in self.rows if row in wanted)
        return self.small_rows if request.is_small and self.small_rows else self.rows

    def chosen_columns(self, wanted: tuple[str, ...]) -> tuple[TableColumn, ...]:
        """Return the columns that were asked for by name; else all."""
        titles = list(dict.fromkeys(column.name for column in self.columns))
        for name in wanted:
            if name not in titles:
                raise unknown_name("--columns", name, titles)
        return tuple(column for column in self.columns if not wanted or column.name in wanted)

    def number(self, row: str, column: TableColumn) -> Number | None:
        """Return the published number of a cell, None where there is none."""
        return self.paper.numbers.get(row, {}).get(column.name, {}).get(column.metric)


# Parts that the tables of several papers share


def columns_of(titles: Mapping[str, str], metrics: Sequence[str]) -> tuple[TableColumn, ...]:
    """Return all metrics of these attacks; `titles` maps an attack's label to the paper's name for it."""
    return tuple(
        TableColumn(attack=attack, metric=metric, called=called)
        for attack, called in titles.items()
        for metric in metrics
    )


def defended_columns(
    titles: Mapping[str, str], metrics: Sequence[str], defences: Iterable[str], *, called_aware: bool = True
) -> tuple[TableColumn, ...]:
    """Return the columns of attacks without a defence and under each, unaware and aware of it.

    `titles` are those of `columns_of`; `called_aware` says whether the paper's name also stands at the aware attacker.
    """
    variants = [("none", None), *((name, aware) for name in defences if name != "none" for aware in (False, True))]
    return tuple(
        TableColumn(
            attack=attack,
            metric=metric,
            title="" if defence == "none" else defended_title(attack, defence, aware is True),
            called=called if called_aware or not aware else "",
            defence=defence,
            aware=aware,
        )
        for attack, called in titles.items()
        for defence, aware in variants
        for metric in metrics
    )


def defended_title(attack: str, defence: str, aware: bool = False) -> str:
    """Return a column's title: the attack, the defence, and whether the attacker knows the defence."""
    if defence == "none":
        return attack
    return f"{attack}, {defence}" + (", aware" if aware else "")


def compare(
    *pairs: tuple[str, str],
    expected: Literal["above", "below"] | None = None,
    metrics: tuple[str, ...] = (),
    rows: tuple[str, str] | None = None,
) -> tuple[Difference, ...]:
    """Return the differences of these (left, right) columns."""
    return tuple(
        Difference(left=left, right=right, rows=rows, metrics=metrics, expected=expected) for left, right in pairs
    )


def compare_rows(
    columns: str | Sequence[str],
    *pairs: tuple[str, str],
    expected: Literal["above", "below"] | None = None,
    metrics: tuple[str, ...] = (),
) -> tuple[Difference, ...]:
    """Return the differences of one column, or of each of several, between these pairs of rows."""
    return tuple(
        Difference(left=column, right=column, rows=rows, metrics=metrics, expected=expected)
        for column in ([columns] if isinstance(columns, str) else columns)
        for rows in pairs
    )


def published(
    text: str, columns: Iterable[str], read_cell: Callable[[str], Mapping[str, Number]]
) -> dict[str, dict[str, Mapping[str, Number]]]:
    """Read a printed table: lines of a row's name and one cell for each column, - where there is none."""
    numbers = {}
    for line in text.strip().splitlines():
        row, *cells = line.split()
        named = zip(columns, cells, strict=True)
        numbers[row] = {column: read_cell(cell) for column, cell in named if cell != "-"}
    return numbers


def sweep(plan_of: Callable[..., dict[str, Any]], key: str, cast: Callable[[str], Any] = int) -> PlanOf:
    """Return the plans of a figure over one parameter, whose rows are called VALUE or DATA-VALUE.

    `plan_of(request, [data], key=value)` makes the plan; `cast` turns the text of the value into the parameter.
    """

    def plan(request: Request, row: str) -> dict[str, Any]:
        *data, value = row.rsplit("-", 1)
        return plan_of(request, *data, **{key: cast(value)})

    return plan


def chosen_point(results: Mapping[str, Any], label: str) -> dict[str, float]:
    """Return the settings of lowest own loss that the search of an attack tried, in its first case."""
    case = next(case for case in results["cases"] if case["attack"] == label)
    search = case.get("search") or {}
    if search.get("best") is None:
        raise BadInput(
            f"row {results['plan']['name']}",
            expected=f"a search by {label} with at least one successful trial",
            got=case["reason"] or case["status"],
            remedy="Look at its report; try again in another --out.",
        )
    return dict(search["trials"][search["best"]]["point"])


# The reproductions by name

REPRODUCTIONS: dict[str, str] = {
    "dlf-table1": "fedxray.reproduce.dlf:TABLE1",
    "dlf-table2": "fedxray.reproduce.dlf:TABLE2",
    "dlf-table3": "fedxray.reproduce.dlf:TABLE3",
    "dlf-table4": "fedxray.reproduce.dlf:TABLE4",
    "dlf-trained": "fedxray.reproduce.dlf:TRAINED",
    "dlf-order": "fedxray.reproduce.dlf:ORDER",
    "dlf-averaging": "fedxray.reproduce.dlf:AVERAGING",
    "dlf-iterations": "fedxray.reproduce.dlf:ITERATIONS",
    "dlf-networks": "fedxray.reproduce.dlf:NETWORKS",
    "dlf-defences": "fedxray.reproduce.dlf:DEFENCES",
    "aia-regression-table1": "fedxray.reproduce.aia:TABLE1",
    "aia-regression-heterogeneity": "fedxray.reproduce.aia:HETEROGENEITY",
    "aia-regression-batch-size": "fedxray.reproduce.aia:BATCH_SIZE",
    "aia-regression-epochs": "fedxray.reproduce.aia:EPOCHS",
    "aia-regression-dataset-size": "fedxray.reproduce.aia:DATASET_SIZE",
    "aia-regression-client-size": "fedxray.reproduce.aia:CLIENT_SIZE",
    "aia-regression-linear": "fedxray.reproduce.aia:LINEAR",
    "aia-regression-start-round": "fedxray.reproduce.aia:START_ROUND",
    "aia-regression-rounds": "fedxray.reproduce.aia:ROUNDS",
    "aia-regression-width": "fedxray.reproduce.aia:WIDTH",
    "aia-regression-toy": "fedxray.reproduce.aia:TOY",
    "aia-classification": "fedxray.reproduce.aia:CLASSIFICATION",
    "aia-regression-dp": "fedxray.reproduce.aia:DP",
    "lmra-table1": "fedxray.reproduce.lmra:TABLE1",
    "lmra-table9": "fedxray.reproduce.lmra:TABLE9",
    "lmra-table10": "fedxray.reproduce.lmra:TABLE10",
    "lmra-clients": "fedxray.reproduce.lmra:CLIENTS",
    "lmra-batch-size": "fedxray.reproduce.lmra:BATCH_SIZE",
    "lmra-epochs": "fedxray.reproduce.lmra:EPOCHS",
    "lmra-dataset-size": "fedxray.reproduce.lmra:DATASET_SIZE",
    "lmra-heterogeneity": "fedxray.reproduce.lmra:HETEROGENEITY",
    "lmra-distances": "fedxray.reproduce.lmra:DISTANCES",
    "lmra-images": "fedxray.reproduce.lmra:IMAGES",
    "lmra-regime": "fedxray.reproduce.lmra_regime:REGIME",
    "awa-table4": "fedxray.reproduce.awa:TABLE4",
    "awa-iterations": "fedxray.reproduce.awa:ITERATIONS",
    "awa-search": "fedxray.reproduce.awa:SEARCH",
    "awa-stages": "fedxray.reproduce.awa:STAGES",
    "awa-gain": "fedxray.reproduce.awa:GAIN",
    "awa-settings": "fedxray.reproduce.awa:SETTINGS",
    "awa-landscape": "fedxray.reproduce.awa:LANDSCAPE",
    "awa-pairs": "fedxray.reproduce.awa:PAIRS",
    "awa-pairs-attacked": "fedxray.reproduce.awa:ATTACKED_PAIRS",
    "curious-clients": "fedxray.reproduce.curious:CLIENTS",
    "curious-batch-and-steps": "fedxray.reproduce.curious:BATCH_AND_STEPS",
    "curious-uneven": "fedxray.reproduce.curious:UNEVEN",
    "curious-unknown-lr": "fedxray.reproduce.curious:UNKNOWN_LR",
    "curious-inversion-lr": "fedxray.reproduce.curious:INVERSION_LR",
    "curious-upper-bound": "fedxray.reproduce.curious:UPPER_BOUND",
    "curious-choices": "fedxray.reproduce.curious:CHOICES",
    "curious-restoration": "fedxray.reproduce.curious:RESTORATION",
    "curious-fedinverse": "fedxray.reproduce.curious:FEDINVERSE",
}


def find(name: str) -> Reproduction:
    """Return the reproduction of that name."""
    if name not in REPRODUCTIONS:
        raise unknown_name("reproduction", name, REPRODUCTIONS)
    reproduction: Reproduction = load(REPRODUCTIONS[name])
    return reproduction
