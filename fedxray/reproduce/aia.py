"""The tables and figures of Diana et al. 2025 (AIA), "Attribute Inference Attacks for Federated Regression Tasks".

Every client takes part in 100 / epochs rounds with a network of 128 hidden units, the target in dollars. The small
scale shrinks the income data (four clients of 300 records) and the search of the gradient attacks (two learning rates,
few steps, three shares of the rounds), not the rounds. Settings of the active attack come from the recorded rounds: the
paper's were tuned on the clients' losses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fedxray.reproduce import base

THEIR_CLIENTS = 10
paper = partial(
    base.Paper,
    title="Diana, Marfoq, Xu, Neglia, Giroire, Thomas: Attribute Inference Attacks for Federated Regression Tasks "
    "(AAAI 2025)",
)
figure = partial(paper, clients=THEIR_CLIENTS)
TRAINING_ROUNDS = 100
RATES = {"medical": 2e-6, "income": 5e-7}  # learning rates of the clients; the target is in dollars
CLASSIFICATION_RATE = 0.05
# The attacks by their labels, with the paper's names for them.
CALLED = {
    "grad": "Passive, Grad",
    "grad-oracle": "Passive, Grad-w-O",
    "grad-all-rounds": "",  # as Grad, chosen by all rounds and not by those it matched
    "grad-closed": "",
    "grad-closed-own": "",  # in closed form, over the shares of rounds of Grad and chosen like it
    "model": "Passive, Ours",
    "active-10-grad": "Active (10 Rnds), Grad",
    "active-10-grad-oracle": "Active (10 Rnds), Grad-w-O",
    "active-10": "Active (10 Rnds), Ours",
    "active-50-grad": "Active (50 Rnds), Grad",
    "active-50-grad-oracle": "Active (50 Rnds), Grad-w-O",
    "active-50": "Active (50 Rnds), Ours",
    "active-50-tuned-oracle": "",  # as the paper tunes it: one step size, chosen by the client's loss
    "oracle": "Model-w-O",
    "global": "AIA on the global model",
}
FIGURE_LABELS = ("grad", "grad-closed", "model", "active-50-grad", "active-50", "oracle")
THEIR_ORDER = (
    *base.compare(("model", "grad"), ("active-50", "model"), ("active-50", "active-50-grad"), expected="above"),
    *base.compare(
        ("active-50", "oracle"),
        ("grad-closed", "grad"),
        ("model", "grad-closed"),
        ("grad-all-rounds", "grad"),
        ("grad-closed", "grad-closed-own"),
    ),
)
WHY = (
    "our step size of the active attack comes from the recorded rounds, the paper's from the clients' own losses; "
    "means are over clients, the paper's over records"
)
STAND_IN = (
    "without a file of Louisiana, Connecticut stands in for it: 40 columns in place of 548, because it has no "
    "occupations"
)


def columns(labels: Sequence[str]) -> tuple[base.TableColumn, ...]:
    """Return the accuracy of these attacks."""
    return base.columns_of({label: CALLED[label] for label in labels}, ("accuracy",))


def order(labels: Sequence[str]) -> tuple[base.Difference, ...]:
    """Return the differences between columns that are in the table."""
    return tuple(one for one in THEIR_ORDER if {one.left, one.right} <= set(labels))


def plan_of(
    data: dict[str, Any],
    request: base.Request,
    labels: Sequence[str],
    *,
    rate: float,
    epochs: int = 1,
    network: dict[str, Any] | None = None,
    rounds: list[int] | None = None,
    **recipe: Any,
) -> dict[str, Any]:
    """Return a plan; `rounds` are those that the attacks read, `recipe` changes the federation."""
    federation = {"rounds": math.ceil(TRAINING_ROUNDS / epochs), "epochs": epochs, "batch_size": 32}
    read = {} if rounds is None else {"rounds": rounds}
    targets = attacked(data, request)
    return {
        "seeds": request.pick_seeds(small=1, paper=3),
        "data": data,
        "model": network or {"name": "mlp", "hidden": [128]},
        "federation": federation | {"learning_rate": rate} | recipe,
        "attack": [{**attack(label, request, epochs), "label": label, "targets": targets, **read} for label in labels],
    }


def income_plan(
    request: base.Request,
    labels: Sequence[str] = FIGURE_LABELS,
    *,
    heterogeneity: float = 0.4,
    limit: int | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Return a plan on the income data."""
    data = income(request, heterogeneity=heterogeneity, limit=limit)
    return plan_of(data, request, labels, rate=RATES["income"], **changes)


