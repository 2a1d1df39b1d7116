"""The figures of "Federated Learning Nodes Can Reconstruct Peers' Image Data"."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from fedxray.reproduce.base import Column, Difference, Paper, Reproduction, Request, Sought, columns_of

# --- What the figures of "Federated Learning Nodes Can Reconstruct Peers' Image Data" share: data, network,
# attack.
#
# A client holds one batch, on which it takes tau steps; the change of the first global model is attacked.
# At the small scale photos have 32 pixels and the latent picture half of that, else 64 and a quarter. The
# photos of fewer clients are among those of more, and client 0, whose seat it is, has the same ones, as
# long as all hold at most 130 or all hold more: beyond 130 fewer photos are public, and others are drawn.
# What no client holds is public: it makes the floors and the other candidates of `retrieval`.


TITLE = "Federated Learning Nodes Can Reconstruct Peers' Image Data (under review, anonymous)"
PHOTOS = 1000  # of the data set, one of each class
IMAGES = 16  # of every client, unless a row says otherwise
STEPS = 3  # local steps of every client
RATE = 0.003  # of the clients
METRICS = ("psnr", "ssim", "lpips", "retrieval")
KNOWN_LABELS = ("recipe", "examples", "label-counts")
SMALL_ITERATIONS, ITERATIONS = 100, 200
FEW, MANY = 130, 520  # photos that are divided among the clients at most
STAND_IN = (
    "one photo of each of 1,000 ImageNet classes stands in for the validation set, so that no label occurs twice and "
    "all labels are told apart; at the small scale photos have 32 pixels and the latent picture half of that, else 64 "
    "and a quarter (the paper: 128 and a quarter); the own part is taken out of the sum unless a column says "
    "otherwise, and only the others' photos are scored, matched one to one (the authors score all, in their order); "
    "rows of up to 130 photos in all share theirs, and so do rows of more, but the two kinds hold different photos"
)


def paper(place: str, trend: str) -> Paper:
    """A figure of the paper; our text has no numbers of any."""
    return Paper(title=TITLE, place=place, trend=trend)


def better(
    left: str,
    right: str,
    *,
    rows: tuple[str, str] | None = None,
    larger: tuple[str, ...] = ("psnr", "ssim", "retrieval"),
) -> tuple[Difference, Difference]:
    """That the left pictures are better: the larger metrics are above, and LPIPS, a distance, is below."""
    return (
        Difference(left=left, right=right, rows=rows, metrics=larger, expected="above"),
        Difference(left=left, right=right, rows=rows, metrics=("lpips",), expected="below"),
    )


def data(
    request: Request, clients: int, sizes: tuple[int, ...] = (IMAGES,), *, pixels: int = 0
) -> dict[str, Any]:
    """So many clients with these numbers of photos, in turn."""
    held = sum(sizes[client % len(sizes)] for client in range(clients))
    kept = FEW if held <= FEW else MANY
    return {
        "name": "imagenet-sample",
        "size": pixels or (32 if request.is_small else 64),
        "clients": clients,
        "partition": "sizes",
        "sizes": list(sizes),
        "holdout": 0.0,
        "public": (PHOTOS - kept) / PHOTOS,
    }


def network(model: str, request: Request) -> dict[str, Any]:
    """One of the paper's networks; residual ones are a quarter as wide at the small scale."""
    return {"name": model, **({"width": 16} if request.is_small and model != "lenet" else {})}


def federation(**changes: Any) -> dict[str, Any]:
    """One round in which every client takes its steps on all it has."""
    return {
        "rounds": 1,
        "epochs": STEPS,
        "batch_size": "all",
        "learning_rate": RATE,
        "shuffle": "never",
        **changes,
    }


def attack(request: Request, label: str, **settings: Any) -> dict[str, Any]:
    """The attack from the seat of client 0 with known labels, under a label of its own."""
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
    """The upper bound: whoever knows who holds which labels."""
    found = attack(request, label, **settings)
    del found["controls"]  # it has none
    return {**found, "name": "curious-client-oracle", "grants": ["recipe", "examples", "oracle-groups"]}


# --- Figure 6: quality against the images of a client, and against its local steps.


