"""The figures of the curious client (2024): divisions, recipes and attacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.plan import make_plan
from fedxray.reproduce.base import REPRODUCTIONS, Request, find

PAPER, SMALL = Request(scale="paper"), Request()
NAMES = tuple(name for name in REPRODUCTIONS if name.startswith("curious-"))
OURS = (
    "curious-clients",
    "curious-batch-and-steps",
    "curious-uneven",
    "curious-unknown-lr",
    "curious-inversion-lr",
    "curious-upper-bound",
    "curious-choices",
)


def plans(request: Request, *names: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield figure, row and plan of every row."""
    for name in names or OURS:
        reproduction = find(name)
        assert reproduction.plan is not None
        for row in reproduction.rows:
            yield name, row, reproduction.plan(request, row)


@pytest.mark.parametrize("request_", [PAPER, SMALL])
def test_every_plan_is_valid_and_fits_the_photos(request_: Request) -> None:
    assert set(OURS) <= set(NAMES)
    for name, row, plan in plans(request_):
        checked = make_plan({**plan, "name": f"{name}.{row}"}, Path.cwd())
        data, photos = plan["data"], 64 if plan["data"]["size"] == 128 else 1000
        sizes = [data["sizes"][client % len(data["sizes"])] for client in range(data["clients"])]
        left = photos - round(data["public"] * photos)
        assert data["clients"] == checked.clients and sum(sizes) <= left, (name, row)
        assert data["holdout"] == 0 and checked.federation.batch_size in ("all", 32)
        assert checked.federation.batch_size == "all" or row == "fedsgd"


def test_clients_take_their_steps_on_one_batch_at_the_papers_rate() -> None:
    for name, row, plan in plans(PAPER):
        recipe, words = plan["federation"], row.split("-")
        steps = int(words[words.index("steps") + 1]) if "steps" in words else 3
        steps = 1 if row == "fedsgd" or row.endswith("one-step") else steps
        rate = 0.03 if name == "curious-inversion-lr" else 1.0 if row == "fedsgd" else 0.003
        assert (recipe["rounds"], recipe.get("epochs", 1), recipe["learning_rate"]) == (1, steps, rate), (name, row)
        assert plan["data"]["size"] == (128 if row.endswith("128px") else 64)
        for attack in plan["attack"]:
            assert attack["steps"] == 200 and attack["metrics"] == ["lpips"], (name, row)
            assert attack["latent"] == 4 or attack["label"] == "no-latent", (name, row)


def test_small_photos_get_a_latent_image_of_half_their_size() -> None:
    for name, row, plan in plans(SMALL):
        if row.endswith("128px"):
            continue
        assert plan["data"]["size"] == 32
        kinds = {attack["latent"] for attack in plan["attack"]}
        assert kinds == ({1, 2, 4} if name == "curious-choices" else {2}), (name, row)


@pytest.mark.parametrize("clients", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("model", ["lenet", "resnet9", "resnet18"])
def test_figure_5_varies_clients_of_sixteen_images(model: str, clients: int) -> None:
    _, _, plan = next(one for one in plans(PAPER, "curious-clients") if one[1] == f"{model}-{clients}")
    assert plan["model"] == {"name": model}
    assert (plan["data"]["clients"], plan["data"]["sizes"]) == (clients, [16])
    (attack,) = plan["attack"]
    assert (attack["name"], attack["role"]) == ("curious-client", "curious-client")
    assert attack["grants"] == ["recipe", "examples", "label-counts"] and "own_share" not in attack


def test_networks_are_compared_on_four_photos_of_each_client_at_full_width() -> None:
    small = {row: plan for _, row, plan in plans(SMALL, "curious-clients")}
    for clients in (2, 4, 8):
        rows = [small[f"{model}-{clients}-4photos"] for model in ("lenet", "resnet9", "resnet18")]
        residual = [{"name": name, "stem": "curious-small"} for name in ("resnet9", "resnet18")]
        assert [plan["model"] for plan in rows] == [{"name": "lenet"}, *residual]
        assert all({**plan, "model": None} == {**rows[0], "model": None} for plan in rows)
        assert rows[0]["data"]["sizes"] == [4] and rows[0]["data"]["clients"] == clients
    steps = {"photos" in row: plan["attack"][0]["steps"] for row, plan in small.items()}
    assert steps == {True: 100, False: 200}
    at_128 = small["resnet9-2-4photos-128px"]
    assert (at_128["model"], at_128["data"]["size"]) == ({"name": "resnet9"}, 128)  # the authors' network
    assert at_128["attack"][0]["latent"] == 4


def test_larger_networks_are_compared_at_equal_numbers_of_clients() -> None:
    pairs = {one.rows for one in find("curious-clients").differences if one.rows and one.expected == "above"}
    across = {rows for rows in pairs if rows[0].split("-")[0] != rows[1].split("-")[0]}
    assert len(across) == 9 and all(left.split("-")[1:] == right.split("-")[1:] for left, right in across)
    assert ("lenet-2-4photos", "resnet18-2-4photos") in across


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("curious-clients", {"lenet-4", "lenet-32-4photos", "resnet9-4-4photos"}),
        ("curious-batch-and-steps", {"4-clients-batch-128", "4-clients-steps-8"}),
        ("curious-restoration", {"imagenet-4"}),
        ("curious-uneven", {"4-uneven", "4-even"}),
        ("curious-inversion-lr", {"4-clients"}),
        ("curious-upper-bound", {"4-clients-steps-8"}),
    ],
)
def test_small_scales_have_more_than_two_clients(name: str, rows: set[str]) -> None:
    assert rows <= set(find(name).chosen_rows((), SMALL))


