"""Figure 11 and appendix B: what a wrong learning rate costs, and what the own images tell of it and of N.

The rows `fedsgd` (the server applies the rate, as in the figure) and `fedavg` take it for so many times the true one.
The others search: the rate alone, or it and the number of images, for which labels are estimated anew at every
guess, and `ridge` goes along where the rate over the number is the true one. Own images stay in the sum; a trial is
judged by them alone. The range of the rate spans a factor of a hundred and does not have the true one in its middle,
where a grid or a model of the losses would come upon it by itself.

A guess of another number of images than there are is matched to them all the same: of more guesses the better ones
are taken, and originals without a guess have no psnr. So where N is searched only retrieval is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedxray.reproduce.base import Difference, Reproduction, Request, Sought, columns_of
from fedxray.reproduce.curious.setting import (
    METRICS,
    RATE,
    STAND_IN,
    attack,
    better,
    data,
    federation,
    network,
    paper,
)

TIMES = (0.1, 0.3, 0.5, 0.8, 1.0, 1.25, 2.0, 3.0, 10.0)
SERVER_RATE = 1.0  # as in the figure
GUESSES = ("fedsgd", "fedavg")
LOWEST, HIGHEST = 1 / 8, 12.5  # times the true rate, what is searched
RIDGES = ("ridge", "ridge-one-step")
SHARES = (0.625, 0.75, 0.875, 1.0, 1.25, 1.5, 2.0)  # of the true number of images, along the ridge
SEARCHES = ("search-rate", "search-both", "search-both-one-step")
CLIENTS = 2
KNOWN, SEARCHED = "known", "searched"


def plan(request: Request, row: str) -> dict[str, Any]:
    """Two clients; of few photos at the small scale, since every guess is a whole attack.

    A smaller network would be quicker, but there even the true rate brings no picture back that could judge.
    """
    each = 4 if request.is_small else 16
    recipe = federation(**({"epochs": 1} if row.endswith("one-step") else {}))
    if row == "fedsgd":  # one gradient of all, so that neither epochs nor order are to be told
        recipe = {"algorithm": "fedsgd", "rounds": 1, "learning_rate": SERVER_RATE}
    return {
        "seeds": request.pick_seeds(small=3, paper=3),
        "data": data(request, CLIENTS, (each,)),
        "model": network("lenet", request),
        "federation": recipe,
        "attack": _attacks(request, row, CLIENTS * each),
    }


def _attacks(request: Request, row: str, images: int) -> list[dict[str, Any]]:
    if row in GUESSES:
        return _guesses(request, row)
    return _along(request, images) if row in RIDGES else _searches(request, row, images)


def _along(request: Request, images: int) -> list[dict[str, Any]]:
    """Guesses of the number, each with the rate that leaves the quotient as it is."""
    return [
        attack(
            request,
            share_title(share),
            own_share="recover",
            assumed_examples=round(images * share),
            assumed_learning_rate=RATE * share,
            grants=["recipe"],
        )
        for share in SHARES
    ]


def _guesses(request: Request, row: str) -> list[dict[str, Any]]:
    rate = SERVER_RATE if row == "fedsgd" else RATE
    return [
        attack(request, title(times), own_share="recover", assumed_learning_rate=rate * times)
        for times in TIMES
    ]


def _searches(request: Request, row: str, images: int) -> list[dict[str, Any]]:
    """The attack that knows everything, and the one that searches; who searches N is told neither it nor labels."""
    ranges: dict[str, list[float]] = {"assumed_learning_rate": [RATE * LOWEST, RATE * HIGHEST]}
    grants = {}
    if row != "search-rate":
        # Own images are half of all: there is no fewer than them and one more, and no more than twice all.
        ranges["assumed_examples"] = [images // 2 + 1, 2 * images]
        grants = {"grants": ["recipe"]}
    trials = 21 if row == "search-rate" else 49 if request.is_small else 63
    study = {"trials": trials, "sampler": "gp", "ranges": ranges}
    return [
        attack(request, KNOWN, own_share="recover"),
        attack(request, SEARCHED, own_share="recover", search=study, **grants),
    ]


def title(times: float) -> str:
    """What a guess of so many times the true rate is called."""
    return f"x{times:g}"


def share_title(share: float) -> str:
    """What a guess of so many times the true number of images is called."""
    return f"images-x{share:g}"


def truth(plan: Mapping[str, Any]) -> dict[str, float]:
    """What who knew everything would assume."""
    held = CLIENTS * plan["data"]["sizes"][0]
    return {"assumed_learning_rate": plan["federation"]["learning_rate"], "assumed_examples": float(held)}


UNKNOWN_RATE = Reproduction(
    name="curious-unknown-lr",
    shows="What it costs a curious client not to know the learning rate, and whether its own images tell it.",
    paper=paper(
        "Figure 11 and appendix B",
        "quality falls fast as the guessed and the true rate part, within a factor of ten by a simple curve, so that "
        "the rate (and N) can be searched by the own images",
    ),
    rows=(*GUESSES, *SEARCHES, *RIDGES),
    columns=(
        *columns_of({**{title(times): "" for times in TIMES}, KNOWN: "", SEARCHED: ""}, METRICS),
        *columns_of({share_title(share): "" for share in SHARES}, ("own_psnr", "retrieval")),
    ),
    differences=(
        *(one for times in TIMES if times != 1 for one in better(title(1.0), title(times))),
        Difference(left=SEARCHED, right=KNOWN, rows=("search-rate", "search-rate")),
        *(
            Difference(left=SEARCHED, right=KNOWN, rows=(row, row), metrics=("retrieval",))
            for row in SEARCHES
            if row != "search-rate"
        ),
        *(
            Difference(left=share_title(share), right=share_title(1.0), metrics=("own_psnr",))
            for share in SHARES
            if share != 1
        ),
    ),
    sought=Sought(true=truth, quantities={"rate / images": ("assumed_learning_rate", "assumed_examples")}),
    plan=plan,
    why=f"{STAND_IN}; here own images stay in, as they judge; at the small scale 4 photos of each client; "
    "where N is searched, it is sought from one more than the own images to twice the truth",
)
