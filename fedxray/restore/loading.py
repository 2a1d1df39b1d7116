"""Priors from a folder or from the hub: safetensors only, a pinned revision, known classes only, no remote code."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedxray.errors import BadInput, some
from fedxray.files import read_object, write_whole
from fedxray.lookup import users_code
from fedxray.models.factory import own_surroundings
from fedxray.restore.base import Diffusion, Shaped
from fedxray.restore.gan import RestoringNetwork
from fedxray.restore.networks import diffusers_library, restorer_of
from fedxray.seeds import fork

# The card of a prior: what it is, its training data, and a hash of every record of these. A prior trained on a client's
# records would show what it memorised, not what leaked; the hashes let an audit refuse it. A record's hash is that of
# its pixels as bytes, at the size of the prior's images. A mirrored image reveals as much, and training may have used
# it (`flip`), so records are looked up both unchanged and mirrored.

CARD, FORMAT = "card.json", 1
HASH_LENGTH = 32
NEEDED = {"format": int, "kind": str, "shape": list, "classes": list, "records": list, "weights": str}
REMEDY = "Train the prior anew with `fedxray train-prior`."


def record_hashes(pixels: Tensor) -> list[str]:
    """Return a hash of every image [n, c, h, w] in 0..1, equal for images that are equal as bytes."""
    whole = (pixels.detach().cpu() * 255).round().clamp(0, 255).to(torch.uint8).contiguous()
    shape = str(tuple(whole.shape[1:])).encode()
    return [hashlib.sha256(shape + one.numpy().tobytes()).hexdigest()[:HASH_LENGTH] for one in whole]


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_card(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the card next to the weights."""
    text = json.dumps({"format": FORMAT, **content}, indent=1, allow_nan=False) + "\n"
    write_whole(folder / CARD, text.encode("ascii"), "card")


def read_card(folder: Path) -> dict[str, Any]:
    """Read the card of a folder; refuse a card that is incomplete or from a later version."""
    found = read_object(folder / CARD, remedy=REMEDY)
    for name, kind in NEEDED.items():
        if not isinstance(found.get(name), kind):
            raise BadInput(f"{folder / CARD}: {name}", expected=kind.__name__, got=repr(found.get(name)), remedy=REMEDY)
    if found["format"] != FORMAT:
        remedy = "A newer fedxray wrote it: upgrade fedxray to read it."
        raise BadInput(f"{folder / CARD}: format", expected=str(FORMAT), got=found["format"], remedy=remedy)
    return found


def known_among(seen: Iterable[str], pixels: Tensor) -> Tensor:
    """Return which of these images [n, c, h, w] in 0..1 are among the hashes, also mirrored; bool [n]."""
    known = set(seen)
    both = zip(record_hashes(pixels), record_hashes(pixels.flip(3)), strict=True) if known else ()
    found = [straight in known or mirrored in known for straight, mirrored in both]
    return torch.tensor(found or [False] * len(pixels), dtype=torch.bool)


def check_overlap(argument: str, seen: Iterable[str], pixels: Tensor, whose: str) -> None:
    """Refuse a prior that was trained on any of these images [n, c, h, w] in 0..1, or on a mirror image of one."""
    shared = int(known_among(seen, pixels).sum())
    if shared:
        raise BadInput(
            argument,
            expected="a prior that has seen no record of an audited client",
            got=f"one that was trained on {shared} of the {len(pixels)} records of {whose}, mirror images included",
            remedy="Train one on other images; `fedxray train-prior --plan` leaves out every client's records.",
        )


WEIGHTS = "diffusion_pytorch_model.safetensors"
MODELS = ("UNet2DModel", "DiTTransformer2DModel")  # classes of the library that are accepted
CARD_KINDS = ("ddpm", "dit", "gan")
PARTS = ("unet", "transformer")  # folders of a saved pipeline that may hold the model
AGAIN = "Save or download it again, or train one with `fedxray train-prior`."
HUB = re.compile(r"[\w.-]+/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
MOST_SIDE, MOST_LEVELS = 2048, 100_000  # what settings of a stranger may ask for
COUNTS = ("num_layers", "layers_per_block", "depth")  # settings that cannot exceed the number of weights
# What older versions of the library called the weights of attention.
FORMERLY = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}
OLD_NAME = re.compile(rf"(.+)\.({'|'.join(FORMERLY)})\.(weight|bias)")


