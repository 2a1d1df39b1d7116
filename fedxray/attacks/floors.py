"""Floors (baselines without messages): each is an attack on a view that holds no message."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks import base
from fedxray.attacks.evidence import (
    Evidence,
    Kind,
    of_attributes,
    of_class_images,
    of_images,
    of_label_counts,
    of_membership,
    of_rows,
    of_sources,
)
from fedxray.data.dataset import Column, Records, union
from fedxray.seeds import derive_seed, fork, permutation

# Imputation of one column of a table from the others, learned on public records

Goal = Literal["classes", "balanced", "values"]
SCORING: dict[Goal, str] = {"classes": "accuracy", "balanced": "balanced_accuracy", "values": "r2"}
LEAST_PER_FOLD = 5
MOST_FOLDS = 5
_fitted: dict[int, Any] = {}  # cache of the last fits: every client of a run needs the same one
MOST_FITTED = 8


def impute_category(learn: Tensor, wanted: Tensor, guess: Tensor, *, balanced: bool = False) -> Tensor:
    """Return categories [records] for `guess` [records, columns], learned from `learn` and `wanted` [public].

    Fitted for accuracy, or for balanced accuracy.
    """
    if len(torch.unique(wanted)) == 1:
        return wanted[:1].expand(len(guess)).clone()
    predicted = _fit(learn, wanted, "balanced" if balanced else "classes").predict(_numbers(guess))
    return torch.as_tensor(predicted, device=guess.device).to(wanted.dtype)


def category_probabilities(learn: Tensor, wanted: Tensor, guess: Tensor, values: int) -> Tensor:
    """Return the probabilities of categories [records, values] for `guess`, float64, by the model of the floor.

    Each is mixed with an even guess that weighs as much as one public record per value, so that none is 0 or 1.
    """
    public = len(wanted)
    shares = torch.zeros((len(guess), values), dtype=torch.float64, device=guess.device)
    if len(torch.unique(wanted)) == 1:
        shares[:, int(wanted[0])] = 1.0
    else:
        model = _fit(learn, wanted, "classes")
        known = torch.as_tensor(model.classes_, device=guess.device).long()
        shares[:, known] = torch.as_tensor(model.predict_proba(_numbers(guess)), device=guess.device).double()
    return (shares * public + 1) / (public + values)


def impute_value(learn: Tensor, wanted: Tensor, guess: Tensor) -> Tensor:
    """Return codes [records, 1] for `guess` [records, columns], learned from `learn` and `wanted` [public, 1]."""
    predicted = _fit(learn, wanted[:, 0], "values").predict(_numbers(guess))
    return torch.as_tensor(predicted, device=guess.device).to(wanted.dtype)[:, None]


def _fit(learn: Tensor, wanted: Tensor, goal: Goal) -> Any:
    """Return the better of two standard models by cross-validation, the linear one where there are too few records.

    Its draws depend on its training data only.
    """
    key = derive_seed(0, "imputation", learn, wanted, goal)
    if key not in _fitted:
        x, y, seed = _numbers(learn), wanted.detach().cpu().numpy(), key % 2**31
        chosen = _linear(goal)
        if (folds := _folds(wanted)) > 1:
            models = [chosen, _forest(goal, seed)]
            scores = [_cross_validated(model, x, y, seed, SCORING[goal], folds) for model in models]
            chosen = models[scores.index(max(scores))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fit that has not fully converged is still a floor
            chosen.fit(x, y)
        _keep(key, chosen)
    return _fitted[key]


def out_of_fold(learn: Tensor, wanted: Tensor, goal: Goal) -> Any:
    """Return what the chosen model predicts for every public record when fitted without it, by folds.

    Probabilities [public, categories] for classes, each category that occurs in its order, or values [public]; None
    where there are too few records. The classes of `wanted` must be at least two.
    """
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict

    if (folds := _folds(wanted)) < 2:
        return None
    key = derive_seed(0, "out of fold", learn, wanted, goal)
    if key not in _fitted:
        cut = (KFold if goal == "values" else StratifiedKFold)(folds, shuffle=True, random_state=key % 2**31)
        x, y, method = (
            _numbers(learn),
            wanted.detach().cpu().numpy(),
            "predict" if goal == "values" else "predict_proba",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a rare category may be missing from a fold
            _keep(key, cross_val_predict(_fit(learn, wanted, goal), x, y, cv=cut, method=method))
    return _fitted[key]


def _keep(key: int, fitted: Any) -> None:
    while len(_fitted) >= MOST_FITTED:
        _fitted.pop(next(iter(_fitted)))
    _fitted[key] = fitted


def _folds(wanted: Tensor) -> int:
    """Return the number of folds of a cross-validation; below two there is none."""
    return min(MOST_FOLDS, len(wanted) // LEAST_PER_FOLD)


def _weight(goal: Goal) -> str | None:
    return "balanced" if goal == "balanced" else None


def _linear(goal: Goal) -> Any:
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    last = RidgeCV() if goal == "values" else LogisticRegression(max_iter=2000, class_weight=_weight(goal))
    return make_pipeline(StandardScaler(), last)


def _forest(goal: Goal, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor  # slow, and small tables need none

    settings: dict[str, Any] = {"n_estimators": 50, "min_samples_leaf": 2, "random_state": seed, "n_jobs": 1}
    if goal == "values":
        return RandomForestRegressor(**settings)
    return RandomForestClassifier(class_weight=_weight(goal), **settings)


def _cross_validated(model: Any, x: Any, y: Any, seed: int, scoring: str, folds: int) -> float:
    """Return the mean score over folds."""
    from sklearn.base import is_classifier
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score

    cut = StratifiedKFold if is_classifier(model) else KFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a rare category may be missing from a fold
        scores = cross_val_score(model, x, y, cv=cut(folds, shuffle=True, random_state=seed), scoring=scoring)
    return float(scores.mean()) if scores.mean() == scores.mean() else float("-inf")


def _numbers(values: Tensor) -> Any:
    return values.detach().cpu().double().numpy()


# The floors

MOST_PUBLIC_IMAGES = 1000


class Floor(base.Attack):
    """Base of floors, which any role can compute: they need their grants, besides what they name in `requires`."""

    roles: ClassVar[tuple[str, ...]] = base.EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("examples", "public-records")
    requires: ClassVar[tuple[base.Need, ...]] = ()

    def needs(self) -> tuple[base.Need, ...]:
        """List a kind of task, then the grants."""
        known = (base.public_records() if name == "public-records" else base.granted(name) for name in self.grants)
        return (*self.requires, *known)


class AttributeFloor(Floor):
    """Base of floors of the sensitive column."""

    kind: ClassVar[Kind] = "attributes"
    grants: ClassVar[tuple[str, ...]] = ("public-attributes", "public-records")
    requires: ClassVar[tuple[base.Need, ...]] = (base.sensitive_column(),)


class SourceFloor(Floor):
    """Base of floors of the owners of records."""

    kind: ClassVar[Kind] = "sources"
    grants: ClassVar[tuple[str, ...]] = ("source-records",)


class ImageFloor(Floor):
    """Base of floors of images."""

    kind: ClassVar[Kind] = "images"
    requires: ClassVar[tuple[base.Need, ...]] = (base.images(),)


@dataclass(frozen=True, kw_only=True)
class Majority(AttributeFloor):
    """The most frequent value of the sensitive column among the public records.

    Of a continuous one, the value with most public records within the tolerance that counts as a hit.
    """

    name: ClassVar[str] = "majority"

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Return one value for all records."""
        records, public, column = _in_question(view)
        code = _likeliest(public, column)
        return of_attributes(code.expand(len(records), -1).clone(), facts={"public_records": len(public)})


