"""Training of small priors: losses fall, draws follow the seed, folders are whole or not there, cards tell all."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedxray.errors import BadInput
from fedxray.progress import Step
from fedxray.restore.loading import check_overlap, known_among, read_card, record_hashes
from fedxray.restore.training import Training, check_place, degraded, train_diffusion, train_prior, train_restorer
from fedxray.seeds import fork
from tests.restore.small import stripes, trained

pytest.importorskip("diffusers", reason="needs diffusers")


@pytest.mark.parametrize("kind", ["ddpm", "dit"])
def test_the_loss_falls(kind: str) -> None:
    training = Training(kind=kind, steps=40, batch=8, width=8, learning_rate=5e-3)
    _, losses = train_diffusion(stripes(), training)
    assert len(losses) == 40 and sum(losses[-10:]) < 0.7 * sum(losses[:10])


def test_a_restorer_learns_to_take_noise_away() -> None:
    images = stripes(64)
    training = Training(kind="gan", steps=150, batch=16, width=16, learning_rate=3e-3, noise=0.3)
    network, _ = train_restorer(images.pixels, training)
    fresh = stripes(32, seed=1).pixels
    noisy = fresh + 0.15 * torch.randn(fresh.shape, generator=fork(0, "noise"))
    with torch.no_grad():
        restored = (network(2 * noisy - 1) + 1) / 2
    assert float((restored - fresh).square().mean()) < 0.5 * float((noisy - fresh).square().mean())


def test_an_untrained_restorer_changes_nothing() -> None:
    """Its last layer starts at zero: what it adds has to be learnt."""
    from fedxray.restore.networks import ResidualRestorer

    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(ResidualRestorer(3, 8, 2)(x), x)


def test_degraded_images_are_block_means_with_noise() -> None:
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(degraded(x, 1, 0.0, fork(0)), x)
    plain = degraded(torch.full((2, 1, 8, 8), 0.4), 4, 0.0, fork(0))
    torch.testing.assert_close(plain, torch.full((2, 1, 8, 8), 0.4))
    means = torch.nn.functional.avg_pool2d(x, 2)
    back = torch.nn.functional.interpolate(means, size=(8, 8), mode="bicubic", align_corners=False)
    torch.testing.assert_close(degraded(x, 2, 0.0, fork(0)), back)
    noisy = degraded(torch.zeros(4000, 1, 4, 4), 1, 0.3, fork(0))
    assert float(noisy.std()) == pytest.approx(0.3 / 3**0.5, rel=0.05)  # spreads are drawn evenly up to 0.3


def test_the_same_seed_gives_the_same_weights_and_nothing_ambient_is_drawn(tmp_path: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = trained(tmp_path / "a", seed=4)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    again, other = trained(tmp_path / "b", seed=4), trained(tmp_path / "c", seed=5)
    assert read_card(first) == read_card(again)
    assert read_card(first)["weights"] != read_card(other)["weights"]


def test_the_card_tells_what_was_trained_on(tmp_path: Path) -> None:
    steps: list[Step] = []
    images = stripes()
    twice = replace(
        images, pixels=torch.cat([images.pixels, images.pixels]), labels=torch.cat([images.labels, images.labels])
    )
    folder = train_prior(twice, Training(steps=3, batch=4, width=8), tmp_path / "p", report=steps.append)
    card = read_card(folder)
    assert [step.done for step in steps] == [1, 2, 3] and steps[-1].total == 3
    assert card["classes"] == ["lying", "standing"] and card["data"] == "stripes" and card["shape"] == [1, 8, 8]
    assert card["records"] == sorted(set(record_hashes(images.pixels))) and len(card["records"]) == 24
    file = folder / "diffusion_pytorch_model.safetensors"
    assert card["weights"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert card["training"]["steps"] == 3 and card["loss"] > 0
    assert json.loads((folder / "scheduler_config.json").read_text())["beta_schedule"] == "linear"
    assert all(torch.isfinite(value).all() for value in load_file(file).values())


def test_a_hash_is_of_the_bytes_of_a_picture() -> None:
    pixels = torch.tensor([[[[0.0, 1.0], [0.5, 0.2]]]])
    body = np.array([[[0, 255], [128, 51]]], dtype=np.uint8).tobytes()  # 127.5 goes to the even neighbour
    expected = hashlib.sha256(b"(1, 2, 2)" + body).hexdigest()[:32]
    assert record_hashes(pixels) == [expected]
    assert record_hashes(pixels + 0.001) == [expected]  # the same picture after a float's rounding
    assert record_hashes(pixels.reshape(1, 1, 1, 4)) != [expected]
    assert record_hashes(pixels + 0.01) != [expected]


def test_a_prior_that_has_seen_a_record_is_refused() -> None:
    seen = record_hashes(stripes().pixels)
    check_overlap("prior", seen, stripes(seed=1).pixels, "client 0")
    check_overlap("prior", [], stripes().pixels, "client 0")
    mixed = torch.cat([stripes(seed=1).pixels, stripes().pixels[:2]])
    with pytest.raises(BadInput, match="2 of the 26 records of client 0"):
        check_overlap("prior", seen, mixed, "client 0")


def test_a_mirror_image_counts_as_the_record() -> None:
    pixels = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    mirrored = torch.cat([pixels[:1], pixels[1:2].flip(3), pixels[2:].flip(2)])
    assert known_among(record_hashes(pixels), mirrored).tolist() == [True, True, False]
    assert known_among([], mirrored).tolist() == [False] * 3
    with pytest.raises(BadInput, match="2 of the 3 records of client 0, mirror images included"):
        check_overlap("prior", record_hashes(pixels), mirrored, "client 0")


def test_an_interrupted_training_leaves_nothing(tmp_path: Path) -> None:
    def stop(step: Step) -> None:
        assert list(tmp_path.iterdir()) == []  # nor would a kill leave anything now
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_prior(stripes(), Training(steps=3, batch=4, width=8), tmp_path / "p", report=stop)
    assert list(tmp_path.iterdir()) == []


def test_a_taken_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "mine").write_text("x")
    with pytest.raises(BadInput, match="a new or empty folder"):
        trained(tmp_path / "p")
    assert (tmp_path / "p" / "mine").read_text() == "x"
    (tmp_path / "q").mkdir()
    assert (trained(tmp_path / "q") / "card.json").is_file()


def test_a_place_where_no_folder_can_be_made_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path / "real")
    for place in (tmp_path / "file" / "p", tmp_path / "link", Path(".")):
        with pytest.raises(BadInput, match="--out"):
            check_place(place)


def test_a_training_that_ends_in_nothing_says_so(tmp_path: Path) -> None:
    images = stripes()
    with pytest.raises(BadInput, match="a finite loss"):
        trained(tmp_path / "p", replace(images, pixels=images.pixels * torch.nan), kind="gan")
    assert list(tmp_path.iterdir()) == []


def test_images_too_small_for_a_restorer_are_refused(tmp_path: Path) -> None:
    small = replace(stripes(), pixels=stripes().pixels[:, :, :3, :5])
    for images, scale, said in ((small, 1, "at least 4 pixels"), (stripes(), 16, "at least 16 pixels")):
        with pytest.raises(BadInput, match=said):
            trained(tmp_path / "p", images, kind="gan", scale=scale)
    odd = replace(stripes(), pixels=torch.rand(24, 1, 9, 11, generator=fork(0)))
    for kind, scale in (("gan", 4), ("ddpm", 1)):
        assert read_card(trained(tmp_path / kind, odd, kind=kind, scale=scale))["shape"] == [1, 9, 11]


def test_mirrored_images_are_shown_where_asked() -> None:
    from fedxray.restore.training import _shown

    x = stripes().pixels
    shown = _shown(x, True, fork(0))
    same = (shown == x).flatten(1).all(1)
    turned = (shown == x.flip(3)).flatten(1).all(1)
    assert bool((same | turned).all()) and 0 < int(same.sum()) < len(x)
    assert torch.equal(_shown(x, False, fork(0)), x)


@pytest.mark.parametrize(
    "settings",
    [{"kind": "vae"}, {"steps": 0}, {"width": 12}, {"learning_rate": 0.0}, {"averaging": 1.0}, {"noise": 2.0}],
)
def test_settings_that_cannot_be_meant(settings: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        Training(**settings)  # type: ignore[arg-type]


def test_too_few_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="at least 10 images"):
        trained(tmp_path / "p", stripes(9))
    with pytest.raises(BadInput, match="square images"):
        wide = stripes()
        trained(tmp_path / "p", replace(wide, pixels=wide.pixels[..., :4]), kind="dit")
