"""The tables and figures of Driouich et al. (LMRA), "Local Model Reconstruction Attacks in Federated Learning".

Ten clients train for 1,000 rounds at a learning rate of 0.01 and every tenth round is read, at both scales. The small
scale shrinks data and networks, and the batches with them, so that a client takes as many local steps as in the paper.
BatchNorm statistics are shared here. The paper keeps them with the clients and does not state with which ones it
evaluates models; with the initial ones a model sent labels no record correctly (Leaf, 200 rounds, two clients of seed
100), where the paper reports 70 to 74 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from fedxray.reproduce import base

THEIR_CLIENTS = 10
paper = partial(
    base.Paper,
    title="Driouich, Xu, Neglia, Giroire, Thomas: Local Model Reconstruction Attacks in Federated Learning and their "
    "Uses",
    clients=THEIR_CLIENTS,
)
DATA = ("flights", "adult", "leaf", "att-faces")
RECIPE = {"learning_rate": 0.01, "rounds": 1000, "record": "every-10", "weighting": "uniform"}
# Clients in the order in which they are attacked: the first ones of Adult differ from the others.
ATTACK_ORDER = (0, 5, 3, 8, 1, 6, 4, 9, 2, 7)
# Fit of the heuristic's regressor: of a few settings the one of lowest own loss on Leaf, seed 0.
FIT = {"name": "local-model-heuristic", "fit_steps": 400, "fit_lr": 3e-3}
FOLLOW = {**FIT, "reading": "follow-update", "lr": 0.1, "steps": 300}
# The models of a client and how each is made; `heuristic` is the paper's algorithm as it is written.
MODELS: dict[str, dict[str, Any]] = {
    "global": {"name": "global-model"},
    "last": {"name": "last-returned"},
    "heuristic": {**FIT, "steps": 400},
    "heuristic-span": {**FIT, "steps": 400, "restrict": "span"},
    "heuristic-follow": FOLLOW,
    "heuristic-follow-span": {**FOLLOW, "restrict": "span"},
    "extrapolate-5": {"name": "local-model-extrapolate", "multiple": 5.0},
    "extrapolate-100": {"name": "local-model-extrapolate", "multiple": 100.0},
    "send-back": {"name": "local-model-send-back"},
    "active": {"name": "local-model-active"},
    "optimum": {"name": "local-model-oracle", "steps": 600},
}
# The heuristic with the settings that most clients of a data set have in the paper (Tables 5 to 8; on Leaf nine of ten,
# on faces all, on flights four, on Adult three), in spreads of the models and in units of the parameters. The paper
# does not state the steps of the fit.
PRESET_READINGS = {"heuristic-preset": "norm-descent", "heuristic-raw": "raw"}
PRESETS: dict[str, dict[str, Any]] = {
    "flights": {"hidden": [64, 64], "fit_lr": 1e-5, "steps": 10_000, "lr": 1e-2},
    "adult": {"hidden": [16, 16], "fit_lr": 1e-4, "steps": 1000, "lr": 0.1},
    "leaf": {"hidden": [32, 32], "fit_lr": 1e-4, "steps": 5000, "lr": 1e-2},
    "att-faces": {"hidden": [64, 64], "fit_lr": 1e-4, "steps": 10_000, "lr": 1e-3},
}
ACTIVE = ("send-back", "active")
LBFGS_RATES = {"flights": 1e-3, "adult": 1e-2, "leaf": 5e-3}  # of attributes from gradients (Appendix C.2)
UPDATES: dict[str, Any] = {"name": "source-from-updates", "label": "sia-updates", "controls": ["held-out"]}  # ours
CALLED = {"global": "Global", "last": "Last-returned", "heuristic": "Ours", "optimum": "Optimal"}
LEAF_COLUMNS, FACES = {"small": 20, "paper": 100}, {"small": [40, 35], "paper": [80, 70]}
WHY = (
    "the paper does not state how its optimal local models were trained; their accuracies of 88 to 91 % show that they "
    "do not minimise the training loss, as ours nearly do, so ours are further from every model of the federation"
)
STAND_IN = "Indian flights of six airlines stand in for the private prices, with the class for the journey type"
SMALL_NETWORKS = "the small scale has small networks and few clients' records"


# Data, recipe and attacks


def federation_of(
    data: str,
    request: base.Request,
    *,
    norm: bool = False,
    clients: int | None = None,
    examples: int | None = None,
    **recipe: Any,
) -> dict[str, Any]:
    """Return a plan without its attacks; `examples` caps those of a client, `recipe` changes the federation."""
    hidden = [32] * 3 if data == "att-faces" else [16 if request.is_small else 256] * 3
    divided = dict(_data(data, request))
    divided |= {"clients": clients} if clients is not None else {}
    divided |= {"limit": examples} if examples is not None else {}
    return {
        "seeds": request.pick_seeds(),
        "data": divided,
        "model": {"name": "mlp", "hidden": hidden, "norm": "batch" if norm else "none"},
        "federation": {**RECIPE, "batch_size": batch_size(data, request), **recipe},
    }


def batch_size(data: str, request: base.Request) -> int:
    """Return the paper's batch size, or at the small scale the same share of a client's examples."""
    if data == "att-faces":
        return 32
    return 64 if request.is_small else 512


def _data(data: str, request: base.Request) -> Mapping[str, Any]:
    """Return a data set and its division; a tenth is held out for controls, and a tenth is public."""
    small = request.is_small
    if data == "leaf":  # so that about 200 or 2,000 examples are left for training
        dims, samples = LEAF_COLUMNS[request.scale], 250 if small else 2500
        named = {"name": "leaf-synthetic", "dims": dims, "samples": samples, "partition": "as-given"}
    elif data == "adult":
        named = {"name": "adult", "partition": "adult-doctorate", "total": 2400 if small else 12_300}
    elif data == "flights":
        named = {"name": "flights", "rows": 2000 if small else 100_000, "partition": "as-given"}
    else:
        named = {"name": "att-faces", "size": FACES[request.scale], "partition": "att-faces"}
    return {**named, "clients": 6 if data == "flights" else THEIR_CLIENTS, "holdout": 0.1, "public": 0.1}


def targets(data: str, request: base.Request, *, small: int = 3) -> list[int]:
    """Return the attacked clients; fewer of them are always among more."""
    most = 6 if data == "flights" else THEIR_CLIENTS
    count = request.pick_clients(small=small, paper=THEIR_CLIENTS, most=most)
    return sorted([client for client in ATTACK_ORDER if client < most][:count])


def models(labels: Iterable[str], clients: list[int]) -> list[dict[str, Any]]:
    """Return the attacks that give a model of the client; controls would repeat them, so they have none."""
    return [{**MODELS[label], "label": label, "targets": clients, "controls": [], **_role(label)} for label in labels]


def presets(data: str, clients: list[int]) -> list[dict[str, Any]]:
    """Return the heuristic with the paper's own settings for this data set."""
    named = {"name": "local-model-heuristic", "fit_steps": 3000, **PRESETS[data], "targets": clients, "controls": []}
    return [{**named, "reading": reading, "label": label} for label, reading in PRESET_READINGS.items()]


