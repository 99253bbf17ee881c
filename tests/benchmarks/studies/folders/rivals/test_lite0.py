"""The weights in timm's network against the network that they were published with."""

import pytest
import timm
import torch
from efficientnet_lite_pytorch import EfficientNet

from benchmarks.studies.folders.rivals import lite0


def test_the_features_equal_those_of_the_published_network() -> None:
    published = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(lite0.weights_file())).eval()
    model = timm.create_model(lite0.NAME, pretrained=False, num_classes=0).eval()
    lite0.load_backbone(model)
    images = torch.randn(2, 3, 128, 128, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = published.extract_features(images).mean(dim=(2, 3))
        torch.testing.assert_close(model(images), expected, rtol=1e-3, atol=1e-3)


def test_the_normalisation_is_that_of_the_published_network() -> None:
    pixel = 200
    assert (pixel / 255 - lite0.MEAN[0]) / lite0.STD[0] == pytest.approx((pixel - 127) / 128)
