"""One case: the attack, its floors and its controls, each recomputed by hand from the same transcript."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.adversary.grants import ROLES
from fedxray.adversary.view import View
from fedxray.attacks.attributes import from_updates
from fedxray.attacks.attributes.from_model import AttributeFromModel
from fedxray.attacks.base import Context
from fedxray.attacks.evidence import Evidence, of_attributes
from fedxray.attacks.floors import Imputation, Majority
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.local_model.baselines import GlobalModel, LastReturned, LocalModelOracle
from fedxray.attacks.membership import MembershipLoss
from fedxray.audit.catalog import held_attacks
from fedxray.audit.own_code.apart import OutOfTime, OwnCodeError
from fedxray.audit.plan import AttackPart, make_plan
from fedxray.audit.run import comparisons
from fedxray.audit.run.comparisons import (
    CaseContext,
    adapts,
    declared_grants,
    grant_names,
    next_client,
    rounds_read,
    strongest,
    without_client_model,
)
from fedxray.audit.run.evaluate import CaseOutcome, evaluate
from fedxray.audit.run.prepare import prepare
from fedxray.errors import Refused
from fedxray.federation.round_loop import simulate
from fedxray.metrics.scoring import same_client_other_seed, score
from fedxray.seeds import fork
from tests.audit.plans import tiny

HERE = Path(__file__).parents[1]
PLAIN = {"name": "attribute-from-model"}
GIVEN: dict[int, tuple[str, ...]] = {}  # all clients hold the same number of records
GLOBAL = {**PLAIN, "model": "global-model"}


@functools.lru_cache(maxsize=8)
def _played(text: str) -> tuple[Any, Any]:
    return simulate(prepare(make_plan(tiny(**json.loads(text)), HERE), "none", 0).federation, seed=0)


def context(attack: dict[str, Any] = PLAIN, client: int = 1, aware: bool | None = None, **changes: Any) -> CaseContext:
    changes = {"data": {"clients": 3, "records": 30, "holdout": 0.2}, **changes}
    transcript, truth = _played(json.dumps(changes))
    part = make_plan(tiny(**{**changes, "attack": [attack]}), HERE).attacks[0]
    return CaseContext(
        part=part, attack=part.make(HERE), transcript=transcript, truth=truth, client=client, aware=aware
    )


def scored(made: CaseContext, view: Any, attack: Any, rows: str = "train") -> dict[str, float]:
    """The attack on a view of our own making, scored; its draws are the audit's."""
    root = fork(made.truth.seed, "attacks of an audit", -1 if view.target is None else view.target)
    evidence = attack.run(view, generator=root)
    return dict(score(evidence, made.truth, client=made.client, seats=made.part.seats, rows=rows).means)  # type: ignore[arg-type]


def test_a_case_by_hand() -> None:
    made = context()
    found = evaluate(made)
    names = ["public-attributes", "recipe"]

    def view(*, client: int = 1, rows: str = "train", more: tuple[str, ...] = ()) -> Any:
        grants = disclose(made.truth, [*names, *more], client=1, rows=rows)  # type: ignore[arg-type]
        return roles.server(made.transcript, client=client, grants=grants)

    attack = AttributeFromModel()
    assert found.score.means == scored(made, view(), attack)
    assert found.controls["held-out"] == scored(made, view(rows="holdout"), attack, "holdout")  # each by itself
    swapped = {str(other): scored(made, view(client=other, more=GIVEN.get(other, ())), attack) for other in (0, 2)}
    assert found.swaps == swapped
    means = {name: (swapped["0"][name] + swapped["2"][name]) / 2 for name in swapped["0"]}
    assert found.controls["other-client"] == pytest.approx(means)
    assert found.controls["global-model"] == scored(made, view(), AttributeFromModel(model=GlobalModel()))
    bare = roles.server(
        made.transcript, client=1, grants=disclose(made.truth, ["public-attributes", "public-records"], client=1)
    ).without_messages()
    assert found.floors == {"majority": scored(made, bare, Majority()), "imputation": scored(made, bare, Imputation())}
    assert set(found.controls) == {"held-out", "other-client", "global-model"} and not found.oracle


