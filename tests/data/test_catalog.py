"""Every data set of the catalogue against published counts, shapes and means."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import torch

from fedxray.data.catalog import DATASETS, load, options_of
from fedxray.data.dataset import Dataset
from fedxray.data.sources import SOURCES
from fedxray.data.split import split
from fedxray.errors import BadInput

DOWNLOADED = [name for name in DATASETS if name in SOURCES]
WITHOUT_DOWNLOAD = [name for name in DATASETS if name not in SOURCES]


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("FEDXRAY_CACHE", str(tmp_path_factory.mktemp("cache")))


@functools.cache
def once(name: str) -> Dataset:
    """A data set of the folder, read once for several tests."""
    return load(name)


def check_whole(dataset: Dataset) -> None:
    """What holds for every data set: types, shapes, finite values, codes that say what x holds."""
    space = dataset.space
    assert dataset.x.dtype == torch.float32
    assert dataset.x.shape == (len(dataset), *space.shape)
    assert torch.isfinite(dataset.x).all()
    assert dataset.note
    if space.target == "classification":
        assert dataset.y.dtype == torch.int64
        assert int(dataset.y.min()) >= 0
        assert int(dataset.y.max()) < len(space.classes)
    else:
        assert dataset.y.dtype == torch.float32
    assert dataset.y.shape == (len(dataset),)
    assert dataset.owner is None or dataset.owner.shape == (len(dataset),)
    if space.kind == "image":
        pixels = space.to_pixels(dataset.x)
        assert float(pixels.min()) >= -1e-5
        assert float(pixels.max()) <= 1 + 1e-5
    used = sorted(place for column in space.columns for place in column.positions)
    assert used == (list(range(space.shape[0])) if space.kind == "table" else [])
    for column in space.columns:
        assert len(dataset.raw[column.name]) == len(dataset)
        if column.kind == "categorical":
            assert len(column.codes) == len(column.categories)
            codes = column.candidates(dataset.x)
            block = dataset.x[:, list(column.positions)]
            text = np.array([str(value) for value in dataset.raw[column.name].tolist()])
            for category, code in zip(column.categories, codes, strict=True):
                rows = torch.from_numpy((text == category) | (text == f"{category}.0"))
                assert torch.equal(block[rows], code.expand(int(rows.sum()), -1)), (column.name, category)
                assert rows.any()


@pytest.mark.parametrize("name", WITHOUT_DOWNLOAD)
def test_made_without_a_download_or_the_user_makes_its_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDXRAY_DATA", str(tmp_path))
    try:
        dataset = load(name)
    except BadInput as refusal:
        assert "Make it" in refusal.remedy and "FEDXRAY_DATA" in refusal.remedy
    else:
        check_whole(dataset)


@pytest.mark.parametrize("name", DOWNLOADED)
def test_read_from_the_folder(name: str, data_folder: object) -> None:
    check_whole(once(name))


def test_medical_is_the_published_table(data_folder: object) -> None:
    dataset = once("medical")
    assert dataset.x.shape == (1338, 8)
    assert int((dataset.raw["smoker"] == "yes").sum()) == 274
    assert float(dataset.y.mean()) == pytest.approx(13270.42, abs=0.01)
    assert [column.name for column in dataset.space.columns] == ["age", "bmi", "children", "sex", "smoker", "region"]
    assert dataset.x.mean(dim=0).abs().max() < 1e-5
    assert (dataset.x.std(dim=0, unbiased=False) - 1).abs().max() < 1e-5
    smoker = dataset.space.column("smoker")
    assert smoker.categories == ("no", "yes")
    share = 274 / 1338
    expected = (-share / np.sqrt(share * (1 - share)), (1 - share) / np.sqrt(share * (1 - share)))
    assert [code[0] for code in smoker.codes] == pytest.approx(expected, rel=1e-6)
    region = dataset.space.column("region")
    assert len(region.positions) == 3
    assert len(region.codes) == 4
    assert all(value < 0 for value in region.codes[0])  # the category without a column of its own


def test_medical_target_can_be_standardised(data_folder: object) -> None:
    dollars, scaled = load("medical"), load("medical", scale_target=True)
    assert float(scaled.y.mean()) == pytest.approx(0, abs=1e-5)
    back = scaled.y * scaled.space.target_std + scaled.space.target_mean
    assert torch.allclose(back, dollars.y, rtol=1e-4)


@pytest.mark.parametrize(
    ("part", "rows", "rich", "unknown"), [("train", 32561, 7841, 2399), ("test", 16281, 3846, 1221)]
)
def test_adult_counts(part: str, rows: int, rich: int, unknown: int, data_folder: object) -> None:
    kept = load("adult", part=part, missing="keep")
    assert len(kept) == rows
    assert int(kept.y.sum()) == rich
    assert kept.space.classes == ("<=50K", ">50K")
    assert len(load("adult", part=part)) == rows - unknown


def test_adult_has_the_papers_width(data_folder: object) -> None:
    dataset = once("adult")
    assert dataset.x.shape == (45222, 53)
    assert dataset.space.column("sex").categories == ("Female", "Male")
    assert len(dataset.space.column("race").positions) == 5
    assert int((dataset.raw["education"] == "Doctorate").sum()) == 544


def test_income_of_connecticut_is_in_dollars(data_folder: object) -> None:
    dataset = once("acs-income")
    assert dataset.space.target == "regression"
    assert float(dataset.y.min()) > 100
    assert dataset.space.sensitive == "SEX"
    assert dataset.space.column("SEX").categories == ("1", "2")
    assert len(dataset.space.column("RAC1P").categories) == 8


def test_groups_of_incomes_are_coded_as_in_the_paper(data_folder: object) -> None:
    """Numbers and sex standardised, other groups 0 and 1."""
    dataset = once("acs-income")
    for column in dataset.space.columns:
        block = dataset.x[:, list(column.positions)].double()
        if column.kind == "continuous" or column.name == "SEX":
            assert float(block.mean().abs()) < 1e-4 and abs(float(block.std(0)) - 1) < 1e-3
        else:
            assert set(block.unique().tolist()) <= {0.0, 1.0} and float(block.sum(1).max()) == 1
            assert set(column.codes[0]) == {0.0} and len(column.codes) == len(column.positions) + 1


def test_drawn_occupations_make_a_table_wide_without_information(data_folder: object) -> None:
    plain, wide = once("acs-income"), load("acs-income", drawn_occupations=300)
    drawn = wide.x[:, list(wide.space.column("OCCP").positions)]
    assert wide.x.shape[1] == plain.x.shape[1] + 299 and torch.equal(wide.y, plain.y)
    assert "drawn at random" in wide.note and "drawn" not in plain.note
    common = (drawn.argmax(1) + 1) * drawn.sum(1)  # the group's number; those of the first have no 1 at all
    fit = torch.stack([common, wide.y]).corrcoef()
    assert abs(float(fit[0, 1])) < 4 / len(wide) ** 0.5
    assert int((common == 0).sum()) > 20 * int((common == 299).sum()) > 0
    with pytest.raises(BadInput, match="real ones"):
        load("acs-income", state="NE", drawn_occupations=5)
    with pytest.raises(BadInput, match="drawn_occupations"):
        load("acs-income", drawn_occupations=-1)


def test_income_of_nebraska_is_a_class(data_folder: object) -> None:
    dataset = load("acs-income", state="NE")
    assert len(dataset) == 10554  # 10,785 less duplicates
    assert dataset.space.classes == ("<=50K", ">50K")
    assert "POBP" not in [column.name for column in dataset.space.columns]
    widths = {column.name: len(column.positions) for column in dataset.space.columns}
    assert widths == {
        "AGEP": 1, "SCHL": 1, "WKHP": 1, "COW": 7, "MAR": 4, "OCCP": 480, "RELP": 17, "RAC1P": 7, "SEX": 1,
    }  # fmt: skip


def test_income_of_all_states_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDXRAY_DATA", str(tmp_path))
    monkeypatch.setenv("FEDXRAY_CACHE", str(tmp_path / "none"))
    with pytest.raises(BadInput, match="folktables"):
        load("acs-income", state="all")
    (tmp_path / "acs").mkdir()
    head = "AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P"
    for state, count, target in (("la", 10, "PINCP"), ("tx", 20, "PINCP"), ("ut", 5, "PINCP_gt_50k")):
        rows = [f"{20 + n},1,{n},1,{n % 3},1,0,40,{1 + n % 2},1,{1000 * n + 500}" for n in range(count)]
        (tmp_path / "acs" / f"acsincome_2018_{state}.csv").write_text("\n".join([f"{head},{target}", *rows]))
    whole, half = load("acs-income", state="all"), load("acs-income", state="all", share=0.5)
    assert whole.owners == ("LA", "TX") and whole.space.target == "regression"
    assert whole.owner is not None and whole.owner.bincount().tolist() == [10, 20]
    assert half.owner is not None and half.owner.bincount().tolist() == [5, 10]
    assert set(half.y.tolist()) <= set(whole.y.tolist())


def test_income_of_another_state_says_what_is_missing(data_folder: object) -> None:
    with pytest.raises(BadInput, match=r"acsincome_2018_la\.csv\.gz.*folktables.*or use CT or NE"):
        load("acs-income", state="LA")
    with pytest.raises(BadInput, match="two capital letters"):
        load("acs-income", state="../../etc")


@pytest.mark.parametrize(
    ("name", "options", "shape", "classes", "owners"),
    [
        ("digits", {}, (1797, 1, 8, 8), 10, None),
        ("att-faces", {}, (400, 1, 80, 70), 40, None),
        ("att-faces", {"size": [112, 92]}, (400, 1, 112, 92), 40, None),
        ("mnist", {}, (10000, 1, 28, 28), 10, 298),
        ("mnist", {"part": "test", "size": 32}, (2000, 1, 32, 32), 10, None),
        ("mnist-by-writer", {}, (22278, 1, 28, 28), 10, 200),
        ("femnist-like", {}, (3410, 1, 28, 28), 62, 55),
        ("fashion-mnist", {}, (5000, 1, 28, 28), 10, None),
        ("cifar10", {"part": "test"}, (1000, 3, 32, 32), 10, None),
        ("cifar100", {}, (1117, 3, 32, 32), 100, None),
        ("imagenet-sample", {}, (1000, 3, 64, 64), 1000, None),
        ("imagenet-sample", {"size": 32}, (1000, 3, 32, 32), 1000, None),
        ("imagenet-sample", {"size": 128}, (64, 3, 128, 128), 1000, None),
        ("imagenet-sample", {"size": 224}, (64, 3, 224, 224), 1000, None),
    ],
)
def test_image_shapes(
    name: str, options: dict[str, object], shape: tuple[int, ...], classes: int, owners: int | None, data_folder: object
) -> None:
    dataset = load(name, **options)
    assert dataset.x.shape == shape
    assert len(dataset.space.classes) == classes
    assert (None if dataset.owner is None else len(dataset.owner.unique())) == owners


def test_image_means(data_folder: object) -> None:
    like = once("femnist-like")
    pixels = like.space.to_pixels(like.x)
    assert float(pixels.mean()) == pytest.approx(0.957, abs=1e-3)
    assert float(pixels.std()) == pytest.approx(0.164, abs=1e-3)
    assert like.space.classes[10] == "A"
    mnist = load("mnist", normalise=False)
    assert mnist.space.mean == ()
    assert float(mnist.x.mean()) == pytest.approx(0.1307, abs=2e-3)
    assert mnist.y[:5].tolist() == [5, 0, 4, 1, 9]
    hundred = once("cifar100")
    assert hundred.space.recognised_above == 19
    assert float(hundred.x.mean()) == pytest.approx(0, abs=0.1)
    assert load("cifar10").space.recognised_above == 20
    ten = load("cifar10", normalise=True)
    assert float(ten.x.mean()) == pytest.approx(0, abs=0.02) and float(ten.x.std()) == pytest.approx(1, abs=0.02)
    assert torch.allclose(ten.space.to_pixels(ten.x), load("cifar10").x, atol=1e-6)


def test_digits_can_be_normalised() -> None:
    digits = load("digits", normalise=True)
    assert float(digits.x.mean()) == pytest.approx(0, abs=1e-3)
    assert float(digits.x.std()) == pytest.approx(1, abs=1e-3)
    assert torch.allclose(digits.space.to_pixels(digits.x), load("digits").x, atol=1e-6)


def test_faces_are_in_order(data_folder: object) -> None:
    faces = once("att-faces")
    assert torch.equal(faces.y, torch.arange(40).repeat_interleave(10))


def test_diabetes() -> None:
    dataset = load("diabetes")
    assert dataset.x.shape == (442, 10)
    assert dataset.space.sensitive == "sex"
    assert float(dataset.y.mean()) == pytest.approx(0, abs=1e-6)
    assert dataset.space.target_mean == pytest.approx(152.1335, abs=1e-3)


def test_flights_are_the_fixed_sample(data_folder: object) -> None:
    dataset = once("flights")
    assert len(dataset) == 30000
    assert dataset.space.column("class").categories == ("Business", "Economy")
    assert len(dataset.space.columns) == 8
    assert dataset.owner is not None
    assert len(dataset.owner.unique()) == 6
    small = load("flights", rows=100, scale_target=False)
    assert set(small.y.tolist()) <= set(load("flights", scale_target=False).y.tolist())


def test_femnist_says_how_to_make_it(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDXRAY_DATA", str(tmp_path))
    with pytest.raises(BadInput, match=r"preprocess\.sh"):
        load("femnist")


def test_missing_file_names_the_remedy(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDXRAY_DATA", str(tmp_path))
    with pytest.raises(BadInput, match=r"insurance\.csv\.gz.*fedxray data get medical.*FEDXRAY_DATA"):
        load("medical")


def test_unknown_names_and_settings() -> None:
    with pytest.raises(BadInput, match="Did you mean medical"):
        load("medicall")
    with pytest.raises(BadInput, match="either a name, a path or a schema"):
        load()
    with pytest.raises(BadInput, match="either a name, a path or a schema"):
        load("digits", path="x.csv")
    with pytest.raises(BadInput, match="rows: expected a setting of data set digits"):
        load("digits", rows=3)
    with pytest.raises(BadInput, match="Did you mean"):
        load("clinic", sensitive="smokr")
    with pytest.raises(BadInput, match="sensitive"):
        load("digits", sensitive="sex")
    assert "state" in options_of("acs-income")


def test_device_and_dtype_do_not_come_from_the_surroundings() -> None:
    expected = load("clinic"), load("digits")
    divided = split(expected[0], clients=3, partition="dirichlet", seed=1)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            found = load("clinic"), load("digits")
            again = split(found[0], clients=3, partition="dirichlet", seed=1)
    finally:
        torch.set_default_dtype(torch.float32)
    for before, after in zip(expected, found, strict=True):
        assert torch.equal(before.x, after.x)
        assert torch.equal(before.y, after.y)
    assert all(torch.equal(a, b) for a, b in zip(divided.train, again.train, strict=True))
