"""A small Flower app, and a grid that runs it in this process: no network, no ray."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

from fedxray.data.dataset import Records
from fedxray.federation.recipe import Recipe, draw_schedule
from fedxray.losses import example_loss
from fedxray.seeds import fork

NODES = (2**62 + 7, 2**62 + 5, 2**62 + 3)
RUN = 2**61 + 1


class InProcessGrid(Grid):
    """A grid that passes every message to the ClientApp of its node; replies come in another order than messages."""

    def __init__(self, app: ClientApp, nodes: Sequence[int] = NODES, configs: Sequence[dict[str, Any]] = ()) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN, 1
        self.app = app
        known = list(configs) or [{} for _ in nodes]
        self.contexts = {
            node: Context(RUN, node, {"partition-id": index, **config}, RecordDict(), {})
            for index, (node, config) in enumerate(zip(nodes, known, strict=True))
        }
        self.waiting: dict[str, Message] = {}

    def set_run(self, run: Any) -> None:
        """Nothing to set."""

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            key = f"message-{len(self.waiting)}"
            message.metadata.__dict__["_message_id"] = key
            own = copy.deepcopy(message)  # a node may empty what it was sent
            self.waiting[key] = self.app(own, self.contexts[message.metadata.dst_node_id])
            ids.append(key)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.waiting[key] for key in message_ids]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return list(self.pull_messages(self.push_messages(messages)))[::-1]


def network(inputs: int = 4, outputs: int = 3) -> nn.Module:
    """Return a small network with running statistics; its initial weights do not matter."""
    return nn.Sequential(nn.Linear(inputs, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, outputs))


def train_with_torch(
    model: nn.Module, records: Records, recipe: Recipe, generator: torch.Generator, optimiser: Any = None
) -> None:
    """Train for the local epochs in plain PyTorch."""
    make = optimiser or (lambda params: torch.optim.SGD(params, lr=recipe.learning_rate, momentum=recipe.momentum))
    optimise = make(model.parameters())
    model.train()
    for rows in draw_schedule(len(records), recipe, generator).rows():
        optimise.zero_grad()
        example_loss(recipe.loss)(model(records.x[rows]), records.y[rows]).mean().backward()
        optimise.step()


def client_app(
    clients: Sequence[Records],
    recipe: Recipe,
    *,
    build: Callable[[], nn.Module] = network,
    mods: Sequence[Any] = (),
    pack: Callable[[nn.Module], ArrayRecord] | None = None,
    load: Callable[[nn.Module, ArrayRecord], object] | None = None,
) -> ClientApp:
    """Return a ClientApp whose nodes train on the records of their partition."""
    app = ClientApp(mods=list(mods))
    pack = pack or (lambda model: ArrayRecord(model.state_dict()))
    load = load or (lambda model, arrays: model.load_state_dict(arrays.to_torch_state_dict()))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model, partition = build(), int(context.node_config["partition-id"])
        round = message.content["config"]["server-round"]
        load(model, message.content["arrays"])
        train_with_torch(model, clients[partition], recipe, fork(0, "schedule", partition, round - 1))
        metrics = MetricRecord({"num-examples": len(clients[partition])})
        return Message(RecordDict({"arrays": pack(model), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1, "loss": 0.0})}), reply_to=message)

    return app


def run(
    grid: Grid, *, rounds: int = 2, initial: ArrayRecord | None = None, config: dict[str, Any] | None = None,
    **strategy: Any,
) -> Any:  # fmt: skip
    """Run FedAvg over all nodes; returns Flower's result."""
    torch.manual_seed(3)
    arrays = initial if initial is not None else ArrayRecord(network().state_dict())
    settings = {"fraction_evaluate": 1.0, "min_available_nodes": 1, "min_train_nodes": 1, "min_evaluate_nodes": 1}
    return FedAvg(**{**settings, **strategy}).start(
        grid=grid, initial_arrays=arrays, num_rounds=rounds, train_config=ConfigRecord(config or {"lr": 0.1})
    )


def records(count: int, seed: int, inputs: int = 4, classes: int = 3) -> Records:
    generator = fork(seed, "records of a node")
    x = torch.randn(count, inputs, generator=generator)
    return Records(x, torch.randint(classes, (count,), generator=generator))
