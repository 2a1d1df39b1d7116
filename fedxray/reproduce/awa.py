"""Tables and figures of "Approximate and Weighted Data Reconstruction Attack in Federated Learning"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedxray.reproduce.base import (
    NO_TABLE,
    Difference,
    Follows,
    Measured,
    Paper,
    Published,
    Reproduction,
    Request,
    Unit,
    chosen_point,
    columns_of,
)

# --- What the tables of "Approximate and Weighted Data Reconstruction Attack in Federated Learning" share.
#
# A client is a group of 4 images of CIFAR-10. One federation holds five groups and one network, drawn once:
# the first four are attacked, the fifth is for whoever tunes weights. The paper does not state BatchNorm's
# mode, the stem, where dummies start, whether they are clamped, and the state of the model. Here statistics
# of BatchNorm stay at 0 and 1, the stem is that for CIFAR, the network is fresh, and dummies start evenly
# over valid pixels and stay there; `awa-settings` has the other choices. All attacks on a group start from
# the same dummies.
#
# The control other-client would repeat every attack, so it is left out; held-out costs nothing.


TITLE = "Song, Wang, Zuazua: Approximate and Weighted Data Reconstruction Attack in Federated Learning"
GROUPS = 4  # that are attacked
FIFTH = 4  # the group that weights are sought on
IMAGES = 4  # of every group
RATE = 0.001  # of the clients
STEPS, THEIR_STEPS = 250, 1000  # of the attacks
KNOWN_LABELS = ("recipe", "examples", "labels")
CASES = {"case1": (1, 1), "case2": (4, 1), "case3": (1, 4), "case4": (2, 2)}  # local epochs, batches of each
METRICS = ("psnr_002", "ssim_002", "mse")  # as the paper reckons them, matched one to one
IN_ORDER = tuple(f"{name}_by_index" for name in METRICS)  # the same without matching, as in the paper
DUMMIES = {"start": "uniform", "box": True}
AGIC = {"name": "agic", "optimiser": "adam", "total_variation": 0.0, **DUMMIES}
DLG = {"name": "dlg", "reading": "002", **DUMMIES}
ATTACKS: dict[str, dict[str, Any]] = {
    "awa": {"name": "awa"},
    "awa-sent": {"name": "awa", "unit": "sent"},
    "awa-untuned": {"name": "awa", "preset": "ramp"},
    "agic": AGIC,
    "agic-rate": {**AGIC, "match": "l2"},
    "dlg": DLG,
    "dlg-rate": {**DLG, "unit": "rate"},
}
CALLED = {"awa-sent": "AWA", "awa": "AWA in learning rates", "agic": "AGIC", "dlg": "DLG"}
NETWORK = (
    "the paper states neither BatchNorm's mode, stem, dummies, clamping nor the state of the model: here a fresh "
    "ResNet18 with the stem for CIFAR whose BatchNorm keeps statistics 0 and 1, and dummies drawn evenly from valid "
    "pixels and kept among them; which 4 images it attacked, and how often, is not stated either"
)
WHY = f"{NETWORK}; 250 steps unless a row says otherwise (the paper: 1,000)"


def paper(place: str, numbers: Published | None = None, trend: str = "") -> Paper:
    """A table or figure of the paper, which seems to attack one group."""
    return Paper(title=TITLE, place=place, clients=1, numbers=numbers or {}, trend=trend)


def data() -> dict[str, Any]:
    """Five groups; other images are held out or public."""
    return {"name": "cifar10", "clients": GROUPS + 1, "limit": IMAGES, "holdout": 0.05, "public": 0.1}


def network(**changes: Any) -> dict[str, Any]:
    """A ResNet18 whose BatchNorm keeps its first statistics."""
    return {"name": "resnet18", "norm": "running", "stem": "cifar", "head_bias": True, "width": 64, **changes}


def federation(case: str, **changes: Any) -> dict[str, Any]:
    """One round of the case."""
    epochs, batches = CASES[case]
    return {
        "rounds": 1,
        "epochs": epochs,
        "batch_size": IMAGES // batches,
        "learning_rate": RATE,
        **changes,
    }


def attack(request: Request, label: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One attack with known labels, under a label of its own."""
    return {
        **settings,
        "label": label,
        "steps": STEPS,
        "grants": list(KNOWN_LABELS),
        "controls": ["held-out"],
        "metrics": [*METRICS[:2], *IN_ORDER],
        "targets": attacked(request),
        **more,
    }


