"""A transcript as a folder: shards of tensors and a JSON index, written during the run and read lazily.

The index is written last, so a folder without one is an unfinished run. On opening, the index
and the size of every shard are checked; a shard's SHA-256 is checked at its first use, so that opening a
large recording costs nothing. Nothing in a folder is ever executed.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from fedxray.data.checks import check_size, max_bytes
from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.federation.setting import Federation, participant_count, recorded_rounds
from fedxray.federation.transcript import (
    SERVER,
    TENSOR_OVERHEAD,
    WIRE,
    Message,
    Parts,
    Reported,
    Transcript,
    client_reader,
)
from fedxray.files import read_json, room_for, write_whole
from fedxray.losses import LOSSES
from fedxray.params import Params, buffers_of, is_finite, parameters_of

# The index: its JSON form, and every check that needs no tensor

FORMAT = 1
KIND = "fedxray transcript"
INDEX = "transcript.json"
MOST_INDEX_BYTES = 128 * 1024**2
MOST_SHARD_BYTES = 256_000_000
Dtype = Literal["float16", "bfloat16", "float32", "float64", "uint8", "int32", "int64", "bool"]  # others are refused
# dtype -> its name in a shard's header
DTYPES = dict(zip(get_args(Dtype), ("F16", "BF16", "F32", "F64", "U8", "I32", "I64", "BOOL"), strict=True))
ASK_AGAIN = "Record the federation again, or ask for a complete copy."

Count = Annotated[int, Field(ge=0, lt=2**53)]
Key = Annotated[str, Field(min_length=1, max_length=200)]
Group = Literal["params", "buffers"]


class Damaged(BadInput):
    """A file of a transcript was altered or cut off, or belongs to another federation."""

    quotes = False


class _IndexPart(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TensorForm(_IndexPart):
    """Shape and dtype of one tensor."""

    shape: Annotated[list[Count], Field(max_length=16)]
    dtype: Dtype


class Shard(_IndexPart):
    """One file of tensors: a plain name, its size and its SHA-256."""

    name: Annotated[str, Field(pattern=r"^tensors-[0-9]{5,9}\.safetensors$")]
    bytes: Annotated[int, Field(ge=0, le=MOST_SHARD_BYTES)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TensorPlace(_IndexPart):
    """The location of the tensors of one key: numbers of shards, and which groups are stored."""

    shards: Annotated[list[Count], Field(max_length=10_000)]
    holds: Annotated[list[Group], Field(max_length=2)]


class MessageForm(_IndexPart):
    """One message in the file."""

    what: Literal["broadcast", "reply", "sum", "outcome", "state"]
    round: Count
    client: Count | None = None
    parts: Key
    kind: Literal["weights", "gradient"] = "weights"
    examples: Count | None = None
    contributors: list[Count] = Field(default_factory=list)
    readers: list[str]
    tampered: bool = False


class ReportedForm(_IndexPart):
    """What was reported beside the models of one round."""

    round: Count
    metrics: dict[str, float]
    nodes: Count | None
    examples: Count | None


class Index(_IndexPart):
    """The index of a folder."""

    kind: Literal["fedxray transcript"]
    format: Literal[1]
    loss: str
    clients: Annotated[int, Field(ge=1, le=10_000_000)]
    secure_aggregation: bool
    recorded: bool
    params: dict[str, TensorForm]
    buffers: dict[str, TensorForm]
    shards: list[Shard]
    places: dict[Key, TensorPlace]
    messages: list[MessageForm]
    reported: list[ReportedForm] = Field(default_factory=list)


def forms(tensors: Params) -> dict[str, TensorForm]:
    """Shapes and dtypes by name."""
    return {
        name: TensorForm(shape=list(value.shape), dtype=_dtype_name(name, str(value.dtype)))
        for name, value in tensors.items()
    }


def _dtype_name(name: str, dtype: str) -> Any:
    """The name of a dtype in the index, refused where the format has none."""
    plain = dtype.removeprefix("torch.")
    if plain not in DTYPES:
        remedy = "Convert it before recording."
        raise BadInput(f"tensor {name!r}", expected=f"a dtype of {', '.join(DTYPES)}", got=plain, remedy=remedy)
    return plain


def message_form(message: Message) -> dict[str, Any]:
    """A message as plain values; default values are left out."""
    plain = {**vars(message), "contributors": list(message.contributors), "readers": sorted(message.readers)}
    return MessageForm(**plain).model_dump(exclude_defaults=True)


def messages_of(forms: Sequence[MessageForm]) -> tuple[Message, ...]:
    """The messages of checked forms; those with the same readers share one set of them."""
    readers = {tuple(form.readers): frozenset(form.readers) for form in forms}
    return tuple(
        Message(**{**vars(form), "contributors": tuple(form.contributors), "readers": readers[tuple(form.readers)]})
        for form in forms
    )


def broken(path: Path, expected: str, got: object, remedy: str = ASK_AGAIN) -> Damaged:
    """The refusal of a file of a transcript, with its path; a long `got` is cut."""
    text = str(got)
    return Damaged(
        f"transcript {str(path)!r}",
        expected=expected,
        got=text if len(text) <= 300 else text[:297] + "...",
        remedy=remedy,
    )


def read_index(folder: Path, model: nn.Module) -> Index:
    """The index of a transcript folder, checked by itself and against the model."""
    path = folder / INDEX
    plain = _read(path)
    if not isinstance(plain, dict) or plain.get("kind") != KIND:
        raise broken(path, f'an index with kind = "{KIND}"', "something else", "Name a folder that fedxray recorded.")
    version = plain.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise broken(path, f"format {FORMAT}", f"format {version}", "It comes from a newer fedxray: update yours.")
    try:
        index = Index.model_validate(plain)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise broken(path, "a complete index", f"{where}: {first['msg']}") from problem
    _check_against_model(path, index, model)
    _check_places(path, index)
    _check_messages(path, index)
    return index


def _read(path: Path) -> Any:
    """The value of the index, which must be a plain file within the size cap."""
    try:
        plain, link = path.is_file(), path.is_symlink()
    except (OSError, ValueError) as problem:  # a name too long, or with a zero byte
        raise broken(path, "a readable file", problem, "Check the path and its permissions.") from problem
    if link or not plain:
        got, remedy = "a link" if link else "no such file", "Name the folder of a finished recording."
        raise broken(path, "a plain file", got, remedy)
    most = min(max_bytes(), MOST_INDEX_BYTES)
    return read_json(path, argument=f"transcript {str(path)!r}", remedy=ASK_AGAIN, most=most)


def _check_against_model(path: Path, index: Index, model: nn.Module) -> None:
    """The names, shapes and dtypes of the recording must be the model's own."""
    if index.loss not in LOSSES:
        raise broken(path, f"a loss of {', '.join(LOSSES)}", repr(index.loss))
    for what, recorded, wanted in (
        ("parameters", index.params, forms(parameters_of(model))),
        ("buffers", index.buffers, forms(buffers_of(model))),
    ):
        if recorded != wanted:
            name = next(name for name in {**wanted, **recorded} if recorded.get(name) != wanted.get(name))
            raise broken(
                path,
                f"the {what} of the model: {name!r} {_described(wanted.get(name))}",
                _described(recorded.get(name)),
                "Give the network that was trained.",
            )


