"""Table 1: how near the models of a client come to her own, and what attributes, sources and images they give away."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Column, Reproduction, Request
from fedxray.reproduce.lmra.setting import (
    DATA,
    MODELS,
    STAND_IN,
    WHY,
    attributes,
    beats,
    class_images,
    columns,
    federation_of,
    gradient_attributes,
    gradient_images,
    majority_sources,
    models,
    paper,
    published,
    sources,
    targets,
    together,
)

ROWS = tuple(f"{data}{norm}" for norm in ("", "-bn") for data in DATA)
GUESSES = tuple(MODELS)
USED = (
    "global",
    "last",
    "heuristic",
    "heuristic-follow-span",
    "extrapolate-100",
    "send-back",
    "active",
    "optimum",
)
# One model for all tells no client from another, and the oracle holds the records of one client alone.
TOLD = tuple(name for name in USED if name not in ("global", "optimum"))
SHOWN = ("global", "last", "heuristic", "optimum")
NUMBERS = together(
    published(
        """
flights      71.4 70.7 84.2
adult        70.7 68.6 88.4
leaf         67.3 65.3 78.2
att-faces    52.8 55.2 57.3
flights-bn   61.5 63.3 79.1
adult-bn     63.2 61.5 83.4
leaf-bn      60.7 60.1 74.5
att-faces-bn 50.2 51.6 55.9
""",
        "zest",
        ("global", "last", "heuristic"),
    ),
    published(
        """
flights      73.1 70.7 70.2 77.8
adult        67.6 61.3 62.1 73.1
leaf         66.3 61.1 60.6 71.1
flights-bn   71.9 70.3 68.6 74.2
adult-bn     64.1 60.1 59.6 70.6
leaf-bn      62.9 56.1 57.8 68.9
""",
        "accuracy",
        ("aia-gradients", "aia-global", "aia-last", "aia-heuristic"),
    ),
    published("att-faces 26.1\natt-faces-bn 24.1", "ssim", ("sra-gradients",)),
    published(
        "att-faces 25.5 24.3 34.3\natt-faces-bn 23.6 23.7 33.2",
        "class_ssim",
        ("sra-global", "sra-last", "sra-heuristic"),
    ),
    published(
        """
flights      82.1 64.4 84.3
adult        77.6 61.0 79.4
leaf         77.4 61.4 79.3
att-faces    58.9 52.3 63.8
flights-bn   80.7 59.7 81.3
adult-bn     75.1 60.5 78.6
leaf-bn      74.6 59.3 77.9
att-faces-bn 57.1 50.8 61.6
""",
        "accuracy",
        ("sia-majority", "sia-last", "sia-heuristic"),
    ),
)


def plan(request: Request, row: str) -> dict[str, Any]:
    """One data set, with or without BatchNorm."""
    data = row.removesuffix("-bn")
    chosen = targets(data, request)
    one = chosen[:1] if request.is_small else chosen  # a case of these costs as much as ten others
    if data == "att-faces":
        inner = [gradient_images(one, request), *class_images(SHOWN, chosen)]
    else:
        inner = [gradient_attributes(chosen), *attributes(USED, chosen)]
    attacks = [*models(GUESSES, chosen), *inner, majority_sources(chosen), *sources(TOLD, one)]
    return {**federation_of(data, request, norm=row.endswith("-bn")), "attack": attacks}


TABLE1 = Reproduction(
    name="lmra-table1",
    shows="How like a client's own model each guess of it is, and what attributes, sources and images it gives away.",
    paper=paper("Table 1", NUMBERS),
    rows=ROWS,
    small_rows=("leaf", "adult"),
    columns=(
        *columns(GUESSES, ("zest", "training_loss", "training_accuracy")),
        Column(attack="aia-gradients", metric="accuracy", called="SOTA"),
        *columns(USED, ("accuracy",), "aia-"),
        Column(attack="sra-gradients", metric="ssim", called="SOTA"),
        *columns(SHOWN, ("class_ssim",), "sra-"),
        Column(attack="sia-majority", metric="accuracy", called="SOTA"),
        *columns(TOLD, ("accuracy",), "sia-"),
    ),
    differences=(
        *beats("heuristic", "global", "last", "extrapolate-100", metrics=("zest",)),
        *beats("aia-heuristic", "aia-gradients", "aia-global", "aia-last"),
        *beats("sra-heuristic", "sra-global", "sra-last"),
        *beats("sia-heuristic", "sia-majority", "sia-last"),
    ),
    plan=plan,
    why=f"{WHY}; {STAND_IN}; the small scale has small networks and few clients' records",
)
