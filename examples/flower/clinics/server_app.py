"""The server. `record_grid(grid, "recording")` in place of `grid` records its messages."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from clinics.task import network
from fedxray.integrations.flower import record_grid

CLINICS = 3

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    recipe = {name: context.run_config[name] for name in ("lr", "local-epochs", "batch-size")}
    torch.manual_seed(0)
    FedAvg(fraction_evaluate=0.0, min_train_nodes=CLINICS, min_available_nodes=CLINICS).start(
        grid=record_grid(grid, "recording"),
        initial_arrays=ArrayRecord(network().state_dict()),
        train_config=ConfigRecord(recipe),
        num_rounds=int(context.run_config["num-rounds"]),
    )