def attacked(data: Mapping[str, Any], request: base.Request) -> list[int]:
    """Return the attacked clients, evenly spread: the partition gives the first and the second half different data."""
    clients = int(data["clients"])
    wanted = request.pick_clients(small=min(2, clients), paper=clients, most=clients)
    return [index * clients // wanted for index in range(wanted)]


def attack(label: str, request: base.Request, epochs: int = 1) -> dict[str, Any]:
    """Return one attack by its label: [active-ROUNDS-]KIND."""
    kind, active = label, 0
    if label.startswith("active-"):
        active = math.ceil(int(label.split("-")[1]) / epochs)
        kind = label.split("-", 2)[2] if label.count("-") > 1 else "model"
    if kind.startswith("grad"):
        return _on_gradients(kind, active, request)
    names = {"model": "last-returned", "oracle": "local-model-oracle", "global": "global-model"}
    model: Any = names.get(kind)
    settings = {"name": "attribute-from-model", "model": model}
    if kind == "tuned-oracle":
        tuned = {"active_rounds": active, "tune": "oracle-loss", "pace": "constant", "boost": 3.0}
        return settings | {
            "role": "active-server",
            "model": {"name": "local-model-active", **tuned},
            "grants": ["public-attributes", "recipe", "oracle-loss"],
            "controls": [],
        }
    if active:
        return settings | {
            "role": "active-server",
            "model": {"name": "local-model-active", "active_rounds": active},
            "controls": ["held-out", "other-client"],
        }
    if kind == "oracle":
        return settings | {"grants": ["public-attributes", "oracle-records"], "controls": []}
    return settings


def _on_gradients(kind: str, active: int, request: base.Request) -> dict[str, Any]:
    """Return a gradient attack: in closed form or iterative, over several shares of the rounds."""
    settings: dict[str, Any] = {"name": "attribute-from-gradients", "controls": ["held-out"]}
    if active:
        settings |= {"role": "active-server", "active_rounds": active}
    if kind == "grad-closed":
        return settings
    settings |= {"shares": [0.0, 0.05, 0.2] if request.is_small else [0.0, 0.05, 0.1, 0.2, 0.5, 1.0]}
    if kind == "grad-closed-own":
        return settings | {"pick": "own-objective"}
    settings |= {"method": "iterative", "pick": "all-rounds" if kind == "grad-all-rounds" else "own-objective"}
    if request.is_small:
        settings |= {"steps": 30, "learning_rates": [1e3, 1e5]}
    if kind == "grad-oracle":
        oracle = ["public-attributes", "oracle-records"]
        settings |= {"pick": "oracle-records", "grants": oracle, "controls": []}
    return settings


def medical() -> dict[str, Any]:
    """Return two clients with half of the records each."""
    return {"name": "medical", "sensitive": "smoker", "clients": 2, "partition": "iid"}


def income(request: base.Request, *, heterogeneity: float = 0.4, limit: int | None = None) -> dict[str, Any]:
    """Return income in one state (Louisiana where its file is there), divided by its correlation with sex."""
    from fedxray.data.tables import states_in_dollars

    data = {
        "name": "acs-income",
        "state": "LA" if "LA" in states_in_dollars() else "CT",
        "clients": 4 if request.is_small else THEIR_CLIENTS,
        "partition": "income-correlation",
        "heterogeneity": heterogeneity,
    }
    most = limit or (300 if request.is_small else None)
    return data if most is None else data | {"limit": most}


# Figure 1: gradient attacks by the number of records, on regression and on classification

DATASET_SIZE_LABELS = ("grad", "grad-closed", "active-50-grad", "global", "oracle")


def plan_dataset_size(request: base.Request, task: str, *, limit: int) -> dict[str, Any]:
    """Return four clients with `limit` records each, drawn at random, on one task."""
    data = {**income(request), "clients": 4, "partition": "iid", "limit": limit}
    del data["heterogeneity"]
    if task == "regression":
        return plan_of(data, request, DATASET_SIZE_LABELS, rate=RATES["income"])
    return plan_of(data | {"state": "NE"}, request, DATASET_SIZE_LABELS, rate=CLASSIFICATION_RATE)


DATASET_SIZE = base.Reproduction(
    name="aia-regression-dataset-size",
    shows="How the gradient attack fails on regression, and not on classification, as clients hold more records.",
    paper=paper(
        place="Figure 1 and Section 1",
        numbers={
            "regression-64": {"grad": {"accuracy": 0.60}},
            "regression-256": {"grad": {"accuracy": 0.50}},
            "classification-256": {"grad": {"accuracy": 0.71}},
        },
        trend="on regression Grad is at 60 % with 64 records and at chance from 256 on, on classification at 71 %; a "
        "model attack on the global model is at least as good; the optimal local model reveals up to 30 points more",
        clients=4,
    ),
    rows=tuple(f"{task}-{size}" for task in ("regression", "classification") for size in (64, 128, 256, 512, 1024)),
    small_rows=("regression-64", "regression-256", "classification-64", "classification-256"),
    columns=columns(DATASET_SIZE_LABELS),
    differences=(
        *base.compare_rows(
            "grad", ("regression-64", "regression-256"), ("classification-256", "regression-256"), expected="above"
        ),
        *base.compare(("global", "grad")),
        *base.compare(("oracle", "global"), expected="above"),
        *base.compare(("grad-closed", "grad")),
    ),
    plan=base.sweep(plan_dataset_size, "limit"),
    why="regression is Connecticut (or Louisiana), classification is Nebraska with incomes above 50,000 or not",
)


# Figure 2: a linear model of two clients from twelve messages, in the authors' float32 and in float64
#
# 1. 2,048 records of ten columns from U(0, 1), the last cut at one half; weights from N(0, 1), bias from U(0, 1), noise
#    of 0.1; two clients with half each.
# 2. 300 rounds of FedAvg in the same order of batches, at 0.05 B / 2048.
# 3. The messages of rounds 0, 20, ..., 220 and Alg. 2, by the inverse of a square matrix as in the notebook and by our
#    least squares; the sensitive column of all 2,048 records from that model.
#
# Since batches keep their order the client's map is affine for every batch size: the errors come from the inverse of a
# nearly singular matrix, not from the noise of batches.

TOY_COLUMNS = {
    "inverse-float32": "Ours (their notebook)",
    "inverse-float64": "",
    "least-squares-float32": "",
    "least-squares-float64": "",
    "last-returned": "",
}


def measure_toy(request: base.Request, row: str) -> list[base.Measured]:
    """Measure accuracy and distance to the client's own optimum, for every seed and client."""
    from fedxray.reproduce.measurements import attack_toy

    units: dict[tuple[str, str], list[base.Unit]] = {}
    for seed in request.pick_seeds(small=5, paper=5):
        for kind, client, scores in attack_toy(seed, int(row)):
            for metric, value in scores.items():
                units.setdefault((kind, metric), []).append(base.Unit(seed=seed, client=client, value=value))
    floors = {"accuracy": {"majority": 0.5}}
    return [
        base.Measured(column=kind, metric=metric, units=tuple(values), floors=floors.get(metric, {}))
        for (kind, metric), values in units.items()
    ]


TOY = base.Reproduction(
    name="aia-regression-toy",
    shows="That twelve messages reveal a client's linear model, and that inverting a matrix limits the accuracy.",
    paper=paper(
        place="Figure 2",
        numbers={  # means over five seeds and both clients of the notebook's outputs
            "64": {"inverse-float32": {"accuracy": 0.885}},
            "256": {"inverse-float32": {"accuracy": 0.961}},
            "1024": {"inverse-float32": {"accuracy": 0.992}},
        },
        trend="the larger the batch, the nearer the reconstructed model and the higher the accuracy",
        clients=2,
    ),
    rows=("64", "256", "1024"),
    row_is="batch size",
    columns=base.columns_of(TOY_COLUMNS, ("accuracy", "parameter_distance")),
    differences=(
        *base.compare_rows("inverse-float32", ("1024", "64"), expected="above", metrics=("accuracy",)),
        *base.compare(
            ("least-squares-float32", "inverse-float32"),
            ("inverse-float64", "inverse-float32"),
            ("least-squares-float32", "last-returned"),
        ),
    ),
    measure=measure_toy,
    why="other draws of data and initial weights; the distance is relative and to the client's own optimum, the "
    "notebook's to the weights that generated the data; all clients take part, so that the twelve models sent are "
    "nearly dependent",
)


# Table 1: attribute inference by gradients and by models, passive and active, on three data sets

THEIR_STATES = 51
TABLE1_ROWS = ("medical", "income-l", "income-a")
TABLE1_LABELS = tuple(label for label in CALLED if label not in ("global", "active-50-tuned-oracle"))


def accuracy(cell: str) -> Mapping[str, base.Number]:
    """Read a printed cell `mean/spread` in percent."""
    mean, spread = map(float, cell.split("/"))
    return {"accuracy": (mean / 100, spread / 100)}


TABLE1_PRINTED = base.published(
    """
grad                   60.36/.67 54.98/.29 87.26/.92
grad-oracle            71.44/.33 56.10/1.12 91.06/.55
model                  75.27/.32 55.75/.17 95.90/.04
active-10-grad         60.24/.60 54.98/.29 87.26/.92
active-10-grad-oracle  80.69/.55 56.10/1.12 91.06/.55
active-10              82.02/.85 63.53/.73 95.93/.07
active-50-grad         60.24/.60 53.36/.40 87.26/.92
active-50-grad-oracle  80.69/.55 56.12/.12 91.06/.55
active-50              94.31/.11 78.09/.25 96.79/.79
oracle                 94.31/.11 78.31/.07 96.79/.79
""",
    ("income-l", "income-a", "medical"),
    accuracy,
)
# The paper prints attacks as rows and data sets as columns.
TABLE1_NUMBERS = {row: {label: cells[row] for label, cells in TABLE1_PRINTED.items()} for row in TABLE1_ROWS}


def plan_table1(request: base.Request, row: str) -> dict[str, Any]:
    """Return the plan of one data set."""
    if row == "medical":
        return plan_of(medical(), request, TABLE1_LABELS, rate=RATES["medical"])
    if row == "income-l":
        return income_plan(request, TABLE1_LABELS)
    # too many records for the closed form
    labels = [label for label in TABLE1_LABELS if not label.startswith("grad-closed")]
    return plan_of(states(request), request, labels, rate=RATES["income"])


def states(request: base.Request) -> dict[str, Any]:
    """Return a fifth of every state that has a file with dollars, one client each."""
    from fedxray.data.tables import states_in_dollars

    clients = len(states_in_dollars()) or THEIR_STATES  # without files the row is refused before it runs
    data = {"name": "acs-income", "state": "all", "share": 0.2, "partition": "as-given", "clients": clients}
    return data | ({"limit": 300} if request.is_small else {})


TABLE1 = base.Reproduction(
    name="aia-regression-table1",
    shows="How well a model or gradients reveal the sensitive column of a client's records, passively and actively.",
    paper=paper(place="Table 1", numbers=TABLE1_NUMBERS),
    rows=TABLE1_ROWS,
    small_rows=("medical", "income-l"),
    columns=columns(TABLE1_LABELS),
    differences=(
        *order(TABLE1_LABELS),
        *base.compare(
            ("model", "grad-oracle"),
            ("active-10", "model"),
            ("active-50", "active-10"),
            ("grad-oracle", "grad"),
            expected="above",
        ),
    ),
    plan=plan_table1,
    why=f"{WHY}; {STAND_IN}; income-a needs files of states made with folktables",
)


# Beyond Table 1: what an active attack gains for the rounds it spends with the client, its tuning included

TRIALS = 8
CONSTANT = {"pace": "constant", "boost": 3.0}  # centre of the search: 0.3 to 30 usual entries of an update
# label -> model, rounds spent with the client
ROUNDS_MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "passive": ({"name": "last-returned"}, 0),
    **{
        f"active-{rounds}": ({"name": "local-model-active", "active_rounds": rounds}, rounds)
        for rounds in (5, 10, 25, 50)
    },
    "send-back-50": ({"name": "local-model-send-back", "active_rounds": 50}, 50),
    "constant-50": ({"name": "local-model-active", "active_rounds": 50, **CONSTANT}, 50),
    "search-norm": ({"name": "local-model-active", "tune": "search", "judge": "norm", "trials": TRIALS}, 50 * TRIALS),
    "search-line": ({"name": "local-model-active", "tune": "search", "trials": TRIALS}, 52 * TRIALS),
    "search-oracle": ({"name": "local-model-active", "tune": "oracle-loss", "trials": TRIALS, **CONSTANT}, 50 * TRIALS),
    "oracle": ({"name": "local-model-oracle"}, 0),
}
ROUNDS_GRANTS = {"search-oracle": ["oracle-loss"], "oracle": ["oracle-records"]}
ROUNDS_COLUMNS = {
    label: f"{spent} rounds" + (", the paper's tuning" if label == "search-oracle" else "")
    for label, (_, spent) in ROUNDS_MODELS.items()
}


