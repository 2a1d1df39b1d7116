"""The tasks of an audit, from the plan to the store: one run, one trial of a search, one case.

A case may fail in any way here without stopping the audit. The last section makes results.json of what is stored.
"""

from __future__ import annotations

import hashlib
import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedxray.adversary.view import Grants, View
from fedxray.attacks.base import Attack, not_finite
from fedxray.attacks.evidence import Evidence
from fedxray.audit.catalog import attack_facts
from fedxray.audit.judge import results
from fedxray.audit.judge.claims import canary_rows
from fedxray.audit.judge.results import TRAINING_DIVERGED, utility_rows, versions
from fedxray.audit.own_code.apart import OutOfTime, OwnCodeError, do_apart
from fedxray.audit.own_code.carry import Parts, StatedDefence, evidence_of, plain_facts, read_stated, write_stated
from fedxray.audit.plan import Plan
from fedxray.audit.run.canaries import read_measured, write_measured
from fedxray.audit.run.comparisons import Answers, CaseContext, adapts, origin_of, root_for
from fedxray.audit.run.evaluate import CaseOutcome, evaluate, examples_of
from fedxray.audit.run.grid import (
    CANARIES,
    Case,
    Run,
    TrialTask,
    canary_run_id,
    expand,
    run_id,
    save_trial_time,
    trial_time,
    unaware_twin,
)
from fedxray.audit.run.power import prepare_for
from fedxray.audit.run.prepare import Prepared, forget_data, primary_metrics
from fedxray.audit.run.store import Store
from fedxray.audit.run.utility import (
    REMEDY,
    guess_of,
    promise_kept,
    utility_of,
    worst_claims,
    worst_promise,
    write_promises,
)
from fedxray.audit.search import Point, Recall, curve_facts
from fedxray.data.dataset import USE, Records
from fedxray.errors import BadInput, Diverged, FedxrayError, Refused
from fedxray.federation.folder import INDEX, Damaged, FolderShelf, close_shards, read_transcript, write_transcript
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation, recorded_rounds
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.files import NoSpaceError, read_json, read_object
from fedxray.lookup import without_records
from fedxray.metrics.table import MAIN_METRIC
from fedxray.seeds import derive_seed, spell

# Stored runs: written with a checksum, opened once for all of their cases, refused where altered

TRANSCRIPT, PROOF, UTILITY = "transcript", "proof.json", "utility"
REMOVED = "The run was removed; --resume simulates it again."
NOT_RUN = "the federation could not be run: "
OWN_WORDS = "the reason that the attack states is in private/cases"

CHANGED = (
    "The records or the network of the run were changed in place while this case ran, so its scores mean nothing. "
    "An attack must work on copies."
)

OpenRun = tuple[Prepared, Transcript, Truth, str]  # with the checksum of the truth


def write_proof(folder: Path) -> None:
    """Write the checksum of a run's index, which holds those of its tensors."""
    (folder / PROOF).write_text(json.dumps({"sha256": _digest(folder / TRANSCRIPT / INDEX)}))


def run_of(plan: Plan, store: Store, case: Case) -> OpenRun:
    """Return the run of a case; the last one stays open, since cases of one run follow each other."""
    folder, stated = store.run_folder(case.run), stated_of(plan, store, case)
    key = (plan.digest(), str(folder), runs_defence(plan, case))
    if key not in _open_run:
        _open_run.clear()
        prepared = prepare_for(plan, case, None if runs_defence(plan, case) else stated)
        federation = prepared.federation
        transcript = read_run(folder, federation, recorded=prepared.recorded is not None)
        truth = federation.truth(case.seed).in_blocks()
        _open_run[key] = prepared, transcript, truth, truth.checksum()
    return _open_run[key]


_open_run: dict[tuple[str, str, bool], OpenRun] = {}


def close_run() -> None:
    """Free the memory of the open run."""
    _open_run.clear()
    close_shards()


def has_own_defence(plan: Plan, item: Run | Case) -> bool:
    """Return whether the clients of a run use a defence of the user's or of a plug-in."""
    return (item.plant is None or item.defended) and plan.defence_of(item.defence).is_own


def runs_defence(plan: Plan, case: Case) -> bool:
    """Return whether a case runs a defence of the user's: for its server's rounds, or for an attack that knows it.

    An attack of the user's makes it again in its own process.
    """
    if not has_own_defence(plan, case):
        return False
    part = plan.attack_of(case.attack)
    attack = part.make(plan.folder)
    known = case.aware and not origin_of(part, attack) and adapts(attack)
    return part.role == "active-server" or bool(known)


