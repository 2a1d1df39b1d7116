"""A recording as a transcript of one node: what a server, an eavesdropper and another client learn about it.

In the transcript the node is client 0. Client 1 stands for another client, which is assumed to be sent the same global
models in the same rounds; replies of other nodes are never included, even where the server recorded them.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedxray.data.dataset import Space
from fedxray.errors import BadInput, some
from fedxray.federation import transcript as transcripts
from fedxray.federation.recipe import Recipe
from fedxray.federation.recording.format import RecordedMessage, StoredArrays
from fedxray.federation.recording.reader import Recording, damaged, one_of, rounds_of, title, trainers
from fedxray.params import buffers_of, scaled, subtract

METRIC = "metric "  # start of the name of a reported metric in a config
NODE, FELLOW = 0, 1  # clients of the transcript: the node, and another client


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The messages of one node in one run: trainings by round (from 0), and the models at the end of rounds.

    `lost` lists the messages that are left out, with the reason; the node of an unreadable message is unknown.
    """

    recording: Recording
    node: str
    trained: dict[int, RecordedMessage]
    ended: dict[int, RecordedMessage]
    lost: tuple[str, ...] = ()
    missing: tuple[tuple[int, int], ...] = ()  # first and last of each range of rounds without a training

    @property
    def rounds(self) -> list[int]:
        """The recorded rounds, ascending."""
        return sorted(self.trained)


def choose(recording: Recording, *, node: str | None = None, run: str | None = None) -> Chosen:
    """The messages of one node in one run; both must be named where the recording has several."""
    run = one_of("transcript.run", "run", run, recording.runs())
    messages = [message for message in recording.messages if message.run == run]
    named = list(dict.fromkeys(message.node for message in messages))
    node = one_of("data.node", "node", node, named, lambda name: rounds_of(messages, name))
    mine = [message for message in messages if message.node == node]
    lost = list(recording.cut)
    trained = _trainings(_sound(recording, mine, "train", lost), node)
    if not trained and any(message.what == "train" for message in mine):
        raise damaged(recording.folder, f"at least one complete training of node {node}", f"none; {lost[-1]}")
    if not trained:
        expected = "a node that was sent a model to train"
        remedy = f"Nodes that trained: {some(trainers(messages))}."
        raise BadInput("data.node", expected=expected, got=f"{node}, which only evaluated", remedy=remedy)
    ended = _ends(_sound(recording, mine, "evaluate", lost), lost)
    return Chosen(
        recording=recording, node=node, trained=trained, ended=ended, lost=tuple(lost), missing=_gaps(trained, messages)
    )


def transcribe(
    chosen: Chosen, *, model: nn.Module, space: Space, recipe: Recipe, secure_aggregation: bool = False,
    widen: bool = False,
    examples: bool = True,
) -> transcripts.Transcript:  # fmt: skip
    """The transcript of one node; its tensors are read and checked when first used.

    `recipe` gives the loss and the kind of replies; `examples` includes the recorded numbers of examples; `widen` is
    that of `fit`.
    """
    hidden = secure_aggregation or any(message.secure for message in chosen.trained.values())
    network = with_frozen(model, chosen)
    shelf = _RecordedShelf(chosen, network, recipe, widen)
    messages: list[transcripts.Message] = []
    for round, message in sorted(chosen.trained.items()):
        messages += _broadcasts(round)
        if message.reply is not None:
            messages.append(
                transcripts.Message(
                    what="reply",
                    round=round,
                    client=NODE,
                    parts=f"reply/{round}",
                    kind=recipe.kind,
                    examples=message.examples if examples else None,
                    contributors=(NODE,),
                    readers=transcripts.readers_of_reply(NODE, hidden),
                )
            )
    everyone = frozenset(
        {transcripts.SERVER, transcripts.WIRE, transcripts.client_reader(NODE), transcripts.client_reader(FELLOW)}
    )
    messages += [
        transcripts.Message(what="outcome", round=round, client=None, parts=f"after/{round}", readers=everyone)
        for round in sorted(chosen.ended)
    ]
    return transcripts.Transcript(
        messages=tuple(messages),
        shelf=shelf,
        model=network,
        space=space,
        loss=recipe.loss,
        clients=FELLOW + 1,
        secure_aggregation=hidden,
        reported=_reported(chosen, examples),
        recorded=True,
    )


