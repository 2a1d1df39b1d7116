"""Figure 1: faces out of a reconstructed, a returned and the global model, and out of an update.

Every row is an audit with its own report; the report shows the images beside the first picture of each person.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Column, Reproduction, Request
from fedxray.reproduce.lmra.setting import (
    WHY,
    beats,
    class_images,
    columns,
    federation_of,
    gradient_images,
    paper,
    targets,
    together,
)
from fedxray.reproduce.lmra.table1 import NUMBERS, SHOWN

BATCHES = {"att-faces": 32, "att-faces-64": 64}  # Figure 1, and the figure of Appendix D.2


def plan(request: Request, row: str) -> dict[str, Any]:
    """One batch size."""
    chosen = targets("att-faces", request, small=2)
    rival = gradient_images(chosen[:1] if request.is_small else chosen, request)
    attacks = [rival, *class_images(SHOWN, chosen)]
    return {**federation_of("att-faces", request, batch_size=BATCHES[row]), "attack": attacks}


PRINTED = {name: held for name, held in NUMBERS["att-faces"].items() if name.startswith("sra-")}
LMRA_IMAGES = Reproduction(
    name="lmra-images",
    shows="What faces come out of a client's models and out of one update.",
    paper=paper("Figure 1 and Table 1 (SRA)", together({"att-faces": PRINTED})),
    rows=tuple(BATCHES),
    small_rows=("att-faces",),
    columns=(
        Column(attack="sra-gradients", metric="ssim", called="SOTA"),
        *columns(SHOWN, ("class_ssim", "class_psnr"), "sra-"),
    ),
    differences=beats("sra-heuristic", "sra-global", "sra-last", metrics=("class_ssim",)),
    plan=plan,
    why=f"{WHY}; the paper does not say which picture of a person a reconstruction is held against, here it is each of "
    "the client's in turn and the mean counts",
)
