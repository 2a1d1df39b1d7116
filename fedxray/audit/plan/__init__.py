"""Plans: what to audit, written as TOML."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedxray.audit.plan.read import make_plan, read_plan
    from fedxray.audit.plan.schema import AttackPart, Plan, load_arguments, split_arguments

__all__ = ["AttackPart", "Plan", "load_arguments", "make_plan", "read_plan", "split_arguments"]


def __getattr__(name: str) -> Any:
    """Import the forms of a plan late, so that a report, which reads none, does not wait for them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "read" if name in ("make_plan", "read_plan") else "schema"
    return getattr(importlib.import_module(f"fedxray.audit.plan.{module}"), name)
