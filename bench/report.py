"""How long a report takes and how large it is: 1,120 made-up cases with charts, curves, pictures and guessed values.

The last line is `report of N cases: X s of 20 s, Y MB of 30 MB`; more of either ends with exit 1.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from fedxray.report import build_report

SECONDS, MEGABYTES = 20.0, 30.0


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.report.synthetic import write_store

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        cases = len(write_store(folder, seeds=10, clients=7)["cases"])
        before, worked = time.perf_counter(), time.process_time()
        report = build_report(folder)
        seconds, worked = time.perf_counter() - before, time.process_time() - worked
        size = report.stat().st_size / 1e6
        figures = len(list((folder / "figures").iterdir()))
    print(f"{figures} figures; {worked:.1f} s of the processor")
    print(
        f"report of {cases:,} cases: {seconds:.1f} s of {SECONDS:.0f} s, {size:.1f} MB of {MEGABYTES:.0f} MB"
    )
    return int(seconds > SECONDS or size > MEGABYTES)


if __name__ == "__main__":
    sys.exit(main())