def _reported(chosen: Chosen, examples: bool) -> dict[int, transcripts.Reported]:
    """By round, the node's metrics and, where the server recorded, who took part: nothing of this is ever hidden."""
    answered = _answered(chosen)
    by_round = {}
    for round, message in chosen.trained.items():
        metrics = {
            key.removeprefix(METRIC): float(value)
            for key, value in message.config.items()
            if key.startswith(METRIC) and isinstance(value, int | float) and math.isfinite(value)
        }
        counts = list(answered.get(message.round, {}).values())
        known = [count for count in counts if count is not None]
        by_round[round] = transcripts.Reported(
            metrics=metrics,
            nodes=len(counts) or None,
            examples=sum(known) if examples and counts and len(known) == len(counts) else None,
        )
    return {round: reported for round, reported in by_round.items() if reported.metrics or reported.nodes}


def _answered(chosen: Chosen) -> dict[int | None, dict[str, int | None]]:
    """By the framework's round, the nodes that answered the server with their examples; empty for a node's recording.

    Under secure aggregation the number of examples shows that a node answered.
    """
    run = next(iter(chosen.trained.values())).run
    answered: dict[int | None, dict[str, int | None]] = {}
    for message in chosen.recording.messages if chosen.recording.side == "server" else ():
        took_part = message.reply is not None or message.examples is not None
        if message.what == "train" and message.run == run and message.round is not None and took_part:
            answered.setdefault(message.round, {})[message.node] = message.examples
    return answered


def check_fit(chosen: Chosen, model: nn.Module, *, widen: bool = False) -> None:
    """Refuse a message whose arrays do not fit the network, with its round; only headers are read."""

    def named(round: int, message: RecordedMessage) -> str:
        counted = chosen.recording.side != "checkpoints" and message.round is not None
        return f"round {round} (Flower's round {message.round})" if counted else f"round {round}"

    trained, ended = chosen.trained.items(), chosen.ended.items()
    sets = [(f"model sent in {named(round, message)}", message.sent) for round, message in trained]
    sets += [(f"reply of {named(round, message)}", message.reply) for round, message in trained if message.reply]
    sets += [(f"model after {named(round, message)}", message.sent) for round, message in ended]
    checked: set[str] = set()
    for what, stored in sets:
        if stored.sha256 not in checked:
            fit(chosen.recording.forms(stored), model, widen=widen, what=what)
            checked.add(stored.sha256)


def _broadcasts(round: int) -> list[transcripts.Message]:
    return [
        transcripts.Message(
            what="broadcast",
            round=round,
            client=client,
            parts=f"sent/{round}",
            readers=transcripts.readers_of_broadcast(client),
        )
        for client in (NODE, FELLOW)
    ]


class _RecordedShelf:
    """Arrays of a recording as parameters and updates, computed when first used."""

    def __init__(self, chosen: Chosen, model: nn.Module, recipe: Recipe, widen: bool) -> None:
        self._chosen, self._model, self._recipe, self._widen = chosen, model, recipe, widen
        self._sent = functools.lru_cache(maxsize=1)(self._read_sent)  # a reply is read after the model it belongs to

    def put(self, key: str, parts: transcripts.Parts) -> None:
        """Refuse, since a recording does not change."""
        raise BadInput("recording", expected="no new tensors", got=key, remedy="Record into another folder.")

    def reader(self, key: str) -> Callable[[], transcripts.Parts]:
        """A function that fetches the tensors under that key, and knows no other message."""
        what, _, text = key.partition("/")
        messages = self._chosen.ended if what == "after" else self._chosen.trained
        hidden: dict[str, object] = {"examples": None, "config": {}} | ({} if what == "reply" else {"reply": None})
        known = {int(text): messages[int(text)].model_copy(update=hidden)}
        only = replace(
            self._chosen,
            recording=replace(self._chosen.recording, messages=()),
            trained={} if what == "after" else known,
            ended=known if what == "after" else {},
        )
        return functools.partial(_RecordedShelf(only, self._model, self._recipe, self._widen).get, key)

    def get(self, key: str) -> transcripts.Parts:
        """The tensors under that key."""
        what, _, text = key.partition("/")
        round = int(text)
        if what == "after":
            return self._fit(self._chosen.ended[round].sent, f"model after round {round}")
        message, sent = self._chosen.trained[round], self._sent(round)
        if what == "sent" or message.reply is None:
            return sent
        reply = self._fit(message.reply, f"reply of round {round}")
        if self._recipe.kind == "gradient":
            return transcripts.Parts(scaled(reply.params, -1.0), reply.buffers)
        return transcripts.Parts(subtract(reply.params, sent.params), reply.buffers)

    def _read_sent(self, round: int) -> transcripts.Parts:
        return self._fit(self._chosen.trained[round].sent, f"model sent in round {round}")

    def _fit(self, stored: StoredArrays, what: str) -> transcripts.Parts:
        return fit(self._chosen.recording.arrays(stored), self._model, widen=self._widen, what=what)


