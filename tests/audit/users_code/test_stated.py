"""The stored facts of a defence answer what a case asks as the defence itself does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedxray.audit.own_code.carry import FILE, read_stated, write_stated
from fedxray.defences.base import Defence
from fedxray.defences.dp_sgd import DpSgd
from fedxray.defences.local_bn import LocalBn
from fedxray.errors import BadInput
from tests.federation.runs import federation


@pytest.mark.parametrize(("defence", "model"), [(DpSgd(noise_multiplier=1.0), "mlp"), (LocalBn(), "norm")])
def test_facts_give_the_same_batches_and_kept_parts(defence: Defence, model: str, tmp_path: Path) -> None:
    own = federation((8, 5, 8), model=model, defence=defence)
    write_stated(tmp_path, own)
    stated = read_stated(tmp_path)
    truths = [replace(own, defence=one).truth(3) for one in (defence, stated)]
    assert truths[0].kept() == truths[1].kept() and stated.describe() == defence.describe()
    for client in range(3):
        batches = [truth.schedule(client, 1).index for truth in truths]
        assert torch.equal(*batches)
        known = [truth.defence.hooks(truth.work(client)).known is not None for truth in truths]
        assert known[0] == known[1]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"words": 3, "kept": null, "sampling": []}', '{"words": "", "kept": 1, "sampling": 2}']
)
def test_facts_that_were_altered_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(BadInput):
        read_stated(tmp_path)
