"""A federation whose network is trained before the attack: beside the groups a client with many images trains it.

Groups of 4 images alone would hardly train anything. Every client has the paper's recipe of case 1, one epoch at a
learning rate of 0.001 with batches of 4, which for a group is one step and for the client with many images 250.
Replies count by their examples, so that nearly all of a new global model comes from that client.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.awa.setting import GROUPS, IMAGES, federation

MANY = 1000  # images of the client that trains
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
    return federation("case1", rounds=before + recorded, record=[before + more for more in range(recorded)])
