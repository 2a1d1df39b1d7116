"""Local BatchNorm (FedBN, Li et al. 2021): what BatchNorm layers learn of the data never leaves the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedxray.defences.base import Defence, Kept, Seams, Work
from fedxray.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class LocalBn(Defence):
    """Running statistics of BatchNorm layers stay with the client, or these and the layers' scales and shifts.

    Every client goes on from its own in the next round, so each has a model of its own and utility is measured with
    that. The update of what stays is sent as zeros.
    """

    name: ClassVar[str] = "local-bn"
    keep: Literal["statistics", "statistics-and-affine"] = "statistics"

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.keep not in ("statistics", "statistics-and-affine"):
            expected = 'one of "statistics", "statistics-and-affine"'
            raise BadInput("keep", expected=expected, got=repr(self.keep), remedy='Try "statistics".')

    def seams(self, work: Work) -> Seams:
        """Nothing is changed on its way; what stays is named."""
        return Seams(kept=Kept(params=work.norm_params if self.keep == "statistics-and-affine" else ()))

    def describe(self) -> str:
        """One line for the ledger and the report."""
        affine = ", their scales and shifts" if self.keep == "statistics-and-affine" else ""
        return f"BatchNorm statistics{affine} stay with the client"
