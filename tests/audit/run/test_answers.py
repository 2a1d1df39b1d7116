"""Answers that are kept: which questions are the same, and that it does not matter who asks first."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedxray.adversary.disclose import copied
from fedxray.adversary.view import Grants, View
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence, of_membership
from fedxray.attacks.floors import Majority
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.attacks.membership import MembershipLoss
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run import execute
from fedxray.audit.run.execute import StoredAnswers, execute_case, execute_run, without_defence
from fedxray.audit.run.grid import Case, Run, expand
from fedxray.audit.run.store import Store, open_store
from fedxray.data.dataset import Records
from fedxray.defences.base import NoDefence
from fedxray.federation import truth as truths
from fedxray.federation.recipe import Recipe
from fedxray.seeds import spell
from tests.attacks.by_hand import linear, table, view_with
from tests.audit.plans import tiny
from tests.audit.stored import stored_evidence

HERE = Path(__file__).parents[1]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    execute._open_run.clear()
    with open_store(tmp_path / "out", "digest") as opened:
        yield opened


def planned(**changes: Any) -> tuple[Plan, list[Run], list[Case]]:
    plan = make_plan(tiny(**changes), HERE)
    return plan, *expand(plan)


def answers(store: Store, case: Case, view: View, attack: Attack) -> tuple[Evidence, int]:
    """The evidence through the store's memo, and how often it was computed for two askings."""
    asked = []

    def work() -> Evidence:
        asked.append(1)
        return replace(of_membership(torch.tensor([1.0, 2.0])), curve=(0.5,), facts={"n": 1}, seats=(0,))

    first = StoredAnswers(store, case, view)(attack, view, work)
    again = StoredAnswers(store, case, view)(attack, view, work)
    assert torch.equal(first.tensors["scores"], again.tensors["scores"])
    assert (again.curve, again.facts, again.seats, again.status) == ((0.5,), {"n": 1}, (0,), "ok")
    return again, len(asked)


def test_what_was_granted_is_spelled_once_for_an_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    spelled, real = [], execute.knowledge_of

    def counted(attack: Attack, grants: Grants) -> Grants:
        spelled.append(attack)
        return real(attack, grants)

    monkeypatch.setattr(execute, "knowledge_of", counted)
    _, _, cases = planned()
    assert answers(store, cases[0], view_with(linear([[1.0]]), table(1)), MembershipLoss())[1] == 1
    assert len(spelled) == 2, "once where it was computed, once where it was stored"


def test_the_same_question_is_computed_once_and_another_anew(store: Store) -> None:
    _, _, cases = planned(defence=[{"name": "none"}, {"name": "gaussian-noise", "scale": 1.0}], seeds=[0, 1])
    none = next(case for case in cases if case.defence == "none")
    view, attack = view_with(linear([[1.0]]), table(1)), MembershipLoss()
    assert answers(store, none, view, attack)[1] == 1
    assert answers(store, none, view, attack)[1] == 0
    reported = replace(view, grants=Grants(names=("examples",), examples=3))
    for other in (
        reported,
        replace(view, target=1),
        replace(view, role="eavesdropper"),
        replace(view, observations=()),
    ):
        assert answers(store, none, other, attack)[1] == 1
    noisy = next(case for case in cases if case.defence != "none")
    later = next(case for case in cases if case.defence == "none" and case.seed == 1)
    assert answers(store, noisy, view, attack)[1] == answers(store, later, view, attack)[1] == 1


def test_a_floor_is_the_same_under_every_defence_and_another_for_every_seed(store: Store) -> None:
    _, _, cases = planned(defence=[{"name": "none"}, {"name": "gaussian-noise", "scale": 1.0}], seeds=[0, 1])
    bare = view_with(linear([[1.0]]), table(1)).without_messages()
    counts: dict[tuple[int, str], int] = {}
    for case in cases:
        counts.setdefault((case.seed, case.defence), answers(store, case, bare, MembershipLoss())[1])
    assert sum(counts.values()) == 2


def test_who_cannot_adapt_is_the_same_aware_or_not(store: Store) -> None:
    _, _, cases = planned()
    view = view_with(linear([[1.0]]), table(1))
    aware = replace(view, grants=Grants(names=("defence",), defence=NoDefence()))
    assert without_defence(aware.grants) == view.grants == Grants()
    assert answers(store, cases[0], view, MembershipLoss())[1] == 1
    assert answers(store, cases[0], aware, MembershipLoss())[1] == 0


def test_a_view_that_an_attack_changed_is_no_question_of_the_store(store: Store) -> None:
    _, _, cases = planned()
    view = view_with(linear([[1.0]]), table(1))
    memo = StoredAnswers(store, cases[0], view)
    for number in (1.0, 2.0):
        answer = of_membership(torch.tensor([number]))
        changed = replace(view, observations=view.observations[:0])
        found = memo(MembershipLoss(), changed, functools.partial(replace, answer))
        assert found.tensors["scores"].tolist() == [number]


def test_of_the_grants_only_those_count_that_an_attack_reads(store: Store) -> None:
    _, _, cases = planned()
    read = Grants(names=("recipe",), recipe=Recipe(learning_rate=0.1, loss="mse"))
    counts = [
        answers(store, cases[0], replace(view_with(linear([[1.0]]), table(1)), grants=grants), attack)[1]
        for attack in (LastReturned(), MembershipLoss())
        for grants in (Grants(), Grants(names=("examples",), examples=3), read)
    ]
    assert counts == [1, 0, 1, 1, 1, 1]
    assert replace(read, names=("examples", "recipe"), examples=3).only(("recipe",)) == read


