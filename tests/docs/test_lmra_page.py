"""Tables of measured local models: values by hand, the choice of a model and its confirmation on fresh seeds."""

from __future__ import annotations

import runpy
from pathlib import Path

PAGE = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "_build" / "lmra_page.py"))
choices, tables = PAGE["choices"], PAGE["tables"]


def document(values: dict[tuple[str, str], list[tuple[int, int, float]]]) -> dict[str, object]:
    return {
        "rows": [
            {
                "row": "leaf",
                "column": column,
                "metric": metric,
                "units": [{"seed": seed, "client": client, "value": value} for seed, client, value in units],
            }
            for (column, metric), units in values.items()
        ]
    }


def test_measured_models_by_hand() -> None:
    """Two seeds on which settings were chosen, a fresh one; differences are paired by seed and client."""
    content = document(
        {
            ("last", "zest"): [(0, 0, 0.1), (1, 0, 0.3), (7, 0, 0.5)],
            ("active", "zest"): [(0, 0, 0.2), (1, 0, 0.6), (7, 0, 0.6)],
            ("active", "training_loss"): [(0, 0, 1.0), (0, 1, 2.0), (1, 0, 100.0)],
            ("aia-active", "accuracy"): [(0, 0, 0.9)],
            ("sia-majority", "accuracy"): [(0, 0, 0.25)],
        }
    )
    first, fresh = tables(content)
    assert first[0].endswith("seeds 0 to 4 (2 runs)") and fresh[0].endswith("fresh seeds 5 to 9 (1 run)")
    lines = {line[0]: line[1:] for line in first[2]}
    assert list(lines) == ["`last`", "`active`", "source inference by majority"]
    assert lines["`last`"][:2] == ("0.200", "")
    assert lines["`active`"][0] == "0.400" and lines["`active`"][1].startswith("+0.200 [")
    assert lines["`active`"][2:] == ("2", "", "", "0.900", "")
    assert lines["source inference by majority"] == ("", "", "", "", "", "", "0.250")
    assert [line[1:3] for line in fresh[2]] == [("0.500", ""), ("0.600", "+0.100")]


def models_of(values: dict[str, tuple[float, float, float]], seeds: range) -> dict[str, object]:
    """Return equal zest, loss and accuracy on every seed, plus an offset per seed that is the same for all models."""
    metrics = ("zest", "training_loss", "training_accuracy")
    return document(
        {
            (name, metric): [(seed, 0, value + 0.01 * seed) for seed in seeds]
            for name, numbers in values.items()
            for metric, value in zip(metrics, numbers, strict=True)
        }
    )


def test_the_chosen_model_fits_no_worse_and_is_most_similar() -> None:
    content = models_of(
        {
            "last": (0.3, 0.5, 0.8),
            "heuristic": (0.4, 0.5, 0.8),
            "heuristic-span": (0.35, 0.4, 0.85),
            "extrapolate-100": (0.9, 5.0, 0.4),  # similar, with poor fit
            "heuristic-follow": (0.5, 0.4, 0.79),  # less accurate
            "send-back": (0.2, 0.1, 0.9),  # fits, and is less similar than the last returned model
            "optimum": (1.0, 0.0, 1.0),
        },
        range(10),
    )
    sentences = choices(content)
    assert sentences[0] == "Chosen passively on Leaf Synthetic, seeds 0 to 4: `heuristic`."
    assert sentences[1].startswith("Leaf Synthetic, fresh seeds 5 to 9 confirms `heuristic`: zest +0.100 [")
    assert sentences[2].startswith("Chosen by interfering on Leaf Synthetic, seeds 0 to 4: none")
    assert len(sentences) == 3


def test_fresh_seeds_can_refute_the_choice() -> None:
    chosen = models_of({"last": (0.3, 0.5, 0.8), "active": (0.4, 0.4, 0.9)}, range(5))
    fresh = models_of({"last": (0.3, 0.5, 0.8), "active": (0.4, 0.9, 0.9)}, range(5, 10))
    both = {"rows": [*chosen["rows"], *fresh["rows"]]}  # type: ignore[misc]
    assert [line for line in choices(both) if "does not confirm `active`" in line]
    assert not [line for line in choices(chosen) if "fresh" in line] and not choices(fresh)
