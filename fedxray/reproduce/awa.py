"""The tables and figures of Song et al. 2023 (AWA), "Approximate and Weighted Data Reconstruction Attack".

A client is a group of 4 images of CIFAR-10. One federation holds five groups and one network, drawn once: the first
four are attacked, the fifth is used to tune weights. The paper does not state BatchNorm's mode, the stem, the
initialisation and clamping of dummies, and the state of the model. Here the statistics of BatchNorm stay at 0 and 1,
the stem is that for CIFAR, the network is untrained, and dummies start uniformly over valid pixels and are clamped to
them; `awa-settings` has the other choices. All attacks on a group start from the same dummies.

The control other-client would repeat every attack and is left out; held-out costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fedxray.reproduce import base

paper = partial(
    base.Paper,
    title="Song, Wang, Zuazua: Approximate and Weighted Data Reconstruction Attack in Federated Learning",
    clients=1,  # the paper seems to attack one group
)
GROUPS = 4  # that are attacked
FIFTH = 4  # index of the group on which weights are searched
IMAGES = 4  # of every group
RATE = 0.001  # learning rate of the clients
FEW, STEPS, THEIR_STEPS = 100, 250, 1000  # steps of the attacks: small scale, ours, the paper's
KNOWN_LABELS = ("recipe", "examples", "labels")
CASES = {"case1": (1, 1), "case2": (4, 1), "case3": (1, 4), "case4": (2, 2)}  # local epochs, batches of each
METRICS = ("psnr_awa", "ssim_awa", "mse")  # by the paper's formulas, matched one to one
IN_ORDER = tuple(f"{name}_by_index" for name in METRICS)  # without matching, as in the paper
COMPARED = METRICS[:2]
DUMMIES = {"start": "uniform", "box": True}
AGIC = {"name": "agic", "optimiser": "adam", "total_variation": 0.0, **DUMMIES}
DLG = {"name": "dlg", "reading": "song", **DUMMIES}
ATTACKS: dict[str, dict[str, Any]] = {
    "awa": {"name": "awa"},
    "awa-sent": {"name": "awa", "unit": "sent"},
    "awa-untuned": {"name": "awa", "preset": "ramp"},
    "awa-decay": {"name": "awa", "preset": "ramp", "decay": "cosine", "total_variation": 1e-3},
    "agic": AGIC,
    "agic-rate": {**AGIC, "match": "l2"},
    "dlg": DLG,
    "dlg-rate": {**DLG, "unit": "rate"},
}
CALLED = {"awa-sent": "AWA", "awa": "AWA in learning rates", "agic": "AGIC", "dlg": "DLG"}
NETWORK = (
    "the paper states neither BatchNorm's mode, stem, dummies, clamping nor the state of the model: here an untrained "
    "ResNet18 with the stem for CIFAR whose BatchNorm keeps the statistics 0 and 1, and dummies drawn uniformly from "
    "valid pixels and clamped to them; which 4 images it attacked, and how often, is not stated either"
)
WHY = f"{NETWORK}; {STEPS} steps, {FEW} at the small scale, unless a row states another number (the paper: 1,000)"


def plan_of(request: base.Request, case: str, attacks: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """Return the plan of a case, or of one with another data, model or federation part."""
    parts = {"data": data(), "model": network(), "federation": federation(case)}
    return {"seeds": request.pick_seeds(), **(parts | changes), "attack": attacks}


def data(distinct: bool = False) -> dict[str, Any]:
    """Return five groups, random ones or each of distinct classes; other images are held out or public."""
    groups = {"name": "cifar10", "clients": GROUPS + 1, "limit": IMAGES, "holdout": 0.05, "public": 0.1}
    return groups | ({"distinct_classes": True} if distinct else {})


def network(**changes: Any) -> dict[str, Any]:
    """Return a ResNet18 whose BatchNorm keeps its initial statistics."""
    return {"name": "resnet18", "norm": "running", "stem": "cifar", "head_bias": True, "width": 64, **changes}


def federation(case: str, **changes: Any) -> dict[str, Any]:
    """Return one round of the case."""
    epochs, batches = CASES[case]
    recipe = {"rounds": 1, "epochs": epochs, "batch_size": IMAGES // batches, "learning_rate": RATE}
    return recipe | changes


def attack(request: base.Request, label: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return one attack with known labels, under a label of its own."""
    return {
        **settings,
        "label": label,
        "steps": FEW if request.is_small else STEPS,
        "grants": list(KNOWN_LABELS),
        "controls": ["held-out"],
        "metrics": [*COMPARED, *IN_ORDER],
        "targets": attacked(request),
        **more,
    }


