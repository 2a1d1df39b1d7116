"""The Gaussian process and the expected improvement that `sampler = "gp"` rests on, against slow versions by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from fedxray.audit import search
from fedxray.audit.search import Study, Trial, ask
from fedxray.seeds import fork

LINE: dict[str, Any] = {"x": (0.0, 1.0, "linear")}
SEEN = [({"x": x}, (x - 0.7) ** 2 + 0.1 * math.sin(9 * x)) for x in (0.0, 0.2, 0.35, 0.5, 0.9, 1.0)]
GRID = np.linspace(0, 1, 2001)


def matern(left: np.ndarray, right: np.ndarray, squared_scale: float, height: float) -> np.ndarray:
    """The Matérn 5/2 kernel, written down from its definition."""
    far = math.sqrt(5 * squared_scale) * np.abs(left[:, None] - right[None])
    return np.asarray(height * (1 + far + far**2 / 3) * np.exp(-far))


def improvement(lowest: float, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """E max(lowest - f, 0) of a normal f, as the paper has it."""
    z = (lowest - mean) / deviation
    return np.asarray((lowest - mean) * norm.cdf(z) + deviation * norm.pdf(z))


@pytest.fixture
def process(extra: Any) -> Any:
    """The process that Optuna fits to what was seen, and the point that it asks for."""
    extra("optuna")
    with search._quiet():
        study = search._study(LINE, SEEN, seed=3)
        asked = study.ask(search._distributions(LINE)).params["x"]
    (fitted,) = study.sampler._gprs_cache_list  # type: ignore[attr-defined]
    assert search.improving_points(LINE, SEEN, 1, 3) == [{"x": asked}]
    return fitted, asked


def posterior(fitted: Any, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and deviation of the losses by plain algebra and the lowest one seen, in standard units."""
    x, y = np.array([point["x"] for point, _ in SEEN]), np.array([loss for _, loss in SEEN])
    y = (y - y.mean()) / y.std()
    kernel = float(fitted.inverse_squared_lengthscales[0]), float(fitted.kernel_scale)
    among, across = matern(x, x, *kernel), matern(places, x, *kernel)
    solved = np.linalg.solve(among + 1e-10 * np.eye(len(x)), across.T)
    variance = kernel[1] - (across * solved.T).sum(1)
    return solved.T @ y, np.sqrt(np.maximum(variance, 1e-18)), float(y.min())


def test_the_process_goes_through_what_was_seen(process: Any) -> None:
    fitted, _ = process
    places = torch.tensor([[point["x"]] for point, _ in SEEN], dtype=torch.float64)
    losses = np.array([loss for _, loss in SEEN])
    with torch.no_grad():
        mean, variance = fitted.posterior(places)
    assert -mean.numpy() * losses.std() + losses.mean() == pytest.approx(losses, abs=1e-4)
    assert float(variance.max()) < 1e-4


def test_the_process_is_the_one_by_hand(process: Any) -> None:
    fitted, _ = process
    mean, deviation, _ = posterior(fitted, GRID[::100])
    with torch.no_grad():
        theirs, variance = fitted.posterior(torch.from_numpy(GRID[::100, None].copy()))
    assert -theirs.numpy() == pytest.approx(mean, abs=1e-3)
    assert variance.clamp(min=0).sqrt().numpy() == pytest.approx(deviation, abs=3e-3)


def test_the_point_asked_for_has_the_largest_expected_improvement(process: Any) -> None:
    fitted, asked = process
    mean, deviation, lowest = posterior(fitted, GRID)
    gains = improvement(lowest, mean, deviation)
    assert gains.min() >= 0
    (here,) = improvement(lowest, *posterior(fitted, np.array([asked]))[:2])
    assert here == pytest.approx(gains.max(), rel=1e-2)
    assert min(abs(asked - point["x"]) for point, _ in SEEN) > 1e-3, "nothing is gained where it was"


@pytest.mark.parametrize("mean", [-1.0, 0.3, 2.0])
def test_expected_improvement_is_what_it_is_called(extra: Any, mean: float) -> None:
    extra("optuna")
    from optuna._gp.acqf import logei

    lowest = 0.5

    def theirs(deviation: float) -> float:
        """Optuna maximises, so signs are turned."""
        given = torch.tensor([-mean], dtype=torch.float64), torch.tensor([deviation**2], dtype=torch.float64)
        return float(logei(*given, -lowest).exp())

    for deviation in (0.2, 1.0, 3.0):
        ends = mean - 12 * deviation, lowest
        gain = quad(lambda f, d=deviation: (lowest - f) * norm.pdf(f, mean, d), *ends)[0] if ends[0] < ends[1] else 0
        assert theirs(deviation) == pytest.approx(gain, rel=1e-6)
        assert improvement(lowest, np.array([mean]), np.array([deviation]))[0] == pytest.approx(gain, rel=1e-6)
    far, sure = torch.tensor([-1e3], dtype=torch.float64), torch.tensor([1e-2], dtype=torch.float64)
    assert math.isfinite(float(logei(far, sure, -lowest))), "above 0 also where nothing is to be expected"
    assert theirs(1e-9) == pytest.approx(max(lowest - mean, 0.0), abs=1e-8)


def test_a_loss_that_is_no_number_counts_as_the_worst_so_far(extra: Any) -> None:
    extra("optuna")
    reported = [
        [*SEEN[:-1], ({"x": 1.0}, loss)]
        for loss in (math.inf, max(loss for _, loss in SEEN[:-1]), min(loss for _, loss in SEEN[:-1]))
    ]
    lost, worst, best = (search.improving_points(LINE, past, 2, 3) for past in reported)
    assert lost == worst != best


def test_what_is_asked_depends_on_the_trials_and_the_seed_alone(extra: Any) -> None:
    extra("optuna")
    study = Study(ranges=LINE, trials=9, starts=6, batch=3, sampler="gp")
    done = [Trial(dict(point), loss) for point, loss in SEEN]
    first = ask(study, done, fork(0))
    assert len(first) == 3 and ask(study, done, fork(0)) == first, "no state is left behind"
    assert ask(study, done, fork(1)) != first
    other = [*done[:-1], Trial(done[-1].point, -1.0)]
    assert ask(study, other, fork(0)) != first
    kept: dict[str, Any] = {}

    def recall(key: str, make: Any) -> Any:
        return kept.setdefault(key, [{"x": 0.125}] * 3)

    assert ask(study, done, fork(0), recall) == [{"x": 0.125}] * 3, "points are remembered by what they follow from"
    ask(study, other, fork(0), recall)
    ask(study, done, fork(0), recall)
    assert len(kept) == 2
