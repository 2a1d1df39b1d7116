"""Approximate and Weighted Attack, AWA (Song, Wang and Zuazua, arXiv 2308.06822), Algorithm 2.

Inputs are sought whose replayed update is the one seen, where layers count differently:
    1. Take the labels as granted, or from a sub-attack. Draw inputs evenly over the valid range.
    2. A round of one batch per epoch is replayed exactly, one of one epoch up to the order of its batches. One of
       several epochs of several batches has an order that nobody knows: it is taken for as many equal epochs (with
       momentum the first is shorter), and the first (`epoch`) is replayed.
    3. Every layer gets a weight that rises linearly from 1 at the first of its kind to q_conv, q_norm or q_linear
       at the last.
    4. At every step, layers that are both among the share p_mean of layers with the largest relative errors of the
       mean of their entries, and among the share p_var with the largest of the variance, get q_enhance instead.
    5. Descend by Adam on the sum over layers of weight times squared difference; weights are constants.
    6. The six numbers come from a Bayesian search for the smallest sum without weights (`search` in a plan); without
       a search they are those that the paper found for the case at hand (`preset`).

Where we differ, or where the paper is silent:
    - Differences are measured in learning rates of the client (`unit = "rate"`). As sent (`unit = "sent"`, the paper)
      they are so small that the epsilon of Adam may hold it back.
    - Inputs stay in the valid range (`box`); the iterate with the smallest sum without weights is kept, which
      is also the loss that is told (`keep = "last"`: the last one).
    - An error relative to nothing is undefined, as that of the mean of a softmax head: see enhancement.py.
    - A client that is known to keep its batches (shuffle "once" or "never") is replayed exactly over all epochs.
    - All settings start from the same inputs, so that a search compares weights and not starts.
`kept_every` keeps the state of the descent after so many steps, so that an interrupted attack, or one with
more steps, goes on from there. `give_up` = (steps, loss) ends an attack whose loss is still above after so many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.aim import At, check_at, observation_at
from fedxray.attacks.base import Attack, Context, Need
from fedxray.attacks.evidence import Evidence, Kind, of_images
from fedxray.attacks.inversion.awa_objective import Match, epoch_there, match_of, work_of
from fedxray.attacks.inversion.awa_presets import BY_CASE, PRESETS, RANGES, Weights, case_of, weights_of
from fedxray.attacks.inversion.awa_stages import descend, state_of, with_state
from fedxray.attacks.inversion.dlg import Unit, check_unit, first_tensor, unit_size
from fedxray.attacks.inversion.enhancement import Undefined
from fedxray.attacks.inversion.known import (
    Start,
    as_far_as_told,
    check_count,
    check_label_attack,
    check_start,
    image_needs,
    into_the_box,
    labels_in_batches,
    recipe_of,
    shared_starts,
)
from fedxray.attacks.inversion.replay import BatchNorm, check_batch_norm
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.errors import BadInput, unknown_name
from fedxray.methods import Adam
from fedxray.minimise import Restarts

LEAST_WEIGHT = 1e-6  # with less, or 0, a guess may stay where it began and pass for what was found
MOST_WEIGHT = 1e12  # beyond it the squares of slopes that Adam keeps are infinite, and nothing moves
MOST_STAGES = 60  # each is asked from within the next


@dataclass(frozen=True, kw_only=True)
class Awa(Attack):
    """What did the training images look like? Images are sought that cause the update sent, layers weighted."""

    name: ClassVar[str] = "awa"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 80}
    adapts: ClassVar[bool] = True
    searched: ClassVar[Mapping[str, tuple[float, float, str]]] = RANGES

    preset: Literal["by-case", "case1", "case2", "case3", "case4", "ramp", "none"] = "by-case"
    q_conv: float | None = None  # each of the six: None is what the preset has
    q_norm: float | None = None
    q_linear: float | None = None
    q_enhance: float | None = None
    p_mean: float | None = None
    p_var: float | None = None
    steps: int = 1000
    learning_rate: float = 0.1
    unit: Unit = "rate"
    start: Start = "uniform"
    box: bool = True
    keep: Literal["best", "last"] = "best"
    epoch: int = 1  # which epoch is replayed where the whole round cannot be
    undefined: Undefined = (
        "last"  # whether a layer whose relative error is undefined counts as largest or smallest
    )
    restarts: int = 1
    kept_every: int | None = None
    give_up: tuple[int, float] | None = None
    labels: Attack = field(default_factory=LabelsIdlg)  # used when the labels are not granted
    at: At = "first"
    batch_norm: BatchNorm = "batch"

    def __post_init__(self) -> None:
        """Check every setting."""
        self.method()
        check_unit(self.unit)
        check_start(self.start)
        check_at(self.at)
        check_batch_norm(self.batch_norm)
        check_label_attack(self.labels)
        for name in ("restarts", "epoch"):
            check_count(name, getattr(self, name))
        _check_choices(self)
        _check_weights(self)
        _check_stages(self)

    def method(self) -> Adam:
        """The optimiser of the paper."""
        return Adam(steps=self.steps, lr=self.learning_rate)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        needs = image_needs(self.at, self.labels)
        return needs if self.epoch == 1 else (*needs, epoch_there(self.at, self.epoch))

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        observation = observation_at(view, self.at)
        like = first_tensor(observation)
        labels, facts = labels_in_batches(view, context, self.labels, self.at)
        loss, told = self._loss(view, observation, labels.to(like.device))
        earlier = self._earlier(view, context)
        found = descend(
            loss, shared_starts(view, like, len(labels), context, self.restarts, self.start), self.method(),
            report=context.report, project=into_the_box(view, like) if self.box else None, what=self.name,
            keep=self.keep, give_up=self.give_up, state=None if earlier is None else state_of(earlier),
        )  # fmt: skip
        evidence = self._evidence(found, loss.labels, facts | told | {"round": observation.round})
        shown = as_far_as_told(view, observation, evidence)
        return shown if self.kept_every is None else with_state(shown, found.outcome)

    def weights(self, view: View, observation: Observation, examples: int) -> Weights:
        """The six numbers: those that were given, else the preset's."""
        recipe = recipe_of(view, observation)
        assert recipe is not None
        given = {name: getattr(self, name) for name in RANGES if getattr(self, name) is not None}
        return replace(weights_of(self.preset, recipe, examples), **given)

    def _loss(self, view: View, observation: Observation, labels: Tensor) -> tuple[Match, dict[str, Any]]:
        """The loss, and what it rests on."""
        work = work_of(view, observation, len(labels), self.batch_norm, self.epoch)
        weights = self.weights(view, observation, len(labels))
        size = unit_size(self.unit, work.aim, view, observation)
        recipe = recipe_of(view, observation)
        assert recipe is not None
        facts = {"case": case_of(recipe, len(labels)), "epoch": work.epoch, "weights": asdict(weights)}
        match = match_of(view, work, labels, weights, size, self.undefined)
        taken = {"case": facts["case"], "epoch": work.epoch, **match.ends(), "q_enhance": weights.q_enhance}
        taken |= {"p_mean": weights.p_mean, "p_var": weights.p_var}
        facts["taken"] = {name: value for name, value in taken.items() if value is not None}
        return match, facts

    def _earlier(self, view: View, context: Context) -> Evidence | None:
        """The same attack with fewer steps, where it is to be kept."""
        if self.kept_every is None or self.steps <= self.kept_every:
            return None
        before = (self.steps - 1) // self.kept_every * self.kept_every
        return context.run(replace(self, steps=before), view)

    def _evidence(self, found: Restarts, labels: Tensor, facts: dict[str, Any]) -> Evidence:
        end = found.outcome
        facts |= {"own_loss": [one.loss_of(self.keep) for one in found.outcomes], "restart": found.chosen}
        return of_images(
            end.kept(self.keep)["inputs"],
            labels,
            status=end.status,
            reason=end.reason,
            curve=end.curve,
            facts=facts,
        )


