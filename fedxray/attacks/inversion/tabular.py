"""Rows of a table from an update, after TabLeak (Vero, Balunović, Dimitrov and Vechev 2023).

Rows are sought whose replayed update points in the direction of the one seen:
    1. Take the labels as granted or from a sub-attack, or seek them too (jointly = true). The target of a regression
       is taken as granted (`labels`), or sought too.
    2. Draw numbers from N(0, 1) and, for every categorical column, a score for each category.
    3. The row is made of the numbers and of the codes of the categories, mixed by the softmax of the scores.
    4. Descend on 1 - cos(replayed update, seen update) by Adam; after each step numbers go back into the range
       of their column.
    5. Repeat from several starts. Match the rows of every guess to those of the one with the lowest loss, one
       to one within a label; take the median of the numbers and the mean of the probabilities.
    6. Take the likeliest category of every column. Keep these pooled rows, or those of the best single start,
       whichever has the lower loss then.

Where we differ: 1,500 steps and 5 starts by default (30 in the paper); the paper always keeps the pooled rows; its
estimate of how sure each value is, by the entropy over the starts, is left out. For FedAvg the client's local steps
are replayed with the rows in the order of the guess, the same in every epoch. A sum of replies is read as the
update of one client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, any_update
from fedxray.attacks.evidence import Evidence, Kind, of_rows
from fedxray.attacks.inversion.distance import DISTANCES
from fedxray.attacks.inversion.gradinversion import matched_places
from fedxray.attacks.inversion.problem import (
    check_count,
    check_label_attack,
    labels_in_batches,
    replayable,
    replayed,
    unless_labels_granted,
)
from fedxray.attacks.inversion.replay import BatchNorm, Replay, check_batch_norm
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.observations import At, check_at, examples_behind, known_examples, observation_at
from fedxray.data.dataset import Column, Space
from fedxray.errors import unknown_name
from fedxray.optim import Adam, Cosine, Loss, Restarts, restarts
from fedxray.params import Params
from fedxray.priors import clip
from fedxray.seeds import fork, normal_like

# --- Rows of a table as free parameters: numbers within their range, and scores whose softmax mixes
# categories.


Point = dict[str, Tensor]
NUMBERS = "numbers"
SURE = 1e4  # a score beside which all others count as nothing


@dataclass(frozen=True)
class RowParameters:
    """Where numbers and categories stand in a row; positions that no column names are numbers without a range."""

    width: int
    numbers: tuple[int, ...]
    categories: tuple[Column, ...]
    low: Tensor  # [numbers]
    high: Tensor  # [numbers]

    def start(self, examples: int, like: Tensor, generator: torch.Generator) -> Point:
        """Standard normal numbers, back in their range, and standard normal scores."""
        shapes = {NUMBERS: len(self.numbers)} | {_key(one): len(one.codes) for one in self.categories}
        drawn = {
            name: normal_like(like.new_empty(examples, size), fork(generator, name))
            for name, size in shapes.items()
        }
        return self.project(drawn)

    def project(self, point: Point) -> Point:
        """Numbers back into their range; everything else as it is."""
        return point | {NUMBERS: clip(point[NUMBERS], self.low, self.high)}

    def rows(self, point: Point) -> Tensor:
        """Encoded rows [examples, width]: numbers as they are, mixed codes of categories."""
        return self._put_together(
            point[NUMBERS],
            [torch.softmax(point[_key(one)], -1) @ one.candidates(point[NUMBERS]) for one in self.categories],
        )

    def decided(self, point: Point) -> Tensor:
        """Encoded rows [examples, width] with the likeliest category of every column."""
        return self.rows(self.sure(point))

    def sure(self, point: Point) -> Point:
        """The same point with all probability on the likeliest category of every column."""
        sharp = {
            _key(one): SURE * functional.one_hot(point[_key(one)].argmax(-1), len(one.codes))
            for one in self.categories
        }
        return point | {name: value.to(point[NUMBERS].dtype) for name, value in sharp.items()}

    def pooled(self, points: list[Point]) -> Point:
        """Corresponding rows of several guesses in one: the median of numbers, the mean of probabilities."""
        mixed = {NUMBERS: torch.stack([one[NUMBERS] for one in points]).median(0).values}
        for column in self.categories:
            chances = torch.stack([torch.softmax(one[_key(column)], -1) for one in points]).mean(0)
            mixed[_key(column)] = chances.log()
        return mixed

    def _put_together(self, numbers: Tensor, codes: list[Tensor]) -> Tensor:
        places = [*self.numbers, *(place for one in self.categories for place in one.positions)]
        back = torch.tensor(places, dtype=torch.int64, device=numbers.device).argsort()
        return torch.cat([numbers, *codes], 1)[:, back]


def row_parameters(space: Space, like: Tensor) -> RowParameters:
    """The parameters of rows of this table, with ranges of the type and on the device of `like`."""
    categories = tuple(one for one in space.columns if one.kind == "categorical" and len(one.codes) > 1)
    taken = {place for one in categories for place in one.positions}
    numbers = tuple(place for place in range(space.shape[0]) if place not in taken)
    low, high = space.bounds(like)
    return RowParameters(space.shape[0], numbers, categories, low[list(numbers)], high[list(numbers)])


def _key(column: Column) -> str:
    return f"category {column.name}"


SCORES, TARGETS = "label scores", "targets"


@dataclass(frozen=True, kw_only=True)
class TabularInversion(Attack):
    """What is in the training rows? Rows of a table are changed until they would cause the update sent."""

    name: ClassVar[str] = "tabular-inversion"
    kind: ClassVar[Kind] = "rows"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("majority", "marginals")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 60, "restarts": 2, "learning_rate": 0.15}
    adapts: ClassVar[bool] = True

    steps: int = 1500
    learning_rate: float = 0.06
    match: str = "cosine"  # cosine | cosine-by-layer | l2 | l1
    restarts: int = 5
    pool: bool = True
    jointly: bool = False  # classes: seek the labels with the rows
    labels: Attack = field(default_factory=LabelsIdlg)  # classes: used when the labels are not granted
    at: At = "first"
    batch_norm: BatchNorm = "batch"

    def __post_init__(self) -> None:
        """Check every setting."""
        self.method()
        check_at(self.at)
        check_batch_norm(self.batch_norm)
        check_count("restarts", self.restarts)
        check_label_attack(self.labels)
        if self.match not in DISTANCES:
            raise unknown_name("match", self.match, DISTANCES)

    def method(self) -> Adam:
        """The optimiser."""
        return Adam(steps=self.steps, lr=self.learning_rate, decay=Cosine())

    def needs(self) -> tuple[Need, ...]:
        """A table, an update, how it was made, how many examples made it; for classes labels or a way to them."""
        inner = () if self.jointly else tuple(_of_classes(need) for need in self.labels.needs())
        return (table(), any_update(), known_examples(self.at), replayable(self.at), *inner)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        observation, examples = observation_at(view, self.at), examples_behind(view, self.at)
        assert examples is not None
        like = next(iter(observation.start.values()))
        known, facts = self._targets(view, context)
        known = None if known is None else known.to(like.device)
        rows = row_parameters(view.space, like)
        starts = [
            self._start(rows, view, examples, like, known, fork(context.generator, "restart", place))
            for place in range(self.restarts)
        ]
        client, seen = replayed(view, observation, examples, self.batch_norm)
        loss = partial(self._loss, client, seen, rows, known)
        found = restarts(
            loss, starts, self.method(), report=context.report, project=rows.project, what=self.name
        )
        best, pooled = self._picked(loss, rows, found, known)
        facts |= {"round": observation.round, "own_loss": [one.best_loss for one in found.outcomes],
                  "restart": found.chosen, "pooled": pooled}  # fmt: skip
        end = found.outcome
        told = _told(best, known)
        return of_rows(
            rows.decided(best), told, status=end.status, reason=end.reason, curve=end.curve, facts=facts
        )

    def _targets(self, view: View, context: Context) -> tuple[Tensor | None, dict[str, Any]]:
        """Labels or targets [examples] that are known or found first, and where they come from."""
        if view.space.target == "classification" and not self.jointly:
            return labels_in_batches(view, context, self.labels, self.at)
        if view.grants.labels is not None and not self.jointly:
            return view.grants.labels, {"labels": "granted"}
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
        """A start of the rows, and of whatever is sought with them."""
        start = rows.start(examples, like, generator)
        if known is not None:
            return start
        classes = view.space.target == "classification"
        blank = like.new_empty((examples, view.space.outputs) if classes else (examples,))
        return start | {SCORES if classes else TARGETS: normal_like(blank, fork(generator, TARGETS))}

    def _loss(
        self, client: Replay, seen: Params, rows: RowParameters, known: Tensor | None, point: Point
    ) -> Tensor:
        update = client.update(rows.rows(point), _soft_targets(point, known))
        return DISTANCES[self.match](update, seen)

    def _picked(
        self, loss: Loss, rows: RowParameters, found: Restarts, known: Tensor | None
    ) -> tuple[Point, bool]:
        """The best single guess or the pooled one, by the loss once every category is decided."""
        best = found.outcome.best
        if not self.pool or len(found.outcomes) < 2:
            return best, False
        whole = [one.best for one in found.outcomes if one.status == "ok"] or [best]
        mixed = self._pooled(rows, best, whole, known)
        alone, together = (_decided_loss(loss, rows, one) for one in (best, mixed))
        return (mixed, True) if together < alone else (best, False)

    def _pooled(self, rows: RowParameters, best: Point, guesses: list[Point], known: Tensor | None) -> Point:
        """All guesses in the order of the best one, pooled."""
        groups = torch.zeros_like(best[NUMBERS][:, 0]) if known is None else known
        turned = []
        for guess in guesses:
            places = matched_places(rows.rows(best), rows.rows(guess), groups)
            turned.append({name: value[places] for name, value in guess.items()})
        mixed = best | rows.pooled(turned)
        for name in (SCORES, TARGETS):
            if name in best:
                mixed[name] = torch.stack([one[name] for one in turned]).median(0).values
        return mixed


def table() -> Need:
    """Inputs that are rows of a table."""
    return Need(
        what="a table", given_by="a data set with columns", met=lambda view: view.space.kind == "table"
    )


def _of_classes(need: Need) -> Need:
    """A need of the label attack, which falls away for a regression."""
    inner = unless_labels_granted(need)
    return Need(
        what=inner.what,
        given_by=inner.given_by,
        met=lambda view: view.space.target == "regression" or inner.met(view),
    )


def _soft_targets(point: Point, known: Tensor | None) -> Tensor:
    """What the client's loss takes as targets: known ones, probabilities or free values."""
    if known is not None:
        return known
    return torch.softmax(point[SCORES], -1) if SCORES in point else point[TARGETS]


def _told(point: Point, known: Tensor | None) -> Tensor:
    """Known or found labels or targets, shape [examples]."""
    if known is not None:
        return known
    return point[SCORES].argmax(-1) if SCORES in point else point[TARGETS]


def _decided_loss(loss: Loss, rows: RowParameters, point: Point) -> float:
    """The loss with the likeliest category of every column; a number that is not finite counts as the worst."""
    with torch.enable_grad():  # the loss is made of gradients
        value = loss(rows.sure(point)).item()
    return value if value == value else float("inf")
