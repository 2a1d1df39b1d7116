"""Label counts from reported metrics: a case by hand, and a real federation under secure aggregation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.attacks.labels.from_metrics import LabelsFromMetrics
from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.errors import BadInput
from fedxray.losses import example_loss
from fedxray.seeds import fork
from tests.adversary.clinics import played

GRANTS = ["metrics", "examples", "public-records"]


def test_metrics_are_those_of_the_model_that_was_sent() -> None:
    transcript, truth = played("classification", secure_aggregation=True)
    granted = disclose(truth, ["metrics"], client=1, transcript=transcript).metrics
    assert granted is not None and sorted(granted) == transcript.rounds()
    sent, records = transcript.shelf.get("global/1"), truth.train[1]
    output = torch.func.functional_call(truth.model, {**sent.params, **sent.buffers}, (records.x,))
    assert granted[1]["loss"] == pytest.approx(float(example_loss("cross-entropy")(output, records.y).mean()))
    assert granted[1]["accuracy"] == pytest.approx(float((output.argmax(1) == records.y).float().mean()))
    with pytest.raises(BadInput, match="no transcript"):
        disclose(truth, ["metrics"], client=1)


def test_the_accuracy_of_a_model_that_says_one_class_is_its_share() -> None:
    """By hand: class b for everyone, reported right in three of four cases, so three of four examples are b."""
    transcript, truth = played("classification", secure_aggregation=True)
    granted = disclose(truth, GRANTS, client=0, transcript=transcript)
    view = roles.secure_aggregation(transcript, grants=granted)
    first = view.globals[0]
    always = {name: torch.zeros_like(value) for name, value in first.params.items()}
    bias = next(name for name in always if name.endswith("bias"))
    always[bias] = torch.tensor([0.0, 5.0, 0.0], dtype=always[bias].dtype)
    public = granted.public_records
    assert public is not None
    wide = replace(public, x=public.x[:1].repeat(6, 1), y=torch.tensor([0, 1, 2, 0, 1, 2]))
    told = replace(granted, metrics={first.round: {"accuracy": 0.75, "unknown": 3.0}}, public_records=wide)
    model = replace(first, params=always)
    answer = LabelsFromMetrics(ridge=1e-6).run(replace(view, globals=(model,), grants=told), generator=fork(0))
    assert answer.tensors["counts"].tolist()[1] == 3 and answer.facts["reported"] == 1


def test_under_secure_aggregation_every_client_is_asked_for(tmp_path: Path) -> None:
    """The mix of classes of each client shows in what it reports, and the ledger states the grant."""
    plan = {
        "data": {"name": "digits", "clients": 4, "partition": "dirichlet", "alpha": 0.3, "public": 0.2},
        "model": {"name": "mlp", "hidden": [32]},
        "federation": {"rounds": 8, "batch_size": 16, "learning_rate": 0.1, "secure_aggregation": True},
        "attack": [{"name": "labels-from-metrics", "role": "secure-aggregation"}],
        "seeds": [0],
    }
    document = run_audit(make_plan(plan, tmp_path), tmp_path / "out", power=False).document
    assert [case["client"] for case in document["cases"]] == [0, 1, 2, 3]
    ledger = document["cases"][0]["ledger"]
    assert "metrics" in ledger["grants"] and ledger["smallest_sum"] == 4 and "metrics" in ledger["sees"]
    (row,) = [row for row in document["summary"] if row["primary"]]
    assert row["mean"] < row["floor"] / 2
