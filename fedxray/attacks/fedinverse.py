"""FedInverse (Wu et al. 2024; Fig. 9 of paper 004): a client inverts the global model within a generator's images.

What an image of a class looks like is asked of the model that every client receives:
    1. Learn a generator and a critic from public images (see `fedxray.attacks.generator`).
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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import EVERYONE, Attack, Context, Need, classification, images, needs_of_model
from fedxray.attacks.evidence import Evidence, Kind, model_params, of_class_images
from fedxray.attacks.generator import Generator, learn_generator
from fedxray.attacks.local_model.global_model import GlobalModel
from fedxray.attacks.local_model.last_returned import LastReturned
from fedxray.attacks.model_inversion import log_probabilities
from fedxray.errors import BadInput
from fedxray.methods import Sgd, check_settings
from fedxray.minimise import minimise
from fedxray.priors import hsic
from fedxray.seeds import fork, normal_like

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
