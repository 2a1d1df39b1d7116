"""Intervals, the three tests of luck, and what more seeds would settle; numbers in, numbers out.

The unit is one client in one run. Clients of one run share the global model, the public rows and the floors built from
them, so their scores move together: only runs (seeds) are independent. Three tests say whether a gain is luck.

- **Split test**: the seed draws which records of a client are held out, so if the messages do not depend on the
  training records, every labelling of them as member or not is equally likely. Exact with one run and one client.
- **Swap test**: if the messages of a run's clients are exchangeable as regards the records asked for, every assignment
  of messages to clients is equally likely. Exact whatever the correlation inside a run or a model.
- **Run test**: Student's t over runs, with the standard error at least as large as independent records would give, and
  as the attack varies with other clients' messages: an attack that is all right or all wrong may have equal runs by
  chance. For the same reason its p is at least that of the runs' gains with random signs (`flip_test`), and so of as
  many fair coins that all fall alike (`finest_run_p`): all clients of a run may be right together. It alone sees leaks
  of the population, which any client's messages show.

Records one by one, or client-runs with random signs, are not independent: tests of these find leaks in up to 99 % of
audits without any (`bench/verdicts.py`), and are not used.

Shown intervals: under 10 blocks (runs; clients where there is one run) the t-interval with the cluster-robust standard
error, from 10 on a studentised bootstrap of whole blocks, which keeps its coverage where scores are skewed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.errors import BadInput
from fedxray.seeds import derive_seed

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
BOOTSTRAP_FROM = 10
RESAMPLES = 9999
SEEN = 0.8  # the power at which the smallest detectable leak is stated
# A resample that happens to repeat one value has no spread; without a bound its t-value would be infinite.
PART = 200_000  # entries of a bootstrap drawn at a time
LEAST_SPREAD = 1 / 3
# Differences that agree to this share of their size are equal, and their spread is rounding.
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean over units with its 95 % interval and the one-sided p of "the mean is above zero"."""

    mean: float
    low: float | None
    high: float | None
    n: int
    p: float | None
    error: float | None = field(default=None, compare=False)  # standard error of the mean
    freedom: int | None = field(default=None, compare=False)  # its degrees of freedom


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    """Sums and sizes of the independent blocks, whatever the order of the units."""

    sums: Floats  # [blocks]
    sizes: Floats  # [blocks]


def interval(
    values: Sequence[float], seeds: Sequence[Hashable], *, least_error: float = 0.0, resamples: int = RESAMPLES
) -> Interval:
    """Return mean, 95 % interval and one-sided p of units that were measured in the runs named by seeds.

    `values` and `seeds` have one entry per unit (client-run); equal seeds form a block. `least_error` is the standard
    error that independent records would give: coarse scores whose run means coincide by chance have no smaller one.
    """
    _check(values, seeds)
    units = np.sort(np.asarray(values, dtype=np.float64))
    mean, n = float(np.mean(units)), len(units)
    if n == 1:
        return Interval(mean=mean, low=None, high=None, n=1, p=None)
    blocks = _blocks(values, seeds)
    error = float(_standard_errors(blocks.sums[None], blocks.sizes[None])[0])
    if error <= max(least_error, ROUNDING * float(np.max(np.abs(units)))):
        return by_t(mean, least_error, n=n, freedom=len(blocks.sums) - 1)
    if len(blocks.sums) < BOOTSTRAP_FROM:
        return by_t(mean, error, n=n, freedom=len(blocks.sums) - 1)
    return _by_bootstrap(mean, error, blocks, n=n, resamples=resamples)


