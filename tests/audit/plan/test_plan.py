from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fedxray.audit.plan import Plan, load_arguments, make_plan, read_plan, split_arguments
from fedxray.audit.plan.schema import to_toml
from fedxray.errors import BadInput
from tests.audit.plans import tiny, write_toml

HERE = Path(__file__).parents[1]


def gated(**gate: Any) -> dict[str, Any]:
    return tiny(gate=[{"attack": "attribute-from-model", "metric": "accuracy", "limit": 0.1} | gate])


def refusal(document: dict[str, Any]) -> BadInput:
    with pytest.raises(BadInput) as caught:
        make_plan(document, HERE)
    return caught.value


def test_a_file_becomes_a_plan_with_defaults(tmp_path: Path) -> None:
    plan = read_plan(write_toml(tmp_path / "my plan.toml", tiny(name=None)))
    assert plan.name == "my-plan" and plan.file == "my plan.toml"
    assert plan.folder == tmp_path.resolve()
    assert (plan.data.holdout, plan.data.public) == (0.1, 0.1)
    assert (plan.federation.participation, plan.federation.weighting) == (1.0, "examples")
    assert (plan.federation.shuffle, plan.federation.record, plan.federation.loss) == ("epoch", "all", None)
    assert [part.title for part in plan.defences] == ["none"]
    assert plan.attacks[0].role == "server" and plan.attacks[0].grants is None


def test_a_document_survives_json_and_keeps_its_digest() -> None:
    plan = make_plan(
        tiny(
            defence=[{"name": "none"}, {"name": "gaussian-noise", "scale": 0.1, "deployed": True}],
            sweep={"gaussian-noise": {"scale": [0.5, 1.0]}},
            attack=[{"name": "attribute-from-model", "model": {"name": "global-model"}, "grid": 5}],
        )
        | {"defence": [{"name": "none"}]} | {"sweep": {}},
        HERE,
    )  # fmt: skip
    again = Plan.from_document(json.loads(json.dumps(plan.to_document())), plan.folder)
    assert again == plan and again.digest() == plan.digest()
    assert again.attacks[0].settings == {"model": {"name": "global-model"}, "grid": 5}


toml_values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), toml_values, max_size=4))
def test_values_written_as_toml_read_back_as_the_same(document: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(document)) == document


def test_a_plan_keeps_its_own_text(tmp_path: Path) -> None:
    file = write_toml(tmp_path / "a.toml", tiny())
    file.write_bytes(b"# why\n" + file.read_bytes())
    assert read_plan(file).text == file.read_bytes()


def test_the_digest_depends_on_every_value_and_not_on_the_folder() -> None:
    plan = make_plan(tiny(), HERE)
    assert make_plan(tiny(), HERE.parent).digest() == plan.digest()
    for other in (tiny(seeds=[1]), tiny(model={"hidden": [5]}), tiny(data={"records": 41})):
        assert make_plan(other, HERE).digest() != plan.digest()


