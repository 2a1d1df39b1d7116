"""An audit that grows: more seeds, targets, attacks or defences than its folder began with.

Cases are identified by attack, role, defence, seed and client, so finished ones stay valid as long as all other
settings are the same. Everything that an earlier plan asked for stays in the plan: a row that was judged cannot be
left out afterwards.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedxray.audit.judge.compare import differing
from fedxray.audit.judge.gate import label_of
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run.store import (
    MARKER,
    PLAN,
    PRIVATE,
    RECORDS,
    RESULTS,
    Store,
    check_format,
    read_looks,
    read_marker,
)
from fedxray.errors import BadInput, some
from fedxray.files import locked, read_object, write_whole

GROWS = ("seeds", "attack", "defence", "sweep", "gate", "name")  # keys of a plan in which an audit may be extended
BUDGET = "budget.json"
NO_DEFENCE = {"name": "none", "deployed": False}


def extended(folder: Path, plan: Plan, *, total: int | None = None) -> Plan:
    """Return the plan merged with the one that the folder began with, and with `total` seeds where that is given.

    The folder's marker then names the merged plan.
    """
    began = (folder / MARKER).is_file() and (folder / PLAN).is_file()
    if not began:
        return plan if total is None else with_total(plan, total, plan.seeds[: min(total, len(plan.seeds))])
    marker = read_marker(folder)
    before = _before(folder, plan, (marker.get("plan"), marker.get("before")))
    if before is None:  # not a folder of ours: the store refuses it
        return plan
    check_format(folder, marker)
    merged = _merged(before, plan, folder)
    if total is not None:
        most = max(total, len(_seeds_run(before, folder)))  # the plan may list more than were asked for before
        merged = with_total(merged, total, _seeds_run(merged, folder)[:most])
    if merged.digest() != before.digest() or "before" in marker:
        _adopt(folder, before, merged)
    return merged


def check_resumed(folder: Path, plan: Plan) -> None:
    """Refuse the folder of an audit that this plan extends, with the option that extends it; other folders pass."""
    if not (folder / MARKER).is_file() or not (folder / PLAN).is_file() or (folder / BUDGET).is_file():
        return
    marker = read_marker(folder)
    if marker.get("kind") == "audit" and marker.get("plan") != plan.digest() and _adds(folder, plan, marker):
        got = f"{folder}, which holds an audit that this plan extends"
        remedy = "Add --resume to extend it, or choose another --out."
        raise BadInput("--out", expected="a new folder", got=got, remedy=remedy)


def _adds(folder: Path, now: Plan, marker: Mapping[str, Any]) -> bool:
    """Whether a plan has all attacks, defences and seeds that its folder began with, and may be merged with them."""
    try:
        check_format(folder, marker)
        before = _before(folder, now, (marker.get("plan"), marker.get("before")))
        if before is None:
            return False
        _merged(before, now, folder)
    except (BadInput, ValueError):  # the plans differ in more, or the folder is damaged
        return False
    documents = before.to_document(), now.to_document()
    for key in ("attack", "defence"):
        labels = [{label_of(part) for part in document.get(key) or []} for document in documents]
        if not labels[0] <= labels[1]:
            return False
    return before.is_auto or set(before.seeds) <= set(now.seeds)


def _before(folder: Path, now: Plan, digests: Sequence[str | None]) -> Plan | None:
    """Return the plan of one of these digests that is in the folder; a plan without a name has that of its file."""
    document = tomllib.loads((folder / PLAN).read_text(encoding="utf-8"))
    ended = read_object(folder / RESULTS)["plan"]["name"] if (folder / RESULTS).is_file() else now.name
    for name in dict.fromkeys([document.get("name", now.name), ended]):
        before = make_plan({**document, "name": name}, now.folder)
        if before.digest() in digests:
            return before
    return None


def with_total(plan: Plan, total: int, known: Sequence[int]) -> Plan:
    """Return the plan with this number of seeds: the known ones and the next; refused where it has more already."""
    if total < len(known):
        expected = f"at least {len(known)}, as many as this audit has"
        raise BadInput("--seeds", expected=expected, got=total, remedy="It is the number of seeds in total.")
    first = max(known, default=-1) + 1
    return plan.with_seeds([*known, *range(first, first + total - len(known))])


def _seeds_run(plan: Plan, folder: Path) -> list[int]:
    """Return the seeds of an audit so far."""
    looks = read_looks(folder)
    return list(range(looks[-1]["seeds"])) if plan.is_auto and looks else plan.seeds


def _merged(before: Plan, now: Plan, folder: Path) -> Plan:
    """Return both plans in one, with name and gates of the new one; a plan that has everything is returned as it is."""
    document = merge_plans(before.to_document(), now.to_document(), folder)
    if before.is_auto and not now.is_auto:
        document["seeds"] = list(dict.fromkeys([*_seeds_run(before, folder), *now.seeds]))
    if document == now.to_document():
        return now
    return before if document == before.to_document() else make_plan(document, now.folder)


def merge_plans(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return both plans in one, refused where they differ in more than seeds, targets, attacks and defences."""
    fixed = [{key: value for key, value in document.items() if key not in GROWS} for document in (before, now)]
    if fixed[0] != fixed[1]:
        raise _differs(folder, some(list(differing(fixed[0], fixed[1])), between="; "))
    attacks = {label_of(attack): dict(attack) for attack in before["attack"]}
    for attack in now["attack"]:
        known = attacks.setdefault(label_of(attack), dict(attack))
        if {**known, "targets": None} != {**attack, "targets": None}:
            keys = differing({**known, "targets": None}, {**attack, "targets": None}, f"attack {label_of(attack)}")
            raise _differs(folder, some(list(keys), between="; "))
        known["targets"] = _union(known["targets"], attack["targets"])
        if known["targets"] is None:
            raise _differs(folder, f"targets of {label_of(attack)}: a number is drawn at random, a list is not")
    document = {**before, "name": now["name"], "attack": list(attacks.values()), "gate": now.get("gate", [])}
    if before.get("defence") != now.get("defence"):
        document["defence"] = _defences(before, now, folder)
    document["sweep"] = {**now.get("sweep", {}), **before.get("sweep", {})}
    return {**document, "seeds": _seeds(before["seeds"], now["seeds"], folder)}


