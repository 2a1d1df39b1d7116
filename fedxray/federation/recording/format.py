"""What a recording is made of: one JSON file for each message, and every set of arrays once, named by its hash.

    recording.json             kind, format, side; written first
    messages/NAME.json         the facts of one message, written after its arrays: without it they do not count
    arrays/SHA256.safetensors  the arrays of a message; what was sent to several nodes is kept once
    stopped-NAME.txt           why a recorder stopped before the training did

Every file is put in place whole, so a recording that was cut off can be read up to there. The writer checks what it
writes by the model that the reader reads it with (`Heard`). Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

FORMAT = 1
KIND = "fedxray recording"
HEAD = "recording.json"
MESSAGES, ARRAYS = "messages", "arrays"
STOPPED = "stopped"  # beginning of the name of a note on why a recorder stopped
MOST_FACTS = 4 * 1024**2  # bytes of one message's JSON
MOST_COUNT = 2**53  # what counts stay below, as other readers of JSON hold numbers as floats
MOST_ROUNDS = 10**9
MOST_WHOLE = 2**64  # what a whole number in a config stays below, in size
MOST_KEY = 1000  # characters of a name in a config

Side = Literal["client", "server", "checkpoints"]
Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True)
class Said:
    """One message to a node with its answer, as the recording side saw them.

    `train` is a model to train on and what came back; `evaluate` is the model that the round ended with.
    """

    what: Literal["train", "evaluate"]
    node: str
    run: str = ""
    round: int | None = None  # as the framework counts, from 1; None where it does not say
    sent: Arrays = field(default_factory=dict)
    reply: Arrays | None = None  # None where there was no answer, or where it is hidden
    examples: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    partition: int | None = None
    inside: tuple[str, ...] | None = None  # mods between the recorder and the training; None if unknown
    outside: tuple[str, ...] | None = None  # mods between the recorder and the network
    secure: bool = False  # replies are hidden by secure aggregation


Count = Annotated[int, Field(ge=0, lt=MOST_COUNT)]
Text = Annotated[str, Field(max_length=500)]
Key = Annotated[str, Field(max_length=MOST_KEY)]
# A limit on its length makes a text one that UTF-8 can hold: without any, lone surrogates would pass.
Plain = (
    bool
    | Annotated[int, Field(gt=-MOST_WHOLE, lt=MOST_WHOLE)]
    | Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, Field(max_length=MOST_COUNT)]
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Kept(_Strict):
    """Arrays of a message: the hash and size of their file, and their names in order."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Count
    names: list[Text]


class Heard(_Strict):
    """One message as it stands in the file."""

    what: Literal["train", "evaluate"]
    node: Text
    run: Text
    round: Annotated[int, Field(ge=1, lt=MOST_ROUNDS)] | None
    sent: Kept
    reply: Kept | None
    examples: Count | None
    config: dict[Key, Plain | list[Plain]]
    partition: Count | None
    inside: list[Text] | None
    outside: list[Text] | None
    secure: bool


def why_not(problem: ValidationError) -> str:
    """The first thing that is wrong with a message."""
    first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}"
