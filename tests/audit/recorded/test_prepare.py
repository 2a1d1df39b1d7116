"""Audits of recordings: the same answers as for the simulated run they were made from, and refusals by name."""

from __future__ import annotations

import copy
import html
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedxray.adversary import roles
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.recorded.prepare import chosen_of, holdings, recorded_transcript, rounds_learnt
from fedxray.audit.recorded.recipe import known_recipe
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.dry_run import learnt, understood
from fedxray.audit.run.preflight import preflight
from fedxray.audit.run.prepare import prepare
from fedxray.cli import main
from fedxray.errors import BadInput, FedxrayError
from fedxray.federation.folder import read_transcript, write_transcript
from fedxray.federation.recording.format import Said
from fedxray.federation.recording.reader import read_recording
from fedxray.federation.recording.writer import write_message
from fedxray.report.overview import notices
from fedxray.report.terminal import summary_lines
from tests.audit.plans import tiny, write_toml
from tests.audit.recordings import record_simulation

ATTACKS = [
    {"name": "attribute-from-model"},
    {"name": "membership-loss", "role": "eavesdropper"},
    {"name": "membership-loss", "label": "fellow", "role": "curious-client", "model": "global-model"},
    {"name": "membership-loss", "label": "sum", "role": "secure-aggregation", "model": "global-model"},
]
BASE = tiny(federation={"rounds": 3, "epochs": 5}, data={"records": 100}, attack=ATTACKS)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a simulated audit and with recordings of its run by client 1 and by the server."""
    folder = tmp_path_factory.mktemp("recorded")
    plan = make_plan(BASE, folder)
    record_simulation(plan, folder / "client", [1])
    record_simulation(plan, folder / "server", [0, 1], side="server", config={"lr": 0.05, "local-epochs": 5})
    return folder


def document(path: str = "client", **changes: Any) -> dict[str, Any]:
    """The plan of a recorded audit."""
    found = copy.deepcopy(BASE)
    found["federation"] = changes.pop("federation", {})
    found["transcript"] = {"path": path, **changes.pop("transcript", {})}
    found["data"] |= changes.pop("data", {})
    return {**found, **changes}


def refusal(place: Path, found: dict[str, Any]) -> str:
    with pytest.raises(FedxrayError) as caught:
        preflight(make_plan(found, place))
    return str(caught.value)


def test_scores_are_those_of_the_simulated_run(place: Path, tmp_path: Path) -> None:
    attacks = [{**attack, "targets": [1]} for attack in ATTACKS[:3]]
    simulated = run_audit(make_plan({**BASE, "attack": attacks}, place), tmp_path / "sim").document
    wanted = {case["attack"]: case for case in simulated["cases"]}
    for path, more in (("client", {}), ("server", {"data": {"node": 101}, "transcript": {"client": 1}})):
        found = run_audit(make_plan(document(path, attack=ATTACKS[:3], **more), place), tmp_path / path).document
        assert {case["client"] for case in found["cases"]} == {0}
        for case in found["cases"]:
            other = wanted[case["attack"]]
            assert case["status"] == "ok", case["reason"]
            assert case["scores"] == pytest.approx(other["scores"])
            for name, one in case["floors"].items():  # a floor that draws lots draws others for another client
                metric = next(iter(one))
                assert one[metric] == pytest.approx(other["floors"][name][metric])
            assert case["floors"].keys() == other["floors"].keys()
            left = {name: one for name, one in other["controls"].items() if name != "other-client"}
            assert case["controls"] == left
            assert case["ledger"]["recording"]["side"] == path
            assert case["ledger"]["seats"] == ([1] if case["attack"] == "fellow" else [])


def test_a_recorded_audit_from_the_command_line(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_toml(place / "own.toml", document(name="own", attack=ATTACKS[1:]))
    arguments = ["fedxray", "audit", str(file), "--out", str(tmp_path / "out"), "--engine", "inline"]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as ended:
        main()
    reported = capsys.readouterr()
    assert ended.value.code == 0, reported.err
    assert "recording   client side, node 101, 3 rounds (0 to 2)" in reported.err
    assert "fits        the training lowered the loss on these records in 3 of 3 rounds" in reported.err
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Scores and intervals are over that node" in report


def test_rows_of_a_recording_are_over_its_records(place: Path, tmp_path: Path) -> None:
    found = run_audit(make_plan(document(attack=ATTACKS[:2]), place), tmp_path / "out").document
    rows = {(row["attack"], row["metric"]): row for row in found["summary"]}
    row = rows["attribute-from-model", "accuracy"]
    assert (row["unit"], row["n"]) == ("record", found["cases"][0]["ledger"]["examples_in_question"])
    # Records of one model err together, so an interval over them is shown and carries no verdict.
    assert (row["verdict"], row["state"], row["test"]) == ("inconclusive", "suspected", None)
    assert row["low"] > row["margin"] and "no test can say whether it is luck" in row["reason"]
    member, case = rows["membership-loss", "auc"], found["cases"][1]
    assert (member["unit"], member["test"], case["split"]["drawn"]) == ("record", "split", False)
    assert member["n"] == case["split"]["n1"] + case["split"]["n0"]
    assert "a recording is one run" in member["reason"] and member["state"] == "open"
    other = rows["attribute-from-model", "balanced_accuracy"]
    assert (other["unit"], other["n"], other["low"]) == ("client-run", 1, None)
    assert not other["primary"] and other["verdict"] is None and other["state"] is None


def test_a_recording_that_changed_is_not_resumed(place: Path, tmp_path: Path) -> None:
    plan = make_plan(BASE, tmp_path)
    record_simulation(plan, tmp_path / "client", [1])
    recorded = make_plan(document(attack=ATTACKS[1:2]), tmp_path)
    first = run_audit(recorded, tmp_path / "out").document
    assert run_audit(recorded, tmp_path / "out", resume=True).document["summary"] == first["summary"]
    extra = Said(what="evaluate", node="101", run="1", round=9, sent={"a": np.zeros(1, np.float32)})
    write_message(tmp_path / "client", extra)
    with pytest.raises(BadInput, match=r"changed|other"):
        run_audit(recorded, tmp_path / "out", resume=True)


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"seeds": [0, 1]}, "seeds: expected one seed, since a recording is one run"),
        ({"defence": [{"name": "none"}, {"name": "gaussian-noise", "scale": 0.1}]}, "the defence that was in use"),
        ({"federation": {"rounds": 3}}, "federation.rounds: expected nothing: the recording gives it"),
        ({"attack": [{"name": "local-model-active", "role": "active-server"}]}, "no client can be asked again"),
        ({"attack": [{**ATTACKS[2], "seat": 0}]}, "it is a fellow client that is sent the same models"),
        ({"attack": [{**ATTACKS[0], "targets": [1]}]}, "no other node's data is reconstructed"),
        ({"attack": [{**ATTACKS[0], "targets": 2}]}, "no other node's data is reconstructed"),
        ({"attack": [{**ATTACKS[0], "rounds": [0, 5]}]}, "rounds of the recording (0 to 2, the first is 0), got [0"),
        ({"data": {"node": 7}}, "data.node: expected a node of this recording: 101 (3 rounds from 0 to 2), got '7'"),
        ({"transcript": {"run": 9}}, "transcript.run: expected a run of this recording: 1, got '9'"),
        ({"transcript": {"client": 0}}, "the node recorded partition 1, got 0"),
        ({"transcript": {"client": 5}}, "a client of [data] from 0 to 1"),
        ({"model": {"name": "mlp", "hidden": [5]}}, "as in the network, got [4"),
        ({"data": {"limit": 20}}, 'as it reported, got 20. Give exactly these (others by use = "...")'),
        ({"path": "nowhere"}, "expected a recording with recording.json, got none"),
        ({"transcript": {"optimiser": "sgd"}}, "Did you mean optimizer?"),
        ({"attack": [{"name": "source-majority"}]}, "records of two clients"),
        ({"attack": [{**ATTACKS[0], "grants": ["batch-labels"]}]}, "no message holds the order of the node's records"),
        ({"attack": [{**ATTACKS[0], "grants": ["oracle-order"]}]}, "of the node's records, got 'oracle-order'. Leave"),
        ({"attack": [{**ATTACKS[0], "grants": ["bn-statistics"]}]}, "grants: expected a grant that a recording holds"),
    ],
)  # fmt: skip
def test_what_a_recording_cannot_do_is_refused(place: Path, changes: dict[str, Any], reported: str) -> None:
    assert reported in refusal(place, document(**copy.deepcopy(changes)))


def test_a_plan_without_records_of_the_node(place: Path) -> None:
    found = document()
    del found["data"]
    message = refusal(place, found)
    assert "data: expected the node's own records" in message
    assert "nothing can be scored; `fedxray import show FOLDER` lists what a recording holds" in message


def test_a_plan_without_the_network(place: Path) -> None:
    found = document()
    del found["model"]
    message = refusal(place, found)
    assert "its order names arrays that came by position (NumPy), got nothing. Add [model] with factory" in message


def test_keys_of_recordings_mean_nothing_to_a_simulation(place: Path) -> None:
    with pytest.raises(BadInput, match=r"data.node: expected \[transcript\] beside it"):
        make_plan(tiny(data={"node": 3}), place)


def test_several_nodes_of_a_server_must_be_distinguished(place: Path) -> None:
    reported = refusal(place, document("server"))
    assert "data.node: expected a node of this recording: 100 (3 rounds from 0 to 2); 101 (3 rounds" in reported


def recipe(place: Path, **changes: Any) -> Any:
    plan = make_plan(document("server", data={"node": 101}, **changes), place)
    return known_recipe(plan, chosen_of(plan))


def test_the_recipe_is_given_or_sent_or_missing(place: Path) -> None:
    progress = recipe(place)
    assert (progress.part.learning_rate, progress.part.epochs) == (0.05, 5)
    assert progress.sent == ("epochs", "learning_rate") and progress.missing == ("batch_size", "optimizer")
    assert recipe(place, federation={"batch_size": 32}, transcript={"optimizer": "sgd"}).missing == ()
    assert recipe(place, federation={"learning_rate": 0.05}).sent == ("epochs",)
    assert recipe(place, federation={"algorithm": "fedsgd"}).missing == ()
    with pytest.raises(BadInput, match=r"federation.epochs: expected what the clients were sent: 5, got 3"):
        recipe(place, federation={"epochs": 3})


def images(place: Path) -> Path:
    """A recording of a node with digits, which an inversion can be run on."""
    if not (place / "digits").exists():
        record_simulation(make_plan(DIGITS, place), place / "digits", [0])
    return place


DIGITS: dict[str, Any] = {
    "data": {"name": "digits", "clients": 2, "limit": 4},
    "model": {"name": "mlp", "hidden": [4]},
    "federation": {"rounds": 1, "batch_size": 4, "learning_rate": 0.1},
    "attack": [{"name": "inverting-gradients", "steps": 3}],
}


@pytest.mark.parametrize(
    ("federation", "transcript", "reported"),
    [
        ({}, {"optimizer": "sgd"}, "federation.epochs: expected how many epochs the node trains in a round"),
        ({"epochs": 1, "batch_size": 4}, {"optimizer": "sgd"}, "federation.learning_rate: expected the learning rate"),
        ({"epochs": 1, "batch_size": 4, "learning_rate": 0.1}, {}, "transcript.optimizer: expected how the node"),
        ({"epochs": 1, "batch_size": 4, "learning_rate": 0.1}, {"optimizer": "adam"}, "got 'adam'. Attacks that work"),
    ],
)  # fmt: skip
def test_an_inversion_must_know_how_the_node_trains(
    place: Path, federation: dict[str, Any], transcript: dict[str, Any], reported: str
) -> None:
    found = {**DIGITS, "federation": federation, "transcript": {"path": "digits", **transcript}}
    message = refusal(images(place), found)
    assert reported in message
    working = message.rpartition("Attacks that work without: ")[2]
    assert "membership-loss" in working and "last-returned" in working
    assert "inverting-gradients" not in working and "attribute-from-model" not in working


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_inversion_of_a_recording(place: Path, tmp_path: Path, momentum: float) -> None:
    known = {"epochs": 1, "batch_size": 4, "learning_rate": 0.1, "momentum": momentum}
    found = {**DIGITS, "federation": known, "transcript": {"path": "digits", "optimizer": "sgd"}}
    ended = run_audit(make_plan(found, images(place)), tmp_path / "out").document
    assert [case["status"] for case in ended["cases"]] == ["ok"]
    row = next(row for row in ended["summary"] if row["metric"] == "psnr")
    assert (row["unit"], row["n"], row["primary"], row["test"]) == ("record", 4, True, "split")
    assert (row["verdict"], row["state"]) == ("inconclusive", "open") and row["high"] < row["margin"]
    assert "a recording is one run: how much other runs would leak is not known" in row["reason"]


def own_arrays(plan: Plan, client: int, file: Path, **more: Any) -> Path:
    """One client's records as its network got them, with what each was used for."""
    prepared = prepare(plan, "none", 0)
    parts = {"train": prepared.split.train[client], "holdout": prepared.split.holdout[client],
             "public": prepared.split.public}  # fmt: skip
    x = np.concatenate([prepared.dataset.x[index].numpy() for index in parts.values()])
    y = np.concatenate([prepared.dataset.y[index].numpy() for index in parts.values()])
    use = np.concatenate([np.full(len(index), word) for word, index in parts.items()])
    np.savez(file, x=x, y=y, part=use, **more)
    return file


