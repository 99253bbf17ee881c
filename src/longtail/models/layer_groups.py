"""The parameters of a model in groups from input to output, for learning rates that fall towards the input.

Group 0 is the stem, then come the stages of a convolutional network or the blocks of a transformer, and the last group
is the head. With a decay d and G groups, group g takes

    lr_g = lr · d^(G - 1 - g).

timm's models say themselves which parameter belongs where (`group_matcher`). A last norm or a widening convolution
goes with the last stage.

Reference: Clark et al., "ELECTRA", ICLR 2020, for layer-wise decay; Bao et al., "BEiT", ICLR 2022, for images.
"""

from collections.abc import Callable
from typing import Any, cast

from torch import nn

from longtail.models.cifar_resnet import CifarResNet
from longtail.models.split_stages import split_stages
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.models.weights import classifier_keys


def layer_groups(model: nn.Module) -> list[list[nn.Parameter]]:
    """Each parameter of `model` in one group, from input to output; no group is empty.

    Args:
        model: any model with `get_classifier()`. One that is neither ours nor timm's has two groups: all but the
            classifier, and the classifier.

    Example:
        >>> from longtail.models import create_model
        >>> [len(group) for group in layer_groups(create_model("resnet20", 10))]
        [3, 18, 18, 18, 2]
    """
    if isinstance(model, StageFeatureNet):
        groups = [*layer_groups(model.backbone), list(model.classifier.parameters())]
    elif isinstance(model, CifarResNet) and isinstance(model.get_classifier(), nn.Linear):
        stem, stages, _, classifier = split_stages(model)
        groups = [list(part.parameters()) for part in (stem, *stages, classifier)]
    elif hasattr(model, "group_matcher"):
        groups = _timm_groups(model)
    else:
        head = set(classifier_keys(model))
        named = list(model.named_parameters())
        groups = [[value for key, value in named if (key in head) == last] for last in (False, True)]
    return [group for group in groups if group]


def _timm_groups(model: nn.Module) -> list[list[nn.Parameter]]:
    from timm.models import group_parameters

    matcher = cast("Callable[..., Any]", model.group_matcher)(coarse=True)
    names: dict[int, list[str]] = group_parameters(model, matcher)
    parameters = dict(model.named_parameters())
    return [[parameters[name] for name in names[number]] for number in sorted(names)]
