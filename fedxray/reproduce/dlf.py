"""The tables of "Data Leakage in Federated Averaging"."""

from __future__ import annotations

import re
from typing import Any

from fedxray.reproduce.base import (
    NO_TABLE,
    Column,
    Difference,
    Paper,
    Published,
    Reproduction,
    Request,
    columns_of,
)

# --- What the tables of "Data Leakage in Federated Averaging" share: data, network, recipe, attacks.
#
# One federation holds many clients of 50 images and one network, drawn once; as many clients are attacked
# as were asked for, so asking for more later adds cases and changes none. The other clients cost little and
# give `retrieval` its candidates. The control other-client would repeat every attack, so it is left out;
# held-out costs nothing.


TITLE = "Dimitrov, Balunović, Konstantinov, Vechev: Data Leakage in Federated Averaging (TMLR 2022)"
THEIR_CLIENTS = 100
IMAGES = 50  # of every client
KNOWN_COUNTS = ("recipe", "examples", "label-counts")
METRICS = ("rec", "psnr", "retrieval")
ATTACKS = {
    "dlf": "Ours (prior)",
    "dlf-no-prior": "Ours (no prior)",
    "shared-simulation": "Shared",
    "fedsgd-epoch": "FedSGD-Epoch",
    "fedsgd-inversion": "FedSGD",
}
RECIPES = ("1x5", "5x5", "10x10", "10x5", "10x1")  # local epochs x batch size
ROWS = tuple(f"{data}-{recipe}" for data in ("femnist", "cifar100") for recipe in RECIPES)
STAND_IN = (
    "where FEMNIST itself is not at hand, femnist-like stands in: 62 characters once each by 55 writers, drawn from "
    "their pen strokes, so no client holds a label twice; CIFAR-100 is a part of it; numbers hang on the one network "
    "that a seed draws, since the match is weighed against the other terms by its size (squared length of the update "
    "410 to 860 in seven draws); every client shuffles by itself, the authors' clients all alike"
)
ORDER = (
    Difference(left="dlf", right="dlf-no-prior", expected="above"),
    Difference(left="dlf", right="fedsgd-inversion", expected="above"),
    Difference(left="dlf-no-prior", right="fedsgd-inversion", expected="above"),
    Difference(left="dlf", right="shared-simulation", expected="above"),
    Difference(left="dlf", right="fedsgd-epoch", expected="above"),
)


def columns() -> tuple[Column, ...]:
    """The five attacks with share recognised, likeness and retrieval."""
    return columns_of(ATTACKS, METRICS)


def paper(place: str, numbers: Published | None = None, trend: str = "") -> Paper:
    """A table of the paper."""
    return Paper(title=TITLE, place=place, clients=THEIR_CLIENTS, numbers=numbers or {}, trend=trend)


def published(text: str) -> dict[str, dict[str, dict[str, float]]]:
    """Lines of a row's name and `rec/psnr` for each of the five attacks, rec in percent as printed."""
    found = {}
    for line in text.strip().splitlines():
        row, *cells = line.split()
        pairs = [tuple(map(float, cell.split("/"))) for cell in cells]
        named = zip(ATTACKS, pairs, strict=True)
        found[row] = {attack: {"rec": rec / 100, "psnr": psnr} for attack, (rec, psnr) in named}
    return found


def federation_of(row: str, request: Request, *, rounds: int = 1, **changes: Any) -> dict[str, Any]:
    """Everything of a row's plan but its attacks; the row is named data-EPOCHSxBATCH, perhaps with more behind."""
    data, epochs, batch = _parts(row)
    federation = {
        "rounds": rounds,
        "epochs": epochs,
        "batch_size": batch,
        "learning_rate": 0.004,
        "record": [rounds - 1],
    }
    return {
        "seeds": request.pick_seeds(),
        "data": cifar100() if data == "cifar100" else handwriting(),
        "model": {"name": "cnn-cifar" if data == "cifar100" else "cnn-femnist"},
        "federation": federation | changes,
    }


