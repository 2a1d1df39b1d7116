"""Every example runs unchanged, with fewer seeds, and gives what its text states."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from fedxray import BadInput, Refused, build_report, fork, read_plan, run_audit
from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.attacks import MembershipLoss
from fedxray.audit.judge.summary import summarise
from fedxray.audit.plan import make_plan
from fedxray.defences.base import Work
from fedxray.params import norm
from tests.contract import worlds

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NO_PLANS = ("pyproject.toml", "schema.toml")
PLANS = sorted(file for file in EXAMPLES.glob("*/*.toml") if file.name not in NO_PLANS)
# Cases of attribute-from-model in a full run of own-csv, 20 seeds.
QUOTED = json.loads(Path(__file__).with_name("own_csv_cases.json").read_bytes())
RENEW = "run examples/own-csv again, store its cases in tests/own_csv_cases.json and update the README"
OWN_MODULES = ("net", "attack", "defence")


@pytest.fixture
def own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the examples' own modules be imported, and forget them afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in OWN_MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)


def module(folder: str, name: str) -> ModuleType:
    """Import a module of an example by its file."""
    loaded = ModuleType(name)
    loaded.__dict__.update(runpy.run_path(str(EXAMPLES / folder / f"{name}.py")))
    return loaded


def audited(file: str, out: Path, seeds: list[int]) -> dict[str, Any]:
    """Return the results of an example's plan with these seeds; its folder is copied, so that it stays unchanged."""
    folder = out / "example"
    shutil.copytree((EXAMPLES / file).parent, folder)
    if (folder / "make_data.py").exists():
        runpy.run_path(str(folder / "make_data.py"), run_name="__main__")
    document = tomllib.loads((EXAMPLES / file).read_text(encoding="utf-8"))
    ended = run_audit(make_plan({**document, "seeds": seeds, "name": "example"}, folder), out / "audit")
    assert ended.failed == 0
    assert build_report(ended.folder).stat().st_size > 1000
    return ended.document


