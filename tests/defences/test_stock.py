"""The filters of NVFlare and the mods of Flower: equal to the frameworks' own where these are installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from fedxray.defences.base import Defence, Work
from fedxray.defences.joined import Joined
from fedxray.defences.noise import GaussianNoise
from fedxray.defences.stock import (
    FlowerAdaptiveClipping,
    FlowerFixedClipping,
    FlowerLocalDp,
    FlowerSecagg,
    NvflareExclude,
    NvflarePercentile,
    NvflareSvt,
    clipped,
    percentile,
)
from fedxray.errors import BadInput
from fedxray.federation.round_loop import continue_run, simulate
from fedxray.seeds import fork
from tests.federation.runs import federation

STEPS = 4
WORK = Work(examples=8, batch_size=4, steps=STEPS, rounds=3)
Update = dict[str, Tensor]


def update_of(seed: int = 0, scale: float = 0.02, size: int = 40) -> Update:
    draws = fork(seed)
    return {
        "b.weight": scale * torch.randn(size, 5, generator=draws),
        "a.bias": scale * torch.randn(size, generator=draws),
        "scalar": scale * torch.randn((), generator=draws),
    }


def sent(defence: Defence, update: Mapping[str, Tensor], seed: int = 0, work: Work = WORK) -> Update:
    hook = defence.hooks(work).outgoing
    assert hook is not None
    return hook(dict(update), None, fork(seed))[0]


def by_nvflare(make: Callable[[], Any], update: Mapping[str, Tensor], steps: int = STEPS) -> dict[str, Any]:
    pytest.importorskip("nvflare")
    from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
    from nvflare.apis.fl_context import FLContext

    data = {name: value.numpy().copy() for name, value in update.items()}
    meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: steps}
    shareable = DXO(DataKind.WEIGHT_DIFF, data=data, meta=meta).to_shareable()
    found: dict[str, Any] = from_shareable(make().process(shareable, FLContext())).data
    return found


@pytest.mark.parametrize(("percent", "gamma"), [(10.0, 0.01), (0.0, 0.001), (97.0, 1.0)])
def test_percentile_privacy_equals_nvflares(percent: float, gamma: float) -> None:
    pytest.importorskip("nvflare")
    from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy

    update = update_of()
    theirs = by_nvflare(lambda: PercentilePrivacy(percentile=percent, gamma=gamma), update)
    for name, value in sent(NvflarePercentile(percentile=percent, gamma=gamma), update).items():
        np.testing.assert_allclose(value.numpy(), theirs[name], rtol=1e-5, atol=1e-9)


@given(
    values=st.lists(st.floats(0, 100, width=32), min_size=1, max_size=50), percent=st.floats(0, 100, allow_nan=False)
)
def test_a_percentile_is_numpys(values: list[float], percent: float) -> None:
    found = percentile(torch.tensor(values, dtype=torch.float64), percent)
    assert float(found) == pytest.approx(float(np.percentile(values, percent)), rel=1e-9, abs=1e-9)


def test_without_reported_steps_the_range_is_that_of_the_whole_update() -> None:
    filtered = sent(NvflarePercentile(percentile=0, gamma=0.01, steps_reported=False), update_of(scale=1.0))
    assert float(filtered["b.weight"].abs().max()) == pytest.approx(0.01)
    reported = sent(NvflarePercentile(percentile=0, gamma=0.01), update_of(scale=1.0))
    assert float(reported["b.weight"].abs().max()) == pytest.approx(0.01 * STEPS)


def test_svt_privacy_sends_as_many_values_with_the_same_noise_as_nvflares() -> None:
    pytest.importorskip("nvflare")
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    update = update_of(size=4000)
    np.random.seed(0)
    theirs = by_nvflare(SVTPrivacy, update)["b.weight"].ravel()
    ours = sent(NvflareSvt(), update)["b.weight"].numpy().ravel()
    shares = [float((values != 0).mean()) for values in (ours, theirs)]
    noise = [float(np.abs(values[values != 0]).mean()) for values in (ours, theirs)]
    assert shares[0] == pytest.approx(shares[1], abs=0.01)  # below 10 %, since draws repeat
    assert noise[0] == pytest.approx(noise[1], rel=0.06)
    assert noise[0] == pytest.approx(2 * 1e-5 / 0.1 * STEPS, rel=0.06), "twenty times the range of a value"


def test_svt_privacy_passes_scalars_on() -> None:
    update = update_of()
    assert sent(NvflareSvt(), update)["scalar"].equal(update["scalar"])


def test_svt_with_little_noise_sends_the_values_themselves() -> None:
    update = update_of()
    filtered = sent(NvflareSvt(fraction=1.0, gamma=1.0, noise_var=1e9, epsilon=1e6, tau=0.0), update)
    chosen = filtered["b.weight"] != 0
    torch.testing.assert_close(filtered["b.weight"][chosen], update["b.weight"][chosen], atol=1e-6, rtol=1e-5)
    assert 0.5 < float(chosen.float().mean()) < 0.75, "1 - 1/e of them, drawn with replacement"


@pytest.mark.parametrize("defence", [NvflareSvt(), NvflarePercentile()])
def test_an_update_that_is_not_finite_passes(defence: Defence) -> None:
    update = {"w": torch.tensor([1.0, torch.nan, torch.inf])}
    torch.testing.assert_close(sent(defence, update)["w"], update["w"], equal_nan=True)


def test_a_threshold_that_nothing_reaches_is_refused() -> None:
    with pytest.raises(BadInput, match="tau"):
        sent(NvflareSvt(tau=1e9, gamma=1e-5, epsilon=1e6), update_of())


def test_excluded_tensors_are_not_sent() -> None:
    pytest.importorskip("nvflare")
    from nvflare.app_common.filters.exclude_vars import ExcludeVars

    update = update_of()
    left = by_nvflare(lambda: ExcludeVars(exclude_vars="bias$"), update)
    found = sent(NvflareExclude(names="bias$"), update)
    assert {name for name, value in found.items() if bool((value != 0).any())} == set(left)
    with pytest.raises(BadInput, match="regular expression"):
        NvflareExclude(names="(")


def by_flower(mod: Any, update: Update, config: Mapping[str, float] | None = None) -> dict[str, Any]:
    pytest.importorskip("flwr")
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    names: Any = TaskIdentity  # a message cannot be made without them
    names.task_id = names.run_id = names.node_id = 1

    def record(arrays: Mapping[str, Any]) -> Any:
        return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})

    before = {name: np.zeros_like(value.numpy()) for name, value in update.items()}
    content = RecordDict({"arrays": record(before), "config": ConfigRecord(dict(config or {}))})
    message = Message(content, dst_node_id=7, message_type="train")
    context = Context(run_id=1, node_id=7, node_config={}, state=RecordDict(), run_config={})

    def trained(asked: Any, _: Any) -> Any:
        after = record({name: value.numpy() for name, value in update.items()})
        return Message(RecordDict({"arrays": after, "metrics": MetricRecord({"num-examples": 8})}), reply_to=asked)

    answer = mod(message, context, trained)
    assert not answer.has_error(), answer.error
    return {name: value.numpy() for name, value in answer.content["arrays"].items()}


@pytest.mark.parametrize("norm", [0.1, 100.0])
def test_clipping_equals_flowers(norm: float) -> None:
    pytest.importorskip("flwr")
    from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod

    update = {name: value for name, value in update_of().items() if value.ndim}
    fixed = by_flower(fixedclipping_mod, update, {"clipping_norm": norm})
    quiet = by_flower(LocalDpMod(norm, 0.0, 1.0, 1e-5), update)
    ours = sent(FlowerFixedClipping(clipping_norm=norm), update)
    same = sent(FlowerLocalDp(clipping_norm=norm, sensitivity=0.0, epsilon=1.0, delta=1e-5), update)
    for name in update:
        np.testing.assert_allclose(ours[name].numpy(), fixed[name], rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(same[name].numpy(), quiet[name], rtol=1e-5, atol=1e-8)


def test_replies_are_rounded_as_by_secagg() -> None:
    """Ours and Flower's are right on average, with the same deviation, and never off by a step."""
    quantization = pytest.importorskip("flwr.common.secure_aggregation.quantization", reason="needs Flower")
    update, examples = torch.full((20_000,), 3.3e-5), 125
    ours = sent(FlowerSecagg(), {"w": update}, work=Work(examples=examples, batch_size=4, steps=1, rounds=1))["w"]
    state = np.random.get_state()
    np.random.seed(0)
    try:
        numbers = quantization.quantize([update.double().numpy() * examples / 1000], 8.0, 4_194_304)
    finally:
        np.random.set_state(state)
    theirs = torch.from_numpy(quantization.dequantize(numbers, 8.0, 4_194_304)[0]) * 1000 / examples
    step = 16 * 1000 / 4_194_304 / examples
    for found in (ours.double(), theirs):
        error = found - update
        assert error.abs().max() < step and error.mean().abs() < 4 * error.std() / 20_000**0.5
    assert (ours.double() - update).std() < step / 2 + 1e-9
    assert float((ours.double() - update).std() / (theirs - update).std()) == pytest.approx(1.0, abs=0.3)


