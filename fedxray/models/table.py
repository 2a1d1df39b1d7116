"""The networks that a plan can name, each as "module:function"; keyword arguments are the settings."""

from __future__ import annotations

MODELS: dict[str, str] = {
    "linear": "fedxray.models.dense:linear",
    "mlp": "fedxray.models.dense:mlp",
    "cnn-femnist": "fedxray.models.convnet:cnn_femnist",
    "cnn-cifar": "fedxray.models.convnet:cnn_cifar",
    "lenet": "fedxray.models.lenet:lenet",
    "lenet-sigmoid": "fedxray.models.lenet:lenet_sigmoid",
    "resnet9": "fedxray.models.resnet:resnet9",
    "resnet18": "fedxray.models.resnet:resnet18",
}
