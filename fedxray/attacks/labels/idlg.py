"""Labels from the gradient of the last layer (iDLG, Zhao et al. 2020).

With cross-entropy the gradient of the last layer's row k is the mean over examples of (p_k - [label is k])
times the features, and that of its bias the same without the features. With a single example only the true
class is below zero in the bias; without a bias the true row is the one that points against all others (the
paper's rule). With two classes that tells nothing, and the row sums are used, which are right when features
are not negative, as after a ReLU or a sigmoid.

With N > 1 examples the paper says nothing. We take the usual extension: every class below zero holds at
least one example (the N lowest if there are more); the share of one example is taken off each class found,
and then off the lowest class again and again until N labels are out, so the counts always sum to N.
That share follows from the formula: an example puts -1/N on the bias of its class, and -1/N times the sum of its
features on the row, times what the gradients of the local steps were multiplied by (one gradient: 1; weights: by
the recipe, which is why it is asked for). The sum of features is taken from inputs that mean nothing, as Geng et
al. do (dummies.py). Without the recipe the share is estimated as Wainakh et al. (2022) do: the sum of the
classes below zero, times (1 + 1/classes), over N. The reason: with nearly even predictions a single example
leaves -(1 - 1/classes) of its share on its class, and nothing else is below zero. Where many classes are present
they offset each other, the share comes out too small, and the lowest classes get too many. An update of FedAvg
is read as the mean of its gradients; what the network predicts is left out (`labels-dlf` estimates it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, any_update, classification
from fedxray.attacks.evidence import Evidence, Kind, of_label_counts
from fedxray.attacks.labels.last_layer import (
    bias_name,
    evidence_of,
    head_bias,
    linear_head,
    mean_reply,
    scale_of,
    statistics_of,
)
from fedxray.attacks.observations import At, check_at, examples_behind, known_examples
from fedxray.errors import BadInput
from fedxray.models.inspect import head

SAMPLES = 3000  # inputs that mean nothing, for the sum of features
NOTHING = "no class gained anything in the last layer"


@dataclass(frozen=True, kw_only=True)
class LabelsIdlg(Attack):
    """How many training examples of each class are there? Read off the last layer of one update."""

    name: ClassVar[str] = "labels-idlg"
    kind: ClassVar[Kind] = "labels"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
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
        needs = (any_update(), classification(), known_examples(self.at), linear_head())
        return (*needs, head_bias('source = "rows"')) if self.source == "bias" else needs

    def attack(self, view: View, context: Context) -> Evidence:
        """Read the signal of every class, then share N examples out among them."""
        reply, examples = mean_reply(view, self.at), examples_behind(view, self.at)
        assert examples is not None
        bias = None if self.source == "rows" else bias_name(view)
        signal = -reply.update[bias or head(view.model).weight]
        if bias is None:
            signal = against_all_others(signal) if examples == 1 and len(signal) > 2 else signal.sum(1)
        scale = scale_of(view, reply, examples) if examples > 1 else None
        if scale is not None and bias is None:
            told = statistics_of(context, view, "start", SAMPLES, self.at)
            scale = scale * float(told.activation) if told.clear and told.activation > 0 else None
        facts = {"source": "rows" if bias is None else "bias", "scale_known": scale is not None,
                 "round": reply.round, "examples": examples}  # fmt: skip
        if not bool(torch.isfinite(signal).all() and (signal < 0).any()):
            doubt = NOTHING if bool(torch.isfinite(signal).all()) else ""
            return evidence_of(signal, examples, facts, doubt)
        share = estimated_share(signal, examples) if scale is None else scale / examples
        return of_label_counts(share_out(signal, examples, share), facts=facts)


def against_all_others(rows: Tensor) -> Tensor:
    """Inner product of every row [classes, features] with the sum of all others; lowest at the true class."""
    return rows @ rows.sum(0) - (rows * rows).sum(1)


def estimated_share(signal: Tensor, examples: int) -> float:
    """The share of one example in a signal [classes] of unknown scale, by the rule of Wainakh et al."""
    return float(-signal.clamp(max=0).sum()) * (1 + 1 / len(signal)) / examples


def share_out(signal: Tensor, examples: int, share: float) -> Tensor:
    """Counts [classes] that sum to `examples`; the signal [classes] is lower the likelier a class is."""
    left, counts = signal.clone(), torch.zeros_like(signal, dtype=torch.int64)
    lowest = signal.argsort(stable=True)[:examples]
    found = lowest[signal[lowest] < 0]
    counts[found] += 1
    left[found] += share
    for _ in range(examples - len(found)):
        place = left.argmin()
        counts[place] += 1
        left[place] += share
    return counts