def test_local_dp_has_the_noise_of_flowers() -> None:
    pytest.importorskip("flwr")
    from flwr.clientapp.mod import LocalDpMod

    update = {"w": torch.zeros(20_000) + 1e-6}
    np.random.seed(0)
    theirs = by_flower(LocalDpMod(1.0, 1.0, 2.0, 1e-5), update)["w"]
    ours = sent(FlowerLocalDp(clipping_norm=1.0, sensitivity=1.0, epsilon=2.0, delta=1e-5), update)["w"]
    assert float(ours.std()) == pytest.approx(float(theirs.std()), rel=0.03)
    assert float(ours.std()) == pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 2, rel=0.03)


@settings(deadline=None)
@given(scale=st.floats(1e-6, 1e3), norm=st.floats(1e-3, 1e2))
def test_a_clipped_update_keeps_its_direction(scale: float, norm: float) -> None:
    update = {name: scale * value.double() for name, value in update_of().items()}
    short = clipped(update, norm)
    flat, cut = (torch.cat([value.flatten() for value in one.values()]) for one in (update, short))
    assert float(cut.norm()) == pytest.approx(min(norm, float(flat.norm())))
    torch.testing.assert_close(cut / cut.norm(), flat / flat.norm())


def test_an_update_of_zeros_stays_zero() -> None:
    assert not clipped({"w": torch.zeros(3)}, 1.0)["w"].any()