def paired(values: Sequence[float], others: Sequence[float], *, down: bool) -> list[float]:
    """Return differences unit by unit, signed so that larger means more leak (`down`: smaller values leak more)."""
    return [(other - value) if down else (value - other) for value, other in zip(values, others, strict=True)]


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Return Holm's adjusted p-values, in the given order; a missing p stays missing and is not counted.

    The smallest of m p-values is multiplied by m, the next by m - 1, and so on; the running maximum keeps their order.
    Holm needs no independence between the rows, which share runs and floors.
    """
    known = sorted((p, index) for index, p in enumerate(ps) if p is not None)
    adjusted: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        adjusted[index] = largest
    return adjusted


def _check(values: Sequence[float], seeds: Sequence[Hashable]) -> None:
    """Refuse values that are empty, not finite, or of another length than the seeds."""
    if len(values) == 0 or len(values) != len(seeds):
        expected = "at least one value, and one seed for each"
        remedy = "Give each unit's value together with the seed of its run."
        raise BadInput("values", expected=expected, got=f"{len(values)} values and {len(seeds)} seeds", remedy=remedy)
    if not all(math.isfinite(value) for value in values):
        remedy = "Leave out units without a score and state how many they are."
        raise BadInput("values", expected="finite numbers", got="NaN or infinity", remedy=remedy)


def _blocks(values: Sequence[float], seeds: Sequence[Hashable]) -> _Blocks:
    """Group units by run; with a single run every unit is a block of its own. Sorted, so that order does not matter."""
    if len(set(seeds)) == 1:
        alone = np.sort(np.asarray(values, dtype=np.float64))
        return _Blocks(sums=alone, sizes=np.ones_like(alone))
    runs: dict[Hashable, list[float]] = {}
    for value, seed in zip(values, seeds, strict=True):
        runs.setdefault(seed, []).append(float(value))
    pairs = sorted((math.fsum(run), float(len(run))) for run in runs.values())
    return _Blocks(sums=np.array([s for s, _ in pairs]), sizes=np.array([size for _, size in pairs]))


def _standard_errors(sums: Floats, sizes: Floats) -> Floats:
    """Return cluster-robust errors of the mean over units; sums and sizes [resamples, blocks] -> [resamples].

    A block's residual is its sum minus what the overall mean would give for its size; blocks / (blocks - 1) corrects
    for the mean having been estimated from the same blocks.
    """
    count, total = sums.shape[1], sizes.sum(axis=1)
    residuals = sums - sizes * (sums.sum(axis=1) / total)[:, None]
    scale = count / (count - 1)
    errors: Floats = np.sqrt(scale * (residuals**2).sum(axis=1)) / total
    return errors


def by_t(mean: float, error: float, *, n: int, freedom: int) -> Interval:
    """Return Student's interval and the one-sided p; without an error there is no p."""
    from scipy.special import stdtr, stdtrit

    if error == 0.0:
        return Interval(mean=mean, low=mean, high=mean, n=n, p=None, error=0.0, freedom=freedom)
    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
    p = float(stdtr(freedom, -mean / error))
    return Interval(mean=mean, low=mean - half, high=mean + half, n=n, p=p, error=error, freedom=freedom)


def finest_run_p(runs: int) -> float:
    """Return the smallest p of the run test: all runs may be right by chance, each as a coin falls.

    Student's t knows no such scores, as of an attack that gets the sign of one coefficient right or wrong for everyone.
    """
    return 0.5**runs


def run_test(mean: float, error: float, runs: int) -> float:
    """Return the p of the run test for a mean gain over runs with this standard error."""
    from scipy.special import stdtr

    return max(finest_run_p(runs), float(stdtr(runs - 1, -mean / error)))


def flip_test(gains: Sequence[float]) -> float:
    """Return the share of sign patterns of the runs' mean gains whose sum is at least the observed one.

    All patterns up to MOST_FLIPPED runs, else DRAWS random ones and the observed one. A gain that whole runs have or
    lack by chance is as likely negative as positive; Student's t takes nine equal runs of ten for a steady gain.
    """
    sizes = np.abs(np.asarray(gains, dtype=np.float64))
    if len(sizes) <= MOST_FLIPPED:
        signs = 1.0 - 2.0 * ((np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes))) & 1)
        return float(np.mean(signs @ sizes >= math.fsum(gains) - 1e-9))
    generator = np.random.Generator(np.random.PCG64(derive_seed(0, "flips", sizes.tolist())))
    drawn = generator.choice([-1.0, 1.0], (DRAWS, len(sizes))) @ sizes
    return (1 + int(np.count_nonzero(drawn >= math.fsum(gains) - 1e-9))) / (DRAWS + 1)