def means(document: dict[str, Any], metric: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Return mean and floor by attack and defence."""
    return {
        (row["attack"], row["defence"]): (row["mean"], row["floor"])
        for row in document["summary"]
        if row["metric"] == metric and not row["aware"]
    }


@pytest.mark.parametrize("file", PLANS, ids=lambda file: file.stem)
def test_plan_can_be_read(file: Path) -> None:
    assert read_plan(file).name == file.stem


def test_plans_are_all_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert len(PLANS) == 15
    assert all(file.relative_to(EXAMPLES.parent).as_posix() in listed for file in PLANS)


def test_own_csv(tmp_path: Path) -> None:
    """It leaks, and its first seed gives the stored cases of the run that the README quotes."""
    document = audited("own-csv/patients.toml", tmp_path, [0])
    mean, floor = means(document, "accuracy")["attribute-from-model", "none"]
    assert mean > 0.95 and mean > floor + 0.1
    fresh = {case["client"]: case for case in document["cases"] if case["attack"] == "attribute-from-model"}
    for stored in (case for case in QUOTED if case["seed"] == 0):
        case = fresh[stored["client"]]
        assert case["ledger"]["target_name"] == stored["ledger"]["target_name"]
        assert case["scores"]["accuracy"] == pytest.approx(stored["scores"]["accuracy"], abs=0.03), RENEW
        for part in ("floors", "controls"):
            for name, values in stored[part].items():
                assert case[part][name]["accuracy"] == pytest.approx(values["accuracy"], abs=0.08), RENEW


def test_the_readme_quotes_the_run_of_own_csv() -> None:
    row = next(row for row in summarise(QUOTED) if row["metric"] == "accuracy")
    text = " ".join((EXAMPLES.parent / "README.md").read_text(encoding="utf-8").split())
    for quoted in (
        f"infers smoking status correctly for {row['mean']:.1%} of records.",
        f"Without any message {row['floor']:.1%} would be possible (floor).",
        f"Gain: {100 * row['difference']:.1f} points",
        f"(95 % interval {100 * row['low']:.1f} to {100 * min(row['high'], 1 - row['floor']):.1f});",
        f"gains below {100 * row['margin']:.0f} points (the margin, set by fedxray) do not count",
        f"Verdict: **{row['verdict']}**; the gain repeats over 20 runs. Level: **{row['kind']}**",
        f"reaches {row['controls']['held-out']['mean']:.1%} on records never trained on",
    ):
        assert quoted.replace("%", " %").replace("95  %", "95 %") in text, RENEW


def test_own_images_are_the_same_every_time(tmp_path: Path) -> None:
    make = module("own-images", "make_data")
    for folder in ("a", "b"):
        make.write(tmp_path / folder)
    first, second = (sorted((tmp_path / folder).rglob("*.png")) for folder in ("a", "b"))
    assert len(first) == 2 * make.IMAGES
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_own_csv_is_the_same_every_time(tmp_path: Path) -> None:
    make = module("own-csv", "make_data")
    make.write(tmp_path / "a.csv")
    make.write(tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_own_images(tmp_path: Path) -> None:
    """Retrieval is clearly above the floor; own images stay out of the gallery."""
    document = audited("own-images/scans.toml", tmp_path, [0])
    mean, floor = means(document, "retrieval")["inverting-gradients", "none"]
    assert mean > floor + 0.3
    assert not (tmp_path / "audit" / "gallery.json").exists(), "own images are private"


def test_own_images_after_several_epochs(tmp_path: Path) -> None:
    """Images are retrieved after several local steps, too, and the assumed case of the client is recorded."""
    document = audited("own-images/weighted.toml", tmp_path, [0])
    mean, floor = means(document, "retrieval")["awa", "none"]
    assert mean > floor + 0.3 and ("agic", "none") in means(document, "retrieval")
    taken = [case["taken"] for case in document["cases"] if case["attack"] == "awa"]
    assert all(one["case"] == "case4" and one["epoch"] == 1 and one["q_conv"] > 1 for one in taken)


def test_no_data(tmp_path: Path) -> None:
    """The synthetic worst case leaks, and the report states what that means."""
    document = audited("no-data/no-data.toml", tmp_path, [0])
    mean, floor = means(document, "accuracy")["attribute-from-model", "none"]
    assert mean > floor + 0.1
    report = (tmp_path / "audit" / "report.html").read_text(encoding="utf-8")
    assert "The records are synthetic, generated from a schema." in report
    assert "No leak here does not prove that your data is safe." in report


@pytest.mark.usefixtures("own_modules")
def test_own_model(tmp_path: Path) -> None:
    found = means(audited("own-model/own-model.toml", tmp_path, [0]), "psnr")
    mean, floor = found["inverting-gradients", "none"]
    assert mean > floor + 10


@pytest.mark.usefixtures("own_modules")
def test_own_attack(tmp_path: Path) -> None:
    found = means(audited("own-attack/own-attack.toml", tmp_path, [0]), "auc")
    assert found["membership-mean-loss", "none"][0] > 0.7
    assert found["membership-loss", "none"][1] == 0.5


@pytest.mark.usefixtures("own_modules")
def test_own_defence(tmp_path: Path) -> None:
    found = means(audited("own-defence/own-defence.toml", tmp_path, [0]), "accuracy")
    assert found["attribute-from-model", "none"][0] > 0.85
    assert found["attribute-from-model", "clip-update"][0] < 0.7


def test_python(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "python" / "audit.py"), run_name="__main__")
    own, other = (float(line.rsplit(" ", 1)[1]) for line in capsys.readouterr().out.splitlines())
    assert own > other + 0.2


def test_own_attack_by_hand() -> None:
    """With a window of one round it is the loss under the last returned model, for any generator."""
    attack = module("own-attack", "attack").MembershipMeanLoss
    world = worlds.table_world()
    view = roles.server(world.transcript, client=1, grants=disclose(world.truth, ["target-records"], client=1))
    one, last = attack(window=1).run(view, generator=fork(0)), MembershipLoss().run(view, generator=fork(1))
    assert torch.equal(one.tensors["scores"], last.tensors["scores"])
    two = attack(window=2).run(view, generator=fork(0))
    before = roles.server(world.transcript, client=1, grants=view.grants, rounds=range(world.truth.rounds - 1))
    earlier = MembershipLoss().run(before, generator=fork(0))
    expected = (last.tensors["scores"] + earlier.tensors["scores"]) / 2
    assert torch.allclose(two.tensors["scores"], expected, rtol=1e-5)


def test_own_attack_reports_a_missing_grant() -> None:
    attack = module("own-attack", "attack").MembershipMeanLoss
    world = worlds.table_world()
    with pytest.raises(Refused, match="the grant target-records"):
        attack().check(roles.server(world.transcript, client=1))
    with pytest.raises(BadInput, match="window: expected a whole number of at least 1, got 0"):
        attack(window=0)


def test_own_defence_by_hand() -> None:
    """A vector of norm 5 becomes one of norm 1 in the same direction; a short one stays."""
    hooks = (
        module("own-defence", "defence")
        .ClipUpdate(largest=1.0)
        .hooks(Work(examples=1, batch_size=1, steps=1, rounds=1))
    )
    update = {"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}
    clipped, _ = hooks.outgoing(update, None, fork(0))
    assert torch.allclose(torch.cat([clipped["a"], clipped["b"]]), torch.tensor([0.6, 0.8]))
    assert float(norm(hooks.outgoing(clipped, None, fork(0))[0])) == pytest.approx(1.0)
