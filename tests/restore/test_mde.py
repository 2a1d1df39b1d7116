"""MDE: its sampler against the scheduler of diffusers, its slope against differences, its objective."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.progress import Step, silent
from fedxray.restore.base import Diffusion
from fedxray.restore.mde import Mde, estimated_noise, rebuilt, sample
from fedxray.seeds import fork
from tests.restore.gaussians import SHAPE, gaussian_prior


def first_noise(count: int = 2) -> Tensor:
    return torch.randn((count, *SHAPE), generator=fork(0, "first noise"), dtype=torch.float64)


def test_a_sample_is_that_of_the_scheduler_of_diffusers(extra: Callable[[str], ModuleType]) -> None:
    library = extra("diffusers")
    scheduler = library.DDIMScheduler(
        num_train_timesteps=1000, beta_schedule="linear", clip_sample=False, set_alpha_to_one=True
    )
    scheduler.set_timesteps(4)
    levels = [int(level) for level in scheduler.timesteps]  # 750, 500, 250, 0
    prior = gaussian_prior()
    x = first_noise()
    for level in levels:
        x = scheduler.step(prior.noise(x, level, None), level, x, eta=0.0).prev_sample
    found, seen = sample(prior, first_noise(), levels, None)
    torch.testing.assert_close(found, x, atol=1e-4, rtol=1e-4)
    assert len(seen) == 4


def test_the_rebuilt_sample_is_the_sample_and_its_predictions_are_constants() -> None:
    """The slope is that of a straight line: predictions of the model do not move with the noise."""
    asked: list[bool] = []
    plain = gaussian_prior()

    def noise(x: Tensor, level: int, labels: Tensor | None) -> Tensor:
        asked.append(x.requires_grad)
        return plain.noise(x, level, labels)

    prior = Diffusion(shape=SHAPE, kept=plain.kept, noise=noise)
    levels, start = prior.levels(6), first_noise()
    found, seen = sample(prior, start, levels, None)
    torch.testing.assert_close(rebuilt(prior, start, levels, seen), found)
    wanted = torch.zeros_like(start)
    _, slope, errors = Mde(prior="here", steps=6).one_epoch(start, wanted, None, prior)
    assert not any(asked)
    factor = 1 / float(prior.kept[levels[0]]) ** 0.5  # by which a constant path carries the first noise to the end
    torch.testing.assert_close(slope, 2 * factor * (found - wanted) / found[0].numel())
    torch.testing.assert_close(errors, (found - wanted).square().flatten(1).mean(1))
    step = 1e-6 * torch.ones_like(start)
    moved = rebuilt(prior, start + step, levels, seen)
    torch.testing.assert_close(moved - found, factor * step, atol=1e-9, rtol=1e-4)


def test_the_objective_falls_and_every_image_keeps_its_best_epoch() -> None:
    prior = gaussian_prior()
    wanted, _ = sample(prior, first_noise(3), prior.levels(8), None)
    steps: list[Step] = []
    found = Mde(prior="here", epochs=60, learning_rate=0.05, steps=8, noise=0.0).pixels(
        (wanted + 1) / 2, None, prior, fork(1, "test"), steps.append
    )
    curve = found.facts["mde_objective"]
    assert len(curve) == 61 and found.facts["mde_lowest"] < 0.3 * curve[0]
    errors = (2 * found.pixels - 1 - wanted).square().flatten(1).mean(1)
    assert float(errors.mean()) == pytest.approx(found.facts["mde_lowest"])
    assert found.facts["mde_lowest"] <= min(curve) and steps[-1].done == steps[-1].total == 61


def test_the_class_reaches_the_model_and_guidance_goes_beyond_it() -> None:
    def noise(x: Tensor, level: int, labels: Tensor | None) -> Tensor:
        value = 0.0 if labels is None else labels.to(x)[:, None, None, None] + 1.0
        return torch.zeros_like(x) + value

    prior = Diffusion(shape=SHAPE, kept=gaussian_prior().kept, noise=noise)
    x, labels = first_noise(), torch.tensor([0, 2])
    assert prior.predicted(x, 5, labels)[:, 0, 0, 0].tolist() == [1.0, 3.0]
    assert prior.predicted(x, 5, labels, 4.0)[:, 0, 0, 0].tolist() == [4.0, 12.0]
    assert prior.predicted(x, 5, None, 4.0).abs().max() == 0
    many = torch.arange(150)
    assert prior.predicted(first_noise(150), 5, many)[:, 0, 0, 0].tolist() == [1.0 + one for one in range(150)]
    assert len(prior.predicted(x[:0], 5, None)) == 0
    strict = Diffusion(shape=SHAPE, kept=prior.kept, noise=noise, needs_classes=True)
    with pytest.raises(BadInput, match="class-conditional"):
        strict.predicted(x, 5, None)


@pytest.mark.parametrize(
    ("setting", "value"), [("epochs", 0), ("learning_rate", 0.0), ("steps", 1), ("guidance", 101.0), ("noise", -0.1)]
)
def test_settings_that_cannot_be_meant(setting: str, value: float) -> None:
    with pytest.raises(BadInput):
        Mde(prior="here", **{setting: value})  # type: ignore[arg-type]


def test_same_generator_same_picture() -> None:
    prior, raw = gaussian_prior(), torch.full((2, *SHAPE), 0.5, dtype=torch.float64)
    mde = Mde(prior="here", epochs=2, steps=3)
    first, again, other = (mde.pixels(raw, None, prior, fork(seed, "x"), silent).pixels for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_every_image_keeps_the_epoch_of_its_own_lowest_error() -> None:
    """Not the last one: an objective that rises again is no reason to take what came after."""
    errors = torch.tensor([[3.0, 1.0], [1.0, 2.0], [2.0, 3.0]])  # [epochs, images]
    epochs = iter(range(3))

    class Scripted(Mde):
        def one_epoch(
            self, noise: Tensor, wanted: Tensor, labels: Tensor | None, prior: Diffusion
        ) -> tuple[Tensor, Tensor, Tensor]:
            epoch = next(epochs)
            return torch.full_like(noise, epoch / 10), torch.zeros_like(noise), errors[epoch].to(noise)

    raw = torch.zeros(2, *SHAPE)
    found = Scripted(prior="here", epochs=2).pixels(raw, None, gaussian_prior(), fork(0), silent)
    assert torch.allclose(found.pixels[0], torch.tensor((0.1 + 1) / 2))
    assert torch.allclose(found.pixels[1], torch.tensor((0.0 + 1) / 2))
    assert found.facts == {"mde_objective": [2.0, 1.5, 2.5], "mde_lowest": 1.0, "mde_noise": 0.0, "mde_stopped": 0.0}


def test_every_image_stops_where_it_is_as_near_as_its_noise_allows() -> None:
    """Errors are of images in -1..1, so that noise 0.1 is reached at 0.04; later epochs follow the noise."""
    errors = torch.tensor([[0.5, 0.5], [0.04, 0.3], [0.01, 0.2], [0.0, 0.03], [0.0, 0.0]])  # [epochs, images]
    asked: list[int] = []

    class Scripted(Mde):
        def one_epoch(
            self, noise: Tensor, wanted: Tensor, labels: Tensor | None, prior: Diffusion
        ) -> tuple[Tensor, Tensor, Tensor]:
            asked.append(len(asked))
            return torch.full_like(noise, asked[-1] / 10), torch.zeros_like(noise), errors[asked[-1]].to(noise)

    raw = torch.zeros(2, *SHAPE)
    found = Scripted(prior="here", epochs=4, noise=0.1).pixels(raw, None, gaussian_prior(), fork(0), silent)
    assert asked == [0, 1, 2, 3]  # the last epoch is not needed
    assert torch.allclose(found.pixels[:, 0, 0, 0], torch.tensor([(0.1 + 1) / 2, (0.3 + 1) / 2]))
    assert found.facts["mde_stopped"] == 1 and found.facts["mde_lowest"] == pytest.approx(0.035)


def slow_noise(image: Tensor) -> float:
    """The same estimate of one image [c, h, w], pixel by pixel."""
    estimates = []
    for halved in (False, True):
        values = image.tolist()
        if halved:
            values = [
                [[sum(c[y + i][x + j] for i in (0, 1) for j in (0, 1)) / 4 for x in range(0, len(c[0]) - 1, 2)]
                 for y in range(0, len(c) - 1, 2)]
                for c in values
            ]  # fmt: skip
        details = sorted(
            abs(c[y][x] - c[y][x + 1] - c[y + 1][x] + c[y + 1][x + 1]) / 2
            for c in values
            for y in range(0, len(c) - 1, 2)
            for x in range(0, len(c[0]) - 1, 2)
        )
        estimates.append(details[(len(details) - 1) // 2] / statistics.NormalDist().inv_cdf(0.75))
    return max(estimates)


@pytest.mark.parametrize("size", [(4, 4), (8, 6), (9, 7), (16, 32)])
def test_noise_is_estimated_as_by_hand(size: tuple[int, int]) -> None:
    images = torch.rand(3, 3, *size, generator=fork(0, "noise"), dtype=torch.float64)
    expected = torch.tensor([slow_noise(image) for image in images], dtype=torch.float64)
    torch.testing.assert_close(estimated_noise(images), expected)


def test_noise_is_found_beneath_edges_and_in_latent_images() -> None:
    draws = fork(1, "noise")
    y, x = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    edges = ((x > 20) ^ (y > 37)).double() * 0.6 + 0.1 * x / 64
    pure = 0.1 * torch.randn(2, 3, 64, 64, generator=draws, dtype=torch.float64)
    assert estimated_noise(edges + pure).tolist() == pytest.approx([0.1, 0.1], rel=0.1)
    assert estimated_noise(edges.expand(2, 3, 64, 64)).abs().max() < 1e-9
    small = 0.1 * torch.randn(2, 3, 32, 32, generator=draws, dtype=torch.float64)
    enlarged = torch.nn.functional.interpolate(small, scale_factor=2, mode="bicubic", align_corners=False)
    spread = enlarged.flatten(1).std(1).tolist()
    assert estimated_noise(edges + enlarged).tolist() == pytest.approx([0.75 * one for one in spread], rel=0.1)
    torch.testing.assert_close(estimated_noise(0.3 * pure + 0.5), 0.3 * estimated_noise(pure))
    assert estimated_noise(torch.zeros(1, 1, 2, 2)).tolist() == [0.0]