@pytest.mark.parametrize(
    ("document", "place", "words"),
    [
        (tiny(federation={"batch_sise": 8}), "federation.batch_sise", "Did you mean batch_size?"),
        (tiny(federation={"batch_size": 0}), "federation.batch_size", '"all", got 0'),
        (tiny(federation={"batch_size": -3}), "federation.batch_size", "got -3"),
        (tiny(federation={"batch_size": "some"}), "federation.batch_size", "got 'some'"),
        (tiny(federation={"batch_size": True}), "federation.batch_size", "got True"),
        (tiny(federation={"rounds": 2.5}), "federation.rounds", "a whole number from 1 to 1,000,000, got 2.5"),
        (tiny(federation={"algorithm": "fedavgg"}), "federation.algorithm", "Did you mean fedavg?"),
        (tiny(federation={"momentum": 1.0}), "federation.momentum", "below 1"),
        (tiny(federation={"mu": 0.1}), "federation.mu", "fedprox"),
        (tiny(federation={"record": "every-0"}), "federation.record", "every-10"),
        (tiny(federation={"record": [0, 2]}), "federation.record", "rounds from 0 to 1"),
        (tiny(federation={"hidden": 3}), "federation.hidden", "Known keys"),
        (tiny(model={"rounds": 3}), "model.rounds", "unknown key"),
        (tiny(rounds=3), "rounds", "It belongs to [federation]."),
        (tiny(data={"clients": 0}), "data.clients", "from 1 to 100,000"),
        (tiny(data={"clients": 100_001}), "data.clients", "from 1 to 100,000"),
        (tiny(federation={"rounds": 10**6 + 1}), "federation.rounds", "to 1,000,000"),
        *(
            (tiny(federation={"algorithm": "fedprox", name: 1.1e6}), f"federation.{name}", "to 1e6")
            for name in ("learning_rate", "server_learning_rate", "mu")
        ),
        *(
            (tiny(federation={"algorithm": "fedsgd", name: value}), f"federation.{name}", "one gradient of all")
            for name, value in {"epochs": 2, "batch_size": 32, "momentum": 0.5, "shuffle": "never"}.items()
        ),
        (tiny(data={"name": "clinik"}), "data.name", "Did you mean clinic?"),
        (tiny(data={"record": 5}), "data.record", "Did you mean records"),
        (tiny(data={"alpha": 0.5}), "data.alpha", "unknown key"),
        (tiny(data={"partition": "idd"}), "data.partition", "Did you mean iid"),
        (tiny(data={"holdout": 1.0}), "data.holdout", "below 1"),
        (tiny(data={"holdout": 0.5, "public": 0.5}), "data.public", "below 1 together"),
        (tiny(data={"path": "x.csv"}), "data.name", "got several"),
        (tiny(data={"schema": "x.toml"}), "data.name", "got several"),
        (tiny(data={"settings": {"records": 3}}), "data.settings", "unknown key"),
        (tiny(data=None), "data", "Add the key."),
        (tiny(model=None), "model", "got nothing"),
        (tiny(model={"name": "mpl"}), "model.name", "Did you mean mlp"),
        (tiny(model={"hiden": [3]}), "model.hiden", "Did you mean hidden"),
        (tiny(model={"factory": "a:b"}), "model.name", "got both"),
        (tiny(attack=[]), "attack", "at least one"),
        (tiny(attack=[{"name": "atribute-from-model"}]), "attack[0].name", "Did you mean attribute-from-model"),
        (tiny(attack=[{"name": "attribute-from-model", "role": "sever"}]), "attack[0].role", "Did you mean server"),
        (tiny(attack=[{"name": "attribute-from-model", "gird": 3}]), "attack[0].gird", "Did you mean grid?"),
        (tiny(attack=[{"name": "attribute-from-model", "grid": "many"}]), "attack[0].grid", "a whole number"),
        (tiny(attack=[{"name": "awa", "learning_rate": 0}]), "attack[0].learning_rate", "above 0"),
        (tiny(attack=[{"name": "awa", "give_up": [3, "x"]}]), "attack[0].give_up", "[a whole number, a number]"),
        (tiny(attack=[{"name": "awa", "q_conv": 10**400}]), "attack[0].q_conv", "more than 300 digits"),
        (tiny(attack=[{"name": "attribute-from-model", "model": 3}]), "attack[0].model", "name of an attack"),
        (tiny(attack=[{"name": "attribute-from-model", "model": "lost"}]), "attack[0].model.name", "last-returned"),
        (tiny(attack=[{"name": "attribute-from-model", "grants": ["labls"]}]), "attack[0].grants", "labels"),
        (tiny(attack=[{"name": "attribute-from-model", "targets": 0}]), "attack[0].targets", "how many"),
        (tiny(attack=[{"name": "attribute-from-model", "seat": 1}]), "attack[0].seat", "curious-client"),
        (
            tiny(attack=[{"name": "attribute-from-model", "role": "curious-client", "seat": [0, 0]}]),
            "attack[0].seat",
            "each once",
        ),
        (tiny(attack=[{"name": "attribute-from-model", "rounds": [7]}]), "attack[0].rounds", "rounds from 0 to 1"),
        *(
            (
                tiny(federation={"rounds": 9, "record": record}, attack=[{"name": "last-returned", "rounds": [1]}]),
                "attack[0].rounds",
                f'recorded rounds ({kept}), got [1]. Ask for recorded ones, or set record = "all"',
            )
            for record, kept in (("last", "8"), ("every-3", "0, 3, 6, 8"), ([0, 5], "0, 5, 8"))
        ),
        (tiny(attack=[{"name": "attribute-from-model", "search": {}}]), "attack[0].search", "can be searched"),
        (tiny(attack=[{"name": "attribute-from-model"}] * 2), "attack.label", "unique"),
        (tiny(defence=[{"name": "none"}] * 2), "defence.label", "unique"),
        (tiny(defence=[{"name": "none", "scale": 1.0}]), "defence none.scale", "setting"),
        (tiny(defence=[{}]), "defence[0].name", "got neither"),
        (tiny(seeds=[]), "seeds", "a list of whole numbers"),
        (tiny(seeds=[1, 1]), "seeds", "each seed once"),
        (tiny(seeds=[-1]), "seeds[0]", "at least 0"),
        (tiny(name="../escape"), "name", "letters, digits"),
        (tiny(sweep={"nonee": {"scale": [1]}}), "sweep.nonee", "a known name"),
        (tiny(transcript={"path": "x"}), "federation.rounds", "the recording gives it"),
        (gated(attack="x"), "gate[0].attack", "attribute-from-model"),
        (gated(metric="acuracy"), "gate[0].metric", "accuracy"),
        (gated(metric="mse"), "gate[0].metric", "over_floor"),
        (tiny(federation={"learning_rate": float("nan")}), "federation.learning_rate", "finite"),
    ],
)  # fmt: skip
def test_a_bad_plan_is_refused_with_key_expected_got_and_remedy(
    document: dict[str, Any], place: str, words: str
) -> None:
    error = refusal(document)
    assert error.argument == place
    assert words in str(error)
    assert error.expected and error.got and error.remedy


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Update fedxray"):
        read_plan(write_toml(tmp_path / "p.toml", tiny(format=2)))


