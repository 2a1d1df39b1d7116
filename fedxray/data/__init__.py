"""Data sets, the space of their inputs, and their division among clients."""

from __future__ import annotations

from fedxray.data.catalog import DATASETS, load, options_of
from fedxray.data.dataset import Column, Dataset, Space
from fedxray.data.download import fetch
from fedxray.data.partition import PARTITIONS
from fedxray.data.split import Split, split

__all__ = ["DATASETS", "PARTITIONS", "Column", "Dataset", "Space", "Split", "fetch", "load", "options_of", "split"]
