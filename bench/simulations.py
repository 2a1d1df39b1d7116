"""Simulated audits: how often the rule of verdicts is wrong without a leak, and how often it finds one.

Scores are drawn, not trained: shares are beta-binomial, correlated within an inversion (the guesses of one attack on
one client err together) and within a run; memberships are Mann-Whitney statistics, whose redrawn labels come from one
bank per design. Adjustment, swap test and verdict are the project's own functions. Every table is a list of plain rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from fedxray.audit.judge import statistics
from fedxray.audit.judge.family import RowTests, adjust, exactly
from fedxray.audit.judge.statistics import Interval
from fedxray.audit.judge.verdict import Power, VerdictInput, judge

Floats = NDArray[np.float64]

MARGIN, LEVEL = 0.05, 0.05
GUESS = 0.6  # share that a floor infers correctly
FLOORS = 3
BANK = 100_000  # redrawn memberships of a design
POWER = Power(passed=True, reason="")


@dataclass(frozen=True)
class Design:
    """Runs, clients and records of an audit; correlation of guesses within an inversion and of inversions in a run."""

    runs: int
    clients: int
    records: int
    inversion: float = 0.02
    run: float = 0.0
    others: int | None = None  # held-out records; a quarter of the records where it is None
    steady: bool = False  # floors of independent records; else they err together as the attack does
    unequal: bool = False  # clients of very different size, whose records and messages have effects of their own
    matters: float = 0.0  # what other clients' messages score below the right ones, which score like a guess

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Records of every client."""
        if not self.unequal:
            return np.full(self.clients, self.records)
        return np.maximum(4, self.records * 2.0 ** np.linspace(-2, 2, self.clients)).astype(np.int64)

    @property
    def held_out(self) -> int:
        """Held-out records of every client."""
        return max(2, self.records // 4) if self.others is None else self.others

    @property
    def name(self) -> str:
        """The design in a few letters."""
        more = (" unequal" if self.unequal else "") + (" matters" if self.matters else "")
        return f"{self.runs} {self.clients} {self.records}{more}"


@dataclass(frozen=True)
class Shares:
    """Rows of shares, as of attributes: scores with every client's messages, and the floors."""

    scores: Floats  # [rows, runs, clients, messages of]
    floors: Floats  # [rows, floors, runs, clients]
    true_gains: Floats  # chance of the right messages over that of the best floor, in these runs [rows]
    design: Design

    @property
    def own(self) -> Floats:
        """Scores with the right messages, [rows, runs, clients]."""
        return np.einsum("rucc->ruc", self.scores)

    @property
    def gains(self) -> Floats:
        """Gains over the floor that is best over all units, [rows, runs, clients]."""
        best = self.floors.mean(axis=(2, 3)).argmax(axis=1)
        return self.own - self.floors[np.arange(len(best)), best]

    @property
    def gains_over_others(self) -> Floats:
        """Gains over the floor that is best in the other runs, [rows, runs, clients]."""
        by_run = self.floors.mean(axis=3)  # [rows, floors, runs]
        best = (by_run.sum(axis=2, keepdims=True) - by_run).argmax(axis=1)  # [rows, runs]
        chosen = np.take_along_axis(self.floors, best[:, None, :, None], axis=1)[:, 0]
        return self.own - chosen

    @property
    def record_error(self) -> float:
        """Standard error of the mean if records were independent."""
        units = self.design.runs * self.design.clients
        return math.sqrt(self.design.runs * float((0.25 / self.design.sizes).sum())) / units


def draw_shares(
    design: Design, rows: int, draw: np.random.Generator, gain: float = 0.0, half: float = 0.0, floor: float = 0.0
) -> Shares:
    """Draw rows whose right messages gain `gain`, or `half` in every second inversion; floors gain `floor` too."""
    shape = (rows, design.runs, design.clients, design.clients)
    latent = math.sqrt(1 - design.run) * draw.standard_normal(shape)
    latent += math.sqrt(design.run) * draw.standard_normal((rows, design.runs, 1, 1))
    if design.unequal:
        latent = (
            latent + draw.standard_normal(shape[:3])[..., None] + draw.standard_normal((*shape[:2], 1, design.clients))
        ) / math.sqrt(3)
    size = 1 / design.inversion - 1
    chances = special.betaincinv(GUESS * size, (1 - GUESS) * size, special.ndtr(latent))
    own = np.eye(design.clients, dtype=bool)
    added = gain + half * (draw.random(shape[:3]) < 0.5)[..., None]
    chances = np.clip(np.where(own, chances + added, chances - design.matters), 0, 1)
    sizes = design.sizes[:, None]
    scores = draw.binomial(sizes, chances) / sizes
    guessed = np.clip(_floor_chances(design, rows, draw) + floor, 0, 1)
    floors = draw.binomial(design.sizes, guessed) / design.sizes
    true_gains = chances[..., own].mean(axis=(1, 2)) - guessed.mean(axis=(2, 3)).max(axis=1)
    return Shares(scores=scores, floors=floors, true_gains=true_gains, design=design)


def _floor_chances(design: Design, rows: int, draw: np.random.Generator) -> Floats:
    """Return the chances of floors to be correct, [rows, floors, runs, clients]."""
    shape = (rows, FLOORS, design.runs, design.clients)
    if design.steady:
        return np.full(shape, GUESS)
    latent = math.sqrt(1 - design.run) * draw.standard_normal(shape)
    latent += math.sqrt(design.run) * draw.standard_normal((*shape[:3], 1))
    size = 1 / design.inversion - 1
    chances: Floats = special.betaincinv(GUESS * size, (1 - GUESS) * size, special.ndtr(latent))
    return chances


def swap_means(shares: Shares) -> list[Floats | None]:
    """Return for every row the means under the joint assignments of its runs."""
    design = shares.design
    clients = tuple(range(design.clients))
    layout = {seed: clients for seed in range(design.runs)}
    joint = statistics.joint_assignments(layout, 1)
    total = np.zeros((len(shares.scores), len(joint)))
    for run in layout:
        orders = statistics._orders(run, clients)  # [assignments, clients]
        by_order = shares.scores[:, run, np.arange(design.clients), orders].sum(axis=2)  # [rows, assignments]
        total += by_order[:, joint[:, run]]
    return [None] * len(total) if design.clients < 2 else list(total / (design.runs * design.clients))


def _swap_errors(shares: Shares) -> list[float]:
    """Return for every row the standard error as scores with other clients' messages vary (statistics.swap_error)."""
    rows, runs, clients, _ = shares.scores.shape
    freedom = clients * (runs * (clients - 1) - 1)
    if freedom <= 0:
        return [0.0] * rows
    others = shares.scores[:, :, ~np.eye(clients, dtype=bool)].reshape(rows, runs, clients, clients - 1)
    squares = (others.var(axis=(1, 3)) * runs * (clients - 1)).sum(axis=1)
    return [math.sqrt(square / freedom / (runs * clients)) for square in squares]


def share_facts(shares: Shares) -> list[tuple[RowTests, VerdictInput]]:
    """Return tests and measurements of rows of shares."""
    gains, design = shares.gains, shares.design
    runs, record_error = design.runs, shares.record_error
    means, bounds = swap_means(shares), _bounds(shares.gains_over_others, record_error, floors=FLOORS)
    facts = []
    for row, varied, swaps, (upper, seen) in zip(gains, _swap_errors(shares), means, bounds, strict=True):
        by_run = row.mean(axis=1)
        gain = float(by_run.mean())
        p = error = None
        if runs > 1:
            error = max(float(by_run.std(ddof=1)) / math.sqrt(runs), record_error, varied)
            p = max(statistics.flip_test(by_run.tolist()), statistics.run_test(gain, error, runs))
        measured = VerdictInput(
            metric="accuracy", margin=MARGIN, statuses={"ok": row.size}, unscored=0, runs=runs, over="majority",
            difference=_interval(gain, by_run, record_error, row.size),
            record_error=record_error, upper=upper, seen=seen, power=POWER,
            p_swap=None if swaps is None else statistics.swap_p(swaps),
        )  # fmt: skip
        facts.append((RowTests(runs=p, finest_runs=statistics.finest_run_p(runs), swaps=swaps), measured))
    return facts


def _interval(gain: float, by_run: Floats, record_error: float, units: int) -> Interval:
    """Return the gain with its shown interval (from 10 runs on an audit resamples them instead)."""
    runs = len(by_run)
    if runs < 2:
        return Interval(mean=gain, low=None, high=None, n=units, p=None)
    error = max(float(by_run.std(ddof=1)) / math.sqrt(runs), record_error)
    return statistics.by_t(gain, error, n=units, freedom=runs - 1)


class Memberships:
    """Memberships of a design: AUCs of its rows, and the distribution of their mean when labels are redrawn."""

    def __init__(self, design: Design, draw: np.random.Generator) -> None:
        self.design, self.draw = design, draw
        self.members, self.others = design.records, design.held_out
        self.variance = (self.members + self.others + 1) / (12 * self.members * self.others)
        units = design.runs * design.clients
        single = self._aucs(4000, 0.0)
        self.bank = np.sort(draw.choice(single, size=(BANK, units)).mean(axis=1) if units < 20 else self._normal(units))

    def _normal(self, units: int) -> Floats:
        return 0.5 + math.sqrt(self.variance / units) * self.draw.standard_normal(BANK)

    def _aucs(self, count: int, shift: float) -> Floats:
        """Return AUCs of units whose members score `shift` higher, [count]."""
        members = self.draw.standard_normal((count, self.members)) + shift
        others = np.sort(self.draw.standard_normal((count, self.others)), axis=1)
        below = np.zeros(count)
        for column in range(self.others):
            below += (members > others[:, column : column + 1]).sum(axis=1)
        return below / (self.members * self.others)

    def facts(self, rows: int, shift: float = 0.0, half: float | None = None) -> list[tuple[RowTests, VerdictInput]]:
        """Return tests and measurements of rows with this shift, or with `half` in every second unit."""
        design, units = self.design, self.design.runs * self.design.clients
        aucs = self._aucs(rows * units, shift).reshape(rows, design.runs, design.clients)
        if half is not None:
            shifted = self._aucs(rows * units, half).reshape(aucs.shape)
            aucs = np.where(self.draw.random(aucs.shape) < 0.5, shifted, aucs)
        means = aucs.mean(axis=(1, 2))
        tails = (1 + BANK - np.searchsorted(self.bank, means - 1e-9)) / (BANK + 1)
        normal = special.ndtr((0.5 - means) / math.sqrt(self.variance / units))
        ps = np.where(tails <= 2 / BANK, np.minimum(normal, tails), tails)
        record_error = math.sqrt(self.variance / units)
        bounds = _bounds(aucs - 0.5, record_error, floors=1)
        return [
            (
                RowTests(split=float(p), is_split=True),
                VerdictInput(
                    metric="auc", margin=MARGIN, statuses={"ok": units}, unscored=0, runs=design.runs, over="chance",
                    difference=Interval(mean=float(mean) - 0.5, low=None, high=None, n=units, p=None),
                    record_error=record_error, upper=upper, seen=seen, power=POWER, p_split=float(p),
                ),
            )
            for p, mean, (upper, seen) in zip(ps, means, bounds, strict=True)
        ]  # fmt: skip


def _bounds(gains: Floats, record_error: float, *, floors: int, spent: float = LEVEL) -> list[tuple[Any, Any]]:
    """Return upper bound and smallest leak seen of every row of gains [rows, runs, clients]."""
    runs = gains.shape[1]
    if runs < 3:
        return [(None, None)] * len(gains)
    by_run = gains.mean(axis=2)
    errors = np.maximum(by_run.std(axis=1, ddof=1) / math.sqrt(runs), record_error)
    level = 1 - (spent if floors == 1 else spent / 2)
    times = float(special.stdtrit(runs - 1, level))
    seen = statistics.smallest_seen(1.0, runs, level)
    return [(gain + times * error, seen * error) for gain, error in zip(by_run.mean(axis=1), errors, strict=True)]


def verdicts(rows: Sequence[tuple[RowTests, VerdictInput]], level: float = LEVEL) -> list[str]:
    """Return the states of the rows of one audit."""
    states = []
    for (tests, measured), found in zip(rows, adjust([tests for tests, _ in rows], level=level), strict=True):
        row = exactly(found, tests) if measured.gain <= measured.margin else found
        rejected = row.p_adjusted is not None and row.p_adjusted <= level
        changes = {"rejected": rejected, "p_adjusted": row.p_adjusted, "test": row.test, "family": row.rows}
        states.append(judge(replace(measured, spent=level, **changes)).state)
    return states


# Without a leak

DESIGNS = (
    Design(1, 1, 50), Design(1, 20, 20), Design(2, 3, 4), Design(3, 2, 100), Design(3, 3, 50), Design(3, 5, 20),
    Design(5, 2, 500), Design(10, 3, 50), Design(20, 2, 8), Design(3, 10, 20), Design(5, 8, 30),
    Design(3, 3, 60, unequal=True), Design(3, 6, 40, unequal=True), Design(1, 1, 120, others=100),
    # Right messages score no more than the guess, and all others less: the swap test must not be enough.
    Design(3, 3, 50, matters=0.2), Design(5, 3, 30, matters=0.2), Design(10, 3, 50, matters=0.2),
    Design(3, 10, 20, matters=0.2), Design(3, 3, 2000, matters=0.2), Design(10, 3, 1000, matters=0.2),
)  # fmt: skip
# The last: an attack is right or wrong for all clients of a run, as where it reads one sign from a shared model.
CORRELATIONS = ((0.02, 0.0), (0.1, 0.3), (0.5, 0.5), (0.9, 0.5), (0.9, 0.9))
ROWS = {1: 1500, 5: 600, 20: 300, 50: 150}  # rows of an audit, and how many audits are drawn


def false_leaks(
    designs: Sequence[Design] = DESIGNS, rows: dict[int, int] = ROWS, seed: int = 1
) -> Iterator[dict[str, Any]]:
    """Yield for every design and correlation the audits without a leak that have any row called one, also a small one.

    Half of the rows are memberships and half are shares; of single rows, every second. *Leaks* speaks of the runs that
    happened: where messages matter, rows are wrong whose chances in the drawn runs do not exceed those of a floor;
    `said` counts all that are called leaks, although runs on average gain nothing.
    """
    for (number, plain), (inversion, run), steady in product(enumerate(designs), CORRELATIONS, (False, True)):
        if plain.clients * plain.runs > 1 if steady else (inversion, run) != CORRELATIONS[-1]:
            design = replace(plain, inversion=inversion, run=run, steady=steady)
            draw = np.random.default_rng([seed, number, int(100 * inversion), int(100 * run), steady])
            memberships = Memberships(design, draw)
            floors = "independent" if steady else "as the attack"
            row: dict[str, Any] = {"design": design.name, "inversion": inversion, "run": run, "floors": floors}
            for count, audits in rows.items():
                wrong = said = 0
                for audit in range(audits):
                    split = count // 2 if count > 1 else audit % 2
                    facts = memberships.facts(split) if split else []
                    right = [False] * split
                    if count > split:
                        shares = draw_shares(design, count - split, draw)
                        facts += share_facts(shares)
                        right += [bool(design.matters and gain > 0) for gain in shares.true_gains]
                    leaking = [state in ("leaks", "small") for state in verdicts(facts)]
                    said += any(leaking)
                    wrong += any(called and not leaks for called, leaks in zip(leaking, right, strict=True))
                row |= {f"rows {count}": wrong / audits, f"audits {count}": audits}
                row |= {f"said {count}": said / audits} if design.matters else {}
            yield row


# With a leak: the new rule beside the old one


def old_leaks(gains: Floats, rows: int) -> Floats:
    """Return whether the rule before called rows of gains [rows, runs, clients] a leak.

    It was t over runs, Holm over all metrics (two per row), the interval above the margin, and six units.
    """
    runs, clients = gains.shape[1:]
    blocks = gains.mean(axis=2) if runs > 1 else gains[:, 0]
    count = blocks.shape[1]
    if runs * clients < 6 or count < 2:
        return np.zeros(len(gains))
    errors = np.maximum(blocks.std(axis=1, ddof=1) / math.sqrt(count), 1e-12)
    mean = blocks.mean(axis=1)
    low = mean - stats.t.ppf(0.975, count - 1) * errors
    return (low > MARGIN) & (stats.t.sf(mean / errors, count - 1) * 2 * rows <= LEVEL)


ATTRIBUTES = tuple(
    Design(runs, clients, records, 0.1, 0.3, steady=True)
    for runs, clients, records in (
        (3, 2, 100), (3, 3, 8), (3, 3, 50), (3, 5, 20), (5, 2, 50), (5, 3, 30), (10, 3, 50),
    )
)  # fmt: skip
MEMBERS = tuple(
    Design(runs, clients, records, others=others)
    for runs, clients, records, others in (
        (1, 1, 20, 20), (1, 3, 40, 10), (3, 2, 99, 11), (3, 3, 16, 4), (3, 3, 160, 40), (5, 3, 48, 12),
    )
)  # fmt: skip


def found_leaks(audits: int = 400, seed: int = 2) -> Iterator[dict[str, Any]]:
    """Yield how often one leaking row among m is called *leaks*, by the old rule and by the new one."""
    for design in ATTRIBUTES:
        draw = np.random.default_rng([seed, design.runs, design.clients, design.records])
        for count, gain, half in ((5, 0.1, 0.0), (5, 0.2, 0.0), (20, 0.2, 0.0), (20, 0.39, 0.0), (20, 0.0, 0.6)):
            leaking = draw_shares(design, audits, draw, gain=gain, half=half)
            first = share_facts(leaking)
            new = [
                verdicts([first[audit], *share_facts(draw_shares(design, count - 1, draw))])[0] == "leaks"
                for audit in range(audits)
            ]
            yield {
                "kind": "attributes", "design": design.name, "rows": count, "leak": gain or f"{half} in half",
                "old": float(np.mean(old_leaks(leaking.gains, count))), "new": float(np.mean(new)),
            }  # fmt: skip
    for design in MEMBERS:
        draw = np.random.default_rng([seed, 9, design.runs, design.records])
        memberships = Memberships(design, draw)
        for auc, half in ((0.55, None), (0.6, None), (0.7, None), (0.9, None), (0.5, 0.8)):
            shift, more = (None if a is None else math.sqrt(2) * float(special.ndtri(a)) for a in (auc, half))
            first = memberships.facts(audits, shift or 0.0, more)
            new = [verdicts([first[audit], *memberships.facts(4)])[0] == "leaks" for audit in range(audits)]
            units = memberships._aucs(audits * design.runs * design.clients, shift or 0.0)
            if more is not None:
                units = np.where(draw.random(len(units)) < 0.5, memberships._aucs(len(units), more), units)
            old = old_leaks(units.reshape(audits, design.runs, design.clients) - 0.5, 5)
            yield {
                "kind": "membership", "design": f"{design.name}+{design.held_out}", "rows": 5,
                "leak": f"{half} in half" if half else auc, "old": float(np.mean(old)), "new": float(np.mean(new)),
            }  # fmt: skip


# Reassurance


def reassured(audits: int = 8000, seed: int = 3) -> Iterator[dict[str, Any]]:
    """Yield how often a single row is called *no leak found* at a true leak of 0, 1, 2 and 4 margins (trace aside)."""
    for runs in (3, 5, 10, 20):
        for kind, design in (
            ("shares", Design(runs, 3, 100, 0.02, 0.0, steady=True)),
            ("shares", Design(runs, 2, 20, 0.02, 0.0, steady=True)),
            ("membership", Design(runs, 3, 40, others=10)),
            ("membership", Design(runs, 3, 160, others=40)),
        ):
            draw = np.random.default_rng([seed, runs, design.records])
            row: dict[str, Any] = {"kind": kind, "design": design.name}
            memberships = Memberships(design, draw) if kind == "membership" else None
            for margins in (0, 1, 2, 4):
                if memberships is not None:
                    shift = math.sqrt(2) * float(special.ndtri(0.5 + margins * MARGIN))
                    facts = memberships.facts(audits // 4, shift)
                else:
                    facts = share_facts(draw_shares(design, audits // 4, draw, gain=margins * MARGIN))
                states = [
                    judge(replace(measured, rejected=False, p_split=None, p_swap=None)).state for _, measured in facts
                ]
                row[f"margins {margins}"] = states.count("no leak found") / len(states)
            yield row


def with_auto_seeds(audits: int = 300, seed: int = 4) -> Iterator[dict[str, Any]]:
    """Yield for memberships of five rows what looks after 3, 5, 10 and 20 runs decide, and with how many runs."""
    for records, others in ((40, 10), (160, 40)):
        for auc in (0.5, 0.55, 0.6, 0.7, 0.9):
            draw = np.random.default_rng([seed, records, int(100 * auc)])
            shift = math.sqrt(2) * float(special.ndtri(auc))
            banks = [Memberships(Design(runs, 3, records, others=others), draw) for runs in statistics.AUTO_LOOKS]
            ended = []
            for _ in range(audits):
                aucs = banks[-1]._aucs(20 * 3, shift).reshape(1, 20, 3)
                ended.append(_auto(aucs, banks))
            states = [state for state, _ in ended]
            yield {
                "design": f"3 clients, {records}+{others}", "auc": auc,
                "leaks": states.count("leaks") / audits, "no leak found": states.count("no leak found") / audits,
                "seeds": float(np.mean([runs for _, runs in ended])),
            }  # fmt: skip


def _auto(aucs: Floats, banks: Sequence[Memberships]) -> tuple[str, int]:
    """Return the state of one of five rows, and after how many runs it was decided."""
    for bank, runs, spent in zip(banks, statistics.AUTO_LOOKS, statistics.AUTO_SPENT, strict=True):
        part = aucs[:, :runs]
        mean, units = float(part.mean()), runs * 3
        p = float(special.ndtr((0.5 - mean) / math.sqrt(bank.variance / units)))
        ((upper, seen),) = _bounds(part - 0.5, math.sqrt(bank.variance / units), floors=1, spent=spent)
        if mean - 0.5 > MARGIN and 5 * p <= spent:
            return "leaks", runs
        if upper <= MARGIN and seen <= 2 * MARGIN and p > 0.05:
            return "no leak found", runs
    return "open", statistics.AUTO_LOOKS[-1]
