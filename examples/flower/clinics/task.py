"""The network, the records of a node, and its training in plain PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

INPUTS = 15  # columns of the table, encoded


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 32), nn.ReLU(), nn.Linear(32, 1))


def load_records(path: str | Path = "records.npz", part: str = "train") -> tuple[Tensor, Tensor]:
    """Return this node's own records, encoded for the network."""
    with np.load(path, allow_pickle=False) as file:
        rows = file["part"] == part
        return torch.from_numpy(file["x"][rows]), torch.from_numpy(file["y"][rows])


def train(model: nn.Module, x: Tensor, y: Tensor, *, lr: float, epochs: int, batch_size: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch_size):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x[rows])[:, 0], y[rows]).backward()
            optimizer.step()


def evaluate(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float(nn.functional.mse_loss(model(x)[:, 0], y))
