"""Every metric by name: what it scores, the direction in which the attacker does better, and the margin of its verdict.

The margin is the smallest gain over the floor that counts as a leak. Names with the suffix `_by_index`
(images compared in the order given) or of a paper's variant (`psnr_awa`, `ssim_curious`) share the plain entry.

The sentences here are the only ones: report and docs use them. A new metric is one function in a file of its own and
one line here, with its "module:function" as `formula`: scoring then computes it for every guess of its kinds, and
summary, gate and report use it. Optional metrics that a plan may request are LPIPS and variants of papers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from fedxray.errors import BadInput, unknown_name

if TYPE_CHECKING:
    from fedxray.data.dataset import Space
    from fedxray.metrics.images import Lpips


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric; `better` is the direction in which the attacker does better.

    `formula` names a function of the guess and the truth that returns a number, one value for each true record, or
    None where nothing can be compared. Its two tensors are, by kind: attributes, numbers of categories or values
    [records]; membership, scores and whether each record is a member [records]; sources, the named client [records]
    and whether each client owns the record [records, clients]; images and rows, the guesses and the true ones;
    labels, counts [classes]. Metrics without a formula are computed by the scoring of their kind.
    """

    kinds: tuple[str, ...]
    better: Literal["up", "down"]
    margin: float
    what: str  # a sentence for the report, the terminal and the docs
    best: float | None  # the value of a perfect attack; None where it is unbounded
    per_example: bool = False  # whether the margin is a share of the examples in question
    formula: str = ""  # "module:function"

    @property
    def down(self) -> bool:
        """Whether smaller values mean more leak."""
        return self.better == "down"


def _up(kinds: str, margin: float, what: str, best: float | None = 1.0, formula: str = "") -> Metric:
    """A metric that grows with the leak; several kinds are separated by spaces."""
    return Metric(kinds=tuple(kinds.split()), better="up", margin=margin, what=what, best=best, formula=formula)


def _down(kinds: str, margin: float, what: str, formula: str = "") -> Metric:
    """A metric that falls to 0 as the leak grows."""
    return Metric(kinds=tuple(kinds.split()), better="down", margin=margin, what=what, best=0.0, formula=formula)


METRICS: dict[str, Metric] = {
    "accuracy": _up("attributes sources", 0.05, "share of records inferred correctly"),
    "balanced_accuracy": _up(
        "attributes", 0.05, "mean over the true categories of the share of records inferred correctly"
    ),
    "within_tolerance": _up(
        "attributes", 0.05, "share of values inferred within the tolerance (a tenth of the column's range)"
    ),
    "auc": _up("membership", 0.05, "ROC AUC, members vs non-members (0.5 = chance)"),
    "auc_subject": _up(
        "membership", 0.05, "ROC AUC by person, people with records in training vs people without (0.5 = chance)"
    ),
    "auc_subject_other": _up(
        "membership", 0.05, "ROC AUC by person, from records of theirs that were never trained on (0.5 = chance)"
    ),
    "tpr_at_1pct_fpr": _up(
        "membership", 0.05, "true-positive rate at a false-positive rate of 1 % (from 1,000 non-members on)"
    ),
    "tpr_at_0p1pct_fpr": _up(
        "membership", 0.05, "true-positive rate at a false-positive rate of 0.1 % (from 10,000 non-members on)"
    ),
    "psnr": _up(
        "images",
        1.0,
        "peak signal-to-noise ratio in dB, mean over optimally matched images, peak 1, unclipped; psnr_awa as in Song "
        "et al. 2023 (the peak is the original's largest value), psnr_curious as in curious client, 2024 (integers, "
        "peak 255)",
        None,
    ),
    "ssim": _up(
        "images",
        0.05,
        "structural similarity, Gaussian window 11, sigma 1.5, inside the image; ssim_awa (Song et al. 2023) and "
        "ssim_curious (curious client, 2024) use one window over the whole image",
    ),
    "mse": _down("images", 0.005, "mean squared error per image, pixels in 0..1"),
    "rec": _up("images", 0.05, "share of images with a PSNR above the data set's threshold"),
    "retrieval": _up(
        "images", 0.05, "share of guesses that are nearer to their original than to up to 999 other images"
    ),
    "lpips": _down(
        "images", 0.05, "learned perceptual distance (AlexNet, whose last maps are 1 x 1 for images of 32 pixels)"
    ),
    "class_ssim": _up(
        "class-images",
        0.05,
        "mean SSIM of the guessed image of a class with the client's training images of that class",
    ),
    "class_psnr": _up(
        "class-images",
        1.0,
        "mean PSNR of the guessed image of a class with the client's training images of that class",
        None,
    ),
    "class_recognised": _up(
        "class-images",
        0.05,
        "share of the guessed images of a class that the five nearest images of all clients assign to that class",
    ),
    "label_error": Metric(
        kinds=("labels",),
        better="down",
        margin=0.05,
        what="number of wrong labels: half the sum of count differences over classes; the margin is a share of them",
        best=0.0,
        per_example=True,
    ),
    "label_accuracy": _up("labels", 0.05, "1 - label_error / examples"),
    "values_recovered": _up("rows", 0.05, "share of values of matched rows recovered within the tolerance"),
    "zest": _up("model", 0.05, "similarity of the local explanations of two models, -1..1"),
    "parameter_distance": _down("model", 0.05, "relative L2 distance of the parameters"),
    "training_loss": _down(
        "model",
        0.05,
        "loss of the model on the client's training records; of a regression, in units of the targets' variance",
    ),
    "training_accuracy": _up("model", 0.05, "share of the client's training records that the model predicts correctly"),
    "training_mape": _down("model", 0.05, "mean relative error of the model on the client's training records"),
}
BY_PERSON = ("auc_subject", "auc_subject_other")  # metrics whose unit is a person with several records
# True-positive rates by name: the false-positive rate, and the non-members from which on it is more than a guess.
RATES = {"tpr_at_1pct_fpr": (0.01, 1_000), "tpr_at_0p1pct_fpr": (0.001, 10_000)}
PAPER_VARIANT = re.compile(r"(psnr|ssim)_(awa|curious)$")  # as the paper computes it
# The primary metric of a kind of evidence.
MAIN_METRIC: dict[str, str] = {
    "attributes": "accuracy",
    "sources": "accuracy",
    "membership": "auc",
    "images": "psnr",
    "class-images": "class_ssim",
    "labels": "label_error",
    "rows": "values_recovered",
    "model": "parameter_distance",
}


def base_metric(name: str) -> str:
    """The name of a metric without the suffix of a paper's variant or of matching by index."""
    return PAPER_VARIANT.sub(r"\1", name.removesuffix("_by_index"))


def metric(name: str) -> Metric:
    """The entry of a metric by name, which may have a suffix; refused where it is unknown."""
    entry = METRICS.get(base_metric(name))
    if entry is None or (name.endswith("_by_index") and "images" not in entry.kinds):
        raise unknown_name("metric", name, METRICS)
    return entry


# Optional metrics. Images are matched by similarity unless a name ends in _by_index: then they are paired by their
# labels, and images of equal labels in order.

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