def test_own_arrays_give_the_same_scores(place: Path, tmp_path: Path) -> None:
    plan = make_plan(BASE, place)
    own_arrays(plan, 1, place / "node.npz")
    secret = prepare(plan, "none", 0).dataset.space.column("smoker").positions
    data = {"path": "node.npz", "ready": True, "use": "part", "sensitive": "smoker",
            "groups": {"smoker": list(secret)}}  # fmt: skip
    found = {**document(attack=ATTACKS[:2]), "data": data}
    mine = run_audit(make_plan(found, place), tmp_path / "own").document
    divided = run_audit(make_plan(document(attack=ATTACKS[:2]), place), tmp_path / "divided").document
    for one, other in zip(mine["cases"], divided["cases"], strict=True):
        assert one["scores"] == pytest.approx(other["scores"])
        assert one["floors"]["majority" if "majority" in one["floors"] else "chance"] == pytest.approx(
            other["floors"]["majority" if "majority" in other["floors"] else "chance"]
        )
    lines = understood(prepare(make_plan(found, place), "none", 0))
    assert any("trains on 80, 9 held out" in line for line in lines), lines


def test_people_of_a_recording_are_scored_together_and_stay_on_one_side(place: Path, tmp_path: Path) -> None:
    people = np.arange(110) // 2  # pairs, the last of 80 trained on ends at 79
    file = own_arrays(make_plan(BASE, place), 1, place / "people.npz")
    arrays = dict(np.load(file))
    people = people[: len(arrays["y"])]
    people[arrays["part"] == "public"] += 100  # 9 records are held out: one person would be on two sides
    np.savez(file, **arrays, person=people)
    data = {"path": "people.npz", "ready": True, "use": "part", "subject": "person"}
    found = {**document(attack=ATTACKS[1:2]), "data": data}
    (case,) = run_audit(make_plan(found, place), tmp_path / "people").document["cases"]
    assert case["status"] == "ok" and {"auc", "auc_subject"} <= case["scores"].keys()
    np.savez(file, **arrays, person=np.arange(len(people)) % 20)
    assert "one use for all records of a person" in refusal(place, found)


