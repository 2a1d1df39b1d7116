"""A row that was begun can be asked for more: further clients, seeds or attacks; what is done stays."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedxray.audit.lock import locked
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.store import MARKER, PLAN, read_marker
from fedxray.errors import BadInput
from fedxray.files import write_whole

GROWS = ("seeds", "attack", "name")


def extended(folder: Path, plan: Plan) -> Plan:
    """The plan together with what the row's folder began with; its marker then names this plan.

    Cases are told apart by attack, seed and client, so those that ended stay valid as long as all other settings are
    the same; what an earlier plan asked for is asked for still.
    """
    if not (folder / MARKER).is_file() or not (folder / PLAN).is_file():
        return plan
    before = make_plan(tomllib.loads((folder / PLAN).read_text(encoding="utf-8")), plan.folder)
    whole = make_plan(together(before.to_document(), plan.to_document(), folder), plan.folder)
    with locked(folder):
        marker = read_marker(folder)
        if marker.get("plan") != whole.digest():
            write_whole(folder / PLAN, whole.text, "plan")
            changed = json.dumps({**marker, "plan": whole.digest()}) + "\n"
            write_whole(folder / MARKER, changed.encode("ascii"), "marker")
    return whole


def together(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Both plans in one, refused where they differ in more than seeds, targets and attacks."""
    for key in {*before, *now} - set(GROWS):
        if before.get(key) != now.get(key):
            raise _differs(folder, key)
    attacks = {_label(one): dict(one) for one in before["attack"]}
    for attack in now["attack"]:
        known = attacks.get(_label(attack))
        if known is None:
            attacks[_label(attack)] = dict(attack)
            continue
        if {**known, "targets": None} != {**attack, "targets": None}:
            raise _differs(folder, f"attack {_label(attack)}")
        known["targets"] = _more(known["targets"], attack["targets"])
    seeds = list(dict.fromkeys([*before["seeds"], *now["seeds"]]))
    return {**before, "seeds": seeds, "attack": list(attacks.values())}


def _label(attack: Mapping[str, Any]) -> str:
    return str(attack.get("label") or attack.get("name") or attack.get("factory"))


def _more(first: Any, second: Any) -> Any:
    """The larger of two choices of targets."""
    if "all" in (first, second):
        return "all"
    if isinstance(first, int) and isinstance(second, int):
        return max(first, second)
    lists = [list(range(one)) if isinstance(one, int) else one for one in (first, second)]
    return sorted({client for one in lists for client in one})


def _differs(folder: Path, what: str) -> BadInput:
    return BadInput(
        "--out",
        expected="a folder of the same settings",
        got=f"{folder}, whose plan differs in {what}",
        remedy="Choose another --out.",
    )
