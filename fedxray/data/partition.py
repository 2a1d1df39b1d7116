"""Ways to divide records among clients: each function gives one index tensor per client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedxray.data.checks import number, shown, whole_number
from fedxray.data.space import Dataset
from fedxray.errors import BadInput, unknown_name
from fedxray.seeds import derive_seed, fork, permutation

PARTITIONS: Mapping[str, str] = {
    "iid": "fedxray.data.partition:iid",
    "dirichlet": "fedxray.data.partition:dirichlet",
    "by-label": "fedxray.data.partition:by_label",
    "by-column": "fedxray.data.partition:by_column",
    "as-given": "fedxray.data.partition:as_given",
    "sizes": "fedxray.data.sizes:sizes_in_turn",
    "adult-doctorate": "fedxray.data.paper_splits:adult_doctorate",
    "income-correlation": "fedxray.data.paper_splits:income_correlation",
    "att-faces": "fedxray.data.paper_splits:att_faces",
}
TARGET_BINS = 10  # a regression target is cut into this many equal groups where a split goes by label
ATTEMPTS = 100  # draws of a Dirichlet split before giving up on a client without records


@dataclass(frozen=True, kw_only=True)
class Division:
    """What a partition function divides: these members of the data set among that many clients."""

    dataset: Dataset
    members: Tensor  # [m] int64, sorted
    clients: int
    least: int  # records that every client needs
    seed: int

    def shuffled(self, *purpose: object) -> Tensor:
        """The members in random order."""
        return self.members[permutation(len(self.members), fork(self.seed, "split", *purpose))]

    def numbers(self, *purpose: object) -> np.random.Generator:
        """A NumPy generator for draws that depend only on the seed and the purpose."""
        return np.random.default_rng(derive_seed(self.seed, "split", *purpose))


def iid(task: Division) -> list[Tensor]:
    """Equal shares of a random order."""
    return list(torch.tensor_split(task.shuffled("iid"), task.clients))


def dirichlet(task: Division, *, alpha: float = 0.5) -> list[Tensor]:
    """For every label, shares of the clients drawn from Dirichlet(alpha) (Hsu et al. 2019)."""
    alpha = number("alpha", alpha, least=0.0, most=1e6, open_low=True)
    labels = labels_of(task.dataset)[task.members.numpy()]
    draw = task.numbers("dirichlet", alpha)
    parts: list[Tensor] = []
    for _ in range(ATTEMPTS):
        parts = _dirichlet_once(task, labels, alpha, draw)
        if min(len(part) for part in parts) >= task.least:
            return parts
    smallest = min(len(part) for part in parts)
    raise BadInput(
        "alpha",
        expected=f"a split in which every client has {task.least} records",
        got=f"a client with {smallest} in {ATTEMPTS} draws at alpha = {alpha:g}",
        remedy="Use a larger alpha or fewer clients.",
    )


def _dirichlet_once(
    task: Division, labels: NDArray[np.int64], alpha: float, draw: np.random.Generator
) -> list[Tensor]:
    members = task.members.numpy()
    owner = np.zeros(len(members), dtype=np.int64)
    for label in np.unique(labels):
        places = draw.permutation(np.flatnonzero(labels == label))
        shares = draw.dirichlet(np.full(task.clients, alpha))
        cuts = np.floor(np.cumsum(shares)[:-1] * len(places) + 0.5).astype(np.int64)
        for client, chosen in enumerate(np.split(places, cuts)):
            owner[chosen] = client
    return [torch.from_numpy(members[owner == client]) for client in range(task.clients)]


def by_label(task: Division, *, labels: int = 2) -> list[Tensor]:
    """Records sorted by label and cut into shards, `labels` of them to each client (McMahan et al. 2017)."""
    shards = task.clients * whole_number("labels", labels, most=10_000)
    order = task.shuffled("by-label")
    keys = torch.from_numpy(labels_of(task.dataset))[order]
    cut = torch.tensor_split(order[torch.argsort(keys, stable=True)], shards)
    deal = permutation(shards, fork(task.seed, "split", "by-label", "deal")).reshape(task.clients, labels)
    return [torch.cat([cut[int(shard)] for shard in mine]) for mine in deal]


def by_column(task: Division, *, column: str | None = None) -> list[Tensor]:
    """Records divided by a raw column: its categories, or equal ranges of a continuous one."""
    values = raw_column(task.dataset, column)[task.members.numpy()]
    distinct, index = np.unique(values, return_inverse=True)
    if as_ranges(values, task.clients):
        order = np.argsort(values, kind="stable")
        return [task.members[torch.from_numpy(part)] for part in np.array_split(order, task.clients)]
    if len(distinct) < task.clients:
        raise BadInput(
            "clients",
            expected=f"at most {len(distinct)}, the different values of {shown(column)}",
            got=task.clients,
            remedy="Use fewer clients or another column.",
        )
    return _groups_to_clients(task, index.astype(np.int64), len(distinct))


def as_ranges(values: NDArray[Any], clients: int) -> bool:
    """Whether a column is cut into ranges: numbers with more different values than there are clients."""
    return bool(values.dtype.kind in "fiu" and len(np.unique(values)) > clients)


def _groups_to_clients(task: Division, group: NDArray[np.int64], groups: int) -> list[Tensor]:
    """Whole groups to clients: in order when there is one each, else the largest to the emptiest client."""
    sizes = np.bincount(group, minlength=groups)
    client_of = np.arange(groups)
    if groups > task.clients:
        load = np.zeros(task.clients, dtype=np.int64)
        for place in np.argsort(-sizes, kind="stable"):
            client_of[place] = int(np.argmin(load))
            load[client_of[place]] += sizes[place]
    return [task.members[torch.from_numpy(client_of[group] == client)] for client in range(task.clients)]


def as_given(task: Division, *, owners: str = "first", minimum: int | None = None) -> list[Tensor]:
    """The natural owners as clients: the first (or random) ones that have `minimum` records or more."""
    if task.dataset.owner is None:
        raise BadInput(
            "partition",
            expected="data that says whose each record is",
            got=f"as-given for {task.dataset.name}",
            remedy="Use another partition, or an NPZ file with an array `client`.",
        )
    if owners not in ("first", "random"):
        raise unknown_name("owners", str(owners), ("first", "random"))
    least = max(task.least, whole_number("minimum", minimum) if minimum is not None else 1)
    mine = task.dataset.owner[task.members]
    found, sizes = torch.unique(mine, return_counts=True)
    able = found[sizes >= least]
    if len(able) < task.clients:
        raise BadInput(
            "clients",
            expected=f"at most {len(able)}, the owners with {least} records or more",
            got=task.clients,
            remedy=f"Use fewer clients or a smaller minimum; there are {len(found)} owners in all.",
        )
    if owners == "random":
        able = able[permutation(len(able), fork(task.seed, "split", "as-given"))]
    return [task.members[mine == owner] for owner in able[: task.clients]]


def labels_of(dataset: Dataset) -> NDArray[np.int64]:
    """Class numbers [n]; a regression target is cut into ten groups of equal size."""
    if dataset.space.target == "classification":
        return dataset.y.numpy()
    values = dataset.y.numpy().astype(np.float64)
    edges = np.quantile(values, np.linspace(0, 1, TARGET_BINS + 1)[1:-1])
    return np.searchsorted(edges, values, side="right").astype(np.int64)


def raw_column(dataset: Dataset, column: object) -> NDArray[Any]:
    """A raw column of the data set by name."""
    if not isinstance(column, str) or column not in dataset.raw:
        if not dataset.raw:
            raise BadInput(
                "column", expected="a table with columns", got=dataset.name, remedy="Use another partition."
            )
        raise unknown_name("column", str(column), dataset.raw)
    return np.asarray(dataset.raw[column])
