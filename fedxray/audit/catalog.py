"""The names a plan can use, each as one visible line, and how settings become objects."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from fedxray.errors import BadInput, unknown_key, unknown_name
from fedxray.lookup import load, load_factory, users_code

if TYPE_CHECKING:
    from fedxray.attacks.base import Attack
    from fedxray.defences.base import Defence

# --- A user's own code, named in a plan as "module:function".


def reach(folder: Path) -> None:
    """Let modules beside the plan be imported, after everything that is installed."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.append(place)


def from_factory(spec: str, settings: Mapping[str, Any], folder: Path, argument: str, kind: type) -> Any:
    """What the user's function returns for these settings, which must be of that kind."""
    reach(folder)
    factory = load_factory(spec, argument)
    _check_settings(factory, spec, settings, argument)
    with users_code(argument, f"{spec} to return a {kind.__name__}"):
        made = factory(**settings)
    if not isinstance(made, kind):
        raise BadInput(
            argument,
            expected=f"{spec} to return a {kind.__name__}",
            got=type(made).__name__,
            remedy=f"Return an instance of a subclass of {kind.__module__}.{kind.__name__}.",
        )
    return made


def _check_settings(
    factory: Callable[..., Any], spec: str, settings: Mapping[str, Any], argument: str
) -> None:
    """Refuse settings that the function does not take; what tells no signature is simply called."""
    try:
        inspect.signature(factory).bind(**settings)
    except TypeError as error:
        raise BadInput(
            argument,
            expected=f"{spec} to take the settings {', '.join(settings) or '(none)'}",
            got=str(error),
            remedy="Make the settings of the plan keyword arguments of the function.",
        ) from error
    except ValueError:
        return


# --- Settings of a plan become fields of a frozen dataclass, each checked against its annotation.


SubAttack = Callable[[Any, str], Any]
OTHERWISE = {"lr": "learning_rate"}  # what an optimiser calls a setting -> what most attacks call it
NUMBERS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


class UnfitError(Exception):
    """A value does not fit its annotation; carries what would."""


def fill_fields(cls: type, settings: Mapping[str, Any], argument: str, sub_attack: SubAttack) -> Any:
    """An object of a settings dataclass from plain values, or BadInput that names the field."""
    known = {one.name: one for one in fields(cls) if one.init}
    hints = get_type_hints(cls)
    filled: dict[str, Any] = {}
    for key, value in settings.items():
        place = f"{argument}.{key}"
        if key not in known:
            raise unknown_key(place, key, known, of=getattr(cls, "name", cls.__name__))
        try:
            filled[key] = fit(hints[key], value, place, sub_attack)
        except UnfitError as error:
            raise BadInput(
                place, expected=str(error), got=repr(value), remedy=_default_remedy(known[key])
            ) from None
    missing = [name for name, one in known.items() if name not in filled and not _has_default(one)]
    if missing:
        raise BadInput(
            f"{argument}.{missing[0]}",
            expected=describe(hints[missing[0]]),
            got="nothing",
            remedy=f"Give {missing[0]} a value.",
        )
    try:
        return cls(**filled)
    except BadInput as error:
        inner = error.argument if error.argument in known else OTHERWISE.get(error.argument, error.argument)
        raise error.at(f"{argument}.{inner}") from error


