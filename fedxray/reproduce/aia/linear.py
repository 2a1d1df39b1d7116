"""Appendix C.1: linear models, whose optimum the messages give away (Alg. 2)."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.aia.setting import attack, income, medical, paper
from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of

MODELS = {
    "model": "last returned model",
    "linear": "Passive, Ours (Alg. 2)",
    "linear-forward": "",
    "active-50": "Active (50 Rnds), Ours",
    "oracle": "Model-w-O",
}


def plan(request: Request, row: str) -> dict[str, Any]:
    """300 rounds on a standardised target."""
    data = medical() if row == "medical" else {**income(request), "partition": "iid"}
    data.pop("heterogeneity", None)
    attacks = []
    for label in MODELS:
        made = attack("model" if label.startswith("linear") else label, request)
        made |= {"model": f"local-model-{label}"} if label.startswith("linear") else {}
        attacks.append(
            {**made, "label": label, "targets": min(2, data["clients"]) if request.is_small else "all"}
        )
    return {
        "seeds": request.pick_seeds(small=1, paper=3),
        "data": data | {"scale_target": True},
        "model": {"name": "linear"},
        "federation": {"rounds": 300, "learning_rate": 5e-3, "batch_size": 32},
        "attack": attacks,
    }


LINEAR = Reproduction(
    name="aia-regression-linear",
    shows="Whether the messages of a federated linear regression give away the client's optimum and its attributes.",
    paper=paper("Appendix C.1, Table 2", clients=None),
    rows=("medical", "income"),
    columns=columns_of(MODELS, ("accuracy",)),
    differences=(
        Difference(left="linear", right="model", expected="above"),
        Difference(left="linear", right="oracle"),
        Difference(left="linear-forward", right="linear"),
        Difference(left="active-50", right="oracle"),
    ),
    plan=plan,
    why="columns and target are standardised but not logarithms, and income keeps all its columns; all clients take "
    "part in every round, so that the server's models are nearly dependent and the answer may be undetermined",
)