def attack(
    name: str, row: str, request: Request, *, grants: tuple[str, ...] = KNOWN_COUNTS, **settings: Any
) -> dict[str, Any]:
    """One attack of a row with the authors' numbers for its data set; few steps at the small scale."""
    data, epochs, batch = _parts(row)
    few = 100 if epochs * IMAGES // batch <= 10 else 40
    return {
        "name": name,
        "preset": data,
        "steps": few if request.is_small else 400,
        "grants": list(grants),
        "controls": ["held-out"],
        "targets": attacked(data, request),
        **settings,
    }


def attacked(data: str, request: Request) -> int:
    """How many clients are attacked."""
    most = int((cifar100() if data == "cifar100" else handwriting())["clients"])
    return request.pick_clients(small=2, paper=THEIR_CLIENTS, most=most)


def handwriting() -> dict[str, Any]:
    """FEMNIST where the user has it, else its stand-in; a client is a writer."""
    whose = {"partition": "as-given", "minimum": 53, "limit": IMAGES, "holdout": 0.05, "public": 0.05}
    if _has_femnist():
        return {"name": "femnist", "clients": THEIR_CLIENTS, "owners": "random", **whose}
    return {"name": "femnist-like", "clients": 50, **whose}


def cifar100() -> dict[str, Any]:
    """Random batches of CIFAR-100 as clients: 20 of 50 images are what its bundled part gives."""
    return {"name": "cifar100", "clients": 20, "limit": IMAGES, "holdout": 0.05, "public": 0.05}


def _has_femnist() -> bool:
    from fedxray.data.pictures import is_there

    return is_there()


def _parts(row: str) -> tuple[str, int, int]:
    found = re.match(r"(femnist|cifar100)-(\d+)x(\d+)", row)
    assert found is not None, row
    return found[1], int(found[2]), int(found[3])


# --- Table 6: noise and pruning on the gradient of every example, against attackers who know it and who do
# not.
#
# The appendix is not in our text; its settings are in the authors' code.


DEFENCES_ROWS = ("femnist-10x5", "femnist-5x5", "femnist-1x5")
TRIED = ("dlf", "fedsgd-inversion")
DEFENCES: dict[str, dict[str, Any]] = {
    "none": {"name": "none"},
    "gaussian-0.01": {"name": "gaussian-noise", "scale": 0.01, "at": "gradients"},
    "gaussian-0.03": {"name": "gaussian-noise", "scale": 0.03, "at": "gradients"},
    "laplace-0.01": {"name": "laplace-noise", "scale": 0.01, "at": "gradients"},
    "laplace-0.02": {"name": "laplace-noise", "scale": 0.02, "at": "gradients"},
    "pruning-0.2": {"name": "pruning", "share": 0.2, "by": "random", "at": "gradients"},
    "pruning-0.5": {"name": "pruning", "share": 0.5, "by": "random", "at": "gradients"},
}
MILD_AND_STRONG = (
    ("gaussian-0.01", "gaussian-0.03"),
    ("laplace-0.01", "laplace-0.02"),
    ("pruning-0.2", "pruning-0.5"),
)


def title(name: str, defence: str, aware: bool = False) -> str:
    """What a column is called: the attack, the defence, and whether it is known."""
    if defence == "none":
        return name
    return f"{name}, {defence}" + (", aware" if aware else "")


def plan_defences(request: Request, row: str) -> dict[str, Any]:
    """One recipe under all defences."""
    return {
        **federation_of(row, request),
        "defence": [{"label": label, **settings} for label, settings in DEFENCES.items()],
        "attack": [attack(name, row, request) for name in TRIED],
    }


def _columns() -> tuple[Column, ...]:
    found = []
    for name in TRIED:
        for defence in DEFENCES:
            for aware in (None,) if defence == "none" else (False, True):
                called, told = ATTACKS[name], title(name, defence, bool(aware))
                found += [
                    Column(
                        attack=name, metric=metric, title=told, called=called, defence=defence, aware=aware
                    )
                    for metric in METRICS
                ]
    return tuple(found)


