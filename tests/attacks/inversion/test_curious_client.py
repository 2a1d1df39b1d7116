from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion.curious_client import CuriousClient, CuriousClientOracle, enlarged, own_guesses, valid
from fedxray.data.dataset import Records, Space
from fedxray.errors import BadInput, Refused
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.metrics.scoring import score
from fedxray.seeds import fork
from tests.attacks.sums_worlds import client_view, federation, joined, run, server_view

FEDAVG = Recipe(epochs=3, batch_size="all", learning_rate=0.03, shuffle="never")
FEDSGD = Recipe(algorithm="fedsgd", learning_rate=0.3)
ORACLE = ("recipe", "examples", "oracle-groups")


def attacked(view: View, **settings: Any) -> Evidence:
    return CuriousClient(**{"steps": 60, "latent": 1, **settings}).run(view, generator=fork(1, "test"))


@pytest.mark.parametrize("sizes", [(2, 1, 1), (1, 1, 1)])
def test_the_others_images_come_back(sizes: tuple[int, ...]) -> None:
    transcript, truth = run(sizes, FEDAVG)
    found = attacked(client_view(transcript, truth), steps=200)
    assert found.status == "ok" and len(found.tensors["inputs"]) == sum(sizes[1:])
    assert score(found, truth).means["psnr"] > 20
    assert "own" not in found.tensors and found.seats == (0,)


def test_colluding_seats_leave_only_the_third() -> None:
    transcript, truth = run((1, 2, 1), FEDAVG)
    found = attacked(client_view(transcript, truth, seats=(0, 1)), steps=150)
    assert len(found.tensors["inputs"]) == 1 and score(found, truth).means["psnr"] > 20