def test_records_set_aside_of_people_are_kept_in_a_recording(tmp_path: Path) -> None:
    table = "person,age,dose\n" + "".join(f"{row // 4},{row % 7},{(row * 3) % 5}\n" for row in range(160))
    (tmp_path / "visits.csv").write_text(table)
    data = {"path": "visits.csv", "target": "dose", "subject": "person", "subject_holdout": 0.25, "clients": 2,
            "holdout": 0.5}  # fmt: skip
    simulated = {**tiny(federation={"rounds": 2}, attack=[{"name": "membership-loss"}]), "data": data}
    record_simulation(make_plan(simulated, tmp_path), tmp_path / "client", [1])
    recorded = {**simulated, "federation": {}, "transcript": {"path": "client"}}
    (case,) = run_audit(make_plan(recorded, tmp_path), tmp_path / "out").document["cases"]
    assert case["status"] == "ok" and {"auc_subject", "auc_subject_other"} <= case["scores"].keys()
    over = case["within"]["auc_subject_other"]  # people of one node: an interval over them
    assert over["mean"]["mean"] == pytest.approx(case["scores"]["auc_subject_other"])
    assert over["floors"]["chance"]["low"] < over["mean"]["mean"] - 0.5 < over["floors"]["chance"]["high"]


def test_own_arrays_must_say_what_they_are(place: Path) -> None:
    own_arrays(make_plan(BASE, place), 1, place / "node.npz")
    base = {**document(attack=ATTACKS[1:2]), "data": {"path": "node.npz"}}
    assert "data.ready: expected true where x is what the network was given" in refusal(place, base)
    base["data"] = {"path": "node.npz", "ready": True}
    assert "80 as it reported, got 109" in refusal(place, base), "without `use` all of them were trained on"
    base["data"] = {"path": "node.npz", "ready": True, "holdout": 0.2}
    assert "data.holdout: expected no share" in refusal(place, base)
    base["data"] = {"path": "node.npz", "ready": True}
    base["transcript"]["examples"] = "any"
    assert "held-out records as non-members" in refusal(place, base)