DEFENDED = Reproduction(
    name="dlf-defences",
    shows="What noise and pruning on single gradients leave of the images that one FedAvg update gives away.",
    paper=paper("Table 6 (Appendix B)"),
    rows=DEFENCES_ROWS,
    small_rows=("femnist-1x5",),
    columns=_columns(),
    differences=(
        *(
            Difference(left="dlf", right=title("dlf", strong), expected="above")
            for _, strong in MILD_AND_STRONG
        ),
        *(
            Difference(left=title("dlf", mild), right=title("dlf", strong), expected="above")
            for mild, strong in MILD_AND_STRONG
        ),
        *(
            Difference(left=title("dlf", strong, True), right=title("dlf", strong))
            for _, strong in MILD_AND_STRONG
        ),
    ),
    plan=plan_defences,
    why=f"{STAND_IN}; the authors' noise is the same in every epoch and for all tensors of an example, ours is drawn "
    "anew",
)

# --- Quality per step: the paper's attack cut short, and epochs that begin together.


# column -> what it is, share of the steps, share of those in which all epochs hold the same images
WAYS = {
    "dlf": ("all steps", 1.0, 0.0),
    "dlf-half": ("half of the steps", 0.5, 0.0),
    "dlf-quarter": ("a quarter of the steps", 0.25, 0.0),
    "together-half": ("half of the steps, epochs begin together", 0.5, 0.5),
    "together-quarter": ("a quarter of the steps, epochs begin together", 0.25, 0.5),
}
ITERATIONS_ROWS = ("femnist-5x5", "femnist-10x10", "femnist-10x5")


def plan_iterations(request: Request, row: str) -> dict[str, Any]:
    """The same federation as the row of table 1, attacked with fewer and fewer steps."""
    attacks = []
    for label, (_, share, together) in WAYS.items():
        whole = attack("dlf", row, request, label=label, together=together)
        attacks.append(whole | {"steps": round(whole["steps"] * share)})
    return {**federation_of(row, request), "attack": attacks}


ITERATIONS = Reproduction(
    name="dlf-iterations",
    shows="What fewer steps cost, and that epochs which begin together need fewer of them.",
    paper=paper(NO_TABLE, trend="400 steps, always"),
    rows=ITERATIONS_ROWS,
    small_rows=ITERATIONS_ROWS[:1],
    columns=columns_of({name: words for name, (words, _, _) in WAYS.items()}, METRICS),
    differences=(
        Difference(left="together-half", right="dlf"),
        Difference(left="together-quarter", right="dlf"),
        Difference(left="together-half", right="dlf-half"),
        Difference(left="dlf", right="dlf-half"),
    ),
    plan=plan_iterations,
    why=f"the paper has no such table; {STAND_IN}",
)

# --- Table 8: whether the labels of every batch are known, and whether the client keeps its order over the
# epochs.


SHUFFLE = {"random": "epoch", "static": "once"}
COLUMNS = {
    "counts-known": "label counts known",
    "batches-known": "labels of every batch known",
    "shared-counts-known": "Shared, label counts known",
    "shared-batches-known": "Shared, labels of the first epoch's batches known",
}
ORDER_ROWS = tuple(f"{data}-10x5-{order}" for data in ("femnist", "cifar100") for order in SHUFFLE)


def plan_order(request: Request, row: str) -> dict[str, Any]:
    """One order of the client; with and without knowledge of its batches."""
    batches = (*KNOWN_COUNTS, "batch-labels")
    attacks = [
        attack("dlf", row, request, label="counts-known"),
        attack("dlf", row, request, label="batches-known", grants=batches),
        attack("shared-simulation", row, request, label="shared-counts-known"),
        attack("shared-simulation", row, request, label="shared-batches-known", grants=batches),
    ]
    shuffle = SHUFFLE[row.rpartition("-")[2]]
    return {**federation_of(row, request, shuffle=shuffle), "attack": attacks}


