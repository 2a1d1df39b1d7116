"""A recording as a transcript of one node: what a server, an eavesdropper and a fellow client learn about it.

In the transcript the node is client 0. Client 1 stands for a fellow client, which is assumed to be sent the same
global models in the same rounds; nothing of what other nodes replied is taken over, even where the server recorded it.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from fedxray.data.space import Space
from fedxray.errors import BadInput
from fedxray.federation.message import (
    SERVER,
    WIRE,
    Message,
    client_seat,
    readers_of_broadcast,
    readers_of_reply,
)
from fedxray.federation.recipe import Recipe
from fedxray.federation.recording.fitting import fit, frozen
from fedxray.federation.recording.form import Heard, Kept
from fedxray.federation.recording.picking import one_of, rounds_of, trainers
from fedxray.federation.recording.reading import Recording, damaged, title
from fedxray.federation.transcript import Parts, Transcript
from fedxray.params import scaled, subtract

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
