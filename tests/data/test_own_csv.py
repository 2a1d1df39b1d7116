"""A user's own CSV: round trips, and a message with line and column for everything that is wrong."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.data import Dataset, load
from fedxray.errors import BadInput

GOOD = "age,town,smokes,cost\n20,Paris,0,1.5\n30,Rome,1,2.5\n40,Oslo,1,-3\n50,Paris,0,7e2\n"


def write(folder: Path, text: str | bytes, name: str = "own.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_columns_and_target(tmp_path: Path) -> None:
    dataset = load(path=write(tmp_path, GOOD), target="cost", sensitive="smokes")
    assert dataset.private
    kinds = {column.name: (column.kind, column.positions) for column in dataset.space.columns}
    assert kinds == {"age": ("continuous", (0,)), "town": ("categorical", (1, 2)), "smokes": ("categorical", (3,))}
    assert dataset.space.column("town").categories == ("Oslo", "Paris", "Rome")
    assert dataset.space.column("smokes").categories == ("0", "1")
    cost = np.array([1.5, 2.5, -3, 700])
    assert torch.allclose(dataset.y, torch.from_numpy(((cost - cost.mean()) / cost.std()).astype(np.float32)))
    plain = load(path=str(tmp_path / "own.csv"), target="cost", scale_target=False)
    assert plain.y.tolist() == pytest.approx(cost.tolist())


@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.sampled_from(["a", "b,c", 'd "e"', "f\u00e9"]), st.floats(-1e3, 1e3)),
        min_size=3, max_size=30, unique_by=(lambda row: row[0], lambda row: round(row[2], 3)),
    )
)  # fmt: skip
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, str, float]]) -> None:
    path = tmp_path_factory.mktemp("csv") / "own.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["number", "group", "value"])
        writer.writerows([repr(number), group, repr(value)] for number, group, value in rows)
    dataset = load(path=path, target="value", categorical=["group"], scale_target=False)
    assert dataset.raw["number"].tolist() == [row[0] for row in rows]
    assert dataset.raw["group"].tolist() == [row[1] for row in rows]
    assert dataset.y.tolist() == pytest.approx([row[2] for row in rows], rel=1e-6, abs=1e-6)


def test_other_separators_packing_and_byte_order_mark(tmp_path: Path) -> None:
    expected = load(path=write(tmp_path, GOOD), target="cost")
    for name, content in (
        ("semi.csv", GOOD.replace(",", ";").encode()),
        ("tab.tsv", GOOD.replace(",", "\t").encode()),
        ("mark.csv", b"\xef\xbb\xbf" + GOOD.encode()),
        ("windows.csv", GOOD.replace("\n", "\r\n").encode()),
        ("packed.csv.gz", gzip.compress(GOOD.encode())),
    ):
        found = load(path=write(tmp_path, content, name), target="cost")
        assert torch.equal(found.x, expected.x), name


def test_drop_and_categorical(tmp_path: Path) -> None:
    dataset = load(path=write(tmp_path, GOOD), target="cost", drop=["town"], categorical=["age"])
    assert [column.name for column in dataset.space.columns] == ["age", "smokes"]
    assert dataset.space.column("age").categories == ("20", "30", "40", "50")


def classes(dataset: Dataset) -> tuple[str, ...]:
    assert dataset.space.target == "classification"
    return dataset.space.classes


def test_text_and_binary_targets_are_classes(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    assert classes(load(path=path, target="smokes")) == ("0", "1")
    many = "x,kind\n" + "".join(f"{row},{'abc'[row % 3]}\n" for row in range(9))
    assert classes(load(path=write(tmp_path, many), target="kind")) == ("a", "b", "c")
    grades = "x,grade\n" + "".join(f"{row},{row % 3}\n" for row in range(9))
    assert load(path=write(tmp_path, grades), target="grade").space.target == "regression"
    assert classes(load(path=write(tmp_path, grades), target="grade", categorical=["grade"])) == ("0", "1", "2")


HEAD = "age,town,cost\n"
ROWS = "".join(f"{20 + row},{'ab'[row % 2]},{row / 7}\n" for row in range(8))


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (GOOD, {}, "target: expected the name of the column to predict"),
        (GOOD, {"target": "costs"}, "target: expected a column of own.csv, got 'costs'. Did you mean cost"),
        (GOOD, {"target": "zzz"}, "Its columns: age, town, smokes, cost."),
        (GOOD, {"target": "cost", "sensitive": "smoke"}, "sensitive.*Did you mean smokes"),
        (GOOD, {"target": "cost", "sensitive": "cost"}, "other than the target"),
        (GOOD, {"target": "cost", "drop": ["cost"]}, "target: expected a column that is not dropped"),
        (GOOD, {"target": "cost", "drop": ["cots"]}, "drop.*Did you mean cost"),
        (GOOD, {"target": "cost", "drop": ["age", "town", "smokes"]}, "at least one column beside the target"),
        (GOOD, {"target": "cost", "categorical": ["twon"]}, "categorical.*Did you mean town"),
        (GOOD, {"target": "cost", "categorical": 3}, "a list of column names"),
        (GOOD, {"target": "cost", "rows": 3}, "rows: expected a setting of file"),
        (GOOD, {"target": "smokes", "scale_target": True}, "scale_target"),
        (HEAD + ROWS + "30,,2\n", {"target": "cost"}, "column 'town', line 10 of .*: expected a value, got nothing"),
        (HEAD + ROWS + "nan,a,2\n", {"target": "cost"}, "column 'age', line 10 of .*: expected a value, got 'nan'"),
        (HEAD + ROWS + "30,a,?\n", {"target": "cost"}, "column 'cost', line 10 of the file: expected a value"),
        ("age\n\n,town,cost\n" + ROWS, {"target": "cost"}, "values on every line, got 3 on line 3"),
        ('a,b\n"1\n1",2\n\n,3\n', {"target": "b"}, "column 'a', line 5 of the file: expected a value"),
        (
            HEAD + ROWS + "inf,a,2\n",
            {"target": "cost"},
            "column 'age', line 10 of the file: expected a finite number, got 'inf'",
        ),
        (
            HEAD + ROWS + "30,a,cheap\n",
            {"target": "cost"},
            "target 'cost', line 10 of the file: expected a number.*got 'cheap'",
        ),
        (HEAD + ROWS + "30,a\n", {"target": "cost"}, "3 values on every line, got 2 on line 10 of the file"),
        (HEAD + ROWS.replace("a", "b"), {"target": "cost", "sensitive": "town"}, "at least two values"),
        ("a,b\n1,2\n2,2\n3,2\n", {"target": "b"}, "target 'b': expected different values"),
        ("a,a\n1,2\n2,3\n", {"target": "a"}, "'a' twice"),
        (",a,b\n0,1,2\n1,2,3\n", {"target": "b"}, "a name for every column, got column 1 without.*index=False"),
        ("a, ,b\n0,1,2\n1,2,3\n", {"target": "b"}, "a name for every column, got column 2"),
        ("a,b\n1,2\n", {"target": "b"}, "a header and at least two rows"),
        ("", {"target": "b"}, "a header and at least two rows"),
        (b"a,b\n1,\xff\n2,3\n", {"target": "b"}, "a character that is not UTF-8 on line 2.*In Excel"),
        ('a,b\n1,"2\n2,3\n', {"target": "b"}, "a CSV file"),
        ("a\x1b[31m,b\n1,2\n2,3\n", {"target": "b"}, "printable text"),
        ("a,b\nx\x07,2\ny,3\nz,4.5\n", {"target": "b"}, "printable text"),
        ("a,b\n1e308,2\n-1e308,3\n0,5\n", {"target": "b"}, "too large to compute with"),
        ("a,b\n1,1e308\n2,-1e308\n0,5\n", {"target": "b"}, "too large to compute with"),
        ("a,b\n1,1e39\n2,0\n0,5\n", {"target": "b", "scale_target": False}, "too large to compute with"),
        ("id,b\n" + "".join(f"n{row},{row}\n" for row in range(300)), {"target": "b"}, "if it is an identifier"),
        ("a,b\n" + "".join(f"{row},word{row}\n" for row in range(300)), {"target": "b"}, "one of a few classes"),
    ],
)
def test_messages(tmp_path: Path, text: str | bytes, settings: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load(path=write(tmp_path, text), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("written", ["27,3", "-1,5", "1.234,5", "1,234.5", ",5", "2,5e3", "1_000", "١٢"])
@pytest.mark.parametrize("column", ["bmi", "cost"])
def test_numbers_with_commas_are_refused_and_not_read_as_text(tmp_path: Path, written: str, column: str) -> None:
    other = {"bmi": "cost", "cost": "bmi"}[column]
    rows = "".join(f"{row};{written if row % 2 else row}\n" for row in range(8))
    path = write(tmp_path, f"{other};{column}\n{rows}")
    with pytest.raises(BadInput, match=f"column '{column}', line 3 of the file: expected a decimal point"):
        load(path=path, target="cost")
    if column == "bmi":
        assert load(path=path, target="cost", categorical=["bmi"]).space.column("bmi").kind == "categorical"


@pytest.mark.parametrize("written", ["7", "+7", "-7.", ".7", "7.7", "7e3", "7.E-3", " 7 "])
def test_numbers_are_numbers(tmp_path: Path, written: str) -> None:
    rows = "".join(f"{row / 7};{written if row % 2 else row}\n" for row in range(8))
    made = load(path=write(tmp_path, f"cost;bmi\n{rows}"), target="cost")
    assert made.space.column("bmi").kind == "continuous" and made.raw["bmi"][1] == float(written)


@pytest.mark.parametrize("written", ["1,2,3", "a,b", "12,", "10,20 km"])
def test_text_with_commas_is_text(tmp_path: Path, written: str) -> None:
    rows = "".join(f"{row / 7};{written if row % 2 else row}\n" for row in range(8))
    assert load(path=write(tmp_path, f"cost;bmi\n{rows}"), target="cost").space.column("bmi").kind == "categorical"


def test_all_columns_are_named_only_where_they_are_few(tmp_path: Path) -> None:
    header = ",".join(f"c{place}" for place in range(30))
    path = write(tmp_path, f"{header}\n" + (",".join(["1"] * 30) + "\n") * 3)
    for name, words in (("c299", r"Did you mean c29 or \w+ or \w+\?$"), ("zzz", "c19 and 10 more.$")):
        with pytest.raises(BadInput, match=words):
            load(path=path, target=name)


@pytest.mark.parametrize("name", ["none.csv", "a\0b.csv", "x" * 5000, "none/none.npz"])
def test_a_path_without_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="an existing file or folder"):
        load(path=tmp_path / name, target="b")


def test_size_caps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = write(tmp_path, gzip.compress(b"a,b\n" + b"1,2\n" * 100_000), "own.csv.gz")
    assert bomb.stat().st_size < 10_000
    monkeypatch.setenv("FEDXRAY_MAX_BYTES", "10000")
    with pytest.raises(BadInput, match=r"unpacked: expected at most 10000 bytes.*FEDXRAY_MAX_BYTES"):
        load(path=bomb, target="b")
    with pytest.raises(BadInput, match="at most 10000 bytes"):
        load(path=write(tmp_path, "a,b\n" * 5000), target="b")
    monkeypatch.setenv("FEDXRAY_MAX_BYTES", "lots")
    with pytest.raises(BadInput, match="FEDXRAY_MAX_BYTES: expected a whole number"):
        load(path=bomb, target="b")


CELLS = st.sampled_from(
    ["", "1", "2.5", "-3e4", "nan", "inf", "a", "b", "1e999", '"', '"x,y"', "\x00", "\u00e9", ";", "\t", "'"]
)


@given(
    st.one_of(
        st.binary(max_size=200),
        st.lists(st.lists(CELLS, min_size=1, max_size=4).map(",".join), max_size=6).map(
            lambda rows: "\n".join(["a,b,c", *rows]).encode()
        ),
        st.lists(st.lists(CELLS, min_size=3, max_size=3).map(",".join), max_size=6).map(
            lambda rows: "\n".join(["a,b,c", *rows]).encode()
        ),
    ),
    st.sampled_from([".csv", ".csv.gz"]),
)
def test_any_bytes_give_a_data_set_or_a_message(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"fuzz{suffix}"
    path.write_bytes(content)
    try:
        dataset = load(path=path, target="b")
    except BadInput:
        return
    assert torch.isfinite(dataset.x).all()
    assert torch.isfinite(dataset.y).all()


def test_the_name_of_a_file_cannot_carry_control_characters(tmp_path: Path) -> None:
    dataset = load(path=write(tmp_path, GOOD, "a\x1b[2Jb.csv"), target="cost")
    assert dataset.name == "a?[2Jb.csv"
