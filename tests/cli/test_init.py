"""`fedxray init`: a plan that fits the data and runs as it is, or a refusal and no file."""

from __future__ import annotations

import csv
import random
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedxray.audit.plan import read_plan
from fedxray.audit.run.preflight import preflight
from fedxray.audit.run.prepare import prepare_first
from fedxray.cli import draft
from fedxray.errors import BadInput

ROOT = Path(__file__).parents[2]


def write_table(path: Path, *, people: int = 80, gaps: bool = False) -> Path:
    """Write 160 visits to two hospitals, two of each patient, with a row number, a date and a rare diagnosis."""
    draw = random.Random(0)
    rows: list[dict[str, Any]] = []
    for row in range(160):
        rows.append(
            {
                "row_id": row,
                "patient_id": f"P{row % people:04d}x",
                "hospital": ("north", "south")[row % people % 2],
                "visited": f"2024-03-{row % 28 + 1:02d}",
                "age": "" if gaps and row == 5 else draw.randint(18, 90),
                "sex": draw.choice("fm"),
                "diagnosis_rare": "yes" if draw.random() < 0.1 else "no",
                "cost": round(draw.gauss(50, 9), 2),
            }
        )
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path


def made(tmp_path: Path, kind: str, path: Path | None, **given: Any) -> dict[str, Any]:
    """Run init, check that the plan passes the checks before an audit, and return it."""
    out = tmp_path / "plan.toml"
    names = {"target": None, "sensitive": None} | given
    draft.run_init(kind, path, names["target"], names["sensitive"], out)
    preflight(read_plan(out))
    return tomllib.loads(out.read_text())


def test_a_table_gets_sites_people_attacks_limits_and_leaves_identifiers_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = made(tmp_path, "hospital-table", write_table(tmp_path / "visits.csv", gaps=True))
    assert plan["seeds"] == "auto"
    assert plan["data"] == {
        "path": "visits.csv", "target": "cost", "sensitive": "diagnosis_rare", "clients": 2, "partition": "by-column",
        "column": "hospital", "subject": "patient_id", "drop": ["row_id", "visited"], "missing": "median",
    }  # fmt: skip
    labels = [part.get("label", part["name"]) for part in plan["attack"]]
    assert labels == ["attribute-from-updates", "attribute-from-model", "by-another-client", "membership-best"]
    metrics = {part["attack"]: part["metric"] for part in plan["gate"]}
    assert metrics["attribute-from-updates"] == "balanced_accuracy_over_floor", "one value has 90 %"
    assert metrics["membership-best"] == "auc_subject_over_floor"
    assert [part["name"] for part in plan["defence"]][:2] == ["none", "gaussian-noise"]
    printed = capsys.readouterr().out
    assert "a guess: --target NAME changes it" in printed and "left out    visited (dates)" in printed
    assert f"fedxray audit {tmp_path / 'plan.toml'}\n" in printed


def test_given_columns_win_and_a_table_without_sites_is_divided(tmp_path: Path) -> None:
    table = write_table(tmp_path / "visits.csv")
    kept = [line.split(",") for line in table.read_text().splitlines()]
    table.write_text("\n".join(",".join(cells[4:]) for cells in kept))  # age, sex, diagnosis_rare, cost
    plan = made(tmp_path, "hospital-table", table, target="diagnosis_rare", sensitive="sex")
    assert (plan["data"]["target"], plan["data"]["sensitive"]) == ("diagnosis_rare", "sex")
    assert (plan["data"]["partition"], plan["data"]["clients"]) == ("iid", 4) and "subject" not in plan["data"]


def test_without_its_extra_dp_sgd_is_a_comment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(draft, "find_spec", lambda name: None)
    plan = made(tmp_path, "hospital-table", write_table(tmp_path / "visits.csv"))
    assert [part["name"] for part in plan["defence"]] == ["none", "gaussian-noise"]
    assert '# name = "dp-sgd"' in (tmp_path / "plan.toml").read_text()


