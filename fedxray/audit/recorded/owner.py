"""Whose node is audited: a node's own recording speaks for itself, a server's holds the messages of many.

Other participants' data is never reconstructed from a live recording. In a server's recording the plan's node is taken
as one's own if the node's own recording, which holds no other node, is given and has the same replies to the bit in
several rounds; otherwise on the user's word, which the ledger and the report say, and only where the records that were
given look like those that it trained on. Imported checkpoints, and what several nodes recorded into one folder, are
one's own on the user's word too.
"""

from __future__ import annotations

import os
from pathlib import Path

from fedxray.audit.plan import Plan
from fedxray.audit.plan.recorded import BY_ITSELF, ON_WORD, SAME
from fedxray.errors import BadInput
from fedxray.federation.recording.reading import Recording, read_recording
from fedxray.federation.recording.transcribe import Chosen


def owner_of(plan: Plan, chosen: Chosen) -> str:
    """How it is known that the node is the user's own; refused where its own recording says otherwise."""
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
    """In how many rounds both hold the same reply of the node, at least one; refused where one is another."""
    if own.side != "client":
        raise _bad("a recording of the node's own side", f"one of the side {own.side} in {folder.name}")
    runs = {heard.run for heard in chosen.trained.values()}
    mine = {
        (heard.round, heard.reply.sha256)
        for heard in own.messages
        if heard.what == "train" and heard.reply is not None and heard.node == chosen.node
        if heard.run in runs or "" in (heard.run, *runs)  # a framework may not tell it
    }
    theirs = {
        (heard.round, heard.reply.sha256) for heard in chosen.trained.values() if heard.reply is not None
    }
    rounds = {round for round, _ in mine}
    common = {one for one in theirs if one[0] in rounds}
    if not common:
        raise _bad(f"replies of node {chosen.node} in the same run and rounds", "none of them")
    wrong = sorted(common - mine, key=str)
    if wrong:
        place = "" if wrong[0][0] is None else f" in round {wrong[0][0] - 1} (the first is 0)"
        raise _bad(f"the replies of node {chosen.node} in the server's recording", f"others{place}")
    return len({round for round, _ in common})


def check_word(node: str, fell: int, rounds: int) -> None:
    """Refuse records that do not look like those of a node which only the user's word says is theirs."""
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