def attributes(labels: Sequence[str], clients: list[int]) -> list[dict[str, Any]]:
    """Return attribute inference on these models, by the squared distance of the prediction as in Eq. 3."""
    named = {"name": "attribute-from-model", "criterion": "squared", "controls": ["held-out", "global-model"]}
    return [{**_on_model(label, "aia", clients), **named} for label in labels]


def sources(labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return source inference by a vote over all rounds (the baseline) and on these models, about all clients at once.

    The optimum is an oracle: a model that is fitted to every client's records.
    """
    majority = {"name": "source-majority", "label": "sia-majority", "targets": "all", "controls": ["held-out"]}
    attacks = [{**_on_model(label, "sia", "all"), "name": "source-from-model"} for label in labels]
    more = {"sia-last": {"controls": ["held-out"]}, "sia-optimum": {"grants": ["source-records", "oracle-groups"]}}
    return [majority, *({**settings, **more.get(settings["label"], {})} for settings in attacks)]


def class_images(labels: Sequence[str], clients: list[int]) -> list[dict[str, Any]]:
    """Return one image per class from these models (Eq. 5)."""
    named = {"name": "model-inversion", "controls": ["held-out"]}
    return [{**_on_model(label, "sra", clients), **named} for label in labels]


def gradient_attributes(clients: list[int]) -> dict[str, Any]:
    """Return the baseline of attribute inference on updates (Eq. 2), in closed form."""
    return {"name": "attribute-from-gradients", "label": "aia-gradients", "targets": clients, "controls": []}


def searched_attributes(data: str, clients: list[int]) -> dict[str, Any]:
    """Return that baseline by L-BFGS with the paper's learning rate."""
    searched = {"method": "l-bfgs", "learning_rates": [LBFGS_RATES[data]], "label": "aia-gradients-lbfgs"}
    return {**gradient_attributes(clients), **searched}


def gradient_images(clients: list[int], request: base.Request) -> dict[str, Any]:
    """Return the baseline of sample reconstruction on updates (Eq. 4)."""
    steps = 200 if request.is_small else 2400
    named = {"name": "inverting-gradients", "label": "sra-gradients", "steps": steps, "at": "last"}
    return {**named, "targets": clients, "controls": []}


def _on_model(label: str, prefix: str, clients: list[int] | str) -> dict[str, Any]:
    common = {"model": MODELS[label], "label": f"{prefix}-{label}", "targets": clients, "controls": []}
    return {**common, **_role(label)}


def _role(label: str) -> dict[str, str]:
    return {"role": "active-server"} if label in ACTIVE else {}


# Columns, differences and printed numbers


def columns(labels: Sequence[str], metrics: Sequence[str], prefix: str = "") -> tuple[base.TableColumn, ...]:
    """Return columns for models, or for attacks on them with a prefix, each with the paper's name."""
    return base.columns_of({f"{prefix}{label}": CALLED.get(label, "") for label in labels}, metrics)


def all_columns(
    guessed: Sequence[str], used: Sequence[str], shown: Sequence[str], traced: Sequence[str]
) -> tuple[base.TableColumn, ...]:
    """Return columns for models, and for attributes, images and sources from models and by the baselines."""
    return (
        *columns(guessed, ("zest", "training_loss", "training_accuracy")),
        *base.columns_of({"aia-gradients": "SOTA"}, ("accuracy",)),
        *columns(used, ("accuracy",), "aia-"),
        *base.columns_of({"sra-gradients": "SOTA"}, ("ssim",)),
        *columns(shown, ("class_ssim",), "sra-"),
        *base.columns_of({"sia-majority": "SOTA"}, ("accuracy",)),
        *columns(traced, ("accuracy",), "sia-"),
    )


def beats(left: str, *rights: str, metrics: tuple[str, ...] = ()) -> tuple[base.Difference, ...]:
    """Return the paper's finding that one column is above others."""
    return base.compare(*((left, right) for right in rights), metrics=metrics, expected="above")


def percent(metric: str) -> Callable[[str], Mapping[str, base.Number]]:
    """Return a reader of printed cells with one number in percent."""
    return lambda cell: {metric: float(cell) / 100}


def together(*parts: Mapping[str, Mapping[str, Mapping[str, base.Number]]]) -> dict[str, dict[str, Any]]:
    """Return the numbers of several parts of a table, by row and column."""
    merged: dict[str, dict[str, Any]] = {}
    for part in parts:
        for row, cells in part.items():
            for name, numbers in cells.items():
                merged.setdefault(row, {}).setdefault(name, {}).update(numbers)
    return merged


# Table 1: the models of a client beside its own, and the attributes, sources and images they reveal

TABLE1_ROWS = tuple(f"{data}{norm}" for norm in ("", "-bn") for data in DATA)
TABLE1_GUESSED = (*MODELS, *PRESET_READINGS)
TABLE1_USED = (
    "global",
    "last",
    "heuristic",
    "heuristic-follow-span",
    "extrapolate-100",
    "send-back",
    "active",
    "optimum",
)
# One model for all cannot distinguish clients, and the oracle holds the records of one client alone.
TABLE1_TRACED = tuple(name for name in TABLE1_USED if name != "global")
TABLE1_SHOWN = ("global", "last", "heuristic", "optimum")
TABLE1_NUMBERS = together(
    base.published(
        """
flights      71.4 70.7 84.2
adult        70.7 68.6 88.4
leaf         67.3 65.3 78.2
att-faces    52.8 55.2 57.3
flights-bn   61.5 63.3 79.1
adult-bn     63.2 61.5 83.4
leaf-bn      60.7 60.1 74.5
att-faces-bn 50.2 51.6 55.9
""",
        ("global", "last", "heuristic"),
        percent("zest"),
    ),
    base.published(
        """
flights      73.1 70.7 70.2 77.8
adult        67.6 61.3 62.1 73.1
leaf         66.3 61.1 60.6 71.1
flights-bn   71.9 70.3 68.6 74.2
adult-bn     64.1 60.1 59.6 70.6
leaf-bn      62.9 56.1 57.8 68.9
""",
        ("aia-gradients", "aia-global", "aia-last", "aia-heuristic"),
        percent("accuracy"),
    ),
    base.published("att-faces 26.1\natt-faces-bn 24.1", ("sra-gradients",), percent("ssim")),
    base.published(
        "att-faces 25.5 24.3 34.3\natt-faces-bn 23.6 23.7 33.2",
        ("sra-global", "sra-last", "sra-heuristic"),
        percent("class_ssim"),
    ),
    base.published(
        """
flights      82.1 64.4 84.3
adult        77.6 61.0 79.4
leaf         77.4 61.4 79.3
att-faces    58.9 52.3 63.8
flights-bn   80.7 59.7 81.3
adult-bn     75.1 60.5 78.6
leaf-bn      74.6 59.3 77.9
att-faces-bn 57.1 50.8 61.6
""",
        ("sia-majority", "sia-last", "sia-heuristic"),
        percent("accuracy"),
    ),
)


def plan_table1(request: base.Request, row: str) -> dict[str, Any]:
    """Return the plan of one data set, with or without BatchNorm."""
    data = row.removesuffix("-bn")
    chosen = targets(data, request)
    if data == "att-faces":
        few = chosen[:1] if request.is_small else chosen
        inner = [gradient_images(few, request), *class_images(TABLE1_SHOWN, chosen)]
    else:
        gradients = [gradient_attributes(chosen), searched_attributes(data, chosen)]
        inner = [*gradients, *attributes(TABLE1_USED, chosen)]
    attacks = [*models(MODELS, chosen), *presets(data, chosen), *inner, *sources(TABLE1_TRACED), UPDATES]
    return {**federation_of(data, request, norm=row.endswith("-bn")), "attack": attacks}


TABLE1 = base.Reproduction(
    name="lmra-table1",
    shows="How similar each guess is to a client's own model, and which attributes, sources and images it reveals.",
    paper=paper(place="Table 1", numbers=TABLE1_NUMBERS),
    rows=TABLE1_ROWS,
    small_rows=("leaf", "adult"),
    columns=(
        *all_columns(TABLE1_GUESSED, TABLE1_USED, TABLE1_SHOWN, TABLE1_TRACED),
        base.TableColumn(attack="aia-gradients-lbfgs", metric="accuracy"),
        base.TableColumn(attack=UPDATES["label"], metric="accuracy"),
    ),
    differences=(
        *beats("heuristic", "global", "last", metrics=("zest",)),
        *base.compare(
            ("heuristic", "extrapolate-100"), *((label, "last") for label in PRESET_READINGS), metrics=("zest",)
        ),
        *beats("aia-heuristic", "aia-gradients", "aia-global", "aia-last"),
        *beats("sra-heuristic", "sra-global", "sra-last"),
        *beats("sia-heuristic", "sia-majority", "sia-last"),
        *base.compare(("aia-gradients-lbfgs", "aia-gradients"), ("aia-heuristic", "aia-gradients-lbfgs")),
        *base.compare(("sia-updates", "sia-majority"), ("sia-updates", "sia-optimum")),
    ),
    plan=plan_table1,
    why=f"{WHY}; {STAND_IN}; {SMALL_NETWORKS}",
)


# Figure 1: faces from a reconstructed, a returned and the global model, and from an update
#
# Every row is an audit with its own report; the report shows the images beside the first picture of each person.

IMAGES_SHOWN = ("global", "last", "heuristic", "extrapolate-5", "send-back", "active", "optimum")
IMAGES_BATCHES = {"att-faces": 32, "att-faces-64": 64}  # Figure 1, and the figure of Appendix D.2


def plan_images(request: base.Request, row: str) -> dict[str, Any]:
    """Return the plan of one batch size."""
    chosen = targets("att-faces", request, small=2)
    baseline = gradient_images(chosen[:1] if request.is_small else chosen, request)
    attacks = [baseline, *class_images(IMAGES_SHOWN, chosen)]
    return {**federation_of("att-faces", request, batch_size=IMAGES_BATCHES[row]), "attack": attacks}


IMAGES_NUMBERS = {name: numbers for name, numbers in TABLE1_NUMBERS["att-faces"].items() if name.startswith("sra-")}
IMAGES = base.Reproduction(
    name="lmra-images",
    shows="Which faces a client's models and one update reveal.",
    paper=paper(place="Figure 1 and Table 1 (SRA)", numbers={"att-faces": IMAGES_NUMBERS}),
    rows=tuple(IMAGES_BATCHES),
    small_rows=("att-faces",),
    columns=(
        *base.columns_of({"sra-gradients": "SOTA"}, ("ssim",)),
        *columns(IMAGES_SHOWN, ("class_ssim", "class_psnr"), "sra-"),
    ),
    differences=(
        *beats("sra-heuristic", "sra-global", "sra-last", metrics=("class_ssim",)),
        *base.compare(
            *((f"sra-{label}", "sra-last") for label in IMAGES_SHOWN if label not in TABLE1_SHOWN[:3]),
            metrics=("class_ssim",),
        ),
    ),
    plan=plan_images,
    why=f"{WHY}; the paper does not state which picture of a person a reconstruction is compared with, here it is each "
    "of the client's in turn and the mean counts",
)


# Figures 2, 3, 4, 6 and 7: the attacks by the number of clients, batches, epochs and records
#
# The figures are drawings, so only what the text says about them is compared.

Values = Mapping[str, tuple[int, ...]]  # data set -> values of the parameter
CLIENTS_VALUES: Values = {"leaf": (10, 20, 40, 100), "att-faces": (10, 20, 40)}
BATCH_VALUES: Values = {**dict.fromkeys(("leaf", "adult", "flights"), (32, 128, 512, 2000)), "att-faces": (4, 16, 64)}
EPOCHS_VALUES: Values = {**dict.fromkeys(("leaf", "adult", "flights"), (1, 2, 5, 10)), "att-faces": (1, 5, 10)}
# Pairs of rows at the small scale.
SMALL_BATCHES = (("leaf-128", "leaf-2000"), ("flights-128", "flights-2000"), ("att-faces-16", "att-faces-64"))
SMALL_EPOCHS = (("leaf-1", "leaf-5"), ("flights-1", "flights-5"), ("att-faces-1", "att-faces-5"))
SMALL_CLIENTS = (("leaf-10", "leaf-20"),)
RECORDS_VALUES: Values = {"leaf": (64, 256, 1024, 2000), "adult": (64, 256, 1024), "flights": (64, 256, 1024)}
SMALL_RECORDS = tuple((f"{data}-64", f"{data}-1024") for data in RECORDS_VALUES)
SHRINK = 8  # of batches and records at the small scale, as that of the data
FIGURES_GUESSED = ("global", "last", "heuristic", "extrapolate-100", "active")
FIGURES_USED = ("global", "last", "heuristic", "active")
FIGURES_SHOWN = ("global", "last", "heuristic")
FIGURES_TRACED = ("last", "heuristic")
FIGURES_COLUMNS = all_columns(FIGURES_GUESSED, FIGURES_USED, FIGURES_SHOWN, FIGURES_TRACED)
FIGURES_ORDER = (
    *beats("heuristic", "global", "last", metrics=("zest",)),
    *beats("aia-heuristic", "aia-gradients"),
    *beats("sia-heuristic", "sia-majority"),
    *beats("sra-heuristic", "sra-last"),
)


def rows_of(values: Values) -> tuple[str, ...]:
    """Return all rows of a figure, as data-VALUE."""
    return tuple(f"{data}-{value}" for data, row in values.items() for value in row)


def between(
    columns: str | Sequence[str], values: Values, small: Sequence[tuple[str, str]] = (), **options: Any
) -> tuple[base.Difference, ...]:
    """Return columns at the first value against the last one, and of the small scale's pairs of rows.

    Columns on images are compared on faces, the others on tables.
    """
    ends = [(f"{data}-{row[0]}", f"{data}-{row[-1]}") for data, row in values.items()]
    pairs = list(dict.fromkeys([*ends, *small]))
    return tuple(
        difference
        for column in ([columns] if isinstance(columns, str) else columns)
        for difference in base.compare_rows(
            column, *(pair for pair in pairs if pair[0].startswith("att-faces") == column.startswith("sra")), **options
        )
    )


def plan_figure(request: base.Request, data: str, **changes: Any) -> dict[str, Any]:
    """Return one data set: on tables models, attributes and sources, on faces models and images of classes."""
    chosen = targets(data, request, small=2)
    if data == "att-faces":
        few = chosen[:1] if request.is_small else chosen
        attacks = [*models(FIGURES_SHOWN, chosen), gradient_images(few, request), *class_images(FIGURES_SHOWN, chosen)]
    else:
        attacks = [
            *models(FIGURES_GUESSED, chosen),
            gradient_attributes(chosen),
            *attributes(FIGURES_USED, chosen),
            *sources(FIGURES_TRACED),
        ]
    return {**federation_of(data, request, **changes), "attack": attacks}


def plan_batch_size(request: base.Request, data: str, *, batch: int) -> dict[str, Any]:
    """Return one batch size; the small scale has an eighth of it in tables."""
    size = batch // SHRINK if request.is_small and data != "att-faces" else batch
    return plan_figure(request, data, batch_size=size)


def plan_dataset_size(request: base.Request, data: str, *, examples: int) -> dict[str, Any]:
    """Return one number of examples of every client, nested; batches of 256 or of all that there are."""
    size, batch = (examples // SHRINK, 256 // SHRINK) if request.is_small else (examples, 256)
    chosen = targets(data, request, small=2)
    federation = federation_of(data, request, examples=size, batch_size=min(batch, size))
    return {**federation, "attack": [gradient_attributes(chosen), *attributes(FIGURES_USED, chosen)]}


DATASET_SIZE = base.Reproduction(
    name="lmra-dataset-size",
    shows="How attribute inference depends on the number of records of a client.",
    paper=paper(
        place="Figure 2",
        trend="attributes from gradients fall from 73 to 58 % on Leaf, from 77 to 61 % on Adult and from 76 to 62 % on "
        "flights as clients hold more records, attributes from reconstructed models are stable",
    ),
    rows=rows_of(RECORDS_VALUES),
    small_rows=tuple(row for pair in SMALL_RECORDS for row in pair),
    columns=(*base.columns_of({"aia-gradients": "SOTA"}, ("accuracy",)), *columns(FIGURES_USED, ("accuracy",), "aia-")),
    differences=(
        *beats("aia-heuristic", "aia-gradients"),
        *base.compare_rows("aia-gradients", *SMALL_RECORDS, expected="above"),
        *base.compare_rows("aia-heuristic", *SMALL_RECORDS),
    ),
    plan=base.sweep(plan_dataset_size, "examples"),
    why=f"{WHY}; rows are named after the paper's scale, the small one divides records by {SHRINK}",
)
CLIENTS = base.Reproduction(
    name="lmra-clients",
    shows="How the attacks depend on the number of clients.",
    paper=paper(
        place="Figure 4",
        trend="the number of clients has a limited impact; sources and attributes from gradients fall a little",
    ),
    rows=rows_of(CLIENTS_VALUES),
    small_rows=("leaf-10", "leaf-20"),
    columns=FIGURES_COLUMNS,
    differences=(
        *FIGURES_ORDER,
        *between(("sia-majority", "sia-heuristic", "aia-gradients"), CLIENTS_VALUES, SMALL_CLIENTS, expected="above"),
        *between("heuristic", CLIENTS_VALUES, SMALL_CLIENTS, metrics=("zest",)),
        *between(("aia-heuristic", "sra-gradients", "sra-heuristic"), CLIENTS_VALUES, SMALL_CLIENTS),
    ),
    plan=base.sweep(plan_figure, "clients"),
    why=f"{WHY}; the paper duplicates clients of AT&T, here each has fewer people of its own; {STAND_IN}",
)
BATCH_SIZE = base.Reproduction(
    name="lmra-batch-size",
    shows="How the attacks depend on the batch size of the clients.",
    paper=paper(
        place="Figures 3 and 6 (Appendix D.3)",
        trend="larger batches help the local model and attributes from gradients; images from gradients lose 9.2 "
        "points, those from models none",
    ),
    rows=rows_of(BATCH_VALUES),
    small_rows=tuple(row for pair in SMALL_BATCHES for row in pair),
    columns=FIGURES_COLUMNS,
    differences=(
        *FIGURES_ORDER,
        *between("heuristic", BATCH_VALUES, SMALL_BATCHES, metrics=("zest",), expected="below"),
        *between("aia-gradients", BATCH_VALUES, SMALL_BATCHES, expected="below"),
        *between("sra-gradients", BATCH_VALUES, SMALL_BATCHES, expected="above"),
        *between("sra-heuristic", BATCH_VALUES, SMALL_BATCHES),
    ),
    plan=base.sweep(plan_batch_size, "batch"),
    why=f"{WHY}; rows are named after the paper's batches, the small scale divides those of tables by {SHRINK}",
)
EPOCHS = base.Reproduction(
    name="lmra-epochs",
    shows="How the attacks depend on the local epochs of the clients.",
    paper=paper(
        place="Figures 3 and 7 (Appendix D.3)",
        trend="attributes from gradients fall with the epochs, those from reconstructed models do not; "
        "images from gradients lose 5.1 points, those from models none; source inference is insensitive",
    ),
    rows=rows_of(EPOCHS_VALUES),
    small_rows=tuple(row for pair in SMALL_EPOCHS for row in pair),
    columns=FIGURES_COLUMNS,
    differences=(
        *FIGURES_ORDER,
        *between(("aia-gradients", "sra-gradients"), EPOCHS_VALUES, SMALL_EPOCHS, expected="above"),
        *between(("aia-heuristic", "sia-heuristic", "sia-majority", "sra-heuristic"), EPOCHS_VALUES, SMALL_EPOCHS),
    ),
    plan=base.sweep(plan_figure, "epochs"),
    why=WHY,
)


# Table 2: distances of the clients' own models from the global one
#
# The distance to the global model is that of the attack `global`; the next client's own model is its floor.

DISSIMILARITY = (23, 8, 4, 21, 8, 4, 25, 8, 5, 6)  # percent, Table 2
MEAN_DISSIMILARITY = sum(DISSIMILARITY) / len(DISSIMILARITY) / 100
HETEROGENEITY_GUESSED = ("global", "last", "optimum")


def plan_heterogeneity(request: base.Request, row: str) -> dict[str, Any]:
    """Return the plan of one data set."""
    attacks = models(HETEROGENEITY_GUESSED, targets(row, request, small=6))
    return {**federation_of(row, request), "attack": attacks}


HETEROGENEITY = base.Reproduction(
    name="lmra-heterogeneity",
    shows="How far a client's own model is from the global one, and (the floor) from the next client's own.",
    paper=paper(
        place="Table 2 (Appendix C.1)",
        numbers={"flights": {"global": {"parameter_distance": MEAN_DISSIMILARITY}}},
        trend="clients' own models differ from the global one by 4 to 25 % of their norm on Flight Prices",
    ),
    rows=DATA,
    small_rows=("leaf", "adult", "flights"),
    columns=columns(HETEROGENEITY_GUESSED, ("parameter_distance", "zest")),
    plan=plan_heterogeneity,
    why=f"{WHY}; {STAND_IN}; distances of 4 to 25 % suggest own models trained little, or from the global one",
)


# Figure 5: distances of the clients' own models from each other on Adult, whose first three clients hold the doctorates

DOCTORATES = 3


def measure_distances(request: base.Request, row: str) -> list[base.Measured]:
    """Measure the mean distance of the first three clients' optima from the others', and of these from each other."""
    from fedxray.reproduce.measurements import optimum_distances

    plan = federation_of(row, request)
    units: dict[str, list[base.Unit]] = {"doctorates-to-others": [], "others-to-others": []}
    for seed in request.pick_seeds(small=5, paper=5):
        distances = optimum_distances({**plan, "seeds": [seed]}, seed)
        for name, pairs in units.items():
            own = range(DOCTORATES) if name.startswith("doctorates") else range(DOCTORATES, THEIR_CLIENTS)
            far = [distances[i][j] for i in own for j in range(DOCTORATES, THEIR_CLIENTS) if i != j]
            pairs.append(base.Unit(seed=seed, client=None, value=sum(far) / len(far)))
    return [
        base.Measured(column=name, metric="parameter_distance", units=tuple(values)) for name, values in units.items()
    ]


DISTANCES = base.Reproduction(
    name="lmra-distances",
    shows="How far the optimal models of clients that hold doctorates are from those of the other clients.",
    paper=paper(
        place="Figure 5 (Appendix C.1)",
        trend="the optimal models of the first three clients, which hold the doctorates, are far from the others'",
    ),
    rows=("adult",),
    columns=base.columns_of(dict.fromkeys(("doctorates-to-others", "others-to-others"), ""), ("parameter_distance",)),
    differences=base.compare(("doctorates-to-others", "others-to-others"), expected="above"),
    measure=measure_distances,
    why=WHY,
)


# Table 9: how well the models of a client fit the records that it trains on

TABLE9_NAMES = ("global", "last", "heuristic", "optimum")
TABLE9_NUMBERS = together(
    base.published(
        """
adult        74.4 73.9 79.6 90.5
leaf         77.0 75.1 83.8 89.9
att-faces    74.3 75.2 87.7 88.5
adult-bn     72.1 72.7 77.6 90.1
leaf-bn      74.2 72.6 80.0 88.6
att-faces-bn 70.1 71.3 86.8 87.9
""",
        TABLE9_NAMES,
        percent("training_accuracy"),
    ),
    base.published(
        "flights 16.4 16.9 13.3 10.7\nflights-bn 16.2 15.9 13.9 10.3", TABLE9_NAMES, percent("training_mape")
    ),
)


def plan_table9(request: base.Request, row: str) -> dict[str, Any]:
    """Return the plan of one data set, with or without BatchNorm."""
    data = row.removesuffix("-bn")
    attacks = models(MODELS, targets(data, request))
    return {**federation_of(data, request, norm=row.endswith("-bn")), "attack": attacks}


TABLE9 = base.Reproduction(
    name="lmra-table9",
    shows="How well each guess of a client's model fits the client's own records; similarity alone can mislead.",
    paper=paper(place="Table 9 (Appendix D.1)", numbers=TABLE9_NUMBERS),
    rows=TABLE1_ROWS,
    small_rows=("leaf", "adult"),
    columns=columns(tuple(MODELS), ("training_accuracy", "training_mape", "training_loss", "zest")),
    differences=(
        *beats("heuristic", "global", "last", metrics=("training_accuracy",)),
        *beats("optimum", "heuristic", metrics=("training_accuracy",)),
    ),
    plan=plan_table9,
    why=f"{WHY}; {STAND_IN}; {SMALL_NETWORKS}",
)


# Table 10: the attacks under DP-SGD, mixup, and both
#
# The paper does not state whether its attackers know the defence; they make no use of it, so its numbers stand beside
# ours of unaware attackers. Aware attackers have columns of their own.

BUDGET = {"epsilon": 10.0, "delta": 1e-5, "clip": 1.0}
DEFENCES: dict[str, dict[str, Any]] = {
    "none": {},
    "dp-sgd": BUDGET,
    "mixup": {"mix": "pairs"},
    "dp-sgd+mixup": {**BUDGET, "mix": "pairs"},
}
# Labels of the attacks, in pairs of ours and the one it is compared with: metric, and the paper's name.
TABLE10_COLUMNS: dict[str, tuple[str, str]] = {
    "heuristic": ("zest", "LMRA, Ours"),
    "global": ("zest", "LMRA, Global"),
    "aia-heuristic": ("accuracy", "AIA, Ours"),
    "aia-gradients": ("accuracy", "AIA, SOTA"),
    "sia-heuristic": ("accuracy", "SIA, Ours"),
    "sia-majority": ("accuracy", "SIA, SOTA"),
    "sra-heuristic": ("class_ssim", "SRA, Ours"),
    "sra-gradients": ("ssim", "SRA, SOTA"),
}
TABLE10_PAIRS = (("heuristic", "global"), ("aia-heuristic", "aia-gradients"), ("sia-heuristic", "sia-majority"))
TABLE10_PRINTED = {
    "none": """
flights   84.2 71.4 77.2 73.1 84.3 82.1 - -
adult     88.4 70.7 73.1 67.6 78.6 75.1 - -
leaf      78.2 67.3 71.1 66.3 77.9 74.6 - -
att-faces 57.3 52.8 - - 61.6 57.1 34.3 26.1
""",
    "dp-sgd": """
flights   71.4 59.6 71.3 66.6 76.6 72.1 - -
adult     79.6 61.9 68.6 62.5 73.5 73.1 - -
leaf      72.1 60.4 63.3 61.1 71.2 70.8 - -
att-faces 52.1 48.4 - - 57.6 52.4 23.4 18.7
""",
    "mixup": """
flights   80.3 68.2 75.1 72.3 82.0 80.6 - -
adult     86.3 68.8 72.1 66.4 77.0 73.6 - -
leaf      76.3 63.0 69.9 65.1 74.5 71.6 - -
att-faces 54.1 50.4 - - 60.3 56.1 33.7 25.1
""",
    "dp-sgd+mixup": """
flights   64.6 57.4 68.6 65.9 75.2 72.6 - -
adult     77.3 60.3 66.0 61.7 71.9 71.2 - -
leaf      71.8 60.1 62.5 60.8 70.2 69.9 - -
att-faces 50.1 49.6 - - 55.0 51.4 23.1 18.0
""",
}
# row -> column -> metric -> number; the metric depends on the attack
TABLE10_NUMBERS = together(
    *(
        {
            row: {
                base.defended_title(label, defence): {TABLE10_COLUMNS[label][0]: number["printed"]}
                for label, number in cells.items()
            }
            for row, cells in base.published(text, TABLE10_COLUMNS, percent("printed")).items()
        }
        for defence, text in TABLE10_PRINTED.items()
    )
)


def plan_table10(request: base.Request, row: str) -> dict[str, Any]:
    """Return one data set under all defences."""
    chosen = targets(row, request, small=2)
    if row == "att-faces":
        inner = [*class_images(("heuristic",), chosen), gradient_images(targets(row, request, small=1), request)]
    else:
        inner = [*attributes(("heuristic",), chosen), gradient_attributes(chosen)]
    return {
        **federation_of(row, request),
        "defence": [{"name": name, **settings} for name, settings in DEFENCES.items()],
        "attack": [*models(("heuristic", "global"), chosen), *inner, *sources(("heuristic",))],
    }


TABLE10 = base.Reproduction(
    name="lmra-table10",
    shows="How much DP-SGD, mixup and both reduce the attacks on local models, attributes, sources and images.",
    paper=paper(place="Table 10", numbers=TABLE10_NUMBERS),
    rows=DATA,
    small_rows=("leaf", "adult"),
    columns=tuple(
        column
        for label, (metric, called) in TABLE10_COLUMNS.items()
        for column in base.defended_columns({label: called}, (metric,), DEFENCES, called_aware=False)
    ),
    differences=base.compare(
        *(
            (base.defended_title(ours, defence), base.defended_title(theirs, defence))
            for defence in DEFENCES
            for ours, theirs in TABLE10_PAIRS
        ),
        *(
            (ours, base.defended_title(ours, defence))
            for defence in DEFENCES
            if defence != "none"
            for ours, _ in TABLE10_PAIRS
        ),
        expected="above",
    ),
    plan=plan_table10,
    why=f"{WHY}; {STAND_IN}; the clipping norm is not given, here it is 1; with mixup a record enters an averaged "
    "pair, which our epsilon of 10 accounts for and theirs probably did not; the paper's SIA without a defence are "
    "those of its Table 1 with BatchNorm",
)
