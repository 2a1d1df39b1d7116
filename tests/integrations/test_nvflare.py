"""The NVFlare recorder: what it keeps of messages, and that no error of its own reaches the job."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare")

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.private.privacy_manager import Scope

from fedxray.errors import BadInput
from fedxray.federation.recording import writer as writing
from fedxray.federation.recording.reader import Recording, read_recording
from fedxray.files import NoSpaceError
from fedxray.integrations import nvflare as recorders
from fedxray.integrations.nvflare import Recorder, copied, record, whole_reply

JOB = Path(__file__).parent / "nvflare_job"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start every test as a process of its own would."""
    monkeypatch.setattr(recorders, "_held", recorders._Held())
    yield
    for writer in recorders._held.writers.values():
        writer.wait()


def context(direction: str, task: str = "task-1", process: str = "CJ", peer: str | None = None) -> FLContext:
    facts = FLContext()
    facts.set_prop(ReservedKey.IDENTITY_NAME, "site-1" if process == "CJ" else "server")
    facts.set_prop(FLContextKey.FILTER_DIRECTION, direction)
    facts.set_prop(FLContextKey.TASK_ID, task)
    facts.set_prop(FLContextKey.CURRENT_RUN, "run")
    facts.set_prop(FLContextKey.PROCESS_TYPE, process)
    if peer is not None:
        other = FLContext()
        other.set_prop(ReservedKey.IDENTITY_NAME, peer)
        facts.set_peer_context(other)
    return facts


def message(arrays: dict[str, Any], kind: str = DataKind.WEIGHTS, round: int = 0, **meta: Any) -> Shareable:
    shareable = DXO(kind, data=arrays, meta=meta).to_shareable()
    shareable.set_header("current_round", round)
    return shareable


def recorded(folder: Path) -> Recording:
    for writer in recorders._held.writers.values():
        writer.wait()
    return read_recording(folder)


MODEL = {"w": np.arange(4.0, dtype=np.float32), "b": np.float32(1.5)}


def exchange(folder: Path, reply: dict[str, Any], kind: str = DataKind.WEIGHTS, **meta: Any) -> Recording:
    """Let one model and its reply pass two recorders, as the Job API makes them."""
    Recorder(str(folder)).process(message(dict(MODEL)), context(FilterKey.IN))
    Recorder(str(folder)).process(message(reply, kind, **meta), context(FilterKey.OUT))
    return recorded(folder)


def test_a_model_and_its_reply_are_recorded(tmp_path: Path) -> None:
    meta = {
        "NUM_STEPS_CURRENT_ROUND": 6,
        "initial_metrics": {"loss": 0.5, "note": "text"},
        "filter_history": ["Cut", "Late"],
    }
    held = exchange(tmp_path / "held", {"w": MODEL["w"] + 1, "b": np.float32(2.0)}, **meta)
    (only,) = held.messages
    assert (only.what, only.node, only.run, only.round, only.examples) == ("train", "site-1", "run", 1, None)
    assert only.config == {"kind": "WEIGHTS", "steps": 6, "metric loss": 0.5}
    assert (only.inside, only.outside) == (["Late", "Cut"], None), "the nearest to the network first"
    assert only.reply is not None
    torch.testing.assert_close(held.arrays(only.reply)["w"], torch.tensor(MODEL["w"] + 1), rtol=0, atol=0)


def test_a_difference_is_added_and_what_is_left_out_stays(tmp_path: Path) -> None:
    held = exchange(tmp_path / "held", {"w": np.ones(4, dtype=np.float32)}, DataKind.WEIGHT_DIFF)
    (only,) = held.messages
    assert only.reply is not None and only.config["left_out"] == ["b"]
    arrays = held.arrays(only.reply)
    assert arrays["w"].tolist() == [1.0, 2.0, 3.0, 4.0] and float(arrays["b"]) == 1.5


