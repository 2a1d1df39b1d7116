"""Restarts of tabular-inversion in one loop against restarts in turn, per restart and step.

One thread, CPU time of whole attacks, in turns, the least of some repeats: a table of 12 columns, 8 records, a network
with 64 hidden units, one gradient and a round of FedAvg with 4 local steps. The last line is `stacked: X times` for 5
restarts, the smaller of both.

    python bench/restarts.py
"""

from __future__ import annotations

import torch
from common.measure import cpu_seconds

from fedxray.adversary.disclose import disclose
from fedxray.adversary.roles import server
from fedxray.adversary.view import View
from fedxray.attacks.inversion import tabular
from fedxray.attacks.inversion.replay import Replay
from fedxray.data.dataset import Column, Records, Space
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.models import build
from fedxray.seeds import fork

RECORDS, STEPS = 8, 60
NUMBERS = [Column(name=f"number {place}", kind="continuous", positions=(place,), low=-3, high=3) for place in range(6)]
KINDS = [
    Column(name=f"kind {place}", kind="categorical", positions=(place,), categories=("a", "b"), codes=((-1.0,), (1.0,)))
    for place in range(6, 12)
]
SPACE = Space(
    kind="table", shape=(12,), target="classification", classes=("no", "yes"), columns=(*NUMBERS, *KINDS)
)  # fmt: skip
RECIPES = {
    "one gradient": Recipe(algorithm="fedsgd"),
    "4 local steps": Recipe(epochs=2, batch_size=4, learning_rate=0.1),
}


def view_of(recipe: Recipe) -> View:
    """Return a server's view of one client."""
    source = fork(0, "bench")
    records = Records(torch.randn(RECORDS, 12, generator=source), torch.randint(2, (RECORDS,), generator=source))
    model = build("mlp", SPACE, hidden=[64], generator=fork(0, "model"))
    transcript, truth = simulate(Federation(space=SPACE, clients=(records,), model=model, recipe=recipe), seed=0)
    return server(transcript, client=0, grants=disclose(truth, ["recipe", "examples", "labels"], client=0))


def ratio(name: str, restarts: int) -> float:
    view = view_of(RECIPES[name])
    attack = tabular.TabularInversion(steps=STEPS, restarts=restarts, pool=False)
    stacked = Replay.stacked

    def in_turn() -> None:
        Replay.stacked = lambda self, guesses: None  # type: ignore[method-assign, assignment]
        attack.run(view, generator=fork(1))
        Replay.stacked = stacked  # type: ignore[method-assign]

    took = cpu_seconds({"in turn": in_turn, "stacked": lambda: attack.run(view, generator=fork(1))}, 3, of=min)
    each = {way: 1e3 * seconds / restarts / (STEPS + 1) for way, seconds in took.items()}
    words = ", ".join(f"{way} {milliseconds:.2f} ms" for way, milliseconds in each.items())
    print(f"{name}, {restarts} restarts: {words} per restart and step", flush=True)
    return took["in turn"] / took["stacked"]


def main() -> None:
    torch.set_num_threads(1)
    ratios = {(name, restarts): ratio(name, restarts) for name in RECIPES for restarts in (1, 5, 30)}
    print(f"stacked: {min(value for (_, restarts), value in ratios.items() if restarts == 5):.1f} times")


if __name__ == "__main__":
    main()