@pytest.mark.parametrize(("length", "wanted"), [(1e30, 0.0), (0.0, 1.0)])
def test_the_adaptive_norm_stays_a_number(length: float, wanted: float) -> None:
    update = {"w": torch.full((4,), length)}
    defence: Defence = FlowerAdaptiveClipping(clip_norm_lr=100.0, target_clipped_quantile=wanted)
    for _ in range(10):
        defence = defence.after_round([update])
        hook = defence.hooks(WORK).outgoing
        assert hook is not None and bool(hook(update, None, fork(0))[0]["w"].isfinite().all())


@pytest.mark.parametrize(("length", "goes"), [(283.0, -1), (2.8e-4, 1)])
def test_the_adaptive_norm_moves_as_flowers(length: float, goes: int) -> None:
    """Measured with Flower 1.41: 0.1, 0.090, 0.082, 0.074 while all are clipped; 0.111, 0.122, 0.135 while none is."""
    defence: Defence = FlowerAdaptiveClipping()
    norms = []
    for _ in range(3):
        update = {"w": torch.tensor([length])}
        defence = defence.after_round([sent(defence, update)] * 2)
        assert isinstance(defence, FlowerAdaptiveClipping)
        norms.append(defence.initial_clipping_norm)
    expected = [0.1 * math.exp(goes * 0.1 * times) for times in (1, 2, 3)]
    assert norms == pytest.approx(expected, rel=1e-5)


