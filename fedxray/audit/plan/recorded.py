"""Rules and defaults of a plan beside [transcript]: one run of one node, without what the recording holds itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedxray.errors import BadInput, some

if TYPE_CHECKING:
    from fedxray.audit.plan.schema import Plan

FELLOW_SEAT = 1  # of the fellow client that a transcript of a recording holds
RECORDED = ("rounds", "record", "participation")  # keys of [federation] that the recording gives
ACTIVE = "active-server"
MOST_CANDIDATES = 40  # recipes that are tried
# How a node is known to be the user's own.
BY_ITSELF = "recorded by the node itself"
SAME = "the node's own recording holds the same replies"
ON_WORD = "on the user's word"


def for_recording(document: dict[str, Any]) -> dict[str, Any]:
    """Return the plan with what follows from [transcript]: one client, and a fellow client's seat."""
    if not isinstance(document.get("transcript"), Mapping):
        return document
    if "data" not in document:
        raise BadInput(
            "data",
            expected="the node's own records, against which guesses are scored",
            got="nothing",
            remedy='Add [data] with path = "..." to the plan. Without records nothing can be scored; '
            "`fedxray import show FOLDER` lists what a recording holds.",
        )
    if "model" not in document:
        expected = "the network that was trained; its order names arrays that came by position (NumPy)"
        remedy = 'Add [model] with factory = "module:function" to the plan.'
        raise BadInput("model", expected=expected, got="nothing", remedy=remedy)
    changed = dict(document)
    if isinstance(document["data"], Mapping):
        changed["data"] = {"clients": 1, **document["data"]}
    attacks = document.get("attack")
    if isinstance(attacks, list):
        changed["attack"] = [_with_seat(attack) for attack in attacks]
    return changed


def for_schema(document: dict[str, Any]) -> dict[str, Any]:
    """Return the plan with what follows from [data] schema: records are generated for each client."""
    data = document.get("data")
    if not isinstance(data, Mapping) or "schema" not in data:
        return document
    return {**document, "data": {"partition": "as-given", **data}}


def _with_seat(attack: Any) -> Any:
    if not isinstance(attack, Mapping) or attack.get("role") != "curious-client":
        return attack
    return {**attack, "seat": attack.get("seat", FELLOW_SEAT)}


def span(rounds: Sequence[int]) -> str:
    """Return rounds as text, each stretch by its first and last."""
    stretches: list[tuple[int, int]] = []
    for round in rounds:
        if stretches and stretches[-1][1] == round - 1:
            stretches[-1] = (stretches[-1][0], round)
        else:
            stretches.append((round, round))
    return named_stretches(stretches)


def rounds_named(rounds: Sequence[int]) -> str:
    """Return rounds as a phrase."""
    return f"round{'s' if len(rounds) > 1 else ''} {span(rounds)}"


def named_stretches(pairs: Iterable[Sequence[int]]) -> str:
    """Return stretches of rounds as text, at most ten and the last."""
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in pairs]
    return ", ".join(texts[:10]) + (f", ... {texts[-1]}" if len(texts) > 10 else "")


def check_recorded(plan: Plan) -> None:
    """Refuse what a recording cannot do, and what belongs to recordings where there is none."""
    if plan.transcript is None:
        if plan.data.node is not None:
            got = repr(plan.data.node)
            raise BadInput("data.node", expected="[transcript] beside it", got=got, remedy="Leave it out.")
        return
    if len(plan.seeds) > 1:
        remedy = "Leave seeds out; the same run repeated would look like more evidence than it is."
        raise BadInput("seeds", expected="one seed, since a recording is one run", got=plan.seeds, remedy=remedy)
    if len(plan.defences) > 1:
        expected = "at most one, the defence that was in use"
        remedy = "Simulate the federation to compare defences."
        raise BadInput("defence", expected=expected, got=some([part.title for part in plan.defences]), remedy=remedy)
    for name in RECORDED:
        if name in plan.federation.model_fields_set:
            raise BadInput(
                f"federation.{name}", expected="nothing: the recording gives it", got="a value", remedy="Leave it out."
            )
    if plan.data.schema_file is not None:
        expected = "the node's own records beside [transcript]"
        raise BadInput("data.schema", expected=expected, got="made-up ones", remedy='Give path = "...".')
    _check_candidates(plan)
    _check_attacks(plan)
    _check_records(plan)


def _check_candidates(plan: Plan) -> None:
    """Refuse candidates for what is given, and too many of them."""
    part = None if plan.transcript is None else plan.transcript.recipe
    grid = {} if part is None else part.grid
    for name in grid:
        if name in plan.federation.model_fields_set or plan.federation.algorithm == "fedsgd":
            given = "algorithm" if plan.federation.algorithm == "fedsgd" else name
            raise BadInput(
                f"transcript.recipe.{name}",
                expected="candidates for what is not known",
                got=f"federation.{given} = {getattr(plan.federation, given)} beside it",
                remedy="Leave one of them out.",
            )
    points = math.prod(len(values) for values in grid.values())
    if part is not None and (not grid or points > MOST_CANDIDATES):
        expected = f"from 1 to {MOST_CANDIDATES} candidates in all"
        remedy = "For instance learning_rate = [0.01, 0.03, 0.1]."
        raise BadInput("transcript.recipe", expected=expected, got=points if grid else "none", remedy=remedy)


def _check_attacks(plan: Plan) -> None:
    for attack in plan.attacks:
        argument = f"attack {attack.title}"
        if attack.role == ACTIVE:
            expected = "a role that only listens: in a recording no client can be asked again"
            remedy = "Simulate the federation for an active server."
            raise BadInput(f"{argument}: role", expected=expected, got=repr(attack.role), remedy=remedy)
        if attack.role == "curious-client" and attack.seats != (FELLOW_SEAT,):
            expected = "none: it is a fellow client that is sent the same models"
            raise BadInput(f"{argument}: seat", expected=expected, got=attack.seat, remedy="Leave seat out.")
        if attack.targets not in ("all", 1, [0]):
            expected = "the recording node alone: no other node's data is reconstructed from a live recording"
            raise BadInput(f"{argument}: targets", expected=expected, got=attack.targets, remedy="Leave targets out.")


def _check_records(plan: Plan) -> None:
    """Refuse shares that are drawn: which records were trained on is a fact of a recording."""
    if plan.data.clients > 1:
        return
    for name in ("holdout", "public"):
        if name in plan.data.model_fields_set and plan.data.name is None:
            expected = "no share: which records were trained on is a fact here"
            remedy = 'Say it for each record in a column: use = "...".'
            raise BadInput(f"data.{name}", expected=expected, got=getattr(plan.data, name), remedy=remedy)
    path = plan.data.path
    if path is not None and Path(path).suffix.lower() == ".npz" and "ready" not in plan.data.settings:
        expected = "true where x is what the network was given, false where fedxray shall scale it as it did then"
        raise BadInput("data.ready", expected=expected, got="nothing", remedy="Set ready = true.")
