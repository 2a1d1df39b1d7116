"""The index of a transcript folder: its JSON form, and every check that needs no tensor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import nn

from fedxray.data.limits import max_bytes
from fedxray.errors import BadInput
from fedxray.federation.message import SERVER, WIRE, Message, client_seat
from fedxray.files import read_json
from fedxray.losses import LOSSES
from fedxray.params import Params, buffers_of, parameters_of

FORMAT = 1
KIND = "fedxray transcript"
INDEX = "transcript.json"
MOST_INDEX_BYTES = 128 * 1024**2
MOST_SHARD_BYTES = 256_000_000
DTYPES = {  # names in a shard's header; nothing else is read
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "uint8": "U8",
    "int32": "I32",
    "int64": "I64",
    "bool": "BOOL",
}
ASK_AGAIN = "Record the federation again, or ask for a whole copy."

Count = Annotated[int, Field(ge=0, lt=2**53)]
Key = Annotated[str, Field(min_length=1, max_length=200)]
Group = Literal["params", "buffers"]


class Damaged(BadInput):
    """A file of a transcript is not as it was written, or not of this federation."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TensorForm(_Strict):
    """Shape and dtype of one tensor."""

    shape: Annotated[list[Count], Field(max_length=16)]
    dtype: Literal["float16", "bfloat16", "float32", "float64", "uint8", "int32", "int64", "bool"]


