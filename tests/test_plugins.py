"""Attacks, defences, data sets and models of another installed package, through its entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedxray import plugins
from fedxray.audit import catalog
from fedxray.audit.own_code import forkserver
from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.cli.show import lines_of, page_of, warnings_of
from fedxray.data.catalog import load
from fedxray.data.dataset import Dataset
from fedxray.data.download import fetch
from fedxray.errors import BadInput
from fedxray.models import build
from fedxray.seeds import fork

CODE = '''
"""Parts of a package that is not fedxray."""
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fedxray.attacks.base import Attack, granted, single_replies
from fedxray.attacks.evidence import of_membership
from fedxray.data.catalog import load
from fedxray.defences.base import Defence, Hooks


@dataclass(frozen=True, kw_only=True)
class FirstInput(Attack):
    """Ranks the granted records by their first input.

    More about it.
    """

    name: ClassVar[str] = "first-input"
    kind: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Nobody: A Toy. 2026."
    roles: ClassVar[tuple[str, ...]] = ("server",)
    grants: ClassVar[tuple[str, ...]] = ("target-records",)
    floors: ClassVar[tuple[str, ...]] = ("chance",)

    scale: float = 1.0

    def needs(self):
        return (granted("target-records"), single_replies())

    def attack(self, view, context):
        return of_membership(view.grants.target_records.x[:, 0] * self.scale)


@dataclass(frozen=True, kw_only=True)
class Zero(Defence):
    """Sends updates as they are."""

    name: ClassVar[str] = "zero"

    def hooks(self, work):
        return Hooks()

    def describe(self):
        return "nothing"


def small_clinic(*, records: int = 20, seed: int = 0):
    """A few visits to clinics."""
    return load("clinic", clients=2, records=records, seed=seed)


def no_data():
    """Nothing."""
    return 3


def failing():
    """Fails."""
    raise RuntimeError("out of order")


def one_layer(space, *, bias: bool = True):
    """One linear layer."""
    return nn.Linear(space.shape[0], space.outputs, bias=bias)


def no_network(space):
    """No network."""
    return 3
'''
ENTRY_POINTS = """
[fedxray.attacks]
first-input = toy_parts.parts:FirstInput
dlf = toy_parts.parts:FirstInput
renamed = toy_parts.parts:FirstInput
no-class = toy_parts.parts:one_layer
broken = toy_parts.broken:Broken
missing = toy_parts.parts:Nothing

[fedxray.defences]
zero = toy_parts.parts:Zero
a+b = toy_parts.parts:Zero

[fedxray.datasets]
small-clinic = toy_parts.parts:small_clinic
no-data = toy_parts.parts:no_data
failing = toy_parts.parts:failing

[fedxray.models]
one-layer = toy_parts.parts:one_layer
no-network = toy_parts.parts:no_network
twice = toy_parts.parts:one_layer
"""


def install(site: Path, name: str, version: str, entry_points: str) -> None:
    """What an installer leaves of a package's metadata."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages on the path: toy-parts 1.2 and a second one that shares a name with it."""
    folder = tmp_path / "site"
    install(folder, "toy-parts", "1.2", ENTRY_POINTS)
    install(folder, "other-toys", "0.1", "[fedxray.models]\ntwice = toy_parts.parts:one_layer\n")
    (folder / "toy_parts").mkdir()
    (folder / "toy_parts" / "__init__.py").write_text("")
    (folder / "toy_parts" / "parts.py").write_text(CODE)
    (folder / "toy_parts" / "broken.py").write_text("import a_module_that_is_nowhere\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(forkserver, "_server", None)  # one that was started before would not find it
    plugins.offered.cache_clear()
    yield folder
    plugins.offered.cache_clear()
    for module in [name for name in sys.modules if name.partition(".")[0] == "toy_parts"]:
        del sys.modules[module]


PLAN: dict[str, Any] = {
    "name": "toys",
    "data": {"name": "small-clinic", "clients": 2, "partition": "as-given", "holdout": 0.3},
    "model": {"name": "one-layer", "bias": False},
    "federation": {"rounds": 2},
    "defence": [{"name": "none"}, {"name": "zero+quantise", "label": "both"}],
    "attack": [{"name": "first-input", "scale": 2, "label": "mine"}, {"name": "membership-loss"}],
}


@pytest.mark.usefixtures("site")
def test_a_list_marks_them_and_imports_nothing() -> None:
    lines = {line.split()[0]: line for kind in plugins.GROUPS for line in lines_of(kind)}
    assert lines["first-input"].endswith(
        "Ranks the granted records by their first input. (third-party, from toy-parts 1.2)"
    )
    assert lines["broken"].endswith("(third-party, from toy-parts 1.2)"), "an import error disturbs no list"
    assert "cannot be used: " in lines["twice"] and "other-toys 0.1" in lines["twice"]
    assert "third-party" not in lines["dlf"] and "a+b" not in lines
    assert not [name for name in sys.modules if name.startswith("toy_parts")]
    assert warnings_of(plugins.GROUPS) == [
        "dlf of toy-parts 1.2 is ignored in fedxray.attacks: that name is built in",
        "a+b of toy-parts 1.2 is ignored in fedxray.defences: a name is made of letters, digits, dots and dashes",
    ]


@pytest.mark.usefixtures("site")
def test_a_page_shows_settings_and_the_package() -> None:
    page = page_of("first-input")
    assert page.startswith("first-input (attack) (third-party, from toy-parts 1.2)")
    assert "scale: a number (default 1.0)" in page and "Roles: server" in page
    assert "records: a whole number (default 20)" in page_of("small-clinic")
    assert "third-party" not in page_of("dlf"), "a built-in name stays built in"


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("attacks", "broken", "broken of toy-parts 1.2: .* got ModuleNotFoundError.*a_module_that_is_nowhere"),
        ("attacks", "missing", "a function Nothing in toy_parts.parts, got nothing of that name"),
        ("attacks", "renamed", "with name = 'renamed', got name = 'first-input'"),
        ("attacks", "no-class", "a frozen dataclass of fedxray.attacks.base.Attack .* got one_layer"),
        ("models", "twice", "one package that offers twice, got .*toy-parts 1.2"),
        ("attacks", "frist-input", "Did you mean first-input"),
    ],
)
def test_a_bad_plug_in_is_refused_only_when_it_is_used(kind: str, name: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        catalog.resolve(kind, name)


@pytest.mark.usefixtures("site")
def test_data_sets_and_models() -> None:
    dataset = load("small-clinic", records=30)
    assert isinstance(dataset, Dataset) and len(dataset) == 60
    assert fetch("small-clinic") == []
    for name, words in (("no-data", "to return a Dataset, got int"), ("failing", "RuntimeError: out of order")):
        with pytest.raises(BadInput, match=f"{name} of toy-parts 1.2 .*{words}"):
            load(name)
    with pytest.raises(BadInput, match="unknown key 'rows'"):
        load("small-clinic", rows=3)
    first, second = (build("one-layer", dataset.space, generator=fork(0)) for _ in range(2))
    assert isinstance(first, nn.Linear) and torch.equal(first.weight, second.weight)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"no-network of toy-parts 1\.2 to return an nn\.Module, got int"):
        build("no-network", dataset.space, generator=fork(0))


