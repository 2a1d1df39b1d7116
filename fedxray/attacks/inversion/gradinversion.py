"""See through Gradients, or GradInversion (Yin, Mallya, Vahdat, Alvarez, Kautz and Molchanov 2021).

Several guesses are optimised in parallel from different starts, coupled by their consensus:
    1. Take the labels as granted, or from a sub-attack; with distinct_labels = true by the paper's rule: the N
       classes whose row of the last layer's gradient has the lowest minimum.
    2. Draw for each of `restarts` guesses images from N(0, 1).
    3. Minimise the sum over guesses of
           squared distance of replayed and observed update
         + tv * total variation + norm * half the mean square of the pixels
         + bn * distance of the BatchNorm statistics of the guess from the client's, the first layer ten times
         + group * mean squared distance to the mean of all guesses, from `group_from` of the steps on
       by Adam, with a learning rate that rises over 50 steps and falls to zero along a cosine, normal noise after each
       step, and projection onto the range of valid pixels.
    4. Of the guesses keep the one whose loss without the group term is lowest.
The client's BatchNorm statistics are those granted (`bn-statistics`); without the grant those computed from the running
statistics that the client returns; and where it returns none, the running statistics of the model, as in the paper.
The facts state which.

Where we differ: guesses are averaged pixel by pixel without image registration by a trained network, but images of one
label are matched first; 2,400 steps by default (20,000 in the paper) and 4 guesses; the squared distance is relative to
the squared norm of the observed update, so that the weights mean the same for every network; the noise is 0.01 of the
learning rate, as in a public implementation (0.2 in the paper).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedxray import optim
from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Context
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion import problem
from fedxray.attacks.inversion.dlg import PART_OF_LENGTH, first_tensor, matching_loss
from fedxray.attacks.inversion.problem import ImageInversion
from fedxray.attacks.observations import examples_behind, observation_at
from fedxray.federation.recipe import Recipe
from fedxray.imaging import assignment
from fedxray.models.inspect import batch_norm_layers, batch_statistics, head
from fedxray.optim import MOST_RATE, Changing, Cosine, Loss, WarmUp, minimise
from fedxray.params import Params, buffers_of
from fedxray.priors import l2, total_variation
from fedxray.seeds import derive_seed, fork, normal_like
from fedxray.settings import setting

# Consensus of several guesses of the same images


def consensus(guesses: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of corresponding images over all guesses [guesses, examples, ...], at each one's position.

    Image i of every guess has label i [examples]; those of one label are first matched to the first guess, one to
    one, with the smallest total squared distance. The shape is kept.
    """
    places = torch.stack([matched_places(guesses[0], guess, labels) for guess in guesses])  # [guesses, examples]
    aligned = torch.stack([guess[place] for guess, place in zip(guesses, places, strict=True)])
    mean = aligned.mean(0)
    back = places.argsort(1)  # inverse permutations [guesses, examples]
    return torch.stack([mean[place] for place in back])


def matched_places(reference: Tensor, guess: Tensor, labels: Tensor) -> Tensor:
    """Return for each image of the reference [examples, ...] the index of its partner of the same label [examples]."""
    places = torch.arange(len(labels), device=reference.device)
    for label in labels.unique().tolist():
        group = (labels == label).nonzero()[:, 0]
        if len(group) > 1:
            apart = torch.cdist(reference[group].flatten(1), guess[group].flatten(1)) ** 2
            rows, columns = assignment(-apart)
            places[group[rows]] = group[columns]
    return places


# BatchNorm statistics of the client and of a guess

FIRST_LAYER = 10.0  # weight of the first BatchNorm layer


def known_statistics(
    view: View, observation: Observation, recipe: Recipe, examples: int
) -> tuple[dict[str, Tensor], str]:
    """Return the statistics of the client's batches by layer, "<layer>.mean" and "<layer>.var", and their source.

    Granted ones are the client's own, averaged over its steps. A client that returns its running statistics reveals
    the same: they moved towards those of its batches by a known share. Otherwise the running statistics of the model
    that was sent are used.
    """
    layers = {name: layer for name, layer in batch_norm_layers(view.model).items() if layer.running_mean is not None}
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


