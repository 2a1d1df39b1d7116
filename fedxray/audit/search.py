"""Search of settings by an attacker's own loss.

Trials come in fixed batches, and the points of a batch depend on the seed and on the trials before it alone, so the
outcome does not depend on the number of workers. The file holds, in this order: samplers (`ask`), points by a
Gaussian process, the loss curve of an attack for the report, the key `search` of an [[attack]], and the search of an
attack's settings on a view (`AttackSearch`).
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, cast

import torch

from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.audit.catalog import attack_settings
from fedxray.audit.workers.engines import one_thread
from fedxray.errors import BadInput, Refused, missing_extra, unknown_key, unknown_name
from fedxray.seeds import derive_seed, fork

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study as OptunaStudy

Scale = Literal["linear", "log", "int"]
Ranges = Mapping[str, tuple[float, float, Scale]]  # name -> lowest, highest (both included), how it is spaced
Point = dict[str, float]
# Returns the stored points of a key, or those that the function asks for now.
Recall = Callable[[str, Callable[[], list[Point]]], list[Point]]
SAMPLERS = ("random", "gp", "grid")
NEEDED: Mapping[Scale, str] = {"linear": "", "log": " above 0", "int": ", both whole numbers"}  # of the ends of a range
STARTS = 10  # random trials before the Gaussian process, by default


@dataclass(frozen=True, kw_only=True)
class Study:
    """The ranges of a search, its number of trials, and how points are chosen.

    `starts`: the number of first trials that are drawn at random, in one batch, before the Gaussian process (gp).
    `give_up`: the share of its steps after which a trial that does worse than the median of earlier ones is ended.
    """

    ranges: Ranges
    trials: int = 16
    sampler: str = "random"
    batch: int = 8
    starts: int | None = None
    give_up: float | None = None

    def first(self) -> int:
        """Return the number of random trials before the Gaussian process; 0 for other samplers."""
        if self.sampler != "gp":
            return 0
        return min(STARTS, self.trials) if self.starts is None else self.starts

    def sizes(self) -> list[int]:
        """Return the number of trials of each batch; a grid may have fewer."""
        first = self.first()
        rest = [min(self.batch, self.trials - done) for done in range(first, self.trials, self.batch)]
        return [first, *rest] if first else rest


@dataclass(frozen=True)
class Trial:
    """A point and its loss, infinite where that is not finite; of a trial given up, its loss so far."""

    point: Point
    loss: float
    given_up: bool = False


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The trials in the order they were asked for, and whether any ended with a finite loss."""

    trials: tuple[Trial, ...]
    status: Literal["ok", "undetermined"]
    reason: str = ""

    @property
    def best(self) -> Trial:
        """The first trial with the smallest loss of those that were not given up."""
        return min(self.trials, key=lambda trial: (trial.given_up, trial.loss))

    def facts(self) -> dict[str, Any]:
        """Return the trials as plain values, which an attack that searched keeps in its facts under "search"."""
        trials = [
            {"point": dict(trial.point), "loss": trial.loss if math.isfinite(trial.loss) else None}
            | ({"given_up": True} if trial.given_up else {})
            for trial in self.trials
        ]
        best = self.trials.index(self.best) if self.status == "ok" else None
        return {"trials": trials, "best": best, "best_so_far": self._so_far(), "reason": self.reason}

    def _so_far(self) -> list[float | None]:
        """Return, after each trial, the smallest loss of a trial that ended."""
        ended = (math.inf if trial.given_up else trial.loss for trial in self.trials)
        return [loss if math.isfinite(loss) else None for loss in itertools.accumulate(ended, min)]


def ask_afresh(key: str, ask: Callable[[], list[Point]]) -> list[Point]:
    """Ask for points without storing them."""
    return ask()


