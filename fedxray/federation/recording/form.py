"""What a recording is made of: one JSON file for each message, and every set of arrays once, named by its hash.

    recording.json             kind, format, side; written first
    messages/NAME.json         the facts of one message, written after its arrays: without it they do not count
    arrays/SHA256.safetensors  the arrays of a message; what was sent to several nodes is kept once

Every file is put in place whole, so a recording that was cut off can be read up to there. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FORMAT = 1
KIND = "fedxray recording"
HEAD = "recording.json"
MESSAGES, ARRAYS = "messages", "arrays"

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
