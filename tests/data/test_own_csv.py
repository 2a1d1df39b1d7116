"""A user's own CSV: round trips, and a message with line and column for everything that is wrong."""

from __future__ import annotations

import csv
import gzip
import math
import zipfile
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.data.catalog import load
from fedxray.data.dataset import Dataset
from fedxray.data.encode import encode_all
from fedxray.data.own_csv import DURATION, as_numbers, read_cells, why_no_feature
from fedxray.data.tables import COLUMNS
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
        (HEAD + ROWS + "30,,2\n", {"target": "cost"}, "a value in every cell, got 1 missing: 1 in 'town'; .* line 10"),
        (HEAD + ROWS + "nan,a,2\n", {"target": "cost"}, "1 missing: 1 in 'age'; the first on line 10 of the file"),
        (HEAD + ROWS + "30,a,?\n", {"target": "cost"}, "1 missing: 1 in 'cost'; the first on line 10 of the file"),
        ("age\n\n,town,cost\n" + ROWS, {"target": "cost"}, "values on every line, got 3 on line 3"),
        ('a,b\n"1\n1",2\n\n,3\n', {"target": "b"}, "1 in 'a'; the first on line 5"),
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
        (
            "id,b\n" + "".join(f"n{row},{row}\n" for row in range(300)),
            {"target": "b"},
            "'id' .all 300 values different",
        ),
        ("a,b\n" + "".join(f"{row % 9},word{row}\n" for row in range(300)), {"target": "b"}, "one of a few classes"),
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


def test_a_long_run_of_digits_is_read_once() -> None:
    """A pattern that tries every place to split the digits would take hours."""
    assert as_numbers(["1" * 1_000_000 + "x"]) is None


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


# Identifiers, dates and missing values

VISITS = "patient_id,visit,stay,ward,bmi,note,cost\n" + "".join(
    f"{1000 + 7 * row},2024-0{1 + row % 9}-1{row % 7},{row % 5}h 10m,{'ab'[row % 2]},{20 + row / 7:.3f},"
    f"n{row},{row % 11}\n"
    for row in range(60)
)


def test_identifiers_and_dates_are_refused_together_unless_they_are_kept(tmp_path: Path) -> None:
    """Before, dates became categories and numbers of patients a feature without a word."""
    path = write(tmp_path, VISITS)
    with pytest.raises(BadInput) as refused:
        load(path=path, target="cost")
    got = "'patient_id' (all 60 values different, and its name), 'visit' (dates), 'stay' (times or durations), "
    assert got + "'note' (all 60 values different)" in str(refused.value)
    assert 'drop = ["patient_id", "visit", "stay", "note"], or learn from them with keep' in str(refused.value)
    dropped = load(path=path, target="cost", drop=["patient_id", "visit", "stay", "note"])
    assert [column.name for column in dropped.space.columns] == ["bmi", "ward"]
    kept = load(path=path, target="cost", drop=["note"], keep=["patient_id", "visit", "stay"])
    assert {column.name for column in kept.space.columns} == {"patient_id", "visit", "stay", "ward", "bmi"}
    assert "! kept as a feature: 'visit' (dates)" in kept.remarks
    with pytest.raises(BadInput, match=r"keep: expected a column of own.csv.*Did you mean visit"):
        load(path=path, target="cost", keep=["visits"])


all_500 = "all 500 values different"


def quantile(row: int, rows: int) -> float:
    """The quantile of a standard normal at the place of a row."""
    return NormalDist().inv_cdf((row + 0.5) / rows)


