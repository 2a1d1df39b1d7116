"""Membership from messages of several rounds: each formula against a slow version, and properties of all of them."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import pytest
import scipy.stats
import torch
from torch import Tensor, nn

from fedxray.adversary.view import Observation, View
from fedxray.attacks import membership
from fedxray.attacks.base import Attack
from fedxray.attacks.membership import (
    IN_UPDATES,
    OUTSIDERS,
    USUAL_DISTANCE,
    MembershipBest,
    MembershipCosine,
    MembershipFedmia,
    MembershipGradientDifference,
    MembershipLogitDrop,
    MembershipLoss,
    MembershipLossDrop,
    MembershipReference,
    MembershipSeries,
    against_others,
    chosen_rounds,
    normal_scores,
    reference_models,
    trusted,
    with_outsiders,
)
from fedxray.attacks.presence import MembershipFromUpdates
from fedxray.data.dataset import Records
from fedxray.errors import Refused
from fedxray.federation.recipe import Recipe
from fedxray.metrics.records import auc
from fedxray.params import Params, add, dot, norm, parameters_of, same_values, scaled
from fedxray.seeds import fork, normal_like, permutation
from tests.attacks.views import view_of_update
from tests.contract import worlds

ALL: list[Attack] = [
    MembershipLoss(),
    MembershipSeries(),
    MembershipLossDrop(),
    MembershipLogitDrop(),
    MembershipCosine(),
    MembershipGradientDifference(),
    MembershipFedmia(),
    MembershipFedmia(statistic="loss"),
    MembershipReference(),
    MembershipReference(scale="logit"),
    MembershipFromUpdates(),
    MembershipBest(),
]
GRANTS = ["target-records", "recipe", "public-records", "examples"]


def scores_of(attack: Attack, view: View) -> Tensor:
    return attack.run(view, generator=fork(0)).tensors["scores"]


@functools.cache
def seen_by(role: str = "server", client: int = 1, seed: int = 0) -> View:
    """A view of digits with all grants of the family."""
    world = worlds.class_world(seed, secure=role == "secure-aggregation")
    return worlds.view_of(MembershipLoss(), world, client=client, role=role, grants=GRANTS)


def few(view: View, count: int = 6) -> View:
    """The view with the first few records in question."""
    records = view.grants.target_records
    assert records is not None
    return replace(view, grants=replace(view.grants, target_records=records.take(torch.arange(count))))


# Slow versions: one record, one round, plain torch


def network(view: View, params: Params) -> nn.Module:
    model = worlds.build("mlp", view.space, generator=fork(0, "model"), hidden=[64])
    model.load_state_dict(dict(params))
    return model.double().eval()


def slow_loss(view: View, params: Params, number: int) -> Tensor:
    records = view.grants.target_records
    assert records is not None
    with torch.no_grad():
        output = network(view, params)(records.x[number : number + 1].double())
        return nn.functional.cross_entropy(output, records.y[number : number + 1])


def slow_gradient(view: View, params: Params, number: int) -> dict[str, Tensor]:
    records = view.grants.target_records
    assert records is not None
    model = network(view, params)
    nn.functional.cross_entropy(
        model(records.x[number : number + 1].double()), records.y[number : number + 1]
    ).backward()
    return {name: value.grad for name, value in model.named_parameters() if value.grad is not None}


def slow_logit(view: View, params: Params, number: int) -> Tensor:
    chance = torch.exp(-slow_loss(view, params, number))
    return torch.log(chance / (1 - chance))


def after(seen: Observation) -> dict[str, Tensor]:
    return add(seen.start, seen.update)


def slow_cosine(view: View, seen: Observation, update: Params, number: int) -> Tensor:
    gradient = slow_gradient(view, seen.start, number)
    down = {name: -value.double() for name, value in update.items()}
    return dot(gradient, down) / (norm(gradient) * norm(down))


def slow_fedmia(view: View, seen: Observation, number: int, statistic: str) -> Tensor:
    replies = [reply for reply in view.observations if reply.round == seen.round]
    values = {
        reply.contributors: float(
            slow_cosine(view, seen, reply.update, number)
            if statistic == "cosine"
            else -slow_loss(view, after(reply), number)
        )
        for reply in replies
    }
    own = values.pop(seen.contributors)
    others = list(values.values())
    mean = sum(others) / len(others)
    spread = math.sqrt(sum((value - mean) ** 2 for value in others) / (len(others) - 1))
    return torch.tensor(scipy.stats.norm.cdf((own - mean) / (spread + 1e-4)))


def slow_difference(view: View, seen: Observation, number: int) -> Tensor:
    """|S|^2 - |S - g|^2 for 40 records, 10 epochs in batches of 8 at a learning rate of 0.1."""
    gradient = slow_gradient(view, seen.start, number)
    whole = {name: -40 * value.double() / (0.1 * 50) for name, value in seen.update.items()}
    rest = {name: value - gradient[name] for name, value in whole.items()}
    return dot(whole, whole) - dot(rest, rest)


SLOW: list[tuple[Attack, Any]] = [
    (MembershipSeries(), lambda view, seen, number: -slow_loss(view, after(seen), number)),
    (
        MembershipLossDrop(),
        lambda view, seen, number: slow_loss(view, seen.start, number) - slow_loss(view, after(seen), number),
    ),
    (
        MembershipLogitDrop(),
        lambda view, seen, number: slow_logit(view, after(seen), number) - slow_logit(view, seen.start, number),
    ),
    (MembershipCosine(), lambda view, seen, number: slow_cosine(view, seen, seen.update, number)),
    (MembershipGradientDifference(), slow_difference),
    (MembershipFedmia(), lambda view, seen, number: slow_fedmia(view, seen, number, "cosine")),
    (MembershipFedmia(statistic="loss"), lambda view, seen, number: slow_fedmia(view, seen, number, "loss")),
]


@pytest.mark.parametrize(("attack", "slow"), SLOW, ids=lambda value: getattr(value, "name", ""))
@pytest.mark.parametrize("over", ["late", "all", "last"])
def test_scores_are_those_of_a_slow_version(attack: Attack, slow: Any, over: str) -> None:
    view = few(seen_by())
    rounds = {"late": (2, 3), "all": (0, 1, 2, 3), "last": (3,)}[over]
    target = {seen.round: seen for seen in view.of_target()}
    wanted = [sum(float(slow(view, target[number], record)) for number in rounds) / len(rounds) for record in range(6)]
    found = scores_of(replace(attack, over=over), view)  # type: ignore[type-var]
    assert found.tolist() == pytest.approx(wanted, rel=2e-3, abs=1e-4)


def test_the_late_half_is_the_larger_one() -> None:
    rounds = list(seen_by().of_target())[:3]
    assert [seen.round for seen in chosen_rounds(rounds[::-1], "late")] == [1, 2]
    assert [seen.round for seen in chosen_rounds(rounds[:1], "late")] == [0]


# Cases that can be checked by hand


def one_step(kind: str = "weights", records: int = 3) -> View:
    """A client that took one step on all its records: D = learning rate * mean gradient."""
    torch.manual_seed(0)
    model = nn.Linear(2, 2).double()
    x, y = normal_like(torch.empty((records, 2), dtype=torch.float64), fork(1)), torch.arange(records) % 2
    nn.functional.cross_entropy(model(x), y).backward()
    rate = 0.25 if kind == "weights" else 1.0
    update = {name: -rate * value.grad for name, value in model.named_parameters() if value.grad is not None}
    recipe = Recipe(learning_rate=0.25, batch_size="all", algorithm="fedavg" if kind == "weights" else "fedsgd")
    return view_of_update(
        model, update, shape=(2,), classes=2, recipe=recipe, examples=records, kind=kind, target_records=Records(x, y)
    )


def test_the_gradient_of_the_only_record_points_along_the_update() -> None:
    assert scores_of(MembershipCosine(), one_step(records=1)).tolist() == pytest.approx([1.0])


@pytest.mark.parametrize("kind", ["weights", "gradient"])
def test_after_one_step_the_scaled_update_is_the_sum_of_the_gradients(kind: str) -> None:
    """So the gradient difference of a record is |sum|^2 - |sum of the other records' gradients|^2."""
    view = one_step(kind)
    start, records = dict(view.observations[0].start), view.grants.target_records
    assert records is not None
    single = []
    for number in range(3):
        leaves = {name: value.clone().requires_grad_() for name, value in start.items()}
        output = records.x[number : number + 1] @ leaves["weight"].T + leaves["bias"]
        loss = nn.functional.cross_entropy(output, records.y[number : number + 1])
        single.append(dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True)))
    total = add(add(single[0], single[1]), single[2])
    wanted = [float(dot(total, total) - norm(add(total, gradient, -1.0)) ** 2) for gradient in single]
    assert scores_of(MembershipGradientDifference(), view).tolist() == pytest.approx(wanted)


