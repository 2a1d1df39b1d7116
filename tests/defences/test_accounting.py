"""Privacy budgets: closed form, an independent integral, Opacus' own engine, and what planted records show."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import integrate, optimize, stats

from fedxray.data.dataset import Records, Space
from fedxray.defences import dp_sgd
from fedxray.defences.base import Work
from fedxray.defences.dp_sgd import ASSUMES_POISSON, TOO_LITTLE, DpSgd, expected_examples, sampling_rate
from fedxray.defences.joined import Joined
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation

Extra = Callable[[str], ModuleType]


@pytest.fixture(autouse=True, scope="module")
def opacus(extra: Extra) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return extra("opacus")


def gaussian_epsilon(noise: float, steps: int, delta: float) -> float:
    """Epsilon of so many Gaussian mechanisms of sensitivity one, in closed form (Balle and Wang 2018)."""
    mu = math.sqrt(steps) / noise

    def excess(epsilon: float) -> float:
        first = stats.norm.logcdf(-epsilon / mu + mu / 2)
        second = epsilon + stats.norm.logcdf(-epsilon / mu - mu / 2)
        return float(math.exp(first) - math.exp(second) - delta)

    return float(optimize.brentq(excess, 0.0, 500.0)) if excess(0.0) > 0 else 0.0


def integral_epsilon(noise: float, rate: float, steps: int, delta: float, orders: Any) -> float:
    """The RDP bound with the moments of the sampled Gaussian integrated numerically, both ways."""
    found = []
    for order in orders:
        moments = []
        for away in (True, False):

            def weigh(z: float, order: float = order, away: bool = away) -> float:
                ratio = math.log1p(rate * math.expm1((2 * z - 1) / (2 * noise**2)))
                power = order * ratio if away else (1 - order) * ratio
                return math.exp(power - z**2 / (2 * noise**2)) / (noise * math.sqrt(2 * math.pi))

            edge = noise * 12 + order
            moments.append(integrate.quad(weigh, -edge, edge, limit=400, points=[0.0, order])[0])
        rdp = steps * math.log(max(moments)) / (order - 1)
        found.append(rdp + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1))
    return max(0.0, min(found))


@pytest.mark.parametrize(
    ("noise", "steps", "delta"), [(2.0, 1, 1e-5), (4.0, 100, 1e-5), (30.0, 50, 1e-6), (1.0, 4, 1e-3)]
)
def test_at_rate_one_it_is_the_closed_form(noise: float, steps: int, delta: float) -> None:
    exact = gaussian_epsilon(noise, steps, delta)
    reported = dp_sgd.best_epsilon(noise, 1.0, steps, delta)[0]
    assert exact <= reported <= exact * (1 + 2 * dp_sgd.PRECISION) + 1e-3
    assert exact <= dp_sgd.rdp_epsilon(noise, 1.0, steps, delta) <= 1.25 * exact + 0.02


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 0.1, 100), (3.0, 0.5, 40), (0.8, 0.01, 500)])
def test_below_rate_one_it_is_an_independent_integral(noise: float, rate: float, steps: int) -> None:
    bound = dp_sgd.rdp_epsilon(noise, rate, steps, 1e-5)
    independent = integral_epsilon(noise, rate, steps, 1e-5, [one for one in dp_sgd.ORDERS if 1.5 <= one <= 32])
    assert bound == pytest.approx(independent, rel=1e-3)
    reported = dp_sgd.best_epsilon(noise, rate, steps, 1e-5)[0]
    assert 0.8 * bound < reported <= bound


def test_a_few_orders_lose_little() -> None:
    from opacus.accountants import RDPAccountant

    for noise, rate, steps in [(1.0, 0.1, 100), (5.0, 0.02, 2000)]:
        theirs: Any = RDPAccountant()
        theirs.history = [(noise, rate, steps)]
        assert dp_sgd.rdp_epsilon(noise, rate, steps, 1e-5) <= 1.02 * theirs.get_epsilon(delta=1e-5)


@settings(max_examples=10)
@given(epsilon=st.floats(0.2, 20.0), rate=st.sampled_from([1.0, 0.1, 0.02]), steps=st.integers(1, 300))
def test_the_noise_found_keeps_the_budget_and_no_more_than_needed(epsilon: float, rate: float, steps: int) -> None:
    noise = dp_sgd.noise_for(epsilon, 1e-5, rate, steps)
    assert dp_sgd.rdp_epsilon(noise, rate, steps, 1e-5) <= epsilon
    if noise > dp_sgd.SMALLEST_NOISE:
        assert dp_sgd.rdp_epsilon(noise / 1.002, rate, steps, 1e-5) > epsilon


def test_more_steps_and_less_noise_cost_more() -> None:
    base = dp_sgd.best_epsilon(1.0, 0.1, 50, 1e-5)[0]
    assert dp_sgd.best_epsilon(1.0, 0.1, 51, 1e-5)[0] > base > dp_sgd.best_epsilon(1.1, 0.1, 50, 1e-5)[0]


def test_a_budget_that_nothing_keeps_is_refused() -> None:
    with pytest.raises(BadInput, match="epsilon: expected a privacy budget"):
        dp_sgd.noise_for(1e-9, 1e-12, 1.0, 10**6)


def test_pairs_cost_more_and_are_two_hops_of_single_examples() -> None:
    """Twice the epsilon at the delta that both hops leave, found by looking at all of them."""
    noise, steps, delta = 8.0, 20, 1e-5  # cheap, since the moments of one step are kept
    single = dp_sgd.rdp_epsilon(noise, 0.5, steps, delta)
    pairs = dp_sgd.rdp_epsilon_of_pairs(noise, 0.5, steps, delta)
    assert pairs > 2 * single
    tried = [delta * 10 ** (-step / 50) for step in range(1, 100)]
    hops = [(dp_sgd.rdp_epsilon(noise, 0.5, steps, one), one) for one in tried]
    best = min(2 * one for one, left in hops if (1 + math.exp(one)) * left <= delta)
    assert pairs == pytest.approx(best, rel=0.01)
    noise = dp_sgd.noise_for(3.0, delta, 0.5, steps, pairs=True)
    assert 2.98 < dp_sgd.rdp_epsilon_of_pairs(noise, 0.5, steps, delta) <= 3.0


@pytest.mark.parametrize("sampling", ["poisson", "shuffle"])
def test_the_engine_of_opacus_agrees(sampling: str) -> None:
    """The same work through Opacus' PrivacyEngine: same rate, same divisor, same noise, same epsilon."""
    work = Work(examples=40, batch_size=10, steps=8, rounds=3)
    used = DpSgd(epsilon=4.0, sampling=sampling)  # type: ignore[arg-type]
    model = torch.nn.Linear(3, 2)
    data = torch.utils.data.TensorDataset(torch.randn(40, 3), torch.randint(2, (40,)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import PrivacyEngine

        engine: Any = PrivacyEngine(accountant="prv")
        noise = used.noise_for(work)
        private, optimiser, loader = engine.make_private(
            module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(data, batch_size=10),
            noise_multiplier=noise, max_grad_norm=used.clip, poisson_sampling=sampling == "poisson",
        )  # fmt: skip
        assert expected_examples(work, sampling == "poisson") == optimiser.expected_batch_size
        for _, (x, y) in itertools.product(range(work.rounds * 2), loader):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(private(x), y).backward()
            optimiser.step()
        theirs = engine.get_epsilon(1e-5)
    assert [step[1:] for step in engine.accountant.history] == [(sampling_rate(work), 24)]
    privacy = used.hooks(work).privacy
    assert privacy is not None
    ours = privacy(3)
    assert ours.epsilon == pytest.approx(theirs, rel=0.02) and ours.steps == 24
    assert ours.epsilon is not None and 0.85 * 4.0 < ours.epsilon <= 4.0
    assert (ours.note == ASSUMES_POISSON) == (sampling == "shuffle")


def test_the_noise_is_about_what_opacus_would_choose() -> None:
    assert dp_sgd.noise_for(4.0, 1e-5, 0.1, 24) == pytest.approx(_noise_of_opacus(4.0, 0.1, 24), rel=0.02)


def _noise_of_opacus(epsilon: float, rate: float, steps: int) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants.utils import get_noise_multiplier

        return float(get_noise_multiplier(
            target_epsilon=epsilon, target_delta=1e-5, sample_rate=rate, steps=steps
        ))  # fmt: skip


def test_what_counts_is_every_round_worked() -> None:
    work = Work(examples=40, batch_size=10, steps=4, rounds=5)
    hooks = DpSgd(epsilon=2.0).hooks(work)
    assert hooks.privacy is not None
    none, planned, more = (hooks.privacy(rounds) for rounds in (0, 5, 9))
    assert none.epsilon == 0.0
    assert planned.epsilon is not None and planned.epsilon <= 2.0 < (more.epsilon or 0.0)
    assert more.steps == 36
    longer = DpSgd(epsilon=2.0, rounds=9).hooks(work).privacy
    assert longer is not None and (longer(9).epsilon or 9) <= 2.0


def test_without_noise_nothing_is_claimed() -> None:
    privacy = DpSgd(noise_multiplier=0.0).hooks(Work(examples=4, batch_size=2, steps=2, rounds=1)).privacy
    assert privacy is not None and privacy(1).epsilon is None and "no noise" in privacy(1).note


def test_two_promises_and_changes_after_one_are_refused() -> None:
    from fedxray.defences.noise import GaussianNoise

    work, private = Work(examples=4, batch_size=2, steps=2, rounds=1), DpSgd(noise_multiplier=1.0)
    noisy = GaussianNoise(scale=1.0, at="gradients")
    with pytest.raises(BadInput, match="one defence that samples batches"):
        Joined(parts=(private, DpSgd(noise_multiplier=2.0))).hooks(work)
    with pytest.raises(BadInput, match="last of the defences on gradients"):
        Joined(parts=(private, noisy)).hooks(work)
    assert Joined(parts=(noisy, private)).hooks(work).privacy is not None


def canary_run(planted: bool, used: DpSgd) -> Federation:
    """Six records, of which the first pulls a column of its own as far as the clip lets it, or does nothing."""
    x, y = torch.zeros(6, 2), torch.ones(6)
    x[:, 0] = 1.0
    x[0], y[0] = torch.tensor([0.0, 1.0]) * planted, 1e9 * planted
    return Federation(
        space=Space(kind="table", shape=(2,), target="regression"),
        clients=(Records(x, y),),
        model=_zero_linear(),
        recipe=Recipe(loss="mse", batch_size=3, learning_rate=1.0, epochs=2),
        rounds=1,
        defence=used,
    )


def _zero_linear() -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False))
    torch.nn.init.zeros_(model[0].weight)  # type: ignore[arg-type]
    return model


