"""Metrics that a plan asks for beyond the usual ones: LPIPS, whose weights are loaded here, and papers' variants.

Images are matched by likeness unless a name ends in _by_index: then they are paired by their labels, and equal labels
in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fedxray.errors import BadInput, unknown_name

if TYPE_CHECKING:
    from fedxray.data import Space
    from fedxray.metrics.images import Lpips

LPIPS = "lpips"
BY_INDEX = "_by_index"
PLAIN_BY_INDEX = ("psnr", "ssim", "mse")  # of the usual metrics


def check_metrics(place: str, wanted: Sequence[str]) -> None:
    """Refuse a metric that is scored anyway, or unknown."""
    for name in wanted:
        if name not in extra_names():
            raise unknown_name(place, name, extra_names())


def check_usable(place: str, wanted: Sequence[str], attack: str, kind: str, space: Space) -> None:
    """Refuse what cannot be measured on this attack's guesses, or without weights, before anything starts."""
    if not wanted:
        return
    if kind != "images":
        raise BadInput(
            place,
            expected="an attack that gives images",
            got=f"{attack}, which gives {kind}",
            remedy="Leave metrics out.",
        )
    if LPIPS in wanted:
        from fedxray.metrics.images import check_shape

        check_shape(space.shape)
        perceptual()


def extra_names() -> list[str]:
    """All that can be asked for."""
    from fedxray.metrics.images import VARIANTS

    papers = [name for variants in VARIANTS.values() for name in variants]
    return [LPIPS, *papers, *(f"{name}{BY_INDEX}" for name in (*PLAIN_BY_INDEX, *papers))]


def scored_with(wanted: Sequence[str]) -> dict[str, Any]:
    """What `score` must be given so that it measures these."""
    variants = {name.removesuffix(BY_INDEX) for name in wanted} - {LPIPS, *PLAIN_BY_INDEX}
    return {
        "papers": tuple(sorted({name.rpartition("_")[2] for name in variants})),
        "lpips": perceptual() if LPIPS in wanted else None,
        "by_index": any(name.endswith(BY_INDEX) for name in wanted),
    }


@lru_cache(maxsize=1)
def perceptual() -> Lpips:
    """The real weights of LPIPS, read once."""
    from fedxray.data.store import lpips_weights
    from fedxray.metrics.images import from_arrays

    return from_arrays(lpips_weights())
