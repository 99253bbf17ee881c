from pathlib import Path

import pytest
import torch
from torch import nn

from longtail.models import create_model
from longtail.models.pretrained_weights import find_weights
from longtail.nn import convert_batch_norm
from longtail.training import build_config
from longtail.training.build_method import build_method
from tests.support.public_resnet import PublicResNet, trained_like

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("blocks", "name"), [(1, "resnet8"), (5, "resnet32")])
@pytest.mark.parametrize("head", ["linear", "fc"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_the_public_resnet_gives_the_same_logits(
    blocks: int, name: str, head: str, prefix: str, tmp_path: Path
) -> None:
    model = trained_like(PublicResNet(blocks, 10, head=head))
    weights = {prefix + key: value for key, value in model.state_dict().items()}
    torch.save({"state_dict": weights, "best_prec1": 71.92, "epoch": 200}, tmp_path / "model.pth.tar")
    ours = create_model(name, 10, pretrained=tmp_path / "model.pth.tar").eval()
    with torch.no_grad():
        torch.testing.assert_close(ours(IMAGES), model(IMAGES), rtol=1e-4, atol=1e-4)


def test_a_public_resnet_with_convolutions_in_its_shortcuts_is_another_network(tmp_path: Path) -> None:
    weights = PublicResNet(1, 10).state_dict() | {"layer2.0.shortcut.0.weight": torch.zeros(32, 16, 1, 1)}
    torch.save(weights, tmp_path / "model.pth")
    with pytest.raises(ValueError, match=r"stage2\.0\.shortcut\.0\.weight is not in the model"):
        create_model("resnet8", 10, pretrained=tmp_path / "model.pth")


@pytest.mark.parametrize("nest", ["state_dict", "model", "net", "model_state_dict", "weights"])
def test_a_head_of_another_name_is_taken_where_its_shapes_tell(nest: str, tmp_path: Path) -> None:
    model = create_model("test_efficientnet", 7)
    weights = {key.replace("classifier.", "last_layer."): value for key, value in model.state_dict().items()}
    torch.save({nest: weights, "epoch": 3}, tmp_path / "model.pt")
    again = create_model("test_efficientnet", 7, pretrained=tmp_path / "model.pt").state_dict()
    assert all(torch.equal(again[key], value) for key, value in model.state_dict().items())


def mixture() -> nn.Module:
    model = convert_batch_norm(trained_like(create_model("resnet8", 10)), components=3)
    generator = torch.Generator().manual_seed(2)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator))
        if name.endswith(("running_var", "prior")):
            buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.2)
    return model


def test_a_mixture_becomes_the_batch_norm_of_all_it_describes(tmp_path: Path) -> None:
    model = mixture()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    norm = create_model("resnet8", 10, pretrained=tmp_path / "model.pt").get_submodule("norm")
    assert isinstance(norm, nn.BatchNorm2d)
    layer = model.get_submodule("norm")
    prior, mean, variance = (layer.get_buffer(name) for name in ("prior", "running_mean", "running_var"))
    # By drawing: components by the prior, values by their mean and variance.
    generator = torch.Generator().manual_seed(3)
    chosen = torch.multinomial(prior, 200_000, replacement=True, generator=generator)
    drawn = mean[chosen] + variance[chosen].sqrt() * torch.randn(200_000, 16, generator=generator)
    torch.testing.assert_close(norm.running_mean, drawn.mean(0), rtol=0, atol=0.02)
    torch.testing.assert_close(norm.running_var, drawn.var(0), rtol=0.03, atol=0)


def test_compound_batch_norm_goes_on_from_its_own_weights_exactly(tmp_path: Path) -> None:
    settings = {"model": {"name": "resnet8"}, "method": {"name": "compound_bn", "components": 3}, "epochs": 1}
    first = build_method(build_config(settings), class_counts=[9, 5, 3], in_channels=3, image_size=32)
    state = first.model.state_dict()
    for value in state.values():
        if value.is_floating_point():
            value += 0.1 * torch.rand(value.shape, generator=torch.Generator().manual_seed(value.numel()))
    torch.save(state, tmp_path / "model.pt")
    again = build_method(
        build_config(settings | {"seed": 5}),
        class_counts=[9, 5, 3],
        in_channels=3,
        image_size=32,
        weights=find_weights("resnet8", tmp_path / "model.pt"),
    )
    assert all(torch.equal(again.model.state_dict()[key], value) for key, value in state.items())
