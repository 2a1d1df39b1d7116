"""What the folder of an NVFlare job states before it runs: rounds, training scripts, filters in their order, and gaps.

The folder is an exported job, or the workspace of one that ran, its files in JSON, HOCON (.conf) or YAML; nothing of
NVFlare is imported and no code of the job is run. A job may hold several apps for different sites, and a site's
`privacy.json` several scopes: sites with the same scripts and filters are listed together, filters as a site applies
them, those of its own scope first.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from fedxray.audit.catalog import make_defence
from fedxray.errors import BadInput, printable
from fedxray.files import read_json

CLIENT, SERVER, SITE, META = "config_fed_client", "config_fed_server", "privacy", "meta"
ENDINGS = (".json", ".conf", ".yml", ".yaml")  # of a folder NVFlare reads the first that is there
MOST_BYTES, MOST_OTHER = 10 * 1024**2, 200_000  # of JSON, and of formats whose parsers are slow
MOST_SHOWN = 2000  # characters of a setting
MOST_NESTED = 50
INCLUDES = re.compile(r"\binclude\s*[\"(a-z]")
NAMED = re.compile(r"\{(\w+)\}")
WIDTH, INDENT = 80, 12
EVERY, OTHERS = "all sites", "all other sites"
STOCK = {"PercentilePrivacy": "nvflare-percentile", "SVTPrivacy": "nvflare-svt", "ExcludeVars": "nvflare-exclude"}
OURS = {  # arguments of NVFlare's filters that a defence of a plan has too, by its name for them
    "nvflare-percentile": {"percentile": "percentile", "gamma": "gamma"},
    "nvflare-svt": {"fraction": "fraction", "epsilon": "epsilon", "noise_var": "noise_var", "gamma": "gamma",
                    "tau": "tau"},
    "nvflare-exclude": {"exclude_vars": "names"},
}  # fmt: skip
THEIRS: dict[str, dict[str, Any]] = {  # arguments that a defence of a plan lacks, with NVFlare's default
    "nvflare-svt": {"replace": True, "epsilon_threshold": None, "epsilon_query": None, "epsilon_release": None}
}
KINDS = ("WEIGHTS", "WEIGHT_DIFF")
RECORDER = "fedxray.integrations.nvflare.Recorder"
NEVER = 'never applied: NVFlare 2.9 skips filters for tasks "*"; name the task, such as "train"'
INWARD = 'never applied: results leave a site in the direction "out"'
ELSEWHERE = 'not for the task "train", whose results a plan simulates'
WEIGHTS = "it gets whole models, not updates, and cuts these; let clients send differences (WEIGHT_DIFF)"
MISSING = (
    "records, network, loss, epochs, batch size, learning rate, whether the script reports its steps; NVFlare sends no "
    "number of examples"
)
CONVERT = "in NVFlare 2.9 it finds no received model at this place and sends whole weights"
OWN = 'no stock filter; simulate it by itself: factory = "module:Class" in [[defence]]'


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """One filter of results, as it is configured."""

    path: str
    tasks: tuple[str, ...]  # none: all of them, as a site's own filters
    args: Mapping[str, Any] = field(default_factory=dict)
    outward: bool = True

    @property
    def name(self) -> str:
        """Return its class."""
        return self.path.rpartition(".")[2]

    @property
    def runs(self) -> bool:
        """Return whether it is ever applied."""
        return self.outward and set(self.tasks) != {"*"}

    def line(self) -> str:
        """Return class, arguments and tasks."""
        given = ", ".join(
            f"{key} = {_short(value)}" for key, value in self.args.items() if key != "data_kinds" or value
        )
        return f"{self.name}({given}), {'tasks ' + ', '.join(self.tasks) if self.tasks else 'all tasks of this site'}"


@dataclass(frozen=True, kw_only=True)
class JobExecutor:
    """What trains for some tasks of a site."""

    tasks: tuple[str, ...]
    script: str
    sends: str


@dataclass(frozen=True, kw_only=True)
class JobApp:
    """Scripts and filters of the sites that share them."""

    sites: tuple[str, ...]
    executors: tuple[JobExecutor, ...]
    filters: tuple[JobFilter, ...]

    def kinds(self, tasks: tuple[str, ...]) -> set[str]:
        """Return what a filter of these tasks may get."""
        served = [
            one.sends for one in self.executors if not tasks or "*" in (*tasks, *one.tasks) or {*tasks} & {*one.tasks}
        ]
        return set(served) or {"WEIGHTS"}


@dataclass(frozen=True, kw_only=True)
class JobScope:
    """A scope of a site's own policy, and whether this job runs in it."""

    site: str
    name: str
    applies: bool
    filters: tuple[JobFilter, ...]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the folder of a job states."""

    workflows: tuple[tuple[str, int | None], ...]  # class and rounds
    apps: tuple[JobApp, ...]
    scopes: tuple[JobScope, ...]


# Reading


def read_job(folder: Path) -> Job:
    """Return what the folder of a job states; refused where it holds no job."""
    clients = _configs(folder, CLIENT)
    if not clients:
        remedy = "Name the folder that `recipe.export(...)` or `nvflare job download` wrote."
        raise BadInput("job", expected=f"a folder with {CLIENT}", got=str(folder), remedy=remedy)
    meta = next((plain for _, plain in _configs(folder, META)), {})
    servers = [_list(plain, "workflows") for _, plain in _configs(folder, SERVER)]
    scopes = tuple(scope for path, plain in _configs(folder, SITE) for scope in _scopes(path, plain, folder, meta))
    return Job(
        workflows=tuple(_workflow(one) for one in next(filter(None, servers), [])),
        apps=_apps(clients, meta, scopes),
        scopes=scopes,
    )


def _workflow(one: Mapping[str, Any]) -> tuple[str, int | None]:
    rounds = _table(one, "args").get("num_rounds")
    number = rounds if isinstance(rounds, int) and not isinstance(rounds, bool) else None
    return str(one.get("path", "")).rpartition(".")[2], number


def _apps(
    clients: list[tuple[Path, dict[str, Any]]], meta: Mapping[str, Any], scopes: tuple[JobScope, ...]
) -> tuple[JobApp, ...]:
    """Return the apps of clients, one for all sites with the same executors and filters."""
    shared: list[tuple[JobApp, list[str]]] = []
    policies = {one.site for one in scopes}
    for path, plain in clients:
        for site in _sites(path, meta, sorted(policies - {EVERY})):
            own = site if site in policies else EVERY
            filters = [one for scope in scopes if scope.applies and scope.site == own for one in scope.filters]
            app = JobApp(sites=(), executors=tuple(_executors(plain)), filters=(*filters, *_of_job(plain)))
            same = next((sites for other, sites in shared if other == app), None)
            if same is None:
                shared.append((app, [site]))
            elif site not in same:
                same.append(site)
    every = EVERY if len(shared) < 2 else OTHERS
    return tuple(replace(app, sites=(every,) if EVERY in sites else tuple(sites)) for app, sites in shared)


def _sites(path: Path, meta: Mapping[str, Any], policies: list[str]) -> list[str]:
    """Return the sites that run the app of a configuration, none for one of the server alone."""
    app = (path.parent.parent if path.parent.name == "config" else path.parent).name
    deployed = _table(meta, "deploy_map").get(app)
    named = [str(site) for site in deployed] if isinstance(deployed, list) else []
    if not named and app.startswith("app_"):  # of a workspace
        named = [app.removeprefix("app_")]
    if not named or "@ALL" in named:
        return [EVERY, *policies]
    return [site for site in named if site != "server"]


def _executors(client: Mapping[str, Any]) -> Iterator[JobExecutor]:
    for one in _list(client, "executors"):
        given = _table(_table(one, "executor"), "args")
        parts = [given[key] for key in ("task_script_path", "task_script_args", "command") if given.get(key)]
        words = [word for part in parts for word in (part if isinstance(part, list) else [part])]
        sends = "WEIGHT_DIFF" if given.get("params_transfer_type") == "DIFF" else "WEIGHTS"
        yield JobExecutor(tasks=_tasks(one), script=_text(" ".join(map(_text, words))), sends=sends)


def _of_job(client: Mapping[str, Any]) -> Iterator[JobFilter]:
    for chain in _list(client, "task_result_filters"):
        for one in _list(chain, "filters"):
            yield _filter(one, chain, _tasks(chain))


def _filter(one: Mapping[str, Any], placed: Mapping[str, Any], tasks: tuple[str, ...]) -> JobFilter:
    """Return a filter; NVFlare takes its class from the first of three keys that is there."""
    path = next((one[key] for key in ("path", "class_path", "name") if key in one), "")
    outward = str(placed.get("direction") or "out").lower() in ("out", "inout")
    return JobFilter(path=str(path), tasks=tasks, args=_table(one, "args"), outward=outward)


def _scopes(path: Path, policy: Mapping[str, Any], folder: Path, meta: Mapping[str, Any]) -> Iterator[JobScope]:
    """Return the scopes of a site's policy; the job's own scope applies, or the site's default."""
    home = path.parent.parent if path.parent.name == "local" else path.parent
    wanted = meta.get("scope") or policy.get("default_scope")
    for scope in _list(policy, "scopes"):
        filters = (_filter(one, one, ()) for one in _list(scope, "task_result_filters"))
        site = EVERY if home == folder else home.name
        name = _text(scope.get("name", ""))
        yield JobScope(site=site, name=name, applies=scope.get("name") == wanted, filters=tuple(filters))


