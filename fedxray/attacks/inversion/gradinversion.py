"""See through Gradients, or GradInversion (Yin, Mallya, Vahdat, Alvarez, Kautz and Molchanov 2021).

Several guesses are sought side by side from different starts, held together by what they agree on:
    1. Take the labels as granted, or from a sub-attack; with distinct_labels = true by the paper's rule: the N
       classes whose row of the last layer has the lowest smallest entry of the gradient.
    2. Draw for each of `restarts` guesses images from N(0, 1).
    3. Descend on the sum over guesses of
           squared distance of replayed and seen update
         + tv * total variation + norm * half the mean square of the pixels
         + bn * distance of the BatchNorm statistics of the guess from the client's, the first layer ten times
         + group * mean squared distance to the mean of all guesses, from `group_from` of the steps on
       by Adam, with a learning rate that rises over 50 steps and falls to zero along a cosine, some normal
       noise after each step, and back into the range of valid pixels.
    4. Of the guesses keep the one where the loss without the group is lowest.
The client's BatchNorm statistics are those granted (`bn-statistics`); without the grant those that can be
worked out from the running statistics that the client returns; and where it returns none, the running
statistics of the model, as the paper's network had them. The result says which.

Where we differ: guesses are averaged pixel by pixel without the registration of images by a trained network, but
images of one label are matched first; 2,400 steps by default (20,000 in the paper) and 4 guesses; the
squared distance is measured in the squared length of the update seen, so that the weights mean the same for every
network; the noise is 0.01 of the learning rate, as in a public implementation (0.2 in the paper).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Attack, Context, Need
from fedxray.attacks.evidence import Evidence, Kind, of_images
from fedxray.attacks.inversion.dlg import PART_OF_LENGTH, first_tensor, matching_loss
from fedxray.attacks.inversion.problem import (
    as_far_as_told,
    check_count,
    check_label_attack,
    check_weight,
    drawn_starts,
    image_needs,
    into_the_box,
    labels_in_batches,
    recipe_of,
)
from fedxray.attacks.inversion.replay import BatchNorm, check_batch_norm
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.observations import At, check_at, examples_behind, observation_at
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.imaging import assignment
from fedxray.models.inspect import batch_norm_layers, batch_statistics, head
from fedxray.optim import (
    Adam,
    Changing,
    Constant,
    Cosine,
    Decay,
    Loss,
    Method,
    Moved,
    Tensors,
    WarmUp,
    minimise,
)
from fedxray.params import Params, buffers_of
from fedxray.priors import l2, total_variation
from fedxray.seeds import derive_seed, fork, normal_like

# --- What several guesses of the same images agree on.


def consensus(guesses: Tensor, labels: Tensor) -> Tensor:
    """The mean of corresponding images over all guesses [guesses, examples, ...], in the place of each; shape kept.

    Image i of every guess has label i [examples]; those of one label are first matched to the first guess, one to
    one, so that the squared distances are smallest.
    """
    places = torch.stack([matched_places(guesses[0], one, labels) for one in guesses])  # [guesses, examples]
    aligned = torch.stack([one[place] for one, place in zip(guesses, places, strict=True)])
    mean = aligned.mean(0)
    back = places.argsort(1)  # where each image went
    return torch.stack([mean[place] for place in back])


def matched_places(reference: Tensor, guess: Tensor, labels: Tensor) -> Tensor:
    """For each image of the reference [examples, ...] the place of its partner of the same label; shape [examples]."""
    places = torch.arange(len(labels), device=reference.device)
    for label in labels.unique().tolist():
        group = (labels == label).nonzero()[:, 0]
        if len(group) > 1:
            apart = torch.cdist(reference[group].flatten(1), guess[group].flatten(1)) ** 2
            rows, columns = assignment(-apart)
            places[group[rows]] = group[columns]
    return places


# --- How far the BatchNorm statistics of guessed inputs are from the client's, as far as a seat knows
# those.


FIRST_LAYER = 10.0  # how much more the first BatchNorm layer counts


def known_statistics(
    view: View, observation: Observation, recipe: Recipe, examples: int
) -> tuple[dict[str, Tensor], str]:
    """Statistics of the client's batches by layer, "<layer>.mean" and "<layer>.var", and where they come from.

    Granted ones are the client's own, averaged over its steps. Otherwise a client that returns its running
    statistics gives the same away: they moved towards those of its batches by a known share. Where it keeps them,
    only the running statistics of the model that it was sent are left.
    """
    layers = {name: layer for name, layer in batch_norm_layers(view.model).items() if _tracks(layer)}
    granted = (view.grants.bn_statistics or {}).get(observation.round)
    if granted is not None:
        return {name: value.mean(0) for name, value in granted.items()}, "granted"
    if not layers:
        return {}, "none"
    before = {**buffers_of(view.model), **observation.buffers}
    if all(f"{name}.running_mean" in observation.buffers_after for name in layers):
        steps = recipe.steps(examples)
        return _taken_up(layers, before, observation.buffers_after, steps), "returned"
    return _running(layers, before), "running"


def statistics_loss(
    view: View, observation: Observation, recipe: Recipe, wanted: Params
) -> Callable[[Tensor], Tensor]:
    """Inputs [examples, ...] in, the sum over layers of the distances of mean and of variance out.

    Inputs are cut into the batches of one epoch at the model that was sent, and their statistics averaged.
    """
    tell, buffers = batch_statistics(view.model), {**buffers_of(view.model), **observation.buffers}
    first = next(iter(batch_norm_layers(view.model)), "")

    def loss(x: Tensor) -> Tensor:
        batches = [tell(observation.start, buffers, part) for part in x.split(recipe.batch_length(len(x)))]
        parts = []
        for name, target in wanted.items():
            mine = torch.stack([batch[name] for batch in batches]).mean(0)
            weight = FIRST_LAYER if name.rpartition(".")[0] == first else 1.0
            parts.append(weight * torch.linalg.vector_norm(mine - target.to(mine)))
        return torch.stack(parts).sum()

    return loss


def _taken_up(layers: dict[str, nn.Module], before: Params, after: Params, steps: int) -> dict[str, Tensor]:
    """What running statistics moved towards in so many steps, by layer."""
    found = {}
    for name, layer in layers.items():
        assert isinstance(layer, _BatchNorm)
        kept = _share_kept(layer, before, name, steps)
        for ours, theirs in (("mean", "running_mean"), ("var", "running_var")):
            old, new = before[f"{name}.{theirs}"], after[f"{name}.{theirs}"]
            found[f"{name}.{ours}"] = (new - kept * old) / (1 - kept)
    return found


def _share_kept(layer: _BatchNorm, before: Params, name: str, steps: int) -> float:
    """How much of the old running statistics is left after so many steps."""
    if layer.momentum is not None:
        return float((1 - layer.momentum) ** steps)
    seen = int(before[f"{name}.num_batches_tracked"])  # a plain average over all batches ever
    return seen / (seen + steps)


def _running(layers: dict[str, nn.Module], buffers: Params) -> dict[str, Tensor]:
    """The running statistics themselves, unless no batch ever entered them."""
    if all(int(buffers[f"{name}.num_batches_tracked"]) == 0 for name in layers):
        return {}
    return {
        f"{name}.{ours}": buffers[f"{name}.running_{ours}"] for name in layers for ours in ("mean", "var")
    }


def _tracks(layer: nn.Module) -> bool:
    return isinstance(layer, _BatchNorm) and layer.running_mean is not None


# --- Adam with some noise after every step, which depends on the seed and the step alone.


@dataclass(frozen=True, kw_only=True)
class Langevin(Method):
    """Adam, and after each of its steps normal noise of `noise` times the present learning rate."""

    steps: int
    lr: float
    noise: float
    seed: int
    decay: Decay = field(default_factory=Constant)

    def __post_init__(self) -> None:
        """Check the settings that Adam has."""
        self.adam()

    def adam(self) -> Adam:
        """The same without noise."""
        return Adam(steps=self.steps, lr=self.lr, decay=self.decay)

    def fresh(self, point: Tensors) -> dict[str, Tensor]:
        """What Adam remembers."""
        return self.adam().fresh(point)

    def move(self, point: Tensors, gradient: Tensors, memory: Tensors, step: int) -> Moved:
        """A step of Adam, then the noise."""
        moved, kept = self.adam().move(point, gradient, memory, step)
        size = self.noise * self.lr * self.decay.factor(step, self.steps)
        noisy = {
            name: value + size * normal_like(value, fork(self.seed, "step", step, name))
            for name, value in moved.items()
        }
        return noisy if size else moved, kept


WARM_UP = 50  # steps, at most a tenth of all


@dataclass(frozen=True, kw_only=True)
class GradInversion(Attack):
    """What did the training images look like? Several guesses are pulled to what they have in common."""

    name: ClassVar[str] = "gradinversion"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 50, "restarts": 2}
    adapts: ClassVar[bool] = True

    steps: int = 2400
    learning_rate: float = 0.1
    restarts: int = 4
    tv: float = 1e-4
    norm: float = 1e-6
    bn: float = 0.1
    group: float = 0.01
    group_from: float = 0.25  # share of the steps after which guesses are pulled together
    noise: float = 0.01  # in learning rates
    distinct_labels: bool = False
    labels: Attack = field(default_factory=LabelsIdlg)  # used when the labels are not granted
    at: At = "first"
    batch_norm: BatchNorm = "batch"

    def __post_init__(self) -> None:
        """Check every setting."""
        self.method(0)
        check_at(self.at)
        check_batch_norm(self.batch_norm)
        check_count("restarts", self.restarts)
        check_label_attack(self.labels)
        for name in ("tv", "norm", "bn", "group", "noise"):
            check_weight(name, getattr(self, name))
        if not 0 <= self.group_from <= 1:
            raise BadInput(
                "group_from", expected="a share from 0 to 1", got=repr(self.group_from), remedy="Try 0.25."
            )

    def method(self, seed: int) -> Langevin:
        """The optimiser of the paper, with noise from this seed."""
        decay = WarmUp(over=max(1, min(WARM_UP, self.steps // 10)), then=Cosine())
        return Langevin(steps=self.steps, lr=self.learning_rate, noise=self.noise, seed=seed, decay=decay)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self.at, self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        observation = observation_at(view, self.at)
        labels, facts = self._labels(view, observation, context)
        starts = drawn_starts(view, first_tensor(observation), len(labels), context, self.restarts)
        start = {"inputs": torch.stack([one["inputs"] for one in starts])}  # [restarts, examples, ...]
        own, source = self._own_loss(view, observation, labels)
        end = minimise(
            self._together(own, labels), start, self.method(derive_seed(context.generator, "noise")),
            report=context.report, project=into_the_box(view, start["inputs"]), what=self.name,
        )  # fmt: skip
        with torch.enable_grad():  # the loss is made of gradients
            losses = [own({"inputs": one}).item() for one in end.best["inputs"]]
        chosen = min(range(len(losses)), key=losses.__getitem__)
        facts |= {"round": observation.round, "own_loss": losses, "restart": chosen, "bn_statistics": source}
        evidence = of_images(
            end.best["inputs"][chosen],
            labels,
            status=end.status,
            reason=end.reason,
            curve=end.curve,
            facts=facts,
        )
        return as_far_as_told(view, observation, evidence)

    def _labels(
        self, view: View, observation: Observation, context: Context
    ) -> tuple[Tensor, dict[str, Any]]:
        """The labels to work with, shape [examples], and where they come from."""
        told = view.grants.labels is not None or view.grants.label_counts is not None
        if told or not self.distinct_labels:
            labels, facts = labels_in_batches(view, context, self.labels, self.at)
            return labels.to(first_tensor(observation).device), facts
        examples = examples_behind(view, self.at)
        assert examples is not None
        return lowest_rows(observation.update[head(view.model).weight], examples), {"labels": "lowest rows"}

    def _own_loss(self, view: View, observation: Observation, labels: Tensor) -> tuple[Loss, str]:
        """The loss of one guess by itself, and which BatchNorm statistics it uses."""
        match = matching_loss(view, observation, len(labels), labels, "length", self.batch_norm)
        recipe = recipe_of(view, observation)
        assert recipe is not None
        wanted, source = known_statistics(view, observation, recipe, len(labels))
        use = bool(wanted) and self.bn > 0
        statistics = statistics_loss(view, observation, recipe, wanted) if use else None

        def own(point: dict[str, Tensor]) -> Tensor:
            x = point["inputs"]
            value = PART_OF_LENGTH**2 * match(point) + self.tv * total_variation(x) + self.norm * l2(x)
            return value if statistics is None else value + self.bn * statistics(x)

        return own, source if use else "none"

    def _together(self, own: Loss, labels: Tensor) -> Changing:
        """The loss of all guesses, which pull each other from a certain step on."""
        settled = round(self.group_from * self.steps)

        def loss(point: dict[str, Tensor], step: int) -> Tensor:
            guesses = point["inputs"]
            value = torch.stack([own({"inputs": one}) for one in guesses]).sum()
            if step < settled or len(guesses) < 2 or not self.group:
                return value
            apart = ((guesses - consensus(guesses.detach(), labels)) ** 2).flatten(1).mean(1)
            return value + self.group * apart.sum()

        return Changing(at=loss, settled=settled)


def lowest_rows(update: Tensor, examples: int) -> Tensor:
    """The classes [examples] whose row of the gradient, minus the update [classes, features], dips lowest.

    The paper's rule knows each class once; more examples than classes start over.
    """
    order = (-update).min(1).values.argsort(stable=True)
    return order.repeat(-(-examples // len(order)))[:examples].sort().values