def test_a_model_that_is_only_validated_is_no_round(tmp_path: Path) -> None:
    for task in ("validate", "train"):
        for direction in (FilterKey.IN, FilterKey.OUT):
            facts = context(direction, task)
            facts.set_prop(FLContextKey.TASK_NAME, task)
            metrics = DXO(DataKind.METRICS, data={"accuracy": 0.5}).to_shareable()
            back = metrics if (task, direction) == ("validate", FilterKey.OUT) else message(dict(MODEL))
            Recorder(str(tmp_path / "held")).process(back, facts)
    (only,) = recorded(tmp_path / "held").messages
    assert only.reply is not None and not recorders._held.sent


def test_a_folder_of_the_other_side_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    exchange(tmp_path / "held", dict(MODEL))
    for direction in (FilterKey.OUT, FilterKey.IN):
        facts = context(direction, process="SJ", peer="site-1")
        Recorder(str(tmp_path / "held")).process(message(dict(MODEL)), facts)
    assert len(recorded(tmp_path / "held").messages) == 1
    assert "the client records here, so the server does not" in caplog.text


def test_later_filters_do_not_change_the_copy(tmp_path: Path) -> None:
    reply = {"w": np.ones(4, dtype=np.float32), "b": np.float32(0)}
    sent = message({"w": np.zeros(4, dtype=np.float32), "b": np.float32(0)})
    Recorder(str(tmp_path / "held")).process(sent, context(FilterKey.IN))
    from_shareable(sent).data["w"] += 9
    passed = Recorder(str(tmp_path / "held")).process(message(reply), context(FilterKey.OUT))
    from_shareable(passed).data["w"] += 9
    held = recorded(tmp_path / "held")
    assert held.messages[0].reply is not None
    assert not held.arrays(held.messages[0].sent)["w"].any()
    assert held.arrays(held.messages[0].reply)["w"].tolist() == [1.0] * 4


def test_one_that_hears_events_records_what_leaves(tmp_path: Path) -> None:
    inner, outer = Recorder(str(tmp_path / "held")), Recorder(str(tmp_path / "held"))
    inner.process(message(dict(MODEL)), context(FilterKey.IN))
    trained = context(FilterKey.OUT)
    trained.set_prop(FLContextKey.TASK_RESULT, message({"w": MODEL["w"] + 1, "b": MODEL["b"]}))
    for one in (inner, outer):
        one.handle_event(EventType.BEFORE_TASK_RESULT_FILTER, trained)
    inner.process(message({"w": MODEL["w"] + 1, "b": MODEL["b"]}), context(FilterKey.OUT))
    left = context(FilterKey.OUT)
    left.set_prop(FLContextKey.TASK_RESULT, message({"w": MODEL["w"] + 5, "b": MODEL["b"]}, filter_history=["Late"]))
    for one in (inner, outer):
        one.handle_event(EventType.AFTER_TASK_RESULT_FILTER, left)
    outer.handle_event(EventType.END_RUN, left)
    held = recorded(tmp_path / "held")
    (only,) = held.messages
    assert only.reply is not None and (only.inside, only.outside) == (["Late"], [])
    assert held.arrays(only.reply)["w"].tolist() == [5.0, 6.0, 7.0, 8.0]
    assert only.config["filters_changed"] is True


def test_an_event_of_another_kind_or_folder_delays_nothing(tmp_path: Path) -> None:
    """A recorder that gets events without those of its task would otherwise wait for one that never comes."""
    recorder, other = Recorder(str(tmp_path / "held")), Recorder(str(tmp_path / "other"))
    for one in (recorder, other):
        one.handle_event(EventType.START_RUN, context(FilterKey.IN))
    recorder.process(message(dict(MODEL)), context(FilterKey.IN))
    other.handle_event(EventType.BEFORE_TASK_RESULT_FILTER, context(FilterKey.OUT))
    recorder.process(message(dict(MODEL)), context(FilterKey.OUT))
    assert len(recorded(tmp_path / "held").messages) == 1