def test_records_that_were_not_trained_on_are_doubted(place: Path) -> None:
    """The node's own inputs with other targets: its training makes them worse."""
    plan = make_plan(BASE, place)
    file = own_arrays(plan, 1, place / "wrong.npz")
    arrays = dict(np.load(file))
    np.savez(file, **{**arrays, "y": -arrays["y"]})
    wrong = {**document(attack=ATTACKS[1:2]), "data": {"path": "wrong.npz", "ready": True, "use": "part"}}
    found = make_plan(wrong, place)
    fell, rounds = rounds_learnt(found, prepare(found, "none", 0))
    assert (fell < 2, rounds) == (True, 3)
    assert "! the training lowered" in learnt(fell, rounds) and "as its network got them?" in learnt(fell, rounds)


def test_what_came_after_the_recorder_is_reported(tmp_path: Path) -> None:
    plan = make_plan(BASE, tmp_path)
    record_simulation(plan, tmp_path / "client", [1], outside=("LocalDpMod",), inside=("clip",))
    lines = understood(prepare(make_plan(document(), tmp_path), "none", 0))
    assert any("place: training > clip > recorder > LocalDpMod > network" in line for line in lines)
    assert any("! LocalDpMod came after the recorder: others saw something else" in line for line in lines)


def test_secure_aggregation_leaves_only_sums(place: Path, tmp_path: Path) -> None:
    hidden = document(federation={"secure_aggregation": True}, attack=ATTACKS[:1])
    assert "it needs replies of the target client alone" in refusal(place, hidden)
    found = document(federation={"secure_aggregation": True}, attack=ATTACKS[3:])
    assert run_audit(make_plan(found, place), tmp_path / "out").document["cases"][0]["status"] == "ok"


