"""The format of a recording: one JSON file for each message, and every set of arrays once, named by its hash.

    recording.json             kind, format, side; written first
    messages/NAME.json         the facts of one message, written after its arrays; arrays without it are ignored
    arrays/SHA256.safetensors  the arrays of a message; a model sent to several nodes is stored once
    stopped-NAME.txt           why a recorder stopped before the training did
    stopped.txt                the same where the disk was full: blank space, made at the beginning

Every file is written completely or not at all, so a recording that was cut off can be read up to that point. The writer
checks its output by the same model that the reader uses (`RecordedMessage`). Nothing here imports torch.
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
STOPPED = "stopped"  # start of the name of a note with the reason why a recorder stopped
RESERVE = f"{STOPPED}.txt"  # the note that needs no space: blank until a recorder stops on a full disk
MOST_FACTS = 4 * 1024**2  # bytes of one message's JSON
MOST_COUNT = 2**53  # upper bound of counts, as other readers of JSON store numbers as floats
MOST_ROUNDS = 10**9
MOST_WHOLE = 2**64  # upper bound of the size of a whole number in a config
MOST_KEY = 1000  # characters of a name in a config

Side = Literal["client", "server", "checkpoints"]
Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True)
class Said:
    """One message to a node with its reply, as the recording side saw them, before it is written.

    `train` is a model to train and the reply to it; `evaluate` is the model at the end of the round.
    """

    what: Literal["train", "evaluate"]
    node: str
    run: str = ""
    round: int | None = None  # as the framework counts, from 1; None where it gives none
    sent: Arrays = field(default_factory=dict)
    reply: Arrays | None = None  # None where there was none, or where it is hidden
    examples: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    partition: int | None = None
    inside: tuple[str, ...] | None = None  # mods between the recorder and the training; None if unknown
    outside: tuple[str, ...] | None = None  # mods between the recorder and the network
    secure: bool = False  # replies are hidden by secure aggregation


Count = Annotated[int, Field(ge=0, lt=MOST_COUNT)]
Text = Annotated[str, Field(max_length=500)]
Key = Annotated[str, Field(max_length=MOST_KEY)]
# A limit on the length makes pydantic check the encoding: without one, lone surrogates would pass.
Plain = (
    bool
    | Annotated[int, Field(gt=-MOST_WHOLE, lt=MOST_WHOLE)]
    | Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, Field(max_length=MOST_COUNT)]
)


class _MessagePart(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class StoredArrays(_MessagePart):
    """Arrays of a message: the hash and size of their file, and their names in order."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Count
    names: list[Text]


class RecordedMessage(_MessagePart):
    """One message in the file."""

    what: Literal["train", "evaluate"]
    node: Text
    run: Text
    round: Annotated[int, Field(ge=1, lt=MOST_ROUNDS)] | None
    sent: StoredArrays
    reply: StoredArrays | None
    examples: Count | None
    config: dict[Key, Plain | list[Plain]]
    partition: Count | None
    inside: list[Text] | None
    outside: list[Text] | None
    secure: bool


def why_not(problem: ValidationError) -> str:
    """The first error of a message, as a text."""
    first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}"
