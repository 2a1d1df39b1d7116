"""What the figures of "Federated Learning Nodes Can Reconstruct Peers' Image Data" share: data, network, attack.

A client holds one batch, on which it takes tau steps; the change of the first global model is attacked. At the small
scale photos have 32 pixels and the latent picture half of that, else 64 and a quarter. The photos of fewer clients
are among those of more, and client 0, whose seat it is, has the same ones, as long as all hold at most 130 or all hold
more: beyond 130 fewer photos are public, and others are drawn. What no client holds is public: it makes the floors
and the other candidates of `retrieval`.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Difference, Paper, Request

TITLE = "Federated Learning Nodes Can Reconstruct Peers' Image Data (under review, anonymous)"
PHOTOS = 1000  # of the data set, one of each class
IMAGES = 16  # of every client, unless a row says otherwise
STEPS = 3  # local steps of every client
RATE = 0.003  # of the clients
METRICS = ("psnr", "ssim", "lpips", "retrieval")
KNOWN_LABELS = ("recipe", "examples", "label-counts")
SMALL_ITERATIONS, ITERATIONS = 100, 200
FEW, MANY = 130, 520  # photos that are divided among the clients at most
STAND_IN = (
    "one photo of each of 1,000 ImageNet classes stands in for the validation set, so that no label occurs twice and "
    "all labels are told apart; at the small scale photos have 32 pixels and the latent picture half of that, else 64 "
    "and a quarter (the paper: 128 and a quarter); the own part is taken out of the sum unless a column says "
    "otherwise, and only the others' photos are scored, matched one to one (the authors score all, in their order); "
    "rows of up to 130 photos in all share theirs, and so do rows of more, but the two kinds hold different photos"
)


def paper(place: str, trend: str) -> Paper:
    """A figure of the paper; our text has no numbers of any."""
    return Paper(title=TITLE, place=place, trend=trend)


def better(
    left: str,
    right: str,
    *,
    rows: tuple[str, str] | None = None,
    larger: tuple[str, ...] = ("psnr", "ssim", "retrieval"),
) -> tuple[Difference, Difference]:
    """That the left pictures are better: the larger metrics are above, and LPIPS, a distance, is below."""
    return (
        Difference(left=left, right=right, rows=rows, metrics=larger, expected="above"),
        Difference(left=left, right=right, rows=rows, metrics=("lpips",), expected="below"),
    )


def data(
    request: Request, clients: int, sizes: tuple[int, ...] = (IMAGES,), *, pixels: int = 0
) -> dict[str, Any]:
    """So many clients with these numbers of photos, in turn."""
    held = sum(sizes[client % len(sizes)] for client in range(clients))
    kept = FEW if held <= FEW else MANY
    return {
        "name": "imagenet-sample",
        "size": pixels or (32 if request.is_small else 64),
        "clients": clients,
        "partition": "sizes",
        "sizes": list(sizes),
        "holdout": 0.0,
        "public": (PHOTOS - kept) / PHOTOS,
    }


def network(model: str, request: Request) -> dict[str, Any]:
    """One of the paper's networks; residual ones are a quarter as wide at the small scale."""
    return {"name": model, **({"width": 16} if request.is_small and model != "lenet" else {})}


def federation(**changes: Any) -> dict[str, Any]:
    """One round in which every client takes its steps on all it has."""
    return {
        "rounds": 1,
        "epochs": STEPS,
        "batch_size": "all",
        "learning_rate": RATE,
        "shuffle": "never",
        **changes,
    }


def attack(request: Request, label: str, **settings: Any) -> dict[str, Any]:
    """The attack from the seat of client 0 with known labels, under a label of its own."""
    return {
        "name": "curious-client",
        "label": label,
        "role": "curious-client",
        "grants": list(KNOWN_LABELS),
        "controls": [],
        "metrics": ["lpips"],
        "steps": SMALL_ITERATIONS if request.is_small else ITERATIONS,
        "latent": 2 if request.is_small else 4,
        **settings,
    }


def oracle(request: Request, label: str, **settings: Any) -> dict[str, Any]:
    """The upper bound: whoever knows who holds which labels."""
    found = attack(request, label, **settings)
    del found["controls"]  # it has none
    return {**found, "name": "curious-client-oracle", "grants": ["recipe", "examples", "oracle-groups"]}