def test_an_update_of_zero_says_nothing() -> None:
    view = one_step()
    still = replace(view.observations[0], update=scaled(view.observations[0].update, 0.0))
    assert scores_of(MembershipCosine(), replace(view, observations=(still,))).tolist() == [0.0, 0.0, 0.0]


def test_normal_scores_are_quantiles_of_mean_ranks() -> None:
    values = torch.tensor([3.0, 1.0, 2.0, 2.0, -7.0], dtype=torch.float64)
    wanted = scipy.stats.norm.ppf((scipy.stats.rankdata(values) - 0.5) / 5)
    assert normal_scores(values).tolist() == pytest.approx(wanted.tolist())


def test_the_logit_of_a_loss() -> None:
    chance = torch.tensor([0.01, 0.5, 0.99], dtype=torch.float64)
    assert torch.allclose(membership.logit(-chance.log()), torch.logit(chance))
    assert bool(torch.isfinite(membership.logit(torch.zeros(1))).all())


# Properties of all


@pytest.mark.parametrize("attack", ALL, ids=lambda attack: attack.identity())
def test_records_of_one_distribution_cannot_be_separated(attack: Attack) -> None:
    """Held-out records in two random halves, as if one were members: AUC 0.5 within three standard errors."""
    values, errors = [], []
    for seed in (0, 1):
        for client in range(worlds.CLIENTS):
            view, held = seen_by(client=client, seed=seed), worlds.class_world(seed).truth.holdout[client]
            asked = replace(view, grants=replace(view.grants, target_records=held))
            member = permutation(len(held), fork(5, seed, client)) < len(held) // 2
            values.append(auc(scores_of(attack, asked), member))
            inside, outside = int(member.sum()), int((~member).sum())
            errors.append((inside + outside + 1) / (12 * inside * outside))
    assert abs(sum(values) / len(values) - 0.5) <= 3 * math.sqrt(sum(errors)) / len(errors)