def stated_of(plan: Plan, store: Store, case: Case) -> StatedDefence | None:
    """Return the facts of the run's defence, where it is the user's."""
    if not has_own_defence(plan, case):
        return None
    folder = store.run_folder(case.run)
    try:
        return read_stated(folder)
    except (BadInput, OSError) as problem:
        raise _damaged(folder, "the facts of its defence", "none that can be read") from problem


def _truth_unchanged() -> bool:
    """Return whether the truth of the open run is as it was read; one that is not is closed, with its data."""
    intact = all(truth.checksum() == checksum for _, _, truth, checksum in _open_run.values())
    if not intact:
        _open_run.clear()
        forget_data()
    return intact


def read_run(folder: Path, federation: Federation, *, recorded: bool = False) -> Transcript:
    """Return the transcript of a stored run; refused where it was altered or is not of this federation."""
    if not folder.is_dir():
        raise _damaged(folder, "a finished run", "none: it was removed")
    try:
        proof = read_object(folder / PROOF).get("sha256")
        if proof != _digest(folder / TRANSCRIPT / INDEX):
            raise _damaged(folder, "the index that was written", "another one: it was altered")
        transcript = read_transcript(folder / TRANSCRIPT, model=federation.model, space=federation.space)
    except Damaged:
        raise
    except BadInput as problem:
        raise Damaged(problem.argument, expected=problem.expected, got=problem.got, remedy=problem.remedy) from problem
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


# Stored answers: the same attack on the same view is computed once in an audit

MAY_DIFFER = ("target", "grants")  # fields in which two views of one role on one run may differ


class StoredAnswers(Answers):
    """The answers of attacks on one view, kept in the store by what was seen, what was granted and the settings.

    A floor is the same under every defence, an attack that cannot adapt is the same aware or not, another client's case
    serves as a control, and of the grants only those count that the attack reads: a model of the client is the same
    whichever records the calling attack holds. With `stored_only` a missing answer raises NotStored. With `alone` they
    serve no other case: code of the user's may have changed them.
    """

    def __init__(
        self,
        store: Store,
        case: Case,
        view: View,
        *,
        stored_only: bool = False,
        alone: bool = False,
        truth: Truth | None = None,
    ) -> None:
        """Note what was seen, which the keys of all answers share; `truth` saves spelling its public records."""
        self.store, self.case, self.view, self.stored_only, self.truth = store, case, view, stored_only, truth
        planted = case.plant is not None
        self.seen = case.run if view.messages or planted else f"seed {case.seed}"
        self.seen = f"{case.id} {self.seen}" if alone else self.seen
        self.rounds = list(view.indexed.rounds), sorted(model.round for model in view.globals)
        self.seats = tuple(own.client for own in view.own)
        self.missing: dict[tuple[int, int, str], str] = {}  # keys of answers that are being computed

    def load(self, attack: Attack, view: View, origin: str = "") -> Evidence | None:
        """Return the stored answer, None where there is none."""
        key = self._key(attack, view, origin)
        stored = self.store.load_evidence(key)
        if stored is None:
            if self.stored_only:
                raise NotStored("this answer has not been computed yet")
            self.missing[id(attack), id(view), origin] = key
            return None
        return evidence_of(*stored)

    def save(self, attack: Attack, view: View, evidence: Evidence, origin: str = "") -> None:
        """Store the answer that `load` has not found."""
        key = self.missing.pop((id(attack), id(view), origin))
        self.store.save_evidence(key, evidence.tensors, plain_facts(evidence))

    def __call__(self, attack: Attack, view: View, run: Callable[[], Evidence]) -> Evidence:
        """Return the stored answer of an inner attack, or compute and store it.

        About another client an attack draws as in that client's case, whichever case computes it first.
        """
        if not same_view(view, self.view):  # an attack that changed what was seen gets a fresh answer
            return run()
        evidence = self.load(attack, view)
        if evidence is None:
            if view.target == self.view.target:
                evidence = run()
            else:
                root = root_for(self.case.seed, view.target)
                evidence = attack.run(view, generator=root, memo=lambda *asked: self(*asked))
            self.save(attack, view, evidence)
        return evidence

    def _key(self, attack: Attack, view: View, origin: str = "") -> str:
        known = knowledge_of(attack, view.grants)
        texts = [spell(replace(known, public_records=None, public_images=None)), self._public(known.public_records)]
        texts += [] if known.public_images is None else [self._images(known.public_images)]
        made = [attack.identity(), *([origin] if origin else [])]  # a factory may return what looks like ours
        question = derive_seed(0, self.seen, self.view.role, self.seats, view.target, self.rounds, *texts, *made)
        return f"{attack.name}-{question:016x}"

    def _public(self, records: Records | None) -> str:
        """Return public records as text; those of the run, which grow with its clients, are spelled once."""
        if self.truth is None or records is None:
            return spell(records)
        pairs = (records.x, self.truth.public.x), (records.y, self.truth.public.y)
        same = all(given.dtype == known.dtype and torch.equal(given, known) for given, known in pairs)
        return self.truth.public_text if same else spell(records)

    def _images(self, images: torch.Tensor) -> str:
        """Return public images as text, in the same way."""
        if self.truth is None or images.dtype != self.truth.public.x.dtype:
            return spell(images)
        return self.truth.public_images_text if torch.equal(images, self.truth.public.x) else spell(images)


