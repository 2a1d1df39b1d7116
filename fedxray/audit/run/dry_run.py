"""What was understood of the data, in lines for people: a column that was misread shows here, not in the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from fedxray.audit.plan import AttackPart, Plan
from fedxray.audit.plan.recorded import ON_WORD
from fedxray.audit.recorded.describe import heading, place, shortcomings
from fedxray.audit.run.grid import is_about_everyone
from fedxray.audit.run.prepare import Prepared
from fedxray.data import Column, Dataset, Split
from fedxray.data.dataset import Records, union
from fedxray.defences.base import NoDefence
from fedxray.errors import printable, some
from fedxray.federation.local import in_train_mode
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.losses import example_loss
from fedxray.params import Params, buffers_of, norm, parameters_of, subtract
from fedxray.theory import leading_divergence

SHOWN_CLIENTS = 12
SHOWN_NAMES = 30
SHOWN_VALUES = 6
SHOWN_LAYERS = 4
MANY_VALUES = 20  # categories that no longer look like categories when records are few for each
WARNING = (
    "! has few records for each value; if it is a number, a date or an identifier, correct it or drop it"
)


def understood(prepared: Prepared) -> list[str]:
    """Target, secret, columns, clients and public records, each line with its word first."""
    dataset, parts = prepared.dataset, prepared.split
    columns = _columns(dataset) if dataset.space.kind == "table" else _images(dataset)
    facts = [
        ("data", f"{dataset.name}, {len(dataset):,} records"),
        ("learns", _target(dataset)),
        *columns,
        *_clients(parts, prepared.seed),
        ("public", f"{len(parts.public):,} records that belong to no client"),
    ]
    if prepared.recorded is not None:
        facts += recording_facts(prepared)
    if parts.dropped:
        facts.append(("unused", f"{parts.dropped:,} records"))
    return [f"{word:<12}{text}" for word, text in facts]


def recording_facts(prepared: Prepared) -> list[tuple[str, str]]:
    """Whose recording it is, its rounds, and what stands between what it holds and what others saw."""
    told = prepared.recorded or {}
    facts = [("recording", heading(told))]
    if place(told):
        facts.append(("", f"place: {place(told)}"))
    facts += [("", f"! {word}: {text}") for word, text in shortcomings(told)]
    if told["side"] != "client" or told["owner"] == ON_WORD:
        facts.append(("", f"that the node is yours: {told['owner']}"))
    if told["recipe_heard"]:
        facts.append(("", f"told the clients: {', '.join(told['recipe_heard'])}"))
    facts += [("", text) for text in searched(told.get("recipe_searched"))]
    for field, rounds in told["recipe_varied"].items():
        facts.append(("", f"! {field} changes: {rounds}; to replay a training, read rounds of one"))
    for field, value in told["recipe_doubted"].items():
        facts.append(("", f"! {field} is told as {value}, which cannot be"))
    if told["changed_after"]:
        facts.append(
            (
                "",
                f"! {printable(', '.join(told['changed_after']))} came after the recorder: others saw something else",
            )
        )
    if told["not_recorded"]:
        facts.append(
            ("", f"! no message holds {some(told['not_recorded'], SHOWN_LAYERS)}: [model] gives its own")
        )
    if told["frozen_changed"]:
        moved = some(told["frozen_changed"], SHOWN_LAYERS)
        facts.append(("", f"! [model] does not train {moved}, yet the recording changes it"))
    return facts


def searched(search: Mapping[str, Any] | None) -> list[str]:
    """What a search of the recipe came to."""
    if search is None:
        return []
    if not search["chosen"]:
        return [f"! the search of the recipe came to nothing: {search['reason']}"]
    chosen = ", ".join(f"{name} {value}" for name, value in search["chosen"].items())
    facts = [f"searched by the attacker's own loss: {chosen} (best of {len(search['tried'])})"]
    if search["alike"]:
        facts.append(f"! not told apart by it: {', '.join(search['alike'])}; others fit nearly as well")
    return facts


def learnt(fell: int, rounds: int) -> str:
    """Whether the records look like those that were trained on."""
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
    """A column of categories and how many there are, marked where they are suspiciously many."""
    count = len(column.categories)
    return f"{column.name} ({count}{'!' if count > max(MANY_VALUES, records // 20) else ''})"


def _clients(parts: Split, seed: int) -> list[tuple[str, str]]:
    """Each client with its name and how many records it trains on and holds out."""
    counts = [(len(train), len(held)) for train, held in zip(parts.train, parts.holdout, strict=True)]
    facts = [("clients", f"{len(counts)} (with seed {seed}):")]
    for client, (train, held) in enumerate(counts[:SHOWN_CLIENTS]):
        name = f" {printable(parts.names[client])}" if parts.names[client] else ""
        facts.append(("", f"{client}{name}: trains on {train:,}, {held:,} held out"))
    if len(counts) > SHOWN_CLIENTS:
        sizes = [train for train, _ in counts]
        facts.append(
            ("", f"and {len(counts) - SHOWN_CLIENTS} more; all train on {min(sizes):,} to {max(sizes):,}")
        )
    return facts


# --- How far off it is to take all clients behind a sum for one (paper 004, Lemma 1), said before anything
# is attacked.


MOST_STEPS = 2_000_000  # local steps times examples of a round: more would not be a quick word beforehand
READS_SUMS = "curious-client"


@dataclass(frozen=True, kw_only=True)
class Off:
    """The distance of the clients' mean update from that of one client with all records, as a share of the latter."""

    clients: int
    simulated: float
    leading: float | None  # by Lemma 1's leading term; None where its conditions do not hold