@pytest.mark.parametrize("attack", ALL, ids=lambda attack: attack.identity())
def test_permuting_clients_permutes_the_answer(attack: Attack) -> None:
    """Only what a client sent counts, not its number or the order of the replies."""
    view, order = seen_by(client=1), {0: 2, 1: 0, 2: 1}
    renamed = [
        replace(seen, contributors=tuple(order[client] for client in seen.contributors or ()))
        for seen in reversed(view.observations)
    ]
    other = replace(view, target=order[1], observations=tuple(renamed))
    assert torch.allclose(scores_of(attack, view), scores_of(attack, other), atol=1e-5)


@pytest.mark.parametrize("attack", ALL, ids=lambda attack: attack.identity())
@pytest.mark.parametrize("role", ["server", "eavesdropper", "curious-client", "secure-aggregation"])
def test_every_role_gets_an_answer_or_a_reason(attack: Attack, role: str) -> None:
    """Where only sums are seen, cosines are with the sum, and what needs single replies is refused."""
    view = seen_by(role)
    if role in attack.roles and not hasattr(attack, "model"):
        found = scores_of(attack, view)
        assert len(found) == len(view.grants.target_records or ()) and bool(torch.isfinite(found).all())
    elif role not in ("server", "eavesdropper"):
        with pytest.raises(Refused, match=r"replies|model"):
            attack.check(view)


