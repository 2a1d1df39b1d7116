"""A descent that can end early or go on from where a shorter one was kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from fedxray.attacks.evidence import Evidence
from fedxray.methods import Method, Tensors
from fedxray.minimise import Keep, Loss, Outcome, Project, Restarts, minimise, restarts
from fedxray.progress import Report

STATE = "state/"  # names of tensors that a descent goes on from


def descend(
    loss: Loss,
    starts: Sequence[Tensors],
    method: Method,
    *,
    report: Report,
    project: Project | None,
    what: str,
    keep: Keep,
    give_up: tuple[int, float] | None,
    state: Tensors | None,
) -> Restarts:
    """Minimise from every start; with a state or a limit from the only one, on from there or until it is hopeless."""
    if give_up is None and state is None:
        return restarts(loss, starts, method, report=report, project=project, what=what, keep=keep)

    def go_on(state: Tensors | None, budget: int | None) -> Outcome:
        return minimise(
            loss, starts[0], method, report=report, project=project, budget=budget, state=state, what=what
        )

    done = 0 if state is None else int(state["step"])
    if give_up is not None and give_up[0] < method.steps:
        first = go_on(state, max(0, give_up[0] - done))  # what was kept may have come further already
        if first.status != "truncated" or min(first.curve[: give_up[0] + 1]) > give_up[1]:
            return Restarts(outcomes=(first,), chosen=0)
        state = first.state
    return Restarts(outcomes=(go_on(state, None),), chosen=0)


def with_state(evidence: Evidence, end: Outcome) -> Evidence:
    """The evidence with what is needed to go on, copied: files hold no two tensors of one memory."""
    kept = {f"{STATE}{name}": value.clone() for name, value in end.state.items()}
    return replace(evidence, tensors={**evidence.tensors, **kept})


def state_of(evidence: Evidence) -> dict[str, Tensor] | None:
    """What a kept descent goes on from; None where it came to an end by itself."""
    found = {
        name.removeprefix(STATE): value for name, value in evidence.tensors.items() if name.startswith(STATE)
    }
    return found or None