def _configs(folder: Path, name: str) -> list[tuple[Path, dict[str, Any]]]:
    """Return all configurations of that name below the folder, the outermost first."""
    if not folder.is_dir():
        raise BadInput("job", expected="a folder", got=str(folder), remedy="Name the folder of the job.")
    found: dict[Path, Path] = {}
    for ending in ENDINGS:
        for path in folder.rglob(name + ending):
            if path.is_file():
                found.setdefault(path.parent, path)
    return [(path, _config(path)) for path in sorted(found.values(), key=lambda path: (len(path.parts), path))]


def _config(path: Path) -> dict[str, Any]:
    plain = (
        read_json(path, argument=f"job {str(path)!r}", remedy="Export the job again.", most=MOST_BYTES)
        if path.suffix == ".json"
        else _read_other(path)
    )
    if not isinstance(plain, dict):
        got, remedy = type(plain).__name__, "Export the job again."
        raise BadInput(f"job {path.name}", expected="an object", got=got, remedy=remedy)
    known = {key: value for key, value in plain.items() if isinstance(value, str | int | float)}
    return {key: _filled(value, known) for key, value in plain.items()}


def _filled(value: Any, known: Mapping[str, Any]) -> Any:
    """Return values with those of the file in place of {name}, as NVFlare reads them; other names stay."""
    if isinstance(value, dict):
        return {key: _filled(entry, known) for key, entry in value.items()}
    if isinstance(value, list):
        return [_filled(entry, known) for entry in value]
    if not isinstance(value, str) or len(value) > MOST_SHOWN:
        return value
    whole = NAMED.fullmatch(value)
    if whole and whole[1] in known:
        return known[whole[1]]
    return NAMED.sub(lambda found: _text(known[found[1]]) if found[1] in known else found[0], value)


