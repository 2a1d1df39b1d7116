"""What was understood of the data, in lines for people: a column that was misread shows here, not in the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedxray.audit.plan.recorded import ON_WORD
from fedxray.audit.prepare import Prepared
from fedxray.audit.recorded.whole import heading, place, shortcomings
from fedxray.data import Column, Dataset, Split
from fedxray.errors import printable, some

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
