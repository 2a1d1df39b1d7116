"""Floors: what can be guessed without any message; each is an attack on a view without messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import (
    EVERYONE,
    Attack,
    Context,
    Need,
    classification,
    granted,
    images,
    public_records,
    sensitive_column,
)
from fedxray.attacks.evidence import (
    Evidence,
    Kind,
    of_attributes,
    of_class_images,
    of_images,
    of_label_counts,
    of_membership,
    of_sources,
)
from fedxray.attacks.imputation import impute_category, impute_value
from fedxray.data.records import Records, union
from fedxray.data.space import Column

MOST_PUBLIC_IMAGES = 1000


@dataclass(frozen=True, kw_only=True)
class Majority(Attack):
    """The most frequent value of the sensitive column among the public records.

    Of a continuous one, the value with most public records within the tolerance that counts as a hit.
    """

    name: ClassVar[str] = "majority"
    kind: ClassVar[Kind] = "attributes"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("public-attributes", "public-records")

    def needs(self) -> tuple[Need, ...]:
        """Public records, and how many records are in question."""
        return (sensitive_column(), granted("public-attributes"), public_records())

    def attack(self, view: View, context: Context) -> Evidence:
        """One value for everyone."""
        records, public, column = _in_question(view)
        if column.kind == "continuous":
            values = public[:, list(column.positions)]
            near = (values - values.T).abs() <= column.tolerance
            code = values[near.sum(1).argmax()]
        else:
            code = column.candidates(public)[torch.bincount(categories_of(public, column)).argmax()]
        return of_attributes(code.expand(len(records), -1).clone(), facts={"public_records": len(public)})


@dataclass(frozen=True, kw_only=True)
class Imputation(Attack):
    """A classifier trained on the public records guesses the sensitive column from all others and the target.

    The better of two usual models by cross-validation on the public records themselves.
    """

    name: ClassVar[str] = "imputation"
    kind: ClassVar[Kind] = "attributes"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("public-attributes", "public-records")

    def needs(self) -> tuple[Need, ...]:
        """Public records to learn from, and the other columns of the records in question."""
        return (sensitive_column(), granted("public-attributes"), public_records())

    def attack(self, view: View, context: Context) -> Evidence:
        """Learn from the public records, predict for the records in question."""
        _, public, column = _in_question(view)
        asked, known = view.grants.public_attributes, known_records(view)
        assert asked is not None
        other = [place for place in range(public.shape[1]) if place not in column.positions]
        learn = torch.cat([public[:, other], known.y[:, None].to(public.dtype)], 1)
        guess = torch.cat([asked.x[:, other], asked.y[:, None].to(public.dtype)], 1)
        if column.kind == "continuous":
            codes = impute_value(learn, public[:, list(column.positions)], guess)
            return of_attributes(codes, facts={"public_records": len(public)})
        codes, real = column.candidates(public), categories_of(public, column)
        evidence = of_attributes(
            codes[impute_category(learn, real, guess)], facts={"public_records": len(public)}
        )
        balanced = codes[impute_category(learn, real, guess, balanced=True)]
        return replace(evidence, tensors={**evidence.tensors, "codes_balanced": balanced})


@dataclass(frozen=True, kw_only=True)
class Chance(Attack):
    """Guessing blindly: the same score for every record, or (for sources) the same chance for every client."""

    name: ClassVar[str] = "chance"
    kind: ClassVar[Kind] = "membership"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("target-records",)

    def needs(self) -> tuple[Need, ...]:
        """How many records are in question."""
        return (granted("target-records"),)

    def attack(self, view: View, context: Context) -> Evidence:
        """All records alike."""
        records = view.grants.target_records
        assert records is not None
        return of_membership(torch.zeros_like(records.x.flatten(1)[:, 0]))


@dataclass(frozen=True, kw_only=True)
class ChanceOfSources(Attack):
    """Every client with the same chance, scored by what is right on average."""

    name: ClassVar[str] = "chance"
    kind: ClassVar[Kind] = "sources"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("source-records",)

    def needs(self) -> tuple[Need, ...]:
        """How many records and clients are in question."""
        return (granted("source-records"),)

    def attack(self, view: View, context: Context) -> Evidence:
        """1 / clients for everyone, shape [records, clients]."""
        records = view.grants.source_records
        assert records is not None
        clients = len(records.counts)
        even = torch.full_like(records.x.flatten(1)[:, :1], 1 / clients).expand(-1, clients).clone()
        return Evidence(kind="sources", tensors={"probabilities": even})


@dataclass(frozen=True, kw_only=True)
class OwnerShare(Attack):
    """Every record is said to be of the client that holds most of the records in question."""

    name: ClassVar[str] = "owner-share"
    kind: ClassVar[Kind] = "sources"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("source-records",)

    def needs(self) -> tuple[Need, ...]:
        """How many of the records in question each client holds."""
        return (granted("source-records"),)

    def attack(self, view: View, context: Context) -> Evidence:
        """One client for all."""
        records = view.grants.source_records
        assert records is not None
        largest = max(range(len(records.counts)), key=records.counts.__getitem__)
        return of_sources(torch.full_like(records.x.flatten(1)[:, 0], largest, dtype=torch.int64))


@dataclass(frozen=True, kw_only=True)
class MeanImage(Attack):
    """The mean of the public images for every image in question."""

    name: ClassVar[str] = "mean-image"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("examples", "public-records")

    def needs(self) -> tuple[Need, ...]:
        """Public images, and how many images are in question."""
        return (images(), granted("examples"), public_records())

    def attack(self, view: View, context: Context) -> Evidence:
        """One image, repeated."""
        public, count = known_records(view), view.grants.examples
        assert count is not None
        return of_images(public.x.mean(0, keepdim=True).expand(count, *view.space.shape).clone())


@dataclass(frozen=True, kw_only=True)
class NearestPublicImage(Attack):
    """All public images (up to 1,000) as guesses, matched by the scoring: the best that public pictures offer.

    The matching picks the nearest public image for every original, which no guesser could: a generous floor.
    """

    name: ClassVar[str] = "nearest-public-image"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("examples", "public-records")

    def needs(self) -> tuple[Need, ...]:
        """Public images, and how many images are in question."""
        return (images(), granted("examples"), public_records())

    def attack(self, view: View, context: Context) -> Evidence:
        """Every public image, repeated only where there are fewer than images in question."""
        public, count = known_records(view), view.grants.examples
        assert count is not None
        pool = public.x[:MOST_PUBLIC_IMAGES]
        return of_images(pool.repeat(-(-count // len(pool)), 1, 1, 1) if count > len(pool) else pool.clone())


@dataclass(frozen=True, kw_only=True)
class ClassMean(Attack):
    """For every class the mean of its public images; of a class without any, the mean of all public images."""

    name: ClassVar[str] = "class-mean"
    kind: ClassVar[Kind] = "class-images"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("public-records",)

    def needs(self) -> tuple[Need, ...]:
        """Public images with classes."""
        return (images(), classification(), public_records())

    def attack(self, view: View, context: Context) -> Evidence:
        """One image per class."""
        public = known_records(view)
        labels = torch.arange(len(view.space.classes), dtype=torch.int64, device=public.x.device)
        means = [public.x[public.y == label].mean(0) for label in labels]
        unknown = public.x.mean(0)
        found = [torch.where(torch.isnan(mean), unknown, mean) for mean in means]
        return of_class_images(torch.stack(found), labels)


@dataclass(frozen=True, kw_only=True)
class Marginals(Attack):
    """Label counts in the proportions of the public records."""

    name: ClassVar[str] = "marginals"
    kind: ClassVar[Kind] = "labels"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("examples", "public-records")

    def needs(self) -> tuple[Need, ...]:
        """Public records with classes, and how many labels are in question."""
        return (classification(), granted("examples"), public_records())

    def attack(self, view: View, context: Context) -> Evidence:
        """Public shares times the number of records, rounded so that they add up."""
        public, count = known_records(view), view.grants.examples
        assert count is not None
        shares = torch.bincount(public.y, minlength=len(view.space.classes)) / len(public)
        return of_label_counts(rounded_to(shares * count, count))


def rounded_to(values: Tensor, total: int) -> Tensor:
    """Whole numbers that add up to the total, by largest remainder, shape kept."""
    whole = values.floor().clamp(min=0)
    missing = int(total - int(whole.sum()))
    order = (values - whole).argsort(descending=True, stable=True)
    whole[order[:missing]] += 1
    return whole.to(torch.int64)


def categories_of(x: Tensor, column: Column) -> Tensor:
    """The category number of every record from its encoding, shape [records]."""
    codes = column.candidates(x)  # [values, positions]
    return (x[:, None, list(column.positions)] - codes[None]).abs().sum(-1).argmin(1)


def known_records(view: View) -> Records:
    """Complete records that the seat has without any message: public ones, and those of a curious client itself."""
    public = view.grants.public_records
    assert public is not None
    return union((public, *(one.records for one in view.own)))


def _in_question(view: View) -> tuple[Tensor, Tensor, Column]:
    asked = view.grants.public_attributes
    assert asked is not None
    return asked.x, known_records(view).x, view.space.column(view.space.sensitive or "")
