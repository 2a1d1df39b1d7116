"""Labels from the gradient of the last layer (iDLG, Zhao et al. 2020).

With cross-entropy the gradient of the last layer's row k is the mean over examples of (p_k - [label is k])
times the features, and that of its bias the same without the features. With a single example only the true
class is below zero in the bias; without a bias the true row is the one that points against all others (the
paper's rule). With two classes that tells nothing, and the row sums are used, which are right when features
are not negative, as after a ReLU or a sigmoid.

With N > 1 examples the paper says nothing. We take the usual extension: every class below zero holds at
least one example (the N lowest if there are more); the share of one example is taken off each class found,
and then off the lowest class again and again until N labels are out, so the counts always sum to N. That
share is 1/N of the scale of the bias where the scale is known (one gradient, or a granted recipe). Elsewhere
it is the one that leaves the classes most even, as the p_k of a network that is not yet sure are. (The
published share, sum of those below zero / N, is too small once most classes are present: 43 % of 50 digits
wrong on an untrained network, against 8 % for the most even share and 3 % for the known scale. We settled on
the most even share after seeing these figures, on these same digits, so they flatter it; on other data it is
untried.) An update of FedAvg is read as one gradient, which it is only nearly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from fedxray.adversary.view import Observation, View
from fedxray.attacks.aim import At, check_at, examples_behind, known_examples, observation_at
from fedxray.attacks.base import Attack, Context, Need, any_update, classification
from fedxray.attacks.evidence import Evidence, Kind, of_label_counts
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.models.inspect import head

CANDIDATES = 60  # shares tried where the scale is unknown,
MOST_SHARE = 1.5  # from the smallest possible to it times ten to this power


@dataclass(frozen=True, kw_only=True)
class LabelsIdlg(Attack):
    """How many training examples of each class are there? Read off the last layer of one update."""

    name: ClassVar[str] = "labels-idlg"
    kind: ClassVar[Kind] = "labels"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("examples",)
    floors: ClassVar[tuple[str, ...]] = ("marginals",)
    controls: ClassVar[tuple[str, ...]] = ("other-client",)

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
        place = head(view.model)
        from_bias = self.source != "rows" and place.bias is not None
        signal = -observation.update[place.bias if from_bias and place.bias else place.weight]
        if not from_bias:
            signal = against_all_others(signal) if examples == 1 and len(signal) > 2 else signal.sum(1)
        scale = bias_scale(observation, view.grants.recipe, examples) if from_bias else None
        facts = {"source": "bias" if from_bias else "rows", "scale_known": scale is not None,
                 "round": observation.round, "examples": examples}  # fmt: skip
        if not bool((signal < 0).any()):
            spread = most_even(torch.zeros_like(signal), examples)
            return of_label_counts(
                spread, status="undetermined", reason="the last layer did not change", facts=facts
            )
        counts = (
            most_even(signal, examples) if scale is None else share_out(signal, examples, scale / examples)[0]
        )
        return of_label_counts(counts, facts=facts)


def bias_scale(observation: Observation, recipe: Recipe | None, examples: int) -> float | None:
    """What one gradient was multiplied by on its way into the update, where that is known."""
    if observation.kind == "gradient":
        return 1.0
    is_sum = observation.contributors is None or len(observation.contributors) > 1
    if recipe is None or (is_sum and recipe.algorithm != "fedsgd"):
        return None
    if recipe.algorithm == "fedsgd":
        return recipe.server_learning_rate * recipe.learning_rate  # the server took the step
    steps = range(1, recipe.steps(examples) + 1)
    pulled = sum((1 - recipe.momentum**step) / (1 - recipe.momentum) for step in steps)
    return recipe.learning_rate * pulled


def against_all_others(rows: Tensor) -> Tensor:
    """Inner product of every row [classes, features] with the sum of all others; lowest at the true class."""
    return rows @ rows.sum(0) - (rows * rows).sum(1)


def share_out(signal: Tensor, examples: int, share: float | Tensor) -> tuple[Tensor, Tensor]:
    """Counts that sum to `examples` and what is left of the signal, each [..., classes].

    The signal [classes] is lower the likelier a class is; several shares [candidates, 1] are tried side by side.
    """
    step = torch.as_tensor(share, dtype=signal.dtype, device=signal.device)
    left = signal.expand(*step.shape[:-1], len(signal)).clone()
    counts = torch.zeros_like(left, dtype=torch.int64)
    lowest = signal.argsort(stable=True)[:examples]
    found = lowest[signal[lowest] < 0]
    counts[..., found] += 1
    left[..., found] += step
    for _ in range(examples - len(found)):
        place = left.argmin(-1, keepdim=True)
        counts.scatter_add_(-1, place, torch.ones_like(place))
        left.scatter_add_(-1, place, step.expand(place.shape))
    return counts, left


def most_even(signal: Tensor, examples: int) -> Tensor:
    """Counts [classes] for the share, among candidates, that leaves the classes most even in its own measure."""
    least = (-signal.clamp(max=0).sum() / examples).clamp(min=torch.finfo(signal.dtype).tiny)
    steps = torch.linspace(0, MOST_SHARE, CANDIDATES, dtype=signal.dtype, device=signal.device)
    shares = least * 10 ** steps[:, None]
    counts, left = share_out(signal, examples, shares)
    best = int((left.std(-1) / shares[:, 0]).argmin())
    return counts[best]


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
