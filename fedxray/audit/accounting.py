"""Privacy claims: what a defence promises to one record or one client, by dp-sgd, Flower's LocalDpMod, NVFlare's SVT.

They are worked out from settings alone, or for the defence of a run. Settings have the names of the frameworks. Every
claim is accounted for one round and for all of them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedxray.audit.judge.claims import Claim, Row, spell
from fedxray.audit.judge.results import privacy_words
from fedxray.errors import BadInput, printable, unknown_key
from fedxray.metrics.epsilon import gaussian_epsilon, gaussian_mu, laplace_epsilon

if TYPE_CHECKING:
    from fedxray.defences.base import Defence

RECORD, CLIENT = "one record", "one client"  # what is protected


def work_out(name: str, settings: Sequence[str]) -> list[Claim]:
    """Return the claims of a filter from settings written as key=value."""
    worker = ACCOUNTED[name]
    known = inspect.signature(worker).parameters
    given: dict[str, float] = {}
    for text in settings:
        key, _, value = text.partition("=")
        if key not in known:
            raise unknown_key(key, key, known)
        given[key] = number(key, value)
    missing = [key for key, entry in known.items() if entry.default is inspect.Parameter.empty and key not in given]
    if missing:
        remedy = f"Add {missing[0]}=NUMBER; {name} takes {', '.join(known)}."
        raise BadInput(missing[0], expected="a number", got="nothing", remedy=remedy)
    return worker(**given)


def number(key: str, text: str) -> float:
    """Return a positive number that was given as text."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise BadInput(key, expected="a number above 0", got=repr(text), remedy=f"For instance {key}=1.")
    return value


def _whole(key: str, value: float) -> int:
    if value != int(value):
        raise BadInput(key, expected="a whole number", got=value, remedy=f"For instance {key}={math.ceil(value)}.")
    return int(value)


def _share(key: str, value: float) -> float:
    if value >= 1:
        raise BadInput(key, expected="a number above 0 and below 1", got=value, remedy=f"For instance {key}=1e-5.")
    return value


def local_dp(
    *, clipping_norm: float, sensitivity: float, epsilon: float, delta: float, rounds: float = 1
) -> list[Claim]:
    """Return the claims of Flower's LocalDpMod: clipping, then noise for the stated sensitivity and epsilon."""
    delta, count = _share("delta", delta), _whole("rounds", rounds)
    deviation = sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    faults = []
    if not sensitivity:
        faults.append("For a sensitivity of 0 there is no noise, so that no epsilon holds.")
    elif sensitivity < clipping_norm:
        times = spell(clipping_norm / sensitivity)
        faults.append(f"The noise is for a sensitivity of {sensitivity:g}, but an update may be {times} times as long.")
    if epsilon > 1:
        faults.append("The formula of the noise is proven for epsilon up to 1 only.")
    if count > 1:
        faults.append(f"Epsilon is spent anew in each of {count} rounds.")
    needed = clipping_norm * math.sqrt(count) / gaussian_mu(epsilon, delta)
    if sensitivity and needed > deviation * 1.01:
        more = spell(needed / deviation)
        faults.append(f"Epsilon {epsilon:g} needs a standard deviation of {needed:.3g}, {more} times the present one.")

    def claim(size: float, over: int, how: str, faults: Sequence[str] = ()) -> Claim:
        return Claim(
            subject="flower-local-dp",
            unit=CLIENT,
            delta=delta,
            rounds=over,
            configured=epsilon,
            accounted=gaussian_epsilon(size * math.sqrt(over) / deviation if deviation else math.inf, delta),
            how=how,
            faults=tuple(faults),
        )

    clipped, stated = "exact, by the clipping norm", "exact, if the sensitivity were true"
    claims = [claim(sensitivity, over, stated) for over in sorted({1, count}) if sensitivity < clipping_norm]
    claims += [claim(clipping_norm, over, clipped) for over in sorted({1, count} - {count})]
    return [*claims, claim(clipping_norm, count, clipped, faults)]


def svt(
    *,
    numbers: float,
    fraction: float = 0.1,
    epsilon: float = 0.1,
    noise_var: float = 0.1,
    delta: float = 1e-5,
    rounds: float = 1,
) -> list[Claim]:
    """Return the claims of NVFlare's SVTPrivacy for an update of `numbers` numbers; defaults are NVFlare's."""
    delta, count = _share("delta", delta), _whole("rounds", rounds)
    if fraction > 1:
        raise BadInput("fraction", expected="a share up to 1", got=fraction, remedy="NVFlare's default is 0.1.")
    sent = math.ceil(fraction * _whole("numbers", numbers))
    fault = (
        f"Epsilon {epsilon:g} covers the choice of numbers alone: each of the {sent:,} values that are sent costs "
        f"{noise_var:g} more."
    )
    again = [] if count == 1 else [f"All of it is spent anew in each of {count} rounds."]

    def claim(over: int, accounted: float, how: str, delta: float, faults: Sequence[str] = ()) -> Claim:
        return Claim(
            subject="nvflare-svt",
            unit=CLIENT,
            delta=delta,
            rounds=over,
            configured=epsilon,
            accounted=accounted,
            how=how,
            faults=tuple(faults),
        )

    own = "as its own accountant adds up"
    claims = [claim(over, over * (epsilon + sent * noise_var), own, 0.0) for over in sorted({1, count})]
    tight = [over * epsilon + laplace_epsilon(over * sent, noise_var, delta) for over in sorted({1, count})]
    claims += [claim(over, tight[0], "by RDP of Laplace noise", delta) for over in [1] if count > 1]
    return [*claims, claim(count, tight[-1], "by RDP of Laplace noise", delta, [fault, *again])]