@pytest.mark.parametrize(("change", "changed"), [(0.0, False), (1e-8, False), (1e-3, True)])
def test_filters_that_do_nothing_are_noted(tmp_path: Path, change: float, changed: bool) -> None:
    recorder, facts = Recorder(str(tmp_path / "held")), context(FilterKey.OUT)
    recorder.process(message(dict(MODEL)), context(FilterKey.IN))
    facts.set_prop(FLContextKey.TASK_RESULT, message({"w": MODEL["w"] + 1, "b": MODEL["b"]}))
    recorder.handle_event(EventType.BEFORE_TASK_RESULT_FILTER, facts)
    left = {"w": (MODEL["w"] + 1) * np.float32(1 + change), "b": MODEL["b"]}
    facts.set_prop(FLContextKey.TASK_RESULT, message(left, filter_history=["Cut"]))
    recorder.handle_event(EventType.AFTER_TASK_RESULT_FILTER, facts)
    (only,) = recorded(tmp_path / "held").messages
    assert only.config["filters_changed"] is changed and only.inside == ["Cut"]


def test_a_change_far_behind_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "BLOCK", 10)
    before = np.arange(105.0).reshape(21, 5)
    after = before.copy()
    assert recorders.same(("WEIGHTS", {"w": before}), ("WEIGHTS", {"w": after}))
    after[-1, -1] += 1
    assert not recorders.same(("WEIGHTS", {"w": before}), ("WEIGHTS", {"w": after}))
    assert not recorders.same(("WEIGHTS", {"w": before}), ("WEIGHTS", {"w": before.ravel()}))


