"""A user's attack runs apart: of thirteen ways to the answer eleven lead nowhere, and two are documented."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedxray import lookup
from fedxray.attacks.floors import Majority
from fedxray.attacks.local_model.active import LocalModelSendBack
from fedxray.audit.own_code import apart, forkserver
from fedxray.audit.own_code.apart import OutOfTime, OwnCodeError, OwnDivergence
from fedxray.audit.plan import make_plan
from fedxray.audit.run import comparisons, execute
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.execute import execute_case, execute_run
from fedxray.audit.run.grid import expand
from fedxray.audit.run.preflight import preflight
from fedxray.audit.run.prepare import prepare
from fedxray.audit.run.store import open_store
from fedxray.data.dataset import Records
from fedxray.errors import BadInput, FedxrayError
from fedxray.federation.round_loop import simulate
from fedxray.files import room_for
from fedxray.metrics import records as formulas
from fedxray.params import weighted_mean
from tests.audit import cheats
from tests.audit.cheats import WAYS
from tests.audit.plans import tiny, write_toml
from tests.federation.runs import federation

DOCS = Path(__file__).parents[3] / "docs" / "security.md"
BEYOND = {"files", "plan"}  # a process may read what its user may read
# Ways that lead to the answer where the attack runs beside the truth; grants and readers stop the others there too.
IN_PROCESS = {"gc", "frames", "scorer", "environment", "threads", "subclass tricks"}


@pytest.fixture(autouse=True)
def unchanged(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whatever a cheat changes in this process is undone."""
    monkeypatch.setattr(formulas, "auc", formulas.auc)
    monkeypatch.setenv("FEDXRAY_CHEATED", "")
    execute._open_run.clear()
    yield
    torch.set_default_dtype(torch.float32)


def audited(folder: Path, *attacks: dict[str, Any], until: float = math.inf) -> dict[str, dict[str, Any]]:
    """The first case of every attack, by its label; `until` is when the time is over."""
    document = tiny(attack=[{"targets": [0], **attack} for attack in attacks], data={"holdout": 0.3})
    plan, found = make_plan(document, folder), {}
    with open_store(folder / "out", "digest") as store:
        write_toml(store.folder / "plan.toml", document)
        runs, cases = expand(plan)
        execute_run(plan, store, runs[0])
        for case in cases:
            execute_case(plan, replace(store, until=until), case)
            found[case.attack] = store.read_case(case.id)
    return found


def cheating(way: str, folder: Path) -> dict[str, Any]:
    return {"factory": "tests.audit.cheats:cheat", "way": way, "label": "cheat", "folder": str(folder / "out")}


HONEST = {"name": "membership-loss"}
TIMES = ("seconds", "cpu_seconds")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The honest case of an audit without a cheat."""
    execute._open_run.clear()
    return audited(tmp_path_factory.mktemp("alone"), HONEST)["membership-loss"]


@pytest.mark.parametrize("way", WAYS)
def test_a_way_to_the_answer(way: str, tmp_path: Path, alone: dict[str, Any]) -> None:
    found = audited(tmp_path, cheating(way, tmp_path), HONEST)
    cheat, honest = found["cheat"], found["membership-loss"]
    assert cheat["status"] == "ok", cheat
    assert (cheat["scores"]["auc"] > 0.95) == (way == "plan"), cheat["scores"]
    assert way != "memory" or abs(cheat["scores"]["auc"] - 0.5) < 0.2, cheat["scores"]
    for part in ("status", "scores", "floors", "controls", "exposed"):
        assert honest[part] == alone[part], part
    assert os.environ["FEDXRAY_CHEATED"] == "" and torch.get_default_dtype() == torch.float32
    assert formulas.auc.__name__ == "auc"


@pytest.mark.parametrize("way", sorted(IN_PROCESS))
def test_the_same_way_beside_the_truth(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is one that finds: it is the other process that stops it."""
    monkeypatch.setattr(comparisons, "origin_of", lambda part, attack: "")
    assert audited(tmp_path, cheating(way, tmp_path))["cheat"]["scores"]["auc"] == 1.0


def test_the_search_of_memory_finds_records_that_are_there() -> None:
    """A process that ran other tests holds any record any number of times, so these are new, and half are held."""
    records = Records(torch.rand(10, 8, generator=torch.Generator().manual_seed(71)), torch.zeros(10))
    held = [records.x[:5].clone() for _ in range(50)]
    view: Any = SimpleNamespace(grants=SimpleNamespace(target_records=records))
    counts = cheats.by_memory(view, None, Path())  # type: ignore[arg-type]
    assert counts is not None and len(held) == 50 and counts[:5].min() >= 50 + counts[5:].min() - 10 > counts[5:].max()