def with_frozen(model: nn.Module, chosen: Chosen) -> nn.Module:
    """The network with the recorded values of its untrained parameters."""
    if all(value.requires_grad for value in model.parameters()):
        return model
    first = chosen.trained[chosen.rounds[0]]
    network = copy.deepcopy(model)
    network.load_state_dict(frozen(chosen.recording.arrays(first.sent), network), strict=False)
    return network


def _sound(
    recording: Recording, messages: Sequence[RecordedMessage], what: str, lost: list[str]
) -> dict[int, list[RecordedMessage]]:
    """Messages of one kind by round, counted from 0; those whose arrays cannot be used are added to `lost`."""
    usable: dict[int, list[RecordedMessage]] = {}
    for round, message in _by_round(messages):
        if message.what != what:
            continue
        parts = [stored for stored in (message.sent, message.reply) if stored is not None]
        faults = [fault for stored in parts if (fault := recording.fault(stored)) is not None]
        if faults:
            lost.append(f"{title(message)}: {faults[0]}")
        else:
            usable.setdefault(round, []).append(message)
    return usable


def _by_round(messages: Sequence[RecordedMessage]) -> Iterator[tuple[int, RecordedMessage]]:
    """Messages with their round, counted from 0: as numbered, or by their order where a framework does not number.

    An evaluation without a number belongs to the training before it; before the first one it ends no round.
    """
    numbered = all(message.round is not None for message in messages if message.what == "train")
    current = -1
    for message in messages:
        number = (message.round or 1) - 1 if numbered and message.round is not None else None
        if message.what == "train":
            current = current + 1 if number is None else number
            yield current, message
        elif number is not None or current >= 0:
            yield current if number is None else number, message


def _trainings(by_round: dict[int, list[RecordedMessage]], node: str) -> dict[int, RecordedMessage]:
    """One training for each round; of a repeated one, the one with a reply.

    Equal messages of two recorders of one node count once.
    """
    chosen: dict[int, RecordedMessage] = {}
    for round, candidates in by_round.items():
        by_content = {
            (message.sent.sha256, message.reply and message.reply.sha256): message for message in reversed(candidates)
        }
        messages = list(by_content.values())
        answered = [message for message in messages if message.reply is not None]
        if len(messages) > 1 and len(answered) != 1:
            raise BadInput(
                "transcript",
                expected=f"one train message for each round of node {node}",
                got=f"two for round {round} (the first is 0)",
                remedy="Record every run into a folder of its own, or with a run id.",
            )
        chosen[round] = answered[0] if len(messages) > 1 else messages[0]
    return chosen


def _ends(by_round: dict[int, list[RecordedMessage]], lost: list[str]) -> dict[int, RecordedMessage]:
    """The model at the end of each round; left out where a node was sent different ones."""
    ends = {}
    for round, messages in by_round.items():
        models = len({message.sent.sha256 for message in messages})
        if models == 1:
            ends[round] = messages[0]
        else:
            lost.append(f"{title(messages[0])}: {models} different models for the end of one round")
    return ends


def _gaps(trained: dict[int, RecordedMessage], run: Sequence[RecordedMessage]) -> tuple[tuple[int, int], ...]:
    """Ranges of rounds without a training of this node, up to the last round in which any node was sent anything."""
    counted = all(message.round is not None for message in trained.values())
    known = [message.round - 1 for message in run if message.round is not None] if counted else []
    edges = [-1, *sorted(trained), max([*trained, *known]) + 1]
    return tuple((before + 1, after - 1) for before, after in pairwise(edges) if after - before > 1)


# Arrays of a message as parameters and buffers of a network: by name, or by position in its usual order

HALF = (torch.float16, torch.bfloat16)


def by_position(names: Sequence[str]) -> bool:
    """Whether the names are just 0, 1, 2, ..., as frameworks name NumPy arrays."""
    return bool(names) and list(names) == [str(index) for index in range(len(names))]