def attacked(request: base.Request) -> list[int]:
    """Return the groups that are attacked: the first ones."""
    return list(range(request.pick_clients(small=1, paper=GROUPS, most=GROUPS)))


# Table 4: AWA, AGIC and DLG in the paper's four cases
#
# AWA has the weights that the paper tuned for the case. All three as the paper ran them stand beside the same attacks
# on the update in units of the client's learning rate, since the epsilon of Adam may limit the steps when the update
# is matched as sent: AWA in the paper's unit (`awa-sent`) and in this one (`awa`), DLG (`dlg`, `dlg-rate`), and AGIC
# (`agic`), whose cosine has no unit, with squared differences in its place (`agic-rate`). In case 4 the paper runs no
# DLG; ours assumes that the client keeps its batches. `awa-untuned` has a plain ramp, `awa-decay` also a step that
# falls to 0 and a penalty on total variation.
#
# The paper does not state which four images it attacks. Rows called after a case alone have random groups, in most of
# which two images share a class; rows -distinct have groups of four classes. Of one seed, both have the same network.

LONG = "case1-1000"
DISTINCT = "-distinct"
TABLE4_ROWS = (*(row for case in CASES for row in (case, case + DISTINCT)), LONG)


def image_scores(cell: str) -> Mapping[str, base.Number]:
    """Read a printed cell `PSNR/SSIM/MSE`; the paper compares in order, which is our `_by_index`."""
    numbers = [float(number) for number in cell.split("/")]
    return dict(zip((*METRICS, *IN_ORDER), numbers * 2, strict=True))


TABLE4_NUMBERS = base.published(
    """
case1  14.06/0.534/0.042  15.89/0.689/0.028  22.40/0.935/0.006
case2  16.43/0.739/0.024  16.07/0.631/0.035  20.40/0.901/0.009
case3  14.05/0.505/0.044  15.63/0.718/0.029  22.47/0.936/0.006
case4  -                  16.41/0.734/0.025  19.68/0.882/0.011
""",
    ("dlg", "agic", "awa-sent"),
    image_scores,
)


def plan_table4(request: base.Request, row: str) -> dict[str, Any]:
    """Return one case with all attacks."""
    steps = {"steps": THEIR_STEPS} if row == LONG else {}
    attacks = [attack(request, label, settings, **steps) for label, settings in ATTACKS.items()]
    groups = {"data": data(row.endswith(DISTINCT)), "seeds": request.pick_seeds(paper=2)}
    return plan_of(request, row.partition("-")[0], attacks, **groups)


TABLE4 = base.Reproduction(
    name="awa-table4",
    shows="How well three attacks reconstruct four images from one update, after one or several epochs and batches.",
    paper=paper(
        place="Table 4", numbers={row: TABLE4_NUMBERS[row.partition("-")[0]] for row in TABLE4_ROWS}, once=True
    ),
    rows=TABLE4_ROWS,
    small_rows=TABLE4_ROWS[:2],
    columns=base.columns_of({name: CALLED.get(name, "") for name in ATTACKS}, (*METRICS, *IN_ORDER)),
    differences=(
        *base.compare(("awa-sent", "dlg"), ("awa-sent", "agic"), metrics=COMPARED, expected="above"),
        *base.compare(
            ("awa", "awa-sent"),
            ("awa", "dlg"),
            ("awa", "agic"),
            ("awa", "dlg-rate"),
            ("awa", "agic-rate"),
            ("awa", "awa-untuned"),
            ("agic-rate", "awa-untuned"),
            ("dlg-rate", "dlg"),
            ("awa-decay", "awa"),
            ("awa-decay", "awa-untuned"),
            ("awa-decay", "dlg-rate"),
            metrics=COMPARED,
        ),
        *base.compare_rows(tuple(ATTACKS), *((case + DISTINCT, case) for case in CASES), metrics=COMPARED),
    ),
    plan=plan_table4,
    why=f"{WHY}; AGIC reconstructs every image once, where a batch combined from several epochs holds it several times",
)


