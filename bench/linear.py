"""How exactly messages of a federated least squares give away a client's optimum, with and without one to spare.

Full batches in float64, six clients of which half, drawn at random, take part in a round; learning rate, epochs and
optimum are unknown to the attack. For every number of parameters d (the bias counts) both exact attacks are given the
client's first d + 1 messages and her first d, over two numbers of epochs, two learning rates and three seeds. The table
holds the worst relative error with d + 1 messages, the least with d, and how often each was called undetermined; and
the same where all clients take part in every round and all messages are read. The last line is
`worst error from d + 1 messages: X, undetermined from d: Y of Z`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedxray.adversary import roles
from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence, model_params
from fedxray.attacks.local_model.linear import LocalModelLinear, LocalModelLinearForward
from fedxray.data.dataset import Records, Space
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.params import flatten
from fedxray.seeds import fork
from fedxray.theory import messages_needed

CLIENTS, RECORDS, CLIENT = 6, 60, 2
EPOCHS, RATES, SEEDS = (1, 5), (0.01, 0.1), range(3)
ATTACKS = (LocalModelLinear(), LocalModelLinearForward())
PROMISED = 1e-8


@dataclass(frozen=True)
class Found:
    """One answer: its relative error, and whether it was said to be open."""

    error: float
    undetermined: bool


def federation_of(d: int, seed: int, epochs: int, rate: float, participation: float) -> Federation:
    """Clients with weights of their own, and a linear model with a bias."""
    draw = fork(seed, "linear recovery", d)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    clients = []
    for _ in range(CLIENTS):
        x = normal(RECORDS, d - 1)
        clients.append(Records(x, x @ normal(d - 1) + 1 + 0.1 * normal(RECORDS)))
    model = nn.Linear(d - 1, 1, dtype=torch.float64)
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(normal(*value.shape))
    return Federation(
        space=Space(kind="table", shape=(d - 1,), target="regression"),
        clients=tuple(clients),
        model=model,
        recipe=Recipe(loss="mse", learning_rate=rate, epochs=epochs, batch_size="all"),
        rounds=3 * d + 20,
        participation=participation,
    )


def optimum(records: Records) -> Tensor:
    """The client's own optimum, weights first, shape [d]."""
    design = torch.cat([records.x, torch.ones_like(records.x[:, :1])], 1)
    return torch.linalg.lstsq(design, records.y[:, None]).solution[:, 0]


def first(view: View, count: int) -> View:
    """The view with the first messages of its client alone."""
    kept = sorted(view.of_target(), key=lambda one: one.round)[:count]
    assert len(kept) == count, f"only {len(kept)} messages"
    return replace(view, observations=tuple(kept))


def judged(evidence: Evidence, best: Tensor) -> Found:
    """How far an answer is from the optimum."""
    far = float((flatten(model_params(evidence)[0]) - best).norm() / best.norm())
    return Found(far, evidence.status == "undetermined")


def settings() -> Iterator[tuple[int, int, float]]:
    """Seeds, epochs and learning rates."""
    for seed in SEEDS:
        for epochs in EPOCHS:
            for rate in RATES:
                yield seed, epochs, rate


def answers(d: int, participation: float, counts: list[int | None]) -> list[list[Found]]:
    """Both attacks in all settings, for each count on so many first messages, or on all of them."""
    found: list[list[Found]] = [[] for _ in counts]
    for seed, epochs, rate in settings():
        federation = federation_of(d, seed, epochs, rate, participation)
        view = roles.server(simulate(federation, seed=seed)[0], client=CLIENT)
        best = optimum(federation.clients[CLIENT])
        for place, count in enumerate(counts):
            seen = view if count is None else first(view, count)
            found[place] += [judged(attack.run(seen, generator=fork(0)), best) for attack in ATTACKS]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, nargs="+", default=[2, 5, 8, 11, 15, 20])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| d | worst error, d + 1 messages | undetermined | least error, d messages | undetermined "
          "| worst error said to be determined, all take part | undetermined |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    worst, opened, asked = 0.0, 0, 0
    for d in options.parameters:
        enough, short = answers(d, 0.5, [messages_needed(d), d])
        (all_in,) = answers(d, 1.0, [None])
        worst = max(worst, *(one.error for one in enough))
        opened, asked = opened + count(short), asked + len(short)
        told = [one.error for one in all_in if not one.undetermined]
        print(
            f"| {d} | {max(one.error for one in enough):.0e} | {count(enough)} of {len(enough)} "
            f"| {min(one.error for one in short):.0e} | {count(short)} of {len(short)} "
            f"| {f'{max(told):.0e}' if told else 'none'} | {count(all_in)} of {len(all_in)} |"
        )
    print(f"worst error from d + 1 messages: {worst:.0e}, undetermined from d: {opened} of {asked}")
    if worst > PROMISED or opened < asked:
        raise SystemExit("not as exact as promised")


def count(found: list[Found]) -> int:
    return sum(one.undetermined for one in found)


if __name__ == "__main__":
    main()
