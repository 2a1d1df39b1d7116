"""`fedxray init`: looks at the data and writes a commented plan that fits it, for the user to change.

What cannot be known is guessed from names and values of columns; every guess is printed with the option that replaces
it. A plan on data is read and checked as `audit` would before it is written, so that it runs as it is.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fedxray.errors import BadInput, check_one_of, printable
from fedxray.metrics import units
from fedxray.report.noise import EPSILON, NOISE, OF_ONE_GRADIENT, noise_scale

# Parts of column names, the likeliest first
TARGETS = ("target", "outcome", "label", "cost", "charges", "bill", "price", "readmitted", "mortality", "survived")
SECRETS = (
    "diagnosis", "hiv", "cancer", "disease", "smoker", "smoking", "alcohol", "drug", "pregnant", "genetic", "religion",
    "ethnicity", "race", "sex", "gender", "income",
)  # fmt: skip
SITES = ("hospital", "clinic", "site", "centre", "center", "institution", "client", "node", "branch", "ward")
PEOPLE = ("patient", "subject", "person", "participant", "customer", "user", "mrn")
CLIENTS, MOST_SITES, MOST_TARGETS = 4, 20, 4
FEWEST = 20  # records of a client
RARE = 0.8  # share of one value beyond which accuracy is no measure
SIDE = 32  # pixels to which larger images are resized
IMAGES = 8  # that a client trains on
HOLDOUT = 0.1  # of a client's records, where the plan does not state it
LONG = 120.0  # seconds of one answer
ROUNDS, BATCH, SMALL_BATCH, RATE = 20, 32, 4, 0.05  # the small batch is of images


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A plan as text, what was found or guessed in words, and whether it still has gaps for the user to fill."""

    text: str
    found: tuple[str, ...]
    gaps: bool = False


def run_init(kind: str, path: Path | None, target: str | None, sensitive: str | None, out: Path | None) -> None:
    """Write the plan of a kind (KINDS) and print what was found, and the next command."""
    if kind in NO_DATA:
        remedy = "Copy examples/no-data: its plan audits records that are drawn from a schema of your columns."
        raise BadInput("KIND", expected=" or ".join(KINDS), got=repr(kind), remedy=remedy)
    check_one_of("KIND", kind, tuple(KINDS))
    if path is None and kind != "one-gradient":
        remedy = f"Add it: fedxray init {kind} {KINDS[kind]}"
        raise BadInput("PATH", expected=f"the data of {kind}", got="nothing", remedy=remedy)
    if path is not None and not path.exists():
        from fedxray.data.checks import missing_file

        raise missing_file(path)
    if path is not None and path.is_file() and path.suffix.lower() == ".toml":
        remedy = "A plan or a schema is used as it is (docs/data.md)."
        raise BadInput("PATH", expected=f"the data of {kind}", got=f"{path}, a TOML file", remedy=remedy)
    file = out or Path(f"{_stem(path, kind)}.toml")
    if path is not None and file.exists() and file.samefile(path):
        remedy = "Choose another name with --out."
        raise BadInput("--out", expected="a new file", got=f"{file}, which is the data", remedy=remedy)
    if file.exists():
        remedy = "Delete it, or choose another name with --out."
        raise BadInput("--out", expected="a new file", got=f"{file}, which exists", remedy=remedy)
    given = "" if path is None else Path(os.path.relpath(path, file.parent)).as_posix()
    draft = _draft(kind, path, given, target, sensitive)
    if not draft.gaps:
        _check(draft.text, file)
    from fedxray.files import write_whole

    write_whole(file, draft.text.encode(), "plan")
    print("\n".join(draft.found))
    print(f"\nWrote {file}. " + ("Fill in the lines marked TODO. " if draft.gaps else "") + "Next:")
    print(f"  fedxray audit {file} --dry-run    # how the data is read, what it can settle, how long it takes")
    print(f"  fedxray audit {file}")


KINDS: Mapping[str, str] = {
    "hospital-table": "patients.csv",
    "hospital-images": "FOLDER",
    "flower": "RECORDING",
    "one-gradient": "[FILE or FOLDER]",
}
NO_DATA = ("no-data", "schema", "synthetic")  # what is asked for where there are no data to look at


def _stem(path: Path | None, kind: str) -> str:
    return kind if path is None else path.resolve().name.split(".")[0] or kind