def load_prior(prior: str, revision: str | None = None, *, folder: Path | None = None) -> Shaped:
    """Load a prior by the path of its folder, relative to `folder`, or by the name of a model on the hub."""
    # Not Path.expanduser, which breaks on the home of a user who does not exist; os.path also bears names too long.
    place = ((folder or Path.cwd()) / os.path.expanduser(prior)).absolute()
    if os.path.isdir(place):
        return from_folder(place)
    if HUB.fullmatch(prior) and not os.path.exists(place):
        return from_folder(_fetched(prior, revision), hub=f"{prior} at {revision}")
    expected = "the folder of a prior, or a name of the hub such as google/ddpm-cifar10-32"
    remedy = "Make one with `fedxray train-prior`, or check the path."
    raise BadInput("prior", expected=expected, got=repr(prior), remedy=remedy)


def from_folder(folder: Path, *, hub: str = "") -> Shaped:
    """Load the prior of a folder: one with a card, or a model or pipeline saved by diffusers."""
    facts: dict[str, Any] = {"source": hub or folder.name, "trained_on": "unknown", "records": None}
    if os.path.lexists(folder / CARD) and not (folder / CARD).is_file():
        raise _bad(folder, f"a {CARD} that is a file", "something else of that name", AGAIN)
    card = read_card(folder) if (folder / CARD).is_file() else None
    if card is None:
        return _diffusion(folder, facts, ())
    facts |= {"trained_on": card.get("data", "unknown"), "records": len(card["records"]), "weights": card["weights"]}
    file = folder / (WEIGHTS if card["kind"] != "gan" else "model.safetensors")
    if not file.is_file() or file_hash(file) != card["weights"]:
        raise _bad(folder, f"the weights that its card names ({file.name})", "other ones or none")
    if card["kind"] not in CARD_KINDS:
        raise _bad(folder, f"a kind of prior ({', '.join(CARD_KINDS)})", repr(card["kind"]))
    if card["kind"] == "gan":
        return _network(file, card, facts)
    # The weights beside the card, of which it holds the hash; none of a pipeline's folders further down.
    found = _diffusion(folder, facts, tuple(map(str, card["classes"])), parts=())
    if list(found.shape) != card["shape"]:
        raise _bad(folder, f"images of shape {card['shape']} as its card says", f"shape {list(found.shape)}")
    return replace(found, seen=frozenset(map(str, card["records"])))


def _network(file: Path, card: dict[str, Any], facts: dict[str, Any]) -> RestoringNetwork:
    with users_code(f"prior {file.parent}", "a card and weights that belong together", AGAIN):
        network = _with_weights(restorer_of, card["settings"], file)
        return RestoringNetwork(
            shape=_shape(card["shape"]), seen=frozenset(map(str, card["records"])), facts=facts, network=network
        )


def _diffusion(
    folder: Path, facts: dict[str, Any], classes: tuple[str, ...], parts: tuple[str, ...] = PARTS
) -> Diffusion:
    place = next((folder / part for part in parts if (folder / part / "config.json").is_file()), folder)
    if not (place / "config.json").is_file() or not (place / WEIGHTS).is_file():
        raise _bad(folder, f"config.json and {WEIGHTS}", "something missing", "Weights are read as safetensors only.")
    config = read_object(place / "config.json")
    kind = config.get("_class_name")
    if kind not in MODELS:
        raise _bad(folder, f"a {' or '.join(MODELS)} on pixels", repr(kind))
    cls = getattr(diffusers_library(), str(kind))
    facts = {"weights": file_hash(place / WEIGHTS), **facts, "model": kind}
    with users_code(f"prior {folder}", f"settings and weights of a {kind}", AGAIN):
        made = _with_weights(cls.from_config, config, place / WEIGHTS)
        return wrapped(made, _kept(folder), classes, facts)


def _with_weights(make: Callable[[Any], nn.Module], settings: Mapping[str, Any], file: Path) -> nn.Module:
    """The network of these settings with the weights of this very file, frozen.

    The library's own loading prefers an index of other files where a folder has one, and draws what is missing.
    """
    from safetensors.torch import load_file

    _check_weights(make, settings, file)
    with own_surroundings(fork(0, "loading")):
        network = make(settings)
    network.load_state_dict({_today(name): value for name, value in load_file(file).items()})
    return network.eval().requires_grad_(False)


def _today(name: str) -> str:
    """Return the current name of a weight in the library."""
    old = OLD_NAME.fullmatch(name)
    return name if old is None else f"{old[1]}.{FORMERLY[old[2]]}.{old[3]}"


