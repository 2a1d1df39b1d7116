"""From a plan with [transcript] to the recorded run: owner, layers, the node's records, the recipe, and refusals.

The last section lists what a recording holds, for `fedxray import show`.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedxray.audit import catalog
from fedxray.audit.plan import AttackPart, Plan, split_arguments
from fedxray.audit.plan.recorded import BY_ITSELF, ON_WORD, SAME, span
from fedxray.audit.recorded.describe import NOTES, whole_facts
from fedxray.audit.recorded.recipe import KnownRecipe, RecipeSearch, find_recipe, known_recipe, listed
from fedxray.audit.run.comparisons import CaseContext, grant_names
from fedxray.audit.run.prepare import Prepared, check_loss, keys_of_data, load_data
from fedxray.data.dataset import USE, Dataset, rows_by_use
from fedxray.data.split import Split, split
from fedxray.data.subjects import check_one_use_each
from fedxray.defences.base import Defence
from fedxray.errors import BadInput, Refused, printable, some
from fedxray.federation.recording.format import ARRAYS, MESSAGES, RecordedMessage
from fedxray.federation.recording.reader import Recording, read_recording, title
from fedxray.federation.recording.transcribe import Chosen, check_fit, choose, frozen, named, transcribe, with_frozen
from fedxray.federation.setting import Federation, in_dtype
from fedxray.federation.transcript import Transcript
from fedxray.lookup import harmless_output
from fedxray.losses import default_loss, example_loss, losses
from fedxray.params import Params
from fedxray.seeds import fork

# Layers of the plan's network that a recording does not train: whether it holds them, and whether they changed


def layer_facts(chosen: Chosen, model: nn.Module) -> dict[str, Any]:
    """Return the names of values that no message holds, and of frozen parameters that changed.

    Values that no message holds are those of the plan's network.
    """
    first = chosen.recording.forms(chosen.trained[chosen.rounds[0]].sent)
    there = named(first, model)
    return {
        "not_recorded": [name for name in model.state_dict() if name not in there],
        "frozen_changed": _moved(chosen, model),
    }


def _moved(chosen: Chosen, model: nn.Module) -> list[str]:
    """Return parameters that the plan's network does not train but that differ between messages."""
    if all(value.requires_grad for value in model.parameters()):
        return []
    messages = [message for _, message in sorted(chosen.trained.items())]
    files = [file for message in messages for file in (message.sent, message.reply) if file is not None]
    begin, *others = list({file.sha256: file for file in files}.values())
    still = frozen(chosen.recording.arrays(begin), model)
    changed: set[str] = set()
    for file in others:
        now = frozen(chosen.recording.arrays(file), model)
        # A value that is only rounded, as some nodes do with what they send, has not changed.
        changed |= {name for name, value in now.items() if not torch.equal(still[name].to(value.dtype), value)}
    return [name for name in still if name in changed]


# The owner of the audited node
#
# Other participants' data is never reconstructed from a live recording. A recording of the node itself holds its own
# messages. In a server's recording the plan's node is treated as the user's own if its own recording, which holds no
# other node, is given and has the same replies to the bit in several rounds; otherwise on the user's word, which
# ledger and report state, and only where the given records look like those that it trained on. Imported checkpoints,
# and what several nodes recorded into one folder, are the user's own on the user's word too.


def owner_of(plan: Plan, chosen: Chosen) -> str:
    """Return how it is known that the node is the user's own; refused where its own recording contradicts it."""
    assert plan.transcript is not None
    if plan.transcript.own is None:
        alone = chosen.recording.side == "client" and len(chosen.recording.nodes()) == 1
        return BY_ITSELF if alone else ON_WORD
    if chosen.recording.side != "server":
        raise BadInput(
            "transcript.own",
            expected="a server's recording beside it, which holds several nodes",
            got=f"one of the {chosen.recording.side}'s side",
            remedy="Leave it out.",
        )
    folder = (plan.folder / os.path.expanduser(plan.transcript.own)).absolute()
    own = read_recording(folder)
    proved = _check_same(own, chosen, folder) > 1 and len(own.nodes()) == 1
    return SAME if proved else ON_WORD


