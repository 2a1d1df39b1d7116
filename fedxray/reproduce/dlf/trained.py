"""Table 7: networks that were trained for 5 and 10 rounds before the attack."""

from __future__ import annotations

import re
from typing import Any

from fedxray.reproduce.base import Difference, Reproduction, Request
from fedxray.reproduce.dlf.setting import ATTACKS, STAND_IN, attack, columns, federation_of, paper

TRAINERS = 10  # clients of every round
RECIPE = "femnist-10x5"
ROWS = tuple(f"{RECIPE}-after-{rounds}" for rounds in (0, 5, 10))


def plan(request: Request, row: str) -> dict[str, Any]:
    """The last of the rounds is attacked; the same clients train in all of them."""
    before = int(re.findall(r"\d+$", row)[0])
    content = federation_of(row, request, rounds=before + 1)
    attacks = [attack(name, row, request) for name in ATTACKS]
    content["data"]["clients"] = TRAINERS
    attacks = [{**one, "rounds": [before], "targets": min(TRAINERS, one["targets"])} for one in attacks]
    return {**content, "attack": attacks}


TRAINED = Reproduction(
    name="dlf-trained",
    shows="What is left of the attacks once the network has been trained for 5 and 10 rounds.",
    paper=paper("Table 7 (Appendix B)"),
    rows=ROWS,
    small_rows=(ROWS[0], ROWS[1]),
    columns=columns(),
    differences=(
        Difference(left="dlf", right="fedsgd-inversion"),
        Difference(left="dlf", right="dlf", rows=(ROWS[0], ROWS[1])),
        Difference(left="dlf", right="dlf", rows=(ROWS[0], ROWS[2])),
    ),
    plan=plan,
    why=f"{STAND_IN}; the same {TRAINERS} clients train in every round and are attacked, the authors draw new ones",
)
