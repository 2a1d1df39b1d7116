"""Imports only point upwards in the list of rooms, and only a few files may hold the truth."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

IMPORTED_AS = {
    "huggingface-hub": "huggingface_hub",
    "scikit-learn": "sklearn",
    "scikit-image": "skimage",
    "pillow": "PIL",
}
FOR_A_LIBRARY = {"greenlet"}  # Optuna's sampler asks for several points at once where it is installed
PACKAGE = Path(__file__).resolve().parents[1] / "fedxray"

# From the ground up: a module may import from its own room and from those before it.
ROOMS = (
    "errors", "settings", "files", "lookup", "plugins", "seeds", "progress", "params", "optim", "imaging", "losses",
    "data", "models", "defences", "federation",
    "adversary", "priors", "attacks", "restore", "metrics", "theory", "audit", "report", "reproduce",
    "integrations", "cli",
)  # fmt: skip

# The only places that may name Truth: the federation that makes it, where grants are copied out of it, where
# guesses are scored, and the audit that carries it from the one to the other.
MAY_USE_TRUTH = ("federation", "adversary.disclose", "metrics.scoring", "audit")
TRUTH = "federation.truth"

# What a room must never import, beyond the order of the rooms.
NEVER = {
    "attacks": (
        TRUTH, "federation.setting", "federation.round_loop", "federation.transcript",
        "federation.folder", "federation.cohort", "adversary.disclose", "adversary.roles",
    ),
    "priors": ("federation", "adversary"),
    "restore": ("federation", "adversary"),
    "data": (),
    "theory": ("federation", "adversary", "attacks", "restore", "metrics"),
}  # fmt: skip
# The folders and files of the audit, from the ground up, and what each must not import beside those after it.
AUDIT = ("judge", "accounting", "catalog", "restoring", "plan", "workers", "search", "own_code", "recorded", "run")
# Imports against that order that are left: plans and their parts need one another, a plan tries its searches, and
# views of the run serve recordings too.
CROSSINGS = {
    ("audit.restoring", "audit.plan"),
    ("audit.plan.checks", "audit.search"),
    ("audit.recorded.prepare", "audit.run.comparisons"),
    ("audit.recorded.prepare", "audit.run.prepare"),
}
# Judging results needs numbers alone, so that it works wherever results.json is.
JUDGE_KNOWS = ("errors", "files", "seeds", "metrics.table", "metrics.units", "metrics.epsilon", "audit.judge")
# Of the attacks, metrics may know the guess, but not how it was made.
METRICS_KNOW = ("attacks.evidence",)
# An attack holds no file and starts no process.
OUTSIDE = ("os", "io", "pathlib", "shutil", "subprocess", "multiprocessing", "tempfile", "joblib", "socket")


def room_of(module: str) -> str:
    """The room of a module; __main__.py belongs to the command line."""
    top = module.partition(".")[0]
    return "cli" if top == "__main__" else top


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(source: str, module: str) -> Iterator[tuple[str, str]]:
    """Every import of a module as (module, name), absolute; the name is empty for `import module`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: write imports in full"
            yield from ((node.module or "", alias.name) for alias in node.names)


def own(found: str, name: str, known: frozenset[str]) -> str | None:
    """The module of the package that an import reaches, without `fedxray.`; None for a foreign one."""
    if found.partition(".")[0] != "fedxray":
        return None
    inner = found.partition(".")[2]
    deeper = f"{inner}.{name}".strip(".")
    return deeper if deeper in known else inner


