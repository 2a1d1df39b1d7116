"""Every network by name: shapes, sizes of the papers, weights that follow the generator, clear refusals."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from fedxray.errors import BadInput
from fedxray.models import MODELS, build, settings_of
from fedxray.models.inspect import has_batch_norm, layer_kinds
from fedxray.models.networks import cnn_cifar, cnn_femnist, lenet, resnet9, resnet18
from fedxray.seeds import fork
from tests.models.spaces import images, table

SMALL: dict[str, dict[str, Any]] = {
    "linear": {},
    "mlp": {"hidden": [5, 4]},
    "cnn-femnist": {"width": 4, "hidden": 6},
    "cnn-cifar": {"width": 4, "hidden": 6},
    "lenet": {"width": 4, "hidden": 6},
    "lenet-sigmoid": {"width": 4},
    "resnet9": {"width": 4},
    "resnet18": {"width": 4},
}
CONVOLUTIONAL = sorted(SMALL.keys() - {"linear", "mlp"})
SMALL |= {name: {} for name in MODELS if name not in SMALL}  # all others with their defaults
DENSE = ["linear", "mlp"]


def count(model: nn.Module) -> int:
    return sum(value.numel() for value in model.parameters())


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8), (1, 28, 28), (3, 9, 14)])
def test_images_give_one_logit_per_class(name: str, shape: tuple[int, int, int]) -> None:
    model = build(name, images(7, *shape), generator=fork(0), **SMALL[name])
    assert model(torch.rand(3, *shape)).shape == (3, 7)


@pytest.mark.parametrize("name", SMALL)
def test_default_settings_run_on_digits(name: str) -> None:
    assert build(name, images(10, 1, 8), generator=fork(0))(torch.rand(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("name", DENSE)
def test_tables_give_one_value_or_one_logit_per_class(name: str) -> None:
    assert build(name, table(6), generator=fork(0))(torch.rand(4, 6)).shape == (4, 1)
    assert build(name, table(6, classes=3), generator=fork(0))(torch.rand(4, 6)).shape == (4, 3)


def test_linear_is_a_matrix_and_a_shift() -> None:
    model = build("linear", images(3, 2, 4), generator=fork(0))
    x = torch.rand(5, 2, 4, 4)
    weight, bias = model.get_parameter("head.weight"), model.get_parameter("head.bias")
    torch.testing.assert_close(model(x), torch.einsum("nchw,kchw->nk", x, weight.reshape(3, 2, 4, 4)) + bias)


def test_parameter_counts_of_the_papers() -> None:
    with torch.device("meta"):
        assert count(cnn_femnist(images(62, 1, 28))) == 338_778
        assert count(cnn_cifar(images(100, 3, 32))) == 1_734_348
        assert count(lenet(images(1000, 3, 128))) == 34_120_128
        cifar = resnet18(images(10, 3, 32), norm="batch", stem="cifar", head_bias=True)
        assert count(cifar) == 11_173_962
        imagenet = resnet18(images(1000, 3, 224), norm="batch", stem="imagenet", head_bias=True)
        assert count(imagenet) == 11_689_512  # the widely known ResNet18
        assert count(resnet18(images(10, 3, 32), norm="batch", stem="cifar", width=16)) == pytest.approx(
            0.70e6, rel=0.01
        )


def test_batch_norm_resnet18_has_the_tensors_that_papers_count() -> None:
    model = build("resnet18", images(10, 3, 8), generator=fork(0), norm="batch", width=2, stem="cifar", head_bias=True)
    kinds = [type(layer) for layer in model.modules()]
    assert (kinds.count(nn.Conv2d), kinds.count(nn.BatchNorm2d), kinds.count(nn.Linear)) == (20, 20, 1)
    assert len(list(model.parameters())) == 62


def test_running_norm_is_batch_norm_in_evaluation_mode_at_all_times() -> None:
    settings = {"width": 2, "stem": "cifar", "head_bias": True}
    frozen, usual = (
        build("resnet18", images(10, 3, 8), generator=fork(0), norm=norm, **settings) for norm in ("running", "batch")
    )
    assert frozen.state_dict().keys() == usual.state_dict().keys() and not has_batch_norm(frozen)
    assert layer_kinds(frozen) == layer_kinds(usual)
    for name, value in usual.named_buffers():
        if value.is_floating_point():
            value.copy_(torch.rand(value.shape, generator=fork(1, name)) + 0.5)
    frozen.load_state_dict(usual.state_dict())
    x = torch.rand(3, 3, 8, 8, generator=fork(2))
    torch.testing.assert_close(frozen.train()(x), usual.eval()(x))
    assert all(torch.equal(value, usual.get_buffer(name)) for name, value in frozen.named_buffers())


@pytest.mark.parametrize(("builder", "convolutions"), [(resnet9, 12), (resnet18, 20)])
def test_residual_networks_of_004_have_no_norm_and_no_bias(builder: type, convolutions: int) -> None:
    with torch.device("meta"):
        model = builder(images(100, 3, 128))
    names = [name for name, _ in model.named_parameters()]
    assert not [name for name in names if name.endswith("bias")]
    assert len(names) == convolutions + 1
    assert model.get_parameter("head.weight").shape == (100, 512 * 64)


def test_residual_block_by_hand() -> None:
    model = build("resnet9", images(3, 1, 8), generator=fork(0), width=2)
    block = model.get_submodule("stage2.0")
    x = torch.rand(2, 2, 4, 4)
    first, second = block.get_parameter("branch.0.weight"), block.get_parameter("branch.2.weight")
    short = block.get_parameter("shortcut.0.weight")
    inner = torch.conv2d(torch.conv2d(x, first, stride=2, padding=1).relu(), second, padding=1)
    torch.testing.assert_close(block(x), (inner + torch.conv2d(x, short, stride=2)).relu())


def test_convnet_by_hand() -> None:
    model = build("cnn-femnist", images(5, 1, 8), generator=fork(0), width=2, hidden=3)
    x = torch.rand(4, 1, 8, 8)
    p = dict(model.named_parameters())

    def halved(maps: torch.Tensor) -> torch.Tensor:
        n, c, h, w = maps.shape
        return maps.reshape(n, c, h // 2, 2, w // 2, 2).mean((3, 5))

    inner = halved(torch.conv2d(x, p["conv1.weight"], p["conv1.bias"], padding=1).relu())
    inner = halved(torch.conv2d(inner, p["conv2.weight"], p["conv2.bias"], padding=1).relu()).flatten(1)
    inner = (inner @ p["dense.weight"].T + p["dense.bias"]).relu()
    torch.testing.assert_close(model(x), inner @ p["head.weight"].T + p["head.bias"])


def test_lenet_by_hand() -> None:
    model = build("lenet", images(5, 1, 8), generator=fork(0), width=2, hidden=3, activation="sigmoid")
    x = torch.rand(4, 1, 8, 8)
    p = dict(model.named_parameters())

    def largest(maps: torch.Tensor) -> torch.Tensor:
        n, c, h, w = maps.shape
        return maps.reshape(n, c, h // 2, 2, w // 2, 2).amax((3, 5))

    inner = largest(torch.conv2d(x, p["conv1.weight"], p["conv1.bias"], padding=2).sigmoid())
    inner = largest(torch.conv2d(inner, p["conv2.weight"], p["conv2.bias"], padding=2).sigmoid()).flatten(1)
    torch.testing.assert_close(model(x), (inner @ p["dense.weight"].T).sigmoid() @ p["head.weight"].T)


@pytest.mark.parametrize(("stem", "side"), [("curious", 64), ("curious-small", 128), ("imagenet", 32), ("cifar", 128)])
def test_stems_halve_the_image_as_they_say(stem: str, side: int) -> None:
    model = build("resnet9", images(3, 1, 128), generator=fork(0), width=2, stem=stem)
    entered = model.get_submodule("stem")(torch.rand(1, 1, 128, 128))
    assert entered.shape == (1, 2, side, side)
    left = model.get_submodule("stage4")(torch.rand(1, 8, side // 4, side // 4))
    assert left.shape == (1, 16, side // 8, side // 8)


@pytest.mark.parametrize("stem", ["curious", "curious-small", "imagenet", "cifar"])
@pytest.mark.parametrize("size", [(1, 1), (8, 8), (15, 17), (32, 32), (64, 32), (65, 200)])
def test_the_head_sees_no_value_of_a_map_twice(stem: str, size: tuple[int, int]) -> None:
    """A map of at most 8 x 8 reaches the head unchanged; the others are pooled."""
    space = images(2, 1, *size)
    model = build("resnet9", space, generator=fork(0), width=1, stem=stem)
    maps = {}
    model.get_submodule("stage4").register_forward_hook(lambda _, _inputs, output: maps.update(last=output))
    model.get_submodule("pool").register_forward_hook(lambda _, _inputs, output: maps.update(pooled=output))
    model(torch.rand(1, 1, *size))
    most = 8 if stem.startswith("curious") else 1
    assert list(maps["pooled"].shape[2:]) == [min(most, side) for side in maps["last"].shape[2:]]
    if max(maps["last"].shape[2:]) <= most:
        assert torch.equal(maps["pooled"], maps["last"])


def test_small_photos_have_as_many_features_per_unknown_as_the_papers() -> None:
    """Features at the head over latent pixels: 32 pixels and a half, 64 and 128 and a quarter (the paper)."""
    ratios = set()
    for stem, size, latent in (("curious-small", 32, 2), ("curious", 64, 4), ("curious", 128, 4)):
        with torch.device("meta"):
            head = resnet9(images(10, 3, size), stem=stem).get_parameter("head.weight")
        ratios.add(head.shape[1] / (3 * (size // latent) ** 2))
    assert ratios == {512 * 64 / 3072}


def test_convnet_starts_lecun_normal_with_zero_biases() -> None:
    model = build("cnn-cifar", images(100, 3, 32), generator=fork(0))
    for name, value in model.named_parameters():
        if name.endswith("bias"):
            assert not value.any()
        else:
            deviation = value[0].numel() ** -0.5
            assert value.std().item() == pytest.approx(deviation, rel=0.05)
            assert abs(value.mean().item()) < 0.1 * deviation
            assert value.abs().max().item() <= 2.0 * deviation / 0.8796
            assert value.abs().max().item() > 1.9 * deviation


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_every_start_has_its_spread(name: str) -> None:
    space = images(10, 3, 8)
    for init, spread in {"torch": 3**-0.5, "lecun": 1.0, "uniform": None}.items():
        model = build(name, space, generator=fork(0), init=init)
        weights = {key: value for key, value in model.named_parameters() if key.endswith("weight")}
        for value in weights.values():
            wanted = 12**-0.5 if spread is None else spread * value[0].numel() ** -0.5
            assert value.std().item() == pytest.approx(wanted, rel=0.15)
        biases = [value for key, value in model.named_parameters() if key.endswith("bias")]
        assert all(bool(value.any()) != (init == "lecun") for value in biases)


def test_he_draws_convolutions_by_their_outputs_and_leaves_the_rest() -> None:
    space = images(10, 3, 8)
    drawn, plain = (build("resnet9", space, generator=fork(0), width=16, init=init) for init in ("he", "torch"))
    for name, layer in drawn.named_modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = layer.out_channels * layer.kernel_size[0] * layer.kernel_size[1]
            assert layer.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.1), name
    head = "head.weight"
    assert torch.equal(drawn.get_parameter(head), plain.get_parameter(head))


def test_a_start_leaves_norm_layers_alone() -> None:
    model = build("resnet9", images(3, 1, 8), generator=fork(0), width=2, norm="batch", init="uniform")
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert norms and all(bool((layer.weight == 1).all()) and not layer.bias.any() for layer in norms)


def test_the_smooth_lenet_by_hand() -> None:
    model = build("lenet-sigmoid", images(5, 1, 9, 6), generator=fork(0), width=2)
    x, p = torch.rand(4, 1, 9, 6), dict(model.named_parameters())
    inner = torch.conv2d(x, p["conv1.weight"], p["conv1.bias"], padding=2)[..., ::2, ::2].sigmoid()
    inner = torch.conv2d(inner, p["conv2.weight"], p["conv2.bias"], padding=2)[..., ::2, ::2].sigmoid()
    inner = torch.conv2d(inner, p["conv3.weight"], p["conv3.bias"], padding=2).sigmoid().flatten(1)
    torch.testing.assert_close(model(x), inner @ p["head.weight"].T + p["head.bias"])
    assert all(float(value.detach().abs().max()) <= 0.5 for value in p.values())


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_mlp_puts_norm_before_each_activation(norm: str) -> None:
    model = build("mlp", table(4), generator=fork(0), hidden=[6, 5], norm=norm, activation="tanh")
    kinds = [type(layer) for layer in model.children()][1:]
    middle = [nn.BatchNorm1d] if norm == "batch" else []
    assert kinds == [nn.Linear, *middle, nn.Tanh] * 2 + [nn.Linear]


@pytest.mark.parametrize("name", ["mlp", "lenet", "lenet-sigmoid"])
@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh", "softplus"])
def test_activation_is_a_setting(name: str, activation: str) -> None:
    model = build(name, images(3, 1, 8), generator=fork(0), activation=activation, **SMALL[name])
    found = {type(layer).__name__.lower() for layer in model.modules()}
    assert found & {"relu", "sigmoid", "tanh", "softplus"} == {activation}


@pytest.mark.parametrize("name", ["lenet", "resnet9", "resnet18"])
def test_head_bias_is_a_setting(name: str) -> None:
    for wanted in (False, True):
        model = build(name, images(3, 1, 8), generator=fork(0), head_bias=wanted, **SMALL[name])
        assert ("head.bias" in dict(model.named_parameters())) is wanted


@pytest.mark.parametrize("name", SMALL)
def test_weights_follow_the_generator_and_nothing_else(name: str) -> None:
    space = images(3, 1, 8)
    torch.manual_seed(1)
    first = build(name, space, generator=fork(5), **SMALL[name]).state_dict()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            second = build(name, space, generator=fork(5), **SMALL[name]).state_dict()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(before, torch.get_rng_state())
    other = build(name, space, generator=fork(6), **SMALL[name]).state_dict()
    for key, value in first.items():
        assert value.device.type == "cpu" and second[key].dtype == value.dtype == torch.float32
        assert torch.equal(value, second[key])
    assert any(not torch.equal(value, other[key]) for key, value in first.items())


def test_one_generator_gives_a_new_network_each_time() -> None:
    generator = fork(3)
    first, second = (build("linear", table(4), generator=generator).get_parameter("head.weight") for _ in "ab")
    assert not torch.equal(first, second)


@pytest.mark.parametrize("name", SMALL)
def test_twice_differentiable_with_respect_to_the_input(name: str) -> None:
    model = build(name, images(3, 1, 8), generator=fork(0), **SMALL[name])
    x = torch.rand(2, 1, 8, 8, requires_grad=True)
    loss = torch.logsumexp(model(x), 1).sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    (slope,) = torch.autograd.grad(sum((g**2).sum() for g in gradients), x)
    assert slope.shape == x.shape and bool(torch.isfinite(slope).all()) and bool(slope.any())


@pytest.mark.parametrize("name", SMALL)
def test_several_clients_at_once_equal_one_by_one(name: str) -> None:
    space = images(3, 1, 8)
    models = [build(name, space, generator=fork(seed), **SMALL[name]) for seed in range(3)]
    stacked = {
        key: torch.stack([dict(m.named_parameters())[key] for m in models]) for key, _ in models[0].named_parameters()
    }
    x = torch.rand(3, 2, 1, 8, 8)
    together = vmap(lambda params, inputs: functional_call(models[0], params, (inputs,)))(stacked, x)
    alone = torch.stack([model(inputs) for model, inputs in zip(models, x, strict=True)])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("mlp", {"layers": [3]}, "hidden, norm, activation"),
        ("linear", {"hidden": [3]}, "none"),
        ("mlp", {"hidden": 128}, "hidden = [128]"),
        ("mlp", {"hidden": []}, "a list of at least 1"),
        ("mlp", {"hidden": [3, 0]}, "from 1 to 65,536"),
        ("mlp", {"hidden": [True]}, "a whole number"),
        ("mlp", {"norm": "layer"}, "'none', 'batch'"),
        ("mlp", {"activation": "gelu"}, "'relu', 'sigmoid', 'tanh', 'softplus'"),
        ("resnet18", {"width": 0}, "from 1 to 65,536"),
        ("resnet18", {"width": 8.5}, "a whole number"),
        ("resnet18", {"stem": "mnist"}, "'curious', 'curious-small', 'imagenet', 'cifar'"),
        ("resnet9", {"head_bias": "yes"}, "true or false"),
        ("lenet", {"hidden": -1}, "from 1 to 65,536"),
        ("cnn-cifar", {"init": "zeros"}, "'torch', 'lecun', 'he', 'uniform'"),
        ("renset18", {}, "resnet18"),
        ("mlp", {"hidden": [65_537]}, "1 to 65,536"),
        ("mlp", {"hidden": [10**30]}, "1 to 65,536"),
        ("mlp", {"hidden": [1] * 65}, "at most 64 layers"),
        ("cnn-femnist", {"width": 10**8}, "1 to 65,536"),
        ("mlp", {"hidden": [65_536] * 64}, "FEDXRAY_MAX_BYTES"),
        ("resnet18", {"width": 65_536}, "FEDXRAY_MAX_BYTES"),
    ],
)
def test_bad_settings_are_refused_with_a_remedy(name: str, settings: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        build(name, images(3, 1, 8), generator=fork(0), **settings)
    assert words in str(caught.value)


def test_the_cap_of_parameters_is_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = 4 * count(build("linear", table(4), generator=fork(0)))
    monkeypatch.setenv("FEDXRAY_MAX_BYTES", str(needed))
    build("linear", table(4), generator=fork(0))
    monkeypatch.setenv("FEDXRAY_MAX_BYTES", str(needed - 1))
    with pytest.raises(BadInput, match=f"got {needed} bytes of parameters"):
        build("linear", table(4), generator=fork(0))


def test_refused_spaces() -> None:
    with pytest.raises(BadInput, match="linear or mlp"):
        build("lenet", table(4), generator=fork(0))
    with pytest.raises(BadInput, match="at least 4 x 4"):
        build("cnn-cifar", images(3, 1, 8, 3), generator=fork(0))
    with pytest.raises(BadInput, match="at least one class"):
        build("mlp", images(0, 1, 8), generator=fork(0))


def test_settings_of_names_the_defaults() -> None:
    assert settings_of("mlp") == {"hidden": (128,), "norm": "none", "activation": "relu"}
    assert settings_of("resnet18") == {"norm": "none", "width": 64, "stem": "curious", "head_bias": False,
                                       "init": "torch"}  # fmt: skip


def test_listing_the_names_does_not_import_torch() -> None:
    code = "import sys, fedxray.models; assert fedxray.models.MODELS; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_attribute_of_the_package() -> None:
    import fedxray.models as package

    with pytest.raises(AttributeError, match="has no attribute"):
        _ = package.nothing
