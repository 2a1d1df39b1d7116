"""The names that a plan can use, and how names with settings become attacks, defences and floors.

A name is one line in a table here (or in the table that ELSEWHERE points to), or an entry point of an installed package
(fedxray/plugins.py). The fields of a class are its settings: pydantic checks each value strictly against the field's
annotation, and a refusal states which setting, what was expected, what was given and what to do.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fedxray import plugins
from fedxray.errors import BadInput, unknown_key, unknown_name
from fedxray.lookup import load, load_factory, users_code

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationInfo

    from fedxray.attacks.base import Attack
    from fedxray.defences.base import Defence

ATTACKS: dict[str, str] = {
    "last-returned": "fedxray.attacks.local_model.baselines:LastReturned",
    "global-model": "fedxray.attacks.local_model.baselines:GlobalModel",
    "local-model-linear": "fedxray.attacks.local_model.linear:LocalModelLinear",
    "local-model-linear-forward": "fedxray.attacks.local_model.linear:LocalModelLinearForward",
    "local-model-heuristic": "fedxray.attacks.local_model.heuristic:LocalModelHeuristic",
    "local-model-extrapolate": "fedxray.attacks.local_model.baselines:LocalModelExtrapolate",
    "local-model-active": "fedxray.attacks.local_model.active:LocalModelActive",
    "local-model-send-back": "fedxray.attacks.local_model.active:LocalModelSendBack",
    "local-model-oracle": "fedxray.attacks.local_model.baselines:LocalModelOracle",
    "attribute-from-model": "fedxray.attacks.attributes.from_model:AttributeFromModel",
    "attribute-from-gradients": "fedxray.attacks.attributes.from_gradients:AttributeFromGradients",
    "attribute-from-updates": "fedxray.attacks.attributes.from_updates:AttributeFromUpdates",
    "membership-loss": "fedxray.attacks.membership:MembershipLoss",
    "membership-series": "fedxray.attacks.membership:MembershipSeries",
    "membership-loss-drop": "fedxray.attacks.membership:MembershipLossDrop",
    "membership-logit-drop": "fedxray.attacks.membership:MembershipLogitDrop",
    "membership-cosine": "fedxray.attacks.membership:MembershipCosine",
    "membership-gradient-difference": "fedxray.attacks.membership:MembershipGradientDifference",
    "membership-fedmia": "fedxray.attacks.membership:MembershipFedmia",
    "membership-reference": "fedxray.attacks.membership:MembershipReference",
    "membership-best": "fedxray.attacks.membership:MembershipBest",
    "membership-from-updates": "fedxray.attacks.presence:MembershipFromUpdates",
    "dlg": "fedxray.attacks.inversion.dlg:Dlg",
    "idlg": "fedxray.attacks.inversion.idlg:Idlg",
    "gradinversion": "fedxray.attacks.inversion.gradinversion:GradInversion",
    "tabular-inversion": "fedxray.attacks.inversion.tabular:TabularInversion",
    "inverting-gradients": "fedxray.attacks.inversion.inverting_gradients:InvertingGradients",
    "dlf": "fedxray.attacks.inversion.dlf:Dlf",
    "dlf-no-prior": "fedxray.attacks.inversion.dlf:DlfNoPrior",
    "shared-simulation": "fedxray.attacks.inversion.dlf:SharedSimulation",
    "fedsgd-epoch": "fedxray.attacks.inversion.dlf:FedsgdEpoch",
    "fedsgd-inversion": "fedxray.attacks.inversion.dlf:FedsgdInversion",
    "dlf-redrawn": "fedxray.attacks.inversion.redrawn:DlfRedrawn",
    "surrogate": "fedxray.attacks.inversion.surrogate:Surrogate",
    "curious-client": "fedxray.attacks.inversion.curious_client:CuriousClient",
    "curious-client-oracle": "fedxray.attacks.inversion.curious_client:CuriousClientOracle",
    "awa": "fedxray.attacks.inversion.awa:Awa",
    "agic": "fedxray.attacks.inversion.agic:Agic",
    "model-inversion": "fedxray.attacks.model_inversion:ModelInversion",
    "fedinverse": "fedxray.attacks.fedinverse:FedInverse",
    "source-majority": "fedxray.attacks.source:SourceMajority",
    "source-from-model": "fedxray.attacks.source:SourceFromModel",
    "source-from-updates": "fedxray.attacks.presence:SourceFromUpdates",
    "labels-idlg": "fedxray.attacks.labels.idlg:LabelsIdlg",
    "labels-geng-start": "fedxray.attacks.labels.geng:LabelsGengStart",
    "labels-geng-end": "fedxray.attacks.labels.geng:LabelsGengEnd",
    "labels-dlf": "fedxray.attacks.labels.dlf:LabelsDlf",
    "labels-ilrg": "fedxray.attacks.labels.ilrg:LabelsIlrg",
    "labels-from-metrics": "fedxray.attacks.labels.from_metrics:LabelsFromMetrics",
}
FLOORS: dict[str, str] = {
    "majority": "fedxray.attacks.floors:Majority",
    "imputation": "fedxray.attacks.floors:Imputation",
    "mean-image": "fedxray.attacks.floors:MeanImage",
    "nearest-public-image": "fedxray.attacks.floors:NearestPublicImage",
    "chance": "fedxray.attacks.floors:Chance",
    "owner-share": "fedxray.attacks.floors:OwnerShare",
    "marginals": "fedxray.attacks.floors:Marginals",
    "class-mean": "fedxray.attacks.floors:ClassMean",
    "random-public-image": "fedxray.attacks.floors:RandomPublicImage",
}
# Floors that have a class of their own for attacks of one kind.
FLOORS_OF_KIND: dict[tuple[str, str], str] = {
    ("chance", "sources"): "fedxray.attacks.floors:ChanceOfSources",
    ("majority", "rows"): "fedxray.attacks.floors:MajorityRow",
    ("marginals", "rows"): "fedxray.attacks.floors:MarginalRows",
}
DEFENCES: dict[str, str] = {
    "none": "fedxray.defences.base:NoDefence",
    "dp-sgd": "fedxray.defences.dp_sgd:DpSgd",
    "mixup": "fedxray.defences.mixup:Mixup",
    "gaussian-noise": "fedxray.defences.noise:GaussianNoise",
    "laplace-noise": "fedxray.defences.noise:LaplaceNoise",
    "pruning": "fedxray.defences.pruning:Pruning",
    "quantise": "fedxray.defences.quantise:Quantise",
    "local-bn": "fedxray.defences.local_bn:LocalBn",
    "nvflare-percentile": "fedxray.defences.stock:NvflarePercentile",
    "nvflare-svt": "fedxray.defences.stock:NvflareSvt",
    "nvflare-exclude": "fedxray.defences.stock:NvflareExclude",
    "flower-local-dp": "fedxray.defences.stock:FlowerLocalDp",
    "flower-fixed-clipping": "fedxray.defences.stock:FlowerFixedClipping",
    "flower-adaptive-clipping": "fedxray.defences.stock:FlowerAdaptiveClipping",
    "flower-secagg": "fedxray.defences.stock:FlowerSecagg",
}
RESTORERS: dict[str, str] = {
    "ddrm": "fedxray.restore.ddrm:Ddrm",
    "mde": "fedxray.restore.mde:Mde",
    "gan": "fedxray.restore.gan:Gan",
}
# Kinds whose table is beside what it names: "module:TABLE", a mapping of names.
ELSEWHERE: dict[str, str] = {
    "models": "fedxray.models:MODELS",
    "datasets": "fedxray.data.catalog:DATASETS",
    "metrics": "fedxray.metrics.table:METRICS",
    "roles": "fedxray.adversary.grants:ROLES",
    "grants": "fedxray.adversary.grants:GRANTS",
    "reproductions": "fedxray.reproduce.base:REPRODUCTIONS",
}
HERE: dict[str, dict[str, str]] = {"attacks": ATTACKS, "floors": FLOORS, "defences": DEFENCES, "restorers": RESTORERS}
SINGULAR = {
    "attacks": "attack",
    "defences": "defence",
    "datasets": "data set",
    "models": "model",
    "metrics": "metric",
    "roles": "role",
    "grants": "grant",
    "restorers": "restorer",
    "reproductions": "reproduction",
    "floors": "floor",
}
KINDS = tuple(SINGULAR)


# Names


def built_in(kind: str) -> Mapping[str, Any]:
    """The built-in names of a kind, each with "module:object" or with the entry itself."""
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    names: Mapping[str, Any] = HERE[kind] if kind in HERE else load(ELSEWHERE[kind])
    return names


def table(kind: str) -> Mapping[str, Any]:
    """All names of a kind that a plan can use: the built-in ones, then those of plug-ins."""
    return plugins.table(kind, built_in(kind))


def check_name(kind: str, name: str, argument: str | None = None) -> None:
    """Refuse a name that is not in the table of its kind, and offer the nearest."""
    if name not in table(kind):
        raise unknown_name(argument or SINGULAR[kind], name, table(kind))


def resolve(kind: str, name: str, argument: str | None = None) -> Any:
    """The class or function behind a name, imported now; of a grant the words that explain it."""
    argument = argument or SINGULAR[kind]
    check_name(kind, name, argument)
    if kind == "grants":
        return built_in(kind)[name]
    entry = plugins.resolve(kind, name, built_in(kind), argument)
    plugin = plugin_of(kind, name)
    if plugin is not None and kind in ("attacks", "defences"):
        _check_plugin(kind, plugin, entry, argument)
    return entry


def plugin_of(kind: str, name: str) -> plugins.Plugin | None:
    """The plug-in behind a name, None for a built-in or an unknown one."""
    return plugins.find(kind, name, built_in(kind), SINGULAR[kind])


def source_of(kind: str, name: str) -> str:
    """Where a name comes from: "built-in", or the package that offers it."""
    plugin = plugin_of(kind, name)
    return "built-in" if plugin is None else plugin.source


def ignored_plugins(kind: str) -> list[str]:
    """One sentence for each plug-in that cannot be used under its name, mostly since that is built in."""
    return plugins.ignored(kind, built_in(kind))


def _check_plugin(kind: str, plugin: plugins.Plugin, entry: Any, argument: str) -> None:
    """Refuse a plug-in that is no settings dataclass of its family, or that calls itself differently.

    The name of the class enters seeds and stored results, so it must be the one that the plan uses.
    """
    base = load({"attacks": "fedxray.attacks.base:Attack", "defences": "fedxray.defences.base:Defence"}[kind])
    fits = isinstance(entry, type) and issubclass(entry, base) and is_dataclass(entry)
    if fits and getattr(entry, "name", None) == plugin.name:
        return
    raise BadInput(
        argument,
        expected=f"{plugin.spec} of {plugin.package} to be a frozen dataclass of {base.__module__}.{base.__name__} "
        f"with name = {plugin.name!r}",
        got=f"name = {getattr(entry, 'name', None)!r}" if fits else getattr(entry, "__name__", repr(entry)),
        remedy=plugins.REMEDY,
    )


# Objects from names and settings


def make_attack(name: str, settings: Mapping[str, Any], argument: str = "attack") -> Attack:
    """The named attack with these settings; a sub-attack is a name or a table with a name."""
    attack: Attack = fill_fields(resolve("attacks", name, f"{argument}.name"), settings, argument, _sub_attack)
    return attack


def floor_for(name: str, kind: str) -> Attack:
    """The named floor for attacks of this kind."""
    special = FLOORS_OF_KIND.get((name, kind))
    floor: Attack = load(special)() if special else resolve("floors", name)()
    return floor


def floors_of_kind(kind: str) -> list[str]:
    """The names of all floors of attacks of this kind; that of models is computed from the truth."""
    return ["other-optimum"] if kind == "model" else [name for name in FLOORS if floor_for(name, kind).kind == kind]


def controls_of_kind(kind: str) -> list[str]:
    """The names of the controls that every attack of this kind can have."""
    # A guess about members is about held-out records too; models and counts of labels are about no given records.
    return ["other-client"] if kind in ("membership", "model", "labels") else ["held-out", "other-client"]


def make_defence(name: str, settings: Mapping[str, Any], argument: str = "defence") -> Defence:
    """The named defence with these settings; `a+b` joins several, each with its own fields or table."""
    parts = name.split("+")
    classes = {part: resolve("defences", part, f"{argument}.name") for part in parts}
    if len(classes) < len(parts):
        expected = "each defence once"
        raise BadInput(f"{argument}.name", expected=expected, got=repr(name), remedy="Leave the repeated one out.")
    if len(parts) == 1:
        defence: Defence = fill_fields(classes[name], settings, argument, _sub_attack)
        return defence
    from fedxray.defences.joined import Joined

    shares = _shared_out(settings, classes, argument)
    return Joined(parts=tuple(fill_fields(classes[part], shares[part], argument, _sub_attack) for part in parts))


def _sub_attack(value: Any, argument: str) -> Attack:
    """An attack named inside another one: "last-returned" or { name = "last-returned", ... }."""
    if isinstance(value, str):
        return make_attack(value, {}, argument)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        rest = {key: inner for key, inner in value.items() if key != "name"}
        return make_attack(value["name"], rest, argument)
    expected = "the name of an attack, or a table with its name"
    raise BadInput(argument, expected=expected, got=repr(value), remedy="`fedxray list attacks` has the names.")


def _shared_out(settings: Mapping[str, Any], classes: Mapping[str, type], argument: str) -> dict[str, dict[str, Any]]:
    """The settings of joined defences, each given to the one part that has the field."""
    fields_of = {part: {field.name for field in fields(cls)} for part, cls in classes.items()}
    shares: dict[str, dict[str, Any]] = {part: {} for part in classes}
    for key, value in settings.items():
        if key in shares and isinstance(value, Mapping):
            shares[key].update(value)
            continue
        takers = [part for part in classes if key in fields_of[part]]
        if not takers:
            raise unknown_key(f"{argument}.{key}", key, set().union(*fields_of.values()) | set(classes))
        if len(takers) > 1:
            raise BadInput(
                f"{argument}.{key}",
                expected="a setting of one of the joined defences",
                got=f"a setting of {' and '.join(takers)}",
                remedy=f"Give each its own table: {takers[0]} = {{ {key} = ... }}.",
            )
        shares[takers[0]][key] = value
    return shares


# Settings: plain values of a plan become fields of a frozen dataclass

SubAttack = Callable[[Any, str], Any]  # value and place of a sub-attack -> the attack
OTHERWISE = {"lr": "learning_rate"}  # what an optimiser calls a setting -> what most attacks call it
TYPE_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def fill_fields(cls: type, settings: Mapping[str, Any], argument: str, sub_attack: SubAttack) -> Any:
    """An object of a settings dataclass from plain values, or BadInput that names the field.

    `argument` is the place in the plan, as attack[0]; `sub_attack` makes the attack of a field that holds one.
    """
    from pydantic import ValidationError

    known = {field.name: field for field in fields(cls) if field.init}
    hints = get_type_hints(cls)
    filled: dict[str, Any] = {}
    for key, value in settings.items():
        place = f"{argument}.{key}"
        if key not in known:
            raise unknown_key(place, key, known, of=getattr(cls, "name", cls.__name__))
        try:
            filled[key] = _adapter(hints[key]).validate_python(value, context=(place, sub_attack))
        except ValidationError:
            expected = describe(hints[key])
            raise BadInput(place, expected=expected, got=repr(value), remedy=_default_remedy(known[key])) from None
    required = [name for name, field in known.items() if field.default is field.default_factory is MISSING]
    missing = [name for name in required if name not in filled]
    if missing:
        remedy = f"Give {missing[0]} a value."
        raise BadInput(f"{argument}.{missing[0]}", expected=describe(hints[missing[0]]), got="nothing", remedy=remedy)
    try:
        return cls(**filled)
    except BadInput as error:
        inner = error.argument if error.argument in known else OTHERWISE.get(error.argument, error.argument)
        raise error.at(f"{argument}.{inner}") from error


@lru_cache(maxsize=512)
def _adapter(hint: Any) -> TypeAdapter[Any]:
    """The strict check of an annotation: no text becomes a number, but a whole number is a number."""
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(_rule(hint), config=ConfigDict(strict=True))


def _rule(hint: Any) -> Any:
    """An annotation for pydantic in which a list fits a tuple, and attacks and inner tables are made by us."""
    from pydantic import BeforeValidator, PlainValidator

    if _is_attack(hint) or _is_table(hint):

        def make(value: Any, info: ValidationInfo) -> Any:
            place, sub_attack = info.context  # type: ignore[misc]  # as fill_fields gives it
            return _make_object(hint, value, place, sub_attack)

        return Annotated[Any, PlainValidator(make)]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        # Objects last: their own refusal ends the search for a member that fits.
        ordered = sorted(arguments, key=lambda member: _is_attack(member) or _is_table(member))
        return Union[tuple(_rule(member) for member in ordered)]  # noqa: UP007
    if origin is None or origin is Literal:
        return hint
    inner = tuple(one if one is Ellipsis else _rule(one) for one in arguments)
    if origin is tuple:
        listed = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
        return Annotated[tuple[inner], listed]  # type: ignore[valid-type]
    return origin[inner]


def _make_object(hint: Any, value: Any, place: str, sub_attack: SubAttack) -> Any:
    """The attack or inner table of a field; ValueError where it is of another type than the field's."""
    if isinstance(value, hint):
        return value
    if _is_attack(hint):
        value = sub_attack(value, place)
    elif isinstance(value, Mapping):
        value = fill_fields(hint, value, place, sub_attack)
    if not isinstance(value, hint):
        raise ValueError(describe(hint))
    return value