def test_the_documentation_lists_every_way() -> None:
    lines = DOCS.read_text().splitlines()
    for way in WAYS:
        row = next(line for line in lines if line.startswith(f"| {way} |"))
        assert ("not prevented" in row) == (way in BEYOND), row


@pytest.mark.parametrize(
    ("way", "status", "words"),
    [
        ("raise", "failed", r"^ZeroDivisionError in cheats\.py, line \d+$"),
        ("refuse", "refused", r"^Refused in cheats\.py, line \d+$"),
        ("kill", "failed", "process was killed by SIGKILL"),
        ("leave", "failed", "process ended with code 3 before it gave an answer"),
        ("nan", "diverged", "the guess holds values that are not finite"),
        ("nonsense", "failed", "AttributeError"),
    ],
)
def test_how_an_attack_apart_can_end(way: str, status: str, words: str, tmp_path: Path) -> None:
    ended = {"factory": "tests.audit.cheats:ending", "way": way, "label": "own"}
    found = audited(tmp_path, ended, HONEST)
    assert found["own"]["status"] == status and re.search(words, found["own"]["reason"]), found["own"]
    assert way != "raise" or "by nothing" in found["own"]["traceback"]
    assert found["membership-loss"]["status"] == "ok"


HANGS = {"factory": "tests.audit.cheats:ending", "way": "hang", "label": "own"}


def test_an_attack_that_hangs_is_stopped_and_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(apart.VARIABLE, "0.5")
    found = audited(tmp_path, HANGS, HONEST)
    assert found["own"]["status"] == "failed" and "took more than 0.5 s" in found["own"]["reason"]
    assert found["membership-loss"]["status"] == "ok"


def test_an_attack_that_hangs_is_cut_off_when_the_budget_is_over(tmp_path: Path) -> None:
    found = audited(tmp_path, HANGS, HONEST, until=0.0)
    assert found["own"]["status"] == "truncated" and "--budget" in found["own"]["reason"]


def test_an_attack_that_kills_the_server_of_its_process_has_failed_and_the_next_gets_another(tmp_path: Path) -> None:
    ended = {"factory": "tests.audit.cheats:ending", "way": "kill the server", "label": "own"}
    found = audited(tmp_path, ended, cheating("gc", tmp_path))
    assert found["own"]["status"] == "failed" and "ended before it gave an answer" in found["own"]["reason"]
    assert found["cheat"]["status"] == "ok"


@pytest.mark.parametrize(("way", "status"), [("stop the server", "ok"), ("stop the server and hang", "failed")])
def test_an_attack_that_stops_the_server_of_its_process_is_ended_with_it(
    way: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver, "GRACE", 1.0)
    monkeypatch.setenv(apart.VARIABLE, "4" if status == "failed" else "300")
    server = forkserver._running()
    ended = {"factory": "tests.audit.cheats:ending", "way": way, "label": "own"}
    found = audited(tmp_path, ended)["own"]
    assert found["status"] == status, found
    assert status == "ok" or "took more than 4 s" in found["reason"]
    assert server.process.returncode == -signal.SIGKILL


def test_a_server_that_is_stopped_is_killed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forkserver, "GRACE", 0.5)
    server = forkserver.Server()
    server.process.send_signal(signal.SIGSTOP)
    server.stop()
    assert server.process.returncode == -signal.SIGKILL


def test_an_attack_gets_its_process_in_an_audit_with_many_open_files_and_blocked_signals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this system allows too few open files")
    monkeypatch.setattr(forkserver, "_server", None)
    monkeypatch.setenv(apart.VARIABLE, "60")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        with contextlib.ExitStack() as opened:
            for _ in range(1024):
                opened.enter_context(open(os.devnull))
            found = audited(tmp_path, {"factory": "tests.audit.cheats:own_loss", "label": "own"})
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found["own"]["status"] == "ok", found
    assert forkserver._server is not None and forkserver._server.process.poll() is None, "it has not failed"


def test_a_module_in_the_current_folder_stands_for_none_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("open('executed', 'w').close()\nraise ImportError\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(forkserver, "_server", None)
    found = audited(tmp_path / "plan", {"factory": "tests.audit.cheats:own_loss", "label": "own"})
    assert found["own"]["status"] == "ok" and not (tmp_path / "executed").exists(), found


def test_an_own_attack_gives_the_same_with_every_engine(tmp_path: Path) -> None:
    attacks = [{"factory": "tests.audit.cheats:own_loss", "label": "own"}, HONEST]
    plan, found = make_plan(tiny(attack=attacks, data={"holdout": 0.3}), tmp_path), []
    for engine in ("inline", "processes"):
        document = run_audit(plan, tmp_path / engine, engine=engine).document
        cases = [{name: case[name] for name in case if name not in TIMES} for case in document["cases"]]
        assert {case["status"] for case in cases} == {"ok"}
        found.append({**document, "cases": cases})
    assert found[0] == found[1]
    own, ours = ([case["scores"] for case in cases if case["attack"] == name] for name in ("own", HONEST["name"]))
    assert own == ours


def test_a_time_limit_must_be_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(apart.VARIABLE, "soon")
    assert apart.VARIABLE in audited(tmp_path, HANGS)["own"]["reason"]


def is_free(path: Path) -> bool:
    """Whether no process holds this lock, soon."""
    with path.open("r+") as stream:
        for _ in range(100):
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.05)
            else:
                return True
    return False


