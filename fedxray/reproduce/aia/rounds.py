"""Beyond the paper: what an active attack gains for the rounds it spends with the client, its tuning included."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.aia.setting import RATES, STAND_IN, income, medical, paper
from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of

TRIALS = 8
CONSTANT = {"pace": "constant", "boost": 3.0}  # drawn around: 0.3 to 30 usual entries of a recorded update
# Label, model and rounds spent with the client.
MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "passive": ({"name": "last-returned"}, 0),
    "active-5": ({"name": "local-model-active", "active_rounds": 5}, 5),
    "active-10": ({"name": "local-model-active", "active_rounds": 10}, 10),
    "active-25": ({"name": "local-model-active", "active_rounds": 25}, 25),
    "active-50": ({"name": "local-model-active", "active_rounds": 50}, 50),
    "send-back-50": ({"name": "local-model-send-back", "active_rounds": 50}, 50),
    "constant-50": ({"name": "local-model-active", "active_rounds": 50, **CONSTANT}, 50),
    "search-norm": (
        {"name": "local-model-active", "tune": "search", "judge": "norm", "trials": TRIALS},
        50 * TRIALS,
    ),
    "search-line": ({"name": "local-model-active", "tune": "search", "trials": TRIALS}, 52 * TRIALS),
    "search-oracle": (
        {"name": "local-model-active", "tune": "oracle-loss", "trials": TRIALS, **CONSTANT},
        50 * TRIALS,
    ),
    "oracle": ({"name": "local-model-oracle"}, 0),
}
GRANTS = {"search-oracle": ["oracle-loss"], "oracle": ["oracle-records"]}
CALLED = {
    label: f"{spent} rounds" + (", the paper's tuning" if label == "search-oracle" else "")
    for label, (_, spent) in MODELS.items()
}


def plan(request: Request, row: str) -> dict[str, Any]:
    """One data set of Table 1."""
    data = medical() if row == "medical" else income(request)
    clients = int(data["clients"])
    wanted = request.pick_clients(small=min(2, clients), paper=clients, most=clients)
    common = {
        "name": "attribute-from-model",
        "targets": [place * clients // wanted for place in range(wanted)],
    }
    attacks = []
    for label, (model, spent) in MODELS.items():
        made = {**common, "label": label, "model": model, "controls": []}
        made |= {"role": "active-server"} if spent else {}
        made |= {"grants": ["public-attributes", "recipe", *GRANTS[label]]} if label in GRANTS else {}
        attacks.append(made)
    return {
        "seeds": request.pick_seeds(small=1, paper=3),
        "data": data,
        "model": {"name": "mlp", "hidden": [128]},
        "federation": {"rounds": 100, "batch_size": 32, "learning_rate": RATES[row]},
        "attack": attacks,
    }


SPENT = Reproduction(
    name="aia-regression-rounds",
    shows="What attribute inference gains from active rounds, counting every round that tuning spends.",
    paper=paper(
        "Section 5.2 and Table 1",
        trend="50 active rounds reach what the optimal local model tells; the fifty full attacks of its tuning, which "
        "need the clients' losses, are not counted",
        clients=None,
    ),
    rows=("medical", "income"),
    small_rows=("medical",),
    columns=columns_of(CALLED, ("accuracy",)),
    differences=(
        Difference(left="active-50", right="oracle"),
        Difference(left="active-50", right="passive", expected="above"),
        Difference(left="active-50", right="send-back-50"),
        Difference(left="active-50", right="constant-50"),
        Difference(left="search-line", right="active-50"),
        Difference(left="search-line", right="search-norm"),
        Difference(left="search-oracle", right="active-50"),
    ),
    plan=plan,
    why=STAND_IN,
)
