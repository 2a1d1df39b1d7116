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

from fedxray.adversary.view import View
from fedxray.attacks.base import EVERYONE, Attack, Context, Need, global_models, granted
from fedxray.attacks.evidence import Evidence, Kind, of_model
from fedxray.data.records import Records
from fedxray.federation.alone import train_alone
from fedxray.methods import Adam, check_settings


@dataclass(frozen=True, kw_only=True)
class LocalModelOracle(Attack):
    """Adam on the client's own records."""

    name: ClassVar[str] = "local-model-oracle"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("oracle-records",)
    reads: ClassVar[tuple[str, ...] | None] = ("oracle-records",)
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
        alone = train_alone(
            view.model,
            view.loss,
            records,
            first.params,
            first.buffers,
            steps=self.steps,
            rates=self.rates,
            betas=self.betas,
            generator=context.generator,
            report=context.report,
        )
        found = alone.outcome
        return of_model(
            found.best,
            alone.buffers,
            status=found.status,
            reason=found.reason,
            curve=found.curve,
            facts={"loss": found.best_loss, "lr": alone.rate},
        )
