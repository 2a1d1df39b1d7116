"""The folder of an NVFlare job: filters in order, those that never run, and whatever else its files may hold."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fedxray.audit.catalog import make_defence
from fedxray.defences.base import Defence
from fedxray.defences.joined import Joined
from fedxray.defences.stock import NvflareExclude, NvflarePercentile, NvflareSvt
from fedxray.errors import BadInput
from fedxray.integrations.nvflare_job import job_lines, read_job

FILTERS = "nvflare.app_common.filters"
PERCENTILE = {"path": f"{FILTERS}.percentile_privacy.PercentilePrivacy", "args": {"percentile": 50, "data_kinds": []}}
SVT = {"path": f"{FILTERS}.svt_privacy.SVTPrivacy", "args": {"epsilon": 0.5}}
EXCLUDE = {"path": f"{FILTERS}.exclude_vars.ExcludeVars", "args": {"exclude_vars": ["a.bias"]}}


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
    """Return the lines for a person, without the blocks of a plan."""
    lines = list(job_lines(folder))
    lines = lines[: lines.index("")] if "" in lines else lines
    assert all(len(line) <= 80 for line in lines)
    return " ".join(" ".join(lines).split())


def blocks(folder: Path) -> str:
    """Return the lines that are pasted into a plan."""
    lines = list(job_lines(folder))
    return "\n".join(lines[lines.index("") :]) if "" in lines else ""


def defences(folder: Path) -> list[Defence]:
    """Return the defences that a plan makes of the pasted lines."""
    entries = tomllib.loads(blocks(folder)).get("defence", [])
    return [make_defence(entry.pop("name"), entry) for entry in entries]


def test_rounds_script_and_filters_are_listed(tmp_path: Path) -> None:
    chains = [{"tasks": ["train"], "filters": [PERCENTILE]}, {"tasks": ["*"], "filters": [SVT]}]
    text = listed(job(tmp_path / "job", chains))
    assert "rounds 7 (FedAvg)" in text and "script client.py --lr 0.1" in text
    assert "filter 1 PercentilePrivacy(percentile = 50), tasks train it gets whole models" in text
    assert 'filter 2 SVTPrivacy(epsilon = 0.5), tasks * never applied: NVFlare 2.9 skips filters for tasks "*"' in text
    assert "recorder none" in text
    assert defences(tmp_path / "job") == [NvflarePercentile(percentile=50)], "what runs, alone"


def test_differences_suit_the_filters(tmp_path: Path) -> None:
    chains = [{"tasks": ["train"], "filters": [PERCENTILE]}]
    assert "whole models" not in listed(job(tmp_path / "job", chains, params_transfer_type="DIFF"))


def test_a_chain_without_tasks_is_for_all_of_them(tmp_path: Path) -> None:
    assert "never applied" in listed(job(tmp_path / "job", [{"filters": [SVT]}]))


def test_a_chain_runs_for_the_tasks_that_it_names_beside_all(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", [{"tasks": ["*", "train"], "filters": [SVT]}])
    assert "never applied" not in listed(folder) and defences(folder) == [NvflareSvt(epsilon=0.5)]


def test_a_filter_of_another_task_is_named(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", [{"tasks": ["validate"], "filters": [SVT]}])
    assert 'not for the task "train"' in listed(folder) and "# not the same: SVTPrivacy: not for the" in blocks(folder)


@pytest.mark.parametrize("direction", ["out", "INOUT", "in"])
def test_a_filter_of_the_other_direction_never_runs(tmp_path: Path, direction: str) -> None:
    folder = job(tmp_path / "job", [{"tasks": ["train"], "direction": direction, "filters": [SVT]}])
    scope = {"name": "s", "task_result_filters": [{**EXCLUDE, "direction": direction}]}
    (folder / "privacy.json").write_text(json.dumps({"scopes": [scope], "default_scope": "s"}))
    assert listed(folder).count("never applied") == (2 if direction == "in" else 0)
    assert len(defences(folder)) == (0 if direction == "in" else 1)


@pytest.mark.parametrize("key", ["class_path", "name"])
def test_a_filter_is_known_by_every_key_of_its_class(tmp_path: Path, key: str) -> None:
    named = {key: SVT["path"] if key == "class_path" else "SVTPrivacy", "args": SVT["args"]}
    folder = job(tmp_path / "job", [{"tasks": ["train"], "filters": [named]}])
    assert defences(folder) == [NvflareSvt(epsilon=0.5)]


def test_the_command_of_an_external_trainer_is_its_script(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", [], task_script_path=None, task_script_args="", command=["python3", "-u", "net.py"])
    assert "script python3 -u net.py sends" in listed(folder)


def test_a_sites_own_filters_come_first_and_run(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", [{"tasks": ["train"], "filters": [PERCENTILE]}])
    recorder = {"path": "fedxray.integrations.nvflare.Recorder", "args": {"folder": "here"}}
    scopes = [
        {"name": "open", "task_result_filters": [EXCLUDE]},
        {"name": "hospital", "task_result_filters": [SVT, recorder]},
    ]
    policy = {"scopes": scopes, "default_scope": "hospital"}
    (folder / "privacy.json").write_text(json.dumps(policy))
    (app,) = read_job(folder).apps
    assert [one.name for one in app.filters] == ["SVTPrivacy", "Recorder", "PercentilePrivacy"]
    assert all(one.runs for one in app.filters) and "recorder none" not in listed(folder)


def test_a_scope_of_the_job_goes_before_the_sites_default(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", [])
    scopes = [{"name": name, "task_result_filters": [one]} for name, one in (("open", EXCLUDE), ("closed", SVT))]
    (folder / "privacy.json").write_text(json.dumps({"scopes": scopes, "default_scope": "open"}))
    assert [one.name for one in read_job(folder).apps[0].filters] == ["ExcludeVars"]
    (folder / "meta.json").write_text(json.dumps({"scope": "closed"}))
    assert [one.name for one in read_job(folder).apps[0].filters] == ["SVTPrivacy"]
    text = listed(folder)
    assert "scope open of all sites does not apply to this job; filters of results: ExcludeVars" in text
    assert "scope closed of all sites applies" in text


def test_every_app_is_listed_with_its_sites(tmp_path: Path) -> None:
    """Two apps for three sites, and the policy of one site."""
    for place, (app, filters) in enumerate({"app_a": [PERCENTILE], "app_b": [SVT]}.items()):
        job(tmp_path / app, [{"tasks": ["train"], "filters": filters}], task_script_args=f"--place {place}")
        (tmp_path / app / "app").rename(tmp_path / "moved")
        (tmp_path / app).rmdir()
        (tmp_path / "moved").rename(tmp_path / app)
    deployed = {"app_a": ["site-1", "site-2", "server"], "app_b": ["site-3"]}
    (tmp_path / "meta.json").write_text(json.dumps({"deploy_map": deployed}))
    (tmp_path / "site-2" / "local").mkdir(parents=True)
    policy = {"scopes": [{"name": "own", "task_result_filters": [EXCLUDE]}], "default_scope": "own"}
    (tmp_path / "site-2" / "local" / "privacy.json").write_text(json.dumps(policy))
    apps = {app.sites: [one.name for one in app.filters] for app in read_job(tmp_path).apps}
    assert apps == {
        ("site-1",): ["PercentilePrivacy"],
        ("site-2",): ["ExcludeVars", "PercentilePrivacy"],
        ("site-3",): ["SVTPrivacy"],
    }
    text = listed(tmp_path)
    assert "sites site-3 script client.py --place 1 sends WEIGHTS filter 1 SVTPrivacy" in text
    assert blocks(tmp_path).count("[[defence]]") == 3 and "# site-3" in blocks(tmp_path)


def test_a_workspace_lists_sites_together(tmp_path: Path) -> None:
    for site in ("server", "site-1", "site-2"):
        folder = tmp_path / site / "simulate_job" / f"app_{site}" / "config"
        folder.mkdir(parents=True)
        chains = [{"tasks": ["train"], "filters": [SVT]}]
        (folder / "config_fed_client.json").write_text(json.dumps({"task_result_filters": chains}))
    assert [app.sites for app in read_job(tmp_path).apps] == [("site-1", "site-2")]


def test_every_executor_and_workflow_is_listed(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", [{"tasks": ["fine"], "filters": [PERCENTILE]}])
    executors = [
        {"tasks": ["train"], "executor": {"args": {"task_script_path": "a.py"}}},
        {"tasks": ["fine"], "executor": {"args": {"task_script_path": "b.py", "params_transfer_type": "DIFF"}}},
    ]
    config = folder / "app" / "config"
    plain = json.loads((config / "config_fed_client.json").read_text())
    (config / "config_fed_client.json").write_text(json.dumps(plain | {"executors": executors}))
    workflows = [{"path": "a.Train", "args": {"num_rounds": 3}}, {"path": "a.Validate"}]
    (config / "config_fed_server.json").write_text(json.dumps({"workflows": workflows}))
    text = listed(folder)
    assert "script a.py, tasks train sends WEIGHTS script b.py, tasks fine sends WEIGHT_DIFF" in text
    assert "rounds 3 (Train) rounds not stated (Validate)" in text
    assert "whole models" not in text, "the filter is for the task that sends differences"


def test_the_defences_can_be_pasted_into_a_plan(tmp_path: Path) -> None:
    exclude = {"path": EXCLUDE["path"], "args": {"exclude_vars": ["a.bias", 'odd"\x7f', "größe"]}}
    folder = job(tmp_path / "job", [{"tasks": ["train"], "filters": [SVT, PERCENTILE, exclude]}])
    names = '^a\\.bias$|^odd"\x7f$|^größe$'
    parts = NvflareSvt(epsilon=0.5), NvflarePercentile(percentile=50), NvflareExclude(names=names)
    assert defences(folder) == [Joined(parts=parts)]
    assert "größe" in blocks(folder)


@pytest.mark.parametrize(
    ("name", "args", "note", "acts"),
    [
        ("percentile_privacy.PercentilePrivacy", {"data_kinds": ["WEIGHTS"]}, "does nothing: it is for WEIGHTS", False),
        ("percentile_privacy.PercentilePrivacy", {"data_kinds": ["X"]}, "NVFlare refuses the job", False),
        ("percentile_privacy.PercentilePrivacy", {"percentile": 150}, "skips a percentile outside", False),
        ("percentile_privacy.PercentilePrivacy", {"gamma": 0}, "skips a gamma", False),
        ("percentile_privacy.PercentilePrivacy", {"gamma": "x"}, "no plan takes it", False),
        ("percentile_privacy.PercentilePrivacy", {"gamma": None}, "which no plan takes", False),
        ("percentile_privacy.PercentilePrivacy", {"perc": 5}, "knows no argument 'perc'", False),
        ("svt_privacy.SVTPrivacy", {"fraction": -1}, "no plan takes it", False),
        ("svt_privacy.SVTPrivacy", {"replace": False}, "replace = False, which no plan states", True),
        ("svt_privacy.SVTPrivacy", {"epsilon_release": 3.0}, "epsilon_release = 3.0, which no plan states", True),
        ("svt_privacy.SVTPrivacy", {"replace": True, "epsilon_query": None}, "", True),
        ("exclude_vars.ExcludeVars", {}, "names no array", False),
        ("exclude_vars.ExcludeVars", {"exclude_vars": [3]}, "names no array", False),
        ("exclude_vars.ExcludeVars", {"exclude_vars": "("}, "no plan takes it", False),
        ("exclude_vars.ExcludeVars", {"exclude_vars": "\ud800"}, "half a character", False),
        ("my.Filter", {}, "no stock filter", False),
    ],
)
def test_a_filter_that_a_plan_cannot_repeat_is_named(
    tmp_path: Path, name: str, args: dict[str, Any], note: str, acts: bool
) -> None:
    chains = [{"tasks": ["train"], "filters": [{"path": f"{FILTERS}.{name}", "args": args}]}]
    folder = job(tmp_path / "job", chains, params_transfer_type="DIFF")
    assert note in listed(folder) and len(defences(folder)) == acts
    assert not acts or ("# not the same" in blocks(folder)) is bool(note)


def test_a_filter_given_twice_is_named(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", [{"tasks": ["train"], "filters": [SVT, PERCENTILE, SVT]}])
    assert "# not the same: SVTPrivacy: a plan takes each defence once" in blocks(folder)
    assert len(defences(folder)) == 1


def test_a_very_long_argument_is_cut(tmp_path: Path) -> None:
    long = {"path": EXCLUDE["path"], "args": {"exclude_vars": "x " * 2_500_000}}
    text = listed(job(tmp_path / "job", [{"tasks": ["train"], "filters": [long]}]))
    assert len(text) < 2000 and "too long for a plan" in text


def test_no_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="config_fed_client"):
        read_job(tmp_path)
    with pytest.raises(BadInput, match="a folder"):
        read_job(tmp_path / "nothing")


HOCON = """
num_rounds = 7
script = "train.py"   # a comment
executors = [{tasks = ["train"], executor {path = "nvflare.Executor", args {
  task_script_path = "{script}", task_script_args = "{unknown}", params_transfer_type = "DIFF"}}}]
