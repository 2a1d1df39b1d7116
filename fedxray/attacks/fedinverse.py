"""FedInverse (Wu et al. 2024; Fig. 9 of paper 004): a client inverts the global model within a generator's images.

What an image of a class looks like is asked of the model that every client receives:
    1. Learn a generator and a critic from public images (see `fedxray.attacks.fedinverse`).
    2. For every class draw several codes.
    3. Descend on what the critic finds unreal plus 100 times the model's doubt that the images are of their class
       (generative model inversion), and 0.05 times the dependence (HSIC) between the first and the second half of all
       images, so that guesses of one class do not all look alike.
    4. After each step go back into the box of codes.
    5. Of every class's guesses keep the one of least own cost.
It gives what the model takes for typical of a class, not an image that was trained on.

Where we differ: the authors train a GAN on many public images for hours; ours starts from the principal components of
the few that an audit has. Their success is what another classifier says; ours is compared with the client's images of
the class, like `model-inversion`. Steps have momentum, theirs in the form of Nesterov. `model` may be another than the
global one, such as the client's own reply where a seat sees it; `independence = 0` is plain model inversion (MI).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fedxray.adversary.view import View
from fedxray.attacks.base import EVERYONE, Attack, Context, Need, classification, images, needs_of_model
from fedxray.attacks.evidence import Evidence, Kind, model_params, of_class_images
from fedxray.attacks.local_model.baselines import GlobalModel, LastReturned
from fedxray.attacks.model_inversion import log_probabilities
from fedxray.errors import BadInput
from fedxray.models.factory import own_surroundings
from fedxray.optim import Adam, Sgd, check_settings, minimise
from fedxray.params import Params, parameters_of
from fedxray.priors import hsic
from fedxray.progress import Report, Step
from fedxray.seeds import fork, normal_like

# --- A generator of images that is learnt from public ones, and a critic that tells whether an image looks
# like them.
#
# The generator starts as the principal components of the public images: a code times their spread, plus the
# mean. On top a small network is trained against the critic (least squares GAN), so that sharper images
# come out. A GAN from nothing needs far more images and hours; the components alone already are a prior
# that few images can give.


MOST = 1000  # public images that are looked at
RATE = 2e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Generator:
    """Codes [n, entries] to pixels in 0..1 [n, c, h, w], and a critic of such pixels, larger where they look real."""

    entries: int
    pixels: Callable[[Tensor], Tensor]
    realness: Callable[[Tensor], Tensor]
    critic_loss: float


class Sharpener(nn.Module):
    """What is added to pixels [n, c, h, w]; nothing before training."""

    def __init__(self, channels: int, width: int) -> None:
        nn.Module.__init__(self)
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Conv2d(width, channels, 3, padding=1)
        for one in self.last.parameters():
            nn.init.zeros_(one)

    def forward(self, x: Tensor) -> Tensor:
        """The pixels with what is added."""
        added: Tensor = self.last(F.leaky_relu(self.second(F.leaky_relu(self.first(x), 0.2)), 0.2))
        return x + added


class Critic(nn.Module):
    """One number for every image [n, c, h, w]: near 1 where it looks real, near 0 where it was made."""

    def __init__(self, channels: int, width: int) -> None:
        nn.Module.__init__(self)
        self.first = nn.Conv2d(channels, width, 3, 2, 1)
        self.second = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.last = nn.Conv2d(2 * width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The mean over all places."""
        found: Tensor = self.last(F.leaky_relu(self.second(F.leaky_relu(self.first(x), 0.2)), 0.2))
        return found.flatten(1).mean(1)


def learn_generator(
    images: Tensor,
    *,
    entries: int,
    width: int,
    steps: int,
    batch: int,
    draws: torch.Generator,
    report: Report,
) -> Generator:
    """Learn from public pixels [n, c, h, w] in 0..1."""
    images = images[:MOST]
    mean, spread = components(images, entries)
    with own_surroundings(draws):
        nets = Sharpener(images.shape[1], width), Critic(images.shape[1], width)
    sharpener, critic = (net.to(images) for net in nets)
    made, judge = parameters_of(sharpener), parameters_of(critic)
    made_memory, judge_memory = (_adam(steps).fresh(one) for one in (made, judge))
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
    """The mean image [pixels] and the principal components of images [n, ...] times their spread, [k, pixels]."""
    flat = images.flatten(1)
    mean = flat.mean(0)
    centred = flat - mean
    # By the products of images, of which there are fewer than pixels more often than not.
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
        found = torch.autograd.grad(value, list(leaves.values()))
    return float(value.detach()), dict(zip(leaves, found, strict=True))