def describe(hint: Any) -> str:
    """An annotation in plain words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(member) for member in arguments if member is not type(None))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, arguments)) if len(arguments) > 1 else repr(arguments[0])
    if origin is tuple and Ellipsis not in arguments:
        return f"[{', '.join(map(describe, arguments))}]"
    if origin in (tuple, list, Sequence):
        return f"a list, each {describe(arguments[0])}"
    if origin in (dict, Mapping):
        return "a table"
    if _is_attack(hint):
        return "the name of an attack, or a table with its name"
    if _is_table(hint):
        return "a table"
    return TYPE_WORDS.get(hint, str(hint))


def _is_attack(hint: Any) -> bool:
    from fedxray.attacks.base import Attack

    return isinstance(hint, type) and issubclass(hint, Attack)


def _is_table(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _default_remedy(field: Field[Any]) -> str:
    default = field.default
    if default is MISSING or not isinstance(default, int | float | str | bool | tuple):
        return "Change the value, or leave the key out."
    return f"The default is {default!r}."


# Facts for results.json


def attack_facts(attack: Attack, factory: str | None = None) -> dict[str, str | None]:
    """What results.json states about an attack, so that a report needs neither its code nor torch.

    `factory` is "module:function" where the plan names one in place of a catalogue name.
    """
    return {
        "name": attack.name,
        "kind": attack.kind,
        "about": first_paragraph(type(attack)) or None,
        "paper": _citation(type(attack)),
        "source": source_of("attacks", attack.name) if factory is None else f"factory {factory}",
    }


def first_paragraph(entry: Any) -> str:
    """The first paragraph of a docstring on one line; empty for none, also where a dataclass wrote its own."""
    text = inspect.getdoc(entry) or ""
    generated = isinstance(entry, type) and text.startswith(f"{entry.__name__}(")
    return "" if generated else " ".join(text.split("\n\n")[0].split())


def _citation(cls: type[Attack]) -> str | None:
    """The paper of an attack: the citation behind its key, or the text itself, as a plug-in may give it."""
    key: str = getattr(cls, "paper", "")
    if not key or " " in key:
        return key or None
    citation: str = load("fedxray.attacks.papers:PAPERS").get(key, key)
    return citation


def held_attacks(attack: Attack) -> Iterator[Attack]:
    """An attack and those that its fields hold."""
    from fedxray.attacks.base import Attack

    yield attack
    for value in attack_settings(attack).values():
        if isinstance(value, Attack):
            yield from held_attacks(value)


def attack_settings(attack: Attack) -> dict[str, Any]:
    """The settings of an attack by name, an inner attack as it is."""
    return {field.name: getattr(attack, field.name) for field in fields(attack)}  # type: ignore[arg-type]


# A user's own code, named in a plan as "module:function"


def reach(folder: Path) -> None:
    """Let modules beside the plan be imported, after everything that is installed."""
    path = str(folder.resolve())
    if path not in sys.path:
        sys.path.append(path)


def from_factory(
    spec: str, settings: Mapping[str, Any], folder: Path, argument: str, kind: type,
    adapt: Callable[[Any], Any] = lambda made: made,
) -> Any:  # fmt: skip
    """The object that the user's function returns for these settings, adapted; it must then be of that kind."""
    reach(folder)
    factory = load_factory(spec, argument)
    _check_settings(factory, spec, settings, argument)
    with users_code(argument, f"{spec} to return a {kind.__name__}"):
        product = adapt(factory(**settings))
    if not isinstance(product, kind):
        expected = f"{spec} to return a {kind.__name__}"
        remedy = f"Return an instance of a subclass of {kind.__module__}.{kind.__name__}."
        raise BadInput(argument, expected=expected, got=type(product).__name__, remedy=remedy)
    return product


