"""How far off it is to take all clients behind a sum for one (paper 004, Lemma 1), said before anything is attacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor, nn
from torch.func import functional_call

from fedxray.audit.cases import is_about_everyone
from fedxray.audit.plan import AttackPart, Plan
from fedxray.audit.prepare import Prepared
from fedxray.data.records import Records, union
from fedxray.defences.base import NoDefence
from fedxray.federation.local import in_train_mode
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import Federation, simulate
from fedxray.losses import example_loss
from fedxray.params import Params, buffers_of, norm, parameters_of, subtract
from fedxray.theory.super_client import leading_divergence

MOST_STEPS = 2_000_000  # local steps times examples of a round: more would not be a quick word beforehand
READS_SUMS = "curious-client"


@dataclass(frozen=True, kw_only=True)
class Off:
    """The distance of the clients' mean update from that of one client with all records, as a share of the latter."""

    clients: int
    simulated: float
    leading: float | None  # by Lemma 1's leading term; None where its conditions do not hold


def words(plan: Plan, prepared: Prepared) -> list[str]:
    """One line for every attack that reads a sum as one client's reply; none where a round is too long to try."""
    found = []
    for part in plan.attacks:
        attack = part.make(plan.folder)
        if attack.name != READS_SUMS or part.restore is not None or not is_about_everyone(plan, part):
            continue
        clients = behind(part, prepared.federation, getattr(attack, "own_share", ""))
        if _work(prepared.federation.recipe, clients) <= MOST_STEPS:
            found.append(f"{part.title}: {said(how_far_off(prepared.federation, clients))}")
    return found


def behind(part: AttackPart, federation: Federation, own_share: str) -> tuple[Records, ...]:
    """Whose records stand behind what the attack reads: all, or all but the seats where those take theirs out."""
    out = part.seats if own_share == "subtract" else ()
    return tuple(one for client, one in enumerate(federation.clients) if client not in out)


def how_far_off(federation: Federation, clients: Sequence[Records]) -> Off:
    """Simulated for the first round: the clients apart, and one client that takes as many steps on all records."""
    recipe = federation.recipe
    length = recipe.batch_size
    whole = replace(recipe, batch_size=length if length == "all" else length * len(clients))
    start = parameters_of(federation.model)
    apart = _end(federation, clients, recipe)
    together = _end(federation, [union(tuple(clients))], whole)
    moved = float(norm(subtract(together, start)))
    return Off(
        clients=len(clients),
        simulated=float(norm(subtract(apart, together))) / moved if moved else 0.0,
        leading=_leading(federation, clients, start, moved)
        if moved and _as_in_the_lemma(recipe, clients)
        else None,
    )


def said(off: Off) -> str:
    """In words."""
    if off.clients == 1:
        return "one client stands behind the update, nothing is taken for something else"
    term = "" if off.leading is None else f" (Lemma 1's leading term: {_percent(off.leading)})"
    return (
        f"taking {off.clients} clients for one puts the update off by {_percent(off.simulated)} of it{term}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share > 1e-5 else "less than 0.001 %"


def _end(federation: Federation, clients: Sequence[Records], recipe: Recipe) -> Params:
    """The global model after one round."""
    short = replace(
        federation, clients=tuple(clients), holdout=(), recipe=recipe, rounds=1, participation=1.0, record="all",
        defence=NoDefence(), secure_aggregation=False,
    )  # fmt: skip
    transcript, _ = simulate(short, seed=0)
    return transcript.shelf.get(transcript.outcome(0).parts).params


def _leading(federation: Federation, clients: Sequence[Records], start: Params, moved: float) -> float:
    network, recipe = in_train_mode(federation.model), federation.recipe
    losses = [partial(loss_on, network, recipe.loss, one) for one in clients]
    sizes = [float(len(one)) if recipe.weighting == "examples" else 1.0 for one in clients]
    rate = recipe.learning_rate
    steps = 1 if recipe.kind == "gradient" else recipe.epochs
    term = leading_divergence(start, losses, sizes, rate=rate, steps=steps)
    return float(norm(term)) * recipe.server_learning_rate / moved


def loss_on(network: nn.Module, loss: str, records: Records, params: Params) -> Tensor:
    """The mean loss of all records, in the mode that the network is in; its buffers stay as they are."""
    fresh = {name: value.clone() for name, value in buffers_of(network).items()}
    return example_loss(loss)(functional_call(network, {**params, **fresh}, (records.x,)), records.y).mean()


def _as_in_the_lemma(recipe: Recipe, clients: Sequence[Records]) -> bool:
    """Whether every step of every client is a plain step on all it has, and every record counts alike in the mean.

    Where clients of different sizes count alike, the lemma's one client is not the one that holds all records.
    """
    sizes = {len(one) for one in clients}
    whole = recipe.kind == "gradient" or all(recipe.batch_length(size) >= size for size in sizes)
    alike = recipe.weighting == "examples" or len(sizes) == 1
    return whole and alike and recipe.momentum == 0 and recipe.mu == 0


def _work(recipe: Recipe, clients: Sequence[Records]) -> int:
    pixels = max(1, clients[0].x[0].numel() // 1000) if clients and len(clients[0]) else 1
    return sum(recipe.steps(len(one)) * recipe.batch_length(len(one)) for one in clients) * pixels