class NotStored(FedxrayError):
    """An answer that has not been computed yet."""


def stored_points(store: Store) -> Recall:
    """Return a memory of the points of a search: another computer or library version might ask for others."""

    def recall(key: str, ask: Callable[[], list[Point]]) -> list[Point]:
        stored = store.load_evidence(key)
        if stored is not None:
            return [dict(point) for point in stored[1]["points"]]
        points = ask()
        store.save_evidence(key, {}, {"points": points})
        return points

    return recall


def same_view(left: View, right: View) -> bool:
    """Return whether two views differ at most in the client they ask about and in what was granted."""
    shared = [field.name for field in fields(View) if field.name not in MAY_DIFFER]
    return all(getattr(left, name) is getattr(right, name) for name in shared)


def knowledge_of(attack: Attack, grants: Grants) -> Grants:
    """Return the grants on which an attack's answer can depend."""
    known = grants if attack.reads is None else grants.only(attack.reads)
    return known if adapts(attack) else without_defence(known)


def without_defence(grants: Grants) -> Grants:
    """Return the grants without that of the defence."""
    return replace(grants, defence=None, names=tuple(name for name in grants.names if name != "defence"))


# The tasks of an audit: run, trial of a search, case


def execute_run(plan: Plan, store: Store, run: Run) -> None:
    """Simulate one federation or read a recorded one; store its transcript and utility, or why there is none."""
    with store.reachable():
        if store.has_run(run.id):
            return
        simulation = partial(_simulate, plan, store, run)
        try:
            do_apart(simulation, store.until) if has_own_defence(plan, run) else simulation()
        except NoSpaceError:
            raise
        except Diverged as end:
            reason = f"{TRAINING_DIVERGED} ({end.got}). {end.remedy}"
            store.write_lost_run(run.id, reason, traceback.format_exc(), "diverged")
        except OutOfTime as end:
            store.write_lost_run(run.id, f"{NOT_RUN}{end}", "", "truncated")
        except (Exception, SystemExit) as error:  # noqa: BLE001  (code of the user's may leave)
            store.write_lost_run(run.id, NOT_RUN + without_records(error), traceback.format_exc())


def _simulate(plan: Plan, store: Store, run: Run) -> None:
    prepared = prepare_for(plan, run)
    with store.new_run(run.id) as folder:
        if prepared.recorded is None:
            shelf = FolderShelf(folder / TRANSCRIPT)
            transcript, truth = simulate(prepared.federation, seed=run.seed, shelf=shelf)
            shelf.finish(transcript)
            write_promises(folder, prepared.federation, run.seed)
            if run.plant == CANARIES:
                write_measured(folder, prepared.federation, transcript, truth)
        else:
            from fedxray.audit.recorded.prepare import recorded_transcript

            transcript, truth = recorded_transcript(plan, prepared), prepared.federation.truth(run.seed)
            write_transcript(transcript, folder / TRANSCRIPT)
        if has_own_defence(plan, run):
            write_stated(folder, prepared.federation)
        write_proof(folder)
        scores = results.plain(utility_of(transcript, truth) | guess_of(truth), UTILITY)
        (folder / f"{UTILITY}.json").write_text(json.dumps(scores, allow_nan=False))


