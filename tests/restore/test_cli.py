"""The command that trains priors, as users run it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fedxray import cli
from fedxray.restore.loading import load_prior

pytest.importorskip("diffusers", reason="needs diffusers")

QUICK = ["--steps", "20", "--batch", "4", "--width", "8"]
PLAN = """
name = "letters"
seeds = [0, 1]
[data]
name = "digits"
clients = 2
limit = 3
[model]
name = "linear"
[federation]
rounds = 1
learning_rate = 0.1
[[attack]]
name = "model-inversion"
"""


def ran(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The exit code of a command; variables that it sets are put back."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(sys, "argv", ["fedxray", "train-prior", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


@pytest.mark.parametrize("kind", ["ddpm", "gan"])
def test_a_prior_is_trained_and_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    out = tmp_path / "priors" / "mine"
    assert ran(monkeypatch, "--data", "digits", "--limit", 50, "--kind", kind, *QUICK, "--out", out) == 0
    said = capsys.readouterr()
    assert "50 images of 1 x 8 x 8, 10 classes: digits" in said.out
    assert f'restore = {{ name = "{"gan" if kind == "gan" else "ddrm"}", prior = "{out}" }}' in said.out
    assert f"train {kind}: 20/20, loss" in said.err and len(said.err.splitlines()) == 20
    assert len(load_prior(str(out)).seen) == 50
    assert ran(monkeypatch, "--data", "digits", "--kind", kind, *QUICK, "--out", out) == 2
    assert "a new or empty folder" in capsys.readouterr().err


def test_a_plans_clients_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    out = tmp_path / "p"
    assert ran(monkeypatch, "--plan", tmp_path / "plan.toml", "--kind", "gan", *QUICK, "--out", out, "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    card = json.loads((out / "card.json").read_text())
    assert card["data"] == "letters: digits" and 1000 < len(card["records"]) < 1797


def test_a_folder_of_images_by_class(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs PIL")
    for place in range(12):
        folder = tmp_path / "photos" / ("cats" if place % 2 else "dogs")
        folder.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (9, 9), (place, 20 * place, 7)).save(folder / f"{place}.png")
    out = tmp_path / "p"
    assert ran(monkeypatch, "--data", tmp_path / "photos", "--size", 8, *QUICK, "--out", out, "-q") == 0
    prior = load_prior(str(out))
    assert prior.shape == (3, 8, 8) and prior.classes == ("cats", "dogs")