def plan_rounds(request: base.Request, row: str) -> dict[str, Any]:
    """Return the plan of one data set of Table 1."""
    data = medical() if row == "medical" else income(request)
    common = {"name": "attribute-from-model", "targets": attacked(data, request)}
    attacks = []
    for label, (model, spent) in ROUNDS_MODELS.items():
        settings = {**common, "label": label, "model": model, "controls": []}
        settings |= {"role": "active-server"} if spent else {}
        if label in ROUNDS_GRANTS:
            settings |= {"grants": ["public-attributes", "recipe", *ROUNDS_GRANTS[label]]}
        attacks.append(settings)
    return {
        "seeds": request.pick_seeds(small=1, paper=3),
        "data": data,
        "model": {"name": "mlp", "hidden": [128]},
        "federation": {"rounds": TRAINING_ROUNDS, "batch_size": 32, "learning_rate": RATES[row]},
        "attack": attacks,
    }


ROUNDS = base.Reproduction(
    name="aia-regression-rounds",
    shows="How much attribute inference gains from active rounds, counting every round that tuning spends.",
    paper=paper(
        place="Section 5.2 and Table 1",
        trend="50 active rounds reach the accuracy of the optimal local model; the fifty full attacks of its tuning, "
        "which need the clients' losses, are not counted",
    ),
    rows=("medical", "income"),
    small_rows=("medical",),
    columns=base.columns_of(ROUNDS_COLUMNS, ("accuracy",)),
    differences=(
        *base.compare(("active-50", "oracle")),
        *base.compare(("active-50", "passive"), expected="above"),
        *base.compare(
            ("active-50", "send-back-50"),
            ("active-50", "constant-50"),
            ("search-line", "active-50"),
            ("search-line", "search-norm"),
            ("search-oracle", "active-50"),
        ),
    ),
    plan=plan_rounds,
    why=STAND_IN,
)


