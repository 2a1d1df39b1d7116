"""The lines of `fedxray audit --dry-run`: how the data was read, what can be settled, the error of clients as one.

A column that was misread shows here, before the audit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.attacks.inversion.awa import BY_CASE, Awa, case_of
from fedxray.attacks.inversion.dlf import DlfFamily, preset_of
from fedxray.attacks.inversion.tabular import TabularInversion
from fedxray.audit.judge import statistics
from fedxray.audit.judge.family import SWAP_SHARE
from fedxray.audit.judge.statistics import AUTO_LOOKS, FIRST_LOOK
from fedxray.audit.judge.verdict import LEAST_RUNS
from fedxray.audit.plan import AttackPart, Plan
from fedxray.audit.plan.recorded import ON_WORD
from fedxray.audit.recorded.describe import heading, measured_filters, place, shortcomings
from fedxray.audit.run.grid import asked, is_about_everyone
from fedxray.audit.run.prepare import Prepared, one_round, primary_metrics
from fedxray.data.dataset import Column, Dataset, Records, union
from fedxray.data.schema import NOTE
from fedxray.data.split import Split
from fedxray.errors import printable, some
from fedxray.federation.local import in_train_mode
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.lookup import harmless_output
from fedxray.losses import example_loss
from fedxray.metrics.table import MAIN_METRIC, metric as metric_named
from fedxray.metrics.units import margin_of
from fedxray.params import Params, buffers_of, norm, parameters_of, subtract
from fedxray.theory import leading_divergence

SHOWN_CLIENTS = 12
SWAPPED = 4  # clients and runs beyond which there are enough assignments
SHOWN_NAMES = 30
SHOWN_VALUES = 6
SHOWN_LAYERS = 4
MANY_VALUES = 20  # categories that no longer look like categories when records are few for each
WARNING = "! has few records for each value; if it is a number, a date or an identifier, correct it or drop it"


def understood(prepared: Prepared) -> list[str]:
    """Return lines on target, sensitive column, columns, clients and public records, each with its heading first."""
    dataset, parts = prepared.dataset, prepared.split
    columns = _columns(dataset) if dataset.space.kind == "table" else _images(dataset)
    facts = [
        ("data", _records(dataset)),
        ("learns", _target(dataset)),
        *columns,
        *(("", remark) for remark in dataset.remarks),
        *_people(dataset),
        *_clients(parts, prepared.seed),
        ("public", f"{len(parts.public):,} records that belong to no client"),
    ]
    if prepared.data_buffers:
        named = some(prepared.data_buffers, SHOWN_LAYERS)
        facts.append(("network", f"! the buffer {named} changes with the records and is sent with every reply"))
    if prepared.recorded is not None:
        facts += recording_facts(prepared)
    if parts.dropped:
        facts.append(("unused", f"{parts.dropped:,} records"))
    return [f"{word:<12}{text}" for word, text in facts]


def _records(dataset: Dataset) -> str:
    """Return the name of the data and the number of records, and whether these are synthetic."""
    number = f"{len(dataset):,}"
    return (
        f"{number} synthetic records of {dataset.name}" if dataset.note == NOTE else f"{dataset.name}, {number} records"
    )


def recording_facts(prepared: Prepared) -> list[tuple[str, str]]:
    """Return the node of a recording, its rounds, and how what it holds may differ from what others saw."""
    recorded = prepared.recorded or {}
    facts = [("recording", heading(recorded))]
    if place(recorded):
        facts.append(("", f"place: {place(recorded)}"))
    facts += [("", f"! {word}: {text}") for word, text in [*shortcomings(recorded), *measured_filters(recorded)]]
    if recorded["side"] != "client" or recorded["owner"] == ON_WORD:
        facts.append(("", f"that the node is yours: {recorded['owner']}"))
    if recorded["recipe_heard"]:
        facts.append(("", f"sent to the clients: {some(recorded['recipe_heard'], SHOWN_NAMES)}"))
    facts += [("", text) for text in searched(recorded.get("recipe_searched"))]
    for field, rounds in recorded["recipe_varied"].items():
        facts.append(("", f"! {field} changes: {rounds}; to replay a training, read rounds of one"))
    for field, value in recorded["recipe_doubted"].items():
        facts.append(("", f"! {field} was sent as {value}, which is impossible"))
    if recorded["changed_after"]:
        mods = printable(some(recorded["changed_after"], SHOWN_NAMES))
        facts.append(("", f"! {mods} came after the recorder: others saw something else"))
    if recorded["not_recorded"]:
        facts.append(("", f"! no message holds {some(recorded['not_recorded'], SHOWN_LAYERS)}: [model] gives its own"))
    if recorded["frozen_changed"]:
        moved = some(recorded["frozen_changed"], SHOWN_LAYERS)
        facts.append(("", f"! [model] does not train {moved}, yet the recording changes it"))
    return facts


def searched(search: Mapping[str, Any] | None) -> list[str]:
    """Return lines on the result of a search of the recipe."""
    if search is None:
        return []
    if not search["chosen"]:
        return [f"! the search of the recipe failed: {search['reason']}"]
    chosen = ", ".join(f"{name} {value}" for name, value in search["chosen"].items())
    facts = [f"searched by the attacker's own loss: {chosen} (best of {len(search['tried'])})"]
    if search["alike"]:
        facts.append(f"! not distinguished by it: {', '.join(search['alike'])}; others fit nearly as well")
    return facts


def learnt(fell: int, rounds: int) -> str:
    """Return a line on whether the records look like those that were trained on."""
    seen = f"the training lowered the loss on these records in {fell} of {rounds} rounds"
    doubt = "are they what the node trained on, as its network got them?"
    return f"{'fits':<12}{seen}" if 2 * fell >= rounds else f"{'fits':<12}! {seen}: {doubt}"


def _target(dataset: Dataset) -> str:
    space = dataset.space
    name = space.target_name or "the class"
    return f"{name} ({some(space.classes, SHOWN_VALUES)})" if space.classes else f"{name} (a number)"


def _images(dataset: Dataset) -> list[tuple[str, str]]:
    channels, height, width = dataset.space.shape
    return [("images", f"{height} x {width} pixels, {'colour' if channels == 3 else 'grey'}")]


def _columns(dataset: Dataset) -> list[tuple[str, str]]:
    space = dataset.space
    others = [column for column in space.columns if column.name != space.sensitive]
    numbers = [column.name for column in others if column.kind == "continuous"]
    groups = [_group(column, len(dataset)) for column in others if column.kind == "categorical"]
    facts = [("numbers", some(numbers, SHOWN_NAMES)), ("categories", some(groups, SHOWN_NAMES))]
    if any(group.endswith("!)") for group in groups):
        facts.append(("", WARNING))
    if space.sensitive is None:
        return facts
    secret = space.column(space.sensitive)
    values = some(secret.categories, SHOWN_VALUES) if secret.kind == "categorical" else "a number"
    return [("secret", f"{secret.name} ({values})"), *facts]


def _group(column: Column, records: int) -> str:
    """Return a column with its number of categories, marked where they are suspiciously many."""
    count = len(column.categories)
    return f"{column.name} ({count}{'!' if count > max(MANY_VALUES, records // 20) else ''})"


def _people(dataset: Dataset) -> list[tuple[str, str]]:
    """Return how many people the records are of, where they have subjects."""
    if dataset.subject is None:
        return []
    each = torch.bincount(dataset.subject)
    return [("people", f"{len(each):,}, with {int(each.min()):,} to {int(each.max()):,} records each")]


def _clients(parts: Split, seed: int) -> list[tuple[str, str]]:
    """Return each client with its name and how many records it trains on and holds out."""
    counts = [(len(train), len(held)) for train, held in zip(parts.train, parts.holdout, strict=True)]
    facts = [("clients", f"{len(counts)} (with seed {seed}):")]
    for client, (train, held) in enumerate(counts[:SHOWN_CLIENTS]):
        name = f" {printable(parts.names[client])}" if parts.names[client] else ""
        facts.append(("", f"{client}{name}: trains on {train:,}, {held:,} held out"))
    if len(counts) > SHOWN_CLIENTS:
        sizes = [train for train, _ in counts]
        facts.append(("", f"and {len(counts) - SHOWN_CLIENTS} more; all train on {min(sizes):,} to {max(sizes):,}"))
    return facts


def presets(plan: Plan, prepared: Prepared) -> list[str]:
    """Return for every attack whose weights were tuned for a data set or a case which ones it uses here."""
    federation, lines = prepared.federation, []
    for part in plan.attacks:
        attack = part.make(plan.folder)
        if isinstance(attack, DlfFamily):
            lines.append(f"{part.title}: the authors' weights for {preset_of(attack, federation.space.shape[0])}")
        elif isinstance(attack, Awa):
            cases = sorted({case_of(federation.recipe, len(records.x)) for records in federation.clients})
            used = " or ".join(cases) if attack.preset == BY_CASE else attack.preset
            lines.append(f"{part.title}: the paper's weights {used}")
    return lines


def rows_sought(plan: Plan, prepared: Prepared) -> list[str]:
    """Return for every attack on rows how many it seeks, where clients hold more than it can seek in its time."""
    federation = prepared.federation
    held, lines = max(map(len, federation.clients)), []
    for part in plan.attacks:
        attack = part.make(plan.folder)
        if isinstance(attack, TabularInversion):
            most = attack.rows_in_time(parameters_of(federation.model), federation.recipe)
            if most < held:
                lines.append(f"{part.title}: {most:,} of up to {held:,}; more with fewer steps or restarts")
    return lines


# What an audit can settle at best: with the least spread that its records allow


def can_settle(plan: Plan, prepared: Prepared) -> list[str]:
    """Return for every attack on records which leak these seeds and clients show, and whether they can show none.

    Runs that differ by more than their records do need more seeds than this.
    """
    rows = len(plan.attacks) * sum(1 if part.is_none else 2 for part in plan.defences)
    runs = AUTO_LOOKS[-1] if plan.is_auto else len(plan.seeds)
    kinds = {part.title: part.make(plan.folder).kind for part in plan.attacks}
    lines, primary = [], primary_metrics(plan) if plan.transcript is None else {}
    for part in plan.attacks if plan.transcript is None else ():
        kind, clients = kinds[part.title], len(asked(plan, part))
        metric = primary.get(part.title, MAIN_METRIC[kind])
        balanced = metric == "balanced_accuracy"
        error = _least_error(kind, prepared.split, clients * runs, _values(prepared.federation) if balanced else None)
        if error is None:
            continue
        margin = metric_named(metric).margin
        draws = math.inf if kind == "membership" else math.factorial(min(clients, SWAPPED)) ** min(runs, SWAPPED)
        exact = draws >= rows / (SWAP_SHARE * FIRST_LOOK)
        least = statistics.smallest_seen(error, runs, 1 - FIRST_LOOK / rows) if runs > 1 and not exact else 0.0
        shown = f"a leak of {margin_of(max(margin, least), metric)} or more"
        seen = statistics.smallest_seen(error, runs, 1 - FIRST_LOOK / 2) if runs >= LEAST_RUNS else math.inf
        if not exact and statistics.finest_run_p(runs) > FIRST_LOOK / rows:
            enough = math.ceil(math.log2(rows / FIRST_LOOK))
            shown = f"a leak only from about {enough} seeds on"
        bounded = runs >= LEAST_RUNS and statistics.upper_bound(0.0, error, runs, 1 - FIRST_LOOK / 2) <= margin
        if seen > statistics.SEEN_MARGINS * margin or not bounded:
            more = statistics.seeds_to_reassure(0.0, error, max(runs, 2), margin, 1 - FIRST_LOOK / 2)
            shown += (
                "; no leak only with more records" if more is None else f"; no leak from about {runs + more} seeds on"
            )
        else:
            shown += ", or none"
        lines.append(f"{part.title}: {shown}")
    return lines


def _values(federation: Federation) -> list[float]:
    """Return how many training records of a client have each sensitive value, on average over clients."""
    places = list(federation.space.column(federation.space.sensitive or "").positions)
    known = torch.cat([records.x[:, places] for records in federation.clients])
    return [int(count) / len(federation.clients) for count in torch.unique(known, dim=0, return_counts=True)[1]]


def _least_error(kind: str, parts: Split, units: int, values: Sequence[float] | None = None) -> float | None:
    """Return the standard error of a mean score over units whose records are independent; None for other kinds.

    `values` are the numbers of records by sensitive value where all values count the same: rare ones dominate it.
    """
    if values:
        return math.sqrt(sum(0.25 / count for count in values) / len(values) ** 2 / units)
    members = sum(map(len, parts.train)) / max(len(parts.train), 1)
    others = sum(map(len, parts.holdout)) / max(len(parts.holdout), 1)
    if kind == "membership" and members and others:
        return math.sqrt((members + others + 1) / (12 * members * others) / units)
    return math.sqrt(0.25 / members / units) if kind in ("attributes", "sources") and members else None


# The error of treating all clients behind a sum as one (curious client, 2024, Lemma 1)

MOST_STEPS = 2_000_000  # local steps times examples of a round: more would take too long for a dry run
READS_SUMS = "curious-client"


@dataclass(frozen=True, kw_only=True)
class SumError:
    """The distance of the clients' mean update from that of one client with all records, as a share of the latter."""

    clients: int
    simulated: float
    leading: float | None  # by Lemma 1's leading term; None where its conditions do not hold