class Change(Filter):  # type: ignore[misc, unused-ignore]
    """A filter that scales w; it leaves no trace in the message's history."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        data = from_shareable(shareable)
        data.data["w"] = data.data["w"] * np.float32(self.factor)
        return data.update_shareable(shareable)


class Encrypt(Change):  # type: ignore[misc, unused-ignore]
    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        data = from_shareable(shareable)
        data.data["w"] = object()
        return data.update_shareable(shareable)


class Runner:
    def __init__(self, chain: list[Any]) -> None:
        self.task_result_filters = {f"train{FilterKey.DELIMITER}{FilterKey.OUT}": chain}


def filtered(
    recorder: Recorder, site: list[Any], job: list[Any], trained: Shareable, task: str = "task-1"
) -> Shareable:
    """Run the filters of a site and a job as NVFlare does, with its events."""
    recorder.process(message(dict(MODEL)), context(FilterKey.IN, task))
    facts, scope = context(FilterKey.OUT, task), Scope()
    scope.task_result_filters[FilterKey.OUT] = site
    runner = Runner(job)
    for key, value in (("TASK_NAME", "train"), ("SCOPE_OBJECT", scope), ("RUNNER", runner), ("TASK_RESULT", trained)):
        facts.set_prop(getattr(FLContextKey, key), value)
    recorder.handle_event(EventType.BEFORE_TASK_RESULT_FILTER, facts)
    left = apply_filters("task_result_filters", trained, facts, runner.task_result_filters, "train", FilterKey.OUT)
    facts.set_prop(FLContextKey.TASK_RESULT, left)
    recorder.handle_event(EventType.AFTER_TASK_RESULT_FILTER, facts)
    return left


def test_every_single_filter_is_measured(tmp_path: Path) -> None:
    """Filters of the site, then of the job; the second task finds the probes of the first."""
    recorder = Recorder(str(tmp_path / "held"))
    site, job = [Change(1.0), recorder], [Change(0.5), Change(1 + 1e-8)]
    filters = list(job)
    for task in ("task-1", "task-2"):
        left = filtered(recorder, site, job, message(dict(MODEL)), task)
        assert from_shareable(left).data["w"].tolist() == (MODEL["w"] * np.float32(0.5)).tolist()
    assert [one for one in job if not isinstance(one, recorders.Probe)] == filters, "all stay, in order"
    assert (len(site), len(job)) == (4, 5)
    for only in recorded(tmp_path / "held").messages:
        assert only.inside == ["Change 3", "Change 2", "Change"] and only.outside == []
        assert only.config["filters_idle"] == ["Change", "Change 3"]


class InPlace(Change):  # type: ignore[misc, unused-ignore]
    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        from_shareable(shareable).data["w"][:] *= np.float32(self.factor)
        return shareable


class Anew(Change):  # type: ignore[misc, unused-ignore]
    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        data = from_shareable(shareable).data
        return message({"w": data["w"] * np.float32(self.factor), "b": data["b"]})


@pytest.mark.parametrize("kind", [InPlace, Anew])
def test_a_filter_that_writes_in_place_or_returns_another_message_is_measured(tmp_path: Path, kind: type) -> None:
    recorder = Recorder(str(tmp_path / "held"))
    arrays = {"w": MODEL["w"].copy(), "b": MODEL["b"]}
    filtered(recorder, [kind(0.5), kind(1.0)], [recorder], message(arrays))
    held = recorded(tmp_path / "held")
    (only,) = held.messages
    assert only.config["filters_idle"] == [f"{kind.__name__} 2"] and only.reply is not None
    assert held.arrays(only.reply)["w"].tolist() == (MODEL["w"] / 2).tolist()


def test_a_filter_that_fails_fails_as_without_us_and_the_next_task_is_recorded(tmp_path: Path) -> None:
    class Fails(Change):  # type: ignore[misc, unused-ignore]
        def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
            if fl_ctx.get_prop(FLContextKey.TASK_ID) == "task-1":
                raise RuntimeError("its own error")
            return shareable

    recorder, site = Recorder(str(tmp_path / "held")), [Change(0.5), Fails(1)]
    with pytest.raises(RuntimeError, match="its own error"):
        filtered(recorder, site, [], message(dict(MODEL)), "task-1")
    filtered(recorder, site, [], message(dict(MODEL)), "task-2")
    (only,) = recorded(tmp_path / "held").messages
    assert only.inside == ["Fails", "Change"] and only.config["filters_idle"] == ["Fails"]


def test_two_jobs_of_one_process_share_the_filters_of_the_site(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "held"))
    site = [Change(1.0), recorder]
    for task in ("task-1", "task-2"):
        filtered(recorder, site, [Change(0.5)], message(dict(MODEL)), task)
    for only in recorded(tmp_path / "held").messages:
        assert only.inside == ["Change 2", "Change"] and only.config["filters_idle"] == ["Change"]


def test_filters_that_are_no_list_are_measured_together(tmp_path: Path) -> None:
    """Of a later NVFlare: a part of the filters alone would pass for all of them."""
    recorder: Any = Recorder(str(tmp_path / "held"))
    site: Any = (Change(0.5),)
    left = filtered(recorder, site, [recorder, Change(1.0)], message(dict(MODEL), filter_history=["One", "Two"]))
    (only,) = recorded(tmp_path / "held").messages
    assert from_shareable(left).data["w"].tolist() == (MODEL["w"] / 2).tolist()
    assert only.inside == ["Two", "One"] and only.config["filters_changed"] is True


def test_without_filters_there_are_no_probes(tmp_path: Path) -> None:
    """A filter makes NVFlare fetch what an external trainer holds."""
    recorder, site = Recorder(str(tmp_path / "held")), list[Any]()
    filtered(recorder, site, [], message(dict(MODEL)))
    assert site == [] and len(recorded(tmp_path / "held").messages) == 1


def test_tasks_at_the_same_time_are_kept_apart(tmp_path: Path) -> None:
    recorder, site, faults = Recorder(str(tmp_path / "held")), [Change(0.5), Change(1.0)], list[Exception]()

    def run(task: str) -> None:
        try:
            left = filtered(recorder, site, [], message(dict(MODEL)), task)
            assert from_shareable(left).data["w"].tolist() == (MODEL["w"] / 2).tolist()
        except Exception as error:  # noqa: BLE001  (shown by the test)
            faults.append(error)

    threads = [threading.Thread(target=run, args=(f"task-{number}",)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages = recorded(tmp_path / "held").messages
    assert not faults and len(messages) == 16 and len(site) == 5
    assert all(only.config["filters_idle"] == ["Change 2"] for only in messages)


def test_a_trainer_that_still_holds_its_arrays_is_measured_once_they_are_fetched(tmp_path: Path) -> None:
    class Late:
        def materialize(self) -> Any:
            return MODEL["w"]

    recorder = Recorder(str(tmp_path / "held"))
    site = [Change(1.0)]
    recorder.process(message(dict(MODEL)), context(FilterKey.IN))
    facts, scope = context(FilterKey.OUT), Scope()
    scope.task_result_filters[FilterKey.OUT] = site
    facts.set_prop(FLContextKey.SCOPE_OBJECT, scope)
    facts.set_prop(FLContextKey.TASK_RESULT, message({"w": Late(), "b": MODEL["b"]}))
    recorder.handle_event(EventType.BEFORE_TASK_RESULT_FILTER, facts)
    left = message(dict(MODEL))  # NVFlare fetches before the first filter
    for one in site:
        left = one.process(left, facts)
    facts.set_prop(FLContextKey.TASK_RESULT, left)
    recorder.handle_event(EventType.AFTER_TASK_RESULT_FILTER, facts)
    (only,) = recorded(tmp_path / "held").messages
    assert only.config["filters_idle"] == ["Change"]


def test_a_form_that_cannot_be_compared_ends_neither_job_nor_recording(tmp_path: Path) -> None:
    class Decrypt(Change):  # type: ignore[misc, unused-ignore]
        def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
            data = from_shareable(shareable)
            data.data["w"] = MODEL["w"]
            return data.update_shareable(shareable)

    recorder = Recorder(str(tmp_path / "held"))
    filtered(recorder, [Encrypt(1), Decrypt(1), Change(1)], [], message(dict(MODEL)))
    (only,) = recorded(tmp_path / "held").messages
    assert only.reply is not None and only.config["filters_idle"] == ["Change"]
    assert only.inside == ["Change", "Decrypt", "Encrypt"]


def test_arrays_that_a_trainer_still_holds_are_not_compared(tmp_path: Path) -> None:
    class Late:
        def materialize(self) -> Any:
            raise AssertionError("an event must not fetch")

    recorder, facts = Recorder(str(tmp_path / "held")), context(FilterKey.OUT)
    recorder.process(message(dict(MODEL)), context(FilterKey.IN))
    facts.set_prop(FLContextKey.TASK_RESULT, message({"w": Late(), "b": MODEL["b"]}))
    recorder.handle_event(EventType.BEFORE_TASK_RESULT_FILTER, facts)
    facts.set_prop(FLContextKey.TASK_RESULT, message(dict(MODEL)))
    recorder.handle_event(EventType.AFTER_TASK_RESULT_FILTER, facts)
    (only,) = recorded(tmp_path / "held").messages
    assert only.reply is not None and "filters_changed" not in only.config


def test_the_server_records_each_site(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "held"))
    for site in ("site-1", "site-2"):
        recorder.process(message(dict(MODEL)), context(FilterKey.OUT, f"of {site}", "SJ", site))
    for site in ("site-2", "site-1"):
        recorder.process(message(dict(MODEL)), context(FilterKey.IN, f"of {site}", "SJ", site))
    held = recorded(tmp_path / "held")
    assert held.side == "server" and [one.node for one in held.messages] == ["site-2", "site-1"]
    assert len(list((tmp_path / "held" / "arrays").iterdir())) == 1, "the model is stored once"


@pytest.mark.parametrize("broken", [None, "no data", object()])
def test_a_message_without_a_model_passes(tmp_path: Path, broken: Any) -> None:
    shareable = Shareable()
    if broken is not None:
        shareable["DXO"] = broken
    for direction in (FilterKey.IN, FilterKey.OUT):
        assert Recorder(str(tmp_path / "held")).process(shareable, context(direction)) is shareable
    assert not (tmp_path / "held").exists()


def test_an_error_ends_the_recording_and_not_the_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "file"
    place.write_text("in the way")
    recorder = Recorder(str(place))
    with caplog.at_level(logging.WARNING):
        for task in ("task-1", "task-2"):
            for direction in (FilterKey.IN, FilterKey.OUT):
                sent = message(dict(MODEL))
                assert recorder.process(sent, context(direction, task)) is sent
            for writer in recorders._held.writers.values():
                writer.wait()
    assert sum("stopped recording" in text for text in caplog.messages) == 1


def test_what_cannot_be_copied_ends_the_recording_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sent = message({"w": object()})
    with caplog.at_level(logging.WARNING):
        assert Recorder(str(tmp_path / "held")).process(sent, context(FilterKey.IN)) is sent
    assert "add the recorder as a filter too" in caplog.text


def test_a_site_without_fedxray_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, writing.__name__, None)
    recorder = Recorder(str(tmp_path / "held"))
    with caplog.at_level(logging.WARNING):
        for task in ("task-1", "task-2"):
            for direction in (FilterKey.IN, FilterKey.OUT):
                recorder.process(message(dict(MODEL)), context(direction, task))
    assert len([text for text in caplog.messages if "Install fedxray" in text]) == 1


def test_tensors_and_what_must_be_fetched_are_copied() -> None:
    class Late:
        def materialize(self) -> Any:
            return torch.ones(2, dtype=torch.bfloat16)

    arrays = copied({"late": Late(), "half": torch.ones(2, dtype=torch.float16), "number": 3})
    assert [arrays[name].dtype.name for name in ("late", "half", "number")] == ["float32", "float16", "int64"]
    assert whole_reply({"a": np.ones(2)}, {}, "WEIGHTS")["a"].tolist() == [1.0, 1.0]


def test_a_full_disk_ends_the_recording_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[Path] = []
    write = writing.write_whole

    def full(path: Path, content: bytes, what: str, **given: Any) -> None:
        if what == "arrays":
            if stored:
                raise NoSpaceError(f"no space left for {what} ({os.strerror(errno.ENOSPC)}).")
            stored.append(path)
        write(path, content, what, **given)

    monkeypatch.setattr(writing, "write_whole", full)
    recorder = Recorder(str(tmp_path / "held"))
    with caplog.at_level(logging.WARNING):
        for task in range(3):
            for direction in (FilterKey.IN, FilterKey.OUT):
                sent = message({"w": MODEL["w"] + task, "b": MODEL["b"]})
                assert recorder.process(sent, context(direction, str(task))) is sent
            recorder.handle_event(EventType.END_RUN, context(FilterKey.OUT))
    assert sum("no space left" in text for text in caplog.messages) == 1
    held = recorded(tmp_path / "held")
    assert len(held.messages) == 1 and "no space left" in held.stops[0] and not recorders._held.sent


def simulated(folder: Path, how: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the job of `nvflare_job` in the simulator."""
    path = os.pathsep.join([str(Path.cwd()), str(JOB)])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | variables
    command = [sys.executable, "job.py", str(folder), how]
    return subprocess.run(command, cwd=JOB, env=environment, capture_output=True, text=True, check=False, timeout=600)


