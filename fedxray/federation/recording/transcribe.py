"""A recording as a transcript of one node: what a server, an eavesdropper and a fellow client learn about it.

In the transcript the node is client 0. Client 1 stands for a fellow client, which is assumed to be sent the same
global models in the same rounds; nothing of what other nodes replied is taken over, even where the server recorded it.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedxray.data.dataset import Space
from fedxray.errors import BadInput, some
from fedxray.federation.recipe import Recipe
from fedxray.federation.recording.format import Heard, Kept
from fedxray.federation.recording.reader import Recording, damaged, one_of, rounds_of, title, trainers
from fedxray.federation.transcript import (
    SERVER,
    WIRE,
    Message,
    Parts,
    Transcript,
    client_seat,
    readers_of_broadcast,
    readers_of_reply,
)
from fedxray.params import buffers_of, scaled, subtract

# --- Arrays of a message as the parameters and buffers of a network: by name, or by position in its usual
# order.


HALF = (torch.float16, torch.bfloat16)


def by_position(names: Sequence[str]) -> bool:
    """Whether names are just 0, 1, 2, ..., as frameworks call NumPy arrays that have none."""
    return bool(names) and list(names) == [str(place) for place in range(len(names))]


def fit(
    arrays: Mapping[str, Tensor], model: nn.Module | None, *, widen: bool = False, what: str = "arrays"
) -> Parts:
    """Trainable parameters and buffers of the network from recorded arrays; refused by name where they do not fit."""
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
    # Those that no state dict holds stay the network's own.
    return Parts({name: fitted[name] for name in trained}, {**own, **recorded} if recorded else {})


def frozen(arrays: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """The recorded values of parameters that are not trained, which stay with the network."""
    arrays = named(arrays, model)
    still = [name for name, value in model.named_parameters() if not value.requires_grad]
    return {name: arrays[name] for name in still if name in arrays}


def named(arrays: Mapping[str, Tensor], model: nn.Module) -> Mapping[str, Tensor]:
    """Arrays under the network's names, where they came by position."""
    names = list(arrays)
    if by_position(names) and not set(names) <= set(model.state_dict()):
        return dict(zip(_positions(arrays, model), arrays.values(), strict=True))
    return arrays


def _without_model(arrays: Mapping[str, Tensor]) -> Parts:
    """Everything as a parameter, where there are names to go by."""
    if by_position(list(arrays)):
        raise BadInput(
            "model",
            expected="the network, whose order names arrays that were recorded by position (NumPy)",
            got="none",
            remedy="Give the model that was trained.",
        )
    return Parts(dict(arrays))


def _positions(arrays: Mapping[str, Tensor], model: nn.Module) -> list[str]:
    """Names for arrays by position: the order of the state dict, of all parameters, or of the trained ones."""
    shapes = [tuple(value.shape) for value in arrays.values()]
    state = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    named = {name: tuple(value.shape) for name, value in model.named_parameters()}
    trained = {name: tuple(value.shape) for name, value in model.named_parameters() if value.requires_grad}
    for order in (state, named, trained):
        if list(order.values()) == shapes:
            return list(order)
    place = next(
        (at for at, pair in enumerate(zip(state.values(), shapes, strict=False)) if pair[0] != pair[1]), None
    )
    if place is None:
        expected, got = f"{len(state)} arrays, as the network has", f"{len(shapes)}"
    else:
        expected = f"array {place} of shape {list(list(state.values())[place])} ({list(state)[place]} of the network)"
        got = f"{list(shapes[place])}"
    raise _misfit("arrays by position", expected, got)


def _as(name: str, value: Tensor, like: Tensor, widen: bool, what: str) -> Tensor:
    """One array with the shape and dtype of the network's own."""
    if value.shape != like.shape:
        raise _misfit(what, f"{name!r} of shape {list(like.shape)}, as in the network", list(value.shape))
    if not like.is_floating_point():  # counters, which an average turns into fractions; loading cuts them
        return value.to(like.dtype)
    if not value.is_floating_point():
        raise _misfit(what, f"{name!r} of {like.dtype}, as in the network", value.dtype)
    if value.dtype in HALF and like.dtype not in HALF and not widen:
        raise BadInput(
            what,
            expected=f"{name!r} of {_dtype(like)}, as in the network",
            got=f"half precision ({_dtype(value)})",
            remedy="Set widen = true in [transcript] to read it as it is: what was lost by rounding stays lost, "
            "and attacks that replay the training see that as noise.",
        )
    return value.to(like.dtype)


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _misfit(what: str, expected: str, got: object) -> BadInput:
    return BadInput(what, expected=expected, got=got, remedy="Give the network that was trained, in [model].")