def words(plan: Plan, prepared: Prepared) -> list[str]:
    """One line for every attack that reads a sum as one client's reply; none where a round is too long to try."""
    found = []
    for part in plan.attacks:
        attack = part.make(plan.folder)
        if attack.name != READS_SUMS or part.restore is not None or not is_about_everyone(plan, part):
            continue
        clients = behind(part, prepared.federation, getattr(attack, "own_share", ""))
        if _work(prepared.federation.recipe, clients) <= MOST_STEPS:
            found.append(f"{part.title}: {said(how_far_off(prepared.federation, clients))}")
    return found


def behind(part: AttackPart, federation: Federation, own_share: str) -> tuple[Records, ...]:
    """Whose records stand behind what the attack reads: all, or all but the seats where those take theirs out."""
    out = part.seats if own_share == "subtract" else ()
    return tuple(one for client, one in enumerate(federation.clients) if client not in out)


def how_far_off(federation: Federation, clients: Sequence[Records]) -> Off:
    """Simulated for the first round: the clients apart, and one client that takes as many steps on all records."""
    recipe = federation.recipe
    length = recipe.batch_size
    whole = replace(recipe, batch_size=length if length == "all" else length * len(clients))
    start = parameters_of(federation.model)
    apart = _end(federation, clients, recipe)
    together = _end(federation, [union(tuple(clients))], whole)
    moved = float(norm(subtract(together, start)))
    return Off(
        clients=len(clients),
        simulated=float(norm(subtract(apart, together))) / moved if moved else 0.0,
        leading=_leading(federation, clients, start, moved)
        if moved and _as_in_the_lemma(recipe, clients)
        else None,
    )


def said(off: Off) -> str:
    """In words."""
    if off.clients == 1:
        return "one client stands behind the update, nothing is taken for something else"
    term = "" if off.leading is None else f" (Lemma 1's leading term: {_percent(off.leading)})"
    return (
        f"taking {off.clients} clients for one puts the update off by {_percent(off.simulated)} of it{term}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share > 1e-5 else "less than 0.001 %"


def _end(federation: Federation, clients: Sequence[Records], recipe: Recipe) -> Params:
    """The global model after one round."""
    short = replace(
        federation, clients=tuple(clients), holdout=(), recipe=recipe, rounds=1, participation=1.0, record="all",
        defence=NoDefence(), secure_aggregation=False,
    )  # fmt: skip
    transcript, _ = simulate(short, seed=0)
    return transcript.shelf.get(transcript.outcome(0).parts).params


def _leading(federation: Federation, clients: Sequence[Records], start: Params, moved: float) -> float:
    network, recipe = in_train_mode(federation.model), federation.recipe
    losses = [partial(loss_on, network, recipe.loss, one) for one in clients]
    sizes = [float(len(one)) if recipe.weighting == "examples" else 1.0 for one in clients]
    rate = recipe.learning_rate
    steps = 1 if recipe.kind == "gradient" else recipe.epochs
    term = leading_divergence(start, losses, sizes, rate=rate, steps=steps)
    return float(norm(term)) * recipe.server_learning_rate / moved


def loss_on(network: nn.Module, loss: str, records: Records, params: Params) -> Tensor:
    """The mean loss of all records, in the mode that the network is in; its buffers stay as they are."""
    fresh = {name: value.clone() for name, value in buffers_of(network).items()}
    return example_loss(loss)(functional_call(network, {**params, **fresh}, (records.x,)), records.y).mean()


def _as_in_the_lemma(recipe: Recipe, clients: Sequence[Records]) -> bool:
    """Whether every step of every client is a plain step on all it has, and every record counts alike in the mean.

    Where clients of different sizes count alike, the lemma's one client is not the one that holds all records.
    """
    sizes = {len(one) for one in clients}
    whole = recipe.kind == "gradient" or all(recipe.batch_length(size) >= size for size in sizes)
    alike = recipe.weighting == "examples" or len(sizes) == 1
    return whole and alike and recipe.momentum == 0 and recipe.mu == 0


def _work(recipe: Recipe, clients: Sequence[Records]) -> int:
    pixels = max(1, clients[0].x[0].numel() // 1000) if clients and len(clients[0]) else 1
    return sum(recipe.steps(len(one)) * recipe.batch_length(len(one)) for one in clients) * pixels
