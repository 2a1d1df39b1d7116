"""The tables and keys of a plan (`Plan`): their types, values in words, defaults and meaning; and a TOML writer.

A plan is validated by pydantic. No dependency writes TOML, so `to_toml` does, for plans that were made in Python.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PrivateAttr, model_validator
from pydantic.fields import FieldInfo

from fedxray.audit import catalog
from fedxray.audit.judge.statistics import AUTO_LOOKS
from fedxray.audit.restoring import raw_and_restored
from fedxray.errors import unknown_name
from fedxray.lookup import load

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedxray.attacks.base import Attack
    from fedxray.data.dataset import Space
    from fedxray.defences.base import Defence
    from fedxray.federation.recipe import Recipe

REQUIRED: Any = ...


def key(default: Any, values: str, about: str, **limits: Any) -> Any:
    """Declare a key with its default, the values it takes, and one sentence about it; limits are pydantic's."""
    more: dict[str, JsonValue] = {"values": values}
    if isinstance(default, list | dict):
        return Field(
            default_factory=lambda: type(default)(default), description=about, json_schema_extra=more, **limits
        )
    return Field(default, description=about, json_schema_extra=more, **limits)


def values_of(field: FieldInfo) -> str:
    """Return the values a key takes, in words."""
    extra = field.json_schema_extra
    return str(extra["values"]) if isinstance(extra, dict) else "a valid value"


class Section(BaseModel):
    """A table of a plan: unknown keys are refused, nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=())


class OpenSection(Section):
    """A table whose other keys are settings of what it names; they are checked against that."""

    settings: dict[str, Any] = Field(default_factory=dict, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def gather_settings(cls, given: Any) -> Any:
        """Move every key that is not fixed into `settings`."""
        if not isinstance(given, Mapping):
            return given
        fixed = key_names(cls)
        inside = {name: value for name, value in given.items() if name in fixed}
        return inside | {"settings": {name: value for name, value in given.items() if name not in fixed}}


def key_names(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the keys of a section as a plan writes them."""
    named = {field.alias or name: field for name, field in section.model_fields.items()}
    return {name: field for name, field in named.items() if not field.exclude}


# The tables of a plan, key by key

Count = Annotated[int, Field(ge=1, le=10**9)]
Rounds = Annotated[int, Field(ge=1, le=10**6)]
Rate = Annotated[float, Field(gt=0, le=1e6)]  # beyond, float32 overflows at once
Index = Annotated[int, Field(ge=0, le=10**9)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Label = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]+$")]
Factory = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]


class DataPart(OpenSection):
    """The records and who holds them; other keys are settings of the data set and of the partition."""

    name: str | None = key(None, "a name of `fedxray list datasets`", "the data set; or give `path`")
    path: str | None = key(
        None,
        "a CSV file, a folder of images by class, or an .npz with x, y and perhaps client",
        "your own data, relative to the plan",
    )
    target: str | None = key(None, "a column", "what is learned (own CSV)")
    sensitive: str | None = key(None, "a raw column", "the attribute that must not leak")
    categorical: list[str] = key([], "a list of columns", "columns of numbers that are categories (own CSV)")
    drop: list[str] = key([], "a list of columns", "columns to leave out (own CSV)")
    clients: Annotated[int, Field(ge=1, le=100_000)] = key(
        REQUIRED, "a whole number from 1 to 100,000", "how many clients there are; 1 if absent beside [transcript]"
    )
    partition: str = key(
        "iid",
        "iid, dirichlet (alpha), by-label, by-column (column), as-given, sizes (sizes), or a paper's own split: "
        "adult-doctorate, income-correlation (heterogeneity), att-faces",
        "who holds which records",
    )
    scale_target: bool | None = key(
        None, "true or false", "whether a regression target is standardised; the data set decides if absent"
    )
    limit: Count | None = key(None, "a whole number of at least 1", "at most this many training examples per client")
    distinct_classes: bool | None = key(
        None, "true or false", "whether the `limit` training examples of a client are of different classes"
    )
    holdout: Share = key(
        0.1, "a share from 0 up to but below 1", "of each client, never trained on: controls and utility"
    )
    public: Share = key(
        0.1, "a share from 0 up to but below 1", "of all records, goes to no client: floors, imputation, priors"
    )
    subject: str | None = key(
        None,
        'a column, an array of an .npz, or "writer" of handwriting',
        "whose record it is: people with several are split and judged whole; never a feature",
    )
    subject_holdout: Share | None = key(
        None,
        "a share from 0 up to but below 1",
        "of every person's records, never trained on: does a person show by other records?",
    )
    schema_file: str | None = key(
        None,
        "a TOML file",
        "generated records by a schema, the easiest case for an attacker; see the page on data",
        alias="schema",
    )
    node: str | int | None = key(None, "a node's id", "whose records these are, where a recording holds several nodes")


