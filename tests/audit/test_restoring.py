"""Restorers of a plan: raw and restored rows side by side, the same floors, and priors that have seen a client."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedxray.attacks.evidence import Evidence
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.restoring import raw_and_restored, restore
from fedxray.audit.run.audit import Completed, digests_of_inputs, run_audit
from fedxray.audit.run.preflight import preflight
from fedxray.audit.run.prepare import prepare
from fedxray.audit.run.store import check_folder, open_store
from fedxray.audit.workers.engines import make_engine
from fedxray.cli.prior import images_of_data, images_of_plan, shortened
from fedxray.errors import BadInput
from fedxray.federation.round_loop import simulate
from fedxray.restore.loading import load_prior, record_hashes
from fedxray.restore.training import Images, Training, train_prior
from tests.audit.plans import tiny, write_toml

pytest.importorskip("diffusers", reason="needs diffusers")


def document(restore: Any = None, **changes: Any) -> dict[str, Any]:
    """Two clients with two digits each, one gradient, inverted in a few steps."""
    attack = {"name": "inverting-gradients", "steps": 4, "controls": ["other-client"]}
    return tiny(data=None, model=None, federation=None, attack=None) | {
        "data": {"name": "digits", "clients": 2, "limit": 2, "public": 0.02},
        "model": {"name": "mlp", "hidden": [8]},
        "federation": {"algorithm": "fedsgd", "rounds": 1, "batch_size": "all", "learning_rate": 0.1},
        "attack": [attack | ({} if restore is None else {"restore": restore})],
        **changes,
    }


def audited(plan: Plan, folder: Path) -> Completed:
    with make_engine("inline", None) as engine:
        return run_audit(plan, folder, engine=engine, power=False)


@pytest.fixture(scope="module")
def priors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Priors of two kinds on digits that no client holds."""
    place = tmp_path_factory.mktemp("priors")
    images = images_of_plan(write_toml(place / "plan.toml", document(seeds=[0, 1])))
    for kind in ("ddpm", "gan"):
        train_prior(images, Training(kind=kind, steps=3, batch=8, width=8), place / kind)
    return place


def test_raw_and_restored_rows_stand_side_by_side(priors: Path, tmp_path: Path) -> None:
    restore = [
        {"name": "ddrm", "prior": "ddpm", "steps": 3},
        {"name": "gan", "prior": "gan", "label": "sharper"},
        {"name": "mde", "prior": str(priors / "ddpm"), "steps": 2, "epochs": 2},
    ]
    ended = audited(make_plan(document(restore), priors), tmp_path / "out")
    raw = "inverting-gradients"
    labels = [raw, f"{raw}+ddrm", f"{raw}+sharper", f"{raw}+mde"]
    cases = {(case["attack"], case["client"]): case for case in ended.document["cases"]}
    assert {name for name, _ in cases} == set(labels) and ended.failed == 0
    assert {case["status"] for case in cases.values()} == {"ok"}
    for client in (0, 1):
        plain = cases[raw, client]
        assert "restored_by" not in plain["ledger"]
        for name, by in zip(labels[1:], ("ddrm", "gan", "mde"), strict=True):
            case = cases[name, client]
            assert case["floors"] == plain["floors"]  # floors are not restored
            assert case["scores"]["psnr"] != plain["scores"]["psnr"]
            assert case["controls"]["other-client"] != plain["controls"]["other-client"]  # controls are
            assert case["ledger"]["restored_by"] == by
            assert case["ledger"]["prior"]["trained_on"] == "tiny: digits"
    rows = {row["attack"]: row for row in ended.document["summary"] if row["metric"] == "psnr"}
    assert list(rows) == labels
    assert len({(row["floor"], row["over"]) for row in rows.values()}) == 1


def test_the_same_plan_gives_the_same_restored_scores(priors: Path, tmp_path: Path) -> None:
    plan = make_plan(document({"name": "ddrm", "prior": "ddpm", "steps": 3}), priors)
    first, again = (audited(plan, tmp_path / name).document for name in ("a", "b"))
    assert [case["scores"] for case in first["cases"]] == [case["scores"] for case in again["cases"]]


