"""Numbered points at which a test can kill the process, to prove that an audit survives it."""

from __future__ import annotations

import os
import signal

VARIABLE = "FEDXRAY_FAULT"  # the number of the point that kills; unset outside tests
POINTS = (
    "run started",
    "run written",
    "run synced",
    "run in place",
    "case written",
    "case synced",
    "case in place",
    "evidence tensors in place",
    "evidence in place",
    "results written",
    "results synced",
    "results in place",
)


def fault(point: str) -> None:
    """Die here at once, without any clean-up, if this point is armed."""
    if point in POINTS and os.environ.get(VARIABLE) == str(POINTS.index(point) + 1):
        os.kill(os.getpid(), signal.SIGKILL)
