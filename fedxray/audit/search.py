"""Search of settings by an attacker's own loss: trials come in fixed batches, whatever the workers."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from fedxray.errors import BadInput, unknown_name
from fedxray.seeds import derive_seed, fork

Scale = Literal["linear", "log", "int"]
Ranges = Mapping[str, tuple[float, float, Scale]]  # name -> lowest, highest (both included), how it is spaced
Point = dict[str, float]
Objective = Callable[[Point], float]
EvaluateMany = Callable[[list[Point]], Sequence[float]]
# Points that were asked already under a name, or those that the function asks now.
Recall = Callable[[str, Callable[[], list[Point]]], list[Point]]
SAMPLERS = ("random", "gp", "grid")
NEEDED: Mapping[Scale, str] = {
    "linear": "",
    "log": " above 0",
    "int": ", both whole numbers",
}  # of the ends of a range
STARTS = 10  # of a model of the losses, unless told


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is searched: where, how often, and how points are chosen.

    `starts`: the first so many are drawn at random, all in one batch, before a model of the losses (gp) is asked.
    `give_up`: the share of its steps after which a trial that does worse than the median of earlier ones is ended.
    """

    ranges: Ranges
    trials: int = 16
    sampler: str = "random"
    batch: int = 8
    starts: int | None = None
    give_up: float | None = None

    def first(self) -> int:
        """How many trials are drawn before a model of the losses is asked; 0 where there is none."""
        if self.sampler != "gp":
            return 0
        return min(STARTS, self.trials) if self.starts is None else self.starts

    def sizes(self) -> list[int]:
        """How many trials each batch has; a grid may have fewer."""
        first = self.first()
        rest = [min(self.batch, self.trials - done) for done in range(first, self.trials, self.batch)]
        return [first, *rest] if first else rest


@dataclass(frozen=True)
class Trial:
    """One point that was tried and its loss, infinite where that was no number; of one given up its loss so far."""

    point: Point
    loss: float
    given_up: bool = False


@dataclass(frozen=True, kw_only=True)
class Found:
    """The trials in the order they were asked, and the best of them if any ended with a finite loss."""

    trials: tuple[Trial, ...]
    status: Literal["ok", "undetermined"]
    reason: str = ""

    @property
    def best(self) -> Trial:
        """The first trial with the smallest loss of those that were not given up."""
        return min(self.trials, key=_rank)

    def told(self) -> dict[str, Any]:
        """As plain values: what an attack that searched keeps in its facts under "search", for the report."""
        trials = [
            {"point": dict(one.point), "loss": one.loss if math.isfinite(one.loss) else None}
            | ({"given_up": True} if one.given_up else {})
            for one in self.trials
        ]
        best = self.trials.index(self.best) if self.status == "ok" else None
        return {"trials": trials, "best": best, "best_so_far": self._so_far(), "reason": self.reason}

    def _so_far(self) -> list[float | None]:
        """The smallest loss of a trial that ended, after each trial."""
        ended = (math.inf if one.given_up else one.loss for one in self.trials)
        return [one if math.isfinite(one) else None for one in itertools.accumulate(ended, min)]


def afresh(key: str, ask: Callable[[], list[Point]]) -> list[Point]:
    """Remembers no points."""
    return ask()


def search(
    objective: Objective | None,
    ranges: Ranges,
    *,
    trials: int,
    generator: torch.Generator,
    batch: int = 8,
    sampler: str = "random",
    starts: int | None = None,
    evaluate_many: EvaluateMany | None = None,
) -> Found:
    """Try points of the ranges and keep the smallest loss; `evaluate_many` takes whole batches.

    Points are drawn (random), asked of a model of the losses so far (gp), or stand on a grid of at most so many.
    """
    study = Study(ranges=ranges, trials=trials, batch=batch, sampler=sampler, starts=starts)
    check(study)
    check_library(study)
    evaluate = evaluate_many if evaluate_many is not None else _one_by_one(objective)
    done: list[Trial] = []
    while points := ask(study, done, generator):
        losses = evaluate([dict(point) for point in points])
        done += [Trial(point, finite(loss)) for point, loss in zip(points, losses, strict=True)]
    return found_in(done)


def ask(
    study: Study, done: Sequence[Trial], generator: torch.Generator, recall: Recall = afresh
) -> list[Point]:
    """The points of the next batch, none where all were tried; they depend on the seed and the trials so far alone."""
    sizes = study.sizes()
    starts = list(itertools.accumulate(sizes, initial=0))
    if len(done) not in starts[:-1]:  # the end, also that of a grid
        return []
    count = sizes[starts.index(len(done))]
    if study.sampler == "grid":
        return _grid(study.ranges, study.trials)[len(done) : len(done) + count]
    if study.sampler == "random" or len(done) < study.first():
        return [_draw(study.ranges, fork(generator, "search", len(done) + place)) for place in range(count)]
    return recall(*_of_a_model(study.ranges, done, count, generator))


def _of_a_model(
    ranges: Ranges, done: Sequence[Trial], count: int, generator: torch.Generator
) -> tuple[str, Callable[[], list[Point]]]:
    """What the points of a model are remembered by, and how they are asked for."""
    from fedxray.audit.bayes import best_guesses

    past = [(one.point, one.loss) for one in done]
    spaced = {name: list(one) for name, one in ranges.items()}
    key = f"points-{derive_seed(generator, 'points', spaced, [list(one) for one in past], count):016x}"
    seed = derive_seed(generator, "search", len(done))
    return key, lambda: best_guesses(ranges, past, count, seed)


