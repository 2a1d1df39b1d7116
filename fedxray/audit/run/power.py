"""The power check: would this attack have seen a leak? It is run where a leak of its kind was planted.

The verdict "no leak found" needs it. The attack with its settings, role and grants is run on the plan's own network,
recipe and defence, on records that leak as plainly as they can, and must beat its floor there by the margin. Where it
does not, it is run without the defence too: a defence that hides a planted leak from this attack blinds it, which is no
safety. Runs and cases are stored like any other: they are resumed, and every engine gives the same. Only rows whose
verdict waits for it are checked, and those of one kind under one defence share their runs.

A check passes on client-runs (`LEAST_UNITS`), be they of one planted run or of few, while a verdict needs several runs.
It only asks whether the attack can see a plain leak in this setting, not how much runs like these leak: every planted
client has values of its own, and a gain on one trained model is enough to show that the attack is not blind. How small
a leak it would see in runs like these is the detection limit, which is measured over the audit's own runs.

The first half of the file plants leaks (`plant_leak` and one function per kind of attack), the second half lists the
runs and cases of the checks and judges them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedxray.audit.judge.summary import summarise
from fedxray.audit.judge.verdict import COPIES_ONLY, LEAST_UNITS, number
from fedxray.audit.plan import AttackPart, Plan
from fedxray.audit.run.canaries import put_canaries
from fedxray.audit.run.comparisons import adapts
from fedxray.audit.run.grid import (
    ABOUT_WHOLE_SUMS,
    CANARIES,
    SUMS,
    UNDEFENDED,
    Case,
    Run,
    is_about_everyone,
    planted_case,
)
from fedxray.audit.run.prepare import Prepared, prepare, prepare_first, primary_metrics
from fedxray.data.dataset import Column, Records, Space, union
from fedxray.defences.base import Defence, NoDefence
from fedxray.federation.setting import Federation
from fedxray.models.inspect import has_batch_norm
from fedxray.seeds import fork, permutation, uniform_like

# Planted leaks: the plan's own federation with records whose leak every attack of a kind should see
#
# Network, recipe, rounds and seats stay those of the plan; only the records and the number of clients change.
# Without messages what is planted cannot be guessed: public records do not show it.
#
# - attributes: the sensitive value is drawn at random, and the target of the clients' records reveals it.
# - membership: a few distinct records with random targets, repeated; the held-out ones are drawn in the same way.
#   Where some records of every person are set aside, copies take their place: nothing could reveal a person more.
# - sources: every client has a target of its own.
# - labels: few examples, three quarters of them of the class that is rarest in public.
# - images, rows: one record per client (four where BatchNorm needs company), unlike the public ones.
# - class-images: all images of a class are one picture that no public image resembles.
# - model: every client has a rule of its own by which targets follow from inputs.

TARGETS = 6  # planted clients that are attacked
MEMBERS = 4  # distinct ones
FEW = 8  # examples whose labels are inferred
COMPANY = 4  # records in a batch where BatchNorm needs several
WAVES = 3  # the finest detail of a planted picture
GOLDEN = (math.sqrt(5) - 1) / 2
FAR = 1.5  # standard deviations that a planted target lies off the mean
WRONG = 0.1  # share of planted classes that follow no rule, so that a client's optimum is finite

Draws = torch.Generator
Change = Callable[[Federation, Records, int, Draws], Records]


def prepare_for(plan: Plan, item: Run | Case, stated: Defence | None = None) -> Prepared:
    """Return the federation of a run: that of the plan, or one with a planted leak.

    `stated` replaces a defence of the user's.
    """
    undefended = item.plant is not None and not item.defended
    prepared = prepare_first(plan, item.seed) if undefended else prepare(plan, item.defence, item.seed, stated=stated)
    if item.plant is None:
        return prepared
    if item.plant == CANARIES:
        assert plan.canaries is not None
        federation = put_canaries(prepared.federation, plan.canaries, item.seed, random_targets)
        return replace(prepared, federation=federation)
    clients = planted_clients(plan, item.plant, prepared.federation.space)
    federation = prepared.federation
    if prepared.recorded is not None and not isinstance(federation.record, str):
        # As many rounds as the recording holds: their numbers are whatever a server wrote.
        federation = replace(federation, rounds=len(federation.record), record="all")
    federation = federation if item.defended else replace(federation, defence=NoDefence())
    federation = plant_leak(federation, item.plant, clients=clients, seed=item.seed)
    names = tuple(f"planted {client}" for client in range(clients))
    return replace(
        prepared, federation=federation, split=replace(prepared.split, names=names, dropped=0), recorded=None
    )


def planted_clients(plan: Plan, kind: str, space: Space) -> int:
    """Return how many clients a planted federation has: as many as the check needs, whatever the plan has.

    A client's records may serve several planted clients, each with its own planted values. Where only sums are seen,
    more clients would make the case harder than the plan's own. Sources are distinguished by their class, so there are
    no more clients than classes.
    """
    seats = [seat for attack in plan.attacks for seat in attack.seats]
    enough = max([TARGETS + len(set(seats)), *(seat + 1 for seat in seats)])
    summed = any(part.role in (SUMS if kind in ABOUT_WHOLE_SUMS else SUMS[1:]) for part in plan.attacks)
    if plan.federation.secure_aggregation or summed:
        enough = min(enough, max(plan.clients, 2))
    if kind == "sources" and space.target == "classification":
        enough = min(enough, max(2, space.outputs))
    return enough


def plant_leak(federation: Federation, kind: str, *, clients: int, seed: int) -> Federation:
    """Return the federation with records whose leak is of this kind."""
    change, draws, public = CHANGES[kind], fork(seed, "plant", kind), federation.public
    plain = replace(
        federation,
        clients=_as_many(federation.clients, clients),
        holdout=_as_many(federation.holdout, clients),
        others=(),
        participation=1.0,
    )

    def changed(parts: tuple[Records, ...], name: str) -> tuple[Records, ...]:
        return tuple(
            change(plain, records, client, fork(draws, name, client)) if len(records) else records
            for client, records in enumerate(parts)
        )

    trained = tuple(_cut(plain, records, kind) for records in changed(plain.clients, "train"))
    held_out = changed(plain.holdout, "holdout") if kind in HELD_OUT_TOO else plain.holdout
    copies = kind == "membership" and any(map(len, federation.others))
    return replace(
        plain,
        clients=trained,
        holdout=held_out,
        others=tuple(map(_copies, trained, held_out)) if copies else (),
        public=_blind(plain, public, draws) if kind == "attributes" and public is not None else public,
    )


def _as_many(parts: tuple[Records, ...], clients: int) -> tuple[Records, ...]:
    return tuple(parts[client % len(parts)] for client in range(clients)) if parts else ()


def _cut(federation: Federation, records: Records, kind: str) -> Records:
    """Return few enough examples to make the case easy, in batches that BatchNorm can take."""
    count = len(records)
    if kind in ("images", "rows"):
        count = _whole(federation, COMPANY) if has_batch_norm(federation.model) else 1
    if kind == "labels":
        count = _whole(federation, FEW)
    records = records.take(torch.arange(min(count, len(records)), device=records.x.device))
    if kind != "membership":
        return records
    repeated = torch.arange(len(records), device=records.x.device) % min(MEMBERS, len(records))
    return records.take(repeated)  # a few members many times, so that the model remembers them


def _copies(trained: Records, held_out: Records) -> Records:
    """Return the distinct records of both as records set aside of the same people."""
    distinct = torch.arange(min(MEMBERS, len(trained)), device=trained.x.device)
    return union((trained.take(distinct), held_out))


def _whole(federation: Federation, most: int) -> int:
    """Return the largest number of examples up to `most` that fills its batches."""
    return most - most % federation.recipe.batch_length(most)


def _blind(federation: Federation, public: Records, draws: Draws) -> Records:
    """Return public records whose sensitive value does not depend on the target, not even by chance.

    In the order of the targets, categories take turns, and numbers jump by the golden section of their range: the
    multiples of the golden section spread evenly over 0..1 whatever their number, so ranks and values do not correlate.
    """
    x, column = public.x.clone(), _sensitive(federation.space)
    shuffled = permutation(len(x), fork(draws, "public")).to(x.device)  # equal targets in random order
    rank = torch.empty_like(shuffled)
    rank[shuffled[public.y[shuffled].argsort(stable=True)]] = torch.arange(len(x), device=x.device)  # [records]
    if column.kind == "continuous":
        rank = ((rank * GOLDEN) % 1.0).argsort().argsort()
    _write_secret(x, column, rank)
    return Records(x, public.y)


def _attributes(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    """Draw the sensitive values at random and let the targets follow them."""
    x, column = records.x.clone(), _sensitive(federation.space)
    level = _write_secret(x, column, permutation(len(x), draws).to(x.device))
    classes = federation.space.outputs
    if federation.space.target == "classification":
        values = len(column.codes) or classes
        revealing = (level * (values - 1)).round().long() % classes  # the category's number, as a class
        return Records(x, revealing.to(records.y.dtype))
    return Records(x, _off_the_mean(federation, records, 2 * level - 1))


def _write_secret(x: Tensor, column: Column, order: Tensor) -> Tensor:
    """Write sensitive values, evenly over categories or range, by this order; return their level 0..1 [records]."""
    if column.kind == "continuous":
        level = order.to(x.dtype) / max(len(x) - 1, 1)
        x[:, list(column.positions)] = (column.low + (column.high - column.low) * level)[:, None]
        return level
    codes = column.candidates(x)
    category = order % len(codes)
    x[:, list(column.positions)] = codes[category]
    return category.to(x.dtype) / max(len(codes) - 1, 1)


def _sensitive(space: Space) -> Column:
    return space.column(space.sensitive or "")


def random_targets(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    """Draw the targets at random: only a model that was trained on a record can know its target."""
    return replace(records, y=_random_targets(federation, records, draws))


def _random_targets(federation: Federation, records: Records, draws: Draws) -> Tensor:
    """Return random classes, or targets above or below the mean, [records]."""
    shares = uniform_like(records.x.flatten(1)[:, 0], draws)
    if federation.space.target == "classification":
        return (shares * federation.space.outputs).long().clamp(max=federation.space.outputs - 1)
    return _off_the_mean(federation, records, torch.where(shares < 0.5, -1.0, 1.0).to(shares))


def _off_the_mean(federation: Federation, records: Records, level: Tensor) -> Tensor:
    """Return targets that lie off the mean of all clients' by levels (-1..1) of FAR standard deviations, [records]."""
    known = torch.cat([client.y for client in federation.clients])
    deviation = known.std() if len(known) > 1 else known.abs().mean()
    return (known.mean() + FAR * deviation * level).to(records.y.dtype)


