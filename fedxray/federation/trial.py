"""A defence tried out before a run: one local step of the first client on a few of its examples."""

from __future__ import annotations

import torch

from fedxray.errors import BadInput
from fedxray.federation.cohort import Job, train_one
from fedxray.federation.schedule import Schedule
from fedxray.federation.setting import Federation
from fedxray.naming import told
from fedxray.params import buffers_of, parameters_of
from fedxray.seeds import fork

EXAMPLES = 4  # also in pairs more than one, which BatchNorm needs


def try_defence(federation: Federation, *, own: bool) -> None:
    """Refuse what would break in the first step: an own defence, or a network that has no gradients of examples.

    Errors of an own defence come through as they are, for the caller to tell whose they are.
    """
    seams = federation.defence.seams(federation.work(0))
    if not own and seams.gradients is None:
        return
    records = federation.clients[0]
    job = Job(
        client=0,
        start=parameters_of(federation.model),
        buffers=buffers_of(federation.model),
        x=records.x,
        y=records.y,
        schedule=Schedule(torch.arange(min(EXAMPLES, len(records)), device="cpu")[None]),
        seams=seams,
        generator=fork(0, "defence tried out"),
    )
    try:
        train_one(federation.model, job, federation.recipe)
    except RuntimeError as error:
        if own:
            raise
        raise BadInput(
            "defence",
            expected="a network whose gradients can be taken example by example",
            got=told(error),
            remedy="Leave out recurrent layers and running statistics (track_running_stats = False), "
            'or use a defence with at = "update".',
        ) from error
