"""The recipe of a recorded node: given in the plan, sent to the clients in the rounds that are read, or searched.

`known_recipe` joins plan and recording; `find_recipe` searches fields that neither holds.
"""

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
from fedxray.audit.plan.recorded import rounds_named, span
from fedxray.audit.plan.schema import FederationPart
from fedxray.audit.search import Point, SearchResult, Trial, finite, search_result
from fedxray.errors import BadInput, Refused, some
from fedxray.federation.recipe import Recipe
from fedxray.federation.recording.transcribe import NODE, Chosen
from fedxray.federation.transcript import Transcript
from fedxray.seeds import fork

# Fields of the recipe that servers send with a round, by the names that apps give them.
SPELLINGS: dict[str, tuple[str, ...]] = {
    "epochs": ("local-epochs", "local_epochs", "epochs", "num-epochs", "num_epochs"),
    "batch_size": ("batch-size", "batch_size"),
    "learning_rate": ("learning-rate", "learning_rate", "lr"),
    "momentum": ("momentum",),
    "mu": ("proximal-mu", "proximal_mu"),
}
NEEDED = ("epochs", "batch_size", "learning_rate")  # to replay a training that sends weights
WHOLE = ("epochs", "batch_size")
MOST_EPOCHS = 10_000  # accepted from a recording; a replay of more would never end
REPLAYED = "sgd"  # the optimiser that local updates support
HARMLESS: dict[str, Any] = {
    "batch_size": "all"
}  # a value for a missing field that no attack reads: no batch is too small for a layer
SHOWN = 5  # different values in a message
NONE: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class KnownRecipe:
    """The recipe as far as plan and recording hold it, and the fields that neither holds."""

    part: FederationPart
    missing: tuple[str, ...]
    sent: tuple[str, ...]  # fields that come from the recording
    varied: Mapping[str, str] = field(default_factory=lambda: NONE)  # fields that change, with their rounds
    doubted: Mapping[str, str] = field(default_factory=lambda: NONE)  # fields with impossible values


@dataclass(frozen=True, kw_only=True)
class _SentValues:
    """The values of one field in all rounds: usable ones with their rounds, and one that is not usable."""

    rounds: dict[Any, list[int]]
    doubted: str | None = None

    @property
    def spelled(self) -> str:
        """Every value with its rounds."""
        parts = [f"{value} in {rounds_named(rounds)}" for value, rounds in self.rounds.items()]
        return some(parts, SHOWN, between="; ")

    @property
    def longest(self) -> list[int]:
        """The rounds of the value that most rounds have."""
        return max(self.rounds.values(), key=len)


def known_recipe(plan: Plan, chosen: Chosen) -> KnownRecipe:
    """Return every field of the recipe: given in the plan, else sent in all rounds that are read, else missing."""
    given = plan.federation.model_fields_set
    sent = {name: _sent_values(chosen, name, names) for name, names in SPELLINGS.items()}
    for name, field_values in sent.items():
        if name in given:
            _check_given(name, getattr(plan.federation, name), field_values)
    _check_candidates(plan, sent)
    rest = {name: field_values for name, field_values in sent.items() if name not in given}
    values = {name: next(iter(known.rounds)) for name, known in rest.items() if len(known.rounds) == 1}
    varied = {name: known.spelled for name, known in rest.items() if len(known.rounds) > 1}
    doubted = {name: known.doubted for name, known in rest.items() if known.doubted is not None}
    values = {name: value for name, value in values.items() if name not in doubted}
    if values.get("mu") and "algorithm" not in given:
        values["algorithm"] = "fedprox"
    unknown = {*NEEDED, *varied, *doubted} - given - set(values)
    missing = [name for name in SPELLINGS if name in unknown]
    if plan.federation.algorithm == "fedsgd":
        missing = []
    elif plan.transcript is not None and plan.transcript.optimizer != REPLAYED:
        missing.append("optimizer")
    spare = {name: HARMLESS[name] for name in missing if name in HARMLESS}
    return KnownRecipe(
        part=plan.federation.model_copy(update={**values, **spare}),
        missing=tuple(missing),
        sent=tuple(name for name in SPELLINGS if name in values),
        varied=varied,
        doubted=doubted,
    )


def _check_given(name: str, given: Any, sent: _SentValues) -> None:
    if len(sent.rounds) > 1:
        expected = f"one value in all rounds that are read; the clients were sent {sent.spelled}"
        remedy = read_one(sent.rounds.get(given, sent.longest))
        raise BadInput(f"federation.{name}", expected=expected, got=given, remedy=remedy)
    if sent.rounds and given not in sent.rounds:
        expected = f"what the clients were sent: {listed(sent.rounds)}"
        raise BadInput(f"federation.{name}", expected=expected, got=given, remedy="Leave it out, or correct it.")


def _check_candidates(plan: Plan, sent: Mapping[str, _SentValues]) -> None:
    """Refuse candidates for a field that the clients were sent."""
    part = None if plan.transcript is None else plan.transcript.recipe
    for name in {} if part is None else part.grid:
        if sent[name].rounds:
            expected = f"nothing: the clients were sent {sent[name].spelled}"
            raise BadInput(f"transcript.recipe.{name}", expected=expected, got="candidates", remedy="Leave it out.")


