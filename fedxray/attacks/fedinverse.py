"""FedInverse (Wu et al. 2024; Fig. 9 of "curious client" 2024): inverts the global model within a generator's images.

Images of a class are reconstructed from the model that every client receives:
    1. Train a generator and a critic on public images.
    2. For every class draw several codes.
    3. Minimise minus the critic's score plus 100 times minus the log probability of the class (generative model
       inversion), and 0.05 times the dependence (HSIC) between the first and the second half of all images, so that
       guesses of one class differ.
    4. After each step project onto the box of codes.
    5. Of every class's guesses keep the one with the lowest cost.
The result is what the model considers typical of a class, not a training image.

The generator starts as the principal components of the public images: a code times their standard deviations, plus the
mean. A small network on top is trained against the critic (least squares GAN), which gives sharper images. A GAN from
scratch needs far more images and hours; the components alone already are a prior that few images can give.

Where we differ: the authors train a GAN on many public images for hours. Their success is measured by another
trained classifier; ours by the nearest images of all clients (`class_recognised`), which share nothing with the model,
and by comparison with the client's images of the class, as for `model-inversion`. Steps have momentum,
theirs in the form of Nesterov. `model` may be another than the global one, such as the client's own reply where the
role sees it; `independence = 0` is plain model inversion (MI).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, classification, images, needs_of_model
from fedxray.attacks.evidence import Evidence, model_params, of_class_images
from fedxray.attacks.local_model.baselines import GlobalModel, LastReturned
from fedxray.attacks.model_inversion import ClassImages, log_probabilities
from fedxray.errors import BadInput
from fedxray.models.factory import own_surroundings
from fedxray.optim import MOST_RATE, Adam, Sgd, Tensors, minimise
from fedxray.params import Params, parameters_of
from fedxray.priors import hsic
from fedxray.progress import Report, Step
from fedxray.seeds import fork, normal_like
from fedxray.settings import setting

# Generator and critic

MOST = 1000  # public images that are used
RATE = 2e-3  # learning rate of generator and critic


@dataclass(frozen=True, kw_only=True, eq=False)
class Generator:
    """Maps codes [n, entries] to pixels in 0..1 [n, c, h, w], with a critic that scores realistic pixels higher."""

    entries: int
    pixels: Callable[[Tensor], Tensor]
    realness: Callable[[Tensor], Tensor]
    critic_loss: float


class Sharpener(nn.Module):
    """A residual network on pixels [n, c, h, w]; the identity before training."""

    def __init__(self, channels: int, width: int) -> None:
        nn.Module.__init__(self)
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Conv2d(width, channels, 3, padding=1)
        for parameter in self.last.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Return the pixels plus the residual."""
        added: Tensor = self.last(F.leaky_relu(self.second(F.leaky_relu(self.first(x), 0.2)), 0.2))
        return x + added


