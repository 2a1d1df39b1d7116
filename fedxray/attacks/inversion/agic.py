"""Approximate Gradient Inversion, AGIC (Xu, Hong, Huang, Chen and Decouchant 2022, arXiv 2204.13784).

The local steps of a round are taken for one step on all their batches together:
    1. Take the labels as granted, or from a sub-attack. Draw inputs from N(0, 1).
    2. The update of a guess is one step on all inputs, as long as all the client's steps on a constant gradient.
    3. Descend on the sum over layers of weight * (1 - cosine of the layer's replayed and seen update), plus total
       variation. Weights rise linearly from 1 at the first convolution to their number at the last, and so for linear
       layers; others count once. Adam on the sign of the slope, as in inverting_gradients.py.
    4. With at = "all" the sum is over all rounds seen: the same records were trained on in each.
It holds while steps are small, and costs one step however many the client took.

There is no public code, and the weights are said to be chosen empirically: slopes, optimiser and total variation are
ours. optimiser = "adam" with total_variation = 0 is how paper 002 speaks of it. A combined batch would hold
every image once per epoch; since the client trains on the same images, they are sought once.

With match = "l2" the same weights count squared differences instead, in the given `unit`: the length of the
updates then tells too, which a cosine does not look at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Attack, Context, Need
from fedxray.attacks.evidence import Evidence, Kind, of_images
from fedxray.attacks.inversion.distance import cosine, squares
from fedxray.attacks.inversion.dlg import Unit, check_unit, first_tensor, unit_size
from fedxray.attacks.inversion.layer_weights import layers_of, ramps
from fedxray.attacks.inversion.problem import (
    Start,
    as_far_as_told,
    check_count,
    check_label_attack,
    check_start,
    check_weight,
    image_needs,
    into_the_box,
    labels_in_batches,
    replayed,
    shared_starts,
)
from fedxray.attacks.inversion.replay import BatchNorm, check_batch_norm
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.observations import observation_at
from fedxray.errors import unknown_name
from fedxray.optim import Adam, Method, SignedAdam, Stairs, restarts
from fedxray.params import Params
from fedxray.priors import total_variation

Part = Callable[[Tensor], Tensor]  # inputs [examples, ...] in, the distance of one round out
RISING = {"conv": None, "linear": None}  # up to the number of such layers


@dataclass(frozen=True, kw_only=True)
class Agic(Attack):
    """What did the training images look like? The whole round is taken for one step, later layers count more."""

    name: ClassVar[str] = "agic"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 120}
    adapts: ClassVar[bool] = True

    steps: int = 1000
    learning_rate: float = 0.1
    optimiser: Literal["signed", "adam"] = "signed"
    total_variation: float = 1e-4
    match: Literal["cosine", "l2"] = "cosine"
    unit: Unit = "rate"  # of squared differences
    restarts: int = 1
    start: Start = "normal"
    box: bool = True  # whether every step goes back into the range of valid inputs
    labels: Attack = field(default_factory=LabelsIdlg)  # used when the labels are not granted
    at: Literal["first", "last", "all"] = "first"
    batch_norm: BatchNorm = "batch"

    def __post_init__(self) -> None:
        """Check every setting."""
        self.method()
        check_unit(self.unit)
        check_start(self.start)
        check_batch_norm(self.batch_norm)
        check_weight("total_variation", self.total_variation)
        check_count("restarts", self.restarts)
        check_label_attack(self.labels)
        for setting, known in (("match", ("cosine", "l2")), ("at", ("first", "last", "all"))):
            if getattr(self, setting) not in known:
                raise unknown_name(setting, getattr(self, setting), known)

    def method(self) -> Method:
        """Adam on signs with falling steps, or plain Adam."""
        if self.optimiser not in ("signed", "adam"):
            raise unknown_name("optimiser", self.optimiser, ("signed", "adam"))
        if self.optimiser == "adam":
            return Adam(steps=self.steps, lr=self.learning_rate)
        return SignedAdam(steps=self.steps, lr=self.learning_rate, decay=Stairs())

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self._first(), self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        seen = view.of_target() if self.at == "all" else (observation_at(view, self.at),)
        labels, facts = labels_in_batches(view, context, self.labels, self._first())
        like = first_tensor(seen[0])
        labels = labels.to(like.device)
        parts = [self._part(view, one, labels) for one in seen]

        def loss(point: dict[str, Tensor]) -> Tensor:
            x = point["inputs"]
            apart = torch.stack([part(x) for part in parts]).sum()
            return apart + self.total_variation * total_variation(x) if self.total_variation else apart

        found = restarts(
            loss, shared_starts(view, like, len(labels), context, self.restarts, self.start), self.method(),
            report=context.report, project=into_the_box(view, like) if self.box else None, what=self.name,
        )  # fmt: skip
        end = found.outcome
        facts |= {"round": seen[0].round, "rounds": len(seen), "restart": found.chosen,
                  "own_loss": [one.best_loss for one in found.outcomes]}  # fmt: skip
        evidence = of_images(
            end.best["inputs"], labels, status=end.status, reason=end.reason, curve=end.curve, facts=facts
        )
        return as_far_as_told(view, seen[0], evidence)

    def _first(self) -> Literal["first", "last"]:
        return "first" if self.at == "all" else self.at

    def _part(self, view: View, observation: Observation, labels: Tensor) -> Part:
        """The weighted distance of one round."""
        client, aim = replayed(view, observation, len(labels), self.batch_norm, merged=True)
        layers = layers_of(view.model, aim)
        counts = ramps(layers, RISING)
        size = unit_size(self.unit, aim, view, observation)

        def part(x: Tensor) -> Tensor:
            update = client.update(x, labels)
            if self.match == "l2":
                squared = squares(update, aim)
                found = [
                    torch.stack([squared[name] for name in one.tensors]).sum() / size**2 for one in layers
                ]
            else:
                found = [cosine(_of(update, one.tensors), _of(aim, one.tensors)) for one in layers]
            apart = torch.stack(found)
            return (apart * apart.new_tensor(counts)).sum()

        return part


def _of(params: Params, names: tuple[str, ...]) -> dict[str, Tensor]:
    return {name: params[name] for name in names}
