"""One run and one case of an audit, from the plan to the store; the only place where a case may fail in any way."""

from __future__ import annotations

import hashlib
import json
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fedxray.adversary.view import Grants, View
from fedxray.attacks.base import Attack, Memo
from fedxray.attacks.evidence import Evidence
from fedxray.audit.catalog import attack_facts
from fedxray.audit.judge import results
from fedxray.audit.judge.results import versions
from fedxray.audit.judge.utility import promise_kept, utility_of, utility_rows, worst_promise, write_promises
from fedxray.audit.plan import Plan
from fedxray.audit.recorded.prepare import recorded_transcript
from fedxray.audit.run.comparisons import Bench, adapts, make_view, root_for, run_on, search_on
from fedxray.audit.run.evaluate import evaluate, exhibit
from fedxray.audit.run.grid import Case, Run, expand, run_id
from fedxray.audit.run.power import prepare_for
from fedxray.audit.run.prepare import Prepared
from fedxray.audit.run.search import Point, Recall, course
from fedxray.audit.run.store import Store
from fedxray.audit.run.trials import Ahead, keep_time, time_ahead
from fedxray.errors import BadInput, Diverged, FedxrayError, Refused
from fedxray.federation.folder import INDEX, Damaged, FolderShelf, read_transcript, write_transcript
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation, recorded_rounds
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.files import NoSpaceError, read_json, read_object
from fedxray.metrics.table import MAIN_METRIC
from fedxray.seeds import derive_seed, spell

# --- Runs that are kept: put in place with a proof, opened once for all of their cases, never trusted when
# altered.


TRANSCRIPT, PROOF = "transcript", "proof.json"
MADE_AGAIN = "The run was removed; --resume makes it again."

Opened = tuple[Prepared, Transcript, Truth]


def write_proof(folder: Path) -> None:
    """Keep the checksum of a run's index, which holds those of its tensors."""
    (folder / PROOF).write_text(json.dumps({"sha256": _digest(folder / TRANSCRIPT / INDEX)}))


def opened(plan: Plan, case: Case, store: Store) -> Opened:
    """The run of a case; the last one stays open, since cases of one run follow each other."""
    folder = store.run_folder(case.run)
    key = (plan.digest(), str(folder))
    if key not in _open_run:
        _open_run.clear()
        prepared = prepare_for(plan, case)
        federation = prepared.federation
        transcript = open_run(folder, federation, recorded=prepared.recorded is not None)
        _open_run[key] = prepared, transcript, federation.truth(case.seed)
    return _open_run[key]


_open_run: dict[tuple[str, str], Opened] = {}


def discard(case: Case, store: Store) -> None:
    """Remove the run of a case and forget that it was open."""
    _open_run.clear()
    store.remove_run(case.run)


def open_run(folder: Path, federation: Federation, *, recorded: bool = False) -> Transcript:
    """The transcript of a run, refused where it is not the one that was put in place or not of this federation."""
    if not folder.is_dir():
        raise _damaged(folder, "a finished run", "none: it was removed")
    try:
        proof = read_object(folder / PROOF).get("sha256")
        found = _digest(folder / TRANSCRIPT / INDEX)
        if proof != found:
            raise _damaged(folder, "the index that was written", "another one: it was altered")
        transcript = read_transcript(folder / TRANSCRIPT, model=federation.model, space=federation.space)
    except Damaged:
        raise
    except BadInput as problem:
        raise Damaged(
            problem.argument, expected=problem.expected, got=problem.got, remedy=problem.remedy
        ) from problem
    except OSError as problem:
        raise _damaged(folder, "readable files", str(problem)) from problem
    _check_belongs(folder, transcript, federation, recorded)
    return transcript


def _check_belongs(folder: Path, transcript: Transcript, federation: Federation, recorded: bool) -> None:
    pairs = {
        "loss": (federation.recipe.loss, transcript.loss),
        # In a recording a fellow client stands beside the node.
        "clients": (len(federation.clients) + recorded, transcript.clients),
        "secure_aggregation": (federation.secure_aggregation, transcript.secure_aggregation),
        "rounds": (sorted(recorded_rounds(federation.record, federation.rounds)), transcript.rounds()),
        "recorded": (recorded, transcript.recorded),
    }
    for name, (wanted, found) in pairs.items():
        if wanted != found:
            raise _damaged(folder, f"{name} = {str(wanted)[:80]} as in the plan", str(found)[:80])


