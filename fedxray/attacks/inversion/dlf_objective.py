"""What DLF and its baselines share: knowledge of the client, the loss over all simulated images, the descent on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.aim import observation_at
from fedxray.attacks.base import Context
from fedxray.attacks.evidence import Evidence, of_images
from fedxray.attacks.inversion.aware import aware
from fedxray.attacks.inversion.distance import BY_DEPTH, Distance, distance_named, squared_l2
from fedxray.attacks.inversion.dlf_settings import DlfSettings, Numbers, method_of, numbers_of
from fedxray.attacks.inversion.known import aim_of, labels_known, recipe_of
from fedxray.attacks.inversion.replay import Replay, replay, schedule_of_epochs, straight_schedule
from fedxray.data.space import Space
from fedxray.federation.recipe import Recipe
from fedxray.minimise import Changing, Outcome, restarts
from fedxray.params import Params, scaled
from fedxray.priors import box_penalty, squared_total_variation
from fedxray.seeds import fork, normal_like, permutation

UNFIT = "granted, but not used: its batches are not those of the recipe"
Penalty = Callable[[Tensor], Tensor]  # images [epochs, n, c, h, w] to a scalar


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the attacker knows or believes of the client."""

    observation: Observation
    recipe: Recipe
    labels: Tensor  # [n], in the order in which they are cut into batches
    step_labels: Tensor | None  # [epochs * n] of every local step, where granted
    facts: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A replay of the client with one set of images, or one per epoch."""

    client: Replay
    aim: Params  # the sum of the client's gradients
    unit: float  # what turns a replayed update into such a sum
    labels: Tensor  # [sets * n]
    sets: int
    batches: int  # batches that all the images make: what the match is divided by


def what_is_known(view: View, settings: DlfSettings, context: Context) -> Known:
    """The update, its recipe and the labels in an order."""
    observation = observation_at(view, settings.at)
    recipe = recipe_of(view, observation)
    assert recipe is not None
    steps = (view.grants.batch_labels or {}).get(observation.round)
    unfit = steps is not None and not _fits(steps, recipe)
    if steps is None or unfit:
        labels, facts = labels_known(view, context, settings.labels)
        facts |= {"batch_labels": UNFIT} if unfit else {}
        steps = None
    else:
        every = torch.cat(steps)
        labels, facts = every[: len(every) // recipe.epochs], {"labels": "granted for every local step"}
    device = next(iter(observation.start.values())).device
    order = settings.label_order
    if order == "given" and facts["labels"] == "granted counts":
        order = "random"  # counts come in no order, and a data loader's tells nothing of the client's batches
    # From the root, so that the whole family works on the same split of the same labels.
    labels = _in_order(labels, order, fork(context.root, "dlf", "label order"))
    return Known(
        observation=observation,
        recipe=recipe,
        labels=labels.to(device),
        step_labels=None if steps is None else torch.cat(steps).to(device),
        facts=facts | {"round": observation.round, "label_order": order},
    )


def _fits(steps: Sequence[Tensor], recipe: Recipe) -> bool:
    """Whether labels of every step come in the batches of the recipe, as drawn (Poisson) ones do not."""
    sizes = [len(one) for one in steps]
    count = sum(sizes) // (1 if recipe.kind == "gradient" else recipe.epochs)
    if count == 0:
        return False
    told = straight_schedule(count, recipe)
    return sizes == [len(told.used(step)) for step in range(told.steps)]


def _in_order(
    labels: Tensor, order: Literal["given", "sorted", "random"], generator: torch.Generator
) -> Tensor:
    if order == "sorted":
        return labels.sort().values
    return labels if order == "given" else labels[permutation(len(labels), generator).to(labels.device)]


def simulation(
    view: View, settings: DlfSettings, known: Known, recipe: Recipe, *, by_epoch: bool
) -> Simulation:
    """The client's round by this recipe, with images of their own in every epoch or the same in all."""
    count = len(known.labels)
    epochs = recipe.epochs if recipe.kind == "weights" else 1
    sets = epochs if by_epoch else 1
    order = schedule_of_epochs(count, recipe) if by_epoch else straight_schedule(count, recipe)
    client = replay(
        view.model,
        known.observation.start,
        recipe,
        order,
        buffers=known.observation.buffers,
        batch_norm=settings.batch_norm,
    )
    aim = aim_of(known.observation, known.recipe)
    client, aim = aware(view, known.observation, known.recipe, count, client, aim)
    labels = known.labels.repeat(sets) if known.step_labels is None else known.step_labels[: sets * count]
    unit = 1.0 if known.recipe.kind == "gradient" else 1 / known.recipe.learning_rate
    return Simulation(
        client=client,
        aim=scaled(aim, unit),
        unit=unit,
        labels=labels,
        sets=sets,
        batches=sets * -(-count // known.recipe.batch_length(count)),
    )


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The loss: weighted match / batches + total variation + range of pixels (+ a prior over epochs).

    All but the match is weighed for squared differences. A cosine takes their place as a share of the update's own
    squared length; `share` brings the other terms to that scale.
    """

    simulation: Simulation
    distance: Distance
    numbers: Numbers
    space: Space
    half: int  # steps over which the weight of the match changes
    penalty: Penalty | None = None
    share: float | None = None  # None where the match is not a cosine
    together: int = 0  # steps in which all epochs hold the same images

    def value(self, point: dict[str, Tensor], step: int) -> Tensor:
        """The loss after so many steps, of images [sets, n, c, h, w] called "inputs"; scalar."""
        x = point["inputs"]
        x = x.mean(0, keepdim=True).expand_as(x) if step < self.together else x
        flat = x.flatten(0, 1)
        told = self.simulation
        update = scaled(told.client.update(flat, told.labels), told.unit)
        held = self.numbers.total_variation * squared_total_variation(flat)
        held = held + self.numbers.clip * box_penalty(self.space.to_pixels(flat), 0.0, 1.0)
        held = held if self.penalty is None else held + self.penalty(x)
        match = self.match_weight(step) * self.distance(update, told.aim)
        return match / told.batches + held if self.share is None else match + self.share * held

    def match_weight(self, step: int) -> float:
        """From the first weight to the second by equal factors, arriving at half of the steps."""
        first, second = self.numbers.match_weight
        return float(first * (second / first) ** min(1.0, (step + 1) / self.half))


def objective(
    view: View,
    settings: DlfSettings,
    simulated: Simulation,
    penalty: Penalty | None = None,
    *,
    together: float = 0.0,
) -> Objective:
    """The loss of one attack on one simulation."""
    names = [name for name, _ in view.model.named_parameters() if name in simulated.aim]
    return Objective(
        simulation=simulated,
        distance=_distance(settings.match, names, simulated),
        numbers=numbers_of(settings),
        space=view.space,
        half=max(1, settings.steps // 2),
        penalty=penalty,
        share=_share(simulated, names) if settings.match.startswith("cosine") else None,
        together=round(together * settings.steps),
    )


def _distance(match: str, names: list[str], simulated: Simulation) -> Distance:
    """The distance of that name; under noise known to be alike in all entries, these count alike.

    The update's own length then counts as much as before, and so do the other terms beside it.
    """
    if match != BY_DEPTH or not simulated.client.noise:
        return distance_named(match, names)
    before, plain = (_length(simulated, names, one) for one in (BY_DEPTH, "l2"))
    return partial(squared_l2, weights=dict.fromkeys(names, before / plain if plain > 0 else 1.0))


def _share(simulated: Simulation, names: list[str]) -> float:
    """One over the squared length of the update per batch, layers counted as in the authors' code."""
    length = _length(simulated, names, BY_DEPTH)
    return simulated.batches / length if length > 0 else 1.0


def _length(simulated: Simulation, names: list[str], match: str) -> float:
    """The distance of the update from none."""
    nothing = {name: torch.zeros_like(value) for name, value in simulated.aim.items()}
    return float(distance_named(match, names)(simulated.aim, nothing))


@dataclass(frozen=True, kw_only=True)
class Found:
    """Where a descent ended."""

    images: Tensor  # [sets, n, c, h, w]
    outcome: Outcome
    facts: dict[str, Any]


def descend(view: View, settings: DlfSettings, context: Context, loss: Objective, what: str) -> Found:
    """Minimise the loss over images that start from N(0, 1), alike in all epochs if they begin together."""
    told = loss.simulation
    like = next(iter(told.client.start.values()))
    shape = (told.sets, len(told.labels) // told.sets, *view.space.shape)
    blank = torch.empty(shape[1:] if loss.together else shape, dtype=like.dtype, device=like.device)
    drawn = (
        normal_like(blank, fork(context.root, "dlf", "start", place)) for place in range(settings.restarts)
    )
    starts = [{"inputs": one.expand(shape).clone()} for one in drawn]
    found = restarts(
        Changing(at=loss.value, settled=max(loss.half, loss.together)),
        starts,
        method_of(settings),
        report=context.report,
        what=what,
        keep=settings.keep,
    )
    end = found.outcome
    kept = end.kept(settings.keep)
    facts = {"own_loss": [one.loss_of(settings.keep) for one in found.outcomes], "restart": found.chosen}
    images = told.client.shown(kept["inputs"].flatten(0, 1)).reshape(shape)
    return Found(images=images, outcome=end, facts=facts)


def evidence_of(found: Found, known: Known, images: Tensor) -> Evidence:
    """The images of a descent, [n, c, h, w], as evidence."""
    end = found.outcome
    return of_images(
        images,
        known.labels if known.step_labels is None else known.step_labels[: len(images)],
        status=end.status,
        reason=end.reason,
        curve=end.curve,
        facts=known.facts | found.facts,
    )