# FedMIA


def of_clients(*clients: int) -> View:
    """The server's view with the replies of these clients alone."""
    view = seen_by(client=1)
    return replace(view, observations=tuple(seen for client in clients for seen in view.of(client)))


@pytest.mark.parametrize("statistic", ["loss", "cosine"])
def test_fedmia_with_one_other_client_refuses(statistic: str) -> None:
    attack = MembershipFedmia(statistic=statistic)  # type: ignore[arg-type]
    for clients in ((1,), (1, 2)):
        with pytest.raises(Refused, match="2 other clients"):
            attack.check(of_clients(*clients))
    attack.check(of_clients(0, 1, 2))
    with pytest.raises(Refused):
        attack.check(seen_by("secure-aggregation"))


def test_fedmia_reads_only_rounds_with_enough_others() -> None:
    view = of_clients(0, 1, 2)
    lonely = tuple(seen for seen in view.observations if seen.round < 3 or seen.contributors == (1,))
    found = MembershipFedmia(over="all").run(replace(view, observations=lonely), generator=fork(0))
    assert found.facts["rounds"] == 3


def test_what_all_clients_have_in_common_cancels() -> None:
    values = normal_like(torch.empty((5, 4), dtype=torch.float64), fork(0))
    shift = normal_like(values[:, :1], fork(1))
    assert torch.allclose(against_others(values), against_others(values + shift))


# Reference models and the combination


def test_references_are_trained_on_public_records_alone() -> None:
    view = seen_by()
    models = reference_models(view, 2, 2000, 5000)
    asked = view.grants.target_records
    assert asked is not None
    others = replace(
        view, target=0, observations=view.of(0), grants=replace(view.grants, target_records=asked.take(torch.arange(2)))
    )
    assert reference_models(others, 2, 2000, 5000) is models  # one training serves all clients
    assert not same_values(models[0][0], models[1][0])
    public = view.grants.public_records
    assert public is not None
    start = parameters_of(view.model)

    def loss(params: Params) -> float:
        given = replace(view, grants=replace(view.grants, target_records=public))
        return float(membership.loss_under(given, params, {}).mean())

    assert all(loss(params) < loss(start) / 2 for params, _ in models)


def test_references_take_no_more_steps_than_the_setting() -> None:
    view = few(seen_by())
    recipe, public = view.grants.recipe, view.grants.public_records
    assert recipe is not None and public is not None
    whole = replace(view, grants=replace(view.grants, recipe=replace(recipe, batch_size="all")))
    model = network(view, parameters_of(view.model))
    nn.functional.cross_entropy(model(public.x.double()), public.y).backward()
    one = {
        name: (value - recipe.learning_rate * value.grad).detach()  # type: ignore[operator]
        for name, value in model.named_parameters()
    }
    for params, _ in reference_models(whole, 2, len(public), 1):
        assert all(torch.allclose(params[name].double(), value, atol=1e-6) for name, value in one.items())
    found = scores_of(MembershipReference(references=2, most_steps=1), whole)
    own = after(view.of_target()[-1])
    wanted = [float(slow_loss(view, one, number) - slow_loss(view, own, number)) for number in range(6)]
    assert found.tolist() == pytest.approx(wanted, rel=2e-3, abs=1e-4)