def _check_same(own: Recording, chosen: Chosen, folder: Path) -> int:
    """Return in how many rounds both hold the same reply of the node, at least one; refused where one differs."""
    if own.side != "client":
        raise _bad("a recording of the node's own side", f"one of the side {own.side} in {folder.name}")
    runs = {message.run for message in chosen.trained.values()}
    mine = {
        (message.round, message.reply.sha256)
        for message in own.messages
        if message.what == "train" and message.reply is not None and message.node == chosen.node
        if message.run in runs or "" in (message.run, *runs)  # a framework may not record it
    }
    theirs = {(message.round, message.reply.sha256) for message in chosen.trained.values() if message.reply is not None}
    rounds = {round for round, _ in mine}
    common = {reply for reply in theirs if reply[0] in rounds}
    if not common:
        raise _bad(f"replies of node {chosen.node} in the same run and rounds", "none of them")
    wrong = sorted(common - mine, key=str)
    if wrong:
        place = "" if wrong[0][0] is None else f" in round {wrong[0][0] - 1} (the first is 0)"
        raise _bad(f"the replies of node {chosen.node} in the server's recording", f"others{place}")
    return len({round for round, _ in common})


def check_word(node: str, fell: int, rounds: int) -> None:
    """Refuse records that do not look like those of a node that is the user's on their word alone."""
    if 2 * fell < rounds:
        raise BadInput(
            "data",
            expected=f"your own records, and node {node} as yours: no other node's data is reconstructed",
            got=f"records on which its training lowered the loss in only {fell} of {rounds} rounds",
            remedy="Name your own node and its records, or prove that it is yours: audit what it recorded itself, "
            'or give that as own = "..." in [transcript].',
        )


def _bad(expected: str, got: str) -> BadInput:
    remedy = "Name your own node; other participants' data is never reconstructed."
    return BadInput("transcript.own", expected=expected, got=got, remedy=remedy)


# The recorded run as a federation of the node alone

MOST_TRIED = 10  # rounds whose loss is computed


def prepare_recorded(plan: Plan, defence: str, seed: int, stated: Defence | None = None) -> Prepared:
    """Return the recorded run as a federation of the node alone."""
    chosen = chosen_of(plan)
    with keys_of_data():
        dataset = load_data(plan, seed)
        parts = parts_of(plan, dataset, chosen, seed)
    check_loss(plan.federation.loss, dataset.space.target)
    model = plan.model.make(dataset.space, fork(seed, "model"), plan.folder).to(dataset.x.dtype)
    assert plan.transcript is not None
    check_fit(chosen, model, widen=plan.transcript.widen)
    owner = owner_of(plan, chosen)
    known = known_recipe(plan, chosen)

    part = plan.defence_of(defence)
    federation = Federation(
        space=dataset.space,
        clients=(dataset.records(parts.train[0]),),
        holdout=(dataset.records(parts.holdout[0]),),
        others=tuple(map(dataset.records, parts.others)),
        public=dataset.records(parts.public),
        model=with_frozen(model, chosen),
        recipe=known.part.recipe(default_loss(dataset.space.target)),
        rounds=chosen.rounds[-1] + 1,
        defence=stated if stated and part.is_own else part.make(plan.folder),
        secure_aggregation=hidden(plan, chosen),
        record=tuple(chosen.rounds),
    )
    cast = in_dtype(federation, plan.federation.dtype)
    _check_examples(plan, chosen, len(parts.train[0]))
    facts = facts_of(chosen, known) | layer_facts(chosen, model)
    counts = [len(parts.train[0]), len(parts.holdout[0]), len(parts.public)]
    facts |= {"rounds_asked": plan.transcript.rounds, "owner": owner, "records": counts}
    prepared = Prepared(dataset=dataset, split=parts, federation=cast, seed=seed, recorded=facts)
    prepared = _with_searched_recipe(plan, prepared)
    learnt = list(rounds_learnt(plan, prepared))
    return replace(prepared, recorded={**(prepared.recorded or {}), "learnt": learnt})


