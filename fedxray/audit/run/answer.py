"""The answer of an attack as plain values, and the check of one that comes from code of the user's.

The check is made in the process that scores, on what arrived there: whatever such code does before, an answer of
another kind or shape is a mistake of the attack, stated as one, and fails its case alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import not_finite
from fedxray.attacks.evidence import Evidence, Kind, WrongEvidence
from fedxray.audit.judge import results
from fedxray.data.dataset import Space

NUMBERS = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
Shape = tuple[int | str, ...]  # a text is a length that the attack chooses, equal wherever it stands


def plain_facts(evidence: Evidence) -> dict[str, Any]:
    """Return all of an evidence but its tensors, in the types of JSON."""
    facts: dict[str, Any] = results.plain(
        {entry.name: getattr(evidence, entry.name) for entry in fields(Evidence) if entry.name != "tensors"}, "evidence"
    )
    return facts


def evidence_of(tensors: dict[str, Tensor], facts: Mapping[str, Any]) -> Evidence:
    """Return the evidence of these tensors and facts, which is refused where a field of it is missing or wrong."""
    wanted = {entry.name for entry in fields(Evidence)} - {"tensors"}
    curve, seats = facts.get("curve"), facts.get("seats")
    if set(facts) != wanted or not isinstance(curve, list) or not isinstance(seats, list):
        raise WrongEvidence("evidence", expected=f"the fields {', '.join(sorted(wanted))}", got="others")
    losses = tuple(math.nan if loss is None else loss for loss in curve)  # JSON has no NaN
    return Evidence(tensors=tensors, **{**facts, "curve": losses, "seats": tuple(seats)})


def checked(evidence: Evidence, kind: Kind, view: View, most: int | None = None) -> Evidence:
    """Return the answer of a user's attack of this kind on this view, with the tensors that are scored.

    Refused where it is no such answer, or has more than `most` guesses of records: chance alone would match some. It
    has diverged where an entry is not finite, whatever it states itself.
    """
    if evidence.kind != kind:
        raise WrongEvidence("evidence.kind", expected=f"{kind}, as the attack declares", got=evidence.kind)
    _check_data(kind, view.space)
    required, optional = _shapes(kind, view)
    missing = [name for name in required if name not in evidence.tensors]
    if missing:
        got = f"{len(evidence.tensors)} other tensors"
        raise WrongEvidence("evidence.tensors", expected=f"a tensor {missing[0]!r} for {kind}", got=got)
    scored = {name: value for name, value in evidence.tensors.items() if name in required | optional}
    lengths: dict[str, int] = {}
    for name, value in scored.items():
        _check_shape(name, value, (required | optional)[name], lengths)
        _check_values(name, value, kind, view)
    if most is not None and kind in ("images", "rows"):
        _check_number(scored, most)
    evidence = replace(evidence, tensors=scored)
    lost = not_finite(evidence)
    return replace(evidence, status="diverged", reason=lost) if lost else evidence


def _check_data(kind: Kind, space: Space) -> None:
    """Refuse a guess about something that these data do not have."""
    lacking = {
        "images": kind in ("images", "class-images") and space.kind != "image",
        "columns": kind == "rows" and space.kind != "table",
        "classes": kind in ("labels", "class-images") and space.target != "classification",
        "a sensitive column": kind == "attributes" and space.sensitive is None,
    }
    for what in (name for name, lacks in lacking.items() if lacks):
        remedy = "Use the attack on other data, or declare what it needs."
        raise WrongEvidence("evidence.kind", expected=f"data with {what} for {kind}", got="none", remedy=remedy)


def _shapes(kind: Kind, view: View) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Return the shapes of the tensors that an answer of this kind must have, and of those that it may have."""
    space, grants, many = view.space, view.grants, "guesses"
    if kind == "membership":
        return {"scores": (_asked(grants.target_records, "target-records"),)}, {}
    if kind == "attributes":
        records = _asked(grants.public_attributes, "public-attributes")
        codes = (records, len(space.column(space.sensitive or "").positions))
        return {"codes": codes}, {"codes_balanced": codes, "margins": (records,)}
    if kind == "sources":
        return {"owners": (_asked(grants.source_records, "source-records"),)}, {}
    if kind == "labels":
        return {"counts": (len(space.classes),)}, {}
    if kind == "images":
        return {"inputs": (many, *space.shape)}, {"labels": (many,), "own": (many,)}
    if kind == "class-images":
        return {"inputs": (many, *space.shape), "labels": (many,)}, {}
    if kind == "rows":
        return {"inputs": (many, *space.shape)}, {"targets": (many,)}
    return (
        {f"param:{name}": tuple(value.shape) for name, value in view.model.named_parameters()},
        {f"buffer:{name}": tuple(value.shape) for name, value in view.model.named_buffers()},
    )


def _asked(records: Any, grant: str) -> int:
    """Return the number of granted records that an answer must be about."""
    if records is None:
        remedy = f'Give it grants = ["{grant}"] in the plan, or declare that grant in the attack.'
        raise WrongEvidence(
            "evidence", expected=f"the grant {grant}, whose records it is about", got="none", remedy=remedy
        )
    return len(records.x)


def _check_shape(name: str, value: Tensor, wanted: Shape, lengths: dict[str, int]) -> None:
    """Refuse a tensor of another shape; `lengths` are those that the attack has chosen so far."""
    shown = f"{name!r} of shape [{', '.join(map(str, wanted))}]"
    expected = shown + "".join(f", with {count} {word}" for word, count in lengths.items() if word in wanted)
    free = {word: length for word, length in zip(wanted, value.shape, strict=False) if isinstance(word, str)}
    resolved = tuple(lengths.get(word, free.get(word)) if isinstance(word, str) else word for word in wanted)
    if tuple(value.shape) != resolved or 0 in free.values():
        raise WrongEvidence("evidence.tensors", expected=expected, got=f"shape {list(value.shape)}")
    lengths |= free


def _check_number(scored: Mapping[str, Tensor], most: int) -> None:
    """Refuse more guesses than records in question; those that a curious client calls its own are not scored."""
    got = len(scored["inputs"]) - (int(scored["own"].sum()) if "own" in scored else 0)
    if got > most:
        raise WrongEvidence("evidence.tensors", expected=f"at most {most} guesses", got=got)


def _check_values(name: str, value: Tensor, kind: Kind, view: View) -> None:
    """Refuse values of another type, and numbers of clients or classes that do not exist."""
    if value.dtype not in NUMBERS:
        raise WrongEvidence("evidence.tensors", expected=f"real numbers as {name!r}", got=str(value.dtype))
    if name == "own" and value.dtype != torch.bool:
        raise WrongEvidence("evidence.tensors", expected=f"true or false as {name!r}", got=str(value.dtype))
    if name not in ("owners", "labels"):
        return
    sources = view.grants.source_records
    count = len(sources.counts) if name == "owners" and sources is not None else len(view.space.classes)
    whole = not value.dtype.is_floating_point
    if not whole or (value.numel() and not 0 <= int(value.min()) <= int(value.max()) < count):
        got = "others" if whole else str(value.dtype)
        raise WrongEvidence("evidence.tensors", expected=f"whole numbers from 0 to {count - 1} as {name!r}", got=got)
