"""Tables and figures of "Attribute Inference Attacks for Federated Regression Tasks"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fedxray.reproduce.base import (
    Column,
    Difference,
    Measured,
    Paper,
    Published,
    Reproduction,
    Request,
    Unit,
    columns_of,
)

# --- What the tables of "Attribute Inference Attacks for Federated Regression Tasks" share: data, recipe,
# attacks.
#
# Every client takes part in 100 / epochs rounds with a network of 128 hidden units, the target in dollars.
# The small scale shrinks the income data (four clients of 300 records) and the search of the gradient
# attacks (two learning rates, few steps, three shares of the rounds), not the rounds. Settings of the
# active attack come from the recorded rounds: the paper's were tuned on the clients' losses.


TITLE = (
    "Diana, Marfoq, Xu, Neglia, Giroire, Thomas: Attribute Inference Attacks for Federated Regression Tasks "
    "(AAAI 2025)"
)
THEIR_CLIENTS = 10
ROUNDS = 100
RATES = {"medical": 2e-6, "income": 5e-7}  # of the clients; the target is in dollars
# The attacks by their labels, and what the paper calls them.
CALLED = {
    "grad": "Passive, Grad",
    "grad-oracle": "Passive, Grad-w-O",
    "grad-all-rounds": "",  # as Grad, picked by all rounds and not by those it matched
    "grad-closed": "",
    "grad-closed-own": "",  # in closed form, over the shares of rounds of Grad and picked like it
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
SWEEP = ("grad", "grad-closed", "model", "active-50-grad", "active-50", "oracle")
ORDER = (
    Difference(left="model", right="grad", expected="above"),
    Difference(left="active-50", right="model", expected="above"),
    Difference(left="active-50", right="active-50-grad", expected="above"),
    Difference(left="active-50", right="oracle"),
    Difference(left="grad-closed", right="grad"),
    Difference(left="model", right="grad-closed"),
    Difference(left="grad-all-rounds", right="grad"),
    Difference(left="grad-closed", right="grad-closed-own"),
)
WHY = (
    "our step size of the active attack comes from the recorded rounds, the paper's from the clients' own losses; "
    "means are over clients, the paper's over records"
)
STAND_IN = (
    "Connecticut stands in for Louisiana where the user has no file of it: 40 columns in place of 548, since it has no "
    "occupations"
)


def paper(
    place: str,
    numbers: Published | None = None,
    trend: str = "",
    clients: int | None = THEIR_CLIENTS,
) -> Paper:
    """A table or figure of the paper."""
    return Paper(title=TITLE, place=place, clients=clients, numbers=numbers or {}, trend=trend)


def columns(labels: Sequence[str]) -> tuple[Column, ...]:
    """The accuracy of these attacks."""
    return columns_of({label: CALLED[label] for label in labels}, ("accuracy",))


def order(labels: Sequence[str]) -> tuple[Difference, ...]:
    """The differences between columns that are there."""
    return tuple(one for one in ORDER if {one.left, one.right} <= set(labels))


def plan_of(
    data: dict[str, Any],
    request: Request,
    labels: Sequence[str],
    *,
    rate: float,
    epochs: int = 1,
    network: dict[str, Any] | None = None,
    rounds: list[int] | None = None,
    **recipe: Any,
) -> dict[str, Any]:
    """A whole plan; `rounds` are those that the attacks read, `recipe` changes the federation."""
    federation = {"rounds": math.ceil(ROUNDS / epochs), "epochs": epochs, "batch_size": 32}
    read = {} if rounds is None else {"rounds": rounds}
    clients = int(data["clients"])
    wanted = request.pick_clients(small=min(2, clients), paper=clients, most=clients)
    targets = [place * clients // wanted for place in range(wanted)]  # of both kinds where clients are of two
    return {
        "seeds": request.pick_seeds(small=1, paper=3),
        "data": data,
        "model": network or {"name": "mlp", "hidden": [128]},
        "federation": federation | {"learning_rate": rate} | recipe,
        "attack": [
            {**attack(label, request, epochs), "label": label, "targets": targets, **read} for label in labels
        ],
    }


def attack(label: str, request: Request, epochs: int = 1) -> dict[str, Any]:
    """One attack by its label."""
    what, active = label, 0
    if label.startswith("active-"):
        active = math.ceil(int(label.split("-")[1]) / epochs)
        what = label.split("-", 2)[2] if label.count("-") > 1 else "model"
    if what.startswith("grad"):
        return _on_gradients(what, active, request)
    names = {"model": "last-returned", "oracle": "local-model-oracle", "global": "global-model"}
    model: Any = names.get(what)
    made = {"name": "attribute-from-model", "model": model}
    if what == "tuned-oracle":
        settings = {"active_rounds": active, "tune": "oracle-loss", "pace": "constant", "boost": 3.0}
        return made | {
            "role": "active-server",
            "model": {"name": "local-model-active", **settings},
            "grants": ["public-attributes", "recipe", "oracle-loss"],
            "controls": [],
        }
    if active:
        return made | {
            "role": "active-server",
            "model": {"name": "local-model-active", "active_rounds": active},
            "controls": ["held-out", "other-client"],
        }
    if what == "oracle":
        return made | {"grants": ["public-attributes", "oracle-records"], "controls": []}
    return made


def _on_gradients(what: str, active: int, request: Request) -> dict[str, Any]:
    made: dict[str, Any] = {"name": "attribute-from-gradients", "controls": ["held-out"]}
    if active:
        made |= {"role": "active-server", "active_rounds": active}
    if what == "grad-closed":
        return made
    made |= {"shares": [0.0, 0.05, 0.2] if request.is_small else [0.0, 0.05, 0.1, 0.2, 0.5, 1.0]}
    if what == "grad-closed-own":
        return made | {"pick": "own-objective"}
    made |= {"method": "iterative", "pick": "all-rounds" if what == "grad-all-rounds" else "own-objective"}
    if request.is_small:
        made |= {"steps": 30, "learning_rates": [1e3, 1e5]}
    if what == "grad-oracle":
        made |= {"pick": "oracle-records", "grants": ["public-attributes", "oracle-records"], "controls": []}
    return made


def medical() -> dict[str, Any]:
    """Two clients with half of the records each."""
    return {"name": "medical", "sensitive": "smoker", "clients": 2, "partition": "iid"}


def income(request: Request, *, heterogeneity: float = 0.4, limit: int | None = None) -> dict[str, Any]:
    """Income in one state, divided by how it goes with sex: Louisiana where the user has it."""
    from fedxray.data.tables import states_in_dollars

    made = {
        "name": "acs-income",
        "state": "LA" if "LA" in states_in_dollars() else "CT",
        "clients": 4 if request.is_small else THEIR_CLIENTS,
        "partition": "income-correlation",
        "heterogeneity": heterogeneity,
    }
    most = limit or (300 if request.is_small else None)
    return made if most is None else made | {"limit": most}


# --- Section 6: on a classification task the order of model and gradient attacks is inverted.


RATE = 0.05


def plan_classification(request: Request, row: str) -> dict[str, Any]:
    """Nebraska with incomes above 50,000 or not, and a network with one hidden layer or none."""
    data = {**income(request), "state": "NE"}
    network = {"name": "linear"} if row == "linear" else None
    return plan_of(data, request, SWEEP, rate=RATE, network=network)


CLASSIFICATION = Reproduction(
    name="aia-classification",
    shows="Whether a model tells more of the sensitive column than gradients do when the target is a class.",
    paper=paper(
        "Section 6",
        trend="the order is inverted: gradients tell more; of a linear model the guess is a function of the label",
    ),
    rows=("mlp", "linear"),
    columns=columns(SWEEP),
    differences=(
        Difference(left="grad", right="model", expected="above"),
        Difference(left="grad-closed", right="model", expected="above"),
        Difference(left="active-50-grad", right="active-50", expected="above"),
        Difference(left="oracle", right="model"),
    ),
    plan=plan_classification,
    why="Nebraska stands in for Louisiana; the learning rate is ours, since the text gives none",
)

# --- Appendix C.1: linear models, whose optimum the messages give away (Alg. 2).


MODELS = {
    "model": "last returned model",
    "linear": "Passive, Ours (Alg. 2)",
    "linear-forward": "",
    "active-50": "Active (50 Rnds), Ours",
    "oracle": "Model-w-O",
}


def plan_linear(request: Request, row: str) -> dict[str, Any]:
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
    plan=plan_linear,
    why="columns and target are standardised but not logarithms, and income keeps all its columns; all clients take "
    "part in every round, so that the server's models are nearly dependent and the answer may be undetermined",
)

# --- Table 3: attribute inference when clients train with DP-SGD at epsilon 1, rounds of the active server
# included.


PRIVACY_LABELS = ("grad-closed", "model", "active-50-grad", "active-50", "oracle")
ACTIVE_ROUNDS = 50
# Gradients are in dollars, so the clip is large.
BUDGETS = {"medical": {"delta": 1e-6, "clip": 5e5}, "income-l": {"delta": 1e-5, "clip": 3e6}}


def private(label: str, aware: bool = False) -> str:
    """What the column under DP-SGD is called."""
    return f"{label}, dp-sgd" + (", aware" if aware else "")


def plan_privacy(request: Request, row: str) -> dict[str, Any]:
    """One data set without a defence and with epsilon 1 over all rounds that anybody may ask for."""
    data = medical() if row == "medical" else income(request)
    rate = RATES["medical" if row == "medical" else "income"]
    budget = {"name": "dp-sgd", "epsilon": 1.0, "rounds": ROUNDS + ACTIVE_ROUNDS, **BUDGETS[row]}
    return {**plan_of(data, request, PRIVACY_LABELS, rate=rate), "defence": [{"name": "none"}, budget]}


def _columns() -> tuple[Column, ...]:
    found = []
    for label in PRIVACY_LABELS:
        found.append(Column(attack=label, metric="accuracy", called=CALLED[label]))
        found += [
            Column(
                attack=label,
                metric="accuracy",
                title=private(label, aware),
                called=CALLED[label],
                defence="dp-sgd",
                aware=aware,
            )
            for aware in (False, True)
        ]
    return tuple(found)


PRIVATE = Reproduction(
    name="aia-regression-dp",
    shows="Whether a model or gradients still tell the sensitive column when clients train with DP-SGD at epsilon 1.",
    paper=paper("Appendix C, Table 3", clients=None),
    rows=tuple(BUDGETS),
    columns=_columns(),
    differences=(
        *order(PRIVACY_LABELS),
        *(
            Difference(left=label, right=private(label), expected="above")
            for label in PRIVACY_LABELS
            if label != "oracle"
        ),
        Difference(left=private("active-50"), right=private("model")),
        Difference(left=private("active-50"), right=private("active-50-grad")),
    ),
    plan=plan_privacy,
    why=f"{WHY}; {STAND_IN}; batches are drawn by chance, and the noise is set for {ROUNDS + ACTIVE_ROUNDS} rounds",
)

# --- Beyond the paper: what an active attack gains for the rounds it spends with the client, its tuning
# included.


TRIALS = 8
CONSTANT = {"pace": "constant", "boost": 3.0}  # drawn around: 0.3 to 30 usual entries of a recorded update
# Label, model and rounds spent with the client.
MODELS_ROUNDS: dict[str, tuple[dict[str, Any], int]] = {
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
ROUNDS_CALLED = {
    label: f"{spent} rounds" + (", the paper's tuning" if label == "search-oracle" else "")
    for label, (_, spent) in MODELS_ROUNDS.items()
}


def plan_rounds(request: Request, row: str) -> dict[str, Any]:
    """One data set of Table 1."""
    data = medical() if row == "medical" else income(request)
    clients = int(data["clients"])
    wanted = request.pick_clients(small=min(2, clients), paper=clients, most=clients)
    common = {
        "name": "attribute-from-model",
        "targets": [place * clients // wanted for place in range(wanted)],
    }
    attacks = []
    for label, (model, spent) in MODELS_ROUNDS.items():
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
    columns=columns_of(ROUNDS_CALLED, ("accuracy",)),
    differences=(
        Difference(left="active-50", right="oracle"),
        Difference(left="active-50", right="passive", expected="above"),
        Difference(left="active-50", right="send-back-50"),
        Difference(left="active-50", right="constant-50"),
        Difference(left="search-line", right="active-50"),
        Difference(left="search-line", right="search-norm"),
        Difference(left="search-oracle", right="active-50"),
    ),
    plan=plan_rounds,
    why=STAND_IN,
)

# --- Figures 3, 1 and 4 and an appendix: heterogeneity, batch size, local epochs, records, and where the
# attack starts.


RATE_SWEEPS = RATES["income"]
SIZES = ("64", "128", "256", "512", "1024")
FIG1 = ("grad", "grad-closed", "active-50-grad", "global", "oracle")
ONE_RATE = (
    "one learning rate for all rows, where the paper tunes it for each (its appendix is not in our text)"
)


def by_heterogeneity(request: Request, row: str) -> dict[str, Any]:
    """One level of heterogeneity; 0.0 is the same mixture everywhere."""
    return plan_of(income(request, heterogeneity=float(row)), request, SWEEP, rate=RATE_SWEEPS)


def by_batch_size(request: Request, row: str) -> dict[str, Any]:
    """One batch size."""
    return plan_of(income(request), request, SWEEP, rate=RATE_SWEEPS, batch_size=int(row))


def by_epochs(request: Request, row: str) -> dict[str, Any]:
    """So many local epochs, in as many fewer rounds."""
    return plan_of(income(request), request, SWEEP, rate=RATE_SWEEPS, epochs=int(row))


def by_dataset_size(request: Request, row: str) -> dict[str, Any]:
    """Four clients with so many records each, drawn at random, on a regression or a classification task."""
    task, size = row.split("-")
    data = {**income(request), "clients": 4, "partition": "iid", "limit": int(size)}
    del data["heterogeneity"]
    if task == "regression":
        return plan_of(data, request, FIG1, rate=RATE_SWEEPS)
    return plan_of(data | {"state": "NE"}, request, FIG1, rate=CLASSES_RATE)


def by_client_size(request: Request, row: str) -> dict[str, Any]:
    """Clients with so many records each, at the usual heterogeneity."""
    return plan_of(income(request, limit=int(row)), request, CLIENT_SIZE, rate=RATE_SWEEPS)


def by_start_round(request: Request, row: str) -> dict[str, Any]:
    """An active attack that starts after so many rounds, and reads no later one."""
    return plan_of(income(request), request, START, rate=RATE_SWEEPS, rounds=list(range(int(row))))


CLASSES_RATE = 0.05
CLIENT_SIZE = ("active-50-grad", "active-50", "oracle")
START = ("model", "active-50", "oracle")

HETEROGENEITY = Reproduction(
    name="aia-regression-heterogeneity",
    shows="How much more attribute inference tells where clients differ in how income goes with sex.",
    paper=paper(
        "Figure 3 (left)",
        trend="accuracy rises with heterogeneity for all; passive Ours is slightly below Grad in the iid case and more "
        "than 20 points above at the most; active Ours is 30 points above Grad and equals Model-w-O",
    ),
    rows=("0.0", "0.1", "0.2", "0.3", "0.4", "0.5"),
    small_rows=("0.0", "0.4"),
    columns=columns(SWEEP),
    differences=(
        *order(SWEEP),
        *(Difference(left=one, right=one, rows=("0.4", "0.0"), expected="above") for one in SWEEP),
    ),
    plan=by_heterogeneity,
    why=f"{WHY}; {STAND_IN}",
)
BATCH_SIZE = Reproduction(
    name="aia-regression-batch-size",
    shows="How attribute inference depends on the batch size of the clients.",
    paper=paper(
        "Figure 3 (centre)", trend="Ours falls slightly with the batch size, and is above Grad everywhere"
    ),
    rows=("32", "64", "128", "256", "512", "1024"),
    small_rows=("32", "256"),
    columns=columns(SWEEP),
    differences=(
        *order(SWEEP),
        *(
            Difference(left=one, right=one, rows=("32", "256"), expected="above")
            for one in ("model", "active-50")
        ),
    ),
    plan=by_batch_size,
    why=f"{WHY}; {ONE_RATE}; {STAND_IN}",
)
EPOCHS = Reproduction(
    name="aia-regression-epochs",
    shows="How attribute inference depends on the local epochs of the clients.",
    paper=paper(
        "Figure 3 (right)",
        trend="passive Ours does not depend on the epochs, passive Grad falls to chance at 5; active Ours falls slowly "
        "and stays more than 10 points above Grad",
    ),
    rows=("1", "2", "3", "4", "5"),
    small_rows=("1", "5"),
    columns=columns(SWEEP),
    differences=(
        *order(SWEEP),
        Difference(left="grad", right="grad", rows=("1", "5"), expected="above"),
        Difference(left="model", right="model", rows=("1", "5")),
        Difference(left="active-50", right="active-50", rows=("1", "5"), expected="above"),
    ),
    plan=by_epochs,
    why=f"{WHY}; {ONE_RATE}; {STAND_IN}",
)
DATASET_SIZE = Reproduction(
    name="aia-regression-dataset-size",
    shows="How the gradient attack fails on regression, and not on classification, as clients hold more records.",
    paper=paper(
        "Figure 1 and Section 1",
        {
            "regression-64": {"grad": {"accuracy": 0.60}},
            "regression-256": {"grad": {"accuracy": 0.50}},
            "classification-256": {"grad": {"accuracy": 0.71}},
        },
        trend="on regression Grad is at 60 % with 64 records and at chance from 256 on, on classification at 71 %; a "
        "model attack on the global model is at least as good; the optimal local model tells up to 30 points more",
        clients=4,
    ),
    rows=tuple(f"{task}-{size}" for task in ("regression", "classification") for size in SIZES),
    small_rows=("regression-64", "regression-256", "classification-64", "classification-256"),
    columns=columns(FIG1),
    differences=(
        Difference(left="grad", right="grad", rows=("regression-64", "regression-256"), expected="above"),
        Difference(
            left="grad", right="grad", rows=("classification-256", "regression-256"), expected="above"
        ),
        Difference(left="global", right="grad"),
        Difference(left="oracle", right="global", expected="above"),
        Difference(left="grad-closed", right="grad"),
    ),
    plan=by_dataset_size,
    why="regression is Connecticut (or Louisiana), classification is Nebraska with incomes above 50,000 or not",
)
SIZE = Reproduction(
    name="aia-regression-client-size",
    shows="Whether clients with fewer records are more exposed.",
    paper=paper(
        "Figure 4",
        trend="clients with fewer records are more exposed to all attacks; Grad is near chance above 20,000",
    ),
    rows=("100", "200", "400", "800", "1600"),
    small_rows=("100", "400"),
    columns=columns(CLIENT_SIZE),
    differences=tuple(
        Difference(left=one, right=one, rows=("100", "400"), expected="above") for one in CLIENT_SIZE
    ),
    plan=by_client_size,
    why="clients of one state, cut to one size per row, stand in for states of different sizes",
)
START_ROUND = Reproduction(
    name="aia-regression-start-round",
    shows="Whether an active attack can start early.",
    paper=paper("Appendix C.2", trend="the text says only that it was examined"),
    rows=("10", "50", str(ROUNDS)),
    columns=columns(START),
    differences=(
        Difference(left="active-50", right="active-50", rows=("10", str(ROUNDS))),
        Difference(left="active-50", right="model", expected="above"),
    ),
    plan=by_start_round,
    why=f"{WHY}; {STAND_IN}",
)

# --- Table 1: attribute inference by gradients and by models, passive and active, on three data sets.


THEIR_STATES = 51
TABLE1_ROWS = ("medical", "income-l", "income-a")
TABLE1_LABELS = tuple(label for label in CALLED if label not in ("global", "active-50-tuned-oracle"))
TABLE1_PRINTED = """
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
"""


def _published() -> dict[str, dict[str, dict[str, tuple[float, float]]]]:
    """The printed percents as shares, by row and column."""
    found: dict[str, dict[str, dict[str, tuple[float, float]]]] = {row: {} for row in TABLE1_ROWS}
    for line in TABLE1_PRINTED.strip().splitlines():
        label, *cells = line.split()
        for row, cell in zip(("income-l", "income-a", "medical"), cells, strict=True):
            mean, spread = map(float, cell.split("/"))
            found[row][label] = {"accuracy": (mean / 100, spread / 100)}
    return found


def plan_table1(request: Request, row: str) -> dict[str, Any]:
    """One data set."""
    if row == "medical":
        return plan_of(medical(), request, TABLE1_LABELS, rate=RATES["medical"])
    if row == "income-l":
        return plan_of(income(request), request, TABLE1_LABELS, rate=RATES["income"])
    open_form = [
        label for label in TABLE1_LABELS if not label.startswith("grad-closed")
    ]  # too many records for it
    return plan_of(states(request), request, open_form, rate=RATES["income"])


def states(request: Request) -> dict[str, Any]:
    """A fifth of every state of which the user has a file with dollars, one client each."""
    from fedxray.data.tables import states_in_dollars

    clients = len(states_in_dollars()) or THEIR_STATES  # without files it is refused when its turn comes
    made = {"name": "acs-income", "state": "all", "share": 0.2, "partition": "as-given", "clients": clients}
    return made | ({"limit": 300} if request.is_small else {})


TABLE1 = Reproduction(
    name="aia-regression-table1",
    shows="Whether a model or gradients tell the sensitive column of a client's records, listening or interfering.",
    paper=paper("Table 1", _published(), clients=None),
    rows=TABLE1_ROWS,
    small_rows=("medical", "income-l"),
    columns=columns(TABLE1_LABELS),
    differences=(
        *order(TABLE1_LABELS),
        Difference(left="model", right="grad-oracle", expected="above"),
        Difference(left="active-10", right="model", expected="above"),
        Difference(left="active-50", right="active-10", expected="above"),
        Difference(left="grad-oracle", right="grad", expected="above"),
    ),
    plan=plan_table1,
    why=f"{WHY}; {STAND_IN}; income-a needs files of states made with folktables",
)

# --- Figure 2: a linear model of two clients from twelve messages, as the authors' notebook has it, also in
# float64.
#
# 1. 2,048 records of ten columns from U(0, 1), the last cut at one half; weights from N(0, 1), bias from U(0, 1), noise
#    of 0.1; two clients with half each.
# 2. 300 rounds of FedAvg in the same order of batches, at 0.05 B / 2048.
# 3. The messages of rounds 0, 20, ..., 220 and Alg. 2, by the inverse of a square matrix as in the notebook and by our
#    least squares; the sensitive column of all 2,048 records from that model.
#
# Since batches keep their order the client's map is affine for every batch size: what scatters is the
# inverse of a nearly singular matrix, not the noise of batches.


KINDS = {
    "inverse-float32": "Ours (their notebook)",
    "inverse-float64": "",
    "least-squares-float32": "",
    "least-squares-float64": "",
    "last-returned": "",
}


def measure(request: Request, row: str) -> list[Measured]:
    """Accuracy, and distance to the client's own optimum, for every seed and client."""
    from fedxray.reproduce.aia_toy import attacked

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

