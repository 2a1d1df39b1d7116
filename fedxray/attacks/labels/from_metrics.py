"""Label counts from the loss and accuracy that a client reports in the clear, also under secure aggregation (ours).

A client reports the mean loss of the model that it was sent, over its own records, before it trains; metrics of the
model that it returns mislead the attack. With e_tc the mean loss of class c under the model of round t, estimated on
public records, and q the client's share of each class,
    loss_t = sum_c q_c e_tc + noise,     noise ~ N(0, v_t / n),
v_t the variance of the loss within a class and n the client's number of examples; the same holds for accuracy. While a
model gives one class to every record, its accuracy is that class's share exactly. With p the public shares, q - p is
estimated by least squares over all rounds and both metrics, with a ridge; negative shares become zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call

from fedxray.adversary.view import ObservedModel, View
from fedxray.attacks.base import Attack, Context, Need, classification, global_models, granted, public_records
from fedxray.attacks.evidence import Evidence, Kind, of_label_counts
from fedxray.attacks.floors import expected_counts, rounded_to
from fedxray.losses import example_loss, losses
from fedxray.settings import setting

LEAST_VARIANCE = 1e-4  # of the loss or accuracy within a class


@dataclass(frozen=True, kw_only=True)
class LabelsFromMetrics(Attack):
    """How many training examples of each class are there? From the client's loss and accuracy before it trains."""

    name: ClassVar[str] = "labels-from-metrics"
    kind: ClassVar[Kind] = "labels"
    roles: ClassVar[tuple[str, ...]] = ("secure-aggregation", "server", "active-server")
    grants: ClassVar[tuple[str, ...]] = ("metrics", "examples", "public-records")
    requires: ClassVar[tuple[Need, ...]] = (
        classification(), granted("metrics"), granted("examples"), public_records(), global_models(),
    )  # fmt: skip
    floors: ClassVar[tuple[str, ...]] = ("marginals",)
    by_reports: ClassVar[bool] = True

    ridge: float = setting(10.0, "Weight of the public shares beside what is reported.", above=0)

    def attack(self, view: View, context: Context) -> Evidence:
        """Return the counts that explain what the client reported."""
        reported, count = view.grants.metrics, view.grants.examples
        assert reported is not None and count is not None
        prior = expected_counts(view, 1).double()
        rows, seen = [], []
        for model in view.globals:
            of_round = expected(view, model, prior)
            for name, value in reported.get(model.round, {}).items():
                if name not in of_round:
                    continue
                by_class, variance = of_round[name]
                scale = (variance / max(count, 1)) ** 0.5
                rows.append((by_class - by_class @ prior) / scale)
                seen.append((value - float(by_class @ prior)) / scale)
        if not rows or not all(map(math.isfinite, seen)):
            reason = "no finite loss or accuracy was reported for a model that was seen"
            return of_label_counts(rounded_to(prior * count, count), status="undetermined", reason=reason)
        slopes = torch.stack(rows)
        bend = slopes.T @ slopes + self.ridge * torch.eye(len(prior), dtype=prior.dtype, device=prior.device)
        shares = (prior + torch.linalg.solve(bend, slopes.T @ slopes.new_tensor(seen))).clamp(min=0)
        shares = shares / shares.sum() if float(shares.sum()) > 0 else prior
        return of_label_counts(rounded_to(shares * count, count), facts={"reported": len(seen)})


def expected(view: View, model: ObservedModel, shares: Tensor) -> Mapping[str, tuple[Tensor, float]]:
    """Return by metric the mean of each class [classes] under a model on public records, and the variance within."""
    public = view.grants.public_records
    assert public is not None
    loss = losses(view.network, model.params, model.buffers, public.x, public.y, example_loss(view.loss)).double()
    with torch.no_grad():
        output = functional_call(view.network, {**model.params, **model.buffers}, (public.x,))
    values = {"loss": loss, "accuracy": (output.argmax(1) == public.y).double()}
    return {name: _by_class(value, public.y, shares) for name, value in values.items()}


def _by_class(values: Tensor, y: Tensor, shares: Tensor) -> tuple[Tensor, float]:
    """Return the mean of each class, of one without records that of all, and the mean variance within classes."""
    means = torch.stack([values[y == c].mean() if bool((y == c).any()) else values.mean() for c in range(len(shares))])
    return means, max(LEAST_VARIANCE, float((values - means[y]).square().mean()))
