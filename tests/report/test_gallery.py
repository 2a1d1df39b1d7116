"""The examples gallery: correct pixels, private ones only on request, and whose they are."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fedxray.errors import BadInput
from fedxray.report import gallery
from tests.report.synthetic import make_gallery, make_guesses


@pytest.mark.parametrize("shape", [(5, 7), (6, 4, 3), (1, 1)])
def test_a_png_holds_the_pixels(extra: Callable[[str], ModuleType], shape: tuple[int, ...]) -> None:
    extra("PIL")
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, size=shape, dtype=np.uint8)
    read = Image.open(io.BytesIO(gallery.png(pixels)))
    assert np.array_equal(np.asarray(read), pixels)
    assert read.mode == ("L" if len(shape) == 2 else "RGB")


def test_values_are_clipped_and_what_is_not_a_number_is_black(tmp_path: Path) -> None:
    pair = {"original": [[0.0, 0.5], [1.0, 2.0]], "guess": [[None, -1.0], [0.25, 1.0]], "caption": "c"}
    write(tmp_path / "gallery.json", [{"case": "a", "title": "t", "images": [pair]}])
    ((shown,),) = [gallery.pairs for gallery in gallery.read_galleries(tmp_path, show_private=False).shown]
    expected = gallery.data_url(np.array([[0, 0], [64, 255]], dtype=np.uint8))
    assert shown.guess == expected
    assert base64.b64decode(shown.original.partition(",")[2]).startswith(b"\x89PNG")
    assert (shown.width, shown.height) == (96, 96)


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def test_no_gallery_is_fine(tmp_path: Path) -> None:
    assert gallery.read_galleries(tmp_path, show_private=True).shown == ()


def test_private_pictures_need_to_be_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "gallery.json", make_gallery())
    write(tmp_path / "private" / "gallery.json", [{**make_gallery()[0], "title": "secret"}])
    closed = gallery.read_galleries(tmp_path, show_private=False)
    assert [one.title for one in closed.shown] == ["client 0, 6 images"]
    assert closed.private == 1
    opened = gallery.read_galleries(tmp_path, show_private=True)
    assert [one.title for one in opened.shown][-1] == "secret" and opened.private == 0


def test_the_private_file_is_not_even_opened(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "gallery.json").write_bytes(b"\xff not JSON")
    assert gallery.read_galleries(tmp_path, show_private=False).private == 1


def test_an_entry_marked_private_in_the_public_file_stays_out(tmp_path: Path) -> None:
    write(tmp_path / "gallery.json", [{**make_gallery()[0], "private": True}])
    assert gallery.read_galleries(tmp_path, show_private=False).shown == ()
    assert gallery.read_galleries(tmp_path, show_private=False).private == 1


def cases_of(scores: dict[str, list[float]], metric: str) -> dict[str, Any]:
    """A document with the cases a0, a1, ... of each attack, scored in its primary metric."""
    setting = {"role": "server", "defence": "none", "aware": None}
    cases = [
        {**setting, "id": f"{attack}{index}", "attack": attack, "seed": index, "client": 0, "scores": {metric: value}}
        for attack, values in scores.items()
        for index, value in enumerate(values)
    ]
    summary = [{**setting, "attack": attack, "metric": metric, "primary": True} for attack in scores]
    return {"cases": cases, "summary": summary}


@pytest.mark.parametrize(("metric", "order"), [("psnr", ["a3", "a0", "a1"]), ("mse", ["a1", "a0", "a3"])])
def test_of_many_cases_the_best_the_median_and_the_worst_are_shown(
    tmp_path: Path, metric: str, order: list[str]
) -> None:
    document = cases_of({"a": [12.0, 7.0, 9.0, 30.0, 20.0], "b": [1.0, 2.0]}, metric)
    write(tmp_path / "gallery.json", [{"case": case["id"], "title": "t", "images": []} for case in document["cases"]])
    found = gallery.read_galleries(tmp_path, show_private=False, document=document)
    assert [one.case for one in found.shown] == [*order, "b0", "b1"] and found.beyond == 2
    assert [one.place for one in found.shown[:3]] == ["best of 5 cases", "median of 5 cases", "worst of 5 cases"]
    (first, second) = gallery.gallery_groups(document, found.shown)
    places = zip(("best", "median", "worst"), order, strict=True)
    assert first.sources == tuple(f"{place} of 5 cases: t (case {case})" for place, case in places)
    assert second.sources == ("t (case b0)", "t (case b1)"), "all are shown"


def test_pictures_are_left_out_before_a_page_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [{**make_gallery()[0], "case": str(index)} for index in range(3)]
    write(tmp_path / "gallery.json", entries)
    (first, *_) = gallery.read_galleries(tmp_path, show_private=False).shown
    size = sum(len(pair.original) + len(pair.guess) for pair in first.pairs)
    monkeypatch.setattr(gallery, "MOST_BYTES", 2 * size)
    found = gallery.read_galleries(tmp_path, show_private=False)
    assert (len(found.shown), found.beyond) == (2, 1)


def test_guessed_values_are_read(tmp_path: Path) -> None:
    write(tmp_path / "gallery.json", make_guesses())
    ((value, *_),) = [one.values for one in gallery.read_galleries(tmp_path, show_private=False).shown]
    assert (value.record, value.column, value.original, value.guess, value.correct) == (
        "0",
        "smoker",
        "yes",
        "no",
        False,
    )


@pytest.mark.parametrize(
    "content",
    [
        {},
        ["x"],
        [{"images": 3}],
        [{"records": 3}],
        [{"records": [{"values": [["a", "b"]]}]}],
        [{"images": ["x"]}],
        [{"images": [{"original": [[1]], "guess": "x"}]}],
        [{"images": [{"original": [[1], [1, 2]], "guess": [[1]]}]}],
        [{"images": [{"original": [], "guess": [[1]]}]}],
        [{"images": [{"original": [[[1, 2]]], "guess": [[1]]}]}],
        [{"images": [{"original": [[0] * 2000], "guess": [[1]]}]}],
        [{"images": [{"original": math.pi, "guess": [[1]]}]}],
    ],
)
def test_malformed_galleries_are_refused(tmp_path: Path, content: Any) -> None:
    write(tmp_path / "gallery.json", content)
    with pytest.raises(BadInput, match=r"gallery\.json"):
        gallery.read_galleries(tmp_path, show_private=False)


@pytest.mark.parametrize(
    ("client", "source"), [(None, "seed 3, all clients"), (0, "seed 3, client 0"), (7, "seed 3, client 7")]
)
def test_images_of_an_attack_on_a_sum_belong_to_all_clients(client: int | None, source: str) -> None:
    shown = gallery.Gallery(case="x", title="x")
    assert gallery.source_of(shown, {"x": {"seed": 3, "client": client}}) == source
    assert gallery.source_of(shown, {}) == "x"
    best = gallery.Gallery(case="x", title="x", place="best of 5 cases")
    assert gallery.source_of(best, {"x": {"seed": 3, "client": client}}) == f"best case: {source}"
