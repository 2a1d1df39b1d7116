"""The table of metrics: names, directions, suffixes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedxray.errors import BadInput
from fedxray.metrics.table import METRICS, metric


def test_the_table_has_every_documented_metric() -> None:
    down = {name for name, entry in METRICS.items() if entry.better == "down" and not entry.formula}
    assert down == {"mse", "lpips", "label_error", "parameter_distance", "training_loss", "training_mape"}
    assert all(entry.margin > 0 and entry.kinds and entry.what for entry in METRICS.values())
    expected = (
        "accuracy balanced_accuracy within_tolerance auc auc_subject auc_subject_other tpr_at_1pct_fpr"
        " tpr_at_0p1pct_fpr psnr ssim mse rec"
        " retrieval lpips class_ssim class_psnr class_recognised label_error label_accuracy values_recovered"
        " zest parameter_distance"
        " training_loss training_accuracy training_mape"
    )
    assert {name for name, entry in METRICS.items() if not entry.formula} == set(expected.split())


def test_names_with_a_suffix() -> None:
    assert metric("psnr_awa") == metric("psnr_curious_by_index") == METRICS["psnr"]
    assert metric("ssim_curious") == METRICS["ssim"] and metric("mse_by_index") == METRICS["mse"]
    for name in ("psnr_2", "accuracy_by_index", "mse_awa", "auc_awa", "psnrs", "pnsr", ""):
        with pytest.raises(BadInput, match="metric"):
            metric(name)


def test_the_table_does_not_import_torch() -> None:
    code = "import sys, fedxray.metrics.table; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