DRAWN = {"name": "local-model-heuristic", "hidden": [4], "fit_steps": 5, "steps": 5}


def kept_models(folder: Path, *, backwards: bool) -> list[dict[str, bytes]]:
    """The models of the clients that the store holds after each case, in the order of the plan or from its end."""
    execute._open_run.clear()
    plan, runs, cases = planned(
        data={"name": "clinic", "records": 40, "clients": 3, "holdout": 0.2},
        attack=[
            {"name": "source-from-model", "targets": [1], "model": DRAWN},
            {"name": "attribute-from-model", "targets": [2], "model": DRAWN},
            {**DRAWN, "targets": "all"},
        ],
    )
    found = []
    with open_store(folder, "digest") as store:
        execute_run(plan, store, runs[0])
        for case in reversed(cases) if backwards else cases:
            execute_case(plan, store, case)
            assert store.read_case(case.id)["status"] == "ok"
            found.append(stored_evidence(folder, "local-model-heuristic-"))
    return found


def test_a_model_of_a_client_is_made_once_and_the_same_for_any_order_of_cases(tmp_path: Path) -> None:
    forwards = kept_models(tmp_path / "forwards", backwards=False)
    assert [len(one) for one in forwards] == [3] * 5  # sources need all; attributes, controls and models no other
    backwards = kept_models(tmp_path / "backwards", backwards=True)
    assert [len(one) for one in backwards] == [3] * 5 and backwards[-1] == forwards[-1]


def test_an_own_attack_with_the_name_of_ours_has_its_own_answers(store: Store) -> None:
    class Flipped(MembershipLoss):
        pass

    assert Flipped.name == MembershipLoss.name and Flipped().identity() != MembershipLoss().identity()


def test_an_attack_is_handed_a_plain_function_to_run_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the store nor the seed of the case stands on it."""
    handed: list[Any] = []
    real = MembershipLoss.attack

    def spy(self: MembershipLoss, view: View, context: Any) -> Evidence:
        handed.append(context.memo)
        return real(self, view, context)

    monkeypatch.setattr(MembershipLoss, "attack", spy)
    plan, runs, cases = planned(attack=[{"name": "membership-loss"}])
    execute_run(plan, store, runs[0])
    execute_case(plan, store, cases[0])
    assert handed and all(not hasattr(memo, name) for memo in handed for name in ("store", "case", "save", "view"))


def test_public_records_of_a_run_are_spelled_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    spelled: list[object] = []
    monkeypatch.setattr(truths, "spell", lambda value: (spelled.append(value), spell(value))[1])
    monkeypatch.setattr(execute, "spell", lambda value: (spelled.append(value), spell(value))[1])
    plan, runs, cases = planned(attack=[{"name": "membership-loss"}])
    execute_run(plan, store, runs[0])
    _, context = execute.case_context(plan, store, cases[0])
    view, public, attack = view_with(linear([[1.0]]), table(1)), context.truth.public, Majority()
    own = replace(view, grants=Grants(names=("public-records",), public_records=copied(public)))
    other = replace(own, grants=replace(own.grants, public_records=Records(public.x + 1, public.y)))
    known = StoredAnswers(store, cases[0], view, truth=context.truth)
    keys = [known._key(attack, one) for one in (own, own, own, other)]
    assert sum(isinstance(value, Records) for value in spelled) == 2  # the run's, and the other
    plain = StoredAnswers(store, cases[0], view)
    assert keys == [plain._key(attack, one) for one in (own, own, own, other)] and len(set(keys)) == 2


def test_public_images_of_a_run_are_spelled_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, runs, cases = planned(attack=[{"name": "membership-loss"}])
    execute_run(plan, store, runs[0])
    _, context = execute.case_context(plan, store, cases[0])
    images, view, attack = context.truth.public.x, view_with(linear([[1.0]]), table(1)), Majority()
    monkeypatch.setattr(Majority, "reads", None)
    views = [
        replace(view, grants=Grants(names=("public-images",), public_images=given))
        for given in (images.clone(), images.clone(), images + 1)
    ]
    plain = [StoredAnswers(store, cases[0], view)._key(attack, one) for one in views]
    spelled: list[object] = []
    for module in (truths, execute):
        monkeypatch.setattr(module, "spell", lambda value: (spelled.append(value), spell(value))[1])
    known = StoredAnswers(store, cases[0], view, truth=context.truth)
    assert [known._key(attack, one) for one in views] == plain and len(set(plain)) == 2
    assert sum(isinstance(value, torch.Tensor) for value in spelled) == 2  # the run's, and the others


def test_clients_that_hold_other_records_of_their_own_share_no_answer(store: Store) -> None:
    _, _, cases = planned()
    view = view_with(linear([[1.0]]), table(1))
    views = [replace(view, own=tuple(SimpleNamespace(client=client) for client in seats)) for seats in ((), (0,), (1,))]
    keys = {StoredAnswers(store, cases[0], one)._key(MembershipLoss(), view) for one in views}  # type: ignore[arg-type]
    assert len(keys) == 3
