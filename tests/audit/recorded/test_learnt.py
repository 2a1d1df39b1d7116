"""Whether records look like those that a node computed its gradients on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedxray.audit.plan import make_plan
from fedxray.audit.recorded.prepare import rounds_learnt
from fedxray.audit.run.prepare import prepare
from fedxray.federation.recording.format import Said
from fedxray.federation.recording.writer import open_folder, write_message
from tests.audit.networks import small
from tests.audit.recorded.test_recipe import SPACE


@pytest.mark.parametrize(("sign", "wanted"), [(1.0, (3, 3)), (-1.0, (0, 3)), (0.0, (0, 3))])
def test_a_short_way_along_a_gradient_lowers_the_loss_on_its_records(
    tmp_path: Path, sign: float, wanted: tuple[int, int]
) -> None:
    """Gradients are no models: only a short step along them tells, and a network that learnt nothing tells nothing."""
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    np.savez(tmp_path / "own.npz", x=x, y=x[:, 0] + 3, part=np.array(["train"] * 8 + ["holdout"] * 4))
    model = small(SPACE)
    loss = ((model(torch.from_numpy(x[:8]))[:, 0] - torch.from_numpy(x[:8, 0] + 3)) ** 2).mean()
    slopes = torch.autograd.grad(loss, list(model.parameters()))
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    back = {name: sign * value.numpy() for (name, _), value in zip(model.named_parameters(), slopes, strict=True)}
    open_folder(tmp_path / "recording", "client")
    for round in (1, 2, 3):
        reported = Said(what="train", node="1", run="1", round=round, sent=state, reply=back, examples=8, config={})
        write_message(tmp_path / "recording", reported)
    plan = make_plan(
        {
            "transcript": {"path": "recording", "optimizer": "sgd"},
            "data": {"path": "own.npz", "ready": True, "use": "part"},
            "model": {"factory": "tests.audit.networks:small"},
            "federation": {"algorithm": "fedsgd"},
            "attack": [{"name": "membership-loss"}],
        },
        tmp_path,
    )
    assert rounds_learnt(plan, prepare(plan, "none", 0)) == wanted