def test_a_job_in_the_simulator_is_recorded_by_sites_and_server(tmp_path: Path) -> None:
    """Two sites, two rounds, a filter that cuts half of every update: both sides hold the same arrays, to the bit."""
    ended = simulated(tmp_path)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-2000:]
    assert "fedxray" not in ended.stdout + ended.stderr, "no warning of ours, no thread of ours left"
    sites, server = read_recording(tmp_path / "sites"), read_recording(tmp_path / "server")

    def arrays(held: Recording) -> dict[tuple[str, int | None], tuple[str, str | None]]:
        return {
            (one.node, one.round): (one.sent.sha256, None if one.reply is None else one.reply.sha256)
            for one in held.messages
        }

    assert arrays(sites) == arrays(server)
    assert sorted(arrays(sites)) == [(f"site-{site}", round) for site in (1, 2) for round in (1, 2)]
    for one in sites.messages:
        assert one.inside == ["PercentilePrivacy", "ExcludeVars"] and one.config["steps"] == 6 and one.reply is not None
        assert one.config["filters_idle"] == ["ExcludeVars"] and one.outside == []
        sent, reply = sites.arrays(one.sent), sites.arrays(one.reply)
        changed = torch.cat([(reply[name] - value).flatten() for name, value in sent.items()])
        assert 0.4 < float((changed == 0).float().mean()) < 0.6


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("meta", "config", "inside"),
    [
        ({"NUM_STEPS_CURRENT_ROUND": float("nan")}, {}, []),
        ({"NUM_STEPS_CURRENT_ROUND": 1e300}, {}, []),
        ({"NUM_STEPS_CURRENT_ROUND": np.int64(6)}, {"steps": 6}, []),
        ({"NUM_STEPS_CURRENT_ROUND": torch.tensor(6)}, {"steps": 6}, []),
        ({"NUM_STEPS_CURRENT_ROUND": np.ones(2)}, {}, []),
        ({"NUM_STEPS_CURRENT_ROUND": "6"}, {}, []),
        ({"filter_history": "Cut"}, {}, ["Cut"]),
        ({"filter_history": 3}, {}, []),
        ({"filter_history": [Mute(), "x" * 900, "\ud800"]}, {}, ["?", "x" * 200, "Mute"]),
        ({"initial_metrics": {"loss": torch.tensor(0.5), "f": float("inf"), Mute(): 2}},
         {"metric loss": 0.5, "metric Mute": 2.0}, []),
        ({"initial_metrics": ["loss"]}, {}, []),
    ],
)  # fmt: skip
def test_odd_facts_do_not_stop_the_recording(
    tmp_path: Path, meta: dict[str, Any], config: dict[str, Any], inside: list[str]
) -> None:
    (only,) = exchange(tmp_path / "held", dict(MODEL), **meta).messages
    assert only.reply is not None and only.config == {"kind": "WEIGHTS", **config} and only.inside == inside