def lower_bound(used: DpSgd, delta: float, trials: int) -> float:
    """The epsilon that telling the planted record apart proves at 95 %, with a threshold from other trials."""
    values = []
    for planted in (False, True):
        run = canary_run(planted, used)
        ends = (simulate(run, seed=2 * seed + planted)[0].shelf.get("global/1") for seed in range(trials))
        values.append(np.array([float(end.params["0.weight"][0, 1]) for end in ends]))
    half = trials // 2
    threshold = (values[0][:half].mean() + values[1][:half].mean()) / 2
    slips, hits = (int((one[half:] > threshold).sum()) for one in values)
    sure = stats.beta.ppf(0.025, hits, half - hits + 1) if hits else 0.0
    at_most = stats.beta.ppf(0.975, slips + 1, half - slips) if slips < half else 1.0
    return math.log((sure - delta) / at_most) if sure > delta else 0.0


def test_a_planted_record_never_proves_more_than_is_promised() -> None:
    used, delta = DpSgd(noise_multiplier=2.0, delta=0.01), 0.01
    privacy = used.hooks(Work(examples=6, batch_size=3, steps=4, rounds=1)).privacy
    assert privacy is not None
    promised = privacy(1).epsilon
    assert promised is not None and promised < 1.5
    assert lower_bound(used, delta, 100) <= promised
    # The same test sees through a noise that is too small for that promise.
    assert lower_bound(DpSgd(noise_multiplier=0.1, delta=0.01), delta, 100) > promised


def test_odd_settings_never_break_the_accountant_and_it_is_named() -> None:
    assert dp_sgd.best_epsilon(1e-200, 0.5, 4, 1e-5) == (math.inf, "rdp")
    for delta in (1e-300, 1e-5):
        found, by = dp_sgd.best_epsilon(2.0, 0.5, 4, delta)
        bound = dp_sgd.rdp_epsilon(2.0, 0.5, 4, delta)
        assert 0 < found <= bound and by == ("prv" if found < bound else "rdp")
    assert dp_sgd.best_epsilon(2.0, 0.5, 4, 1e-300)[1] == "rdp"
    found, by = dp_sgd.best_epsilon(0.05, 1.0, 100, 1e-5)
    assert found > dp_sgd.MOST_EPSILON and by == "rdp"


def test_without_a_finite_epsilon_the_reason_is_told() -> None:
    work = Work(examples=8, batch_size=4, steps=2, rounds=3)
    privacy = DpSgd(noise_multiplier=1e-200).hooks(work).privacy
    assert privacy is not None
    assert (privacy(3).epsilon, privacy(3).note) == (None, TOO_LITTLE)
