"""Membership inference, which asks for every record whether it is in the training data of the target client.

Notation: w_t is the model sent in round t, w_t' the model that came back (for a role that sees only sums, the next
global model), D_t = w_t - w_t', L the loss of a record, g_t its gradient at w_t. Larger scores mean likelier members.
    membership-loss                  -L(w_T')                                                      (Yeom et al. 2018)
    membership-series                mean_t -L(w_t')                                                 (Gu et al. 2022)
    membership-loss-drop             mean_t L(w_t) - L(w_t')
    membership-logit-drop            mean_t phi(w_t') - phi(w_t), phi = log p / (1 - p), p of the record's class
    membership-cosine                mean_t cos(g_t, D_t)                                            (Li et al. 2023)
    membership-gradient-difference   mean_t |S_t|^2 - |S_t - g_t|^2, S_t the sum of all gradients    (Li et al. 2023)
    membership-fedmia                mean_t Phi(z_t), z_t against the other clients' replies        (Zhu et al. 2025)
    membership-reference             mean_k L(r_k) - L(w_T'), r_k trained on public records      (Watson et al. 2022)
    membership-best                  normal scores of the ranks of loss, cosine, reference and updates, weighted
Means are over the second half of the rounds unless `over` says otherwise.

Where we differ: Li et al. use S_t = D_t, which after several local steps is in other units than a gradient; we scale
D_t to the sum of the gradients of the n records, n D_t / (learning rate * steps). Zhu et al. average over all rounds.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import (
    EVERYONE,
    SINGLE_REPLIES,
    Attack,
    Context,
    Need,
    Workload,
    any_update,
    classification,
    global_models,
    granted,
    needs_of_model,
    public_records,
    single_replies,
)
from fedxray.attacks.evidence import Evidence, Kind, model_params, of_membership
from fedxray.attacks.local_model.baselines import GlobalModel, LastReturned
from fedxray.attacks.local_model.messages import returned, step_size
from fedxray.attacks.observations import examples_behind, known_examples
from fedxray.attacks.presence import MembershipFromUpdates
from fedxray.attacks.record_gradients import cosines, record_products
from fedxray.attacks.update_algebra import step_length
from fedxray.data.dataset import Records, union
from fedxray.errors import Refused
from fedxray.federation.local import Batch, local_update, objective, stacked_layers, stacked_objective
from fedxray.federation.recipe import Recipe, draw_schedule
from fedxray.losses import example_loss, losses
from fedxray.params import Params, add, buffers_of, each, parameters_of, scaled, stack, unstack
from fedxray.seeds import derive_seed, fork, permutation
from fedxray.settings import setting

# By the loss of one model


@dataclass(frozen=True, kw_only=True)
class MembershipLoss(Attack):
    """Which of these records are in the training data? Ranks them by the loss of the client's model."""

    name: ClassVar[str] = "membership-loss"
    kind: ClassVar[Kind] = "membership"
    paper: ClassVar[str] = "yeom-2018"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("target-records",)
    floors: ClassVar[tuple[str, ...]] = ("chance",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")

    model: Attack = setting(LastReturned, "Attack whose model is used as the client's.")

    def needs(self) -> tuple[Need, ...]:
        """List the records in question, and the needs of the attack on the model."""
        return (granted("target-records"), *needs_of_model(self.model))

    def attack(self, view: View, context: Context) -> Evidence:
        """Return minus the loss of every record."""
        params, buffers = model_params(context.run(self.model, view))
        return of_membership(-loss_under(view, params, buffers))


def loss_under(view: View, params: Params, buffers: Params) -> Tensor:
    """Return the loss of every record in question under a model [records]."""
    records = asked(view)
    return losses(view.network, params, buffers, records.x, records.y, example_loss(view.loss))


def asked(view: View) -> Records:
    """Return the records in question."""
    records = view.grants.target_records
    assert records is not None
    return records


LEAST_LOSS = 1e-5  # below, the logit of a float32 probability is rounding


def logit(loss: Tensor) -> Tensor:
    """Return log p / (1 - p) of a cross-entropy -log p, shape kept."""
    return -torch.log(torch.expm1(loss.clamp(min=LEAST_LOSS)))


# By the messages of several rounds

OfRound = Callable[[Observation], Tensor]  # a round to scores [records]


@dataclass(frozen=True, kw_only=True)
class MembershipByRound(Attack):
    """Base of attacks that score every record in every round and take the mean over rounds."""

    kind: ClassVar[Kind] = "membership"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("target-records", "recipe")
    requires: ClassVar[tuple[Need, ...]] = (granted("target-records"), any_update(), step_size())
    reads: ClassVar[tuple[str, ...] | None] = ("target-records", "recipe")
    floors: ClassVar[tuple[str, ...]] = ("chance",)
    controls: ClassVar[tuple[str, ...]] = ("other-client",)

    over: Literal["late", "all", "last"] = setting(
        "late", "Rounds that are averaged: the second half of those read, all of them, or the last one."
    )

    @abstractmethod
    def of_round(self, view: View) -> OfRound:
        """Return the function that scores all records in one round."""

    def usable(self, view: View) -> Sequence[Observation]:
        """Return the rounds that can be scored; a hook for attacks that need more than the target's message."""
        return view.of_target()

    @final
    def attack(self, view: View, context: Context) -> Evidence:
        """Return the mean score of every record over the chosen rounds."""
        rounds, score = chosen_rounds(self.usable(view), self.over), self.of_round(view)
        total = score(rounds[0])
        for seen in rounds[1:]:  # one at a time: memory does not grow with the rounds
            total = total + score(seen)
        return of_membership(total / len(rounds), facts={"rounds": len(rounds)})


def chosen_rounds(seen: Sequence[Observation], over: str) -> list[Observation]:
    """Return the second half of these rounds (the larger one), all of them, or the last, in order."""
    ordered = sorted(seen, key=lambda message: message.round)
    count = {"late": (len(ordered) + 1) // 2, "all": len(ordered), "last": 1}[over]
    return ordered[-count:]


def loss_before(view: View, seen: Observation) -> Tensor:
    """Return the loss of every record under the model that was sent [records]."""
    return loss_under(view, seen.start, seen.buffers)


def loss_after(view: View, seen: Observation) -> Tensor:
    """Return the loss of every record under the model that came back [records]."""
    return loss_under(view, returned(view, seen), seen.buffers_after or seen.buffers)


@dataclass(frozen=True, kw_only=True)
class MembershipSeries(MembershipByRound):
    """Which of these records are in the training data? Ranks them by the mean loss of several returned models."""

    name: ClassVar[str] = "membership-series"
    paper: ClassVar[str] = "gu-2022"

    def of_round(self, view: View) -> OfRound:
        """Return minus the loss under the returned model."""
        return lambda seen: -loss_after(view, seen)


@dataclass(frozen=True, kw_only=True)
class MembershipLossDrop(MembershipByRound):
    """Which of these records are in the training data? Ranks them by how far a round lowers their loss."""

    name: ClassVar[str] = "membership-loss-drop"

    def of_round(self, view: View) -> OfRound:
        """Return the loss before a round minus the loss after it."""
        return lambda seen: loss_before(view, seen) - loss_after(view, seen)


@dataclass(frozen=True, kw_only=True)
class MembershipLogitDrop(MembershipByRound):
    """Which of these records are in the training data? Ranks them by how far a round raises their logit."""

    name: ClassVar[str] = "membership-logit-drop"
    requires: ClassVar[tuple[Need, ...]] = (*MembershipByRound.requires, classification())

    def of_round(self, view: View) -> OfRound:
        """Return the logit of the record's class after a round minus the one before it."""
        return lambda seen: logit(loss_after(view, seen)) - logit(loss_before(view, seen))


@dataclass(frozen=True, kw_only=True)
class MembershipCosine(MembershipByRound):
    """Which of these records are in the training data? Ranks them by the cosine of their gradients with the updates."""

    name: ClassVar[str] = "membership-cosine"
    paper: ClassVar[str] = "li-2023"
    grants: ClassVar[tuple[str, ...]] = ("target-records",)
    requires: ClassVar[tuple[Need, ...]] = (granted("target-records"), any_update())
    reads: ClassVar[tuple[str, ...] | None] = ("target-records",)

    def of_round(self, view: View) -> OfRound:
        """Return the cosine of every record's gradient with minus the update."""
        of_updates = cosines_with(view)
        return lambda seen: of_updates(seen, [seen])[:, 0]


def cosines_with(view: View) -> Callable[[Observation, Sequence[Observation]], Tensor]:
    """Return the function that computes cosines of gradients at one message's start with minus several updates.

    Their shape is [records, updates].
    """
    products, records = record_products(view.model, view.loss), asked(view)

    def of_updates(at: Observation, messages: Sequence[Observation]) -> Tensor:
        down = [scaled(message.update, -1.0) for message in messages]
        return cosines(*products(at.start, at.buffers, records.x, records.y, down), down)

    return of_updates


@dataclass(frozen=True, kw_only=True)
class MembershipGradientDifference(MembershipByRound):
    """Which of these records are in the training data? Ranks them by how much of the update their gradients explain."""

    name: ClassVar[str] = "membership-gradient-difference"
    paper: ClassVar[str] = "li-2023"
    roles: ClassVar[tuple[str, ...]] = SINGLE_REPLIES
    grants: ClassVar[tuple[str, ...]] = ("target-records", "recipe", "examples")
    requires: ClassVar[tuple[Need, ...]] = (
        granted("target-records"),
        single_replies(),
        granted("recipe"),
        known_examples("first"),
    )
    reads: ClassVar[tuple[str, ...] | None] = None

    def of_round(self, view: View) -> OfRound:
        """Return |S|^2 - |S - g|^2 = 2 <S, g> - |g|^2, where S is the update as a sum of the records' gradients."""
        products, records, recipe = record_products(view.model, view.loss), asked(view), view.grants.recipe
        examples = examples_behind(view, "first")
        assert recipe is not None and examples is not None

        def explained(seen: Observation) -> Tensor:
            whole = scaled(seen.update, -1 / step_length(recipe, examples))
            dots, squares = products(seen.start, seen.buffers, records.x, records.y, [whole])
            return 2 * dots[:, 0] - squares

        return explained


LEAST_SPREAD = 1e-4  # added to a standard deviation, as in the authors' program
LEAST_OTHERS = 2  # other clients of a round, for a standard deviation


@dataclass(frozen=True, kw_only=True)
class MembershipFedmia(MembershipByRound):
    """Which of these records are in the training data? Ranks them by how the client's replies differ from others'."""

    name: ClassVar[str] = "membership-fedmia"
    paper: ClassVar[str] = "zhu-2025"
    roles: ClassVar[tuple[str, ...]] = SINGLE_REPLIES

    statistic: Literal["loss", "cosine"] = setting(
        "cosine", "What is compared with the other clients: loss (FedMIA-I) or cosine of the gradient (FedMIA-II)."
    )

    def needs(self) -> tuple[Need, ...]:
        """List the records in question, and replies of the target and two others in one round."""
        others = Need(
            what=f"replies of the target and of {LEAST_OTHERS} other clients or more in one round, each alone",
            given_by="role server, eavesdropper or active-server without secure aggregation, with three clients or "
            "more in a round",
            met=lambda view: view.target is not None and bool(self.usable(view)),
        )
        return (granted("target-records"), others, step_size())

    def usable(self, view: View) -> Sequence[Observation]:
        """Return the target's messages of rounds in which enough others replied."""
        return [seen for seen in view.of_target() if len(others_of(view, seen)) >= LEAST_OTHERS]

    def of_round(self, view: View) -> OfRound:
        """Return the share of a normal distribution, fitted to the other clients, that lies below the client."""
        of_updates = cosines_with(view) if self.statistic == "cosine" else None

        def below(seen: Observation) -> Tensor:
            everyone = [seen, *others_of(view, seen)]
            if of_updates is not None:
                values = of_updates(seen, everyone)
            else:
                values = torch.stack([-loss_after(view, reply) for reply in everyone], 1)
            share: Tensor = torch.special.ndtr(against_others(values))
            return share

        return below


def others_of(view: View, seen: Observation) -> list[Observation]:
    """Return the single replies of the other clients in the same round."""
    return [
        reply
        for reply in view.indexed.of_round(seen.round)
        if reply.contributors is not None and reply.contributors != seen.contributors
    ]


def against_others(values: Tensor) -> Tensor:
    """Return how many standard deviations the first column of [records, clients] lies above the others, [records]."""
    others = values[:, 1:]
    return (values[:, 0] - others.mean(1)) / (others.std(1) + LEAST_SPREAD)


# By reference models


@dataclass(frozen=True, kw_only=True)
class MembershipReference(Attack):
    """Which of these records are in the training data? Ranks them by loss, compared with models of public records."""

    name: ClassVar[str] = "membership-reference"
    kind: ClassVar[Kind] = "membership"
    paper: ClassVar[str] = "watson-2022"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("target-records", "recipe", "public-records")
    floors: ClassVar[tuple[str, ...]] = ("chance",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")
    small: ClassVar[Mapping[str, Any]] = {"references": 2}

    model: Attack = setting(LastReturned, "Attack whose model is used as the client's.")
    references: int = setting(4, "Number of reference models.", least=1, most=8)
    scale: Literal["loss", "logit"] = setting(
        "loss", "What is compared: the loss, or the logit of the record's class (classification)."
    )
    records: int = setting(
        2000, "Public records that a reference model is trained on, all where there are fewer.", least=1
    )
    most_steps: int = setting(5000, "Most steps of a reference model; fewer where the client took fewer.", least=1)

    def needs(self) -> tuple[Need, ...]:
        """List records in question and public ones, the recipe, and the needs of the attack on the model."""
        classes = (classification(),) if self.scale == "logit" else ()
        known = (granted("target-records"), public_records(), granted("recipe"), global_models())
        return (*known, *classes, *needs_of_model(self.model))

    def seconds(self, work: Workload) -> float:
        """Return about how long the reference models take."""
        return self.references * min(self.most_steps, work.local_steps * work.rounds) * work.step_seconds

    def attack(self, view: View, context: Context) -> Evidence:
        """Return the mean loss under the reference models minus the loss under the client's."""
        models = reference_models(view, self.references, self.records, self.most_steps)
        own = loss_under(view, *model_params(context.run(self.model, view)))
        others = [loss_under(view, *model) for model in models]
        if self.scale == "logit":
            return of_membership(logit(own) - torch.stack([logit(loss) for loss in others]).mean(0))
        return of_membership(torch.stack(others).mean(0) - own)


Model = tuple[Params, Params]  # parameters and buffers
_references: dict[int, list[Model]] = {}  # the last few: clients of one run share them
MOST_HELD = 8


def reference_models(view: View, count: int, records: int, steps: int) -> list[Model]:
    """Return models trained by the recipe on public records, for as many local steps as the client took, up to a limit.

    Each has its own draw of the records and their order; all draws depend on what is given here alone.
    """
    public, recipe = view.grants.public_records, view.grants.recipe
    assert public is not None and recipe is not None
    size = min(records, len(public))
    rounds = max(model.round for model in view.globals)  # the last model is the start of the round after
    steps = min(steps, recipe.steps(examples_behind(view, "first") or size) * max(rounds, 1))
    like = next(iter(view.globals[0].params.values()))
    start, buffers = each(lambda value: value.to(like), parameters_of(view.model)), buffers_of(view.model)
    known = repr(view.model), start, buffers, public.x, public.y, recipe, count, size, steps
    key = derive_seed(0, "reference models", *known)
    if key not in _references:
        while len(_references) >= MOST_HELD:
            _references.pop(next(iter(_references)))
        length = recipe.batch_length(size)
        alone = replace(recipe, algorithm="fedavg", mu=0.0, batch_size=length, epochs=-(-steps * length // size) + 1)
        _references[key] = _trained(view.model, start, buffers, public, alone, count, size, steps, fork(key))
    return _references[key]


def _trained(
    model: nn.Module,
    start: Params,
    buffers: Params,
    public: Records,
    recipe: Recipe,
    count: int,
    size: int,
    steps: int,
    draws: torch.Generator,
) -> list[Model]:
    """Train `count` models, side by side where the network allows it."""
    drawn = [permutation(len(public), fork(draws, "records", number))[:size] for number in range(count)]
    orders = [draw_schedule(size, recipe, fork(draws, "order", number)) for number in range(count)]
    # Which record each model uses in each step: [models, examples] by step
    used = [
        torch.stack([rows[order.used(step)] for rows, order in zip(drawn, orders, strict=True)])
        for step in range(steps)
    ]
    layers = None if buffers else stacked_layers(model)
    with torch.random.fork_rng(devices=[]):  # dropout draws from the global generator: restore it afterwards
        torch.default_generator.manual_seed(draws.initial_seed())
        if layers is not None:
            batches = (Batch(x=public.x[rows], y=public.y[rows]) for rows in used)
            result = local_update(stack([start] * count), {}, batches, recipe, stacked_objective(layers, recipe.loss))
            return [(add(start, update), {}) for update in unstack(result.update)]
        models: list[Model] = []
        for number in range(count):
            batches = (Batch(x=public.x[rows[number]], y=public.y[rows[number]]) for rows in used)
            result = local_update(start, buffers, batches, recipe, objective(model, recipe.loss))
            models.append((add(start, result.update), result.buffers))
        return models


# Several together


@dataclass(frozen=True, kw_only=True)
class MembershipBest(Attack):
    """Which of these records are in the training data? Adds up ranks by loss, cosine, reference models and updates.

    Each part that the role and grants allow is used: the loss of the last model, the cosine of the gradients with the
    updates, the loss compared with reference models, and the weights of the gradients in the updates. Ranks are turned
    into normal scores. The first three count the same; the weights count the more, the more of the records in question
    lie above public ones among them, which are known to be no members.
    """

    name: ClassVar[str] = "membership-best"
    kind: ClassVar[Kind] = "membership"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("target-records", "recipe", "public-records")
    requires: ClassVar[tuple[Need, ...]] = (granted("target-records"), global_models())
    floors: ClassVar[tuple[str, ...]] = ("chance",)
    controls: ClassVar[tuple[str, ...]] = ("other-client",)

    def seconds(self, work: Workload) -> float:
        """Return about how long its reference models and the weights take."""
        asked_about = replace(work, records=work.records + OUTSIDERS)
        return MembershipReference().seconds(work) + IN_UPDATES.seconds(asked_about)

    def attack(self, view: View, context: Context) -> Evidence:
        """Return the weighted sum of the normal scores of every record by the parts."""
        model = GlobalModel() if view.target is None else LastReturned()
        parts = (MembershipLoss(model=model), MembershipCosine(), MembershipReference(model=model))
        usable = [part for part in parts if _is_usable(part, view)]
        scores = [normal_scores(context.run(part, view).tensors["scores"]) for part in usable]
        total, facts = torch.stack(scores).mean(0), {"parts": [part.name for part in usable]}
        wider = with_outsiders(view)
        if wider is None or not _is_usable(IN_UPDATES, wider):
            return of_membership(total, facts=facts)
        found = context.run(IN_UPDATES, wider)
        if found.status != "ok":
            context.stages.pop()  # an answer that is not used raises no doubts
            return of_membership(total, facts=facts)
        weights, known = found.tensors["scores"].tensor_split([len(asked(view))])
        members = min(1.0, found.facts["prior"] * len(found.tensors["scores"]) / len(weights))
        trust = trusted(weights, known, members)
        facts["parts"].append(IN_UPDATES.name)
        whole = USUAL_DISTANCE * normal_scores(total) + trust * normal_scores(weights)
        return of_membership(whole, facts={**facts, "trust": trust})


LEAST_OUTSIDERS, OUTSIDERS = 20, 30  # public records put among those in question: more would blur the weights
IN_UPDATES = MembershipFromUpdates()
USUAL_DISTANCE = 0.3  # of members and others by the first three parts, in standard deviations: an AUC of 0.58
NORMAL = NormalDist()
FALSE = 0.05  # share of outsiders above the threshold at which trust is measured


def with_outsiders(view: View) -> View | None:
    """Return the view with public records after the records in question; None where there are too few."""
    public = view.grants.public_records
    if public is None or len(public) < LEAST_OUTSIDERS:
        return None
    both = union((replace(asked(view), subject=None), Records(public.x[:OUTSIDERS], public.y[:OUTSIDERS])))
    return replace(view, grants=replace(view.grants, target_records=both))


def trusted(weights: Tensor, outsiders: Tensor, members: float) -> float:
    """Return the weight of these normal scores in a sum: 0 where the records are like outsiders.

    The share of records above most outsiders, less its standard error, gives the distance d of members and others
    in standard deviations, where a share `members` of the records are members. Of scores with variance 1 whose classes
    are d apart, the best linear rule has the weight d sqrt(1 + members (1 - members) d^2).
    """
    threshold = torch.quantile(outsiders.double(), 1 - FALSE)
    error = math.sqrt(FALSE * (1 - FALSE) * (1 / len(weights) + 1 / len(outsiders)))
    above = float((weights.double() > threshold).double().mean()) - error
    rate = min(max((above - (1 - members) * FALSE) / members, FALSE), 0.98)
    distance = NORMAL.inv_cdf(rate) - NORMAL.inv_cdf(FALSE)
    return distance * math.sqrt(1 + members * (1 - members) * distance**2)


def _is_usable(part: Attack, view: View) -> bool:
    try:
        part.check(view)
    except Refused:
        return False
    return True


def normal_scores(scores: Tensor) -> Tensor:
    """Return the normal quantiles of the ranks of these scores [records]; equal scores have their mean rank."""
    ordered = scores.sort().values
    below, up_to = (torch.searchsorted(ordered, scores.contiguous(), right=right) for right in (False, True))
    quantiles: Tensor = torch.special.ndtri((below + up_to).to(scores.dtype) / (2 * len(scores)))
    return quantiles