@pytest.mark.parametrize("header", ["three", -5, float("nan"), 10**12, None])
def test_an_odd_round_is_no_round(tmp_path: Path, header: Any) -> None:
    recorder = Recorder(str(tmp_path / "held"))
    for direction in (FilterKey.IN, FilterKey.OUT):
        recorder.process(message(dict(MODEL), round=header), context(direction))
    assert recorded(tmp_path / "held").messages[0].round is None


@pytest.mark.parametrize("kind", [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
@pytest.mark.parametrize(
    ("reply", "meta", "problem"),
    [
        ({"w": np.ones(4, np.uint8), "b": MODEL["b"]}, {"PROCESSED_ALGORITHM": "blockwise8"}, "blockwise8"),
        ({"w": np.ones(1, np.float32), "b": MODEL["b"]}, {}, "w has the shape [1] instead of [4]"),
        ({"w": np.ones((3, 4), np.float32), "b": MODEL["b"]}, {}, "[3, 4] instead of [4]"),
        ({"w": MODEL["w"], "b": np.ones(1, np.float32)}, {}, "b has the shape [1] instead of []"),
    ],
)
def test_a_reply_that_is_no_such_model_is_left_out(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    reply: dict[str, Any],
    meta: dict[str, Any],
    problem: str,
    kind: str,
) -> None:
    with caplog.at_level(logging.WARNING):
        (only,) = exchange(tmp_path / "held", reply, kind, **meta).messages
    assert only.reply is None and problem in only.config["not_recorded"] and problem in caplog.text
    assert not list((tmp_path / "held").glob("stopped-*")), "the next round is recorded"


def test_arrays_that_were_not_sent_are_named_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        held = exchange(tmp_path / "held", {**MODEL, "control": np.ones(3)})
    (only,) = held.messages
    assert only.reply is not None and only.reply.names == ["w", "b"] and "control" in caplog.text
    assert "control" in only.config["not_recorded"]


def test_a_quantised_model_is_not_held(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for task in ("task-1", "task-2"):
            sent = message({"w": np.ones(4, np.uint8)}, PROCESSED_ALGORITHM="blockwise8")
            Recorder(str(tmp_path / "held")).process(sent, context(FilterKey.IN, task))
    assert not recorders._held.sent and len(caplog.messages) == 1 and "blockwise8" in caplog.text


def test_half_precision_is_recorded_as_the_receiver_gets_it(tmp_path: Path) -> None:
    """As by NVFlare's ModelQuantizer with its default, on both ways."""
    types = {"w": "float32", "b": "float16", "d": "float64"}
    meta = {"PROCESSED_ALGORITHM": "float16", "source_datatype": types, "quantized_flag": True, "quant_state": {}}
    arrays = {name: np.full(3, 0.1, np.float16) for name in types}
    recorder = Recorder(str(tmp_path / "held"))
    recorder.process(message(dict(arrays), **meta), context(FilterKey.IN))
    recorder.process(message(dict(arrays), DataKind.WEIGHT_DIFF, **meta), context(FilterKey.OUT))
    held = recorded(tmp_path / "held")
    (only,) = held.messages
    assert only.reply is not None and "not_recorded" not in only.config
    sent, reply = held.arrays(only.sent), held.arrays(only.reply)
    assert {name: str(value.dtype).removeprefix("torch.") for name, value in sent.items()} == types
    assert float(reply["w"][0]) == pytest.approx(2 * float(np.float16(0.1)))


def test_a_folder_that_is_none_ends_no_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        recorder = Recorder(["a", "b"])  # type: ignore[arg-type]
    assert "list" in caplog.text
    for direction in (FilterKey.IN, FilterKey.OUT):
        sent = message(dict(MODEL))
        assert recorder.process(sent, context(direction)) is sent
    recorder.handle_event(EventType.END_RUN, context(FilterKey.OUT))
    with pytest.raises(BadInput, match="path of a folder"):
        record(object(), ["a", "b"])  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"^server: "):
        record(SimpleNamespace(to_clients=lambda *_, **__: None), "a", server=3)  # type: ignore[arg-type]


def test_an_error_without_a_text_ends_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def fails(*_: Any) -> None:
        raise Odd

    recorder = Recorder(str(tmp_path / "held"))
    monkeypatch.setattr(recorders, "_model", fails)
    sent = message(dict(MODEL))
    assert recorder.process(sent, context(FilterKey.IN)) is sent


@pytest.mark.parametrize("event", [EventType.END_RUN, EventType.SWAP_OUT])
def test_the_last_event_waits_for_the_disk(tmp_path: Path, event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator ends the process of a site that it swaps out without an end of the run."""
    go, write = threading.Event(), writing.write_message
    monkeypatch.setattr(writing, "write_message", lambda *given: go.wait() and write(*given))
    recorder = Recorder(str(tmp_path / "held"))
    for direction in (FilterKey.IN, FilterKey.OUT):
        recorder.process(message(dict(MODEL)), context(direction))
    ending = threading.Thread(target=recorder.handle_event, args=(event, context(FilterKey.OUT)))
    ending.start()
    ending.join(0.2)
    waits = ending.is_alive()
    go.set()
    ending.join()
    assert waits and len(read_recording(tmp_path / "held").messages) == 1


FORKED = """
import os, signal, sys
from tests.integrations.test_nvflare import MODEL, Recorder, context, message, recorders
recorders._held.lock.acquire()  # as another thread of the parent would
if os.fork() == 0:
    signal.alarm(20)
    Recorder(sys.argv[1]).process(message(dict(MODEL)), context("in"))
    os._exit(len(recorders._held.sent))
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_fork_does_not_wait_for_a_lock_of_its_parent(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", FORKED, str(tmp_path / "held")], check=False, capture_output=True)
    assert ended.returncode == 1, ended.stderr[-2000:]


def test_every_folder_gets_its_own_recording(tmp_path: Path) -> None:
    """A site's own recorder and one that came with the job: neither takes the message from the other."""
    for direction in (FilterKey.IN, FilterKey.OUT):
        for name in ("site", "job"):
            Recorder(str(tmp_path / name)).process(message(dict(MODEL)), context(direction))
    assert all(len(recorded(tmp_path / name).messages) == 1 for name in ("site", "job"))


def test_a_recorder_that_cannot_write_holds_no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, writing.__name__, None)
    recorder = Recorder(str(tmp_path / "held"))
    for task in range(5):
        for direction in (FilterKey.IN, FilterKey.OUT):
            recorder.process(message(dict(MODEL)), context(direction, str(task)))
    assert not recorders._held.sent
