"""What crosses between the audit and code of the user's: a view there, an answer back, facts of a defence; no pickle.

A view and settings travel as plain values and tensors to a process that holds nothing else. Parameters that a view
fetches when they are first used stay with the audit and are asked for by number. Networks, defences and attacks of the
user's are made again from the plan; a network then gets the weights of the view's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedxray.adversary.view import Observations, View
from fedxray.attacks.base import not_finite
from fedxray.attacks.evidence import Evidence, Kind, WrongEvidence
from fedxray.audit.judge import results
from fedxray.audit.plan.schema import AttackPart, DefencePart, ModelPart
from fedxray.data.dataset import Space
from fedxray.defences.base import Defence, Hooks, Kept, KnownDefence, Sampling, Work
from fedxray.errors import BadInput, printable
from fedxray.federation.setting import Federation
from fedxray.files import read_object
from fedxray.lookup import load, ships
from fedxray.params import Late, Params
from fedxray.seeds import fork


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The tables of a plan from which a process makes the attack, the network and the defence of a case."""

    attack: AttackPart
    model: ModelPart
    defence: DefencePart
    folder: Path


@dataclass(frozen=True)
class Packed:
    """Plain values with the tensors and the parameters, fetched when asked for, that they refer to by number."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    late: list[Late] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)  # by the identity of those parameters

    def plain(self, value: Any) -> Any:
        """Return a value in the types of JSON."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Tensor):
            name = str(len(self.tensors))
            self.tensors[name] = value
            return {"tensor": name, "device": str(value.device)}
        if isinstance(value, Late):
            if id(value) not in self.numbers:
                self.numbers[id(value)] = len(self.late)
                self.late.append(value)
            return {"late": self.numbers[id(value)]}
        if isinstance(value, Mapping):
            return {"table": [[self.plain(key), self.plain(entry)] for key, entry in value.items()]}
        if isinstance(value, Observations):
            return self.plain(tuple(value))
        if isinstance(value, list | tuple):
            return {"list" if isinstance(value, list) else "tuple": [self.plain(entry) for entry in value]}
        if isinstance(value, nn.Module):
            return {"network": self._network(value)}
        if isinstance(value, StatedDefence) or (isinstance(value, Defence) and not _is_ours(value)):
            return {"defence": None}
        if is_dataclass(value) and ships(type(value)):
            return {
                "object": f"{type(value).__module__}:{type(value).__name__}",
                "fields": {entry.name: self.plain(getattr(value, entry.name)) for entry in fields(value)},
            }
        expected = "settings of numbers, texts, lists and attacks"
        raise BadInput("attack", expected=expected, got=type(value).__name__, remedy="Make it in the factory.")

    def _network(self, model: nn.Module) -> Any:
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        return {
            "state": self.plain(state),
            "trained": [name for name, value in model.named_parameters() if value.requires_grad],
            "modes": [module.training for module in model.modules()],
        }

    def view(self, view: View) -> dict[str, Any]:
        """Return a view; of its channel only whether there is one."""
        seen = {entry.name: getattr(view, entry.name) for entry in fields(view)}
        return {name: self.plain(value is not None if name == "channel" else value) for name, value in seen.items()}


def _is_ours(value: Any) -> bool:
    """Return whether an object of settings and all that it holds are fedxray's own."""
    if isinstance(value, list | tuple):
        return all(map(_is_ours, value))
    if not is_dataclass(value):
        return True
    return ships(type(value)) and all(_is_ours(getattr(value, entry.name)) for entry in fields(value))