def _described(form: TensorForm | None) -> str:
    return "absent" if form is None else f"{form.dtype} {form.shape}"


def _check_places(path: Path, index: Index) -> None:
    names = [shard.name for shard in index.shards]
    if len(set(names)) != len(names):
        raise broken(path, "every shard once", "a shard named twice")
    for key, place in index.places.items():
        if any(number >= len(names) for number in place.shards) or len(set(place.holds)) != len(place.holds):
            raise broken(path, "places in listed shards", f"{key!r} in shards {place.shards}")


def _check_messages(path: Path, index: Index) -> None:
    """Refuse messages that occur twice or do not fit together."""
    seen: set[tuple[str, int, int | None]] = set()
    sent = {(form.round, form.client): form for form in index.messages if form.what == "broadcast"}
    for form in index.messages:
        problem = _problem(form, index.places, index.clients)
        identity = (form.what, form.round, form.client)
        if identity in seen:
            problem = "it occurs twice"
        if form.what == "reply" and not _answers(form, sent.get((form.round, form.client))):
            problem = "its readers saw no broadcast to that client in that round"
        if problem:
            raise broken(path, "messages that fit together", f"{form.what} of round {form.round}: {problem}")
        seen.add(identity)


def _answers(reply: MessageForm, broadcast: MessageForm | None) -> bool:
    """Whether every reader of a reply could also read the broadcast before it."""
    return broadcast is not None and set(reply.readers) <= set(broadcast.readers)