def statistics_loss(view: View, observation: Observation, recipe: Recipe, wanted: Params) -> Callable[[Tensor], Tensor]:
    """Return a loss of inputs [examples, ...]: the sum over layers of the distances of mean and of variance.

    Inputs are cut into the batches of one epoch, evaluated at the model that was sent; statistics are averaged.
    """
    measure, buffers = batch_statistics(view.model), {**buffers_of(view.model), **observation.buffers}
    first = next(iter(batch_norm_layers(view.model)), "")

    def loss(x: Tensor) -> Tensor:
        batches = [measure(observation.start, buffers, part) for part in x.split(recipe.batch_length(len(x)))]
        parts = []
        for name, target in wanted.items():
            mine = torch.stack([batch[name] for batch in batches]).mean(0)
            weight = FIRST_LAYER if name.rpartition(".")[0] == first else 1.0
            parts.append(weight * torch.linalg.vector_norm(mine - target.to(mine)))
        return torch.stack(parts).sum()

    return loss


def _taken_up(layers: dict[str, nn.Module], before: Params, after: Params, steps: int) -> dict[str, Tensor]:
    """Return the mean of the statistics that the running ones moved towards in `steps` steps, by layer."""
    by_layer = {}
    for name, layer in layers.items():
        assert isinstance(layer, _BatchNorm)
        kept = _share_kept(layer, before, name, steps)
        for statistic in ("mean", "var"):
            old, new = (buffers[f"{name}.running_{statistic}"] for buffers in (before, after))
            by_layer[f"{name}.{statistic}"] = (new - kept * old) / (1 - kept)
    return by_layer


def _share_kept(layer: _BatchNorm, before: Params, name: str, steps: int) -> float:
    """Return the share of the old running statistics that is left after `steps` steps."""
    if layer.momentum is not None:
        return float((1 - layer.momentum) ** steps)
    seen = int(before[f"{name}.num_batches_tracked"])  # a plain average over all batches so far
    return seen / (seen + steps)


def _running(layers: dict[str, nn.Module], buffers: Params) -> dict[str, Tensor]:
    """Return the running statistics, or none where no batch ever entered them."""
    if all(int(buffers[f"{name}.num_batches_tracked"]) == 0 for name in layers):
        return {}
    return {f"{name}.{ours}": buffers[f"{name}.running_{ours}"] for name in layers for ours in ("mean", "var")}


# Adam with noise after every step, which depends on the seed and the step only


@dataclass(frozen=True, kw_only=True)
class Langevin(optim.Adam):
    """Adam with normal noise after each step, of standard deviation `noise` times the current learning rate."""

    noise: float
    seed: int

    def move(self, point: optim.Tensors, gradient: optim.Tensors, memory: optim.Tensors, step: int) -> optim.Moved:
        """Make a step of Adam, then add the noise."""
        moved, kept = super().move(point, gradient, memory, step)
        size = self.noise * self.lr * self.decay.factor(step, self.steps)
        noisy = {
            name: value + size * normal_like(value, fork(self.seed, "step", step, name))
            for name, value in moved.items()
        }
        return noisy if size else moved, kept


WARM_UP = 50  # steps of rising learning rate, at most a tenth of all


