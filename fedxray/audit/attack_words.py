"""What every setting of an attack is, in a sentence: `fedxray show` and the page of settings print these.

A key is the name of a setting, or "attack.setting" where an attack has a sense of its own for it.
"""

from __future__ import annotations

_DISTANCES = '"cosine", "cosine-by-layer", "l2", "l1"'

SHARED = {
    "at": "Which of the updates seen is read.",
    "batch_norm": 'Statistics that BatchNorm is replayed with: those of the batch, or the running ones ("running").',
    "box": "Whether every step goes back into the range of valid inputs.",
    "keep": "Which iterate is the answer: the last, or the one of least own loss.",
    "labels": "The attack that guesses labels where neither they nor their counts are granted.",
    "learning_rate": "Step size of the descent.",
    "match": f"How far a replayed update is from the one seen: {_DISTANCES}.",
    "model": "The attack whose model is taken for the client's.",
    "restarts": "How many descents, each from a start of its own; the one of least own loss is kept.",
    "start": "What the first guess is drawn from: N(0, 1), evenly over valid pixels, or around their middle.",
    "steps": "Steps of the descent.",
    "total_variation": "Weight of the differences between neighbouring pixels: more makes smoother images.",
    "unit": "What differences of updates are measured in: a thousandth of the update's length, as sent, or the "
    "client's learning rate.",
}

LABELS = {
    "source": 'What is read of the last layer: its bias, its rows, or ("auto") the bias where there is one.',
    "labels-geng-start.source": "What is read of the last layer: its rows, as in the paper, or its bias.",
    "labels-geng-end.source": "What is read of the last layer: its rows, as in the paper, or its bias.",
    "labels-dlf.source": "What is read of the last layer: its rows, as in the paper, or its bias.",
    "samples": "How many random inputs estimate what the network predicts.",
    "exactly": "Whether the model returned is taken itself, and not one step before it as in the authors' code.",
}

LOCAL_MODELS = {
    "local-model-heuristic.reading": "How the learned update is brought to zero: by descent on its size (the paper), "
    'or by following it ("follow-update", the authors\' later code).',
    "restrict": 'Where the model is sought: anywhere, or ("span") among combinations of the models that were sent.',
    "hidden": "Layers of the network that learns the client's updates; none makes it linear.",
    "fit_steps": "Steps in which that network learns.",
    "fit_lr": "Step size with which it learns.",
    "local-model-heuristic.lr": "Step size of the descent, in spreads of the models sent; following updates, in "
    "predicted changes.",
    "multiple": "How many mean updates the last returned model is moved on; 0 is `last-returned`.",
    "over": "How many of the latest updates are in that mean.",
    "active_rounds": "Rounds in which the client is sent models of the attacker's choice.",
    "attribute-from-gradients.active_rounds": "Rounds in which the client is isolated first; these are then matched.",
    "local-model-send-back.active_rounds": "Rounds in which the client is sent her own model back.",
    "every": "The attack acts in every so many-th round only; 1 is in all.",
    "tune": "Where the step size comes from: the client's recorded updates (costs no round), a search by replies, or "
    "the client's own loss (an oracle).",
    "local-model-active.lr": "First step size; given, nothing is tuned.",
    "betas": "The two rates at which Adam forgets.",
    "boost": "The first step, in usual entries of the recorded updates.",
    "pace": "Whether the step size grows up to half of the rounds and falls back, or stays as it is (the paper).",
    "trials": "How many settings a search tries.",
    "trial_rounds": "Rounds of a trial; left out, a whole attack.",
    "judge": "What a search judges by: how far the client's loss fell along a line, or how small the replies became.",
    "answer": "Which model is the answer: the one to be sent next (the paper), or the one returned last (its code).",
    "local-model-oracle.steps": "Steps of Adam on the client's records.",
    "rates": "Step sizes to choose from.",
}

ATTRIBUTES = {
    "criterion": "What a value is judged by: the training loss, or the squared distance of the prediction.",
    "grid": "How many candidate values a continuous column has.",
    "method": "How the values are sought: by solving for all at once, by descent with draws (paper 003), or by "
    "L-BFGS (paper 000).",
    "attribute-from-gradients.steps": "Steps for each learning rate (iterative and l-bfgs).",
    "learning_rates": "Step sizes, each tried (iterative and l-bfgs); none: the papers' own.",
    "changes": "The most single values that are changed from each start (closed form).",
    "shares": "Shares of the rounds, the first ones, each tried; 0 is the first round alone.",
    "pick": "Which attempt is kept: best cosine over the rounds it matched, over all rounds, or most often right (an "
    "oracle).",
    "with_recorded": "Whether the recorded rounds are matched beside the active ones.",
}