def _check_settings(factory: Callable[..., Any], spec: str, settings: Mapping[str, Any], argument: str) -> None:
    """Refuse settings that the function does not take; a function without a readable signature is simply called."""
    with suppress(ValueError):
        try:
            inspect.signature(factory).bind(**settings)
        except TypeError as error:
            expected = f"{spec} to take the settings {', '.join(settings) or '(none)'}"
            remedy = "Make the settings of the plan keyword arguments of the function."
            raise BadInput(argument, expected=expected, got=error, remedy=remedy) from error


def attack_from_factory(spec: str, settings: Mapping[str, Any], folder: Path, argument: str = "attack") -> Attack:
    """A user's own attack; refused where it or one that it holds is more than its fields, which name stored answers."""
    from fedxray.attacks.base import Attack

    attack: Attack = from_factory(spec, settings, folder, f"{argument}.factory", Attack)
    expected = f"{spec} to return a dataclass whose fields are all of its state"
    with users_code(f"{argument}.factory", expected):
        more = [name for held in held_attacks(attack) for name in vars(held) if name not in attack_settings(held)]
    if more:
        got, remedy = (
            f"{', '.join(more)} besides them",
            "Make it a field, or override the method in a class of your own.",
        )
        raise BadInput(f"{argument}.factory", expected=expected, got=got, remedy=remedy)
    return attack


def defence_from_factory(spec: str, settings: Mapping[str, Any], folder: Path, argument: str = "defence") -> Defence:
    """A user's own defence, NVFlare filter or Flower mod, made by the function or class that the plan names."""
    from fedxray.defences.base import Defence
    from fedxray.defences.foreign import as_defence

    defence: Defence = from_factory(spec, settings, folder, f"{argument}.factory", Defence, as_defence)
    return defence
