"""Labels from the gradient of the last layer (iDLG, Zhao et al. 2020).

With cross-entropy the gradient of the last layer's row k is the mean over examples of (p_k - [label is k])
times the features, and that of its bias the same without the features. With a single example only the true
class is below zero in the bias; without a bias the true row is the one that points against all others (the
paper's rule). With two classes that rule is undecided, and the row sums are used, which are correct when features
are not negative, as after a ReLU or a sigmoid.

For N > 1 examples the paper has no rule. We take the usual extension: every class below zero holds at least one
example (the N lowest if there are more); the share of one example is subtracted from each such class, and then from the
lowest class again and again until N labels are assigned, so the counts always sum to N. That share follows from the
formula: an example contributes -1/N to the bias of its class, and -1/N times the sum of its features to the row, times
the factor of the gradients of the local steps (one gradient: 1; weights: by the recipe, which is why it is required).
The sum of features is estimated on random inputs, as Geng et al. 2021 do (last_layer.py). Without the recipe the share
is estimated as Wainakh et al. (2022) do: the sum of the classes below zero, times (1 + 1/classes), over N. The reason:
with nearly uniform predictions a single example leaves -(1 - 1/classes) of its share on its class, and nothing else is
below zero. Where many classes are present they offset each other, the share comes out too small, and the lowest classes
get too many. An update of FedAvg is read as the mean of its gradients; the network's predictions are ignored
(`labels-dlf` estimates them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Context, Need
from fedxray.attacks.evidence import Evidence, of_label_counts
from fedxray.attacks.labels import last_layer
from fedxray.attacks.labels.last_layer import LabelAttack
from fedxray.attacks.observations import examples_behind
from fedxray.models.inspect import head
from fedxray.settings import setting

SAMPLES = 3000  # random inputs that estimate the sum of features
NOTHING = "no class has a negative gradient in the last layer"


@dataclass(frozen=True, kw_only=True)
class LabelsIdlg(LabelAttack):
    """How many training examples of each class are there? From the signs of the last layer of one update."""

    name: ClassVar[str] = "labels-idlg"
    paper: ClassVar[str] = "zhao-2020"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")

    source: Literal["auto", "bias", "rows"] = setting(
        "auto", "Part of the last layer that is used: its bias, the rows of its weight, or the bias if it was sent."
    )

    def needs_of_counts(self) -> tuple[Need, ...]:
        """List what every attack on the last layer needs; for the bias form a bias."""
        needs = last_layer.needs_of_head(self.at)
        return (*needs, last_layer.head_bias('source = "rows"')) if self.source == "bias" else needs

    def counts(self, view: View, context: Context) -> Evidence:
        """Compute the signal of every class, then distribute N examples among them."""
        reply, examples = last_layer.mean_reply(view, self.at), examples_behind(view, self.at)
        assert examples is not None
        bias = None if self.source == "rows" else last_layer.bias_name(view)
        if self.source == "auto" and bias is not None and not reply.update[bias].any():
            bias = None  # it was not sent
        signal = -reply.update[bias or head(view.model).weight]
        if bias is None:
            signal = against_all_others(signal) if examples == 1 and len(signal) > 2 else signal.sum(1)
        scale = last_layer.scale_of(view, reply, examples) if examples > 1 else None
        if scale is not None and bias is None:
            dummies = last_layer.statistics_of(context, view, "start", SAMPLES, self.at)
            usable = dummies.clear and dummies.activation > 0
            scale = scale * float(dummies.activation) if usable else None
        facts = {"source": "rows" if bias is None else "bias", "scale_known": scale is not None,
                 "round": reply.round, "examples": examples}  # fmt: skip
        if not bool(torch.isfinite(signal).all() and (signal < 0).any()):
            doubt = NOTHING if bool(torch.isfinite(signal).all()) else ""
            return last_layer.evidence_of(signal, examples, facts, doubt)
        share = estimated_share(signal, examples) if scale is None else scale / examples
        return of_label_counts(share_out(signal, examples, share), facts=facts)


def against_all_others(rows: Tensor) -> Tensor:
    """Return inner products [classes] of each row [classes, features] with the sum of the others; lowest if true."""
    return rows @ rows.sum(0) - (rows * rows).sum(1)


def estimated_share(signal: Tensor, examples: int) -> float:
    """Return the share of one example in a signal [classes] of unknown scale, by the rule of Wainakh et al. (2022)."""
    return float(-signal.clamp(max=0).sum()) * (1 + 1 / len(signal)) / examples


def share_out(signal: Tensor, examples: int, share: float) -> Tensor:
    """Return counts [classes] that sum to `examples`; a lower signal [classes] means a more likely class."""
    left, counts = signal.clone(), torch.zeros_like(signal, dtype=torch.int64)
    lowest = signal.argsort(stable=True)[:examples]
    present = lowest[signal[lowest] < 0]
    counts[present] += 1
    left[present] += share
    for _ in range(examples - len(present)):
        place = left.argmin()
        counts[place] += 1
        left[place] += share
    return counts