@pytest.mark.parametrize(
    ("name", "cells", "reason"),
    [
        ("bmi", [f"{20 + row / 9:.4f}" for row in range(50)], ""),  # all different, and a measurement
        ("income", [str(20_000 + 37 * row * row) for row in range(50)], ""),
        ("n", [str(row) for row in range(50)], "row numbers"),
        ("n", [str(50 - row) for row in range(50)], "row numbers"),
        ("n", [str(row) for row in range(19)], ""),  # too few to say
        ("PassengerId", [str(3 * row) for row in range(50)], "all 50 values different, and its name"),
        ("patient id", [str(3 * (row // 3)) for row in range(900)], "300 values in 900 rows, and its name"),
        ("region_id", [str(row % 5) for row in range(900)], ""),
        ("body_mass_index", [str(3 * row) for row in range(300)], ""),
        ("tumour_grade_id", [f"{row / 7:.3f}" for row in range(50)], ""),
        ("customer", [str(100_000 + 7_919 * row % 900_000) for row in range(500)], f"{all_500}, like random codes"),
        ("customer", [f"{7_919 * row % 1_000_000:06}" for row in range(500)], f"{all_500}, like random codes"),
        ("customer", [f"{100_000 + 7_919 * row % 900_000}.0" for row in range(500)], f"{all_500}, like random codes"),
        ("customer", [str(100_000 + 7_919 * row % 900_000) for row in range(99)], ""),  # too few to say
        ("price", [f"{100_000 + 7_919 * row % 900_000}.5" for row in range(500)], ""),
        ("salary", [str(30_000 + 7_919 * row % 60_000) for row in range(500)], ""),
        ("grams", [str(int(3_400 + 550 * quantile(row, 500))) for row in range(500)], ""),
        ("income", [str(int(250_000 * math.exp(0.3 * quantile(row, 500)))) for row in range(500)], ""),
        ("at", [str(1_700_000_000 + 977 * row) for row in range(50)], "Unix times"),
        ("at", [f"{1_700_000_000 + 9.5 * row:.3f}" for row in range(50)], "Unix times"),
        ("at", [str(1_700_000_000_000 + 86_400_000 * (row % 300)) for row in range(9_000)], "Unix times"),
        ("revenue", [str(900_000_000 + 9_999_999 * row) for row in range(50)], ""),
        ("flags", [str(1_700_000_000 + row % 3) for row in range(50)], ""),
        ("day", ["20240131", "20240201"], "dates"),
        ("day", ["3.12.2024", "24.1.99"], "dates"),
        ("day", ["12/31/2024 10:05", "1/2/2024 9:10"], "dates"),
        ("day", ["12 Jan 2020", "3 March 2021"], "dates"),
        ("day", ["2024-01-31T10:05:00.5Z", "2024-02-01T10:05:00+01:00"], "dates"),
        ("wait", ["10:05", "9:10"], "times or durations"),
        ("wait", ["2h 50m", "13h 5m"], "times or durations"),
        ("wait", ["3 days", "1 day, 2:03:04"], "times or durations"),
        ("wait", ["PT2H", "P3DT1M"], "times or durations"),
        ("wait", [f"{row % 11}m" for row in range(50)], "times or durations"),
        ("age", ["30s", "40s", "50s"], ""),  # groups, not seconds
        ("film", ["2D", "3D"], ""),
        ("run", [f"{5 * (row % 10)}m" for row in range(50)], ""),
        ("class", ["p", "h", "5mg"], ""),
        ("town", [f"t{row % 30}" for row in range(50)], "30 values in 50 rows"),
        ("town", [f"t{row % 25}" for row in range(50)], ""),
        ("town", [f"t{row % 201}" for row in range(900)], "201 different texts"),
        ("empty", [], ""),
    ],
)
def test_what_is_no_feature(name: str, cells: list[str], reason: str) -> None:
    assert why_no_feature(name, cells, as_numbers(cells), category=False) == reason


def test_a_column_that_is_listed_as_categorical_holds_no_durations() -> None:
    cells = [f"{row % 25}h" for row in range(50)]
    assert why_no_feature("shift", cells, None, category=False) == "times or durations"
    assert why_no_feature("shift", cells, None, category=True) == ""


def test_ordinary_columns_of_real_tables_are_features(data_folder: Path, tmp_path: Path) -> None:
    def marked(text: bytes) -> dict[str, str]:
        columns = read_cells(write(tmp_path, text)).columns
        there = {name: [cell for cell in cells if cell not in ("", "?")] for name, cells in columns.items()}
        reasons = {
            name: why_no_feature(name, cells, as_numbers(cells), category=False) for name, cells in there.items()
        }
        return {name: reason for name, reason in reasons.items() if reason}

    adult = gzip.decompress((data_folder / "adult/adult.data.gz").read_bytes())
    assert marked(",".join(COLUMNS).encode() + b"\n" + adult) == {}
    for table in ("insurance/insurance", "acs/pums_ct_2018", "acs/acsincome_2018_ne"):
        assert marked(gzip.decompress((data_folder / f"{table}.csv.gz").read_bytes())) == {}, table
    with zipfile.ZipFile(data_folder / "flights/Clean_Dataset.csv.zip") as archive:
        flights = b"row" + b"".join(archive.read("Clean_Dataset.csv").splitlines(keepends=True)[:30_000])
    assert marked(flights) == {"row": "row numbers", "flight": "449 different texts"}
    bookings = gzip.decompress((data_folder / "flights/ba_customer_booking.csv.gz").read_bytes())
    assert set(marked(bookings.decode("latin-1").encode())) == {"route"}


GAPS = "age,smokes,town,cost\n" + "".join(
    f"{'' if row % 10 == 3 else row % 47},{'NA' if row == 5 else row % 2},{'?' if row == 6 else 'xyz'[row % 3]},{row}\n"
    for row in range(40)
)


def test_missing_values_are_counted_by_column_in_one_message(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        load(path=write(tmp_path, GAPS), target="cost")
    assert "6 missing: 4 in 'age', 1 in 'smokes', 1 in 'town'; the first on line 5 of the file" in str(refused.value)
    assert "'drop-rows', 'median', 'category' (rows without any: 34 of 40)" in str(refused.value)
    wide = (
        ",".join(f"c{column}" for column in range(400)) + ",y\n" + "".join("," * 400 + f"{row}\n" for row in range(4))
    )
    with pytest.raises(BadInput, match=r"1,600 missing: 4 in 'c0'.* and 388 more"):
        load(path=write(tmp_path, wide), target="y")


def test_missing_values_are_dropped_or_filled(tmp_path: Path) -> None:
    path = write(tmp_path, GAPS)
    dropped = load(path=path, target="cost", missing="drop-rows")
    assert len(dropped) == 34 and dropped.raw["cost"].tolist() == [
        r for r in range(40) if r % 10 != 3 and r not in (5, 6)
    ]
    assert dropped.remarks == ("6 rows with missing values are left out: 4 in 'age', 1 in 'smokes', 1 in 'town'",)
    filled = load(path=path, target="cost", missing="median")
    ages = [row % 47 for row in range(40) if row % 10 != 3]
    assert filled.raw["age"][3] == np.median(ages) and len(filled) == 40
    assert filled.space.column("smokes").categories == ("0", "1", "missing")
    assert filled.raw["town"][6] == "missing"
    for settings, words in (
        ({"missing": "category"}, "'age' holds numbers.*median"),
        ({"missing": "mean"}, "missing: expected drop-rows or median or category, got 'mean'"),
        ({"missing": "median", "sensitive": "smokes"}, "'smokes', which is the target or sensitive and never filled"),
    ):
        with pytest.raises(BadInput, match=words):
            load(path=path, target="cost", **settings)  # type: ignore[arg-type]
    assert len(load(path=path, target="cost", drop=["age"], missing="category")) == 40
    with pytest.raises(BadInput, match="at least two rows without a missing value"):
        load(path=write(tmp_path, "a,b\n1,\n2,3\n,4\n"), target="b", missing="drop-rows")
    with pytest.raises(BadInput, match="column 'a': expected values, got none"):
        load(path=write(tmp_path, "a,b\n,1\n,3\n,4\n"), target="b", missing="median")


def test_a_wrong_path_offers_the_nearest_file(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "patients-2024.csv")
    with pytest.raises(BadInput, match=r"Did you mean 'patients-2024.csv'\?"):
        load(path=tmp_path / "patient-2024.csv", target="cost")
    with pytest.raises(BadInput, match=r"That folder holds 'patients-2024.csv'"):
        load(path=tmp_path / "zzz", target="cost")
    with pytest.raises(BadInput, match=r"There is no folder '.*gone'"):
        load(path=tmp_path / "gone" / "patients.csv", target="cost")


def test_the_time_for_a_wide_table_grows_with_its_width(tmp_path: Path) -> None:
    """Before, every column was searched among all: the calls for four times the columns were sixteen times as many."""

    def lookups(width: int) -> int:
        count = 0

        class Name(str):
            def __eq__(self, other: object) -> bool:
                nonlocal count
                count += 1
                return str.__eq__(self, other)

            __hash__ = str.__hash__

        names = [Name(f"c{column}") for column in range(width)]
        raw = {name: np.arange(3.0) for name in names}
        encode_all(raw, names, [])
        return count

    assert lookups(800) <= 8 * max(lookups(200), 200)
    head = ",".join(f"c{column}" for column in range(100_001))
    with pytest.raises(BadInput, match="at most 100,000 columns, got 100,001"):
        load(path=write(tmp_path, head + "\n" + "1" + ",1" * 100_000 + "\n" + "2" + ",1" * 100_000), target="c0")


def test_cells_that_would_take_for_ever_or_overflow_are_read() -> None:
    assert DURATION.fullmatch("1min" * 500 + "x") is None and DURATION.fullmatch("1min" * 500)
    padded = ["0" * 320 + f"{number * 37 % 1009:04d}" for number in range(200)]
    assert why_no_feature("measure", padded, as_numbers(padded), category=False) == ""


def test_categories_stay_0_and_1_on_request(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    scaled, plain = (load(path=path, target="cost", scale_categories=choice) for choice in (True, False))
    towns = plain.x[:, list(plain.space.column("town").positions)]
    assert towns.tolist() == [[1, 0], [0, 1], [0, 0], [1, 0]]  # Oslo is the reference
    assert torch.equal(plain.x[:, 0], scaled.x[:, 0]) and not torch.equal(plain.x, scaled.x)
    assert plain.raw["town"].tolist() == scaled.raw["town"].tolist()
    with pytest.raises(BadInput, match="scale_categories: expected true or false, got 'no'"):
        load(path=path, target="cost", scale_categories="no")