@harmless_output()
def words(plan: Plan, prepared: Prepared) -> list[str]:
    """Return one line for every attack that reads a sum as one client's reply; none where a round takes too long."""
    lines = []
    for part in plan.attacks:
        attack = part.make(plan.folder)
        if attack.name != READS_SUMS or part.restore is not None or not is_about_everyone(plan, part):
            continue
        clients = behind(part, prepared.federation, getattr(attack, "own_share", ""))
        if _work(prepared.federation.recipe, clients) <= MOST_STEPS:
            lines.append(f"{part.title}: {spoken(how_far_off(prepared.federation, clients))}")
    return lines


def behind(part: AttackPart, federation: Federation, own_share: str) -> tuple[Records, ...]:
    """Return the records behind what the attack reads: all, or all but the seats' where these subtract their own."""
    out = part.seats if own_share == "subtract" else ()
    return tuple(records for client, records in enumerate(federation.clients) if client not in out)


def how_far_off(federation: Federation, clients: Sequence[Records]) -> SumError:
    """Simulate the first round with the clients apart, and with one client that takes as many steps on all records."""
    recipe = federation.recipe
    length = recipe.batch_size
    joint = replace(recipe, batch_size=length if length == "all" else length * len(clients))
    start = parameters_of(federation.model)
    apart = _end(federation, clients, recipe)
    together = _end(federation, [union(tuple(clients))], joint)
    moved = float(norm(subtract(together, start)))
    return SumError(
        clients=len(clients),
        simulated=float(norm(subtract(apart, together))) / moved if moved else 0.0,
        leading=_leading(federation, clients, start, moved) if moved and _as_in_the_lemma(recipe, clients) else None,
    )