def attacked(request: Request) -> int:
    """How many groups are attacked."""
    return request.pick_clients(small=1, paper=GROUPS, most=GROUPS)


# --- What gives AWA its gain over DLG: the scale of the loss, ramps, enhancement, or both. Search has `awa-
# search`.
#
# From left to right one thing is added: DLG on the update as sent, DLG on the update in learning rates of
# the client (the scale alone), AWA without weights (the same in case 1; in case 4 one interpolated epoch),
# a plain ramp up to the number of layers, the paper's ramps, its enhancement alone, and both. The last
# column is AWA on the update as sent, which is how the paper ran it.


GAIN_ROWS = ("case1", "case4")
FLAT = {"q_conv": 1.0, "q_norm": 1.0, "q_linear": 1.0}
WAYS: dict[str, dict[str, Any]] = {
    "dlg-sent": ATTACKS["dlg"],
    "dlg-rate": ATTACKS["dlg-rate"],
    "no-weights": {"name": "awa", "preset": "none"},
    "plain-ramp": ATTACKS["awa-untuned"],
    "ramps": {"name": "awa", "p_mean": 0.0, "p_var": 0.0},
    "enhancement": {"name": "awa", **FLAT},
    "both": ATTACKS["awa"],
    "both-sent": {"name": "awa", "unit": "sent"},
}
WORDS = {
    "dlg-sent": "DLG",
    "dlg-rate": "scale",
    "no-weights": "scale, interpolation",
    "plain-ramp": "ramps to the number of layers",
    "ramps": "tuned ramps, no enhancement",
    "enhancement": "enhancement, no ramps",
    "both": "AWA",
    "both-sent": "AWA on the update as sent",
}


def plan_gain(request: Request, row: str) -> dict[str, Any]:
    """One case, attacked in all ways."""
    return {
        "seeds": request.pick_seeds(),
        "data": data(),
        "model": network(),
        "federation": federation(row),
        "attack": [attack(request, label, settings) for label, settings in WAYS.items()],
    }


GAIN = Reproduction(
    name="awa-gain",
    shows="What gives AWA its gain over DLG: the scale of the loss, ramps over layers, enhancement, or both.",
    paper=paper(NO_TABLE, trend="weights and enhancement give the gain"),
    rows=GAIN_ROWS,
    small_rows=GAIN_ROWS[:1],
    columns=columns_of(WORDS, METRICS),
    differences=tuple(
        Difference(left=left, right=right, metrics=METRICS[:2])
        for left, right in (
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
        )
    ),
    plan=plan_gain,
    why=WHY,
)

# --- Figure 4, and Figure 3 at its end: how good AWA's images are after how many steps.
#
# One descent is read at several steps: what it has come to is kept every 50 steps, and a column goes on
# from there. The row of the small scale ends after 250.


KEPT_EVERY = 50
FEW = (50, 100, 150, 200, 250)
READ = (*FEW, 500, 1000, 1500, 2000, 3000)
SHORT = "case1-250"  # only the first few
LAST_SSIM = {"case1": 0.9658, "case2": 0.9613, "case3": 0.9595, "case4": 0.9135}  # Figure 3


def title(steps: int) -> str:
    """What a descent of so many steps is called."""
    return f"awa-{steps}"


def plan_iterations(request: Request, row: str) -> dict[str, Any]:
    """One case, attacked once."""
    return {
        "seeds": request.pick_seeds(),
        "data": data(),
        "model": network(),
        "federation": federation(row.partition("-")[0]),
        "attack": [
            attack(request, title(steps), {"name": "awa", "kept_every": KEPT_EVERY}, steps=steps)
            for steps in (FEW if row == SHORT else READ)
        ],
    }


ITERATIONS = Reproduction(
    name="awa-iterations",
    shows="How good the images of AWA are after 50 to 3,000 steps.",
    paper=paper(
        "Figures 3 and 4",
        {case: {title(READ[-1]): {"ssim_002": ssim}} for case, ssim in LAST_SSIM.items()},
        "more steps keep helping, SSIM passes 0.9 within 1,500 in all cases, and case 4 stays a little behind",
    ),
    rows=(*CASES, SHORT),
    small_rows=(SHORT,),
    columns=columns_of({title(steps): f"{steps:,} steps" for steps in READ}, METRICS),
    differences=(
        Difference(left=title(250), right=title(100), metrics=METRICS[:2], expected="above"),
        Difference(left=title(1000), right=title(250), metrics=METRICS[:2], expected="above"),
        Difference(left=title(3000), right=title(1000), metrics=METRICS[:2], expected="above"),
        *(
            Difference(left=title(1000), right=title(1000), rows=("case1", case), metrics=METRICS[:2])
            for case in tuple(CASES)[1:]
        ),
    ),
    plan=plan_iterations,
    why=WHY,
)

