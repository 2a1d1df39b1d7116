"""Download of a data set into the cache: fetched under a temporary name, checked, then renamed."""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.catalog import DATASETS, load
from fedxray.data.limits import CHUNK, check_size
from fedxray.data.sources import SOURCES, Recipe, Source
from fedxray.data.store import cache_folder
from fedxray.errors import BadInput, unknown_name
from fedxray.naming import load as load_named
from fedxray.progress import Report, Step, silent

Built = Mapping[str, Mapping[str, NDArray[Any]] | str]


def fetch(name: str, *, report: Report = silent) -> list[Path]:
    """Download, verify and store a data set; gives the files made, none where nothing has to be downloaded."""
    if name not in DATASETS and name not in SOURCES:  # weights of metrics are fetched alike
        raise unknown_name("data set", str(name), [*DATASETS, *SOURCES])
    if name not in SOURCES:
        load(name)  # made here or bundled; FEMNIST, which has no public file, says how to make it
        return []
    recipe = SOURCES[name]
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as folder:
            made = _make(name, recipe, Path(folder), report)
            places = [_move(file, cache / place) for place, file in made.items()]
    except OSError as problem:
        raise BadInput(
            "FEDXRAY_CACHE",
            expected="a folder with room to write to",
            got=f"{type(problem).__name__}: {problem}",
            remedy=f"Free {recipe.megabytes:g} MB there, or set FEDXRAY_CACHE to another folder.",
        ) from problem
    return places


def _make(name: str, recipe: Recipe, folder: Path, report: Report) -> dict[str, Path]:
    """Everything under temporary names: {place in the cache: file}."""
    files = []
    for number, source in enumerate(recipe.sources):
        report(
            Step(what=f"download {name} ({recipe.megabytes:g} MB)", done=number, total=len(recipe.sources))
        )
        files.append(_download(name, source, folder / f"source-{number}"))
    made = {source.saved: file for source, file in zip(recipe.sources, files, strict=True) if source.saved}
    if recipe.build:
        build: Callable[[list[Path]], Built] = load_named(recipe.build)
        for number, (place, content) in enumerate(build(files).items()):
            _check_fingerprint(name, recipe, place, content)
            made[place] = _write(folder / f"built-{number}", content)
    report(Step(what=f"download {name}", done=len(recipe.sources), total=len(recipe.sources)))
    return made


def _download(name: str, source: Source, file: Path) -> Path:
    """What the user put into the cache by hand, else the first address that answers with the right checksum."""
    by_hand = cache_folder() / "downloads" / name / source.file
    problems = []
    for url in (by_hand.absolute().as_uri(), *source.urls) if by_hand.is_file() else source.urls:
        try:
            digest = _copy(url, file)
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as problem:
            problems.append(f"{url}: {problem}")
            continue
        if source.sha256 and digest != source.sha256:
            problems.append(f"{url}: content with sha256 {digest} instead of {source.sha256}")
            continue
        return file
    raise BadInput(
        f"data set {name}",
        expected="a download",
        got="; ".join(problems),
        remedy=f"Try again with a network; or download {source.urls[0]} elsewhere, save it as {by_hand} and repeat.",
    )


def _copy(url: str, file: Path) -> str:
    """Copy an address to a file within the size cap; gives the sha256."""
    digest, total = hashlib.sha256(), 0
    request = urllib.request.Request(url, headers={"User-Agent": "fedxray"})
    with urllib.request.urlopen(request, timeout=60) as answer, file.open("wb") as stream:
        while part := answer.read(CHUNK):
            total += len(part)
            check_size(url, total)
            digest.update(part)
            stream.write(part)
        expected = answer.headers.get("Content-Length")
    if expected is not None and expected.isdigit() and int(expected) != total:
        raise http.client.IncompleteRead(b"", int(expected) - total)
    return digest.hexdigest()


def _check_fingerprint(
    name: str, recipe: Recipe, place: str, content: Mapping[str, NDArray[Any]] | str
) -> None:
    expected = (recipe.fingerprints or {}).get(place)
    found = fingerprint(content)
    if expected is not None and found != expected:
        raise BadInput(
            f"data set {name}",
            expected=f"content with fingerprint {expected}",
            got=found,
            remedy="The public source has changed: put the original file into the folder that FEDXRAY_DATA names.",
        )


def fingerprint(content: Mapping[str, NDArray[Any]] | str) -> str:
    """A sha256 of text, or of all arrays with their names, types and shapes."""
    digest = hashlib.sha256()
    if isinstance(content, str):
        digest.update(content.encode())
        return digest.hexdigest()
    for key in sorted(content):
        array = np.ascontiguousarray(content[key])
        digest.update(f"{key}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _write(file: Path, content: Mapping[str, NDArray[Any]] | str) -> Path:
    if isinstance(content, str):
        file.write_text(content, encoding="utf-8", newline="")
        return file
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **content)
    file.write_bytes(buffer.getvalue())
    return file


def _move(file: Path, place: Path) -> Path:
    """Into the cache, so that the place holds the whole file or none."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
    shutil.move(file, place.with_name(place.name + ".part"))
    os.replace(place.with_name(place.name + ".part"), place)
    return place