@dataclass(frozen=True, kw_only=True)
class Imputation(AttributeFloor):
    """A classifier trained on the public records guesses the sensitive column from all others and the target.

    The better of two usual models by cross-validation on the public records themselves.
    """

    name: ClassVar[str] = "imputation"

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Learn from the public records, predict for the records in question."""
        _, public, column = _in_question(view)
        learn, guess = other_columns(view)
        if column.kind == "continuous":
            codes = impute_value(learn, public[:, list(column.positions)], guess)
            return of_attributes(codes, facts={"public_records": len(public)})
        codes, real = column.candidates(public), categories_of(public, column)
        evidence = of_attributes(codes[impute_category(learn, real, guess)], facts={"public_records": len(public)})
        balanced = codes[impute_category(learn, real, guess, balanced=True)]
        return replace(evidence, tensors={**evidence.tensors, "codes_balanced": balanced})


def other_columns(view: View) -> tuple[Tensor, Tensor]:
    """Return all columns but the sensitive one, and the target, of public and of asked records [records, columns]."""
    asked, known = view.grants.public_attributes, known_records(view)
    assert asked is not None
    positions = view.space.column(view.space.sensitive or "").positions
    other = [place for place in range(known.x.shape[1]) if place not in positions]
    public, guess = (
        torch.cat([x[:, other], y[:, None].to(x.dtype)], 1) for x, y in ((known.x, known.y), (asked.x, asked.y))
    )
    return public, guess


@dataclass(frozen=True, kw_only=True)
class Chance(Floor):
    """A blind guess: the same score for every record, or (for sources) the same probability for every client."""

    name: ClassVar[str] = "chance"
    kind: ClassVar[Kind] = "membership"
    grants: ClassVar[tuple[str, ...]] = ("target-records",)

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Return the same score for all records."""
        records = view.grants.target_records
        assert records is not None
        return of_membership(torch.zeros_like(records.x.flatten(1)[:, 0]))


