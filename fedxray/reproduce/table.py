"""The reproductions by name, each as one visible line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedxray.errors import unknown_name
from fedxray.naming import load

if TYPE_CHECKING:
    from fedxray.reproduce.base import Reproduction

REPRODUCTIONS: dict[str, str] = {
    "dlf-table1": "fedxray.reproduce.dlf.table1:TABLE1",
    "dlf-table2": "fedxray.reproduce.dlf.table2:TABLE2",
    "dlf-table3": "fedxray.reproduce.dlf.table3:TABLE3",
    "dlf-table4": "fedxray.reproduce.dlf.table4:TABLE4",
    "dlf-trained": "fedxray.reproduce.dlf.trained:TRAINED",
    "dlf-order": "fedxray.reproduce.dlf.order:ORDERED",
    "dlf-averaging": "fedxray.reproduce.dlf.averaging:AVERAGED",
    "dlf-iterations": "fedxray.reproduce.dlf.iterations:ITERATIONS",
    "dlf-defences": "fedxray.reproduce.dlf.defences:DEFENDED",
    "aia-regression-table1": "fedxray.reproduce.aia.table1:TABLE1",
    "aia-regression-heterogeneity": "fedxray.reproduce.aia.sweeps:HETEROGENEITY",
    "aia-regression-batch-size": "fedxray.reproduce.aia.sweeps:BATCH_SIZE",
    "aia-regression-epochs": "fedxray.reproduce.aia.sweeps:EPOCHS",
    "aia-regression-dataset-size": "fedxray.reproduce.aia.sweeps:DATASET_SIZE",
    "aia-regression-client-size": "fedxray.reproduce.aia.sweeps:SIZE",
    "aia-regression-linear": "fedxray.reproduce.aia.linear:LINEAR",
    "aia-regression-start-round": "fedxray.reproduce.aia.sweeps:START_ROUND",
    "aia-regression-rounds": "fedxray.reproduce.aia.rounds:SPENT",
    "aia-regression-width": "fedxray.reproduce.aia.width:WIDTH",
    "aia-regression-toy": "fedxray.reproduce.aia.toy:TOY",
    "aia-classification": "fedxray.reproduce.aia.classification:CLASSIFICATION",
    "aia-regression-dp": "fedxray.reproduce.aia.privacy:PRIVATE",
    "lmra-table1": "fedxray.reproduce.lmra.table1:TABLE1",
    "lmra-table9": "fedxray.reproduce.lmra.table9:TABLE9",
    "lmra-table10": "fedxray.reproduce.lmra.table10:TABLE10",
    "lmra-clients": "fedxray.reproduce.lmra.sweeps:LMRA_CLIENTS",
    "lmra-batch-size": "fedxray.reproduce.lmra.sweeps:LMRA_BATCH_SIZE",
    "lmra-epochs": "fedxray.reproduce.lmra.sweeps:LMRA_EPOCHS",
    "lmra-dataset-size": "fedxray.reproduce.lmra.sweeps:LMRA_DATASET_SIZE",
    "lmra-heterogeneity": "fedxray.reproduce.lmra.heterogeneity:LMRA_HETEROGENEITY",
    "lmra-images": "fedxray.reproduce.lmra.images:LMRA_IMAGES",
    "awa-table4": "fedxray.reproduce.awa.table4:TABLE4",
    "awa-iterations": "fedxray.reproduce.awa.iterations:ITERATIONS",
    "awa-search": "fedxray.reproduce.awa.search:SEARCH",
    "awa-stages": "fedxray.reproduce.awa.stages:STAGES",
    "awa-gain": "fedxray.reproduce.awa.gain:GAIN",
    "awa-settings": "fedxray.reproduce.awa.settings:SETTINGS",
    "awa-landscape": "fedxray.reproduce.awa.landscape:LANDSCAPE",
    "curious-clients": "fedxray.reproduce.curious.clients:CLIENT_COUNT",
    "curious-batch-and-steps": "fedxray.reproduce.curious.batch_and_steps:BATCH_AND_STEPS",
    "curious-uneven": "fedxray.reproduce.curious.uneven:UNEVEN",
    "curious-unknown-lr": "fedxray.reproduce.curious.unknown_rate:UNKNOWN_RATE",
    "curious-inversion-lr": "fedxray.reproduce.curious.inversion_rate:INVERSION_RATE",
    "curious-upper-bound": "fedxray.reproduce.curious.upper_bound:UPPER_BOUND",
    "curious-choices": "fedxray.reproduce.curious.choices:CHOICES",
    "curious-restoration": "fedxray.reproduce.curious.restoration:RESTORATION",
    "curious-fedinverse": "fedxray.reproduce.curious.fedinverse:FEDINVERSE",
}


def find(name: str) -> Reproduction:
    """The reproduction of that name."""
    if name not in REPRODUCTIONS:
        raise unknown_name("reproduction", name, REPRODUCTIONS)
    found: Reproduction = load(REPRODUCTIONS[name])
    return found
