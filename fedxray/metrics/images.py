"""How well images were reconstructed: psnr, ssim, mse, rec, retrieval and, where asked, lpips, on pixels in 0..1.

Each original is compared with the guess that the optimal matching gives it. With fewer guesses than originals
the rest have no psnr, ssim and mse, and count as misses in rec and retrieval.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedxray import imaging
from fedxray.errors import BadInput
from fedxray.metrics.lpips import Lpips
from fedxray.metrics.paper_images import variants
from fedxray.metrics.scores import Scores, from_records


def image_scores(
    guess: Tensor,
    truth: Tensor,
    *,
    recognised_above: float,
    others: Tensor | None = None,
    papers: Sequence[str] = (),
    lpips: Lpips | None = None,
) -> Scores:
    """Scores of guess [g, c, h, w] matched to truth [t, c, h, w]; retrieval is among others [m, c, h, w].

    `papers` adds the variants of those papers, as psnr_002; weights of `lpips` add that distance.
    """
    places = imaging.match(guess, truth)
    return from_records(image_records(guess, truth, places, recognised_above, others, papers, lpips))


def image_scores_by_index(
    guess: Tensor,
    truth: Tensor,
    *,
    recognised_above: float,
    others: Tensor | None = None,
    papers: Sequence[str] = (),
    lpips: Lpips | None = None,
) -> Scores:
    """The same scores with guess i compared with truth i; names end in _by_index."""
    if len(guess) != len(truth):
        remedy = "Match by content where the order or the number of originals is unknown."
        raise BadInput("guess", expected=f"{len(truth)} images", got=len(guess), remedy=remedy)
    places = torch.arange(len(truth), device=truth.device)
    records = image_records(guess, truth, places, recognised_above, others, papers, lpips)
    return from_records({f"{name}_by_index": values for name, values in records.items()})


def class_image_scores(guess: Tensor, labels: Tensor, truth: Tensor, classes: Tensor) -> Scores:
    """How alike the guess of each class [g, c, h, w], labels [g], is to true images [t, c, h, w] of classes [t].

    The rule: a guess is held against every true image of its class in turn, the mean counts; then the mean over the
    classes that have any. So more images of a class make no guess better, and one blurred mean is no original.
    """
    ssims, psnrs = [], []
    for image, label in zip(guess, labels, strict=True):
        wanted = truth[classes == label]
        if len(wanted):
            shown = image.expand_as(wanted)
            ssims.append(imaging.ssim(shown, wanted).double().mean())
            psnrs.append(imaging.psnr(shown, wanted).double().mean())
    if not ssims:
        return Scores(means={}, records={})
    means = {"class_ssim": float(torch.stack(ssims).mean()), "class_psnr": float(torch.stack(psnrs).mean())}
    return Scores(means=means, records={})


def image_records(
    guess: Tensor,
    truth: Tensor,
    places: Tensor,
    recognised_above: float,
    others: Tensor | None,
    papers: Sequence[str] = (),
    lpips: Lpips | None = None,
) -> dict[str, Tensor]:
    """Every metric for each truth, places [t] being its guess or -1; retrieval only if there are others."""
    given = places >= 0
    chosen, wanted = guess[places[given]], truth[given]
    psnr = imaging.psnr(chosen, wanted)
    records = {
        "psnr": _spread(psnr, given, float("nan")),
        "ssim": _spread(imaging.ssim(chosen, wanted), given, float("nan")),
        "mse": _spread(imaging.mse(chosen, wanted), given, float("nan")),
        "rec": _spread((psnr > recognised_above).to(psnr.dtype), given, 0.0),
    }
    if others is not None and len(others):
        found = imaging.retrieved(chosen, wanted, others)
        records["retrieval"] = _spread(found.to(psnr.dtype), given, 0.0)
    if lpips is not None:
        records["lpips"] = _spread(lpips.distance(chosen, wanted), given, float("nan"))
    for paper in papers:
        for name, measure in variants(paper).items():
            records[name] = _spread(measure(chosen, wanted), given, float("nan"))
    return records


def _spread(values: Tensor, given: Tensor, missing: float) -> Tensor:
    full = torch.full(given.shape, missing, dtype=values.dtype, device=values.device)
    return full.masked_scatter(given, values)
