"""Exactness of a client's optimum from the messages of a federated least squares, with d + 1 and with d messages.

Full batches in float64, six clients of which half, drawn at random, take part in a round; learning rate, epochs and
optimum are unknown to the attack. For every number of parameters d (with the bias) both exact attacks are given the
client's first d + 1 messages and its first d, for two numbers of epochs, two learning rates and three seeds. Errors are
relative to plain least squares on the client's records. The table has the largest error with d + 1 messages, the
smallest with d, and how often each was undetermined; and the same where all clients take part in every round and all
messages are read. The last line is `worst error from d + 1 messages: X, undetermined from d: Y of Z`.
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
LIMIT = 1e-8


@dataclass(frozen=True)
class Answer:
    """The relative error of an answer, and whether the attack reported it as undetermined."""

    error: float
    undetermined: bool


def federation_of(d: int, seed: int, epochs: int, rate: float, participation: float) -> Federation:
    """Return clients with weights of their own, and a linear model with a bias."""
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
    """Return the client's own optimum by plain least squares, weights first, shape [d]."""
    design = torch.cat([records.x, torch.ones_like(records.x[:, :1])], 1)
    return torch.linalg.lstsq(design, records.y[:, None]).solution[:, 0]


def first(view: View, count: int) -> View:
    """Return the view with the first `count` messages of its client alone."""
    messages = sorted(view.of_target(), key=lambda message: message.round)[:count]
    assert len(messages) == count, f"only {len(messages)} messages"
    return replace(view, observations=tuple(messages))


def judged(evidence: Evidence, best: Tensor) -> Answer:
    """Compare an answer with the optimum."""
    error = float((flatten(model_params(evidence)[0]) - best).norm() / best.norm())
    return Answer(error, evidence.status == "undetermined")


def settings() -> Iterator[tuple[int, int, float]]:
    """Yield seeds, epochs and learning rates."""
    for seed in SEEDS:
        for epochs in EPOCHS:
            for rate in RATES:
                yield seed, epochs, rate


def answers(d: int, participation: float, counts: list[int | None]) -> list[list[Answer]]:
    """Run both attacks in all settings, for each count on that number of first messages, or on all of them (None)."""
    results: list[list[Answer]] = [[] for _ in counts]
    for seed, epochs, rate in settings():
        federation = federation_of(d, seed, epochs, rate, participation)
        view = roles.server(simulate(federation, seed=seed)[0], client=CLIENT)
        best = optimum(federation.clients[CLIENT])
        for index, count in enumerate(counts):
            seen = view if count is None else first(view, count)
            results[index] += [judged(attack.run(seen, generator=fork(0)), best) for attack in ATTACKS]
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, nargs="+", default=[2, 5, 8, 11, 15, 20])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| d | worst error, d + 1 messages | undetermined | least error, d messages | undetermined "
          "| worst error of determined answers, all take part | undetermined |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    worst, undetermined, asked = 0.0, 0, 0
    for d in options.parameters:
        enough, short = answers(d, 0.5, [messages_needed(d), d])
        (all_in,) = answers(d, 1.0, [None])
        worst = max(worst, *(one.error for one in enough))
        undetermined, asked = undetermined + count(short), asked + len(short)
        determined = [one.error for one in all_in if not one.undetermined]
        print(
            f"| {d} | {max(one.error for one in enough):.0e} | {count(enough)} of {len(enough)} "
            f"| {min(one.error for one in short):.0e} | {count(short)} of {len(short)} "
            f"| {f'{max(determined):.0e}' if determined else 'none'} | {count(all_in)} of {len(all_in)} |"
        )
    print(f"worst error from d + 1 messages: {worst:.0e}, undetermined from d: {undetermined} of {asked}")
    if worst > LIMIT or undetermined < asked:
        raise SystemExit("less exact than the limit")


def count(answers: list[Answer]) -> int:
    return sum(answer.undetermined for answer in answers)


if __name__ == "__main__":
    main()