def within(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def problems(module: str, source: str, known: frozenset[str]) -> list[str]:
    """What is wrong with the imports of one module, in words."""
    room = room_of(module)
    if not room:  # fedxray/__init__.py offers names from everywhere
        return []
    if room not in ROOMS:
        return [f"{module} is in no room: put it into one, or add its room to the list"]
    found = []
    for imported, name in imports(source, module):
        target = own(imported, name, known)
        if target is None:
            if within(module, ("audit.judge",)) and imported.partition(".")[0] == "torch":
                found.append(f"{module} imports torch: judging needs numbers alone")
            if room == "attacks" and imported.partition(".")[0] in OUTSIDE:
                found.append(f"{module} imports {imported}: an attack knows no files and no processes")
            continue
        other = room_of(target)
        if other not in ROOMS:
            found.append(f"{module} imports {name or imported} from the package itself: import from its room")
        elif ROOMS.index(other) > ROOMS.index(room):
            found.append(f"{module} imports {target}, which is further down the list of rooms")
        if within(target, NEVER.get(room, ())):
            found.append(f"{module} must never know {target}")
        found += audit_problems(module, target)
        if room == "metrics" and other == "attacks" and not within(target, METRICS_KNOW):
            found.append(f"{module} imports {target}: a metric may not know how a guess was made")
        if name == "Truth" and not within(module, MAY_USE_TRUTH):
            found.append(f"{module} imports Truth")
    return found


def audit_problems(module: str, target: str) -> list[str]:
    """What is wrong with an import inside the audit: its folders have an order, and the judge knows only numbers."""
    here, there = (
        name.split(".")[1] if name.startswith("audit.") and name.split(".")[1] in AUDIT else None
        for name in (module, target)
    )
    found = []
    later = here is not None and there is not None and AUDIT.index(there) > AUDIT.index(here)
    crossing = any(module == name and within(target, (other,)) for name, other in CROSSINGS)
    if later and not crossing:
        found.append(f"{module} imports {target}, which is a later folder of the audit")
    if here == "judge" and not within(target, JUDGE_KNOWS):
        found.append(f"{module} imports {target}: judging needs numbers alone")
    return found


KNOWN = frozenset(module_name(path) for path in modules())


@pytest.mark.parametrize("path", modules(), ids=lambda path: module_name(path) or "fedxray")
def test_imports_point_upwards(path: Path) -> None:
    assert problems(module_name(path), path.read_text(encoding="utf-8"), KNOWN) == []


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("data.own", "from fedxray.federation.recipe import Recipe", "further down"),
        ("params", "import fedxray.losses", "further down"),
        ("federation.local", "def f():\n    from fedxray.attacks.base import Attack", "further down"),
        ("attacks.new", "from fedxray.federation.truth import Truth", "must never know"),
        ("attacks.new", "from fedxray.federation import truth", "must never know"),
        ("attacks.new", "from fedxray.metrics.images import psnr", "further down"),
        ("attacks.new", "from fedxray.adversary.roles import ROLES", "must never know"),
        ("attacks.new", "from pathlib import Path", "no files"),
        ("adversary.view", "from fedxray.federation.truth import Truth", "imports Truth"),
        ("metrics.images", "from fedxray.attacks.membership import MembershipLoss", "how a guess"),
        ("adversary.view", "from fedxray import Federation", "from the package itself"),
        ("helpers", "import torch", "in no room"),
        ("audit.judge.new", "import torch", "numbers alone"),
        ("audit.judge.new", "from fedxray.federation.truth import Truth", "numbers alone"),
        ("audit.judge.new", "from fedxray.audit.plan.schema import Plan", "later folder"),
        ("audit.plan.new", "from fedxray.audit.run.grid import expand", "later folder"),
        ("audit.recorded.new", "from fedxray.audit.run.prepare import prepare", "later folder"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str, complaint: str) -> None:
    known = KNOWN | {"attacks.membership", "metrics.images", "metrics"}
    assert any(complaint in problem for problem in problems(module, source, known))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("attacks.new", "from fedxray.adversary.view import View\nfrom fedxray.federation.local import local_update"),
        (
            "metrics.scoring",
            "from fedxray.federation.truth import Truth\nfrom fedxray.attacks.evidence import Evidence",
        ),
        ("audit.run", "from fedxray.federation.truth import Truth\nimport fedxray.attacks.base"),
        ("data.own", "from fedxray.data.dataset import Space\nimport torch"),
    ],
)
def test_a_right_import_passes(module: str, source: str) -> None:
    assert problems(module, source, KNOWN) == []


def test_judging_imports_no_torch() -> None:
    names = [name for name in KNOWN if within(name, ("audit.judge",))]
    lines = [f"import fedxray.{name}" for name in sorted(names)]
    code = "\n".join([*lines, "import sys", "sys.exit('torch' in sys.modules)"])
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_room_of_the_package_is_listed() -> None:
    rooms = {room_of(module) for module in KNOWN} - {""}
    assert rooms <= set(ROOMS)
    assert len(ROOMS) == len(set(ROOMS))


def test_foreign_imports_are_of_the_standard_library_or_declared() -> None:
    core, extras = declared()
    used = {
        found.partition(".")[0]
        for path in modules()
        for found, _ in imports(path.read_text(encoding="utf-8"), module_name(path))
    }
    assert used - core - extras - {"fedxray"} <= set(sys.stdlib_module_names)
    assert core | extras - FOR_A_LIBRARY <= used, "what nothing imports need not be installed"


def declared() -> tuple[set[str], set[str]]:
    """What pyproject.toml lists for users, as it is imported: always installed, and by extras."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for extra, names in project["optional-dependencies"].items() if extra != "dev" for name in names]
    core, more = (
        {re.match(r"[\w.-]+", line)[0].lower() for line in lines} for lines in (project["dependencies"], extras)
    )
    return {IMPORTED_AS.get(name, name) for name in core}, {IMPORTED_AS.get(name, name) for name in more - {"fedxray"}}
