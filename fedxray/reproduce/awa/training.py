"""A federation whose network is trained before the attack: beside the groups a client with many images trains it.

Groups of 4 images alone would hardly train anything. Every client takes one epoch with batches of 4, which for a group
is one step (case 1) and for the client with many images 250. Replies count by their examples, so that nearly all of a
new global model comes from that client. At the paper's learning rate of 0.001 the network hardly trains (125 steps at
0.02 took its loss on other images from 2.300 to 2.295), so clients have a larger one and momentum. To the attacks on a
single step neither matters: it is exact at any rate, differences are measured in rates, and momentum begins with the
second step.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.awa.setting import GROUPS, IMAGES, federation

MANY = 1000  # images of the client that trains
RATE, MOMENTUM = 0.01, 0.9
HELD_OUT = 0.2  # one of the 5 images that a group is dealt


def data() -> dict[str, Any]:
    """Four groups of 4 images, and one client with a thousand."""
    dealt = [round(count / (1 - HELD_OUT)) for count in (*[IMAGES] * GROUPS, MANY)]
    return {
        "name": "cifar10",
        "clients": GROUPS + 1,
        "partition": "sizes",
        "sizes": dealt,
        "holdout": HELD_OUT,
        "public": 0.1,
    }


def rounds(before: int, recorded: int = 1) -> dict[str, Any]:
    """So many rounds of training, then some that are recorded."""
    return federation(
        "case1",
        rounds=before + recorded,
        record=[before + more for more in range(recorded)],
        learning_rate=RATE,
        momentum=MOMENTUM,
    )
