"""Local models without reconstruction: the global model, the last returned one, its extrapolation, and an oracle.

`local-model-extrapolate` is the obvious competitor of every reconstruction: a client pulls each model it is sent
towards its own optimum, so moving further along its mean update may land closer to it. Nothing that the server observes
determines how far to move in a network, so that is a setting; a far extrapolation can resemble the client's model by
its explanations and be useless as a model, so compare its loss too.

`local-model-oracle` (Model-w-O of Diana et al. 2025) trains on the client's records: an upper bound. Where we differ:
the paper runs Adam on mini-batches of 32 for 200 epochs with fifty settings, of which the training loss selects one; we
run it on all records at once from the first observed global model, select the smallest learning rate that does well in
a tenth of the steps, let it decay to zero, and keep the point with the lowest training loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import EVERYONE, Context, Need, global_models, granted
from fedxray.attacks.evidence import Evidence, of_model
from fedxray.attacks.local_model.messages import LocalModelAttack, last_of, returned
from fedxray.data.dataset import Records
from fedxray.federation.local import train_alone
from fedxray.optim import MOST_RATE
from fedxray.params import add, subtract, weighted_mean
from fedxray.settings import setting


@dataclass(frozen=True, kw_only=True)
class GlobalModel(LocalModelAttack):
    """The last observed global model: what every participant of the federation holds."""

    name: ClassVar[str] = "global-model"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ()
    requires: ClassVar[tuple[Need, ...]] = (global_models(),)
    reads: ClassVar[tuple[str, ...] | None] = ()
    controls: ClassVar[tuple[str, ...]] = ()

    def attack(self, view: View, context: Context) -> Evidence:
        """Return the global model of the latest round."""
        last = max(view.globals, key=lambda model: model.round)
        return of_model(last.params, last.buffers, facts={"round": last.round})


@dataclass(frozen=True, kw_only=True)
class LastReturned(LocalModelAttack):
    """The model that the target returned in the last observed round; for a gradient, one step of the recipe."""

    name: ClassVar[str] = "last-returned"
    paper: ClassVar[str] = "driouich-2022"

    def attack(self, view: View, context: Context) -> Evidence:
        """Return start plus update of the last observation."""
        last = last_of(view.of_target())
        return of_model(returned(view, last), last.buffers_after or last.buffers, facts={"round": last.round})


@dataclass(frozen=True, kw_only=True)
class LocalModelExtrapolate(LocalModelAttack):
    """Last returned model + multiple * mean of the last updates."""

    name: ClassVar[str] = "local-model-extrapolate"

    multiple: float = setting(
        1.0, "Number of mean updates by which the last returned model is moved on; 0 is `last-returned`."
    )
    over: int = setting(10, "Number of the latest updates in that mean.", least=1)

    def attack(self, view: View, context: Context) -> Evidence:
        """Move the last model along the mean of the latest updates."""
        seen = sorted(view.of_target(), key=lambda reply: reply.round)[-self.over :]
        pulls = [subtract(returned(view, reply), reply.start) for reply in seen]
        last = last_of(seen)
        model = add(returned(view, last), weighted_mean(pulls, [1.0] * len(pulls)), self.multiple)
        facts = {"round": last.round, "updates": len(pulls)}
        return of_model(model, last.buffers_after or last.buffers, facts=facts)


@dataclass(frozen=True, kw_only=True)
class LocalModelOracle(LocalModelAttack):
    """Adam on the client's own records: an upper bound."""

    name: ClassVar[str] = "local-model-oracle"
    paper: ClassVar[str] = "diana-2025"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("oracle-records",)
    requires: ClassVar[tuple[Need, ...]] = (granted("oracle-records"), global_models())
    reads: ClassVar[tuple[str, ...] | None] = ("oracle-records",)
    controls: ClassVar[tuple[str, ...]] = ()
    small: ClassVar[Mapping[str, Any]] = {"steps": 60, "rates": (0.01,)}

    steps: int = setting(1500, "Steps of Adam on the client's records.", least=1)
    rates: tuple[float, ...] = setting(
        (0.01, 0.1, 1.0, 10.0), "Learning rates to choose from.", above=0, most=MOST_RATE, fewest=1
    )
    betas: tuple[float, float] = setting((0.9, 0.999), "Decay rates of the two moments of Adam.", least=0, below=1)

    def attack(self, view: View, context: Context) -> Evidence:
        """Return the iterate of Adam with the lowest training loss."""
        records: Records = view.grants.oracle["oracle-records"]
        first = min(view.globals, key=lambda model: model.round)
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
        end = alone.outcome
        facts = {"loss": end.best_loss, "lr": alone.rate}
        return of_model(end.best, alone.buffers, status=end.status, reason=end.reason, curve=end.curve, facts=facts)
