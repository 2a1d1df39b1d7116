"""What a node did with each record: trained on it, held it out, or it belongs to nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedxray.data.checks import shown
from fedxray.errors import BadInput

USE = "use of the record"  # its place among the raw columns
USES = ("train", "holdout", "public")


def check_uses(path: Path, name: str, values: NDArray[Any], count: int) -> NDArray[Any]:
    """The values of such a column or array, one of three words each."""
    where = f"{name} of {shown(str(path), longest=400)}"
    if values.shape != (count,) or values.dtype.kind != "U":
        got = f"{values.dtype} of shape {values.shape}"
        raise BadInput(where, expected=f"one word for each of {count} records", got=got, remedy=_remedy())
    for row in np.flatnonzero(~np.isin(values, USES))[:1]:
        raise BadInput(
            where,
            expected=f"one of {', '.join(USES)}",
            got=f"{shown(str(values[row]))} for record {row}",
            remedy=_remedy(),
        )
    if not (values == "train").any():
        raise BadInput(where, expected="records that were trained on", got="none", remedy=_remedy())
    return values


def _remedy() -> str:
    return 'Say "train", "holdout" or "public" for each record.'


def rows_by_use(use: NDArray[Any]) -> tuple[Tensor, Tensor, Tensor]:
    """The records to train on, held out, and of nobody, each [records] int64."""
    every = torch.arange(len(use), device="cpu")
    train, held, public = (every[torch.from_numpy(np.asarray(use == word))] for word in USES)
    return train, held, public