def ask(study: Study, done: Sequence[Trial], generator: torch.Generator, recall: Recall = ask_afresh) -> list[Point]:
    """Return the points of the next batch, none after the last; they depend on the seed and the trials so far alone.

    Each random point has a generator of its own, forked by its number, so batches do not change the draws.
    """
    sizes = study.sizes()
    starts = list(itertools.accumulate(sizes, initial=0))
    if len(done) not in starts[:-1]:  # the end, also that of a grid
        return []
    count = sizes[starts.index(len(done))]
    if study.sampler == "grid":
        return _grid(study.ranges, study.trials)[len(done) : len(done) + count]
    if study.sampler == "random" or len(done) < study.first():
        return [_draw(study.ranges, fork(generator, "search", len(done) + index)) for index in range(count)]
    return recall(*_from_model(study.ranges, done, count, generator))


def _from_model(
    ranges: Ranges, done: Sequence[Trial], count: int, generator: torch.Generator
) -> tuple[str, Callable[[], list[Point]]]:
    """Return the key under which the points of the Gaussian process are stored, and the function that asks for them."""
    past = [(trial.point, trial.loss) for trial in done]
    spaced = {name: list(ends) for name, ends in ranges.items()}
    key = f"points-{derive_seed(generator, 'points', spaced, [list(pair) for pair in past], count):016x}"
    seed = derive_seed(generator, "search", len(done))
    return key, lambda: improving_points(ranges, past, count, seed)


def search_result(done: Sequence[Trial]) -> SearchResult:
    """Return the result of these trials: undetermined where none ended with a finite loss."""
    if all(trial.given_up or math.isinf(trial.loss) for trial in done):
        lost = sum(trial.given_up for trial in done)
        reason = f"{lost} of {len(done)} trials were given up, and no other ended" if lost else "no trial ended"
        return SearchResult(trials=tuple(done), status="undetermined", reason=f"{reason} with a finite loss")
    return SearchResult(trials=tuple(done), status="ok")


def _grid(ranges: Ranges, trials: int) -> list[Point]:
    """Return evenly spaced points of all ranges, ends included, as many values of each; the middle for one value."""
    names = sorted(ranges)
    side = _side(ranges, trials)
    shares = [0.5] if side == 1 else [step / (side - 1) for step in range(side)]
    every = (
        tuple(spread(share, *ranges[name]) for name, share in zip(names, point, strict=True))
        for point in itertools.product(shares, repeat=len(names))
    )
    points = (dict(zip(names, values, strict=True)) for values in dict.fromkeys(every))
    return [{name: point[name] for name in ranges} for point in points]


def _side(ranges: Ranges, trials: int) -> int:
    """Return how many values of each setting a grid of at most `trials` points has."""
    return max(side for side in range(1, trials + 1) if side ** len(ranges) <= trials)


def _draw(ranges: Ranges, generator: torch.Generator) -> Point:
    shares = torch.rand(len(ranges), generator=generator, dtype=torch.float64, device="cpu").tolist()
    drawn = dict(zip(sorted(ranges), shares, strict=True))  # by name, whatever the order
    return {name: spread(drawn[name], *ranges[name]) for name in ranges}


def spread(share: float, low: float, high: float, scale: Scale) -> float:
    """Return the value at a share (0..1) of a range."""
    if scale == "int":
        return min(int(low) + math.floor(share * (int(high) - int(low) + 1)), int(high))
    if scale == "log":
        return min(max(math.exp(math.log(low) + share * (math.log(high) - math.log(low))), low), high)
    return min(low + share * (high - low), high)  # 0.32 + (0.9 - 0.32) is above 0.9


def finite(loss: float) -> float:
    """Return the loss, infinite where it is not finite."""
    value = float(loss)
    return value if math.isfinite(value) else math.inf


def check(study: Study) -> None:
    """Refuse a search with contradictory or impossible settings."""
    if study.sampler not in SAMPLERS:
        raise unknown_name("sampler", study.sampler, SAMPLERS)
    if study.starts is not None:
        _check_starts(study, study.starts)
    for name, (low, high, scale) in study.ranges.items():
        _check_range(f"ranges.{name}", low, high, scale)
    if study.sampler == "grid" and _side(study.ranges, study.trials) == 1 < study.trials:
        expected = f"at least {2 ** len(study.ranges)} for a grid of {len(study.ranges)} settings, 2 values of each"
        remedy = 'Use more trials, fewer ranges, or sampler = "random".'
        raise BadInput("trials", expected=expected, got=study.trials, remedy=remedy)