@pytest.mark.parametrize("name", ["source-majority", "source-from-model"])
def test_controls_of_sources_by_hand(name: str) -> None:
    made = context({"name": name})
    found = evaluate(made)
    assert set(found.controls) == {"held-out", "other-client"}
    names = ["source-records", "recipe"]

    def view(rows: str) -> Any:
        grants = disclose(made.truth, names, client=1, rows=rows)  # type: ignore[arg-type]
        return roles.server(made.transcript, client=1, grants=grants)

    assert found.controls["held-out"] == scored(made, view("holdout"), made.attack, "holdout")
    seen = tuple(replace(one, contributors=((one.contributors[0] + 1) % 3,)) for one in view("train").observations)
    turned = scored(made, replace(view("train"), observations=seen), made.attack)
    assert found.controls["other-client"] == pytest.approx(turned)
    alone = context({"name": name}, data={"clients": 3, "records": 30, "holdout": 0.0})
    assert set(evaluate(alone).controls) == {"other-client"}


@dataclass(frozen=True, kw_only=True)
class AllTogether(Imputation):
    """An attack that explains the messages by all records together: it needs all that were trained on."""

    controls: ClassVar[tuple[str, ...]] = ("held-out",)

    def attack(self, view: View, context: Context) -> Evidence:
        asked = view.grants.public_attributes
        guess = super().attack(view, context)
        assert asked is not None
        return guess if len(asked.x) >= (view.of_target()[0].examples or 0) else of_attributes(-guess.tensors["codes"])


def test_an_attack_on_all_records_together_is_asked_about_held_out_ones_among_them() -> None:
    made = replace(context(), attack=AllTogether(), part=context({**PLAIN, "grants": list(AllTogether.grants)}).part)
    held = disclose(made.truth, AllTogether.grants, client=1, rows="holdout")
    imputed = scored(made, roles.server(made.transcript, client=1, grants=held), Imputation(), "holdout")
    assert evaluate(made).controls["held-out"] == imputed and imputed["accuracy"] > 0.5


@dataclass(frozen=True, kw_only=True)
class Counting(Imputation):
    """An attack that fails where it is asked about more records than were trained on."""

    trained: int = 0

    def attack(self, view: View, context: Context) -> Evidence:
        asked = view.grants.public_attributes
        if asked is None or len(asked.x) > self.trained:
            raise OwnCodeError("AssertionError in attack.py, line 7")
        return super().attack(view, context)


def test_an_own_attack_that_fails_on_the_mixed_question_lacks_that_control_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = context({"factory": "fedxray.attacks.floors:Imputation", "grants": list(Imputation.grants)}).part
    made = replace(context(), part=part)
    made = replace(made, attack=Counting(trained=len(made.truth.train[1])))
    found = evaluate(made)
    assert found.score.means == evaluate(replace(made, attack=Imputation())).score.means
    assert made.own and set(found.controls) == {"other-client"}
    monkeypatch.setattr(Counting, "attack", out_of_time)
    for control in (lambda: comparisons._held_out(made), lambda: comparisons._without_messages(made)):
        with pytest.raises(OutOfTime):
            control()


def out_of_time(attack: Counting, view: View, context: Context) -> Evidence:
    raise OutOfTime("over")


@pytest.mark.parametrize("role", ["server", "eavesdropper"])
def test_the_held_out_control_of_joint_attacks_by_hand(role: str) -> None:
    for name in ("attribute-from-updates", "attribute-from-gradients", "source-from-updates"):
        made = context({"name": name, "role": role})
        names = [*declared_grants(made.attack), "examples"]  # the number behind an update is not that of the question
        grants = disclose(made.truth, names, client=1, rows="mixed")
        view = getattr(roles, role)(made.transcript, client=1, grants=grants)
        assert evaluate(made).controls["held-out"] == scored(made, view, made.attack, "mixed")