@pytest.mark.parametrize("way", ["stay", "stay apart"])
def test_what_an_attack_starts_ends_with_it(way: str, tmp_path: Path) -> None:
    ended = {"factory": "tests.audit.cheats:ending", "way": way, "label": "own", "folder": str(tmp_path)}
    assert audited(tmp_path, ended)["own"]["status"] == "ok"
    assert is_free(tmp_path / "held")


@pytest.mark.parametrize("alone", [False, True])
def test_what_a_simulation_starts_ends_with_it_or_holds_no_lock(alone: bool, tmp_path: Path) -> None:
    with open_store(tmp_path / "out", "digest"):
        apart.do_apart(partial(cheats.stay, tmp_path / "held", apart=alone))
    with open_store(tmp_path / "out", "digest", resume=True):
        pass
    if alone:  # such a process is not found here
        os.kill(int((tmp_path / "held").read_text()), signal.SIGKILL)
    assert is_free(tmp_path / "held")


def test_an_active_attack_apart_gives_the_same_to_the_bit(tmp_path: Path) -> None:
    """Its clients answer in the process that holds their records."""
    active = {"role": "active-server", "label": "active"}
    own = audited(tmp_path / "own", active | {"factory": "tests.audit.cheats:send_back"})["active"]
    execute._open_run.clear()
    settings = dict(LocalModelSendBack.small)
    built_in = audited(tmp_path / "ours", active | {"name": "local-model-send-back"} | settings)["active"]
    assert own["status"] == "ok" and own["rounds_spent"] == built_in["rounds_spent"] > 0
    assert [own[part] for part in ("scores", "floors", "controls")] == [
        built_in[part] for part in ("scores", "floors", "controls")
    ]


def test_without_a_way_to_fork_the_attack_runs_here_and_its_guess_is_plain_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "can_separate", lambda: False)
    assert audited(tmp_path, cheating("subclass tricks", tmp_path))["cheat"]["scores"]["auc"] < 0.95


def test_what_a_defence_keeps_of_a_simulation_is_gone_after_it(tmp_path: Path) -> None:
    """It is tried in one step wherever the run is prepared; the updates of the run stay with the run's own process."""
    cheats.KEPT.clear()
    plan = make_plan(tiny(defence=[{"factory": "tests.audit.cheats:curious", "label": "own"}]), tmp_path)
    with open_store(tmp_path / "out", "digest") as store:
        run = expand(plan)[0][0]
        execute_run(plan, store, run)
        assert store.has_run(run.id) and not cheats.KEPT
        prepare(plan, "own", 0)
        assert len(cheats.KEPT) == 1


def diverged() -> None:
    simulate(federation(recipe={"learning_rate": 1e30}, rounds=3))


def misused() -> None:
    weighted_mean([], [])


def without_space() -> None:
    with room_for("the run"):
        raise OSError(errno.ENOSPC, "full")


def lost() -> None:
    raise OSError("nowhere")


@pytest.mark.parametrize(
    ("work", "kind", "words"),
    [
        (diverged, OwnDivergence, "Lower"),
        (misused, OwnCodeError, r"^BadInput in test_apart\.py, line \d+\n"),
        (without_space, OwnCodeError, r"^NoSpaceError in test_apart\.py, line \d+\n"),
        (lost, OwnCodeError, r"^OSError in test_apart\.py, line \d+\n"),
    ],
)
def test_an_error_of_work_apart_is_raised_here(work: Callable[[], None], kind: type[Exception], words: str) -> None:
    """As the user's, whatever it claims to be: a disk that is full shows itself when this process writes."""
    with pytest.raises(FedxrayError, match=words) as raised:
        apart.do_apart(work)
    assert type(raised.value) is kind and any("Traceback" in note for note in raised.value.__notes__)


def test_an_error_that_a_process_forges_shows_none_of_its_words() -> None:
    forged = {"kind": "no space\x1b[31m", "place": " in row 7: Anna, line 1", "text": "Anna", "trace": "Anna"}
    error = apart._error_of(forged | {"parts": ["Anna"]})
    assert str(error) == "an error" and error.__notes__ == ["Anna"]
    assert type(apart._error_of({"kind": "NoSpaceError", "parts": ["the disk"]})) is OwnCodeError


