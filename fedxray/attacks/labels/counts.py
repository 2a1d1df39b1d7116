"""From raw label counts, which may be broken or negative, to whole ones that sum to the number of examples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedxray.attacks.evidence import Evidence, of_label_counts


def rounded_counts(raw: Tensor, examples: int) -> Tensor:
    """Whole counts >= 0 [classes] that sum to `examples`, rounded as the authors of DLF do.

    Counts are cut to whole numbers, negative ones to 0. What is missing goes to the largest remainders. What is too
    much is taken off the smallest remainders among classes above 0, then off the largest counts.
    """
    most = raw.double().clamp(min=-examples, max=2 * examples)
    whole = most.floor().clamp(min=0).to(torch.int64)
    remainder = most - whole
    missing = examples - int(whole.sum())
    if missing >= 0:
        everyone, rest = divmod(missing, len(whole))
        whole += everyone
        whole[remainder.argsort(descending=True, stable=True)[:rest]] += 1
        return whole
    above = whole.nonzero()[:, 0]
    whole[above[remainder[above].argsort(stable=True)][:-missing]] -= 1
    return _levelled(whole, examples)


def _levelled(counts: Tensor, total: int) -> Tensor:
    """The counts with the largest cut down, one by one, until they sum to no more than the total."""
    if int(counts.sum()) <= total:
        return counts
    low, high = 0, int(counts.max())  # the highest level that does not leave too many
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if int(counts.clamp(max=level).sum()) <= total else (low, level - 1)
    cut = counts.clamp(max=low)
    cut[(counts > low).nonzero()[: total - int(cut.sum()), 0]] += 1
    return cut


def evidence_of(raw: Tensor, examples: int, facts: dict[str, Any], doubt: str = "") -> Evidence:
    """The rounded counts, or an even guess that is marked as undetermined where there is a doubt or no number."""
    if not doubt and not bool(torch.isfinite(raw).all()):
        doubt = "the update is not finite"
    if doubt:
        even = rounded_counts(torch.full_like(raw, examples / len(raw)), examples)
        return of_label_counts(even, status="undetermined", reason=doubt, facts=facts)
    return of_label_counts(rounded_counts(raw, examples), facts=facts)
