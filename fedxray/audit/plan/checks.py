"""Checks across the tables of a plan: names of the catalogue, labels, references, and the rules of FedSGD."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedxray.audit import catalog
from fedxray.audit.judge.gate import check_limited
from fedxray.audit.plan import schema
from fedxray.audit.plan.recorded import check_recorded, span
from fedxray.audit.restoring import make_restorer, named
from fedxray.errors import BadInput, some, unknown_key, unknown_name
from fedxray.metrics.table import METRICS, check_metrics, extra_names

if TYPE_CHECKING:
    from fedxray.attacks.base import Attack
    from fedxray.audit.plan.schema import Plan

# FedSGD: a round is one gradient of all examples, so epochs, batch size, momentum and shuffling are fixed

FIXED = {"epochs": 1, "batch_size": "all", "momentum": 0.0, "shuffle": "epoch"}


def for_gradients(document: dict[str, Any]) -> dict[str, Any]:
    """Return the plan with what follows from fedsgd: one batch of all examples."""
    federation = document.get("federation")
    if "transcript" in document or not isinstance(federation, Mapping):
        return document
    if federation.get("algorithm") != "fedsgd" or "batch_size" in federation:
        return document
    return {**document, "federation": {**federation, "batch_size": FIXED["batch_size"]}}


def check_one_gradient(federation: schema.FederationPart) -> None:
    """Refuse what fedsgd would ignore."""
    for name, only in FIXED.items() if federation.algorithm == "fedsgd" else ():
        given = getattr(federation, name)
        if name in federation.model_fields_set and given != only:
            raise BadInput(
                f"federation.{name}",
                expected='algorithm = "fedavg" or "fedprox" beside it',
                got=f"{given!r} with fedsgd, which sends one gradient of all examples",
                remedy=f"Leave {name} out, or change the algorithm.",
            )


# Checks of all tables

MOST_POINTS = 1000  # of all sweeps together


def check_plan(plan: Plan) -> None:
    """Refuse what is misspelt, repeated or contradictory."""
    check_recorded(plan)
    if len(set(plan.seeds)) < len(plan.seeds):
        raise BadInput("seeds", expected="each seed once", got=plan.seeds, remedy="Leave the repeated one out.")
    check_data(plan.data)
    _check_model(plan.model)
    _check_federation(plan.federation)
    _check_sweeps(plan)
    for argument, defence in _numbered("defence", plan.defence):
        _name_or_factory(argument, defence)
    for argument, attack in _numbered("attack", plan.attack):
        _check_attack(argument, attack, plan)
    for defence in plan.defences:
        if defence.factory is None:
            catalog.make_defence(str(defence.name), defence.settings, f"defence {defence.title}")
    _unique("defence", [part.title for part in plan.defences])
    _unique("attack", [part.title for part in plan.attacks])
    _check_deployed(plan)
    _check_gates(plan)
    _check_canaries(plan)


def check_data(data: schema.DataPart) -> None:
    """Refuse unknown data sets, partitions and settings."""
    given = [source for source in (data.name, data.path, data.schema_file) if source is not None]
    if len(given) != 1:
        expected = "either a name, a path or a schema"
        remedy = 'For instance name = "clinic".'
        raise BadInput("data.name", expected=expected, got="several" if given else "none of them", remedy=remedy)
    if data.name is not None:
        catalog.check_name("datasets", data.name, "data.name")
    if data.holdout + data.public >= 1:
        expected = "holdout and public below 1 together"
        remedy = "Make one of them smaller."
        raise BadInput("data.public", expected=expected, got=f"{data.holdout:g} + {data.public:g}", remedy=remedy)
    loading, dividing = schema.loader_options(data), schema.partition_options(data)
    for name in data.settings:
        if name not in loading and name not in dividing:
            known = {*schema.key_names(schema.DataPart), *loading, *dividing}
            raise unknown_key(f"data.{name}", name, known)


def _check_model(model: schema.ModelPart) -> None:
    _name_or_factory("model", model)
    if model.factory is not None:
        if model.settings:
            name = next(iter(model.settings))
            expected = "no other key but weights beside factory"
            remedy = "Write the setting into your own function."
            raise BadInput(f"model.{name}", expected=expected, got=repr(model.settings[name]), remedy=remedy)
        return
    builder = catalog.resolve("models", str(model.name), "model.name")
    for name in model.settings:
        if name not in schema.keywords(builder):
            raise unknown_key(f"model.{name}", name, {"name", "factory", "weights", *schema.keywords(builder)})


def _check_federation(federation: schema.FederationPart) -> None:
    if federation.mu > 0 and federation.algorithm != "fedprox":
        remedy = "Leave mu out, or use fedprox."
        raise BadInput("federation.mu", expected='algorithm = "fedprox"', got=federation.algorithm, remedy=remedy)
    check_one_gradient(federation)
    if isinstance(federation.record, list):
        late = [round for round in federation.record if round >= federation.rounds]
        if late or not federation.record:
            expected = f"rounds from 0 to {federation.rounds - 1}"
            remedy = 'Leave out what is beyond, or use record = "all".'
            raise BadInput("federation.record", expected=expected, got=federation.record, remedy=remedy)


def _name_or_factory(argument: str, part: schema.ModelPart | schema.DefencePart | schema.AttackPart) -> None:
    if (part.name is None) == (part.factory is None):
        got = "neither" if part.name is None else "both"
        expected = "either a name or a factory"
        raise BadInput(f"{argument}.name", expected=expected, got=got, remedy="Give exactly one of them.")


def _check_attack(argument: str, attack: schema.AttackPart, plan: Plan) -> None:
    _name_or_factory(argument, attack)
    catalog.check_name("roles", attack.role, f"{argument}.role")
    if attack.factory is None:
        made = catalog.make_attack(str(attack.name), attack.settings, argument)
        check_controls(argument, attack, made)
        _check_primary(argument, attack, made)
        if attack.search is not None:
            from fedxray.audit.search import study_of  # it imports torch, which a report does without

            study_of(made, attack.search, f"{argument}.search")
    for grant in attack.grants or ():
        catalog.check_name("grants", grant, f"{argument}.grants")
    check_metrics(f"{argument}.metrics", attack.metrics or ())
    for table in [] if attack.restore is None else named(attack.restore, f"{argument}.restore"):
        make_restorer(table, f"{argument}.restore")
    if attack.seat is not None and attack.role != "curious-client":
        expected = 'role = "curious-client"'
        raise BadInput(f"{argument}.seat", expected=expected, got=f"role {attack.role!r}", remedy="Leave seat out.")
    beyond = [seat for seat in attack.seats if seat >= plan.data.clients and plan.transcript is None]
    twice = len(set(attack.seats)) < len(attack.seats)
    if beyond or twice or (attack.role == "curious-client" and not attack.seats):
        expected = f"clients from 0 to {plan.data.clients - 1}, each once"
        remedy = "Name clients that exist, none twice."
        raise BadInput(f"{argument}.seat", expected=expected, got=attack.seat, remedy=remedy)
    if isinstance(attack.rounds, list) and plan.transcript is None:
        _check_rounds(f"{argument}.rounds", attack.rounds, plan.federation)


def _check_primary(argument: str, part: schema.AttackPart, attack: Attack) -> None:
    """Refuse a primary metric that this attack is not scored with."""
    own = [name for name, entry in METRICS.items() if attack.kind in entry.kinds and name not in extra_names()]
    if part.primary is not None and part.primary not in [*own, *(part.metrics or ())]:
        raise unknown_name(f"{argument}.primary", part.primary, [*own, *(part.metrics or ())])


def check_controls(argument: str, part: schema.AttackPart, attack: Attack) -> None:
    """Refuse a control that the attack does not have."""
    plugged = any(catalog.plugin_of("attacks", inner.name) for inner in catalog.held_attacks(attack))
    of_kind = catalog.controls_of_kind(attack.kind) if part.factory is not None or plugged else []
    possible = [*of_kind, *attack.controls]
    for name in part.controls or ():
        if name not in possible:
            raise unknown_name(f"{argument}.controls", name, possible)


def _check_rounds(argument: str, wanted: list[int], federation: schema.FederationPart) -> None:
    """An attack can read recorded rounds only."""
    from fedxray.federation.setting import recorded_rounds

    if not wanted or max(wanted) >= federation.rounds:
        expected = f"rounds from 0 to {federation.rounds - 1}"
        raise BadInput(argument, expected=expected, got=wanted, remedy="Leave out what is beyond.")
    record = federation.record
    if record == "all":
        return
    kept = recorded_rounds(tuple(record) if isinstance(record, list) else record, federation.rounds)
    if not kept.issuperset(wanted):
        remedy = 'Ask for recorded ones, or set record = "all" in [federation].'
        raise BadInput(argument, expected=f"recorded rounds ({span(sorted(kept))})", got=wanted, remedy=remedy)


def _check_sweeps(plan: Plan) -> None:
    labels = [part.title for part in plan.defence]
    points = 0
    for label, swept in plan.sweep.items():
        argument = f"sweep.{label}"
        if label not in labels:
            raise unknown_name(argument, label, labels)
        if not swept:
            raise BadInput(
                argument, expected="at least one key with a list", got="none", remedy="For instance scale = [0.1, 1.0]."
            )
        for name, values in swept.items():
            if name in schema.key_names(schema.DefencePart):
                remedy = "Sweep a setting, not a name or a label."
                raise BadInput(f"{argument}.{name}", expected="a setting of the defence", got=name, remedy=remedy)
            if not values:
                expected = "a list with at least one value"
                raise BadInput(f"{argument}.{name}", expected=expected, got=values, remedy="Leave the key out.")
        points += math.prod(len(values) for values in swept.values())
    if points > MOST_POINTS:
        raise BadInput(
            "sweep", expected=f"at most {MOST_POINTS} combinations", got=points, remedy="Sweep fewer values."
        )


def _check_deployed(plan: Plan) -> None:
    marked = [part.title for part in plan.defences if part.deployed]
    if len(marked) > 1:
        expected = "at most one deployed defence"
        remedy = "Mark one; a deployed point of a sweep is written as its own [[defence]]."
        raise BadInput("defence.deployed", expected=expected, got=some(marked), remedy=remedy)


def _check_gates(plan: Plan) -> None:
    for argument, gate in _numbered("gate", plan.gate):
        for name, given, known in (
            ("attack", gate.attack, [part.title for part in plan.attacks]),
            ("defence", gate.defence, [part.title for part in plan.defences]),
        ):
            if given is not None and given not in known:
                raise unknown_name(f"{argument}.{name}", given, known)
        if gate.role is not None:
            catalog.check_name("roles", gate.role, f"{argument}.role")
        check_limited(argument, gate.metric, gate.limit)


def _check_canaries(plan: Plan) -> None:
    canaries = plan.canaries
    if canaries is None:
        return
    if plan.transcript is not None:
        expected = "a simulated run"
        remedy = "Leave [canaries] out; a live node can put canary records into its own data."
        raise BadInput("canaries", expected=expected, got="a recording, into which nothing can be put", remedy=remedy)
    if not canaries.clients and not canaries.records:
        expected = "canary clients, canary records, or both"
        raise BadInput("canaries", expected=expected, got="none", remedy="For instance records = 100.")


def _unique(what: str, labels: list[str]) -> None:
    restorers = " (and each restorer of it)" if what == "attack" else ""
    for label in labels:
        if labels.count(label) > 1:
            raise BadInput(
                f"{what}.label",
                expected="labels that are unique in the plan",
                got=f"{label!r} {labels.count(label)} times",
                remedy=f'Give each [[{what}]]{restorers} its own label = "...".',
            )


def _numbered(name: str, parts: list[Any]) -> list[tuple[str, Any]]:
    return [(f"{name}[{index}]", part) for index, part in enumerate(parts)]
