"""`fedxray train-prior`: the images that a prior is trained on, progress and output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedxray.audit.plan import read_plan
from fedxray.audit.run.prepare import prepare_first
from fedxray.cli.audit import compute_with_one_thread
from fedxray.data.catalog import find_loader, load, names, options_of
from fedxray.data.dataset import Dataset
from fedxray.errors import BadInput
from fedxray.restore.loading import known_among, record_hashes
from fedxray.restore.training import Images

if TYPE_CHECKING:
    from fedxray.progress import Report, Step

LOG_LINES = 20  # lines of progress in a log
RESTORER = {"ddpm": "ddrm", "dit": "mde", "gan": "gan"}  # one that uses priors of this kind


def run_training(
    data: str | None,
    plan: Path | None,
    size: int | None,
    part: str | None,
    limit: int | None,
    out: Path,
    settings: dict[str, Any],
    quiet: bool,
) -> None:
    """Train a prior and print where it is."""
    compute_with_one_thread()
    if (data is None) == (plan is None):
        expected = "either --data or --plan"
        remedy = "For instance --data cifar10."
        raise BadInput("--data", expected=expected, got="neither" if data is None else "both", remedy=remedy)
    if plan is not None and (size is not None or part is not None):
        raise BadInput("--size", expected="no --size or --part beside --plan", got="one", remedy="The plan sets both.")
    from fedxray.restore.training import Training, check_place, train_prior

    training = Training(**settings)
    check_place(out)

    images = images_of_plan(plan) if plan is not None else images_of_data(str(data), size=size, part=part)
    images = shortened(images, limit)
    if not quiet:
        shape = " x ".join(map(str, images.pixels.shape[1:]))
        print(f"{len(images.pixels)} images of {shape}, {len(images.classes)} classes: {images.source}")
    with training_progress(quiet) as report:
        train_prior(images, training, out, report=report)
    if not quiet:
        print(f"Written: {out} (weights and card.json)")
        used = f'restore = {{ name = "{RESTORER[training.kind]}", prior = "{out}" }}'
        print(f"Use it in an attack: {used}; paths are relative to the plan's folder.")


@contextmanager
def training_progress(quiet: bool) -> Iterator[Report]:
    """Show a bar on a terminal, some lines in a log, nothing where quiet."""
    from fedxray.progress import silent

    if quiet:
        yield silent
        return
    if not sys.stderr.isatty():
        yield _lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("starting", total=None)

        def show(step: Step) -> None:
            bar.update(line, completed=step.done, total=step.total, description=f"{step.what}{_loss(step)}")

        yield show


def _lines(step: Step) -> None:
    """Print a line for every twentieth of the steps."""
    if step.done * LOG_LINES // step.total != (step.done - 1) * LOG_LINES // step.total:
        print(f"{step.what}: {step.done}/{step.total}{_loss(step)}", file=sys.stderr, flush=True)


def _loss(step: Step) -> str:
    return "" if step.loss is None else f", loss {step.loss:.4f}"


# Images for a prior: a public data set, a folder, or what no client of a plan holds


def images_of_data(data: str, *, size: int | None = None, part: str | None = None) -> Images:
    """Return the images of a data set of the catalogue, or of a folder or .npz file."""
    given: dict[str, Any] = {name: value for name, value in (("size", size), ("part", part)) if value is not None}
    if data in names():
        find_loader(data)
        for name in set(given) - set(options_of(data)):
            raise BadInput(f"--{name}", expected=f"a setting of {data}", got=given[name], remedy="Leave it out.")
        dataset, source = load(data, **given), " ".join([data, *(f"{k}={v}" for k, v in given.items())])
    else:
        path = Path(os.path.expanduser(data))
        if not os.path.exists(path):
            expected = "a data set of `fedxray list datasets`, or a folder of images by class"
            raise BadInput("--data", expected=expected, got=repr(data), remedy="Check the name or the path.")
        dataset, source = load(path=path, **given), path.name
    return _as_images(dataset, torch.arange(len(dataset)), source)


def images_of_plan(file: Path) -> Images:
    """Return the images of a plan's data that no client holds, as training or held-out records, under any seed."""
    plan = read_plan(file)
    if plan.transcript is not None:
        remedy = "Use --data with images that the recorded node has never seen."
        raise BadInput("--plan", expected="a plan that simulates", got="one that reads a recording", remedy=remedy)
    free: torch.Tensor | None = None  # [records], True where no client holds the record
    held_hashes: set[str] = set()
    for seed in plan.seeds:
        prepared = prepare_first(plan, seed)
        dataset = prepared.dataset
        _check_images(dataset)
        held = torch.cat([*prepared.split.train, *prepared.split.holdout])
        unheld = torch.ones(len(dataset), dtype=torch.bool)
        unheld[held] = False
        free = unheld if free is None else free & unheld
        held_hashes |= set(record_hashes(dataset.space.to_pixels(dataset.x[held])))
    assert free is not None  # a plan has at least one seed
    images = _as_images(dataset, torch.nonzero(free)[:, 0], f"{plan.name}: {dataset.name}")
    # The same image may be in the data twice, once with a client, possibly mirrored.
    twins = known_among(held_hashes, images.pixels)
    return replace(images, pixels=images.pixels[~twins], labels=images.labels[~twins])


def _check_images(dataset: Dataset) -> None:
    if dataset.space.kind != "image" or dataset.space.target != "classification":
        expected = "images with classes"
        raise BadInput("--data", expected=expected, got=dataset.name, remedy="Choose a data set of images.")


def _as_images(dataset: Dataset, index: torch.Tensor, source: str) -> Images:
    _check_images(dataset)
    pixels = dataset.space.to_pixels(dataset.x[index]).clamp(0, 1)
    return Images(pixels=pixels, labels=dataset.y[index], classes=dataset.space.classes, source=source)


def shortened(images: Images, limit: int | None) -> Images:
    """Return the first images only, where a limit is given."""
    return replace(images, pixels=images.pixels[:limit], labels=images.labels[:limit])