def _defences(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    defences = {label_of(defence): dict(defence) for defence in before.get("defence") or [NO_DEFENCE]}
    for defence in now.get("defence") or [NO_DEFENCE]:
        known = defences.setdefault(label_of(defence), dict(defence))
        swept = [document.get("sweep", {}).get(label_of(defence)) for document in (before, now)]
        again = label_of(defence) in {label_of(one) for one in before.get("defence") or []}
        if {**known, "deployed": None} != {**defence, "deployed": None} or (again and swept[0] != swept[1]):
            raise _differs(folder, f"defence {label_of(defence)}")
        known["deployed"] = defence.get("deployed", False)
    return list(defences.values())


def _seeds(before: Any, now: Any, folder: Path) -> Any:
    if "auto" in (before, now):
        if before != now and now == "auto":
            raise _differs(folder, "seeds, which it began with as a list")
        return now
    return list(dict.fromkeys([*before, *now]))


def _union(first: Any, second: Any) -> Any:
    """Return the union of two choices of targets; None for a number and a list."""
    if "all" in (first, second):
        return "all"
    if isinstance(first, int) and isinstance(second, int):
        return max(first, second)
    return None if isinstance(first, int) or isinstance(second, int) else sorted({*first, *second})


def _differs(folder: Path, what: str) -> BadInput:
    expected = "the folder of an audit that this plan repeats or extends by seeds, targets, attacks or defences"
    got = f"{folder}, whose plan differs in {what}"
    return BadInput("--out", expected=expected, got=got, remedy="Choose another --out.")


def _adopt(folder: Path, before: Plan, merged: Plan) -> None:
    """Let the folder be that of the merged plan.

    From the first step to the last the marker names both plans, so whenever this is killed the same command starts it
    again from whichever plan the folder holds. Every step may be repeated, and the plan is written when the others are
    done.
    """
    from fedxray.audit.run.audit import digests_of_inputs

    if (folder / BUDGET).is_file():
        got, remedy = "another plan than the one that a time limit has cut", "Choose another --out."
        raise BadInput("--out", expected="the plan that this audit began with", got=got, remedy=remedy)
    with locked(folder):
        marker = {**read_marker(folder), "plan": merged.digest(), "before": before.digest()}
        _write(folder / MARKER, marker, "marker")
        if [part.title for part in before.attacks] != [part.title for part in merged.attacks]:
            _remove_planted(Store(folder))
        records = folder / PRIVATE / RECORDS
        if records.is_file() and read_object(records).get("sha256") == digests_of_inputs(before):
            _write(records, {"sha256": digests_of_inputs(merged)}, "records")
        write_whole(folder / PLAN, merged.text, "plan")
        del marker["before"]
        _write(folder / MARKER, marker, "marker")


def _remove_planted(store: Store) -> None:
    """Remove planted federations and their cases: they depend on the seats of all attacks."""
    for case in store.cases.all_keys():
        if case.startswith("planted."):
            store.cases.forget(case)
    for run in (store.private / "runs").glob("planted-*"):
        store.remove_run(run.name) if run.is_dir() else run.unlink()


def _write(path: Path, document: Mapping[str, Any], what: str) -> None:
    write_whole(path, (json.dumps(document) + "\n").encode("ascii"), what)
