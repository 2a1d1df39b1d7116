"""Data sets that come with scikit-learn, so nothing is downloaded: digits and diabetes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.columns import make_table
from fedxray.data.images import make_images
from fedxray.data.space import Dataset

DIGITS_MEAN, DIGITS_STD = (0.3053,), (0.3760,)  # of all pixels


def digits(*, normalise: bool = False) -> Dataset:
    """1,797 handwritten digits of 8 x 8 pixels, in 0..1 unless normalised."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return make_images(
        "digits",
        bunch.images / 16.0,  # [1797, 8, 8]
        bunch.target,
        classes=tuple(str(digit) for digit in range(10)),
        mean=DIGITS_MEAN if normalise else (),
        std=DIGITS_STD if normalise else (),
        note="Optical recognition of handwritten digits (UCI), as bundled with scikit-learn.",
    )


def diabetes(*, sensitive: str | None = "sex", scale_target: bool | None = None) -> Dataset:
    """442 patients, ten columns, disease progression after one year (standardised unless told otherwise)."""
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    names = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")
    raw: dict[str, NDArray[Any]] = {name: bunch.data[:, place] for place, name in enumerate(names)}
    raw["progression"] = np.asarray(bunch.target, dtype=np.float64)
    return make_table(
        "diabetes",
        raw,
        target="progression",
        classification=False,
        continuous=[name for name in names if name != "sex"],
        categorical=["sex"],
        sensitive=sensitive,
        scale_target=scale_target is None or scale_target,
        note="Diabetes data of Efron et al. (2004), as bundled with scikit-learn.",
    )
