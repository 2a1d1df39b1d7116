"""Original and reconstruction side by side, as numbers from 0 to 1 that a report can draw."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary.disclose import records_in_question
from fedxray.attacks.evidence import Evidence
from fedxray.data.space import Dataset
from fedxray.federation.truth import Truth
from fedxray.imaging import match, psnr

MOST_PICTURES = 8
DIGITS = 3


def pictures(evidence: Evidence, truth: Truth, client: int | None, dataset: Dataset) -> dict[str, Any] | None:
    """The first few originals of a client with the guess that was matched to each; None for other kinds.

    A guess about a class is shown beside the first original of that class. Without a client they are everyone's but
    the seats', taken in turn from each.
    """
    if evidence.kind not in ("images", "class-images"):
        return None
    asked = records_in_question(truth, client, evidence.seats)
    originals = truth.space.to_pixels(asked.x)
    guesses = truth.space.to_pixels(evidence.tensors["inputs"].to(originals))
    if "own" in evidence.tensors:
        guesses = guesses[~evidence.tensors["own"].to(guesses.device)]
    places = match(guesses, originals) if evidence.kind == "images" else _of_class(evidence, asked.y)
    found = list(enumerate(places.tolist()))
    every = 1 if client is not None else max(1, len(found) // MOST_PICTURES)
    matched = [(index, place) for index, place in found[::every] if place >= 0]
    shown = []
    for index, place in matched[:MOST_PICTURES]:
        quality = float(psnr(guesses[place][None], originals[index][None]))
        shown.append(
            {
                "original": _rows(originals[index]),
                "guess": _rows(guesses[place]),
                "caption": f"{quality:.1f} dB",
                "record": index,
                "quality": round(quality, 3) if math.isfinite(quality) else None,
            }
        )
    whose = "everyone" if client is None else f"client {client}"
    return {"title": f"{whose}, {len(originals)} images", "private": dataset.private, "images": shown}


def _of_class(evidence: Evidence, y: Tensor) -> Tensor:
    """The guess of its class for the first original of every class, -1 for the others; shape [originals]."""
    labels = evidence.tensors["labels"].to(y.device)
    later = (y[:, None] == y[None]).tril(-1).any(1)
    same = labels[None] == y[:, None]  # [originals, guesses]
    return torch.where(later | ~same.any(1), -1, same.int().argmax(1))


def _rows(image: Tensor) -> list[Any]:
    """An image as nested lists [height][width] or [height][width][3], clipped to 0..1 and rounded."""
    clipped = image.detach().cpu().clamp(0, 1).nan_to_num(0.0).double()
    grey = clipped[0] if clipped.shape[0] == 1 else clipped.permute(1, 2, 0)
    listed: list[Any] = (grey * 10**DIGITS).round().div(10**DIGITS).tolist()
    return listed
