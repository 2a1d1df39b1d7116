"""Restorers of a plan: their labels, their priors, and the check that no prior has seen an audited client.

An `[[attack]]` with `restore` counts as several: the raw one under its own label, and one for each restorer under
`label+restorer`. So raw and restored scores always stand side by side, with the same floors and the same controls,
the latter restored too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedxray.errors import BadInput

if TYPE_CHECKING:
    from fedxray.attacks.base import Attack
    from fedxray.attacks.evidence import Evidence
    from fedxray.audit.plan import AttackPart
    from fedxray.data.dataset import Records, Space
    from fedxray.federation.truth import Truth
    from fedxray.restore.base import Restorer, Shaped

KIND_OF_PRIOR = {"Diffusion": "diffusion", "RestoringNetwork": "network"}


def raw_and_restored(part: AttackPart, folder: Path) -> list[AttackPart]:
    """Return the attack without its restorers, then with each; relative paths of priors start at the folder."""
    if part.restore is None:
        return [part]
    versions = [part.model_copy(update={"restore": None, "label": part.title})]
    for table in named(part.restore, f"attack {part.title}: restore"):
        label = restored_title(part.title, table)
        rest = {key: value for key, value in table.items() if key != "label"}
        if isinstance(rest.get("prior"), str) and os.path.isdir(folder / os.path.expanduser(rest["prior"])):
            rest["prior"] = str((folder / os.path.expanduser(rest["prior"])).absolute())
        versions.append(part.model_copy(update={"restore": rest, "label": label}))
    return versions


def restored_title(title: str, table: Mapping[str, Any]) -> str:
    """Return the label of a restored attack."""
    return f"{title}+{table.get('label', table['name'])}"


def folders_of_priors(parts: Iterable[AttackPart]) -> list[Path]:
    """Return the folders of all priors that these attacks name, each once; a pinned prior of the hub has none."""
    named = {str(part.restore.get("prior")) for part in parts if isinstance(part.restore, Mapping)}
    return [Path(prior) for prior in sorted(named) if os.path.isdir(Path(prior))]


def named(restore: Any, place: str) -> list[dict[str, Any]]:
    """Return the restorers of a plan as tables with a name."""
    tables = []
    for entry in restore if isinstance(restore, list) and restore else [restore]:
        table = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
            expected = "the name of a restorer, a table with its name and prior, or a list of these"
            remedy = 'For instance restore = { name = "ddrm", prior = "priors/cifar10" }.'
            raise BadInput(place, expected=expected, got=repr(entry), remedy=remedy)
        if not isinstance(table.get("label", ""), str):
            raise BadInput(f"{place}.label", expected="a text", got=repr(table["label"]), remedy="Leave it out.")
        tables.append(dict(table))
    return tables


def make_restorer(table: Mapping[str, Any], place: str) -> Restorer[Any]:
    """Return the restorer of a table with its name."""
    from fedxray.audit import catalog
    from fedxray.audit.catalog import fill_fields

    def no_attack(value: Any, argument: str) -> Any:
        raise BadInput(argument, expected="a plain value", got=repr(value), remedy="Restorers hold no attacks.")

    cls = catalog.resolve("restorers", table["name"], f"{place}.name")
    settings = {key: value for key, value in table.items() if key not in ("name", "label")}
    restorer: Restorer[Any] = fill_fields(cls, settings, place, no_attack)
    return restorer


def restore(part: AttackPart, truth: Truth, raw: Evidence) -> Evidence:
    """Return raw evidence after the restorer of a part, which gets only the public description of the inputs."""
    from fedxray.seeds import fork

    restorer, prior = tools_of(part)
    check_unseen(part, prior, truth.space, (*truth.train, *truth.holdout))
    return restorer.restore(
        raw, prior, space=truth.space, generator=fork(truth.seed, "restorations of an audit", part.title)
    )


def check_restoring(part: AttackPart, attack: Attack, space: Space) -> None:
    """Refuse, before anything starts, a restorer that cannot be made, has no prior or does not fit these images."""
    if part.restore is None:
        return
    from fedxray.restore.base import check_evidence, check_shape

    restorer, prior = tools_of(part)
    with _naming(part):
        check_evidence(restorer.name, attack.kind)
        kind = KIND_OF_PRIOR.get(type(prior).__name__, "unknown")
        if kind not in restorer.needs:
            expected = f"a prior that {restorer.name} can use ({', '.join(restorer.needs)})"
            remedy = "Train one with `fedxray train-prior --kind`: gan for gan, ddpm or dit for the others."
            raise BadInput("restore.prior", expected=expected, got=f"one of kind {kind}", remedy=remedy)
        check_shape(restorer.name, prior.shape, space)
        restorer.check(prior)


def tools_of(part: AttackPart) -> tuple[Restorer[Any], Shaped]:
    """Return the restorer of a restored version and its prior, which is loaded once."""
    with _naming(part):
        restorer = make_restorer(part.restore, "restore")
        return restorer, _loaded(restorer.prior, restorer.revision)


@contextmanager
def _naming(part: AttackPart) -> Iterator[None]:
    """Let refusals of the block name the attack of the plan."""
    try:
        yield
    except BadInput as error:
        where = error.argument if error.argument.startswith("restore") else f"restore: {error.argument}"
        raise error.at(f"attack {part.title}: {where}") from error


def check_unseen(part: AttackPart, prior: Shaped, space: Space, records: Iterable[Records]) -> None:
    """Refuse a prior that was trained on records of a client, held out or not."""
    from fedxray.restore.loading import check_overlap

    for index, client in enumerate(records):
        if len(client):
            whose = f"a client ({index + 1}. of the lists of training and held-out records)"
            check_overlap(f"attack {part.title}: restore.prior", prior.seen, space.to_pixels(client.x), whose)


def restoring_facts(part: AttackPart) -> dict[str, Any]:
    """Return what the ledger holds of a restored result, nothing for a raw one."""
    if part.restore is None:
        return {}
    restorer, prior = tools_of(part)
    return {"restored_by": restorer.name, "prior": dict(prior.facts)}


@lru_cache(maxsize=4)
def _loaded(prior: str, revision: str | None) -> Shaped:
    from fedxray.restore.loading import load_prior

    return load_prior(prior, revision)
