"""A transcript as a folder: shards of tensors and a JSON index, written as the run goes on and read lazily.

The index is written last, so a folder without one is a recording that was not finished. On opening, the index
and the size of every shard are checked; a shard's SHA-256 is checked at its first use, so that opening a
large recording costs nothing. Nothing in a folder is ever executed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fedxray.data.space import Space
from fedxray.errors import BadInput
from fedxray.federation.index import (
    FORMAT,
    INDEX,
    KIND,
    Index,
    Place,
    Shard,
    TensorForm,
    broken,
    forms,
    message_form,
    message_of,
    read_index,
)
from fedxray.federation.setting import Federation, participant_count, recorded_rounds
from fedxray.federation.shards import ShardReader, check_file, finite, write_shard
from fedxray.federation.transcript import Parts, Transcript
from fedxray.files import room_for, write_whole
from fedxray.params import buffers_of, parameters_of

SHARD_BYTES = 64_000_000  # gathered in memory before a shard is written; a larger tensor gets its own shard
MOST_TENSOR_BYTES = 250_000_000  # with its header it still fits a shard of the format
TENSOR_OVERHEAD = 512  # what one more tensor costs besides its entries, in memory and in the shard's header

_Forms = dict[str, dict[str, TensorForm]]  # group -> own name -> form
_Wanted = dict[str, tuple[str, str, TensorForm]]  # name in the shard -> group, own name, form


class FolderShelf:
    """Tensors kept in a folder of shards; at most one shard's worth waits in memory."""

    def __init__(self, path: str | Path, *, shard_bytes: int = SHARD_BYTES) -> None:
        """Start a recording in a new or empty folder, readable by its owner alone."""
        self.path = Path(path)
        self._shard_bytes = min(shard_bytes, MOST_TENSOR_BYTES)
        self._waiting: dict[str, Tensor] = {}
        self._waiting_bytes = 0
        self._places: dict[str, Place] = {}
        self._forms: dict[str, _Forms] = {}
        self._known_forms: list[_Forms] = []  # most keys look alike and share one description
        self._shards: list[Shard] = []
        _make_folder(self.path)
        self._reader = ShardReader(self.path)

    def put(self, key: str, parts: Parts) -> None:
        """Keep these tensors under a new key."""
        if key in self._places:
            remedy = "Put every key once."
            raise BadInput("key", expected="a key that is not kept yet", got=repr(key), remedy=remedy)
        groups = {
            group: kept for group, kept in (("params", parts.params), ("buffers", parts.buffers)) if kept
        }
        shards = {
            self._add(_tensor_name(key, group, name), value)
            for group, tensors in groups.items()
            for name, value in tensors.items()
        }
        self._places[key] = Place.model_validate({"shards": sorted(shards), "holds": list(groups)})
        told = {group: forms(tensors) for group, tensors in groups.items()}
        self._forms[key] = next((known for known in self._known_forms if known == told), told)
        if self._forms[key] is told:
            self._known_forms.append(told)

    def _add(self, name: str, value: Tensor) -> int:
        """Let one tensor wait for its shard, and return that shard's number."""
        size = value.numel() * value.element_size()
        if not finite(value):
            remedy = "Lower the learning rate."
            raise BadInput(name, expected="finite values", got="infinite or NaN entries", remedy=remedy)
        if size > MOST_TENSOR_BYTES:
            limit = f"tensors of at most {MOST_TENSOR_BYTES} bytes"
            raise BadInput(name, expected=limit, got=size, remedy="Keep this run in memory.")
        size += TENSOR_OVERHEAD
        if self._waiting and self._waiting_bytes + size > self._shard_bytes:
            self.flush()
        self._waiting[name] = value.detach().to(device="cpu", copy=True).contiguous()
        self._waiting_bytes += size
        return len(self._shards)

    def reader(self, key: str) -> Callable[[], Parts]:
        """What fetches the tensors under that key; no message stands behind it, only this run's shards."""
        return functools.partial(self.get, key)

    def get(self, key: str) -> Parts:
        """The tensors under that key, whether they wait or are written."""
        wanted = _wanted(key, self._forms[key])
        found: dict[str, Tensor] = {}
        for number in self._places[key].shards:
            if number == len(self._shards):
                found.update({name: self._waiting[name].clone() for name in wanted if name in self._waiting})
            else:
                found.update(_from_shard(self._reader, self._shards[number], wanted))
        return _parts(found, wanted)

    def flush(self) -> None:
        """Write what waits as one shard."""
        if self._waiting:
            self._shards.append(write_shard(self.path, len(self._shards), self._waiting))
            self._waiting, self._waiting_bytes = {}, 0

    def finish(self, transcript: Transcript) -> None:
        """Write what waits and then the index; the folder is a whole transcript from here on."""
        self.flush()
        index = {
            "kind": KIND,
            "format": FORMAT,
            "loss": transcript.loss,
            "clients": transcript.clients,
            "secure_aggregation": transcript.secure_aggregation,
            "recorded": transcript.recorded,
            "params": _plain(forms(parameters_of(transcript.model))),
            "buffers": _plain(forms(buffers_of(transcript.model))),
            "shards": [shard.model_dump() for shard in self._shards],
            "places": _plain(self._places),
            "messages": [message_form(message) for message in transcript.messages],
        }
        text = json.dumps(index, separators=(",", ":"), allow_nan=False)
        write_whole(self.path / INDEX, text.encode(), "index")


