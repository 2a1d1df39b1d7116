"""The folder of an NVFlare job: filters in order, those that never run, and whatever else its files may hold."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fedxray.audit.catalog import make_defence
from fedxray.errors import BadInput
from fedxray.integrations.nvflare_job import STOCK, job_lines, read_job

FILTERS = "nvflare.app_common.filters"
PERCENTILE = {"path": f"{FILTERS}.percentile_privacy.PercentilePrivacy", "args": {"percentile": 50, "data_kinds": []}}
SVT = {"path": f"{FILTERS}.svt_privacy.SVTPrivacy", "args": {"epsilon": 0.5}}
EXCLUDE = {"path": f"{FILTERS}.exclude_vars.ExcludeVars", "args": {"exclude_vars": ["a.bias", 'odd"'], "x": 1}}


def job(folder: Path, filters: Any, **given: Any) -> Path:
    script = {"task_script_path": "client.py", "task_script_args": "--lr 0.1", **given}
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    executor = {"path": "nvflare.Executor", "args": script}
    client = {"executors": [{"tasks": ["*"], "executor": executor}], "task_result_filters": filters}
    server = {"workflows": [{"path": "nvflare.FedAvg", "args": {"num_rounds": 7}}]}
    (config / "config_fed_client.json").write_text(json.dumps(client))
    (config / "config_fed_server.json").write_text(json.dumps(server))
    return folder


def listed(folder: Path) -> str:
    lines = list(job_lines(folder))
    assert all(len(line) <= 80 for line in lines)
    return " ".join(" ".join(lines).split())


def test_rounds_script_and_filters_are_listed(tmp_path: Path) -> None:
    chains = [{"tasks": ["train"], "filters": [PERCENTILE]}, {"tasks": ["*"], "filters": [SVT]}]
    text = listed(job(tmp_path / "job", chains))
    assert "rounds 7 (FedAvg)" in text and "script client.py --lr 0.1" in text
    assert "filter 1 PercentilePrivacy(percentile = 50), tasks train it gets whole models" in text
    assert 'filter 2 SVTPrivacy(epsilon = 0.5), tasks * never applied: NVFlare 2.9 skips filters for tasks "*"' in text
    assert "recorder none" in text
    assert text.endswith('plan defence = [{ name = "nvflare-percentile", percentile = 50 }]'), "what runs, alone"


def test_differences_suit_the_filters(tmp_path: Path) -> None:
    chains = [{"tasks": ["train"], "filters": [PERCENTILE]}]
    assert "whole models" not in listed(job(tmp_path / "job", chains, params_transfer_type="DIFF"))


def test_a_chain_without_tasks_is_for_all_of_them(tmp_path: Path) -> None:
    assert "never applied" in listed(job(tmp_path / "job", [{"filters": [SVT]}]))


def test_a_sites_own_filters_come_first_and_run(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", [{"tasks": ["train"], "filters": [PERCENTILE]}])
    recorder = {"path": "fedxray.integrations.nvflare.Recorder", "args": {"folder": "here"}}
    policy = {"scopes": [{"name": "hospital", "task_result_filters": [SVT, recorder]}]}
    (folder / "privacy.json").write_text(json.dumps(policy))
    assert [one.name for one in read_job(folder).filters] == ["SVTPrivacy", "Recorder", "PercentilePrivacy"]
    assert all(one.runs for one in read_job(folder).filters) and "recorder none" not in listed(folder)


def test_the_defences_can_be_used_in_a_plan(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", [{"tasks": ["train"], "filters": [PERCENTILE, SVT, EXCLUDE]}])
    text = listed(folder)
    entries = [part.partition(" plan ")[0] for part in text.split("plan defence = ")[1:]]
    found = [tomllib.loads(f"defence = {entry}")["defence"][0] for entry in entries]
    for settings in found:
        make_defence(settings.pop("name"), settings)
    assert len(found) == len(STOCK)
    assert found[2]["names"] == '^a\\.bias$|^odd"$'


def test_no_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="config_fed_client"):
        read_job(tmp_path)
    with pytest.raises(BadInput, match="a folder"):
        read_job(tmp_path / "nothing")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["executors", "executor", "args", "tasks", "filters", "path", "task_result_filters", "workflows",
                 "num_rounds", "scopes", "exclude_vars", "task_script_args"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)  # fmt: skip


@given(client=VALUES, server=VALUES, policy=VALUES)
def test_whatever_the_files_hold_it_is_listed_or_refused(
    client: Any, server: Any, policy: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("job")
    for name, value in (("config_fed_client", client), ("config_fed_server", server), ("privacy", policy)):
        (folder / f"{name}.json").write_text(json.dumps(value))
    try:
        assert list(job_lines(folder))
    except BadInput as refusal:
        assert "object" in str(refusal)
