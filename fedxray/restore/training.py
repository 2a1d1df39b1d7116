"""Training of small priors on public images: a diffusion model (U-Net or transformer), or a restorer with a critic."""

from __future__ import annotations

import math
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedxray.errors import BadInput, unknown_name
from fedxray.files import TEMPORARY, room_for, sync_folder, sync_tree
from fedxray.models.factory import own_surroundings
from fedxray.progress import Report, Step, silent
from fedxray.restore.loading import WEIGHTS, file_hash, record_hashes, write_card
from fedxray.restore.networks import LEVELS, ResidualRestorer, diffusers_library, patch_critic, transformer, unet
from fedxray.seeds import fork

KINDS = ("ddpm", "dit", "gan")
WITHOUT_CLASS = 0.1  # share of examples whose class is hidden, so that the model can do without
CRITIC_WEIGHT = 0.005  # of the critic's opinion beside the squared error
DEPTH = 6  # hidden layers of a restorer
LEAST = 10  # images
LEAST_SIDE = 4  # smallest side in pixels for a critic


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of the training of a prior."""

    kind: str = "ddpm"
    steps: int = 2000
    batch: int = 32
    width: int = 32
    learning_rate: float = 1e-3
    averaging: float = 0.995  # of the weights that are kept, from step to step
    flip: bool = False  # whether images are also shown mirrored
    scale: int = 1  # gan: side of the blocks over which images are averaged,
    noise: float = 0.15  # gan: largest standard deviation of the added noise, before they are enlarged again
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every setting."""
        if self.kind not in KINDS:
            raise unknown_name("kind", self.kind, KINDS)
        for name in ("steps", "batch", "width", "scale"):
            if getattr(self, name) < 1:
                raise BadInput(name, expected="at least 1", got=getattr(self, name), remedy="Leave it out.")
        if self.width % 8:
            raise BadInput("width", expected="a multiple of 8", got=self.width, remedy="Try 32.")
        if not 0 < self.learning_rate < 1:
            raise BadInput("learning_rate", expected="above 0 and below 1", got=self.learning_rate, remedy="Try 1e-3.")
        if not 0 <= self.averaging < 1 or not 0 <= self.noise <= 1:
            raise BadInput("averaging", expected="averaging and noise below 1", got="more", remedy="Leave them out.")


@dataclass(frozen=True, kw_only=True)
class Images:
    """Public images [n, c, h, w] in 0..1 with class numbers [n], names of the classes, and their source."""

    pixels: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    source: str


def train_prior(images: Images, training: Training, folder: Path, *, report: Report = silent) -> Path:
    """Train a prior and write it, with its card, into a new folder, atomically."""
    if len(images.pixels) < LEAST:
        raise BadInput("images", expected=f"at least {LEAST} images", got=len(images.pixels), remedy="Give more.")
    check_place(folder)
    _check_sides(images.pixels, training)
    # Nothing is on the disk while it trains, so that a killed training leaves nothing behind.
    model: Any
    if training.kind == "gan":
        model, losses = train_restorer(images.pixels, training, report=report)
    else:
        model, losses = train_diffusion(images, training, report=report)
    with _new_folder(folder) as place:
        if training.kind == "gan":
            file, settings = _save_restorer(model, place, images.pixels.shape[1], training)
        else:
            file, settings = _save_diffusion(model, place)
        write_card(
            place,
            {
                "kind": training.kind,
                "shape": list(images.pixels.shape[1:]),
                "classes": list(images.classes) if training.kind != "gan" else [],
                "data": images.source,
                "training": asdict(training),
                "settings": settings,
                "loss": sum(losses[-100:]) / len(losses[-100:]),
                "fedxray": version("fedxray"),
                "weights": file_hash(file),
                "records": sorted(set(record_hashes(images.pixels))),
            },
        )
    return folder


def _check_sides(pixels: Tensor, training: Training) -> None:
    """Refuse images that are too small for a restorer's critic or for its blocks."""
    least = max(LEAST_SIDE, training.scale)
    if training.kind == "gan" and min(pixels.shape[2:]) < least:
        expected = f"at least {least} pixels a side for a gan of scale {training.scale}"
        remedy = "Use larger images, a smaller --scale, or --kind ddpm."
        raise BadInput("images", expected=expected, got=f"{pixels.shape[2]} x {pixels.shape[3]}", remedy=remedy)


def train_diffusion(images: Images, training: Training, *, report: Report = silent) -> tuple[nn.Module, list[float]]:
    """Train a model that predicts the noise in a noisy image of a class; return it with its loss by step."""
    make = transformer if training.kind == "dit" else unet
    shape = images.pixels.shape[1], images.pixels.shape[2], images.pixels.shape[3]
    draws = fork(training.seed, "prior", training.kind)
    with own_surroundings(draws):
        model: nn.Module = make(shape, len(images.classes), training.width).eval()
    kept = _scheduler().alphas_cumprod.to(images.pixels)

    def loss(index: Tensor) -> Tensor:
        x = 2 * _shown(images.pixels[index], training.flip, draws) - 1
        noise = torch.randn(x.shape, generator=draws).to(x)
        level = torch.randint(LEVELS, (len(x),), generator=draws)
        hidden = torch.rand(len(x), generator=draws) < WITHOUT_CLASS
        labels = images.labels[index].masked_fill(hidden, len(images.classes))
        share = kept[level][:, None, None, None]
        noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        return F.mse_loss(model(noisy, level, class_labels=labels).sample, noise)

    losses = _descend(model, loss, len(images.pixels), training, draws, report)
    return model, losses


