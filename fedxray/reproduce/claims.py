"""What the tables and figures of the five papers say, sentence by sentence, and which of our results test it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a table or figure says, and how our results are compared with it."""

    paper: str  # the page on it
    place: str
    says: str
    by: str = ""  # the reproduction; empty: none, and `why` states the reason
    only: tuple[str, ...] = ()  # beginnings of the columns that count; default: all
    rows: tuple[str, ...] = ()  # beginnings of the rows that count; default: all
    metrics: tuple[str, ...] = ()
    # Expected side of left minus right in place of the reproduction's: above, below, same (within the margin), not
    # above or not below (by more than the margin).
    expects: tuple[tuple[str, str, str], ...] = ()
    searched: bool = False  # whether the claim is that a search lowers the loss
    why: str = ""  # reason of ours for what does not hold, or cannot be tested

    def counts(self, entry: Mapping[str, Any], *columns: str) -> bool:
        """Whether an entry of a document with these columns is part of the claim."""
        rows = entry["rows"] if "rows" in entry else [entry["row"]]
        return (
            (not self.only or all(column.startswith(self.only) for column in columns))
            and (not self.rows or all(row.startswith(self.rows) for row in rows))
            and (not self.metrics or entry["metric"] in self.metrics)
        )


QUALITY = ("psnr", "ssim", "lpips")  # of images; retrieval, which the papers do not have, is at its ceiling too often
# Rows of the figures of LMRA that are compared: (left, right, side of left)
TABLES = ("leaf", "adult", "flights")
LESS_RECORDS_ABOVE = tuple((f"{data}-64", f"{data}-1024", "above") for data in TABLES)
FEWER_CLIENTS_ABOVE = tuple(("leaf-10", f"leaf-{clients}", "above") for clients in (20, 100))
SMALL_BATCH_BELOW = tuple((f"{data}-{size}", f"{data}-2000", "below") for data in TABLES for size in (32, 128))
FEWER_EPOCHS_ABOVE = tuple((f"{data}-1", f"{data}-{epochs}", "above") for data in TABLES for epochs in (5, 10))
# parameter, points lost, reproduction, pairs of rows
FACES_SWEEPS = (
    ("batches", "9.2", "lmra-batch-size", tuple((f"att-faces-{size}", "att-faces-64") for size in (4, 16))),
    ("epochs", "5.1", "lmra-epochs", tuple(("att-faces-1", f"att-faces-{epochs}") for epochs in (5, 10))),
)
METHOD, SETTINGS, PICTURES = "a drawing of the method", "it lists settings", "pictures without a number"
EXPECTED = " (our expectation: that appendix is not in our text)"