def dp_sgd(
    *,
    examples: float,
    batch_size: float,
    rounds: float,
    epochs: float = 1,
    delta: float = 1e-5,
    epsilon: float = 0,
    noise_multiplier: float = 0,
) -> list[Claim]:
    """Return the claim of dp-sgd by Opacus' accountants: noise for `epsilon`, or the one that is given beside it."""
    from fedxray.defences.dp_sgd import best_epsilon, noise_for  # imports torch

    delta, count = _share("delta", delta), _whole("rounds", rounds)
    if not epsilon and not noise_multiplier:
        remedy = "Add epsilon=10, or noise_multiplier=1.0, or both to compare them."
        raise BadInput("epsilon", expected="epsilon, noise_multiplier or both", got="neither", remedy=remedy)
    batches = math.ceil(_whole("examples", examples) / min(_whole("batch_size", batch_size), examples))
    steps = batches * _whole("epochs", epochs) * count
    noise = noise_multiplier or noise_for(epsilon, delta, 1 / batches, steps)
    accounted, accountant = best_epsilon(noise, 1 / batches, steps, delta)
    how = f"accountant {accountant}: {steps:,} steps, sampling rate 1/{batches}, noise multiplier {noise:.3g}"
    faults = []
    if epsilon and accounted > 1.01 * epsilon:
        needed = noise_for(epsilon, delta, 1 / batches, steps)
        faults = [f"An epsilon of {epsilon:g} needs a noise multiplier of {needed:.3g}."]
    return [
        Claim(
            subject="dp-sgd",
            unit=RECORD,
            delta=delta,
            rounds=count,
            configured=epsilon or None,
            accounted=accounted,
            how=how,
            faults=tuple(faults),
        )
    ]


ACCOUNTED: Mapping[str, Callable[..., list[Claim]]] = {
    "dp-sgd": dp_sgd,
    "flower-local-dp": local_dp,
    "nvflare-svt": svt,
}


# Claims of a run


def claim_rows(defence: Defence, promise: Mapping[str, Any] | None, rounds: int, numbers: int) -> list[Row]:
    """Return what a defence claims in a run, one row of results.json for each unit of protection.

    `promise` is the weakest one to any record, `rounds` those of the client with the most, `numbers` the length of an
    update. Of several claims to one unit the strictest is kept.
    """
    from fedxray.defences.dp_sgd import DpSgd  # imports torch
    from fedxray.defences.joined import Joined
    from fedxray.defences.stock import FlowerLocalDp, NvflareSvt

    claims = []
    for part in defence.parts if isinstance(defence, Joined) else (defence,):
        if isinstance(part, FlowerLocalDp) and rounds:
            claims.append(local_dp(**asdict(part), rounds=rounds)[-1])
        elif isinstance(part, NvflareSvt) and rounds:
            budgets = {"fraction": part.fraction, "epsilon": part.epsilon, "noise_var": part.noise_var}
            claims.append(svt(numbers=numbers, rounds=rounds, **budgets)[-1])
        elif promise is not None and isinstance(part, DpSgd):
            claims.append(_of_promise(promise, part.epsilon))
    if promise is not None and all(claim.unit != RECORD for claim in claims):  # of a user's own defence
        claims.append(_of_promise(promise, None))
    claims.sort(key=lambda claim: math.inf if claim.configured is None else claim.configured, reverse=True)
    keys = ("delta", "rounds", "configured", "accounted", "how", "faults")
    rows = {claim.unit: {key: getattr(claim, key) for key in keys} for claim in claims}
    return [{"defence": defence.name, "unit": unit.removeprefix("one "), **row} for unit, row in rows.items()]


def _of_promise(promise: Mapping[str, Any], configured: float | None) -> Claim:
    return Claim(
        subject="",
        unit=RECORD,
        delta=promise["delta"],
        rounds=promise["rounds"],
        configured=configured,
        accounted=promise["epsilon"],
        how=privacy_words(promise),
    )


def claim_lines(claims: Sequence[Claim]) -> list[str]:
    """Return a table of the claims side by side, and their sentences."""
    heads = ["claim", "protected", "delta", "rounds", "configured", "accounted", "measured"]
    rows = [
        [
            printable(claim.subject),
            claim.unit,
            f"{claim.delta:g}",
            "?" if claim.rounds is None else str(claim.rounds),
            claim.shown(claim.configured),
            claim.shown(claim.accounted),
            _measured(claim),
        ]
        for claim in claims
    ]
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [heads, *rows]]
    printed = lines[:1]
    for claim, line in zip(claims, lines[1:], strict=True):
        printed.append(line)
        printed += [f"  accounted: {claim.how}"] if claim.how else []
        printed += [f"  measured: {claim.bounds}"] if claim.measured else []
        printed += [f"  {claim.sentence}"] if claim.sentence else []
    return [line.rstrip() for line in printed]


def _measured(claim: Claim) -> str:
    lows = [row["low"] for row in claim.measured if row["low"] is not None]
    return f"at least {spell(max(lows))}" if lows else "not measured"