# Figures 3 and 4: quality of AWA's images by the number of steps
#
# One descent is read at several steps: its state is stored every 50 steps, and a column continues from there. At the
# small scale it ends after 250.

KEPT_EVERY = 50
FEW_STEPS = (50, 100, 150, 200, 250)
READ_STEPS = (*FEW_STEPS, 500, 1000, 1500, 2000, 3000)
LAST_SSIM = {"case1": 0.9658, "case2": 0.9613, "case3": 0.9595, "case4": 0.9135}  # Figure 3


def plan_iterations(request: base.Request, row: str) -> dict[str, Any]:
    """Return one case, attacked by one descent."""
    settings = {"name": "awa", "kept_every": KEPT_EVERY}
    read = FEW_STEPS if request.is_small and row == "case1" else READ_STEPS  # the row of the small scale
    return plan_of(request, row, [attack(request, f"awa-{steps}", settings, steps=steps) for steps in read])


ITERATIONS = base.Reproduction(
    name="awa-iterations",
    shows="How good the images of AWA are after 50 to 3,000 steps.",
    paper=paper(
        place="Figures 3 and 4",
        numbers={case: {f"awa-{READ_STEPS[-1]}": {"ssim_awa": ssim}} for case, ssim in LAST_SSIM.items()},
        trend="more steps keep helping, SSIM exceeds 0.9 within 1,500 in all cases, and case 4 stays a little behind",
    ),
    rows=tuple(CASES),
    small_rows=("case1",),
    columns=base.columns_of({f"awa-{steps}": f"{steps:,} steps" for steps in READ_STEPS}, METRICS),
    differences=(
        *base.compare(
            ("awa-250", "awa-100"),
            ("awa-1000", "awa-250"),
            ("awa-3000", "awa-1000"),
            metrics=COMPARED,
            expected="above",
        ),
        *base.compare_rows("awa-1000", *(("case1", case) for case in tuple(CASES)[1:]), metrics=COMPARED),
    ),
    plan=plan_iterations,
    why=WHY,
)


# Figure 1: weights searched by Bayesian optimisation, and their effect on other images
#
# A study of 50 trials on the fifth group, 100 steps each, 12 of them drawn at random, is judged by the attacker's own
# loss without weights. Its row also has DLG at equal compute: 50 restarts of 100 steps, chosen by its own loss. In
# case 4 DLG would replay both epochs, at twice the cost of a step of AWA; there the restarts match the interpolated
# epoch without weights, so that steps cost the same and the losses of both are one function. The next row applies the
# weights of the study to the four groups (250 steps), beside the paper's weights, a plain ramp without any search, DLG
# with the same number of steps, and DLG with 50 restarts. With several seeds the weights are those of the first.

SEARCHED, RESTARTED = "searched", "dlg-restarts"
TRIALS, STARTS, TRIAL_STEPS = 50, 12, 100
BATCH = 2  # trials that are asked for together
SEARCH_ROWS = tuple(row for case in CASES for row in (f"{case}-study", case))
UNWEIGHTED = dict.fromkeys(CASES, ATTACKS["dlg-rate"]) | {"case4": {"name": "awa", "preset": "none"}}  # restarted
SEARCH_COLUMNS = {
    SEARCHED: "AWA",
    "awa": "AWA with the paper's weights",
    "awa-untuned": "AWA with a plain ramp",
    "dlg-rate": "",
    RESTARTED: f"no weights, {TRIALS} restarts of {TRIAL_STEPS} steps",
}


