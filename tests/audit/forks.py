"""Work in a forked process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable


def start(work: Callable[[], object]) -> int:
    """The id of a forked process that does the work."""
    with warnings.catch_warnings():  # newer Pythons warn of threads, which the child does not use
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child
