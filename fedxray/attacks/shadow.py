"""A shadow client: records whose answer the attacker knows, trained as the target's from the models it was sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from fedxray.adversary.view import Observation, View
from fedxray.attacks.update_algebra import step_length
from fedxray.data.dataset import Records, union
from fedxray.defences.base import IDENTITY, Hooks, Work
from fedxray.federation.local import Batch, local_update, objective
from fedxray.federation.recipe import draw_by_chance, draw_schedule
from fedxray.models.inspect import batch_norm_layers
from fedxray.seeds import fork


def shadow_replies(
    view: View, rounds: Sequence[Observation], records: Records, examples: int, generator: torch.Generator
) -> list[Observation]:
    """Return what a client with these records would have replied in these rounds, by the granted recipe and defence.

    Records that it lacks to `examples` are drawn from the public ones, where there are any.
    """
    recipe = view.grants.recipe
    assert recipe is not None
    held = filled_up(records, view.grants.public_records, examples, fork(generator, "more records"))
    hooks, evaluate = hooks_of(view, len(held)), objective(view.model, view.loss)
    replies = []
    for seen in rounds:
        when = "always" if recipe.shuffle == "once" else seen.round
        draw = fork(generator, "schedule", when)
        sampling, steps = hooks.sampling, recipe.steps(len(held))
        schedule = (
            draw_schedule(len(held), recipe, draw)
            if sampling is None
            else draw_by_chance(steps, len(held), sampling, fork(generator, "chance", seen.round))
        )
        batches = [Batch(x=held.x[used], y=held.y[used]) for used in (row.to(held.x.device) for row in schedule.rows())]
        source = fork(generator, "defence", seen.round)
        reply = local_update(seen.start, seen.buffers, batches, recipe, evaluate, hooks=hooks, generator=source)
        replies.append(replace(seen, update=reply.update, buffers_after=reply.buffers))
    return replies


def filled_up(records: Records, public: Records | None, examples: int, generator: torch.Generator) -> Records:
    """Return the records with public ones added up to that number, drawn with replacement."""
    lacking = examples - len(records)
    if lacking <= 0 or public is None or not len(public):
        return records
    drawn = torch.randint(len(public), (lacking,), generator=generator, device="cpu")
    return union((records, public.take(drawn.to(public.x.device))))


def known_step(view: View, examples: int) -> float | None:
    """Return the length of one record's gradient in an update.

    None where the recipe is not known, or where the defence is known to change the length of updates.
    """
    recipe, known = view.grants.recipe, hooks_of(view, examples).known
    changed = known is not None and (known.cut or known.replay.outgoing is not None)
    return None if recipe is None or changed else step_length(recipe, examples)


def hooks_of(view: View, examples: int) -> Hooks:
    """Return the hooks of the granted defence; the number of rounds is that of the observed ones."""
    defence, recipe = view.grants.defence, view.grants.recipe
    if defence is None or recipe is None:
        return IDENTITY
    norms = batch_norm_layers(view.model)
    names = [name for name, value in view.model.named_parameters() if value.requires_grad]
    work = Work(
        examples=examples,
        batch_size=recipe.batch_length(examples),
        steps=recipe.steps(examples),
        rounds=1 + view.indexed.rounds[-1],
        classes=view.space.outputs if view.space.target == "classification" else None,
        norm_params=tuple(name for name in names if name.rpartition(".")[0] in norms),
    )
    return defence.hooks(work)
