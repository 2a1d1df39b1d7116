"""The names a plan can use, each as one visible line, and how settings become objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedxray.audit.factories import from_factory
from fedxray.audit.settings import fill_fields
from fedxray.errors import BadInput, unknown_key, unknown_name
from fedxray.naming import load, users_code

if TYPE_CHECKING:
    from fedxray.attacks.base import Attack
    from fedxray.defences.base import Defence

ATTACKS: dict[str, str] = {
    "last-returned": "fedxray.attacks.local_model.last_returned:LastReturned",
    "global-model": "fedxray.attacks.local_model.global_model:GlobalModel",
    "local-model-linear": "fedxray.attacks.local_model.linear:LocalModelLinear",
    "local-model-linear-forward": "fedxray.attacks.local_model.linear_forward:LocalModelLinearForward",
    "local-model-heuristic": "fedxray.attacks.local_model.heuristic:LocalModelHeuristic",
    "local-model-extrapolate": "fedxray.attacks.local_model.extrapolate:LocalModelExtrapolate",
    "local-model-active": "fedxray.attacks.local_model.active:LocalModelActive",
    "local-model-send-back": "fedxray.attacks.local_model.send_back:LocalModelSendBack",
    "local-model-oracle": "fedxray.attacks.local_model.oracle:LocalModelOracle",
    "attribute-from-model": "fedxray.attacks.attributes.from_model:AttributeFromModel",
    "attribute-from-gradients": "fedxray.attacks.attributes.from_gradients:AttributeFromGradients",
    "membership-loss": "fedxray.attacks.membership:MembershipLoss",
    "dlg": "fedxray.attacks.inversion.dlg:Dlg",
    "idlg": "fedxray.attacks.inversion.idlg:Idlg",
    "gradinversion": "fedxray.attacks.inversion.gradinversion:GradInversion",
    "tabular-inversion": "fedxray.attacks.inversion.tabular:TabularInversion",
    "inverting-gradients": "fedxray.attacks.inversion.inverting_gradients:InvertingGradients",
    "dlf": "fedxray.attacks.inversion.dlf:Dlf",
    "dlf-no-prior": "fedxray.attacks.inversion.dlf_no_prior:DlfNoPrior",
    "shared-simulation": "fedxray.attacks.inversion.shared_simulation:SharedSimulation",
    "fedsgd-epoch": "fedxray.attacks.inversion.fedsgd_epoch:FedsgdEpoch",
    "fedsgd-inversion": "fedxray.attacks.inversion.fedsgd_inversion:FedsgdInversion",
    "curious-client": "fedxray.attacks.inversion.curious_client:CuriousClient",
    "curious-client-oracle": "fedxray.attacks.inversion.curious_client_oracle:CuriousClientOracle",
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
    ("majority", "rows"): "fedxray.attacks.row_floors:MajorityRow",
    ("marginals", "rows"): "fedxray.attacks.row_floors:MarginalRows",
}
DEFENCES: dict[str, str] = {
    "none": "fedxray.defences.base:NoDefence",
    "dp-sgd": "fedxray.defences.dp_sgd:DpSgd",
    "mixup": "fedxray.defences.mixup:Mixup",
    "gaussian-noise": "fedxray.defences.noise:GaussianNoise",
    "laplace-noise": "fedxray.defences.laplace:LaplaceNoise",
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
    "models": "fedxray.models.table:MODELS",
    "datasets": "fedxray.data.catalog:DATASETS",
    "metrics": "fedxray.metrics.table:METRICS",
    "roles": "fedxray.adversary.roles:ROLES",
    "grants": "fedxray.adversary.disclose:GRANTS",
    "reproductions": "fedxray.reproduce.table:REPRODUCTIONS",
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