def execute_case(plan: Plan, store: Store, case: Case) -> None:
    """Attack one case and store how it ended; whatever fails is its outcome and stops nothing else."""
    with store.reachable():
        if store.has_case(case.id):
            return
        if not runs_defence(plan, case):
            same = _as_unaware(plan, store, case)
            store.write_case(case.id, same) if same is not None else _attack_case(plan, store, case)
            return
        store.share_journals()
        try:  # what the defence changes stays there
            do_apart(partial(_attack_case, plan, store, case), store.until)
        except OwnCodeError as error:
            write_failed_case(store, case, str(error), "truncated" if isinstance(error, OutOfTime) else "failed")


def _as_unaware(plan: Plan, store: Store, case: Case) -> dict[str, Any] | None:
    """Return the outcome of the unaware attacker with this one's knowledge, where the attack cannot use the defence.

    None where it can, where that outcome is not there yet, or where the code is the user's.
    """
    part = plan.attack_of(case.attack)
    if not case.aware or case.plant is not None or part.search is not None or plan.transcript is not None:
        return None
    clock, attack, twin = _clock(), part.make(plan.folder), unaware_twin(part, case)
    if adapts(attack) or origin_of(part, attack) or not store.has_case(twin.id):
        return None
    ended = store.read_case(twin.id)
    if not ended["ledger"]:  # it failed or was refused
        return None
    known = {"aware": True, "adapts": False, "grants": sorted({*ended["ledger"]["grants"], "defence"})}
    times = {name: round(value, 3) for name, value in clock().items()}
    return {**ended, **case.facts(), "ledger": ended["ledger"] | known, **times}


def _attack_case(plan: Plan, store: Store, case: Case) -> None:
    clock = _clock()
    ended: dict[str, Any]
    try:
        prepared, context = case_context(plan, store, case)
        outcome = evaluate(context)
        ended = results.plain(_described(outcome, prepared, context.truth, store, case), "case")
        if context.own:
            ended = _without_own_words(ended, not_finite(outcome.evidence))
    except NoSpaceError:
        raise
    except Damaged as damage:
        _open_run.clear()
        store.remove_run(case.run)
        ended = _without_outcome("failed", f"{damage} {REMOVED}", traceback.format_exc())
    except (Exception, SystemExit) as error:  # noqa: BLE001  (code of the user's may leave)
        status = "refused" if isinstance(error, Refused) else "truncated" if isinstance(error, OutOfTime) else "failed"
        ended = _without_outcome(status, without_records(error), traceback.format_exc())
    if not _truth_unchanged():
        ended = _without_outcome("failed", CHANGED)
    trials = trial_time(plan, store, case)
    times = {name: round(value + trials[name], 3) for name, value in clock().items()}
    store.write_case(case.id, {**case.facts(), **ended, **times})


def execute_trial(plan: Plan, store: Store, trial: TrialTask) -> None:
    """Run one trial of a search before its case; whatever fails here fails again in the case, which reports it."""
    with store.reachable():
        try:
            store.share_journals()
            work = partial(_run_trial, plan, store, trial)
            do_apart(work, store.until) if runs_defence(plan, trial.case) else work()
        except NoSpaceError:
            raise
        except (Exception, SystemExit):  # noqa: BLE001  (code of the user's may leave)
            return
        finally:
            _truth_unchanged()


def _run_trial(plan: Plan, store: Store, trial: TrialTask) -> None:
    """Run the trial after those of earlier batches, all of which are stored, unless it is stored too."""
    alone, (_, context) = runs_defence(plan, trial.case), case_context(plan, store, trial.case)
    stored = replace(
        context, answers=lambda view: StoredAnswers(store, trial.case, view, stored_only=True, alone=alone)
    )
    view = context.view(context.attack, messages_of=trial.messages_of)
    search = stored.search(context.attack, view)
    batch = search.next_batch(search.run_batches(trial.batch))
    if trial.index >= len(batch):  # a grid may have fewer
        return
    _, attack = batch[trial.index]
    try:
        search.run(attack)
    except NotStored:
        clock = _clock()
        context.infer(attack, view, own=True, searched=False, restored=False)
        save_trial_time(store, trial, clock())


