"""Clients that hold so many records each."""

from __future__ import annotations

from torch import Tensor

from fedxray.data.checks import whole_number
from fedxray.data.partition import Division
from fedxray.errors import BadInput


def sizes_in_turn(task: Division, *, sizes: object = ()) -> list[Tensor]:
    """A random order, cut into these sizes, which are repeated as often as there are clients; the rest has no use.

    The order does not depend on the sizes: divisions of equal total divide the same records.
    """
    if not isinstance(sizes, list | tuple) or not sizes:
        raise BadInput(
            "sizes",
            expected="a list of how many records each client holds",
            got=repr(sizes),
            remedy="For instance sizes = [21, 11]: every other client holds 11.",
        )
    turn = [whole_number("sizes", size) for size in sizes]
    wanted = [turn[client % len(turn)] for client in range(task.clients)]
    if sum(wanted) > len(task.members):
        raise BadInput(
            "sizes",
            expected=f"at most {len(task.members)} records in all",
            got=sum(wanted),
            remedy="Use smaller sizes, fewer clients, or a smaller public share.",
        )
    return list(task.shuffled("sizes")[: sum(wanted)].split(wanted))