def write_images(folder: Path, side: int, images: int = 20) -> Path:
    draw = np.random.default_rng(0)
    for name in ("healthy", "ill"):
        (folder / name).mkdir(parents=True)
        for number in range(images):
            pixels = draw.integers(0, 256, (side, side), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.mark.parametrize(("side", "size"), [(16, None), (48, 32)])
@pytest.mark.parametrize(
    ("kind", "attacks"), [("hospital-images", ["dlf", "membership-best"]), ("one-gradient", ["inverting-gradients"])]
)
def test_images(tmp_path: Path, kind: str, attacks: list[str], side: int, size: int | None) -> None:
    plan = made(tmp_path, kind, write_images(tmp_path / "scans", side))
    assert plan["data"].get("size") == size and [part["name"] for part in plan["attack"]] == attacks
    limits = [("psnr_over_floor", 1.0), ("auc_over_floor", 0.05)]
    wanted = [
        {"attack": name, "metric": metric, "limit": limit}
        for name, (metric, limit) in zip(attacks, limits, strict=False)
    ]
    assert plan["gate"] == wanted


@pytest.mark.parametrize(("images", "holdout"), [(20, 0.5), (45, 0.41), (400, None)])
def test_as_many_images_are_held_out_as_are_trained_on(tmp_path: Path, images: int, holdout: float | None) -> None:
    plan = made(tmp_path, "hospital-images", write_images(tmp_path / "scans", 8, images))
    assert plan["data"].get("holdout") == holdout
    prepared = prepare_first(read_plan(tmp_path / "plan.toml"))
    assert all(len(part) >= min(8, images // 5) for part in prepared.split.holdout)


def test_one_gradient_of_a_table_or_of_nothing(tmp_path: Path) -> None:
    assert made(tmp_path, "one-gradient", None)["data"]["name"] == "digits"
    (tmp_path / "plan.toml").unlink()
    plan = made(tmp_path, "one-gradient", write_table(tmp_path / "visits.csv"))
    assert plan["attack"] == [{"name": "tabular-inversion"}] and plan["federation"]["algorithm"] == "fedsgd"


def test_a_recording_leaves_network_and_records_to_fill_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "plan.toml"
    draft.run_init("flower", ROOT / "tests" / "golden" / "flower" / "recording", None, None, out)
    text = out.read_text()
    plan = tomllib.loads(text)
    assert (tmp_path / plan["transcript"]["path"]).resolve() == ROOT / "tests" / "golden" / "flower" / "recording"
    assert text.count("TODO") == 3 and "Fill in the lines marked TODO" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "name", "given", "message"),
    [
        ("hospital-tables", "visits.csv", {}, "hospital-table"),
        ("hospitl-images", "visits.csv", {}, "Try 'hospital-images'"),
        ("hospital-table", "schema.toml", {}, "PATH: .*schema.toml, a TOML file"),
        ("hospital-table", None, {}, "fedxray init hospital-table patients.csv"),
        ("hospital-table", "visit.csv", {}, "visits.csv"),
        ("hospital-table", "visits.csv", {"target": "costs"}, "cost"),
        ("hospital-table", "scans", {}, "fedxray init hospital-images"),
        ("hospital-images", "visits.csv", {}, "one folder of images per class"),
        ("hospital-images", "empty", {}, "no image"),
        ("hospital-images", "scans/ill", {}, "20 images, but no folder per class"),
        ("no-data", "schema.toml", {}, "Copy examples/no-data"),
        ("flower", "scans", {}, "recording"),
    ],
)
def test_refusals_write_nothing(
    tmp_path: Path, kind: str, name: str | None, given: dict[str, str], message: str
) -> None:
    write_table(tmp_path / "visits.csv")
    write_images(tmp_path / "scans", 8)
    (tmp_path / "empty").mkdir()
    (tmp_path / "schema.toml").write_text("records = 20")
    names: dict[str, Any] = {"target": None, "sensitive": None} | given
    path = None if name is None else tmp_path / name
    with pytest.raises(BadInput, match=message):
        draft.run_init(kind, path, names["target"], names["sensitive"], tmp_path / "plan.toml")
    assert not (tmp_path / "plan.toml").exists()


def test_an_existing_plan_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("mine")
    with pytest.raises(BadInput, match="--out"):
        draft.run_init("one-gradient", None, None, None, tmp_path / "plan.toml")
    assert (tmp_path / "plan.toml").read_text() == "mine"


def test_the_data_is_never_proposed_to_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "visits.csv")
    (tmp_path / "schema.toml").write_text("records = 20")
    for path, out in (("schema.toml", None), ("visits.csv", Path("visits.csv"))):
        with pytest.raises(BadInput) as caught:
            draft.run_init("hospital-table", Path(path), None, None, out)
        assert "Delete" not in str(caught.value)


def test_noise_follows_what_one_record_changes(tmp_path: Path) -> None:
    write_table(tmp_path / "visits.csv")
    draft.run_init("hospital-table", tmp_path / "visits.csv", None, None, tmp_path / "plan.toml")
    plan = tomllib.loads((tmp_path / "plan.toml").read_text())
    (noise,) = (part["scale"] for part in plan["defence"] if part["name"] == "gaussian-noise")
    training = plan["federation"]
    share = training["learning_rate"] * training["epochs"] / training["batch_size"]  # of a gradient of norm 1
    assert noise == pytest.approx(draft.NOISE * share * training["rounds"] ** 0.5, rel=0.2)