class Shard(_Strict):
    """One file of tensors: a plain name, its size and its SHA-256."""

    name: Annotated[str, Field(pattern=r"^tensors-[0-9]{5,9}\.safetensors$")]
    bytes: Annotated[int, Field(ge=0, le=MOST_SHARD_BYTES)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Place(_Strict):
    """Where the tensors of one key are: numbers of shards, and which groups were kept."""

    shards: Annotated[list[Count], Field(max_length=10_000)]
    holds: Annotated[list[Group], Field(max_length=2)]


class MessageForm(_Strict):
    """One message as it stands in the file."""

    what: Literal["broadcast", "reply", "sum", "outcome", "state"]
    round: Count
    client: Count | None = None
    parts: Key
    kind: Literal["weights", "gradient"] = "weights"
    examples: Count | None = None
    contributors: list[Count] = Field(default_factory=list)
    readers: list[str]
    tampered: bool = False


class Index(_Strict):
    """A whole index."""

    kind: Literal["fedxray transcript"]
    format: Literal[1]
    loss: str
    clients: Annotated[int, Field(ge=1, le=10_000_000)]
    secure_aggregation: bool
    recorded: bool
    params: dict[str, TensorForm]
    buffers: dict[str, TensorForm]
    shards: list[Shard]
    places: dict[Key, Place]
    messages: list[MessageForm]


def forms(tensors: Params) -> dict[str, TensorForm]:
    """Shapes and dtypes by name."""
    return {
        name: TensorForm(shape=list(value.shape), dtype=_dtype_name(name, str(value.dtype)))
        for name, value in tensors.items()
    }


def _dtype_name(name: str, dtype: str) -> Any:
    plain = dtype.removeprefix("torch.")
    if plain not in DTYPES:
        raise BadInput(
            f"tensor {name!r}",
            expected=f"a dtype of {', '.join(DTYPES)}",
            got=plain,
            remedy="Convert it before recording.",
        )
    return plain


def message_form(message: Message) -> dict[str, Any]:
    """A message as plain values; what has its usual value is left out."""
    form = MessageForm(
        what=message.what,
        round=message.round,
        client=message.client,
        parts=message.parts,
        kind=message.kind,
        examples=message.examples,
        contributors=list(message.contributors),
        readers=sorted(message.readers),
        tampered=message.tampered,
    )
    return form.model_dump(exclude_defaults=True)


def message_of(form: MessageForm) -> Message:
    """The message of a checked form."""
    return Message(
        what=form.what,
        round=form.round,
        client=form.client,
        parts=form.parts,
        kind=form.kind,
        examples=form.examples,
        contributors=tuple(form.contributors),
        readers=frozenset(form.readers),
        tampered=form.tampered,
    )


def broken(path: Path, expected: str, got: object, remedy: str = ASK_AGAIN) -> Damaged:
    """The refusal of a file of a transcript."""
    text = str(got)
    return Damaged(
        f"transcript {str(path)!r}",
        expected=expected,
        got=text if len(text) <= 300 else text[:297] + "...",
        remedy=remedy,
    )


def read_index(folder: Path, model: nn.Module) -> Index:
    """The checked index of a transcript folder, which fits the model."""
    path = folder / INDEX
    plain = _read(path)
    if not isinstance(plain, dict) or plain.get("kind") != KIND:
        raise broken(
            path, f'an index with kind = "{KIND}"', "something else", "Name a folder that fedxray recorded."
        )
    version = plain.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise broken(
            path, f"format {FORMAT}", f"format {version}", "It comes from a newer fedxray: update yours."
        )
    try:
        index = Index.model_validate(plain)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise broken(path, "a whole index", f"{where}: {first['msg']}") from problem
    _check_against_model(path, index, model)
    _check_places(path, index)
    _check_messages(path, index)
    return index


def _read(path: Path) -> Any:
    """The value of the index, which must be a plain file of bearable size."""
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
    for what, told, wanted in (
        ("parameters", index.params, forms(parameters_of(model))),
        ("buffers", index.buffers, forms(buffers_of(model))),
    ):
        if told != wanted:
            name = next(name for name in {**wanted, **told} if told.get(name) != wanted.get(name))
            raise broken(
                path,
                f"the {what} of the model: {name!r} {_told(wanted.get(name))}",
                _told(told.get(name)),
                "Give the network that was trained.",
            )


def _told(form: TensorForm | None) -> str:
    return "absent" if form is None else f"{form.dtype} {form.shape}"


def _check_places(path: Path, index: Index) -> None:
    names = [shard.name for shard in index.shards]
    if len(set(names)) != len(names):
        raise broken(path, "every shard once", "a shard named twice")
    for key, place in index.places.items():
        if any(number >= len(names) for number in place.shards) or len(set(place.holds)) != len(place.holds):
            raise broken(path, "places in listed shards", f"{key!r} in shards {place.shards}")


def _check_messages(path: Path, index: Index) -> None:
    seats = {SERVER, WIRE, *(client_seat(client) for client in range(index.clients))}
    seen: set[tuple[str, int, int | None]] = set()
    sent = {(form.round, form.client): form for form in index.messages if form.what == "broadcast"}
    for form in index.messages:
        problem = _problem(form, index.places, index.clients, seats)
        identity = (form.what, form.round, form.client)
        if identity in seen:
            problem = "it is there twice"
        if form.what == "reply" and not _answers(form, sent.get((form.round, form.client))):
            problem = "its readers saw no broadcast to that client in that round"
        if problem:
            raise broken(path, "messages that fit together", f"{form.what} of round {form.round}: {problem}")
        seen.add(identity)


def _answers(reply: MessageForm, broadcast: MessageForm | None) -> bool:
    return broadcast is not None and set(reply.readers) <= set(broadcast.readers)


def _problem(form: MessageForm, places: Mapping[str, Place], clients: int, seats: set[str]) -> str:
    """What is wrong with one message, in words; empty if nothing."""
    if form.parts not in places:
        return f"its tensors {form.parts!r} are in no shard"
    if form.what != "state" and "params" not in places[form.parts].holds:
        return f"its tensors {form.parts!r} are of another kind"
    if (form.client is None) != (form.what in ("sum", "outcome")):
        return "a broadcast, reply or state belongs to one client, a sum or outcome to none"
    if form.client is not None and form.client >= clients:
        return f"client {form.client} of {clients}"
    if any(client >= clients for client in form.contributors) or len(set(form.contributors)) != len(
        form.contributors
    ):
        return f"contributors beyond {clients} clients or named twice"
    unknown = set(form.readers) - seats
    return (
        f"unknown reader {min(unknown)!r}" if unknown or len(set(form.readers)) != len(form.readers) else ""
    )