CLIENTS = (2, 4)
BATCHES = (8, 16, 32, 64, 128)
LOCAL_STEPS = (1, 3, 5, 8)
BATCH_AND_STEPS_ROWS = (
    *(f"{clients}-clients-batch-{size}" for clients in CLIENTS for size in BATCHES),
    *(f"{clients}-clients-steps-{steps}" for clients in CLIENTS for steps in LOCAL_STEPS),
)
COLUMN = "curious-client"


def plan_batch_and_steps(request: Request, row: str) -> dict[str, Any]:
    """So many images at three local steps, or so many local steps on 16 images (8 at the small scale)."""
    clients, _, what, number = row.split("-")
    usual = 8 if request.is_small else 16
    size, steps = (int(number), 3) if what == "batch" else (usual, int(number))
    return {
        "seeds": request.pick_seeds(small=2, paper=3),
        "data": data(request, int(clients), (size,)),
        "model": network("lenet", request),
        "federation": federation(epochs=steps),
        "attack": [attack(request, COLUMN)],
    }


def _falls(rows: list[str]) -> list[Difference]:
    pairs = [(rows[0], row) for row in rows[1:]]
    return [one for pair in pairs for one in better(COLUMN, COLUMN, rows=pair, larger=("psnr", "ssim"))]


BATCH_AND_STEPS = Reproduction(
    name="curious-batch-and-steps",
    shows="How more images of each client and more local steps hide them.",
    paper=paper(
        "Figure 6",
        "quality falls with the images of a client and, where there are many clients, with their local steps",
    ),
    rows=BATCH_AND_STEPS_ROWS,
    small_rows=("2-clients-batch-8", "2-clients-batch-16", "2-clients-batch-32",
                "2-clients-steps-1", "2-clients-steps-3", "2-clients-steps-8"),
    columns=columns_of({COLUMN: "Ours"}, METRICS),
    differences=tuple(
        one
        for clients in CLIENTS
        for what in ("batch", "steps")
        for one in _falls([row for row in BATCH_AND_STEPS_ROWS if row.startswith(f"{clients}-clients-{what}")])
    ),
    plan=plan_batch_and_steps,
    why=f"{STAND_IN}; at the small scale 8 images where local steps are varied",
)  # fmt: skip

# --- What our own choices are worth: the own part taken out, the latent picture, the distance, labels
# estimated.


CHOICES_ROWS = ("lenet-2", "lenet-4", "lenet-8")
WAYS: dict[str, dict[str, Any]] = {
    "curious-client": {},
    "left-in": {"own_share": "recover"},
    "no-latent": {"latent": 1},
    "quarter-latent": {"latent": 4},
    "cosine": {"match": "cosine"},
    "by-depth": {"match": "l2-by-depth"},
    "estimated-labels": {"grants": ["recipe", "examples"], "labels": {"name": "labels-dlf"}},
}
WORDS = {"left-in": "own part left in", "cosine": "cosine", "no-latent": "no latent picture"}


def plan_choices(request: Request, row: str) -> dict[str, Any]:
    """The same federation attacked in all ways."""
    model, clients = row.split("-")
    return {
        "seeds": request.pick_seeds(small=3, paper=5),
        "data": data(request, int(clients)),
        "model": network(model, request),
        "federation": federation(),
        "attack": [attack(request, label, **settings) for label, settings in WAYS.items()],
    }


CHOICES = Reproduction(
    name="curious-choices",
    shows="What it gives a curious client to take out its own part, and what the latent picture and known labels give.",
    paper=paper(
        "none of its figures", "not in the paper, which always leaves the own part in and knows the labels"
    ),
    rows=CHOICES_ROWS,
    small_rows=CHOICES_ROWS[:1],
    columns=columns_of({label: WORDS.get(label, "") for label in WAYS}, METRICS),
    differences=tuple(
        Difference(left="curious-client", right=label) for label in WAYS if label != "curious-client"
    ),
    plan=plan_choices,
    why=f"the paper has no such figure; {STAND_IN}",
)

# --- Figure 5: quality against the number of clients, for three networks, 16 images each and three local
# steps.


NETWORKS = ("lenet", "resnet9", "resnet18")
CLIENTS_CLIENTS = (2, 4, 8, 16, 32)
CLIENTS_ROWS = tuple(f"{model}-{clients}" for model in NETWORKS for clients in CLIENTS_CLIENTS)
AT_128 = "lenet-2-128px"
ITERATIONS_CLIENTS = 200  # at both scales