def _by_bootstrap(mean: float, error: float, blocks: _Blocks, *, n: int, resamples: int) -> Interval:
    """Return the interval of a studentised bootstrap of blocks: the quantiles of t come from the resamples.

    The upper quantile of t gives the lower end of the interval and the lower one the upper end.
    """
    from scipy.special import stdtr

    ts = _resampled_t(mean, error, blocks, resamples)
    tail = (1 - CONFIDENCE) / 2
    below, above = (float(q) for q in np.quantile(ts, [tail, 1 - tail], method="weibull"))
    p = float(stdtr(len(blocks.sums) - 1, -mean / error))
    # The mean belongs to its interval, also where a heavily skewed sample puts both quantiles on one side.
    return Interval(
        mean=mean,
        low=min(mean, mean - above * error),
        high=max(mean, mean - below * error),
        n=n,
        p=p,
        error=error,
        freedom=len(blocks.sums) - 1,
    )


def _resampled_t(mean: float, error: float, blocks: _Blocks, resamples: int) -> Floats:
    """Return studentised means of resampled blocks [resamples]; the draw depends on the data alone.

    Resamples are drawn in parts, which bounds the memory; the parts do not change the draw.
    """
    count = len(blocks.sums)
    seed = derive_seed(0, "bootstrap", resamples, blocks.sums.tolist(), blocks.sizes.tolist())
    generator = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, PART // count)
    parts = []
    for start in range(0, resamples, rows):
        picks = generator.integers(0, count, size=(min(rows, resamples - start), count))
        sums, sizes = blocks.sums[picks], blocks.sizes[picks]
        errors = np.maximum(_standard_errors(sums, sizes), error * LEAST_SPREAD)
        parts.append((sums.sum(axis=1) / sizes.sum(axis=1) - mean) / errors)
    return np.concatenate(parts)


def over_records(samples: Sequence[Sequence[Floats]]) -> Interval:
    """Return the interval of the sum of the means of independent samples of records, for one recorded run.

    The arrays of one sample have the same mean (DeLong: over members and over non-members), and their variances add.
    The degrees of freedom are those of the smallest array, which is conservative. It is shown and decides nothing:
    records of one model are not independent.
    """
    known = [[values[~np.isnan(values)] for values in sample] for sample in samples]
    parts = [values for sample in known for values in sample]
    count, smallest = sum(len(values) for values in parts), min(len(values) for values in parts)
    mean = math.fsum(float(sample[0].mean()) for sample in known) if smallest else math.nan
    if smallest < 2:
        return Interval(mean=mean, low=None, high=None, n=count, p=None)
    error = math.sqrt(math.fsum(float(values.var(ddof=1)) / len(values) for values in parts))
    largest = max(float(np.abs(values).max()) for values in parts)
    return by_t(mean, error if error > ROUNDING * largest else 0.0, n=count, freedom=smallest - 1)


def share_interval(share: float, units: int) -> tuple[float, float]:
    """Return Clopper and Pearson's 95 % interval of a share that is the same in all units, which thus has no spread."""
    from scipy.special import betaincinv

    hits, tail = share * units, (1 - CONFIDENCE) / 2
    low = 0.0 if hits <= 0 else float(betaincinv(hits, units - hits + 1, tail))
    high = 1.0 if hits >= units else float(betaincinv(hits + 1, units - hits, 1 - tail))
    return low, high


# The split test

DRAWS = 9_999
MOST_FLIPPED = 13  # runs whose sign patterns are all tried
RESOLVED = 2 / (DRAWS + 1)  # below, the normal tail: so few draws do not resolve it
MOST_TIED = 0.1  # share of the variance lost to ties up to which the tail is no heavier than the normal one
MOST_DRAWN = 1_000  # records of a unit whose labels are redrawn one by one; more are normal to 1e-4


