"""Priors from folders and from the hub: what diffusers saved loads, what is damaged or strange is refused."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from fedxray.errors import BadInput
from fedxray.restore import loading
from fedxray.restore.base import Diffusion, Shaped
from fedxray.restore.ddrm import Ddrm
from fedxray.restore.gan import Gan, RestoringNetwork
from fedxray.restore.loading import WEIGHTS, file_hash, load_prior
from fedxray.restore.mde import Mde
from tests.restore.small import stripes, trained

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def priors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One prior of every kind, shared and never changed."""
    pytest.importorskip("diffusers", reason="needs diffusers")
    place = tmp_path_factory.mktemp("priors")
    return {kind: trained(place / kind, kind=kind) for kind in ("ddpm", "dit", "gan")}


@pytest.mark.parametrize("kind", ["ddpm", "dit"])
def test_a_trained_model_comes_back_as_it_was(priors: dict[str, Path], kind: str) -> None:
    before = torch.get_rng_state()
    prior = load_prior(str(priors[kind]))
    assert torch.equal(before, torch.get_rng_state())
    assert isinstance(prior, Diffusion) and prior.shape == (1, 8, 8)
    assert prior.classes == ("lying", "standing") and len(prior.seen) == 24
    assert len(prior.kept) == 1000 and not prior.needs_classes
    x = torch.zeros(2, 1, 8, 8)
    one, other, none = (prior.predicted(x, 10, labels) for labels in (torch.tensor([0, 0]), torch.tensor([1, 1]), None))
    assert one.shape == x.shape and not torch.equal(one, other) and not torch.equal(one, none)
    assert prior.facts["trained_on"] == "stripes" and prior.facts["records"] == 24


def test_a_restoring_network_comes_back(priors: dict[str, Path]) -> None:
    prior = load_prior("gan", folder=priors["gan"].parent)
    assert isinstance(prior, RestoringNetwork) and prior.shape == (1, 8, 8) and len(prior.seen) == 24
    weights = load_file(priors["gan"] / "model.safetensors")
    assert all(torch.equal(value, weights[name]) for name, value in prior.network.state_dict().items())


def saved_by_diffusers(library: Any, folder: Path, *, pipeline: bool, classes: int | None = None) -> Any:
    torch.manual_seed(3)
    model = library.UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, block_out_channels=(8, 8), layers_per_block=1,
        down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=4, add_attention=False, num_class_embeds=classes,
    )  # fmt: skip
    scheduler = library.DDPMScheduler(num_train_timesteps=50)
    if pipeline:
        library.DDPMPipeline(unet=model, scheduler=scheduler).save_pretrained(folder)
    else:
        model.save_pretrained(folder)
        scheduler.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize("pipeline", [True, False])
def test_a_model_that_diffusers_saved_loads(extra: Callable[[str], ModuleType], tmp_path: Path, pipeline: bool) -> None:
    library: Any = extra("diffusers")
    model = saved_by_diffusers(library, tmp_path / "theirs", pipeline=pipeline)
    prior = load_prior(str(tmp_path / "theirs"))
    assert isinstance(prior, Diffusion)
    assert prior.shape == (3, 8, 8) and prior.seen == frozenset() and len(prior.kept) == 50
    x = torch.rand(2, 3, 8, 8)
    with torch.no_grad():
        expected = model(x, torch.tensor([7, 7])).sample
    torch.testing.assert_close(prior.predicted(x, 7, torch.tensor([1, 1])), expected)
    assert prior.facts["trained_on"] == "unknown" and prior.facts["model"] == "UNet2DModel"
    file = next((tmp_path / "theirs").rglob(WEIGHTS))
    assert prior.facts["weights"] == file_hash(file)  # the ledger says which weights, card or not


def test_a_strangers_classes_have_no_names(extra: Callable[[str], ModuleType], tmp_path: Path) -> None:
    """It requires labels whose meaning is unknown, so it is refused."""
    library: Any = extra("diffusers")
    saved_by_diffusers(library, tmp_path / "theirs", pipeline=True, classes=4)
    prior = load_prior(str(tmp_path / "theirs"))
    assert isinstance(prior, Diffusion) and prior.needs_classes and prior.classes == ()
    with pytest.raises(BadInput, match="class-conditional"):
        prior.predicted(torch.zeros(1, 3, 8, 8), 0, None)
    for restorer in (Ddrm(prior="theirs"), Mde(prior="theirs")):
        with pytest.raises(BadInput, match="classes have no names"):
            restorer.check(prior)


def copied(priors: dict[str, Path], kind: str, folder: Path) -> Path:
    return Path(shutil.copytree(priors[kind], folder))


def refused_with(priors: dict[str, Path], folder: Path, file: str, changes: dict[str, Any], said: str) -> None:
    """A prior whose file is changed so does not load, and the error says why."""
    place = copied(priors, "ddpm", folder / "p")
    change(place / file, **changes)
    with pytest.raises(BadInput, match=said):
        load_prior(str(place))