def train_restorer(
    pixels: Tensor, training: Training, *, report: Report = silent
) -> tuple[ResidualRestorer, list[float]]:
    """Train a network that restores averaged and noisy images against a critic; return it with its loss by step."""
    draws = fork(training.seed, "prior", training.kind)
    with own_surroundings(draws):
        network = ResidualRestorer(pixels.shape[1], training.width, DEPTH)
        critic = patch_critic(pixels.shape[1], training.width)
    opponent = torch.optim.Adam(critic.parameters(), lr=training.learning_rate, betas=(0.5, 0.999))

    def loss(index: Tensor) -> Tensor:
        x = _shown(pixels[index], training.flip, draws)
        restored = network(2 * degraded(x, training.scale, training.noise, draws) - 1)
        real = critic(2 * x - 1)
        opponent.zero_grad()
        judged = (real - 1).square().mean() + critic(restored.detach()).square().mean()
        judged.backward()
        opponent.step()
        near: Tensor = F.mse_loss(restored, 2 * x - 1)
        fooled: Tensor = (critic(restored) - 1).square().mean()
        return near + CRITIC_WEIGHT * fooled

    losses = _descend(network, loss, len(pixels), training, draws, report)
    return network, losses


def degraded(x: Tensor, scale: int, noise: float, draws: torch.Generator) -> Tensor:
    """Return images [n, c, h, w] like those of an inversion: block means with noise of random deviation, enlarged."""
    small = F.avg_pool2d(x, scale) if scale > 1 else x
    spread = noise * torch.rand((len(x), 1, 1, 1), generator=draws)
    small = small + (spread * torch.randn(small.shape, generator=draws)).to(x)
    if scale == 1:
        return small
    return F.interpolate(small, size=x.shape[2:], mode="bicubic", align_corners=False)


def _descend(
    network: nn.Module,
    loss: Callable[[Tensor], Tensor],
    count: int,
    training: Training,
    draws: torch.Generator,
    report: Report,
) -> list[float]:
    """Train by Adam with a learning rate that falls to zero and averaged final weights; return the loss by step."""
    rates = torch.optim.Adam(network.parameters(), lr=training.learning_rate)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(rates, training.steps)
    mean = {name: value.detach().clone() for name, value in network.named_parameters()}
    losses = []
    for step in range(training.steps):
        index = torch.randint(count, (training.batch,), generator=draws)
        rates.zero_grad()
        value = loss(index)
        value.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        rates.step()
        falling.step()
        kept = min(training.averaging, step / (step + 10))
        with torch.no_grad():
            for name, one in network.named_parameters():
                mean[name].lerp_(one, 1 - kept)
        losses.append(float(value.detach()))
        if not math.isfinite(losses[-1]):
            remedy = "Try a smaller --learning-rate, and check that the images are finite."
            raise BadInput("training", expected="a finite loss", got=f"{losses[-1]} after {step} steps", remedy=remedy)
        report(Step(f"train {training.kind}", step + 1, training.steps, losses[-1]))
    network.load_state_dict(mean, strict=False)
    return losses


def _shown(pixels: Tensor, flip: bool, draws: torch.Generator) -> Tensor:
    """Return the images, some of them mirrored if set."""
    if not flip:
        return pixels
    mirrored = torch.rand(len(pixels), generator=draws) < 0.5
    return torch.where(mirrored[:, None, None, None].to(pixels.device), pixels.flip(3), pixels)


def _scheduler() -> Any:
    return diffusers_library().DDPMScheduler(num_train_timesteps=LEVELS, beta_schedule="linear")


def _save_diffusion(model: Any, folder: Path) -> tuple[Path, dict[str, Any]]:
    model.save_pretrained(folder, safe_serialization=True)
    _scheduler().save_pretrained(folder)
    return folder / WEIGHTS, {}


def _save_restorer(
    network: ResidualRestorer, folder: Path, channels: int, training: Training
) -> tuple[Path, dict[str, Any]]:
    from safetensors.torch import save_file

    file = folder / "model.safetensors"
    save_file({name: value.contiguous() for name, value in network.state_dict().items()}, file)
    return file, {"channels": channels, "width": training.width, "depth": DEPTH}


def check_place(folder: Path) -> None:
    """Refuse a path that exists, or where no folder can be created."""
    taken = folder.is_symlink() or not folder.name
    if taken or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise BadInput("--out", expected="a new or empty folder", got=str(folder), remedy="Choose another --out.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        got = "" if os.access(folder.parent, os.W_OK) else f"{folder.parent}, where nothing may be written"
    except OSError as problem:
        got = str(problem)
    if got:
        raise BadInput("--out", expected="a place for a new folder", got=got, remedy="Choose another --out.")


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Provide a folder under a temporary name that is renamed on success."""
    check_place(folder)
    part = folder.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    with room_for("the prior"):
        try:
            part.mkdir()
            yield part
            sync_tree(part)
            if folder.is_dir():
                folder.rmdir()
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    sync_folder(folder.parent)
