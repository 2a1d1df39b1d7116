"""The global model, taken for the client's: what everyone in the federation can do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import EVERYONE, Attack, Context, Need, global_models, granted, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_model
from fedxray.attacks.local_model.messages import last_of, returned
from fedxray.data.dataset import Records
from fedxray.errors import BadInput, check_whole
from fedxray.federation.train_alone import train_alone
from fedxray.optim import Adam, check_settings
from fedxray.params import add, subtract, weighted_mean


@dataclass(frozen=True, kw_only=True)
class GlobalModel(Attack):
    """The last global model that was seen."""

    name: ClassVar[str] = "global-model"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = (
        "server",
        "eavesdropper",
        "active-server",
        "curious-client",
        "secure-aggregation",
    )
    grants: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...] | None] = ()
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)

    def needs(self) -> tuple[Need, ...]:
        """A global model."""
        return (global_models(),)

    def attack(self, view: View, context: Context) -> Evidence:
        """The global model of the latest round."""
        last = max(view.globals, key=lambda one: one.round)
        return of_model(last.params, last.buffers, facts={"round": last.round})


# --- The client's last returned model, taken as it is for its local model (papers 000 and 003).


@dataclass(frozen=True, kw_only=True)
class LastReturned(Attack):
    """What the target sent back in the last round that was seen; of a gradient, one step of the recipe's size."""

    name: ClassVar[str] = "last-returned"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server")
    grants: ClassVar[tuple[str, ...]] = ("recipe",)
    reads: ClassVar[tuple[str, ...] | None] = ("recipe",)
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")

    def needs(self) -> tuple[Need, ...]:
        """The target's own replies."""
        return (single_replies(), step_size())

    def attack(self, view: View, context: Context) -> Evidence:
        """Start plus update of the last observation."""
        last = last_of(view.of_target())
        return of_model(returned(view, last), last.buffers_after or last.buffers, facts={"round": last.round})


def step_size() -> Need:
    """The learning rate, where a client sends a gradient and no model."""
    return Need(
        what="the learning rate, since the client sends a gradient",
        given_by='grants = ["recipe"]',
        met=lambda view: (
            view.grants.recipe is not None or all(one.kind == "weights" for one in view.of_target())
        ),
    )


# --- The client's last model moved on along her mean update: the obvious rival of every reconstruction.
#
# A client pulls each model she is sent towards her own optimum; so many pulls more may land nearer to it.
# `multiple = 0` is `last-returned`. Nothing the server sees says how far to go in a network, so it is a
# setting; a far extrapolation can look like the client by its explanations and be useless as a model, so
# read its loss beside any likeness.


@dataclass(frozen=True, kw_only=True)
class LocalModelExtrapolate(Attack):
    """Last returned model + multiple * mean of the last updates."""

    name: ClassVar[str] = "local-model-extrapolate"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server")
    grants: ClassVar[tuple[str, ...]] = ("recipe",)
    reads: ClassVar[tuple[str, ...] | None] = ("recipe",)
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")

    multiple: float = 1.0
    over: int = 10  # updates in the mean, the latest ones

    def __post_init__(self) -> None:
        """Check the settings."""
        if not math.isfinite(self.multiple):
            raise BadInput("multiple", expected="a finite number", got=self.multiple, remedy="Try 1.")
        check_whole("over", self.over, least=1, usual=10)

    def needs(self) -> tuple[Need, ...]:
        """The target's own replies."""
        return (single_replies(), step_size())

    def attack(self, view: View, context: Context) -> Evidence:
        """The last model and the mean of the latest updates."""
        seen = sorted(view.of_target(), key=lambda one: one.round)[-self.over :]
        pulls = [subtract(returned(view, one), one.start) for one in seen]
        last = last_of(seen)
        model = add(returned(view, last), weighted_mean(pulls, [1.0] * len(pulls)), self.multiple)
        facts = {"round": last.round, "updates": len(pulls)}
        return of_model(model, last.buffers_after or last.buffers, facts=facts)


# --- The local model of an adversary who holds the client's records: an upper bound (Model-w-O of paper
# 003).
#
# Where we differ: the paper runs Adam on mini-batches of 32 for 200 epochs and draws fifty settings, of
# which the training loss picks one; we run it on all records at once from the first global model that was
# seen, pick the smallest step size that does well in a tenth of the steps, let it fall to nothing, and keep
# the point of least training loss.


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