@dataclass(frozen=True)
class Unpacked:
    """The way back, in the other process; `fetch` gets parameters by their number from the audit."""

    tensors: Mapping[str, Tensor]
    fetch: Callable[[int], Params]
    parts: Parts
    known: dict[int, Late] = field(default_factory=dict)

    def value(self, plain: Any) -> Any:
        """Return the value that `plain` stands for."""
        if not isinstance(plain, dict):
            return plain
        if "tensor" in plain:
            return self.tensors[plain["tensor"]].to(plain["device"])
        if "late" in plain:
            number = plain["late"]
            return self.known.setdefault(number, Late(lambda: self.fetch(number)))
        if "table" in plain:
            return {self.value(key): self.value(entry) for key, entry in plain["table"]}
        if "list" in plain:
            return [self.value(entry) for entry in plain["list"]]
        if "tuple" in plain:
            return tuple(self.value(entry) for entry in plain["tuple"])
        if "defence" in plain:
            return self.parts.defence.make(self.parts.folder)
        return load(plain["object"])(**{name: self.value(entry) for name, entry in plain["fields"].items()})

    def view(self, plain: Mapping[str, Any], channel: Any) -> View:
        """Return the view, with this channel where it had one."""
        seen = {name: self.value(entry) for name, entry in plain.items() if name not in ("model", "channel")}
        model = self._network(plain["model"]["network"], seen["space"])
        return View(**seen, model=model, channel=channel if plain["channel"] else None)

    def _network(self, plain: Mapping[str, Any], space: Any) -> nn.Module:
        """Return the network of the plan with these weights; those that it draws itself are replaced."""
        model = self.parts.model.make(space, fork(0, "replaced"), self.parts.folder)
        state = self.value(plain["state"])
        floats = [value.dtype for value in state.values() if value.is_floating_point()]
        model = model.to(floats[0]) if floats else model
        trained = set(plain["trained"])
        with torch.no_grad():
            for name, value in model.named_parameters():
                value.data = state[name]
                value.requires_grad_(name in trained)
            for name, buffer in model.named_buffers():
                buffer.data = state[name]
        for module, training in zip(model.modules(), plain["modes"], strict=True):
            module.training = training
        return model


def table_of(part: AttackPart | ModelPart | DefencePart) -> dict[str, Any]:
    """Return what a part of the plan is made from: its name or factory, and its settings."""
    named = {"name": part.name, "factory": part.factory}
    return {key: value for key, value in named.items() if value is not None} | part.settings


# The answer of an attack. It is checked in the process that scores, on what arrived there: whatever code of the user's
# does before, an answer of another kind or shape is a mistake of the attack, stated as one, and fails its case alone.

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


# A defence of the user's as a case needs it: facts, stated once where its run is simulated, in place of its code. Cases
# are scored beside the truth, where that code could change the scores.

FILE = "defence.json"
LONGEST = 1000  # characters of its words
REMEDY = "Leave the files of runs alone."


@dataclass(frozen=True, kw_only=True)
class StatedDefence(Defence):
    """The words of a defence, what clients keep, and by their number of examples how they sample."""

    name: ClassVar[str] = "stated"
    words: str = ""
    kept: Any = None  # Kept or None
    sampling: Any = ()  # (examples, Sampling or None, whether an attacker can use what it knows)

    def hooks(self, work: Work) -> Hooks:
        """Return hooks that change nothing."""
        _, sampling, known = next((one for one in self.sampling if one[0] == work.examples), (0, None, False))
        return Hooks(sampling=sampling, kept=self.kept, known=KnownDefence() if known else None)

    def describe(self) -> str:
        """Return the words."""
        return self.words


def words_of(defence: Defence) -> str:
    """Return how a defence describes itself, refused where that is no text."""
    words: Any = defence.describe()
    if not isinstance(words, str):
        expected, got = "describe() to return a text", type(words).__name__
        raise BadInput("defence.factory", expected=expected, got=got, remedy="Return one line.")
    return printable(words[:LONGEST])


def write_stated(folder: Path, federation: Federation) -> None:
    """Store the facts of a run's defence."""
    defence = federation.defence
    works = {len(records): federation.work(client) for client, records in enumerate(federation.clients)}
    hooks = {examples: defence.hooks(work) for examples, work in works.items()}
    kept = defence.hooks(federation.work(0)).kept
    sampled = [
        [examples, None if one.sampling is None else asdict(one.sampling), one.known is not None]
        for examples, one in hooks.items()
    ]
    facts = {"words": words_of(defence), "kept": None if kept is None else asdict(kept), "sampling": sampled}
    (folder / FILE).write_text(json.dumps(facts, allow_nan=False))


def read_stated(folder: Path) -> StatedDefence:
    """Return the facts of a run's defence; that code may have changed the file."""
    facts = read_object(folder / FILE)
    try:
        return StatedDefence(
            words=printable(facts["words"][:LONGEST]),
            kept=None if facts["kept"] is None else _kept(facts["kept"]),
            sampling=tuple(
                (int(examples), None if sampling is None else _sampling(sampling), bool(known))
                for examples, sampling, known in facts["sampling"]
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        got = type(error).__name__
        raise BadInput(str(folder / FILE), expected="facts of a defence", got=got, remedy=REMEDY) from error


def _kept(facts: Mapping[str, Any]) -> Kept:
    return Kept(params=tuple(map(str, facts["params"])), statistics=bool(facts["statistics"]))


def _sampling(facts: Mapping[str, Any]) -> Sampling:
    return Sampling(rate=float(facts["rate"]), pairs=bool(facts["pairs"]))