def test_recorded_rounds_may_be_read() -> None:
    for record in ("all", "last", "every-3", [5]):
        plan = make_plan(
            tiny(federation={"rounds": 9, "record": record}, attack=[{"name": "last-returned", "rounds": [8]}]), HERE
        )
        assert plan.attacks[0].rounds == [8] and plan.federation.record == record


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"name = \n", "line 1"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"defence = []\n[[defence]]\n", r"defence is given twice.*line 2.*Delete the line defence = ... or the \[\["),
        (b"\xff\xfe", "UTF-8"),
        (b"a = " + b"[" * 5000, "TOML"),
        (b"#" * 2_000_000, "bytes"),
        (b"", "data"),
        (b"day = 2024-01-01\n", "day"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "p.toml"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=words):
        read_plan(file)


def test_a_table_in_place_of_a_plan_leads_to_init(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("age,smoker\n40,1\n")
    with pytest.raises(BadInput, match=r"got the table patients\.csv\. Make a plan of it: fedxray init hospital-table"):
        read_plan(tmp_path / "patients.csv")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no file at .*nowhere\.toml"):
        read_plan(tmp_path / "nowhere.toml")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(tiny())), json_values)
def test_any_value_anywhere_is_taken_or_refused_but_never_crashes(name: str, value: object) -> None:
    try:
        make_plan(tiny() | {name: value}, HERE)
    except BadInput as error:
        assert str(error)


@given(st.sampled_from(["data", "model", "federation"]), st.text(max_size=12), json_values)
def test_any_key_in_any_table_is_taken_or_refused_but_never_crashes(table: str, key: str, value: object) -> None:
    document = tiny()
    document[table][key] = value
    try:
        make_plan(document, HERE)
    except BadInput as error:
        assert str(error)


def test_a_sweep_expands_one_defence_into_labelled_points() -> None:
    noise = {"name": "gaussian-noise", "label": "noise", "at": "update", "scale": 1.0}
    plan = make_plan(tiny(defence=[{"name": "none"}, noise], sweep={"noise": {"scale": [0.1, 2.0]}}), HERE)
    assert [part.title for part in plan.defences] == ["none", "noise[scale=0.1]", "noise[scale=2]"]
    assert [part.settings for part in plan.defences[1:]] == [
        {"at": "update", "scale": 0.1},
        {"at": "update", "scale": 2.0},
    ]
    assert plan.defence_of("noise[scale=2]").settings["scale"] == 2.0


def test_a_swept_defence_cannot_be_the_deployed_one() -> None:
    noise = {"name": "gaussian-noise", "deployed": True}
    error = refusal(tiny(defence=[noise], sweep={"gaussian-noise": {"scale": [0.1, 2.0]}}))
    assert error.argument == "defence.deployed"


def test_sweeps_of_several_defences_add_up_and_near_values_have_labels_of_their_own() -> None:
    many = [0.001 * place for place in range(1, 41)]
    defences = [{"name": "gaussian-noise"}, {"name": "laplace-noise"}]
    sweep = {"gaussian-noise": {"scale": many}, "laplace-noise": {"scale": [0.1234567, 0.12345671, 2.0]}}
    plan = make_plan(tiny(defence=defences, sweep=sweep), HERE)
    assert len(plan.defences) == 43
    assert [part.title for part in plan.defences[-3:]] == [
        f"laplace-noise[scale={value}]" for value in ("0.1234567", "0.12345671", "2")
    ]
    error = refusal(tiny(defence=defences, sweep={one["name"]: {"scale": many * 13} for one in defences}))
    assert "at most 1000 combinations, got 1040" in str(error)


