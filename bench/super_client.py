"""Distance of several clients from one that holds all their photos: simulated, and by Lemma 1 (curious client, 2024).

The last column is the ratio of the two.

python bench/super_client.py            (needs imagenet-sample: fedxray data get imagenet-sample)
"""

from __future__ import annotations

import torch

from fedxray import Federation, Recipe, Records, build, fork, load, split
from fedxray.audit.run.dry_run import how_far_off

# photos of each client, clients, local steps, learning rate, network
CASES = (
    *((16, clients, 3, 0.003, "relu") for clients in (2, 4, 8)),
    *((4, clients, steps, 0.003, "relu") for clients in (2, 4) for steps in (1, 3, 8)),
    *((16, 2, 2, rate, activation) for activation in ("relu", "tanh") for rate in (0.003, 0.0003)),
)


def main() -> None:
    photos = load("imagenet-sample", size=32, seed=0)
    print("photos clients steps rate activation simulated leading simulated/leading")
    for images, clients, steps, rate, activation in CASES:
        parts = split(photos, clients=clients, partition="sizes", sizes=[images], holdout=0.0, public=0.87, seed=0)
        records = tuple(Records(photos.x[index].double(), photos.y[index]) for index in parts.train)
        network = build("lenet", photos.space, generator=fork(0, "model"), activation=activation).double()
        recipe = Recipe(epochs=steps, batch_size="all", learning_rate=rate)
        federation = Federation(space=photos.space, clients=records, model=network, recipe=recipe)
        off = how_far_off(federation, records)
        ratio = f"{off.simulated / off.leading:.3f}" if off.leading else "-"  # both are 0 after one step
        print(
            f"{images} {clients} {steps} {rate:g} {activation} {off.simulated:.4f} {off.leading:.4f} {ratio}",
            flush=True,
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