def _damaged(folder: Path, expected: str, got: str) -> Damaged:
    return Damaged(f"run {folder.name}", expected=expected, got=got, remedy="Leave the files of runs alone.")


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- Answers of attacks that are kept, so that whoever asks the same question gets the same answer,
# computed once.


WHOM_AND_WHAT = ("target", "grants")  # what may differ between two views of one seat


def stored_answers(store: Store, case: Case, *, kept_only: bool = False) -> Callable[[View], Memo]:
    """Memos that keep every answer in the store, told apart by what was seen, what was granted and the settings.

    A floor is the same under every defence, an attack that cannot adapt is the same aware or not, another client's case
    serves as a control, and of the grants only those count that the attack reads: a model of the client is the same
    whichever records its caller holds. With `kept_only` what is not there yet is not computed: NotKept.
    """

    def on_view(view: View) -> Memo:
        seen = case.run if view.messages or case.plant is not None else f"seed {case.seed}"
        rounds = sorted({one.round for one in view.observations}), sorted(one.round for one in view.globals)
        seats = tuple(one.client for one in view.own)

        def memo(attack: Attack, asked: View, run: Callable[[], Evidence]) -> Evidence:
            if not same_seat(asked, view):  # an attack that changed what was seen gets a fresh answer
                return run()

            def as_of_its_own() -> Evidence:
                return attack.run(asked, generator=root_for(case.seed, asked.target), memo=memo)

            told = spell(knowledge_of(attack, asked.grants))
            question = derive_seed(0, seen, view.role, seats, asked.target, rounds, told, attack.identity())
            key = f"{attack.name}-{question:016x}"
            # About another client an attack draws as in that client's case, whoever asks first.
            compute = run if asked.target == view.target else as_of_its_own
            return _remembered(store, key, _not_kept if kept_only else compute)

        return memo

    return on_view


class NotKept(FedxrayError):
    """An answer that nobody has computed yet."""


def _not_kept() -> Evidence:
    raise NotKept("there is no such answer yet")


def stored_points(store: Store) -> Recall:
    """Points of a search are asked for once: another computer or version of a library might ask for others."""

    def recall(key: str, ask: Callable[[], list[Point]]) -> list[Point]:
        kept = store.load_evidence(key)
        if kept is not None:
            return [dict(point) for point in kept[1]["points"]]
        points = ask()
        store.save_evidence(key, {}, {"points": points})
        return points

    return recall


def same_seat(left: View, right: View) -> bool:
    """Whether two views differ at most in whom they ask about and in what was granted."""
    shared = [field.name for field in fields(View) if field.name not in WHOM_AND_WHAT]
    return all(getattr(left, name) is getattr(right, name) for name in shared)


def knowledge_of(attack: Attack, grants: Grants) -> Grants:
    """The grants on which an attack's answer can depend."""
    known = grants if attack.reads is None else grants.only(attack.reads)
    return known if adapts(attack) else without_defence(known)


def without_defence(grants: Grants) -> Grants:
    """The same knowledge without that of the defence."""
    return replace(grants, defence=None, names=tuple(name for name in grants.names if name != "defence"))


def _remembered(store: Store, key: str, run: Callable[[], Evidence]) -> Evidence:
    """The stored answer, or the computed one after storing it."""
    kept = store.load_evidence(key)
    if kept is not None:
        curve = tuple(
            math.nan if loss is None else loss for loss in kept[1]["curve"]
        )  # JSON has no such number
        return Evidence(tensors=kept[0], **{**kept[1], "curve": curve, "seats": tuple(kept[1]["seats"])})
    evidence = run()
    facts = {name: value for name, value in vars(evidence).items() if name != "tensors"}
    store.save_evidence(key, evidence.tensors, results.plain(facts, "evidence"))
    return evidence


UTILITY = "utility"


