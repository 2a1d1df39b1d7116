"""From a plan to a federation: data, split, network, recipe; the same plan and seed always give the same one."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from fedxray.audit.plan import Plan, load_arguments, split_arguments
from fedxray.data.catalog import load
from fedxray.data.checks import Stamp, missing_file, stamp
from fedxray.data.dataset import Dataset, Records
from fedxray.data.split import Split, split
from fedxray.defences.base import Defence, NoDefence
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.federation.setting import Federation, buffers_from_data, in_dtype, try_defence
from fedxray.lookup import harmless_output
from fedxray.losses import default_loss
from fedxray.seeds import fork


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything about one run but its messages."""

    dataset: Dataset
    split: Split
    federation: Federation
    seed: int
    recorded: Mapping[str, Any] | None = None  # facts of the recording, where it is one

    @property
    def unknown(self) -> tuple[str, ...]:
        """The grants that cannot be given: the recipe, where a recording does not hold all of it."""
        return ("recipe",) if (self.recorded or {}).get("recipe_missing") else ()

    @functools.cached_property
    def data_buffers(self) -> tuple[str, ...]:
        """The buffers of the network that are filled from records and sent."""
        with harmless_output():
            return buffers_from_data(self.federation)


@harmless_output()
def prepare(plan: Plan, defence: str, seed: int, *, stated: Defence | None = None) -> Prepared:
    """Return the federation of one defence and one seed; `stated` replaces a defence of the user's."""
    if plan.transcript is not None:
        from fedxray.audit.recorded.prepare import prepare_recorded

        return prepare_recorded(plan, defence, seed, stated)
    with keys_of_data():
        dataset = load_data(plan, seed)
        parts = split(dataset, **split_arguments(plan.data, seed))
    check_loss(plan.federation.loss, dataset.space.target)
    model = plan.model.make(dataset.space, fork(seed, "model"), plan.folder)
    check_dtype(plan, model)
    model = model.to(dataset.x.dtype)

    record, part = plan.federation.record, plan.defence_of(defence)
    stated = stated if part.is_own else None
    federation = Federation(
        space=dataset.space,
        clients=tuple(map(dataset.records, parts.train)),
        holdout=tuple(map(dataset.records, parts.holdout)),
        others=tuple(map(dataset.records, parts.others)),
        public=dataset.records(parts.public),
        model=model,
        recipe=plan.federation.recipe(default_loss(dataset.space.target)),
        rounds=plan.federation.rounds,
        participation=plan.federation.participation,
        defence=stated or part.make(plan.folder),
        secure_aggregation=plan.federation.secure_aggregation,
        record=tuple(record) if isinstance(record, list) else record,
    )
    cast = in_dtype(federation, plan.federation.dtype)
    try_defence(cast, own=stated is None and part.factory is not None)
    return Prepared(dataset=dataset, split=parts, federation=cast, seed=seed)


def prepare_first(plan: Plan, seed: int | None = None) -> Prepared:
    """Return the first federation of a plan, or that of a seed, for its data: a defence of the user's is left out."""
    return prepare(plan, plan.defences[0].title, plan.seeds[0] if seed is None else seed, stated=NoDefence())


LOPSIDED = 0.8  # share of the commonest value from which plain accuracy says little


def primary_metrics(plan: Plan) -> dict[str, str]:
    """Return by attack the metric that carries its verdict, where it is not simply the main one of its kind.

    It is the plan's; for memberships it is by person where records have subjects; for attributes it is the balanced
    accuracy where nearly all public records have the same value.
    """
    kinds = {part.title: part.make(plan.folder).kind for part in plan.attacks}
    people = [title for title, kind in kinds.items() if kind == "membership" and plan.data.subject is not None]
    chosen = dict.fromkeys(people, "auc_subject")
    chosen |= {part.title: part.primary for part in plan.attacks if part.primary is not None}
    guessing = [title for title, kind in kinds.items() if kind == "attributes"]
    if set(guessing) <= chosen.keys():
        return chosen
    federation = prepare_first(plan).federation
    column, public = federation.space.column(federation.space.sensitive or ""), federation.public
    if column.kind == "continuous" or public is None or not len(public):
        return chosen
    known = public.x[:, list(column.positions)]  # [records, positions]
    commonest = float(torch.unique(known, dim=0, return_counts=True)[1].max()) / len(known)
    return dict.fromkeys(guessing, "balanced_accuracy") | chosen if commonest > LOPSIDED else chosen


def one_round(federation: Federation, clients: Sequence[Records], recipe: Recipe) -> Federation:
    """Return the federation with these clients and this recipe for a single round, without defence or held-out data."""
    short = replace(federation, clients=tuple(clients), holdout=(), recipe=recipe, defence=NoDefence())
    return replace(short, rounds=1, participation=1.0, record="all")


@contextmanager
def keys_of_data() -> Iterator[None]:
    """Name an argument in a refusal as the plan does: `target` of `load` and `split` is data.target there."""
    try:
        yield
    except BadInput as problem:
        if not (problem.argument.isidentifier() and problem.argument.islower()):
            raise
        raise problem.at(f"data.{problem.argument}") from problem


def check_loss(loss: str | None, target: str) -> None:
    """Refuse a loss that is not for this kind of target."""
    fitting = default_loss(target)
    if loss is not None and loss != fitting:
        expected = f"{fitting!r}, since the target is for {target}"
        remedy = "Leave loss out, or choose another target."
        raise BadInput("federation.loss", expected=expected, got=repr(loss), remedy=remedy)


def check_dtype(plan: Plan, model: nn.Module) -> None:
    """Refuse a user's network of another dtype than the plan's: casting it would audit another network."""
    wanted = plan.federation.dtype
    floats = [value for value in model.parameters() if value.is_floating_point()]
    odd = sorted({str(value.dtype).removeprefix("torch.") for value in floats} - {wanted})
    if plan.model.factory is not None and odd:
        raise BadInput(
            "federation.dtype",
            expected=f"a network of {wanted}, which is the plan's type",
            got=f"parameters of {', '.join(odd)} from {plan.model.factory}",
            remedy='Set dtype = "float64" in [federation].'
            if odd == ["float64"]
            else "Return a network of float32 or float64.",
        )


def load_data(plan: Plan, seed: int) -> Dataset:
    """Return the data set of a plan; generated data differ for every seed."""
    arguments = load_arguments(plan.data, plan.folder, seed)
    key = "schema" if arguments["path"] is None else "path"
    path = arguments[key]
    try:
        seen = () if path is None else stamp(path)
    except BadInput as problem:
        if problem.argument != "path":
            raise
        own_file = None if plan.file is None else (plan.folder / plan.file).absolute()
        raise missing_file(path, key, without=own_file) from problem
    return _loaded(json.dumps(arguments, default=str), seen)


def forget_data() -> None:
    """Read data sets from their files again."""
    _loaded.cache_clear()


@functools.lru_cache(maxsize=2)
def _loaded(arguments: str, seen: Stamp) -> Dataset:
    """Load a data set; the last two are cached by their arguments as JSON and the state of the user's files."""
    return load(**json.loads(arguments))
