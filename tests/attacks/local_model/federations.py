"""Small federations of which everything is known, and views of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedxray.adversary import roles
from fedxray.adversary.view import View
from fedxray.audit.run.comparisons import open_channel
from fedxray.data.dataset import Records, Space
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.seeds import fork

DOUBLE = torch.float64


def least_squares(
    parameters: int,
    *,
    clients: int = 6,
    examples: int = 60,
    rounds: int = 60,
    participation: float = 0.5,
    seed: int = 0,
    dtype: torch.dtype = DOUBLE,
    **recipe: object,
) -> Federation:
    """Linear regression with a bias at clients with weights of their own; `parameters` counts the bias."""
    draw = fork(seed, "least squares", parameters)
    width = parameters - 1
    made = []
    for _ in range(clients):
        x = torch.randn(examples, width, generator=draw, dtype=DOUBLE)
        weights = torch.randn(width, generator=draw, dtype=DOUBLE)
        noise = 0.1 * torch.randn(examples, generator=draw, dtype=DOUBLE)
        made.append(Records(x.to(dtype), (x @ weights + 1.0 + noise).to(dtype)))
    model = nn.Sequential(nn.Linear(width, 1)).to(dtype)
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn(value.shape, generator=draw, dtype=DOUBLE))
    settings = {"loss": "mse", "learning_rate": 0.05, "batch_size": "all", **recipe}
    return Federation(
        space=Space(kind="table", shape=(width,), target="regression"),
        clients=tuple(made),
        model=model,
        recipe=Recipe(**settings),  # type: ignore[arg-type]
        rounds=rounds,
        participation=participation,
    )


def played(federation: Federation, seed: int = 0) -> tuple[Transcript, Truth]:
    return simulate(federation, seed=seed)


def optimum(records: Records) -> Tensor:
    """The least squares solution with the bias last, [parameters], by an independent solver."""
    import numpy as np

    design = np.concatenate([records.x.double().numpy(), np.ones((len(records), 1))], 1)
    return torch.from_numpy(np.linalg.lstsq(design, records.y.double().numpy(), rcond=None)[0])


def vector(tensors: dict[str, Tensor]) -> Tensor:
    """Weight and bias of the only layer, [parameters]."""
    return torch.cat([tensors["param:0.weight"].reshape(-1), tensors["param:0.bias"]]).double()


def with_messages(view: View, count: int) -> View:
    """The view with only the first messages of its target."""
    from dataclasses import replace

    kept = sorted(view.of_target(), key=lambda one: one.round)[:count]
    assert len(kept) == count, f"only {len(kept)} messages"
    return replace(view, observations=tuple(kept))


def active_view(transcript: Transcript, truth: Truth, client: int = 0) -> View:
    return roles.active_server(transcript, client=client, channel=open_channel(transcript, truth))