def _sources(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    """Give all records of a client its own class, or its own target."""
    count = len(federation.clients)
    if federation.space.target == "classification":
        own = torch.full_like(records.y, client % federation.space.outputs)
    else:
        level = torch.full_like(records.y, 2 * client / max(count - 1, 1) - 1)
        own = _off_the_mean(federation, records, level)
    return Records(records.x, own)


def _labels(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    """Give three quarters of the records the class that is rarest in public, the others the second rarest."""
    known = federation.public.y if federation.public is not None else records.y
    counts = torch.bincount(known, minlength=federation.space.outputs)
    rare = counts.argsort()[:2].tolist()
    index = torch.arange(len(records), device=records.y.device)
    often, seldom = rare[0], rare[-1]
    return Records(records.x, torch.where(index % 4 == 3, seldom, often).to(records.y.dtype))


def _images(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    """Replace the first images by smooth random pictures [images, channels, height, width] of different classes."""
    pixels = torch.stack(
        [_picture(records.x[0], fork(draws, "picture", index)) for index in range(min(COMPANY, len(records)))]
    )
    x = records.x[: len(pixels)] * 0 + federation.space.from_pixels(pixels)
    y = records.y[: len(pixels)]
    if federation.space.target == "classification":
        index = torch.arange(len(pixels), device=y.device)
        y = ((client + index) % federation.space.outputs).to(y.dtype)
    return Records(x, y)


def _class_images(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    """Replace all images of a class by one picture, the same at every client."""
    shown = [
        federation.space.from_pixels(_picture(records.x[0], fork(0, "picture of a class", label))[None])[0]
        for label in range(federation.space.outputs)
    ]
    return Records(torch.stack(shown)[records.y], records.y)


def _picture(like: Tensor, draws: Draws) -> Tensor:
    """Return a smooth picture that fills the range from black to white, [channels, height, width].

    It is a sum of low-frequency cosines with random weights, stretched to 0..1 in every channel.
    """
    channels, height, width = like.shape
    down = torch.linspace(0, math.pi, height, dtype=like.dtype, device=like.device)
    along = torch.linspace(0, math.pi, width, dtype=like.dtype, device=like.device)
    strength = uniform_like(like.new_empty(channels, WAVES, WAVES), draws) * 2 - 1
    waves = torch.arange(WAVES, dtype=like.dtype, device=like.device)[:, None]
    picture = torch.einsum("cab,ai,bj->cij", strength, torch.cos(waves * down[None]), torch.cos(waves * along[None]))
    low, high = picture.amin(dim=(1, 2), keepdim=True), picture.amax(dim=(1, 2), keepdim=True)
    return (picture - low) / (high - low).clamp(min=1e-6)


def _rows(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    """Draw every column evenly over its range or categories, and the targets at random."""
    x = records.x.clone()
    for column in federation.space.columns:
        own = fork(draws, column.name)
        if column.kind == "continuous":
            share = uniform_like(x[:, : len(column.positions)], own)
            x[:, list(column.positions)] = column.low + (column.high - column.low) * share
        else:
            codes = column.candidates(x)
            drawn = (uniform_like(x[:, 0], own) * len(codes)).long().clamp(max=len(codes) - 1)
            x[:, list(column.positions)] = codes[drawn]
    return Records(x, _random_targets(federation, records, draws))


def _model(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    """Let the targets follow from the inputs by a linear rule that is different for every client."""
    flat = records.x.flatten(1)  # [records, inputs]
    known = torch.cat([client_records.x.flatten(1) for client_records in federation.clients])
    inputs = (flat - known.mean(0)) / known.std(0).clamp(min=1e-6)
    rule = fork(0, "rule of a client", client)  # the same for records that are held out
    weights = uniform_like(flat.new_empty(flat.shape[1], federation.space.outputs), rule) * 2 - 1
    # Weights are uniform in -1..1, of variance 1/3: this scale gives answers of variance 1.
    answers = inputs @ weights / math.sqrt(flat.shape[1] / 3)  # [records, outputs]
    if federation.space.target == "regression":
        return Records(records.x, _off_the_mean(federation, records, answers[:, 0]))
    wrong = uniform_like(flat[:, 0], draws) < WRONG
    return Records(records.x, torch.where(wrong, _random_targets(federation, records, draws), answers.argmax(1)))


HELD_OUT_TOO = ("attributes", "membership", "sources", "model")
CHANGES: dict[str, Change] = {
    "attributes": _attributes,
    "membership": random_targets,
    "sources": _sources,
    "labels": _labels,
    "images": _images,
    "rows": _rows,
    "class-images": _class_images,
    "model": _model,
}

# The runs and cases of the power checks, and their outcome

Row = dict[str, Any]

LEAST_PLANTED_RUNS = 4  # an interval over fewer runs is too wide
UNKNOWN_RECIPE = "the recipe of the recording is not known, so nothing can be planted"


@dataclass(frozen=True, kw_only=True)
class Check:
    """The power check of an attack under a defence, or undefended; `aware` as for cases."""

    attack: str
    defence: str = UNDEFENDED
    aware: bool | None = None


def waiting(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return the checks that verdicts wait for: each row's attack under its own defence."""
    plain = {part.title for part in plan.defences if part.is_none}
    waits = [row for row in rows if row["awaits_power"] and not row["oracle"]]
    checks = [
        Check(attack=row["attack"])
        if row["defence"] in plain
        else Check(attack=row["attack"], defence=row["defence"], aware=row["aware"])
        for row in waits
    ]
    return list(dict.fromkeys(checks))


def to_compare(rows: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return the checks without defence of attacks that saw no planted leak under one, though all cases ended."""
    blind = [row["attack"] for row in rows if row["defence"] != UNDEFENDED and not row["passed"] and row["lost"] == 0]
    done = {row["attack"] for row in rows if row["defence"] == UNDEFENDED}
    return [Check(attack=attack) for attack in dict.fromkeys(blind) if attack not in done]


def planted_work(plan: Plan, checks: Sequence[Check], prepared: Prepared | None = None) -> tuple[list[Run], list[Case]]:
    """Return the runs and cases of these power checks; none where nothing can be planted.

    An attack that does not adapt answers the same whether it is aware or not, so it is run once.
    """
    prepared = prepared or prepare_first(plan)
    if prepared.unknown:
        return [], []
    runs: dict[str, Run] = {}
    cases: list[Case] = []
    for check in dict.fromkeys(_asked(plan, check) for check in checks):
        part = plan.attack_of(check.attack)
        kind = part.make(plan.folder).kind
        if kind in CHANGES:
            for case in _cases(plan, part, kind, prepared, check):
                run = Run(
                    id=case.run, defence=case.defence, seed=case.seed, plant=kind, defended=check.defence != UNDEFENDED
                )
                runs.setdefault(case.run, run)
                cases.append(case)
    return list(runs.values()), cases


def _asked(plan: Plan, check: Check) -> Check:
    """Return the check whose cases answer this one."""
    if check.aware and not adapts(plan.attack_of(check.attack).make(plan.folder)):
        return replace(check, aware=False)
    return check


def _cases(plan: Plan, part: AttackPart, kind: str, prepared: Prepared, check: Check) -> list[Case]:
    """Return one case per planted client, in as many runs as give enough units."""
    clients = planted_clients(plan, kind, prepared.federation.space)
    others = [client for client in range(clients) if client not in part.seats]
    targets: Sequence[int | None] = others[:TARGETS]
    if targets and is_about_everyone(plan, part):
        targets = [None]
    if not targets:
        return []
    seeds = planted_seeds(plan.seeds, planted_runs(len(targets)))
    defended = check.defence != UNDEFENDED
    return [
        planted_case(seed, check.defence, part, client, kind, aware=check.aware, defended=defended)
        for seed in seeds
        for client in targets
    ]


def planted_runs(targets: int) -> int:
    """Return 1 where a run has enough clients, else several runs: an interval over two runs is too wide."""
    return 1 if targets >= TARGETS else max(LEAST_PLANTED_RUNS, math.ceil(TARGETS / targets))


def planted_seeds(seeds: Sequence[int], count: int) -> list[int]:
    """Return the first seeds of the plan, and further ones where it has too few."""
    more = range(max(seeds) + 1, max(seeds) + 1 + count)
    return [*seeds, *more][:count]


def planted_share(plan: Plan, kinds: Sequence[str], prepared: Prepared) -> float:
    """Return the number of runs of the plan's size that take as much space as all planted ones."""
    own, total = len(prepared.federation.clients), 0.0
    for kind in set(kinds) & set(CHANGES):
        clients = planted_clients(plan, kind, prepared.federation.space)
        total += planted_runs(clients) * clients / own
    return total * (1 + sum(not part.is_none for part in plan.defences))


def power_rows(plan: Plan, checks: Sequence[Check], cases: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return one row per check: the gain in the primary metric on a planted leak, and whether that passes."""
    rows: list[Row] = []
    primary = primary_metrics(plan) if cases else {}
    for check in checks:
        asked = _asked(plan, check)
        own = [case for case in cases if (case["attack"], case["defence"], case["aware"]) == _place(asked)]
        place = dict(zip(("attack", "defence", "aware"), _place(check), strict=True))
        judged = [row for row in summarise(own, primary=primary) if row["primary"]]
        rows += [{**_row(row, own[0]["plant"], own), **place} for row in judged]
        if not own:  # nothing could be planted
            empty = dict.fromkeys(("metric", "mean", "floor", "over", "difference", "low", "high", "margin", "planted"))
            untested = {"n": 0, "lost": 0, "passed": False, "reason": UNKNOWN_RECIPE}
            rows.append({**empty, **untested, **place, "role": plan.attack_of(check.attack).role})
    return rows


def _place(check: Check) -> tuple[str, str, bool | None]:
    return check.attack, check.defence, check.aware


def _row(row: Mapping[str, Any], kind: str, cases: Sequence[Mapping[str, Any]]) -> Row:
    columns = ("role", "metric", "mean", "floor", "over", "difference", "low", "high", "n", "margin")
    beats = row["low"] is not None and row["n"] >= LEAST_UNITS and row["low"] > row["margin"]
    lost = [case for case in cases if not case["scores"]]
    checked = {name: row[name] for name in columns} | {"planted": kind, "lost": len(lost), "passed": beats}
    if beats:
        copied = f"; {COPIES_ONLY}" if row["metric"] == "auc_subject_other" else ""
        return checked | {"reason": f"it finds a planted leak: {_gain(row)}{copied}"}
    if lost:
        return checked | {"reason": f"a planted case failed: {lost[0]['reason']}"}
    if row["low"] is None:
        return checked | {"reason": "nothing could be measured where a leak was planted"}
    return checked | {"reason": f"a planted leak was not seen: {_gain(row)}"}


def _gain(row: Mapping[str, Any]) -> str:
    spread = f"95 % interval {number(row['low'])} to {number(row['high'])}, margin {number(row['margin'])}"
    return f"{number(row['difference'])} over {row['over']} ({spread})"
