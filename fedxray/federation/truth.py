"""What really happened: who held which records, used in which order; for disclosure and scoring only."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedxray.data.records import Records
from fedxray.data.space import Space
from fedxray.defences.base import Defence
from fedxray.federation.recipe import Recipe
from fedxray.federation.schedule import Schedule, draw_schedule
from fedxray.seeds import fork


@dataclass(frozen=True, kw_only=True, eq=False)
class Truth:
    """Everything an auditor knows and an adversary does not; compared by identity, so that it can key a cache."""

    space: Space
    model: nn.Module
    recipe: Recipe
    defence: Defence
    train: tuple[Records, ...]  # by client
    holdout: tuple[Records, ...]  # by client, never trained on
    public: Records  # of no client
    seed: int
    rounds: int

    def schedule(self, client: int, round: int) -> Schedule:
        """The batches that this client used in that round."""
        return client_schedule(len(self.train[client]), self.recipe, self.seed, client, round)


def client_schedule(examples: int, recipe: Recipe, seed: int, client: int, round: int) -> Schedule:
    """The batches of one client in one round; an order drawn `once` is the same in every round."""
    when = "always" if recipe.shuffle == "once" else round
    return draw_schedule(examples, recipe, fork(seed, "schedule", client, when))
