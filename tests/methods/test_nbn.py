import pytest
import torch

from longtail.data.views import Batch
from longtail.losses import balanced_softmax_loss
from longtail.methods import NBN
from longtail.methods.nbn import last_norms
from longtail.models import create_model
from longtail.nn import NormalizedBatchNorm2d

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), TARGET, torch.arange(4))


def test_the_first_step_is_that_of_balanced_softmax_on_the_network_itself() -> None:
    torch.manual_seed(0)
    expected = balanced_softmax_loss(create_model("resnet8", 3)(BATCH.views[0]), TARGET, class_counts=COUNTS)
    torch.manual_seed(0)
    method = NBN(create_model("resnet8", 3), COUNTS)
    torch.testing.assert_close(method(*method.prepare(BATCH)).loss, expected)


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("resnet14", {"stage3.0.norm2", "stage3.1.norm2"}),
        ("resnet18", {"layer4.0.bn2", "layer4.1.bn2"}),
        ("resnet26", {"layer4.0.bn3", "layer4.1.bn3"}),
    ],
)
def test_the_last_norm_of_each_block_of_the_last_stage_is_converted_and_no_other(name: str, paths: set[str]) -> None:
    method = NBN(create_model(name, 3), COUNTS)
    found = {path for path, module in method.model.named_modules() if isinstance(module, NormalizedBatchNorm2d)}
    assert found == paths


def test_a_network_whose_stages_are_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="model must be a network whose last stage is known"):
        last_norms(create_model("test_vit", 3))