# Beyond Table 1: the effect of columns that carry no information on an attack on the client's own model

WIDTH_LABELS = ("model", "active-10", "active-50", "active-50-tuned-oracle", "oracle")


def plan_width(request: base.Request, *, occupations: int) -> dict[str, Any]:
    """Return Connecticut, which has no occupations, with this number of them drawn at random."""
    data = {**income(request), "state": "CT", "drawn_occupations": occupations}
    return plan_of(data, request, WIDTH_LABELS, rate=RATES["income"])


WIDTH = base.Reproduction(
    name="aia-regression-width",
    shows="Whether an active attack overfits a client in few rounds only because its table has many columns.",
    paper=figure(
        place="Table 1",
        trend="548 columns, most of them occupations: 75.3 % passively, 82.0 % after 10 active rounds, 94.3 % after "
        "50, and 94.3 % for the optimal local model",
    ),
    rows=("0", "100", "500"),
    row_is="occupations drawn",
    small_rows=("0", "500"),
    columns=columns(WIDTH_LABELS),
    differences=(
        *base.compare(("active-50", "model"), ("active-50", "active-10"), expected="above"),
        *base.compare(("active-50", "oracle"), ("active-50-tuned-oracle", "active-50")),
        *base.compare_rows(("active-50", "model"), ("500", "0")),
    ),
    plan=base.sweep(plan_width, "occupations"),
    why=f"{WHY}; occupations drawn at random stand in for real ones, which also depend on income and sex",
)