ORDERED = Reproduction(
    name="dlf-order",
    shows="How much the attack gains from knowing the labels of every batch, and from a client that keeps its order.",
    paper=paper("Table 8 (Appendix B.3)"),
    rows=ORDER_ROWS,
    small_rows=ORDER_ROWS[:2],
    columns=columns_of(COLUMNS, METRICS),
    differences=(
        Difference(left="batches-known", right="counts-known"),
        Difference(left="shared-batches-known", right="shared-counts-known"),
        Difference(left="counts-known", right="counts-known", rows=(ORDER_ROWS[1], ORDER_ROWS[0])),
        Difference(left="batches-known", right="batches-known", rows=(ORDER_ROWS[1], ORDER_ROWS[0])),
    ),
    plan=plan_order,
    why=f"{STAND_IN}; with shared images the labels of the first epoch's batches serve all epochs, the authors' code "
    "replays the order of every epoch; their script has no CIFAR-100",
)

# --- Table 1: five attacks on FedAvg updates when the counts of the labels are known.


TABLE1_NUMBERS = published("""
femnist-1x5    42.3/19.7 42.3/19.7 42.3/19.7 37.7/19.5 37.7/19.5
femnist-5x5    63.1/21.2 56.2/20.7 59.0/20.6 56.1/20.4 13.7/17.4
femnist-10x10  63.8/21.3 58.5/20.9 62.0/20.7 60.2/20.6 11.8/17.2
femnist-10x5   65.5/21.5 50.6/20.3 59.9/20.3 56.0/19.6  8.3/16.7
femnist-10x1   49.5/20.1 21.5/16.7 14.9/16.1  1.6/4.5   5.2/16.6
cifar100-1x5    9.1/16.2  9.1/16.2  9.1/16.2  7.7/16.1  7.7/16.1
cifar100-5x5   55.2/19.2 53.0/19.1 10.8/16.4 10.9/16.3  1.2/14.2
cifar100-10x10 62.7/20.3 60.1/20.0 23.8/17.2 26.2/17.4  0.6/13.8
cifar100-10x5  58.8/19.8 56.4/19.6 15.7/16.4  8.5/15.0  0.4/13.2
cifar100-10x1  12.2/15.4 11.0/15.2  0.4/12.5  0.0/8.9   1.3/12.8
""")


def plan_table1(request: Request, row: str) -> dict[str, Any]:
    """One row: local epochs x batch size on one data set."""
    return {**federation_of(row, request), "attack": [attack(name, row, request) for name in ATTACKS]}


TABLE1 = Reproduction(
    name="dlf-table1",
    shows="How many images of a client each attack rebuilds from one FedAvg update when label counts are known.",
    paper=paper("Table 1", TABLE1_NUMBERS),
    rows=ROWS,
    small_rows=("femnist-1x5", "femnist-5x5", "cifar100-1x5"),
    columns=columns(),
    differences=(
        *ORDER,
        *(
            Difference(
                left="fedsgd-inversion",
                right="fedsgd-inversion",
                rows=(f"{data}-1x5", f"{data}-{other}"),
                expected="above",
            )
            for data in ("femnist", "cifar100")
            for other in ("5x5", "10x10", "10x5")
        ),
    ),
    plan=plan_table1,
    why=STAND_IN,
)

# --- Table 2: how many of a client's 50 labels are told wrong from one FedAvg update.
#
# Beside the paper's two data sets stand real writers of digits, who hold labels unevenly: in the stand-in
# for FEMNIST no writer has a character twice. Nothing is held out, so that no client is lost; the public
# share, which only the floor sees, is small. The small scale has all clients too, but 300 dummies in place
# of 3,000: of 16 clients that were tried with both (5 epochs, batches of 5), 14 had the same counts, and
# the other two differed in one label.


