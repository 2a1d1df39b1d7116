"""Time of attribute inference: from a model on 100,000 records, from gradients over 100 rounds and 1,200 rows.

One thread, CPU time, ways interleaved, the minimum of all repeats. The step of the iterative form (the sum of all
rounds' cosines and its gradient) is compared with the usual ways to write it: a loop over rounds, and rounds stacked in
chunks of several sizes up to all of them. The closed form is run in full; the time of the iterative one is estimated
from its step, for 100 steps and five learning rates. Both 548 and 8 features are timed and the worse ratio is printed.
Memory is the peak above the largest size before the first attack. `--rounds` reduces the work. The last line is
`model: X s, gradients/best: Y, closed-form/iterative: Z`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from common.measure import cpu_seconds, peak_megabytes
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.adversary.view import Grants, Observation, PublicAttributes, View
from fedxray.attacks.attributes.from_gradients import USUAL_RATES, AttributeFromGradients
from fedxray.attacks.attributes.from_model import AttributeFromModel
from fedxray.attacks.attributes.gradient_match import cosines_of_rounds, distance, filled
from fedxray.data.dataset import Column, Space
from fedxray.federation.local import stacked_layers
from fedxray.params import each, parameters_of, stack
from fedxray.seeds import fork, normal_like

ROWS, HIDDEN, STEPS = 1200, 128, 100
CHUNKS = (2, 4, 10, 25)
Step = Callable[[Tensor], tuple[float, Tensor]]  # codes [rows, 1] -> the sum of 1 - cosine, and its gradient


def make_view(features: int, rows: int, rounds: int) -> View:
    """Return the view of a client whose updates are its gradient with noise; the last column is binary."""
    draw = fork(0, "bench", features)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))
    x, values = torch.randn(rows, features, generator=draw), torch.randint(2, (rows, 1), generator=draw)
    x[:, -1:] = values.float()
    y = x[:, :4].sum(1) + 2 * x[:, -1] + torch.randn(rows, generator=draw)
    seen, start = [], parameters_of(model)
    for number in range(rounds):
        leaves = each(lambda value: value.clone().requires_grad_(), start)
        loss = ((functional_call(model, leaves, (x,))[:, 0] - y) ** 2).mean()
        slopes = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        noise = each(lambda slope: 0.3 * slope.std(unbiased=False) * normal_like(slope, draw), slopes)
        update = {name: -0.01 * (slope + noise[name]) for name, slope in slopes.items()}
        seen.append(Observation(round=number, start=start, update=update, kind="weights", contributors=(0,),
                                examples=None))  # fmt: skip
        start = {name: value + update[name] for name, value in start.items()}
    column = Column(name="s", kind="categorical", positions=(features - 1,), categories=("0", "1"),
                    codes=((0.0,), (1.0,)))  # fmt: skip
    x[:, -1] = 0.0
    return View(
        role="server", target=0, observations=tuple(seen), globals=(), model=model, loss="mse",
        space=Space(kind="table", shape=(features,), target="regression", columns=(column,), sensitive="s"),
        grants=Grants(names=("public-attributes",), public_attributes=PublicAttributes(x=x, y=y)),
    )  # fmt: skip


def public_attributes(view: View) -> PublicAttributes:
    assert view.grants.public_attributes is not None
    return view.grants.public_attributes


def with_loop(view: View) -> Step:
    """Return a step over one round after the other, each with its own graph that is freed at once."""
    records, positions = public_attributes(view), (view.space.shape[0] - 1,)

    def step(codes: Tensor) -> tuple[float, Tensor]:
        total, slope = 0.0, torch.zeros_like(codes)
        for seen in view.observations:
            point = codes.detach().requires_grad_()
            leaves = each(lambda value: value.detach().requires_grad_(), seen.start)
            output = functional_call(view.model, leaves, (filled(records.x, positions, point),))
            loss = ((output[:, 0] - records.y) ** 2).mean()
            gradient = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
            aims = [-seen.update[name] for name in leaves]
            inside = torch.stack([(g * a).sum() for g, a in zip(gradient, aims, strict=True)]).sum()
            sizes = [torch.stack([(t * t).sum() for t in tensors]).sum() for tensors in (gradient, aims)]
            gap = 1 - inside / (sizes[0] * sizes[1]).sqrt()
            slope += torch.autograd.grad(gap, point)[0]
            total += float(gap.detach())
        return total, slope

    return step


def with_chunks(view: View, size: int) -> Step:
    """Return a step over chunks of `size` stacked rounds."""
    records, positions, layers = (public_attributes(view), (view.space.shape[0] - 1,), stacked_layers(view.model))
    assert layers is not None
    seen = view.observations
    groups = [seen[start : start + size] for start in range(0, len(seen), size)]
    stacks = [(stack([o.start for o in group]), stack([o.update for o in group])) for group in groups]

    def step(codes: Tensor) -> tuple[float, Tensor]:
        total, slope = 0.0, torch.zeros_like(codes)
        for starts, updates in stacks:
            point = codes.detach().requires_grad_()
            leaves = each(lambda value: value.detach().requires_grad_(), starts)
            output = filled(records.x, positions, point).expand(len(next(iter(leaves.values()))), -1, -1)
            for layer in layers:
                output = layer(leaves, output)
            loss = ((output[..., 0] - records.y) ** 2).mean(-1).sum()
            gradient = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
            aims = [-updates[name] for name in leaves]
            inside = torch.stack([rows(g * a) for g, a in zip(gradient, aims, strict=True)]).sum(0)
            sizes = [torch.stack([rows(t * t) for t in tensors]).sum(0) for tensors in (gradient, aims)]
            gap = (1 - inside / (sizes[0] * sizes[1]).sqrt()).sum()
            slope += torch.autograd.grad(gap, point)[0]
            total += float(gap.detach())
        return total, slope

    return step


def rows(stacked: Tensor) -> Tensor:
    return stacked.flatten(1).sum(1)


def ours(view: View) -> Step:
    rounds = cosines_of_rounds(view, public_attributes(view), view.observations)

    def step(codes: Tensor) -> tuple[float, Tensor]:
        point = codes.detach().requires_grad_()
        gap = distance(point, rounds)
        return float(gap.detach()), torch.autograd.grad(gap, point)[0]

    return step


def gradients(features: int, rounds: int, repeats: int) -> tuple[float, float, float]:
    """Return ours / the best plain way, closed form / iterative form, and peak memory."""
    view = make_view(features, ROWS, rounds)
    codes = torch.randint(2, (ROWS, 1), generator=fork(1)).float()
    baseline, peaks = peak_megabytes(), {}
    mine = ours(view)
    wanted = mine(codes)
    peaks["iterative"] = peak_megabytes() - baseline
    del mine
    begin = time.process_time()
    AttributeFromGradients().run(view, generator=fork(0))
    closed = time.process_time() - begin
    peaks["closed form"] = peak_megabytes() - baseline
    mine = ours(view)
    steps = {"loop": with_loop(view), **{f"chunks of {size}": with_chunks(view, size) for size in CHUNKS}}
    steps["full stack"] = with_chunks(view, rounds)
    for name, step in steps.items():
        total, slope = step(codes)
        assert abs(total - wanted[0]) < 1e-3 * rounds, name
        assert torch.allclose(slope, wanted[1], rtol=1e-2, atol=1e-3 * float(wanted[1].abs().max())), name
    ways = {name: partial(step, codes) for name, step in {"ours": mine, **steps}.items()}
    took = cpu_seconds(ways, repeats, of=min, warm_up=False)
    for name, seconds in took.items():
        print(f"{features} features, {name}: {seconds:.3f} s per step over {rounds} rounds")
    best = min((name for name in took if name != "ours"), key=took.__getitem__)
    iterative = took["ours"] * STEPS * len(USUAL_RATES["iterative"])
    memory = ", ".join(f"{name} {value:.0f} MB" for name, value in peaks.items())
    print(f"{features} features: best plain way is {best}; closed form {closed:.1f} s, iterative about "
          f"{iterative:.0f} s; memory above the view: {memory}")  # fmt: skip
    return took["ours"] / took[best], closed / iterative, max(peaks.values())


def model(features: int, records: int) -> float:
    view = make_view(features, records, 1)
    ways = {"model": lambda: AttributeFromModel().run(view, generator=fork(0))}
    took = cpu_seconds(ways, 3, of=min, warm_up=False)["model"]
    print(f"{features} features: attributes of {records} records from a model in {took:.2f} s")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    wide, narrow = (gradients(features, options.rounds, options.repeats) for features in (548, 8))
    seconds = max(model(features, options.records) for features in (8, 548))
    share, ratio = max(wide[0], narrow[0]), max(wide[1], narrow[1])
    memory = wide[2]  # run first: a peak never falls
    print(f"model: {seconds:.2f} s, gradients/best: {share:.2f}, closed-form/iterative: {ratio:.2f}")
    if seconds > 2 or share > 1 or memory > 1000:
        raise SystemExit("slower or larger than the limits")


if __name__ == "__main__":
    main()