def _with_searched_recipe(plan: Plan, prepared: Prepared) -> Prepared:
    """Search the plan's candidates for missing fields of the recipe, where these are all that is missing."""
    assert plan.transcript is not None and prepared.recorded is not None
    grid = {} if plan.transcript.recipe is None else plan.transcript.recipe.grid
    missing = [name for name in prepared.recorded["recipe_missing"] if name not in grid]
    if not grid or missing:
        return prepared
    key = (plan.digest(), chosen_of(plan).recording.digest(), prepared.seed)
    if key not in _searched:  # a process prepares the same run several times
        _searched.clear()
        transcript = recorded_transcript(plan, prepared)
        _searched[key] = find_recipe(transcript, prepared.federation.recipe, grid, prepared.seed)
    search = _searched[key]
    recipe = replace(prepared.federation.recipe, **search.chosen)
    facts = {**prepared.recorded, "recipe_searched": search.facts()}
    if search.chosen:
        facts["recipe_missing"] = []
    return replace(prepared, federation=replace(prepared.federation, recipe=recipe), recorded=facts)


_searched: dict[tuple[str, str, int], RecipeSearch] = {}


def recorded_transcript(plan: Plan, prepared: Prepared) -> Transcript:
    """Return the recorded messages as a transcript of the plan's network."""
    assert plan.transcript is not None
    federation = prepared.federation
    return transcribe(
        chosen_of(plan),
        model=federation.model,
        space=federation.space,
        recipe=federation.recipe,
        secure_aggregation=federation.secure_aggregation,
        widen=plan.transcript.widen,
        examples=plan.transcript.examples == "same",
    )


@harmless_output()
def rounds_learnt(plan: Plan, prepared: Prepared) -> tuple[int, int]:
    """Return in how many of the last recorded rounds training lowered the loss on the node's records, and of how many.

    Records that were not trained on, or in another encoding, show here before any attack is run.
    """
    transcript, truth = recorded_transcript(plan, prepared), prepared.federation.truth(prepared.seed)
    replies = [message for message in transcript.messages if message.what == "reply"][-MOST_TRIED:]
    fell, records = 0, truth.train[0]
    for reply in replies:
        sent, back = transcript.shelf.get(f"sent/{reply.round}"), transcript.shelf.get(reply.parts)
        step = 1.0 if reply.kind == "weights" else _short_step(sent.params, back.params)
        ends = {name: value + step * back.params[name] for name, value in sent.params.items()}
        before, after = (
            float(losses(truth.model, params, buffers, records.x, records.y, example_loss(truth.recipe.loss)).mean())
            for params, buffers in ((sent.params, sent.buffers), (ends, back.buffers or sent.buffers))
        )
        fell += after < before
    return fell, len(replies)


def _short_step(params: Params, direction: Params) -> float:
    """Return the step along a gradient that moves the network by a thousandth of its own norm."""
    size, length = (
        float(sum(value.double().square().sum() for value in values.values())) for values in (params, direction)
    )
    return float(1e-3 * (size / length) ** 0.5) if length > 0 else 0.0


def recording_path(plan: Plan) -> Path:
    """Return the path of the recording."""
    assert plan.transcript is not None
    return (plan.folder / os.path.expanduser(plan.transcript.path)).absolute()


def chosen_of(plan: Plan) -> Chosen:
    """Return the messages of the plan's node."""
    assert plan.transcript is not None
    node, run = plan.data.node, plan.transcript.run
    recording = _read(str(recording_path(plan)), _stamp(recording_path(plan)))
    chosen = choose(recording, node=None if node is None else str(node), run=None if run is None else str(run))
    return _of_rounds(chosen, plan.transcript.rounds)


