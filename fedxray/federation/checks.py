"""What can be told before a federation runs: records that do not fit, batches that BatchNorm cannot take."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedxray.data.records import Records
from fedxray.defences.base import Mixing, Seams
from fedxray.errors import BadInput, some
from fedxray.federation.recipe import Recipe
from fedxray.params import parameters_of


def check_records(model: nn.Module, clients: Sequence[Records], holdout: Sequence[Records]) -> None:
    """Every client needs examples of one shape, and of the network's own floating-point type."""
    if not clients:
        raise BadInput("clients", expected="at least one client", got=0, remedy="Give clients = 2 or more.")
    if holdout and len(holdout) != len(clients):
        expected, remedy = f"held-out records for {len(clients)} clients", "Give one set for each, or none."
        raise BadInput("holdout", expected=expected, got=len(holdout), remedy=remedy)
    weight = next(iter(parameters_of(model).values()), None)
    if weight is None:
        remedy = "Set requires_grad on what clients train."
        raise BadInput("model", expected="trainable parameters", got="none", remedy=remedy)
    for client, records in enumerate(clients):
        if len(records) == 0 or len(records.y) != len(records):
            raise BadInput(
                "clients",
                expected="examples at every client, each with a target",
                got=f"none at client {client}" if len(records) == 0 else f"{len(records.y)} targets",
                remedy="Use fewer clients, another partition, or more data.",
            )
        if records.x.dtype != weight.dtype or records.x.shape[1:] != clients[0].x.shape[1:]:
            raise BadInput(
                "clients",
                expected=f"inputs of {weight.dtype} like the model, of shape {list(clients[0].x.shape[1:])}",
                got=f"{records.x.dtype} {list(records.x.shape[1:])} at client {client}",
                remedy="Convert records and model to one type (in_dtype does both).",
            )


def check_batches(
    model: nn.Module, sample: Tensor, examples: Sequence[int], recipe: Recipe, mixing: Mixing = "none"
) -> None:
    """Refuse a batch in which a BatchNorm layer would see a single value per channel."""
    if not any(isinstance(module, _BatchNorm) for module in model.modules()):
        return
    of = 2 if mixing == "pairs" else 1  # examples that become one
    smallest = {client: -(-_smallest_batch(count, recipe) // of) for client, count in enumerate(examples)}
    lonely = [client for client, length in smallest.items() if length == 1]
    if not lonely:
        return
    single = [name for name, values in values_per_channel(model, sample).items() if values == 1]
    if single:
        count, first, after = examples[lonely[0]], lonely[0], " after mixing" if of > 1 else ""
        raise BadInput(
            "batch_size",
            expected=f"batches of at least 2 examples{after} for BatchNorm layer {single[0]!r}",
            got=f"a batch of 1 at client {first} ({count} examples in batches of {recipe.batch_length(count)})",
            remedy='Choose a batch size that leaves no single example over, or a model with norm = "none".',
        )


def _smallest_batch(examples: int, recipe: Recipe) -> int:
    length = recipe.batch_length(examples)
    return examples % length or length


def values_per_channel(model: nn.Module, sample: Tensor) -> dict[str, int]:
    """How many values of each channel one example (sample: [1, ...]) gives every BatchNorm layer, by name."""
    trial = copy.deepcopy(model).eval()
    found: dict[str, int] = {}

    def note(name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found[name] = inputs[0].numel() // max(1, inputs[0].shape[1])

        return hook

    for name, module in trial.named_modules():
        if isinstance(module, _BatchNorm):
            module.register_forward_pre_hook(note(name))
    with torch.no_grad():
        trial(sample)
    return found


def check_seams(seams: object) -> Seams:
    """The seams, if a defence gave any."""
    if isinstance(seams, Seams):
        return seams
    raise BadInput(
        "defence",
        expected="its method seams to return a fedxray.defences.base.Seams",
        got=type(seams).__name__,
        remedy="Return Seams() where nothing is to be changed.",
    )


def check_example_gradients(model: nn.Module, seams: Seams) -> None:
    """Refuse a defence on single examples' gradients where BatchNorm mixes the examples of a batch."""
    if seams.gradients is not None and any(isinstance(module, _BatchNorm) for module in model.modules()):
        raise BadInput(
            "defence",
            expected="a model without BatchNorm for a defence on the gradients of single examples",
            got="a model with BatchNorm, which mixes the examples of a batch",
            remedy='Use a model with norm = "none", or another defence.',
        )


def check_kept(model: nn.Module, seams: Seams) -> None:
    """Refuse a defence that keeps what is not there: other parameters, or BatchNorm layers of a model without."""
    if seams.kept is None:
        return
    unknown = [name for name in seams.kept.params if name not in parameters_of(model)]
    if unknown:
        raise BadInput(
            "defence",
            expected="names of trained parameters to keep",
            got=repr(unknown[0]),
            remedy=f"Choose among {some(sorted(parameters_of(model)))}.",
        )
    if not any(isinstance(module, _BatchNorm) for module in model.modules()):
        raise BadInput(
            "defence",
            expected="a model with BatchNorm for a defence that keeps its layers to the client",
            got="a model without",
            remedy='Use a model with norm = "batch", or another defence.',
        )
