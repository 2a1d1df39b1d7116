"""The local model of an adversary who holds the client's records: an upper bound (Model-w-O of paper 003).

Where we differ: the paper runs Adam on mini-batches of 32 for 200 epochs and draws fifty settings, of which
the training loss picks one; we run it on all records at once from the first global model that was seen, pick
the smallest step size that does well in a tenth of the steps, let it fall to nothing, and keep the point of
least training loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, global_models, granted
from fedxray.attacks.evidence import Evidence, Kind, of_model
from fedxray.attacks.methods import Adam, Cosine, check_settings
from fedxray.attacks.minimise import Loss, minimise
from fedxray.data.records import Records
from fedxray.federation.local import Batch, Objective, objective
from fedxray.params import Params, each

ALMOST = 0.05  # of the way down that a smaller step size may lack
PASSES = 50  # over all records, after which running statistics have settled


@dataclass(frozen=True, kw_only=True)
class LocalModelOracle(Attack):
    """Adam on the client's own records."""

    name: ClassVar[str] = "local-model-oracle"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = (
        "server",
        "eavesdropper",
        "active-server",
        "curious-client",
        "secure-aggregation",
    )
    grants: ClassVar[tuple[str, ...]] = ("oracle-records",)
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)
    small: ClassVar[Mapping[str, Any]] = {"steps": 60, "rates": (0.01,)}

    steps: int = 1500
    rates: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)  # step sizes to choose from
    betas: tuple[float, float] = (0.9, 0.999)

    def __post_init__(self) -> None:
        """Check the settings."""
        for rate in self.rates or (0.0,):
            check_settings(Adam(steps=self.steps, lr=rate))

    def needs(self) -> tuple[Need, ...]:
        """The client's records, and a model to start from."""
        return (granted("oracle-records"), global_models())

    def attack(self, view: View, context: Context) -> Evidence:
        """The parameters of least training loss on the way of Adam."""
        records: Records = view.grants.oracle["oracle-records"]
        first = min(view.globals, key=lambda one: one.round)
        evaluate, batch = objective(view.model, view.loss), Batch(x=records.x, y=records.y)

        def loss(params: dict[str, Tensor]) -> Tensor:
            return evaluate(params, first.buffers, batch)[0]

        with torch.random.fork_rng(devices=[]):  # dropout draws from the ambient generator; keep that inside
            torch.manual_seed(context.generator.initial_seed())
            rate = self._best_rate(loss, first.params)
            method = Adam(steps=self.steps, lr=rate, betas=self.betas, decay=Cosine())
            found = minimise(loss, first.params, method, report=context.report, what="local optimum")
            buffers = settled(evaluate, found.best, first.buffers, batch)
        return of_model(
            found.best,
            buffers,
            status=found.status,
            reason=found.reason,
            curve=found.curve,
            facts={"loss": found.best_loss, "lr": rate},
        )

    def _best_rate(self, loss: Loss, start: Params) -> float:
        """The smallest step size that a tenth of the steps take almost as far down as the best one."""
        if len(self.rates) == 1:
            return self.rates[0]
        short = [
            Adam(steps=max(1, self.steps // 10), lr=rate, betas=self.betas) for rate in sorted(self.rates)
        ]
        tried = [minimise(loss, start, method) for method in short]
        least, first = min(one.best_loss for one in tried), tried[0].curve[0]
        near = [one.best_loss - least <= ALMOST * (first - least) for one in tried]
        return short[near.index(True)].lr if any(near) else short[0].lr


def settled(evaluate: Objective, params: Params, buffers: Params, batch: Batch) -> dict[str, Tensor]:
    """The running statistics of a model that has seen these records long enough."""
    held = dict(buffers)
    for _ in range(PASSES if held else 0):
        with torch.no_grad():
            held = each(torch.detach, evaluate(params, held, batch)[1])
    return held
