"""What a notebook shows of an audit: data frames, figures and the short page; and the executed notebooks."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from matplotlib.text import Text

from fedxray import BadInput, run_audit
from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import Completed

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
HOSTILE = "<script>alert(1)</script>$x$"
PLAN: dict[str, Any] = {
    "name": "small",
    "seeds": [0, 1],
    "data": {"name": "digits", "clients": 2, "limit": 3},
    "model": {"name": "lenet", "width": 4, "hidden": 16},
    "federation": {"algorithm": "fedsgd", "rounds": 1},
    "defence": [{"name": "none"}, {"name": "quantise", "bits": 1, "label": HOSTILE}],
    "attack": [{"name": "inverting-gradients", "steps": 3}, {"name": "labels-idlg"}],
}


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Completed:
    folder = tmp_path_factory.mktemp("notebook") / "out"
    return run_audit(make_plan(PLAN, folder), str(folder), power=False)


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text)]


def test_frames_hold_the_results(audited: Completed, extra: Callable[[str], ModuleType]) -> None:
    extra("pandas")
    summary, cases, utility = (audited.frame(table) for table in ("summary", "cases", "utility"))
    assert len(summary) == len(audited.document["summary"]) and len(utility) == len(audited.document["utility"])
    assert list(summary["mean"]) == [row["mean"] for row in audited.document["summary"]]
    assert "control_other-client" in summary and not summary.map(lambda cell: isinstance(cell, dict | list)).any().any()
    case = audited.document["cases"][0]
    own = cases[cases.id == case["id"]].set_index("metric")
    assert dict(own["score"]) == case["scores"]
    floor = next(iter(case["floors"]))
    assert own.loc["psnr", f"floor_{floor}"] == case["floors"][floor]["psnr"]
    with pytest.raises(BadInput, match="summary"):
        audited.frame("sumary")


def test_a_frame_without_pandas_names_the_extra(audited: Completed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match=r"\[notebook\]"):
        audited.frame()


def test_figures_show_every_attack_and_its_floor(audited: Completed) -> None:
    leakage = audited.plot()
    shown = texts(leakage)
    assert {"inverting-gradients (server)", "labels-idlg (server)"} <= set(shown)
    assert any(HOSTILE in text for text in shown) and not any(text.startswith("@") for text in shown)
    assert leakage._repr_png_().startswith(b"\x89PNG") and leakage._repr_png_() == leakage._repr_png_()
    assert "inverting-gradients (server)" not in texts(audited.plot(attack="labels-idlg"))
    assert any("A no defence" in text for text in texts(audited.plot("trade-off", attack="labels-idlg")))
    with pytest.raises(BadInput, match="trade-off"):
        audited.plot("tradeoff")
    with pytest.raises(BadInput, match="labels-idlg"):
        audited.plot(attack="labels-idgl")


def test_reconstructions_stand_below_their_originals(audited: Completed) -> None:
    figure = audited.plot("reconstructions", attack="inverting-gradients")
    images = [axes.images[0].get_array() for axes in figure.findobj(lambda part: bool(getattr(part, "images", None)))]
    assert images and all(image.shape == (8, 8) for image in images)
    with pytest.raises(BadInput, match="image reconstructions"):
        audited.plot("reconstructions", attack="labels-idlg")


def test_the_short_page_escapes_names(audited: Completed) -> None:
    page = audited._repr_html_()
    assert "<script" not in page and "&lt;script&gt;" in page
    assert page.count("<tr>") > 2 and len(page) < 6000
    assert str(audited.folder) not in page


def test_the_result_prints_short(audited: Completed) -> None:
    assert len(repr(audited)) < 300


# The notebooks


def outline(notebook: Any) -> list[tuple[str, str]]:
    """Kinds and texts of all outputs; numbers and the widths of columns, which follow them, do not count."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text", "")})
            text = data.get("text/html", data.get("text/plain", ""))
            found.append((" ".join(sorted(data)), re.sub(r"[+−-]?\d+(\.\d+)?|\s+", " ", text)))
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_and_keep_their_outputs(
    path: Path, extra: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("pandas", "ipykernel", "nbclient"):
        extra(name)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    stored = extra("nbformat").read(path, as_version=4)
    run = runpy.run_path(str(ROOT / "scripts" / "notebooks.py"))["executed"](path)
    assert outline(run) == outline(stored), "run scripts/notebooks.py"


def test_there_are_notebooks_without_paths_of_a_machine() -> None:
    assert len(NOTEBOOKS) >= 2
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/(home|tmp|work|Users|root)/|[A-Z]:\\\\", text)
        assert '"output_type": "error"' not in text and '"image/png"' in text
