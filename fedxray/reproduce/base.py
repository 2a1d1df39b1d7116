"""What a reproduction is: a published table, the plans that make our version of it, and what to compare."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fedxray.errors import BadInput, unknown_name
from fedxray.lookup import load

SCALES = ("small", "paper")
Number = float | tuple[float, float]  # a published mean, or one with its published spread
Published = Mapping[str, Mapping[str, Mapping[str, Number]]]  # row -> column -> metric -> number
NOT_IN_TEXT = "not in our text"
NO_TABLE = "none of its tables"  # the place of what the paper has not


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for: the scale, how many clients and seeds instead of the scale's own numbers, and controls."""

    scale: str = "small"
    clients: int | None = None
    seeds: int | None = None
    controls: bool = True  # without them an attack runs once, not once more for every control

    def __post_init__(self) -> None:
        """Refuse an unknown scale and impossible numbers."""
        if self.scale not in SCALES:
            raise unknown_name("--scale", self.scale, SCALES)
        for option, given in (("--clients", self.clients), ("--seeds", self.seeds)):
            if given is not None and given < 1:
                raise BadInput(
                    option, expected="a whole number of at least 1", got=given, remedy="Leave it out."
                )

    @property
    def is_small(self) -> bool:
        """Whether minutes are to be enough."""
        return self.scale == "small"

    def pick_clients(self, *, small: int, paper: int, most: int | None = None) -> int:
        """How many clients: as asked, else the scale's own number; `most` is what the data can supply."""
        wanted = self.clients if self.clients is not None else small if self.is_small else paper
        if most is not None and wanted > most:
            if self.clients is None:
                return most
            remedy = "Ask for fewer."
            raise BadInput("--clients", expected=f"at most {most} with this data", got=wanted, remedy=remedy)
        return wanted

    def pick_seeds(self, *, small: int = 1, paper: int = 1) -> list[int]:
        """The seeds 0, 1, ...: as many as asked, else the scale's own number."""
        return list(range(self.seeds if self.seeds is not None else small if self.is_small else paper))


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the table: one metric of one attack, by the label it has in the plans."""

    attack: str
    metric: str
    title: str = ""  # default: the label
    called: str = ""  # what the paper calls it
    defence: str = "none"
    aware: bool | None = None

    @property
    def name(self) -> str:
        """The column without its metric, as it is printed and asked for."""
        return self.title or self.attack


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two columns to be compared unit by unit (client and seed), in every row or between two rows."""

    left: str
    right: str
    rows: tuple[str, str] | None = None  # left in the first against right in the second
    metrics: tuple[str, ...] = ()  # default: all that both columns have
    expected: Literal["above", "below"] | None = None  # what the paper found of left against right

    @property
    def name(self) -> str:
        """How the difference is printed."""
        if self.rows is None:
            return f"{self.left} minus {self.right}"
        return f"{self.left} in {self.rows[0]} minus {self.right} in {self.rows[1]}"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """What was published, and where."""

    title: str
    place: str  # "Table 1"
    clients: int | None = None
    numbers: Published = field(default_factory=dict)  # empty: not in our text, then the trend is compared
    trend: str = ""  # what the text says of the numbers
    once: bool = False  # a number that stands in several rows was printed once: rows were not compared


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One measured value of one client in one run."""

    seed: int
    client: int | None
    value: float


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A cell that a reproduction without an audit measured by itself."""

    column: str
    metric: str
    units: tuple[Unit, ...]
    floors: Mapping[str, float] = field(default_factory=dict)


