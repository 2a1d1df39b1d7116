"""The same clinics under SecAgg+, which Flower 1.41 has for its older interface alone; both sides are recorded.

`secaggplus_mod` is nearest to the network, so the recorder behind it keeps what the clinic itself knows. The grid's
recorder keeps what the server sees: models sent, and in the clear every clinic's number of examples and metrics.
"""

from __future__ import annotations

import torch
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp
from torch import nn

from clinics.task import evaluate, load_records, network, train
from fedxray.integrations.flower import record, record_grid

CLINICS = 3


def arrays_of(model: nn.Module) -> list:
    return [value.numpy() for value in model.state_dict().values()]


def loaded(arrays: list) -> nn.Module:
    model = network()
    values = (torch.tensor(array, dtype=torch.float32) for array in arrays)  # a sum comes back in double precision
    model.load_state_dict(dict(zip(model.state_dict(), values, strict=True)))
    return model


class Clinic(NumPyClient):
    def fit(self, parameters: list, config: dict) -> tuple:
        model, (x, y) = loaded(parameters), load_records()
        train(model, x, y, lr=config["lr"], epochs=config["local-epochs"], batch_size=config["batch-size"])
        return arrays_of(model), len(x), {"loss": evaluate(model, x, y)}

    def evaluate(self, parameters: list, config: dict) -> tuple:
        x, y = load_records(part="holdout")
        return evaluate(loaded(parameters), x, y), len(x), {}


client = ClientApp(client_fn=lambda context: Clinic().to_client(), mods=[secaggplus_mod, record("recording")])
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    recipe = {name: context.run_config[name] for name in ("lr", "local-epochs", "batch-size")}
    torch.manual_seed(0)
    strategy = FedAvg(
        min_fit_clients=CLINICS, min_available_clients=CLINICS, min_evaluate_clients=CLINICS,
        on_fit_config_fn=lambda number: recipe, initial_parameters=ndarrays_to_parameters(arrays_of(network())),
    )  # fmt: skip
    workflow = DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=CLINICS, reconstruction_threshold=2))
    rounds = ServerConfig(num_rounds=int(context.run_config["num-rounds"]))
    workflow(record_grid(grid, "recording"), LegacyContext(context=context, config=rounds, strategy=strategy))