NODE, FELLOW = 0, 1  # clients of the transcript


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The messages of one node in one run: trainings by round (from 0), and the models that rounds ended with.

    `lost` says which messages are left out, and why; of those that are not readable nobody knows whose they are.
    """

    recording: Recording
    node: str
    trained: dict[int, Heard]
    ended: dict[int, Heard]
    lost: tuple[str, ...] = ()
    missing: tuple[tuple[int, int], ...] = ()  # first and last of each stretch of rounds without a training

    @property
    def rounds(self) -> list[int]:
        """The recorded rounds, ascending."""
        return sorted(self.trained)


def choose(recording: Recording, *, node: str | None = None, run: str | None = None) -> Chosen:
    """The messages of one node; it must be named where there are several, and so must a run."""
    run = one_of("transcript.run", "run", run, recording.runs())
    messages = [message for message in recording.messages if message.run == run]
    named = list(dict.fromkeys(message.node for message in messages))
    node = one_of("data.node", "node", node, named, lambda name: rounds_of(messages, name))
    mine = [message for message in messages if message.node == node]
    lost = list(recording.cut)
    trained = _trainings(_sound(recording, mine, "train", lost), node)
    if not trained and any(message.what == "train" for message in mine):
        raise damaged(recording.folder, f"at least one whole training of node {node}", f"none; {lost[-1]}")
    if not trained:
        raise BadInput(
            "data.node",
            expected="a node that was sent a model to train",
            got=f"{node}, which only evaluated",
            remedy=f"Nodes that trained: {', '.join(trainers(messages)) or 'none'}.",
        )
    ended = _ends(_sound(recording, mine, "evaluate", lost), lost)
    return Chosen(
        recording=recording,
        node=node,
        trained=trained,
        ended=ended,
        lost=tuple(lost),
        missing=_gaps(trained, messages),
    )


def transcribe(
    chosen: Chosen, *, model: nn.Module, space: Space, recipe: Recipe, secure_aggregation: bool = False,
    widen: bool = False,
    examples: bool = True,
) -> Transcript:  # fmt: skip
    """The transcript of one node; its tensors are read and checked when asked for."""
    hidden = secure_aggregation or any(heard.secure for heard in chosen.trained.values())
    network = with_frozen(model, chosen)
    shelf = _RecordedShelf(chosen, network, recipe, widen)
    messages: list[Message] = []
    for round, heard in sorted(chosen.trained.items()):
        messages += _broadcasts(round)
        if heard.reply is not None:
            messages.append(
                Message(
                    what="reply",
                    round=round,
                    client=NODE,
                    parts=f"reply/{round}",
                    kind=recipe.kind,
                    examples=heard.examples if examples else None,
                    contributors=(NODE,),
                    readers=readers_of_reply(NODE, hidden),
                )
            )
    everyone = frozenset({SERVER, WIRE, client_seat(NODE), client_seat(FELLOW)})
    messages += [
        Message(what="outcome", round=round, client=None, parts=f"after/{round}", readers=everyone)
        for round in sorted(chosen.ended)
    ]
    return Transcript(
        messages=tuple(messages),
        shelf=shelf,
        model=network,
        space=space,
        loss=recipe.loss,
        clients=FELLOW + 1,
        secure_aggregation=hidden,
        recorded=True,
    )


def check_fit(chosen: Chosen, model: nn.Module, *, widen: bool = False) -> None:
    """Refuse a message whose arrays are not the network's, by its round; only headers are read."""

    def named(round: int, heard: Heard) -> str:
        counted = chosen.recording.side != "checkpoints" and heard.round is not None
        return f"round {round} (Flower's round {heard.round})" if counted else f"round {round}"

    trained, ended = chosen.trained.items(), chosen.ended.items()
    told = [(f"model sent in {named(*one)}", one[1].sent) for one in trained]
    told += [(f"reply of {named(*one)}", one[1].reply) for one in trained if one[1].reply]
    told += [(f"model after {named(*one)}", one[1].sent) for one in ended]
    seen: dict[str, str] = {}
    for what, kept in told:
        if kept.sha256 not in seen:
            fit(chosen.recording.forms(kept), model, widen=widen, what=what)
            seen[kept.sha256] = what


def _broadcasts(round: int) -> list[Message]:
    return [
        Message(
            what="broadcast",
            round=round,
            client=client,
            parts=f"sent/{round}",
            readers=readers_of_broadcast(client),
        )
        for client in (NODE, FELLOW)
    ]


