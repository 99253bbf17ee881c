import pytest
import timm
import torch
from torch import nn

from longtail.models import CifarResNet, create_model
from longtail.models.split_stages import split_stages

IMAGES = torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)


@pytest.mark.parametrize(
    ("name", "stages"),
    [("resnet20", 3), ("resnet10t", 4), ("seresnext26t_32x4d", 4), ("tf_efficientnet_lite0", 7)],
)
def test_the_parts_in_order_are_the_model(name: str, stages: int) -> None:
    torch.manual_seed(0)
    model = create_model(name, 4).eval()
    parts = split_stages(model)
    assert len(parts.stages) == stages
    features = parts.pool(nn.Sequential(*parts.stages)(parts.stem(IMAGES)))
    torch.testing.assert_close(parts.classifier(features), model(IMAGES))
    ours = [*parts.stem.parameters(), *nn.ModuleList(parts.stages).parameters(), *parts.classifier.parameters()]
    assert {id(parameter) for parameter in ours} == {id(parameter) for parameter in model.parameters()}


def test_dropout_before_the_classifier_is_kept() -> None:
    model = timm.create_model("resnet10t", num_classes=4, drop_rate=0.3)
    assert [part.p for part in split_stages(model).pool if isinstance(part, nn.Dropout)] == [0.3]


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "convnext_atto", "regnetx_002", "resnext26ts"])
def test_a_model_whose_stages_are_not_known_is_refused(name: str) -> None:
    model = timm.create_model(name, num_classes=4)
    with pytest.raises(
        ValueError, match=rf"model must be a network whose last stage is known, got {type(model).__name__}"
    ):
        split_stages(model)


def test_a_model_without_a_linear_classifier_is_refused() -> None:
    model = CifarResNet(8, num_classes=0)
    with pytest.raises(ValueError, match="model must be a network whose last stage is known, got CifarResNet"):
        split_stages(model)