def try_points(objective: Objective, points: Sequence[Point]) -> Found:
    """Try the given points in their order."""
    if not points:
        raise BadInput("points", expected="at least one", got="none", remedy="Name what to try.")
    return found_in([Trial(dict(point), finite(objective(dict(point)))) for point in points])


def found_in(done: Sequence[Trial]) -> Found:
    """What came of these trials."""
    if all(trial.given_up or math.isinf(trial.loss) for trial in done):
        lost = sum(trial.given_up for trial in done)
        reason = (
            f"{lost} of {len(done)} trials were given up, and no other ended" if lost else "no trial ended"
        )
        return Found(trials=tuple(done), status="undetermined", reason=f"{reason} with a finite loss")
    return Found(trials=tuple(done), status="ok")


def _rank(trial: Trial) -> tuple[bool, float]:
    return trial.given_up, trial.loss


def _one_by_one(objective: Objective | None) -> EvaluateMany:
    if objective is None:
        raise BadInput(
            "objective", expected="an objective or evaluate_many", got="neither", remedy="Give one."
        )
    return lambda points: [objective(point) for point in points]


def _grid(ranges: Ranges, trials: int) -> list[Point]:
    """Evenly spaced points of all ranges, ends included, equally many along each; the middle where it is only one."""
    names = sorted(ranges)
    side = _side(ranges, trials)
    shares = [0.5] if side == 1 else [place / (side - 1) for place in range(side)]
    every = (
        tuple(spread(share, *ranges[name]) for name, share in zip(names, point, strict=True))
        for point in itertools.product(shares, repeat=len(names))
    )
    points = (dict(zip(names, values, strict=True)) for values in dict.fromkeys(every))
    return [{name: point[name] for name in ranges} for point in points]


def _side(ranges: Ranges, trials: int) -> int:
    """How many values of each setting a grid of at most so many points has."""
    return max(one for one in range(1, trials + 1) if one ** len(ranges) <= trials)


def _draw(ranges: Ranges, generator: torch.Generator) -> Point:
    shares = torch.rand(len(ranges), generator=generator, dtype=torch.float64, device="cpu").tolist()
    drawn = dict(zip(sorted(ranges), shares, strict=True))  # by name, whatever the order
    return {name: spread(drawn[name], *ranges[name]) for name in ranges}


def spread(share: float, low: float, high: float, scale: Scale) -> float:
    """The value at a share (0..1) of a range."""
    if scale == "int":
        return min(int(low) + math.floor(share * (int(high) - int(low) + 1)), int(high))
    if scale == "log":
        return min(max(math.exp(math.log(low) + share * (math.log(high) - math.log(low))), low), high)
    return min(low + share * (high - low), high)  # 0.32 + (0.9 - 0.32) is above 0.9


def finite(loss: float) -> float:
    """The loss, infinite where it is no number."""
    value = float(loss)
    return value if math.isfinite(value) else math.inf


def check(study: Study) -> None:
    """Refuse a search that cannot be meant."""
    if study.sampler not in SAMPLERS:
        raise unknown_name("sampler", study.sampler, SAMPLERS)
    for name, number in (("trials", study.trials), ("batch", study.batch)):
        if number < 1:
            raise BadInput(name, expected="a whole number of at least 1", got=number, remedy="Try 8.")
    if study.starts is not None:
        _check_starts(study, study.starts)
    if not study.ranges:
        raise BadInput("ranges", expected="at least one range", got="none", remedy="Name what to search.")
    for name, (low, high, scale) in study.ranges.items():
        _check_range(f"ranges.{name}", low, high, scale)
    if study.sampler == "grid" and _side(study.ranges, study.trials) == 1 < study.trials:
        raise BadInput(
            "trials",
            expected=f"at least {2 ** len(study.ranges)} for a grid of {len(study.ranges)} settings, 2 values of each",
            got=study.trials,
            remedy='Use more trials, fewer ranges, or sampler = "random".',
        )


def _check_range(argument: str, low: float, high: float, scale: Scale) -> None:
    held = all(abs(end) <= sys.float_info.max for end in (low, high))  # also whole numbers have to fit
    whole = scale != "int" or (held and float(low).is_integer() and float(high).is_integer())
    if held and low > high:
        raise BadInput(
            argument,
            expected="the smaller end first",
            got=f"[{low}, {high}]",
            remedy=f"Write [{high}, {low}].",
        )
    if not (held and low < high and whole) or (scale == "log" and low <= 0):
        raise BadInput(
            argument,
            expected=f"two different finite ends{NEEDED[scale]}",
            got=f"[{low}, {high}]",
            remedy="One value is no search: leave it out of ranges, and set it beside search."
            if low == high
            else "Give [low, high]; `fedxray show NAME` tells the range an attack has by itself.",
        )


def check_library(study: Study) -> None:
    """Refuse a search whose library is missing, before anything is tried."""
    if study.sampler == "gp":
        from fedxray.audit.bayes import check_optuna

        check_optuna()


def _check_starts(study: Study, starts: int) -> None:
    if study.sampler != "gp":
        raise BadInput(
            "starts",
            expected='sampler = "gp", which is asked after them',
            got=f"sampler {study.sampler!r}",
            remedy="Leave starts out.",
        )
    if not 1 <= starts <= study.trials:
        raise BadInput(
            "starts",
            expected=f"a whole number from 1 to the number of trials ({study.trials})",
            got=starts,
            remedy="Use more trials or fewer starts.",
        )