def _draft(kind: str, path: Path | None, given: str, target: str | None, sensitive: str | None) -> Draft:
    if kind == "flower":
        assert path is not None
        return _flower(path, given)
    if path is None:
        return _images(None, "", one_gradient=True)
    if path.is_dir():
        if kind == "hospital-table":
            remedy = f"For images: fedxray init hospital-images {path}"
            raise BadInput("PATH", expected="a CSV file", got="a folder", remedy=remedy)
        return _images(path, given, one_gradient=kind == "one-gradient")
    if kind == "hospital-images":
        remedy = "Sort the images into folders named after their classes."
        raise BadInput("PATH", expected="a folder with one folder of images per class", got="a file", remedy=remedy)
    return _table(path, given, target, sensitive, one_gradient=kind == "one-gradient")


def _check(text: str, file: Path) -> None:
    """Refuse a plan that `audit` would refuse, before it is written."""
    import tomllib

    from fedxray.audit.plan import make_plan
    from fedxray.audit.run.prepare import prepare_first

    prepare_first(make_plan(tomllib.loads(text), file.absolute().parent, text.encode()))


def _noted(line: str, comment: str) -> str:
    """Return a line of the plan with its comment, in one column for all."""
    return f"{line:<27} # {comment}"


def _quoted(value: str | Sequence[str]) -> str:
    """Return a name, or a list of names, as TOML."""
    return json.dumps(value if isinstance(value, str) else list(value), ensure_ascii=False)


# Tables