# Figure 3: heterogeneity, batch size and local epochs

ONE_RATE = "one learning rate for all rows, where the paper tunes it for each (its appendix is not in our text)"
HETEROGENEITY = base.Reproduction(
    name="aia-regression-heterogeneity",
    shows="How much better attribute inference works where clients differ in how income is correlated with sex.",
    paper=figure(
        place="Figure 3 (left)",
        trend="accuracy rises with heterogeneity for all; passive Ours is slightly below Grad in the iid case and more "
        "than 20 points above at the most; active Ours is 30 points above Grad and equals Model-w-O",
    ),
    rows=("0.0", "0.1", "0.2", "0.3", "0.4", "0.5"),  # 0.0 is the same mixture everywhere
    row_is="heterogeneity",
    small_rows=("0.0", "0.4"),
    columns=columns(FIGURE_LABELS),
    differences=(*order(FIGURE_LABELS), *base.compare_rows(FIGURE_LABELS, ("0.4", "0.0"), expected="above")),
    plan=base.sweep(income_plan, "heterogeneity", float),
    why=f"{WHY}; {STAND_IN}",
)
BATCH_SIZE = base.Reproduction(
    name="aia-regression-batch-size",
    shows="How attribute inference depends on the batch size of the clients.",
    paper=figure(
        place="Figure 3 (centre)", trend="Ours falls slightly with the batch size, and is above Grad everywhere"
    ),
    rows=("32", "64", "128", "256", "512", "1024"),
    row_is="batch size",
    small_rows=("32", "256"),
    columns=columns(FIGURE_LABELS),
    differences=(*order(FIGURE_LABELS), *base.compare_rows(("model", "active-50"), ("32", "256"), expected="above")),
    plan=base.sweep(income_plan, "batch_size"),
    why=f"{WHY}; {ONE_RATE}; {STAND_IN}",
)
EPOCHS = base.Reproduction(
    name="aia-regression-epochs",
    shows="How attribute inference depends on the local epochs of the clients.",
    paper=figure(
        place="Figure 3 (right)",
        trend="passive Ours does not depend on the epochs, passive Grad falls to chance at 5; active Ours falls slowly "
        "and stays more than 10 points above Grad",
    ),
    rows=("1", "2", "3", "4", "5"),  # in proportionally fewer rounds
    row_is="local epochs",
    small_rows=("1", "5"),
    columns=columns(FIGURE_LABELS),
    differences=(
        *order(FIGURE_LABELS),
        *base.compare_rows("grad", ("1", "5"), expected="above"),
        *base.compare_rows("model", ("1", "5")),
        *base.compare_rows("active-50", ("1", "5"), expected="above"),
    ),
    plan=base.sweep(income_plan, "epochs"),
    why=f"{WHY}; {ONE_RATE}; {STAND_IN}",
)


