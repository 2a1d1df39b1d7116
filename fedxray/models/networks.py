"""The networks of the catalogue: a space in, a network out; keyword arguments are the settings.

`cnn-femnist` and `cnn-cifar` are those of "Data Leakage in Federated Averaging" (Dimitrov et al. 2022), as its JAX code
builds them: convolutions 3x3 with SAME padding, ReLU, average pooling, layers initialised lecun-normal (truncated) with
a zero bias. The log-softmax at the end is part of the loss here. Default width and hidden size are the paper's.

`linear` and `mlp` are for tables and (flattened) images, with torch's initialisation.

`lenet` is that of "Federated Learning Nodes Can Reconstruct Peers' Image Data" (2024), without a bias in linear layers;
`lenet-sigmoid` that of "Deep Leakage from Gradients" (Zhu et al. 2019), smooth throughout: sigmoids, and strides in
place of pooling.

`resnet9` and `resnet18` are residual networks of basic blocks. The defaults are the BatchNorm-free networks of
"Federated Learning Nodes Can Reconstruct Peers' Image Data". The stem decides how an image enters and how the last
feature maps are pooled:
    curious        7x7 convolution with stride 2; pooled to 8x8 at most, so the head is wide
    curious-small  the same with stride 1, for images of 32 pixels: the head sees as many values per pixel of a latent
                   image of half the size as that of the paper does of its quarter of 128 pixels
    imagenet       7x7 convolution with stride 2, 3x3 max pooling with stride 2; pooled to one value per channel
    cifar          3x3 convolution with stride 1; pooled to one value per channel
The norm decides what follows every convolution:
    none      nothing
    batch     BatchNorm: clients train with the statistics of their batch
    running   BatchNorm in evaluation mode at all times: running statistics, which stay at 0 and 1
The usual ResNet18 for CIFAR is norm = "batch", stem = "cifar", head_bias = true.

Initialisation before training (`init`):
    torch     torch's own: uniform, up to 1 / sqrt(inputs) in absolute value, biases too
    lecun     normal of variance 1 / inputs, truncated at two standard deviations, zero bias, as in flax
    he        convolutions normal of variance 2 / (outputs x kernel), the rest as torch, as in torchvision's ResNets
    uniform   uniform from -0.5 to 0.5, biases too, as in the code of "Deep Leakage from Gradients"
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, Literal

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _NormBase

from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.settings import Setting, checked

WIDEST = 65_536  # units or channels of a layer
DEEPEST = 64  # hidden layers

Init = Annotated[Literal["torch", "lecun", "he", "uniform"], Setting("Initialisation of the weights.")]
Activation = Annotated[Literal["relu", "sigmoid", "tanh", "softplus"], Setting("Activation function.")]
Width = Annotated[int, Setting("Channels of the first layers; later ones have multiples.", least=1, most=WIDEST)]
Hidden = Annotated[int, Setting("Units of the hidden layer.", least=1, most=WIDEST)]
HeadBias = Annotated[bool, Setting("Whether the last layer has a bias.")]
ResidualNorm = Annotated[
    Literal["none", "batch", "running"],
    Setting("Normalisation: none, BatchNorm, or BatchNorm with fixed statistics 0 and 1 (running)."),
]
Stem = Annotated[
    Literal["curious", "curious-small", "imagenet", "cifar"],
    Setting(
        'First layers: as in "curious client" 2024 (curious), the same with stride 1 for 32 pixels (curious-small), '
        "7 x 7 and pooled (imagenet), or 3 x 3 (cifar)."
    ),
]


@checked
def cnn_femnist(space: Space, *, width: Width = 32, hidden: Hidden = 100, init: Init = "lecun") -> nn.Module:
    """Two convolutions (32, 64), a dense layer of 100 and the head."""
    return initialised(_cnn(space, "cnn-femnist", width, hidden), init)


@checked
def cnn_cifar(space: Space, *, width: Width = 64, hidden: Hidden = 200, init: Init = "lecun") -> nn.Module:
    """Two convolutions (64, 128), a dense layer of 200 and the head."""
    return initialised(_cnn(space, "cnn-cifar", width, hidden), init)


def _cnn(space: Space, name: str, width: int, hidden: int) -> nn.Module:
    channels, height, across = image_shape(space, name, least=4)
    flat = 2 * width * (height // 4) * (across // 4)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(channels, width, 3, padding=1),
        activation1=nn.ReLU(),
        pool1=nn.AvgPool2d(2),
        conv2=nn.Conv2d(width, 2 * width, 3, padding=1),
        activation2=nn.ReLU(),
        pool2=nn.AvgPool2d(2),
        flatten=nn.Flatten(),
        dense=nn.Linear(flat, hidden),
        activation3=nn.ReLU(),
        head=nn.Linear(hidden, space.outputs),
    )
    return nn.Sequential(layers)


def linear(space: Space) -> nn.Module:
    """One linear layer on the flattened input: linear or logistic regression."""
    head = nn.Linear(math.prod(space.shape), space.outputs)
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), head=head))


@checked
def mlp(
    space: Space,
    *,
    hidden: Annotated[
        Sequence[int], Setting("Units of every hidden layer, as [128, 64].", least=1, most=WIDEST, fewest=1)
    ] = (128,),
    norm: Annotated[
        Literal["none", "batch"], Setting("Normalisation: none, or BatchNorm before each activation.")
    ] = "none",
    activation: Activation = "relu",
) -> nn.Module:
    """Hidden layers, each with its activation; norm = "batch" adds BatchNorm before each activation."""
    if len(hidden) > DEEPEST:
        got = f"{len(hidden)} of them"
        raise BadInput("hidden", expected=f"at most {DEEPEST} layers", got=got, remedy="Use fewer layers.")
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    width = math.prod(space.shape)
    for number, size in enumerate(hidden, start=1):
        layers[f"hidden{number}"] = nn.Linear(width, size)
        if norm == "batch":
            layers[f"norm{number}"] = nn.BatchNorm1d(size)
        layers[f"activation{number}"] = ACTIVATIONS[activation]()
        width = size
    layers["head"] = nn.Linear(width, space.outputs)
    return nn.Sequential(layers)


@checked
def lenet(
    space: Space,
    *,
    width: Width = 32,
    hidden: Hidden = 512,
    activation: Activation = "relu",
    head_bias: HeadBias = False,
    init: Init = "torch",
) -> nn.Module:
    """Two 5x5 convolutions with max pooling, a hidden linear layer and the head (with a bias if set)."""
    channels, height, across = image_shape(space, "lenet", least=4)
    flat = 2 * width * (height // 4) * (across // 4)
    layers = OrderedDict(
        conv1=nn.Conv2d(channels, width, 5, padding=2),
        activation1=ACTIVATIONS[activation](),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(width, 2 * width, 5, padding=2),
        activation2=ACTIVATIONS[activation](),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        dense=nn.Linear(flat, hidden, bias=False),
        activation3=ACTIVATIONS[activation](),
        head=nn.Linear(hidden, space.outputs, bias=head_bias),
    )
    return initialised(nn.Sequential(layers), init)


@checked
def lenet_sigmoid(
    space: Space,
    *,
    width: Annotated[int, Setting("Channels of every convolution.", least=1, most=WIDEST)] = 12,
    activation: Activation = "sigmoid",
    init: Init = "uniform",
) -> nn.Module:
    """Three 5x5 convolutions, the first two with stride 2, each with its activation, and the head."""
    channels, height, across = image_shape(space, "lenet-sigmoid", least=1)
    flat = width * -(-height // 4) * -(-across // 4)
    layers = OrderedDict(
        conv1=nn.Conv2d(channels, width, 5, padding=2, stride=2),
        activation1=ACTIVATIONS[activation](),
        conv2=nn.Conv2d(width, width, 5, padding=2, stride=2),
        activation2=ACTIVATIONS[activation](),
        conv3=nn.Conv2d(width, width, 5, padding=2),
        activation3=ACTIVATIONS[activation](),
        flatten=nn.Flatten(),
        head=nn.Linear(flat, space.outputs),
    )
    return initialised(nn.Sequential(layers), init)


@checked
def resnet9(
    space: Space,
    *,
    norm: ResidualNorm = "none",
    width: Width = 64,
    stem: Stem = "curious",
    head_bias: HeadBias = False,
    init: Init = "torch",
) -> nn.Module:
    """One residual block in each of the four stages."""
    network = _resnet(space, "resnet9", 1, norm=norm, width=width, stem=stem, head_bias=head_bias)
    return initialised(network, init)


@checked
def resnet18(
    space: Space,
    *,
    norm: ResidualNorm = "none",
    width: Width = 64,
    stem: Stem = "curious",
    head_bias: HeadBias = False,
    init: Init = "torch",
) -> nn.Module:
    """Two residual blocks in each of the four stages."""
    network = _resnet(space, "resnet18", 2, norm=norm, width=width, stem=stem, head_bias=head_bias)
    return initialised(network, init)


# Parts of residual networks

# kernel and stride of the first convolution, and the side to which the last maps are pooled where they are larger
STEMS = {"curious": (7, 2, 8), "curious-small": (7, 1, 8), "imagenet": (7, 2, 1), "cifar": (3, 1, 1)}


class RunningNorm2d(_NormBase):
    """BatchNorm with frozen statistics: 0 and 1 unless loaded; only its scale and shift are trained."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise feature maps [n, channels, h, w], every image independently; shape kept."""
        return functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class Residual(nn.Module):
    """relu(branch(x) + shortcut(x))."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        """Hold both paths; they must end in the same shape."""
        nn.Module.__init__(self)
        self.branch, self.shortcut = branch, shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps [n, inside, h, w] to [n, outside, h / stride, w / stride]."""
        return functional.relu(self.branch(x) + self.shortcut(x))


