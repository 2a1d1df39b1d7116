"""What the tables of "Attribute Inference Attacks for Federated Regression Tasks" share: data, recipe, attacks.

Every client takes part in 100 / epochs rounds with a network of 128 hidden units, the target in dollars. The small
scale shrinks the income data (four clients of 300 records) and the search of the gradient attacks (two learning rates,
few steps, three shares of the rounds), not the rounds. Settings of the active attack come from the recorded rounds: the
paper's were tuned on the clients' losses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fedxray.reproduce.base import Column, Difference, Paper, Published, Request, columns_of

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
    from fedxray.data.income import states_in_dollars

    made = {
        "name": "acs-income",
        "state": "LA" if "LA" in states_in_dollars() else "CT",
        "clients": 4 if request.is_small else THEIR_CLIENTS,
        "partition": "income-correlation",
        "heterogeneity": heterogeneity,
    }
    most = limit or (300 if request.is_small else None)
    return made if most is None else made | {"limit": most}
