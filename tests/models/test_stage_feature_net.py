from typing import Any

import pytest
import torch

from longtail.models import create_model
from longtail.models.stage_feature_net import StageFeatureNet


@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet", "test_vit", "convnext_atto"])
def test_the_last_features_are_those_of_the_network_itself(name: str) -> None:
    torch.manual_seed(0)
    backbone: Any = create_model(name, 5, image_size=64).eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = backbone.forward_head(backbone.forward_features(images), pre_logits=True)
        found = StageFeatureNet(backbone, 3).eval().stage_features(images)
    torch.testing.assert_close(found[:, -expected.shape[1] :], expected)


def test_the_other_features_are_means_and_deviations_of_the_feature_maps() -> None:
    torch.manual_seed(0)
    backbone: Any = create_model("test_resnet", 5).eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        maps = backbone.forward_intermediates(images, intermediates_only=True)
        found = StageFeatureNet(backbone, 3).eval().stage_features(images)
    expected = [moment for m in maps for moment in (m.mean((2, 3)), m.var((2, 3), correction=0).add(1e-6).sqrt())]
    torch.testing.assert_close(found[:, : sum(part.shape[1] for part in expected)], torch.cat(expected, 1))


def test_a_grid_has_the_means_of_nine_cells_of_each_map() -> None:
    torch.manual_seed(0)
    backbone: Any = create_model("test_resnet", 5, image_size=96).eval()
    images = torch.randn(2, 3, 96, 96)
    with torch.no_grad():
        maps = backbone.forward_intermediates(images, intermediates_only=True)
        found = StageFeatureNet(backbone, 3, image_size=96, features="grid").eval().stage_features(images)
    for stage in maps:
        part, found = found[:, : 9 * stage.shape[1]], found[:, 9 * stage.shape[1] :]
        side = stage.shape[2]
        for row in range(3):
            for column in range(3):
                # A cell begins at the position that its share of the side falls on, and ends before the next whole one.
                rows = slice(row * side // 3, -(-(row + 1) * side // 3))
                columns = slice(column * side // 3, -(-(column + 1) * side // 3))
                expected = stage[:, :, rows, columns].mean((2, 3))
                torch.testing.assert_close(part.unflatten(1, (-1, 3, 3))[:, :, row, column], expected)
    assert found.shape[1] == 0


def test_standardised_features_have_mean_0_and_spread_1() -> None:
    net = StageFeatureNet(create_model("resnet8", 5), 3).eval()
    features = torch.randn(50, net.num_features) * 3 + 7
    features[:, 0] = 2.0
    net.standardise(features)
    standard = (features - net.centre) / net.spread
    torch.testing.assert_close(standard.mean(0), torch.zeros(net.num_features), atol=1e-5, rtol=0)
    torch.testing.assert_close(standard.std(0, correction=0)[1:], torch.ones(net.num_features - 1))


def test_logits_come_from_standardised_features_and_the_classifier() -> None:
    net = StageFeatureNet(create_model("resnet8", 5), 3).eval()
    net.standardise(torch.randn(50, net.num_features))
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        expected = net.classifier((net.stage_features(images) - net.centre) / net.spread)
        torch.testing.assert_close(net(images), expected)
