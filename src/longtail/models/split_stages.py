"""A network cut into stem, stages and pooling, so that a method may give its last stages to several branches.

    logits = classifier(pool(stages(stem(images))))

It knows a network by the names of its parts: the CIFAR ResNets, timm's ResNet-likes (ResNeXt, SE-ResNet, Res2Net ...)
and timm's EfficientNets (MobileNetV2 and EfficientNet-Lite among them).
"""

from typing import NamedTuple, cast

from torch import nn

_CIFAR = ("conv", "norm", "act", "stage1", "stage2", "stage3", "classifier")
_RESNET = ("conv1", "bn1", "act1", "maxpool", "layer1", "layer2", "layer3", "layer4", "global_pool", "fc")
_EFFICIENTNET = ("conv_stem", "bn1", "blocks", "conv_head", "bn2", "global_pool", "classifier")


class Stages(NamedTuple):
    """The parts of a network, in order.

    Attributes:
        stem: images to a feature map.
        stages: the blocks of each stage.
        pool: the last feature map to features (B, D).
        classifier: features to logits (B, K).
    """

    stem: nn.Sequential
    stages: tuple[nn.Sequential, ...]
    pool: nn.Sequential
    classifier: nn.Linear


def split_stages(model: nn.Module) -> Stages:
    """The parts of `model`, the modules themselves and no copies.

    Args:
        model: one of those that the module's docstring names, with a linear classifier.

    Raises:
        ValueError: it is another model.

    Example:
        >>> from longtail.models import create_model
        >>> [len(stage) for stage in split_stages(create_model("resnet20", 10)).stages]
        [3, 3, 3]
    """
    names = tuple(name for name, _ in model.named_children())
    parts = list(model.children())
    if names not in (_CIFAR, _RESNET, _EFFICIENTNET) or not isinstance(parts[-1], nn.Linear):
        raise ValueError(
            f"model must be a network whose last stage is known, got {type(model).__name__} with {', '.join(names)} "
            "(take a CIFAR ResNet, or a ResNet or EfficientNet of timm's)"
        )
    classifier = parts[-1]
    if names == _CIFAR:
        stem, stages, pool = parts[:3], parts[3:6], [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    elif names == _RESNET:
        stem, stages, pool = parts[:4], parts[4:8], [parts[8]]
    else:
        *first, last = cast("nn.Sequential", parts[2])
        # The widening convolution at the end is no stage of its own: it goes with the last block.
        *blocks, block = cast("nn.Sequential", last)
        stem, stages, pool = parts[:2], [*first, nn.Sequential(*blocks, nn.Sequential(block, *parts[3:5]))], [parts[5]]
    dropout = getattr(model, "drop_rate", 0.0)
    if dropout:
        pool.append(nn.Dropout(dropout))
    return Stages(
        nn.Sequential(*stem),
        tuple(nn.Sequential(*stage.children()) for stage in stages),
        nn.Sequential(*pool),
        classifier,
    )