@dataclass(frozen=True, kw_only=True)
class ChanceOfSources(SourceFloor):
    """The same probability for every client, scored by its expected accuracy."""

    name: ClassVar[str] = "chance"

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Return 1 / clients for every record and client [records, clients]."""
        records = view.grants.source_records
        assert records is not None
        owners = torch.tensor(records.counts, device=records.x.device) > 0
        even = (owners / owners.sum()).expand(len(records.x), -1).clone()
        return Evidence(kind="sources", tensors={"probabilities": even})


@dataclass(frozen=True, kw_only=True)
class OwnerShare(SourceFloor):
    """Assigns every record to the client that holds most of the records in question: no better than chance."""

    name: ClassVar[str] = "owner-share"

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Return one client for all records."""
        records = view.grants.source_records
        assert records is not None
        largest = max(range(len(records.counts)), key=records.counts.__getitem__)
        return of_sources(torch.full_like(records.x.flatten(1)[:, 0], largest, dtype=torch.int64))


@dataclass(frozen=True, kw_only=True)
class MeanImage(ImageFloor):
    """The mean of the public images for every image in question."""

    name: ClassVar[str] = "mean-image"

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Return one image, repeated."""
        public, count = known_records(view), view.grants.examples
        assert count is not None
        return of_images(public.x.mean(0, keepdim=True).expand(count, *view.space.shape).clone())


@dataclass(frozen=True, kw_only=True)
class NearestPublicImage(ImageFloor):
    """All public images (up to 1,000) as guesses, matched by the scoring: the best that public images offer.

    The matching selects the nearest public image for every original, which no attacker could: a generous floor.
    """

    name: ClassVar[str] = "nearest-public-image"

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Return every public image, repeated only where there are fewer than images in question."""
        public, count = known_records(view), view.grants.examples
        assert count is not None
        pool = public.x[:MOST_PUBLIC_IMAGES]
        return of_images(pool.repeat(-(-count // len(pool)), 1, 1, 1) if count > len(pool) else pool.clone())


class ClassImageFloor(Floor):
    """Base of floors of images of a class."""

    kind: ClassVar[Kind] = "class-images"
    grants: ClassVar[tuple[str, ...]] = ("public-records",)
    requires: ClassVar[tuple[base.Need, ...]] = (base.images(), base.classification())


@dataclass(frozen=True, kw_only=True)
class ClassMean(ClassImageFloor):
    """For every class the mean of its public images; of a class without any, the mean of all public images."""

    name: ClassVar[str] = "class-mean"

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Return one image per class."""
        public = known_records(view)
        labels = torch.arange(len(view.space.classes), dtype=torch.int64, device=public.x.device)
        means = [public.x[public.y == label].mean(0) for label in labels]
        unknown = public.x.mean(0)
        by_class = [torch.where(torch.isnan(mean), unknown, mean) for mean in means]
        return of_class_images(torch.stack(by_class), labels)


@dataclass(frozen=True, kw_only=True)
class RandomPublicImage(ClassImageFloor):
    """For every class one of its public images, drawn at random; of a class without any, one of all public images.

    No sharp image is as near to all images of its class as their mean: this is what a real image of the class scores.
    """

    name: ClassVar[str] = "random-public-image"

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Return one image per class."""
        public = known_records(view)
        labels = torch.arange(len(view.space.classes), dtype=torch.int64, device=public.x.device)
        images = []
        for label in labels:
            own = public.x[public.y == label]
            pool = own if len(own) else public.x
            images.append(pool[int(permutation(len(pool), fork(context.generator, int(label)))[0])])
        return of_class_images(torch.stack(images), labels)


@dataclass(frozen=True, kw_only=True)
class Marginals(Floor):
    """Label counts in the proportions of the public records."""

    name: ClassVar[str] = "marginals"
    kind: ClassVar[Kind] = "labels"
    requires: ClassVar[tuple[base.Need, ...]] = (base.classification(),)

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Return public shares times the number of records, rounded so that they sum to it."""
        count = view.grants.examples
        assert count is not None
        return of_label_counts(rounded_to(expected_counts(view, count), count))


def expected_counts(view: View, count: int) -> Tensor:
    """Return the share of each class among the public records, times this number [classes]."""
    public = known_records(view)
    return torch.bincount(public.y, minlength=len(view.space.classes)) / len(public) * count


def rounded_to(values: Tensor, total: int) -> Tensor:
    """Return integers that sum to the total, by largest remainder, shape kept."""
    whole = values.floor().clamp(min=0)
    missing = int(total - int(whole.sum()))
    order = (values - whole).argsort(descending=True, stable=True)
    whole[order[:missing]] += 1
    return whole.to(torch.int64)


def categories_of(x: Tensor, column: Column) -> Tensor:
    """Return the category of every record from its encoding [records]."""
    codes = column.candidates(x)  # [values, positions]
    return (x[:, None, list(column.positions)] - codes[None]).abs().sum(-1).argmin(1)


def known_records(view: View) -> Records:
    """Return complete records known without any message: public ones, and those of a curious client itself."""
    public = view.grants.public_records
    assert public is not None
    return union((public, *(own.records for own in view.own)))


def _in_question(view: View) -> tuple[Tensor, Tensor, Column]:
    asked = view.grants.public_attributes
    assert asked is not None
    return asked.x, known_records(view).x, view.space.column(view.space.sensitive or "")


# Floors of guessed rows, column by column


@dataclass(frozen=True, kw_only=True)
class MajorityRow(Floor):
    """One row for all: in each column the value that is correct for most of the public records."""

    name: ClassVar[str] = "majority"
    kind: ClassVar[Kind] = "rows"

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Return one row, repeated."""
        public, count = known_records(view).x, view.grants.examples
        assert count is not None
        row = public.mean(0)
        for column in view.space.columns:
            row[list(column.positions)] = _likeliest(public, column)
        return of_rows(row.expand(count, -1).clone(), facts={"public_records": len(public)})


@dataclass(frozen=True, kw_only=True)
class MarginalRows(Floor):
    """Rows whose columns hold values in the proportions of the public records, combined at random."""

    name: ClassVar[str] = "marginals"
    kind: ClassVar[Kind] = "rows"

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Fill each column separately, in random order."""
        public, count = known_records(view).x, view.grants.examples
        assert count is not None
        rows = public.mean(0).expand(count, -1).clone()
        for column in view.space.columns:
            mixed = permutation(count, fork(context.generator, "column", column.name)).to(public.device)
            rows[:, list(column.positions)] = _in_proportion(public, column, count)[mixed]
        return of_rows(rows, facts={"public_records": len(public)})


def _likeliest(public: Tensor, column: Column) -> Tensor:
    """Return the encoded value [positions] that counts as correct for most public records."""
    if column.kind == "categorical":
        return column.candidates(public)[torch.bincount(categories_of(public, column)).argmax()]
    values = public[:, list(column.positions)]
    near = (values - values.T).abs() <= column.tolerance
    return values[near.sum(1).argmax()]


def _in_proportion(public: Tensor, column: Column, count: int) -> Tensor:
    """Return `count` encoded values in the proportions of the public records [count, positions]."""
    if column.kind == "continuous":
        places = torch.arange(count, dtype=torch.float64, device="cpu").add(0.5).mul(len(public) / count).long()
        return public[:, list(column.positions)].sort(0).values[places.to(public.device)]
    codes = column.candidates(public)
    shares = torch.bincount(categories_of(public, column), minlength=len(codes)).double() / len(public)
    return codes.repeat_interleave(rounded_to(shares * count, count), 0)
