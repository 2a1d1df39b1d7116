"""Layers of the plan's network that a recording does not train: whether it holds them, and whether they stood still."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fedxray.federation.recording.fitting import frozen, named
from fedxray.federation.recording.transcribe import Chosen


def layer_facts(chosen: Chosen, model: nn.Module) -> dict[str, Any]:
    """Names of values that no message holds, which are then those of the plan's network, and of those that moved."""
    first = chosen.recording.forms(chosen.trained[chosen.rounds[0]].sent)
    there = named(first, model)
    return {
        "not_recorded": [name for name in model.state_dict() if name not in there],
        "frozen_changed": _moved(chosen, model),
    }


def _moved(chosen: Chosen, model: nn.Module) -> list[str]:
    """Parameters that the plan's network does not train and that are not the same in all messages."""
    if all(value.requires_grad for value in model.parameters()):
        return []
    messages = [heard for round, heard in sorted(chosen.trained.items())]
    files = [kept for heard in messages for kept in (heard.sent, heard.reply) if kept is not None]
    begin, *others = list({kept.sha256: kept for kept in files}.values())
    still = frozen(chosen.recording.arrays(begin), model)
    found: set[str] = set()
    for kept in others:
        now = frozen(chosen.recording.arrays(kept), model)
        # One that is only rounded, as some nodes do with what they send, stood still.
        found |= {name for name, value in now.items() if not torch.equal(still[name].to(value.dtype), value)}
    return [name for name in still if name in found]