class _RecordedShelf:
    """Arrays of a recording as parameters and updates, worked out when asked for."""

    def __init__(self, chosen: Chosen, model: nn.Module, recipe: Recipe, widen: bool) -> None:
        self._chosen, self._model, self._recipe, self._widen = chosen, model, recipe, widen
        self._sent = functools.lru_cache(maxsize=1)(self._read_sent)  # a reply is read after what it answers

    def put(self, key: str, parts: Parts) -> None:
        """Refuse, since a recording does not change."""
        raise BadInput("recording", expected="nothing new", got=key, remedy="Record into another folder.")

    def reader(self, key: str) -> Callable[[], Parts]:
        """What fetches the tensors under that key."""
        return functools.partial(self.get, key)

    def get(self, key: str) -> Parts:
        """The tensors under that key."""
        what, _, text = key.partition("/")
        round = int(text)
        if what == "after":
            return self._fit(self._chosen.ended[round].sent, f"model after round {round}")
        heard, sent = self._chosen.trained[round], self._sent(round)
        if what == "sent" or heard.reply is None:
            return sent
        back = self._fit(heard.reply, f"reply of round {round}")
        if self._recipe.kind == "gradient":
            return Parts(scaled(back.params, -1.0), back.buffers)
        return Parts(subtract(back.params, sent.params), back.buffers)

    def _read_sent(self, round: int) -> Parts:
        return self._fit(self._chosen.trained[round].sent, f"model sent in round {round}")

    def _fit(self, kept: Kept, what: str) -> Parts:
        return fit(self._chosen.recording.arrays(kept), self._model, widen=self._widen, what=what)


def with_frozen(model: nn.Module, chosen: Chosen) -> nn.Module:
    """The network with the recorded values of what is not trained."""
    if all(value.requires_grad for value in model.parameters()):
        return model
    first = chosen.trained[chosen.rounds[0]]
    network = copy.deepcopy(model)
    network.load_state_dict(frozen(chosen.recording.arrays(first.sent), network), strict=False)
    return network


def _sound(
    recording: Recording, messages: Sequence[Heard], what: str, lost: list[str]
) -> dict[int, list[Heard]]:
    """Messages of one kind by round, counted from 0; those whose arrays cannot be used are noted as lost."""
    found: dict[int, list[Heard]] = {}
    for round, message in _by_round(messages):
        if message.what != what:
            continue
        parts = [kept for kept in (message.sent, message.reply) if kept is not None]
        faults = [fault for kept in parts if (fault := recording.fault(kept)) is not None]
        if faults:
            lost.append(f"{title(message)}: {faults[0]}")
        else:
            found.setdefault(round, []).append(message)
    return found


def _by_round(messages: Sequence[Heard]) -> Iterator[tuple[int, Heard]]:
    """Messages with their round, counted from 0: as numbered, or by their order where a framework does not number.

    An evaluation without a number belongs to the training before it; before the first one it ends no round.
    """
    numbered = all(message.round is not None for message in messages if message.what == "train")
    place = -1
    for message in messages:
        told = (message.round or 1) - 1 if numbered and message.round is not None else None
        if message.what == "train":
            place = place + 1 if told is None else told
            yield place, message
        elif told is not None or place >= 0:
            yield place if told is None else told, message


def _trainings(found: dict[int, list[Heard]], node: str) -> dict[int, Heard]:
    """One training for each round; of one that was tried again, the one that was answered.

    What two recorders of one node wrote into the same folder counts once.
    """
    chosen: dict[int, Heard] = {}
    for round, everything in found.items():
        by_content = {(one.sent.sha256, one.reply and one.reply.sha256): one for one in reversed(everything)}
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


def _ends(found: dict[int, list[Heard]], lost: list[str]) -> dict[int, Heard]:
    """The model that each round ended with; left out where a node was sent different ones."""
    for messages in found.values():
        models = len({message.sent.sha256 for message in messages})
        if models > 1:
            lost.append(f"{title(messages[0])}: {models} different models, of which one ended the round")
    return {
        round: messages[0]
        for round, messages in found.items()
        if len({message.sent.sha256 for message in messages}) == 1
    }


def _gaps(trained: dict[int, Heard], run: Sequence[Heard]) -> tuple[tuple[int, int], ...]:
    """Stretches of rounds without a training of this node, up to the last round in which anybody was sent anything."""
    counted = all(heard.round is not None for heard in trained.values())
    known = [heard.round - 1 for heard in run if heard.round is not None] if counted else []
    edges = [-1, *sorted(trained), max([*trained, *known]) + 1]
    return tuple((before + 1, after - 1) for before, after in pairwise(edges) if after - before > 1)
