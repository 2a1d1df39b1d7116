"""Synthetic records by a schema: the requested columns, and the worst case that is promised."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from fedxray.data.catalog import load
from fedxray.data.schema import TableForm, _draw_column
from fedxray.errors import BadInput

TABLE = """
records = 300
target = "cost"
[columns.age]
low = 18
high = 95
whole = true
[columns.bmi]
low = 15.0
high = 45.0
[columns.region]
values = ["north", "south", "west"]
[columns.smoker]
values = ["no", "yes"]
shares = [0.7, 0.3]
[columns.cost]
low = 0
high = 50000
"""
IMAGES = 'kind = "image"\nshape = [3, 12, 10]\nclasses = 4\nrecords = 20\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "schema.toml"
    path.write_text(text)
    return path


def test_a_table_keeps_to_its_schema(tmp_path: Path) -> None:
    found = load(schema=written(tmp_path, TABLE), clients=2, sensitive="smoker")
    assert len(found) == 600 and found.owner is not None and found.owner.tolist() == [0] * 300 + [1] * 300
    raw = found.raw
    assert raw["age"].min() >= 18 and raw["age"].max() <= 95 and (raw["age"] == raw["age"].round()).all()
    assert set(raw["region"]) == {"north", "south", "west"}
    assert np.mean(raw["smoker"] == "yes") == pytest.approx(0.3, abs=0.06)
    assert raw["cost"].min() == 0 and raw["cost"].max() == 50000
    assert found.space.target == "regression" and found.space.sensitive == "smoker"
    assert not found.private and "no person" in found.note


def test_only_the_target_carries_information_about_the_secret(tmp_path: Path) -> None:
    found = load(schema=written(tmp_path, TABLE), clients=2, sensitive="smoker")
    secret = (found.raw["smoker"] == "yes").astype(float)
    for name in ("age", "bmi"):
        assert abs(np.corrcoef(secret, found.raw[name])[0, 1]) < 0.12
    for client, sign in ((0, 1), (1, -1)):
        rows = found.owner.numpy() == client  # type: ignore[union-attr]
        assert sign * np.corrcoef(secret[rows], found.raw["cost"][rows])[0, 1] > 0.7


def test_whole_numbers_stay_in_their_range_and_are_equally_likely(tmp_path: Path) -> None:
    text = TABLE.replace("low = 18\nhigh = 95", "low = 0.4\nhigh = 3.2").replace(
        "high = 50000", "high = 9.5\nwhole = true"
    )
    found = load(schema=written(tmp_path, text), clients=20).raw
    assert set(found["age"]) == {1.0, 2.0, 3.0}
    assert [np.mean(found["age"] == one) for one in (1, 2, 3)] == pytest.approx([1 / 3] * 3, abs=0.02)
    assert (found["cost"] == found["cost"].round()).all() and found["cost"].max() == 9


@pytest.mark.parametrize("shares", ["[0.7, 0.3]", "[0.98, 0.02]", "[1e308, 1e308]"])
def test_the_effect_of_a_column_on_the_target_has_mean_0_and_deviation_1(shares: str) -> None:
    draw = np.random.default_rng(0)
    form = TableForm.model_validate(tomllib.loads(TABLE.replace("[0.7, 0.3]", shares)))
    for column in form.columns.values():
        one = _draw_column(column, 400, draw)
        assert (one.effect.mean(), one.effect.std()) == pytest.approx((0.0, 1.0), abs=1e-9)


def test_the_secret_has_twice_the_effect_of_all_other_columns(tmp_path: Path) -> None:
    """The target by least squares on the standardised columns; its scale is that of the range."""
    found = load(schema=written(tmp_path, TABLE.replace("records = 300", "records = 4000")), sensitive="smoker")
    places = {"age": found.raw["age"], "bmi": found.raw["bmi"], "smoker": found.raw["smoker"] == "yes",
              "region": np.searchsorted(["north", "south", "west"], found.raw["region"])}  # fmt: skip
    columns = {name: (v - v.mean()) / v.std() for name, v in ((n, v.astype(float)) for n, v in places.items())}
    ones = np.ones(len(found))
    weights = np.linalg.lstsq(np.stack([*columns.values(), ones], 1), found.raw["cost"], rcond=None)[0]
    effect = dict(zip(columns, weights, strict=False))
    together = np.sqrt(sum(effect[name] ** 2 for name in ("age", "bmi", "region")))
    assert effect["smoker"] / together == pytest.approx(2.0, rel=0.02)


def test_values_that_must_occur_are_independent_of_each_other(tmp_path: Path) -> None:
    many = ", ".join(f'"v{place:03d}"' for place in range(250))
    text = TABLE.replace('["north", "south", "west"]', f"[{many}]").replace('["no", "yes"]', f"[{many}]")
    found = load(schema=written(tmp_path, text.replace("shares = [0.7, 0.3]", ""))).raw
    assert set(found["region"]) == set(found["smoker"]) and len(set(found["region"])) == 250
    assert np.mean(found["region"] == found["smoker"]) < 0.05


def test_classes_and_images(tmp_path: Path) -> None:
    text = TABLE.replace("low = 0\nhigh = 50000", 'values = ["low", "middle", "high"]')
    found = load(schema=written(tmp_path, text))
    assert found.space.target == "classification" and torch.bincount(found.y).tolist() == [100, 100, 100]
    pictures = load(schema=written(tmp_path, IMAGES), clients=3)
    assert tuple(pictures.x.shape) == (60, 3, 12, 10) and pictures.space.outputs == 4
    assert float(pictures.x.min()) >= 0 and float(pictures.x.max()) <= 1
    flat = pictures.x.flatten(1)
    assert len(torch.unique(flat, dim=0)) == 60, "all images differ"
    rough = (pictures.x[..., 1:] - pictures.x[..., :-1]).abs().mean()
    shuffled = flat[:, torch.randperm(flat.shape[1])].reshape(pictures.x.shape)
    assert rough < 0.5 * (shuffled[..., 1:] - shuffled[..., :-1]).abs().mean(), "they are smooth"


def test_the_same_seed_gives_the_same_records(tmp_path: Path) -> None:
    path = written(tmp_path, TABLE)
    one, same, other = (load(schema=path, clients=2, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.x, same.x) and not torch.equal(one.x, other.x)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("target = ", "valid TOML"),
        ("target = 'a'", "columns"),
        (TABLE.replace('target = "cost"', 'target = "costs"'), "Did you mean cost?"),
        (TABLE.replace("high = 45.0", ""), "low and high, or values, for column 'bmi'"),
        (TABLE.replace("high = 45.0", "high = 10.0"), "low below high in column 'bmi'"),
        (TABLE.replace("[0.7, 0.3]", "[0.9, 0.2]"), "shares of 'smoker' that sum to 1, got 1.1"),
        (TABLE.replace("[0.7, 0.3]", "[0.5, 0.2]"), "shares of 'smoker' that sum to 1, got 0.7"),
        (TABLE.replace("shares = [0.7, 0.3]", "shares = [0.7]"), "a share for each value of 'smoker'"),
        (TABLE.replace('"south"', '"north"'), "different values in 'region'"),
        (TABLE.replace("whole = true", "integer = true"), "columns.age: expected a known key, got the unknown key"),
        (TABLE.replace("whole = true", "whol = true"), "Did you mean whole?"),
        (TABLE.replace("records = 300", "record = 300"), "Did you mean records?"),
        (IMAGES.replace("classes", "clases"), "Did you mean classes?"),
        (TABLE.replace('["no", "yes"]', "[0, 1]"), 'text in columns.smoker.values, got 0. Write them as text: "0".'),
        (".".join(["a"] * 40_000) + " = 1", "a key with more than 100 dots"),
        ("a = '\"'\n[" + " . ".join(['"!"'] * 10_000) + "]", "a key with more than 100 dots"),
        ("x = 1\n" * 20_000, "at most 100000 bytes"),
        (IMAGES.replace("classes = 4", "classes = 21"), "a record for each of 21 classes, got 20 records"),
        (IMAGES.replace("[3, 12, 10]", "[3, 4096, 4096]"), "synthetic images: expected at most"),
        (TABLE.replace("records = 300", "records = 0"), "records"),
        (TABLE.replace("low = 15.0\nhigh = 45.0", "low = -1e308\nhigh = 1e308"), "numbers up to 1e+15 in size"),
        (TABLE.replace("low = 15.0\nhigh = 45.0", "low = 1e14\nhigh = 100000000000001.0"), "different numbers"),
        (TABLE.replace("low = 18\nhigh = 95", "low = 0.1\nhigh = 0.9"), "two whole numbers from low to high in column"),
        (
            TABLE.replace("low = 18\nhigh = 95", "low = 17.5\nhigh = 18.5"),
            "two whole numbers from low to high in column",
        ),
        (TABLE.replace("records = 300", "records = 2"), "a record for each value of 'region', got 2 records"),
        (IMAGES.replace("classes = 4", ""), "classes"),
        (IMAGES.replace("[3, 12, 10]", "[12, 10]"), "shape"),
    ],
)
def test_a_bad_schema_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(schema=written(tmp_path, text))
    assert words in str(caught.value)


def test_the_size_of_the_encoding_is_checked_before_drawing(tmp_path: Path) -> None:
    many = str([f"v{number}" for number in range(1000)]).replace("'", '"')
    text = TABLE.replace('["north", "south", "west"]', many).replace("300", "1000000")
    with pytest.raises(BadInput, match="synthetic table: expected at most"):
        load(schema=written(tmp_path, text), clients=4)


def test_dots_in_values_and_numbers_are_no_keys(tmp_path: Path) -> None:
    values = str([f"v{number}.{number}" for number in range(150)]).replace("'", '"')
    shares = str([1 / 150] * 150)
    text = TABLE.replace('["north", "south", "west"]', f"{values}\nshares = {shares} # {'.' * 200}")
    assert len(load(schema=written(tmp_path, text))) == 300


def test_other_unusable_schemas_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="an existing file"):
        load(schema=tmp_path / "none.toml")
    with pytest.raises(BadInput, match="either a name, a path or a schema, got several"):
        load("clinic", schema=written(tmp_path, TABLE))
    with pytest.raises(BadInput, match="a schema of columns, got images"):
        load(schema=written(tmp_path, IMAGES), sensitive="smoker")
    with pytest.raises(BadInput, match="smoker"):
        load(schema=written(tmp_path, TABLE), sensitive="smokers")
