"""Source inference (Hu et al. 2021; as in paper 000): whose record is it? The client's whose model fits it best.

Controls: held-out records of the same clients, which nobody trained on (told as well, they show that the models give
away what their clients are like, not which records they saw), and every client's messages taken for the next one's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import Grants, Observation, View
from fedxray.attacks.base import Attack, Context, Need, granted
from fedxray.attacks.evidence import Evidence, Kind, model_params, of_sources
from fedxray.attacks.local_model.baselines import LastReturned, step_size
from fedxray.attacks.local_model.messages import returned
from fedxray.attacks.predict import losses
from fedxray.losses import example_loss
from fedxray.params import Params

SEATS = ("server", "eavesdropper", "active-server")


@dataclass(frozen=True, kw_only=True)
class SourceMajority(Attack):
    """Whose is each record? The client whose returned model fits it best in most rounds."""

    name: ClassVar[str] = "source-majority"
    kind: ClassVar[Kind] = "sources"
    roles: ClassVar[tuple[str, ...]] = SEATS
    grants: ClassVar[tuple[str, ...]] = ("source-records", "recipe")
    floors: ClassVar[tuple[str, ...]] = ("chance", "owner-share")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")

    def needs(self) -> tuple[Need, ...]:
        """The records in question, and replies that can be told apart."""
        return (granted("source-records"), rivals(), *_for_everyone((step_size(),)))

    def attack(self, view: View, context: Context) -> Evidence:
        """One vote per round and record."""
        rounds = rounds_of_rivals(view)
        fits = torch.stack([_round_losses(view, seen) for seen in rounds])
        return of_sources(_named(view, majority(fits)), facts={"rounds": len(rounds)})


@dataclass(frozen=True, kw_only=True)
class SourceFromModel(Attack):
    """Whose is each record? The client whose reconstructed local model fits it best."""

    name: ClassVar[str] = "source-from-model"
    kind: ClassVar[Kind] = "sources"
    roles: ClassVar[tuple[str, ...]] = SEATS
    grants: ClassVar[tuple[str, ...]] = ("source-records",)
    floors: ClassVar[tuple[str, ...]] = ("chance", "owner-share")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")

    model: Attack = field(default_factory=LastReturned)

    def needs(self) -> tuple[Need, ...]:
        """The records in question, and for every client whatever the model's reconstruction needs."""
        return (granted("source-records"), several_clients(), *_for_everyone(self.model.needs()))

    def attack(self, view: View, context: Context) -> Evidence:
        """The least loss over the clients' models."""
        models = [model_params(context.run(self.model, about(view, client))) for client in view.clients]
        fits = torch.stack([_losses(view, *model) for model in models], 1)
        return of_sources(_named(view, majority(fits[None])))


def majority(fits: Tensor) -> Tensor:
    """The column of least loss in most rounds, of losses [rounds, records, clients] with inf where none is known.

    Ties go to the lower mean loss over the rounds a client took part in; a loss that is NaN is as bad as can be.
    """
    took_part = (fits != torch.inf).any(1)  # [rounds, clients]
    worst = torch.finfo(fits.dtype).max / len(fits)  # finite, so that a mean of it still beats no vote
    fits = fits.nan_to_num(worst, worst)
    votes = torch.nn.functional.one_hot(fits.argmin(-1), fits.shape[-1]).sum(0)  # [records, clients]
    mean = torch.where(took_part[:, None], fits, 0.0).sum(0) / took_part.sum(0)
    return torch.where(votes == votes.amax(-1, keepdim=True), mean, torch.inf).argmin(-1)


def rounds_of_rivals(view: View) -> list[list[Observation]]:
    """The single replies of every round that has those of two clients or more."""
    by_round: dict[int, list[Observation]] = {}
    for one in view.observations:
        if one.contributors is not None and len(one.contributors) == 1:
            by_round.setdefault(one.round, []).append(one)
    return [seen for _, seen in sorted(by_round.items()) if len(seen) > 1]


def several_clients() -> Need:
    """Single replies of two clients or more."""
    return Need(
        what="replies of two clients or more, each alone",
        given_by="role server, eavesdropper or active-server without secure aggregation",
        met=lambda view: len(view.clients) > 1,
    )


def rivals() -> Need:
    """Single replies of two clients or more in one round."""
    return Need(
        what="replies of two clients or more in one round, each alone",
        given_by="role server, eavesdropper or active-server without secure aggregation",
        met=lambda view: bool(rounds_of_rivals(view)),
    )


def about(view: View, client: int) -> View:
    """The same seat asking about another client, with only those grants that hold for all of them."""
    told = view.grants
    names = tuple(name for name in told.names if name in ("recipe", "defence"))
    return replace(view, target=client, grants=Grants(names=names, recipe=told.recipe, defence=told.defence))


def _for_everyone(needs: Sequence[Need]) -> tuple[Need, ...]:
    """The same needs, for each client whose replies were seen."""

    def met(need: Need) -> Callable[[View], bool]:
        return lambda view: all(need.met(about(view, client)) for client in view.clients)

    return tuple(replace(need, met=met(need)) for need in needs)


def _round_losses(view: View, seen: Sequence[Observation]) -> Tensor:
    """Losses under the models returned in one round, shape [records, clients], inf for clients that took no part."""
    found = {
        one.contributors: _losses(view, returned(view, one), one.buffers_after or one.buffers) for one in seen
    }
    absent = torch.full_like(next(iter(found.values())), torch.inf)
    return torch.stack([found.get((client,), absent) for client in view.clients], 1)


def _losses(view: View, params: Params, buffers: Params) -> Tensor:
    records = view.grants.source_records
    assert records is not None
    return losses(view.model, params, buffers, records.x, records.y, example_loss(view.loss))


def _named(view: View, columns: Tensor) -> Tensor:
    """The clients behind these columns, shape [records]."""
    return torch.tensor(view.clients, device=columns.device)[columns]