def _problem(form: MessageForm, places: Mapping[str, TensorPlace], clients: int) -> str:
    """The problem of one message as a text, empty if there is none."""
    if form.parts not in places:
        return f"its tensors {form.parts!r} are in no shard"
    if form.what != "state" and "params" not in places[form.parts].holds:
        return f"its tensors {form.parts!r} are of another kind"
    if (form.client is None) != (form.what in ("sum", "outcome")):
        return "a broadcast, reply or state belongs to one client, a sum or outcome to none"
    if form.client is not None and form.client >= clients:
        return f"client {form.client} of {clients}"
    if any(client >= clients for client in form.contributors) or len(set(form.contributors)) != len(form.contributors):
        return f"contributors beyond {clients} clients or named twice"
    for reader, times in Counter(form.readers).items():
        if reader not in (SERVER, WIRE) and not _is_client(reader, clients):
            return f"unknown reader {reader[:80]!r}"
        if times > 1:
            return f"its reader {reader!r} is named twice"
    return ""


def _is_client(reader: str, clients: int) -> bool:
    """Whether this is the reader's name of one of that many clients, without listing them all."""
    number = reader.rpartition(":")[2]
    return number.isdecimal() and len(number) < 9 and int(number) < clients and reader == client_reader(int(number))


# Shards: files of tensors, checked before use, a few of them mapped at a time

_Forms = dict[str, dict[str, TensorForm]]  # group -> own name -> form
_Wanted = dict[str, tuple[str, str, TensorForm]]  # name in the shard -> group, own name, form

MOST_OPEN = 2  # shards mapped at the same time


MOST_VERIFIED = 10_000  # shards that are not checked again while their files stay as they are

# What fetches one message holds its own place in a shard and no more: open shards, which hold other messages too, are
# kept by this module.


def shard_tensors(folder: Path, shard: Shard, wanted: _Wanted) -> dict[str, Tensor]:
    """Those of the wanted tensors that are in this shard, as copies; it is checked before its first use."""
    path = folder / shard.name
    try:
        state = path.lstat()
    except OSError as problem:
        raise broken(path, "a plain file", problem.strerror) from problem
    handle, present = _opened(path, shard, (state.st_mtime_ns, state.st_ino))
    return {name: _tensor(path, handle, name, form) for name, (_, _, form) in wanted.items() if name in present}


def _tensor(path: Path, handle: Any, name: str, form: TensorForm) -> Tensor:
    """A copy of one tensor, refused where it is not of that shape and dtype, or not finite."""
    try:
        piece = handle.get_slice(name)
        shape, dtype = piece.get_shape(), piece.get_dtype()
        if shape != form.shape or dtype != DTYPES[form.dtype]:
            raise broken(path, f"{name!r} as {form.dtype} {form.shape}", f"{dtype} {shape}")
        value: Tensor = handle.get_tensor(name).clone()  # a copy, since the map goes away
    except (SafetensorError, OSError, RuntimeError, ValueError) as problem:
        raise broken(path, "a complete shard", problem) from problem
    if not finite(value):
        raise broken(path, f"finite values in {name!r}", "infinite or NaN entries")
    return value


@functools.lru_cache(maxsize=MOST_OPEN)
def _opened(path: Path, shard: Shard, state: tuple[int, int]) -> tuple[Any, frozenset[str]]:
    """The open handle of a shard and the names in it; `state` changes with the file."""
    _verify(path, shard, state)
    try:
        handle: Any = safe_open(path, framework="pt", device="cpu")
        return handle, frozenset(handle.keys())
    except (SafetensorError, OSError, RuntimeError, ValueError) as problem:
        raise broken(path, "a shard of tensors", problem) from problem


def close_shards() -> None:
    """Close the shards that are open; the next use opens them again."""
    _opened.cache_clear()


@functools.lru_cache(maxsize=MOST_VERIFIED)
def _verify(path: Path, shard: Shard, state: tuple[int, int]) -> None:
    """Check a shard's size, then its checksum."""
    check_file(path, shard)
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as problem:
        raise broken(path, "a readable file", problem, "Check its permissions.") from problem
    if digest != shard.sha256:
        raise broken(path, f"SHA-256 {shard.sha256[:16]}…", f"{digest[:16]}…: it was altered")