def _check_range(argument: str, low: float, high: float, scale: Scale) -> None:
    finite_ends = all(abs(end) <= sys.float_info.max for end in (low, high))  # an int may exceed a float
    integral = scale != "int" or (finite_ends and float(low).is_integer() and float(high).is_integer())
    if finite_ends and low > high:
        expected = "the smaller end first"
        raise BadInput(argument, expected=expected, got=f"[{low}, {high}]", remedy=f"Write [{high}, {low}].")
    if not (finite_ends and low < high and integral) or (scale == "log" and low <= 0):
        raise BadInput(
            argument,
            expected=f"two different finite ends{NEEDED[scale]}",
            got=f"[{low}, {high}]",
            remedy="One value is no search: leave it out of ranges, and set it beside search."
            if low == high
            else "Give [low, high]; `fedxray show NAME` lists the ranges of an attack.",
        )


def check_library(study: Study) -> None:
    """Refuse the sampler gp where Optuna is not installed, before anything is tried."""
    if study.sampler == "gp" and importlib.util.find_spec("optuna") is None:
        raise missing_extra("sampler", "Optuna", "tune", 'use sampler = "random"')


def _check_starts(study: Study, starts: int) -> None:
    if study.sampler != "gp":
        expected = 'sampler = "gp", which is asked after them'
        raise BadInput("starts", expected=expected, got=f"sampler {study.sampler!r}", remedy="Leave starts out.")
    if not 1 <= starts <= study.trials:
        expected = f"a whole number from 1 to the number of trials ({study.trials})"
        raise BadInput("starts", expected=expected, got=starts, remedy="Use more trials or fewer starts.")


# Points of largest expected improvement under a Gaussian process of the losses so far, by Optuna
#
# The losses of an attack have no noise: the same settings give the same loss, so the process interpolates them.
# Points of one batch are chosen jointly. They depend on the trials so far and on a seed alone, so that a search
# that is resumed on another computer asks for the same.


def improving_points(
    ranges: Mapping[str, tuple[float, float, str]],
    past: Sequence[tuple[Mapping[str, float], float]],
    count: int,
    seed: int,
) -> list[dict[str, float]]:
    """Return `count` points to try next, after `past` points with their losses.

    An infinite loss counts as the worst finite one: the process needs finite values and must still avoid that region.
    """
    with _quiet():
        study = _study(ranges, past, seed)
        trials = [study.ask(_distributions(ranges)) for _ in range(count)]
    return [{name: trial.params[name] for name in ranges} for trial in trials]


def _study(
    ranges: Mapping[str, tuple[float, float, str]], past: Sequence[tuple[Mapping[str, float], float]], seed: int
) -> OptunaStudy:
    import optuna

    sampler = optuna.samplers.GPSampler(seed=seed % 2**32, n_startup_trials=len(past), deterministic_objective=True)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    space = _distributions(ranges)
    worst = max((loss for _, loss in past if math.isfinite(loss)), default=0.0)
    study.add_trials(
        [
            optuna.trial.create_trial(
                params=dict(point), distributions=space, value=loss if math.isfinite(loss) else worst
            )
            for point, loss in past
        ]
    )
    return study