def _check_choices(attack: Awa) -> None:
    for setting, known in (
        ("preset", (BY_CASE, *PRESETS)),
        ("keep", ("best", "last")),
        ("undefined", ("last", "first")),
    ):
        if getattr(attack, setting) not in known:
            raise unknown_name(setting, getattr(attack, setting), known)


def _check_weights(attack: Awa) -> None:
    for setting in RANGES:
        value = getattr(attack, setting)
        least, most = (LEAST_WEIGHT, MOST_WEIGHT) if setting.startswith("q_") else (0.0, 1.0)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and least <= value <= most):
            expected = "a share from 0 to 1" if most == 1 else f"a number from {least:g} to {most:g}"
            low, high, _ = RANGES[setting]
            remedy = f"The paper searches {low:g} to {high:g}; left out it is the preset's."
            raise BadInput(setting, expected=expected, got=repr(value), remedy=remedy)


def _check_stages(attack: Awa) -> None:
    if attack.kept_every is not None:
        check_count("kept_every", attack.kept_every)
        if attack.steps > MOST_STAGES * attack.kept_every:
            least = -(-attack.steps // MOST_STAGES)
            raise BadInput(
                "kept_every",
                expected=f"at least {least} (at most {MOST_STAGES} stages of {attack.steps} steps)",
                got=attack.kept_every,
                remedy="Keep the state less often.",
            )
    if attack.give_up is not None:
        check_count("give_up", attack.give_up[0])
        if not attack.give_up[1] >= 0:
            raise BadInput(
                "give_up",
                expected="a number of steps and a loss of at least 0",
                got=repr(attack.give_up),
                remedy="Leave it out.",
            )
    if attack.restarts > 1 and (attack.kept_every is not None or attack.give_up is not None):
        raise BadInput(
            "restarts",
            expected="1, with kept_every or give_up",
            got=attack.restarts,
            remedy="Leave kept_every and give_up out.",
        )
