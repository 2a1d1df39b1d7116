"""`fedxray train-prior`: what it takes, prints and leaves behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedxray.audit.plan import read_plan
from fedxray.audit.run.prepare import prepare
from fedxray.cli.audit import compute_with_one_thread
from fedxray.data import Dataset, load
from fedxray.data.catalog import find_loader, names, options_of
from fedxray.errors import BadInput
from fedxray.restore.loading import known_among, record_hashes
from fedxray.restore.training import Images

if TYPE_CHECKING:
    from fedxray.progress import Report, Step

OFTEN = 20  # lines of progress in a log


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
    """Train a prior and say where it is."""
    compute_with_one_thread()
    if (data is None) == (plan is None):
        raise BadInput(
            "--data",
            expected="either --data or --plan",
            got="neither" if data is None else "both",
            remedy="For instance --data cifar10.",
        )
    if plan is not None and (size is not None or part is not None):
        raise BadInput(
            "--size", expected="no --size or --part beside --plan", got="one", remedy="The plan says both."
        )
    from fedxray.restore.training import Training, check_place, train_prior

    training = Training(**settings)
    check_place(out)

    images = images_of_plan(plan) if plan is not None else images_of_data(str(data), size=size, part=part)
    images = shortened(images, limit)
    if not quiet:
        shape = " x ".join(map(str, images.pixels.shape[1:]))
        print(f"{len(images.pixels)} images of {shape}, {len(images.classes)} classes: {images.source}")
    with telling(quiet) as report:
        train_prior(images, training, out, report=report)
    if not quiet:
        print(f"Written: {out} (weights and card.json)")
        used = f'restore = {{ name = "{restorer_for(training.kind)}", prior = "{out}" }}'
        print(f"Use it: {used} in an attack; a path is read from the plan's folder.")


def restorer_for(kind: str) -> str:
    """A restorer that uses priors of this kind."""
    return {"ddpm": "ddrm", "dit": "mde", "gan": "gan"}[kind]


@contextmanager
def telling(quiet: bool) -> Iterator[Report]:
    """A bar where somebody looks, some lines in a log, nothing where asked."""
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

        def tell(step: Step) -> None:
            loss = "" if step.loss is None else f", loss {step.loss:.4f}"
            bar.update(line, completed=step.done, total=step.total, description=f"{step.what}{loss}")

        yield tell


def _lines(step: Step) -> None:
    """A line for every twentieth part."""
    if step.done * OFTEN // step.total != (step.done - 1) * OFTEN // step.total:
        loss = "" if step.loss is None else f", loss {step.loss:.4f}"
        print(f"{step.what}: {step.done}/{step.total}{loss}", file=sys.stderr, flush=True)


# --- Images that a prior may be trained on: a public data set, a folder, or what no client of a plan holds.


def images_of_data(data: str, *, size: int | None = None, part: str | None = None) -> Images:
    """The images of a data set of the catalogue, or of a folder or .npz file."""
    given: dict[str, Any] = {
        name: value for name, value in (("size", size), ("part", part)) if value is not None
    }
    if data in names():
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
