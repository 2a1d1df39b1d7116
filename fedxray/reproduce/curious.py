"""The figures of the curious client (2024), "Federated Learning Nodes Can Reconstruct Peers' Image Data".

A client holds one batch, on which it takes tau steps; the change of the initial global model is attacked. At the small
scale photos have 32 pixels and the latent image half of that, else 64 and a quarter. The photos of fewer clients are
among those of more, and client 0, the attacker, has the same ones, as long as all hold at most 130 or all hold more:
beyond 130 fewer photos are public, and others are drawn. What no client holds is public: it gives the floors and the
other candidates of `retrieval`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

from fedxray.reproduce.base import Difference, Paper, Reproduction, Request, Sought, columns_of, compare, compare_rows

paper = partial(
    Paper, title="Federated Learning Nodes Can Reconstruct Peers' Image Data (under review, anonymous)"
)  # our text has no numbers of any figure
PHOTOS = 1000  # of the data set, one of each class
IMAGES = 16  # of every client, unless a row states another number
STEPS = 3  # local steps of every client
RATE = 0.003  # learning rate of the clients
METRICS = ("psnr", "ssim", "lpips", "retrieval")
KNOWN_LABELS = ("recipe", "examples", "label-counts")
SMALL_ITERATIONS, ITERATIONS = 100, 200
FEW, MANY = 130, 520  # photos that are divided among the clients at most
COLUMN = "curious-client"
STAND_IN = (
    "one photo of each of 1,000 ImageNet classes stands in for the validation set, so that no label occurs twice; at "
    "the small scale photos have 32 pixels and the latent image half of that, else 64 and a quarter (the paper: 128 "
    "and a quarter); the attacker's own update is subtracted from the sum unless a column states otherwise, and only "
    "the others' photos are scored, matched one to one (the authors score all, in their order); rows of up to 130 "
    "photos in all share theirs, and so do rows of more, but the two groups of rows hold different photos; LPIPS of 32 "
    "pixels is out of AlexNet's range, whose last maps are 1 x 1 there (7 x 7 at the paper's 128 pixels), so that "
    "its values do not compare with the paper's"
)


def better(
    left: str,
    right: str,
    *,
    rows: tuple[str, str] | None = None,
    larger: tuple[str, ...] = ("psnr", "ssim", "retrieval"),
) -> tuple[Difference, ...]:
    """Return that the left images are better: the larger metrics are above, and LPIPS, a distance, is below."""
    return (
        *compare((left, right), rows=rows, metrics=larger, expected="above"),
        *compare((left, right), rows=rows, metrics=("lpips",), expected="below"),
    )


def plan_of(
    request: Request,
    clients: int,
    attacks: list[dict[str, Any]],
    *,
    sizes: tuple[int, ...] = (IMAGES,),
    model: str = "lenet",
    seeds: tuple[int, int] = (3, 3),
    **recipe: Any,
) -> dict[str, Any]:
    """Return a plan; `seeds` are those of the small and the paper's scale, `recipe` changes the federation."""
    small, full = seeds
    return {
        "seeds": request.pick_seeds(small=small, paper=full),
        "data": photos(request, clients, sizes),
        "model": network(model, request),
        "federation": federation(**recipe),
        "attack": attacks,
    }


def photos(request: Request, clients: int, sizes: tuple[int, ...]) -> dict[str, Any]:
    """Return clients with these numbers of photos, in turn."""
    held = sum(sizes[client % len(sizes)] for client in range(clients))
    private = FEW if held <= FEW else MANY
    return {
        "name": "imagenet-sample",
        "size": 32 if request.is_small else 64,
        "clients": clients,
        "partition": "sizes",
        "sizes": list(sizes),
        "holdout": 0.0,
        "public": (PHOTOS - private) / PHOTOS,
    }


def network(model: str, request: Request) -> dict[str, Any]:
    """Return one of the paper's networks; on photos of 32 pixels residual ones enter them with stride 1."""
    return {"name": model, **({"stem": "curious-small"} if request.is_small and model != "lenet" else {})}


def federation(**changes: Any) -> dict[str, Any]:
    """Return one round in which every client takes its steps on all its images."""
    return {"rounds": 1, "epochs": STEPS, "batch_size": "all", "learning_rate": RATE, "shuffle": "never", **changes}