@dataclass(frozen=True, kw_only=True)
class Table:
    """The columns of a CSV file by their use, each guess with its reason in `found`."""

    rows: int
    target: str
    sensitive: str | None
    values: Counter[str]  # of the sensitive column
    number: bool  # whether the sensitive column holds numbers
    site: str | None
    sites: int
    subject: str | None
    drop: tuple[str, ...]
    missing: str | None
    found: tuple[str, ...]

    @property
    def clients(self) -> int:
        """Return the number of clients: those of the site column, or as many as records allow."""
        return self.sites if self.site else max(2, min(CLIENTS, self.rows // (2 * FEWEST)))

    @property
    def records(self) -> int:
        """Return about how many records a client trains on."""
        return max(1, round(0.81 * self.rows / self.clients))

    @property
    def metric(self) -> str:
        """Return the metric that judges attacks on the sensitive column."""
        if self.number:
            return "within_tolerance"
        most = max(self.values.values(), default=0) / max(sum(self.values.values()), 1)
        return "balanced_accuracy" if most > RARE else "accuracy"


def _table_facts(path: Path, target: str | None, sensitive: str | None) -> Table:
    """Return what the columns of a file are for; given names win over guesses."""
    from fedxray.data import own_csv
    from fedxray.data.checks import unknown_column

    cells = own_csv.read_cells(path)
    full = {
        name: [cell for cell in column if cell.lower() not in own_csv.MISSING] for name, column in cells.columns.items()
    }
    for argument, name in (("--target", target), ("--sensitive", sensitive)):
        if name is not None and name not in full:
            raise unknown_column(argument, name, path.name, list(full))
    numbers = {name: own_csv.as_numbers(column) for name, column in full.items()}
    reasons = {name: own_csv.why_no_feature(name, full[name], numbers[name], category=False) for name in full}
    different = {name: len(set(column)) for name, column in full.items()}
    subject = _named(full, PEOPLE, lambda name: _is_person(name, full[name], reasons[name]))
    site = _named(full, SITES, lambda name: _is_site(full[name]) and name not in (target, sensitive))
    usable = [name for name in full if not reasons[name] and name not in (subject, site) and different[name] > 1]
    free = [name for name in usable if name != sensitive]
    aim = target or _named(free, TARGETS, lambda name: numbers[name] is not None or different[name] <= FEWEST)
    aim = aim or next((name for name in reversed(free)), None)
    if aim is None:
        remedy = "Name one with --target."
        raise BadInput("--target", expected="a column to predict", got="none that fits", remedy=remedy)
    few = [name for name in usable if name != aim and different[name] <= FEWEST]
    secret = sensitive or _named([name for name in usable if name != aim], SECRETS, lambda name: True)
    secret = secret or next(iter(sorted(few, key=lambda name: different[name])), None)
    drop = tuple(name for name in full if reasons[name] and name not in (subject, aim, secret))
    holes = {name for name in full if name not in drop and len(full[name]) < len(cells.lines)}
    missing = None if not holes else "drop-rows" if holes & {aim, secret} else "median"
    found = [
        f"{path.name}: {len(cells.lines):,} records, {len(full)} columns",
        f"target      {aim}" + ("" if target else " (a guess: --target NAME changes it)"),
        f"sensitive   {secret or 'none found'}" + ("" if sensitive else " (a guess: --sensitive NAME changes it)"),
        f"clients     {f'by {site}' if site else 'simulated: records are divided at random'}",
        *([f"people      {subject}: the unit of protection is the person"] if subject else []),
        *(f"left out    {name} ({reasons[name]})" for name in drop),
        *([f"missing     values in {', '.join(sorted(holes))}: missing = {missing!r}"] if missing else []),
    ]
    return Table(
        rows=len(cells.lines), target=aim, sensitive=secret, values=Counter(full.get(secret or "", ())),
        number=secret is not None and numbers[secret] is not None and different[secret] > 2,
        site=site, sites=different[site] if site else 0, subject=subject, drop=drop, missing=missing,
        found=tuple(found),
    )  # fmt: skip


def _named(columns: Iterable[str], parts: Sequence[str], fits: Callable[[str], bool]) -> str | None:
    """Return the first column that fits and whose name holds one of the parts, likelier parts first."""
    names = list(columns)
    return next((name for part in parts for name in names if part in name.lower() and fits(name)), None)


def _is_person(name: str, cells: Sequence[str], reason: str) -> bool:
    """Whether a column identifies people, of which some have several records."""
    return bool(reason or "id" in name.lower()) and FEWEST <= len(set(cells)) < 0.9 * len(cells)


def _is_site(cells: Sequence[str]) -> bool:
    """Whether a column divides the records into a few large parts."""
    counts = Counter(cells)
    return 2 <= len(counts) <= MOST_SITES and min(counts.values()) >= FEWEST


def _table(path: Path, given: str, target: str | None, sensitive: str | None, *, one_gradient: bool) -> Draft:
    """Return the plan of a table: attributes and membership, or for one gradient whole rows."""
    table = _table_facts(path, target, sensitive)
    data = [f"path = {_quoted(given)}", _noted(f"target = {_quoted(table.target)}", "what the model predicts")]
    if table.sensitive:
        data.append(_noted(f"sensitive = {_quoted(table.sensitive)}", "what must not leak"))
    data.append(f"clients = {table.clients}")
    data += ['partition = "by-column"', f"column = {_quoted(table.site)}"] if table.site else ['partition = "iid"']
    if table.subject:
        data.append(_noted(f"subject = {_quoted(table.subject)}", "a person may have several records"))
    data += [f"drop = {_quoted(table.drop)}"] if table.drop else []
    data += [f"missing = {_quoted(table.missing)}"] if table.missing else []
    data += [_noted("limit = 8", "records behind one gradient")] if one_gradient else []
    text = _plan(
        question=f"What do updates of a model that predicts {table.target} reveal about the records of {path.name}?",
        data=data,
        model=['name = "mlp"', _noted("hidden = [64]", OWN_MODEL)],
        federation=ONE_GRADIENT if one_gradient else TRAINING,
        defences=_defences(
            table.records,
            None if one_gradient else noise_scale(learning_rate=RATE, epochs=1, rounds=ROUNDS, batch_size=BATCH),
        ),
        attacks=[ROWS] if one_gradient else _table_attacks(table),
    )
    return Draft(text=text, found=table.found)


OWN_MODEL = 'yours instead: factory = "my_app:network"'
COPY = "# Copy your own training here: the verdict holds for these settings."
TRAINING = [
    COPY,
    f"rounds = {ROUNDS}",
    _noted("epochs = 1", "local epochs per round"),
    f"batch_size = {BATCH}",
    f"learning_rate = {RATE}",
]
ONE_GRADIENT = [
    _noted('algorithm = "fedsgd"', "each client sends one gradient: the easiest case for an attacker"),
    "rounds = 1",
    "learning_rate = 0.1",
]


@dataclass(frozen=True, kw_only=True)
class Try:
    """An attack of the plan: its question, name, further lines, and the metric and limit of its gate."""

    question: str
    name: str
    lines: tuple[str, ...] = ()
    metric: str | None = None
    limit: float = 0.05


ROWS = Try(question="Which records would give the same gradient?", name="tabular-inversion", metric="values_recovered")


def _table_attacks(table: Table) -> list[Try]:
    """Return the attacks that fit a table."""
    from fedxray.attacks.attributes.from_updates import MOST_INDICATORS, AttributeFromUpdates
    from fedxray.attacks.base import Workload

    few = (_noted(f"targets = {MOST_TARGETS}", f"of {table.clients} clients"),) if table.clients > MOST_TARGETS else ()
    tries = []
    if table.sensitive:
        sums, metric = AttributeFromUpdates(), table.metric
        values = sums.grid if table.number else len(table.values)
        work = Workload(records=table.records, rounds=ROUNDS, clients=table.clients, local_steps=1, step_seconds=0.0)
        if table.records * values <= MOST_INDICATORS and sums.seconds(work) <= LONG:
            question = "Record by record: which values add up to the updates?"
            tries.append(Try(question=question, name=sums.name, lines=few, metric=metric))
        question = "Which value does the client's model fit best?"
        tries.append(Try(question=question, name="attribute-from-model", lines=few, metric=metric))
        question = "The same by another client, which sees only global models"
        other = ('label = "by-another-client"', 'role = "curious-client"', 'model = "global-model"', *few)
        tries.append(Try(question=question, name="attribute-from-model", lines=other))
    metric = "auc_subject" if table.subject else "auc"
    question = f"Was this {'person' if table.subject else 'record'} in the training data?"
    return [*tries, Try(question=question, name="membership-best", lines=few, metric=metric)]


def _defences(records: int, scale: float | None) -> list[str]:
    """Return the tables of defences: none, noise, and dp-sgd, as a comment where its extra is not installed.

    A scale of None is for single gradients.
    """
    delta = f"1e-{math.ceil(math.log10(max(records, 10))) + 1}"  # well below one divided by the number of records
    today = _noted("deployed = true", "judged by the limits below: move it to the defence that you use")
    rule = f"{NOISE} x learning_rate x epochs x sqrt(rounds) / batch_size"
    sized = f"scale = {OF_ONE_GRADIENT}" if scale is None else _noted(f"scale = {scale}", f"{rule}: a first try")
    noise = [_noted('name = "gaussian-noise"', "on every number that is sent"), sized]
    bound = [
        _noted('name = "dp-sgd"', "bounds what any attack learns of a record"),
        f"epsilon = {EPSILON}",
        f"delta = {delta}",
    ]
    made = ["\n".join(("[[defence]]", *lines)) for lines in (['name = "none"', today], noise, [*bound, "clip = 1.0"])]
    if find_spec("opacus") is None:
        lines = ["dp-sgd needs an extra: pip install 'fedxray[dp]'; then uncomment:", *made[2].splitlines()]
        made[2] = "\n".join(f"# {line}" for line in lines)
    return made


# Images


def _images(path: Path | None, given: str, *, one_gradient: bool) -> Draft:
    """Return the plan of a folder of images, or of the bundled digits."""
    if path is None:
        name, data, found = "digits", ['name = "digits"', "clients = 4"], "digits: 8 x 8 pixels, from scikit-learn"
        number = 0
    else:
        name, sizes = path.name, _image_sizes(path)
        number = sizes.total()
        large = len(sizes) > 1 or max(max(size) for size in sizes) > SIDE
        resized = [_noted(f"size = {SIDE}", "pixels; larger ones take longer")] if large else []
        data = [f"path = {_quoted(given)}", *resized, f"clients = {CLIENTS}"]
        width, height = next(iter(sizes))
        found = f"{name}: images, " + (f"resized to {SIDE} x {SIDE} pixels" if large else f"{width} x {height} pixels")
    if one_gradient:
        data.append(_noted("limit = 2", "images behind one gradient: fewer leak more"))
        question, training = "Which images would give the same gradient?", ONE_GRADIENT
        tries = [Try(question=question, name="inverting-gradients", lines=("steps = 300",), metric="psnr", limit=1.0)]
    else:
        data.append(_noted(f"limit = {IMAGES}", "images per client"))
        data += _held_out(number // CLIENTS)
        training = [
            COPY,
            "rounds = 1",
            "epochs = 1",
            _noted(f"batch_size = {SMALL_BATCH}", "two local steps"),
            f"learning_rate = {RATE}",
        ]
        question = "Which images, trained on by the same local steps, would give the same update?"
        lines = ("steps = 200", _noted("targets = 2", "clients that are attacked"))
        member = Try(question="Was this image in the training data?", name="membership-best", metric="auc")
        tries = [Try(question=question, name="dlf", lines=lines, metric="psnr", limit=1.0), member]
    network = ['name = "mlp"', "hidden = [64]"] if path is None else ['name = "lenet"', "width = 16", "hidden = 64"]
    text = _plan(
        question=f"Can images of {name} be reconstructed from what clients send?",
        data=data,
        model=[*network[:-1], _noted(network[-1], OWN_MODEL)],
        federation=training,
        defences=_defences(
            IMAGES,
            None if one_gradient else noise_scale(learning_rate=RATE, epochs=1, rounds=1, batch_size=SMALL_BATCH),
        ),
        attacks=tries,
    )
    return Draft(text=text, found=(found,))


def _held_out(images: int) -> list[str]:
    """Return the line that holds out about as many images of a client as it trains on, where the default is fewer."""
    own = 0.9 * images  # the others are public
    share = math.ceil(100 * min(IMAGES / own, 0.5)) / 100 if own else 0.0
    comment = "images never trained on, about as many: membership is measured against them"
    return [_noted(f"holdout = {share:g}", comment)] if share > HOLDOUT else []


def _image_sizes(path: Path) -> Counter[tuple[int, int]]:
    """Return how many images below a folder have which size; files that are no images are left to the reader."""
    from fedxray.data.own_images import BROKEN, SUFFIXES, loose_images, pillow

    library, sizes = pillow(), Counter[tuple[int, int]]()
    for file in path.glob("*/*"):
        if file.suffix.lower() in SUFFIXES:
            with suppress(*BROKEN), library.open(file) as image:
                sizes[image.size] += 1
    if not sizes:
        remedy, flat = "Sort the images into folders named after their classes.", loose_images(path)
        got = f"{flat} images, but no folder per class" if flat else "no image"
        raise BadInput("PATH", expected="a folder with one folder of images per class", got=got, remedy=remedy)
    return sizes


# Recordings of Flower

RECORDED = """\
# What does the recording {name} reveal about the records of its node?
[transcript]
path = {path}
optimizer = "sgd"           # TODO: of the clients

[data]
path = "records.npz"        # TODO: the node's own records, encoded as for its network (docs/flower.md)
ready = true
use = "part"                # array with train, holdout or public for each record
{node}# groups = {{ smoker = [14] }}   # columns of x that encode an attribute
# sensitive = "smoker"           # which must not leak; then also try attribute-from-model

[model]
factory = "my_app.task:network"   # TODO: the function that makes your network

[[attack]]
name = "membership-best"

[[gate]]                    # fedxray gate fails above it
attack = "membership-best"
metric = "auc_over_floor"
limit = 0.05
"""


def _flower(path: Path, given: str) -> Draft:
    """Return the plan of a recording; network and records are the user's to fill in."""
    from fedxray.federation.recording.reader import read_recording, rounds_of, trainers

    recording = read_recording(path)
    nodes = trainers(recording.messages)
    of_server = recording.side == "server" and nodes
    node = _noted(f"node = {_quoted(nodes[0])}", "TODO: the node whose records these are") + "\n" if of_server else ""
    found = [f"{path.name}: {recording.side} side"]
    found += [f"node {printable(name)}: {rounds_of(recording.messages, name)}" for name in nodes]
    text = RECORDED.format(name=path.name, path=_quoted(given), node=node)
    return Draft(text=text, found=tuple(found), gaps=True)


# The text of a plan


def _plan(
    *,
    question: str,
    data: Sequence[str],
    model: Sequence[str],
    federation: Sequence[str],
    defences: Sequence[str],
    attacks: Sequence[Try],
) -> str:
    """Return the plan; each part is the lines of its table."""
    heading = (f"# {question}", "# Written by fedxray init: change whatever differs from your federation.")
    seeds = _noted('seeds = "auto"', "3, 5, 10 or 20: until the question is settled")
    tried = [(f"# {one.question}", "[[attack]]", f'name = "{one.name}"', *one.lines) for one in attacks]
    gates = [
        (
            _noted("[[gate]]", "fedxray gate fails above it"),
            f'attack = "{one.name}"',
            f'metric = "{one.metric}_over_floor"',
            _noted(f"limit = {one.limit}", _limit_words(one.limit, one.metric)),
        )
        for one in attacks
        if one.metric is not None
    ]
    tables = [(*heading, seeds), ("[data]", *data), ("[model]", *model), ("[federation]", *federation)]
    return "\n\n".join("\n".join(lines) for lines in (*tables, *((text,) for text in defences), *tried, *gates)) + "\n"


def _limit_words(limit: float, metric: str) -> str:
    """Return what a limit on a gain means; for an AUC the value itself, since chance is 0.5."""
    return f"an AUC of {0.5 + limit:g}" if metric.startswith("auc") else units.margin_of(limit, metric)
