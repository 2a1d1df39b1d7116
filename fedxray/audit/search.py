"""Search of settings by an attacker's own loss: trials come in fixed batches, whatever the workers."""

from __future__ import annotations

import itertools
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from fedxray.audit.engines import one_thread
from fedxray.errors import BadInput, FedxrayError, unknown_name
from fedxray.seeds import derive_seed, fork

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Scale = Literal["linear", "log", "int"]
Ranges = Mapping[str, tuple[float, float, Scale]]  # name -> lowest, highest (both included), how it is spaced
Point = dict[str, float]
Objective = Callable[[Point], float]
EvaluateMany = Callable[[list[Point]], Sequence[float]]
SAMPLERS = ("random", "gp", "grid")


@dataclass(frozen=True)
class Trial:
    """One point that was tried and its loss; infinite where the loss was no number."""

    point: Point
    loss: float


@dataclass(frozen=True, kw_only=True)
class Found:
    """The trials in the order they were asked, and the best of them if any has a finite loss."""

    trials: tuple[Trial, ...]
    status: Literal["ok", "undetermined"]
    reason: str = ""

    @property
    def best(self) -> Trial:
        """The first trial with the smallest loss."""
        return min(self.trials, key=lambda trial: trial.loss)

    def told(self) -> dict[str, Any]:
        """As plain values: what an attack that searched keeps in its facts under "search", for the report."""
        trials = [
            {"point": dict(one.point), "loss": one.loss if math.isfinite(one.loss) else None}
            for one in self.trials
        ]
        best = self.trials.index(self.best) if self.status == "ok" else None
        return {"trials": trials, "best": best, "reason": self.reason}


def search(
    objective: Objective | None,
    ranges: Ranges,
    *,
    trials: int,
    generator: torch.Generator,
    batch: int = 8,
    sampler: str = "random",
    evaluate_many: EvaluateMany | None = None,
) -> Found:
    """Try points of the ranges and keep the smallest loss; `evaluate_many` takes whole batches.

    Points are drawn (random), asked of a model of the losses so far (gp), or stand on a grid of at most so many.
    """
    check(ranges, trials, batch, sampler)
    evaluate = evaluate_many if evaluate_many is not None else _one_by_one(objective)
    ask = _ask_by(sampler, ranges, trials, generator)
    done: list[Trial] = []
    while len(done) < trials:
        points = ask(done, min(batch, trials - len(done)))
        if not points:  # a grid may have fewer
            break
        losses = evaluate([dict(point) for point in points])
        done += [Trial(point, _finite(loss)) for point, loss in zip(points, losses, strict=True)]
    return _found(done)


def try_points(objective: Objective, points: Sequence[Point]) -> Found:
    """Try the given points in their order."""
    if not points:
        raise BadInput("points", expected="at least one", got="none", remedy="Name what to try.")
    return _found([Trial(dict(point), _finite(objective(dict(point)))) for point in points])


def _found(done: Sequence[Trial]) -> Found:
    if all(math.isinf(trial.loss) for trial in done):
        return Found(trials=tuple(done), status="undetermined", reason="no trial had a finite loss")
    return Found(trials=tuple(done), status="ok")


Ask = Callable[[Sequence[Trial], int], list[Point]]


def _one_by_one(objective: Objective | None) -> EvaluateMany:
    if objective is None:
        raise BadInput(
            "objective", expected="an objective or evaluate_many", got="neither", remedy="Give one."
        )
    return lambda points: [objective(point) for point in points]


def _ask_by(sampler: str, ranges: Ranges, trials: int, generator: torch.Generator) -> Ask:
    if sampler == "grid":
        return _ask_grid(ranges, trials)
    return _ask_gp(ranges, generator) if sampler == "gp" else _ask_random(ranges, generator)


def _ask_grid(ranges: Ranges, trials: int) -> Ask:
    """Evenly spaced points of all ranges, ends included, equally many along each; the middle where it is only one."""
    names = sorted(ranges)
    side = max(one for one in range(1, trials + 1) if one ** len(names) <= trials)
    shares = [0.5] if side == 1 else [place / (side - 1) for place in range(side)]
    every = [
        {name: spread(share, *ranges[name]) for name, share in zip(names, point, strict=True)}
        for point in itertools.product(shares, repeat=len(names))
    ]
    points = [point for place, point in enumerate(every) if point not in every[:place]]
    return lambda done, count: points[len(done) : len(done) + count]


