"""Priors from a folder or from the hub: safetensors only, a pinned revision, classes chosen here, no remote code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedxray.errors import BadInput, some
from fedxray.files import read_object
from fedxray.models.building import own_surroundings
from fedxray.naming import users_code
from fedxray.restore.base import Shaped
from fedxray.restore.card import NAME as CARD
from fedxray.restore.card import file_hash, read_card
from fedxray.restore.diffusion import Diffusion
from fedxray.restore.gan import RestoringNetwork
from fedxray.restore.networks import diffusers_library, restorer_of
from fedxray.seeds import fork

WEIGHTS = "diffusion_pytorch_model.safetensors"
MODELS = ("UNet2DModel", "DiTTransformer2DModel")  # classes of the library that are accepted
CARD_KINDS = ("ddpm", "dit", "gan")
PARTS = ("unet", "transformer")  # folders of a saved pipeline that may hold the model
AGAIN = "Save or download it again, or train one with `fedxray train-prior`."
HUB = re.compile(r"[\w.-]+/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")


def load_prior(prior: str, revision: str | None = None, *, folder: Path | None = None) -> Shaped:
    """A prior by the path of its folder, relative to `folder`, or by the name of a model on the hub."""
    place = ((folder or Path.cwd()) / Path(prior).expanduser()).absolute()
    if place.is_dir():
        return from_folder(place)
    if HUB.fullmatch(prior) and not place.exists():
        return from_folder(_fetched(prior, revision), hub=f"{prior} at {revision}")
    raise BadInput(
        "prior",
        expected="the folder of a prior, or a name of the hub such as google/ddpm-cifar10-32",
        got=repr(prior),
        remedy="Make one with `fedxray train-prior`, or check the path.",
    )


def from_folder(folder: Path, *, hub: str = "") -> Shaped:
    """The prior that a folder holds: one with a card, or a model or pipeline that diffusers saved."""
    facts: dict[str, Any] = {"source": hub or folder.name, "trained_on": "unknown", "records": None}
    card = read_card(folder) if (folder / CARD).is_file() else None
    if card is None:
        return _diffusion(folder, facts, ())
    facts |= {
        "trained_on": card.get("data", "unknown"),
        "records": len(card["records"]),
        "weights": card["weights"],
    }
    file = folder / (WEIGHTS if card["kind"] != "gan" else "model.safetensors")
    if not file.is_file() or file_hash(file) != card["weights"]:
        raise _bad(folder, f"the weights that its card names ({file.name})", "other ones or none")
    if card["kind"] not in CARD_KINDS:
        raise _bad(folder, f"a kind of prior ({', '.join(CARD_KINDS)})", repr(card["kind"]))
    if card["kind"] == "gan":
        return _network(file, card, facts)
    found = _diffusion(folder, facts, tuple(map(str, card["classes"])))
    if list(found.shape) != card["shape"]:
        raise _bad(folder, f"images of shape {card['shape']} as its card says", f"shape {list(found.shape)}")
    return replace(found, seen=frozenset(map(str, card["records"])))


def _network(file: Path, card: dict[str, Any], facts: dict[str, Any]) -> RestoringNetwork:
    from safetensors.torch import load_file

    with users_code(f"prior {file.parent}", "a card and weights that belong together", AGAIN):
        shape = _shape(card["shape"])
        _check_weights(lambda: restorer_of(card["settings"]), file)
        with own_surroundings(fork(0, "loading")):
            network = restorer_of(card["settings"])
        network.load_state_dict(load_file(file))
    return RestoringNetwork(
        shape=shape,
        seen=frozenset(map(str, card["records"])),
        facts=facts,
        network=network.eval().requires_grad_(False),
    )


def _diffusion(folder: Path, facts: dict[str, Any], classes: tuple[str, ...]) -> Diffusion:
    place = next((folder / part for part in PARTS if (folder / part / "config.json").is_file()), folder)
    if not (place / "config.json").is_file() or not (place / WEIGHTS).is_file():
        raise _bad(
            folder, f"config.json and {WEIGHTS}", "something missing", "Weights are read as safetensors only."
        )
    config = read_object(place / "config.json")
    kind = config.get("_class_name")
    if kind not in MODELS:
        raise _bad(folder, f"a {' or '.join(MODELS)} on pixels", repr(kind))
    cls = getattr(diffusers_library(), str(kind))
    with users_code(f"prior {folder}", f"settings and weights of a {kind}", AGAIN):
        _check_weights(lambda: cls.from_config(config), place / WEIGHTS)
        with own_surroundings(fork(0, "loading")):
            made = cls.from_pretrained(
                place, use_safetensors=True, local_files_only=True, low_cpu_mem_usage=False
            )
        return wrapped(made.eval().requires_grad_(False), _kept(folder), classes, facts | {"model": kind})


def _check_weights(make: Callable[[], nn.Module], file: Path) -> None:
    """Refuse a file that lacks a weight of the network, has one more or one of another shape.

    The library would draw what is missing and go on. The network is built without memory, so that settings of a
    stranger cannot ask for more than the file has.
    """
    from safetensors import safe_open

    with torch.device("meta"):
        wanted = {name: list(value.shape) for name, value in make().state_dict().items()}
    with safe_open(file, framework="pt") as held:
        found = {name: held.get_slice(name).get_shape() for name in held.keys()}  # noqa: SIM118
    if found != wanted:
        odd = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        raise _bad(
            file.parent, f"the {len(wanted)} weights of its network", f"others ({some(odd, 3)})", AGAIN
        )


def wrapped(model: Any, kept: Tensor, classes: tuple[str, ...], facts: dict[str, Any]) -> Diffusion:
    """A model of the library as restorers use it; with classes of ours the number after the last means no class."""
    config = model.config
    size = config.sample_size
    height, width = (size, size) if isinstance(size, int) else map(int, size)
    transformer = type(model).__name__ == MODELS[1]
    embedded = config.num_embeds_ada_norm if transformer else config.num_class_embeds
    # A transformer of the library has one embedding more than classes; a U-Net of ours too.
    none = embedded if transformer else (len(classes) if classes and embedded == len(classes) + 1 else None)

    def noise(x: Tensor, level: int, labels: Tensor | None) -> Tensor:
        times = torch.full((len(x),), level, dtype=torch.int64, device=x.device)
        chosen = labels
        if embedded is None:
            chosen = None
        elif labels is None:
            assert none is not None  # refused before
            chosen = torch.full((len(x),), none, dtype=torch.int64, device=x.device)
        with torch.no_grad():
            found: Tensor = model(x, times, class_labels=chosen).sample
        return found[:, : x.shape[1]]  # some also predict a variance

    return Diffusion(
        shape=(config.in_channels, height, width),
        classes=classes,
        facts=facts,
        kept=kept,
        noise=noise,
        needs_classes=embedded is not None and none is None,
    )


def _kept(folder: Path) -> Tensor:
    """What every level keeps of the image, from the scheduler's settings beside the model."""
    found = [folder / "scheduler_config.json", folder / "scheduler" / "scheduler_config.json"]
    file = next((one for one in found if one.is_file()), None)
    library = diffusers_library()
    if file is None:
        raise _bad(folder, "the settings of its noise levels (scheduler_config.json)", "none")
    with users_code(f"prior {folder}", "settings of noise levels that diffusers understands", AGAIN):
        scheduler = library.DDPMScheduler.from_config(read_object(file))
    if scheduler.config.prediction_type != "epsilon":
        raise _bad(folder, "a model that predicts the noise", scheduler.config.prediction_type)
    kept: Tensor = scheduler.alphas_cumprod
    if len(kept) < 2 or not bool(((kept > 0) & (kept < 1)).all()) or bool((kept.diff() > 0).any()):
        raise _bad(folder, "noise that grows from level to level", f"{len(kept)} levels that do not", AGAIN)
    return kept


def _fetched(name: str, revision: str | None) -> Path:
    """A model of the hub in the hub's own cache, at a pinned commit."""
    if revision is None or not COMMIT.fullmatch(revision):
        raise BadInput(
            "revision",
            expected=f"the commit of {name} to use, 40 hex digits",
            got=repr(revision),
            remedy="Copy it from the history of the model's page, so that nobody can change the model under you.",
        )
    diffusers_library()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    wanted = ["*config.json", f"*{WEIGHTS}"]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as problem:
        remedy = "Check name, revision and network; or download it elsewhere and give its folder."
        raise BadInput(
            "prior", expected=f"the model {name}", got=str(problem)[:300], remedy=remedy
        ) from problem


def _shape(found: Any) -> tuple[int, int, int]:
    channels, height, width = (int(one) for one in found)
    return channels, height, width


def _bad(
    folder: Path, expected: str, got: str, remedy: str = "Check that this is the right folder."
) -> BadInput:
    return BadInput(f"prior {folder}", expected=expected, got=got, remedy=remedy)
