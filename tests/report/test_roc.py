"""ROC curves of membership attacks on the page."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

from fedxray.report.build import contents, figures, render, render_text
from fedxray.report.charts import PAPER, on_page
from fedxray.report.gallery import Galleries
from fedxray.report.roc import DASHES, roc_chart, roc_curves
from tests.audit.judge.test_roc import with_ranks
from tests.report.synthetic import CLIENTS, SEEDS, make_document

NOTHING = Galleries(shown=(), private=0, beyond=0)


def row(attack: str, mean: float, **changes: Any) -> dict[str, Any]:
    rates = {"members": 300, "others": 500, "fpr": [0.002, 0.022, 0.2, 0.998], "tpr": [0.0, 0.1, 0.5, 1.0]}
    base: dict[str, Any] = {"attack": attack, "mean": mean, "metric": "auc", "state": "leaks", "aware": None}
    return {**base, "roc": rates, **changes}


def test_each_role_and_defence_has_one_drawing_and_page_text_and_files_hold_it() -> None:
    document = make_document(with_ranks())
    made = roc_curves(document)
    assert [one.title for one in made] == [f"The server, {name}" for name in ("no defence", "gaussian-noise", "dp-sgd")]
    counts = "{0} records trained on, {0} records not".format(30 * len(SEEDS) * len(CLIENTS))
    assert made[0].note.startswith(f"{counts}; ROC AUC pooled by members: 0.") and " membership" in made[0].note
    shown = contents(document, NOTHING)
    page, drawn = render(shown), figures(shown)
    assert page.count("ROC curves of membership attacks") == 1 and 'id="roc-0-title"' in page
    assert drawn["roc-0"].stem.endswith("-roc-roc-curves")
    assert "ROC curves, The server, no defence" in render_text(shown, drawn)
    assert "ROC curves" not in render(contents(make_document(), NOTHING))


def test_curves_are_described_and_an_empty_start_is_not_drawn() -> None:
    drawing = roc_chart([row("membership-best", 0.9), row("membership-loss", 0.6)], name="roc-0", title="t")
    assert "ROC AUC 0.900 membership-best; true-positive rate 10 % at 2.2 % false positives." in drawing.description
    svg = on_page(drawing)
    assert "var(--leaks)" in svg and "var(--band)" in svg and "0.600 membership-loss" in svg
    assert "nan" not in svg and "inf" not in svg


def test_no_more_curves_than_can_be_distinguished() -> None:
    document = make_document(with_ranks())
    own = next(one for one in document["summary"] if "roc" in one)
    document["summary"] += [{**own, "attack": f"membership-{number}", "mean": 0.5} for number in range(len(DASHES))]
    first = roc_curves(document)[0]
    assert "1 weaker attack not shown" in first.note and len(first.drawing.texts) == len(DASHES) + 2


def test_two_drawings_of_one_role_and_defence_name_their_metrics() -> None:
    document = make_document(with_ranks())
    own = next(one for one in document["summary"] if "roc" in one)
    document["summary"].append({**own, "attack": "membership-other", "metric": "auc_subject_other"})
    titles = [one.title for one in roc_curves(document)]
    assert len(set(titles)) == len(titles)
    assert {"The server, no defence, ROC AUC", "The server, no defence, ROC AUC by person, other records"} <= set(
        titles
    )


def test_shaded_is_what_rests_on_few_others_of_the_row_that_has_fewest() -> None:
    few = {**row("membership-loss", 0.6)["roc"], "others": 100}
    rows = [row("membership-best", 0.9), row("membership-loss", 0.6, roc=few)]
    figure = Figure()
    roc_chart(rows, name="roc-0", title="t").paint(figure, PAPER)
    shaded = max(patch.get_extents().x1 for patch in figure.axes[0].patches)
    assert figure.axes[0].transData.inverted().transform((shaded, 0))[0] == pytest.approx(11 / 101)