TABLE2_ATTACKS = {
    "labels-dlf": "Ours",
    "labels-geng-start": "Geng at the start",
    "labels-geng-end": "Geng at the end",
    "labels-dlf-bias": "",
    "labels-ilrg": "",
    "labels-idlg": "",
}
TABLE2_ROWS = tuple(f"{data}-{recipe}" for data in ("mnist", "femnist", "cifar100") for recipe in RECIPES)
TABLE2_PRINTED = """
femnist-1x5     3.4 2.01   3.2 1.84   3.6 2.07
femnist-5x5     3.4 2.10   7.8 6.77   3.2 1.92
femnist-10x10   3.2 1.94   8.2 7.06   3.2 1.96
femnist-10x5    5.2 2.98   9.2 4.35   5.2 3.55
femnist-10x1   14.0 6.28  15.4 4.73  13.3 6.35
cifar100-1x5    4.2 1.41   3.9 1.30   4.6 1.55
cifar100-5x5    3.2 1.24   7.6 1.83   2.5 1.09
cifar100-10x10  2.8 1.22   8.1 1.84   2.0 0.86
cifar100-10x5   4.9 1.57  12.2 1.96   5.2 1.45
cifar100-10x1   8.1 1.77  10.2 1.95  15.7 3.48
"""


def published_table2(text: str) -> dict[str, dict[str, dict[str, tuple[float, float]]]]:
    """Lines of a row's name, then mean and spread of the paper's three columns."""
    found = {}
    for line in text.strip().splitlines():
        row, *cells = line.split()
        pairs = [(float(mean), float(spread)) for mean, spread in zip(cells[::2], cells[1::2], strict=True)]
        found[row] = {name: {"label_error": pair} for name, pair in zip(TABLE2_ATTACKS, pairs, strict=False)}
    return found


def data_of(name: str) -> dict[str, Any]:
    """All clients that the data set gives, of 50 images each (a few writers of digits have one or two fewer)."""
    plain = {"limit": IMAGES, "holdout": 0.0}
    if name == "mnist":
        return {"name": "mnist-by-writer", "clients": 200, "partition": "as-given", "public": 0.01, **plain}
    if name == "cifar100":
        return {"name": "cifar100", "clients": 22, "public": 0.015, **plain}
    if handwriting()["name"] == "femnist":
        return handwriting()
    return {"name": "femnist-like", "clients": 55, "partition": "as-given", "public": 0.05, **plain}


def plan_table2(request: Request, row: str) -> dict[str, Any]:
    """One row: local epochs x batch size on one data set, the first of its clients attacked."""
    name, _, recipe = row.partition("-")
    epochs, batch = map(int, recipe.split("x"))
    data = data_of(name)
    targets = request.pick_clients(small=data["clients"], paper=data["clients"], most=data["clients"])
    return {
        "seeds": request.pick_seeds(),
        "data": data,
        "model": {"name": "cnn-cifar" if name == "cifar100" else "cnn-femnist"},
        "federation": {"rounds": 1, "epochs": epochs, "batch_size": batch, "learning_rate": 0.004},
        "attack": [{**attack, "targets": targets} for attack in attacks(300 if request.is_small else 3000)],
    }


def attacks(samples: int) -> list[dict[str, Any]]:
    """The columns with so many dummies; the second form of DLF's formula, from the bias, is ours."""
    formula = [{"name": name, "samples": samples} for name in tuple(TABLE2_ATTACKS)[:3]]
    bias = {"name": "labels-dlf", "label": "labels-dlf-bias", "source": "bias", "samples": samples}
    return [*formula, bias, {"name": "labels-ilrg"}, {"name": "labels-idlg"}]


TABLE2 = Reproduction(
    name="dlf-table2",
    shows="How many of a client's labels are told wrong from one FedAvg update.",
    paper=paper("Table 2", published_table2(TABLE2_PRINTED)),
    rows=TABLE2_ROWS,
    columns=tuple(
        Column(attack=name, metric="label_error", called=called) for name, called in TABLE2_ATTACKS.items()
    ),
    differences=(
        Difference(left="labels-dlf", right="labels-geng-start", expected="below"),
        Difference(left="labels-dlf", right="labels-geng-end", expected="below"),
        Difference(left="labels-dlf", right="labels-dlf-bias"),
        Difference(left="labels-dlf", right="labels-ilrg"),
        Difference(left="labels-dlf", right="labels-idlg"),
    ),
    plan=plan_table2,
    why=f"{STAND_IN}; the rows of digits by writer have no counterpart in the paper; its {THEIR_CLIENTS} clients are "
    "FEMNIST writers, who hold some characters several times; errors of the columns that sum rows hang on the one "
    "network that was drawn, since what enters its last layer differs between noise and images (on CIFAR-100 images "
    "bring 1.2 to 1.5 times as much, in four draws of the network); of this table the small scale has only fewer "
    "dummies, 300 in place of 3,000",
)