# --- Figure 1: weights sought by Bayesian optimisation, and what they are worth on images that they were
# not sought on.
#
# A study of 50 trials on the fifth group, 100 steps each, 12 of them drawn at random, is judged by the
# attacker's own loss without weights. Its row also has DLG at equal compute: 50 restarts of 100 steps,
# chosen by its own loss. In case 4 DLG would replay both epochs, at twice the cost of a step of AWA; there
# the restarts match the interpolated epoch without weights, so that steps cost the same and the losses of
# both are one function. The next row takes the weights of the study to the four groups (250 steps), beside
# the paper's weights, a plain ramp that nobody searched for, DLG in the same steps, and DLG with 50
# restarts. With several seeds the weights are those of the first.


SEARCHED, RESTARTED = "searched", "dlg-restarts"
TRIALS, STARTS, TRIAL_STEPS = 50, 12, 100
BATCH = 2  # trials that are asked for together
CASES_SEARCH = ("case1", "case4")
UNWEIGHTED = {"case1": ATTACKS["dlg-rate"], "case4": {"name": "awa", "preset": "none"}}  # what restarts
SEARCH_ROWS = tuple(row for case in CASES_SEARCH for row in (f"{case}-study", case))
WORDS_SEARCH = {
    SEARCHED: "AWA",
    "awa": "AWA with the paper's weights",
    "awa-untuned": "AWA with a plain ramp",
    "dlg-rate": "",
    RESTARTED: f"no weights, {TRIALS} restarts of {TRIAL_STEPS} steps",
}


def plan_search(request: Request, row: str) -> dict[str, Any]:
    """A study on the fifth group, or its weights on the others; few trials at the small scale."""
    case, _, study = row.partition("-")
    trials, starts, steps = (6, 3, 40) if request.is_small else (TRIALS, STARTS, TRIAL_STEPS)
    sought = {"trials": trials, "sampler": "gp", "starts": starts, "batch": BATCH}
    restarted = {**UNWEIGHTED[case], "restarts": trials}
    on_fifth = {"targets": [FIFTH], "steps": steps}
    if study:
        attacks = [
            attack(request, SEARCHED, ATTACKS["awa"], search=sought, **on_fifth),
            attack(request, "awa", ATTACKS["awa"], **on_fifth),
            attack(request, "awa-untuned", ATTACKS["awa-untuned"], **on_fifth),
            attack(request, "dlg-rate", ATTACKS["dlg-rate"], **on_fifth),
            attack(request, RESTARTED, restarted, **on_fifth),
        ]
    else:
        attacks = [
            attack(request, SEARCHED, ATTACKS["awa"]),
            attack(request, "awa", ATTACKS["awa"]),
            attack(request, "awa-untuned", ATTACKS["awa-untuned"]),
            attack(request, "dlg-rate", ATTACKS["dlg-rate"]),
            attack(request, RESTARTED, restarted, steps=steps),
        ]
    return {
        "seeds": request.pick_seeds(),
        "data": data(),
        "model": network(),
        "federation": federation(case),
        "attack": attacks,
    }