@dataclass(frozen=True, kw_only=True)
class SplitUnit:
    """The split of one client in one run: the public numbers, and the private scores where they are at hand."""

    seed: int
    client: int | None
    split: Mapping[str, Any]  # u, n1, n0, ties: numbers, or lists with one entry per stratum
    draws: Mapping[str, Any] | None = None  # scores, member, stratum (may be absent), one entry per record

    @property
    def drawn(self) -> bool:
        """Whether the seed drew the members; else they are the same in all runs."""
        return bool(self.split.get("drawn", True))


@dataclass(frozen=True, kw_only=True)
class _Stratum:
    """Records of one class at one client, members and others, by Mann and Whitney's U."""

    u: float
    n1: int
    n0: int
    ties: Sequence[int]

    @property
    def lost(self) -> float:
        """The share of the variance that ties take."""
        n = self.n1 + self.n0
        return math.fsum(t**3 - t for t in self.ties) / (n**3 - n)

    @property
    def variance(self) -> float:
        """The exact variance of U over all labellings."""
        return self.n1 * self.n0 * (self.n1 + self.n0 + 1) / 12 * (1 - self.lost)


def split_facts(
    scores: Sequence[float], member: Sequence[int], stratum: Sequence[int] | None = None
) -> dict[str, Any] | None:
    """Return the public numbers of a unit's split: U, members, others, sizes of ties, and the variance of its AUC.

    `scores` are larger for records that look like members; `member` says which are. With `stratum` (the class of each
    record) records are compared within strata, and all but the variance are lists. None where nothing can be compared.
    """
    strata = [_ranked(*part)[1] for part in _parts(scores, member, stratum)]
    if not strata:
        return None
    facts: dict[str, Any] = {
        "u": [part.u for part in strata],
        "n1": [part.n1 for part in strata],
        "n0": [part.n0 for part in strata],
        "ties": [list(part.ties) for part in strata],
    }
    if stratum is None:
        facts = {name: values[0] for name, values in facts.items()}
    return facts | {"variance": _auc(strata)[1]}


def split_tests(rows: Sequence[Sequence[SplitUnit]], seed: int) -> list[float | None]:
    """Return for each row the p of its mean AUC over units, by redrawing the labels inside every unit and stratum.

    All rows use the same draws, which follow from `seed`. A row of which a unit lacks its private scores gets the
    normal tail, by which a reader can check p from the public numbers. None for a row without units.
    """
    exact = [index for index, units in enumerate(rows) if units and all(unit.draws for unit in units)]
    drawn = {index: np.zeros(DRAWS) for index in exact}
    for key, users in _by_block({index: rows[index] for index in exact}).items():
        labels = _Labels(derive_seed(seed, "split", *key), key[-2], key[-1])
        for index, ranks, stratum, weight in users:
            drawn[index] += weight * labels.redrawn(ranks, stratum)
    return [_split_p(units, drawn.get(index)) for index, units in enumerate(rows)]


def _split_p(units: Sequence[SplitUnit], drawn: Floats | None) -> float | None:
    from scipy.special import ndtr

    if not units:
        return None
    strata = [_strata(unit.split) for unit in units]
    aucs, variances = zip(*map(_auc, strata), strict=True)
    mean, variance = math.fsum(aucs) / len(aucs), math.fsum(variances) / len(variances) ** 2
    fixed = not all(unit.drawn for unit in units)
    if fixed:  # one labelling in all runs: their scores may agree fully, which bounds the variance of the mean
        variance = (math.fsum(map(math.sqrt, variances)) / len(variances)) ** 2
    normal = float(ndtr((0.5 - mean) / math.sqrt(variance))) if variance > 0 else 1.0
    if drawn is None:
        return normal
    p = (1 + int(np.count_nonzero(drawn >= mean - 1e-9))) / (DRAWS + 1)
    light = all(part.lost <= MOST_TIED for parts in strata for part in parts)
    return min(p, normal) if p <= RESOLVED and light and not fixed else p