CLAIMS: tuple[Claim, ...] = (
    Claim(paper="dlf", place="Figure 1", says="Overview of the attack.", why=METHOD),
    Claim(
        paper="dlf",
        place="Table 1",
        says="Simulating the client's epochs with an order-invariant prior reconstructs more images than without it, "
        "and both more than an attack on FedSGD.",
        by="dlf-table1",
        why="the prior is measured on the stand-in alone",
    ),
    Claim(
        paper="dlf",
        place="Table 2",
        says="Interpolated label counts are more accurate than those from either end of the round.",
        by="dlf-table2",
    ),
    Claim(
        paper="dlf",
        place="Table 3",
        says="With inferred labels the attack still reconstructs more than attacks on FedSGD.",
        by="dlf-table3",
    ),
    Claim(paper="dlf", place="Figure 2", says="Reconstructions of Table 3.", why=PICTURES),
    Claim(
        paper="dlf",
        place="Table 4",
        says="Of the order-invariant priors the mean of squares does best.",
        by="dlf-table4",
        why="with 40 of the paper's 400 steps, where priors hardly differ yet",
    ),
    Claim(
        paper="dlf",
        place="Figure 3",
        says="The matched average over epochs is better than any single epoch.",
        by="dlf-averaging",
    ),
    Claim(
        paper="dlf",
        place="Table 6",
        says=f"Defences lower quality, stronger settings more{EXPECTED}.",
        by="dlf-defences",
    ),
    Claim(
        paper="dlf",
        place="Table 7",
        says=f"Trained networks leak less than fresh ones{EXPECTED}.",
        by="dlf-trained",
        only=("dlf",),
        expects=tuple(("femnist-10x5-after-0", f"femnist-10x5-after-{rounds}", "above") for rounds in (5, 10)),
    ),
    Claim(
        paper="dlf",
        place="Table 8",
        says=f"Knowing the labels of every batch helps{EXPECTED}.",
        by="dlf-order",
        expects=(("batches-known", "counts-known", "above"),),
    ),
    Claim(
        paper="dlf", place="Table 5", says="Details of the appendix.", why="the table is not in the text that we have"
    ),
    Claim(paper="awa", place="Table 1", says="The four cases.", why=SETTINGS),
    Claim(paper="awa", place="Table 2", says="Ranges of the search.", why=SETTINGS),
    Claim(paper="awa", place="Table 3", says="Weights that the search chose.", why=SETTINGS),
    Claim(
        paper="awa",
        place="Figure 1",
        says="Over 50 trials of Bayesian optimisation the smallest loss keeps falling.",
        by="awa-search",
        searched=True,
    ),
    Claim(paper="awa", place="Figure 2", says="Reconstructions of Table 4.", why=PICTURES),
    Claim(
        paper="awa",
        place="Table 4",
        says="Weighted layers (AWA) reconstruct better than AGIC and DLG in all four cases.",
        by="awa-table4",
    ),
    Claim(paper="awa", place="Figure 3", says="Reconstructions after 3,000 steps.", why=PICTURES),
    Claim(
        paper="awa",
        place="Figure 4",
        says="More steps keep helping; SSIM exceeds 0.9 within 1,500 steps.",
        by="awa-iterations",
        expects=(("awa-250", "awa-100", "above"), ("awa-1000", "awa-250", "above"), ("awa-3000", "awa-1000", "above")),
        why="beyond 250 steps one group of images, which has no interval",
    ),
    Claim(
        paper="awa",
        place="Contribution 3",
        says="Updates of all stages of training can be inverted.",
        by="awa-stages",
        expects=(("after-0", "after-4", "same"),),
        why="other images explain the update of a trained network nearly as well",
    ),
    Claim(
        paper="aia",
        place="Figure 1, records",
        says="From gradients of a regression attributes are inferred worse with 256 records (at chance) than with 64.",
        by="aia-regression-dataset-size",
        only=("grad",),
        rows=("regression",),
    ),
    Claim(
        paper="aia",
        place="Figure 1, tasks",
        says="From gradients of a classification they are still inferred (71 % with 256 records).",
        by="aia-regression-dataset-size",
        only=("grad",),
        expects=(("classification-256", "regression-256", "above"),),
        why="the published iterative attack fails on both tasks; in closed form its objective gives 99 and 72 %",
    ),
    Claim(
        paper="aia",
        place="Figure 1, global model",
        says="A model attack on the global model is at least as good as gradients on a regression.",
        by="aia-regression-dataset-size",
        only=("global", "grad"),
        rows=("regression",),
        expects=(("global", "grad", "not below"),),
    ),
    Claim(
        paper="aia",
        place="Figure 1, local model",
        says="From the optimal local model attributes are inferred better than from the global one (up to 30 points).",
        by="aia-regression-dataset-size",
        only=("oracle", "global"),
        rows=("regression",),
        expects=(("oracle", "global", "above"),),
    ),
    Claim(
        paper="aia",
        place="Figure 2",
        says="The larger the batch, the nearer the reconstructed linear model.",
        by="aia-regression-toy",
    ),
    Claim(
        paper="aia",
        place="Table 1",
        says="Gradients < reconstructed model < 10 active rounds < 50 active rounds.",
        by="aia-regression-table1",
        why="Connecticut stands in for Louisiana",
    ),
    Claim(
        paper="aia",
        place="Table 1, optimum",
        says="50 active rounds reveal as much as the optimal local model.",
        by="aia-regression-table1",
        only=("active-50", "oracle"),
        expects=(("active-50", "oracle", "same"),),
        why="our optimum is trained to the end",
    ),
    Claim(
        paper="aia",
        place="Table 1, Louisiana's columns",
        says="With hundreds of columns 50 active rounds infer more than 10, and than the passive attack.",
        by="aia-regression-width",
    ),
    Claim(
        paper="aia",
        place="Figure 3 (left)",
        says="Accuracy rises with heterogeneity, for the model more than for gradients.",
        by="aia-regression-heterogeneity",
    ),
    Claim(
        paper="aia",
        place="Figure 3 (centre), batch size",
        says="Accuracy from models falls slightly with the batch size.",
        by="aia-regression-batch-size",
        expects=(("32", "256", "above"),),
    ),
    Claim(
        paper="aia",
        place="Figure 3 (centre), gradients",
        says="With every batch size models reveal more than gradients, passively and actively.",
        by="aia-regression-batch-size",
        expects=(("model", "grad", "above"), ("active-50", "active-50-grad", "above")),
        why="with batches of 256 a client takes few steps, and its last reply is far from its optimum",
    ),
    Claim(
        paper="aia",
        place="Figure 3 (right), models",
        says="The passive attack on models does not depend on the local epochs.",
        by="aia-regression-epochs",
        only=("model",),
        expects=(("1", "5", "same"),),
    ),
    Claim(
        paper="aia",
        place="Figure 3 (right), gradients",
        says="Gradients fall to chance with 5 local epochs.",
        by="aia-regression-epochs",
        only=("grad",),
        expects=(("1", "5", "above"),),
        why="they are near chance with one epoch already",
    ),
    Claim(
        paper="aia",
        place="Figure 3 (right), order",
        says="With every number of local epochs models reveal more than gradients, passively and actively.",
        by="aia-regression-epochs",
        expects=(("model", "grad", "above"), ("active-50", "active-50-grad", "above")),
    ),
    Claim(
        paper="aia",
        place="Figure 4",
        says="Clients with fewer records are more exposed.",
        by="aia-regression-client-size",
    ),
    Claim(paper="aia", place="Section 5.2", says="50 active rounds suffice.", by="aia-regression-rounds"),
    Claim(paper="aia", place="Section 6", says="On classification gradients reveal more.", by="aia-classification"),
    Claim(
        paper="aia",
        place="Table 2 (Appendix C.1)",
        says="Linear models are reconstructed exactly: they reveal what the optimal local model does.",
        by="aia-regression-linear",
        expects=(("linear", "oracle", "same"),),
    ),
    Claim(
        paper="aia",
        place="Appendix C.2",
        says="Whenever it starts, the active attack infers more than the passive one (our expectation: the text states "
        "only that it was examined).",
        by="aia-regression-start-round",
    ),
    Claim(
        paper="aia",
        place="Table 3 (Appendix C)",
        says="DP-SGD at epsilon 1 lowers the accuracy of all attacks.",
        by="aia-regression-dp",
        expects=tuple((x, f"{x}, dp-sgd", "above") for x in ("grad-closed", "model", "active-50-grad", "active-50")),
    ),
    Claim(
        paper="lmra",
        place="Figure 1",
        says="Images from the reconstructed model are better than those from the last reply and the global model.",
        by="lmra-images",
    ),
    Claim(
        paper="lmra",
        place="Table 1, models",
        says="The heuristic's model is nearer to the client's optimum than the last reply and the global model.",
        by="lmra-table1",
        only=("heuristic", "global", "last"),
        metrics=("zest",),
        why="its model is the last reply within the spread of the messages, also at the paper's size",
    ),
    Claim(
        paper="lmra",
        place="Table 1, attributes",
        says="The heuristic's model reveals attributes better than gradients, the last reply and the global model.",
        by="lmra-table1",
        only=("aia-",),
        why="the optimum is below the floor on Adult and 4.9 points above it on Leaf, so there is little to gain",
    ),
    Claim(
        paper="lmra",
        place="Table 1, sources",
        says="The heuristic's model reveals sources better than a vote and the last reply.",
        by="lmra-table1",
        only=("sia-",),
        why="its models fit the clients' records no better than the last replies do",
    ),
    Claim(
        paper="lmra",
        place="Table 1, images",
        says="The heuristic's model gives better images of a class than the last reply and the global model.",
        by="lmra-table1",
        only=("sra-",),
    ),
    Claim(
        paper="lmra",
        place="Figure 2, gradients",
        says="Attributes from gradients fall with the size of the local data (paper: by 14 to 16 points).",
        by="lmra-dataset-size",
        only=("aia-gradients",),
        expects=LESS_RECORDS_ABOVE,
    ),
    Claim(
        paper="lmra",
        place="Figure 2, models",
        says="Attributes from the reconstructed model are stable as the local data grow.",
        by="lmra-dataset-size",
        only=("aia-heuristic",),
        expects=tuple((left, right, "same") for left, right, _ in LESS_RECORDS_ABOVE),
    ),
    Claim(
        paper="lmra",
        place="Figure 2, order",
        says="With many records attributes from the reconstructed model are above those from gradients.",
        by="lmra-dataset-size",
        rows=tuple(right for _, right, _ in LESS_RECORDS_ABOVE),
        expects=(("aia-heuristic", "aia-gradients", "above"),),
    ),
    *(
        Claim(
            paper="lmra",
            place=f"Figure 3, gradients, {parameter}",
            says=f"Images from gradients lose {lost} points as {parameter} increase.",
            by=by,
            only=("sra-gradients",),
            expects=tuple((left, right, "above") for left, right in pairs),
            why="at both sizes images from gradients are below a mean image" if parameter == "batches" else "",
        )
        for parameter, lost, by, pairs in FACES_SWEEPS
    ),
    *(
        Claim(
            paper="lmra",
            place=f"Figure 3, models, {parameter}",
            says=f"Images from the reconstructed model are kept or improve as {parameter} increase.",
            by=by,
            only=("sra-heuristic",),
            expects=tuple((left, right, "not above") for left, right in pairs),
            why="those from the last reply fall as much, probably since fewer local steps train the network less"
            if parameter == "batches"
            else "",
        )
        for parameter, _, by, pairs in FACES_SWEEPS
    ),
    Claim(
        paper="lmra",
        place="Figure 4, impact",
        says="The number of clients has a limited impact on the reconstructed model and attributes from it.",
        by="lmra-clients",
        only=("heuristic", "aia-heuristic"),
        metrics=("zest", "accuracy"),
        expects=tuple((left, right, "same") for left, right, _ in FEWER_CLIENTS_ABOVE),
    ),
    Claim(
        paper="lmra",
        place="Figure 4, decrease",
        says="Source inference and attributes from gradients decrease a little with the number of clients.",
        by="lmra-clients",
        only=("sia-majority", "sia-heuristic", "aia-gradients"),
        expects=FEWER_CLIENTS_ABOVE,
    ),
    Claim(
        paper="lmra",
        place="Table 2",
        says="Airlines' optimal models differ from the global one by 4 to 25 % of its norm, 11.2 % on average.",
        by="lmra-heterogeneity",
        rows=("flights",),
        why="six other airlines stand in for the private prices, and our optima are trained to the end",
    ),
    Claim(
        paper="lmra",
        place="Figure 5",
        says="The optimal models of Adult's three clients with doctorates are far from those of the others.",
        by="lmra-distances",
    ),
    Claim(paper="lmra", place="Table 3", says="Shares of Adult's clients.", why=SETTINGS),
    Claim(paper="lmra", place="Table 4", says="Shares of the clients with faces.", why=SETTINGS),
    Claim(paper="lmra", place="Table 5", says="Settings for flights.", why=SETTINGS),
    Claim(paper="lmra", place="Table 6", says="Settings for Adult.", why=SETTINGS),
    Claim(paper="lmra", place="Table 7", says="Settings for Leaf.", why=SETTINGS),
    Claim(paper="lmra", place="Table 8", says="Settings for faces.", why=SETTINGS),
    Claim(
        paper="lmra",
        place="Table 9",
        says="The heuristic's model predicts the client's records better than the last reply.",
        by="lmra-table9",
    ),
    *(
        Claim(
            paper="lmra",
            place=f"Figure 6, {what}",
            says=f"Larger batches help {helped}.",
            by="lmra-batch-size",
            only=(column,),
            metrics=(metric,),
            expects=SMALL_BATCH_BELOW,
        )
        for what, helped, column, metric in (
            ("models", "the reconstruction of the local model", "heuristic", "zest"),
            ("gradients", "attributes from gradients", "aia-gradients", "accuracy"),
        )
    ),
    Claim(
        paper="lmra",
        place="Figure 7, gradients",
        says="Attributes from gradients fall with the local epochs.",
        by="lmra-epochs",
        only=("aia-gradients",),
        expects=FEWER_EPOCHS_ABOVE,
    ),
    Claim(
        paper="lmra",
        place="Figure 7, models",
        says="Attributes from the reconstructed model are kept or improve with the local epochs.",
        by="lmra-epochs",
        only=("aia-heuristic",),
        expects=tuple((left, right, "not above") for left, right, _ in FEWER_EPOCHS_ABOVE),
    ),
    Claim(
        paper="lmra",
        place="Figure 7, sources",
        says="Source inference is insensitive to the local epochs.",
        by="lmra-epochs",
        only=("sia-heuristic", "sia-majority"),
        expects=tuple((left, right, "same") for left, right, _ in FEWER_EPOCHS_ABOVE),
    ),
    *(
        Claim(
            paper="lmra",
            place=f"{place}, order of attributes",
            says="Attributes from the reconstructed model are above those from gradients in all settings.",
            by=by,
            expects=(("aia-heuristic", "aia-gradients", "above"),),
        )
        for place, by in (("Figure 6", "lmra-batch-size"), ("Figure 7", "lmra-epochs"))
    ),
    Claim(
        paper="lmra",
        place="Figure 6, order of sources",
        says="Sources from the reconstructed model are above a vote, but for Leaf at a batch of 128.",
        by="lmra-batch-size",
        rows=("leaf-32", "leaf-512", "leaf-2000", "adult-", "flights-"),
        expects=(("sia-heuristic", "sia-majority", "above"),),
    ),
    Claim(
        paper="lmra",
        place="Figure 7, order of sources",
        says="Sources from the reconstructed model are above a vote in all settings.",
        by="lmra-epochs",
        expects=(("sia-heuristic", "sia-majority", "above"),),
    ),
    Claim(
        paper="lmra",
        place="Figures 1 and 3, Table 1, gradients",
        says="Images from the reconstructed model are better than those from gradients.",
        why="gradients give single images, models one for a class: not one metric",
    ),
    Claim(
        paper="lmra",
        place="Table 10",
        says="DP-SGD, mixup and both lower all attacks; the heuristic stays above the baselines.",
        by="lmra-table10",
        why="without a defence the heuristic is not above them here either",
    ),
    Claim(paper="curious", place="Figure 1", says="Overview of the attack.", why=METHOD),
    Claim(paper="curious", place="Table 1", says="Assumptions of attacks.", why="a comparison without numbers"),
    *(Claim(paper="curious", place=f"Figure {n}", says="Reconstructions.", why=PICTURES) for n in (2, 3, 4, 8, 10)),
    Claim(
        paper="curious",
        place="Figure 5",
        says="Quality falls gradually with the number of clients.",
        by="curious-clients",
        rows=("lenet",),
        metrics=QUALITY,
    ),
    Claim(
        paper="curious",
        place="Figure 5, residual networks",
        says="Quality falls gradually with the number of clients.",
        by="curious-clients",
        rows=("resnet9",),
        metrics=QUALITY,
    ),
    *(
        Claim(
            paper="curious",
            place=f"Figure 5, {network}",
            says="Quality falls with larger networks.",
            by="curious-clients",
            metrics=("psnr", "ssim"),
            expects=tuple((f"lenet-{k}-4photos", f"{network}-{k}-4photos", "above") for k in (2, 4, 8)),
        )
        for network in ("resnet9", "resnet18")
    ),
    Claim(
        paper="curious",
        place="Figure 6, images",
        says="Quality falls with the images of a client.",
        by="curious-batch-and-steps",
        rows=("2-clients-batch", "4-clients-batch"),
        metrics=QUALITY,
    ),
    Claim(
        paper="curious",
        place="Figure 6, local steps",
        says="Quality falls with the local steps where there are many clients.",
        by="curious-batch-and-steps",
        rows=("2-clients-steps", "4-clients-steps"),
        metrics=QUALITY,
        why="between 2 clients treating both as one costs little",
    ),
    Claim(
        paper="curious",
        place="Figure 7",
        says="Direct postprocessing improves LPIPS.",
        by="curious-restoration",
        metrics=("lpips",),
        expects=(("raw+ddrm-sample", "raw", "below"),),
        why="a small prior trained here, on images of 32 pixels, for which AlexNet's last maps are 1 x 1",
    ),
    Claim(
        paper="curious",
        place="Figure 9",
        says="FedInverse gives what is typical of a class (here: more than plain inversion of the model).",
        by="curious-fedinverse",
        metrics=("class_ssim", "class_recognised"),
        expects=(("mi-hsic", "model-inversion", "above"),),
        why="the paper's claim is by eye",
    ),
    Claim(
        paper="curious",
        place="Figure 11",
        says="Quality falls fast as the guessed learning rate leaves the true one.",
        by="curious-unknown-lr",
    ),
    Claim(
        paper="curious",
        place="Figure 12",
        says="Even and uneven divisions of the images give the same quality.",
        by="curious-uneven",
        metrics=QUALITY,
        expects=tuple((f"{clients}-uneven", f"{clients}-even", "same") for clients in (2, 4, 6, 8)),
    ),
    Claim(
        paper="curious",
        place="Figure 13",
        says="LPIPS does not depend much on the learning rate of the inversion.",
        by="curious-inversion-lr",
        metrics=("lpips",),
        expects=tuple((rate, "0.1", "same") for rate in ("0.02", "0.05", "0.2", "0.5")),
    ),
    Claim(
        paper="curious",
        place="Figure 14, gap",
        says="An upper bound that simulates every client is above the attack on the sum, where steps are many.",
        by="curious-upper-bound",
        rows=("2-clients-steps-8", "4-clients-steps-8", "6-clients-steps-8", "8-clients-steps-8"),
        metrics=QUALITY,
    ),
    Claim(
        paper="curious",
        place="Figure 14, steps",
        says="With local steps the attack on the sum loses quality.",
        by="curious-upper-bound",
        only=("one-client",),
        metrics=QUALITY,
    ),
    Claim(
        paper="curious",
        place="Figure 14, bound",
        says="The upper bound does not depend on local steps.",
        by="curious-upper-bound",
        only=("upper-bound",),
        metrics=("psnr",),
        expects=tuple((f"{k}-clients-steps-1", f"{k}-clients-steps-8", "same") for k in (2, 4, 6, 8)),
    ),
    Claim(
        paper="curious",
        place="Figure 15, LPIPS",
        says="Direct postprocessing has worse LPIPS than a GAN.",
        by="curious-restoration",
        metrics=("lpips",),
        expects=(("raw+ddrm-sample", "raw+gan", "above"),),
    ),
    Claim(
        paper="curious",
        place="Figure 15, SSIM",
        says="Direct postprocessing has a similar SSIM as a GAN.",
        by="curious-restoration",
        metrics=("ssim",),
        expects=(("raw+ddrm-sample", "raw+gan", "same"),),
    ),
    *(Claim(paper="curious", place=f"Figure {n}", says="Reconstructions.", why=PICTURES) for n in range(16, 24)),
)
