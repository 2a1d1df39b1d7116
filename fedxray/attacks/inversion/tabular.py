"""Rows of a table from an update, after TabLeak (Vero, Balunović, Dimitrov and Vechev 2023).

Rows are sought whose replayed update points in the direction of the observed one:
    1. Take the labels as granted or from a sub-attack, or seek them too (jointly = true). The target of a regression
       is taken as granted (`labels`), or sought too.
    2. Draw numbers from N(0, 1) and, for every categorical column, a logit for each category.
    3. A row consists of the numbers and of the codes of the categories, mixed by the softmax of the logits.
    4. Minimise 1 - cos(replayed update, observed update) by Adam; after each step project numbers onto the range of
       their column.
    5. Repeat from several starts. Match the rows of every guess to those of the one with the lowest loss, one
       to one within a label; take the median of the numbers and the mean of the probabilities.
    6. Take the most likely category of every column. Keep these pooled rows, or those of the best single start,
       whichever then has the lower loss.

Where we differ: 1,500 steps and 5 starts by default (30 in the paper); the paper always keeps the pooled rows; its
confidence per value, the entropy over the starts, is left out. An update of more rows than can be sought in about ten
minutes (`rows_in_time`) is explained by as many as can be, each of which stands for several. For FedAvg the client's
local steps are replayed with the rows in the order of the guess, the same in every epoch. A sum of replies is read as
the update of one client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, any_update
from fedxray.attacks.evidence import Evidence, Kind, of_rows
from fedxray.attacks.inversion import problem
from fedxray.attacks.inversion.distance import DISTANCES, DistanceTo, distance_to, stacked_distance_to
from fedxray.attacks.inversion.gradinversion import matched_places
from fedxray.attacks.inversion.replay import BatchNorm, Replay
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.observations import WHICH_UPDATE, At, examples_behind, known_examples, observation_at
from fedxray.data.dataset import Column, Space
from fedxray.federation.recipe import Recipe
from fedxray.optim import MOST_RATE, Adam, Cosine, Loss, Restarts, restarts
from fedxray.params import Params
from fedxray.priors import clip
from fedxray.seeds import fork, normal_like
from fedxray.settings import setting

# Rows of a table as free parameters: numbers within their range, and logits whose softmax mixes categories

Point = dict[str, Tensor]
NUMBERS = "numbers"
SURE = 1e4  # a logit beside which all others have probability zero


@dataclass(frozen=True)
class RowParameters:
    """Positions of numbers and categories in a row; positions that no column names are numbers without a range."""

    width: int
    numbers: tuple[int, ...]
    categories: tuple[Column, ...]
    low: Tensor  # [numbers]
    high: Tensor  # [numbers]
    codes: tuple[Tensor, ...]  # [values, width of the column] of every categorical column
    order: Tensor  # [width], of the positions of numbers, then of categories

    def start(self, examples: int, like: Tensor, generator: torch.Generator) -> Point:
        """Draw standard normal numbers, projected onto their range, and standard normal logits."""
        shapes = {NUMBERS: len(self.numbers)} | {_key(one): len(one.codes) for one in self.categories}
        drawn = {
            name: normal_like(like.new_empty(examples, size), fork(generator, name)) for name, size in shapes.items()
        }
        return self.project(drawn)

    def project(self, point: Point) -> Point:
        """Return the point with numbers projected onto their range."""
        return point | {NUMBERS: clip(point[NUMBERS], self.low, self.high)}

    def rows(self, point: Point) -> Tensor:
        """Return encoded rows [..., examples, width]: numbers unchanged, codes of categories mixed by probability."""
        numbers = point[NUMBERS]
        mixed = [
            torch.softmax(point[_key(column)], -1) @ codes
            for column, codes in zip(self.categories, self.codes, strict=True)
        ]
        return torch.cat([numbers, *mixed], -1)[..., self.order]

    def sure(self, point: Point) -> Point:
        """Return the point with all probability on the most likely category of every column."""
        sharp = {
            _key(one): SURE * functional.one_hot(point[_key(one)].argmax(-1), len(one.codes)) for one in self.categories
        }
        return point | {name: value.to(point[NUMBERS].dtype) for name, value in sharp.items()}

    def pooled(self, points: list[Point]) -> Point:
        """Return corresponding rows of several guesses as one: the median of numbers, the mean of probabilities."""
        mixed = {NUMBERS: torch.stack([point[NUMBERS] for point in points]).median(0).values}
        for column in self.categories:
            chances = torch.stack([torch.softmax(point[_key(column)], -1) for point in points]).mean(0)
            mixed[_key(column)] = chances.log()
        return mixed


def row_parameters(space: Space, like: Tensor) -> RowParameters:
    """Return the parameters of rows of this table, with ranges of the dtype and on the device of `like`."""
    categories = tuple(one for one in space.columns if one.kind == "categorical" and len(one.codes) > 1)
    taken = {place for one in categories for place in one.positions}
    numbers = tuple(place for place in range(space.shape[0]) if place not in taken)
    low, high = space.bounds(like)
    codes = tuple(column.candidates(like) for column in categories)
    places = [*numbers, *(place for column in categories for place in column.positions)]
    order = torch.tensor(places, dtype=torch.int64, device=like.device).argsort()
    return RowParameters(space.shape[0], numbers, categories, low[list(numbers)], high[list(numbers)], codes, order)


def _key(column: Column) -> str:
    return f"category {column.name}"


SCORES, TARGETS = "label scores", "targets"

# The cost of an answer in products of a row with a parameter: counted, not timed, so that every machine seeks as many

MOST_PRODUCTS = 1.5e12  # about ten minutes of one core
PASSES = 6  # products per row and parameter: a local step, its gradient, and that of the update with respect to rows
LEAST_PARAMETERS = 2_000  # a smaller network takes no less time
LEAST_ROWS = 8


@dataclass(frozen=True, kw_only=True)
class TabularInversion(Attack):
    """What do the training rows contain? Optimises rows of a table until they reproduce the direction of the update."""

    name: ClassVar[str] = "tabular-inversion"
    kind: ClassVar[Kind] = "rows"
    paper: ClassVar[str] = "vero-2023"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("majority", "marginals")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 150, "restarts": 3, "learning_rate": 0.15}
    adapts: ClassVar[bool] = True

    steps: int = setting(1500, problem.STEPS, least=1)
    learning_rate: float = setting(0.06, problem.LEARNING_RATE, above=0, most=MOST_RATE)
    match: str = setting("cosine", problem.MATCH, choices=tuple(DISTANCES))
    restarts: int = setting(5, "Number of random initialisations; see pool.", least=1)
    pool: bool = setting(True, "Whether the rows of all starts are also pooled, and kept where their loss is lower.")
    jointly: bool = setting(False, "Whether class labels are sought together with the rows.")
    labels: Attack = setting(
        LabelsIdlg,
        "Label attack used where class labels are neither granted nor sought.",
        check=problem.check_label_attack,
    )
    at: At = setting("first", WHICH_UPDATE)
    batch_norm: BatchNorm = setting("batch", problem.BATCH_NORM)

    def needs(self) -> tuple[Need, ...]:
        """List a table, an update, its recipe, its number of examples; for classes labels or a way to infer them."""
        inner = () if self.jointly else tuple(_of_classes(need) for need in self.labels.needs())
        return (table(), any_update(), known_examples(self.at), problem.replayable(self.at), *inner)

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header, step by step."""
        observation, behind = observation_at(view, self.at), examples_behind(view, self.at)
        assert behind is not None
        like, recipe = next(iter(observation.start.values())), problem.recipe_of(view, observation)
        examples = min(behind, self.rows_in_time(observation.start, recipe))
        known, facts = self._targets(view, context)
        if examples < behind:
            known = None if known is None else known[torch.arange(examples, device=known.device) * behind // examples]
            facts |= {"rows_sought": examples, "rows_behind": behind}
        rows = row_parameters(view.space, like)
        starts = [
            self._start(rows, view, examples, like, known, fork(context.generator, "restart", number))
            for number in range(self.restarts)
        ]
        client, seen = problem.replayed(view, observation, examples, self.batch_norm)
        loss = partial(_loss, client, distance_to(seen, self.match), rows, known)
        method = Adam(steps=self.steps, lr=self.learning_rate, decay=Cosine())
        tried = restarts(
            loss, starts, method, report=context.report, project=rows.project, what=self.name,
            stacked=self._stacked_loss(client, seen, rows, known),
        )  # fmt: skip
        best, pooled = self._picked(loss, rows, tried, known)
        facts |= {"round": observation.round, "own_loss": [outcome.best_loss for outcome in tried.outcomes],
                  "restart": tried.chosen, "pooled": pooled}  # fmt: skip
        end = tried.outcome
        stands = torch.arange(behind, device=like.device) * examples // behind  # by row behind the update
        guess, targets = rows.rows(rows.sure(best))[stands], _hard_targets(best, known)[stands]
        return of_rows(guess, targets, status=end.status, reason=end.reason, curve=end.curve, facts=facts)

    def rows_in_time(self, parameters: Params, recipe: Recipe | None) -> int:
        """Return how many rows can be sought in an update of these parameters, made by that recipe."""
        epochs = 1 if recipe is None or recipe.kind == "gradient" else recipe.epochs
        size = max(LEAST_PARAMETERS, sum(value.numel() for value in parameters.values()))
        return max(LEAST_ROWS, int(MOST_PRODUCTS / (PASSES * size * epochs * self.steps * self.restarts)))

    def _targets(self, view: View, context: Context) -> tuple[Tensor | None, dict[str, Any]]:
        """Return labels or targets [examples] that are granted or inferred first (None: sought), and their source."""
        if view.space.target == "classification" and not self.jointly:
            return problem.labels_in_batches(view, context, self.labels, self.at)
        if view.grants.labels is not None and not self.jointly:
            device = next(iter(observation_at(view, self.at).start.values())).device
            return view.grants.labels.to(device), {"labels": "granted"}
        return None, {"labels": "sought with the rows"}

    def _start(
        self,
        rows: RowParameters,
        view: View,
        examples: int,
        like: Tensor,
        known: Tensor | None,
        generator: torch.Generator,
    ) -> Point:
        """Draw a start of the rows, and of labels or targets that are sought with them."""
        start = rows.start(examples, like, generator)
        if known is not None:
            return start
        classes = view.space.target == "classification"
        blank = like.new_empty((examples, view.space.outputs) if classes else (examples,))
        return start | {SCORES if classes else TARGETS: normal_like(blank, fork(generator, TARGETS))}

    def _stacked_loss(
        self, client: Replay, seen: Params, rows: RowParameters, known: Tensor | None
    ) -> Callable[[Point], Tensor] | None:
        """Return the loss of all starts at once [restarts], None where the network cannot be stacked."""
        together = client.stacked(self.restarts)
        if together is None:
            return None
        known = None if known is None else known.expand(self.restarts, *known.shape)
        return partial(_loss, together, stacked_distance_to(seen, self.match), rows, known)

    def _picked(self, loss: Loss, rows: RowParameters, tried: Restarts, known: Tensor | None) -> tuple[Point, bool]:
        """Return the best single guess or the pooled one, by the loss once every category is decided."""
        best = tried.outcome.best
        if not self.pool or len(tried.outcomes) < 2:
            return best, False
        guesses = [outcome.best for outcome in tried.outcomes if outcome.status == "ok"] or [best]
        mixed = self._pooled(rows, best, guesses, known)
        alone, together = (_decided_loss(loss, rows, guess) for guess in (best, mixed))
        return (mixed, True) if together < alone else (best, False)

    def _pooled(self, rows: RowParameters, best: Point, guesses: list[Point], known: Tensor | None) -> Point:
        """Return all guesses, pooled after matching their rows to those of the best one."""
        groups = torch.zeros_like(best[NUMBERS][:, 0]) if known is None else known
        turned = []
        for guess in guesses:
            places = matched_places(rows.rows(best), rows.rows(guess), groups)
            turned.append({name: value[places] for name, value in guess.items()})
        mixed = best | rows.pooled(turned)
        for name in (SCORES, TARGETS):
            if name in best:
                mixed[name] = torch.stack([guess[name] for guess in turned]).median(0).values
        return mixed


def _loss(client: Replay, distance: DistanceTo, rows: RowParameters, known: Tensor | None, point: Point) -> Tensor:
    return distance(client.update(rows.rows(point), _soft_targets(point, known)))


def table() -> Need:
    """Return the need of inputs that are rows of a table."""
    return Need(what="a table", given_by="a data set with columns", met=lambda view: view.space.kind == "table")


def _of_classes(need: Need) -> Need:
    """Return a need of the label attack that is also met by a regression."""
    inner = problem.unless_labels_granted(need)
    return replace(inner, met=lambda view: view.space.target == "regression" or inner.met(view))


def _soft_targets(point: Point, known: Tensor | None) -> Tensor:
    """Return the targets of the client's loss: known ones, probabilities or free values."""
    if known is not None:
        return known
    return torch.softmax(point[SCORES], -1) if SCORES in point else point[TARGETS]


def _hard_targets(point: Point, known: Tensor | None) -> Tensor:
    """Return known or sought labels or targets [examples]."""
    if known is not None:
        return known
    return point[SCORES].argmax(-1) if SCORES in point else point[TARGETS]


def _decided_loss(loss: Loss, rows: RowParameters, point: Point) -> float:
    """Return the loss with the most likely category of every column; NaN counts as infinite."""
    with torch.enable_grad():  # the loss is made of gradients
        value = loss(rows.sure(point)).item()
    return value if value == value else float("inf")
