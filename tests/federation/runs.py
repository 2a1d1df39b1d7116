"""Small federations that the tests of this room share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from fedxray.data.dataset import Records, Space
from fedxray.federation.recipe import Recipe
from fedxray.federation.setting import Federation
from fedxray.seeds import fork

FEATURES, CLASSES = 5, 3


def space(target: str = "classification") -> Space:
    classes = tuple("abc") if target == "classification" else ()
    return Space(kind="table", shape=(FEATURES,), target=target, classes=classes)  # type: ignore[arg-type]


def records(count: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Records:
    generator = fork(seed, "records")
    x = torch.randn(count, FEATURES, generator=generator, dtype=torch.float64).to(dtype)
    return Records(x, torch.randint(CLASSES, (count,), generator=generator))


def network(kind: str = "mlp", dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(5)
    layers = {
        "linear": lambda: nn.Sequential(nn.Linear(FEATURES, CLASSES)),
        "mlp": lambda: nn.Sequential(nn.Linear(FEATURES, 4), nn.ReLU(), nn.Linear(4, CLASSES)),
        "smooth": lambda: nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, CLASSES)),
        "norm": lambda: nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, CLASSES)),
        "dropout": lambda: nn.Sequential(nn.Linear(FEATURES, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, CLASSES)),
    }
    return layers[kind]().to(dtype)


def federation(
    sizes: Sequence[int] = (7, 4), *, model: nn.Module | str = "mlp", recipe: dict[str, Any] | None = None,
    dtype: torch.dtype = torch.float32, **settings: Any,
) -> Federation:  # fmt: skip
    settings = {"rounds": 2, **settings}
    clients = tuple(records(count, seed, dtype) for seed, count in enumerate(sizes))
    network_ = network(model, dtype) if isinstance(model, str) else model
    chosen = Recipe(**{"batch_size": 3, "learning_rate": 0.1, **(recipe or {})})
    return Federation(space=space(), clients=clients, model=network_, recipe=chosen, **settings)