def test_too_many_records_together_have_no_held_out_control(monkeypatch: pytest.MonkeyPatch) -> None:
    made = context({"name": "attribute-from-updates"})
    monkeypatch.setattr(from_updates, "MOST_INDICATORS", 2 * len(made.truth.train[1]))
    assert set(evaluate(made).controls) == {"other-client"}


def test_an_oracle_of_the_records_has_no_held_out_control() -> None:
    oracle = {
        **PLAIN,
        "model": {"name": "local-model-oracle", "steps": 20},
        "grants": ["public-attributes", "oracle-records"],
    }
    found = evaluate(context(oracle))
    assert found.oracle and "held-out" not in found.controls and "other-client" in found.controls


def test_the_ledger_says_who_knows_what() -> None:
    ledger = evaluate(context()).ledger
    assert ledger["role"] == "server" and ledger["grants"] == ["public-attributes", "recipe"]
    assert (ledger["target"], ledger["seats"], ledger["aware"], ledger["single_replies"]) == (1, [], None, 6)
    assert ledger["sees"] == ROLES["server"].sees and ledger["oracle"] is False
    assert (ledger["sensitive"], ledger["target_column"], ledger["target_standardised"]) == ("smoker", "bill", True)


def test_without_held_out_or_public_records_there_is_no_such_control_or_floor() -> None:
    found = evaluate(context(data={"clients": 3, "records": 30, "holdout": 0.0, "public": 0.0}))
    assert found.floors == {} and set(found.controls) == {"other-client", "global-model"}


@pytest.mark.parametrize(
    ("attack", "federation", "controls"),
    [
        (GLOBAL, {}, {"held-out", "other-client"}),
        ({**GLOBAL, "role": "curious-client"}, {}, {"held-out"}),
        ({**GLOBAL, "role": "secure-aggregation"}, {}, {"held-out"}),
        (GLOBAL, {"secure_aggregation": True}, {"held-out"}),
    ],
)
def test_a_control_that_would_be_the_attack_itself_is_not_run(
    attack: dict[str, Any], federation: dict[str, Any], controls: set[str]
) -> None:
    """Where no single reply is read there is no other client's, and the global model is no control of itself."""
    found = evaluate(context(attack, federation={"rounds": 2, "learning_rate": 0.05, **federation}))
    assert set(found.controls) == controls


def test_a_model_is_held_against_another_clients_optimum_and_one_of_another_seed() -> None:
    made = context({"name": "last-returned"})
    found = evaluate(made)
    scores = {"parameter_distance", "zest", "training_loss"}
    assert scores <= found.score.means.keys() and scores <= found.floors["other-optimum"].keys()
    assert found.ceilings == {"same-client-other-seed": dict(same_client_other_seed(made.truth, 1).means)}
    assert found.ceilings["same-client-other-seed"].keys() == found.score.means.keys() - {"parameter_distance"}
    assert evaluate(context()).ceilings == {}


def test_the_floors_of_a_curious_client_know_its_own_records() -> None:
    seen = [context(attack) for attack in (GLOBAL, {**GLOBAL, "role": "curious-client"})]
    outcomes = [evaluate(one) for one in seen]
    own = len(seen[0].truth.train[0])
    grants = disclose(seen[1].truth, ["public-attributes", "public-records"], client=1, seats=(0,))
    view = roles.curious_client(seen[1].transcript, seat=0, own=[seen[1].truth.train[0]], grants=grants)
    known = Majority().run(view.without_messages(), generator=fork(0)).facts["public_records"]
    assert known == len(seen[0].truth.public) + own
    blank = view.without_messages()
    guesses = [scored(seen[1], one, Imputation()) for one in (blank, replace(blank, own=()))]
    assert outcomes[1].floors["imputation"] == strongest(guesses)  # with its own records or without them


def test_a_client_that_was_never_asked_is_refused_and_makes_no_control() -> None:
    made = context(federation={"rounds": 1, "learning_rate": 0.05, "participation": 0.67})
    asked = {message.client for message in made.transcript.messages if message.what == "reply"}
    (absent,) = {0, 1, 2} - asked
    with pytest.raises(Refused, match="client alone"):
        evaluate(replace(made, client=absent))
    before = (absent - 1) % 3  # whose next client is the absent one
    assert str(absent) not in evaluate(replace(made, client=before)).swaps


