"""Optional metrics that a plan may request: LPIPS, whose weights are loaded here, and variants of papers.

Images are matched by similarity unless a name ends in _by_index: then they are paired by their labels, and images of
equal labels in order.
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
PLAIN_BY_INDEX = ("psnr", "ssim", "mse")  # usual metrics that have such a variant


def check_metrics(place: str, wanted: Sequence[str]) -> None:
    """Refuse a metric that is not optional, or unknown; `place` is the key of the plan."""
    for name in wanted:
        if name not in extra_names():
            raise unknown_name(place, name, extra_names())


def check_usable(place: str, wanted: Sequence[str], attack: str, kind: str, space: Space) -> None:
    """Refuse metrics that cannot be computed for this attack's kind of evidence, or without weights, before a run."""
    if not wanted:
        return
    if kind != "images":
        expected = "an attack that gives images"
        raise BadInput(place, expected=expected, got=f"{attack}, which gives {kind}", remedy="Leave metrics out.")
    if LPIPS in wanted:
        from fedxray.metrics.images import check_shape

        check_shape(space.shape)
        perceptual()


def extra_names() -> list[str]:
    """The names of all optional metrics."""
    from fedxray.metrics.images import VARIANTS

    papers = [name for variants in VARIANTS.values() for name in variants]
    return [LPIPS, *papers, *(f"{name}{BY_INDEX}" for name in (*PLAIN_BY_INDEX, *papers))]


def scored_with(wanted: Sequence[str]) -> dict[str, Any]:
    """The arguments of `score` for these metrics."""
    variants = {name.removesuffix(BY_INDEX) for name in wanted} - {LPIPS, *PLAIN_BY_INDEX}
    return {
        "papers": tuple(sorted({name.rpartition("_")[2] for name in variants})),
        "lpips": perceptual() if LPIPS in wanted else None,
        "by_index": any(name.endswith(BY_INDEX) for name in wanted),
    }


@lru_cache(maxsize=1)
def perceptual() -> Lpips:
    """LPIPS with its published weights, read once."""
    from fedxray.data.store import lpips_weights
    from fedxray.metrics.images import from_arrays

    return from_arrays(lpips_weights())