def plan_clients(request: Request, row: str) -> dict[str, Any]:
    """So many clients; of the photos of 128 pixels there are only 64, so half of them are public."""
    model, clients, *more = row.split("-")
    photos = data(request, int(clients))
    if more:
        photos |= {"size": 128, "public": 0.5}
    attacks = [attack(request, "curious-client", steps=ITERATIONS_CLIENTS, **({"latent": 4} if more else {}))]
    return {
        "seeds": request.pick_seeds(paper=3),
        "data": photos,
        "model": network(model, request),
        "federation": federation(),
        "attack": attacks,
    }


def _doublings(model: str) -> list[Difference]:
    column = "curious-client"
    pairs = [(f"{model}-{few}", f"{model}-{many}") for few, many in itertools.pairwise(CLIENTS_CLIENTS)]
    return [one for rows in pairs for one in better(column, column, rows=rows)]


CLIENT_COUNT = Reproduction(
    name="curious-clients",
    shows="How many clients it takes to hide a client's images from another client.",
    paper=paper(
        "Figures 4 and 5",
        "quality falls gradually with the number of clients and with larger networks; up to 8 clients images stay "
        "recognisable, beyond that only some of them",
    ),
    rows=(*CLIENTS_ROWS, AT_128),
    small_rows=("lenet-2", "lenet-4", "lenet-8", "resnet9-2", "resnet18-2"),
    columns=columns_of({"curious-client": "Ours"}, METRICS),
    differences=tuple(one for model in NETWORKS for one in _doublings(model)),
    plan=plan_clients,
    why=f"{STAND_IN}; 200 iterations at both scales (the paper: 100); at the small scale residual networks have a "
    "quarter of the channels",
)

# --- Figure 9: what the global model tells of a class (FedInverse) beside what its change tells of single
# images.
#
# Ten clients with fifty digits each train until the model is good; a client inverts the model it received
# last, with (MI-HSIC) and without (MI) the HSIC term, within a generator of public digits. Scores are of
# class images: how like the target's digits of the class they are. The curious client's own pictures, of
# single images in the first round, stand in `curious-clients`; both are no rivals, as the paper says.


FEDINVERSE_CALLED = {"mi-hsic": "MI-HSIC", "mi": "MI", "model-inversion": ""}
METRICS_FEDINVERSE = ("class_ssim", "class_psnr")


def plan_fedinverse(request: Request, row: str) -> dict[str, Any]:
    """Digits of MNIST at 32 pixels."""
    seat = {"role": "curious-client", "targets": [1, 2, 3], "controls": ["held-out"]}
    steps = 150 if request.is_small else 1500
    inversion = {
        "name": "fedinverse",
        "steps": steps,
        "generator_steps": 100 if request.is_small else 1000,
        **seat,
    }
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
            {"name": "model-inversion", "model": "global-model", "steps": steps, **seat},
        ],
    }


FEDINVERSE = Reproduction(
    name="curious-fedinverse",
    shows="What a client can make of the classes in a trained global model, with a generator of public images.",
    paper=paper("Figure 9", "FedInverse gives what is typical of a class, gradient inversion single images"),
    rows=("mnist",),
    columns=tuple(
        Column(attack=name, metric=metric, called=called)
        for name, called in FEDINVERSE_CALLED.items()
        for metric in METRICS_FEDINVERSE
    ),
    differences=(
        Difference(left="mi-hsic", right="mi"),
        Difference(left="mi-hsic", right="model-inversion"),
    ),
    plan=plan_fedinverse,
    why="the figure shows ten pictures of the authors of FedInverse and no numbers; their GAN was trained for hours on "
    "many images, ours starts from the components of a few hundred; their network has BatchNorm and five classes",
)

# --- Figure 13: the learning rate with which the attacker descends.


RATES = (0.02, 0.05, 0.1, 0.2, 0.5)
USUAL = 0.1
COUNTS = (2, 4, 8)
INVERSION_RATE_ROWS = tuple(f"{clients}-clients" for clients in COUNTS)