def test_fedsgd_is_the_servers_attack_on_the_same_images() -> None:
    """One gradient of everyone, weighted by examples, is the gradient of one client that holds all images."""
    transcript, truth = run((2, 1, 2), FEDSGD)
    of_sum = attacked(server_view(transcript, truth))
    whole = replace(federation((5,), FEDSGD), clients=(joined(truth),))
    single, alone = simulate(whole, seed=0)
    view = roles.server(single, client=0, grants=disclose(alone, ("recipe", "examples", "label-counts"), client=0))
    of_one = attacked(view)
    assert torch.allclose(of_sum.tensors["inputs"], of_one.tensors["inputs"], atol=1e-4)
    assert of_sum.curve == pytest.approx(of_one.curve, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("names", [("recipe", "examples", "labels"), ("recipe", "examples", "contributors")])
def test_secure_aggregation_equals_the_client_that_takes_nothing_out(names: tuple[str, ...]) -> None:
    transcript, truth = run((2, 1, 2), FEDAVG)
    client = attacked(client_view(transcript, truth, names=names), own_share="recover", steps=20)
    hidden, _ = run((2, 1, 2), FEDAVG, secure_aggregation=True)
    for seen in (transcript, hidden):
        server = attacked(server_view(seen, truth, names=names), own_share="recover", steps=20)
        for name in ("inputs", "labels"):
            assert torch.equal(client.tensors[name], server.tensors[name]), name
        assert (client.curve, client.status) == (server.curve, server.status)
    assert client.tensors["own"].sum() == 2 and "own" not in server.tensors


def test_own_images_left_in_are_set_aside_and_reported() -> None:
    transcript, truth = run((2, 1, 1), FEDAVG)
    found = attacked(client_view(transcript, truth), own_share="recover", steps=200)
    assert len(found.tensors["inputs"]) == 4 and int(found.tensors["own"].sum()) == 2
    assert found.facts["own_images"] == found.facts["own_found"] == 2 and found.facts["own_psnr"] > 20
    means = score(found, truth)
    assert len(means.records["psnr"]) == 2 and means.means["psnr"] > 20


def test_own_images_are_matched_within_their_class() -> None:
    space = Space(kind="image", shape=(1, 2, 2), target="classification", classes=("a", "b"))
    black, white = torch.zeros(1, 2, 2), torch.ones(1, 2, 2)
    guess, labels = torch.stack([black, white, white]), torch.tensor([0, 0, 1])
    mine, own_facts = own_guesses(guess, labels, Records(white[None], torch.tensor([0])), space)
    assert mine.tolist() == [False, True, False] and own_facts["own_psnr"] == pytest.approx(100.0)
    assert own_facts["own_error"] == pytest.approx(0, abs=1e-9)
    mine, own_facts = own_guesses(guess[:2], labels[:2], Records(white[None], torch.tensor([1])), space)
    assert not mine.any() and own_facts == {"own_images": 1, "own_found": 0, "own_psnr": 0.0, "own_error": 1.0}
    other = Records(white[None], torch.tensor([1]))  # the likest guess is of another class, and is not taken
    mine, own_facts = own_guesses(torch.stack([white, black]), torch.tensor([0, 1]), other, space)
    assert mine.tolist() == [False, True] and own_facts["own_found"] == 1
    two = Records(torch.stack([white, 0.5 * white]), torch.tensor([0, 0]))
    _, own_facts = own_guesses(guess, labels, two, space)
    assert own_facts["own_error"] == pytest.approx(0.125), (
        "of half a grey step one image is a quarter off, the other right"
    )


def test_a_wrong_learning_rate_fits_worse() -> None:
    transcript, truth = run((2, 2), FEDAVG)
    view = client_view(transcript, truth)
    known, wrong = (attacked(view, own_share="recover", steps=150, assumed_learning_rate=rate) for rate in (0.03, 0.3))
    assert known.facts["own_psnr"] > wrong.facts["own_psnr"] + 10


def test_assumed_examples_stand_in_for_the_grant() -> None:
    transcript, truth = run((2, 2), FEDAVG)
    view = client_view(transcript, truth, names=("recipe",))
    with pytest.raises(Refused, match="number of examples"):
        attacked(view)
    found = attacked(view, own_share="recover", assumed_examples=5, steps=5)
    assert len(found.tensors["inputs"]) == 5 and found.facts["images"] == 5
    assert found.facts["labels"] == "labels-dlf"


def test_the_oracle_knows_who_holds_what_and_is_exact() -> None:
    """At the true images the simulated clients' mean is the update seen; the super-client's is not."""
    recipe = replace(FEDAVG, learning_rate=0.4)
    transcript, truth = run((3, 1, 2), recipe)
    view = client_view(transcript, truth, names=ORACLE)
    found = CuriousClientOracle(steps=250, latent=1).run(view, generator=fork(1, "test"))
    assert found.facts["clients"] == 2 and len(found.tensors["inputs"]) == 3
    plain = attacked(client_view(transcript, truth), steps=250)
    assert 10 * found.facts["own_loss"][0] < plain.facts["own_loss"][0]
    assert score(found, truth).means["psnr"] > score(plain, truth).means["psnr"] + 3


def test_of_one_local_step_the_oracle_finds_the_same() -> None:
    """The mean of one step each is that of one client, so both descend alike from the same pictures."""
    recipe = replace(FEDAVG, epochs=1, learning_rate=0.4)
    transcript, truth = run((2, 1, 2), recipe)
    mixed = replace(truth, train=tuple(replace(one, y=one.y.flip(0)) for one in truth.train[::-1]))
    grouped = disclose(mixed, ORACLE, client=None)  # clients and labels in another order than they were drawn in
    view = roles.secure_aggregation(transcript, grants=grouped)
    bound = CuriousClientOracle(steps=40, latent=1).run(view, generator=fork(1, "test"))
    plain = attacked(server_view(transcript, truth), steps=40)
    assert bound.curve == pytest.approx(plain.curve, rel=1e-6, abs=1e-9)
    order = bound.tensors["labels"].argsort()
    assert not torch.equal(order, torch.arange(5)), "the oracle has them by client"
    assert torch.allclose(bound.tensors["inputs"][order], plain.tensors["inputs"], atol=1e-6)


def test_the_oracle_with_its_own_images_left_in() -> None:
    transcript, truth = run((1, 2), FEDAVG)
    view = client_view(transcript, truth, names=ORACLE)
    attack = CuriousClientOracle(steps=5, latent=1, own_share="recover")
    found = attack.run(view, generator=fork(1, "test"))
    assert found.tensors["own"].tolist() == [True, False, False]


def test_the_latent_picture_is_enlarged_inside_the_loop() -> None:
    transcript, truth = run((1, 1), FEDAVG)
    found = attacked(client_view(transcript, truth), latent=2, steps=30)
    assert found.tensors["inputs"].shape == (1, 1, 4, 4)
    space = truth.space
    small = torch.rand(2, 1, 2, 2, dtype=torch.float64)
    larger = torch.nn.functional.interpolate(small, scale_factor=2, mode="bicubic")
    assert torch.equal(enlarged(small, space), larger)
    assert torch.equal(enlarged(larger, space), larger)
    assert float(valid(5 * small, space).max()) <= 1.0


@pytest.mark.parametrize("match", ["l2", "l1", "cosine", "cosine-by-layer", "l2-by-depth"])
def test_every_distance_falls(match: str) -> None:
    transcript, truth = run((2, 1), FEDAVG)
    found = attacked(client_view(transcript, truth), match=match, steps=15)
    assert found.curve[-1] < found.curve[0]


def test_a_sub_attack_gives_the_labels_of_the_others() -> None:
    transcript, truth = run((2, 1, 1), FEDSGD)
    found = attacked(client_view(transcript, truth, names=("recipe", "examples")), steps=2)
    assert found.facts["labels"] == "labels-dlf" and len(found.tensors["labels"]) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("latent", 0),
        ("latent", 2.0),
        ("match", "cosin"),
        ("own_share", "ignore"),
        ("restarts", 0),
        ("total_variation", -1.0),
        ("assumed_examples", 0),
        ("assumed_examples", 10**9),
        ("assumed_learning_rate", 0.0),
        ("at", "middle"),
    ],
)
def test_bad_settings_are_refused(name: str, value: object) -> None:
    with pytest.raises(BadInput, match=name):
        CuriousClient(**{name: value})  # type: ignore[arg-type]
