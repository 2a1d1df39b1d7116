"""Images that a prior may be trained on: a public data set, a folder, or what no client of a plan holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from fedxray.audit.plan import read_plan
from fedxray.audit.prepare import prepare
from fedxray.data import Dataset, load
from fedxray.data.catalog import DATASETS, find_loader, options_of
from fedxray.errors import BadInput
from fedxray.restore.card import known_among, record_hashes
from fedxray.restore.training import Images


def images_of_data(data: str, *, size: int | None = None, part: str | None = None) -> Images:
    """The images of a data set of the catalogue, or of a folder or .npz file."""
    given: dict[str, Any] = {
        name: value for name, value in (("size", size), ("part", part)) if value is not None
    }
    if data in DATASETS:
        find_loader(data)
        for name in set(given) - set(options_of(data)):
            raise BadInput(
                f"--{name}", expected=f"a setting of {data}", got=given[name], remedy="Leave it out."
            )
        found, source = load(data, **given), " ".join([data, *(f"{k}={v}" for k, v in given.items())])
    else:
        place = Path(os.path.expanduser(data))
        if not os.path.exists(place):
            raise BadInput(
                "--data",
                expected="a data set of `fedxray list datasets`, or a folder of images by class",
                got=repr(data),
                remedy="Check the name or the path.",
            )
        found, source = load(path=place, **given), place.name
    return _as_images(found, torch.arange(len(found)), source)


def images_of_plan(file: Path) -> Images:
    """The images of a plan's data that are in no client's hands, held out or not, under any of its seeds."""
    plan = read_plan(file)
    if plan.transcript is not None:
        raise BadInput(
            "--plan",
            expected="a plan that simulates",
            got="one that reads a recording",
            remedy="Say --data with images that the recorded node has never seen.",
        )
    free: torch.Tensor | None = None
    taken: set[str] = set()
    for seed in plan.seeds:
        found = prepare(plan, plan.defences[0].title, seed)
        _check_images(found.dataset)
        held = torch.cat([*found.split.train, *found.split.holdout])
        own = torch.ones(len(found.dataset), dtype=torch.bool)
        own[held] = False
        free = own if free is None else free & own
        taken |= set(record_hashes(found.dataset.space.to_pixels(found.dataset.x[held])))
    assert free is not None  # a plan has at least one seed
    images = _as_images(found.dataset, torch.nonzero(free)[:, 0], f"{plan.name}: {found.dataset.name}")
    # The same picture may stand in the data twice, once with a client, be it mirrored.
    twins = known_among(taken, images.pixels)
    return Images(
        pixels=images.pixels[~twins],
        labels=images.labels[~twins],
        classes=images.classes,
        source=images.source,
    )


def _check_images(found: Dataset) -> None:
    if found.space.kind != "image" or found.space.target != "classification":
        raise BadInput(
            "--data", expected="images with classes", got=found.name, remedy="Choose a data set of images."
        )


def _as_images(found: Dataset, index: torch.Tensor, source: str) -> Images:
    _check_images(found)
    pixels = found.space.to_pixels(found.x[index]).clamp(0, 1)
    return Images(pixels=pixels, labels=found.y[index], classes=found.space.classes, source=source)


def shortened(images: Images, limit: int | None) -> Images:
    """The first images only, where a limit is given."""
    kept: dict[str, Any] = {"pixels": images.pixels[:limit], "labels": images.labels[:limit]}
    return Images(**kept, classes=images.classes, source=images.source)
