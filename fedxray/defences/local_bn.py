"""Local BatchNorm (FedBN, Li et al. 2021): statistics of BatchNorm layers never leave the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedxray.defences.base import Defence, Hooks, Kept, Work
from fedxray.settings import setting


@dataclass(frozen=True, kw_only=True)
class LocalBn(Defence):
    """Running statistics of BatchNorm layers stay with the client, or these and the layers' scales and shifts.

    Every client continues with its own in the next round, so each has its own model, with which utility is measured.
    The update of what stays is sent as zeros.
    """

    name: ClassVar[str] = "local-bn"

    keep: Literal["statistics", "statistics-and-affine"] = setting(
        "statistics", "What stays with the client: running statistics, or these and the layers' scales and shifts."
    )

    def hooks(self, work: Work) -> Hooks:
        """Change nothing; name what stays with the client."""
        return Hooks(kept=Kept(params=work.norm_params if self.keep == "statistics-and-affine" else ()))

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        affine = ", their scales and shifts" if self.keep == "statistics-and-affine" else ""
        return f"BatchNorm statistics{affine} stay with the client"