def fit(
    arrays: Mapping[str, Tensor], model: nn.Module | None, *, widen: bool = False, what: str = "arrays"
) -> transcripts.Parts:
    """Trainable parameters and buffers of the network from recorded arrays; refused by name where they do not fit.

    `widen` accepts half precision for a network of full precision; `what` names the arrays in messages.
    """
    if model is None:
        return _without_model(arrays)
    state = model.state_dict()
    arrays = named(arrays, model)
    for name in arrays:
        if name not in state:
            raise _misfit(what, f"arrays of the network ({some(list(state))})", f"one called {name!r}")
    trained = [name for name, value in model.named_parameters() if value.requires_grad]
    missing = [name for name in trained if name not in arrays]
    if missing:
        raise _misfit(what, f"the parameter {missing[0]!r} of the network", "no array of that name")
    fitted = {name: _as(name, value, state[name], widen, what) for name, value in arrays.items()}
    own = buffers_of(model)
    recorded = {name: fitted[name] for name in own if name in fitted}
    # Buffers that are not in the state dict keep the network's own values.
    return transcripts.Parts({name: fitted[name] for name in trained}, {**own, **recorded} if recorded else {})


def frozen(arrays: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """The recorded values of parameters that are not trained, which stay with the network."""
    arrays = named(arrays, model)
    untrained = [name for name, value in model.named_parameters() if not value.requires_grad]
    return {name: arrays[name] for name in untrained if name in arrays}


def named(arrays: Mapping[str, Tensor], model: nn.Module) -> Mapping[str, Tensor]:
    """Arrays under the network's names, where they were recorded by position."""
    names = list(arrays)
    if by_position(names) and not set(names) <= set(model.state_dict()):
        return dict(zip(_positions(arrays, model), arrays.values(), strict=True))
    return arrays


def _without_model(arrays: Mapping[str, Tensor]) -> transcripts.Parts:
    """All arrays as parameters, refused where they have no names."""
    if by_position(list(arrays)):
        expected = "the network, whose order names arrays that were recorded by position (NumPy)"
        remedy = "Give the model that was trained."
        raise BadInput("model", expected=expected, got="none", remedy=remedy)
    return transcripts.Parts(dict(arrays))


def _positions(arrays: Mapping[str, Tensor], model: nn.Module) -> list[str]:
    """Names for arrays by position: the order of the state dict, of all parameters, or of the trained ones."""
    shapes = [tuple(value.shape) for value in arrays.values()]
    state = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    parameters = {name: tuple(value.shape) for name, value in model.named_parameters()}
    trained = {name: tuple(value.shape) for name, value in model.named_parameters() if value.requires_grad}
    for order in (state, parameters, trained):
        if list(order.values()) == shapes:
            return list(order)
    pairs = enumerate(zip(state.values(), shapes, strict=False))
    first = next((index for index, (wanted, recorded) in pairs if wanted != recorded), None)
    if first is None:
        expected, got = f"{len(state)} arrays, as the network has", f"{len(shapes)}"
    else:
        expected = f"array {first} of shape {list(list(state.values())[first])} ({list(state)[first]} of the network)"
        got = f"{list(shapes[first])}"
    raise _misfit("arrays by position", expected, got)


def _as(name: str, value: Tensor, like: Tensor, widen: bool, what: str) -> Tensor:
    """One array with the shape and dtype of the network's own."""
    if value.shape != like.shape:
        raise _misfit(what, f"{name!r} of shape {list(like.shape)}, as in the network", list(value.shape))
    if not like.is_floating_point():  # counters, which averaging turns into fractions; loading truncates them
        return value.to(like.dtype)
    if not value.is_floating_point():
        raise _misfit(what, f"{name!r} of {like.dtype}, as in the network", value.dtype)
    if value.dtype in HALF and like.dtype not in HALF and not widen:
        raise BadInput(
            what,
            expected=f"{name!r} of {_dtype(like)}, as in the network",
            got=f"half precision ({_dtype(value)})",
            remedy="Set widen = true in [transcript] to use it: what was lost by rounding stays lost, "
            "and attacks that replay the training see that as noise.",
        )
    return value.to(like.dtype)


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _misfit(what: str, expected: str, got: object) -> BadInput:
    return BadInput(what, expected=expected, got=got, remedy="Give the network that was trained, in [model].")
