"""Recordings made from simulated runs, so that the two can be compared message by message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedxray.audit.plan import Plan
from fedxray.audit.run.prepare import prepare
from fedxray.federation.recording.format import Said
from fedxray.federation.recording.writer import open_folder, write_message
from fedxray.federation.round_loop import simulate
from fedxray.federation.transcript import Parts, Transcript


def record_simulation(
    plan: Plan, folder: Path, clients: Sequence[int], *, side: Any = "client", config: dict[str, Any] | None = None,
    **more: Any,
) -> Transcript:  # fmt: skip
    """Write what some clients of a plan's first run would have recorded; node ids are 100 + client."""
    seed = plan.seeds[0]
    transcript, truth = simulate(prepare(plan, plan.defences[0].title, seed).federation, seed=seed)
    open_folder(folder, side)
    for round in transcript.rounds():
        for client in clients:
            key = {m.what: m.parts for m in transcript.messages if (m.round, m.client) == (round, client)}
            sent, reply = transcript.shelf.get(key["broadcast"]), transcript.shelf.get(key["reply"])
            back = {name: value + reply.params[name] for name, value in sent.params.items()}
            about = {"node": str(100 + client), "run": "1", "round": round + 1, "partition": client}
            reported = {"server-round": round + 1, **(config or {})}
            write_message(
                folder,
                Said(
                    what="train",
                    sent=numpy(sent),
                    reply=numpy(Parts(back, reply.buffers)),
                    examples=len(truth.train[client]),
                    config=reported,
                    **more,
                    **about,  # type: ignore[arg-type]
                ),
            )
            after = transcript.shelf.get(transcript.outcome(round).parts)
            write_message(folder, Said(what="evaluate", sent=numpy(after), **about))  # type: ignore[arg-type]
    return transcript


def numpy(parts: Parts) -> dict[str, Any]:
    return {name: value.numpy() for name, value in {**parts.params, **parts.buffers}.items()}