def check_file(path: Path, shard: Shard) -> None:
    """Refuse a shard that is no plain file of the size in the index, or above the size cap."""
    if path.is_symlink() or not path.is_file():
        raise broken(path, "a plain file", "a link" if path.is_symlink() else "no such file")
    size = path.stat().st_size
    if size != shard.bytes:
        raise broken(path, f"{shard.bytes} bytes", f"{size}: it was {'cut' if size < shard.bytes else 'altered'}")
    check_size(f"transcript {str(path)!r}", size)


def write_shard(folder: Path, number: int, tensors: Mapping[str, Tensor]) -> Shard:
    """Write one shard and return its entry of the index."""
    name = f"tensors-{number:05d}.safetensors"
    content = save(dict(tensors))
    write_whole(folder / name, content, "tensors")
    return Shard(name=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def finite(value: Tensor) -> bool:
    """Whether every entry is a finite number."""
    return is_finite({"": value})


# Writing and reading a folder

SHARD_BYTES = 64_000_000  # collected in memory before a shard is written; a larger tensor gets its own shard
MOST_TENSOR_BYTES = 250_000_000  # with its header it still fits a shard of the format


class FolderShelf:
    """Tensors stored in a folder of shards; at most one shard's worth waits in memory."""

    def __init__(self, path: str | Path, *, shard_bytes: int = SHARD_BYTES) -> None:
        """Start a transcript in a new or empty folder, readable by its owner alone."""
        self.path = Path(path)
        self._shard_bytes = min(shard_bytes, MOST_TENSOR_BYTES)
        self._waiting: dict[str, Tensor] = {}
        self._waiting_bytes = 0
        self._places: dict[str, TensorPlace] = {}
        self._forms: dict[str, _Forms] = {}
        self._known_forms: list[_Forms] = []  # most keys have equal shapes and share one description
        self._shards: list[Shard] = []
        _make_folder(self.path)

    def put(self, key: str, parts: Parts) -> None:
        """Store these tensors under a new key."""
        if key in self._places:
            remedy = "Put every key once."
            raise BadInput("key", expected="a key that is not stored yet", got=repr(key), remedy=remedy)
        groups = {
            group: tensors for group, tensors in (("params", parts.params), ("buffers", parts.buffers)) if tensors
        }
        shards = {
            self._add(_tensor_name(key, group, name), value)
            for group, tensors in groups.items()
            for name, value in tensors.items()
        }
        self._places[key] = TensorPlace.model_validate({"shards": sorted(shards), "holds": list(groups)})
        own_forms = {group: forms(tensors) for group, tensors in groups.items()}
        self._forms[key] = next((known for known in self._known_forms if known == own_forms), own_forms)
        if self._forms[key] is own_forms:
            self._known_forms.append(own_forms)

    def _add(self, name: str, value: Tensor) -> int:
        """Queue one tensor for its shard, and return that shard's number."""
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
        """A function that fetches the tensors under that key, which are written now, and holds no others."""
        self.flush()
        shards = tuple(self._shards[number] for number in self._places[key].shards)
        return functools.partial(_fetch, self.path, shards, key, self._forms[key])

    def get(self, key: str) -> Parts:
        """The tensors under that key, whether queued or written."""
        wanted = _wanted(key, self._forms[key])
        tensors: dict[str, Tensor] = {}
        for number in self._places[key].shards:
            if number == len(self._shards):
                tensors.update({name: self._waiting[name].clone() for name in wanted if name in self._waiting})
            else:
                tensors.update(shard_tensors(self.path, self._shards[number], wanted))
        return _parts(tensors, wanted)

    def flush(self) -> None:
        """Write the queued tensors as one shard."""
        if self._waiting:
            self._shards.append(write_shard(self.path, len(self._shards), self._waiting))
            self._waiting, self._waiting_bytes = {}, 0

    def finish(self, transcript: Transcript) -> None:
        """Write the queued tensors and then the index, which completes the folder."""
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
            "reported": [{"round": round, **vars(reported)} for round, reported in transcript.reported.items()],
        }
        text = json.dumps(index, separators=(",", ":"), allow_nan=False)
        write_whole(self.path / INDEX, text.encode(), "index")


