"""Figure 2: a linear model of two clients from twelve messages, as the authors' notebook has it, also in float64.

1. 2,048 records of ten columns from U(0, 1), the last cut at one half; weights from N(0, 1), bias from U(0, 1), noise
   of 0.1; two clients with half each.
2. 300 rounds of FedAvg in the same order of batches, at 0.05 B / 2048.
3. The messages of rounds 0, 20, ..., 220 and Alg. 2, by the inverse of a square matrix as in the notebook and by our
   least squares; the sensitive column of all 2,048 records from that model.

Since batches keep their order the client's map is affine for every batch size: what scatters is the inverse of a nearly
singular matrix, not the noise of batches.
"""

from __future__ import annotations

from fedxray.reproduce.aia.setting import paper
from fedxray.reproduce.base import Difference, Measured, Reproduction, Request, Unit, columns_of

KINDS = {
    "inverse-float32": "Ours (their notebook)",
    "inverse-float64": "",
    "least-squares-float32": "",
    "least-squares-float64": "",
    "last-returned": "",
}


def measure(request: Request, row: str) -> list[Measured]:
    """Accuracy, and distance to the client's own optimum, for every seed and client."""
    from fedxray.reproduce.aia.toy_run import attacked

    found: dict[tuple[str, str], list[Unit]] = {}
    for seed in request.pick_seeds(small=5, paper=5):
        for kind, client, scores in attacked(seed, int(row)):
            for metric, value in scores.items():
                found.setdefault((kind, metric), []).append(Unit(seed=seed, client=client, value=value))
    floors = {"accuracy": {"majority": 0.5}}
    return [
        Measured(column=kind, metric=metric, units=tuple(units), floors=floors.get(metric, {}))
        for (kind, metric), units in found.items()
    ]


TOY = Reproduction(
    name="aia-regression-toy",
    shows="That twelve messages give away a client's linear model, and that inverting a matrix is what spoils it.",
    paper=paper(
        "Figure 2",
        {  # means over five seeds and both clients of the notebook's outputs
            "64": {"inverse-float32": {"accuracy": 0.885}},
            "256": {"inverse-float32": {"accuracy": 0.961}},
            "1024": {"inverse-float32": {"accuracy": 0.992}},
        },
        trend="the larger the batch, the nearer the reconstructed model and the higher the accuracy",
        clients=2,
    ),
    rows=("64", "256", "1024"),
    columns=columns_of(KINDS, ("accuracy", "parameter_distance")),
    differences=(
        Difference(
            left="inverse-float32",
            right="inverse-float32",
            rows=("1024", "64"),
            expected="above",
            metrics=("accuracy",),
        ),
        Difference(left="least-squares-float32", right="inverse-float32"),
        Difference(left="inverse-float64", right="inverse-float32"),
        Difference(left="least-squares-float32", right="last-returned"),
    ),
    measure=measure,
    why="other draws of data and starts; the distance is relative and to the client's own optimum, the notebook's to "
    "the weights that made the data; all clients take part, so that the twelve models sent are nearly dependent",
)