class ModelPart(OpenSection):
    """The network; other keys are its settings."""

    name: str | None = key(None, "a name of `fedxray list models`", "the network; or give `factory`")
    factory: Factory | None = key(
        None, '"module:function"', "your own network: a function of the space that returns an nn.Module"
    )
    weights: str | None = key(
        None,
        "a safetensors or .npz file",
        "initial weights in place of drawn ones, by the network's own names or as flax names them; relative to the "
        "plan or to FEDXRAY_DATA",
    )

    def make(self, space: Space, generator: torch.Generator, folder: Path) -> nn.Module:
        """Return the network with weights drawn from the generator, or read from a file."""
        from fedxray.models import build, from_factory
        from fedxray.models.weights import load_weights, weights_path

        if self.factory is not None:
            catalog.reach(folder)
            model = from_factory(self.factory, space, generator)
        else:
            model = build(str(self.name), space, generator=generator, **self.settings)
        if self.weights is not None:
            load_weights(model, weights_path(self.weights, folder))
        return model


class FederationPart(Section):
    """How clients train and how the server averages."""

    algorithm: Literal["fedsgd", "fedavg", "fedprox"] = key(
        "fedavg",
        '"fedsgd", "fedavg" or "fedprox"',
        "fedsgd sends one gradient of all examples, the others a change of weights",
    )
    rounds: Rounds = key(10, "a whole number from 1 to 1,000,000", "rounds of the federation")
    epochs: Count = key(1, "a whole number of at least 1", "local epochs per round")
    batch_size: Count | Literal["all"] = key(32, 'a whole number of at least 1, or "all"', "examples per local step")
    learning_rate: Rate = key(0.01, "a number above 0 and up to 1e6", "of the clients")
    momentum: Annotated[float, Field(ge=0, lt=1)] = key(
        0.0, "a number from 0 up to but below 1", "of the clients, fresh in every round"
    )
    mu: Annotated[float, Field(ge=0, le=1e6)] = key(
        0.0, "a number from 0 to 1e6", "fedprox: the pull to the received model"
    )
    server_learning_rate: Rate = key(1.0, "a number above 0 and up to 1e6", "step of the server along the mean update")
    participation: Annotated[float, Field(gt=0, le=1)] = key(
        1.0, "a share above 0 and up to 1", "share of the clients in each round; 1 where records are guessed from sums"
    )
    weighting: Literal["examples", "uniform"] = key(
        "examples", '"examples" or "uniform"', "weight of a client in the mean"
    )
    shuffle: Literal["epoch", "once", "never"] = key(
        "epoch", '"epoch", "once" or "never"', "when the order of the records is drawn"
    )
    loss: Literal["cross-entropy", "mse"] | None = key(
        None, '"cross-entropy" or "mse"', "by the kind of target if absent"
    )
    dtype: Literal["float32", "float64"] = key(
        "float32", '"float32" or "float64"', "of weights, and of inputs, which are read as float32"
    )
    batch_norm: Literal["shared", "local"] = key(
        "shared", '"shared" or "local"', "whether BatchNorm statistics leave the client"
    )
    secure_aggregation: bool = key(False, "true or false", "whether the server sees only sums")
    record: Literal["all", "last"] | Annotated[str, Field(pattern=r"^every-[1-9]\d{0,8}$")] | list[Index] = key(
        "all", '"all", "last", "every-10" or a list of rounds', "which rounds are kept; the final model always is"
    )

    def recipe(self, loss: str) -> Recipe:
        """Return the recipe that all clients share; `loss` is used where the plan names none."""
        from fedxray.federation.recipe import Recipe

        settings = {field.name: getattr(self, field.name) for field in fields(Recipe)}
        return Recipe(**{**settings, "loss": self.loss or loss})


