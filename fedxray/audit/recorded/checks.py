"""What is refused before a recording is audited: arrays that do not fit, rounds and recipes that it does not hold."""

from __future__ import annotations

from dataclasses import replace

from fedxray.attacks.base import compute
from fedxray.audit import catalog
from fedxray.audit.bench import Bench, grant_names, make_view
from fedxray.audit.plan import AttackPart, Plan
from fedxray.audit.plan.recorded import ON_WORD
from fedxray.audit.prepare import Prepared
from fedxray.audit.recorded.owner import check_word
from fedxray.audit.recorded.preparing import chosen_of, recorded_transcript
from fedxray.audit.recorded.recipe import span
from fedxray.errors import BadInput, Refused
from fedxray.federation.transcript import Transcript

ABOUT: dict[str, tuple[str, str]] = {
    "epochs": ("federation.epochs", "how many epochs the node trains in a round"),
    "batch_size": ("federation.batch_size", "how many examples are in a batch"),
    "learning_rate": ("federation.learning_rate", "the learning rate"),
    "momentum": ("federation.momentum", "the momentum"),
    "mu": ("federation.mu", "the pull to the received model"),
    "optimizer": (
        "transcript.optimizer",
        "how the node trains: plain SGD (with momentum or without) can be replayed",
    ),
}
OF_THE_ORDER = ("batch-labels", "bn-statistics", "oracle-order")  # a simulation knows them
SEARCHABLE = ("epochs", "batch_size", "learning_rate")
OR_SEARCH = "Give it, or candidates in [transcript.recipe]. "


def check_recording(plan: Plan, prepared: Prepared) -> Transcript:
    """The recorded transcript, refused by name where its node, rounds or recipe do not fit the plan."""
    chosen = chosen_of(plan)
    transcript = recorded_transcript(plan, prepared)
    told = prepared.recorded or {}
    if told["owner"] == ON_WORD:
        check_word(chosen.node, *told["learnt"])
    for part in plan.attacks:
        bench = _bench(plan, part, prepared, transcript)
        _check_rounds(part, chosen.rounds)
        _check_order(bench)
        _check_recipe(plan, bench, prepared)
    return transcript


def _bench(plan: Plan, part: AttackPart, prepared: Prepared, transcript: Transcript) -> Bench:
    return Bench(
        part=part,
        attack=part.make(plan.folder),
        transcript=transcript,
        truth=prepared.federation.truth(prepared.seed),
        client=0,
        aware=None,
        memos=lambda view: compute,
        unknown=prepared.unknown,
    )


def _check_rounds(part: AttackPart, recorded: list[int]) -> None:
    if isinstance(part.rounds, list) and (not part.rounds or not set(part.rounds) <= set(recorded)):
        raise BadInput(
            f"attack {part.title}: rounds",
            expected=f"rounds of the recording ({span(recorded)}, the first is 0)",
            got=part.rounds,
            remedy="Leave out those that are missing.",
        )


def _check_order(bench: Bench) -> None:
    """Refuse grants that would have to be made up."""
    for name in grant_names(bench.part, bench.attack, None):
        if name in OF_THE_ORDER:
            raise BadInput(
                f"attack {bench.part.title}: grants",
                expected="what a recording tells; in which order the node used its records is in no message",
                got=repr(name),
                remedy="Leave it out, or simulate the federation.",
            )


def _check_recipe(plan: Plan, bench: Bench, prepared: Prepared) -> None:
    """Refuse an attack that only lacks the recipe, naming the field that nobody told."""
    assert plan.transcript is not None
    asked = "recipe" in (bench.part.grants or ())
    if not prepared.unknown or (not asked and works(bench)) or not works(replace(bench, unknown=())):
        return
    missing = list((prepared.recorded or {})["recipe_missing"])
    place, about = ABOUT[missing[0]]
    varied, doubted = (
        (prepared.recorded or {})[f"recipe_{why}"].get(missing[0]) for why in ("varied", "doubted")
    )
    if varied is not None or doubted is not None:
        raise BadInput(
            place,
            expected=f"{about}, one for all rounds that are read; {bench.part.title} needs the recipe",
            got=varied or f"{doubted}, which cannot be",
            remedy=(
                'Read the rounds of one value: rounds = "..." in [transcript]. ' if varied else "Give it. "
            )
            + f"Attacks that work without: {_still_working(bench)}.",
        )
    reason = ((prepared.recorded or {}).get("recipe_searched") or {}).get("reason")
    lost = f"candidates that could not be judged ({reason})" if reason else ""
    given = plan.transcript.optimizer if missing[0] == "optimizer" else None
    raise BadInput(
        place,
        expected=f"{about}; {bench.part.title} needs the recipe, and the recording does not tell it",
        got=lost or ("nothing" if given is None else repr(given)),
        remedy=(
            "" if given is not None else OR_SEARCH if missing[0] in SEARCHABLE and not lost else "Give it. "
        )
        + f"Attacks that work without: {_still_working(bench)}.",
    )


def works(bench: Bench) -> bool:
    """Whether an attack finds all that it needs."""
    try:
        bench.attack.check(make_view(bench, bench.attack))
    except (Refused, BadInput):
        return False
    return True


def _still_working(bench: Bench) -> str:
    """Attacks of the catalogue that this recording can feed as it is, from any seat that only listens."""
    found = []
    for name in catalog.ATTACKS:
        attack = catalog.make_attack(name, {})
        seats = [role for role in attack.roles if role not in ("active-server", "curious-client")]
        part = AttackPart(name=name, role=seats[0]) if seats else None
        oracle = any(grant.startswith("oracle-") for grant in attack.grants)
        if part is not None and not oracle and works(replace(bench, part=part, attack=attack)):
            found.append(name)
    return ", ".join(found) or "none"