def test_figure_6_varies_images_and_steps_separately() -> None:
    for _, row, plan in plans(PAPER, "curious-batch-and-steps"):
        clients, _, what, number = row.split("-")
        assert plan["data"]["clients"] == int(clients)
        assert plan["data"]["sizes"] == [int(number) if what == "batch" else 16]


def test_figure_12_divides_the_same_number_of_images() -> None:
    for _, row, plan in plans(PAPER, "curious-uneven"):
        division = row.partition("-")[2]
        assert plan["data"]["sizes"] == {"even": [16], "uneven": [21, 11]}[division]
        assert [attack["role"] for attack in plan["attack"]] == ["secure-aggregation"]
    assert all(one.rows == (f"{k}-uneven", f"{k}-even") for one, k in
               zip(find("curious-uneven").differences, (2, 4, 6, 8), strict=True))  # fmt: skip


def test_figure_14_runs_oracle_and_attack_on_the_same_images() -> None:
    for _, row, plan in plans(PAPER, "curious-upper-bound"):
        ours, bound = plan["attack"]
        assert (ours["name"], bound["name"]) == ("curious-client", "curious-client-oracle")
        assert ours["role"] == bound["role"] == "secure-aggregation"
        assert bound["grants"] == ["recipe", "examples", "oracle-groups"]
        assert plan["data"]["clients"] == int(row[0])


def test_figure_13_changes_only_the_attackers_rate() -> None:
    for _, _, plan in plans(PAPER, "curious-inversion-lr"):
        rates = [attack["learning_rate"] for attack in plan["attack"]]
        assert rates == [0.02, 0.05, 0.1, 0.2, 0.5]
        rest = [{**attack, "learning_rate": 0, "label": ""} for attack in plan["attack"]]
        assert all(one == rest[0] for one in rest)


def test_figure_11_assumes_multiples_of_the_true_rate() -> None:
    for _, row, plan in plans(PAPER, "curious-unknown-lr"):
        rate = plan["federation"]["learning_rate"]
        assert all(attack["own_share"] == "recover" for attack in plan["attack"])
        if row in ("fedsgd", "fedavg"):
            for attack in plan["attack"]:
                assert attack["assumed_learning_rate"] == pytest.approx(rate * float(attack["label"][1:]))
            assert {attack["label"] for attack in plan["attack"]} >= {"x0.1", "x1", "x10"}
            continue
        if row.startswith("ridge"):
            quotients = [one["assumed_learning_rate"] / one["assumed_examples"] for one in plan["attack"]]
            assert quotients == pytest.approx([rate / 32] * len(quotients))
            assert {one["assumed_examples"] for one in plan["attack"]} >= {20, 28, 32, 40, 64}
            assert all(one["grants"] == ["recipe"] for one in plan["attack"])
            continue
        known, searched = plan["attack"]
        ranges = searched["search"]["ranges"]
        low, high = ranges["assumed_learning_rate"]
        assert high / low == pytest.approx(100) and low < rate / 5 and high > 5 * rate
        assert "search" not in known and "assumed_learning_rate" not in known
        if row.startswith("search-both"):
            assert ranges["assumed_examples"] == [17, 64] and searched["grants"] == ["recipe"]


@pytest.mark.parametrize("request_", [PAPER, SMALL])
def test_no_search_finds_the_truth_by_design(request_: Request) -> None:
    """The true rate is not in the middle of its range, and trials are on no grid."""
    for _, row, plan in plans(request_, "curious-unknown-lr"):
        if row.startswith("search"):
            study = plan["attack"][1]["search"]
            low, high = study["ranges"]["assumed_learning_rate"]
            assert abs((low * high) ** 0.5 / plan["federation"]["learning_rate"] - 1) > 0.2
            assert study["sampler"] == "gp"


def test_where_the_number_of_images_is_searched_only_retrieval_is_compared() -> None:
    """The other scores are of matched guesses alone, and a wrong number changes which those are."""
    compared = [one for one in find("curious-unknown-lr").differences if one.left == "searched"]
    assert {one.rows: one.metrics for one in compared} == {
        ("search-rate", "search-rate"): (),
        ("search-both", "search-both"): ("retrieval",),
        ("search-both-one-step", "search-both-one-step"): ("retrieval",),
    }


def test_each_choice_changes_one_setting() -> None:
    for _, _, plan in plans(PAPER, "curious-choices"):
        first, *others = plan["attack"]
        for choice in others:
            changed = {key for key in {*first, *choice} - {"label"} if first.get(key) != choice.get(key)}
            assert changed in ({"own_share"}, {"match"}, {"latent"}, {"grants", "labels"}, set()), choice


@pytest.mark.parametrize("name", OURS)
def test_a_smaller_distance_is_the_better_image(name: str) -> None:
    """LPIPS falls where the other metrics rise, so no difference may expect the same of both."""
    reproduction = find(name)
    metrics = {one.metric for one in reproduction.columns}
    for one in reproduction.differences:
        compared = set(one.metrics) or metrics
        if one.expected is not None and "lpips" in compared:
            assert (compared, one.expected) == ({"lpips"}, "below"), one
    expected = [one for one in reproduction.differences if one.expected == "above"]
    assert len([one for one in reproduction.differences if one.expected == "below"]) == len(expected)


def test_our_text_has_no_number_of_any_figure() -> None:
    assert all(not find(name).paper.numbers and find(name).paper.trend for name in OURS)
