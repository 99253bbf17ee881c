"""The weights in timm's network as rivals load them, against those that longtail loads by their names."""

from typing import Any

import pytest
import timm
import torch

from benchmarks.studies.folders.rivals import lite0
from longtail.models import create_model


def test_rivals_start_from_the_features_that_longtail_has() -> None:
    ours: Any = create_model(lite0.NAME, 10, pretrained=None).eval()
    model = timm.create_model(lite0.NAME, pretrained=False, num_classes=0).eval()
    lite0.load_backbone(model)
    images = torch.randn(2, 3, 128, 128, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = ours.forward_head(ours.forward_features(images), pre_logits=True)
        torch.testing.assert_close(model(images), expected, rtol=1e-3, atol=1e-3)


def test_the_normalisation_is_that_of_the_published_network() -> None:
    pixel = 200
    assert (pixel / 255 - lite0.MEAN[0]) / lite0.STD[0] == pytest.approx((pixel - 127) / 128)