def fit(hint: Any, value: Any, place: str, sub_attack: SubAttack) -> Any:
    """The value as its annotation wants it, or UnfitError."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _fit_union(hint, value, place, sub_attack)
    if origin is Literal:
        return _accept(any(value == one and type(value) is type(one) for one in arguments), value, hint)
    if hint in (bool, str):
        return _accept(isinstance(value, hint), value, hint)
    if hint is int:
        return _accept(isinstance(value, int) and not isinstance(value, bool), value, hint)
    if hint is float:
        _accept(isinstance(value, int | float) and not isinstance(value, bool), value, hint)
        return float(value)
    if hint is type(None):
        return _accept(value is None, value, hint)
    if origin in (tuple, list, Sequence):
        return _fit_sequence(origin, arguments, hint, value, place, sub_attack)
    if origin in (dict, Mapping):
        _accept(isinstance(value, Mapping), value, hint)
        return {key: fit(arguments[1], inner, f"{place}.{key}", sub_attack) for key, inner in value.items()}
    return _fit_object(hint, value, place, sub_attack)


def _fit_object(hint: Any, value: Any, place: str, sub_attack: SubAttack) -> Any:
    if _is_attack(hint):
        made = value if isinstance(value, hint) else sub_attack(value, place)
        return _accept(isinstance(made, hint), made, hint)
    if is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, hint):
            return value
        _accept(isinstance(value, Mapping), value, hint)
        return fill_fields(hint, value, place, sub_attack)
    raise TypeError(f"{place}: a setting cannot be annotated as {hint!r}")


def _fit_union(hint: Any, value: Any, place: str, sub_attack: SubAttack) -> Any:
    """The first member that takes the value; sub-attacks last, so that their own message is seen."""
    for member in sorted(
        get_args(hint), key=lambda one: (_is_attack(one) or is_dataclass(one), one is not type(value))
    ):
        try:
            return fit(member, value, place, sub_attack)
        except UnfitError:
            continue
    raise UnfitError(describe(hint))


def _fit_sequence(
    origin: Any, arguments: Any, hint: Any, value: Any, place: str, sub_attack: SubAttack
) -> Any:
    _accept(isinstance(value, list | tuple), value, hint)
    if origin is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        _accept(len(value) == len(arguments), value, hint)
        members = list(arguments)
    else:
        members = [arguments[0]] * len(value)
    inner = [
        fit(member, one, f"{place}[{index}]", sub_attack)
        for index, (member, one) in enumerate(zip(members, value, strict=True))
    ]
    return inner if origin is list else tuple(inner)


def _accept(right: bool, value: Any, hint: Any) -> Any:
    if not right:
        raise UnfitError(describe(hint))
    return value


def describe(hint: Any) -> str:
    """An annotation in plain words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(one) for one in arguments if one is not type(None))
    if origin is Literal:
        return (
            "one of " + ", ".join(repr(one) for one in arguments)
            if len(arguments) > 1
            else repr(arguments[0])
        )
    if origin is tuple and Ellipsis not in arguments:
        return f"[{', '.join(describe(one) for one in arguments)}]"
    if origin in (tuple, list, Sequence):
        return f"a list, each {describe(arguments[0])}"
    if origin in (dict, Mapping):
        return "a table"
    if _is_attack(hint):
        return "the name of an attack, or a table with its name"
    if is_dataclass(hint):
        return "a table"
    return NUMBERS.get(hint, str(hint))


def _is_attack(hint: Any) -> bool:
    from fedxray.attacks.base import Attack

    return isinstance(hint, type) and issubclass(hint, Attack)


def _has_default(one: Field[Any]) -> bool:
    return one.default is not MISSING or one.default_factory is not MISSING


def _default_remedy(one: Field[Any]) -> str:
    if (
        one.default is MISSING
        or one.default is None
        or not isinstance(one.default, int | float | str | bool | tuple)
    ):
        return "Change the value, or leave the key out."
    return f"The default is {one.default!r}."


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
    "membership-loss": "fedxray.attacks.membership:MembershipLoss",
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
    "curious-client": "fedxray.attacks.inversion.curious_client:CuriousClient",
    "curious-client-oracle": "fedxray.attacks.inversion.curious_client:CuriousClientOracle",
    "awa": "fedxray.attacks.inversion.awa:Awa",
    "agic": "fedxray.attacks.inversion.agic:Agic",
    "model-inversion": "fedxray.attacks.model_inversion:ModelInversion",
    "fedinverse": "fedxray.attacks.fedinverse:FedInverse",
    "source-majority": "fedxray.attacks.source:SourceMajority",
    "source-from-model": "fedxray.attacks.source:SourceFromModel",
    "labels-idlg": "fedxray.attacks.labels.idlg:LabelsIdlg",
    "labels-geng-start": "fedxray.attacks.labels.geng:LabelsGengStart",
    "labels-geng-end": "fedxray.attacks.labels.geng:LabelsGengEnd",
    "labels-dlf": "fedxray.attacks.labels.dlf:LabelsDlf",
    "labels-ilrg": "fedxray.attacks.labels.ilrg:LabelsIlrg",
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
}
# Floors that are something else for attacks of one kind.
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
}
RESTORERS: dict[str, str] = {
    "ddrm": "fedxray.restore.ddrm:Ddrm",
    "mde": "fedxray.restore.mde:Mde",
    "gan": "fedxray.restore.gan:Gan",
}
# Kinds whose table stands with what it names: "module:TABLE", a mapping of names.
ELSEWHERE: dict[str, str] = {
    "models": "fedxray.models:MODELS",
    "datasets": "fedxray.data.catalog:DATASETS",
    "metrics": "fedxray.metrics.table:METRICS",
    "roles": "fedxray.adversary.roles:ROLES",
    "grants": "fedxray.adversary.disclose:GRANTS",
    "reproductions": "fedxray.reproduce.base:REPRODUCTIONS",
}
HERE: dict[str, dict[str, str]] = {
    "attacks": ATTACKS,
    "floors": FLOORS,
    "defences": DEFENCES,
    "restorers": RESTORERS,
}
# Names that are fixed but have no code yet: refused with that reason, never listed.
NOT_BUILT: dict[str, list[str]] = {
    "attacks": [],
    "floors": ["other-optimum"],
}
KINDS = (
    "attacks",
    "defences",
    "datasets",
    "models",
    "metrics",
    "roles",
    "grants",
    "restorers",
    "reproductions",
    "floors",
)
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