def case_context(plan: Plan, store: Store, case: Case) -> tuple[Prepared, CaseContext]:
    """Return the run of a case as it was prepared, and the context in which its attack runs."""
    prepared, transcript, truth, _ = run_of(plan, store, case)
    part = plan.attack_of(case.attack)
    if case.plant is not None:  # a power check asks whether a leak is seen, not whose it is
        part = part.model_copy(update={"controls": []})
    defence = next((one for one in plan.defences if one.title == case.defence), plan.defences[0])
    drawn = prepared.recorded is None and USE not in prepared.dataset.raw
    return prepared, CaseContext(
        part=part,
        attack=part.make(plan.folder),
        transcript=transcript,
        truth=truth,
        client=case.client,
        aware=case.aware,
        answers=partial(StoredAnswers, store, case, alone=runs_defence(plan, case), truth=truth),
        recall=stored_points(store),
        until=store.until,
        unknown=prepared.unknown,
        stated=stated_of(plan, store, case),
        parts=Parts(attack=part, model=plan.model, defence=defence, folder=plan.folder),
        drawn=drawn,
        public_alike=drawn and case.plant is None and plan.data.partition == "iid",
    )


def _clock() -> Callable[[], dict[str, float]]:
    """Return a clock that reports the seconds since now, and those of them that were spent computing."""
    before, busy = time.perf_counter(), time.process_time()
    return lambda: {"seconds": time.perf_counter() - before, "cpu_seconds": time.process_time() - busy}


LUCK = ("within", "swaps", "split", "draws", "record_variance")  # parts of an outcome that not every case has
PRIVATE_PARTS = ("traceback", "detail", "pictures")  # of a stored case; the judge reads `draws` and leaves them out


def _described(outcome: CaseOutcome, prepared: Prepared, truth: Truth, store: Store, case: Case) -> dict[str, Any]:
    """Return the outcome of a case as results.json holds it, with facts of its run."""
    evidence = outcome.evidence
    promise = promise_kept(store.run_folder(case.run), prepared.federation, case.client, evidence.rounds_spent)
    return {
        "oracle": outcome.oracle,
        "ledger": outcome.ledger
        | ({} if promise is None else {"privacy": promise})
        | {
            "target_name": None if case.client is None else prepared.split.names[case.client],
            "unused_records": prepared.split.dropped,
        }
        | ({"data_buffers": list(prepared.data_buffers)} if prepared.data_buffers else {})
        | ({} if prepared.recorded is None else {"recording": prepared.recorded}),
        "status": evidence.status,
        "reason": evidence.reason or None,
        "scores": dict(outcome.score.means),
        "floors": outcome.floors,
        "controls": outcome.controls,
        **{name: value for name in LUCK if (value := getattr(outcome, name))},
        "ceilings": outcome.ceilings,
        "rounds_spent": evidence.rounds_spent,
        "worst_record": {
            metric: {"record": best[0]["record"], "value": best[0]["value"]}
            for metric, best in outcome.exposed.items()
            if metric in outcome.score.records and "sure" not in best[0]
        },
        "exposed": outcome.exposed,
        "by_class": named_classes(outcome.by_class, prepared),
        **curve_facts(evidence),
        "pictures": None if case.plant is not None else examples_of(evidence, truth, case.client, prepared.dataset),
    }


def _without_own_words(ended: dict[str, Any], lost: str) -> dict[str, Any]:
    """Return the outcome of a user's own attack: its own words are not for results.json, ours (`lost`) are."""
    if lost or ended["reason"] is None:
        return ended | {"reason": lost or None}
    return ended | {"reason": OWN_WORDS, "detail": ended["reason"]}


def named_classes(scores: Mapping[str, Mapping[int, Any]], prepared: Prepared) -> dict[str, dict[str, Any]]:
    """Return scores by the names of classes; of a user's own data by numbers, since names are values of a column."""
    names, private = prepared.federation.space.classes, prepared.dataset.private
    return {
        metric: {f"class {label}" if private else names[label]: score for label, score in classes.items()}
        for metric, classes in scores.items()
    }


def _without_outcome(status: str, reason: str, trace: str | None = None) -> dict[str, Any]:
    """Return what results.json holds of a case without evidence."""
    return {
        "oracle": False,
        "ledger": {},
        "status": status,
        "reason": reason,
        **{name: {} for name in ("scores", "floors", "controls", "ceilings")},
        "rounds_spent": 0,
        **{name: {} for name in ("worst_record", "exposed", "by_class")},
        "traceback": trace,
    }


def write_failed_case(store: Store, case: Case, reason: str, status: str = "failed") -> None:
    """Store that a case's worker died, that it was cut off, or that its federation failed."""
    store.write_case(case.id, {**case.facts(), **_without_outcome(status, reason), "seconds": 0.0})