class DefencePart(OpenSection):
    """One defence of the clients; other keys are its settings."""

    name: str | None = key(
        None, "a name of `fedxray list defences`, several joined with +", "the defence; or give `factory`"
    )
    factory: Factory | None = key(
        None,
        '"module:function"',
        "your own defence: what returns a fedxray.defences.base.Defence, an NVFlare filter or a Flower mod",
    )
    label: Label | None = key(None, "a text, unique in the plan", "its name in the results; default: its name")
    deployed: bool = key(False, "true or false", "whether this is the one that the gate judges")

    @property
    def title(self) -> str:
        """The label in the results."""
        return self.label or self.name or str(self.factory)

    @property
    def is_none(self) -> bool:
        """Whether there is no defence."""
        return self.factory is None and self.name == "none"

    @property
    def is_own(self) -> bool:
        """Whether it is, or holds, code of the user's or of a plug-in."""
        names = (self.name or "").split("+")
        return self.factory is not None or any(catalog.plugin_of("defences", name) is not None for name in names)

    def make(self, folder: Path, argument: str = "defence") -> Defence:
        """Return the defence itself."""
        if self.factory is not None:
            return catalog.defence_from_factory(self.factory, self.settings, folder, argument)
        return catalog.make_defence(str(self.name), self.settings, argument)


class AttackPart(OpenSection):
    """One attack from one role; other keys are fields of the attack's class."""

    name: str | None = key(None, "a name of `fedxray list attacks`", "the attack; or give `factory`")
    factory: Factory | None = key(
        None, '"module:function"', "your own attack: a function that returns a fedxray.attacks.base.Attack"
    )
    label: Label | None = key(None, "a text, unique in the plan", "its name in the results; default: its name")
    role: str = key(
        "server",
        "server, eavesdropper, active-server, curious-client or secure-aggregation",
        "the position of the adversary",
    )
    grants: list[str] | None = key(
        None, "a list of grants", "knowledge of the adversary beyond its role; default: what the attack's paper assumes"
    )
    targets: Literal["all"] | Count | list[Index] = key(
        "all", '"all", how many, or a list of clients', "the clients that are attacked; a number is drawn at random"
    )
    rounds: Literal["first", "last"] | list[Index] | None = key(
        None, '"first", "last" or a list of rounds', "recorded rounds that are read; default: all"
    )
    seat: Index | list[Index] | None = key(None, "a client or a list of clients", "the curious client(s); default: 0")
    controls: list[str] | None = key(
        None,
        "a list of the attack's controls, perhaps empty",
        "which controls are run; some repeat the whole attack; default: all (`fedxray show NAME`)",
    )
    metrics: list[str] | None = key(
        None,
        "a list of lpips, psnr_awa, ssim_awa, psnr_curious, ssim_curious; these, psnr, ssim, mse also with _by_index",
        "scores of images beyond the usual ones; lpips needs its weights (`fedxray data get lpips`)",
    )
    primary: str | None = key(
        None,
        "a metric of this attack",
        "the metric that carries the verdict; the others are shown without one; default: the main one of its kind",
    )

    restore: Any = key(
        None,
        'a restorer\'s name, a table as { name = "ddrm", prior = "priors/mine" }, or a list of these',
        "what is done to the raw images; each restorer gets rows of its own, label+restorer, beside the raw ones",
    )

    search: Any = key(
        None,
        'a table as { trials = 16, sampler = "random"|"gp"|"grid", ranges = { SETTING = [low, high] } }; also '
        "batch = 8, and with gp starts = 10; give_up = 0.5",
        "settings that the attack tries and judges by its own measure (`fedxray show NAME` lists them); see "
        "[Searching settings](search.md)",
    )

    @property
    def title(self) -> str:
        """The label in the results."""
        return self.label or self.name or str(self.factory)

    @property
    def seats(self) -> tuple[int, ...]:
        """The curious clients, none for other roles."""
        if self.role != "curious-client":
            return ()
        if isinstance(self.seat, list):
            return tuple(self.seat)
        return (self.seat or 0,)

    def make(self, folder: Path, argument: str = "attack") -> Attack:
        """Return the attack itself."""
        if self.factory is not None:
            return catalog.attack_from_factory(self.factory, self.settings, folder, argument)
        return catalog.make_attack(str(self.name), self.settings, argument)


class GatePart(Section):
    """One limit that a later `fedxray gate` checks."""

    attack: str = key(REQUIRED, "the label of an attack", "which attack")
    role: str | None = key(None, "a role", "which role; default: the worst of all")
    defence: str | None = key(None, "the label of a defence", "which defence; default: the deployed one")
    metric: str = key(REQUIRED, "a metric, or a metric with _over_floor", "what is limited")
    limit: float = key(REQUIRED, "a number", "the largest value that passes")