def write_transcript(transcript: Transcript, path: str | Path) -> None:
    """Write a transcript to a folder; one that was recorded there only gets its index."""
    shelf = transcript.shelf
    if not isinstance(shelf, FolderShelf) or shelf.path != Path(path):
        source, shelf = shelf, FolderShelf(path)
        for key in dict.fromkeys(message.parts for message in transcript.messages):
            shelf.put(key, source.get(key))
    shelf.finish(transcript)


def read_transcript(path: str | Path, *, model: nn.Module, space: Space) -> Transcript:
    """The transcript in a folder, checked against the model; its tensors are read when asked for."""
    folder = Path(path)
    index = read_index(folder, model)
    for shard in index.shards:
        check_file(folder / shard.name, shard)
    return Transcript(
        messages=tuple(message_of(form) for form in index.messages),
        shelf=_FinishedShelf(folder, index, model),
        model=model,
        space=space,
        loss=index.loss,
        clients=index.clients,
        secure_aggregation=index.secure_aggregation,
        recorded=index.recorded,
    )


class _FinishedShelf:
    """The tensors of a finished folder, each of the model's shape and dtype and finite."""

    def __init__(self, folder: Path, index: Index, model: nn.Module) -> None:
        self._folder, self._index, self._reader = folder, index, ShardReader(folder)
        self._forms = {"params": forms(parameters_of(model)), "buffers": forms(buffers_of(model))}

    def put(self, key: str, parts: Parts) -> None:
        """Refuse, since a finished transcript does not change."""
        got, remedy = f"a finished one in {self._folder}", "Record into another folder."
        raise BadInput("transcript", expected="a recording under way", got=got, remedy=remedy)

    def reader(self, key: str) -> Callable[[], Parts]:
        """What fetches the tensors under that key; no message stands behind it, only this run's shards."""
        return functools.partial(self.get, key)

    def get(self, key: str) -> Parts:
        """The tensors under that key."""
        place = self._index.places[key]
        wanted = _wanted(key, {group: told for group, told in self._forms.items() if group in place.holds})
        found: dict[str, Tensor] = {}
        for number in place.shards:
            found.update(_from_shard(self._reader, self._index.shards[number], wanted))
        missing = wanted.keys() - found.keys()
        if missing:
            raise broken(self._folder, f"the tensor {min(missing)!r}", "none in the shards of its key")
        return _parts(found, wanted)


def _from_shard(reader: ShardReader, shard: Shard, wanted: _Wanted) -> dict[str, Tensor]:
    present = reader.names(shard)
    return {
        name: reader.tensor(shard, name, form) for name, (_, _, form) in wanted.items() if name in present
    }


def _make_folder(path: Path) -> None:
    what = f"folder {str(path)!r}"
    try:
        with room_for(what):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = next(path.iterdir(), None)
    except OSError as problem:
        remedy = "Choose another place."
        raise BadInput(what, expected="a folder that can be written", got=problem, remedy=remedy) from problem
    if held is not None:
        remedy = "Choose another folder, or remove what is there."
        raise BadInput(
            what, expected="an empty folder for a recording", got=f"{held.name} in it", remedy=remedy
        )


def _tensor_name(key: str, group: str, name: str) -> str:
    return f"{key}:{group}:{name}"


def _wanted(key: str, told: _Forms) -> _Wanted:
    return {
        _tensor_name(key, group, name): (group, name, form)
        for group, group_forms in told.items()
        for name, form in group_forms.items()
    }


def _parts(found: dict[str, Tensor], wanted: _Wanted) -> Parts:
    groups: dict[str, dict[str, Tensor]] = {"params": {}, "buffers": {}}
    for full, (group, name, _) in wanted.items():
        groups[group][name] = found[full]
    return Parts(groups["params"], groups["buffers"])


def _plain(models: dict[str, Any]) -> dict[str, Any]:
    return {name: model.model_dump() for name, model in models.items()}


def transcript_bytes(federation: Federation) -> int:
    """About how many bytes the folder of this run will take, rather more than less."""
    params, buffers = parameters_of(federation.model), buffers_of(federation.model)
    kept = recorded_rounds(federation.record, federation.rounds)
    models = len(kept | {round + 1 for round in kept})
    replies = len(kept) * participant_count(federation)
    stacks = [(models, params), (models, buffers), (replies, params), (replies, buffers), (len(kept), params)]
    tensors = sum(count * sum(map(_stored_bytes, group.items())) for count, group in stacks)
    return tensors + 220 * (2 * replies + 2 * len(kept)) + 100 * (models + 2 * replies) + 2000


def _stored_bytes(named: tuple[str, Tensor]) -> int:
    """A tensor with its entry in a shard's header."""
    name, value = named
    return value.numel() * value.element_size() + len(name) + 105
