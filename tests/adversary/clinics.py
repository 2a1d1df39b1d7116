"""A federation of three clinics, small enough to check every number."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fedxray.data.dataset import Column, Records, Space
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth

SIZES = (4, 6, 10)  # training records of every client
SENSITIVE = 1  # the column of x that holds it
COLUMNS = (
    Column(name="age", kind="continuous", positions=(0,), low=0.0, high=1000.0),
    Column(name="smoker", kind="categorical", positions=(1,), categories=("no", "yes"), codes=((-1.0,), (2.0,))),
    Column(name="weight", kind="continuous", positions=(2,), low=0.0, high=1.0),
)


def space(target: str = "regression") -> Space:
    """Three columns, of which the middle one is sensitive."""
    classes = ("a", "b", "c") if target == "classification" else ()
    return Space(
        kind="table",
        shape=(3,),
        target=target,  # type: ignore[arg-type]
        classes=classes,
        columns=COLUMNS,
        sensitive="smoker",
    )


def rows(first: int, count: int, target: str = "regression") -> Records:
    """Records whose first column is a number that no other record has; every third one smokes."""
    number = torch.arange(first, first + count, dtype=torch.float32)
    smokes = torch.where(number % 3 == 0, 2.0, -1.0)
    x = torch.stack([number / 100, smokes, torch.ones(count)], 1)
    return Records(x, number.long() % 3 if target == "classification" else number / 10)


def federation(target: str = "regression", **settings: Any) -> Federation:
    """Client 0 holds the records from 0 on, client 1 from 100 on, client 2 from 200 on; 50 higher are held out."""
    torch.manual_seed(1)
    loss = "cross-entropy" if target == "classification" else "mse"
    recipe = Recipe(**{"loss": loss, "batch_size": 2, "learning_rate": 0.01, **settings.pop("recipe", {})})
    return Federation(
        **{
            "space": space(target),
            "clients": tuple(rows(100 * owner, size, target) for owner, size in enumerate(SIZES)),
            "holdout": tuple(rows(100 * owner + 50, 2 + owner, target) for owner in range(3)),
            "public": rows(900, 5, target),
            "model": nn.Linear(3, 3 if target == "classification" else 1),
            "recipe": recipe,
            "rounds": 3,
            **settings,
        }
    )


def played(target: str = "regression", seed: int = 0, **settings: Any) -> tuple[Transcript, Truth]:
    """Transcript and truth of a run."""
    return simulate(federation(target, **settings), seed=seed)


def numbers(records: Any) -> list[int]:
    """Numbers of these records, by their first column."""
    return [round(100 * value) for value in records.x[:, 0].tolist()]