def attack(request: Request, label: str, **settings: Any) -> dict[str, Any]:
    """Return the attack by client 0 with known labels, under a label of its own."""
    return {
        "name": "curious-client",
        "label": label,
        "role": "curious-client",
        "grants": list(KNOWN_LABELS),
        "controls": [],
        "metrics": ["lpips"],
        "steps": SMALL_ITERATIONS if request.is_small else ITERATIONS,
        "latent": 2 if request.is_small else 4,
        **settings,
    }


def oracle(request: Request, label: str, **settings: Any) -> dict[str, Any]:
    """Return the upper bound: an attacker that knows which client holds which labels."""
    bound = attack(request, label, **settings)
    del bound["controls"]  # it has none
    return {**bound, "name": "curious-client-oracle", "grants": ["recipe", "examples", "oracle-groups"]}


# Figures 4 and 5: quality by the number of clients and for three networks, 16 images each and three local steps
#
# Residual networks cost a hundred times as much as LeNet, and 32 clients hold 512 photos, so that networks and numbers
# of clients are also compared on 4 photos of each client. The small scale has what ends within half an hour.

NETWORKS = ("lenet", "resnet9", "resnet18")
CLIENTS_COUNTS = (2, 4, 8, 16, 32)
FEW_CLIENTS, FEW_PHOTOS = {"lenet": CLIENTS_COUNTS, "resnet9": (2, 4, 8), "resnet18": (2, 4, 8)}, 4
FEW_ROWS = {
    (model, clients): f"{model}-{clients}-{FEW_PHOTOS}photos" for model in NETWORKS for clients in FEW_CLIENTS[model]
}
CLIENTS_AT_128 = ("lenet-2-128px", *(f"{model}-2-{FEW_PHOTOS}photos-128px" for model in NETWORKS))


def plan_clients(request: Request, row: str) -> dict[str, Any]:
    """Return one network and number of clients; there are only 64 photos of 128 pixels, so half of them are public."""
    model, clients, *changes = row.split("-")
    few, at_128 = f"{FEW_PHOTOS}photos" in changes, "128px" in changes
    settings = {**({} if few else {"steps": ITERATIONS}), **({"latent": 4} if at_128 else {})}
    attacks, sizes = [attack(request, COLUMN, **settings)], (FEW_PHOTOS if few else IMAGES,)
    plan = plan_of(request, int(clients), attacks, sizes=sizes, model=model)
    if at_128:
        plan["data"] |= {"size": 128, "public": 0.5}
        plan["model"] = {"name": model}
    return plan


CLIENTS = Reproduction(
    name="curious-clients",
    shows="How many clients it takes to hide a client's images from another client.",
    paper=paper(
        place="Figures 4 and 5",
        trend="quality falls gradually with the number of clients and with larger networks; up to 8 clients images "
        "stay recognisable, beyond that only some of them",
    ),
    rows=(
        *(f"{model}-{clients}" for model in NETWORKS for clients in CLIENTS_COUNTS),
        *FEW_ROWS.values(),
        *CLIENTS_AT_128,
    ),
    small_rows=(
        *("lenet-2", "lenet-4"),
        *(FEW_ROWS["lenet", clients] for clients in CLIENTS_COUNTS),
        *(FEW_ROWS[row] for row in (("resnet9", 2), ("resnet9", 4), ("resnet18", 2))),
    ),
    columns=columns_of({COLUMN: "Ours"}, METRICS),
    differences=tuple(
        difference
        for rows in (
            *(
                (f"{model}-{few}{photos}", f"{model}-{many}{photos}")
                for model in NETWORKS
                for counts, photos in ((CLIENTS_COUNTS, ""), (FEW_CLIENTS[model], f"-{FEW_PHOTOS}photos"))
                for few, many in itertools.pairwise(counts)
            ),
            *(
                (FEW_ROWS[smaller, clients], FEW_ROWS[larger, clients])
                for clients in FEW_CLIENTS["resnet18"]
                for smaller, larger in itertools.combinations(NETWORKS, 2)
            ),
        )
        for difference in better(COLUMN, COLUMN, rows=rows)
    ),
    plan=plan_clients,
    why=f"{STAND_IN}; on photos of 32 pixels residual networks enter them with stride 1, so that the last layer has as "
    "many features per unknown as in the paper; with 16 photos 200 iterations at both scales (the paper: 100)",
)


