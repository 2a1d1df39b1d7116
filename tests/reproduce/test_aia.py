"""The tables on attribute inference: their plans can be made at both scales, and the toy example by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedxray.adversary import roles
from fedxray.attacks.evidence import model_params
from fedxray.attacks.local_model.active import GAUSS
from fedxray.attacks.local_model.linear import LocalModelLinear
from fedxray.audit.catalog import make_attack
from fedxray.audit.plan import make_plan
from fedxray.federation.round_loop import simulate
from fedxray.params import flatten
from fedxray.reproduce import aia, measurements
from fedxray.reproduce.aia import CALLED, attack, plan_of
from fedxray.reproduce.base import REPRODUCTIONS, Request, find
from fedxray.seeds import fork

NAMES = [name for name in REPRODUCTIONS if name.startswith("aia-")]
PLANNED = [name for name in NAMES if name != "aia-regression-toy"]


def plans(name: str, request: Request) -> dict[str, Any]:
    reproduction = find(name)
    assert reproduction.plan is not None
    return {row: reproduction.plan(request, row) for row in reproduction.rows}


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", PLANNED)
def test_every_row_is_a_plan_with_every_column(name: str, scale: str) -> None:
    labels = {column.attack for column in find(name).columns}
    for row, content in plans(name, Request(scale=scale)).items():
        plan = make_plan({**content, "name": f"{name}.{row}"}, Path.cwd())
        too_large = {"grad-closed", "grad-closed-own"} if row == "income-a" else set()
        assert {part.title for part in plan.attacks} == labels - too_large
        assert len(plan.seeds) == (1 if scale == "small" else 3)
        for part in plan.attacks:
            assert part.make(Path.cwd()).kind == "attributes"
            oracle = any(grant.startswith("oracle-") for grant in part.grants or ())
            assert oracle == ("oracle" in part.title), part.title


def test_labels_determine_the_attacks() -> None:
    small = Request()
    assert set(CALLED) >= {"grad", "model", "active-50"}
    assert attack("active-50", small, epochs=5)["model"] == {"name": "local-model-active", "active_rounds": 10}
    assert attack("active-10-grad", small)["active_rounds"] == 10
    assert attack("active-10-grad-oracle", small)["pick"] == "oracle-records"
    assert attack("grad", Request(scale="paper"))["shares"] == [0.0, 0.05, 0.1, 0.2, 0.5, 1.0]
    assert attack("grad-all-rounds", small)["pick"] == "all-rounds"
    assert attack("grad-closed-own", small) == {
        "name": "attribute-from-gradients", "controls": ["held-out"], "pick": "own-objective",
        "shares": [0.0, 0.05, 0.2],
    }  # fmt: skip
    assert attack("model", small)["model"] == "last-returned" and "role" not in attack("model", small)


def test_the_listed_rounds_are_those_of_the_settings() -> None:
    for label, (model, spent) in aia.ROUNDS_MODELS.items():
        if model["name"] == "local-model-active":
            model_attack: Any = make_attack(
                model["name"], {key: value for key, value in model.items() if key != "name"}
            )
            asked = len(GAUSS) if (model_attack.tune, model_attack.judge) == ("search", "line") else 0
            each = min(model_attack.trial_rounds or model_attack.active_rounds, model_attack.active_rounds)
            tried, more = model_attack.trials * (each + asked), model_attack.active_rounds - each
            assert spent == (model_attack.active_rounds if model_attack.tune == "recorded" else tried + more), label


def test_half_of_the_attacked_clients_are_of_each_kind() -> None:
    data = {"name": "acs-income", "clients": 4}
    content = plan_of(data, Request(), ["model"], rate=1.0)
    assert content["attack"][0]["targets"] == [0, 2]
    content = plan_of({**data, "clients": 10}, Request(scale="paper"), ["model"], rate=1.0, epochs=3)
    assert content["attack"][0]["targets"] == list(range(10)) and content["federation"]["rounds"] == 34


def test_states_are_those_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDXRAY_DATA", str(tmp_path))
    monkeypatch.setenv("FEDXRAY_CACHE", str(tmp_path))
    reproduction = find("aia-regression-table1")
    assert reproduction.plan is not None
    assert reproduction.plan(Request(), "income-a")["data"]["clients"] == 51
    assert reproduction.plan(Request(), "income-l")["data"]["state"] == "CT"
    (tmp_path / "acs").mkdir()
    for state in ("la", "tx"):
        (tmp_path / "acs" / f"acsincome_2018_{state}.csv").write_text("AGEP,PINCP\n")
    assert reproduction.plan(Request(), "income-a")["data"]["clients"] == 2
    assert reproduction.plan(Request(), "income-l")["data"]["state"] == "LA"


def test_the_published_numbers_are_shares() -> None:
    numbers = find("aia-regression-table1").paper.numbers
    assert numbers["medical"]["model"]["accuracy"] == pytest.approx((0.959, 0.0004))
    assert numbers["income-l"]["active-50"]["accuracy"] == pytest.approx((0.9431, 0.0011))
    every = [number for row in numbers.values() for cell in row.values() for number in cell.values()]
    assert len(every) == 30 and all(isinstance(one, tuple) and 0.5 < one[0] < 1 for one in every)


def test_the_optimum_of_a_toy_client_is_the_fixed_point_of_its_map() -> None:
    """Compared with least squares in float64, with few enough columns for double precision."""
    clients = measurements.toy_records()
    federation = measurements.toy_federation(clients, 0, 1024, "float64")
    transcript, _ = simulate(federation, seed=0)
    view = roles.server(transcript, client=1, rounds=measurements.READ)
    assert len(view.of_target()) == 12
    params = model_params(LocalModelLinear().run(view, generator=fork(0)))[0]
    own = clients[1]
    best = torch.linalg.lstsq(measurements._design(own.x), own.y[:, None].double()).solution[:, 0]
    last = measurements._model(view, "last-returned")
    far = [float((flatten(one).double() - best).norm()) for one in (params, last)]
    assert far[0] < 0.1 * far[1]
    assert measurements._accuracy(view, params, own) > measurements._accuracy(view, last, own) > 0.5
