"""Peak memory of this process, and CPU times of several ways to do the same, measured in turns."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping


def peak_megabytes() -> float:
    """Return the largest resident size so far (Linux reports kilobytes, macOS bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def cpu_seconds(
    ways: Mapping[str, Callable[[], object]], repeats: int, *, of: Callable[[list[float]], float], warm_up: bool = True
) -> dict[str, float]:
    """Return CPU seconds of each way, in turns so that a slow moment hits all of them; `of` is min or median."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values() if warm_up else ():
        way()
    for _ in range(repeats):
        for name, way in ways.items():
            begin = time.process_time()
            way()
            times[name].append(time.process_time() - begin)
    return {name: of(values) for name, values in times.items()}
