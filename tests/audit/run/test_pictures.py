"""Pictures for the report: matched, clipped, few, and marked where they are a user's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedxray.attacks.evidence import of_class_images, of_images, of_membership
from fedxray.audit.run.evaluate import MOST_PICTURES, pictures
from fedxray.data.dataset import Dataset, Records, Space
from fedxray.federation.truth import Truth
from fedxray.metrics.scoring import score
from tests.adversary.clinics import federation

GREY, COLOUR = (1, 2, 2), (3, 2, 2)


def world(x: torch.Tensor, *, private: bool = False) -> tuple[Truth, Dataset]:
    channels = x.shape[1]
    space = Space(
        kind="image",
        shape=tuple(x.shape[1:]),
        target="classification",
        classes=("a",),
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
    )
    records = Records(space.from_pixels(x), torch.zeros(len(x)).long())
    truth = replace(federation().truth(seed=0), space=space, train=(records, records))
    return truth, Dataset(name="own", x=records.x, y=records.y, space=space, private=private)


def test_each_original_stands_beside_its_guess() -> None:
    x = torch.stack([torch.full(GREY, 0.25), torch.full(GREY, 0.75)])
    truth, dataset = world(x, private=True)
    guess = truth.space.from_pixels(torch.stack([torch.full(GREY, 0.85), torch.full(GREY, 0.26)]))
    found = pictures(of_images(guess), truth, 1, dataset)
    assert found is not None and found["title"] == "client 1, 2 images" and found["private"] is True
    first, second = found["images"]
    assert first["original"] == [[0.25, 0.25], [0.25, 0.25]] and first["guess"] == [[0.26, 0.26], [0.26, 0.26]]
    assert (first["caption"], second["caption"]) == ("40.0 dB", "20.0 dB")


def test_what_is_out_of_range_or_broken_can_still_be_drawn() -> None:
    truth, dataset = world(torch.full((1, *COLOUR), 0.5))
    guess = torch.tensor([float("nan"), -99.0, 99.0]).reshape(1, 3, 1, 1).expand(1, *COLOUR)
    found = pictures(of_images(guess), truth, 0, dataset)
    assert found is not None and found["private"] is False
    assert all(shown["guess"][0][0] == [0.0, 0.0, 1.0] for shown in found["images"])


def test_pairs_and_their_similarity_are_those_of_the_scores() -> None:
    drawn = torch.Generator().manual_seed(0)
    truth, dataset = world(torch.rand(6, *COLOUR, generator=drawn))
    guess = truth.train[1].x[torch.randperm(6, generator=drawn)] + 0.3 * torch.randn(6, *COLOUR, generator=drawn)
    found = pictures(of_images(guess), truth, 1, dataset)
    alone = replace(truth, holdout=truth.train, public=truth.train[0])
    scored = score(of_images(guess), alone, client=1).records["psnr"]
    assert found is not None
    assert [one["quality"] for one in found["images"]] == pytest.approx(scored.tolist(), abs=1e-3)


def test_of_many_the_best_and_the_worst_are_among_the_few() -> None:
    x = torch.linspace(0.1, 0.9, MOST_PICTURES + 3)[:, None, None, None].expand(-1, *GREY)
    truth, dataset = world(x)
    guess = truth.train[0].x + 0.01 * torch.arange(len(x), 0, -1)[:, None, None, None]  # the last is the best
    found = pictures(of_images(guess), truth, 0, dataset)
    assert found is not None and len(found["images"]) == MOST_PICTURES
    assert found["title"] == f"client 0, {MOST_PICTURES} of {MOST_PICTURES + 3} images"
    records = [one["record"] for one in found["images"]]
    assert records == sorted(records) and {0, len(x) - 1} <= set(records)


def test_a_report_gets_a_few() -> None:
    truth, dataset = world(torch.rand(MOST_PICTURES + 3, *GREY))
    found = pictures(of_images(truth.train[0].x), truth, 0, dataset)
    assert found is not None and len(found["images"]) == MOST_PICTURES
    fewer = pictures(of_images(truth.train[0].x[:2]), truth, 0, dataset)
    assert fewer is not None and len(fewer["images"]) <= 2


def test_other_kinds_have_no_pictures() -> None:
    truth, dataset = world(torch.rand(2, *GREY))
    assert pictures(of_membership(torch.zeros(2)), truth, 0, dataset) is None


def test_the_image_of_a_class_stands_beside_the_first_original_of_it() -> None:
    truth, dataset = world(torch.stack([torch.full(GREY, place / 20) for place in range(20)]))
    y = torch.tensor([1] * 10 + [0] * 5 + [3] * 5)
    truth = replace(truth, train=(Records(truth.train[0].x, y),) * 2)
    guess = truth.space.from_pixels(torch.stack([torch.full(GREY, value) for value in (0.6, 0.1, 0.9)]))
    found = pictures(of_class_images(guess, torch.tensor([0, 1, 2])), truth, 0, dataset)
    assert found is not None
    shown = [(one["original"][0][0], one["guess"][0][0]) for one in found["images"]]
    assert shown == [(0.0, 0.1), (0.5, 0.6)]  # class 3 has no guess, class 2 no original