def _check_weights(make: Callable[[Any], nn.Module], settings: Mapping[str, Any], file: Path) -> None:
    """Refuse a file that lacks a weight of the network, has one more or one of another shape.

    The network is built without memory, so that settings of a stranger cannot ask for more than the file has; and not
    at all where they name more layers than the file has weights, since every layer takes its time.
    """
    from safetensors import safe_open

    with safe_open(file, framework="pt") as held:
        found = {_today(name): held.get_slice(name).get_shape() for name in held.keys()}  # noqa: SIM118
    for name in COUNTS:
        asked = settings.get(name, 0)
        if isinstance(asked, int) and asked > len(found):
            raise _bad(file.parent, f"{name} of at most the {len(found)} weights of its file", str(asked), AGAIN)
    with torch.device("meta"):
        wanted = {name: list(value.shape) for name, value in make(settings).state_dict().items()}
    if found != wanted:
        odd = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        raise _bad(file.parent, f"the {len(wanted)} weights of its network", f"others ({some(odd, 3)})", AGAIN)


def wrapped(model: Any, kept: Tensor, classes: tuple[str, ...], facts: dict[str, Any]) -> Diffusion:
    """Return a model of the library as a prior; with classes of ours the number after the last means no class."""
    config = model.config
    size = config.sample_size
    shape = _shape((config.in_channels, *((size, size) if isinstance(size, int) else size)))
    transformer = type(model).__name__ == MODELS[1]
    embedded = config.num_embeds_ada_norm if transformer else config.num_class_embeds
    # A transformer of the library has one embedding more than classes; a U-Net of ours too.
    none = embedded if transformer else (len(classes) if classes and embedded == len(classes) + 1 else None)
    if classes and none != len(classes):
        raise BadInput("prior", expected=f"a model of the {len(classes)} classes that its card names",
                       got=f"one of {embedded}", remedy=AGAIN)  # fmt: skip

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

    needs_classes = embedded is not None and none is None
    return Diffusion(shape=shape, classes=classes, facts=facts, kept=kept, noise=noise, needs_classes=needs_classes)


def _kept(folder: Path) -> Tensor:
    """Return the share of the image at every level, from the scheduler's settings next to the model."""
    found = [folder / "scheduler_config.json", folder / "scheduler" / "scheduler_config.json"]
    file = next((one for one in found if one.is_file()), None)
    library = diffusers_library()
    if file is None:
        raise _bad(folder, "the settings of its noise levels (scheduler_config.json)", "none")
    settings = read_object(file)
    levels = settings.get("num_train_timesteps", 0)
    if isinstance(levels, int) and levels > MOST_LEVELS:
        raise _bad(folder, f"at most {MOST_LEVELS} levels of noise", str(levels), AGAIN)
    with users_code(f"prior {folder}", "settings of noise levels that diffusers understands", AGAIN):
        scheduler = library.DDPMScheduler.from_config(settings)
    if scheduler.config.prediction_type != "epsilon":
        raise _bad(folder, "a model that predicts the noise", scheduler.config.prediction_type)
    kept: Tensor = scheduler.alphas_cumprod
    if len(kept) < 2 or not bool(((kept > 0) & (kept < 1)).all()) or bool((kept.diff() > 0).any()):
        raise _bad(folder, "noise that grows from level to level", f"{len(kept)} levels that do not", AGAIN)
    return kept


def _fetched(name: str, revision: str | None) -> Path:
    """Download a model of the hub into the hub's own cache, at a pinned commit."""
    if revision is None or not COMMIT.fullmatch(revision):
        raise BadInput(
            "revision",
            expected=f"the commit of {name} to use, 40 hex digits, since there is no such folder",
            got=repr(revision),
            remedy="A folder is looked for beside the plan; or copy the commit from the history of the model's page, "
            "so that the model cannot change unnoticed.",
        )
    diffusers_library()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    wanted = ["*config.json", f"*{WEIGHTS}"]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as problem:
        remedy = "Check name, revision and network; or download it elsewhere and give its folder."
        raise BadInput("prior", expected=f"the model {name}", got=str(problem)[:300], remedy=remedy) from problem


def _shape(found: Any) -> tuple[int, int, int]:
    channels, height, width = (int(one) for one in found)
    if min(channels, height, width) < 1 or max(channels, height, width) > MOST_SIDE:
        raise BadInput("prior", expected=f"images of 1 to {MOST_SIDE} pixels a side",
                       got=f"shape {[channels, height, width]}", remedy=AGAIN)  # fmt: skip
    return channels, height, width


def _bad(folder: Path, expected: str, got: str, remedy: str = "Check that this is the right folder.") -> BadInput:
    return BadInput(f"prior {folder}", expected=expected, got=got, remedy=remedy)
