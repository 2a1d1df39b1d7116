"""Figure 9: what the global model tells of a class (FedInverse) beside what its change tells of single images.

Ten clients with fifty digits each train until the model is good; a client inverts the model it received last, with
(MI-HSIC) and without (MI) the HSIC term, within a generator of public digits. Scores are of class images: how like the
target's digits of the class they are. The curious client's own pictures, of single images in the first round, stand in
`curious-clients`; both are no rivals, as the paper says.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Column, Difference, Reproduction, Request
from fedxray.reproduce.curious.setting import paper

CALLED = {"mi-hsic": "MI-HSIC", "mi": "MI", "model-inversion": ""}
METRICS = ("class_ssim", "class_psnr")


def plan(request: Request, row: str) -> dict[str, Any]:
    """Digits of MNIST at 32 pixels."""
    seat = {"role": "curious-client", "targets": [1, 2, 3], "controls": ["held-out"]}
    steps = 150 if request.is_small else 1500
    inversion = {
        "name": "fedinverse",
        "steps": steps,
        "generator_steps": 100 if request.is_small else 1000,
        **seat,
    }
    return {
        "seeds": request.pick_seeds(small=2, paper=5),
        "data": {"name": "mnist", "size": 32, "clients": 10, "limit": 50, "holdout": 0.02, "public": 0.05},
        "model": {"name": "lenet"},
        "federation": {
            "rounds": 5 if request.is_small else 30,
            "epochs": 1,
            "batch_size": 10,
            "learning_rate": 0.05,
            "record": "last",
        },
        "attack": [
            {**inversion, "label": "mi-hsic"},
            {**inversion, "label": "mi", "independence": 0.0},
            {"name": "model-inversion", "model": "global-model", "steps": steps, **seat},
        ],
    }


FEDINVERSE = Reproduction(
    name="curious-fedinverse",
    shows="What a client can make of the classes in a trained global model, with a generator of public images.",
    paper=paper("Figure 9", "FedInverse gives what is typical of a class, gradient inversion single images"),
    rows=("mnist",),
    columns=tuple(
        Column(attack=name, metric=metric, called=called)
        for name, called in CALLED.items()
        for metric in METRICS
    ),
    differences=(
        Difference(left="mi-hsic", right="mi"),
        Difference(left="mi-hsic", right="model-inversion"),
    ),
    plan=plan,
    why="the figure shows ten pictures of the authors of FedInverse and no numbers; their GAN was trained for hours on "
    "many images, ours starts from the components of a few hundred; their network has BatchNorm and five classes",
)
