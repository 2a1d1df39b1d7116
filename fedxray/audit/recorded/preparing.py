"""From a plan with [transcript] to the recorded run: its messages, the node's own records, and the recipe."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedxray.attacks.predict import losses
from fedxray.audit.plan import Plan, split_arguments
from fedxray.audit.prepare import Prepared, check_loss, keys_of_data, load_data
from fedxray.audit.recorded.layers import layer_facts
from fedxray.audit.recorded.owner import owner_of
from fedxray.audit.recorded.recipe import Told, listed, span, told_recipe
from fedxray.audit.recorded.search import Search, find_recipe
from fedxray.audit.recorded.whole import whole_facts
from fedxray.data import Dataset, Split, split
from fedxray.data.records import Records
from fedxray.data.uses import USE, rows_by_use
from fedxray.errors import BadInput
from fedxray.federation.recording.form import ARRAYS, MESSAGES
from fedxray.federation.recording.reading import Recording, read_recording
from fedxray.federation.recording.transcribe import (
    Chosen,
    check_fit,
    choose,
    transcribe,
    with_frozen,
)
from fedxray.federation.round_loop import Federation, in_dtype
from fedxray.federation.transcript import Transcript
from fedxray.losses import default_loss, example_loss
from fedxray.params import Params
from fedxray.seeds import fork

MOST_TRIED = 10  # rounds


def prepare_recorded(plan: Plan, defence: str, seed: int) -> Prepared:
    """The recorded run as a federation of the node alone."""
    chosen = chosen_of(plan)
    with keys_of_data():
        dataset = load_data(plan, seed)
        parts = parts_of(plan, dataset, chosen, seed)
    check_loss(plan.federation.loss, dataset.space.target)
    model = plan.model.make(dataset.space, fork(seed, "model"), plan.folder).to(dataset.x.dtype)
    assert plan.transcript is not None
    check_fit(chosen, model, widen=plan.transcript.widen)
    owner = owner_of(plan, chosen)
    told = told_recipe(plan, chosen)

    def records(index: torch.Tensor) -> Records:
        return Records(dataset.x[index], dataset.y[index])

    federation = Federation(
        space=dataset.space,
        clients=(records(parts.train[0]),),
        holdout=(records(parts.holdout[0]),),
        public=records(parts.public),
        model=with_frozen(model, chosen),
        recipe=told.part.recipe(default_loss(dataset.space.target)),
        rounds=chosen.rounds[-1] + 1,
        defence=plan.defence_of(defence).make(plan.folder),
        secure_aggregation=hidden(plan, chosen),
        record=tuple(chosen.rounds),
    )
    cast = in_dtype(federation, plan.federation.dtype)
    _check_examples(plan, chosen, len(parts.train[0]))
    facts = facts_of(chosen, told) | layer_facts(chosen, model)
    counts = [len(parts.train[0]), len(parts.holdout[0]), len(parts.public)]
    facts |= {"rounds_asked": plan.transcript.rounds, "owner": owner, "records": counts}
    prepared = Prepared(dataset=dataset, split=parts, federation=cast, seed=seed, recorded=facts)
    found = _with_found_recipe(plan, prepared)
    return replace(found, recorded={**(found.recorded or {}), "learnt": list(rounds_learnt(plan, found))})


def _with_found_recipe(plan: Plan, prepared: Prepared) -> Prepared:
    """The same with candidates of the plan judged, where they are all that is missing."""
    assert plan.transcript is not None and prepared.recorded is not None
    grid = {} if plan.transcript.recipe is None else plan.transcript.recipe.grid
    missing = [name for name in prepared.recorded["recipe_missing"] if name not in grid]
    if not grid or missing:
        return prepared
    key = (plan.digest(), chosen_of(plan).recording.digest(), prepared.seed)
    if key not in _found:  # a process prepares the same run several times
        _found.clear()
        transcript = recorded_transcript(plan, prepared)
        _found[key] = find_recipe(transcript, prepared.federation.recipe, grid, prepared.seed)
    search = _found[key]
    recipe = replace(prepared.federation.recipe, **search.chosen)
    facts = {**prepared.recorded, "recipe_searched": search.facts()}
    if search.chosen:
        facts["recipe_missing"] = []
    return replace(prepared, federation=replace(prepared.federation, recipe=recipe), recorded=facts)


_found: dict[tuple[str, str, int], Search] = {}


def recorded_transcript(plan: Plan, prepared: Prepared) -> Transcript:
    """What was said, as the plan's network sees it."""
    assert plan.transcript is not None
    federation = prepared.federation
    return transcribe(
        chosen_of(plan),
        model=federation.model,
        space=federation.space,
        recipe=federation.recipe,
        secure_aggregation=federation.secure_aggregation,
        widen=plan.transcript.widen,
        examples=plan.transcript.examples == "same",
    )


def rounds_learnt(plan: Plan, prepared: Prepared) -> tuple[int, int]:
    """In how many of the last recorded rounds the node's training lowered the loss on its records, and of how many.

    Records that were not trained on, or not as the network got them, show here before any attack is run.
    """
    transcript, truth = recorded_transcript(plan, prepared), prepared.federation.truth(prepared.seed)
    replies = [one for one in transcript.messages if one.what == "reply"][-MOST_TRIED:]
    fell, records = 0, truth.train[0]
    for reply in replies:
        sent, back = transcript.shelf.get(f"sent/{reply.round}"), transcript.shelf.get(reply.parts)
        step = 1.0 if reply.kind == "weights" else _short_step(sent.params, back.params)
        ends = {name: value + step * back.params[name] for name, value in sent.params.items()}
        before, after = (
            float(
                losses(
                    truth.model, params, buffers, records.x, records.y, example_loss(truth.recipe.loss)
                ).mean()
            )
            for params, buffers in ((sent.params, sent.buffers), (ends, back.buffers or sent.buffers))
        )
        fell += after < before
    return fell, len(replies)


