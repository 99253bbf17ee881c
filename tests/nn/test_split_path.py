import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from longtail.nn import CompoundBatchNorm2d, class_groups, convert_batch_norm, split_path
from longtail.nn.readings import GroupScheme
from tests.support.plain_reading import plain

GROUPS = torch.tensor([0, 1, 1, 0])


def small_model() -> nn.Sequential:
    torch.manual_seed(0)
    norm = CompoundBatchNorm2d(6, 2, reading=plain(component_init="random"))
    assert norm.bias is not None
    nn.init.zeros_(norm.bias)
    return nn.Sequential(nn.Conv2d(3, 6, 3), norm, nn.ReLU())


def test_each_sample_is_normalised_by_the_component_of_its_group() -> None:
    model = small_model()
    x = torch.randn(4, 3, 6, 6)
    features = model[0](x)
    with split_path(model, GROUPS):
        y = model(x)
    for j in (0, 1):
        expected = nn.BatchNorm2d(6)(features[j == GROUPS]).relu()
        torch.testing.assert_close(y[j == GROUPS], expected)


@pytest.mark.parametrize("statistics", ["running", "updated"])
def test_the_statistics_that_normalise_are_those_of_the_reading(statistics: str) -> None:
    norm = CompoundBatchNorm2d(3, components=2, reading=plain(statistics=statistics, running_variance="population"))
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    mean, var = norm.running_mean.clone(), norm.running_var.clone()
    x, groups = torch.randn(6, 3, 4, 4), torch.tensor([0, 1, 1, 0, 1, 1])
    with split_path(norm, groups):
        y = norm(x)
    torch.testing.assert_close(norm.running_mean[1], mean[1].lerp(x[groups == 1].mean((0, 2, 3)), 0.1))
    torch.testing.assert_close(norm.running_var[1], var[1].lerp(x[groups == 1].var((0, 2, 3), correction=0), 0.1))
    if statistics == "updated":
        mean, var = norm.running_mean, norm.running_var
    expected = [F.batch_norm(x[i : i + 1], mean[j], var[j]) for i, j in enumerate(groups.tolist())]
    torch.testing.assert_close(y, torch.cat(expected), atol=1e-5, rtol=1e-5)


def test_it_leaves_the_statistics_alone_unless_the_reading_says_otherwise() -> None:
    norm = CompoundBatchNorm2d(6, 2)
    before = copy.deepcopy(norm.state_dict())
    with split_path(norm, GROUPS):
        norm(torch.randn(4, 6, 5, 5))
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())
    norm(torch.randn(4, 6, 5, 5))
    assert norm.num_batches_tracked == 1


def test_it_parts_equal_components() -> None:
    norm = CompoundBatchNorm2d(6, 2, reading=plain())
    x = torch.randn(4, 6, 5, 5) + GROUPS[:, None, None, None] * 3
    with split_path(norm, GROUPS):
        norm(x)
    assert norm.running_mean[1].min() > norm.running_mean[0].max()
    torch.testing.assert_close(norm.prior, torch.full((2,), 0.5))


def test_outside_the_context_the_compound_path_is_taken() -> None:
    model, untouched = small_model(), small_model()
    x = torch.randn(4, 3, 6, 6)
    with split_path(model, GROUPS):
        pass
    torch.testing.assert_close(model(x), untouched(x))


def test_in_eval_the_compound_path_is_always_taken() -> None:
    model = small_model().eval()
    x = torch.randn(4, 3, 6, 6)
    with split_path(model, GROUPS):
        y = model(x)
    torch.testing.assert_close(y, model(x))


def test_contexts_nest_and_are_restored_after_an_exception() -> None:
    model = small_model()
    x = torch.randn(4, 3, 6, 6)
    other = 1 - GROUPS

    def run(groups: torch.Tensor) -> torch.Tensor:
        fresh = small_model()
        with split_path(fresh, groups):
            y: torch.Tensor = fresh(x)
        return y

    with split_path(model, GROUPS):
        with split_path(model, other):
            torch.testing.assert_close(model(x), run(other))
        with pytest.raises(ValueError, match="x must be"), split_path(model, other):
            model[1](x)
        torch.testing.assert_close(model(x), run(GROUPS))
    torch.testing.assert_close(copy.deepcopy(model).eval()(x), model.eval()(x))


def test_two_models_do_not_disturb_each_other() -> None:
    first, second, alone = small_model(), small_model(), small_model()
    x = torch.randn(4, 3, 6, 6)
    with split_path(first, GROUPS):
        compound = second(x)
        with split_path(second, 1 - GROUPS):
            first(x)
    torch.testing.assert_close(compound, alone(x))


def test_it_reaches_every_layer_of_a_converted_model() -> None:
    model = convert_batch_norm(
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))),
        components=2,
        reading=plain(),
    )
    with split_path(model, torch.tensor([1, 1])):
        model(torch.randn(2, 3, 4, 4))
    for layer in model.modules():
        if isinstance(layer, CompoundBatchNorm2d):
            assert not torch.equal(layer.running_mean[1], layer.running_mean[0])
            assert not layer.running_mean[0].any()


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (torch.tensor([0, 2, 0, 0]), "groups must be 0 to 1, got 2"),
        (torch.tensor([0, -1, 0, 0]), "groups must be 0 to 1, got -1"),
        (torch.tensor([[0, 1, 0, 0]]), r"1-D tensor of integers, got torch.int64 of shape \(1, 4\)"),
        (torch.tensor([0.0, 1.0]), "1-D tensor of integers, got torch.float32"),
        (torch.tensor([True, False]), "1-D tensor of integers, got torch.bool"),
    ],
)
def test_bad_groups_are_refused(groups: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message), split_path(small_model(), groups):
        pass


def test_groups_of_the_wrong_length_are_refused() -> None:
    model = small_model()
    with pytest.raises(ValueError, match="one group number a sample"), split_path(model, GROUPS[:3]):
        model(torch.randn(4, 3, 6, 6))


def test_a_model_without_compound_batch_norm_is_refused() -> None:
    with pytest.raises(ValueError, match="see convert_batch_norm"), split_path(nn.Linear(2, 2), GROUPS):
        pass


@pytest.mark.parametrize("scheme", ["contiguous", "interleaved"])
@pytest.mark.parametrize(("num_classes", "components"), [(10, 4), (100, 4), (7, 7), (5, 1), (2, 4)])
def test_class_groups_are_as_equal_as_can_be(num_classes: int, components: int, scheme: GroupScheme) -> None:
    groups = class_groups(num_classes, components, scheme)
    sizes = torch.bincount(groups, minlength=components)
    assert groups.shape == (num_classes,)
    used = sizes[: min(num_classes, components)]
    assert used.max() - used.min() <= 1
    assert used.sum() == num_classes


def test_contiguous_groups_are_runs_of_class_indices() -> None:
    groups = class_groups(100, 4, "contiguous")
    assert torch.equal(groups, groups.sort().values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 4), "num_classes must be at least 1"),
        ((4, 0), "components must be at least 1"),
        ((4, 2, "by_size"), "scheme must be 'contiguous' or 'interleaved', got 'by_size'"),
    ],
)
def test_bad_class_groups_are_refused(arguments: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        class_groups(*arguments)
