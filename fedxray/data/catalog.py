"""The table of data sets by name, and `load`, through which all data enters.

A data set is one function that returns a Dataset (its keyword arguments are its settings, its docstring is its
description) and one line in DATASETS, or the entry point of an installed package in the group fedxray.datasets.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedxray import plugins
from fedxray.data.checks import missing_file, shown
from fedxray.errors import BadInput, unknown_key
from fedxray.lookup import load as load_named, users_code

if TYPE_CHECKING:  # loaders are imported when they are used: the table needs no torch
    from fedxray.data.dataset import Dataset

DATASETS: Mapping[str, str] = {
    "digits": "fedxray.data.bundled:digits",
    "diabetes": "fedxray.data.bundled:diabetes",
    "clinic": "fedxray.data.bundled:clinic",
    "medical": "fedxray.data.tables:medical",
    "adult": "fedxray.data.tables:adult",
    "acs-income": "fedxray.data.tables:acs_income",
    "att-faces": "fedxray.data.pictures:att_faces",
    "mnist": "fedxray.data.pictures:mnist",
    "mnist-by-writer": "fedxray.data.pictures:mnist_by_writer",
    "femnist": "fedxray.data.pictures:femnist",
    "femnist-like": "fedxray.data.pictures:femnist_like",
    "fashion-mnist": "fedxray.data.pictures:fashion_mnist",
    "cifar10": "fedxray.data.pictures:cifar10",
    "cifar100": "fedxray.data.pictures:cifar100",
    "imagenet-sample": "fedxray.data.pictures:imagenet_sample",
    "flights": "fedxray.data.tables:flights",
    "leaf-synthetic": "fedxray.data.bundled:leaf_synthetic",
}

WRITER = "writer"  # the subject of data sets whose owners are people
WRITTEN = ("mnist", "mnist-by-writer", "femnist", "femnist-like")

# Meaning of every setting of a data set; "name.setting" where a data set gives it a meaning of its own.
SETTINGS: Mapping[str, str] = {
    "sensitive": "Column that the attacker wants to infer.",
    "scale_target": "Whether a numeric target is standardised. Default: yes.",
    "medical.scale_target": "Whether charges are standardised. Default: no, they stay in dollars.",
    "acs-income.scale_target": "Whether incomes are standardised. Default: no, they stay in dollars.",
    "normalise": "Whether pixels are standardised to mean 0 and standard deviation 1, or stay in 0..1.",
    "size": "Side in pixels, or [height, width]. Default: the images' own.",
    "imagenet-sample.size": "Side in pixels: 32, 64, 128 or 224.",
    "part": '"train" or "test".',
    "adult.part": '"train", "test" or "all".',
    "missing": 'Rows with an unknown value: "drop" them, or "keep" unknown as a category.',
    "state": 'Two-letter code of the state; "all" for every state with incomes in dollars.',
    "acs-income.share": "Share of every state's records that is used.",
    "drawn_occupations": "Number of added columns drawn at random, without information.",
    "clients": "Number of clients that data are generated for.",
    "records": "Records of each clinic.",
    "noise": "Standard deviation of the noise in the bill, in thousands.",
    "rare_diagnosis": "Share of patients with a flag that nothing else reveals; 0 leaves the column out.",
    "seed": "Seed of the random draws.",
    "rows": "Rows in the sample.",
    "writers": "Number of writers; 0 is all.",
    "samples": "Samples of every client; 0 draws LEAF's own uneven sizes.",
    "dims": "Number of columns, the last of them binary.",
    "classes": "Classes of the label.",
    "clusters": "Groups of clients with similar models.",
}


def load(
    name: str | None = None,
    *,
    path: str | Path | None = None,
    schema: str | Path | None = None,
    target: str | None = None,
    sensitive: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    scale_target: bool | None = None,
    subject: str | None = None,
    seed: int = 0,
    ready: bool = False,
    **options: Any,
) -> Dataset:
    """A data set of the catalogue by name, a user's own CSV file, image folder or NPZ file by path, or a schema's.

    `target` and `sensitive` are raw column names; `categorical` columns are categories although they hold numbers;
    `drop` leaves columns out; `scale_target` standardises a regression target; `subject` identifies the person of each
    record: a column, an array, or the "writer" of handwriting. Arrays of an NPZ file that are `ready`
    are used as they are, without any scaling. `seed` is for synthetic data; `options` are those of the loader.
    """
    origins = [origin for origin in (name, path, schema) if origin is not None]
    if len(origins) != 1:
        raise BadInput(
            "name",
            expected="either a name, a path or a schema",
            got="several" if origins else "none of them",
            remedy='Give name = "clinic" for a known data set, or path = "file.csv" for your own.',
        )
    given = {"target": target, "sensitive": sensitive, "scale_target": scale_target}
    settings = {key: value for key, value in given.items() if value is not None} | options
    settings |= {key: value for key, value in (("categorical", categorical), ("drop", drop)) if value}
    if not isinstance(ready, bool) or (ready and name is not None):
        expected, got = "true or false, and a path beside it", f"{shown(ready)} beside {name or path}"
        raise BadInput("ready", expected=expected, got=got, remedy="Leave ready out.")
    if name is not None:
        function = find_loader(name)
        if "seed" in inspect.signature(function).parameters:
            settings["seed"] = seed
        _check_settings(f"data set {name}", function, settings)
        plugin = plugins.find("datasets", name, DATASETS, "data set")
        dataset = function(**settings) if plugin is None else _from_plugin(plugin, function, settings)
        return dataset if subject is None else _by_writer(name, dataset, subject)
    settings |= {} if subject is None else {"subject": subject}
    if schema is not None:
        from fedxray.data.schema import by_schema

        _check_settings(f"schema {shown(str(schema))}", by_schema, settings)
        return by_schema(Path(os.path.expanduser(str(schema))), seed=seed, **settings)
    own = Path(os.path.expanduser(str(path)))
    function = _own_loader(own, ready)
    _check_settings(f"file {shown(own.name)}", function, settings)
    return function(own, **settings)


def _by_writer(name: str, dataset: Dataset, subject: str) -> Dataset:
    """The data set with its writers, who are its owners, as the people of its records."""
    if subject != WRITER or name not in WRITTEN or dataset.owner is None:
        expected = f'"{WRITER}" of {", ".join(WRITTEN)}, or a column of your own data'
        got = f"{shown(subject)} of {shown(name)}"
        raise BadInput("subject", expected=expected, got=got, remedy="Leave subject out.")
    from fedxray.data.subjects import number_subjects

    return replace(dataset, subject=number_subjects(dataset.owner.numpy()))


def options_of(name: str) -> tuple[str, ...]:
    """The settings that the loader of a data set takes."""
    return tuple(inspect.signature(find_loader(name)).parameters)


def names() -> list[str]:
    """Every data set that can be named: the built-in ones, then those of plug-ins."""
    return list(plugins.table("datasets", DATASETS))


def find_loader(name: str) -> Callable[..., Dataset]:
    """The loader function of a data set, built in or of a plug-in."""
    loader: Callable[..., Dataset] = plugins.resolve("datasets", str(name), DATASETS, "data set")
    return loader


def _from_plugin(plugin: plugins.Plugin, loader: Callable[..., Dataset], settings: Mapping[str, Any]) -> Dataset:
    """The data set of a plug-in, whose own errors are reported with its file and line."""
    from fedxray.data.dataset import Dataset

    expected = f"{plugin.name} of {plugin.package} to return a Dataset"
    with users_code("data set", expected, plugins.REMEDY):
        dataset = loader(**settings)
    if not isinstance(dataset, Dataset):
        raise BadInput("data set", expected=expected, got=type(dataset).__name__, remedy=plugins.REMEDY)
    return dataset


def _own_loader(path: Path, ready: bool) -> Callable[..., Dataset]:
    """The loader for a user's own file or folder, by its suffix."""
    try:
        folder, file = path.is_dir(), path.is_file()
    except (OSError, ValueError):  # a name too long, or with a zero byte
        folder = file = False
    if not folder and not file:
        raise missing_file(path)
    if ready and (folder or path.suffix.lower() != ".npz"):
        raise BadInput("ready", expected="an .npz file with x and y", got=shown(path.name), remedy="Leave ready out.")
    kind = "own_images:own_images" if folder else "own_csv:own_csv"
    if path.suffix.lower() == ".npz" and not folder:
        kind = "own_arrays:ready_npz" if ready else "own_arrays:own_npz"
    loader: Callable[..., Dataset] = load_named(f"fedxray.data.{kind}")
    return loader


def _check_settings(what: str, function: Callable[..., Dataset], settings: Mapping[str, Any]) -> None:
    known = [key for key in inspect.signature(function).parameters if key not in ("path", "seed")]
    for key in settings:
        if key not in known and key != "seed":
            raise unknown_key(key, key, known, of=what)