PlanOf = Callable[[Request, str], dict[str, Any]]
Measure = Callable[[Request, str], list[Measured]]
Fill = Callable[[dict[str, Any], Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Follows:
    """What makes a row wait for an earlier one: its plan takes something from what that one found."""

    row: str
    fill: Fill  # the plan in plain values and the earlier row's results in, the plan that is run out


@dataclass(frozen=True, kw_only=True)
class Sought:
    """What searches are after: the truth, by the plan in plain values, and quotients of two settings worth knowing."""

    true: Callable[[Mapping[str, Any]], Mapping[str, float]]
    quantities: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # name -> (above, below)


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """One published table or figure; its rows are audits (`plan`), or measured directly (`measure`)."""

    name: str
    shows: str  # one sentence
    paper: Paper
    rows: tuple[str, ...]
    columns: tuple[Column, ...]
    plan: PlanOf | None = None
    measure: Measure | None = None
    follows: Mapping[str, Follows] = field(default_factory=dict)  # rows that wait for another
    sought: Sought | None = None  # of searches whose answer is known; they never see it
    small_rows: tuple[str, ...] = ()  # what the small scale runs unless told; default: all
    differences: tuple[Difference, ...] = ()
    why: str = ""  # known reasons of our setting why numbers differ from the paper's

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        if (self.plan is None) == (self.measure is None):
            raise ValueError(f"{self.name}: give either plan or measure")
        strange = [row for row in self.rows if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", row)]
        named = [*self.small_rows, *self.paper.numbers, *(r for d in self.differences for r in d.rows or ())]
        if strange or not set(named) <= set(self.rows) or len(set(self.rows)) < len(self.rows):
            raise ValueError(f"{self.name}: rows {strange or sorted(set(named) - set(self.rows))}")
        order = {row: place for place, row in enumerate(self.rows)}
        if any(order.get(one.row, len(order)) >= order.get(row, -1) for row, one in self.follows.items()):
            raise ValueError(f"{self.name}: a row follows one that does not stand before it")
        titles = {column.name for column in self.columns}
        used = {name for one in self.differences for name in (one.left, one.right)}
        used |= {name for columns in self.paper.numbers.values() for name in columns}
        if not used <= titles:
            raise ValueError(f"{self.name}: no column is called {sorted(used - titles)}")

    def chosen_rows(self, wanted: tuple[str, ...], request: Request) -> tuple[str, ...]:
        """The rows that were asked for, in the order of the table; else those of the scale."""
        for row in wanted:
            if row not in self.rows:
                raise unknown_name("--row", row, self.rows)
        if wanted:
            return tuple(row for row in self.rows if row in wanted)
        return self.small_rows if request.is_small and self.small_rows else self.rows

    def chosen_columns(self, wanted: tuple[str, ...]) -> tuple[Column, ...]:
        """The columns that were asked for by name."""
        titles = list(dict.fromkeys(column.name for column in self.columns))
        for name in wanted:
            if name not in titles:
                raise unknown_name("--columns", name, titles)
        return tuple(column for column in self.columns if not wanted or column.name in wanted)

    def number(self, row: str, column: Column) -> Number | None:
        """The published number of a cell, None where there is none."""
        return self.paper.numbers.get(row, {}).get(column.name, {}).get(column.metric)


def columns_of(titles: Mapping[str, str], metrics: tuple[str, ...]) -> tuple[Column, ...]:
    """Columns for labels of attacks, each with the paper's name for it, and all metrics."""
    return tuple(
        Column(attack=attack, metric=metric, called=called)
        for attack, called in titles.items()
        for metric in metrics
    )


# --- The reproductions by name, each as one visible line.


REPRODUCTIONS: dict[str, str] = {
    "dlf-table1": "fedxray.reproduce.dlf:TABLE1",
    "dlf-table2": "fedxray.reproduce.dlf:TABLE2",
    "dlf-table3": "fedxray.reproduce.dlf:TABLE3",
    "dlf-table4": "fedxray.reproduce.dlf:TABLE4",
    "dlf-trained": "fedxray.reproduce.dlf:TRAINED",
    "dlf-order": "fedxray.reproduce.dlf:ORDERED",
    "dlf-averaging": "fedxray.reproduce.dlf:AVERAGED",
    "dlf-iterations": "fedxray.reproduce.dlf:ITERATIONS",
    "dlf-defences": "fedxray.reproduce.dlf:DEFENDED",
    "aia-regression-table1": "fedxray.reproduce.aia:TABLE1",
    "aia-regression-heterogeneity": "fedxray.reproduce.aia:HETEROGENEITY",
    "aia-regression-batch-size": "fedxray.reproduce.aia:BATCH_SIZE",
    "aia-regression-epochs": "fedxray.reproduce.aia:EPOCHS",
    "aia-regression-dataset-size": "fedxray.reproduce.aia:DATASET_SIZE",
    "aia-regression-client-size": "fedxray.reproduce.aia:SIZE",
    "aia-regression-linear": "fedxray.reproduce.aia:LINEAR",
    "aia-regression-start-round": "fedxray.reproduce.aia:START_ROUND",
    "aia-regression-rounds": "fedxray.reproduce.aia:SPENT",
    "aia-regression-width": "fedxray.reproduce.aia:WIDTH",
    "aia-regression-toy": "fedxray.reproduce.aia:TOY",
    "aia-classification": "fedxray.reproduce.aia:CLASSIFICATION",
    "aia-regression-dp": "fedxray.reproduce.aia:PRIVATE",
    "lmra-table1": "fedxray.reproduce.lmra:TABLE1",
    "lmra-table9": "fedxray.reproduce.lmra:TABLE9",
    "lmra-table10": "fedxray.reproduce.lmra:TABLE10",
    "lmra-clients": "fedxray.reproduce.lmra:LMRA_CLIENTS",
    "lmra-batch-size": "fedxray.reproduce.lmra:LMRA_BATCH_SIZE",
    "lmra-epochs": "fedxray.reproduce.lmra:LMRA_EPOCHS",
    "lmra-dataset-size": "fedxray.reproduce.lmra:LMRA_DATASET_SIZE",
    "lmra-heterogeneity": "fedxray.reproduce.lmra:LMRA_HETEROGENEITY",
    "lmra-images": "fedxray.reproduce.lmra:LMRA_IMAGES",
    "awa-table4": "fedxray.reproduce.awa:TABLE4",
    "awa-iterations": "fedxray.reproduce.awa:ITERATIONS",
    "awa-search": "fedxray.reproduce.awa:SEARCH",
    "awa-stages": "fedxray.reproduce.awa:STAGES",
    "awa-gain": "fedxray.reproduce.awa:GAIN",
    "awa-settings": "fedxray.reproduce.awa:SETTINGS",
    "awa-landscape": "fedxray.reproduce.awa:LANDSCAPE",
    "curious-clients": "fedxray.reproduce.curious:CLIENT_COUNT",
    "curious-batch-and-steps": "fedxray.reproduce.curious:BATCH_AND_STEPS",
    "curious-uneven": "fedxray.reproduce.curious:UNEVEN",
    "curious-unknown-lr": "fedxray.reproduce.curious:UNKNOWN_RATE",
    "curious-inversion-lr": "fedxray.reproduce.curious:INVERSION_RATE",
    "curious-upper-bound": "fedxray.reproduce.curious:UPPER_BOUND",
    "curious-choices": "fedxray.reproduce.curious:CHOICES",
    "curious-restoration": "fedxray.reproduce.curious:RESTORATION",
    "curious-fedinverse": "fedxray.reproduce.curious:FEDINVERSE",
}


def find(name: str) -> Reproduction:
    """The reproduction of that name."""
    if name not in REPRODUCTIONS:
        raise unknown_name("reproduction", name, REPRODUCTIONS)
    found: Reproduction = load(REPRODUCTIONS[name])
    return found


def chosen_point(results: Mapping[str, Any], label: str) -> dict[str, float]:
    """The settings of lowest own loss that the search of an attack tried, in its first case."""
    case = next(one for one in results["cases"] if one["attack"] == label)
    told = case.get("search") or {}
    if told.get("best") is None:
        raise BadInput(
            f"row {results['plan']['name']}",
            expected=f"a search by {label} that found something",
            got=case["reason"] or case["status"],
            remedy="Look at its report; try again in another --out.",
        )
    return dict(told["trials"][told["best"]]["point"])