# Figure 6: quality by the images of a client, and by its local steps

BATCH_AND_STEPS_VALUES = {"batch": (8, 16, 32, 64, 128), "steps": (1, 3, 5, 8)}
BATCH_AND_STEPS_COUNTS = (2, 4)
BATCH_AND_STEPS_ROWS = tuple(
    f"{clients}-clients-{varied}-{value}"
    for varied, values in BATCH_AND_STEPS_VALUES.items()
    for clients in BATCH_AND_STEPS_COUNTS
    for value in values
)


def plan_batch_and_steps(request: Request, row: str) -> dict[str, Any]:
    """Return a number of images at three local steps, or of local steps on 16 images (8 at the small scale)."""
    clients, _, varied, value = row.split("-")
    usual = 8 if request.is_small else 16
    size, steps = (int(value), 3) if varied == "batch" else (usual, int(value))
    return plan_of(request, int(clients), [attack(request, COLUMN)], sizes=(size,), epochs=steps)


BATCH_AND_STEPS = Reproduction(
    name="curious-batch-and-steps",
    shows="How more images of each client and more local steps hide the images.",
    paper=paper(
        place="Figure 6",
        trend="quality falls with the images of a client and, where there are many clients, with their local steps",
    ),
    rows=BATCH_AND_STEPS_ROWS,
    small_rows=(
        *(f"2-clients-batch-{size}" for size in (8, 16, 32)),
        *(row for row in BATCH_AND_STEPS_ROWS if row.startswith("4-clients") and not row.endswith("steps-5")),
    ),
    columns=columns_of({COLUMN: "Ours"}, METRICS),
    differences=tuple(
        difference
        for clients in BATCH_AND_STEPS_COUNTS
        for varied, (first, *rest) in BATCH_AND_STEPS_VALUES.items()
        for value in rest
        for difference in better(
            COLUMN,
            COLUMN,
            rows=(f"{clients}-clients-{varied}-{first}", f"{clients}-clients-{varied}-{value}"),
            larger=("psnr", "ssim"),
        )
    ),
    plan=plan_batch_and_steps,
    why=f"{STAND_IN}; at the small scale 8 images where local steps are varied",
)


# Figures 7, 8 and 15: the curious client's raw images after restoration by a prior
#
# The priors are small ones that are trained beforehand on the training part of CIFAR-10 (`prior_commands` has the
# commands, minutes on one core; the paper's have half a billion parameters). The audited clients hold test images of
# CIFAR-10, which no prior has seen, or, for a prior of other images, photos of ImageNet. The criterion is psnr, fixed
# before anything was measured. The assumed noise of a raw image was chosen on images of CIFAR-100 that no client holds.

PRIORS_FOLDER = "./priors"  # in the folder from which the reproduction is run
PRIORS = {
    "cifar10-ddpm": "--kind ddpm --width 16 --batch 16 --steps 1000 --flip",
    "cifar10-gan": "--kind gan --width 16 --batch 16 --steps 800 --flip --scale 2",
    "cifar10-dit": "--kind dit --width 16 --batch 16 --steps 1500 --flip",
}
DDPM, GAN, DIT = (f"{PRIORS_FOLDER}/{name}" for name in PRIORS)
RESTORERS: tuple[dict[str, Any], ...] = (
    {"name": "ddrm", "prior": DDPM, "noise": 0.1},
    {"name": "ddrm", "label": "ddrm-x2", "prior": DDPM, "scale": 2, "noise": 0.06, "draws": 4},
    {"name": "ddrm", "label": "ddrm-sample", "prior": DDPM, "scale": 2, "noise": 0.05, "finish": "sample"},
    {"name": "gan", "prior": GAN},
    {"name": "mde", "prior": DIT},
)
RESTORATION_COLUMNS = {
    "raw": "raw reconstruction",
    "raw+ddrm": "",
    "raw+ddrm-x2": "",
    "raw+ddrm-sample": "direct postprocessing",
    "raw+gan": "ROG GAN",
    "raw+mde": "MDE",
}


def prior_commands() -> list[str]:
    """Return the commands that train the priors, for the folder from which the reproduction is run."""
    return [f"fedxray train-prior --data cifar10 {options} --out priors/{name}" for name, options in PRIORS.items()]