def test_a_server_that_sees_sums_knows_who_took_part(place: Path, tmp_path: Path) -> None:
    """Counts of a recorded server stay in the clear, and the report says that a sum of two protects neither."""
    more: dict[str, Any] = {
        "data": {"node": 101},
        "transcript": {"client": 1},
        "federation": {"secure_aggregation": True},
    }
    plan = make_plan(document("server", attack=ATTACKS[3:], **more), place)
    prepared = prepare(plan, "none", 0)
    write_transcript(recorded_transcript(plan, prepared), tmp_path / "kept")
    federation = prepared.federation
    kept = read_transcript(tmp_path / "kept", model=federation.model, space=federation.space)
    total = sum(message.examples or 0 for message in chosen_of(plan).recording.messages if message.round == 1)
    sums = roles.secure_aggregation(kept).observations
    assert [(seen.contributors, seen.examples) for seen in sums] == [((0, 1), total)] * 3
    ended = run_audit(plan, tmp_path / "out").document
    assert ended["cases"][0]["ledger"]["smallest_sum"] == 2
    assert any("among two" in headline for headline, _ in notices(ended))
    alone = document(federation={"secure_aggregation": True}, attack=ATTACKS[3:])
    assert "smallest_sum" not in run_audit(make_plan(alone, place), tmp_path / "own").document["cases"][0]["ledger"]


