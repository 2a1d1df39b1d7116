"""`fedxray train-prior`: what it takes, prints and leaves behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedxray.cli_audit import compute_with_one_thread
from fedxray.errors import BadInput

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
    from fedxray.audit.public_images import images_of_data, images_of_plan, shortened

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