def plan_restoration(request: Request, row: str) -> dict[str, Any]:
    """Return clients with 16 images each of one data set, raw and after every restorer; other images are public."""
    name, _, clients = row.partition("-")
    data: dict[str, Any] = (
        {"name": "cifar10", "part": "test"} if name == "cifar10" else {"name": "imagenet-sample", "size": 32}
    )
    data |= {"clients": int(clients), "partition": "sizes", "sizes": [IMAGES], "holdout": 0.0, "public": 0.8}
    return {
        "seeds": request.pick_seeds(small=4, paper=10),
        "data": data,
        "model": {"name": "lenet"},
        "federation": federation(),
        "attack": [attack(request, "raw", latent=2, restore=[dict(restorer) for restorer in RESTORERS])],
    }


RESTORATION = Reproduction(
    name="curious-restoration",
    shows="How good a curious client's images are after restoration by diffusion models or a GAN.",
    paper=paper(
        place="Figures 7, 8 and 15",
        trend="direct postprocessing improves LPIPS by 20 to 30 % with 2 to 8 clients and partly fails with more; "
        "against the GAN of ROG it has worse LPIPS and similar SSIM, and is easier to recognise; MDE is for the eye, "
        "not for numbers",
    ),
    rows=tuple(f"{name}-{clients}" for name in ("cifar10", "imagenet") for clients in (2, 4, 8)),
    small_rows=("cifar10-2", "imagenet-2", "imagenet-4"),
    columns=columns_of(RESTORATION_COLUMNS, ("psnr", "ssim", "lpips")),
    differences=compare(
        *((label, "raw") for label in RESTORATION_COLUMNS if label != "raw"), ("raw+ddrm-sample", "raw+gan")
    ),
    plan=plan_restoration,
    why="the priors are trained beforehand, in the folder from which this is run, by "
    + "; ".join(f"`{command}`" for command in prior_commands())
    + ": 32 pixels and 5,000 images in place of models of half a billion parameters for 256 pixels, so that they can "
    "add little; the paper's scale differs only in seeds and iterations",
)


# Figure 9: what the global model reveals about a class (FedInverse) beside what its change reveals about single images
#
# Ten clients with fifty digits each train until the model is good; a client inverts the model it received last, with
# (MI-HSIC) and without (MI) the HSIC term, within a generator of public digits. Scores are of class images: their
# similarity to the target's digits of the class. The curious client's own images, of single records in the first round,
# are in `curious-clients`; the two do not compete, as the paper says.

FEDINVERSE_COLUMNS = {"mi-hsic": "MI-HSIC", "mi": "MI", "model-inversion": ""}


def plan_fedinverse(request: Request, row: str) -> dict[str, Any]:
    """Return digits of MNIST at 32 pixels."""
    common = {"role": "curious-client", "targets": [1, 2, 3], "controls": ["held-out"]}
    steps, generator_steps = (150, 100) if request.is_small else (1500, 1000)
    inversion = {"name": "fedinverse", "steps": steps, "generator_steps": generator_steps, **common}
    return {
        "seeds": request.pick_seeds(small=2, paper=5),
        "data": {"name": "mnist", "size": 32, "clients": 10, "limit": 50, "holdout": 0.02, "public": 0.05},
        "model": {"name": "lenet"},
        "federation": {
            "rounds": 5 if request.is_small else 30,
            "epochs": 1,
            "batch_size": 10,
            "learning_rate": 0.05,
            "record": "last",
        },
        "attack": [
            {**inversion, "label": "mi-hsic"},
            {**inversion, "label": "mi", "independence": 0.0},
            # At its default step the search stays at its grey start, as its own cost shows; see `rates`.
            {"name": "model-inversion", "model": "global-model", "steps": steps, "rates": [1.0, 10.0, 100.0], **common},
        ],
    }


FEDINVERSE = Reproduction(
    name="curious-fedinverse",
    shows="What a client can reconstruct of the classes in a trained global model, with a generator of public images.",
    paper=paper(
        place="Figure 9", trend="FedInverse gives what is typical of a class, gradient inversion single images"
    ),
    rows=("mnist",),
    columns=columns_of(FEDINVERSE_COLUMNS, ("class_ssim", "class_psnr", "class_recognised")),
    differences=compare(("mi-hsic", "mi"), ("mi-hsic", "model-inversion")),
    plan=plan_fedinverse,
    why="the figure shows ten images of the authors of FedInverse and no numbers; their GAN was trained for hours on "
    "many images, ours starts from the components of a few hundred; their network has BatchNorm and five classes",
)