def plan_inversion_rate(request: Request, row: str) -> dict[str, Any]:
    """So many clients (of 8 images at the small scale) that learn at 0.03, attacked at every rate."""
    clients = int(row.partition("-")[0])
    return {
        "seeds": request.pick_seeds(small=2, paper=3),
        "data": data(request, clients, (8 if request.is_small else 16,)),
        "model": network("lenet", request),
        "federation": federation(learning_rate=0.03),
        "attack": [attack(request, f"{rate:g}", learning_rate=rate) for rate in RATES],
    }


INVERSION_RATE = Reproduction(
    name="curious-inversion-lr",
    shows="How little it matters at which learning rate the attacker descends.",
    paper=paper(
        "Figure 13", "minor differences between the rates; the best one varies a little with the clients"
    ),
    rows=INVERSION_RATE_ROWS,
    small_rows=INVERSION_RATE_ROWS[:1],
    columns=columns_of({f"{rate:g}": "" for rate in RATES}, METRICS),
    differences=tuple(Difference(left=f"{rate:g}", right=f"{USUAL:g}") for rate in RATES if rate != USUAL),
    plan=plan_inversion_rate,
    why=f"{STAND_IN}; at the small scale 8 images of each client",
)

# --- Figures 7, 8 and 15: what the curious client's raw pictures look like after a prior has seen them.
#
# The priors are small ones that are trained beforehand on the training part of CIFAR-10 (`commands` has
# how, minutes on one core; the paper's have half a billion parameters). The audited clients hold test
# images of CIFAR-10, which no prior has seen, or, to see what a prior of other images does, photos of
# ImageNet. The criterion is psnr, named before anything was measured. How noisy a raw picture is taken to
# be was chosen on images of CIFAR-100 that nobody here holds.


FOLDER = "./priors"  # beside which the reproduction is run
PRIORS = {
    "cifar10-ddpm": "--kind ddpm --width 16 --batch 16 --steps 1000 --flip",
    "cifar10-gan": "--kind gan --width 16 --batch 16 --steps 800 --flip --scale 2",
    "cifar10-dit": "--kind dit --width 16 --batch 16 --steps 1500 --flip",
}
DDPM, GAN, DIT = (f"{FOLDER}/{name}" for name in PRIORS)
RESTORERS: tuple[dict[str, Any], ...] = (
    {"name": "ddrm", "prior": DDPM, "noise": 0.1},
    {"name": "ddrm", "label": "ddrm-x2", "prior": DDPM, "scale": 2, "noise": 0.06, "draws": 4},
    {"name": "ddrm", "label": "ddrm-sample", "prior": DDPM, "scale": 2, "noise": 0.05, "finish": "sample"},
    {"name": "gan", "prior": GAN},
    {"name": "mde", "prior": DIT, "epochs": 30, "learning_rate": 0.02},
)
RESTORATION_CALLED = {
    "raw": "raw reconstruction",
    "raw+ddrm": "",
    "raw+ddrm-x2": "",
    "raw+ddrm-sample": "direct postprocessing",
    "raw+gan": "ROG GAN",
    "raw+mde": "MDE",
}
METRICS_RESTORATION = ("psnr", "ssim", "lpips")
RESTORATION_ROWS = ("cifar10-2", "cifar10-4", "imagenet-2")


def commands() -> list[str]:
    """What makes the priors, to be run in the folder from which the reproduction is run."""
    return [f"fedxray train-prior --data cifar10 {how} --out priors/{name}" for name, how in PRIORS.items()]


def data_restoration(row: str) -> dict[str, Any]:
    """Clients of sixteen images each; all other images are public."""
    name, _, clients = row.partition("-")
    named = (
        {"name": "cifar10", "part": "test"} if name == "cifar10" else {"name": "imagenet-sample", "size": 32}
    )
    return {
        **named,
        "clients": int(clients),
        "partition": "sizes",
        "sizes": [IMAGES],
        "holdout": 0.0,
        "public": 0.8,
    }


def plan_restoration(request: Request, row: str) -> dict[str, Any]:
    """One row: so many clients with images of one data set, raw and after every restorer."""
    return {
        "seeds": request.pick_seeds(small=4, paper=10),
        "data": data_restoration(row),
        "model": {"name": "lenet"},
        "federation": federation(),
        "attack": [attack(request, "raw", latent=2, restore=[dict(one) for one in RESTORERS])],
    }


