"""Search of settings by an attacker's own loss: trials come in fixed batches, whatever the workers."""

from __future__ import annotations

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

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.audit.run.engines import one_thread
from fedxray.errors import BadInput, Refused, missing_extra, unknown_key, unknown_name
from fedxray.seeds import derive_seed, fork

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study as OptunaStudy

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


# --- Points of largest expected improvement under a Gaussian process of the losses so far, asked of Optuna.
#
# The losses of an attack have no noise: the same settings give the same loss. So the process goes through
# all of them. Points that are asked together know of each other. What is asked depends on the trials so far
# and on a seed alone, so that a search which goes on elsewhere asks the same.


def check_optuna() -> None:
    """Refuse to go on without the library."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise missing_extra("sampler", "Optuna", "tune", 'use sampler = "random"') from None


def best_guesses(
    ranges: Mapping[str, tuple[float, float, str]],
    past: Sequence[tuple[Mapping[str, float], float]],
    count: int,
    seed: int,
) -> list[dict[str, float]]:
    """So many points to try next, after points with their losses; an infinite loss counts as the worst finite one."""
    with _quiet():
        study = _study(ranges, past, seed)
        asked = [study.ask(_distributions(ranges)) for _ in range(count)]
    return [{name: one.params[name] for name in ranges} for one in asked]


def _study(
    ranges: Mapping[str, tuple[float, float, str]],
    past: Sequence[tuple[Mapping[str, float], float]],
    seed: int,
) -> OptunaStudy:
    import optuna

    sampler = optuna.samplers.GPSampler(
        seed=seed % 2**32, n_startup_trials=len(past), deterministic_objective=True
    )
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
    """Without Optuna's lines of log and its notes about experimental parts."""
    import optuna.study  # noqa: F401  (its logger is set up when it is first imported)

    logger = logging.getLogger("optuna")
    before, draws = logger.level, torch.get_rng_state()
    logger.setLevel(logging.ERROR)
    try:
        with one_thread(), warnings.catch_warnings():  # many threads make it slower, and other sums
            warnings.filterwarnings("ignore", module="optuna")
            yield
    finally:
        logger.setLevel(before)
        torch.set_rng_state(draws)


# --- The course of an attack for the report: its own loss by step and the settings it tried; never a
# record.


MOST_POINTS = 60  # of a curve
MOST_TRIALS = 1_000  # of a search, all of which are told: which was best goes by its place among them
TAKEN = "taken"  # among the facts of an attack: what it took the client for, and what settings followed
SEARCH = "search"  # among the facts of an attack that searched settings, as Found.told() writes them


def course(evidence: Evidence) -> dict[str, Any]:
    """`curve`, `search` and `taken` of a case, as far as the attack has them."""
    told, taken = evidence.facts.get(SEARCH), evidence.facts.get(TAKEN)
    studied = isinstance(told, Mapping) and bool(told.get("trials"))
    return (
        ({"curve": thinned(evidence.curve)} if evidence.curve else {})
        | ({SEARCH: told} if studied else {})
        | ({TAKEN: taken} if taken else {})
    )


def thinned(curve: Sequence[float], most: int = MOST_POINTS) -> dict[str, list[Any]]:
    """Evenly spaced steps of a curve with the loss at each, the first and the last among them."""
    last = len(curve) - 1
    count = min(len(curve), most)
    steps = [0] if count < 2 else [round(place * last / (count - 1)) for place in range(count)]
    return {"steps": steps, "losses": [_digits(curve[step]) for step in steps]}


def _digits(loss: float) -> float | None:
    """Five digits are enough for a drawing; a loss that is no number is missing."""
    return float(f"{loss:.5g}") if math.isfinite(loss) else None


# --- `search` of an [[attack]] as it is written: a table of trials, sampler, batch, starts, ranges and
# give_up.


KEYS = ("trials", "sampler", "batch", "starts", "ranges", "give_up")


def study_of(attack: Attack, table: Any, place: str) -> Study:
    """The search that a plan asks for, or BadInput; ranges that it leaves out are the attack's own."""
    if not attack.searched:
        raise BadInput(
            place,
            expected="an attack with settings that can be searched",
            got=attack.name,
            remedy="`fedxray show NAME` tells which have any; leave search out.",
        )
    if not isinstance(table, Mapping):
        raise BadInput(
            place, expected="a table", got=repr(table), remedy="For instance search = { trials = 16 }."
        )
    for key in table:
        if key not in KEYS:
            raise unknown_key(f"{place}.{key}", str(key), KEYS)
    sampler = table.get("sampler", "random")
    if sampler not in SAMPLERS:
        raise unknown_name(f"{place}.sampler", str(sampler), SAMPLERS)
    made = Study(
        ranges=_ranges(attack, table.get("ranges"), f"{place}.ranges"),
        trials=_count(table, "trials", 16, place),
        sampler=sampler,
        batch=_count(table, "batch", 8, place),
        starts=_count(table, "starts", 10, place) if "starts" in table else None,
        give_up=_share(table["give_up"], f"{place}.give_up") if "give_up" in table else None,
    )
    try:
        check(made)
    except BadInput as error:
        raise error.at(f"{place}.{error.argument}") from None
    _check_not_set(attack, made, place)
    _check_ends(attack, made, f"{place}.ranges")
    _check_give_up(attack, made, f"{place}.give_up")
    return made


