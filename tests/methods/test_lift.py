"""Adapters and the class-mean start, against timm's own network and plain loops."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods import LIFT, Decoupled
from longtail.methods.base import HeadedModel
from longtail.methods.lift import Adapted
from longtail.models import create_model

COUNTS = [6, 4, 2]
KINDS = ["adaptformer", "lora"]


def vit(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return create_model("test_vit", len(COUNTS), image_size=32)


def images(seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    target = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2])
    return Batch((torch.randn(12, 3, 32, 32, generator=generator),), target, torch.arange(12))


class TrainingSet:
    """Batches of 5, and what the other rank has summed."""

    def __init__(self, batch: Batch, others: list[Tensor] | None = None) -> None:
        self.batch, self.others = batch, others or []
        self.summed: list[Tensor] = []

    def batches(self) -> Iterator[Batch]:
        for rows in torch.arange(len(self.batch.target)).split(5):
            yield Batch((self.batch.views[0][rows],), self.batch.target[rows], self.batch.indices[rows])

    def sum_over_ranks(self, tensor: Tensor) -> Tensor:
        self.summed.append(tensor.clone())
        return tensor + self.others.pop(0) if self.others else tensor


def head(method: LIFT) -> Tensor:
    return cast("Tensor", cast("HeadedModel", method.model).get_classifier().weight)


@pytest.mark.parametrize("adapter", KINDS)
def test_the_features_are_those_of_the_network_before_the_first_step(adapter: Any) -> None:
    plain = vit().eval()
    (x,) = images().views
    method = LIFT(copy.deepcopy(plain), COUNTS, adapter=adapter, bottleneck=4).eval()
    with torch.no_grad():
        expected = cast("HeadedModel", plain).forward_head(
            cast("HeadedModel", plain).forward_features(x), pre_logits=True
        )
        assert torch.equal(method.features(x), expected)


@pytest.mark.parametrize("adapter", KINDS)
def test_a_step_moves_the_adapters_and_the_classifier_alone(adapter: Any) -> None:
    method = LIFT(vit(), COUNTS, adapter=adapter, bottleneck=2)
    before = copy.deepcopy(method.state_dict())
    optimiser = torch.optim.SGD(method.parameter_groups(), lr=0.1, weight_decay=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        method(images()).loss.backward()
        optimiser.step()
    moved = {key for key, value in method.state_dict().items() if not torch.equal(value, before[key])}
    layer = "mlp" if adapter == "adaptformer" else "attn.qkv"
    learnt = ("down.weight", "down.bias", "up.weight", "up.bias", "scale")
    wanted = {f"model.blocks.{block}.{layer}.{name}" for block in range(6) for name in learnt} | {"model.head.weight"}
    if adapter == "lora":
        assert moved <= wanted
        assert all(f"model.blocks.{block}.attn.qkv.up.weight" in moved for block in range(6))
    else:
        assert moved == wanted


def test_an_adapter_adds_to_its_layer_what_the_equation_says() -> None:
    torch.manual_seed(0)
    layer = Adapted(nn.Linear(5, 7), 5, 7, 3, nn.GELU())
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    tokens = torch.randn(2, 4, 5)
    inner = torch.einsum("bte,de->btd", tokens, layer.down.weight) + layer.down.bias
    added = torch.einsum("btd,od->bto", F.gelu(inner), layer.up.weight) + layer.up.bias
    torch.testing.assert_close(layer(tokens), layer.layer(tokens) + layer.scale * added)


@pytest.mark.parametrize(("classes", "expected"), [(3, 1), (23, 1), (24, 2), (100, 8), (1000, 64)])
def test_the_width_of_an_adapter_follows_from_the_classes_and_blocks(classes: int, expected: int) -> None:
    method = LIFT(create_model("test_vit", classes, image_size=32), [5] * classes)
    assert method.bottleneck == expected
    assert LIFT(vit(), COUNTS, bottleneck=5).settings()["bottleneck"] == 5


def test_the_classifier_starts_at_the_directions_of_the_class_means() -> None:
    method = LIFT(vit(), COUNTS)
    batch = images()
    method.start_epoch(TrainingSet(batch))
    assert method.model.training
    with torch.no_grad():
        features = method.eval().features(batch.views[0])
        logits = method.model(batch.views[0])
    for k in range(len(COUNTS)):
        mean = features[batch.target == k].mean(0)
        torch.testing.assert_close(F.cosine_similarity(head(method)[k], mean, dim=0), torch.tensor(1.0))
        torch.testing.assert_close(logits[:, k], 25 * F.cosine_similarity(features, mean[None]))


def test_a_class_without_images_keeps_a_random_direction() -> None:
    method = LIFT(vit(), [*COUNTS[:2], 1])
    before = head(method).detach().clone()
    batch = images()
    kept = batch.target < 2
    method.start_epoch(TrainingSet(Batch((batch.views[0][kept],), batch.target[kept], batch.indices[kept])))
    assert torch.equal(head(method)[2], before[2])
    assert not torch.equal(head(method)[0], before[0])


def test_two_ranks_start_the_classifier_as_one_does() -> None:
    alone, first, second = (LIFT(vit(), COUNTS) for _ in range(3))
    batch = images()
    halves = [Batch((batch.views[0][r::2],), batch.target[r::2], batch.indices[r::2]) for r in (0, 1)]
    alone.start_epoch(TrainingSet(batch))
    other = TrainingSet(halves[1])
    second.start_epoch(other)
    first.start_epoch(TrainingSet(halves[0], other.summed))
    torch.testing.assert_close(head(first), head(alone))


def test_the_classifier_is_started_once_even_if_the_training_is_resumed() -> None:
    method = LIFT(vit(), COUNTS)
    method.start_epoch(TrainingSet(images()))
    started = head(method).detach().clone()
    resumed = LIFT(vit(seed=5), COUNTS, **method.settings())
    resumed.load_state_dict(method.state_dict())
    for each in (method, resumed):
        each.start_epoch(TrainingSet(images(seed=7)))
        assert torch.equal(head(each), started)


def test_without_class_means_the_classifier_keeps_its_random_directions() -> None:
    method = LIFT(vit(), COUNTS, class_means=False)
    before = head(method).detach().clone()
    method.start_epoch(TrainingSet(images()))
    assert torch.equal(head(method), before)


def test_the_loss_is_cross_entropy_of_logits_with_log_priors() -> None:
    method = LIFT(vit(), COUNTS)
    batch = images()
    loss, logits, _ = method(batch)
    priors = torch.tensor(COUNTS) / sum(COUNTS)
    torch.testing.assert_close(loss.detach(), F.cross_entropy(logits + priors.log(), batch.target))


@pytest.mark.parametrize("name", ["resnet8", "tf_efficientnet_lite0", "resmlp_12_224"])
def test_a_network_without_transformer_blocks_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"vision transformer .* got \w+ \(take vit_tiny_patch16_224 .* 'erm'"):
        LIFT(create_model(name, 3), COUNTS)


def test_a_transformer_with_two_classifiers_is_refused() -> None:
    model = create_model("deit_tiny_distilled_patch16_224", 3, image_size=32)
    with pytest.raises(ValueError, match="one classifier with parameters"):
        LIFT(model, COUNTS)


def test_attention_that_reads_its_weights_itself_takes_no_lora_but_an_adaptformer() -> None:
    kinds: dict[str, Any] = {"img_size": 32, "depth": 2, "num_classes": 3}
    with pytest.raises(ValueError, match="adapter must be 'adaptformer' for Beit"):
        LIFT(timm.create_model("beit_base_patch16_224", **kinds), COUNTS, adapter="lora")
    method = LIFT(timm.create_model("beit_base_patch16_224", **kinds), COUNTS)
    method(images()).loss.backward()


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit_tiny_patch16_224"])
@pytest.mark.parametrize("adapter", KINDS)
def test_the_networks_that_the_refusal_names_are_taken(name: str, adapter: Any) -> None:
    method = LIFT(create_model(name, 3, image_size=32), COUNTS, adapter=adapter)
    assert method(images()).loss.isfinite()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adapter": "prompt"}, "adapter must be 'adaptformer' or 'lora', got 'prompt'"),
        ({"bottleneck": 0}, "bottleneck must be at least 1, got 0"),
        ({"scale": 0.0}, "scale must be positive and finite, got 0.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        LIFT(vit(), COUNTS, **settings)


def test_it_is_a_base_of_decoupled() -> None:
    method = Decoupled(vit(), COUNTS, base="lift")
    method.plan(5)
    method.set_progress(0.0)
    method.start_epoch(TrainingSet(images()))
    assert method(images()).loss.isfinite()


def test_onnx_takes_lora_too(tmp_path: Path) -> None:
    import onnxruntime

    method = LIFT(vit(), COUNTS, adapter="lora").eval()
    for module in method.modules():
        if isinstance(module, Adapted):
            nn.init.normal_(module.up.weight, std=0.1)
    (x,) = images().views
    program = torch.onnx.export(method.model, (x[:2],), dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False)
    assert program is not None
    program.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(found), method.model(x), rtol=1e-4, atol=1e-4)
