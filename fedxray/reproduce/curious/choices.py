"""What our own choices are worth: the own part taken out, the latent picture, the distance, labels estimated."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of
from fedxray.reproduce.curious.setting import METRICS, STAND_IN, attack, data, federation, network, paper

ROWS = ("lenet-2", "lenet-4", "lenet-8")
WAYS: dict[str, dict[str, Any]] = {
    "curious-client": {},
    "left-in": {"own_share": "recover"},
    "no-latent": {"latent": 1},
    "quarter-latent": {"latent": 4},
    "cosine": {"match": "cosine"},
    "by-depth": {"match": "l2-by-depth"},
    "estimated-labels": {"grants": ["recipe", "examples"], "labels": {"name": "labels-dlf"}},
}
WORDS = {"left-in": "own part left in", "cosine": "cosine", "no-latent": "no latent picture"}


def plan(request: Request, row: str) -> dict[str, Any]:
    """The same federation attacked in all ways."""
    model, clients = row.split("-")
    return {
        "seeds": request.pick_seeds(small=3, paper=5),
        "data": data(request, int(clients)),
        "model": network(model, request),
        "federation": federation(),
        "attack": [attack(request, label, **settings) for label, settings in WAYS.items()],
    }


CHOICES = Reproduction(
    name="curious-choices",
    shows="What it gives a curious client to take out its own part, and what the latent picture and known labels give.",
    paper=paper(
        "none of its figures", "not in the paper, which always leaves the own part in and knows the labels"
    ),
    rows=ROWS,
    small_rows=ROWS[:1],
    columns=columns_of({label: WORDS.get(label, "") for label in WAYS}, METRICS),
    differences=tuple(
        Difference(left="curious-client", right=label) for label in WAYS if label != "curious-client"
    ),
    plan=plan,
    why=f"the paper has no such figure; {STAND_IN}",
)
