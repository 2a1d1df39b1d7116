"""Original and reconstruction side by side, as numbers from 0 to 1 that a report can draw."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedxray.attacks.evidence import Evidence
from fedxray.data.space import Dataset
from fedxray.federation.truth import Truth
from fedxray.imaging import match, psnr

MOST_PICTURES = 8
DIGITS = 3


def pictures(evidence: Evidence, truth: Truth, client: int, dataset: Dataset) -> dict[str, Any] | None:
    """The first few originals of a client with the guess that was matched to each; None for other kinds."""
    if evidence.kind != "images":
        return None
    originals = truth.space.to_pixels(truth.train[client].x)
    guesses = truth.space.to_pixels(evidence.tensors["inputs"].to(originals))
    places = match(guesses, originals)
    shown = []
    for index, place in enumerate(places.tolist()[:MOST_PICTURES]):
        if place >= 0:
            quality = float(psnr(guesses[place][None], originals[index][None]))
            shown.append(
                {
                    "original": _rows(originals[index]),
                    "guess": _rows(guesses[place]),
                    "caption": f"{quality:.1f} dB",
                }
            )
    return {"title": f"client {client}, {len(originals)} images", "private": dataset.private, "images": shown}


def _rows(image: Tensor) -> list[Any]:
    """An image as nested lists [height][width] or [height][width][3], clipped to 0..1 and rounded."""
    clipped = image.detach().cpu().clamp(0, 1).nan_to_num(0.0).double()
    grey = clipped[0] if clipped.shape[0] == 1 else clipped.permute(1, 2, 0)
    listed: list[Any] = (grey * 10**DIGITS).round().div(10**DIGITS).tolist()
    return listed
