"""What the tables of "Approximate and Weighted Data Reconstruction Attack in Federated Learning" share.

A client is a group of 4 images of CIFAR-10. One federation holds five groups and one network, drawn once: the first
four are attacked, the fifth is for whoever tunes weights. The paper does not state BatchNorm's mode, the stem, where
dummies start, whether they are clamped, and the state of the model. Here statistics of BatchNorm stay at 0 and 1, the
stem is that for CIFAR, the network is fresh, and dummies start evenly over valid pixels and stay there; `awa-settings`
has the other choices. All attacks on a group start from the same dummies.

The control other-client would repeat every attack, so it is left out; held-out costs nothing.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Paper, Published, Request

TITLE = "Song, Wang, Zuazua: Approximate and Weighted Data Reconstruction Attack in Federated Learning"
GROUPS = 4  # that are attacked
FIFTH = 4  # the group that weights are sought on
IMAGES = 4  # of every group
RATE = 0.001  # of the clients
STEPS, THEIR_STEPS = 250, 1000  # of the attacks
KNOWN_LABELS = ("recipe", "examples", "labels")
CASES = {"case1": (1, 1), "case2": (4, 1), "case3": (1, 4), "case4": (2, 2)}  # local epochs, batches of each
METRICS = ("psnr_002", "ssim_002", "mse")  # as the paper reckons them, matched one to one
IN_ORDER = tuple(f"{name}_by_index" for name in METRICS)  # the same without matching, as in the paper
DUMMIES = {"start": "uniform", "box": True}
AGIC = {"name": "agic", "optimiser": "adam", "total_variation": 0.0, **DUMMIES}
DLG = {"name": "dlg", "reading": "002", **DUMMIES}
ATTACKS: dict[str, dict[str, Any]] = {
    "awa": {"name": "awa"},
    "awa-sent": {"name": "awa", "unit": "sent"},
    "awa-untuned": {"name": "awa", "preset": "ramp"},
    "agic": AGIC,
    "agic-rate": {**AGIC, "match": "l2"},
    "dlg": DLG,
    "dlg-rate": {**DLG, "unit": "rate"},
}
CALLED = {"awa-sent": "AWA", "awa": "AWA in learning rates", "agic": "AGIC", "dlg": "DLG"}
NETWORK = (
    "the paper states neither BatchNorm's mode, stem, dummies, clamping nor the state of the model: here a fresh "
    "ResNet18 with the stem for CIFAR whose BatchNorm keeps statistics 0 and 1, and dummies drawn evenly from valid "
    "pixels and kept among them; which 4 images it attacked, and how often, is not stated either"
)
WHY = f"{NETWORK}; 250 steps unless a row says otherwise (the paper: 1,000)"


def paper(place: str, numbers: Published | None = None, trend: str = "") -> Paper:
    """A table or figure of the paper, which seems to attack one group."""
    return Paper(title=TITLE, place=place, clients=1, numbers=numbers or {}, trend=trend)


def data() -> dict[str, Any]:
    """Five groups; other images are held out or public."""
    return {"name": "cifar10", "clients": GROUPS + 1, "limit": IMAGES, "holdout": 0.05, "public": 0.1}


def network(**changes: Any) -> dict[str, Any]:
    """A ResNet18 whose BatchNorm keeps its first statistics."""
    return {"name": "resnet18", "norm": "running", "stem": "cifar", "head_bias": True, "width": 64, **changes}


def federation(case: str, **changes: Any) -> dict[str, Any]:
    """One round of the case."""
    epochs, batches = CASES[case]
    return {
        "rounds": 1,
        "epochs": epochs,
        "batch_size": IMAGES // batches,
        "learning_rate": RATE,
        **changes,
    }


def attack(request: Request, label: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One attack with known labels, under a label of its own."""
    return {
        **settings,
        "label": label,
        "steps": STEPS,
        "grants": list(KNOWN_LABELS),
        "controls": ["held-out"],
        "metrics": [*METRICS[:2], *IN_ORDER],
        "targets": attacked(request),
        **more,
    }


def attacked(request: Request) -> int:
    """How many groups are attacked."""
    return request.pick_clients(small=1, paper=GROUPS, most=GROUPS)
