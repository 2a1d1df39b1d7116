"""What every setting of the catalogue is, in a sentence; for attacks see attack_words.py.

A key is the name of a setting, or "entry.setting" where an entry has a sense of its own for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedxray.audit.attack_words import ATTACKS

DEFENCES = {
    "epsilon": "The budget that the noise is set to; give it or `noise_multiplier`.",
    "noise_multiplier": "Deviation of the noise in norms of `clip`; give it or `epsilon`.",
    "delta": "The chance that the budget leaves out.",
    "clip": "The longest that the gradient of one example may be.",
    "sampling": "How a step gets its examples: each by chance, as the budget supposes, or in shuffled batches.",
    "rounds": "Rounds that the noise is set for; left out, the federation's.",
    "mix": "Whether neighbours in a batch are averaged, or each example is mixed with another by a drawn weight.",
    "alpha": "Both parameters of the Beta distribution that weights are drawn from.",
    "gaussian-noise.scale": "Standard deviation of the noise on every entry.",
    "laplace-noise.scale": "Mean absolute value of the noise on every entry.",
    "at": "What is changed: the update that leaves, or the gradient of every example.",
    "share": "Share of the entries that become zero.",
    "by": "Which entries go: the smallest of every tensor, or some by chance.",
    "bits": "Bits for every entry.",
    "keep": "What stays with the client: running statistics, or these and the layers' scales and shifts.",
}

RESTORERS = {
    "prior": "A folder with the model, or its name on the hub.",
    "revision": "The commit of a model on the hub, 40 hex digits; it is required there.",
    "scale": "Pixels a side of the blocks whose means are trusted; 1 is denoising alone.",
    "noise": "Spread of the error of a block's mean, pixels in 0..1.",
    "ddrm.steps": "Levels of noise that are gone through.",
    "eta": "How much of the noise of a level is drawn afresh, from 0 to 1.",
    "eta_b": "How far a measured block is held to its measurement; 1 is wholly.",
    "finish": "Where it ends: at the mean, best for pixel errors, or at a sample as in the paper.",
    "draws": "Results that are averaged.",
    "guidance": "How strongly the model is led to the class, where it knows classes; 1 is as it was trained.",
    "epochs": "Steps of Adam on the first noise.",
    "learning_rate": "Their size.",
    "mde.steps": "Levels of one sample.",
}

MODELS = {
    "width": "Channels of the first layers; later ones have multiples.",
    "lenet-sigmoid.width": "Channels of every convolution.",
    "hidden": "Units of the hidden layer.",
    "mlp.hidden": "Units of every hidden layer, as [128, 64].",
    "norm": '"none", "batch" (BatchNorm) or "running" (BatchNorm that keeps its first statistics, 0 and 1).',
    "mlp.norm": '"none", or "batch" (BatchNorm before each activation).',
    "activation": '"relu", "sigmoid", "tanh" or "softplus".',
    "stem": 'The first layers: "004" (as in paper 004), "cifar" (3 x 3) or "imagenet" (7 x 7, pooled).',
    "head_bias": "Whether the last layer has a bias.",
    "init": 'How first weights are drawn: "torch", "lecun", "he" or "uniform" (-0.5 to 0.5).',
}

DATASETS = {
    "sensitive": "The column that an attacker is after.",
    "scale_target": "Whether a target of numbers is standardised; left out, it is.",
    "medical.scale_target": "Whether charges are standardised; left out, they stay in dollars.",
    "acs-income.scale_target": "Whether incomes are standardised; left out, they stay in dollars.",
    "normalise": "Whether pixels are shifted and scaled to mean 0 and spread 1, or stay in 0..1.",
    "size": "Pixels a side, or [height, width]; left out, the images' own.",
    "imagenet-sample.size": "Pixels a side: 32, 64, 128 or 224.",
    "part": '"train" or "test".',
    "adult.part": '"train", "test" or "all".',
    "missing": 'What becomes of rows with an unknown value: "drop", or "keep" as a group of its own.',
    "state": 'The state, by two letters; "all" takes every one that has incomes in dollars.',
    "acs-income.share": "Share of every state's people that is kept.",
    "drawn_occupations": "Columns added that are drawn at random and tell nothing.",
    "clients": "How many clients the data are drawn for.",
    "records": "Visits to each clinic.",
    "noise": "Spread of the noise in the bill, in thousands.",
    "seed": "Of the draws.",
    "rows": "Rows in the sample.",
    "writers": "How many writers are taken; 0 is all.",
    "samples": "Samples of every client; 0 draws LEAF's own uneven sizes.",
    "dims": "Columns, the last of them binary.",
    "classes": "Classes of the label.",
    "clusters": "Groups of clients with like models.",
}

WORDS: Mapping[str, Mapping[str, str]] = {
    "attacks": ATTACKS,
    "defences": DEFENCES,
    "restorers": RESTORERS,
    "models": MODELS,
    "datasets": DATASETS,
}


def sentence_on(kind: str, entry: str, setting: str) -> str:
    """What a setting of an entry is; nothing where only its own class could tell."""
    known = WORDS[kind]
    return known.get(f"{entry}.{setting}") or known.get(setting, "")
