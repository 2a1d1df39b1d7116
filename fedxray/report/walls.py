"""Galleries under one heading per attack and defence, with what is needed to sort them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedxray.report import words
from fedxray.report.pictures import Gallery, Pair, Told


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A pair of pictures with where it is from, and its place when the best come first."""

    pair: Pair
    place: str
    best: int


@dataclass(frozen=True, kw_only=True)
class Wall:
    """Everything that is shown of one attack against one defence."""

    title: str
    sources: tuple[str, ...]  # the cases, in words
    shown: tuple[Shown, ...]
    told: tuple[tuple[str, Told], ...]  # where it is from, and the value


def kinds_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The heading of every case by its id."""
    return {case["id"]: _title(case) for case in document["cases"]}


def walls(document: Mapping[str, Any], galleries: Sequence[Gallery]) -> list[Wall]:
    """One wall per attack and defence, those with pictures first, then in the order of the galleries."""
    kinds, cases = kinds_of(document), {case["id"]: case for case in document["cases"]}
    found: dict[str, list[Gallery]] = {}
    for gallery in galleries:
        found.setdefault(kinds.get(gallery.case, gallery.case), []).append(gallery)
    made = [_wall(title, listed, cases) for title, listed in found.items()]
    return sorted(made, key=lambda wall: not wall.shown)


def _wall(title: str, galleries: Sequence[Gallery], cases: Mapping[str, Mapping[str, Any]]) -> Wall:
    pairs = [(pair, _place(one, cases)) for one in galleries for pair in one.pairs]
    order = sorted(range(len(pairs)), key=lambda index: -_quality(pairs[index][0]))
    ranks = {index: rank for rank, index in enumerate(order)}
    return Wall(
        title=title,
        sources=tuple(f"{one.title} (case {one.case})" for one in galleries),
        shown=tuple(
            Shown(pair=pair, place=place, best=ranks[index]) for index, (pair, place) in enumerate(pairs)
        ),
        told=tuple((_place(one, cases), value) for one in galleries for value in one.told),
    )


def _quality(pair: Pair) -> float:
    return float("-inf") if pair.quality is None else pair.quality


def _place(gallery: Gallery, cases: Mapping[str, Mapping[str, Any]]) -> str:
    case = cases.get(gallery.case)
    if case is None:
        return gallery.case
    whose = "everyone" if case["client"] is None else f"client {case['client']}"
    return f"seed {case['seed']}, {whose}"


def _title(case: Mapping[str, Any]) -> str:
    aware = words.aware_words(case)
    named = [case["attack"], words.defence_words(case["defence"])]
    return ", ".join([*named, aware] if aware else named)