def _resnet(space: Space, name: str, blocks: int, *, norm: str, width: int, stem: str, head_bias: bool) -> nn.Module:
    channels, *sides = image_shape(space, name, least=1)
    _, entering, largest = STEMS[stem]
    pooled = tuple(min(largest, -(-side // (8 * entering))) for side in sides)  # three stages halve a side, rounded up
    layers = OrderedDict(stem=_stem(stem, channels, width, norm))
    inside = width
    for stage in range(4):
        outside = width * 2**stage
        stride = 1 if stage == 0 else 2
        layers[f"stage{stage + 1}"] = _stage(inside, outside, blocks, stride=stride, norm=norm)
        inside = outside
    layers["pool"] = nn.AdaptiveAvgPool2d(pooled)
    layers["flatten"] = nn.Flatten()
    layers["head"] = nn.Linear(inside * math.prod(pooled), space.outputs, bias=head_bias)
    return nn.Sequential(layers)


def _stem(stem: str, channels: int, width: int, norm: str) -> nn.Module:
    kernel, stride, _ = STEMS[stem]
    parts = [*_conv(channels, width, kernel, stride, norm), nn.ReLU()]
    if stem == "imagenet":
        parts.append(nn.MaxPool2d(3, stride=2, padding=1))
    return nn.Sequential(*parts)


def _stage(inside: int, outside: int, blocks: int, *, stride: int, norm: str) -> nn.Module:
    first = _block(inside, outside, stride, norm)
    return nn.Sequential(first, *(_block(outside, outside, 1, norm) for _ in range(blocks - 1)))


def _block(inside: int, outside: int, stride: int, norm: str) -> nn.Module:
    branch = [*_conv(inside, outside, 3, stride, norm), nn.ReLU(), *_conv(outside, outside, 3, 1, norm)]
    same = stride == 1 and inside == outside
    shortcut = nn.Identity() if same else nn.Sequential(*_conv(inside, outside, 1, stride, norm))
    return Residual(nn.Sequential(*branch), shortcut)


def _conv(inside: int, outside: int, kernel: int, stride: int, norm: str) -> list[nn.Module]:
    conv = nn.Conv2d(inside, outside, kernel, stride=stride, padding=kernel // 2, bias=False)
    if norm == "none":
        return [conv]
    return [conv, nn.BatchNorm2d(outside) if norm == "batch" else RunningNorm2d(outside)]


# Shared by several networks

ACTIVATIONS = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "softplus": nn.Softplus}


def image_shape(space: Space, model: str, least: int) -> tuple[int, int, int]:
    """Return channels, height and width of the space's images, at least `least` pixels each way."""
    if space.kind != "image" or len(space.shape) != 3:
        got, remedy = f"{space.kind} inputs of shape {tuple(space.shape)}", "Use linear or mlp for tables."
        raise BadInput("model", expected=f"images (channels, height, width) for {model}", got=got, remedy=remedy)
    channels, height, width = space.shape
    if min(height, width) < least:
        expected = f"images of at least {least} x {least} pixels for {model}"
        raise BadInput("model", expected=expected, got=f"{height} x {width}", remedy="Use mlp, or enlarge the images.")
    return channels, height, width


# Initialisation

STD_OF_TRUNCATED_NORMAL = 0.87962566103423978  # of a standard normal truncated at two standard deviations
HALF_WIDTH = 0.5  # of the uniform distribution

Layer = nn.Conv2d | nn.Linear


def initialised(model: nn.Module, init: str) -> nn.Module:
    """Return the network with its convolutions and linear layers drawn anew, in their order; norm layers stay."""
    draw = INITS[init]
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            draw(layer)
    return model


def lecun_normal(layer: Layer) -> None:
    """Draw the weight from a truncated normal of variance 1 / inputs and set the bias to zero."""
    inputs = layer.weight[0].numel()
    deviation = inputs**-0.5 / STD_OF_TRUNCATED_NORMAL
    nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def he_normal(layer: Layer) -> None:
    """Draw the weight of a convolution from a normal of variance 2 / (outputs x kernel); the rest stays."""
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


def uniform(layer: Layer) -> None:
    """Draw weight and bias uniformly from -0.5 to 0.5."""
    for value in (layer.weight, layer.bias):
        if value is not None:
            nn.init.uniform_(value, -HALF_WIDTH, HALF_WIDTH)


def as_built(layer: Layer) -> None:
    """Keep the weights that torch drew when it made the layer."""


INITS = {"torch": as_built, "lecun": lecun_normal, "he": he_normal, "uniform": uniform}
