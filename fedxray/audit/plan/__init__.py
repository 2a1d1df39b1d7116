"""Plans: what to audit, written as TOML."""

from __future__ import annotations

from fedxray.audit.plan.read import make_plan, read_plan
from fedxray.audit.plan.schema import AttackPart, Plan, load_arguments, split_arguments

__all__ = ["AttackPart", "Plan", "load_arguments", "make_plan", "read_plan", "split_arguments"]
