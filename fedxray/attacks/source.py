"""Source inference (Hu et al. 2021; as in Driouich et al.): which client does a record belong to? The best-fitting one.

Controls: held-out records of the same clients, on which no client trained (inferred equally well, they show that the
models reveal the clients' distributions, not which records they were trained on), and every client's messages exchanged
for the next one's. With the grant `oracle-groups` and a model that is fitted to a client's own records it is an oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import Grants, Observation, SourceRecords, View
from fedxray.attacks.base import SINGLE_REPLIES, Attack, Context, Need, granted, single_replies
from fedxray.attacks.evidence import Evidence, Kind, model_params, of_sources
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.attacks.local_model.messages import returned, step_size
from fedxray.losses import example_loss, losses
from fedxray.params import Params
from fedxray.seeds import derive_seed
from fedxray.settings import setting

TIES = 2**31  # seeds of a record that pick among clients that fit equally well
LITTLE = 1e-6  # weight of a rank beside votes


class SourceAttack(Attack):
    """Base of attacks that assign records to clients."""

    kind: ClassVar[Kind] = "sources"
    paper: ClassVar[str] = "hu-2021"
    roles: ClassVar[tuple[str, ...]] = SINGLE_REPLIES
    grants: ClassVar[tuple[str, ...]] = ("source-records",)
    floors: ClassVar[tuple[str, ...]] = ("chance", "owner-share")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")


@dataclass(frozen=True, kw_only=True)
class SourceMajority(SourceAttack):
    """Which client does each record belong to? The one whose returned model fits it best in most rounds."""

    name: ClassVar[str] = "source-majority"
    grants: ClassVar[tuple[str, ...]] = ("source-records", "recipe")

    def needs(self) -> tuple[Need, ...]:
        """List the records in question, and separate replies of several clients."""
        return (granted("source-records"), rivals(), *_for_everyone((step_size(),)))

    def attack(self, view: View, context: Context) -> Evidence:
        """Return the client with most votes, one vote per round and record."""
        rounds, asked = rounds_of_rivals(view), view.grants.source_records
        assert asked is not None
        misfits = votes_against(torch.stack([_round_losses(view, seen, asked) for seen in rounds]))
        return best_fitting(view, misfits, rounds=len(rounds))


@dataclass(frozen=True, kw_only=True)
class SourceFromModel(SourceAttack):
    """Which client does each record belong to? The one whose reconstructed local model fits it best."""

    name: ClassVar[str] = "source-from-model"

    model: Attack = setting(LastReturned, "Attack whose model is used as the client's.")

    def needs(self) -> tuple[Need, ...]:
        """List the records in question, and for every client the needs of the attack on the model."""
        return (granted("source-records"), several_clients(), *_for_everyone(self.model.needs()))

    def attack(self, view: View, context: Context) -> Evidence:
        """Return the client whose model has the lowest loss."""
        asked = view.grants.source_records
        assert asked is not None
        models = [model_params(context.run(self.model, about(view, client))) for client in view.clients]
        fits = torch.stack([_losses(view, *model, asked) for model in models], 1)
        return best_fitting(view, fits.nan_to_num(torch.inf, torch.inf))


def best_fitting(view: View, misfits: Tensor, **facts: Any) -> Evidence:
    """Return the client of lowest misfit [records, clients] for every record, as evidence.

    Of clients that fit equally well the record's content picks one: the first would gain records that saturate a loss.
    """
    asked = view.grants.source_records
    assert asked is not None
    lowest = misfits == misfits.amin(1, keepdim=True)
    lowest = torch.where(lowest.any(1, keepdim=True), lowest, True)  # NaN fits no client better
    drawn = torch.tensor([derive_seed(0, "tie", row) % TIES for row in asked.x], device=misfits.device)
    picked = drawn % lowest.sum(1)  # which of those that are tied
    place = ((lowest.cumsum(1) == picked[:, None] + 1) & lowest).int().argmax(1)
    return of_sources(torch.tensor(view.clients, device=misfits.device)[place], facts=facts)


def votes_against(fits: Tensor) -> Tensor:
    """Return the misfit of each client [records, clients] to losses [rounds, records, clients]; inf for no reply.

    It is minus its number of rounds with the lowest loss, which clients that tie share; equal numbers go to the lower
    mean loss over the rounds that a client took part in. NaN counts as the largest loss.
    """
    took_part = (fits != torch.inf).any(1)  # [rounds, clients]
    worst = torch.finfo(fits.dtype).max / len(fits)  # finite, so that a mean of it still beats no vote
    fits = fits.nan_to_num(worst, worst)
    lowest = (fits == fits.amin(-1, keepdim=True)).double()
    votes = (lowest / lowest.sum(-1, keepdim=True)).sum(0)  # [records, clients]
    mean = torch.where(took_part[:, None], fits, 0.0).sum(0) / took_part.sum(0)
    above = mean[:, :, None] > mean[:, None]  # [records, clients, clients]
    rank = above.sum(-1) + (mean[:, :, None] == mean[:, None]).sum(-1) / 2
    return rank * LITTLE / fits.shape[-1] - votes


def rounds_of_rivals(view: View) -> list[list[Observation]]:
    """Return the single replies of every round with those of two clients or more."""
    by_round: dict[int, list[Observation]] = {}
    for reply in view.observations:
        if reply.contributors is not None and len(reply.contributors) == 1:
            by_round.setdefault(reply.round, []).append(reply)
    return [seen for _, seen in sorted(by_round.items()) if len(seen) > 1]


def several_clients() -> Need:
    """Return the need of single replies of two clients or more."""
    what = "replies of two clients or more, each alone"
    return replace(single_replies(), what=what, met=lambda view: len(view.clients) > 1)


def rivals() -> Need:
    """Return the need of single replies of two clients or more in one round."""
    what = "replies of two clients or more in one round, each alone"
    return replace(single_replies(), what=what, met=lambda view: bool(rounds_of_rivals(view)))


def about(view: View, client: int) -> View:
    """Return the view of the same role with another target, and only those grants that hold for all clients.

    Of an oracle that holds every client's records they are that client's.
    """
    grants, groups = view.grants, view.grants.oracle.get("oracle-groups")
    names = tuple(name for name in grants.names if name in ("recipe", "defence"))
    own = {} if groups is None else {"oracle-records": groups[client]}
    shared = Grants(names=(*names, *own), recipe=grants.recipe, defence=grants.defence, oracle=own)
    return replace(view, target=client, grants=shared)


def _for_everyone(needs: Sequence[Need]) -> tuple[Need, ...]:
    """Return the needs, for each client with observed replies."""

    def met(need: Need) -> Callable[[View], bool]:
        return lambda view: all(need.met(about(view, client)) for client in view.clients)

    return tuple(replace(need, met=met(need)) for need in needs)


def _round_losses(view: View, seen: Sequence[Observation], records: SourceRecords) -> Tensor:
    """Return losses of the models returned in one round [records, clients], inf for clients that took no part."""
    by_client = {
        reply.contributors: _losses(view, returned(view, reply), reply.buffers_after or reply.buffers, records)
        for reply in seen
    }
    absent = torch.full_like(next(iter(by_client.values())), torch.inf)
    return torch.stack([by_client.get((client,), absent) for client in view.clients], 1)


def _losses(view: View, params: Params, buffers: Params, records: SourceRecords) -> Tensor:
    return losses(view.network, params, buffers, records.x, records.y, example_loss(view.loss))