# Figure 11 and appendix B: the cost of a wrong learning rate, and what the own images reveal about it and about N
#
# The rows `fedsgd` (the server applies the rate, as in the figure) and `fedavg` assume a multiple of the true rate. The
# others search: the rate alone, or it and the number of images, for which labels are estimated anew at every guess, and
# `ridge` varies both where the rate over the number is the true one. Own images stay in the sum; a trial is judged by
# them alone. The range of the rate spans a factor of a hundred and does not have the true one in its middle, where a
# grid or a model of the losses would find it by design.
#
# A guess of another number of images than there are is still matched to them: of more guesses the better ones are used,
# and originals without a guess have no psnr. So where N is searched only retrieval is compared.

TIMES = (0.1, 0.3, 0.5, 0.8, 1.0, 1.25, 2.0, 3.0, 10.0)  # of the true rate
SERVER_RATE = 1.0  # as in the figure
GUESSING_ROWS = ("fedsgd", "fedavg")
SEARCHING_ROWS = ("search-rate", "search-both", "search-both-one-step")
RIDGE_ROWS = ("ridge", "ridge-one-step")
LOWEST, HIGHEST = 1 / 8, 12.5  # range of the search, times the true rate
SHARES = (0.625, 0.75, 0.875, 1.0, 1.25, 1.5, 2.0)  # of the true number of images, along the ridge
UNKNOWN_LR_CLIENTS = 2
KNOWN, SEARCHED = "known", "searched"


def plan_unknown_lr(request: Request, row: str) -> dict[str, Any]:
    """Return two clients; of few photos at the small scale, since every guess is a full attack.

    A smaller network would be quicker, but there even the true rate reconstructs no image that could judge.
    """
    each = 4 if request.is_small else 16
    one_step: dict[str, Any] = {"epochs": 1} if row.endswith("one-step") else {}
    attacks = _unknown_lr_attacks(request, row, UNKNOWN_LR_CLIENTS * each)
    plan = plan_of(request, UNKNOWN_LR_CLIENTS, attacks, sizes=(each,), **one_step)
    if row == "fedsgd":  # one gradient of all images, so that neither epochs nor order have to be known
        plan["federation"] = {"algorithm": "fedsgd", "rounds": 1, "learning_rate": SERVER_RATE}
    return plan


