"""Loss curves and searches: every trial in order and over every setting, the best marked, stopped ones hollow."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

from fedxray.audit.search import Trial, search_result
from fedxray.report.charts import PAPER, Drawing, as_file, on_page
from fedxray.report.curves import TrialPoint, best_so_far, loss_curves, searches, settings_chart

SIX = ("q_conv", "q_norm", "q_linear", "q_enhance", "p_mean", "p_var")


def document(trials: list[Trial], **how: Any) -> dict[str, Any]:
    case = {"attack": "awa", "role": "server", "defence": "none", "aware": None, "status": "ok", "ledger": {}}
    return {"cases": [{**case, "search": search_result(trials).facts() | how}]}


def fifty() -> list[Trial]:
    """Six settings; the one of lowest loss was given up."""
    return [
        Trial(dict.fromkeys(SIX, float(place)), 1.0 + (place * 7 % 50), given_up=place > 40 or place == 0)
        for place in range(50)
    ]


@pytest.mark.parametrize(
    ("losses", "stuck"),
    [
        ([2.0, 1.5, 1.01], True),
        ([2.0, 1.0, 1.9], False),  # what counts is the lowest
        ([2.0, None, 0.1], False),
        ([None, 2.0, 1.9], True),
        ([0.0, 0.0, 0.0], False),  # nothing to fall from
        ([-1.0, -2.0, -3.0], False),
    ],
)
def test_losses_that_hardly_fall_are_counted(losses: list[float | None], stuck: bool) -> None:
    case = document([])["cases"][0] | {"search": None, "curve": {"steps": [0, 1, 2], "losses": losses}}
    (curves,) = loss_curves({"cases": [case]})
    assert curves.note == ("1 case, loss fell by less than half in 1" if stuck else "1 case")


def test_a_search_is_drawn_in_order_and_over_its_settings() -> None:
    (search,) = searches(document(fifty(), starts=12))
    assert "the first 12 at random" in search.note and "10 stopped early (hollow dots, " in search.note
    assert search.over_settings is not None
    assert search.over_settings.texts == ("own loss", *SIX) and "q_enhance" in on_page(search.over_settings)
    ended = [one for one in fifty() if not one.given_up]
    best = min(ended, key=lambda one: one.loss)
    assert {one.chosen for one in search.settings} == {f"{best.point['q_conv']:.2f}"}
    near = [one.point["q_conv"] for one in ended if one.loss <= 1.1 * best.loss]
    assert {one.nearly for one in search.settings} == {f"{near[0]:.2f}"} and len(near) == 1
    assert f"a loss of {best.loss:.3f}" in search.drawing.description
    assert as_file(search.drawing, "svg") and as_file(search.over_settings, "png")


def test_trials_that_the_loss_does_not_distinguish_are_a_range() -> None:
    trials = [Trial({"rate": 1.0 + place}, loss) for place, loss in enumerate([2.0, 2.2, 2.3, 2.1])]
    (search,) = searches(document([*trials, Trial({"rate": 9.0}, 2.0, given_up=True)]))
    (rate,) = search.settings
    assert (rate.tried, rate.chosen, rate.nearly) == ("1.000 to 9.000", "1.000", "1.000 to 4.000")


def test_a_chosen_end_of_a_range_is_marked() -> None:
    trials = [Trial({"q_conv": 1000.0, "p_var": 0.2}, 1.0), Trial({"q_conv": 1.0, "p_var": 0.5}, 2.0)]
    ranges = {"q_conv": [1.0, 1000.0, "linear"], "p_var": [0.0, 0.5, "linear"]}
    (search,) = searches(document(trials, ranges=ranges))
    assert [one.chosen for one in search.settings] == ["1000.0 (end of the range)", "0.200"]
    # As samplers write an end; no share is below 0.
    low = Trial({"q_conv": 1.0000000000000002, "p_var": 0.0}, 0.5)
    (search,) = searches(document([*trials, low], ranges=ranges))
    assert [one.chosen for one in search.settings] == ["1.000 (end of the range)", "0.000"]
    (search,) = searches(document(trials))
    assert [one.chosen for one in search.settings] == ["1000.0", "0.200"], "a recorded run states no ranges"


def test_weights_of_layers_that_the_network_lacks_have_no_effect() -> None:
    trials = [Trial({"q_conv": 5.0, "q_norm": 7.0}, 1.0), Trial({"q_conv": 6.0, "q_norm": 8.0}, 2.0)]
    told = document(trials)
    told["cases"][0]["taken"] = {"case": "case1", "q_conv": 5.0}
    (search,) = searches(told)
    assert [one.chosen for one in search.settings] == ["5.000", "without effect on this network"]
    assert [one.nearly for one in search.settings] == ["5.000", "–"]


def test_what_the_attack_assumed_in_all_cases_is_stated_once() -> None:
    case = document([])["cases"][0] | {"search": None, "curve": {"steps": [0, 1], "losses": [2.0, 0.1]}}
    told = [{**case, "taken": {"case": "case1", "q_conv": weight}} for weight in (5.0, 6.0)]
    (curves,) = loss_curves({"cases": told})
    assert curves.note == "2 cases, assumed: case1"


def test_trials_given_up_do_not_stretch_the_axis() -> None:
    ended = [Trial({"a": 1.0 + place, "b": 2.0 * place}, 2.0 + place / 10) for place in range(4)]
    (search,) = searches(document([*ended, Trial({"a": 7.0, "b": 1.0}, 900.0, given_up=True)]))
    for drawing in (search.drawing, search.over_settings):
        figure = Figure()
        assert drawing is not None
        drawing.paint(figure, PAPER)
        assert all(axes.get_ylim()[1] < 3 for axes in figure.axes)


def test_small_losses_are_counted_in_a_power_of_ten() -> None:
    trials = [Trial({"a": 1.0 + place, "b": 2.0 * place}, 2e-3 + place / 1e4) for place in range(4)]
    (search,) = searches(document(trials))
    assert search.over_settings is not None
    assert (
        search.drawing.texts[1] == "attacker's own loss / 0.001" and search.over_settings.texts[0] == "own loss / 0.001"
    )
    figure = Figure()
    search.drawing.paint(figure, PAPER)
    figure.canvas.draw()
    shown = {float(one.get_text()) for one in figure.axes[0].get_yticklabels()}
    assert {2.0, 2.2} <= shown and all(1.5 < one < 2.5 for one in shown)


def test_a_search_of_one_setting_or_of_words_needs_no_panels() -> None:
    (search,) = searches(document([Trial({"rate": float(place)}, 2.0 + place) for place in range(3)]))
    assert search.over_settings is None and search.note == "3 trials in each of 1 case"
    words = [TrialPoint(point={"kind": "ab"[place % 2], "rate": 0.1, "n": place}, loss=1.0) for place in range(3)]
    assert settings_chart([words], name="search", title="words") is None


def test_searches_without_any_trial_that_ended_are_left_out() -> None:
    given_up = [Trial({"rate": 1.0 + place}, 2.0, given_up=True) for place in range(3)]
    assert searches(document(given_up)) == []


def test_the_best_so_far_passes_over_what_was_given_up_or_lost() -> None:
    losses = [(None, False), (3.0, False), (1.0, True), (4.0, False), (2.0, False), (None, False)]
    case = [TrialPoint(point={}, loss=loss, given_up=given_up) for loss, given_up in losses]
    assert best_so_far(case) == [(2, 3.0), (4, 3.0), (5, 2.0), (6, 2.0)]
    assert best_so_far(case[:1]) == []


def lines_in(drawing: Drawing | None, panel: int = 0) -> list[Any]:
    assert drawing is not None
    figure = Figure(figsize=(drawing.size[0] / 72, drawing.size[1] / 72), dpi=72)
    drawing.paint(figure, PAPER)
    return [one for one in figure.axes[panel].lines if len(one.get_xdata())]


def test_the_best_is_marked_and_only_those_given_up_are_open() -> None:
    losses = [(5.0, False), (None, False), (1.0, True), (2.0, False)]
    case = [
        TrialPoint(point={"a": float(place), "b": 9.0 - place}, loss=loss, given_up=given_up)
        for place, (loss, given_up) in enumerate(losses)
    ]
    for panel, name in enumerate("ab"):
        lines = lines_in(settings_chart([case], name="search", title="t"), panel)
        points = {
            (one.get_marker(), one.get_fillstyle()): list(zip(one.get_xdata(), one.get_ydata(), strict=True))
            for one in lines
        }
        assert points == {
            ("o", "full"): [(case[0].point[name], 5.0), (case[3].point[name], 2.0)],
            ("o", "none"): [(case[2].point[name], 1.0)],
            ("D", "full"): [(case[3].point[name], 2.0)],
        }


def test_logarithmic_settings_have_a_logarithmic_axis() -> None:
    case = [TrialPoint(point={"rate": 10.0**-place, "n": place}, loss=1.0 + place) for place in range(4)]
    plain, spaced = (settings_chart([case], name="search", title="t", logarithmic=log) for log in ((), ("rate",)))
    assert plain is not None and spaced is not None
    assert as_file(plain, "svg") != as_file(spaced, "svg")
    figure = Figure(figsize=(spaced.size[0] / 72, spaced.size[1] / 72), dpi=72)
    spaced.paint(figure, PAPER)
    figure.draw_without_rendering()
    written = [one.get_text() for one in figure.axes[0].get_xticklabels()]
    assert {"0.001", "0.1"} & set(written) and not any("$" in one for one in written), "no formulas"


@pytest.mark.parametrize(("lengths", "median"), [((5, 5, 5), True), ((5, 5, 3), False)])
def test_cases_of_unequal_length_have_no_median_line(lengths: tuple[int, ...], median: bool) -> None:
    case = document([])["cases"][0] | {"search": None}
    curves = [{"steps": list(range(length)), "losses": [9.0 - step for step in range(length)]} for length in lengths]
    (found,) = loss_curves({"cases": [case | {"curve": curve} for curve in curves]})
    figure = Figure()
    found.drawing.paint(figure, PAPER)
    (axes,) = figure.axes
    assert sum(bool(len(line.get_xdata())) for line in axes.get_lines()) == len(lengths) + median