def test_an_audit_is_not_resumed_with_another_prior_under_the_same_name(tmp_path: Path) -> None:
    images = images_of_plan(write_toml(tmp_path / "plan.toml", document()))
    training = Training(kind="gan", steps=1, batch=4, width=8)
    train_prior(images, training, tmp_path / "p")
    plan = make_plan(document({"name": "gan", "prior": "p"}), tmp_path)
    first = digests_of_inputs(plan)
    assert first and first == digests_of_inputs(plan)
    with open_store(tmp_path / "out", plan.digest(), records=first):
        pass
    shutil.rmtree(tmp_path / "p")
    train_prior(images, replace(training, seed=1), tmp_path / "p")
    with pytest.raises(BadInput, match=r"^restore\.prior: .*changed since.*another --out"):
        check_folder(tmp_path / "out", plan.digest(), resume=True, records=digests_of_inputs(plan))
    assert digests_of_inputs(make_plan(document(), tmp_path)) == {}


def test_a_prior_that_has_seen_a_client_is_refused_before_anything_runs(tmp_path: Path) -> None:
    train_prior(images_of_data("digits"), Training(kind="gan", steps=1, batch=4, width=8), tmp_path / "all")
    plan = make_plan(document({"name": "gan", "prior": "all"}), tmp_path)
    with pytest.raises(BadInput, match="trained on 2 of the 2 records"):
        audited(plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_prior_that_has_seen_only_held_out_records_of_a_client_is_refused(tmp_path: Path) -> None:
    """Before anything starts, and once more where the evidence is restored."""
    plan = make_plan(document(), tmp_path)
    federation = prepare(plan, "none", 0).federation
    space, held = federation.space, federation.holdout[1]
    free = images_of_plan(write_toml(tmp_path / "plan.toml", document()))
    images = replace(
        free,
        pixels=torch.cat([free.pixels[:20], space.to_pixels(held.x)]),
        labels=torch.cat([free.labels[:20], held.y]),
    )
    trained = torch.cat([space.to_pixels(one.x) for one in federation.clients])
    assert len(held) > 0 and not set(record_hashes(images.pixels)) & set(record_hashes(trained))
    train_prior(images, Training(kind="gan", steps=1, batch=4, width=8), tmp_path / "p")
    restoring = make_plan(document({"name": "gan", "prior": "p"}), tmp_path)
    with pytest.raises(BadInput, match="has seen no record of an audited client"):
        preflight(restoring)
    truth = simulate(federation, seed=0)[1]
    part = next(part for part in restoring.attacks if part.restore is not None)
    with pytest.raises(BadInput, match="has seen no record of an audited client"):
        restore(part, truth, Evidence(kind="images", tensors={}))


def test_records_of_another_seed_count_too(tmp_path: Path) -> None:
    """A prior that is clean for seed 0 has seen clients of seed 1."""
    first = make_plan(document(), tmp_path)
    held = prepare(first, "none", 0)
    own = set(record_hashes(torch.cat([one.x for one in (*held.federation.clients, *held.federation.holdout)])))
    every = images_of_data("digits")
    free = torch.tensor([one not in own for one in record_hashes(every.pixels)])
    images = Images(pixels=every.pixels[free], labels=every.labels[free], classes=every.classes, source="digits")
    train_prior(images, Training(kind="gan", steps=1, batch=4, width=8), tmp_path / "p")
    restore = {"name": "gan", "prior": "p"}
    preflight(make_plan(document(restore), tmp_path))
    with pytest.raises(BadInput, match="has seen no record of an audited client"):
        preflight(make_plan(document(restore, seeds=[0, 1]), tmp_path))


def test_images_of_a_plan_belong_to_no_client(tmp_path: Path) -> None:
    plan = write_toml(tmp_path / "plan.toml", document(seeds=[0, 1, 2]))
    images = images_of_plan(plan)
    free = set(record_hashes(images.pixels))
    for seed in (0, 1, 2):
        one = prepare(make_plan(document(), tmp_path), "none", seed).federation
        held = torch.cat([records.x for records in (*one.clients, *one.holdout)])
        assert not free & set(record_hashes(one.space.to_pixels(held)))
    assert len(images.pixels) > 1000 and images.classes == tuple("0123456789")
    assert len(shortened(images, 7).pixels) == 7 and len(shortened(images, None).pixels) == len(images.pixels)


def test_a_picture_that_stands_in_the_data_twice_is_free_nowhere(tmp_path: Path) -> None:
    """Once with a client and once with nobody: a prior that learnt the second would know the first."""
    once = np.random.default_rng(0).integers(0, 255, (20, 4, 4), dtype=np.uint8)
    again = np.concatenate([once[:10], once[10:, :, ::-1]])  # some of them mirrored
    np.savez(tmp_path / "twice.npz", x=np.concatenate([once, again]), y=np.arange(40) % 2)
    data = {"path": "twice.npz", "clients": 2, "limit": 2}
    images = images_of_plan(write_toml(tmp_path / "plan.toml", document(data=data)))
    one = prepare(make_plan(document(data=data), tmp_path), "none", 0).federation
    held = torch.cat([records.x for records in (*one.clients, *one.holdout)])
    taken, free = (
        {min(pair) for pair in zip(record_hashes(pixels), record_hashes(pixels.flip(3)), strict=True)}
        for pixels in (one.space.to_pixels(held), images.pixels)
    )
    assert taken and free and not taken & free and len(taken | free) == 20


@pytest.mark.parametrize(
    ("restore", "said"),
    [
        ("ddrm", "prior"),
        ({"name": "blur", "prior": "ddpm"}, "known name"),
        ({"prior": "ddpm"}, "a table with its name and prior"),
        ({"name": "ddrm", "prior": "ddpm", "blur": 1}, "blur"),
        ({"name": "ddrm", "prior": "ddpm", "noise": 7.0}, "noise"),
        ({"name": "ddrm", "prior": "ddpm", "label": 3}, "label"),
        ({"name": "ddrm", "prior": "nowhere at all"}, "the folder of a prior"),
        ({"name": "ddrm", "prior": "gan"}, "a prior that ddrm can use"),
        ({"name": "gan", "prior": "ddpm"}, "a prior that gan can use"),
        ({"name": "ddrm", "prior": "ddpm", "scale": 3}, "divides 8"),
        ([], "the name of a restorer"),
    ],
)
def test_restorers_that_cannot_work_are_refused_beforehand(
    priors: Path, tmp_path: Path, restore: Any, said: str
) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        audited(make_plan(document(restore), priors), tmp_path / "out")
    assert re.match(r"attack(\[0\]\.| .+: )restore", refused.value.argument), "which attack it belongs to"
    assert not (tmp_path / "out").exists()


def test_what_gives_no_images_cannot_be_restored(priors: Path) -> None:
    changed = document()
    changed["attack"] = [{"name": "labels-idlg", "restore": {"name": "ddrm", "prior": "ddpm"}}]
    with pytest.raises(BadInput, match="an attack that gives images"):
        preflight(make_plan(changed, priors))


def test_a_prior_for_other_images_is_refused(tmp_path: Path) -> None:
    every = images_of_data("digits")
    images = Images(pixels=every.pixels[:, :, :4, :4], labels=every.labels, classes=every.classes, source="corners")
    train_prior(images, Training(kind="gan", steps=1, batch=4, width=8), tmp_path / "p")
    with pytest.raises(BadInput, match=r"images of shape \[1, 8, 8\], got one for \[1, 4, 4\]"):
        preflight(make_plan(document({"name": "gan", "prior": "p"}), tmp_path))


def test_labels_of_restored_versions(tmp_path: Path) -> None:
    plan = make_plan(
        document([{"name": "ddrm", "prior": "a/b"}, {"name": "gan", "prior": "c", "label": "g"}]), tmp_path
    )
    (tmp_path / "c").mkdir()
    parts = raw_and_restored(plan.attack[0], tmp_path)
    assert [part.title for part in parts] == [
        "inverting-gradients",
        "inverting-gradients+ddrm",
        "inverting-gradients+g",
    ]
    assert parts[0].restore is None and parts[1].restore == {"name": "ddrm", "prior": "a/b"}
    assert parts[2].restore == {"name": "gan", "prior": str(tmp_path / "c")}


def test_the_card_of_a_plans_prior(priors: Path) -> None:
    prior = load_prior("ddpm", folder=priors)
    assert prior.facts["trained_on"] == "tiny: digits" and prior.shape == (1, 8, 8)
    assert json.loads((priors / "ddpm" / "card.json").read_text())["classes"] == list("0123456789")


def test_data_for_a_prior(tmp_path: Path) -> None:
    assert len(images_of_data("digits").pixels) == 1797
    for data, said in (("digit", "a data set of"), ("clinic", "images with classes")):
        with pytest.raises(BadInput, match=said):
            images_of_data(data)
    with pytest.raises(BadInput, match="--part"):
        images_of_data("digits", part="test")
