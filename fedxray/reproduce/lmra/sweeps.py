"""Figures 2, 3, 4, 6 and 7: what the number of clients, batches, epochs and records does to the attacks.

The figures are drawings, so only what the text says of them is compared.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Column, Difference, Reproduction, Request
from fedxray.reproduce.lmra.setting import (
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
    sources,
    targets,
)

CLIENTS = {"leaf": (10, 20, 40, 100), "att-faces": (10, 20, 40)}
BATCHES = {"leaf": (32, 128, 512, 2000), "adult": (32, 128, 512, 2000), "att-faces": (4, 16, 64)}
EPOCHS = {"leaf": (1, 2, 5, 10), "adult": (1, 2, 5, 10), "att-faces": (1, 5, 10)}
RECORDS = {"leaf": (64, 256, 1024, 2000), "adult": (64, 256, 1024)}
SHRINK = 8  # of batches and records at the small scale, as that of the data
GUESSES = ("global", "last", "heuristic", "extrapolate-100", "active")
USED = ("global", "last", "heuristic", "active")
TOLD = ("last", "heuristic")
SHOWN = ("global", "last", "heuristic")


def rows_of(values: dict[str, tuple[int, ...]]) -> tuple[str, ...]:
    """All rows of a sweep, as data-VALUE."""
    return tuple(f"{data}-{value}" for data, held in values.items() for value in held)


def parts(row: str) -> tuple[str, int]:
    """Data set and value of a row."""
    data, _, value = row.rpartition("-")
    return data, int(value)


def attacks(data: str, request: Request) -> list[dict[str, Any]]:
    """On tables models, attributes and sources; on faces models and images of classes."""
    chosen = targets(data, request, small=2)
    one = chosen[:1] if request.is_small else chosen
    if data == "att-faces":
        return [*models(SHOWN, chosen), gradient_images(one, request), *class_images(SHOWN, chosen)]
    inner = [gradient_attributes(chosen), *attributes(USED, chosen)]
    return [*models(GUESSES, chosen), *inner, majority_sources(chosen), *sources(TOLD, one)]


def by_clients(request: Request, row: str) -> dict[str, Any]:
    """So many clients."""
    data, value = parts(row)
    return {**federation_of(data, request, clients=value), "attack": attacks(data, request)}


def by_batch(request: Request, row: str) -> dict[str, Any]:
    """So many examples in a batch; the small scale has an eighth of them in tables."""
    data, value = parts(row)
    size = value // SHRINK if request.is_small and data != "att-faces" else value
    return {**federation_of(data, request, batch_size=size), "attack": attacks(data, request)}


def by_epochs(request: Request, row: str) -> dict[str, Any]:
    """So many local epochs."""
    data, value = parts(row)
    return {**federation_of(data, request, epochs=value), "attack": attacks(data, request)}


def by_records(request: Request, row: str) -> dict[str, Any]:
    """So many examples of every client, nested; batches of 256 or of all that there are."""
    data, value = parts(row)
    size, batch = (value // SHRINK, 256 // SHRINK) if request.is_small else (value, 256)
    chosen = targets(data, request, small=2)
    inner = [gradient_attributes(chosen), *attributes(USED, chosen)]
    made = federation_of(data, request, examples=size, batch_size=min(batch, size))
    return {**made, "attack": inner}


def across(values: dict[str, tuple[int, ...]], column: str, **more: Any) -> tuple[Difference, ...]:
    """One column at the first value against the last one, for the data sets that have it."""
    return tuple(
        Difference(left=column, right=column, rows=(f"{data}-{held[0]}", f"{data}-{held[-1]}"), **more)
        for data, held in values.items()
        if (data == "att-faces") == column.startswith("sra")
    )


COLUMNS = (
    *columns(GUESSES, ("zest", "training_loss", "training_accuracy")),
    Column(attack="aia-gradients", metric="accuracy", called="SOTA"),
    *columns(USED, ("accuracy",), "aia-"),
    Column(attack="sra-gradients", metric="ssim", called="SOTA"),
    *columns(SHOWN, ("class_ssim",), "sra-"),
    Column(attack="sia-majority", metric="accuracy", called="SOTA"),
    *columns(TOLD, ("accuracy",), "sia-"),
)
ORDER = (
    *beats("heuristic", "global", "last", metrics=("zest",)),
    *beats("aia-heuristic", "aia-gradients"),
    *beats("sia-heuristic", "sia-majority"),
    *beats("sra-heuristic", "sra-last"),
)

LMRA_CLIENTS = Reproduction(
    name="lmra-clients",
    shows="How the attacks fare when more clients take part.",
    paper=paper(
        "Figure 4", trend="the number of clients has a limited impact; source inference falls a little"
    ),
    rows=rows_of(CLIENTS),
    small_rows=("leaf-10", "leaf-20"),
    columns=COLUMNS,
    differences=(*ORDER, *across(CLIENTS, "sia-majority", expected="above")),
    plan=by_clients,
    why=f"{WHY}; the paper duplicates clients of AT&T, here each has fewer people of its own; {STAND_IN}",
)
LMRA_BATCH_SIZE = Reproduction(
    name="lmra-batch-size",
    shows="How the attacks fare when clients train on larger batches.",
    paper=paper(
        "Figures 3 and 6 (Appendix D.3)",
        trend="larger batches help the local model and attributes from gradients; "
        "images from gradients lose 9.2 points",
    ),
    rows=rows_of(BATCHES),
    small_rows=("leaf-128", "leaf-2000"),
    columns=COLUMNS,
    differences=(
        *ORDER,
        *across(BATCHES, "heuristic", metrics=("zest",), expected="below"),
        *across(BATCHES, "aia-gradients", expected="below"),
        *across(BATCHES, "sra-gradients", expected="above"),
    ),
    plan=by_batch,
    why=f"{WHY}; rows are named after the paper's batches, the small scale divides those of tables by {SHRINK}",
)
LMRA_EPOCHS = Reproduction(
    name="lmra-epochs",
    shows="How the attacks fare when clients train for more local epochs.",
    paper=paper(
        "Figures 3 and 7 (Appendix D.3)",
        trend="attributes from gradients fall with the epochs, those from reconstructed models do not; "
        "images from gradients lose 5.1 points; source inference is insensitive",
    ),
    rows=rows_of(EPOCHS),
    small_rows=("leaf-1", "leaf-5"),
    columns=COLUMNS,
    differences=(
        *ORDER,
        *across(EPOCHS, "aia-gradients", expected="above"),
        *across(EPOCHS, "sra-gradients", expected="above"),
        Difference(left="aia-gradients", right="aia-gradients", rows=("leaf-1", "leaf-5"), expected="above"),
    ),
    plan=by_epochs,
    why=WHY,
)
LMRA_DATASET_SIZE = Reproduction(
    name="lmra-dataset-size",
    shows="How attribute inference fares when clients hold more records.",
    paper=paper(
        "Figure 2",
        trend="attributes from gradients fall from 73 to 58 % on Leaf and from 77 to 61 % on Adult as clients hold "
        "more records, attributes from reconstructed models are stable",
    ),
    rows=rows_of(RECORDS),
    small_rows=("leaf-64", "leaf-1024", "adult-64", "adult-1024"),
    columns=(
        Column(attack="aia-gradients", metric="accuracy", called="SOTA"),
        *columns(USED, ("accuracy",), "aia-"),
    ),
    differences=(
        *beats("aia-heuristic", "aia-gradients"),
        *(
            Difference(
                left="aia-gradients",
                right="aia-gradients",
                rows=(f"{data}-64", f"{data}-1024"),
                expected="above",
            )
            for data in RECORDS
        ),
    ),
    plan=by_records,
    why=f"{WHY}; rows are named after the paper's scale, the small one divides records by {SHRINK}",
)