def spoken(error: SumError) -> str:
    """Return the error as a sentence."""
    if error.clients == 1:
        return "one client stands behind the update, so that treating it as one is exact"
    term = "" if error.leading is None else f" (Lemma 1's leading term: {_percent(error.leading)})"
    return f"treating {error.clients} clients as one changes the update by {_percent(error.simulated)} of it{term}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share > 1e-5 else "less than 0.001 %"


def _end(federation: Federation, clients: Sequence[Records], recipe: Recipe) -> Params:
    """Return the global model after one round."""
    short = replace(one_round(federation, clients, recipe), secure_aggregation=False)
    transcript, _ = simulate(short, seed=0)
    return transcript.shelf.get(transcript.outcome(0).parts).params


def _leading(federation: Federation, clients: Sequence[Records], start: Params, moved: float) -> float:
    network, recipe = in_train_mode(federation.model), federation.recipe
    losses = [partial(loss_on, network, recipe.loss, records) for records in clients]
    sizes = [float(len(records)) if recipe.weighting == "examples" else 1.0 for records in clients]
    rate = recipe.learning_rate
    steps = 1 if recipe.kind == "gradient" else recipe.epochs
    term = leading_divergence(start, losses, sizes, rate=rate, steps=steps)
    return float(norm(term)) * recipe.server_learning_rate / moved


def loss_on(network: nn.Module, loss: str, records: Records, params: Params) -> Tensor:
    """Return the mean loss of all records in the network's present mode; its buffers stay as they are."""
    fresh = {name: value.clone() for name, value in buffers_of(network).items()}
    return example_loss(loss)(functional_call(network, {**params, **fresh}, (records.x,)), records.y).mean()


def _as_in_the_lemma(recipe: Recipe, clients: Sequence[Records]) -> bool:
    """Return whether every local step is a plain step on all records, and every record has the same weight.

    Where clients of different sizes have the same weight, the lemma's one client does not hold all records.
    """
    sizes = {len(records) for records in clients}
    full_batch = recipe.kind == "gradient" or all(recipe.batch_length(size) >= size for size in sizes)
    same_weight = recipe.weighting == "examples" or len(sizes) == 1
    return full_batch and same_weight and recipe.momentum == 0 and recipe.mu == 0


def _work(recipe: Recipe, clients: Sequence[Records]) -> int:
    pixels = max(1, clients[0].x[0].numel() // 1000) if clients and len(clients[0]) else 1
    steps = sum(recipe.steps(len(records)) * recipe.batch_length(len(records)) for records in clients)
    return steps * pixels