def _sent_values(chosen: Chosen, name: str, spellings: tuple[str, ...]) -> _SentValues:
    rounds: dict[Any, list[int]] = {}
    doubted = None
    for round, message in sorted(chosen.trained.items()):
        given = [message.config[spelling] for spelling in spellings if spelling in message.config]
        numbers = [value for value in given if isinstance(value, int | float) and not isinstance(value, bool)]
        values = dict.fromkeys(_plain(name, value) for value in numbers)
        wrong = [number for number in numbers if not _possible(name, _plain(name, number))]
        if wrong or len(values) > 1:
            shown = wrong[0] if wrong else " and ".join(str(value) for value in values)
            doubted = doubted or f"{str(shown)[:80]} in {rounds_named([round])}"
        elif values:
            rounds.setdefault(next(iter(values)), []).append(round)
    return _SentValues(rounds=rounds, doubted=doubted)


def _plain(name: str, value: float) -> float:
    """Return a number as a plan would hold it."""
    return int(value) if name in WHOLE and isinstance(value, float) and value.is_integer() else value


def _possible(name: str, value: float) -> bool:
    """Return whether a plan could hold this value, and a replay with it would end."""
    if name == "epochs" and value > MOST_EPOCHS:
        return False
    try:
        FederationPart.model_validate({name: value})
    except ValidationError:
        return False
    return True


def read_one(rounds: Sequence[int]) -> str:
    """Return the remedy where rounds differ."""
    gapless = len(rounds) == rounds[-1] - rounds[0] + 1
    asked = f'"{span(rounds)}"' if gapless and len(rounds) > 1 else f"[{', '.join(map(str, rounds[:10]))}]"
    return f"Read the rounds of one value only: rounds = {asked} in [transcript]."


def listed(values: Iterable[Any]) -> str:
    """Return values joined by "or"."""
    return " or ".join(str(value) for value in sorted(values, key=str))


# The search of fields that neither plan nor recording holds, over a grid, by what a server sees
#
#     1. For each candidate run a short attack on the first reply: inputs are sought whose replayed training gives the
#        update that was seen, by squared differences, since the length of an update depends on the learning rate.
#     2. The misfit of a candidate is the length of what the replay could not explain, as a share of the update.
#     3. Take the candidate with the smallest misfit. A field is identified if every candidate with another value of it
#        has a misfit at least a quarter larger; a larger rate with fewer epochs often fits as well, and is then named.
# The node's records are not used.

STEPS = 80  # of the short attack
CLOSE = 1.25  # times the smallest misfit: nearer ones are not distinguished


@dataclass(frozen=True, kw_only=True)
class RecipeSearch:
    """The result of a search of the recipe: the chosen values, none where it failed, and all candidates."""

    chosen: Mapping[str, Any]
    tried: tuple[Mapping[str, Any], ...]  # every candidate with its misfit
    alike: tuple[str, ...]  # fields that were not identified
    reason: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the search as plain values for the ledger."""
        tried = [dict(candidate) for candidate in self.tried]
        return {"chosen": dict(self.chosen), "tried": tried, "alike": list(self.alike), "reason": self.reason}


def find_recipe(transcript: Transcript, recipe: Recipe, grid: Mapping[str, Sequence[Any]], seed: int) -> RecipeSearch:
    """Return the candidate of the grid under which a short attack explains the first reply best."""
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    view = roles.server(transcript, client=NODE, grants=Grants(names=("recipe",), recipe=recipe))
    judge = _judge(view)
    try:
        judge.check(view)
    except Refused as refusal:
        return RecipeSearch(chosen={}, tried=(), alike=(), reason=str(refusal))
    length = math.sqrt(sum(float(value.square().sum()) for value in view.of_target()[0].update.values()))

    def misfit(point: Point) -> float:
        assumed = replace(view.grants, recipe=replace(recipe, **point))  # type: ignore[arg-type]
        evidence = judge.run(replace(view, grants=assumed), generator=fork(seed, "search of the recipe"))
        return math.sqrt(min(evidence.facts["own_loss"])) / length if length else math.inf

    return _judged(search_result([Trial(point, finite(misfit(point))) for point in points]))


def _judge(view: View) -> Attack:
    """Return a short attack that compares lengths too, not only directions as the cosine does."""
    if view.space.kind == "table":
        return TabularInversion(steps=STEPS, restarts=1, match="l2", jointly=True, learning_rate=0.15)
    return InvertingGradients(steps=STEPS, match="l2", total_variation=0.0, start="grey")


def _judged(result: SearchResult) -> RecipeSearch:
    tried = tuple(
        {**trial.point, "misfit": trial.loss if math.isfinite(trial.loss) else None} for trial in result.trials
    )
    if result.status != "ok":
        return RecipeSearch(chosen={}, tried=tried, alike=(), reason=result.reason)
    best = result.best
    near = [trial.point for trial in result.trials if trial.loss < CLOSE * best.loss]
    alike = tuple(name for name, value in best.point.items() if any(point[name] != value for point in near))
    return RecipeSearch(chosen=best.point, tried=tried, alike=alike)