def _unknown_lr_attacks(request: Request, row: str, images: int) -> list[dict[str, Any]]:
    make = partial(attack, request, own_share="recover")
    if row in GUESSING_ROWS:
        rate = SERVER_RATE if row == "fedsgd" else RATE
        return [make(rate_title(times), assumed_learning_rate=rate * times) for times in TIMES]
    if row in RIDGE_ROWS:  # guesses of the number, each with the rate that keeps the quotient
        return [
            make(
                share_title(share),
                assumed_examples=round(images * share),
                assumed_learning_rate=RATE * share,
                grants=["recipe"],
            )
            for share in SHARES
        ]
    # the attack that knows everything, and the one that searches; a search of N knows neither N nor labels
    ranges: dict[str, list[float]] = {"assumed_learning_rate": [RATE * LOWEST, RATE * HIGHEST]}
    grants = {}
    if row != "search-rate":
        # own images are half of all: N is at least one more than these, and at most twice the truth
        ranges["assumed_examples"] = [images // 2 + 1, 2 * images]
        grants = {"grants": ["recipe"]}
    trials = 21 if row == "search-rate" else 49 if request.is_small else 63
    search = {"trials": trials, "sampler": "gp", "ranges": ranges}
    return [make(KNOWN), make(SEARCHED, search=search, **grants)]


def rate_title(times: float) -> str:
    """Return the title of a guess that is this multiple of the true rate."""
    return f"x{times:g}"


def share_title(share: float) -> str:
    """Return the title of a guess that is this multiple of the true number of images."""
    return f"images-x{share:g}"


def true_settings(plan: Mapping[str, Any]) -> dict[str, float]:
    """Return the true values of the searched settings."""
    held = UNKNOWN_LR_CLIENTS * plan["data"]["sizes"][0]
    return {"assumed_learning_rate": plan["federation"]["learning_rate"], "assumed_examples": float(held)}


UNKNOWN_LR = Reproduction(
    name="curious-unknown-lr",
    shows="How much an unknown learning rate costs a curious client, and whether its own images reveal the rate.",
    paper=paper(
        place="Figure 11 and appendix B",
        trend="quality falls fast as the guessed and the true rate diverge, within a factor of ten by a simple curve, "
        "so that the rate (and N) can be searched by the own images",
    ),
    rows=(*GUESSING_ROWS, *SEARCHING_ROWS, *RIDGE_ROWS),
    small_rows=(*GUESSING_ROWS, "search-rate", "search-both-one-step", *RIDGE_ROWS),
    columns=(
        *columns_of({**{rate_title(times): "" for times in TIMES}, KNOWN: "", SEARCHED: ""}, METRICS),
        *columns_of({share_title(share): "" for share in SHARES}, ("own_psnr", "retrieval")),
    ),
    differences=(
        *(one for times in TIMES if times != 1 for one in better(rate_title(1.0), rate_title(times))),
        *compare((SEARCHED, KNOWN), rows=("search-rate", "search-rate")),
        *(
            one
            for row in SEARCHING_ROWS[1:]
            for one in compare((SEARCHED, KNOWN), rows=(row, row), metrics=("retrieval",))
        ),
        *compare(*((share_title(share), share_title(1.0)) for share in SHARES if share != 1), metrics=("own_psnr",)),
    ),
    sought=Sought(true=true_settings, quantities={"rate / images": ("assumed_learning_rate", "assumed_examples")}),
    plan=plan_unknown_lr,
    why=f"{STAND_IN}; here own images stay in the sum, as they judge; at the small scale 4 photos of each client; "
    "where N is searched, its range is from one more than the own images to twice the truth",
)


# Figure 12: the same images divided evenly and unevenly among the clients, at three local steps

DIVISIONS = {"even": (16,), "uneven": (21, 11)}
UNEVEN_COUNTS = (2, 4, 6, 8)
UNEVEN_ROWS = tuple(f"{clients}-{division}" for clients in UNEVEN_COUNTS for division in DIVISIONS)
UNEVEN_COLUMN = "all-images"


def plan_uneven(request: Request, row: str) -> dict[str, Any]:
    """Return all clients' images as a server under secure aggregation sees them: the same in both divisions."""
    clients, division = row.split("-")
    attacks = [attack(request, UNEVEN_COLUMN, role="secure-aggregation")]
    return plan_of(request, int(clients), attacks, sizes=DIVISIONS[division], seeds=(4, 5))


UNEVEN = Reproduction(
    name="curious-uneven",
    shows="That uneven numbers of images among the clients hide nothing.",
    paper=paper(
        place="Figure 12", trend="no difference between even and uneven divisions of the same number of images"
    ),
    rows=UNEVEN_ROWS,
    small_rows=UNEVEN_ROWS[:4],
    columns=columns_of({UNEVEN_COLUMN: "Ours"}, METRICS),
    differences=compare_rows(UNEVEN_COLUMN, *((f"{clients}-uneven", f"{clients}-even") for clients in UNEVEN_COUNTS)),
    plan=plan_uneven,
    why=f"{STAND_IN}; here the attacker is a server under secure aggregation, so that the scored images are the same "
    "in both divisions; 32 to 128 images in all (the paper: 256)",
)


# Figure 13: the learning rate of the attacker's descent

INVERSION_RATES = (0.02, 0.05, 0.1, 0.2, 0.5)
USUAL_RATE = 0.1
INVERSION_LR_ROWS = ("2-clients", "4-clients", "8-clients")


def plan_inversion_lr(request: Request, row: str) -> dict[str, Any]:
    """Return clients (of 8 images at the small scale) that train at 0.03, attacked at every rate."""
    attacks = [attack(request, f"{rate:g}", learning_rate=rate) for rate in INVERSION_RATES]
    sizes = (8 if request.is_small else 16,)
    return plan_of(request, int(row.partition("-")[0]), attacks, sizes=sizes, learning_rate=0.03)


INVERSION_LR = Reproduction(
    name="curious-inversion-lr",
    shows="How little the learning rate of the attacker's descent matters.",
    paper=paper(
        place="Figure 13", trend="minor differences between the rates; the best one varies a little with the clients"
    ),
    rows=INVERSION_LR_ROWS,
    small_rows=INVERSION_LR_ROWS[:2],
    columns=columns_of({f"{rate:g}": "" for rate in INVERSION_RATES}, METRICS),
    differences=compare(*((f"{rate:g}", f"{USUAL_RATE:g}") for rate in INVERSION_RATES if rate != USUAL_RATE)),
    plan=plan_inversion_lr,
    why=f"{STAND_IN}; at the small scale 8 images of each client",
)


# Figure 14: the attack beside an upper bound that simulates every client, by local steps and clients

BOUND_COUNTS, BOUND_STEPS = (2, 4, 6, 8), (1, 3, 5, 8)
UPPER_BOUND_ROWS = tuple(f"{clients}-clients-steps-{steps}" for clients in BOUND_COUNTS for steps in BOUND_STEPS)


def plan_upper_bound(request: Request, row: str) -> dict[str, Any]:
    """Return all clients' images, so that both attacks reconstruct the same ones."""
    clients, _, _, steps = row.split("-")
    common: dict[str, Any] = {"role": "secure-aggregation"} | ({"steps": 60} if request.is_small else {})
    attacks = [attack(request, "one-client", **common), oracle(request, "upper-bound", **common)]
    sizes = (4 if request.is_small else 16,)
    return plan_of(request, int(clients), attacks, sizes=sizes, epochs=int(steps), seeds=(4, 3))


UPPER_BOUND = Reproduction(
    name="curious-upper-bound",
    shows="How much it costs the attacker to treat all clients as one.",
    paper=paper(
        place="Figure 14",
        trend="the upper bound does not depend on local steps; the gap to it widens with local steps and with clients",
    ),
    rows=UPPER_BOUND_ROWS,
    small_rows=tuple(f"{clients}-clients-steps-{steps}" for clients in (2, 4) for steps in (1, 3, 8)),
    columns=columns_of({"one-client": "Ours", "upper-bound": "Upper bound"}, METRICS),
    differences=(
        *better("upper-bound", "one-client"),
        # by local steps: the attack falls, the bound stays
        *(
            difference
            for clients in BOUND_COUNTS
            for rows in [(f"{clients}-clients-steps-1", f"{clients}-clients-steps-8")]
            for difference in (
                *better("one-client", "one-client", rows=rows, larger=("psnr", "ssim")),
                *compare_rows("upper-bound", rows, metrics=("psnr", "ssim", "lpips")),
            )
        ),
    ),
    plan=plan_upper_bound,
    why=f"{STAND_IN}; at the small scale 4 images of each client and 60 iterations",
)


# Beyond the paper: our own choices: subtracting the own update, the latent image, the distance, estimated labels

CHOICES_ROWS = ("lenet-2", "lenet-4", "lenet-8")
# column -> description, settings
CHOICES_COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    COLUMN: ("", {}),
    "left-in": ("own part left in", {"own_share": "recover"}),
    "no-latent": ("no latent picture", {"latent": 1}),
    "quarter-latent": ("", {"latent": 4}),
    "cosine": ("cosine", {"match": "cosine"}),
    "by-depth": ("", {"match": "l2-by-depth"}),
    "estimated-labels": ("", {"grants": ["recipe", "examples"], "labels": {"name": "labels-dlf"}}),
}


def plan_choices(request: Request, row: str) -> dict[str, Any]:
    """Return one federation with all variants of the attack."""
    model, clients = row.split("-")
    attacks = [attack(request, label, **settings) for label, (_, settings) in CHOICES_COLUMNS.items()]
    return plan_of(request, int(clients), attacks, model=model, seeds=(3, 5))


CHOICES = Reproduction(
    name="curious-choices",
    shows="How much a curious client gains by subtracting its own update, by the latent image and by known labels.",
    paper=paper(
        place="none of its figures",
        trend="not in the paper, which always leaves the own update in the sum and knows the labels",
    ),
    rows=CHOICES_ROWS,
    small_rows=CHOICES_ROWS[:1],
    columns=columns_of({label: words for label, (words, _) in CHOICES_COLUMNS.items()}, METRICS),
    differences=compare(*((COLUMN, label) for label in CHOICES_COLUMNS if label != COLUMN)),
    plan=plan_choices,
    why=f"the paper has no such figure; {STAND_IN}",
)
