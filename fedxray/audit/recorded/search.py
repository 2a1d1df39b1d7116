"""Fields of a recorded node's recipe that nobody tells, searched over a grid by what the server's seat sees.

    1. For each candidate run a short attack on the first reply: inputs are sought whose replayed training gives the
       update that was seen, by squared differences, since the length of an update tells the learning rate.
    2. The misfit of a candidate is the length of what the replay could not explain, as a share of the update's length.
    3. Take the candidate with the smallest misfit. A field is told apart if every candidate with another value of it
       has a misfit at least a quarter larger; a larger rate with fewer epochs often fits as well, and is then named.
The node's records play no part in it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedxray.adversary import roles
from fedxray.adversary.view import Grants, View
from fedxray.attacks.base import Attack
from fedxray.attacks.inversion.inverting_gradients import InvertingGradients
from fedxray.attacks.inversion.tabular import TabularInversion
from fedxray.audit.search import Found, Point, try_points
from fedxray.errors import Refused
from fedxray.federation.recipe import Recipe
from fedxray.federation.recording.transcribe import NODE
from fedxray.federation.transcript import Transcript
from fedxray.seeds import fork

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


def _judged(found: Found) -> Search:
    tried = tuple(
        {**trial.point, "misfit": trial.loss if math.isfinite(trial.loss) else None} for trial in found.trials
    )
    if found.status != "ok":
        return Search(chosen={}, tried=tried, alike=(), reason=found.reason)
    best = found.best
    near = [trial.point for trial in found.trials if trial.loss < CLOSE * best.loss]
    alike = tuple(name for name, value in best.point.items() if any(one[name] != value for one in near))
    return Search(chosen=best.point, tried=tried, alike=alike)
