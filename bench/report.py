"""Time and size of a report on 1,120 synthetic cases with charts, curves, images and guessed values.

The plain reference reads and writes results.json as JSON. The last line is
`report/json: R, N cases in X s of 20 s, Y MB of 30 MB`; more of either ends with exit 1.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from fedxray.report import build_report

SECONDS, MEGABYTES = 20.0, 30.0


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.report.synthetic import write_store

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        cases = len(write_store(folder, seeds=10, clients=7)["cases"])
        before, cpu = time.perf_counter(), time.process_time()
        report = build_report(folder)
        seconds, cpu = time.perf_counter() - before, time.process_time() - cpu
        before = time.process_time()
        json.dumps(json.loads((folder / "results.json").read_text(encoding="utf-8")))
        plain = time.process_time() - before
        size = report.stat().st_size / 1e6
        figures = len(list((folder / "figures").iterdir()))
    print(f"{figures} figures; {cpu:.1f} s of CPU, JSON alone {plain:.2f} s")
    print(
        f"report/json: {cpu / plain:.0f}, {cases:,} cases in {seconds:.1f} s of {SECONDS:.0f} s, "
        f"{size:.1f} MB of {MEGABYTES:.0f} MB"
    )
    return int(seconds > SECONDS or size > MEGABYTES)


if __name__ == "__main__":
    sys.exit(main())