# Figure 4: clients with fewer and with more records

CLIENT_SIZE_LABELS = ("active-50-grad", "active-50", "oracle")
CLIENT_SIZE = base.Reproduction(
    name="aia-regression-client-size",
    shows="Whether clients with fewer records are more exposed.",
    paper=figure(
        place="Figure 4",
        trend="clients with fewer records are more exposed to all attacks; Grad is near chance above 20,000",
    ),
    rows=("100", "200", "400", "800", "1600"),
    row_is="records per client",
    small_rows=("100", "400"),
    columns=columns(CLIENT_SIZE_LABELS),
    differences=base.compare_rows(CLIENT_SIZE_LABELS, ("100", "400"), expected="above"),
    plan=base.sweep(partial(income_plan, labels=CLIENT_SIZE_LABELS), "limit"),
    why="clients of one state, cut to one size per row, stand in for states of different sizes",
)


# Section 6: on a classification task the order of model and gradient attacks is inverted


def plan_classification(request: base.Request, row: str) -> dict[str, Any]:
    """Return Nebraska with incomes above 50,000 or not, and a network with one hidden layer or none."""
    data = {**income(request), "state": "NE"}
    network = {"name": "linear"} if row == "linear" else None
    return plan_of(data, request, FIGURE_LABELS, rate=CLASSIFICATION_RATE, network=network)


CLASSIFICATION = base.Reproduction(
    name="aia-classification",
    shows="Whether a model reveals more of the sensitive column than gradients do when the target is a class.",
    paper=figure(
        place="Section 6",
        trend="the order is inverted: gradients reveal more; with a linear model the guess is a function of the label",
    ),
    rows=("mlp", "linear"),
    columns=columns(FIGURE_LABELS),
    differences=(
        *base.compare(("grad", "model"), ("grad-closed", "model"), ("active-50-grad", "active-50"), expected="above"),
        *base.compare(("oracle", "model")),
    ),
    plan=plan_classification,
    why="Nebraska stands in for Louisiana; the learning rate is ours, since the text gives none",
)


# Appendix C, Table 2: linear models, whose optimum the messages reveal (Alg. 2)

LINEAR_COLUMNS = {
    "model": "last returned model",
    "linear": "Passive, Ours (Alg. 2)",
    "linear-forward": "",
    "active-50": "Active (50 Rnds), Ours",
    "oracle": "Model-w-O",
}