def _distributions(ranges: Mapping[str, tuple[float, float, str]]) -> dict[str, BaseDistribution]:
    from optuna.distributions import FloatDistribution, IntDistribution

    return {
        name: IntDistribution(int(low), int(high))
        if scale == "int"
        else FloatDistribution(low, high, log=scale == "log")
        for name, (low, high, scale) in ranges.items()
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's log and its warnings about experimental parts, and leave torch's generator as it was."""
    import optuna.study  # noqa: F401  (its logger is set up when it is first imported)

    logger = logging.getLogger("optuna")
    before, draws = logger.level, torch.get_rng_state()
    logger.setLevel(logging.ERROR)
    try:
        with one_thread(), warnings.catch_warnings():  # several threads are slower, and sum in another order
            warnings.filterwarnings("ignore", module="optuna")
            yield
    finally:
        logger.setLevel(before)
        torch.set_rng_state(draws)


# The loss curve of an attack for the report: its own loss by step and the settings it tried, never a record

MOST_POINTS = 60  # of a curve
MOST_TRIALS = 1_000  # of a search; results.json lists all of them
TAKEN = "taken"  # key in the facts of an attack: what it assumed of the client, and the settings that follow
SEARCH = "search"  # key in the facts of an attack that searched settings, written by SearchResult.facts


def curve_facts(evidence: Evidence) -> dict[str, Any]:
    """Return `curve`, `search` and `taken` of a case, as far as the attack has them."""
    search, assumed = evidence.facts.get(SEARCH), evidence.facts.get(TAKEN)
    searched = isinstance(search, Mapping) and bool(search.get("trials"))
    return (
        ({"curve": thinned(evidence.curve)} if evidence.curve else {})
        | ({SEARCH: search} if searched else {})
        | ({TAKEN: assumed} if assumed else {})
    )


def thinned(curve: Sequence[float], most: int = MOST_POINTS) -> dict[str, list[Any]]:
    """Return at most `most` evenly spaced steps of a curve with the loss at each, the first and last among them."""
    last = len(curve) - 1
    count = min(len(curve), most)
    steps = [0] if count < 2 else [round(index * last / (count - 1)) for index in range(count)]
    return {"steps": steps, "losses": [_digits(curve[step]) for step in steps]}


def _digits(loss: float) -> float | None:
    """Round to five digits, enough for a drawing; a loss that is not finite is missing."""
    return float(f"{loss:.5g}") if math.isfinite(loss) else None


# The key `search` of an [[attack]]: a table of trials, sampler, batch, starts, ranges and give_up

KEYS = ("trials", "sampler", "batch", "starts", "ranges", "give_up")


def study_of(attack: Attack, table: Any, argument: str) -> Study:
    """Return the search that a plan asks for, or raise BadInput; ranges default to the attack's own."""
    if not attack.searched:
        expected = "an attack with settings that can be searched"
        remedy = "`fedxray show NAME` lists them; leave search out."
        raise BadInput(argument, expected=expected, got=attack.name, remedy=remedy)
    if not isinstance(table, Mapping):
        raise BadInput(argument, expected="a table", got=repr(table), remedy="For instance search = { trials = 16 }.")
    for key in table:
        if key not in KEYS:
            raise unknown_key(f"{argument}.{key}", str(key), KEYS)
    study = Study(
        ranges=_ranges(attack, table.get("ranges"), f"{argument}.ranges"),
        trials=_count(table, "trials", 16, argument),
        sampler=table.get("sampler", "random"),
        batch=_count(table, "batch", 8, argument),
        starts=_count(table, "starts", 10, argument) if "starts" in table else None,
        give_up=_share(table["give_up"], f"{argument}.give_up") if "give_up" in table else None,
    )
    with _under(argument):
        check(study)
    _check_not_set(attack, study, argument)
    _check_ends(attack, study, f"{argument}.ranges")
    _check_give_up(attack, study, f"{argument}.give_up")
    return study


def with_point(attack: Attack, point: Point) -> Attack:
    """Return the attack with these settings."""
    return replace(attack, **point)  # type: ignore[type-var]


def judged_step(attack: Attack, share: float) -> int:
    """Return the number of steps after which a trial may be given up."""
    steps: int = attack_settings(attack)["steps"]
    return max(1, round(share * steps))


def _check_not_set(attack: Attack, study: Study, argument: str) -> None:
    """Refuse a setting that the plan sets: the search would silently replace its value."""
    own = {field.name: field.default for field in fields(attack)}  # type: ignore[arg-type]
    for name in study.ranges:
        value = getattr(attack, name)
        if value != own[name]:
            expected = f"{name} either set or searched"
            remedy = f"Leave {name} out, or name under ranges only what is to be searched."
            raise BadInput(argument, expected=expected, got=f"{name} = {value!r} and a range of it", remedy=remedy)


def _check_ends(attack: Attack, study: Study, argument: str) -> None:
    """Refuse ranges with an end that the attack does not take."""
    for name, (low, high, scale) in study.ranges.items():
        for value in (low, high):
            try:
                with_point(attack, {name: int(value) if scale == "int" else value})
            except BadInput as error:
                remedy = f"`fedxray show {attack.name}` lists its own range."
                raise BadInput(f"{argument}.{name}", expected=error.expected, got=error.got, remedy=remedy) from None


def _check_give_up(attack: Attack, study: Study, argument: str) -> None:
    """Refuse `give_up` for an attack that cannot end early, or at a step after which none is left."""
    if study.give_up is None:
        return
    known = attack_settings(attack)
    if "give_up" not in known or "steps" not in known:
        raise BadInput(
            argument, expected="an attack that can end early", got=attack.name, remedy="Leave give_up out of search."
        )
    if known["give_up"] is not None:
        expected = "an attack without a give_up of its own"
        remedy = "Leave one of them out."
        raise BadInput(argument, expected=expected, got=f"give_up = {known['give_up']!r}", remedy=remedy)
    at = judged_step(attack, study.give_up)
    if at >= known["steps"]:
        expected = f"a share that leaves some of {known['steps']} steps"
        raise BadInput(argument, expected=expected, got=study.give_up, remedy="Take more steps, or leave give_up out.")
    try:
        replace(attack, give_up=(at, 0.0))  # type: ignore[type-var]
    except BadInput as error:
        expected = f"{error.argument} = {error.expected}"
        raise BadInput(argument, expected=expected, got=error.got, remedy="Leave give_up out of search.") from None


def _ranges(attack: Attack, given: Any, argument: str) -> Ranges:
    """Return the ranges of a plan, lists of lowest and highest; the attack declares how each is spaced."""
    if given is None:
        return cast(Ranges, dict(attack.searched))
    if not isinstance(given, Mapping) or not given:
        raise BadInput(argument, expected="a table of [lowest, highest]", got=repr(given), remedy="Leave it out.")
    ranges: dict[str, tuple[float, float, Scale]] = {}
    for name, value in given.items():
        if name not in attack.searched:
            raise unknown_key(f"{argument}.{name}", str(name), attack.searched, of=attack.name)
        numbers = isinstance(value, list | tuple) and len(value) == 2 and all(
            isinstance(end, int | float) and not isinstance(end, bool) for end in value
        )  # fmt: skip
        if not numbers:
            remedy = f"Its default is [{attack.searched[name][0]:g}, {attack.searched[name][1]:g}]."
            raise BadInput(f"{argument}.{name}", expected="[lowest, highest]", got=repr(value), remedy=remedy)
        ranges[name] = (value[0], value[1], cast(Scale, attack.searched[name][2]))
    return ranges


def _count(table: Mapping[str, Any], key: str, otherwise: int, argument: str) -> int:
    value = table.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TRIALS:
        expected = f"a whole number from 1 to {MOST_TRIALS:,}"
        raise BadInput(f"{argument}.{key}", expected=expected, got=repr(value), remedy=f"Try {otherwise}.")
    return value


def _share(value: Any, argument: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise BadInput(argument, expected="a share of the steps, between 0 and 1", got=repr(value), remedy="Try 0.5.")
    return float(value)


# The search of an attack's settings on one view, judged by its own measure alone
#
# Every trial is the attack with other settings, stored like any other answer, so that an interrupted search
# continues where it was. The best trial is the attack's answer, and its facts list all trials.
#
# With `give_up` a trial is ended after that share of its steps if its loss is then above the median of the trials
# of earlier batches after as many steps (the median stopping rule). The sampler gets its loss so far, an
# overestimate, and it is never the answer. Batches are fixed, so that this does not depend on the workers.

LEAST_EARLIER = 5  # earlier trials that a median needs
Run = Callable[[Attack], Evidence]


@dataclass(frozen=True)
class AnsweredTrial:
    """A trial with the answer of its attack."""

    trial: Trial
    answer: Evidence


@dataclass(frozen=True, kw_only=True)
class AttackSearch:
    """The search of one attack on one view; `run` answers a trial, `recall` stores points."""

    attack: Attack
    study: Study
    run: Run
    generator: torch.Generator
    recall: Recall = ask_afresh

    def next_batch(self, done: Sequence[AnsweredTrial]) -> list[tuple[Point, Attack]]:
        """Return the batch after these trials: every point with the attack that tries it."""
        draws = fork(self.generator, "search", self.attack.name)
        points = ask(self.study, [answered.trial for answered in done], draws, self.recall)
        limit = early_stop(self.attack, self.study, [answered.answer for answered in done])
        trials = [(point, with_point(self.attack, point)) for point in points]
        if limit is None:
            return trials
        return [(point, replace(trial, give_up=limit)) for point, trial in trials]  # type: ignore[type-var]

    def run_batches(self, batches: int | None = None) -> list[AnsweredTrial]:
        """Run all trials, or those of the first `batches`, in the order of the plan."""
        done: list[AnsweredTrial] = []
        while batches is None or batches > 0:
            batch = self.next_batch(done)
            if not batch:
                break
            done += [self._judged(point, self.run(attack)) for point, attack in batch]
            batches = None if batches is None else batches - 1
        return done

    def _judged(self, point: Point, answer: Evidence) -> AnsweredTrial:
        loss = finite(own_measure(self.attack, answer))
        return AnsweredTrial(Trial(point, loss, given_up=answer.status == "truncated"), answer)


def best_answer(search: AttackSearch) -> Evidence:
    """Return the answer of the best trial, with all trials in its facts."""
    check_library(search.study)
    done = search.run_batches()
    result = search_result([answered.trial for answered in done])
    facts = {SEARCH: {**result.facts(), **_settings_of(search)}}
    if result.status != "ok":
        first = done[0].answer
        return replace(first, status="undetermined", reason=result.reason, facts={**first.facts, **facts})
    best = done[result.trials.index(result.best)].answer
    return replace(best, facts={**best.facts, **facts, "chosen": dict(result.best.point)})


def _settings_of(search: AttackSearch) -> dict[str, Any]:
    """Return how trials were chosen and judged, in plain values."""
    study = search.study
    return {
        "ranges": {name: list(ends) for name, ends in study.ranges.items()},
        "sampler": study.sampler,
        "batch": study.batch,
        "starts": study.first(),
        "give_up": study.give_up,
        "judged_by": search.attack.judged_by,
    }


def early_stop(attack: Attack, study: Study, earlier: Sequence[Evidence]) -> tuple[int, float] | None:
    """Return (steps, loss) above which a trial is given up, None while too few earlier trials reached these steps."""
    if study.give_up is None:
        return None
    steps = judged_step(attack, study.give_up)
    curves = [answer.curve for answer in earlier if answer.status in ("ok", "truncated")]
    lowest = [min(curve[: steps + 1]) for curve in curves if len(curve) > steps]
    return (steps, median(lowest)) if len(lowest) >= LEAST_EARLIER else None


def example_trial(attack: Attack, table: Any, argument: str) -> Attack:
    """Return the attack as a trial would run it, for checks; the attack itself where nothing is searched."""
    if table is None:
        return attack
    study = study_of(attack, table, argument)
    with _under(argument):
        check_library(study)
    lowest = {name: int(low) if scale == "int" else low for name, (low, _, scale) in study.ranges.items()}
    return with_point(attack, lowest)


@contextmanager
def _under(argument: str) -> Iterator[None]:
    """Let refusals of the block name a key below this argument."""
    try:
        yield
    except BadInput as error:
        raise error.at(f"{argument}.{error.argument}") from None


def own_measure(attack: Attack, evidence: Evidence) -> float:
    """Return the attacker's own measure of a guess, smaller is better; infinite where the attack failed."""
    measured = evidence.facts.get(attack.judged_by)
    if measured is None:
        raise Refused(attack.name, missing=f"its own measure of a trial ({attack.judged_by})", remedy=attack.unjudged)
    if evidence.status in ("diverged", "undetermined"):
        return math.inf
    return float(min(measured)) if isinstance(measured, list | tuple) else float(measured)