# --- Table 3: the same attacks end to end, with label counts that are estimated first.


TABLE3_NUMBERS = published("""
femnist-1x5    37.2/19.3 37.2/19.3 37.2/19.3 35.7/19.2 35.7/19.2
femnist-5x5    51.9/20.3 47.5/20.1 40.8/19.5 47.0/19.8 12.5/17.3
femnist-10x10  55.0/20.5 50.0/20.2 45.7/19.7 50.0/19.9 10.6/17.0
femnist-10x5   48.5/20.2 43.0/19.8 43.6/19.3 45.8/19.1  7.2/16.6
femnist-10x1   21.4/18.3 14.5/16.9  7.5/15.2  1.1/3.6   4.7/16.5
cifar100-1x5    5.0/15.7  5.0/15.7  5.0/15.7  4.8/15.7  4.8/15.7
cifar100-5x5   46.7/18.5 45.0/18.3  7.0/15.8  7.7/15.8  0.8/14.1
cifar100-10x10 54.3/19.4 52.0/19.1 15.1/16.5 18.8/16.7  0.5/13.7
cifar100-10x5  46.0/18.5 43.2/18.2  8.7/15.7  8.1/14.9  0.6/13.1
cifar100-10x1   6.7/14.7  5.7/14.6  0.4/11.9  0.1/9.0   1.4/12.7
""")
ESTIMATED: dict[str, Any] = {"grants": ("recipe", "examples"), "labels": {"name": "labels-dlf"}}


def plan_table3(request: Request, row: str) -> dict[str, Any]:
    """One row; every attack starts from the counts of labels-dlf, class by class as the authors' code has them."""
    attacks = [attack(name, row, request, **ESTIMATED) for name in ATTACKS]
    return {**federation_of(row, request), "attack": attacks}


TABLE3 = Reproduction(
    name="dlf-table3",
    shows="How many images each attack rebuilds when it has to find the label counts first.",
    paper=paper("Table 3", TABLE3_NUMBERS),
    rows=ROWS,
    small_rows=("femnist-1x5", "femnist-5x5"),
    columns=columns(),
    differences=ORDER,
    plan=plan_table3,
    why=STAND_IN,
)

# --- Section 5.5: the images of single epochs against their matched average.


AVERAGES = {"matched": "matched and averaged", "plain": "averaged as they come", "none": "first epoch alone"}
AVERAGING_ROWS = tuple(
    f"{data}-10x5{ending}" for data in ("femnist", "cifar100") for ending in ("", "-end-to-end")
)


def plan_averaging(request: Request, row: str) -> dict[str, Any]:
    """The same attack with its epochs put together in three ways, counts known or estimated."""
    more = ESTIMATED if row.endswith("-end-to-end") else {}
    attacks = [attack("dlf", row, request, label=name, average=name, **more) for name in AVERAGES]
    return {**federation_of(row, request), "attack": attacks}


AVERAGED = Reproduction(
    name="dlf-averaging",
    shows="That images of single epochs become better when they are matched and averaged.",
    paper=paper(
        "Section 5.5 and Figure 3",
        trend="single epochs are noisy, and the average is significantly better than any of them",
    ),
    rows=AVERAGING_ROWS,
    small_rows=AVERAGING_ROWS[:1],
    columns=columns_of(AVERAGES, METRICS),
    differences=(
        Difference(left="matched", right="none", expected="above"),
        Difference(left="matched", right="plain"),
    ),
    plan=plan_averaging,
    why=STAND_IN,
)

