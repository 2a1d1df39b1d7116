"""Partitions of records among clients by name: each function gives one index tensor per client.

General ones first (iid, Dirichlet, by label, by column, as given, by sizes), then the papers' own divisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedxray.data.checks import number, shown, whole_number
from fedxray.data.dataset import Dataset
from fedxray.errors import BadInput, unknown_name
from fedxray.seeds import derive_seed, fork, permutation

PARTITIONS: Mapping[str, str] = {
    "iid": "fedxray.data.partition:iid",
    "dirichlet": "fedxray.data.partition:dirichlet",
    "by-label": "fedxray.data.partition:by_label",
    "by-column": "fedxray.data.partition:by_column",
    "as-given": "fedxray.data.partition:as_given",
    "sizes": "fedxray.data.partition:sizes_in_turn",
    "adult-doctorate": "fedxray.data.partition:adult_doctorate",
    "income-correlation": "fedxray.data.partition:income_correlation",
    "att-faces": "fedxray.data.partition:att_faces",
}
TARGET_BINS = 10  # groups of equal size of a regression target, where a partition goes by label
ATTEMPTS = 100  # draws of a Dirichlet split before giving up on a client without records


@dataclass(frozen=True, kw_only=True)
class Division:
    """The task of a partition function: `members` of the data set are divided among `clients`."""

    dataset: Dataset
    members: Tensor  # [m] int64, sorted
    clients: int
    least: int  # smallest number of records of a client
    seed: int

    def shuffled(self, *purpose: object) -> Tensor:
        """The members in a random order that depends only on the seed and the purpose, [m]."""
        return self.members[permutation(len(self.members), fork(self.seed, "split", *purpose))]

    def numbers(self, *purpose: object) -> np.random.Generator:
        """A NumPy generator for draws that depend only on the seed and the purpose."""
        return np.random.default_rng(derive_seed(self.seed, "split", *purpose))


def too_many_clients(clients: int, most: int, what: str, remedy: str = "Use fewer clients.") -> BadInput:
    """The refusal of more clients than the data has parts for; `what` describes these parts."""
    return BadInput("clients", expected=f"at most {most}, {what}", got=clients, remedy=remedy)


def iid(task: Division) -> list[Tensor]:
    """Equal shares of a random order, one [records] per client."""
    return list(torch.tensor_split(task.shuffled("iid"), task.clients))


def dirichlet(task: Division, *, alpha: float = 0.5) -> list[Tensor]:
    """For every label, the clients' shares drawn from Dirichlet(alpha) (Hsu et al. 2019); small alpha is uneven."""
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


def _dirichlet_once(task: Division, labels: NDArray[np.int64], alpha: float, draw: np.random.Generator) -> list[Tensor]:
    """One draw of the split: every label is cut by its own shares."""
    owner = np.zeros(len(task.members), dtype=np.int64)
    for label in np.unique(labels):
        indices = draw.permutation(np.flatnonzero(labels == label))
        shares = draw.dirichlet(np.full(task.clients, alpha))
        cuts = np.floor(np.cumsum(shares)[:-1] * len(indices) + 0.5).astype(np.int64)
        for client, chosen in enumerate(np.split(indices, cuts)):
            owner[chosen] = client
    return by_number(task.members, torch.from_numpy(owner), task.clients)


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
        remedy = "Use fewer clients or another column."
        raise too_many_clients(task.clients, len(distinct), f"the different values of {shown(column)}", remedy)
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
        for number in np.argsort(-sizes, kind="stable"):
            client_of[number] = int(np.argmin(load))
            load[client_of[number]] += sizes[number]
    return by_number(task.members, torch.from_numpy(client_of[group]), task.clients)


def as_given(task: Division, *, owners: str = "first", minimum: int | None = None) -> list[Tensor]:
    """The natural owners as clients: the first (or random) ones that have `minimum` records or more."""
    if task.dataset.owner is None:
        raise BadInput(
            "partition",
            expected="data with an owner for each record",
            got=f"as-given for {task.dataset.name}",
            remedy="Use another partition, or an NPZ file with an array `client`.",
        )
    if owners not in ("first", "random"):
        raise unknown_name("owners", str(owners), ("first", "random"))
    least = max(task.least, whole_number("minimum", minimum) if minimum is not None else 1)
    mine = task.dataset.owner[task.members]
    every_owner, number, sizes = torch.unique(mine, return_inverse=True, return_counts=True)
    able = (sizes >= least).nonzero()[:, 0]
    if len(able) < task.clients:
        remedy = f"Use fewer clients or a smaller minimum; there are {len(every_owner)} owners in all."
        raise too_many_clients(task.clients, len(able), f"the owners with {least} records or more", remedy)
    if owners == "random":
        able = able[permutation(len(able), fork(task.seed, "split", "as-given"))]
    records = by_number(task.members, number, len(every_owner))
    return [records[owner] for owner in able[: task.clients].tolist()]


def by_number(members: Tensor, number: Tensor, groups: int) -> list[Tensor]:
    """The members with number 0, 1, ..., `groups` - 1, in their order; `number` is that of each member, both [m]."""
    order = torch.argsort(number, stable=True)
    return list(members[order].split(torch.bincount(number, minlength=groups).tolist()))


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
            raise BadInput("column", expected="a table with columns", got=dataset.name, remedy="Use another partition.")
        raise unknown_name("column", str(column), dataset.raw)
    return np.asarray(dataset.raw[column])