def _judged(critic: nn.Module, point: Params, real: Tensor, fake: Tensor) -> Tensor:
    """How wrong the critic is about real and made images."""
    right: Tensor = (functional_call(critic, dict(point), (real,)) - 1).square().mean()
    wrong: Tensor = functional_call(critic, dict(point), (fake,)).square().mean()
    return right + wrong


def _fooled(critic: nn.Module, judge: Params, sharpener: nn.Module, point: Params, rough: Tensor) -> Tensor:
    """How far the critic is from taking made images for real ones."""
    made = functional_call(sharpener, dict(point), (rough,))
    found: Tensor = (functional_call(critic, dict(judge), (made,)) - 1).square().mean()
    return found


LEAST = 10  # public images


@dataclass(frozen=True, kw_only=True)
class FedInverse(Attack):
    """What do the images of a class look like? The surest ones among what a generator of public images can make."""

    name: ClassVar[str] = "fedinverse"
    kind: ClassVar[Kind] = "class-images"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("public-images",)
    floors: ClassVar[tuple[str, ...]] = ("class-mean",)
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client", "global-model")
    small: ClassVar[Mapping[str, Any]] = {
        "model": LastReturned(), "steps": 40, "guesses": 2, "generator_steps": 3, "width": 8,
    }  # fmt: skip

    model: Attack = field(default_factory=GlobalModel)
    steps: int = 1500
    learning_rate: float = 0.02
    doubt: float = 100.0  # weight of the model's doubt
    independence: float = 0.05  # weight of the HSIC term
    sigma: float = 5.0  # of its kernels
    guesses: int = 4  # of every class, an even number
    box: float = 1.0  # codes stay within plus and minus this
    entries: int = 100  # of a code
    generator_steps: int = 300
    width: int = 16  # channels of the generator's network

    def __post_init__(self) -> None:
        """Check every setting."""
        check_settings(self.method())
        for name, least in (("guesses", 2), ("entries", 1), ("generator_steps", 0), ("width", 1)):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                expected = f"a whole number of at least {least}"
                raise BadInput(name, expected=expected, got=repr(getattr(self, name)), remedy="Leave it out.")
        if self.guesses % 2:
            raise BadInput("guesses", expected="an even number", got=self.guesses, remedy="Try 4.")
        for name in ("doubt", "independence"):
            if not 0 <= getattr(self, name) < float("inf"):
                got = repr(getattr(self, name))
                raise BadInput(
                    name, expected="a finite number of at least 0", got=got, remedy="Leave it out."
                )
        for name in ("sigma", "box"):
            if not 0 < getattr(self, name) < float("inf"):
                got = repr(getattr(self, name))
                raise BadInput(name, expected="a finite number above 0", got=got, remedy="Leave it out.")

    def method(self) -> Sgd:
        """Steps with momentum."""
        return Sgd(steps=self.steps, lr=self.learning_rate, momentum=0.9)

    def needs(self) -> tuple[Need, ...]:
        """Images with classes, public images, and whatever the model's own reconstruction needs."""
        return (images(), classification(), public_images(), *needs_of_model(self.model))

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, all classes and guesses at once."""
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

        start = normal_like(like.new_zeros((len(labels), generator.entries)), context.generator)
        found = minimise(
            cost,
            {"codes": start.clamp(-self.box, self.box)},
            self.method(),
            report=context.report,
            project=lambda point: {"codes": point["codes"].clamp(-self.box, self.box)},
            what=self.name,
        )
        with torch.no_grad():
            each, pixels = costs(found.best["codes"])
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
            status=found.status, reason=found.reason, curve=found.curve, facts=facts,
        )  # fmt: skip

    def _learnt(self, view: View, context: Context, like: Tensor) -> Generator:
        """A generator of what the public images look like."""
        public = view.grants.public_images
        assert public is not None  # a need
        return learn_generator(
            view.space.to_pixels(public.to(like)).clamp(0, 1),
            entries=self.entries, width=self.width, steps=self.generator_steps, batch=32,
            draws=fork(context.generator, "generator"), report=context.report,
        )  # fmt: skip


def public_images() -> Need:
    """Some images of no client."""
    return Need(
        what=f"at least {LEAST} public images",
        given_by='grants = ["public-images"] with public > 0 in [data]',
        met=lambda view: view.grants.public_images is not None and len(view.grants.public_images) >= LEAST,
    )
