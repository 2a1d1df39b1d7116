"""A clinic. `record("recording")` among the mods records its messages."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clinics.task import evaluate, load_records, network, train
from fedxray.integrations.flower import record

app = ClientApp(mods=[record("recording")])


@app.train()
def train_round(message: Message, context: Context) -> Message:
    model, config = network(), message.content["config"]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = load_records(context.node_config.get("records", "records.npz"))
    train(model, x, y, lr=config["lr"], epochs=config["local-epochs"], batch_size=config["batch-size"])
    metrics = MetricRecord({"num-examples": len(x)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_round(message: Message, context: Context) -> Message:
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = load_records(context.node_config.get("records", "records.npz"), "holdout")
    metrics = MetricRecord({"num-examples": len(x), "loss": evaluate(model, x, y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