# --- Beyond the paper: what columns that tell nothing do to an attack on the client's own model.


WIDTH_LABELS = ("model", "active-10", "active-50", "active-50-tuned-oracle", "oracle")


def plan_width(request: Request, row: str) -> dict[str, Any]:
    """Connecticut, which has no occupations, with so many drawn at random."""
    data = {**income(request), "state": "CT", "drawn_occupations": int(row)}
    return plan_of(data, request, WIDTH_LABELS, rate=RATES["income"])


WIDTH = Reproduction(
    name="aia-regression-width",
    shows="Whether an active attack overfits a client in few rounds only because her table is wide.",
    paper=paper(
        "Table 1",
        trend="548 columns, most of them occupations: 75.3 % listening, 82.0 % after 10 active rounds, 94.3 % after "
        "50, and 94.3 % for the optimal local model",
    ),
    rows=("0", "100", "500"),
    small_rows=("0", "500"),
    columns=columns(WIDTH_LABELS),
    differences=(
        Difference(left="active-50", right="model", expected="above"),
        Difference(left="active-50", right="active-10", expected="above"),
        Difference(left="active-50", right="oracle"),
        Difference(left="active-50-tuned-oracle", right="active-50"),
        Difference(left="active-50", right="active-50", rows=("500", "0")),
        Difference(left="model", right="model", rows=("500", "0")),
    ),
    plan=plan_width,
    why=f"{WHY}; occupations drawn at random stand in for real ones, which also tell of income and sex",
)