# From stored cases to results.json


def ended_cases(plan: Plan, store: Store) -> list[dict[str, Any]]:
    """Return how all cases ended, in the order of the plan."""
    close_run()  # what follows needs no message and no record
    return [store.read_case(case.id) for case in expand(plan)[1]]


def results_document(
    plan: Plan,
    store: Store,
    power: Sequence[Mapping[str, Any]] = (),
    ended: Sequence[Mapping[str, Any]] | None = None,
    looks: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the document of results.json from all stored cases, in the order of the plan.

    `power` are the rows of its power checks; `ended` are the cases where they were read already; `looks` those so far.
    """
    ended = ended_cases(plan, store) if ended is None else ended
    labels = [part.title for part in plan.defences]
    runs = [(label, [run_id(label, seed) for seed in plan.seeds]) for label in labels]
    utility = utility_rows(
        labels,
        plan.seeds,
        {(label, seed): _utility(store, label, seed) for label in labels for seed in plan.seeds},
        {label: worst_promise([store.run_folder(run) for run in ids if store.has_run(run)]) for label, ids in runs},
    )
    claims = [row for label in labels for row in worst_claims(label, _folders(plan, store, label))]
    shown = [{key: value for key, value in case.items() if key not in PRIVATE_PARTS} for case in ended]
    attacks = {part.title: (part.make(plan.folder), part.factory) for part in plan.attacks}
    kinds = {title: attack.kind for title, (attack, _) in attacks.items()}
    return results.document(
        plan.to_document(),
        versions(),
        shown,
        utility,
        ceilings=oracles_of(kinds, shown),
        expected=metrics_of_the_lost(kinds, shown),
        power=power,
        primary=primary_metrics(plan),
        looks=looks,
        attacks={title: attack_facts(attack, factory) for title, (attack, factory) in attacks.items()},
        third_party=plan.third_party(),
        claims=claims,
        canaries=_canary_rows(plan, store, claims),
    )


def _folders(plan: Plan, store: Store, label: str) -> list[Path]:
    """Return the folders of the runs of a defence that ended, with and without canaries."""
    ids = [name(label, seed) for name in (run_id, canary_run_id) for seed in plan.seeds]
    return [store.run_folder(run) for run in ids if store.has_run(run)]


def _canary_rows(plan: Plan, store: Store, claims: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows on epsilon, of the runs with canaries that ended."""
    if plan.canaries is None:
        return []
    folders = {
        part.title: [
            store.run_folder(run) for seed in plan.seeds if store.has_run(run := canary_run_id(part.title, seed))
        ]
        for part in plan.defences
    }
    return canary_rows(
        {label: [read_measured(folder) for folder in own] for label, own in folders.items()},
        claims,
        {part.title: _reasons(store, part.title, plan.seeds) for part in plan.defences},
    )


def _reasons(store: Store, defence: str, seeds: Sequence[int]) -> list[str]:
    """Return why runs with canaries failed."""
    lost = [store.lost_run(canary_run_id(defence, seed)) for seed in seeds]
    return [str(known["reason"]) for known in lost if known is not None]


def oracles_of(kinds: Mapping[str, str], cases: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return for every attack its ceiling: the first oracle of the plan that guesses the same kind of thing."""
    oracles = list(dict.fromkeys(case["attack"] for case in cases if case["oracle"]))
    ceilings = {}
    for label, kind in kinds.items():
        same = [oracle for oracle in oracles if kinds[oracle] == kind and oracle != label]
        if label not in oracles and same:
            ceilings[label] = same[0]
    return ceilings


def metrics_of_the_lost(kinds: Mapping[str, str], cases: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the main metric of every attack without any scored case, so that it still gets a row."""
    scored = {case["attack"] for case in cases if case["scores"]}
    return {label: [MAIN_METRIC[kind]] for label, kind in kinds.items() if label not in scored}


def galleries(ended: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the example records of all cases that have any."""
    return [{"case": case["id"], **case["pictures"]} for case in ended if case.get("pictures")]


def _utility(store: Store, defence: str, seed: int) -> dict[str, float | None]:
    if not store.has_run(run_id(defence, seed)):
        return {}
    path = store.run_folder(run_id(defence, seed)) / f"{UTILITY}.json"
    scores: dict[str, float | None] = read_json(path, remedy=REMEDY)
    results.check_part(scores, "scores", path, REMEDY)
    return scores