def sizes_in_turn(task: Division, *, sizes: object = ()) -> list[Tensor]:
    """A random order cut into these sizes, which are repeated for further clients; records left over have no use.

    The order does not depend on the sizes: divisions of equal total divide the same records.
    """
    if not isinstance(sizes, list | tuple) or not sizes:
        expected = "a list of the number of records of each client"
        remedy = "For instance sizes = [21, 11]: every other client holds 11."
        raise BadInput("sizes", expected=expected, got=repr(sizes), remedy=remedy)
    turn = [whole_number("sizes", size) for size in sizes]
    wanted = [turn[client % len(turn)] for client in range(task.clients)]
    if sum(wanted) > len(task.members):
        remedy = "Use smaller sizes, fewer clients, or a smaller public share."
        raise BadInput("sizes", expected=f"at most {len(task.members)} records in all", got=sum(wanted), remedy=remedy)
    return list(task.shuffled("sizes")[: sum(wanted)].split(wanted))


# The papers' own divisions

AGES = (38, 52)  # doctors younger than the first, between both, older than the second


def adult_doctorate(task: Division, *, total: int = 12_300) -> list[Tensor]:
    """Clients 0, 1, 2: doctors below 38, of 38 to 52, above 52; the others share the rest of `total` records.

    The paper's three doctor clients add up to 861 records, but Adult has fewer, so they are smaller here.
    """
    whole_number("total", total)
    if task.clients < 4:
        raise BadInput(
            "clients", expected="at least 4 for adult-doctorate", got=task.clients, remedy="The paper has 10."
        )
    order = task.shuffled("adult-doctorate")
    rows = order.numpy()
    doctor = raw_column(task.dataset, "education")[rows] == "Doctorate"
    age = raw_column(task.dataset, "age")[rows].astype(np.float64)
    groups = [doctor & (age < AGES[0]), doctor & (age >= AGES[0]) & (age <= AGES[1]), doctor & (age > AGES[1])]
    rest = order[torch.from_numpy(~doctor)][: max(total - int(doctor.sum()), 0)]
    return [*(order[torch.from_numpy(group)] for group in groups), *torch.tensor_split(rest, task.clients - 3)]


def income_correlation(task: Division, *, heterogeneity: float = 0.4) -> list[Tensor]:
    """Half of the clients hold rich women and poor men, half the reverse; 0.5 - heterogeneity of each swap.

    Heterogeneity 0 is the same mixture everywhere, 0.5 is full separation; both groups are cut to equal size.
    """
    mix = 0.5 - number("heterogeneity", heterogeneity, least=0.0, most=0.5)
    if task.clients % 2:
        raise BadInput(
            "clients", expected="an even number for income-correlation", got=task.clients, remedy="Add or remove one."
        )
    order = task.shuffled("income-correlation")
    first_sex, rich = _sex_and_wealth(task)
    expected_pair = (first_sex == rich)[order.numpy()]  # rich of the first sex, poor of the other
    paired, reverse = order[torch.from_numpy(expected_pair)], order[torch.from_numpy(~expected_pair)]
    size = min(len(paired), len(reverse))
    swap = round(mix * size)
    first = torch.cat([reverse[swap:size], paired[:swap]])
    second = torch.cat([paired[swap:size], reverse[:swap]])
    parts: list[Tensor] = []
    for name, group in (("first", first), ("second", second)):
        mixed = group[permutation(len(group), fork(task.seed, "split", "income-correlation", name))]
        parts.extend(torch.tensor_split(mixed, task.clients // 2))
    return parts


def _sex_and_wealth(task: Division) -> tuple[np.ndarray, np.ndarray]:
    """Whether each record has the first sensitive value (sex 1 is male), and a target above the median."""
    space = task.dataset.space
    column = space.column(space.sensitive) if space.sensitive else None
    if column is None or len(column.categories) != 2 or (space.target == "classification" and len(space.classes) != 2):
        raise BadInput(
            "partition",
            expected="a sensitive column of two values and an income or two classes",
            got=f"income-correlation for {shown(task.dataset.name)}",
            remedy="It is meant for acs-income.",
        )
    values = np.asarray(task.dataset.raw[column.name])
    y = task.dataset.y.numpy()
    return values == np.unique(values)[0], y > (0 if space.target == "classification" else np.median(y))


def att_faces(task: Division) -> list[Tensor]:
    """Every client has all pictures of its own people, and three or four random pictures of each other person.

    So a picture is shared by several clients, as in the paper (40 people, 10 clients with 4 each).
    """
    people = torch.unique(task.dataset.y)
    if len(people) < task.clients:
        raise too_many_clients(task.clients, len(people), "the number of people")
    generator = fork(task.seed, "split", "att-faces")
    own = torch.tensor_split(people[permutation(len(people), generator)], task.clients)
    label = task.dataset.y[task.members]
    parts: list[Tensor] = []
    for mine in own:
        chosen = [task.members[torch.isin(label, mine)]]
        for person in people[~torch.isin(people, mine)]:
            pictures = task.members[label == person]
            count = 3 + int(torch.randint(0, 2, (1,), generator=generator, device="cpu"))
            chosen.append(pictures[permutation(len(pictures), generator)[:count]])
        parts.append(torch.cat(chosen).sort().values)
    return parts
