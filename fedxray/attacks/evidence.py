"""Evidence: the result of an attack as plain tensors and facts, which can be stored and scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal, get_args

from torch import Tensor

from fedxray.errors import BadInput
from fedxray.params import Params

Kind = Literal["attributes", "images", "rows", "labels", "model", "membership", "sources", "class-images"]
Status = Literal["ok", "undetermined", "diverged", "truncated"]


class WrongEvidence(BadInput):
    """Evidence that cannot be scored, a mistake of the attack that made it; the text holds types and shapes alone."""

    quotes = False

    def __init__(
        self, argument: str, *, expected: str, got: object, remedy: str = "It is to be corrected in the attack."
    ) -> None:
        """Name the field of the evidence."""
        super().__init__(argument, expected=expected, got=got, remedy=remedy)


def _all_are(kind: Any, values: Any) -> bool:
    return all(isinstance(value, kind) for value in values)


_FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {  # what each field must be, in words and as a check
    "kind": (f"one of {', '.join(get_args(Kind))}", lambda kind: isinstance(kind, str) and kind in get_args(Kind)),
    "tensors": ("a dict of tensors", lambda tensors: isinstance(tensors, dict) and _all_are(Tensor, tensors.values())),
    "status": (
        f"one of {', '.join(get_args(Status))}",
        lambda text: isinstance(text, str) and text in get_args(Status),
    ),
    "reason": ("a text", lambda text: isinstance(text, str)),
    "curve": ("a tuple of numbers", lambda curve: isinstance(curve, tuple | list) and _all_are(Real, curve)),
    "facts": ("a dict", lambda facts: isinstance(facts, Mapping)),
    "rounds_spent": ("a whole number from 0", lambda rounds: isinstance(rounds, Integral) and int(rounds) >= 0),
}


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

    def __post_init__(self) -> None:
        """Refuse a field that could be neither stored nor scored."""
        for name, (expected, fits) in _FIELDS.items():
            value = getattr(self, name)
            if not fits(value):
                raise WrongEvidence(f"evidence.{name}", expected=expected, got=f"another {type(value).__name__}")

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
