"""Files of tensors: written whole or not at all, checked before use, a few of them mapped at a time."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedxray.data.limits import check_size
from fedxray.federation.index import DTYPES, Shard, TensorForm, broken
from fedxray.files import write_whole
from fedxray.params import is_finite

MOST_OPEN = 2  # shards mapped at the same time


class ShardReader:
    """The shards of one folder; each is checked by size and SHA-256 before its first use."""

    def __init__(self, folder: Path) -> None:
        """Nothing is opened yet."""
        self._folder = folder
        self._verified: set[str] = set()
        self._open: OrderedDict[str, tuple[Any, frozenset[str]]] = OrderedDict()

    def names(self, shard: Shard) -> frozenset[str]:
        """The names of the tensors in a shard."""
        return self._opened(shard)[1]

    def tensor(self, shard: Shard, name: str, form: TensorForm) -> Tensor:
        """One tensor by itself, a copy, of that shape and dtype and finite."""
        handle, path = self._opened(shard)[0], self._folder / shard.name
        try:
            piece = handle.get_slice(name)
            shape, dtype = piece.get_shape(), piece.get_dtype()
            if shape != form.shape or dtype != DTYPES[form.dtype]:
                raise broken(path, f"{name!r} as {form.dtype} {form.shape}", f"{dtype} {shape}")
            value: Tensor = handle.get_tensor(name).clone()  # a copy, since the map goes away
        except (SafetensorError, OSError, RuntimeError, ValueError) as problem:
            raise broken(path, "a whole shard", problem) from problem
        if not finite(value):
            raise broken(path, f"finite values in {name!r}", "infinite or NaN entries")
        return value

    def _opened(self, shard: Shard) -> tuple[Any, frozenset[str]]:
        if shard.name not in self._open:
            path = self._folder / shard.name
            self._verify(path, shard)
            try:
                handle: Any = safe_open(path, framework="pt", device="cpu")
                self._open[shard.name] = (handle, frozenset(handle.keys()))
            except (SafetensorError, OSError, RuntimeError, ValueError) as problem:
                raise broken(path, "a shard of tensors", problem) from problem
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(shard.name)
        return self._open[shard.name]

    def _verify(self, path: Path, shard: Shard) -> None:
        """Check a shard's size, then its checksum, once."""
        if shard.name in self._verified:
            return
        check_file(path, shard)
        try:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as problem:
            raise broken(path, "a readable file", problem, "Check its permissions.") from problem
        if digest != shard.sha256:
            raise broken(path, f"SHA-256 {shard.sha256[:16]}…", f"{digest[:16]}…: it was altered")
        self._verified.add(shard.name)


def check_file(path: Path, shard: Shard) -> None:
    """A shard must be a plain file of the size that the index tells, within the cap."""
    if path.is_symlink() or not path.is_file():
        raise broken(path, "a plain file", "a link" if path.is_symlink() else "no such file")
    size = path.stat().st_size
    if size != shard.bytes:
        raise broken(
            path, f"{shard.bytes} bytes", f"{size}: it was {'cut' if size < shard.bytes else 'altered'}"
        )
    check_size(f"transcript {str(path)!r}", size)


def write_shard(folder: Path, number: int, tensors: Mapping[str, Tensor]) -> Shard:
    """Write one shard and say what it is."""
    name = f"tensors-{number:05d}.safetensors"
    content = save(dict(tensors))
    write_whole(folder / name, content, "tensors")
    return Shard(name=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def finite(value: Tensor) -> bool:
    """Whether every entry is a finite number."""
    return is_finite({"": value})
