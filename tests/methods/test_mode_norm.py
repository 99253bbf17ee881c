import pytest
import torch

from longtail.data.views import Batch
from longtail.losses import balanced_softmax_loss
from longtail.methods import ERM, ModeNorm
from longtail.models import create_model
from longtail.nn import ModeNorm2d

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), TARGET, torch.arange(4))


def test_with_one_mode_a_step_is_that_of_balanced_softmax_on_batch_norm() -> None:
    torch.manual_seed(0)
    plain = ERM(create_model("resnet8", 3), COUNTS, loss="balanced_softmax")
    torch.manual_seed(0)
    method = ModeNorm(create_model("resnet8", 3), COUNTS, modes=1)
    torch.testing.assert_close(method(BATCH).loss, plain(BATCH).loss, rtol=1e-4, atol=1e-5)


def test_the_loss_is_balanced_softmax_and_every_norm_has_modes() -> None:
    method = ModeNorm(create_model("resnet8", 3), COUNTS, modes=3)
    output = method(*method.prepare(BATCH))
    torch.testing.assert_close(output.loss.detach(), balanced_softmax_loss(output.logits, TARGET, class_counts=COUNTS))
    norms = [module for module in method.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert len(norms) == 7
    assert all(isinstance(norm, ModeNorm2d) and norm.modes == 3 for norm in norms)


def test_a_model_without_batch_norms_is_refused() -> None:
    with pytest.raises(ValueError, match="model must have a batch norm to convert, got none in VisionTransformer"):
        ModeNorm(create_model("test_vit", 3), COUNTS)