def with_point(attack: Attack, point: Point) -> Attack:
    """The attack with these settings."""
    return replace(attack, **point)  # type: ignore[type-var]


def judged_after(attack: Attack, share: float) -> int:
    """The steps after which a trial may be given up."""
    steps: int = _settings(attack)["steps"]
    return max(1, round(share * steps))


def _check_not_set(attack: Attack, study: Study, place: str) -> None:
    """Refuse a setting that has a value of its own: the search would go over it without a word."""
    own = {field.name: field.default for field in fields(attack)}  # type: ignore[arg-type]
    for name in study.ranges:
        value = getattr(attack, name)
        if value != own[name]:
            raise BadInput(
                place,
                expected=f"{name} either set or searched",
                got=f"{name} = {value!r} and a range of it",
                remedy=f"Leave {name} out, or name under ranges only what is to be searched.",
            )


def _check_ends(attack: Attack, study: Study, place: str) -> None:
    """Refuse ranges with an end that the attack does not take."""
    for name, (low, high, scale) in study.ranges.items():
        for value in (low, high):
            try:
                with_point(attack, {name: int(value) if scale == "int" else value})
            except BadInput as error:
                raise BadInput(
                    f"{place}.{name}",
                    expected=error.expected,
                    got=error.got,
                    remedy=f"`fedxray show {attack.name}` tells its own range.",
                ) from None


def _check_give_up(attack: Attack, study: Study, place: str) -> None:
    """Refuse to give up trials of an attack that cannot end early, or at a step where nothing is left to save."""
    if study.give_up is None:
        return
    known = _settings(attack)
    if "give_up" not in known or "steps" not in known:
        raise BadInput(
            place,
            expected="an attack that can end early",
            got=attack.name,
            remedy="Leave give_up out of search.",
        )
    if known["give_up"] is not None:
        raise BadInput(
            place,
            expected="an attack without a give_up of its own",
            got=f"give_up = {known['give_up']!r}",
            remedy="Leave one of them out.",
        )
    at = judged_after(attack, study.give_up)
    if at >= known["steps"]:
        raise BadInput(
            place,
            expected=f"a share that leaves some of {known['steps']} steps",
            got=study.give_up,
            remedy="Take more steps, or leave give_up out.",
        )
    try:
        replace(attack, give_up=(at, 0.0))  # type: ignore[type-var]
    except BadInput as error:
        raise BadInput(
            place,
            expected=f"{error.argument} = {error.expected}",
            got=error.got,
            remedy="Leave give_up out of search.",
        ) from None


def _settings(attack: Attack) -> dict[str, Any]:
    return {field.name: getattr(attack, field.name) for field in fields(attack)}  # type: ignore[arg-type]


def _ranges(attack: Attack, given: Any, place: str) -> Ranges:
    """The ranges of a plan, lists of lowest and highest; how they are spaced is the attack's to say."""
    if given is None:
        return cast(Ranges, dict(attack.searched))
    if not isinstance(given, Mapping) or not given:
        raise BadInput(
            place, expected="a table of [lowest, highest]", got=repr(given), remedy="Leave it out."
        )
    found: dict[str, tuple[float, float, Scale]] = {}
    for name, value in given.items():
        if name not in attack.searched:
            raise unknown_key(f"{place}.{name}", str(name), attack.searched, of=attack.name)
        numbers = isinstance(value, list | tuple) and len(value) == 2 and all(
            isinstance(one, int | float) and not isinstance(one, bool) for one in value
        )  # fmt: skip
        if not numbers:
            raise BadInput(
                f"{place}.{name}",
                expected="[lowest, highest]",
                got=repr(value),
                remedy=f"By itself it is [{attack.searched[name][0]:g}, {attack.searched[name][1]:g}].",
            )
        found[name] = (value[0], value[1], cast(Scale, attack.searched[name][2]))
    return found


def _count(table: Mapping[str, Any], key: str, otherwise: int, place: str) -> int:
    value = table.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TRIALS:
        raise BadInput(
            f"{place}.{key}",
            expected=f"a whole number from 1 to {MOST_TRIALS:,}",
            got=repr(value),
            remedy=f"Try {otherwise}.",
        )
    return value


