"""Guessing one column of a table from the others, learned on public records."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import torch
from torch import Tensor

from fedxray.seeds import derive_seed

Aim = Literal["classes", "balanced", "values"]
SCORING: dict[Aim, str] = {"classes": "accuracy", "balanced": "balanced_accuracy", "values": "r2"}
LEAST_PER_FOLD = 5
MOST_FOLDS = 5
_fitted: dict[int, Any] = {}  # the last few fits: every client of a run asks for the same one
MOST_FITTED = 8


def impute_category(learn: Tensor, wanted: Tensor, guess: Tensor, *, balanced: bool = False) -> Tensor:
    """Category numbers for `guess` [records, columns], learned from `learn` and `wanted` [public]; shape [records].

    Made for accuracy, or for the accuracy in which every category counts the same.
    """
    if len(torch.unique(wanted)) == 1:
        return wanted[:1].expand(len(guess)).clone()
    found = _fit(learn, wanted, "balanced" if balanced else "classes").predict(_numbers(guess))
    return torch.as_tensor(found, device=guess.device).to(wanted.dtype)


def impute_value(learn: Tensor, wanted: Tensor, guess: Tensor) -> Tensor:
    """Encoded values for `guess`, learned from `learn` and `wanted` [public, 1]; shape [records, 1]."""
    found = _fit(learn, wanted[:, 0], "values").predict(_numbers(guess))
    return torch.as_tensor(found, device=guess.device).to(wanted.dtype)[:, None]


def _fit(learn: Tensor, wanted: Tensor, aim: Aim) -> Any:
    """The better of two usual models by cross-validation; its draws depend on what it learns from and nothing else."""
    key = derive_seed(0, "imputation", learn, wanted, aim)
    if key not in _fitted:
        x, y, seed = _numbers(learn), wanted.detach().cpu().numpy(), key % 2**31
        models = _regressors(seed) if aim == "values" else _classifiers(seed, balanced=aim == "balanced")
        scores = [_cross_validated(model, x, y, seed, SCORING[aim]) for model in models]
        chosen = models[scores.index(max(scores))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fit that has not fully converged is still a floor
            chosen.fit(x, y)
        while len(_fitted) >= MOST_FITTED:
            _fitted.pop(next(iter(_fitted)))
        _fitted[key] = chosen
    return _fitted[key]


def _classifiers(seed: int, *, balanced: bool) -> list[Any]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    weight = "balanced" if balanced else None
    return [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, class_weight=weight)),
        RandomForestClassifier(
            n_estimators=50, min_samples_leaf=2, class_weight=weight, random_state=seed, n_jobs=1
        ),
    ]


def _regressors(seed: int) -> list[Any]:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return [
        make_pipeline(StandardScaler(), RidgeCV()),
        RandomForestRegressor(n_estimators=50, min_samples_leaf=2, random_state=seed, n_jobs=1),
    ]


def _cross_validated(model: Any, x: Any, y: Any, seed: int, scoring: str) -> float:
    """Mean score over folds; zero where there are too few records to tell, which leaves the simpler model."""
    from sklearn.base import is_classifier
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score

    folds = min(MOST_FOLDS, len(y) // LEAST_PER_FOLD)
    if folds < 2:
        return 0.0
    cut = StratifiedKFold if is_classifier(model) else KFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a rare category may miss from a fold
        found = cross_val_score(model, x, y, cv=cut(folds, shuffle=True, random_state=seed), scoring=scoring)
    return float(found.mean()) if found.mean() == found.mean() else float("-inf")


def _numbers(values: Tensor) -> Any:
    return values.detach().cpu().double().numpy()