def write_transcript(transcript: Transcript, path: str | Path) -> None:
    """Write a transcript to a folder; one that is stored there already only gets its index."""
    shelf = transcript.shelf
    if not isinstance(shelf, FolderShelf) or shelf.path != Path(path):
        source, shelf = shelf, FolderShelf(path)
        for key in dict.fromkeys(message.parts for message in transcript.messages):
            shelf.put(key, source.get(key))
    shelf.finish(transcript)


def read_transcript(path: str | Path, *, model: nn.Module, space: Space) -> Transcript:
    """The transcript in a folder, checked against the model; its tensors are read when first used."""
    folder = Path(path)
    index = read_index(folder, model)
    for shard in index.shards:
        check_file(folder / shard.name, shard)
    return Transcript(
        messages=messages_of(index.messages),
        shelf=_FinishedShelf(folder, index, model),
        model=model,
        space=space,
        loss=index.loss,
        clients=index.clients,
        secure_aggregation=index.secure_aggregation,
        reported={
            form.round: Reported(metrics=form.metrics, nodes=form.nodes, examples=form.examples)
            for form in index.reported
        },
        recorded=index.recorded,
    )


class _FinishedShelf:
    """The tensors of a finished folder, each checked to be finite and of the model's shape and dtype."""

    def __init__(self, folder: Path, index: Index, model: nn.Module) -> None:
        self._folder, self._places = folder, dict[str, tuple[tuple[Shard, ...], _Forms]]()
        known = {"params": forms(parameters_of(model)), "buffers": forms(buffers_of(model))}
        alike: dict[str, tuple[tuple[Shard, ...], _Forms]] = {}  # places of thousands of messages are equal
        for key, place in index.places.items():
            shards = tuple(index.shards[number] for number in place.shards)
            stored: _Forms = {group: known[group] for group in known if group in place.holds}
            self._places[key] = alike.setdefault(f"{place.shards} {place.holds}", (shards, stored))

    def put(self, key: str, parts: Parts) -> None:
        """Refuse, since a finished transcript does not change."""
        got, remedy = f"a finished one in {self._folder}", "Record into another folder."
        raise BadInput("transcript", expected="a transcript that is still written", got=got, remedy=remedy)

    def reader(self, key: str) -> Callable[[], Parts]:
        """A function that fetches the tensors under that key, and knows the place of no others."""
        shards, stored = self._places[key]
        return functools.partial(_fetch, self._folder, shards, key, stored)

    def get(self, key: str) -> Parts:
        """The tensors under that key."""
        return self.reader(key)()


def _fetch(folder: Path, shards: tuple[Shard, ...], key: str, stored: _Forms) -> Parts:
    """The tensors under a key of these forms, from the shards that hold them."""
    wanted = _wanted(key, stored)
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        tensors.update(shard_tensors(folder, shard, wanted))
    missing = wanted.keys() - tensors.keys()
    if missing:
        raise broken(folder, f"the tensor {min(missing)!r}", "none in the shards of its key")
    return _parts(tensors, wanted)


def _make_folder(path: Path) -> None:
    """Create the folder for its owner alone, refused where it holds anything."""
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
        raise BadInput(what, expected="an empty folder for a recording", got=f"{held.name} in it", remedy=remedy)


def _tensor_name(key: str, group: str, name: str) -> str:
    return f"{key}:{group}:{name}"


def _wanted(key: str, groups: _Forms) -> _Wanted:
    return {
        _tensor_name(key, group, name): (group, name, form)
        for group, group_forms in groups.items()
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
    """Estimate of the bytes of this run's folder, rather too large than too small."""
    params, buffers = parameters_of(federation.model), buffers_of(federation.model)
    rounds = recorded_rounds(federation.record, federation.rounds)
    models = len(rounds | {round + 1 for round in rounds})
    replies = len(rounds) * participant_count(federation)
    stacks = [(models, params), (models, buffers), (replies, params), (replies, buffers), (len(rounds), params)]
    tensors = sum(count * sum(map(_stored_bytes, group.items())) for count, group in stacks)
    return tensors + 220 * (2 * replies + 2 * len(rounds)) + 100 * (models + 2 * replies) + 2000


def _stored_bytes(named: tuple[str, Tensor]) -> int:
    """A tensor with its entry in a shard's header."""
    name, value = named
    return value.numel() * value.element_size() + len(name) + 105