def plan_linear(request: base.Request, row: str) -> dict[str, Any]:
    """Return 300 rounds on a standardised target."""
    data = medical() if row == "medical" else {**income(request), "partition": "iid"}
    data.pop("heterogeneity", None)
    targets = min(2, data["clients"]) if request.is_small else "all"
    attacks = []
    for label in LINEAR_COLUMNS:
        settings = attack("model" if label.startswith("linear") else label, request)
        settings |= {"model": f"local-model-{label}"} if label.startswith("linear") else {}
        attacks.append({**settings, "label": label, "targets": targets})
    return {
        "seeds": request.pick_seeds(small=1, paper=3),
        "data": data | {"scale_target": True},
        "model": {"name": "linear"},
        "federation": {"rounds": 300, "learning_rate": 5e-3, "batch_size": 32},
        "attack": attacks,
    }


LINEAR = base.Reproduction(
    name="aia-regression-linear",
    shows="Whether the messages of a federated linear regression reveal the client's optimum and its attributes.",
    paper=paper(place="Appendix C.1, Table 2"),
    rows=("medical", "income"),
    columns=base.columns_of(LINEAR_COLUMNS, ("accuracy",)),
    differences=(
        *base.compare(("linear", "model"), expected="above"),
        *base.compare(("linear", "oracle"), ("linear-forward", "linear"), ("active-50", "oracle")),
    ),
    plan=plan_linear,
    why="columns and target are standardised without logarithms, and income keeps all its columns; all clients take "
    "part in every round, so that the server's models are nearly dependent and the answer may be undetermined",
)


# Appendix C.2: the round in which an active attack starts

START_ROUND_LABELS = ("model", "active-50", "oracle")
START_ROUND = base.Reproduction(
    name="aia-regression-start-round",
    shows="Whether an active attack can start early.",
    paper=figure(place="Appendix C.2", trend="the text states only that it was examined"),
    rows=("10", "50", str(TRAINING_ROUNDS)),  # the attack starts after these rounds and reads no later one
    row_is="rounds before the attack",
    columns=columns(START_ROUND_LABELS),
    differences=(
        *base.compare_rows("active-50", ("10", str(TRAINING_ROUNDS))),
        *base.compare(("active-50", "model"), expected="above"),
    ),
    plan=base.sweep(partial(income_plan, labels=START_ROUND_LABELS), "rounds", lambda value: list(range(int(value)))),
    why=f"{WHY}; {STAND_IN}",
)


# Appendix C, Table 3: clients that train with DP-SGD at epsilon 1, rounds of the active server included

DP_LABELS = ("grad-closed", "model", "active-50-grad", "active-50", "oracle")
ACTIVE_ROUNDS = 50
# Gradients are in dollars, so the clipping norm is large.
BUDGETS = {"medical": {"delta": 1e-6, "clip": 5e5}, "income-l": {"delta": 1e-5, "clip": 3e6}}


def plan_dp(request: base.Request, row: str) -> dict[str, Any]:
    """Return one data set without a defence and with epsilon 1 over all rounds, those of an active server included."""
    data, rate = (medical(), RATES["medical"]) if row == "medical" else (income(request), RATES["income"])
    rounds = TRAINING_ROUNDS + ACTIVE_ROUNDS
    budget = {"name": "dp-sgd", "epsilon": 1.0, "rounds": rounds, **BUDGETS[row]}
    return {**plan_of(data, request, DP_LABELS, rate=rate), "defence": [{"name": "none"}, budget]}


def private(label: str) -> str:
    """Return the title of the column under DP-SGD."""
    return base.defended_title(label, "dp-sgd")


DP = base.Reproduction(
    name="aia-regression-dp",
    shows="Whether a model or gradients still reveal the sensitive column when clients train with DP-SGD at epsilon 1.",
    paper=paper(place="Appendix C, Table 3"),
    rows=tuple(BUDGETS),
    columns=base.defended_columns({label: CALLED[label] for label in DP_LABELS}, ("accuracy",), ("dp-sgd",)),
    differences=(
        *order(DP_LABELS),
        *base.compare(*((label, private(label)) for label in DP_LABELS if label != "oracle"), expected="above"),
        *base.compare((private("active-50"), private("model")), (private("active-50"), private("active-50-grad"))),
    ),
    plan=plan_dp,
    why=f"{WHY}; {STAND_IN}; batches are drawn at random, and the noise is set for {TRAINING_ROUNDS + ACTIVE_ROUNDS} "
    "rounds",
)