def table(kind: str) -> Mapping[str, Any]:
    """All names of a kind that can be used now."""
    if kind in HERE:
        return HERE[kind]
    if kind in ELSEWHERE:
        found: Mapping[str, Any] = load(ELSEWHERE[kind])
        return found
    if kind in KINDS:
        return {}
    raise unknown_name("kind", kind, KINDS)


def check_name(kind: str, name: str, argument: str | None = None) -> None:
    """Refuse a name that is not in the table of its kind, or not built yet."""
    known = table(kind)
    if name in known:
        return
    argument = argument or SINGULAR[kind]
    if name in NOT_BUILT.get(kind, ()):
        built = ", ".join(known) or "none"
        raise BadInput(
            argument,
            expected=f"one of the {kind} that are built",
            got=f"{name!r}, which is not built yet",
            remedy=f"Built now: {built}.",
        )
    raise unknown_name(argument, name, known)


def resolve(kind: str, name: str, argument: str | None = None) -> Any:
    """The class or function behind a name, imported now; of a grant the words that explain it."""
    check_name(kind, name, argument)
    entry = table(kind)[name]
    return load(entry) if isinstance(entry, str) and kind != "grants" else entry


def make_attack(name: str, settings: Mapping[str, Any], argument: str = "attack") -> Attack:
    """The named attack with these settings; a sub-attack is a name or a table with a name."""
    made: Attack = fill_fields(resolve("attacks", name, f"{argument}.name"), settings, argument, _sub_attack)
    return made


def make_floor(name: str, settings: Mapping[str, Any] | None = None) -> Attack:
    """The named floor."""
    made: Attack = fill_fields(resolve("floors", name), settings or {}, "floor", _sub_attack)
    return made


def floor_for(name: str, kind: str) -> Attack:
    """The named floor as it is for attacks of this kind."""
    special = FLOORS_OF_KIND.get((name, kind))
    made: Attack = load(special)() if special else resolve("floors", name)()
    return made


def make_defence(name: str, settings: Mapping[str, Any], argument: str = "defence") -> Defence:
    """The named defence with these settings; `a+b` joins several, each with its own fields or table."""
    parts = name.split("+")
    classes = {part: resolve("defences", part, f"{argument}.name") for part in parts}
    if len(classes) < len(parts):
        raise BadInput(
            f"{argument}.name",
            expected="each defence once",
            got=repr(name),
            remedy="Leave the repeated one out.",
        )
    if len(parts) == 1:
        alone: Defence = fill_fields(classes[name], settings, argument, _sub_attack)
        return alone
    from fedxray.defences.joined import Joined

    shares = _shared_out(settings, classes, argument)
    return Joined(
        parts=tuple(fill_fields(classes[part], shares[part], argument, _sub_attack) for part in parts)
    )


def attack_from_factory(
    spec: str, settings: Mapping[str, Any], folder: Path, argument: str = "attack"
) -> Attack:
    """A user's own attack, made by the function or class that the plan names."""
    from fedxray.attacks.base import Attack

    made: Attack = from_factory(spec, settings, folder, f"{argument}.factory", Attack)
    return made


def defence_from_factory(
    spec: str, settings: Mapping[str, Any], folder: Path, argument: str = "defence"
) -> Defence:
    """A user's own defence, made by the function or class that the plan names."""
    from fedxray.defences.base import Defence

    made: Defence = from_factory(spec, settings, folder, f"{argument}.factory", Defence)
    with users_code(f"{argument}.factory", f"{spec} to return a defence that describes itself"):
        words = made.describe()
    if not isinstance(words, str):
        raise BadInput(
            f"{argument}.factory",
            expected="describe() to return a text",
            got=type(words).__name__,
            remedy="Return one line.",
        )
    return made


def _sub_attack(value: Any, argument: str) -> Attack:
    """An attack named inside another one: "last-returned" or { name = "last-returned", ... }."""
    if isinstance(value, str):
        return make_attack(value, {}, argument)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        rest = {key: inner for key, inner in value.items() if key != "name"}
        return make_attack(value["name"], rest, argument)
    raise BadInput(
        argument,
        expected="the name of an attack, or a table with its name",
        got=repr(value),
        remedy="`fedxray list attacks` has the names.",
    )


def _shared_out(
    settings: Mapping[str, Any], classes: Mapping[str, type], argument: str
) -> dict[str, dict[str, Any]]:
    """The settings of joined defences, each handed to the one part that has the field."""
    from dataclasses import fields

    fields_of = {part: {one.name for one in fields(cls)} for part, cls in classes.items()}
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