task_result_filters = [{tasks = ["train"], filters = [
  {path = "nvflare.app_common.filters.percentile_privacy.PercentilePrivacy", args {percentile = 50, "gamma" = 0.5}}]}]
"""
YAML = """
num_rounds: 7
script: train.py
executors:
- tasks: [train]
  executor: {args: {task_script_path: "{script}", task_script_args: "{unknown}", params_transfer_type: DIFF}}
task_result_filters:
- tasks: [train]
  filters: [{path: nvflare.PercentilePrivacy, args: {percentile: 50, gamma: 0.5}}]
"""


@pytest.mark.parametrize(("ending", "text"), [("conf", HOCON), ("yml", YAML), ("yaml", YAML)])
def test_jobs_in_hocon_and_yaml_are_read(tmp_path: Path, ending: str, text: str) -> None:
    pytest.importorskip({"conf": "pyhocon"}.get(ending, "yaml"))
    (tmp_path / f"config_fed_client.{ending}").write_text(text)
    (tmp_path / "config_fed_server.json").write_text(
        json.dumps({"count": 7, "workflows": [{"path": "nvflare.FedAvg", "args": {"num_rounds": "{count}"}}]})
    )
    shown = listed(tmp_path)
    assert "rounds 7 (FedAvg)" in shown and "script train.py {unknown}, tasks train" in shown
    assert defences(tmp_path) == [NvflarePercentile(percentile=50, gamma=0.5)]


def test_of_several_formats_nvflare_reads_json(tmp_path: Path) -> None:
    (tmp_path / "config_fed_client.json").write_text(json.dumps({"task_result_filters": []}))
    (tmp_path / "config_fed_client.conf").write_text("{{{")
    assert "filters none" in listed(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("conf", "a = {", "a complete HOCON file"),
        ("conf", 'include "/etc/passwd"', "a file by itself"),
        ("conf", 'a { include url("http://127.0.0.1/x") }', "a file by itself"),
        ("conf", "a = ${nothing.at.all}", "a complete HOCON file"),
        ("conf", "[1, 2]", "an object"),
        ("yml", "a: [", "a complete YAML file"),
        ("yml", "a: &a [*a]", "nested without end"),
        ("yml", "a: !!python/object/apply:os.system ['true']", "a complete YAML file"),
        ("yml", "- 1", "an object"),
        ("yml", "x" * 300_000, "at most 200000 bytes"),
    ],
)
def test_a_damaged_or_hostile_file_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    pytest.importorskip({"conf": "pyhocon"}.get(name, "yaml"))
    (tmp_path / f"config_fed_client.{name}").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_job(tmp_path)


def test_templates_of_nvflare_are_read() -> None:
    nvflare = pytest.importorskip("nvflare")
    templates = Path(nvflare.__file__).parent / "tool" / "job" / "templates"
    assert "rounds 3 (FedOpt)" in listed(templates / "fedopt_pt") and "HEModelEncryptor" in listed(
        templates / "sag_pt_he"
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["executors", "executor", "args", "tasks", "filters", "path", "task_result_filters", "workflows",
                 "num_rounds", "scopes", "exclude_vars", "task_script_args", "deploy_map", "scope", "data_kinds",
                 "gamma"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)  # fmt: skip


@given(client=VALUES, server=VALUES, policy=VALUES, meta=VALUES)
def test_whatever_the_files_hold_it_is_listed_or_refused(
    client: Any, server: Any, policy: Any, meta: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("job")
    for name, value in (
        ("config_fed_client", client),
        ("config_fed_server", server),
        ("privacy", policy),
        ("meta", meta),
    ):
        (folder / f"{name}.json").write_text(json.dumps(value))
    try:
        defences(folder)
    except BadInput as refusal:
        assert "object" in str(refusal)
