"""What the folder of an NVFlare job states before it runs: rounds, training script, filters in their order, and gaps.

The folder is an exported job, or the workspace of one that ran; nothing of NVFlare is imported and no code of the job
is run. Filters are listed as a site applies them, those of `privacy.json` first.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedxray.errors import BadInput, printable
from fedxray.files import read_json

CLIENT, SERVER, SITE = "config_fed_client.json", "config_fed_server.json", "privacy.json"
MOST_BYTES = 10 * 1024**2
WIDTH, INDENT = 80, 12
STOCK = {"PercentilePrivacy": "nvflare-percentile", "SVTPrivacy": "nvflare-svt", "ExcludeVars": "nvflare-exclude"}
OURS = {  # arguments of NVFlare's filters that a defence of a plan has too, by its name for them
    "nvflare-percentile": {"percentile": "percentile", "gamma": "gamma"},
    "nvflare-svt": {"fraction": "fraction", "epsilon": "epsilon", "noise_var": "noise_var", "gamma": "gamma",
                    "tau": "tau"},
    "nvflare-exclude": {"exclude_vars": "names"},
}  # fmt: skip
RECORDER = "fedxray.integrations.nvflare.Recorder"
NEVER = 'never applied: NVFlare 2.9 skips filters for tasks "*"; name the task, such as "train"'
WEIGHTS = "it gets whole models, not updates, and cuts these; let clients send differences (WEIGHT_DIFF)"
MISSING = "records, network, loss, epochs, batch size, learning rate; NVFlare sends no number of examples"
CONVERT = "in NVFlare 2.9 it finds no received model at this place and sends whole weights"


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """One filter of results, as it is configured."""

    path: str
    tasks: tuple[str, ...]  # none: all of them, as a site's own filters
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return its class."""
        return self.path.rpartition(".")[2]

    @property
    def runs(self) -> bool:
        """Return whether it is ever applied."""
        return "*" not in self.tasks

    def line(self) -> str:
        """Return class, arguments and tasks."""
        given = ", ".join(f"{key} = {value!r}" for key, value in self.args.items() if key != "data_kinds")
        return f"{self.name}({given}), {'tasks ' + ', '.join(self.tasks) if self.tasks else 'all tasks of this site'}"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the folder of a job states."""

    rounds: int | None
    workflow: str
    script: str
    sends: str
    filters: tuple[JobFilter, ...]


def read_job(folder: Path) -> Job:
    """Return what the folder of a job states; refused where it holds no job."""
    client, server = _config(folder, CLIENT), _config(folder, SERVER)
    if client is None:
        remedy = "Name the folder that `recipe.export(...)` or `nvflare job download` wrote."
        raise BadInput("job", expected=f"a folder with {CLIENT}", got=str(folder), remedy=remedy)
    executors = [_table(one, "executor") for one in _list(client, "executors")]
    given = _table(executors[0], "args") if executors else {}
    workflows = _list(server or {}, "workflows")
    first = workflows[0] if workflows else {}
    rounds = _table(first, "args").get("num_rounds")
    script = " ".join(str(given[key]) for key in ("task_script_path", "task_script_args") if given.get(key))
    return Job(
        rounds=rounds if isinstance(rounds, int) and not isinstance(rounds, bool) else None,
        workflow=str(first.get("path", "")).rpartition(".")[2],
        script=script,
        sends="WEIGHT_DIFF" if given.get("params_transfer_type") == "DIFF" else "WEIGHTS",
        filters=(*_of_site(folder), *_of_job(client)),
    )


def job_lines(folder: Path) -> Iterator[str]:
    """List a job for a person: what it does, which filters run, what is missing for an audit."""
    job = read_job(folder)
    for label, text in _entries(job):
        for place, line in enumerate(textwrap.wrap(printable(text), WIDTH - INDENT) or [""]):
            yield f"{'' if place else label:<{INDENT}}{line}"


def _entries(job: Job) -> Iterator[tuple[str, str]]:
    yield "rounds", f"{job.rounds if job.rounds is not None else 'not stated'} ({job.workflow or 'no workflow'})"
    yield "script", job.script or "not stated"
    yield "sends", job.sends
    for number, one in enumerate(job.filters, 1):
        yield f"filter {number}", one.line()
        yield from (("", note) for note in _notes(one, job.sends))
    if not job.filters:
        yield "filters", "none"
    if not any(one.path == RECORDER for one in job.filters):
        yield "recorder", "none: call record(recipe, FOLDER) of fedxray.integrations.nvflare before it runs"
    yield "missing", MISSING
    yield from (("plan", f"defence = [{{ {line} }}]") for line in _defences(job))


def _notes(one: JobFilter, sends: str) -> Iterator[str]:
    if not one.runs:
        yield NEVER
    if one.name in ("PercentilePrivacy", "SVTPrivacy") and sends == "WEIGHTS":
        yield WEIGHTS
    if one.name == "ConvertWeights":
        yield CONVERT


def _defences(job: Job) -> Iterator[str]:
    """List the defences that a plan would name for the filters that run."""
    for one in job.filters:
        if not one.runs or one.name not in STOCK:
            continue
        title = STOCK[one.name]
        settings: dict[str, Any] = {"name": title}
        for theirs, ours in OURS[title].items():
            value = one.args.get(theirs)
            if isinstance(value, list):  # of names: as one pattern
                value = "|".join(f"^{re.escape(str(name))}$" for name in value)
            if isinstance(value, int | float | str) and not isinstance(value, bool):
                settings[ours] = value
        yield ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())


def _of_site(folder: Path) -> Iterator[JobFilter]:
    """Return the filters of a site's own policy, where the folder holds it."""
    policy = _config(folder, SITE) or {}
    for scope in _list(policy, "scopes"):
        for one in _list(scope, "task_result_filters"):
            yield JobFilter(path=str(one.get("path", "")), tasks=(), args=_table(one, "args"))


def _of_job(client: Mapping[str, Any]) -> Iterator[JobFilter]:
    for chain in _list(client, "task_result_filters"):
        tasks = chain.get("tasks", ["*"])
        named = tuple(map(str, tasks)) if isinstance(tasks, list) and tasks else ("*",)
        for one in _list(chain, "filters"):
            yield JobFilter(path=str(one.get("path", "")), tasks=named, args=_table(one, "args"))


def _config(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the first configuration of that name below the folder, None where there is none."""
    if not folder.is_dir():
        raise BadInput("job", expected="a folder", got=str(folder), remedy="Name the folder of the job.")
    found = sorted((path for path in folder.rglob(name) if path.is_file()), key=lambda path: (len(path.parts), path))
    if not found:
        return None
    plain = read_json(found[0], argument=f"job {str(found[0])!r}", remedy="Export the job again.", most=MOST_BYTES)
    if not isinstance(plain, dict):
        raise BadInput(f"job {name}", expected="an object", got=type(plain).__name__, remedy="Export the job again.")
    return plain


def _list(table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects of a list; what is none is left out."""
    found = table.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key)
    return found if isinstance(found, dict) else {}
