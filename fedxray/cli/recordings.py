"""`fedxray import`: recordings from what other programs saved, and what a recording holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import_app = typer.Typer(
    help="Make a recording from saved models, or tell what one holds.", no_args_is_help=True
)

Out = Annotated[Path, typer.Option("--out", help="A new folder for the recording.")]
Examples = Annotated[
    int | None, typer.Option("--examples", min=1, help="How many examples the node trained on.")
]
Epochs = Annotated[int | None, typer.Option("--epochs", min=1, help="Local epochs of a round.")]
BatchSize = Annotated[int | None, typer.Option("--batch-size", min=1, help="Examples of a batch.")]
LearningRate = Annotated[float | None, typer.Option("--learning-rate", help="Learning rate of the node.")]
Momentum = Annotated[float | None, typer.Option("--momentum", help="Momentum of the node.")]


@import_app.command()
def checkpoints(
    before: Annotated[
        Path, typer.Argument(help="The model that the node was sent (.safetensors, .pt, .npz).")
    ],
    after: Annotated[Path, typer.Argument(help="The model that it sent back.")],
    out: Out = Path("recording"),
    round: Annotated[int, typer.Option("--round", min=1, help="Which round it was, counted from 1.")] = 1,
    examples: Examples = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    momentum: Momentum = None,
) -> None:
    """A recording of one round from two checkpoints."""
    from fedxray.integrations.checkpoints import import_pair

    recipe = _recipe(epochs, batch_size, learning_rate, momentum)
    import_pair(before, after, out, round=round, examples=examples, recipe=recipe)
    _told(out)


@import_app.command()
def rounds(
    folder: Annotated[Path, typer.Argument(help="A folder with one or two checkpoints for every round.")],
    out: Out = Path("recording"),
    sent: Annotated[
        str, typer.Option("--sent", help="How the models that were sent are called.")
    ] = "global-{round}.*",
    reply: Annotated[
        str, typer.Option("--reply", help="How the models that came back are called; '' for none.")
    ] = "local-{round}.*",
    examples: Examples = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    momentum: Momentum = None,
) -> None:
    """A recording of many rounds from a folder of checkpoints."""
    from fedxray.integrations.checkpoints import import_folder

    recipe = _recipe(epochs, batch_size, learning_rate, momentum)
    import_folder(folder, out, sent=sent, reply=reply or None, examples=examples, recipe=recipe)
    _told(out)


@import_app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="A recording, by a recorder or by one of these commands.")],
) -> None:
    """Tell what a recording holds: nodes, rounds, what the clients were told, arrays."""
    from fedxray.audit.recorded.prepare import holdings
    from fedxray.federation.recording.reader import read_recording

    for line in holdings(read_recording(folder)):
        typer.echo(line)


def _recipe(
    epochs: int | None, batch_size: int | None, learning_rate: float | None, momentum: float | None
) -> dict[str, Any]:
    given = {
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "momentum": momentum,
    }
    return {name: value for name, value in given.items() if value is not None}


def _told(out: Path) -> None:
    """What is in a new recording; rounds are counted from 0, as everywhere."""
    from fedxray.audit.recorded.recipe import span
    from fedxray.federation.recording.reader import read_recording

    messages = read_recording(out).messages
    rounds = sorted(one.round - 1 for one in messages if one.round is not None)
    replied = sum(one.reply is not None for one in messages)
    count = f"{len(rounds)} round{'' if len(rounds) == 1 else 's'}"
    typer.echo(f"{out}: {count} ({span(rounds)}, the first is 0), {replied} with a reply")
    typer.echo(f'Audit it: [transcript] path = "{out}" in a plan, with [data] and [model] (docs/flower.md).')