RESTORATION = Reproduction(
    name="curious-restoration",
    shows="What a curious client's raw pictures look like after diffusion models or a network have restored them.",
    paper=paper(
        "Figures 7, 8 and 15",
        "direct postprocessing improves LPIPS by 20 to 30 % with 2 to 8 clients and partly fails with more; against "
        "the GAN of ROG it has worse LPIPS and similar SSIM, and is easier to recognise; MDE is for the eye, not for "
        "numbers",
    ),
    rows=RESTORATION_ROWS,
    small_rows=("cifar10-2", "imagenet-2"),
    columns=tuple(
        Column(attack=name, metric=metric, called=called)
        for name, called in RESTORATION_CALLED.items()
        for metric in METRICS_RESTORATION
    ),
    differences=(
        Difference(left="raw+ddrm", right="raw"),
        Difference(left="raw+ddrm-x2", right="raw"),
        Difference(left="raw+ddrm-sample", right="raw"),
        Difference(left="raw+gan", right="raw"),
        Difference(left="raw+mde", right="raw"),
        Difference(left="raw+ddrm", right="raw+gan"),
    ),
    plan=plan_restoration,
    why="the priors are trained beforehand, in the folder from which this is run, by "
    + "; ".join(f"`{one}`" for one in commands())
    + ": 32 pixels and 5,000 images in place of models of half a billion parameters for 256 pixels, so that what they "
    "can add is little; at the paper's scale only seeds and iterations are more",
)

# --- Figure 12: the same images divided evenly and unevenly among the clients, at three local steps.


SIZES = {"even": (16,), "uneven": (21, 11)}
COUNTS_UNEVEN = (2, 4, 6, 8)
UNEVEN_ROWS = tuple(f"{clients}-{division}" for clients in COUNTS_UNEVEN for division in SIZES)
COLUMN_UNEVEN = "all-images"


def plan_uneven(request: Request, row: str) -> dict[str, Any]:
    """Everyone's images as a server under secure aggregation sees them: the same ones in both divisions."""
    clients, division = row.split("-")
    return {
        "seeds": request.pick_seeds(small=4, paper=5),
        "data": data(request, int(clients), SIZES[division]),
        "model": network("lenet", request),
        "federation": federation(),
        "attack": [attack(request, COLUMN_UNEVEN, role="secure-aggregation")],
    }


UNEVEN = Reproduction(
    name="curious-uneven",
    shows="That it hides nothing when clients hold different numbers of images.",
    paper=paper("Figure 12", "no difference between even and uneven divisions of the same number of images"),
    rows=UNEVEN_ROWS,
    small_rows=UNEVEN_ROWS[:2],
    columns=columns_of({COLUMN_UNEVEN: "Ours"}, METRICS),
    differences=tuple(
        Difference(left=COLUMN_UNEVEN, right=COLUMN_UNEVEN, rows=(f"{clients}-uneven", f"{clients}-even"))
        for clients in COUNTS_UNEVEN
    ),
    plan=plan_uneven,
    why=f"{STAND_IN}; here the seat is a server under secure aggregation, so that the images scored are the same in "
    "both divisions; 32 to 128 images in all (the paper: 256)",
)

# --- Figure 11 and appendix B: what a wrong learning rate costs, and what the own images tell of it and of
# N.
#
# The rows `fedsgd` (the server applies the rate, as in the figure) and `fedavg` take it for so many times
# the true one. The others search: the rate alone, or it and the number of images, for which labels are
# estimated anew at every guess, and `ridge` goes along where the rate over the number is the true one. Own
# images stay in the sum; a trial is judged by them alone. The range of the rate spans a factor of a hundred
# and does not have the true one in its middle, where a grid or a model of the losses would come upon it by
# itself.
#
# A guess of another number of images than there are is matched to them all the same: of more guesses the
# better ones are taken, and originals without a guess have no psnr. So where N is searched only retrieval
# is compared.