def test_an_audit_uses_them_by_name_and_the_results_mark_them(site: Path, tmp_path: Path) -> None:
    found = run_audit(make_plan(PLAN, tmp_path), tmp_path / "out", engine="inline").document
    assert all(case["status"] == "ok" for case in found["cases"])
    assert found["attacks"]["mine"] == {
        "name": "first-input",
        "kind": "membership",
        "about": "Ranks the granted records by their first input.",
        "paper": "Nobody: A Toy. 2026.",
        "source": "third-party, from toy-parts 1.2",
    }
    assert found["attacks"]["membership-loss"]["source"] == "built-in"
    assert [(one["kind"], one["name"]) for one in found["third_party"]] == [
        ("attack", "first-input"),
        ("defence", "zero"),
        ("data set", "small-clinic"),
        ("model", "one-layer"),
    ]
    assert {(one["distribution"], one["version"]) for one in found["third_party"]} == {("toy-parts", "1.2")}
    for command in (["report", "out"], ["recommend", "out"], ["compare", "out", "out"], ["gate", "out"]):
        ended = without_heavy_imports(command, site, tmp_path)
        assert ended["heavy"] == [], (command, ended)
    report = (tmp_path / "out" / "report.md").read_text()
    assert "Third-party, from toy-parts 1.2." in report and "Nobody: A Toy. 2026." in report


def without_heavy_imports(command: list[str], site: Path, folder: Path) -> dict[str, Any]:
    """Run a command in a new process and list the modules of torch and of the plug-ins that it imported."""
    code = (
        "import json, sys\nfrom fedxray.cli import main\nsys.argv[1:] = json.loads(sys.argv[1])\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    code = ended.code\n"
        "heavy = sorted({'torch', 'toy_parts', 'toy_parts.parts'} & set(sys.modules))\n"
        "print(json.dumps({'code': code, 'heavy': heavy}))\n"
    )
    path = os.pathsep.join([str(site), *(part for part in sys.path if part)])
    ended = subprocess.run(
        [sys.executable, "-c", code, json.dumps(command)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return result


def test_another_version_of_a_plug_in_does_not_resume_an_audit(site: Path, tmp_path: Path) -> None:
    plan = make_plan(PLAN, tmp_path)
    run_audit(plan, tmp_path / "out", engine="inline")
    run_audit(plan, tmp_path / "out", engine="inline", resume=True)
    metadata = site / "toy_parts-1.2.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.2", "Version: 1.3"))
    plugins.offered.cache_clear()
    with pytest.raises(BadInput, match="plug-in model one-layer: expected what this audit began with"):
        run_audit(plan, tmp_path / "out", engine="inline", resume=True)


def test_a_list_of_attacks_imports_no_torch() -> None:
    code = (
        "import sys\nfrom fedxray.cli.show import lines_of\n"
        "for kind in ('attacks', 'defences', 'floors', 'models', 'metrics', 'restorers'):\n"
        "    assert all(len(line.split()) > 2 for line in lines_of(kind)), kind\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