@dataclass(frozen=True, kw_only=True)
class GradInversion(ImageInversion):
    """What did the training images look like? Optimises several guesses that are pulled to their consensus."""

    name: ClassVar[str] = "gradinversion"
    paper: ClassVar[str] = "yin-2021"
    small: ClassVar[Mapping[str, Any]] = {"steps": 50, "restarts": 2}

    steps: int = setting(2400, problem.STEPS, least=1)
    learning_rate: float = setting(0.1, problem.LEARNING_RATE, above=0, most=MOST_RATE)
    restarts: int = setting(4, "Number of guesses that are optimised in parallel.", least=1)
    tv: float = setting(1e-4, "Weight of the total variation penalty.", least=0)
    norm: float = setting(1e-6, "Weight of the mean square of the pixels.", least=0)
    bn: float = setting(0.1, "Weight of the distance to the client's BatchNorm statistics.", least=0)
    group: float = setting(0.01, "Weight of the distance to the mean of all guesses.", least=0)
    group_from: float = setting(0.25, "Share of the steps after which the group term is used.", least=0, most=1)
    noise: float = setting(0.01, "Standard deviation of the noise after every step, in learning rates.", least=0)
    distinct_labels: bool = setting(
        False, "Whether labels are inferred by the paper's rule, which assumes that no class occurs twice."
    )

    def method(self, seed: int) -> Langevin:
        """Return the optimiser of the paper, with noise from this seed."""
        decay = WarmUp(over=max(1, min(WARM_UP, self.steps // 10)), then=Cosine())
        return Langevin(steps=self.steps, lr=self.learning_rate, noise=self.noise, seed=seed, decay=decay)

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header, step by step."""
        observation = observation_at(view, self.at)
        labels, facts = self._labels(view, observation, context)
        starts = problem.drawn_starts(view, first_tensor(observation), len(labels), context, self.restarts)
        start = {"inputs": torch.stack([guess["inputs"] for guess in starts])}  # [restarts, examples, ...]
        own, source = self._own_loss(view, observation, labels)
        end = minimise(
            self._together(own, labels), start, self.method(derive_seed(context.generator, "noise")),
            report=context.report, project=problem.into_the_box(view, start["inputs"]), what=self.name,
        )  # fmt: skip
        with torch.enable_grad():  # the loss is made of gradients
            losses = [own({"inputs": guess}).item() for guess in end.best["inputs"]]
        chosen = min(range(len(losses)), key=losses.__getitem__)
        facts |= {"round": observation.round, "own_loss": losses, "restart": chosen, "bn_statistics": source}
        evidence = problem.images_found(end.best["inputs"][chosen], labels, end, facts)
        return problem.with_averaged_pairs(view, observation, evidence)

    def _labels(self, view: View, observation: Observation, context: Context) -> tuple[Tensor, dict[str, Any]]:
        """Return the labels to work with [examples], and their source."""
        granted = view.grants.labels is not None or view.grants.label_counts is not None
        if granted or not self.distinct_labels:
            return problem.labels_in_batches(view, context, self.labels, self.at)
        examples = examples_behind(view, self.at)
        assert examples is not None
        return lowest_rows(observation.update[head(view.model).weight], examples), {"labels": "lowest rows"}

    def _own_loss(self, view: View, observation: Observation, labels: Tensor) -> tuple[Loss, str]:
        """Return the loss of a single guess, and the source of the BatchNorm statistics it uses."""
        match = matching_loss(view, observation, len(labels), labels, "length", self.batch_norm)
        recipe = problem.recipe_of(view, observation)
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
        """Return the loss of all guesses, with the group term from `group_from` of the steps on."""
        settled = round(self.group_from * self.steps)

        def loss(point: dict[str, Tensor], step: int) -> Tensor:
            guesses = point["inputs"]
            value = torch.stack([own({"inputs": guess}) for guess in guesses]).sum()
            if step < settled or len(guesses) < 2 or not self.group:
                return value
            distances = ((guesses - consensus(guesses.detach(), labels)) ** 2).flatten(1).mean(1)  # [guesses]
            return value + self.group * distances.sum()

        return Changing(at=loss, settled=settled)


def lowest_rows(update: Tensor, examples: int) -> Tensor:
    """Return the classes [examples] whose rows of minus the update [classes, features] have the lowest minima.

    The paper's rule uses each class once; with more examples than classes it starts over.
    """
    order = (-update).min(1).values.argsort(stable=True)
    return order.repeat(-(-examples // len(order)))[:examples].sort().values