def image_case(attack: dict[str, Any]) -> tuple[CaseContext, CaseOutcome]:
    document = tiny(data=None, model=None, federation=None, attack=[attack]) | {
        "data": {"name": "digits", "clients": 2, "limit": 2, "holdout": 0.1},
        "model": {"name": "linear"},
        "federation": {"rounds": 1, "algorithm": "fedsgd", "batch_size": "all"},
    }
    plan = make_plan(document, HERE)
    transcript, truth = simulate(prepare(plan, "none", 0).federation, seed=0)
    part = plan.attacks[0]
    made = CaseContext(part=part, attack=part.make(HERE), transcript=transcript, truth=truth, client=1, aware=None)
    return made, evaluate(made)


def test_the_same_pictures_are_held_against_as_many_held_out_ones() -> None:
    made, found = image_case({"name": "inverting-gradients", "steps": 3})
    assert len(made.truth.holdout[1]) >= 1
    wanted = score(found.evidence, made.truth, client=1, rows="holdout", limit=2).means
    assert found.controls["held-out"] == dict(wanted) and set(found.controls) == {"held-out", "other-client"}
    assert set(found.floors) == {"mean-image", "nearest-public-image"}


def test_names_of_grants() -> None:
    part = AttackPart(name="attribute-from-model")
    attack = AttributeFromModel()
    assert grant_names(part, attack, None) == ["public-attributes", "recipe"]
    assert grant_names(part, attack, True) == ["defence", "public-attributes", "recipe"]
    given = AttackPart(name="attribute-from-model", grants=["examples", "defence"])
    assert grant_names(given, attack, False) == ["examples"] and "defence" in grant_names(given, attack, True)


def test_attacks_within_attacks() -> None:
    nested = MembershipLoss(model=LocalModelOracle())
    assert list(held_attacks(nested)) == [nested, LocalModelOracle()]
    assert declared_grants(nested) == {"target-records", "oracle-records"}
    assert adapts(nested) is False
    assert without_client_model(nested) == MembershipLoss(model=GlobalModel())
    assert without_client_model(LastReturned()) == GlobalModel() and without_client_model(LabelsIdlg()) is None


def test_an_oracle_is_marked() -> None:
    made = context({**PLAIN, "model": {"name": "local-model-oracle", "steps": 5}})
    view = made.view(made.attack)
    assert view.grants.is_oracle and view.ledger()["oracle"]


def test_the_rounds_that_a_plan_lets_it_read() -> None:
    transcript = context(federation={"rounds": 4, "learning_rate": 0.05}).transcript
    cases: list[tuple[Any, Any]] = [(None, None), ("first", [0]), ("last", [3]), ([1, 3], [1, 3])]
    for rounds, read in cases:
        assert rounds_read(AttackPart(name="last-returned", rounds=rounds), transcript) == read
    made = context({**PLAIN, "rounds": "first"}, federation={"rounds": 4, "learning_rate": 0.05})
    assert made.view(made.attack).ledger()["rounds_seen"] == [0]


def test_the_next_client() -> None:
    assert [next_client(client, 3, ()) for client in range(3)] == [1, 2, 0]
    assert next_client(1, 3, (2,)) == 0 and next_client(0, 2, (1,)) is None and next_client(0, 1, ()) is None


def test_an_audit_draws_nothing_from_the_air() -> None:
    before = torch.get_rng_state()
    assert evaluate(context()).controls == evaluate(context()).controls
    assert torch.equal(before, torch.get_rng_state())


def test_the_stronger_guess_counts_metric_by_metric() -> None:
    guesses = [{"accuracy": 0.4, "mse": 0.2}, {"accuracy": 0.7, "mse": 0.3, "rec": 0.1}]
    assert strongest(guesses) == {"accuracy": 0.7, "mse": 0.2, "rec": 0.1}
    assert strongest(guesses[:1]) == guesses[0]