def _of_rounds(chosen: Chosen, asked: str | list[int] | None) -> Chosen:
    """Return only the messages of the rounds that the plan asks for."""
    if asked is None:
        return chosen
    if isinstance(asked, str):
        first, last = (int(number) for number in asked.split(" to "))
        wanted = {round for round in chosen.rounds if first <= round <= last}
    else:
        wanted = set(asked)
    _check_recorded("transcript.rounds", asked, wanted, chosen.rounds)
    return replace(
        chosen,
        trained={round: message for round, message in chosen.trained.items() if round in wanted},
        ended={round: message for round, message in chosen.ended.items() if round in wanted},
    )


@functools.lru_cache(maxsize=2)
def _read(path: str, stamp: tuple[int, ...]) -> Recording:
    """Read a recording; the last two are cached by their path and state."""
    return read_recording(path)


def _stamp(path: Path) -> tuple[int, ...]:
    """Return a mark that changes when messages, arrays or notes are added."""
    folders = [path, path / MESSAGES, path / ARRAYS]
    return tuple(folder.stat().st_mtime_ns for folder in folders if folder.is_dir())


def hidden(plan: Plan, chosen: Chosen) -> bool:
    """Return whether single replies were hidden from the server."""
    return plan.federation.secure_aggregation or any(message.secure for message in chosen.trained.values())


def parts_of(plan: Plan, dataset: Dataset, chosen: Chosen, seed: int) -> Split:
    """Return which records the node trained on, held out, and which are public."""
    if USE in dataset.raw:
        train, held, public = rows_by_use(dataset.raw[USE])
        if dataset.subject is not None:
            check_one_use_each(dataset.subject, (train, held, public))
        return Split(train=(train,), holdout=(held,), public=public, names=("",))
    if plan.data.clients == 1 and plan.data.path is not None:
        every = torch.arange(len(dataset), device="cpu")
        return Split(train=(every,), holdout=(every[:0],), public=every[:0], names=("",))
    parts = split(dataset, **split_arguments(plan.data, seed))
    client = _client(plan, chosen)
    return Split(
        train=(parts.train[client],),
        holdout=(parts.holdout[client],),
        public=parts.public,
        names=(parts.names[client],),
        others=(parts.others[client],) if parts.others else (),
    )


def _client(plan: Plan, chosen: Chosen) -> int:
    """Return which client of a divided data set the node was."""
    assert plan.transcript is not None
    given = plan.transcript.client
    noted = {message.partition for message in chosen.trained.values()} - {None}
    client = given if given is not None else next(iter(noted), None)
    if plan.data.clients == 1 and client is None:
        client = 0
    if client is None or client >= plan.data.clients or (given is not None and noted and noted != {given}):
        expected = f"a client of [data] from 0 to {plan.data.clients - 1}"
        raise BadInput(
            "transcript.client",
            expected=expected + (f"; the node recorded partition {listed(noted)}" if noted else ""),
            got="nothing" if client is None else client,
            remedy="Say which of the clients this node was.",
        )
    return client


def _check_examples(plan: Plan, chosen: Chosen, count: int) -> None:
    """Refuse another number of records than the node reported."""
    assert plan.transcript is not None
    reported = {message.examples for message in chosen.trained.values() if message.examples is not None}
    if plan.transcript.examples == "same" and reported - {count}:
        raise BadInput(
            "data",
            expected=f"the records that the node trained on, {listed(reported)} as it reported",
            got=f"{count}",
            remedy='Give exactly these (others by use = "..."), or set examples = "any" in [transcript] '
            "where the node counts otherwise.",
        )


def facts_of(chosen: Chosen, known: KnownRecipe) -> dict[str, Any]:
    """Return the facts of a recording that the ledger holds."""
    return {
        "side": chosen.recording.side,
        "node": chosen.node,
        "rounds": chosen.rounds,
        **whole_facts(chosen),
        "recipe_heard": list(known.sent),
        "recipe_missing": list(known.missing),
        "recipe_varied": dict(known.varied),
        "recipe_doubted": dict(known.doubted),
    }


# Refusals before a recording is audited: owner, rounds, grants and recipes that it does not hold