class CanariesPart(Section):
    """Canaries that measure epsilon, in runs of their own: one for each defence and seed."""

    clients: Annotated[int, Field(ge=0, le=100_000)] = key(
        0, "a whole number from 0 to 100,000", "canary clients beside the others; each sends a random update"
    )
    records: Annotated[int, Field(ge=0, le=100_000)] = key(
        0, "a whole number from 0 to 100,000", "canaries of each client, each in or out of its training by a coin"
    )
    kind: Literal["gradients", "records", "random-targets"] = key(
        "gradients",
        '"gradients", "records" or "random-targets"',
        "what the canaries of a client are: random gradients, its own records, or these with random targets",
    )
    norm: Annotated[float, Field(gt=0, le=1e9)] | None = key(
        None,
        "a number above 0 and up to 1e9",
        "length of random updates and gradients; default: the norm to which the defence clips, else 1",
    )


Sweep = dict[str, dict[str, list[Any]]]

# The table [transcript] of a plan, key by key

Candidate = TypeVar("Candidate")
Candidates = Annotated[list[Candidate], Field(min_length=1, max_length=20)]


class RecipePart(Section):
    """Candidates for fields of the recipe that are not known; the one that explains the first reply best is used."""

    learning_rate: Candidates[Rate] | None = key(None, "a list of numbers above 0", "candidates for the learning rate")
    epochs: Candidates[Count] | None = key(None, "a list of whole numbers", "candidates for the local epochs")
    batch_size: Candidates[Count] | None = key(None, "a list of whole numbers", "candidates for the batch size")

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
        "how the node trains, which no message holds; needed by attacks that replay the training",
    )
    examples: Literal["same", "any"] = key(
        "same", '"same" or "any"', "whether the number of examples that the node reported must be that of its records"
    )
    recipe: RecipePart | None = key(None, "a table [transcript.recipe]", "see below")
    rounds: (
        Annotated[str, Field(pattern=r"^\d{1,9} to \d{1,9}$")] | Annotated[list[Index], Field(min_length=1)] | None
    ) = key(
        None,
        '"0 to 4", or a list of rounds (the first is 0)',
        "which recorded rounds are read, for instance those of one learning rate; default: all",
    )
    widen: bool = key(False, "true or false", "whether half-precision arrays are read as they are")


# Plain values as TOML


def to_toml(document: Mapping[str, Any]) -> str:
    """Return texts, numbers, lists and tables as TOML that reads back as the same values."""
    top = {name: value for name, value in document.items() if not _headers(name, value)}
    lines = _pairs(top)
    for name, value in document.items():
        for header, table in _headers(name, value):
            lines += ["", header, *_pairs(table)]
    return "\n".join(lines) + "\n"


