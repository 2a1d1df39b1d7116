"""The table [transcript] of a plan, key by key."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from fedxray.audit.plan.keys import REQUIRED, Section, key
from fedxray.audit.plan.parts import Count, Index, Rate

Candidate = TypeVar("Candidate")
Candidates = Annotated[list[Candidate], Field(min_length=1, max_length=20)]


class RecipePart(Section):
    """Candidates for fields of the recipe that nobody tells; the one that explains the first reply best is taken."""

    learning_rate: Candidates[Rate] | None = key(
        None, "a list of numbers above 0", "candidates for the learning rate"
    )
    epochs: Candidates[Count] | None = key(None, "a list of whole numbers", "candidates for the local epochs")
    batch_size: Candidates[Count] | None = key(
        None, "a list of whole numbers", "candidates for the batch size"
    )

    @property
    def grid(self) -> dict[str, list[Any]]:
        """The candidates of every field that has some."""
        named = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: list(values) for name, values in named.items() if values is not None}


class TranscriptPart(Section):
    """A recording that replaces the simulation; [data] then holds the recording node's own records."""

    path: str = key(REQUIRED, "a folder", "the recording, relative to the plan")
    run: str | int | None = key(None, "a run's id", "which run, where the folder holds several")
    own: str | None = key(
        None,
        "a folder",
        "beside a server's recording: the node's own, which proves that the node is yours; else that is your word",
    )
    client: Index | None = key(
        None,
        "a client of [data]",
        "which client of a divided data set the node was; default: the partition that it recorded",
    )
    optimizer: Literal["sgd", "adam", "other"] | None = key(
        None,
        '"sgd", "adam" or "other"',
        "how the node trains, which no message tells; needed by attacks that replay the training",
    )
    examples: Literal["same", "any"] = key(
        "same",
        '"same" or "any"',
        "whether the number of examples that the node reported must be that of its records",
    )
    recipe: RecipePart | None = key(None, "a table [transcript.recipe]", "see below")
    rounds: (
        Annotated[str, Field(pattern=r"^\d{1,9} to \d{1,9}$")]
        | Annotated[list[Index], Field(min_length=1)]
        | None
    ) = key(
        None,
        '"0 to 4", or a list of rounds (the first is 0)',
        "which recorded rounds are read, for instance those of one learning rate; default: all",
    )
    widen: bool = key(False, "true or false", "whether half-precision arrays are read as they are")