ABOUT: dict[str, tuple[str, str]] = {
    "epochs": ("federation.epochs", "how many epochs the node trains in a round"),
    "batch_size": ("federation.batch_size", "how many examples are in a batch"),
    "learning_rate": ("federation.learning_rate", "the learning rate"),
    "momentum": ("federation.momentum", "the momentum"),
    "mu": ("federation.mu", "the pull to the received model"),
    "optimizer": ("transcript.optimizer", "how the node trains: plain SGD (with momentum or without) can be replayed"),
}
OF_THE_ORDER = ("batch-labels", "bn-statistics", "oracle-order")  # a simulation knows them
SEARCHABLE = ("epochs", "batch_size", "learning_rate")
OR_SEARCH = "Give it, or candidates in [transcript.recipe]. "


def check_recording(plan: Plan, prepared: Prepared) -> Transcript:
    """Return the recorded transcript; refused by name where its node, rounds or recipe do not fit the plan."""
    chosen = chosen_of(plan)
    transcript = recorded_transcript(plan, prepared)
    facts = prepared.recorded or {}
    if facts["owner"] == ON_WORD:
        check_word(chosen.node, *facts["learnt"])
    for part in plan.attacks:
        context = _context(plan, part, prepared, transcript)
        if isinstance(part.rounds, list):
            _check_recorded(f"attack {part.title}: rounds", part.rounds, part.rounds, chosen.rounds)
        _check_order(context)
        _check_recipe(plan, context, prepared)
    return transcript


def _context(plan: Plan, part: AttackPart, prepared: Prepared, transcript: Transcript) -> CaseContext:
    return CaseContext(
        part=part,
        attack=part.make(plan.folder),
        transcript=transcript,
        truth=prepared.federation.truth(prepared.seed),
        client=0,
        aware=None,
        unknown=prepared.unknown,
    )


def _check_recorded(argument: str, asked: object, rounds: Collection[int], recorded: Sequence[int]) -> None:
    """Refuse rounds that the recording does not hold; `asked` is how the plan writes them."""
    if not rounds or not set(rounds) <= set(recorded):
        expected = f"rounds of the recording ({span(recorded)}, the first is 0)"
        raise BadInput(argument, expected=expected, got=asked, remedy="Leave out those that are missing.")


def _check_order(context: CaseContext) -> None:
    """Refuse grants that no recording holds."""
    for name in grant_names(context.part, context.attack, None):
        if name in OF_THE_ORDER:
            expected = "a grant that a recording holds; no message holds the order of the node's records"
            remedy = "Leave it out, or simulate the federation."
            raise BadInput(f"attack {context.part.title}: grants", expected=expected, got=repr(name), remedy=remedy)


def _check_recipe(plan: Plan, context: CaseContext, prepared: Prepared) -> None:
    """Refuse an attack that only lacks the recipe, naming the field that is not known."""
    assert plan.transcript is not None
    asked = "recipe" in (context.part.grants or ())
    if not prepared.unknown or (not asked and works(context)) or not works(replace(context, unknown=())):
        return
    missing = list((prepared.recorded or {})["recipe_missing"])
    place, about = ABOUT[missing[0]]
    varied, doubted = ((prepared.recorded or {})[f"recipe_{why}"].get(missing[0]) for why in ("varied", "doubted"))
    if varied is not None or doubted is not None:
        raise BadInput(
            place,
            expected=f"{about}, one for all rounds that are read; {context.part.title} needs the recipe",
            got=varied or f"{doubted}, which is impossible",
            remedy=('Read the rounds of one value: rounds = "..." in [transcript]. ' if varied else "Give it. ")
            + f"Attacks that work without: {_still_working(context)}.",
        )
    reason = ((prepared.recorded or {}).get("recipe_searched") or {}).get("reason")
    lost = f"candidates that could not be judged ({reason})" if reason else ""
    given = plan.transcript.optimizer if missing[0] == "optimizer" else None
    raise BadInput(
        place,
        expected=f"{about}; {context.part.title} needs the recipe, and the recording does not hold it",
        got=lost or ("nothing" if given is None else repr(given)),
        remedy=("" if given is not None else OR_SEARCH if missing[0] in SEARCHABLE and not lost else "Give it. ")
        + f"Attacks that work without: {_still_working(context)}.",
    )


