"""`fedxray import`: recordings from saved models of other programs, and the content of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import_app = typer.Typer(help="Make a recording from saved models, or list what one contains.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("--out", help="A new folder for the recording.")]
Examples = Annotated[int | None, typer.Option("--examples", min=1, help="Number of examples the node trained on.")]
Epochs = Annotated[int | None, typer.Option("--epochs", min=1, help="Local epochs per round.")]
BatchSize = Annotated[int | None, typer.Option("--batch-size", min=1, help="Examples per batch.")]
LearningRate = Annotated[float | None, typer.Option("--learning-rate", help="Learning rate of the node.")]
Momentum = Annotated[float | None, typer.Option("--momentum", help="Momentum of the node.")]


@import_app.command()
def checkpoints(
    before: Annotated[Path, typer.Argument(help="The model sent to the node (.safetensors, .pt, .npz).")],
    after: Annotated[Path, typer.Argument(help="The model that the node returned.")],
    out: Out = Path("recording"),
    round: Annotated[int, typer.Option("--round", min=1, help="Number of the round, counted from 1.")] = 1,
    examples: Examples = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    momentum: Momentum = None,
) -> None:
    """Make a recording of one round from two checkpoints."""
    from fedxray.integrations.checkpoints import import_pair

    recipe = _recipe(epochs, batch_size, learning_rate, momentum)
    import_pair(before, after, out, round=round, examples=examples, recipe=recipe)
    _print_written(out)


@import_app.command()
def rounds(
    folder: Annotated[Path, typer.Argument(help="A folder with one or two checkpoints per round.")],
    out: Out = Path("recording"),
    sent: Annotated[
        str, typer.Option("--sent", help="File pattern of the models that were sent.")
    ] = "global-{round}.*",
    reply: Annotated[
        str, typer.Option("--reply", help="File pattern of the returned models; '' for none.")
    ] = "local-{round}.*",
    examples: Examples = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    momentum: Momentum = None,
) -> None:
    """Make a recording of many rounds from a folder of checkpoints."""
    from fedxray.integrations.checkpoints import import_folder

    recipe = _recipe(epochs, batch_size, learning_rate, momentum)
    import_folder(folder, out, sent=sent, reply=reply or None, examples=examples, recipe=recipe)
    _print_written(out)


@import_app.command()
def nvflare(folder: Annotated[Path, typer.Argument(help="An exported NVFlare job, or the workspace of one.")]) -> None:
    """List what an NVFlare job does: rounds, script, filters that run or never run, and what an audit lacks."""
    from fedxray.integrations.nvflare_job import job_lines

    for line in job_lines(folder):
        typer.echo(line)


@import_app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="A recording, made by a recorder or by one of these commands.")],
) -> None:
    """List what a recording contains: nodes, rounds, training settings, arrays."""
    from fedxray.audit.recorded.prepare import holdings
    from fedxray.federation.recording.reader import read_recording

    for line in holdings(read_recording(folder)):
        typer.echo(line)


def _recipe(
    epochs: int | None, batch_size: int | None, learning_rate: float | None, momentum: float | None
) -> dict[str, Any]:
    given = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "momentum": momentum}
    return {name: value for name, value in given.items() if value is not None}


def _print_written(out: Path) -> None:
    """Print what a new recording contains; rounds are counted from 0, as everywhere."""
    from fedxray.audit.plan.recorded import span
    from fedxray.federation.recording.reader import read_recording

    messages = read_recording(out).messages
    rounds = sorted(message.round - 1 for message in messages if message.round is not None)
    replied = sum(message.reply is not None for message in messages)
    count = f"{len(rounds)} round{'' if len(rounds) == 1 else 's'}"
    typer.echo(f"{out}: {count} ({span(rounds)}, the first is 0), {replied} with a reply")
    typer.echo(f'Audit it: [transcript] path = "{out}" in a plan, with [data] and [model] (docs/flower.md).')
