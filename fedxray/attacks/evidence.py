"""Evidence: the result of an attack as plain tensors and facts, which can be stored and scored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from fedxray.errors import BadInput
from fedxray.params import Params

Kind = Literal["attributes", "images", "rows", "labels", "model", "membership", "sources", "class-images"]
Status = Literal["ok", "undetermined", "diverged", "truncated"]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The guess of one attack, its status, and the attacker's own loss by step."""

    kind: Kind
    tensors: dict[str, Tensor]
    status: Status = "ok"
    reason: str = ""
    curve: tuple[float, ...] = ()  # the attacker's own loss by step
    facts: dict[str, Any] = field(default_factory=dict)  # plain values to report: condition number, chosen round
    rounds_spent: int = 0  # rounds an active attack spent with the client, tuning included
    target: int | None = None  # the client whose messages it read; None for sums over several clients
    seats: tuple[int, ...] = ()  # the colluding clients that made the attack

    def __repr__(self) -> str:
        """Kind, status and shapes of the tensors; no value."""
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in self.tensors.items())
        return f"Evidence({self.kind!r}, status={self.status!r}, target={self.target}, tensors=[{shapes}])"


def of_model(params: Params, buffers: Params | None = None, **more: Any) -> Evidence:
    """Return a guessed local model as evidence."""
    tensors = {f"param:{name}": value.detach().clone() for name, value in params.items()}
    tensors.update({f"buffer:{name}": value.detach().clone() for name, value in (buffers or {}).items()})
    return Evidence(kind="model", tensors=tensors, **more)


def model_params(evidence: Evidence) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return parameters and buffers of a guessed local model."""
    if evidence.kind != "model":
        got, remedy = f"one that gives {evidence.kind}", 'For instance model = "last-returned".'
        raise BadInput("model", expected="an attack that gives a model", got=got, remedy=remedy)
    params, buffers = (
        {name.removeprefix(prefix): value for name, value in evidence.tensors.items() if name.startswith(prefix)}
        for prefix in ("param:", "buffer:")
    )
    return params, buffers


def _guess(kind: Kind, more: dict[str, Any], **tensors: Tensor | None) -> Evidence:
    """Return evidence with those of these tensors that are given."""
    given = {name: value.detach() for name, value in tensors.items() if value is not None}
    return Evidence(kind=kind, tensors=given, **more)


def of_attributes(codes: Tensor, margins: Tensor | None = None, **more: Any) -> Evidence:
    """Return guessed codes of the sensitive column [records, positions] as evidence, with margins [records]."""
    return _guess("attributes", more, codes=codes, margins=margins)


def of_membership(scores: Tensor, **more: Any) -> Evidence:
    """Return membership scores of the granted records [records] as evidence; larger means more likely a member."""
    return _guess("membership", more, scores=scores)


def of_sources(owners: Tensor, **more: Any) -> Evidence:
    """Return the guessed owner of each granted record [records] as evidence."""
    return _guess("sources", more, owners=owners)


def of_label_counts(counts: Tensor, **more: Any) -> Evidence:
    """Return guessed numbers of records per class [classes] as evidence."""
    return _guess("labels", more, counts=counts)


def of_images(inputs: Tensor, labels: Tensor | None = None, **more: Any) -> Evidence:
    """Return guessed model inputs [records, channels, height, width] with labels [records] as evidence."""
    return _guess("images", more, inputs=inputs, labels=labels)


def of_class_images(inputs: Tensor, labels: Tensor, **more: Any) -> Evidence:
    """Return one guessed input per class [classes, channels, height, width] with its class [classes] as evidence."""
    return _guess("class-images", more, inputs=inputs, labels=labels)


def of_rows(inputs: Tensor, targets: Tensor | None = None, **more: Any) -> Evidence:
    """Return guessed encoded rows [records, width] with classes or targets [records] as evidence."""
    return _guess("rows", more, inputs=inputs, targets=targets)
