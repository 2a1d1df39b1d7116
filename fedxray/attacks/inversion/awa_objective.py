"""The weighted and enhanced loss of paper 002 on one replayed round, or on one interpolated epoch of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.aim import At, examples_behind, observation_at
from fedxray.attacks.base import Need
from fedxray.attacks.inversion.awa_presets import Weights
from fedxray.attacks.inversion.distance import squares
from fedxray.attacks.inversion.enhancement import Aim, Undefined, aim_moments, furthest
from fedxray.attacks.inversion.interpolation import one_epoch, order_is_unknown
from fedxray.attacks.inversion.known import aim_of, recipe_of, replayed
from fedxray.attacks.inversion.layers import Layer, layers_of, ramps
from fedxray.attacks.inversion.replay import BatchNorm, Replay
from fedxray.params import Params

RAMPED = ("conv", "norm", "linear")  # kinds of layers whose weights rise


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a guess is replayed as and should come to; `epoch` is the one that was interpolated, if any."""

    client: Replay
    aim: Params
    epoch: int | None


@dataclass(frozen=True, kw_only=True)
class Match:
    """The loss of a guess: a sum over layers of weight times squared difference, in squares of `size`."""

    work: Work
    labels: Tensor  # [examples]
    layers: Sequence[Layer]
    ramp: tuple[float, ...]  # [layers]
    seen: Aim
    weights: Weights
    size: float
    undefined: Undefined

    def __call__(self, point: dict[str, Tensor]) -> Tensor:
        """The plain loss with the slope of the weighted one: the former can be compared between weights and steps.

        Weights are constants to the slope, although the guess decides which layers are enhanced.
        """
        update = self.work.client.update(point["inputs"], self.labels)
        parts = squares(update, self.work.aim)
        counts = self.tensor_weights(update)
        apart = torch.stack([parts[name] for name in counts]) / self.size**2
        weighted = (apart * apart.new_tensor(list(counts.values()))).sum()
        return weighted - weighted.detach() + apart.detach().sum()

    def ends(self) -> dict[str, float]:
        """The weight of the last layer of each kind that there is."""
        last = {layer.kind: weight for layer, weight in zip(self.layers, self.ramp, strict=True)}
        return {f"q_{kind}": last[kind] for kind in RAMPED if kind in last}

    def tensor_weights(self, update: Params) -> dict[str, float]:
        """The weight of every tensor at a guess with this update: by the ramp, or as enhanced (Eq. 24, 27)."""
        chosen = self.enhanced(update)
        return {
            name: self.weights.q_enhance if place in chosen else self.ramp[place]
            for place, layer in enumerate(self.layers)
            for name in layer.tensors
        }

    def enhanced(self, update: Params) -> frozenset[int]:
        """Places of the layers with the largest errors."""
        return furthest(
            update,
            self.seen,
            self.layers,
            mean_share=self.weights.p_mean,
            variance_share=self.weights.p_var,
            undefined=self.undefined,
        )


def work_of(view: View, observation: Observation, examples: int, batch_norm: BatchNorm, epoch: int) -> Work:
    """The whole round where it can be replayed, else the asked epoch of it."""
    client, aim = replayed(view, observation, examples, batch_norm)
    recipe = recipe_of(view, observation)
    assert recipe is not None
    if not order_is_unknown(recipe, examples):
        return Work(client=client, aim=aim, epoch=None)
    client, aim = one_epoch(client, aim, aim_of(observation, recipe), epoch)
    return Work(client=client, aim=aim, epoch=epoch)


def epoch_there(at: At, epoch: int) -> Need:
    """The epoch that is asked for, where one is interpolated."""

    def met(view: View) -> bool:
        if not view.of_target():  # another need tells of that
            return True
        recipe, examples = recipe_of(view, observation_at(view, at)), examples_behind(view, at)
        if recipe is None or examples is None or not order_is_unknown(recipe, examples):
            return True
        return epoch <= recipe.epochs

    return Need(what=f"a client of at least {epoch} epochs", given_by="a smaller epoch", met=met)


def match_of(
    view: View, work: Work, labels: Tensor, weights: Weights, size: float, undefined: Undefined
) -> Match:
    """The loss with these weights."""
    layers = layers_of(view.model, work.aim)
    ramp = ramps(layers, {kind: getattr(weights, f"q_{kind}") for kind in RAMPED})
    return Match(
        work=work,
        labels=labels,
        layers=layers,
        ramp=ramp,
        seen=aim_moments(work.aim, work.client.start, layers),
        weights=weights,
        size=size,
        undefined=undefined,
    )
