"""What a [data] table says to the loader of the data set and to the division among clients."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

from fedxray.audit import catalog
from fedxray.audit.plan.parts import DataPart
from fedxray.errors import unknown_name
from fedxray.naming import load


def load_arguments(data: DataPart, folder: Path, seed: int) -> dict[str, Any]:
    """Keyword arguments for `fedxray.data.load`."""
    options = loader_options(data)
    found = arguments(data, options)
    if "clients" in options:  # made for a number of clients
        found["clients"] = data.clients
    return found | {
        "name": data.name,
        "path": own_path(data, folder),
        "schema": schema_path(data, folder),
        "target": data.target,
        "sensitive": data.sensitive,
        "categorical": data.categorical,
        "drop": data.drop,
        "scale_target": data.scale_target,
        "seed": seed,
    }


def own_path(data: DataPart, folder: Path) -> Path | None:
    """Where the user's own data lie, None for a named data set."""
    # Not Path.expanduser, which breaks on the home of a user who does not exist.
    return None if data.path is None else (folder / os.path.expanduser(data.path)).absolute()


def schema_path(data: DataPart, folder: Path) -> Path | None:
    """Where the schema of made-up data lies, None for other data."""
    return None if data.schema_file is None else (folder / os.path.expanduser(data.schema_file)).absolute()


def split_arguments(data: DataPart, seed: int) -> dict[str, Any]:
    """Keyword arguments for `fedxray.data.split`."""
    return arguments(data, partition_options(data)) | {
        "clients": data.clients,
        "partition": data.partition,
        "holdout": data.holdout,
        "public": data.public,
        "limit": data.limit,
        "seed": seed,
    }


def arguments(data: DataPart, wanted: set[str]) -> dict[str, Any]:
    """The settings of a [data] table that are among the wanted ones."""
    return {name: value for name, value in data.settings.items() if name in wanted}


def loader_options(data: DataPart) -> set[str]:
    """Settings that the loader of this data set takes."""
    if data.name is not None:
        return keywords(catalog.resolve("datasets", data.name, "data.name")) - {"seed"}
    if data.schema_file is not None:
        from fedxray.data.schema import by_schema

        return keywords(by_schema) - {"seed"}
    from fedxray.data.own_csv import own_csv
    from fedxray.data.own_images import own_images
    from fedxray.data.own_npz import own_npz
    from fedxray.data.ready import ready_npz

    own = keywords(own_csv) | keywords(own_images) | keywords(own_npz) | keywords(ready_npz)
    return own | {"ready"}


def partition_options(data: DataPart) -> set[str]:
    """Settings that this partition takes."""
    from fedxray.data.partition import PARTITIONS

    if data.partition not in PARTITIONS:
        raise unknown_name("data.partition", data.partition, PARTITIONS)
    return keywords(load(PARTITIONS[data.partition]))


def keywords(function: Any) -> set[str]:
    """The keyword arguments of a function."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