def plan_search(request: base.Request, row: str) -> dict[str, Any]:
    """Return a study on the fifth group, or its weights on the others; few trials at the small scale."""
    case, _, study = row.partition("-")
    trials, starts, steps = (6, 3, 40) if request.is_small else (TRIALS, STARTS, TRIAL_STEPS)
    search = {"trials": trials, "sampler": "gp", "starts": starts, "batch": BATCH}
    group: dict[str, Any] = {"targets": [FIFTH], "steps": steps} if study else {}
    searched = {"search": search} if study else {}
    attacks = [
        attack(request, SEARCHED, ATTACKS["awa"], **searched, **group),
        *(attack(request, label, ATTACKS[label], **group) for label in ("awa", "awa-untuned", "dlg-rate")),
        attack(request, RESTARTED, {**UNWEIGHTED[case], "restarts": trials}, **{**group, "steps": steps}),
    ]
    return plan_of(request, case, attacks)


def with_found_weights(plan: dict[str, Any], study: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of the four groups with the weights that the study found."""
    if not any(settings["label"] == SEARCHED for settings in plan["attack"]):
        return plan
    weights = base.chosen_point(study, SEARCHED)
    attacks = [{**settings, **weights} if settings["label"] == SEARCHED else settings for settings in plan["attack"]]
    return {**plan, "attack": attacks}


SEARCH = base.Reproduction(
    name="awa-search",
    shows="How much weights help that were searched on other images, and what DLG reaches with the compute of the "
    "search.",
    paper=paper(
        place="Figure 1",
        trend="the smallest loss keeps falling over 50 trials; DLG is never given the compute of the search",
    ),
    rows=SEARCH_ROWS,
    small_rows=SEARCH_ROWS[:2],
    follows={case: base.Follows(row=f"{case}-study", fill=with_found_weights) for case in CASES},
    columns=base.columns_of(SEARCH_COLUMNS, METRICS),
    differences=base.compare(
        (SEARCHED, "awa"),
        (SEARCHED, "awa-untuned"),
        (SEARCHED, "dlg-rate"),
        (SEARCHED, RESTARTED),
        ("awa", RESTARTED),
        (RESTARTED, "dlg-rate"),
        metrics=COMPARED,
    ),
    plan=plan_search,
    why=f"the paper plots no numbers; it seems to search on the images that it attacks; {WHY}",
)


# A federation whose network is trained before the attack
#
# Groups of 4 images alone would hardly train anything, so a client with many images trains beside them. Every client
# takes one epoch with batches of 4, which for a group is one step (case 1) and for the large client 250. Updates are
# weighted by the number of examples, so that nearly all of a new global model comes from that client. At the paper's
# learning rate of 0.001 the network hardly trains (125 steps at 0.02 took its loss on other images from 2.300 to
# 2.295), so clients have a larger one and momentum. Neither matters to the attacks on a single step: it is exact at
# any rate, differences are measured in units of the rate, and momentum begins with the second step.

MANY = 1000  # images of the client that trains
TRAINING_RATE, MOMENTUM = 0.01, 0.9
HELD_OUT = 0.2  # one of the 5 images that a group is dealt


def training_parts(before: int, recorded: int = 1) -> dict[str, Any]:
    """Return data and federation with `before` rounds of training, then `recorded` rounds to be attacked."""
    dealt = [round(count / (1 - HELD_OUT)) for count in (*[IMAGES] * GROUPS, MANY)]
    return {
        "data": {
            "name": "cifar10",
            "clients": GROUPS + 1,
            "partition": "sizes",
            "sizes": dealt,
            "holdout": HELD_OUT,
            "public": 0.1,
        },
        "federation": federation(
            "case1",
            rounds=before + recorded,
            record=[before + more for more in range(recorded)],
            learning_rate=TRAINING_RATE,
            momentum=MOMENTUM,
        ),
    }


# The third contribution: updates from several stages of training, after 0, 4 and 16 rounds
#
# The paper states that updates of all stages can be inverted and prints no numbers. AWA and DLG read one round, and
# AGIC one (`agic`) or three in a row (`agic-rounds`), whose distances it adds up.

TOGETHER = 3  # rounds that agic-rounds reads
STAGES_ROWS = ("after-0", "after-4", "after-16")
STAGES_ATTACKS = {name: ATTACKS[name] for name in ("awa", "awa-decay", "dlg-rate", "agic")} | {
    "agic-rounds": {**ATTACKS["agic"], "at": "all"}
}


def plan_stages(request: base.Request, row: str) -> dict[str, Any]:
    """Return a plan that records and attacks the rounds after a stage of training."""
    before = int(row.removeprefix("after-"))
    attacks = []
    for label, settings in STAGES_ATTACKS.items():
        read = list(range(before, before + (TOGETHER if label == "agic-rounds" else 1)))
        attacks.append(attack(request, label, settings, rounds=read))
    return plan_of(request, "case1", attacks, **training_parts(before, TOGETHER))


STAGES = base.Reproduction(
    name="awa-stages",
    shows="How well the attacks work after the network has been trained for 4 and 16 rounds.",
    paper=paper(
        place="its third contribution, without a table",
        trend="updates leaked at all stages of training can be inverted",
    ),
    rows=STAGES_ROWS,
    small_rows=STAGES_ROWS[:2],
    columns=base.columns_of(
        {name: CALLED.get(name, "") for name in STAGES_ATTACKS} | {"agic-rounds": f"AGIC, {TOGETHER} rounds at once"},
        METRICS,
    ),
    differences=(
        *base.compare(
            ("awa", "dlg-rate"), ("awa", "agic"), ("awa-decay", "awa"), ("agic-rounds", "agic"), metrics=COMPARED
        ),
        *base.compare_rows(("awa", "awa-decay"), *((STAGES_ROWS[0], row) for row in STAGES_ROWS[1:]), metrics=COMPARED),
    ),
    plan=plan_stages,
    why=f"the paper prints no numbers; a client with {MANY:,} images trains the network beside the groups, at a "
    f"learning rate of {TRAINING_RATE:g} with momentum {MOMENTUM:g}; {WHY}",
)


# Beyond the paper: the components of AWA's gain over DLG
#
# From left to right one component is added: DLG on the update as sent, DLG on the update in units of the client's
# learning rate (the scale alone), AWA without weights (the same in case 1; in case 4 one interpolated epoch), a plain
# ramp up to the number of layers, the paper's ramps, its enhancement alone, and both. The last column is AWA on the
# update as sent, which is how the paper ran it. The search is in `awa-search`.

FLAT = {"q_conv": 1.0, "q_norm": 1.0, "q_linear": 1.0}
# column -> description, attack
GAIN_COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "dlg-sent": ("DLG", ATTACKS["dlg"]),
    "dlg-rate": ("scale", ATTACKS["dlg-rate"]),
    "no-weights": ("scale, interpolation", {"name": "awa", "preset": "none"}),
    "plain-ramp": ("ramps to the number of layers", ATTACKS["awa-untuned"]),
    "ramps": ("tuned ramps, no enhancement", {"name": "awa", "p_mean": 0.0, "p_var": 0.0}),
    "enhancement": ("enhancement, no ramps", {"name": "awa", **FLAT}),
    "both": ("AWA", ATTACKS["awa"]),
    "both-sent": ("AWA on the update as sent", ATTACKS["awa-sent"]),
}


def plan_gain(request: base.Request, row: str) -> dict[str, Any]:
    """Return one case with all variants."""
    attacks = [attack(request, label, settings) for label, (_, settings) in GAIN_COLUMNS.items()]
    return plan_of(request, row, attacks)


GAIN = base.Reproduction(
    name="awa-gain",
    shows="Which component gives AWA its gain over DLG: the scale of the loss, ramps over layers, or enhancement.",
    paper=paper(place=base.NO_TABLE, trend="weights and enhancement give the gain"),
    rows=("case1", "case4"),
    small_rows=("case1",),
    columns=base.columns_of({label: words for label, (words, _) in GAIN_COLUMNS.items()}, METRICS),
    differences=base.compare(
        ("dlg-rate", "dlg-sent"),
        ("no-weights", "dlg-rate"),
        ("plain-ramp", "no-weights"),
        ("ramps", "no-weights"),
        ("enhancement", "no-weights"),
        ("both", "ramps"),
        ("both", "enhancement"),
        ("both", "no-weights"),
        ("both", "dlg-rate"),
        ("both", "both-sent"),
        ("both-sent", "dlg-sent"),
        metrics=COMPARED,
    ),
    plan=plan_gain,
    why=WHY,
)


# Beyond the paper: its unstated choices, in case 1 with one choice changed at a time
#
# BatchNorm (initial statistics, those of the batch, or none), the stem, the initialisation of weights, whether inputs
# are normalised (Adam's steps are then a quarter as long in pixels), where dummies start and whether they are clamped,
# the value that AWA assumes for an undefined error, the width of the network, and whether it was trained.

BASE, NORMALISED, TRAINED = "running", "normalised", "trained-4"
UNDEFINED = "undefined-first"  # changes AWA alone
FREE: dict[str, Any] = {"box": False}
NORMAL: dict[str, Any] = {"start": "normal"}
SETTINGS_MODELS: dict[str, dict[str, Any]] = {  # row -> changes of the network
    BASE: {},
    "batch": {"norm": "batch"},
    "batch-normal-free": {"norm": "batch"},
    "no-norm": {"norm": "none"},
    "stem-imagenet": {"stem": "imagenet"},
    "stem-curious": {"stem": "curious"},
    "init-lecun": {"init": "lecun"},
    "init-he": {"init": "he"},
    NORMALISED: {},
    "normal": {},
    "uniform-free": {},
    "normal-free": {},
    UNDEFINED: {},
    "width-16": {"width": 16},
    "width-32": {"width": 32},
    TRAINED: {},
}
SETTINGS_DUMMIES = {  # row -> changes of the dummies
    "batch-normal-free": NORMAL | FREE,
    "normal": NORMAL,
    "uniform-free": FREE,
    "normal-free": NORMAL | FREE,
}
SETTINGS_ROWS = tuple(SETTINGS_MODELS)
SETTINGS_ATTACKS = ("awa", "dlg-rate")
SETTINGS_NUMBERS = {metric: TABLE4_NUMBERS["case1"]["awa-sent"][metric] for metric in METRICS}


def plan_settings(request: base.Request, row: str) -> dict[str, Any]:
    """Return case 1 with one choice changed."""
    attacks = []
    for label in SETTINGS_ATTACKS:
        undefined = {"undefined": "first"} if (row, label) == (UNDEFINED, "awa") else {}
        changed = SETTINGS_DUMMIES.get(row, undefined)
        attacks.append(attack(request, label, {**ATTACKS[label], **changed}))
    inputs = {"normalise": True} if row == NORMALISED else {}
    parts = training_parts(4) if row == TRAINED else {"data": {**data(), **inputs}}
    return plan_of(request, "case1", attacks, **parts, model=network(**SETTINGS_MODELS[row]))


SETTINGS = base.Reproduction(
    name="awa-settings",
    shows="Which of the choices that the paper leaves open give its numbers.",
    paper=paper(place="Table 4, case 1", numbers={row: {"awa": SETTINGS_NUMBERS} for row in SETTINGS_ROWS}, once=True),
    rows=SETTINGS_ROWS,
    small_rows=(BASE, "batch", "width-16"),
    columns=base.columns_of({name: CALLED.get(name, "") for name in SETTINGS_ATTACKS}, METRICS),
    differences=(
        *base.compare(("awa", "dlg-rate"), metrics=COMPARED),
        *base.compare_rows(
            "awa",
            *((BASE, row) for row in SETTINGS_ROWS if row not in (BASE, TRAINED)),  # its groups differ
            metrics=METRICS[:1],
        ),
    ),
    plan=plan_settings,
    why=WHY,
)


# Beyond the paper: why the images of some networks can be matched and those of others cannot
#
# The true images of a group get Gaussian noise on their pixels (clipped to valid ones), and the update of case 1 is
# computed from them. Its squared distance from the true update, relative to the squared norm of the latter, is what a
# matching attack would see there: near 0 a descent is led to the images, 1 is the distance of a zero update, and 2
# that of an unrelated one of equal norm. An attack cannot compute this, since it begins at the truth.

NOISES = (0.01, 0.03, 0.1)  # standard deviation, of pixels from 0 to 1
LANDSCAPE_ROWS = tuple(
    row for row in SETTINGS_ROWS if row in (BASE, NORMALISED) or (SETTINGS_MODELS[row] and "free" not in row)
)
METRIC = "relative_distance"


def measure_landscape(request: base.Request, row: str) -> list[base.Measured]:
    """Measure every group's true images with noise of every size, in the network of the row."""
    from fedxray.reproduce.measurements import landscape_distances, landscape_federation

    units: dict[float, list[base.Unit]] = {noise: [] for noise in NOISES}
    plan = plan_settings(request, row)
    for seed in request.pick_seeds():
        federation = landscape_federation(plan, seed)
        for client in attacked(request):
            for noise, value in landscape_distances(federation, client, seed, NOISES).items():
                units[noise].append(base.Unit(seed=seed, client=client, value=value))
    return [
        base.Measured(column=f"noise-{noise:g}", metric=METRIC, units=tuple(values)) for noise, values in units.items()
    ]


LANDSCAPE = base.Reproduction(
    name="awa-landscape",
    shows="How soon an update stops resembling the true one when the true images get a little noise.",
    paper=paper(place=base.NO_TABLE),
    rows=LANDSCAPE_ROWS,
    columns=base.columns_of({f"noise-{noise:g}": "" for noise in NOISES}, (METRIC,)),
    differences=base.compare_rows(f"noise-{NOISES[-1]:g}", *((row, BASE) for row in LANDSCAPE_ROWS[1:])),
    measure=measure_landscape,
    why=f"this begins at the true images, which no attack can; {NETWORK}",
)


# Beyond the paper: two images of one class against two images of two classes
#
# The gradient of two images of one class is the same if they are exchanged. Where a guess has them equal, moving them
# apart therefore changes the gradient only in second order, although at the true images it may change it as much as
# moving them together. So a descent that has found their mean sees no way on: a property of the search, not of the
# information in the update. Distances are measured as in `awa-landscape`; noise is not clipped.

PAIR_ROWS = {"one-class": True, "two-classes": False}
PAIR_COLUMNS = {
    "together": "both images moved in one direction",
    "apart": "both moved in opposite directions",
    "mean": "both replaced by their mean",
    "mean-together": "their mean moved",
    "mean-apart": "their mean split",
}
PAIR_IMAGES = 30  # of every client, so that two share a class
PAIRS_OF = 16  # clients
PAIR_NOISE = 0.03  # standard deviation, of pixels from 0 to 1


def pairs_plan(request: base.Request, network_settings: dict[str, Any]) -> dict[str, Any]:
    """Return a plan whose clients hold enough images for a pair of one class and one of two."""
    groups = {**data(), "clients": PAIRS_OF, "limit": PAIR_IMAGES}
    return plan_of(request, "case1", [DLG], data=groups, model=network_settings)


def measured_pairs(
    request: base.Request,
    clients: int,
    plan: dict[str, Any],
    metric: str,
    measure_one: Callable[[Any, int, int], Mapping[str, float]],
) -> list[base.Measured]:
    """Return the values of every seed's and client's pair; `measure_one` takes federation, client and seed."""
    from fedxray.reproduce.measurements import landscape_federation

    units: dict[str, list[base.Unit]] = {}
    for seed in request.pick_seeds(paper=2):
        federation = landscape_federation(plan, seed)
        for client in range(clients):
            for column, value in measure_one(federation, client, seed).items():
                units.setdefault(column, []).append(base.Unit(seed=seed, client=client, value=value))
    return [base.Measured(column=column, metric=metric, units=tuple(values)) for column, values in units.items()]


def measure_pairs(request: base.Request, row: str) -> list[base.Measured]:
    """Measure one pair of every client: the first two images of one class, or of two classes."""
    from fedxray.reproduce.measurements import pair_distances

    clients = request.pick_clients(small=8, paper=PAIRS_OF, most=PAIRS_OF)
    measure_one = partial(pair_distances, noise=PAIR_NOISE, alike=PAIR_ROWS[row])
    return measured_pairs(request, clients, pairs_plan(request, network()), METRIC, measure_one)


PAIRS = base.Reproduction(
    name="awa-pairs",
    shows="Whether an update holds two images of one class apart, and why a descent does not.",
    paper=paper(place=base.NO_TABLE),
    rows=tuple(PAIR_ROWS),
    columns=base.columns_of(PAIR_COLUMNS, (METRIC,)),
    differences=(
        *base.compare(("apart", "together"), ("mean-apart", "mean-together")),
        *base.compare_rows(tuple(PAIR_COLUMNS), ("one-class", "two-classes")),
    ),
    measure=measure_pairs,
    why=f"this begins at the true images, which no attack can; {NETWORK}",
)


# The same pairs attacked: two images are all that a client trains on
#
# How the sum and the difference of the two reconstructed images correlate with those of the true ones, which are put
# in the better order. A plain ramp with a decaying step and total variation; the rows -lenet have a small network.

PAIR_NETWORKS: dict[str, dict[str, Any]] = {"": network(), "-lenet": {"name": "lenet"}}
PAIR_STEPS = 100
CORRELATION = "correlation"


def measure_attacked_pairs(request: base.Request, row: str) -> list[base.Measured]:
    """Attack one pair of every client and compare sums and differences."""
    from fedxray.attacks.inversion.awa import Awa
    from fedxray.reproduce.measurements import pair_attacked, pair_correlations

    kind = row.removesuffix("-lenet")
    settings = {key: value for key, value in ATTACKS["awa-decay"].items() if key != "name"}
    awa = Awa(**settings, steps=PAIR_STEPS)

    def measure_one(federation: Any, client: int, seed: int) -> Mapping[str, float]:
        return pair_correlations(*pair_attacked(federation, client, seed, awa, alike=PAIR_ROWS[kind]))

    clients = request.pick_clients(small=4, paper=PAIRS_OF, most=PAIRS_OF)
    plan = pairs_plan(request, PAIR_NETWORKS[row.removeprefix(kind)])
    return measured_pairs(request, clients, plan, CORRELATION, measure_one)


ATTACKED_ROWS = tuple(kind + network for network in PAIR_NETWORKS for kind in PAIR_ROWS)
ATTACKED_PAIRS = base.Reproduction(
    name="awa-pairs-attacked",
    shows="Whether AWA reconstructs the sum and the difference of two images of one class, or of two.",
    paper=paper(place=base.NO_TABLE),
    rows=ATTACKED_ROWS,
    columns=base.columns_of({"sum": "", "difference": ""}, (CORRELATION,)),
    differences=(
        *base.compare(("difference", "sum")),
        *base.compare_rows(("sum", "difference"), ("one-class", "two-classes")),
        *base.compare_rows(("sum", "difference"), ("one-class-lenet", "two-classes-lenet")),
    ),
    measure=measure_attacked_pairs,
    why=NETWORK,
)
