"""An audit in Python, step by step: data, clients, federation, view, attack, score."""

from __future__ import annotations

import torch

from fedxray import Federation, Recipe, Records, build, disclose, fork, load, roles, score, simulate, split
from fedxray.attacks import AttributeFromModel

# Data, and its division among clients. A tenth of each client is held out, a tenth of all records is public.
dataset = load("clinic", clients=3, records=100)
parts = split(dataset, clients=3, partition="as-given", seed=0)


def records(index: torch.Tensor) -> Records:
    return Records(dataset.x[index], dataset.y[index])


# The federation, and its transcript of messages.
federation = Federation(
    space=dataset.space,
    clients=tuple(records(index) for index in parts.train),
    holdout=tuple(records(index) for index in parts.holdout),
    public=records(parts.public),
    model=build("mlp", dataset.space, hidden=[32], generator=fork(0, "model")),
    recipe=Recipe(epochs=5, batch_size=16, learning_rate=0.05),
    rounds=8,
)
transcript, truth = simulate(federation, seed=0)

# The role of the server, which attacks client 1 and is granted the public columns of its records.
grants = disclose(truth, ["public-attributes"], client=1)
view = roles.server(transcript, client=1, grants=grants)

# The attack sees the view and nothing else; only the score sees the truth.
evidence = AttributeFromModel().run(view, generator=fork(1, "attack"))
scores = score(evidence, truth)
print(f"accuracy on client 1: {scores.means['accuracy']:.2f}")

# The same attack with another client's messages (a control): does it depend on this client at all?
control = roles.server(transcript, client=2, grants=grants)
control_evidence = AttributeFromModel().run(control, generator=fork(1, "attack"))
print(f"with the messages of client 2: {score(control_evidence, truth, client=1).means['accuracy']:.2f}")
