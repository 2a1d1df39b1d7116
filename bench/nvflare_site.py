"""The training script and network of a site in `bench/nvflare_run.py`: plain SGD on its own records."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

INPUTS, EPOCHS, BATCH, RATE = 15, 20, 16, 0.1


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(INPUTS, 32), nn.ReLU(), nn.Linear(32, 1))


def main() -> None:
    import nvflare.client as flare

    flare.init()
    with np.load(Path(sys.argv[1]) / f"{flare.get_site_name()}.npz", allow_pickle=False) as file:
        rows = file["part"] == "train"
        x, y = torch.from_numpy(file["x"][rows]), torch.from_numpy(file["y"][rows])
    net = Net()
    while flare.is_running():
        received = flare.receive()
        net.load_state_dict({name: torch.as_tensor(value) for name, value in received.params.items()})
        optimizer, steps = torch.optim.SGD(net.parameters(), lr=RATE), 0
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(x)).split(BATCH):
                optimizer.zero_grad()
                nn.functional.mse_loss(net(x[batch])[:, 0], y[batch]).backward()
                optimizer.step()
                steps += 1
        meta = {"NUM_STEPS_CURRENT_ROUND": steps}
        flare.send(flare.FLModel(params=net.state_dict(), metrics={"steps": steps}, meta=meta))


if __name__ == "__main__":
    main()
