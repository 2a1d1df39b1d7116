from __future__ import annotations

import html
import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedxray import cli
from fedxray.audit import catalog
from fedxray.audit.judge.results import failure_line
from fedxray.audit.run.store import Store, open_store
from fedxray.cli.show import PAGES, WITH_SETTINGS, pages, settings_of
from fedxray.data.catalog import SETTINGS as DATA_SETTINGS
from fedxray.settings import setting
from tests.audit.plans import tiny, write_toml
from tests.audit.stored import case_entries
from tests.conftest import Command

ROOT = Path(__file__).parents[2]
BUILT = [
    "init",
    "audit",
    "demo",
    "report",
    "reproduce",
    "purge",
    "list",
    "show",
    "data",
    "import",
    "recommend",
    "gate",
    "compare",
    "claim",
    "train-prior",
]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return write_toml(tmp_path / "tiny.toml", tiny())


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_what_own_code_prints_cannot_steer_the_terminal(
    engine: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = "tests.audit.cheats:printing"
    parts = {"attack": [{"factory": own, "targets": [0]}], "defence": [{"factory": f"{own}_defence"}]}
    plan = write_toml(tmp_path / "p.toml", tiny(model=None, **parts) | {"model": {"factory": f"{own}_network"}})
    for command in (("--dry-run",), ("--engine", engine, "--out", str(tmp_path / "out"))):
        monkeypatch.setattr(sys, "argv", ["fedxray", "audit", str(plan), *command])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        shown = capfd.readouterr()
        assert caught.value.code in (0, None), shown.err
        assert not {"\x1b", "\x07", "\x9b"} & set(shown.out + shown.err)
        assert "[2J" not in shown.out
    for words in ("by print", "by write", "begun", "in a factory", "in hooks", "in a network"):
        assert words in shown.err, words


def test_a_message_about_a_hostile_plan_cannot_steer_the_terminal(fedxray: Command, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('"\\u001b[2J\\u009b31m" = 1\n')
    ended = fedxray("audit", tmp_path / "p.toml")
    assert ended.code == 2 and "[2J" in ended.err and not {"\x1b", "\x9b"} & set(ended.err)


def test_the_list_of_attacks_is_grouped_by_what_they_work_on(fedxray: Command) -> None:
    lines = fedxray("list", "attacks").out.splitlines()
    groups = [line[len(line.split()[0]) :].split()[0] for line in lines]
    assert {line.split()[0] for line in lines} == set(catalog.table("attacks"))
    assert groups[0] == "tables:" and list(dict.fromkeys(groups)) == [
        "tables:",
        "images",
        "images:",
        "classes:",
        "all:",
    ]


def test_attacks_that_fit_a_plan_are_listed_with_their_time_and_others_with_the_reason(
    fedxray: Command, plan: Path
) -> None:
    lines = {line.split()[0]: line for line in fedxray("list", "attacks", "--for", plan).out.splitlines()}
    assert set(lines) == set(catalog.table("attacks"))
    assert " about " in lines["attribute-from-model"] and " about " in lines["membership-loss"]
    assert "cannot run" in lines["dlf"] and "image" in lines["dlf"]
    refused = fedxray("list", "defences", "--for", plan)
    assert refused.code == 2 and "attacks" in refused.err


HEAVY = ("torch", "numpy", "pydantic", "scipy", "sklearn", "matplotlib")


def without_importing(asked: list[list[str]], heavy: tuple[str, ...]) -> str:
    """What these commands print, in a process of their own that must import nothing heavy."""
    code = (
        "import sys\nfrom fedxray import cli\n"
        f"for words in {asked!r}:\n"
        "    try:\n        cli.app(words)\n"
        "    except SystemExit as ended:\n        assert ended.code == 0, words\n"
        f"    heavy = set({heavy!r}) & set(sys.modules)\n"
        "    assert not heavy, (words, heavy)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_help_of_every_command_and_nothing_heavy_is_imported() -> None:
    said = without_importing([[name, "--help"] for name in BUILT], (*HEAVY, "jinja2", "fedxray.audit"))
    for name in BUILT:
        assert name in said
    assert "--resume" in said and "--dry-run" in said and "--yes" in said
    assert "[]" not in said  # what remains of [[gate]] if it is interpreted as markup


def test_no_list_and_no_page_of_a_built_in_name_waits_for_torch() -> None:
    asked = [
        *(["list", kind] for kind in catalog.KINDS),
        *(["show", next(iter(catalog.HERE[kind]))] for kind in catalog.HERE),
    ]
    asked += [["show", name] for name in ("mlp", "medical", "accuracy", "server", "recipe")]
    without_importing(asked, HEAVY)


def test_the_stored_page_is_the_one_that_the_class_gives(fedxray: Command) -> None:
    made = pages()
    assert json.loads(PAGES.read_text(encoding="utf-8")) == made, "run `make docs`"
    assert fedxray("show", "dlf").out == made["attacks/dlf"] + "\n"


def test_the_version_is_the_package_s(fedxray: Command) -> None:
    from importlib.metadata import version

    assert fedxray("--version").out.strip() == f"fedxray {version('fedxray')}"


KINDS = [
    "attacks",
    "defences",
    "datasets",
    "models",
    "metrics",
    "roles",
    "grants",
    "floors",
    "restorers",
    "reproductions",
]


def test_help_lists_what_can_be_used_and_nothing_else(fedxray: Command) -> None:
    said = fedxray("--help").out
    assert all(f" {name} " in said for name in BUILT)
    assert "not built" not in fedxray("audit", "--help").out
    assert all(kind in fedxray("list", "--help").out for kind in KINDS)
    assert all(kind in fedxray("init", "--help").out for kind in ("hospital-table", "hospital-images", "one-gradient"))
    assert "(docs/plan.md)" in fedxray("audit", "--help").out


@pytest.mark.parametrize("kind", KINDS)
def test_list_prints_one_name_first_on_each_line(fedxray: Command, kind: str) -> None:
    ended = fedxray("list", kind)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert sorted(line.split()[0] for line in lines) == sorted(catalog.table(kind))
    assert all(len(line.split()) > 3 for line in lines), "each has a description"


@pytest.mark.parametrize("name", ["awa", "agic", "dlf", "curious-client"])
def test_show_lists_what_is_needed_once(fedxray: Command, name: str) -> None:
    needs = fedxray("show", name).out.partition("Needs:\n")[2].partition("Compared")[0].splitlines()
    whats = [line.partition(", given by")[0] for line in needs]
    assert len(whats) > 3 and len(set(whats)) == len(whats)
    assert "  an update, given by any role that sees two consecutive models or a reply" in needs


def test_a_setting_without_a_sentence_is_listed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Own:
        window: int = setting(10, "Number of rounds used.", least=1)
        nameless: int = 3

    monkeypatch.setattr(catalog, "resolve", lambda kind, name: Own)
    window, nameless = settings_of("attacks", "own")
    assert (window.accepts, window.sentence) == ("a whole number of at least 1", "Number of rounds used.")
    assert (nameless.accepts, nameless.sentence) == ("a whole number", "")


def test_every_setting_has_a_sentence() -> None:
    for kind in WITH_SETTINGS:
        for name in catalog.table(kind):
            for row in settings_of(kind, name):
                assert row.sentence.endswith("."), (name, row.name)
                assert row.sentence[0].isupper() or row.sentence[0] in '"[', (name, row.name)


def test_every_sentence_about_data_sets_belongs_to_a_setting() -> None:
    rows = {name: [row.name for row in settings_of("datasets", name)] for name in catalog.table("datasets")}
    own = {f"{name}.{key}" for name, keys in rows.items() for key in keys}
    plain = {key.partition(".")[2] for key in own if key not in DATA_SETTINGS}
    assert {key for key in DATA_SETTINGS if "." in key} <= own
    assert {key for key in DATA_SETTINGS if "." not in key} == plain


def test_show_explains_settings_as_a_plan_writes_them(fedxray: Command) -> None:
    said = fedxray("show", "awa").out
    assert "  box: true or false (default true)\n      Whether every step is projected" in said
    assert "  q_conv: a number from 1e-06 to 1e+12\n      Weight of the last convolution" in said
    assert "(default [0.9, 0.999])" in fedxray("show", "local-model-oracle").out
    assert "  scale: a number from 0 to 1e+12 (required)\n" in fedxray("show", "gaussian-noise").out
    assert "  head_bias: true or false (default false)\n" in fedxray("show", "resnet18").out
    assert "  labels: the name of an attack, or a table with its name (default labels-idlg)" in said


def test_show_names_the_grants_of_inner_attacks(fedxray: Command) -> None:
    said = fedxray("show", "attribute-from-model").out
    assert "plan says otherwise: public-attributes; recipe (for last-returned)\n" in said
    assert "plan says otherwise: none\n" in fedxray("show", "global-model").out
    assert "Hands over how clients train" in fedxray("show", "recipe").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "atacks"], "attacks"),
        (["show", "atribute-from-model"], "Did you mean attribute-from-model"),
        (["audit", "nowhere.toml"], "no file at nowhere.toml"),
        (["audit"], "Missing argument"),
        (["audit", "x.toml", "--enginee", "inline"], "No such option"),
        (["report", "nowhere"], "results of an audit"),
        (["purge", "nowhere", "--yes"], "the folder of an audit"),
        (["data", "get", "digit"], "digits"),
        (["train-prior", "--data", "digits"], "Missing option"),
        (["train-prior", "--out", "p"], "either --data or --plan"),
        (["train-prior", "--data", "digits", "--plan", "x.toml", "--out", "p"], "either --data or --plan"),
        (["train-prior", "--plan", "x.toml", "--size", "8", "--out", "p"], "The plan sets both"),
        (["train-prior", "--data", "clinic", "--out", "p"], "images with classes"),
        (["train-prior", "--data", "digits", "--kind", "vae", "--out", "p"], "Known names: ddpm, dit, gan"),
        (["train-prior", "--data", "digits", "--width", "9", "--out", "p"], "a multiple of 8"),
    ],
)
def test_a_user_s_mistake_is_one_clean_message_and_exit_2(fedxray: Command, arguments: list[str], words: str) -> None:
    ended = fedxray(*arguments)
    assert ended.code == 2 and words in " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--engine", "proceses"], "processes"),
        (["--engine", "inline", "--jobs", "2"], "--jobs"),
        (["--jobs", "0"], "--jobs"),
        (["--budget", "10"], "--budget: expected a time such as 90s, 10m or 1h30m"),
        (["--engine", "inline", "--budget", "1s"], "--budget: expected at least 2s"),
        (["--address", "x"], "--address: expected none, got x. It needs --engine ray."),
        (["--engine", "ray", "--address", "ray://x:1"], "HOST:PORT of a Ray cluster, or auto, got ray://x:1"),
        (["--out", "tiny.toml"], "a file"),
        (["--out", "tiny.toml/deep"], "a file"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(
    fedxray: Command, plan: Path, options: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedxray.audit.run.preflight.SECONDS_PER_CASE", 1.0)
    ended = fedxray("audit", plan, *options)
    assert ended.code == 2 and words in ended.err
    assert [path.name for path in plan.parent.iterdir()] == ["tiny.toml"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (tiny(attack=[{"name": "attribute-from-model", "grants": []}]), "public-attributes"),
        (tiny(attack=[{"name": "labels-idlg", "role": "curious-client"}]), "role"),
        (tiny(attack=[{"name": "attribute-from-model", "targets": [9]}]), "client 9, which does not exist"),
        (tiny(data={"clients": 4, "partition": "iid", "records": 10, "name": "diabetes"}), "data.records"),
        (tiny(data={"name": "digits", "clients": 9999}) | {"model": {"name": "mlp"}}, "9999"),
        (tiny(model=None) | {"model": {"factory": "no_such_module_here:build"}}, "no_such_module_here"),
    ],
)
def test_what_cannot_work_is_found_before_starting(
    fedxray: Command, tmp_path: Path, document: dict[str, Any], words: str
) -> None:
    document["data"] = {
        key: value
        for key, value in document["data"].items()
        if document["data"]["name"] != "digits" or key in ("name", "clients")
    }
    ended = fedxray("audit", write_toml(tmp_path / "p.toml", document))
    assert ended.code == 2 and words in ended.err
    assert not (tmp_path / "fedxray-out").exists()


def test_an_audit_from_plan_to_purge(fedxray: Command, plan: Path, tmp_path: Path) -> None:
    dry = fedxray("audit", plan, "--dry-run")
    words = [line.split()[0] for line in dry.out.splitlines() if not line.startswith(" ")]
    assert dry.code == 0 and words == [
        *("data", "learns", "secret", "numbers", "categories", "clients", "public"),
        *("runs", "cases", "time", "disk", "settles"),
    ]
    assert re.search(r"^ +attribute-from-model: \d+ cases, \d+ s$", dry.out, re.MULTILINE)
    assert not (tmp_path / "fedxray-out").exists()

    ended = fedxray("audit", plan, "--engine", "inline", "--resume")
    folder = Path("fedxray-out", "tiny")
    assert f"fedxray: nothing to resume in {folder}: starting anew\n" in ended.err
    assert ended.code == 0 and "accuracy" in ended.out and str(folder / "report.html") in ended.out
    assert (folder / "plan.toml").read_bytes() == plan.read_bytes()
    results = json.loads((folder / "results.json").read_bytes())
    assert [case["status"] for case in results["cases"]] == ["ok", "ok"]
    assert results["plan"]["name"] == "tiny" and results["plan_file"] == plan.name

    again = fedxray("audit", plan, "--engine", "inline")
    assert again.code == 2 and "--resume" in again.err
    other = write_toml(tmp_path / "other.toml", tiny(federation={"rounds": 4}))
    assert "whose plan differs in federation" in fedxray("audit", other, "--out", folder, "--resume").err
    resumed = fedxray("audit", plan, "--engine", "inline", "--resume", "--quiet")
    assert (resumed.code, resumed.out) == (0, "") and "nothing to resume" not in resumed.err
    assert json.loads((folder / "results.json").read_bytes()) == results, "times too: nothing was done again"

    (folder / "report.html").unlink()
    assert fedxray("report", folder).code == 0 and (folder / "report.html").is_file()
    assert fedxray("purge", folder, "--yes").code == 0
    assert not (folder / "private").exists() and (folder / "results.json").is_file()
    assert "There is no" in fedxray("purge", folder, "--yes").out
    assert fedxray("report", folder).code == 0, "a report needs nothing private"


def test_an_audit_of_own_data_prints_how_it_was_read(fedxray: Command, tmp_path: Path) -> None:
    rows = [f"{'sn'[row % 2]},{20 + row * 7 % 61},d{row % 40},{row % 3 % 2},{row * row % 97}.5" for row in range(120)]
    (tmp_path / "v.csv").write_text("\n".join(["site,age,admitted,diabetic,cost", *rows]))
    data = {"path": "v.csv", "target": "cost", "sensitive": "diabetic", "clients": 2}
    document = tiny(data=None) | {"data": data | {"partition": "by-column", "column": "site"}}
    plan = write_toml(tmp_path / "v.toml", document)
    dry = fedxray("audit", plan, "--dry-run")
    assert dry.out.splitlines()[:10] == [
        "data        v.csv, 120 records",
        "learns      cost (a number)",
        "secret      diabetic (0, 1)",
        "numbers     age",
        "categories  site (2), admitted (40!)",
        "            ! has few records for each value; if it is a number, a date or an identifier, "
        "correct it or drop it",
        "clients     2 (with seed 0):",
        "            0 n: trains on 48, 5 held out",
        "            1 s: trains on 49, 6 held out",
        "public      12 records that belong to no client",
    ]
    assert fedxray("audit", plan, "--out", "quiet", "--engine", "inline", "--quiet").err == ""
    ended = fedxray("audit", plan, "--out", "out", "--engine", "inline")
    assert ended.code == 0 and ended.err.splitlines() == [*dry.out.splitlines()[:10], "fedxray: running 1 seed"]
    cases = json.loads(Path("out", "results.json").read_bytes())["cases"]
    assert [(case["client"], case["ledger"]["target_name"]) for case in cases] == [(0, "n"), (1, "s")]
    assert not Path("out", "gallery.json").exists(), "what was guessed of own records is private"
    kept = json.loads(Path("out", "private", "gallery.json").read_bytes())
    assert [len(one["records"]) for one in kept] == [8, 8]
    shared = [one for one in Path("out").rglob("*") if one.is_file() and "private" not in one.parts]
    assert {one.name for one in shared} >= {"report.html", "report.md", "results.json"}
    assert not any("values of the first records" in one.read_text() for one in shared)
    assert fedxray("report", "out", "--show-private").code == 0
    assert "values of the first records" in Path("out", "private", "report.html").read_text()


@pytest.mark.parametrize(("answer", "gone"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_purge_asks(fedxray: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, gone: bool) -> None:
    import io

    with open_store(tmp_path / "out", "digest"):
        pass
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    assert fedxray("purge", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "private").exists() is not gone


def test_purge_without_an_answer_deletes_nothing(
    fedxray: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    with open_store(tmp_path / "out", "digest"):
        pass
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    ended = fedxray("purge", tmp_path / "out")
    assert ended.code == 2 and "--yes" in ended.err and (tmp_path / "out" / "private").is_dir()


def test_a_failed_case_is_reported_and_ends_with_4(
    fedxray: Command, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedxray.audit.run import execute

    def broken(*_: object) -> dict[str, Any]:
        raise ZeroDivisionError("somewhere deep")

    with monkeypatch.context() as patch:
        patch.setattr(execute, "_described", broken)
        ended = fedxray("audit", plan, "--engine", "inline", "--out", "out")
    assert ended.code == 4 and "2 of 2 cases failed" in ended.err
    cases = json.loads(Path("out", "results.json").read_bytes())["cases"]
    assert {case["status"] for case in cases} == {"failed"}
    assert all(re.fullmatch(r"ZeroDivisionError in test_cli\.py, line \d+", case["reason"]) for case in cases)
    line = failure_line(cases)
    assert f"fedxray: {line}\n" in ended.err and f"{line}\n" in Path("out", "log").read_text()
    assert html.escape(str(line)) in Path("out", "report.html").read_text() and "2 of 2 cases failed" in ended.out
    fixed = fedxray("audit", plan, "--engine", "inline", "--out", "out", "--resume")
    assert fixed.code == 0, "a failed case is tried again"


def test_too_little_room_is_refused_before_starting(
    fedxray: Command, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10))
    ended = fedxray("audit", plan)
    assert ended.code == 2 and "of free space" in ended.err and "record fewer rounds" in ended.err
    assert not (tmp_path / "fedxray-out").exists()


def test_what_a_plan_will_import_is_printed(fedxray: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "network_beside_the_plan.py").write_text(
        "from torch import nn\n"
        "def build(space):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(space.shape[0], space.outputs))\n"
    )
    document = tiny(model=None) | {"model": {"factory": "network_beside_the_plan:build"}}
    ended = fedxray("audit", write_toml(tmp_path / "own.toml", document), "--engine", "inline")
    assert ended.code == 0 and "this plan imports network_beside_the_plan:build" in ended.err


def command(*arguments: object, folder: Path) -> subprocess.Popen[str]:
    surroundings = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    # A shell makes background processes ignore SIGINT, and children inherit that: handle it again.
    handled = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv[0] = 'fedxray'; "
    code = handled + "from fedxray.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=folder, env=surroundings, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


@pytest.mark.parametrize("engine", ["processes", pytest.param("ray", marks=pytest.mark.slow)])
def test_ctrl_c_keeps_what_is_done_and_exits_130(
    tmp_path: Path, fedxray: Command, engine: str, extra: Callable[[str], ModuleType]
) -> None:
    if engine == "ray":
        extra("ray")
    many = [
        {"name": "attribute-from-model", "label": f"a{index}", "grid": 2 + index, "targets": [0]} for index in range(30)
    ]
    plan = write_toml(tmp_path / "many.toml", tiny(attack=many))
    process = command("audit", plan, "--out", "out", "--jobs", 1, "--engine", engine, folder=tmp_path)
    pause = threading.Event()
    for _ in range(20_000):
        if case_entries(tmp_path / "out") or process.poll() is not None:
            break
        pause.wait(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "--resume" in said and "Traceback" not in said
    kept = case_entries(tmp_path / "out")
    for name in kept:
        assert Store(tmp_path / "out").read_case(name)["status"] == "ok"
    assert 1 <= len(kept) < 30 and not (tmp_path / "out" / "results.json").exists()
    assert fedxray("audit", plan, "--out", "out", "--engine", "inline", "--resume").code == 0
    now = case_entries(tmp_path / "out")
    assert len(now) == 30 and kept.items() <= now.items(), "nothing was done twice"


@pytest.mark.parametrize(
    ("limit", "width", "engine"),
    [
        (3000, 4, "inline"),
        (200_000, 2048, "inline"),  # only the model is too large, every other file would fit
        (200_000, 2048, "processes"),
    ],
)
def test_no_space_left_ends_with_a_clear_message_and_can_be_resumed(
    tmp_path: Path, fedxray: Command, limit: int, width: int, engine: str
) -> None:
    code = (
        "import resource, sys\nfrom fedxray import cli\n"
        "if __name__ == '__main__':\n"
        f"    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))\n    cli.main()\n"
    )
    (tmp_path / "limited.py").write_text(code)
    plan = write_toml(tmp_path / "tiny.toml", tiny(model={"name": "mlp", "hidden": [width]}))
    ended = subprocess.run(
        [sys.executable, "limited.py", "audit", plan, "--engine", engine, "--out", "out"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert "no space left for tensors" in ended.stderr and "--resume" in ended.stderr
    assert "Traceback" not in ended.stderr and not ended.stdout
    left = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert left <= {".lock", "audit.json", "plan.toml", "log"}, "no run, no results, nothing half-written"
    assert fedxray("audit", plan, "--engine", "inline", "--out", "out", "--resume").code == 0


def test_a_closed_pipe_is_no_error() -> None:
    code = (
        "import sys\nfrom fedxray import cli\nfrom fedxray.cli import show\n"
        "show.lines_of = lambda kind: ['x' * 100] * 10000\n"
        "sys.argv = ['fedxray', 'list', 'models']\ncli.main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), said) == (0, "")


def test_the_bar_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedxray.cli.audit import progress_bar

    for terminal, quiet in ((False, False), (True, True), (True, False)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        with progress_bar(quiet) as progress:
            progress(3, 7, "a case [bold]")
        said = capsys.readouterr().err
        assert ("3/7" in said and "a case [bold]" in said) is (terminal and not quiet)


def test_the_bar_fits_80_columns_and_names_what_runs_without_identifiers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedxray.cli.audit import progress_bar, spoken

    label = "attribute-from-updates.server.gaussian-noise.aware.seed0.client3-e6fba81c99"
    words = "attribute-from-updates, gaussian-noise, aware, seed 0, client 3"
    assert spoken(label) == words and spoken("starting") == "starting"
    assert spoken("planted.dlf.server.seed1.everyone-0123456789") == "planted, dlf, seed 1, everyone"
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar(quiet=False) as progress:
        progress(30, 120, label)
    said = capsys.readouterr().err
    assert all(len(line) <= 80 for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "\n", said).splitlines())
    assert " 25 %" in said and "30/120" in said and "attribute-from-updates, gauss" in said and "e6fba" not in said


LABEL = "attribute-from-updates-clinic-north.server.gaussian-noise.unaware.seed0.client3-e6fba81c99"


@pytest.mark.parametrize(("count", "left"), [("21/120", "15 s left"), ("1234/5678", "12 min left"), ("9/80", "")])
@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_numbers_of_the_bar_stay_whole_on_one_line(
    width: int, left: str, count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    audit = importlib.import_module("fedxray.cli.audit")  # in the package this is the command
    monkeypatch.setattr(audit, "time_left", lambda progress: left)
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    done, total = map(int, count.split("/"))
    with audit.progress_bar(quiet=False, console=console) as meter:
        assert isinstance(meter, audit.BarProgress)
        for stage in ("", "3 of at most 20 seeds", "power checks after 3 of at most 20 seeds"):
            meter.stage(stage)
            meter.weigh({})
            for label in (LABEL, "short"):
                meter(done, total, label)
                frame = io.StringIO()
                Console(file=frame, width=width).print(meter.bar.get_renderable())
                (line,) = frame.getvalue().splitlines()
                numbers = " ".join(part for part in (f"{100 * done / total:3.0f} %", count, left) if part)
                assert numbers in line and len(line) <= width
                before, after = line.split(numbers)
                assert "…" not in before and 4 <= len(before) - 1 <= 12
                after = after.strip()
                named = f"{'for ' if left else ''}{stage}: {audit.spoken(label)}" if stage else audit.spoken(label)
                assert after == named or (after.endswith("…") and named.startswith(after[:-1].rstrip()))
                assert width < 80 or not stage or stage[:12] in after


def test_the_bar_names_its_stage_and_what_every_look_found(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from fedxray.audit.run.audit import StagedProgress
    from fedxray.cli.audit import BarProgress, progress_bar

    out = io.StringIO()
    note = "tiny, 3 seeds: more seeds could settle 4 of 8 rows [bold], continuing with 5 (at most 20)"
    with progress_bar(quiet=False, console=Console(file=out, width=80, force_terminal=True)) as meter:
        assert isinstance(meter, BarProgress) and isinstance(meter, StagedProgress)
        meter.audit("audit 2 of 3")
        meter.stage("5 of at most 20 seeds")
        meter.weigh({"case": 1.0})
        (task,) = meter.bar.tasks
        assert (task.description, task.fields["stage"]) == ("starting", "audit 2 of 3, 5 of at most 20 seeds")
        meter.note(note)
        meter.audit("audit 3 of 3")
        meter.weigh({"case": 1.0})
        assert task.fields["stage"] == "audit 3 of 3"
    assert f"fedxray: {note}\n" in out.getvalue()
    with progress_bar(quiet=False) as lines:
        assert isinstance(lines, StagedProgress)
        lines.note(note)
    assert capsys.readouterr().err == f"fedxray: {note}\n"


def test_without_a_terminal_a_line_begins_each_stage_and_one_follows_every_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from fedxray.cli.audit import NotedProgress

    times = iter([0.0, 0.0, 30.0, 61.0, 61.0, 61.0, 90.0])
    lines = NotedProgress(clock=lambda: next(times))
    lines.stage("3 of at most 20 seeds")
    for done in range(3):
        lines(done + 1, 40, "case")
    assert capsys.readouterr().err.splitlines() == [
        "fedxray: running 3 of at most 20 seeds",
        "fedxray: 3 of at most 20 seeds: 2/40 after 61 s",
    ]


def test_the_bar_shows_the_share_of_the_work_that_is_done() -> None:
    from rich.progress import Progress

    from fedxray.audit.run.audit import WeightedProgress
    from fedxray.audit.workers.engines import StartProgress
    from fedxray.cli.audit import BarProgress, time_left

    bar, now = Progress(disable=True), [0.0]
    meter = BarProgress(bar, bar.add_task("starting", total=None, count=""), clock=lambda: now[0])
    assert isinstance(meter, WeightedProgress) and isinstance(meter, StartProgress) and time_left(meter) == ""
    meter.weigh({"short": 1.0, "long": 9.0})
    meter.start("short")
    now[0] = 1.0
    meter(1, 2, "short")
    (line,) = bar.tasks
    assert (line.percentage, line.fields["count"]) == (pytest.approx(10), "1/2") and time_left(meter) == "9 s left"
    meter.start("long")
    assert line.description == "long"
    now[0] = 10.0
    meter(2, 2, "long")
    assert line.finished and line.percentage == 100
    meter.weigh({"planted": 2.0})
    assert line.percentage == 0 and time_left(meter) == "2 s left"


def test_a_dry_run_counts_the_power_checks_that_a_verdict_may_wait_for(fedxray: Command, tmp_path: Path) -> None:
    plan = write_toml(tmp_path / "more.toml", tiny(seeds=[0, 1, 2]))
    assert re.search(r"^power +up to \d+ s more", fedxray("audit", plan, "--dry-run").out, re.MULTILINE)


def test_what_was_cut_off_is_reported_and_exit_4(fedxray: Command, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: Iterator[float] = iter([0.0, 1.0, 2.0, *[1e9] * 100])
    monkeypatch.setattr("fedxray.audit.run.audit.monotonic", lambda: next(ticks))
    ended = fedxray("audit", plan, "--engine", "inline", "--budget", "1h")
    assert ended.code == 4 and "1 of 2 cases cut off by --budget; continue with --resume" in ended.err
    monkeypatch.setattr("fedxray.audit.run.audit.monotonic", lambda: 0.0)
    assert fedxray("audit", plan, "--engine", "inline", "--resume", "--quiet").code == 0


def test_figures_are_written_in_the_formats_asked_for(fedxray: Command, plan: Path) -> None:
    folder = Path("fedxray-out", "tiny")
    assert fedxray("audit", plan, "--engine", "inline", "--quiet").code == 0
    assert fedxray("report", folder, "--figures", "png, pdf").code == 0
    assert {one.suffix for one in (folder / "figures").iterdir()} == {".svg", ".pdf", ".png"}
    refused = fedxray("report", folder, "--figures", "jpg")
    assert refused.code == 2 and "--figures" in refused.err and "jpg" in refused.err


def test_a_dry_run_lists_what_a_budget_leaves_out(
    fedxray: Command, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedxray.audit.run.preflight.SECONDS_PER_CASE", 1.0)
    ended = fedxray("audit", plan, "--dry-run", "--engine", "inline", "--budget", "2s")
    assert ended.code == 0 and "left out    attribute-from-model: 1 of 2 clients" in ended.out


def test_an_interrupt_before_the_work_begins_is_130_too(
    fedxray: Command, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedxray.audit.plan.read_plan", interrupted)
    assert fedxray("audit", plan).code == 130