def change(file: Path, **changes: Any) -> None:
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, **changes}))


def test_pickled_weights_are_not_read(priors: dict[str, Path], tmp_path: Path) -> None:
    place = copied(priors, "ddpm", tmp_path / "p")
    (place / "card.json").unlink()
    (place / WEIGHTS).rename(place / "diffusion_pytorch_model.bin")
    with pytest.raises(BadInput, match="safetensors only"):
        load_prior(str(place))


def test_a_card_that_is_no_file_is_not_read_as_none(priors: dict[str, Path], tmp_path: Path) -> None:
    """Without its card the training data of a prior are unknown."""
    place = copied(priors, "ddpm", tmp_path / "p")
    card = place / "card.json"
    card.unlink()
    card.mkdir()
    with pytest.raises(BadInput, match=r"a card\.json that is a file"):
        load_prior(str(place))
    card.rmdir()
    card.symlink_to("nowhere")
    with pytest.raises(BadInput, match=r"a card\.json that is a file"):
        load_prior(str(place))


@pytest.mark.parametrize("kind", ["ddpm", "gan"])
def test_weights_that_the_card_does_not_name_are_refused(priors: dict[str, Path], tmp_path: Path, kind: str) -> None:
    place = copied(priors, kind, tmp_path / "p")
    file = next(place.glob("*.safetensors"))
    weights = load_file(file)
    name = next(iter(weights))
    save_file({**weights, name: weights[name] + 1}, file)
    with pytest.raises(BadInput, match="the weights that its card names"):
        load_prior(str(place))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"_class_name": "StableDiffusionPipeline"}, "UNet2DModel or DiTTransformer2DModel"),
        ({"_class_name": "__import__"}, "UNet2DModel or DiTTransformer2DModel"),
        ({"block_out_channels": [8, 8, 8]}, "prior"),
        ({"block_out_channels": [1_000_000_000, 16, 16]}, "prior"),
        ({"sample_size": "large"}, "prior"),
        ({"norm_num_groups": 0}, "prior"),
        ({"layers_per_block": 2}, "weights of its network"),
        ({"layers_per_block": 10**9}, "layers_per_block of at most"),
        ({"sample_size": [-8, 8]}, "pixels a side"),
        ({"sample_size": 10**6}, "pixels a side"),
    ],
)
def test_settings_that_do_not_fit_the_weights_are_refused(
    priors: dict[str, Path], tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    refused_with(priors, tmp_path, "config.json", changes, said)


def test_a_missing_weight_is_not_drawn(priors: dict[str, Path], tmp_path: Path) -> None:
    """The library would fill it with random numbers and go on."""
    place = copied(priors, "ddpm", tmp_path / "p")
    (place / "card.json").unlink()
    weights = load_file(place / WEIGHTS)
    del weights["conv_out.bias"]
    save_file(weights, place / WEIGHTS)
    with pytest.raises(BadInput, match=r"conv_out\.bias"):
        load_prior(str(place))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prediction_type": "v_prediction"}, "predicts the noise"),
        ({"beta_schedule": "none"}, "noise levels"),
        ({"num_train_timesteps": 1}, "grows from level to level"),
        ({"beta_start": -1.0}, "grows from level to level"),
        ({"num_train_timesteps": 10**12}, "levels of noise"),
    ],
)
def test_noise_levels_that_cannot_be_used_are_refused(
    priors: dict[str, Path], tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    refused_with(priors, tmp_path, "scheduler_config.json", changes, said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2}, "upgrade fedxray"),
        ({"records": "none"}, "records"),
        ({"shape": [3, 8, 8]}, "as its card says"),
        ({"kind": "vae"}, "a kind of prior"),
        ({"classes": ["a", "b", "c"]}, "the 3 classes that its card names"),
        ({"weights": "0" * 64}, "the weights that its card names"),
    ],
)
def test_cards_that_do_not_fit_are_refused(
    priors: dict[str, Path], tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    refused_with(priors, tmp_path, "card.json", changes, said)


def test_only_the_weights_beside_the_card_are_used(priors: dict[str, Path], tmp_path: Path) -> None:
    """Neither those of a pipeline's folder further down nor those that an index of the library points to."""
    place, other = copied(priors, "ddpm", tmp_path / "p"), trained(tmp_path / "other", seed=9)
    (place / "unet").mkdir()
    for name in ("config.json", WEIGHTS):
        shutil.copy(other / name, place / "unet" / name)
    shutil.copy(other / WEIGHTS, place / "shard.safetensors")
    shards = dict.fromkeys(load_file(other / WEIGHTS), "shard.safetensors")
    (place / f"{WEIGHTS}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    x = torch.zeros(1, 1, 8, 8)
    ours, found = (load_prior(str(folder)) for folder in (priors["ddpm"], place))
    assert isinstance(ours, Diffusion) and isinstance(found, Diffusion)
    assert torch.equal(found.predicted(x, 3, None), ours.predicted(x, 3, None))


def test_names_of_older_versions_are_understood(extra: Callable[[str], ModuleType], tmp_path: Path) -> None:
    """Models of the hub that were saved years ago call the weights of attention otherwise."""
    library: Any = extra("diffusers")
    torch.manual_seed(3)
    model = library.UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, block_out_channels=(8, 8), layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
    )  # fmt: skip
    model.save_pretrained(tmp_path)
    library.DDPMScheduler(num_train_timesteps=50).save_pretrained(tmp_path)
    weights = load_file(tmp_path / WEIGHTS)
    for new, old in (("to_q", "query"), ("to_k", "key"), ("to_v", "value"), ("to_out.0", "proj_attn")):
        weights = {name.replace(f".{new}.", f".{old}."): value for name, value in weights.items()}
    assert any(".proj_attn." in name for name in weights)
    save_file(weights, tmp_path / WEIGHTS)
    prior, x = load_prior(str(tmp_path)), torch.rand(1, 1, 8, 8)
    assert isinstance(prior, Diffusion)
    with torch.no_grad():
        torch.testing.assert_close(prior.predicted(x, 7, None), model.eval()(x, torch.tensor([7])).sample)


def test_a_prior_that_cannot_answer_is_refused_before_an_audit(priors: dict[str, Path], tmp_path: Path) -> None:
    """Weights that are not finite, and a card that names images which the network cannot take."""
    place = copied(priors, "ddpm", tmp_path / "p")
    weights = load_file(place / WEIGHTS)
    save_file({**weights, "conv_in.bias": weights["conv_in.bias"] * torch.nan}, place / WEIGHTS)
    change(place / "card.json", weights=file_hash(place / WEIGHTS))
    prior = load_prior(str(place))
    assert isinstance(prior, Diffusion)
    with pytest.raises(BadInput, match="NaN or infinite"):
        Ddrm(prior="p").check(prior)
    change(copied(priors, "gan", tmp_path / "g") / "card.json", shape=[3, 8, 8])
    network = load_prior(str(tmp_path / "g"))
    assert isinstance(network, RestoringNetwork)
    with pytest.raises(BadInput, match="to have 1 channels"):
        Gan(prior="g").check(network)


@pytest.mark.parametrize("kind", ["ddpm", "gan"])
def test_damaged_files_are_refused_in_words(priors: dict[str, Path], tmp_path: Path, kind: str) -> None:
    """Cut off, overwritten or emptied: bad input, or the very same prior where nothing that matters was hit."""
    chance, refused = random.Random(7), 0
    names = sorted(file.name for file in priors[kind].iterdir())
    whole = load_prior(str(priors[kind]))
    for round in range(24):
        place = copied(priors, kind, tmp_path / str(round))
        file = place / names[round % len(names)]
        content = bytearray(file.read_bytes())
        if round % 3 == 0:
            content = content[: chance.randrange(len(content))]
        else:
            for _ in range(1 + round % 5):
                content[chance.randrange(min(len(content), 2000))] = chance.randrange(256)
        file.write_bytes(content)
        if round % 2:
            (place / "card.json").unlink(missing_ok=True)
        try:
            found = load_prior(str(place))
        except BadInput:
            refused += 1
        else:
            assert isinstance(found, Shaped) and found.shape == whole.shape
    assert refused >= 12


def test_a_name_of_the_hub_needs_a_pinned_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for revision in (None, "main", "v1.0", COMMIT[:39]):
        with pytest.raises(BadInput, match="40 hex digits"):
            load_prior("google/ddpm-cifar10-32", revision)


def test_the_hub_is_asked_for_safetensors_alone(
    priors: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub

    asked: list[tuple[str, dict[str, Any]]] = []

    def download(name: str, **options: Any) -> str:
        asked.append((name, options))
        return str(priors["ddpm"])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    prior = load_prior("somebody/model", COMMIT)
    assert prior.facts["source"] == f"somebody/model at {COMMIT}"
    ((name, options),) = asked
    assert name == "somebody/model" and options["revision"] == COMMIT
    assert all(one.endswith(("config.json", ".safetensors")) for one in options["allow_patterns"])


def test_no_network_is_told_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    def download(*_: Any, **__: Any) -> str:
        raise OSError("no route to host")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(BadInput, match=r"no route to host.*give its folder"):
        load_prior("somebody/model", COMMIT)


def test_what_is_neither_a_folder_nor_a_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="train-prior"):
        load_prior("no such folder", folder=tmp_path)
    with pytest.raises(BadInput, match=r"config\.json"):
        load_prior("empty", folder=tmp_path)


def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch, priors: dict[str, Path]) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(BadInput, match=r"\.\[diffusion\]"):
        loading.load_prior(str(priors["ddpm"]))
    assert isinstance(load_prior(str(priors["gan"])), RestoringNetwork)  # needs torch alone


def test_training_images_are_those_of_the_card(priors: dict[str, Path]) -> None:
    from fedxray.restore.loading import record_hashes

    assert load_prior(str(priors["dit"])).seen == frozenset(record_hashes(stripes().pixels))
