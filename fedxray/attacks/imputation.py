"""Guessing one column of a table from the others, learned on public records."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

LEAST_PER_FOLD = 5


def impute_category(learn: Tensor, wanted: Tensor, guess: Tensor, seed: int) -> Tensor:
    """Category numbers for `guess` [records, columns], learned from `learn` and `wanted` [public]; shape [records]."""
    if len(torch.unique(wanted)) == 1:
        return wanted[:1].expand(len(guess)).clone()
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    models = [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        RandomForestClassifier(n_estimators=50, min_samples_leaf=2, random_state=seed, n_jobs=1),
    ]
    return torch.as_tensor(_best_prediction(models, learn, wanted, guess, seed), device=guess.device).to(
        wanted.dtype
    )


def impute_value(learn: Tensor, wanted: Tensor, guess: Tensor, seed: int) -> Tensor:
    """Encoded values for `guess`, learned from `learn` and `wanted` [public, 1]; shape [records, 1]."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    models = [
        make_pipeline(StandardScaler(), RidgeCV()),
        RandomForestRegressor(n_estimators=50, min_samples_leaf=2, random_state=seed, n_jobs=1),
    ]
    found = _best_prediction(models, learn, wanted[:, 0], guess, seed)
    return torch.as_tensor(found, device=guess.device).to(wanted.dtype)[:, None]


def _best_prediction(models: list[Any], learn: Tensor, wanted: Tensor, guess: Tensor, seed: int) -> Any:
    """The prediction of the model with the best cross-validated score on what it learns from."""
    x, y = learn.detach().cpu().double().numpy(), wanted.detach().cpu().numpy()
    scores = [_cross_validated(model, x, y, seed) for model in models]
    chosen = models[scores.index(max(scores))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that has not fully converged is still a floor
        chosen.fit(x, y)
        return chosen.predict(guess.detach().cpu().double().numpy())


def _cross_validated(model: Any, x: Any, y: Any, seed: int) -> float:
    """Mean score over folds; minus infinity where there are too few records to tell."""
    from sklearn.base import is_classifier
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score

    folds = min(5, len(y) // LEAST_PER_FOLD)
    if folds < 2:
        return 0.0
    cut = StratifiedKFold if is_classifier(model) else KFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a rare category may miss from a fold
        found = cross_val_score(model, x, y, cv=cut(folds, shuffle=True, random_state=seed))
    return float(found.mean()) if found.mean() == found.mean() else float("-inf")