def test_filters_that_changed_nothing_are_named_in_the_report(tmp_path: Path) -> None:
    plan = make_plan(BASE, tmp_path)
    filters = {"inside": ("Percentile", "Exclude"), "outside": (), "config": {"filters_idle": ["Exclude"]}}
    record_simulation(plan, tmp_path / "client", [1], **filters)
    ended = run_audit(make_plan(document(attack=ATTACKS[1:2]), tmp_path), tmp_path / "out").document
    rest = "Exclude in rounds 0 to 2: the update was equal before and after, up to rounding"
    assert ("A filter changed nothing.", f"{rest}.") in notices(ended)
    assert not any("incomplete" in headline for headline, _ in notices(ended))
    assert any("training > Exclude > Percentile > recorder > network" in line for line in summary_lines(ended))
    assert "filters_idle" not in "\n".join(holdings(read_recording(tmp_path / "client")))


def test_what_is_not_in_a_recording_is_reported_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stop of the recorder, a gap in the rounds, a damaged message and an unknown place: terminal and report."""
    plan = make_plan(BASE, tmp_path)
    record_simulation(plan, tmp_path / "client", [1], inside=None, outside=None)
    trained = [
        path for path in sorted((tmp_path / "client" / "messages").iterdir()) if '"what": "train"' in path.read_text()
    ]
    trained[1].write_text("{")
    (tmp_path / "client" / "stopped-1.txt").write_text("OSError: no\x1b[31m space <b>left</b>\nTraceback")
    file = write_toml(tmp_path / "own.toml", document(name="own", attack=ATTACKS[1:2]))
    arguments = ["fedxray", "audit", str(file), "--out", str(tmp_path / "out"), "--engine", "inline"]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as ended:
        main()
    reported = capsys.readouterr()
    assert ended.value.code == 0, reported.err
    report = html.unescape((tmp_path / "out" / "report.html").read_text())
    for text in (
        "client side, node 101, 2 rounds (0, 2)",
        "not known, as the list of mods was not recognised",
        "issing: 1 (the first is 0): the node was not picked then, or was not recorded",
        "ecorder stopped: OSError: no\N{REPLACEMENT CHARACTER}[31m space <b>left</b>",
        f"essage left out: 1 (message {trained[1].name}: damaged or cut-off content",
    ):
        words = text.partition(": ")[2] if text[0].islower() and ": " in text else text
        assert text in " ".join(reported.err.split()), "before the audit"
        assert text in " ".join(reported.out.split()), "after it"
        assert words in report
    assert '<p class="note" role="note"><strong>Node 101, recorded by the node itself, rounds 0, 2.</strong>' in report
    assert "Owner of the node" in report and "owner of the node: node 101, recorded by the node itself" in reported.out
    assert "The recording is incomplete." in report and "The position of the recorder is unknown." in report
    assert (
        "\x1b" not in reported.err + reported.out + report
        and "<b>left" not in (tmp_path / "out" / "report.html").read_text()
    )
