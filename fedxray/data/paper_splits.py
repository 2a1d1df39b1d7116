"""The papers' own divisions: Adult by doctorate and age, incomes by correlation with sex, faces by person."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedxray.data.checks import number, shown, whole_number
from fedxray.data.partition import Division, raw_column
from fedxray.errors import BadInput
from fedxray.seeds import fork, permutation

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
    places = order.numpy()
    doctor = raw_column(task.dataset, "education")[places] == "Doctorate"
    age = raw_column(task.dataset, "age")[places].astype(np.float64)
    groups = [
        doctor & (age < AGES[0]),
        doctor & (age >= AGES[0]) & (age <= AGES[1]),
        doctor & (age > AGES[1]),
    ]
    rest = order[torch.from_numpy(~doctor)][: max(total - int(doctor.sum()), 0)]
    return [
        *(order[torch.from_numpy(group)] for group in groups),
        *torch.tensor_split(rest, task.clients - 3),
    ]


def income_correlation(task: Division, *, heterogeneity: float = 0.4) -> list[Tensor]:
    """Half of the clients hold rich women and poor men, half the reverse; 0.5 - heterogeneity of each swap.

    Heterogeneity 0 is the same mixture everywhere, 0.5 is full separation; both groups are cut to equal size.
    """
    mix = 0.5 - number("heterogeneity", heterogeneity, least=0.0, most=0.5)
    if task.clients % 2:
        raise BadInput(
            "clients",
            expected="an even number for income-correlation",
            got=task.clients,
            remedy="Add or remove one.",
        )
    order = task.shuffled("income-correlation")
    first_sex, rich = _sex_and_wealth(task)
    expected_pair = (first_sex == rich)[order.numpy()]  # rich of the first sex, poor of the other
    alike, reverse = order[torch.from_numpy(expected_pair)], order[torch.from_numpy(~expected_pair)]
    size = min(len(alike), len(reverse))
    swap = round(mix * size)
    first = torch.cat([reverse[swap:size], alike[:swap]])
    second = torch.cat([alike[swap:size], reverse[:swap]])
    parts: list[Tensor] = []
    for name, group in (("first", first), ("second", second)):
        mixed = group[permutation(len(group), fork(task.seed, "split", "income-correlation", name))]
        parts.extend(torch.tensor_split(mixed, task.clients // 2))
    return parts


def _sex_and_wealth(task: Division) -> tuple[np.ndarray, np.ndarray]:
    """Whether each record has the first sensitive value (sex 1 is male), and a target above the median."""
    space = task.dataset.space
    column = space.column(space.sensitive) if space.sensitive else None
    if (
        column is None
        or len(column.categories) != 2
        or (space.target == "classification" and len(space.classes) != 2)
    ):
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
    """Every client has all pictures of its own people, and three or four random ones of each other person.

    So a picture is shared by several clients, as in the paper (40 people, 10 clients with 4 each).
    """
    people = torch.unique(task.dataset.y)
    if len(people) < task.clients:
        raise BadInput(
            "clients",
            expected=f"at most {len(people)}, the number of people",
            got=task.clients,
            remedy="Use fewer.",
        )
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