def works(context: CaseContext) -> bool:
    """Return whether the needs of the attack are met."""
    try:
        context.attack.check(context.view(context.attack))
    except (Refused, BadInput):
        return False
    return True


def _still_working(context: CaseContext) -> str:
    """Return the attacks of the catalogue that work on this recording as it is, from any passive role."""
    working = []
    for name in catalog.ATTACKS:  # not of plug-ins, which only a plan may import
        attack = catalog.make_attack(name, {})
        seats = [role for role in attack.roles if role not in ("active-server", "curious-client")]
        part = AttackPart(name=name, role=seats[0]) if seats else None
        oracle = any(grant.startswith("oracle-") for grant in attack.grants)
        if part is not None and not oracle and works(replace(context, part=part, attack=attack)):
            working.append(name)
    return ", ".join(working) or "none"


# The contents of a recording in lines, for `fedxray import show`; nothing is attacked, no records are needed

SHOWN = 12  # nodes, arrays and names


def holdings(recording: Recording) -> list[str]:
    """Return lines on side, runs, every node with its rounds and what it was sent, and the arrays of a message."""
    facts = [("recording", f"{recording.side} side, {len(recording.messages)} messages")]
    runs = recording.runs()
    if len(runs) > 1:
        facts.append(("runs", some(runs, SHOWN, nothing="nothing")))
    nodes = recording.nodes()
    facts += [(f"node {node}", _node(messages)) for node, messages in list(nodes.items())[:SHOWN]]
    if len(nodes) > SHOWN:
        facts.append(("", f"and {len(nodes) - SHOWN} more nodes"))
    names = dict.fromkeys(name for message in recording.messages for name in message.config)
    sent = [name for name in names if name not in NOTES]
    facts.append(("sent along", some(sent, SHOWN, nothing="nothing")))
    faults = [_fault(recording, message) for message in recording.messages]
    facts += _arrays(recording, faults)
    left = [*recording.cut, *(why for why in faults if why is not None)]
    facts += [("left out", why) for why in left[:SHOWN]]
    if len(left) > SHOWN:
        facts.append(("", f"and {len(left) - SHOWN} more messages"))
    facts += [("stopped", why) for why in recording.stops[:SHOWN]]
    return [f"{printable(word):<11} {printable(text)}".rstrip() for word, text in facts]


def _node(messages: Sequence[RecordedMessage]) -> str:
    trained = [message for message in messages if message.what == "train"]
    replied = sum(message.reply is not None for message in trained)
    numbers = sorted({message.round - 1 for message in trained if message.round is not None})
    which = f" ({span(numbers)})" if numbers else ""
    counts = sorted({message.examples for message in trained if message.examples is not None})
    examples = f", {' or '.join(map(str, counts[:3]))} examples" if counts else ""
    return f"{len(trained)} rounds{which}, {replied} replies{examples}"


def _fault(recording: Recording, message: RecordedMessage) -> str | None:
    """Return why one message cannot be used, None where it can."""
    for file in (message.sent, message.reply):
        try:
            why = None if file is None else recording.fault(file)
        except BadInput as problem:  # too large to be read
            why = f"{problem.got}; {problem.remedy}"
        if why is not None:
            return f"{title(message)}: {why}"
    return None


def _arrays(recording: Recording, faults: Sequence[str | None]) -> list[tuple[str, str]]:
    """Return names and shapes of the first model that can be used."""
    usable = [message for message, why in zip(recording.messages, faults, strict=True) if why is None]
    if not usable:
        return [("arrays", "none that can be used")]
    forms = recording.forms(usable[0].sent)
    total = sum(math.prod(value.shape) for value in forms.values())
    facts = [("arrays", f"{len(forms)}, {total:,} numbers in all")]
    for name, value in list(forms.items())[:SHOWN]:
        facts.append(("", f"{name} {list(value.shape)} {str(value.dtype).removeprefix('torch.')}"))
    return facts + ([("", f"and {len(forms) - SHOWN} more")] if len(forms) > SHOWN else [])