def _headers(name: str, value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the headers that a value is written under, with the table below each; none for a plain value."""
    if isinstance(value, Mapping):
        return [(f"[{_key(name)}]", value)]
    if isinstance(value, list) and value and all(isinstance(table, Mapping) for table in value):
        return [(f"[[{_key(name)}]]", table) for table in value]
    return []


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_spell(value)}" for name, value in table.items()]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _spell(name)


def _spell(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_pairs(value)) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_spell(entry) for entry in value) + "]"
    # The texts of JSON are those of TOML, but for one control character and pairs of escapes.
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")


# The plan: all tables, its axes, and its digest

FORMAT = 1
Seed = Annotated[int, Field(ge=0, lt=2**63)]
PlanName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Plan(Section):
    """An audit: one federation, and a grid of defences, attacks and seeds."""

    format: Annotated[int, Field(ge=1, le=FORMAT)] = key(FORMAT, "1", "version of this format")
    name: PlanName = key(
        "audit", "letters, digits, dots, dashes", "name of the audit and of its folder; default: the file's name"
    )
    planned_seeds: Annotated[list[Seed], Field(min_length=1)] | Literal["auto"] = key(
        [0],
        '"auto", or a list of whole numbers of at least 0',
        'one federation is run for each; "auto": 3, 5, 10 or 20 of them, until every verdict is settled',
        alias="seeds",
    )
    data: DataPart = key(REQUIRED, "a table", "see below")
    model: ModelPart = key(REQUIRED, "a table", "see below")
    federation: FederationPart = key(FederationPart(), "a table", "see below")
    defence: list[DefencePart] = key([], "tables [[defence]]", "see below; without any the only one is none")
    attack: Annotated[list[AttackPart], Field(min_length=1)] = key(
        REQUIRED, "at least one table [[attack]]", "see below"
    )
    gate: list[GatePart] = key([], "tables [[gate]]", "see below")
    sweep: Sweep = key(
        {}, "a table [sweep.LABEL] of lists", "expands the defence of that label: one for each combination"
    )
    transcript: TranscriptPart | None = key(None, "a table", "see below")
    canaries: CanariesPart | None = key(None, "a table", "see below")

    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    _text: bytes | None = PrivateAttr(default=None)
    _file: str | None = PrivateAttr(default=None)

    @property
    def folder(self) -> Path:
        """The folder at which relative paths start, and in which the user's own modules may lie."""
        return self._folder

    @property
    def text(self) -> bytes:
        """The plan as it was written, or spelled out with all defaults where it never was."""
        return to_toml(self.to_document()).encode() if self._text is None else self._text

    @property
    def is_auto(self) -> bool:
        """Whether the audit chooses the number of seeds by itself."""
        return self.planned_seeds == "auto"

    @property
    def seeds(self) -> list[int]:
        """The seeds; those of the first look where the audit chooses their number."""
        return list(range(AUTO_LOOKS[0])) if self.planned_seeds == "auto" else self.planned_seeds

    def with_seeds(self, seeds: Sequence[int]) -> Plan:
        """Return the same plan with these seeds."""
        return Plan.from_document({**self.to_document(), "seeds": list(seeds)}, self._folder)

    @cached_property
    def defences(self) -> list[DefencePart]:
        """The defences with every sweep expanded; `none` where the plan names none."""
        listed = self.defence or [DefencePart(name="none")]
        return [point for part in listed for point in self._points(part)]

    @cached_property
    def attacks(self) -> list[AttackPart]:
        """The attacks in the order of the plan, each followed by its restored versions."""
        return [version for part in self.attack for version in raw_and_restored(part, self._folder)]

    def defence_of(self, label: str) -> DefencePart:
        """Return the defence of that label."""
        return next(part for part in self.defences if part.title == label)

    def attack_of(self, label: str) -> AttackPart:
        """Return the attack of that label."""
        return next(part for part in self.attacks if part.title == label)

    @property
    def clients(self) -> int:
        """The number of clients that can be attacked: in a recording the node alone."""
        return self.data.clients if self.transcript is None else 1

    def factories(self) -> list[str]:
        """Return every function of the user's that this plan will import."""
        parts: list[ModelPart | DefencePart | AttackPart] = [self.model, *self.defence, *self.attack]
        named = [part.factory for part in parts]
        return list(dict.fromkeys(spec for spec in named if spec))

    def third_party(self) -> list[dict[str, str]]:
        """Every plug-in that this plan uses: its kind and name, and the package that offers it with its version."""
        attacks = [part.make(self._folder) for part in self.attack if part.factory is None]
        used = [("attacks", held.name) for attack in attacks for held in catalog.held_attacks(attack)]
        used += [("defences", name) for part in self.defence for name in (part.name or "").split("+")]
        used += [("datasets", self.data.name or ""), ("models", self.model.name or "")]
        found = [(kind, catalog.plugin_of(kind, name)) for kind, name in dict.fromkeys(used)]
        return [
            {
                "kind": catalog.SINGULAR[kind],
                "name": plugin.name,
                "distribution": plugin.distribution,
                "version": plugin.version,
            }
            for kind, plugin in found
            if plugin is not None
        ]

    def to_document(self) -> dict[str, Any]:
        """Return the plan as plain values for JSON, with defaults filled in; `from_document` reads it back."""
        document: dict[str, Any] = _plain(self)
        if self.transcript is not None:  # the recording gives what the plan does not
            given = self.federation.model_fields_set
            document["federation"] = {name: value for name, value in document["federation"].items() if name in given}
        return document

    def digest(self) -> str:
        """Return a short text that is equal for equal plans."""
        text = json.dumps(self.to_document(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @staticmethod
    def from_document(document: dict[str, Any], folder: Path, text: bytes | None = None) -> Plan:
        """Return the plan that `to_document` wrote; its names were checked when it was read."""
        plan = Plan.model_validate(document)
        plan._folder, plan._text = folder.absolute(), text  # a worker may have another working directory
        return plan

    @property
    def file(self) -> str | None:
        """The name of the file that the plan was read from, without its folder; None where it was not."""
        return self._file

    def of_file(self, name: str) -> Plan:
        """Return the plan as one that was read from a file of this name."""
        plan = self.model_copy()
        plan._file = name
        return plan

    def _points(self, part: DefencePart) -> list[DefencePart]:
        swept = self.sweep.get(part.title)
        if not swept:
            return [part]
        points = []
        for values in itertools.product(*swept.values()):
            chosen = dict(zip(swept, values, strict=True))
            spelled = ",".join(f"{name}={spell_value(value)}" for name, value in chosen.items())
            changed = {"label": f"{part.title}[{spelled}]", "settings": part.settings | chosen}
            points.append(part.model_copy(update=changed))
        return points


def spell_value(value: Any) -> str:
    """Return a swept value as it stands in a label: short, unless that would be another number."""
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)


def _plain(value: Any) -> Any:
    """Return a section as plain values, its settings beside its keys, absent ones left out."""
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if not isinstance(value, BaseModel):
        return value
    fields_of = type(value).model_fields.items()
    given = {field.alias or name: getattr(value, name) for name, field in fields_of if not field.exclude}
    plain = {key: _plain(inner) for key, inner in given.items() if inner is not None}
    return plain | value.settings if isinstance(value, OpenSection) else plain


# The arguments of a [data] table for the loader of the data set and for the split among clients


def load_arguments(data: DataPart, folder: Path, seed: int) -> dict[str, Any]:
    """Return keyword arguments for `fedxray.data.load`."""
    options = loader_options(data)
    settings = arguments(data, options)
    if "clients" in options:  # generated for a number of clients
        settings["clients"] = data.clients
    return settings | {
        "name": data.name,
        "path": own_path(data, folder),
        "schema": schema_path(data, folder),
        "target": data.target,
        "sensitive": data.sensitive,
        "categorical": data.categorical,
        "drop": data.drop,
        "scale_target": data.scale_target,
        "subject": data.subject,
        "seed": seed,
    }


def own_path(data: DataPart, folder: Path) -> Path | None:
    """Return the path of the user's own data, None for a named data set."""
    # Not Path.expanduser, which breaks on the home of a user who does not exist.
    return None if data.path is None else (folder / os.path.expanduser(data.path)).absolute()


def schema_path(data: DataPart, folder: Path) -> Path | None:
    """Return the path of the schema of generated data, None for other data."""
    return None if data.schema_file is None else (folder / os.path.expanduser(data.schema_file)).absolute()


def split_arguments(data: DataPart, seed: int) -> dict[str, Any]:
    """Return keyword arguments for `fedxray.data.split`."""
    return arguments(data, partition_options(data)) | {
        "clients": data.clients,
        "partition": data.partition,
        "holdout": data.holdout,
        "public": data.public,
        "limit": data.limit,
        "distinct_classes": bool(data.distinct_classes),
        "subject_holdout": data.subject_holdout or 0.0,
        "seed": seed,
    }


def arguments(data: DataPart, wanted: set[str]) -> dict[str, Any]:
    """Return the settings of a [data] table that are among the wanted ones."""
    return {name: value for name, value in data.settings.items() if name in wanted}


def loader_options(data: DataPart) -> set[str]:
    """Return the settings that the loader of this data set takes."""
    if data.name is not None:
        return keywords(catalog.resolve("datasets", data.name, "data.name")) - {"seed"}
    if data.schema_file is not None:
        from fedxray.data.schema import by_schema

        return keywords(by_schema) - {"seed"}
    from fedxray.data.own_arrays import own_npz, ready_npz
    from fedxray.data.own_csv import own_csv
    from fedxray.data.own_images import own_images

    own = keywords(own_csv) | keywords(own_images) | keywords(own_npz) | keywords(ready_npz)
    return own | {"ready"}


def partition_options(data: DataPart) -> set[str]:
    """Return the settings that this partition takes."""
    from fedxray.data.partition import PARTITIONS

    if data.partition not in PARTITIONS:
        raise unknown_name("data.partition", data.partition, PARTITIONS)
    return keywords(load(PARTITIONS[data.partition]))


def keywords(function: Any) -> set[str]:
    """Return the names of the keyword-only arguments of a function."""
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}