def test_the_reference_score_is_the_difference_of_losses() -> None:
    view = few(seen_by())
    models = reference_models(view, 3, 2000, 5000)
    own = after(view.of_target()[-1])
    for scale, value, sign in (("loss", slow_loss, -1), ("logit", slow_logit, 1)):
        found = scores_of(MembershipReference(references=3, scale=scale), view)  # type: ignore[arg-type]
        wanted = [
            sign * float(value(view, own, number) - sum(value(view, params, number) for params, _ in models) / 3)
            for number in range(6)
        ]
        assert found.tolist() == pytest.approx(wanted, rel=2e-3, abs=1e-4)


def test_the_combination_adds_normal_scores() -> None:
    view = seen_by()
    parts = [MembershipLoss(), MembershipCosine(), MembershipReference()]
    ranks = [normal_scores(scores_of(part, view)) for part in parts]
    found = MembershipBest().run(view, generator=fork(0))
    wider, public = with_outsiders(view), view.grants.public_records
    assert wider is not None and public is not None
    in_updates = scores_of(IN_UPDATES, wider)
    weights, known = in_updates[: len(in_updates) - min(len(public), OUTSIDERS)], in_updates[len(ranks[0]) :]
    examples = view.observations[0].examples
    assert examples is not None and len(weights) == len(ranks[0])
    trust = trusted(weights, known, min(1.0, examples / len(weights)))
    wanted = USUAL_DISTANCE * normal_scores(torch.stack(ranks).mean(0)) + trust * normal_scores(weights)
    assert torch.allclose(found.tensors["scores"], wanted, atol=1e-5)
    assert found.facts["parts"] == [*(part.name for part in parts), "membership-from-updates"]
    assert found.facts["trust"] == pytest.approx(trust) and trust > 1  # a single client's records stand out


def test_weights_like_those_of_outsiders_are_not_trusted() -> None:
    draw = fork(0, "trust")
    trust = []
    for distance in (0.0, 1.0, 3.0):
        inside = torch.arange(3000) % 3 == 0
        weights = normal_like(torch.empty(3000), draw) + distance * inside
        trust.append(trusted(weights, normal_like(torch.empty(20_000), draw), 1 / 3))
    assert trust[0] < 0.1 and trust[1] == pytest.approx(1.0 * (1 + 2 / 9) ** 0.5, rel=0.2)
    assert trust[2] == pytest.approx(3.0 * (1 + 2.0) ** 0.5, rel=0.2)
    assert trusted(-torch.ones(50), torch.zeros(50), 0.5) == 0


def test_messages_of_another_client_are_trusted_less() -> None:
    view, other = seen_by(), seen_by(client=0)
    crossed = replace(view, grants=replace(view.grants, target_records=other.grants.target_records))
    own, wrong = (MembershipBest().run(one, generator=fork(0)).facts["trust"] for one in (view, crossed))
    assert wrong < own / 2


def test_the_combination_leaves_out_what_cannot_be_seen() -> None:
    view = seen_by()
    plain = replace(view, grants=view.grants.only(("target-records",)))
    assert MembershipBest().run(plain, generator=fork(0)).facts["parts"] == ["membership-loss", "membership-cosine"]
    last = seen_by("secure-aggregation")
    alone = replace(last, observations=())  # one global model
    found = MembershipBest().run(alone, generator=fork(0)).facts["parts"]
    assert found == ["membership-loss", "membership-reference"]


def test_a_logit_needs_classes() -> None:
    view = worlds.view_of(MembershipLoss(), worlds.table_world(), grants=GRANTS)
    for attack in (MembershipLogitDrop(), MembershipReference(scale="logit")):
        with pytest.raises(Refused, match="classification"):
            attack.check(view)


def test_with_momentum_the_difference_is_in_the_units_of_a_gradient() -> None:
    view = few(seen_by())
    assert view.grants.recipe is not None
    heavy = replace(view, grants=replace(view.grants, recipe=replace(view.grants.recipe, momentum=0.9)))
    plain, pushed = (scores_of(MembershipGradientDifference(), one) for one in (view, heavy))
    assert not torch.allclose(plain, pushed)  # the same update is the sum of fewer gradients