def _share(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise BadInput(
            place, expected="a share of the steps, between 0 and 1", got=repr(value), remedy="Try 0.5."
        )
    return float(value)


# --- `search` of an [[attack]]: settings that the attacker does not know, tried and judged by its own
# measure alone.
#
# Every trial is the attack with other settings, kept in the store like any other answer, so that an
# interrupted search goes on where it was. The best trial is the attack's answer, and all of them are told
# in its facts.
#
# With `give_up` a trial is ended after that share of its steps if its loss is then above the median that
# trials of earlier batches had after as many steps. It is told to the sampler by its loss so far, which is
# too high rather than too low, and it is never the answer. Batches are fixed, so that this does not depend
# on who works when.


LEAST_BEFORE = 5  # earlier trials that a median is taken of
Run = Callable[[Attack], Evidence]


@dataclass(frozen=True)
class Tried:
    """A trial and the answer that it gave."""

    trial: Trial
    answer: Evidence


@dataclass(frozen=True, kw_only=True)
class Search:
    """The search of one attack on one view: what is searched, who runs a trial, and who remembers points."""

    attack: Attack
    study: Study
    run: Run
    generator: torch.Generator
    recall: Recall = afresh

    def asked_after(self, done: Sequence[Tried]) -> list[tuple[Point, Attack]]:
        """The next batch after these trials: every point with the attack that tries it."""
        draws = fork(self.generator, "search", self.attack.name)
        points = ask(self.study, [one.trial for one in done], draws, self.recall)
        limit = limit_after(self.attack, self.study, [one.answer for one in done])
        return [(point, trial_of(self.attack, point, limit)) for point in points]

    def tried(self, batches: int | None = None) -> list[Tried]:
        """All trials, or those of the first batches, in the order of the plan."""
        done: list[Tried] = []
        while batches is None or batches > 0:
            asked = self.asked_after(done)
            if not asked:
                break
            done += [self._judged(point, self.run(attack)) for point, attack in asked]
            batches = None if batches is None else batches - 1
        return done

    def _judged(self, point: Point, answer: Evidence) -> Tried:
        loss = finite(own_measure(self.attack, answer))
        return Tried(Trial(point, loss, given_up=answer.status == "truncated"), answer)


def studied(search: Search) -> Evidence:
    """The answer of the best trial, with all trials in its facts."""
    check_library(search.study)
    done = search.tried()
    found = found_in([one.trial for one in done])
    told = {SEARCH: {**found.told(), **_how(search)}}
    if found.status != "ok":
        first = done[0].answer
        return replace(first, status="undetermined", reason=found.reason, facts={**first.facts, **told})
    best = done[found.trials.index(found.best)].answer
    return replace(best, facts={**best.facts, **told, "chosen": dict(found.best.point)})


def _how(search: Search) -> dict[str, Any]:
    """How trials were chosen and judged, in plain values."""
    study = search.study
    return {
        "ranges": {name: list(one) for name, one in study.ranges.items()},
        "sampler": study.sampler,
        "batch": study.batch,
        "starts": study.first(),
        "give_up": study.give_up,
        "judged_by": search.attack.judged_by,
    }


def search_settings(attack: Attack, view: View, *, generator: torch.Generator, **settings: Any) -> Evidence:
    """The same in Python, on one view: `settings` are those of `search` in a plan."""
    study = study_of(attack, settings, "search")
    return studied(
        Search(
            attack=attack,
            study=study,
            run=lambda one: one.run(view, generator=generator),
            generator=generator,
        )
    )


def trial_of(attack: Attack, point: Point, limit: tuple[int, float] | None) -> Attack:
    """The attack of one trial; with a limit it gives up where its loss is above after so many steps."""
    found = with_point(attack, point)
    return found if limit is None else replace(found, give_up=limit)  # type: ignore[type-var]


def limit_after(attack: Attack, study: Study, earlier: Sequence[Evidence]) -> tuple[int, float] | None:
    """After how many steps a trial is given up whose lowest loss so far is above what, None where it is not yet."""
    if study.give_up is None:
        return None
    steps = judged_after(attack, study.give_up)
    went_on = [one for one in earlier if one.status in ("ok", "truncated") and len(one.curve) > steps]
    lowest = [min(one.curve[: steps + 1]) for one in went_on]
    return (steps, median(lowest)) if len(lowest) >= LEAST_BEFORE else None


def a_trial(attack: Attack, table: Any, place: str) -> Attack:
    """The attack as some trial would run it, to see whether it could; itself where nothing is searched."""
    if table is None:
        return attack
    study = study_of(attack, table, place)
    try:
        check_library(study)
    except BadInput as error:
        raise error.at(f"{place}.{error.argument}") from None
    return with_point(
        attack, {name: int(low) if scale == "int" else low for name, (low, _, scale) in study.ranges.items()}
    )


def own_measure(attack: Attack, evidence: Evidence) -> float:
    """The attacker's own measure of a guess, smaller is better; infinite where the attack did not end well."""
    told = evidence.facts.get(attack.judged_by)
    if told is None:
        raise Refused(
            attack.name,
            missing=f"its own measure of a trial ({attack.judged_by})",
            remedy=attack.unjudged,
        )
    if evidence.status in ("diverged", "undetermined"):
        return math.inf
    return float(min(told)) if isinstance(told, list | tuple) else float(told)