INVERSION = {
    "dlg.reading": 'The original, which seeks labels too and descends by L-BFGS ("zhu"), or that of paper 002: known '
    "labels, and Adam.",
    "dlg.labels": "The attack that guesses labels where neither they nor their counts are granted (reading 002).",
    "dlg.steps": "Steps of the descent; left out, 1,200, or 1,000 in reading 002.",
    "dlg.learning_rate": "Step size of the descent; left out, 1, or 0.1 in reading 002.",
    "dlg.unit": "What differences of updates are measured in: a thousandth of the update's length, as sent, or the "
    "client's learning rate; left out, the length, or as sent in reading 002.",
    "gradinversion.restarts": "How many guesses are sought side by side.",
    "tv": "Weight of the differences between neighbouring pixels.",
    "norm": "Weight of the mean square of the pixels.",
    "bn": "Weight of the distance to the client's BatchNorm statistics.",
    "group": "Weight of the distance to the mean of all guesses.",
    "group_from": "Share of the steps after which guesses are pulled together.",
    "gradinversion.noise": "Noise after every step, in learning rates.",
    "distinct_labels": "Whether labels are guessed by the paper's rule, which takes no class twice.",
    "pool": "Whether the rows of all starts are also pooled, and kept where their loss is lower.",
    "tabular-inversion.restarts": "How many descents, each from a start of its own; see pool.",
    "jointly": "Whether labels are sought together with the rows.",
    "tabular-inversion.labels": "The attack that guesses labels where they are neither granted nor sought.",
    "skip_zeros": "Whether entries where the update seen is exactly zero count for nothing.",
    "latent": "The guess is a picture smaller by this factor, enlarged inside the descent; 1 is full size.",
    "own_share": 'What is done about the own part of the sum: take it out, or ("recover") seek own images too and '
    "score them apart.",
    "assumed_learning_rate": "The clients' learning rate, in place of the recipe's.",
    "assumed_examples": "Images behind the sum, own ones included, in place of what is granted.",
}
for _name in ("curious-client", "curious-client-oracle"):
    INVERSION[f"{_name}.match"] = (
        f'How far a replayed update is from the one seen: {_DISTANCES}, "l2-by-depth".'
    )

AWA = {
    "awa.preset": "Where weights come from that are not set: what the paper found for the case at hand, or for a given "
    'one, plain ramps ("ramp"), or no weights.',
    "q_conv": "Weight of the last convolution, in a ramp from 1 at the first (a single one has it); left out, the "
    "preset's.",
    "q_norm": "Weight of the last norm layer, in a ramp from 1 at the first (a single one has it); left out, the "
    "preset's.",
    "q_linear": "Weight of the last linear layer, in a ramp from 1 at the first (a single one has it); left out, the "
    "preset's.",
    "q_enhance": "Weight of the layers that fit worst, found anew at every step; left out, the preset's.",
    "p_mean": "Share of layers (rounded up), those of largest relative error of the mean, that may be enhanced; left "
    "out, the preset's.",
    "p_var": "Share of layers (rounded up), those of largest relative error of the variance, that may be enhanced; "
    "left out, the preset's.",
    "epoch": "Which epoch is replayed where a round has several, of several batches drawn anew in each; without effect "
    "elsewhere.",
    "undefined": "Where a layer ranks whose relative error cannot be told.",
    "kept_every": "The state is kept after so many steps, so that longer attacks go on from there.",
    "give_up": "[steps, loss]: the attack ends if its lowest loss is above this after so many steps. A search has one "
    "of its own, a share of the steps.",
    "optimiser": "What takes the steps: Adam on the sign of the slope, in falling steps, or on the slope.",
    "agic.match": "What is compared layer by layer: directions, or squared differences.",
    "agic.unit": "What squared differences are measured in: a thousandth of the update's length, as sent, or the "
    "client's learning rate.",
    "agic.at": "Which of the updates seen are read.",
}

DLF = {
    "decay": "What the learning rate is multiplied by in turn; left out, the preset's.",
    "match_weight": "Weight of the match at first, and from half way on; left out, the preset's.",
    "clip": "Weight of what lies outside the range of pixels; left out, the preset's.",
    "label_order": "The order in which labels are put into batches: as given, by class, or drawn.",
    "average": "How the images of all epochs become one set: matched first, as they stand, or the first epoch's.",
    "together": "Share of the steps in which all epochs hold the same images; 0 is the paper's way.",
    "prior": '"l1" or "l2", then "mean" or "max", then perhaps "conv": what epochs are compared by, as in '
    '"l2-mean"; left out, the preset\'s.',
    "prior_weight": "Weight of the prior; left out, the authors' for preset and prior.",
}
for _name in ("dlf", "dlf-no-prior", "shared-simulation", "fedsgd-epoch", "fedsgd-inversion"):
    DLF |= {
        f"{_name}.preset": "Whose weights are taken that are not set: the authors' for FEMNIST or for CIFAR-100.",
        f"{_name}.learning_rate": "Step size of the descent; left out, the preset's.",
        f"{_name}.total_variation": "Weight of the differences between neighbouring pixels; left out, the preset's.",
        f"{_name}.match": f'How far a simulated update is from the one seen: "l2-by-depth" (the authors\' code), '
        f"{_DISTANCES}.",
        f"{_name}.labels": "The attack that guesses labels where neither they nor their counts are granted.",
        f"{_name}.keep": "Which iterate is the answer: the last, or the one of least own loss in the second half.",
    }

MODELS = {
    "cost": "What is descended on: -log of the probability of the class, or 1 - the probability (the papers).",
    "shade": "Grey of the first image: 0 is black, 1 white.",
    "doubt": "Weight of the model's doubt that an image is of its class.",
    "independence": "Weight of the dependence between guesses; 0 is plain model inversion.",
    "sigma": "Width of the kernels that measure that dependence.",
    "guesses": "Guesses for every class, an even number; the one of least own cost is kept.",
    "fedinverse.box": "Codes stay within plus and minus this.",
    "entries": "Entries of a code.",
    "generator_steps": "Steps in which the generator learns from public images.",
    "width": "Channels of the generator's network.",
}

ATTACKS = {**SHARED, **LABELS, **LOCAL_MODELS, **ATTRIBUTES, **INVERSION, **AWA, **DLF, **MODELS}