TIMES = (0.1, 0.3, 0.5, 0.8, 1.0, 1.25, 2.0, 3.0, 10.0)
SERVER_RATE = 1.0  # as in the figure
UNKNOWN_RATE_GUESSES = ("fedsgd", "fedavg")
LOWEST, HIGHEST = 1 / 8, 12.5  # times the true rate, what is searched
RIDGES = ("ridge", "ridge-one-step")
SHARES = (0.625, 0.75, 0.875, 1.0, 1.25, 1.5, 2.0)  # of the true number of images, along the ridge
SEARCHES = ("search-rate", "search-both", "search-both-one-step")
CLIENTS_UNKNOWN_RATE = 2
KNOWN, SEARCHED = "known", "searched"


def plan_unknown_rate(request: Request, row: str) -> dict[str, Any]:
    """Two clients; of few photos at the small scale, since every guess is a whole attack.

    A smaller network would be quicker, but there even the true rate brings no picture back that could judge.
    """
    each = 4 if request.is_small else 16
    recipe = federation(**({"epochs": 1} if row.endswith("one-step") else {}))
    if row == "fedsgd":  # one gradient of all, so that neither epochs nor order are to be told
        recipe = {"algorithm": "fedsgd", "rounds": 1, "learning_rate": SERVER_RATE}
    return {
        "seeds": request.pick_seeds(small=3, paper=3),
        "data": data(request, CLIENTS_UNKNOWN_RATE, (each,)),
        "model": network("lenet", request),
        "federation": recipe,
        "attack": _attacks(request, row, CLIENTS_UNKNOWN_RATE * each),
    }


def _attacks(request: Request, row: str, images: int) -> list[dict[str, Any]]:
    if row in UNKNOWN_RATE_GUESSES:
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
    held = CLIENTS_UNKNOWN_RATE * plan["data"]["sizes"][0]
    return {"assumed_learning_rate": plan["federation"]["learning_rate"], "assumed_examples": float(held)}


UNKNOWN_RATE = Reproduction(
    name="curious-unknown-lr",
    shows="What it costs a curious client not to know the learning rate, and whether its own images tell it.",
    paper=paper(
        "Figure 11 and appendix B",
        "quality falls fast as the guessed and the true rate part, within a factor of ten by a simple curve, so that "
        "the rate (and N) can be searched by the own images",
    ),
    rows=(*UNKNOWN_RATE_GUESSES, *SEARCHES, *RIDGES),
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
    plan=plan_unknown_rate,
    why=f"{STAND_IN}; here own images stay in, as they judge; at the small scale 4 photos of each client; "
    "where N is searched, it is sought from one more than the own images to twice the truth",
)

# --- Figure 14: the attack beside an upper bound that simulates every client, against local steps and
# clients.


CLIENTS_UPPER_BOUND = (2, 4, 6, 8)
LOCAL_STEPS_UPPER_BOUND = (1, 3, 5, 8)
UPPER_BOUND_ROWS = tuple(
    f"{clients}-clients-steps-{steps}" for clients in CLIENTS_UPPER_BOUND for steps in LOCAL_STEPS_UPPER_BOUND
)


def plan_upper_bound(request: Request, row: str) -> dict[str, Any]:
    """So many clients and local steps; everyone's images, so that both attacks seek the same ones."""
    clients, _, _, steps = row.split("-")
    seat: dict[str, Any] = {"role": "secure-aggregation"} | ({"steps": 60} if request.is_small else {})
    return {
        "seeds": request.pick_seeds(small=2, paper=3),
        "data": data(request, int(clients), (4 if request.is_small else 16,)),
        "model": network("lenet", request),
        "federation": federation(epochs=int(steps)),
        "attack": [attack(request, "one-client", **seat), oracle(request, "upper-bound", **seat)],
    }


UPPER_BOUND = Reproduction(
    name="curious-upper-bound",
    shows="What it costs the attacker to take all clients for one.",
    paper=paper(
        "Figure 14",
        "the upper bound does not mind local steps; the gap to it widens with local steps and with clients",
    ),
    rows=UPPER_BOUND_ROWS,
    small_rows=tuple(f"{clients}-clients-steps-{steps}" for clients in (2, 4) for steps in (1, 3, 8)),
    columns=columns_of({"one-client": "Ours", "upper-bound": "Upper bound"}, METRICS),
    differences=better("upper-bound", "one-client"),
    plan=plan_upper_bound,
    why=f"{STAND_IN}; at the small scale 4 images of each client and 60 iterations",
)