def _ask_random(ranges: Ranges, generator: torch.Generator) -> Ask:
    """Independent draws; trial k depends on the generator's seed and on k alone."""

    def ask(done: Sequence[Trial], count: int) -> list[Point]:
        return [_draw(ranges, fork(generator, "search", len(done) + place)) for place in range(count)]

    return ask


def _draw(ranges: Ranges, generator: torch.Generator) -> Point:
    shares = torch.rand(len(ranges), generator=generator, dtype=torch.float64, device="cpu").tolist()
    return {name: spread(share, *ranges[name]) for name, share in zip(sorted(ranges), shares, strict=True)}


def spread(share: float, low: float, high: float, scale: Scale) -> float:
    """The value at a share (0..1) of a range."""
    if scale == "int":
        return min(int(low) + math.floor(share * (int(high) - int(low) + 1)), int(high))
    if scale == "log":
        return min(max(math.exp(math.log(low) + share * (math.log(high) - math.log(low))), low), high)
    return low + share * (high - low)


def _ask_gp(ranges: Ranges, generator: torch.Generator) -> Ask:
    """Expected improvement under a Gaussian process; points asked together know of each other."""
    try:
        import optuna
    except ImportError:
        raise FedxrayError("sampler gp needs Optuna: pip install 'fedxray[tune]', or use random.") from None
    with _quiet_optuna():
        chooser = optuna.samplers.GPSampler(seed=derive_seed(generator, "search") % 2**32)
        study = optuna.create_study(direction="minimize", sampler=chooser)
    asked: list[Any] = []
    space = _distributions(ranges)

    def ask(done: Sequence[Trial], count: int) -> list[Point]:
        with _quiet_optuna():
            worst = max((one.loss for one in done if math.isfinite(one.loss)), default=0.0)
            for trial, told in zip(asked, done[-len(asked) :] if asked else (), strict=True):
                study.tell(trial, told.loss if math.isfinite(told.loss) else worst)
            asked[:] = [study.ask(space) for _ in range(count)]
        return [{name: trial.params[name] for name in ranges} for trial in asked]

    return ask


def _distributions(ranges: Ranges) -> dict[str, BaseDistribution]:
    from optuna.distributions import FloatDistribution, IntDistribution

    return {
        name: IntDistribution(int(low), int(high))
        if scale == "int"
        else FloatDistribution(low, high, log=scale == "log")
        for name, (low, high, scale) in ranges.items()
    }


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Without Optuna's lines of log and its notes about experimental parts."""
    logger = logging.getLogger("optuna")
    before, draws = logger.level, torch.get_rng_state()
    logger.setLevel(logging.WARNING)
    try:
        with one_thread(), warnings.catch_warnings():  # many threads make it slower, and other sums
            warnings.filterwarnings("ignore", module="optuna")
            yield
    finally:
        logger.setLevel(before)
        torch.set_rng_state(draws)


def _finite(loss: float) -> float:
    value = float(loss)
    return value if math.isfinite(value) else math.inf


def check(ranges: Ranges, trials: int, batch: int, sampler: str) -> None:
    """Refuse a search that cannot be meant."""
    if sampler not in SAMPLERS:
        raise unknown_name("sampler", sampler, SAMPLERS)
    for name, number in (("trials", trials), ("batch", batch)):
        if number < 1:
            raise BadInput(name, expected="a whole number of at least 1", got=number, remedy="Try 8.")
    if not ranges:
        raise BadInput("ranges", expected="at least one range", got="none", remedy="Name what to search.")
    for name, (low, high, scale) in ranges.items():
        whole = scale != "int" or (float(low).is_integer() and float(high).is_integer())
        if not (math.isfinite(low) and math.isfinite(high) and low <= high and whole) or (
            scale == "log" and low <= 0
        ):
            raise BadInput(
                f"range of {name}",
                expected="finite low ≤ high, above 0 where log, whole where int",
                got=f"{low} to {high}, {scale}",
                remedy="Mend the range.",
            )