def with_found_weights(plan: dict[str, Any], study: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of the four groups with the weights that the study found."""
    if not any(one["label"] == SEARCHED for one in plan["attack"]):
        return plan
    found = chosen_point(study, SEARCHED)
    attacks = [{**one, **found} if one["label"] == SEARCHED else one for one in plan["attack"]]
    return {**plan, "attack": attacks}


SEARCH = Reproduction(
    name="awa-search",
    shows="What weights are worth that were sought on other images, and what DLG does with the compute of the search.",
    paper=paper(
        "Figure 1",
        trend="the smallest loss keeps falling over 50 trials; DLG is never given the compute of the search",
    ),
    rows=SEARCH_ROWS,
    small_rows=SEARCH_ROWS[:2],
    follows={case: Follows(row=f"{case}-study", fill=with_found_weights) for case in CASES_SEARCH},
    columns=columns_of(WORDS_SEARCH, METRICS),
    differences=tuple(
        Difference(left=left, right=right, metrics=METRICS[:2])
        for left, right in (
            (SEARCHED, "awa"),
            (SEARCHED, "awa-untuned"),
            (SEARCHED, "dlg-rate"),
            (SEARCHED, RESTARTED),
            ("awa", RESTARTED),
            (RESTARTED, "dlg-rate"),
        )
    ),
    plan=plan_search,
    why=f"the paper plots no numbers; it seems to search on the images that it attacks; {WHY}",
)

# --- Table 4: AWA, AGIC and DLG in the paper's four cases.
#
# AWA has the weights that the paper tuned for the case. All three as the paper ran them stand beside the
# same on the update in learning rates of the client, since the epsilon of Adam may hold back what is
# matched as sent: AWA in the paper's unit (`awa-sent`) and in this one (`awa`), DLG (`dlg`, `dlg-rate`),
# and AGIC (`agic`), whose cosine has no unit, with squared differences in its place (`agic-rate`). In case
# 4 the paper runs no DLG; ours takes the client for one that keeps its batches.


LONG = "case1-1000"
TABLE4_ROWS = (*CASES, LONG)
TABLE4_PRINTED = """
case1  14.06 0.534 0.042  15.89 0.689 0.028  22.40 0.935 0.006
case2  16.43 0.739 0.024  16.07 0.631 0.035  20.40 0.901 0.009
case3  14.05 0.505 0.044  15.63 0.718 0.029  22.47 0.936 0.006
case4  -     -     -      16.41 0.734 0.025  19.68 0.882 0.011
"""


def published_table4(text: str) -> dict[str, dict[str, dict[str, float]]]:
    """Lines of a case, then PSNR, SSIM and MSE of DLG, AGIC and AWA; the paper compares in order, as `_by_index`."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for line in text.strip().splitlines():
        case, *cells = line.split()
        threes = {
            name: cells[3 * place : 3 * place + 3] for place, name in enumerate(("dlg", "agic", "awa-sent"))
        }
        found[case] = {
            name: {metric: float(number) for metrics in (METRICS, IN_ORDER)
                   for metric, number in zip(metrics, numbers, strict=True)}
            for name, numbers in threes.items()
            if "-" not in numbers
        }  # fmt: skip
    return found


TABLE4_NUMBERS = published_table4(TABLE4_PRINTED)


def plan_table4(request: Request, row: str) -> dict[str, Any]:
    """One case with all attacks."""
    steps = {"steps": THEIR_STEPS} if row == LONG else {}
    return {
        "seeds": request.pick_seeds(),
        "data": data(),
        "model": network(),
        "federation": federation(row.partition("-")[0]),
        "attack": [attack(request, label, settings, **steps) for label, settings in ATTACKS.items()],
    }


TABLE4 = Reproduction(
    name="awa-table4",
    shows="How well three attacks rebuild four images from one update, after one or several epochs and batches.",
    paper=paper("Table 4", {**TABLE4_NUMBERS, LONG: TABLE4_NUMBERS["case1"]}),
    rows=TABLE4_ROWS,
    small_rows=("case1",),
    columns=columns_of({name: CALLED.get(name, "") for name in ATTACKS}, (*METRICS, *IN_ORDER)),
    differences=(
        Difference(left="awa-sent", right="dlg", metrics=METRICS[:2], expected="above"),
        Difference(left="awa-sent", right="agic", metrics=METRICS[:2], expected="above"),
        Difference(left="awa", right="awa-sent", metrics=METRICS[:2]),
        Difference(left="awa", right="dlg", metrics=METRICS[:2]),
        Difference(left="awa", right="agic", metrics=METRICS[:2]),
        Difference(left="awa", right="dlg-rate", metrics=METRICS[:2]),
        Difference(left="awa", right="agic-rate", metrics=METRICS[:2]),
        Difference(left="awa", right="awa-untuned", metrics=METRICS[:2]),
        Difference(left="agic-rate", right="awa-untuned", metrics=METRICS[:2]),
        Difference(left="dlg-rate", right="dlg", metrics=METRICS[:2]),
    ),
    plan=plan_table4,
    why=f"{WHY}; AGIC seeks every image once, where a batch combined of several epochs holds it as often",
)

# --- A federation whose network is trained before the attack: beside the groups a client with many images
# trains it.
#
# Groups of 4 images alone would hardly train anything. Every client takes one epoch with batches of 4,
# which for a group is one step (case 1) and for the client with many images 250. Replies count by their
# examples, so that nearly all of a new global model comes from that client. At the paper's learning rate of
# 0.001 the network hardly trains (125 steps at 0.02 took its loss on other images from 2.300 to 2.295), so
# clients have a larger one and momentum. To the attacks on a single step neither matters: it is exact at
# any rate, differences are measured in rates, and momentum begins with the second step.


MANY = 1000  # images of the client that trains
RATE_TRAINING, MOMENTUM = 0.01, 0.9
HELD_OUT = 0.2  # one of the 5 images that a group is dealt


def data_training() -> dict[str, Any]:
    """Four groups of 4 images, and one client with a thousand."""
    dealt = [round(count / (1 - HELD_OUT)) for count in (*[IMAGES] * GROUPS, MANY)]
    return {
        "name": "cifar10",
        "clients": GROUPS + 1,
        "partition": "sizes",
        "sizes": dealt,
        "holdout": HELD_OUT,
        "public": 0.1,
    }


def rounds(before: int, recorded: int = 1) -> dict[str, Any]:
    """So many rounds of training, then some that are recorded."""
    return federation(
        "case1",
        rounds=before + recorded,
        record=[before + more for more in range(recorded)],
        learning_rate=RATE_TRAINING,
        momentum=MOMENTUM,
    )


# --- Which of the choices that the paper does not state give its numbers: case 1, one choice changed at a
# time.
#
# BatchNorm (its first statistics, those of the batch, or none), the stem, how weights are drawn, whether
# inputs are normalised (Adam's steps are then a quarter as long in pixels), where dummies start and whether
# they are clamped, what AWA takes an undefined error for, how wide the network is, and whether it was
# trained.


BASE, NORMALISED, TRAINED = "running", "normalised", "trained-4"
UNDEFINED = "undefined-first"  # of AWA alone
FREE: dict[str, Any] = {"box": False}
NORMAL: dict[str, Any] = {"start": "normal"}
MODELS: dict[str, dict[str, Any]] = {
    BASE: {},
    "batch": {"norm": "batch"},
    "batch-normal-free": {"norm": "batch"},
    "no-norm": {"norm": "none"},
    "stem-imagenet": {"stem": "imagenet"},
    "stem-004": {"stem": "004"},
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
STARTS_SETTINGS = {
    "batch-normal-free": NORMAL | FREE,
    "normal": NORMAL,
    "uniform-free": FREE,
    "normal-free": NORMAL | FREE,
}
SETTINGS_ROWS = tuple(MODELS)
SOUGHT = ("awa", "dlg-rate")
SETTINGS_PRINTED = {metric: TABLE4_NUMBERS["case1"]["awa-sent"][metric] for metric in METRICS}


def plan_settings(request: Request, row: str) -> dict[str, Any]:
    """Case 1 with one choice changed."""
    trained, inputs = row == TRAINED, {"normalise": True} if row == NORMALISED else {}
    return {
        "seeds": request.pick_seeds(),
        "data": data_training() if trained else {**data(), **inputs},
        "model": network(**MODELS[row]),
        "federation": rounds(4) if trained else federation("case1"),
        "attack": [attack(request, label, {**ATTACKS[label], **changed(label, row)}) for label in SOUGHT],
    }


def changed(label: str, row: str) -> dict[str, Any]:
    """What a row changes in an attack."""
    if row == UNDEFINED:
        return {"undefined": "first"} if label == "awa" else {}
    return STARTS_SETTINGS.get(row, {})


SETTINGS = Reproduction(
    name="awa-settings",
    shows="Under which of the choices that the paper leaves open its numbers come out.",
    paper=replace(
        paper("Table 4, case 1", {row: {"awa": SETTINGS_PRINTED} for row in SETTINGS_ROWS}), once=True
    ),
    rows=SETTINGS_ROWS,
    small_rows=(BASE, "batch", "width-16"),
    columns=columns_of({name: CALLED.get(name, "") for name in SOUGHT}, METRICS),
    differences=(
        Difference(left="awa", right="dlg-rate", metrics=METRICS[:2]),
        *(
            Difference(left="awa", right="awa", rows=(BASE, row), metrics=METRICS[:1])
            for row in SETTINGS_ROWS
            if row not in (BASE, TRAINED)  # whose groups are others
        ),
    ),
    plan=plan_settings,
    why=WHY,
)

# --- Why some networks let images be matched and others do not: how soon an update stops resembling the one
# seen.
#
# The true images of a group get Gaussian noise on their pixels (clipped to valid ones), and the update of
# case 1 is computed from them. Its squared distance from the true update, in squared lengths of the latter,
# is what a matching attack would see there: near 0 a descent is led to the images, 1 is what an update of
# nothing scores, and 2 what an unrelated one of the same length does. An attack cannot compute this, since
# it begins at the truth.


NOISES = (0.01, 0.03, 0.1)  # standard deviation, of pixels from 0 to 1
LANDSCAPE_ROWS = (
    "running",
    "batch",
    "no-norm",
    "stem-imagenet",
    "stem-004",
    "init-lecun",
    "init-he",
    "normalised",
    "width-16",
    "width-32",
)
METRIC = "relative_distance"


def title_landscape(noise: float) -> str:
    """What noise of this size is called."""
    return f"noise-{noise:g}"


MOST = title_landscape(NOISES[-1])


def measure(request: Request, row: str) -> list[Measured]:
    """Every group's true images with noise of every size, in the network of the row."""
    from fedxray.reproduce.awa_noise import distances, prepared

    found: dict[str, list[Unit]] = {title_landscape(noise): [] for noise in NOISES}
    plan = plan_settings(request, row)
    for seed in request.pick_seeds():
        federation = prepared(plan, seed)
        for client in range(attacked(request)):
            for noise, value in distances(federation, client, seed, NOISES).items():
                found[title_landscape(noise)].append(Unit(seed=seed, client=client, value=value))
    return [Measured(column=name, metric=METRIC, units=tuple(units)) for name, units in found.items()]


LANDSCAPE = Reproduction(
    name="awa-landscape",
    shows="How soon an update stops resembling the true one when the true images get a little noise.",
    paper=paper(NO_TABLE),
    rows=LANDSCAPE_ROWS,
    columns=columns_of({title_landscape(noise): "" for noise in NOISES}, (METRIC,)),
    differences=tuple(
        Difference(left=MOST, right=MOST, rows=(row, LANDSCAPE_ROWS[0])) for row in LANDSCAPE_ROWS[1:]
    ),
    measure=measure,
    why=f"this begins at the truth, which no attack can; {NETWORK}",
)

# --- Updates from several stages of training: after 0, 4 and 16 rounds.
#
# The paper says that updates of all stages can be inverted and prints no numbers. AWA and DLG read one
# round, and AGIC one (`agic`) or three in a row (`agic-rounds`), whose distances it adds up.


TOGETHER = 3  # rounds that AGIC reads at once
STAGES_ROWS = ("after-0", "after-4", "after-16")
WAYS_STAGES = {name: ATTACKS[name] for name in ("awa", "dlg-rate", "agic")} | {
    "agic-rounds": {**ATTACKS["agic"], "at": "all"}
}


def plan_stages(request: Request, row: str) -> dict[str, Any]:
    """The rounds after a stage of training are recorded and attacked."""
    before = int(row.removeprefix("after-"))
    read = {
        label: list(range(before, before + (TOGETHER if label == "agic-rounds" else 1)))
        for label in WAYS_STAGES
    }
    return {
        "seeds": request.pick_seeds(),
        "data": data_training(),
        "model": network(),
        "federation": rounds(before, TOGETHER),
        "attack": [
            attack(request, label, settings, rounds=read[label]) for label, settings in WAYS_STAGES.items()
        ],
    }


STAGES = Reproduction(
    name="awa-stages",
    shows="What is left of the attacks once the network has been trained for 4 and 16 rounds.",
    paper=paper(
        "its third contribution, without a table",
        trend="updates leaked at all stages of training can be inverted",
    ),
    rows=STAGES_ROWS,
    small_rows=STAGES_ROWS[:2],
    columns=columns_of(
        {name: CALLED.get(name, "") for name in ("awa", "dlg-rate", "agic")}
        | {"agic-rounds": f"AGIC, {TOGETHER} rounds at once"},
        METRICS,
    ),
    differences=(
        Difference(left="awa", right="dlg-rate", metrics=METRICS[:2]),
        Difference(left="awa", right="agic", metrics=METRICS[:2]),
        Difference(left="agic-rounds", right="agic", metrics=METRICS[:2]),
        *(
            Difference(left="awa", right="awa", rows=(STAGES_ROWS[0], row), metrics=METRICS[:2])
            for row in STAGES_ROWS[1:]
        ),
    ),
    plan=plan_stages,
    why=f"the paper prints no numbers; a client with {MANY:,} images trains the network beside the groups, at a "
    f"learning rate of {RATE_TRAINING:g} with momentum {MOMENTUM:g}; {WHY}",
)
