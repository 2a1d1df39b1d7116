from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from fedxray.attacks.inversion.dlf import PRESETS, Dlf, method_of, numbers_of, preset_of, prior_of
from fedxray.priors import EPOCH_PRIORS

# As printed with the authors' scripts, prior by prior: femnist, cifar100.
WEIGHTS = """
l1_max        77.298   4.848
l1_max_conv   81.365   5
l1_mean       250.846  15.708
l1_mean_conv  263.623  16.206
l2_max        92.378   5.814
l2_max_conv   97.776   6.075
l2_mean       1000     62.675
l2_mean_conv  1054.413 65.573
"""
NUMBERS = {
    "femnist": {
        "learning_rate": 0.4,
        "decay": 0.995,
        "decay_every": 10,
        "match_weight": (1.0, 2.0),
        "total_variation": 0.001,
        "clip": 2.0,
        "prior": "l2-mean",
    },
    "cifar100": {
        "learning_rate": 0.1,
        "decay": 0.997,
        "decay_every": 20,
        "match_weight": (4.0, 2.0),
        "total_variation": 0.0002,
        "clip": 10.0,
        "prior": "l2-max-conv",
    },
}


def printed(place: int) -> dict[str, float]:
    rows = [line.split() for line in WEIGHTS.strip().splitlines()]
    return {row[0].replace("_", "-"): float(row[1 + place]) for row in rows}


@pytest.mark.parametrize(("place", "name"), [(0, "femnist"), (1, "cifar100")])
def test_a_preset_is_the_authors_script(place: int, name: str) -> None:
    assert asdict(PRESETS[name]) == NUMBERS[name] | {"prior_weights": printed(place)}
    assert PRESETS[name].prior_weights.keys() == EPOCH_PRIORS.keys()


@pytest.mark.parametrize(("place", "name"), [(0, "femnist"), (1, "cifar100")])
def test_every_number_of_a_preset_reaches_the_attack(place: int, name: str) -> None:
    attack, expected = Dlf(preset=name, steps=400), NUMBERS[name]  # type: ignore[arg-type]
    method, numbers = method_of(attack), numbers_of(attack)
    assert method.lr == expected["learning_rate"] and method.steps == 400
    every = int(str(expected["decay_every"]))
    assert method.decay.factor(3 * every, 400) == pytest.approx(PRESETS[name].decay ** 3)
    assert asdict(numbers) == asdict(PRESETS[name])
    assert prior_of(attack) == (expected["prior"], printed(place)[str(expected["prior"])])
    for prior, weight in printed(place).items():
        assert prior_of(replace(attack, prior=prior)) == (prior, weight)


def test_the_preset_follows_the_data_unless_it_is_set() -> None:
    attack, colour = Dlf(), PRESETS["cifar100"]
    assert [preset_of(attack, channels) for channels in (1, 3)] == ["femnist", "cifar100"]
    assert preset_of(Dlf(preset="femnist"), 3) == "femnist"
    assert numbers_of(attack, 3) == colour and method_of(attack, 3).lr == colour.learning_rate
    assert prior_of(attack, 3)[0] == colour.prior


def test_what_is_given_goes_before_the_preset() -> None:
    given = Dlf(match_weight=(3.0, 5.0), total_variation=0.0, clip=0.0, learning_rate=0.7, decay=1.0)
    numbers = numbers_of(given)
    assert (numbers.match_weight, numbers.total_variation, numbers.clip) == ((3.0, 5.0), 0.0, 0.0)
    assert method_of(given).lr == 0.7 and method_of(given).decay.factor(50, 400) == 1.0
    own = Dlf(preset="cifar100", prior="l1-max", prior_weight=0.0)
    assert prior_of(own) == ("l1-max", 0.0)
