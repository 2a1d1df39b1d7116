"""Labels from the gradient of the last layer (iDLG, Zhao et al. 2020).

With cross-entropy the gradient of the last layer's row k is the mean over examples of (p_k - [label is k])
times the features, and that of its bias the same without the features. With a single example only the true
class is below zero in the bias; without a bias the true row is the one that points against all others (the
paper's rule). With two classes that tells nothing, and the row sums are used, which are right when features
are not negative, as after a ReLU or a sigmoid.

With N > 1 examples the paper says nothing. We take the usual extension: every class below zero holds at
least one example (the N lowest if there are more); the mean share of one example is m = (sum of those below
zero) / N; it is taken off each class found, and then off the lowest class again and again until N labels
are out. So the counts always sum to N. The rule does not change with the scale of the signal: a FedAvg
update serves as it is, whatever the learning rate and the number of steps. It is read as one gradient,
which it is only nearly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fedxray.adversary.view import View
from fedxray.attacks.aim import At, check_at, examples_behind, known_examples, observation_at
from fedxray.attacks.base import Attack, Context, Need, any_update, classification
from fedxray.attacks.evidence import Evidence, Kind, of_label_counts
from fedxray.errors import BadInput
from fedxray.models.inspect import head
from fedxray.params import Params

Source = Literal["bias", "rows"]


@dataclass(frozen=True, kw_only=True)
class LabelsIdlg(Attack):
    """How many examples of each class stand behind an update, from the last layer alone."""

    name: ClassVar[str] = "labels-idlg"
    kind: ClassVar[Kind] = "labels"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("examples",)
    floors: ClassVar[tuple[str, ...]] = ("marginals",)
    controls: ClassVar[tuple[str, ...]] = ("other-client",)
    small: ClassVar[Mapping[str, Any]] = {}

    source: Literal["auto", "bias", "rows"] = "auto"  # auto: the bias where the head has one
    at: At = "first"

    def __post_init__(self) -> None:
        """Check every setting."""
        check_at(self.at)
        if self.source not in ("auto", "bias", "rows"):
            raise BadInput(
                "source", expected='"auto", "bias" or "rows"', got=repr(self.source), remedy='Try "auto".'
            )

    def needs(self) -> tuple[Need, ...]:
        """An update that holds a linear head trained with cross-entropy, and how many examples made it."""
        needs = (any_update(), classification(), known_examples(self.at), _linear_head())
        return (*needs, _head_bias()) if self.source == "bias" else needs

    def attack(self, view: View, context: Context) -> Evidence:
        """Read the signal of every class, then share N examples out among them."""
        observation, examples = observation_at(view, self.at), examples_behind(view, self.at)
        assert examples is not None
        signal, source = self._signal(view.model, observation.update, examples)
        facts = {"source": source, "round": observation.round, "examples": examples}
        if not bool((signal < 0).any()):
            counts = torch.full_like(signal, 0, dtype=torch.int64) + examples // len(signal)
            counts[: examples % len(signal)] += 1
            return of_label_counts(
                counts, status="undetermined", reason="the last layer did not change", facts=facts
            )
        return of_label_counts(share_out(signal, examples), facts=facts)

    def _signal(self, model: nn.Module, update: Params, examples: int) -> tuple[Tensor, Source]:
        """One number per class, the lower the likelier, and where it was read: shape [classes]."""
        place = head(model)
        if self.source != "rows" and place.bias is not None:
            return -update[place.bias], "bias"
        rows = -update[place.weight]
        return (against_all_others(rows) if examples == 1 and len(rows) > 2 else rows.sum(1)), "rows"


def against_all_others(rows: Tensor) -> Tensor:
    """Inner product of every row [classes, features] with the sum of all others; lowest at the true class."""
    return rows @ rows.sum(0) - (rows * rows).sum(1)


def share_out(signal: Tensor, examples: int) -> Tensor:
    """Counts [classes] that sum to `examples`, from a signal [classes] that is lower the likelier a class."""
    left = signal.clone()
    counts = torch.zeros_like(signal, dtype=torch.int64)
    found = [place for place in torch.argsort(signal, stable=True).tolist() if signal[place] < 0][:examples]
    share = signal[found].sum() / examples
    for place in found:
        counts[place] += 1
        left[place] -= share
    for _ in range(examples - len(found)):
        lowest = int(left.argmin())
        counts[lowest] += 1
        left[lowest] -= share
    return counts


def _linear_head() -> Need:
    return Need(
        what="a linear last layer, one output per class, trained with cross-entropy and part of the update",
        given_by="a network that ends in an nn.Linear",
        met=lambda view: view.loss == "cross-entropy" and _ends_linear(view.model, view.space.outputs)
        and all(head(view.model).weight in one.update for one in view.of_target()),
    )  # fmt: skip


def _head_bias() -> Need:
    return Need(
        what="a bias in the last layer",
        given_by='a network whose head has one, or source = "rows"',
        met=lambda view: head(view.model).bias is not None,
    )


def _ends_linear(model: nn.Module, outputs: int) -> bool:
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    return bool(layers) and layers[-1].out_features == outputs