class ImageCritic(nn.Module):
    """Scores every image [n, c, h, w]: near 1 for real ones, near 0 for generated ones."""

    def __init__(self, channels: int, width: int) -> None:
        nn.Module.__init__(self)
        self.first = nn.Conv2d(channels, width, 3, 2, 1)
        self.second = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.last = nn.Conv2d(2 * width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean score over all positions [n]."""
        scores: Tensor = self.last(F.leaky_relu(self.second(F.leaky_relu(self.first(x), 0.2)), 0.2))
        return scores.flatten(1).mean(1)


def learn_generator(
    images: Tensor, *, entries: int, width: int, steps: int, batch: int, draws: torch.Generator, report: Report
) -> Generator:
    """Train generator and critic on public pixels [n, c, h, w] in 0..1.

    `entries` are the entries of a code, `width` the channels of both networks, `batch` the images of a step.
    """
    images = images[:MOST]
    mean, spread = components(images, entries)
    with own_surroundings(draws):
        nets = Sharpener(images.shape[1], width), ImageCritic(images.shape[1], width)
    sharpener, critic = (net.to(images) for net in nets)
    made, judge = parameters_of(sharpener), parameters_of(critic)
    made_memory, judge_memory = (_adam(steps).fresh(params) for params in (made, judge))
    loss = 0.0

    def rough(codes: Tensor) -> Tensor:
        return (mean + codes @ spread).reshape(len(codes), *images.shape[1:])

    for step in range(steps):
        codes = normal_like(images.new_zeros((batch, len(spread))), draws)
        chosen = torch.randint(len(images), (batch,), generator=draws, device="cpu")
        real = images[chosen.to(images.device)]
        with torch.no_grad():
            fake = functional_call(sharpener, made, (rough(codes),))
        value, slope = _slope(judge, lambda point: _judged(critic, point, real, fake))  # noqa: B023
        judge, judge_memory = _adam(steps).move(judge, slope, judge_memory, step)
        _, slope = _slope(made, lambda point: _fooled(critic, judge, sharpener, point, rough(codes)))  # noqa: B023
        made, made_memory = _adam(steps).move(made, slope, made_memory, step)
        loss = value
        report(Step("learn a generator", step + 1, steps, value))
    return Generator(
        entries=len(spread),
        pixels=lambda codes: functional_call(sharpener, made, (rough(codes),)).clamp(0, 1),
        realness=lambda pixels: functional_call(critic, judge, (pixels,)),
        critic_loss=loss,
    )


def components(images: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return the mean [pixels] and at most `most` principal components of images [n, ...] times their deviations."""
    flat = images.flatten(1)
    mean = flat.mean(0)
    centred = flat - mean
    # By the Gram matrix of the images [n, n], of which there are usually fewer than pixels.
    values, vectors = torch.linalg.eigh(centred @ centred.T)
    kept = values > 1e-6 * values[-1].clamp(min=1e-12)
    order = torch.nonzero(kept)[:, 0].flip(0)[:most]
    return mean, (vectors[:, order].T @ centred) / len(images) ** 0.5


def _adam(steps: int) -> Adam:
    return Adam(steps=max(steps, 1), lr=RATE, betas=(0.5, 0.999))


def _slope(point: Params, loss: Callable[[dict[str, Tensor]], Tensor]) -> tuple[float, dict[str, Tensor]]:
    leaves = {name: value.detach().requires_grad_() for name, value in point.items()}
    with torch.enable_grad():
        value = loss(leaves)
        slopes = torch.autograd.grad(value, list(leaves.values()))
    return float(value.detach()), dict(zip(leaves, slopes, strict=True))


def _judged(critic: nn.Module, point: Params, real: Tensor, fake: Tensor) -> Tensor:
    """Return the loss of the critic on real and generated images."""
    right: Tensor = (functional_call(critic, dict(point), (real,)) - 1).square().mean()
    wrong: Tensor = functional_call(critic, dict(point), (fake,)).square().mean()
    return right + wrong


def _fooled(critic: nn.Module, judge: Params, sharpener: nn.Module, point: Params, rough: Tensor) -> Tensor:
    """Return the loss of the generator: squared distance of the critic's scores from those of real images."""
    made = functional_call(sharpener, dict(point), (rough,))
    loss: Tensor = (functional_call(critic, dict(judge), (made,)) - 1).square().mean()
    return loss


# The attack

LEAST = 10  # public images that are required


@dataclass(frozen=True, kw_only=True)
class FedInverse(ClassImages):
    """What do the images of a class look like? The most confident ones among a generator's images."""

    name: ClassVar[str] = "fedinverse"
    paper: ClassVar[str] = "wu-2024"
    grants: ClassVar[tuple[str, ...]] = ("public-images",)
    small: ClassVar[Mapping[str, Any]] = {
        "model": LastReturned(), "steps": 40, "guesses": 2, "generator_steps": 3, "width": 8,
    }  # fmt: skip

    model: Attack = setting(GlobalModel, "Attack whose model is inverted.")
    steps: int = setting(1500, "Optimisation steps.", least=1)
    learning_rate: float = setting(0.02, "Learning rate of SGD with momentum.", above=0, most=MOST_RATE)
    doubt: float = setting(100.0, "Weight of minus the log probability of the class.", least=0)
    independence: float = setting(
        0.05, "Weight of the dependence (HSIC) between guesses; 0 is plain model inversion.", least=0
    )
    sigma: float = setting(5.0, "Bandwidth of the kernels of HSIC.", above=0)
    guesses: int = setting(4, "Guesses per class, an even number; the one with the lowest cost is kept.", least=2)
    box: float = setting(1.0, "Bound on the absolute value of the entries of a code.", above=0)
    entries: int = setting(100, "Entries of a code.", least=1)
    generator_steps: int = setting(300, "Training steps of the generator on public images.", least=0)
    width: int = setting(16, "Channels of the generator's network.", least=1)

    def check_settings(self) -> None:
        """Refuse an odd number of guesses, which cannot be split into halves."""
        if self.guesses % 2:
            raise BadInput("guesses", expected="an even number", got=self.guesses, remedy="Try 4.")

    def needs(self) -> tuple[Need, ...]:
        """List images with classes, public images, and the needs of the attack on the model."""
        return (images(), classification(), public_images(), *needs_of_model(self.model))

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header, all classes and guesses at once."""
        params, buffers = model_params(context.run(self.model, view))
        like, classes = next(iter(params.values())), len(view.space.classes)
        generator = self._learnt(view, context, like)
        labels = torch.arange(classes, dtype=torch.int64, device=like.device).repeat(self.guesses)
        network = copy.deepcopy(view.model).eval()

        def costs(codes: Tensor) -> tuple[Tensor, Tensor]:
            pixels = generator.pixels(codes)
            sure = log_probabilities(network, params, buffers, view.space.from_pixels(pixels), labels)
            return -generator.realness(pixels) - self.doubt * sure, pixels

        def cost(point: dict[str, Tensor]) -> Tensor:
            each, pixels = costs(point["codes"])
            if not self.independence:
                return each.mean()
            first, second = pixels.chunk(2)
            return each.mean() + self.independence * hsic(first, second, self.sigma)

        def project(point: Tensors) -> dict[str, Tensor]:
            return {"codes": point["codes"].clamp(-self.box, self.box)}

        drawn = normal_like(like.new_zeros((len(labels), generator.entries)), context.generator)
        method = Sgd(steps=self.steps, lr=self.learning_rate, momentum=0.9)
        end = minimise(cost, project({"codes": drawn}), method, report=context.report, project=project, what=self.name)
        with torch.no_grad():
            each, pixels = costs(end.best["codes"])
        chosen = each.reshape(self.guesses, classes).argmin(0)
        kept = chosen * classes + torch.arange(classes, device=like.device)
        first, second = pixels.chunk(2)
        facts = {
            "cost": float(each[kept].mean()),
            "dependence": float(hsic(first, second, self.sigma)),
            "critic_loss": generator.critic_loss,
        }
        return of_class_images(
            view.space.from_pixels(pixels[kept]), labels[:classes],
            status=end.status, reason=end.reason, curve=end.curve, facts=facts,
        )  # fmt: skip

    def _learnt(self, view: View, context: Context, like: Tensor) -> Generator:
        """Return a generator trained on the public images."""
        public = view.grants.public_images
        assert public is not None  # a need
        return learn_generator(
            view.space.to_pixels(public.to(like)).clamp(0, 1),
            entries=self.entries, width=self.width, steps=self.generator_steps, batch=32,
            draws=fork(context.generator, "generator"), report=context.report,
        )  # fmt: skip


def public_images() -> Need:
    """Return the need of images that belong to no client."""
    return Need(
        what=f"at least {LEAST} public images",
        given_by='grants = ["public-images"] with public > 0 in [data]',
        met=lambda view: view.grants.public_images is not None and len(view.grants.public_images) >= LEAST,
    )