def execute_run(plan: Plan, run: Run, store: Store) -> None:
    """Simulate one federation, or take in a recorded one; keep its transcript and its utility, or why there is none."""
    if store.has_run(run.id):
        return
    try:
        _simulate(plan, run, store)
    except NoSpaceError:
        raise
    except FedxrayError as mistake:
        status = "diverged" if isinstance(mistake, Diverged) else "failed"
        store.write_lost_run(run.id, str(mistake), traceback.format_exc(), status)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (code of the user's may leave)
        store.write_lost_run(run.id, f"{type(error).__name__}: {error}", traceback.format_exc())


def _simulate(plan: Plan, run: Run, store: Store) -> None:
    prepared = prepare_for(plan, run)
    with store.new_run(run.id) as folder:
        if prepared.recorded is None:
            shelf = FolderShelf(folder / TRANSCRIPT)
            transcript, truth = simulate(prepared.federation, seed=run.seed, shelf=shelf)
            shelf.finish(transcript)
            write_promises(folder, prepared.federation, run.seed)
        else:
            transcript, truth = recorded_transcript(plan, prepared), prepared.federation.truth(run.seed)
            write_transcript(transcript, folder / TRANSCRIPT)
        write_proof(folder)
        found = results.plain(utility_of(transcript, truth), UTILITY)
        (folder / f"{UTILITY}.json").write_text(json.dumps(found, allow_nan=False))


def execute_case(plan: Plan, case: Case, store: Store) -> None:
    """Run one case and keep how it ended; whatever goes wrong is its outcome and stops nothing else."""
    if store.has_case(case.id):
        return
    clock = _clock()
    found: dict[str, Any]
    try:
        found = results.plain(_succeeded(plan, case, store), "case")
    except Refused as refusal:
        found = _ended("refused", str(refusal))
    except NoSpaceError:
        raise
    except Damaged as damage:
        discard(case, store)
        found = _ended("failed", f"{damage} {MADE_AGAIN}", traceback.format_exc())
    except FedxrayError as mistake:
        found = _ended("failed", str(mistake), traceback.format_exc())
    except (Exception, SystemExit) as error:  # noqa: BLE001  (code of the user's may leave)
        found = _ended("failed", f"{type(error).__name__}: {error}", traceback.format_exc())
    ahead = time_ahead(plan, case, store)
    took = {name: round(value + ahead[name], 3) for name, value in clock().items()}
    store.write_case(case.id, {**case.facts(), **found, **took})


def execute_trial(plan: Plan, item: Ahead, store: Store) -> None:
    """Try one point of a search ahead of its case; whatever goes wrong is met again by the case, which tells."""
    try:
        _try(plan, item, store)
    except NoSpaceError:
        raise
    except (Exception, SystemExit):  # noqa: BLE001  (code of the user's may leave)
        return


def _try(plan: Plan, item: Ahead, store: Store) -> None:
    """Run the trial after those of earlier batches, all of which are kept, unless it is kept too."""
    _, bench = _bench(plan, item.case, store)
    kept = replace(bench, memos=stored_answers(store, item.case, kept_only=True))
    view = make_view(bench, bench.attack, messages_of=item.messages_of)
    search = search_on(kept, bench.attack, view)
    asked = search.asked_after(search.tried(item.batch))
    if item.place >= len(asked):  # a grid may have fewer
        return
    _, attack = asked[item.place]
    try:
        search.run(attack)
    except NotKept:
        clock = _clock()
        run_on(bench, attack, view)
        keep_time(store, item, clock())


def _clock() -> Callable[[], dict[str, float]]:
    """What tells the time that has passed, and how much of it was computing."""
    before, busy = time.perf_counter(), time.process_time()
    return lambda: {"seconds": time.perf_counter() - before, "cpu_seconds": time.process_time() - busy}


def lost_case(case: Case, store: Store, reason: str, status: str = "failed") -> None:
    """Keep that a case's worker died, or that its federation came to nothing."""
    store.write_case(case.id, {**case.facts(), **_ended(status, reason), "seconds": 0.0})


def ended_cases(plan: Plan, store: Store) -> list[dict[str, Any]]:
    """How all cases ended, in the order of the plan."""
    return [store.read_case(case.id) for case in expand(plan)[1]]


def finish(
    plan: Plan,
    store: Store,
    power: Sequence[Mapping[str, Any]] = (),
    ended: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Collect all cases in the order of the plan into the document of results; power holds its power checks.

    Whoever has read the cases already gives them.
    """
    ended = ended_cases(plan, store) if ended is None else ended
    found = {
        (part.title, seed): _utility(store, part.title, seed) for part in plan.defences for seed in plan.seeds
    }
    labels = [part.title for part in plan.defences]
    utility = utility_rows(
        labels, plan.seeds, found, {label: _promise(plan, store, label) for label in labels}
    )
    shown = [
        {key: value for key, value in case.items() if key not in ("traceback", "pictures")} for case in ended
    ]
    made = {part.title: (part.make(plan.folder), part.factory) for part in plan.attacks}
    kinds = {title: attack.kind for title, (attack, _) in made.items()}
    return results.document(
        plan.to_document(),
        versions(),
        shown,
        utility,
        ceilings=oracles_of(kinds, shown),
        expected=metrics_of_the_lost(kinds, shown),
        power=power,
        attacks={title: attack_facts(attack, factory) for title, (attack, factory) in made.items()},
        third_party=plan.third_party(),
    )


def oracles_of(kinds: Mapping[str, str], cases: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """For every attack the first oracle of the plan that guesses the same kind of thing: its ceiling."""
    oracles = list(dict.fromkeys(case["attack"] for case in cases if case["oracle"]))
    found = {}
    for label, kind in kinds.items():
        same = [oracle for oracle in oracles if kinds[oracle] == kind and oracle != label]
        if label not in oracles and same:
            found[label] = same[0]
    return found


def metrics_of_the_lost(kinds: Mapping[str, str], cases: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The main metric of every attack of which no case was scored, so that it has a row to say so."""
    scored = {case["attack"] for case in cases if case["scores"]}
    return {label: [MAIN_METRIC[kind]] for label, kind in kinds.items() if label not in scored}


def galleries(ended: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The pictures of all cases that have any."""
    return [{"case": case["id"], **case["pictures"]} for case in ended if case.get("pictures")]


def _utility(store: Store, defence: str, seed: int) -> dict[str, float | None]:
    if not store.has_run(run_id(defence, seed)):
        return {}
    path = store.run_folder(run_id(defence, seed)) / f"{UTILITY}.json"
    remedy = "Remove the folder of this run and go on with --resume, or choose another --out."
    found: dict[str, float | None] = read_json(path, remedy=remedy)
    results.check_part(found, "scores", path, remedy)
    return found


def _promise(plan: Plan, store: Store, defence: str) -> dict[str, Any] | None:
    ids = [run_id(defence, seed) for seed in plan.seeds]
    return worst_promise([store.run_folder(one) for one in ids if store.has_run(one)])


def _succeeded(plan: Plan, case: Case, store: Store) -> dict[str, Any]:
    prepared, bench = _bench(plan, case, store)
    truth = bench.truth
    outcome = evaluate(bench)
    evidence = outcome.evidence
    promise = promise_kept(
        store.run_folder(case.run), prepared.federation, case.client, evidence.rounds_spent
    )
    return {
        "oracle": outcome.oracle,
        "ledger": outcome.ledger
        | ({} if promise is None else {"privacy": promise})
        | {
            "target_name": None if case.client is None else prepared.split.names[case.client],
            "unused_records": prepared.split.dropped,
        }
        | ({} if prepared.recorded is None else {"recording": prepared.recorded}),
        "status": evidence.status,
        "reason": evidence.reason or None,
        "scores": dict(outcome.score.means),
        "floors": outcome.floors,
        "controls": outcome.controls,
        **({"within": outcome.within} if outcome.within else {}),
        "ceilings": outcome.ceilings,
        "rounds_spent": evidence.rounds_spent,
        "worst_record": {
            metric: {"record": best[0]["record"], "value": best[0]["value"]}
            for metric, best in outcome.exposed.items()
            if metric in outcome.score.records and "sure" not in best[0]
        },
        "exposed": outcome.exposed,
        "by_class": named_classes(outcome.by_class, prepared),
        **course(evidence),
        "pictures": None
        if case.plant is not None
        else exhibit(evidence, truth, case.client, prepared.dataset),
    }


def _bench(plan: Plan, case: Case, store: Store) -> tuple[Prepared, Bench]:
    """All that a case works with."""
    prepared, transcript, truth = opened(plan, case, store)
    part = plan.attack_of(case.attack)
    if case.plant is not None:  # whether a leak is seen, not whose it is
        part = part.model_copy(update={"controls": []})
    return prepared, Bench(
        part=part,
        attack=part.make(plan.folder),
        transcript=transcript,
        truth=truth,
        client=case.client,
        aware=case.aware,
        memos=stored_answers(store, case),
        recall=stored_points(store),
        unknown=prepared.unknown,
    )


def named_classes(found: Mapping[str, Mapping[int, Any]], prepared: Prepared) -> dict[str, dict[str, Any]]:
    """Classes by their names; of a user's own data by their numbers, since names are values of a column."""
    names, private = prepared.federation.space.classes, prepared.dataset.private
    return {
        metric: {f"class {label}" if private else names[label]: told for label, told in classes.items()}
        for metric, classes in found.items()
    }


def _ended(status: str, reason: str, trace: str | None = None) -> dict[str, Any]:
    return {
        "oracle": False,
        "ledger": {},
        "status": status,
        "reason": reason,
        "scores": {},
        "floors": {},
        "controls": {},
        "ceilings": {},
        "rounds_spent": 0,
        "worst_record": {},
        "exposed": {},
        "by_class": {},
        "traceback": trace,
    }