def test_with_fedsgd_the_batch_holds_all_examples() -> None:
    plan = make_plan(tiny(federation={"algorithm": "fedsgd", "epochs": 1}), HERE)
    assert plan.federation.batch_size == "all"
    assert make_plan(plan.to_document(), HERE).digest() == plan.digest()


def test_a_bad_value_in_a_sweep_is_refused() -> None:
    error = refusal(tiny(defence=[{"name": "gaussian-noise"}], sweep={"gaussian-noise": {"scale": ["much"]}}))
    assert "scale" in error.argument and "a number" in error.expected


def test_factories_are_listed_and_not_imported() -> None:
    document = tiny(model=None) | {"model": {"factory": "nowhere_at_all:build"}}
    document["attack"] = [{"factory": "nowhere_at_all.deep:Attack.make", "anything": 3}]
    plan = make_plan(document, HERE)
    assert plan.factories() == ["nowhere_at_all:build", "nowhere_at_all.deep:Attack.make"]
    assert plan.attacks[0].title == "nowhere_at_all.deep:Attack.make"


def test_arguments_go_to_the_loader_and_to_the_partition() -> None:
    plan = make_plan(tiny(data={"partition": "dirichlet", "alpha": 2.0, "noise": 0.5}), HERE)
    loading, dividing = load_arguments(plan.data, plan.folder, 7), split_arguments(plan.data, 7)
    assert loading["noise"] == 0.5 and loading["clients"] == 2 and loading["seed"] == 7 and "alpha" not in loading
    assert dividing["alpha"] == 2.0 and dividing["clients"] == 2 and "noise" not in dividing


def test_own_data_lies_beside_the_plan(tmp_path: Path) -> None:
    document = tiny(data=None) | {"data": {"path": "mine.csv", "target": "y", "clients": 2}}
    plan = make_plan(document, tmp_path)
    assert load_arguments(plan.data, plan.folder, 0)["path"] == tmp_path / "mine.csv"
    assert plan.to_document()["data"]["path"] == "mine.csv"


def test_own_data_may_lie_in_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for path, place in (("~/mine.csv", tmp_path / "mine.csv"), ("~nobody-here/x.csv", HERE / "~nobody-here/x.csv")):
        plan = make_plan(tiny(data=None) | {"data": {"path": path, "target": "y", "clients": 2}}, HERE)
        assert load_arguments(plan.data, plan.folder, 0)["path"] == place


def test_a_plan_in_the_home_of_an_unknown_user() -> None:
    with pytest.raises(BadInput, match="plan: expected a TOML file, got no file at ~no-such-user"):
        read_plan("~no-such-user/plan.toml")


@pytest.mark.parametrize(
    "text",
    ["a." * 20_000 + "b = 1", "a = " + "[" * 300 + "]" * 300, "[data]\nclients = '" + "y" * 9_000 + "'"],
    ids=["dots", "lists", "long"],
)  # fmt: skip
def test_a_plan_made_to_take_time_or_space_is_refused_shortly(tmp_path: Path, text: str) -> None:
    """Before: gigabytes for a key of many dots, a traceback for nested lists, a message as long as the plan."""
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(BadInput) as refused:
        read_plan(tmp_path / "plan.toml")
    assert len(str(refused.value)) < 5000


def test_the_primary_metric_is_one_that_the_attack_is_scored_with(tmp_path: Path) -> None:
    attack = {"name": "attribute-from-model", "primary": "balanced_accuracy"}
    assert make_plan(tiny(attack=[attack]), tmp_path).attacks[0].primary == "balanced_accuracy"
    with pytest.raises(BadInput, match=r"attack\[0\].primary.*accuracy"):
        make_plan(tiny(attack=[{**attack, "primary": "acuracy"}]), tmp_path)
    with pytest.raises(BadInput, match=r"attack\[0\].primary"):
        make_plan(tiny(attack=[{**attack, "primary": "auc"}]), tmp_path)


def test_a_factory_with_a_dot_for_its_colon_gets_the_colon(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"model\.factory: .* Did you mean hospnet:network\?"):
        make_plan(tiny() | {"model": {"factory": "hospnet.network"}}, tmp_path)