def _read_other(path: Path) -> Any:
    """Return the values of a file in HOCON or YAML, by the parsers that come with NVFlare."""

    def refused(expected: str, got: str, remedy: str = "Correct the file, or export the job again.") -> BadInput:
        return BadInput(f"job {str(path)!r}", expected=expected, got=got[:300], remedy=remedy)

    if path.stat().st_size > MOST_OTHER:
        raise refused(f"at most {MOST_OTHER} bytes", f"{path.stat().st_size} bytes")
    hocon = path.suffix == ".conf"
    try:
        text = path.read_text(encoding="utf-8")
        if hocon and INCLUDES.search(text):  # it would read other files, or fetch them
            raise refused("a file by itself", "include", "Put the included values into the file.")
        parse = import_module("pyhocon").ConfigFactory.parse_string if hocon else import_module("yaml").safe_load
        return _plain(parse(text))
    except ModuleNotFoundError as problem:
        remedy = "Install the extra: pip install 'fedxray[nvflare]'."
        raise refused("a parser of this format", f"no package {problem.name}", remedy) from problem
    except BadInput:
        raise
    except Exception as problem:  # noqa: BLE001  (parsers of others)
        raise refused(
            f"a complete {'HOCON' if hocon else 'YAML'} file", f"{type(problem).__name__}: {problem}"
        ) from None


