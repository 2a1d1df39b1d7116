"""Figures 7, 8 and 15: what the curious client's raw pictures look like after a prior has seen them.

The priors are small ones that are trained beforehand on the training part of CIFAR-10 (`commands` has how, minutes on
one core; the paper's have half a billion parameters). The audited clients hold test images of CIFAR-10, which no prior
has seen, or, to see what a prior of other images does, photos of ImageNet. The criterion is psnr, named before
anything was measured. How noisy a raw picture is taken to be was chosen on images of CIFAR-100 that nobody here holds.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Column, Difference, Reproduction, Request
from fedxray.reproduce.curious.setting import IMAGES, attack, federation, paper

FOLDER = "./priors"  # beside which the reproduction is run
PRIORS = {
    "cifar10-ddpm": "--kind ddpm --width 16 --batch 16 --steps 1000 --flip",
    "cifar10-gan": "--kind gan --width 16 --batch 16 --steps 800 --flip --scale 2",
    "cifar10-dit": "--kind dit --width 16 --batch 16 --steps 1500 --flip",
}
DDPM, GAN, DIT = (f"{FOLDER}/{name}" for name in PRIORS)
RESTORERS: tuple[dict[str, Any], ...] = (
    {"name": "ddrm", "prior": DDPM, "noise": 0.1},
    {"name": "ddrm", "label": "ddrm-x2", "prior": DDPM, "scale": 2, "noise": 0.06, "draws": 4},
    {"name": "ddrm", "label": "ddrm-sample", "prior": DDPM, "scale": 2, "noise": 0.05, "finish": "sample"},
    {"name": "gan", "prior": GAN},
    {"name": "mde", "prior": DIT, "epochs": 30, "learning_rate": 0.02},
)
CALLED = {
    "raw": "raw reconstruction",
    "raw+ddrm": "",
    "raw+ddrm-x2": "",
    "raw+ddrm-sample": "direct postprocessing",
    "raw+gan": "ROG GAN",
    "raw+mde": "MDE",
}
METRICS = ("psnr", "ssim", "lpips")
ROWS = ("cifar10-2", "cifar10-4", "imagenet-2")


def commands() -> list[str]:
    """What makes the priors, to be run in the folder from which the reproduction is run."""
    return [f"fedxray train-prior --data cifar10 {how} --out priors/{name}" for name, how in PRIORS.items()]


def data(row: str) -> dict[str, Any]:
    """Clients of sixteen images each; all other images are public."""
    name, _, clients = row.partition("-")
    named = (
        {"name": "cifar10", "part": "test"} if name == "cifar10" else {"name": "imagenet-sample", "size": 32}
    )
    return {
        **named,
        "clients": int(clients),
        "partition": "sizes",
        "sizes": [IMAGES],
        "holdout": 0.0,
        "public": 0.8,
    }


def plan(request: Request, row: str) -> dict[str, Any]:
    """One row: so many clients with images of one data set, raw and after every restorer."""
    return {
        "seeds": request.pick_seeds(small=4, paper=10),
        "data": data(row),
        "model": {"name": "lenet"},
        "federation": federation(),
        "attack": [attack(request, "raw", latent=2, restore=[dict(one) for one in RESTORERS])],
    }


RESTORATION = Reproduction(
    name="curious-restoration",
    shows="What a curious client's raw pictures look like after diffusion models or a network have restored them.",
    paper=paper(
        "Figures 7, 8 and 15",
        "direct postprocessing improves LPIPS by 20 to 30 % with 2 to 8 clients and partly fails with more; against "
        "the GAN of ROG it has worse LPIPS and similar SSIM, and is easier to recognise; MDE is for the eye, not for "
        "numbers",
    ),
    rows=ROWS,
    small_rows=("cifar10-2", "imagenet-2"),
    columns=tuple(
        Column(attack=name, metric=metric, called=called)
        for name, called in CALLED.items()
        for metric in METRICS
    ),
    differences=(
        Difference(left="raw+ddrm", right="raw"),
        Difference(left="raw+ddrm-x2", right="raw"),
        Difference(left="raw+ddrm-sample", right="raw"),
        Difference(left="raw+gan", right="raw"),
        Difference(left="raw+mde", right="raw"),
        Difference(left="raw+ddrm", right="raw+gan"),
    ),
    plan=plan,
    why="the priors are trained beforehand, in the folder from which this is run, by "
    + "; ".join(f"`{one}`" for one in commands())
    + ": 32 pixels and 5,000 images in place of models of half a billion parameters for 256 pixels, so that what they "
    "can add is little; at the paper's scale only seeds and iterations are more",
)
