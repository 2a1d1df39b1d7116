"""What all restorers do alike with evidence: pixels, classes, what is not finite, what they refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from fedxray.attacks.evidence import of_class_images, of_images, of_label_counts
from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.progress import Report
from fedxray.restore.base import Restored, Restorer, Shaped
from fedxray.restore.gan import Gan, RestoringNetwork
from fedxray.seeds import fork

SPACE = Space(kind="image", shape=(1, 2, 2), target="classification", classes=("cat", "dog"), mean=(0.5,), std=(0.25,))
PRIOR = Shaped(shape=(1, 2, 2), classes=("bird", "dog", "cat"))


@dataclass(frozen=True, kw_only=True)
class Told(Restorer[Shaped]):
    """Adds a tenth and the class number in hundredths, and tells what it got."""

    name: ClassVar[str] = "told"
    needs: ClassVar[tuple[str, ...]] = ("shaped",)
    prior: str = "here"
    revision: str | None = None

    def check(self, prior: Shaped) -> None:
        """Any."""

    def pixels(
        self, raw: Tensor, labels: Tensor | None, prior: Shaped, generator: torch.Generator, report: Report
    ) -> Restored:
        """The raw pixels, changed."""
        more = 0 if labels is None else labels.to(raw)[:, None, None, None] / 100
        lowest, highest = float(raw.min()), float(raw.max())
        return Restored(pixels=raw + 0.1 + more, facts={"raw": (lowest, highest), "known": labels is not None})


def evidence() -> Tensor:
    return torch.tensor([-2.0, 0.0, 1.0, 9.0]).reshape(1, 1, 2, 2).repeat(3, 1, 1, 1)


def test_restored_images_go_back_to_where_the_model_wants_them() -> None:
    raw = of_images(evidence(), torch.tensor([0, 1, 0]), facts={"round": 3})
    found = Told().restore(raw, PRIOR, space=SPACE, generator=fork(0))
    assert found.facts == {"round": 3, "restored_by": "told", "raw": (0.0, 1.0), "known": True}
    pixels = SPACE.to_pixels(found.tensors["inputs"])
    first = torch.tensor([0.12, 0.62, 0.87, 1.0]).reshape(1, 2, 2)  # cat is the prior's class 2; clipped at 1
    torch.testing.assert_close(pixels[0], first)
    torch.testing.assert_close(pixels[1], torch.tensor([0.11, 0.61, 0.86, 1.0]).reshape(1, 2, 2))
    assert torch.equal(raw.tensors["inputs"], evidence()) and torch.equal(
        found.tensors["labels"], raw.tensors["labels"]
    )


def test_what_is_not_finite_stays_as_it_is() -> None:
    inputs = evidence()
    inputs[1, 0, 0, 0] = torch.nan
    found = Told().restore(of_images(inputs), PRIOR, space=SPACE, generator=fork(0)).tensors["inputs"]
    assert torch.isnan(found[1, 0, 0, 0]) and torch.equal(found[1, 0, 0, 1:], inputs[1, 0, 0, 1:])
    assert not torch.equal(found[0], inputs[0])
    lost = of_images(inputs * torch.nan)
    found_lost = Told().restore(lost, PRIOR, space=SPACE, generator=fork(0))  # min() of nothing would fail
    assert found_lost.facts["restored_by"] == "told" and "raw" not in found_lost.facts


@pytest.mark.parametrize("prior", [Shaped(shape=(1, 2, 2)), Shaped(shape=(1, 2, 2), classes=("cat", "cow"))])
def test_classes_that_the_prior_does_not_know_are_left_out(prior: Shaped) -> None:
    raw = of_class_images(evidence()[:2], torch.tensor([0, 1]))
    assert Told().restore(raw, prior, space=SPACE, generator=fork(0)).facts["known"] is False


def test_what_holds_no_images_or_others_is_refused() -> None:
    with pytest.raises(BadInput, match="gives labels"):
        Told().restore(of_label_counts(torch.ones(2)), PRIOR, space=SPACE, generator=fork(0))
    with pytest.raises(BadInput, match=r"shape \[1, 2, 2\], got one for \[3, 4, 4\]"):
        Told().restore(of_images(evidence()), Shaped(shape=(3, 4, 4)), space=SPACE, generator=fork(0))


def test_the_network_gets_images_around_zero() -> None:
    class Half(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / 2

    prior = RestoringNetwork(shape=(1, 2, 2), network=Half())
    raw = of_images(evidence().repeat(30, 1, 1, 1))
    found = Gan(prior="here").restore(raw, prior, space=SPACE, generator=fork(0))
    pixels = SPACE.to_pixels(found.tensors["inputs"])
    assert len(pixels) == 90
    torch.testing.assert_close(pixels[89], torch.tensor([0.25, 0.5, 0.625, 0.75]).reshape(1, 2, 2))