def _plain(value: Any, depth: int = 0) -> Any:
    """Return parsed values as JSON would hold them: quoted names of HOCON without quotes, no other objects."""
    if depth > MOST_NESTED:
        raise ValueError("values nested without end")
    if isinstance(value, Mapping):
        return {str(key).strip('"'): _plain(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry, depth + 1) for entry in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _tasks(table: Mapping[str, Any]) -> tuple[str, ...]:
    tasks = table.get("tasks")
    return tuple(map(_text, tasks)) if isinstance(tasks, list) and tasks else ("*",)


def _list(table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects of a list; what is none is left out."""
    given = table.get(key)
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    given = table.get(key)
    return given if isinstance(given, dict) else {}


# Listing


def job_lines(folder: Path) -> Iterator[str]:
    """List a job for a person: what it does, which filters run, what is missing for an audit, and the plan's defences.

    The defences follow on lines of their own, as they stand in a plan.
    """
    job = read_job(folder)
    for label, text in _entries(job):
        for place, line in enumerate(textwrap.wrap(printable(text), WIDTH - INDENT) or [""]):
            yield f"{'' if place else label:<{INDENT}}{line}"
    for app in job.apps:
        yield from _plan_lines(app)


def _entries(job: Job) -> Iterator[tuple[str, str]]:
    for name, rounds in job.workflows or (("no workflow", None),):
        yield "rounds", f"{rounds if rounds is not None else 'not stated'} ({name or 'no workflow'})"
    for app in job.apps:
        yield "sites", ", ".join(app.sites)
        for one in app.executors or (JobExecutor(tasks=("*",), script="", sends="WEIGHTS"),):
            yield "script", (one.script or "not stated") + ("" if one.tasks == ("*",) else _of_tasks(one.tasks))
            yield "sends", one.sends
        for number, one_filter in enumerate(app.filters, 1):
            yield f"filter {number}", one_filter.line()
            yield from (("", note) for note in _translated(one_filter, app)[1])
        if not app.filters:
            yield "filters", "none"
        if not any(one_filter.path == RECORDER for one_filter in app.filters):
            yield "recorder", "none: call record(recipe, FOLDER) of fedxray.integrations.nvflare before it runs"
    for scope in job.scopes:
        state = "applies" if scope.applies else "does not apply to this job"
        names = ", ".join(one.name for one in scope.filters) or "none"
        yield "scope", f"{scope.name} of {scope.site} {state}; filters of results: {names}"
    yield "missing", MISSING


def _of_tasks(tasks: Iterable[str]) -> str:
    return f", tasks {', '.join(tasks)}"


def _plan_lines(app: JobApp) -> Iterator[str]:
    """Return a block of a plan with the stock filters that act, joined in their order; nothing where none does."""
    parts: dict[str, dict[str, Any]] = {}
    doubts = []
    for one in app.filters:
        settings, notes = _translated(one, app)
        doubts += [f"{one.name}: {note}" for note in notes if one.runs]
        if settings is None:
            continue
        if STOCK[one.name] in parts:
            doubts.append(f"{one.name}: a plan takes each defence once; left out the second time")
            continue
        parts[STOCK[one.name]] = settings
    if not parts:
        return
    yield ""
    yield f"# {printable(', '.join(app.sites))}"
    yield from (f"# not the same: {printable(doubt)}" for doubt in doubts)
    yield "[[defence]]"
    yield f'name = "{"+".join(parts)}"'
    for title, settings in parts.items():
        entries = [f"{key} = {_toml(value)}" for key, value in settings.items()]
        if len(parts) == 1:
            yield from entries
        elif entries:
            yield f"{title} = {{ {', '.join(entries)} }}"


def _toml(value: float | str) -> str:
    """Return a number or a text as TOML; characters that do not print are escaped."""
    if not isinstance(value, str):
        return json.dumps(value)
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08X}" for letter in quoted)


def _short(value: Any) -> str:
    """Return a value as a text of bounded length."""
    limited = reprlib.Repr()
    limited.maxstring = limited.maxother = limited.maxlong = 200
    limited.maxlist = limited.maxdict = 10
    return limited.repr(value)


def _text(value: Any) -> str:
    return value[:MOST_SHOWN] if isinstance(value, str) else _short(value)


# A configured filter as a defence of a plan


def _translated(one: JobFilter, app: JobApp) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the settings of the plan's defence for a filter, None where it does nothing there, and what differs."""
    if not one.runs:
        return None, [NEVER if one.outward else INWARD]
    if one.name not in STOCK:
        return None, [] if one.path == RECORDER else [CONVERT if one.name == "ConvertWeights" else OWN]
    title, kinds = STOCK[one.name], app.kinds(one.tasks)
    refusal = _refused(one, title) or _idle(one, kinds)
    if refusal:
        return None, [refusal]
    notes = [
        f"{key} = {_short(one.args[key])}, which no plan states"
        for key, usual in THEIRS.get(title, {}).items()
        if one.args.get(key, usual) != usual
    ]
    if one.tasks and "train" not in one.tasks:
        notes.append(ELSEWHERE)
    if "WEIGHTS" in kinds and one.name != "ExcludeVars":
        notes.append(WEIGHTS)
    settings = {ours: _ours(one.args[theirs]) for theirs, ours in OURS[title].items() if theirs in one.args}
    problem = _unstated(title, settings)
    return (None, [*notes, problem]) if problem else (settings, notes)


def _refused(one: JobFilter, title: str) -> str:
    """Return why NVFlare would not make the filter; empty where it would."""
    known = {*OURS[title], *THEIRS.get(title, {}), "data_kinds"}
    odd = [key for key in one.args if key not in known]
    if odd:
        return f"NVFlare knows no argument {_short(odd[0])} of it and refuses the job"
    kinds = one.args.get("data_kinds")
    if kinds and (not isinstance(kinds, list) or any(kind not in KINDS for kind in kinds)):
        return f"data_kinds = {_short(kinds)}: NVFlare refuses the job"
    return ""


def _idle(one: JobFilter, kinds: set[str]) -> str:
    """Return why the filter passes every result on unchanged; empty where it acts."""
    wanted = one.args.get("data_kinds") or KINDS
    if not kinds & set(wanted):
        return f"does nothing: it is for {', '.join(wanted)}, and the site sends {', '.join(sorted(kinds))}"
    gamma, percent = one.args.get("gamma", 1), one.args.get("percentile", 1)
    if one.name == "PercentilePrivacy" and (_is_number(gamma) and gamma <= 0):
        return "does nothing: NVFlare skips a gamma that is not above 0"
    if one.name == "PercentilePrivacy" and (_is_number(percent) and not 0 <= percent <= 100):
        return "does nothing: NVFlare skips a percentile outside 0 to 100"
    names = one.args.get("exclude_vars")
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if one.name == "ExcludeVars" and not (names and (texts or isinstance(names, str))):
        return "does nothing: exclude_vars names no array"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _ours(value: Any) -> Any:
    """Return an argument as a plan states it: a list of names as one pattern."""
    return "|".join(f"^{re.escape(name)}$" for name in value) if isinstance(value, list) else value


def _unstated(title: str, settings: Mapping[str, Any]) -> str:
    """Return why a plan cannot state these settings; empty where it can."""
    for key, value in settings.items():
        if isinstance(value, str) and len(value) > MOST_SHOWN:
            return f"{key} is too long for a plan: {len(value)} characters"
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            return f"{key} holds half a character, which no plan can state"
        if not isinstance(value, str) and not _is_number(value):
            return f"{key} = {_short(value)}, which no plan takes"
    try:
        make_defence(title, settings)
    except BadInput as refusal:
        return f"no plan takes it: {refusal}"
    return ""