def test_a_run_clips_by_the_norm_of_its_round() -> None:
    transcript, _ = simulate(federation(rounds=3, defence=FlowerAdaptiveClipping(initial_clipping_norm=1e-4)))
    norms = {
        message.round: torch.cat(
            [value.flatten() for value in transcript.shelf.get(message.parts).params.values()]
        ).norm()
        for message in transcript.messages
        if message.what == "reply"
    }
    assert [float(norms[round]) for round in range(3)] == pytest.approx(
        [1e-4 * math.exp(-0.1 * round) for round in range(3)], rel=1e-3
    )


def test_the_last_of_several_adapts() -> None:
    joined = Joined(parts=(GaussianNoise(scale=0.1), FlowerAdaptiveClipping()))
    following = joined.after_round([{"w": torch.tensor([1.0])}])
    assert isinstance(following, Joined) and following.parts[0] is joined.parts[0]
    assert following.parts[1] != joined.parts[1]
    with pytest.raises(BadInput, match="flower-adaptive-clipping last"):
        Joined(parts=(FlowerAdaptiveClipping(), GaussianNoise(scale=0.1)))


class Repeat:
    """A server that sends the honest model."""

    def start(self) -> None:
        return None

    def send(self, state: None, round: int, client: int, broadcast: Any) -> tuple[dict[str, torch.Tensor], None]:
        return dict(broadcast), state

    def receive(self, state: None, round: int, client: int, update: Any) -> None:
        return state


@pytest.mark.parametrize("parts", [(), (GaussianNoise(scale=1e-9),)])
def test_a_continued_run_clips_by_the_norm_of_its_round(parts: tuple[Defence, ...]) -> None:
    adaptive: Defence = FlowerAdaptiveClipping(initial_clipping_norm=1e-4)
    defence = Joined(parts=(*parts, adaptive)) if parts else adaptive
    setting = federation(rounds=3, defence=defence)
    transcript, _ = simulate(setting)
    branch = continue_run(setting, transcript, seed=0, after=1, clients=[0], rounds=1, tamper=Repeat())
    (reply,) = [one for one in branch.transcript.messages if one.what == "reply"]
    flat = torch.cat([value.flatten() for value in branch.transcript.shelf.get(reply.parts).params.values()])
    assert float(flat.norm()) == pytest.approx(1e-4 * math.exp(-0.2), rel=1e-3)


def test_a_run_with_gaps_cannot_be_continued_under_adaptive_clipping() -> None:
    setting = federation(rounds=3, defence=FlowerAdaptiveClipping(), record=(1, 2))
    transcript, _ = simulate(setting)
    with pytest.raises(BadInput, match="none of round 0"):
        continue_run(setting, transcript, seed=0, after=1, clients=[0], rounds=1, tamper=Repeat())


def test_the_variance_that_an_attacker_is_given_is_that_of_the_noise() -> None:
    """Of SVT on the entries that are sent; of SecAgg+ at most, for any fraction of a step."""
    work = Work(examples=8, batch_size=4, steps=4, rounds=3)
    zeros = {"w": torch.zeros(20_000, dtype=torch.float64)}
    svt = NvflareSvt(fraction=0.5).hooks(work)
    assert svt.outgoing is not None and svt.known is not None
    values = svt.outgoing(zeros, None, fork(0))[0]["w"]
    spread = float(values[values != 0].square().mean())
    assert spread == pytest.approx(svt.known.update_variance, rel=0.1)
    secagg = FlowerSecagg(quantization_range=1000).hooks(work)
    assert secagg.outgoing is not None and secagg.known is not None
    step = 2 * math.sqrt(secagg.known.update_variance)
    for share in (0.5, 0.2):
        rounded = secagg.outgoing({"w": zeros["w"] + share * step}, None, fork(1))[0]["w"]
        variance = float(rounded.var())
        assert variance == pytest.approx(share * (1 - share) * step**2, rel=0.05)
        assert variance <= 1.01 * secagg.known.update_variance


def test_excluded_tensors_are_replayed_and_no_other_entry_is_ignored() -> None:
    hooks = NvflareExclude(names="bias").hooks(WORK)
    assert hooks.known is not None and not hooks.known.cut and hooks.known.replay.outgoing is not None
