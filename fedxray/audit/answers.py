"""Answers of attacks that are kept, so that whoever asks the same question gets the same answer, computed once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace

from fedxray.adversary.view import Grants, View
from fedxray.attacks.base import Attack, Memo
from fedxray.attacks.evidence import Evidence
from fedxray.audit import results
from fedxray.audit.bench import adapts, root_for
from fedxray.audit.cases import Case
from fedxray.audit.search import Point, Recall
from fedxray.audit.store import Store
from fedxray.errors import FedxrayError
from fedxray.seeds import derive_seed, spell

WHOM_AND_WHAT = ("target", "grants")  # what may differ between two views of one seat


def stored_answers(store: Store, case: Case, *, kept_only: bool = False) -> Callable[[View], Memo]:
    """Memos that keep every answer in the store, told apart by what was seen, what was granted and the settings.

    A floor is the same under every defence, an attack that cannot adapt is the same aware or not, another client's case
    serves as a control, and of the grants only those count that the attack reads: a model of the client is the same
    whichever records its caller holds. With `kept_only` what is not there yet is not computed: NotKept.
    """

    def on_view(view: View) -> Memo:
        seen = case.run if view.messages or case.plant is not None else f"seed {case.seed}"
        rounds = sorted({one.round for one in view.observations}), sorted(one.round for one in view.globals)
        seats = tuple(one.client for one in view.own)

        def memo(attack: Attack, asked: View, run: Callable[[], Evidence]) -> Evidence:
            if not same_seat(asked, view):  # an attack that changed what was seen gets a fresh answer
                return run()

            def as_of_its_own() -> Evidence:
                return attack.run(asked, generator=root_for(case.seed, asked.target), memo=memo)

            told = spell(knowledge_of(attack, asked.grants))
            question = derive_seed(0, seen, view.role, seats, asked.target, rounds, told, attack.identity())
            key = f"{attack.name}-{question:016x}"
            # About another client an attack draws as in that client's case, whoever asks first.
            compute = run if asked.target == view.target else as_of_its_own
            return _remembered(store, key, _not_kept if kept_only else compute)

        return memo

    return on_view


class NotKept(FedxrayError):
    """An answer that nobody has computed yet."""


def _not_kept() -> Evidence:
    raise NotKept("there is no such answer yet")


def stored_points(store: Store) -> Recall:
    """Points of a search are asked for once: another computer or version of a library might ask for others."""

    def recall(key: str, ask: Callable[[], list[Point]]) -> list[Point]:
        kept = store.load_evidence(key)
        if kept is not None:
            return [dict(point) for point in kept[1]["points"]]
        points = ask()
        store.save_evidence(key, {}, {"points": points})
        return points

    return recall


def same_seat(left: View, right: View) -> bool:
    """Whether two views differ at most in whom they ask about and in what was granted."""
    shared = [field.name for field in fields(View) if field.name not in WHOM_AND_WHAT]
    return all(getattr(left, name) is getattr(right, name) for name in shared)


def knowledge_of(attack: Attack, grants: Grants) -> Grants:
    """The grants on which an attack's answer can depend."""
    known = grants if attack.reads is None else grants.only(attack.reads)
    return known if adapts(attack) else without_defence(known)


def without_defence(grants: Grants) -> Grants:
    """The same knowledge without that of the defence."""
    return replace(grants, defence=None, names=tuple(name for name in grants.names if name != "defence"))


def _remembered(store: Store, key: str, run: Callable[[], Evidence]) -> Evidence:
    """The stored answer, or the computed one after storing it."""
    kept = store.load_evidence(key)
    if kept is not None:
        curve = tuple(
            math.nan if loss is None else loss for loss in kept[1]["curve"]
        )  # JSON has no such number
        return Evidence(tensors=kept[0], **{**kept[1], "curve": curve, "seats": tuple(kept[1]["seats"])})
    evidence = run()
    facts = {name: value for name, value in vars(evidence).items() if name != "tensors"}
    store.save_evidence(key, evidence.tensors, results.plain(facts, "evidence"))
    return evidence
