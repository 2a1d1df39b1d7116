"""Results in, one self-contained HTML file or a few lines for the terminal out."""

from __future__ import annotations

from fedxray.report.build import build_report
from fedxray.report.rows import placed
from fedxray.report.terminal import print_summary, summary_lines

__all__ = ["build_report", "placed", "print_summary", "summary_lines"]