def test_work_apart_that_leaves_is_reported() -> None:
    with pytest.raises(OwnCodeError, match="ended with code 7"):
        apart.do_apart(lambda: os._exit(7))
    apart.do_apart(lambda: None)


def test_work_apart_that_hangs_within_its_answer_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(pipe: Any, facts: Any) -> None:
        os.write(pipe.fileno(), b"12")
        time.sleep(600)

    monkeypatch.setattr(apart, "_send", half)
    with pytest.raises(OutOfTime):
        apart.do_apart(lambda: None, time.time() + 0.5)


def test_a_defence_whose_hooks_never_return_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDXRAY_FACTORY_SECONDS", "0.5")
    plan = make_plan(tiny(defence=[{"factory": "tests.audit.cheats:hanging", "label": "own"}]), tmp_path)
    with pytest.raises(BadInput, match=r"^defence own: .* within 0\.5 s, got no end.* FEDXRAY_FACTORY_SECONDS"):
        preflight(plan)


class Broken:
    """A stream that cannot be flushed."""

    def flush(self) -> None:
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [Broken(), None])
def test_work_apart_that_breaks_its_output_never_comes_back_here(stream: Any) -> None:
    def work() -> None:
        sys.stdout = sys.stderr = stream

    here = os.getpid()
    try:
        apart.do_apart(work)
    finally:
        if os.getpid() != here:
            os._exit(9)
    assert sys.stdout is not stream and sys.stderr is not stream


def test_much_output_of_an_attack_is_cut(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    own = {"factory": "tests.audit.cheats:printing", "way": "much", "label": "own"}
    assert audited(tmp_path, own)["own"]["status"] == "ok"
    shown = capfd.readouterr().err
    assert lookup.NOT_SHOWN in shown and 90 < shown.count("again") <= 10 * lookup.MOST_LINES


def defended(folder: Path, factory: str, **settings: Any) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The cases of an audit with an own defence, its checks included, all of which are scored in this process."""
    attacks: list[dict[str, Any]] = [
        {"name": "attribute-from-updates"},
        HONEST | {"role": "active-server", "label": "active"},
        HONEST,
    ]
    defence = {"factory": f"tests.audit.cheats:{factory}", "label": "own"} | settings
    document = tiny(attack=[{"targets": [0], **one} for one in attacks], data={"holdout": 0.3}, defence=[defence])
    cases = run_audit(make_plan(document, folder), folder / "out", engine="inline").document["cases"]
    assert {case["status"] for case in cases} == {"ok"}, cases
    return {(case["attack"], case["aware"]): case for case in cases}


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[Any, ...], dict[str, Any]]:
    return defended(tmp_path_factory.mktemp("calm"), "curious")


def test_a_defence_that_changes_the_scorer_as_it_describes_itself_changes_no_score(
    tmp_path: Path, calm: dict[tuple[Any, ...], dict[str, Any]]
) -> None:
    cases = defended(tmp_path, "patching")
    for name, case in cases.items():
        assert [case[part] for part in ("scores", "floors")] == [calm[name][part] for part in ("scores", "floors")]
        assert case["ledger"]["defence"] == "patches\ufffd[2J"
    assert (
        cases["attribute-from-updates", True]["ledger"]["adapts"]
        and not cases["membership-loss", True]["ledger"]["adapts"]
    )
    assert formulas.auc is not cheats.perfect


def test_a_defence_that_changes_the_scorer_in_hooks_reaches_only_cases_that_run_it(
    tmp_path: Path, calm: dict[tuple[Any, ...], dict[str, Any]]
) -> None:
    """The rounds of an active server run the defence beside the truth: not prevented, and documented."""
    for name, case in defended(tmp_path, "patching", in_hooks=True).items():
        reached = name[0] == "active"
        assert (case["scores"] == calm[name]["scores"]) != reached, name
    assert formulas.auc is not cheats.perfect


def test_answers_of_a_case_that_runs_an_own_defence_serve_no_other(tmp_path: Path) -> None:
    defence = {"factory": "tests.audit.cheats:patching", "label": "own"}
    plan = make_plan(tiny(attack=[{"name": "attribute-from-updates"}], defence=[defence]), tmp_path)
    with open_store(tmp_path / "out", "digest") as store:
        runs, cases = expand(plan)
        execute_run(plan, store, runs[0])
        floor = Majority()
        for case in sorted(cases, key=lambda case: not case.aware):
            context = execute.case_context(plan, store, case)[1]
            view = context.view(floor).without_messages()
            assert context.answers(view).load(floor, view) is None, case
            context.infer(floor, view, own=False)
            assert context.answers(view).load(floor, view) is not None, case