class _Labels:
    """Draws of which records of a stratum are members, the same for every row that asks about them."""

    def __init__(self, seed: int, members: int, others: int) -> None:
        self.generator = np.random.Generator(np.random.PCG64(seed))
        self.members, self.others = members, others
        if members + others > MOST_DRAWN:
            self.normal = self.generator.standard_normal(DRAWS)
            return
        fewer, count = min(members, others), members + others
        rows = max(1, 1_000_000 // count)
        parts = []
        for start in range(0, DRAWS, rows):
            order = np.tile(np.arange(count, dtype=np.int16), (min(rows, DRAWS - start), 1))
            parts.append(self.generator.permuted(order, axis=1)[:, :fewer])
        self.picks = np.concatenate(parts)  # [draws, fewer]: the members, or the others where these are fewer

    def redrawn(self, ranks: Floats, stratum: _Stratum) -> Floats:
        """Return U for every draw, [draws]."""
        if self.members + self.others > MOST_DRAWN:
            return self.members * self.others / 2 + math.sqrt(stratum.variance) * self.normal
        sums = ranks[self.picks].sum(axis=1)
        if self.others < self.members:
            sums = ranks.sum() - sums
        redrawn: Floats = sums - self.members * (self.members + 1) / 2
        return redrawn


_BlockKey = tuple[
    int | None, int | None, int, int, int
]  # seed (None: the same in all runs), client, number of the stratum, members, others


def _by_block(rows: Mapping[int, Sequence[SplitUnit]]) -> dict[_BlockKey, list[tuple[int, Floats, _Stratum, float]]]:
    """Return for every client, run and stratum the rows that ask about it: index, ranks, numbers, weight of U."""
    blocks: dict[_BlockKey, list[tuple[int, Floats, _Stratum, float]]] = {}
    for index, units in rows.items():
        for unit in units:
            draws = unit.draws or {}
            ranked = [_ranked(*part) for part in _parts(draws["scores"], draws["member"], draws.get("stratum"))]
            pairs = sum(part.n1 * part.n0 for _, part in ranked)
            for number, (ranks, part) in enumerate(ranked):
                key = (unit.seed if unit.drawn else None, unit.client, number, part.n1, part.n0)
                blocks.setdefault(key, []).append((index, ranks, part, 1 / (pairs * len(units))))
    return blocks


def _parts(
    scores: Sequence[float], member: Sequence[int], stratum: Sequence[int] | None
) -> Iterator[tuple[Floats, NDArray[np.bool_]]]:
    """Yield scores and labels of every stratum that has members and others."""
    values, inside = np.asarray(scores, dtype=np.float64), np.asarray(member, dtype=bool)
    if values.shape != inside.shape or not np.isfinite(values).all():
        remedy = "A guess without finite scores is no guess: mark its case as diverged."
        raise BadInput("scores", expected="one finite number for each record", got="others", remedy=remedy)
    labels = np.zeros(len(values)) if stratum is None else np.asarray(stratum)
    for name in np.unique(labels):
        own = labels == name
        if inside[own].any() and not inside[own].all():
            yield values[own], inside[own]


def _ranked(values: Floats, inside: NDArray[np.bool_]) -> tuple[Floats, _Stratum]:
    """Return mid-ranks [records] and the numbers of a stratum."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[places]
    n1 = int(inside.sum())
    u = float(ranks[inside].sum()) - n1 * (n1 + 1) / 2
    ties = [int(count) for count in counts if count > 1]
    return ranks, _Stratum(u=u, n1=n1, n0=len(values) - n1, ties=ties)


def _strata(split: Mapping[str, Any]) -> list[_Stratum]:
    """Return the strata of a unit's public numbers; one where they are no lists."""
    names = ("u", "n1", "n0", "ties")
    columns = [split[name] for name in names]
    lists = columns if isinstance(split["u"], list | tuple) else [[column] for column in columns]
    return [_Stratum(**dict(zip(names, part, strict=True))) for part in zip(*lists, strict=True)]


def _auc(strata: Sequence[_Stratum]) -> tuple[float, float]:
    """Return the AUC of a unit over all pairs within strata, and its variance over all labellings."""
    pairs = sum(part.n1 * part.n0 for part in strata)
    variance = math.fsum(part.variance for part in strata) / pairs**2
    return math.fsum(part.u for part in strata) / pairs, variance


# The swap test

ALL_SWAPS = 4  # clients up to which every assignment of messages is tried
DRAWN_SWAPS = 3  # assignments per run beyond

Layout = dict[int, tuple[int, ...]]  # by seed: the clients whose messages are swapped
SwapScores = dict[int, dict[int, dict[int, float]]]  # seed, client asked about, client whose messages are used


def drawn_permutations(run_seed: int, clients: Sequence[int]) -> list[dict[int, int]]:
    """Return by client whose messages are read instead: all permutations of up to four clients, else three drawn ones.

    The identity is left out. The draw depends on the run and its clients alone, so that all attacks share it. It is
    uniform, which with the identity makes the test exact; so a drawn one may leave a client its own messages.
    """
    known = sorted(clients)
    if len(known) <= ALL_SWAPS:
        orders = list(permutations(known))[1:]  # the first is the identity
    else:
        generator = np.random.Generator(np.random.PCG64(derive_seed(0, "permutations", run_seed, known)))
        orders = [tuple(known[place] for place in generator.permutation(len(known))) for _ in range(DRAWN_SWAPS)]
    return [dict(zip(known, order, strict=True)) for order in orders]


@lru_cache(maxsize=256)
def _orders(seed: int, clients: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the tried assignments as places among the clients, first the true one, [assignments, clients]."""
    tried = [{client: client for client in clients}, *drawn_permutations(seed, clients)]
    place = {client: index for index, client in enumerate(clients)}
    return np.array([[place[order[client]] for client in clients] for order in tried], dtype=np.int64)


def joint_assignments(layout: Layout, seed: int) -> NDArray[np.int64]:
    """Return which assignment each run uses, first the true one of all, [joint assignments, runs in order of seeds].

    All of them where they are at most 9,999, else 9,999 random ones and the true one.
    """
    sizes = [len(_orders(run, layout[run])) for run in sorted(layout)]
    if math.prod(sizes) <= DRAWS:
        grids = np.meshgrid(*(np.arange(size) for size in sizes), indexing="ij")
        return np.stack([grid.ravel() for grid in grids], axis=1)
    generator = np.random.Generator(np.random.PCG64(derive_seed(seed, "joint swaps", sorted(layout.items()))))
    drawn = np.stack([generator.integers(0, size, DRAWS) for size in sizes], axis=1)
    return np.concatenate([np.zeros((1, len(sizes)), dtype=np.int64), drawn])


def swapped_means(scores: SwapScores, layout: Layout, joint: NDArray[np.int64]) -> Floats | None:
    """Return the mean score of a row under every joint assignment, [joint]; None where no unit has all its swaps.

    `scores` are signed so that larger means more leak, and hold the true assignment too.
    """
    total, count = np.zeros(len(joint)), 0
    for column, seed in enumerate(sorted(layout)):
        clients, orders = layout[seed], _orders(seed, layout[seed])
        place = {client: index for index, client in enumerate(clients)}
        for client, row in scores.get(seed, {}).items():
            used = orders[:, place[client]]
            values = np.array([row.get(clients[owner], math.nan) for owner in used])  # [assignments of this run]
            if np.isfinite(values).all() and len(clients) > 1:
                total += values[joint[:, column]]
                count += 1
    return total / count if count else None


def swap_error(scores: SwapScores) -> float:
    """Return the standard error of the mean over units as scores with other clients' messages vary about each client.

    0 where too few were tried.
    """
    others: dict[int, list[float]] = {}
    for run in scores.values():
        for client, row in run.items():
            others.setdefault(client, []).extend(score for owner, score in row.items() if owner != client)
    freedom = sum(len(values) - 1 for values in others.values() if values)
    squares = math.fsum(float(np.var(values)) * len(values) for values in others.values() if values)
    units = sum(len(run) for run in scores.values())
    return math.sqrt(squares / freedom / units) if freedom > 0 else 0.0


def swap_p(means: Floats) -> float:
    """Return the share of joint assignments whose mean is at least the true one's, which stands first."""
    return float(np.count_nonzero(means >= means[0] - _tolerance(means)) / len(means))


def standardised(means: Floats) -> Floats:
    """Return means in standard deviations over the assignments, so that rows can be compared; 0 where all are equal."""
    spread = float(means.std())
    return (means - means.mean()) / spread if spread > _tolerance(means) else np.zeros_like(means)


def _tolerance(means: Floats) -> float:
    return 1e-9 * max(1.0, float(np.abs(means).max()))


# Smallest leak seen, and what more seeds would settle

SETTLED_BY = 50  # more runs than this are no advice
SEEN_MARGINS = 2.0  # "no leak found" needs to have seen a leak of this many margins


def smallest_seen(error: float, runs: int, level: float) -> float:
    """Return the gain that four of five audits of this standard error would find at a one-sided `level`."""
    from scipy.special import nctdtrinc, stdtrit

    # A gain of d errors has a noncentral t-value: the d that passes the limit with the wanted power.
    return float(nctdtrinc(runs - 1, 1 - SEEN, float(stdtrit(runs - 1, level)))) * error


def upper_bound(gain: float, error: float, runs: int, level: float) -> float:
    """Return the one-sided upper bound of the mean gain over runs like these."""
    from scipy.special import stdtrit

    return gain + float(stdtrit(runs - 1, level)) * error


def seeds_to_reassure(gain: float, error: float, runs: int, margin: float, level: float) -> int | None:
    """Return the number of further runs after which such a gain would be bounded by the margin; None if too many."""
    for total in range(max(runs + 1, 3), SETTLED_BY + 1):
        shrunk = error * math.sqrt(runs / total)
        if upper_bound(max(gain, 0.0), shrunk, total, level) > margin:
            continue
        if smallest_seen(shrunk, total, level) <= SEEN_MARGINS * margin:
            return total - runs
    return None


def seeds_to_show(gain: float, error: float, runs: int, limit: float) -> int | None:
    """Return the number of further runs after which the run test of such a gain would reach `limit`; None if many."""
    for total in range(max(runs + 1, 2), SETTLED_BY + 1):
        if run_test(gain, error * math.sqrt(runs / total), total) <= limit:
            return total - runs
    return None


def seeds_for_exact(p: float, runs: int, limit: float, resolution: float | None) -> int | None:
    """Return the number of further runs after which an exact test that goes on like this would reach `limit`."""
    from scipy.special import ndtri

    if p >= 0.5 or not 0 < limit < 1:
        return None
    if resolution is not None and p <= resolution * (1 + 1e-9):  # as small as it can be: assignments multiply by run
        total = math.ceil(runs * math.log(limit) / math.log(p))
    else:
        total = math.ceil(runs * float(ndtri(limit) / ndtri(p)) ** 2)
    return max(total - runs, 1) if total <= SETTLED_BY else None


# Looks: each spends a part of the 5 %, so that looking again costs no false alarm

LEVEL = 0.05
FIRST_LOOK = 0.04
AUTO_LOOKS = (3, 5, 10, 20)  # runs
AUTO_SPENT = (0.02, 0.01, 0.01, 0.01)


def spending(looks: Sequence[Mapping[str, Any]], *, auto: bool = False) -> float:
    """Return the part of the 5 % that the next look may spend, given the earlier ones ({seeds, spent}).

    With `auto` seeds the looks after 3, 5, 10 and 20 runs spend 2, 1, 1 and 1 %; else, and once the audit was extended
    in between, the first spends 4 % and each later one half of what is left.
    """
    left = max(0.0, round(LEVEL - math.fsum(float(look["spent"]) for look in looks), 12))
    planned = tuple(look["seeds"] for look in looks) == AUTO_LOOKS[: len(looks)]
    if auto and planned and len(looks) < len(AUTO_SPENT):
        return min(AUTO_SPENT[len(looks)], left)
    return FIRST_LOOK if not looks else left / 2