# --- Table 4: eight priors that draw the epochs together, at 10 local epochs of batches of 5.


PRIORS = {
    "l1-mean": "mean, l1",
    "l1-mean-conv": "conv + mean, l1",
    "l1-max": "max, l1",
    "l1-max-conv": "conv + max, l1",
    "l2-mean": "mean, l2",
    "l2-mean-conv": "conv + mean, l2",
    "l2-max": "max, l2",
    "l2-max-conv": "conv + max, l2",
}
TABLE4_PRINTED = {
    "femnist-10x5": (
        (61.6, 21.2), (61.5, 21.2), (36.8, 19.2), (56.0, 20.7),
        (65.5, 21.5), (64.4, 21.4), (39.6, 19.4), (63.6, 21.2),
    ),
    "cifar100-10x5": (
        (55.1, 19.5), (56.0, 19.6), (56.9, 19.6), (58.0, 19.8),
        (56.0, 19.5), (56.3, 19.6), (56.0, 19.6), (58.8, 19.8),
    ),
}  # fmt: skip
TABLE4_NUMBERS = {
    row: {prior: {"rec": rec / 100, "psnr": psnr} for prior, (rec, psnr) in zip(PRIORS, printed, strict=True)}
    for row, printed in TABLE4_PRINTED.items()
}


def plan_table4(request: Request, row: str) -> dict[str, Any]:
    """One data set, with every prior at the authors' weight for it."""
    attacks = [attack("dlf", row, request, label=prior, prior=prior) for prior in PRIORS]
    return {**federation_of(row, request), "attack": attacks}


TABLE4 = Reproduction(
    name="dlf-table4",
    shows="Which prior over the epochs of a client helps the attack most.",
    paper=paper("Table 4", TABLE4_NUMBERS),
    rows=tuple(TABLE4_PRINTED),
    small_rows=("femnist-10x5",),
    columns=columns_of(PRIORS, METRICS),
    differences=(
        Difference(left="l2-mean", right="l2-max", expected="above"),
        Difference(left="l2-mean", right="l1-mean", expected="above"),
        Difference(left="l2-max-conv", right="l2-max", expected="above"),
        Difference(left="l2-mean", right="l2-max-conv"),
    ),
    plan=plan_table4,
    why=STAND_IN,
)

# --- Table 7: networks that were trained for 5 and 10 rounds before the attack.


TRAINERS = 10  # clients of every round
RECIPE = "femnist-10x5"
TRAINED_ROWS = tuple(f"{RECIPE}-after-{rounds}" for rounds in (0, 5, 10))


def plan_trained(request: Request, row: str) -> dict[str, Any]:
    """The last of the rounds is attacked; the same clients train in all of them."""
    before = int(re.findall(r"\d+$", row)[0])
    content = federation_of(row, request, rounds=before + 1)
    attacks = [attack(name, row, request) for name in ATTACKS]
    content["data"]["clients"] = TRAINERS
    attacks = [{**one, "rounds": [before], "targets": min(TRAINERS, one["targets"])} for one in attacks]
    return {**content, "attack": attacks}


TRAINED = Reproduction(
    name="dlf-trained",
    shows="What is left of the attacks once the network has been trained for 5 and 10 rounds.",
    paper=paper("Table 7 (Appendix B)"),
    rows=TRAINED_ROWS,
    small_rows=(TRAINED_ROWS[0], TRAINED_ROWS[1]),
    columns=columns(),
    differences=(
        Difference(left="dlf", right="fedsgd-inversion"),
        Difference(left="dlf", right="dlf", rows=(TRAINED_ROWS[0], TRAINED_ROWS[1])),
        Difference(left="dlf", right="dlf", rows=(TRAINED_ROWS[0], TRAINED_ROWS[2])),
    ),
    plan=plan_trained,
    why=f"{STAND_IN}; the same {TRAINERS} clients train in every round and are attacked, the authors draw new ones",
)