def _short_step(params: Params, direction: Params) -> float:
    """How far to follow a gradient so that the network moves by a thousandth of its own size."""
    size, length = (
        float(sum(value.double().square().sum() for value in one.values())) for one in (params, direction)
    )
    return float(1e-3 * (size / length) ** 0.5) if length > 0 else 0.0


def recording_path(plan: Plan) -> Path:
    """Where the recording lies."""
    assert plan.transcript is not None
    return (plan.folder / os.path.expanduser(plan.transcript.path)).absolute()


def chosen_of(plan: Plan) -> Chosen:
    """The messages of the plan's node."""
    assert plan.transcript is not None
    node, run = plan.data.node, plan.transcript.run
    recording = _read(str(recording_path(plan)), _stamp(recording_path(plan)))
    whole = choose(recording, node=None if node is None else str(node), run=None if run is None else str(run))
    return _of_rounds(whole, plan.transcript.rounds)


def _of_rounds(chosen: Chosen, asked: str | list[int] | None) -> Chosen:
    """Only what was said in the rounds that the plan asks for."""
    if asked is None:
        return chosen
    if isinstance(asked, str):
        first, last = (int(number) for number in asked.split(" to "))
        wanted = {round for round in chosen.rounds if first <= round <= last}
    else:
        wanted = set(asked)
    if not wanted or not wanted <= set(chosen.rounds):
        raise BadInput(
            "transcript.rounds",
            expected=f"rounds of the recording ({span(chosen.rounds)}, the first is 0)",
            got=asked,
            remedy="Leave out those that are missing.",
        )
    return replace(
        chosen,
        trained={round: one for round, one in chosen.trained.items() if round in wanted},
        ended={round: one for round, one in chosen.ended.items() if round in wanted},
    )


@functools.lru_cache(maxsize=2)
def _read(path: str, stamp: tuple[int, ...]) -> Recording:
    """The last recordings, by their path and how they were then."""
    return read_recording(path)


def _stamp(path: Path) -> tuple[int, ...]:
    """A mark that changes when messages, arrays or notes are added."""
    places = [path, path / MESSAGES, path / ARRAYS]
    return tuple(place.stat().st_mtime_ns for place in places if place.is_dir())


def hidden(plan: Plan, chosen: Chosen) -> bool:
    """Whether single replies were hidden from the server."""
    return plan.federation.secure_aggregation or any(heard.secure for heard in chosen.trained.values())


def parts_of(plan: Plan, dataset: Dataset, chosen: Chosen, seed: int) -> Split:
    """Which records the node trained on, held out, and which belong to nobody."""
    if USE in dataset.raw:
        train, held, public = rows_by_use(dataset.raw[USE])
        return Split(train=(train,), holdout=(held,), public=public, names=("",))
    if plan.data.clients == 1 and plan.data.path is not None:
        every = torch.arange(len(dataset), device="cpu")
        return Split(train=(every,), holdout=(every[:0],), public=every[:0], names=("",))
    whole = split(dataset, **split_arguments(plan.data, seed))
    client = _client(plan, chosen)
    return Split(
        train=(whole.train[client],),
        holdout=(whole.holdout[client],),
        public=whole.public,
        names=(whole.names[client],),
    )


def _client(plan: Plan, chosen: Chosen) -> int:
    """Which client of a divided data set the node was."""
    assert plan.transcript is not None
    given = plan.transcript.client
    noted = {heard.partition for heard in chosen.trained.values()} - {None}
    client = given if given is not None else next(iter(noted), None)
    if plan.data.clients == 1 and client is None:
        client = 0
    if client is None or client >= plan.data.clients or (given is not None and noted and noted != {given}):
        expected = f"a client of [data] from 0 to {plan.data.clients - 1}"
        raise BadInput(
            "transcript.client",
            expected=expected + (f"; the node recorded partition {listed(noted)}" if noted else ""),
            got="nothing" if client is None else client,
            remedy="Say which of the clients this node was.",
        )
    return client


def _check_examples(plan: Plan, chosen: Chosen, count: int) -> None:
    """The records must be as many as the node said it trained on."""
    assert plan.transcript is not None
    reported = {heard.examples for heard in chosen.trained.values() if heard.examples is not None}
    if plan.transcript.examples == "same" and reported - {count}:
        raise BadInput(
            "data",
            expected=f"the records that the node trained on, {listed(reported)} as it reported",
            got=f"{count}",
            remedy='Give exactly these (others by use = "..."), or set examples = "any" in [transcript] '
            "where the node counts otherwise.",
        )


def facts_of(chosen: Chosen, told: Told) -> dict[str, Any]:
    """What must be known of a recording to read its results."""
    return {
        "side": chosen.recording.side,
        "node": chosen.node,
        "rounds": chosen.rounds,
        **whole_facts(chosen),
        "recipe_heard": list(told.heard),
        "recipe_missing": list(told.missing),
        "recipe_varied": dict(told.varied),
        "recipe_doubted": dict(told.doubted),
    }
