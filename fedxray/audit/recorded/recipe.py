"""How a recorded node trained: what the plan gives, else what the clients were told in the rounds that are read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from fedxray.adversary import roles
from fedxray.adversary.view import Grants, View
from fedxray.attacks.base import Attack
from fedxray.attacks.inversion.inverting_gradients import InvertingGradients
from fedxray.attacks.inversion.tabular import TabularInversion
from fedxray.audit.plan import Plan
from fedxray.audit.plan.schema import FederationPart
from fedxray.audit.run.search import Point, SearchResult, try_points
from fedxray.errors import BadInput, Refused
from fedxray.federation.recipe import Recipe
from fedxray.federation.recording.transcribe import NODE, Chosen
from fedxray.federation.transcript import Transcript
from fedxray.seeds import fork

# What clients are told in a round, by the names that apps give it.
TOLD: dict[str, tuple[str, ...]] = {
    "epochs": ("local-epochs", "local_epochs", "epochs", "num-epochs", "num_epochs"),
    "batch_size": ("batch-size", "batch_size"),
    "learning_rate": ("learning-rate", "learning_rate", "lr"),
    "momentum": ("momentum",),
    "mu": ("proximal-mu", "proximal_mu"),
}
NEEDED = ("epochs", "batch_size", "learning_rate")  # to replay a training that sends weights
WHOLE = ("epochs", "batch_size")
MOST_EPOCHS = 10_000  # that a recording is believed; a replay of more would never end
REPLAYED = "sgd"  # the optimiser that local updates know
UNTOLD: dict[str, Any] = {"batch_size": "all"}  # where nobody needs it: no batch is too small for a layer
SHOWN = 5  # different values in a message
NONE: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Told:
    """The recipe as far as plan and recording tell it, and which fields neither does."""

    part: FederationPart
    missing: tuple[str, ...]
    heard: tuple[str, ...]  # fields that come from the recording
    varied: Mapping[str, str] = field(default_factory=lambda: NONE)  # fields that change, and in which rounds
    doubted: Mapping[str, str] = field(default_factory=lambda: NONE)  # fields with values that cannot be


@dataclass(frozen=True, kw_only=True)
class _Heard:
    """What all rounds say of one field: usable values with their rounds, and one that is not usable."""

    rounds: dict[Any, list[int]]
    doubted: str | None = None

    @property
    def spelled(self) -> str:
        """Every value with its rounds."""
        parts = [f"{value} in {rounds_named(rounds)}" for value, rounds in self.rounds.items()]
        return "; ".join(parts[:SHOWN]) + (f"; and {len(parts) - SHOWN} more" if len(parts) > SHOWN else "")

    @property
    def longest(self) -> list[int]:
        """The rounds of the value that most rounds have."""
        return max(self.rounds.values(), key=len)


def told_recipe(plan: Plan, chosen: Chosen) -> Told:
    """Every field of the recipe: given in the plan, else heard in all rounds that are read, else missing."""
    given = plan.federation.model_fields_set
    heard = {name: _hear(chosen, name, names) for name, names in TOLD.items()}
    for name, one in heard.items():
        if name in given:
            _check_given(name, getattr(plan.federation, name), one)
    _check_candidates(plan, heard)
    open_fields = {name: one for name, one in heard.items() if name not in given}
    values = {name: next(iter(one.rounds)) for name, one in open_fields.items() if len(one.rounds) == 1}
    varied = {name: one.spelled for name, one in open_fields.items() if len(one.rounds) > 1}
    doubted = {name: one.doubted for name, one in open_fields.items() if one.doubted is not None}
    values = {name: value for name, value in values.items() if name not in doubted}
    if values.get("mu") and "algorithm" not in given:
        values["algorithm"] = "fedprox"
    unknown = {*NEEDED, *varied, *doubted} - given - set(values)
    missing = [name for name in TOLD if name in unknown]
    if plan.federation.algorithm == "fedsgd":
        missing = []
    elif plan.transcript is not None and plan.transcript.optimizer != REPLAYED:
        missing.append("optimizer")
    spare = {name: UNTOLD[name] for name in missing if name in UNTOLD}
    return Told(
        part=plan.federation.model_copy(update={**values, **spare}),
        missing=tuple(missing),
        heard=tuple(name for name in TOLD if name in values),
        varied=varied,
        doubted=doubted,
    )


def _check_given(name: str, given: Any, heard: _Heard) -> None:
    if len(heard.rounds) > 1:
        raise BadInput(
            f"federation.{name}",
            expected=f"one value in all rounds that are read; the clients were told {heard.spelled}",
            got=given,
            remedy=read_one(heard.rounds.get(given, heard.longest)),
        )
    if heard.rounds and given not in heard.rounds:
        raise BadInput(
            f"federation.{name}",
            expected=f"what the clients were told: {listed(heard.rounds)}",
            got=given,
            remedy="Leave it out, or mend it.",
        )


def _check_candidates(plan: Plan, heard: Mapping[str, _Heard]) -> None:
    """Refuse candidates for what the clients were told."""
    part = None if plan.transcript is None else plan.transcript.recipe
    for name in {} if part is None else part.grid:
        if heard[name].rounds:
            raise BadInput(
                f"transcript.recipe.{name}",
                expected=f"nothing: the clients were told {heard[name].spelled}",
                got="candidates",
                remedy="Leave it out.",
            )


def _hear(chosen: Chosen, name: str, spellings: tuple[str, ...]) -> _Heard:
    rounds: dict[Any, list[int]] = {}
    doubted = None
    for round, one in sorted(chosen.trained.items()):
        found = [one.config[spelling] for spelling in spellings if spelling in one.config]
        numbers = [value for value in found if isinstance(value, int | float) and not isinstance(value, bool)]
        values = dict.fromkeys(_plain(name, value) for value in numbers)
        wrong = [number for number in numbers if not _possible(name, _plain(name, number))]
        if wrong or len(values) > 1:
            told = wrong[0] if wrong else " and ".join(str(value) for value in values)
            doubted = doubted or f"{str(told)[:80]} in {rounds_named([round])}"
        elif values:
            rounds.setdefault(next(iter(values)), []).append(round)
    return _Heard(rounds=rounds, doubted=doubted)


def _plain(name: str, value: float) -> float:
    """A number as a plan would hold it."""
    return int(value) if name in WHOLE and isinstance(value, float) and value.is_integer() else value


def _possible(name: str, value: float) -> bool:
    """Whether a plan could hold this value, and a replay of it would end."""
    if name == "epochs" and value > MOST_EPOCHS:
        return False
    try:
        FederationPart.model_validate({name: value})
    except ValidationError:
        return False
    return True


def read_one(rounds: Sequence[int]) -> str:
    """What to do where rounds differ."""
    whole = len(rounds) == rounds[-1] - rounds[0] + 1
    asked = f'"{span(rounds)}"' if whole and len(rounds) > 1 else f"[{', '.join(map(str, rounds[:10]))}]"
    return f"Read the rounds of one value only: rounds = {asked} in [transcript]."


def rounds_named(rounds: Sequence[int]) -> str:
    """Rounds in a sentence."""
    return f"round{'s' if len(rounds) > 1 else ''} {span(rounds)}"


def span(rounds: Sequence[int]) -> str:
    """Rounds, the first and the last where none is missing between them."""
    if len(rounds) == rounds[-1] - rounds[0] + 1:
        return f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else str(rounds[0])
    shown = ", ".join(map(str, rounds[:10]))
    return f"{shown}, ... {rounds[-1]}" if len(rounds) > 10 else shown


def listed(values: Iterable[Any]) -> str:
    """One or another, in a sentence."""
    return " or ".join(str(value) for value in sorted(values, key=str))


# --- Fields of a recorded node's recipe that nobody tells, searched over a grid by what the server's seat
# sees.
#
#     1. For each candidate run a short attack on the first reply: inputs are sought whose replayed training gives the
#        update that was seen, by squared differences, since the length of an update tells the learning rate.
#     2. The misfit of a candidate is the length of what the replay could not explain, as a share of the update.
#     3. Take the candidate with the smallest misfit. A field is told apart if every candidate with another value of it
#        has a misfit at least a quarter larger; a larger rate with fewer epochs often fits as well, and is then named.
# The node's records play no part in it.


STEPS = 80  # of the short attack
CLOSE = 1.25  # times the smallest misfit: nearer ones are not told apart


@dataclass(frozen=True, kw_only=True)
class Search:
    """What a search came to: the chosen values, none where it came to nothing, and all that was tried."""

    chosen: Mapping[str, Any]
    tried: tuple[Mapping[str, Any], ...]  # every candidate with its misfit
    alike: tuple[str, ...]  # fields that were not told apart
    reason: str = ""

    def facts(self) -> dict[str, Any]:
        """As plain values for the ledger."""
        tried = [dict(one) for one in self.tried]
        return {"chosen": dict(self.chosen), "tried": tried, "alike": list(self.alike), "reason": self.reason}


def find_recipe(
    transcript: Transcript, recipe: Recipe, grid: Mapping[str, Sequence[Any]], seed: int
) -> Search:
    """The candidate of the grid under which a short attack explains the first reply best."""
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    view = roles.server(transcript, client=NODE, grants=Grants(names=("recipe",), recipe=recipe))
    judge = _judge(view)
    try:
        judge.check(view)
    except Refused as refusal:
        return Search(chosen={}, tried=(), alike=(), reason=str(refusal))
    length = math.sqrt(sum(float(value.square().sum()) for value in view.of_target()[0].update.values()))

    def misfit(point: Point) -> float:
        told = replace(view, grants=replace(view.grants, recipe=replace(recipe, **point)))  # type: ignore[arg-type]
        evidence = judge.run(told, generator=fork(seed, "search of the recipe"))
        return math.sqrt(min(evidence.facts["own_loss"])) / length if length else math.inf

    return _judged(try_points(misfit, points))


def _judge(view: View) -> Attack:
    """A short attack that compares lengths too, not only directions as the cosine does."""
    if view.space.kind == "table":
        return TabularInversion(steps=STEPS, restarts=1, match="l2", jointly=True, learning_rate=0.15)
    return InvertingGradients(steps=STEPS, match="l2", total_variation=0.0, start="grey")


def _judged(found: SearchResult) -> Search:
    tried = tuple(
        {**trial.point, "misfit": trial.loss if math.isfinite(trial.loss) else None} for trial in found.trials
    )
    if found.status != "ok":
        return Search(chosen={}, tried=tried, alike=(), reason=found.reason)
    best = found.best
    near = [trial.point for trial in found.trials if trial.loss < CLOSE * best.loss]
    alike = tuple(name for name, value in best.point.items() if any(one[name] != value for one in near))
    return Search(chosen=best.point, tried=tried, alike=alike)
