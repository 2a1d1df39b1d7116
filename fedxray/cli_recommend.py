"""`fedxray recommend`: what it prints and how it ends."""

from __future__ import annotations

from pathlib import Path

from fedxray.audit.recommend import Recommendation, Setting, recommend

NONE_HOLDS = 1
DOUBT = "A limit that it keeps rests on an attack that may have seen nothing: see the doubts above."
CAUTION = (
    "It was chosen on the measurements that it is judged by, which flatters it a little: "
    "confirm it with other seeds before you rely on it."
)


def run_recommend(folder: Path, policy: Path | None = None) -> int:
    """Print every setting and the recommended one; returns the exit code."""
    from fedxray.audit.gate import read_policy
    from fedxray.audit.results import read

    found = recommend(read(folder), None if policy is None else read_policy(policy))
    for line in lines(found):
        print(line)
    return 0 if found.chosen is not None else NONE_HOLDS


def lines(found: Recommendation) -> list[str]:
    """What is printed: the limits, the settings, the choice."""
    text = ["Limits (upper end of the 95 % interval, worst attacker):"]
    text += [f"  {limit}" for limit in found.limits]
    width = max(len(one.defence) for one in found.settings) + 2 if found.settings else 2
    text.append("Settings:")
    for one in found.settings:
        text.append(f"  {one.defence:<{width}}{'holds' if one.holds else 'breaks':<8}{_worth(one)}".rstrip())
        text += [f"  {'':<{width}}{'':<8}{reason}" for reason in one.broken]
        text += [f"  {'':<{width}}{'':<8}doubt: {reason}" for reason in one.doubts if one.holds]
    if found.chosen is None:
        return [*text, "Recommended: none; no setting keeps every limit."]
    doubtful = [DOUBT] if found.chosen.doubts else []
    return [*text, f"Recommended: {found.chosen.defence}", *doubtful, CAUTION]


def _worth(one: Setting) -> str:
    if one.value is None:
        return "no utility was measured"
    spread = "" if one.low is None or one.high is None else f" ({one.low:.3g} to {one.high:.3g})"
    budget = "" if one.epsilon is None else f", epsilon {one.epsilon:.3g}"
    return f"{one.metric} {one.value:.3g}{spread}, cost {one.cost or 0.0:.3g}{budget}"
