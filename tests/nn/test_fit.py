import copy

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

from longtail.models import create_model
from longtail.nn import CompoundBatchNorm1d, CompoundBatchNorm2d, convert_batch_norm, fit_components, fold_batch_norm


def _trained() -> tuple[nn.Module, Tensor]:
    """A network with statistics and affine parameters of its own, and images."""
    torch.manual_seed(0)
    model, images = create_model("resnet8", 5), torch.randn(32, 3, 16, 16)
    for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.3)
    for _ in range(5):
        model(images)
    return model.eval(), images


def test_the_model_computes_what_it_did_and_its_components_are_apart() -> None:
    plain, images = _trained()
    compound = convert_batch_norm(copy.deepcopy(plain), 4)
    fit_components(compound, images)
    for norm in (module for module in compound.modules() if isinstance(module, CompoundBatchNorm2d)):
        assert (norm.running_mean.std(0) / norm.running_var.mean(0).sqrt()).mean() > 0.1
        assert norm.prior.sum().item() == pytest.approx(1)
    with torch.no_grad():
        torch.testing.assert_close(compound(images), plain(images), rtol=1e-3, atol=1e-4)


def test_affine_sets_that_differ_count_by_the_prior() -> None:
    norm = CompoundBatchNorm2d(6, 3).eval()
    assert norm.weight is not None
    assert norm.bias is not None
    nn.init.uniform_(norm.weight)
    nn.init.normal_(norm.bias)
    images = torch.randn(8, 6, 5, 5)
    with torch.no_grad():
        before = norm(images)
        fit_components(norm, images)
        torch.testing.assert_close(norm(images), before, rtol=1e-4, atol=1e-5)


def test_folding_gives_the_batch_norms_back() -> None:
    plain, images = _trained()
    compound = convert_batch_norm(copy.deepcopy(plain), 3)
    fit_components(compound, images)
    folded = fold_batch_norm(compound.eval())
    assert not any(isinstance(module, CompoundBatchNorm2d) for module in folded.modules())


def test_the_mixture_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[-4.0, 0, 3], [4, 2, 0], [0, -5, -3]])
    points = (centres[rng.integers(3, size=3000)] + rng.normal(size=(3000, 3)) * [0.5, 1, 0.7]).astype(np.float32)
    expected = GaussianMixture(3, covariance_type="diag", random_state=0).fit(points)
    torch.manual_seed(3)
    norm = CompoundBatchNorm1d(3, 3)
    fit_components(norm, torch.from_numpy(points))
    order, theirs = norm.running_mean[:, 0].argsort(), expected.means_[:, 0].argsort()
    torch.testing.assert_close(
        norm.running_mean[order], torch.tensor(expected.means_[theirs]).float(), rtol=0, atol=0.02
    )
    torch.testing.assert_close(
        norm.running_var[order], torch.tensor(expected.covariances_[theirs]).float(), rtol=0.03, atol=0.01
    )
    torch.testing.assert_close(norm.prior[order], torch.tensor(expected.weights_[theirs]).float(), rtol=0, atol=0.01)


def test_components_are_those_of_groups_if_there_are_any() -> None:
    images, groups = torch.randn(9, 6, 5, 5) + 2, torch.tensor([0, 0, 2, 0, 2, 2, 2, 0, 0])
    norm = CompoundBatchNorm2d(6, 3).eval()
    with torch.no_grad():
        before = norm(images)
        fit_components(norm, images, groups)
        torch.testing.assert_close(norm(images), before, rtol=1e-4, atol=1e-5)
    for component, points in enumerate((images[groups == 0], images, images[groups == 2])):  # none is of group 1
        reference = nn.BatchNorm2d(6, momentum=1.0)
        reference(points)
        torch.testing.assert_close(norm.running_mean[component], reference.running_mean)
        torch.testing.assert_close(norm.running_var[component], reference.running_var, rtol=0.02, atol=0)  # unbiased


def test_modes_are_left_as_they_were() -> None:
    model = nn.Sequential(nn.Dropout(), CompoundBatchNorm2d(3)).train()
    model[0].eval()
    fit_components(model, torch.randn(4, 3, 5, 5))
    assert [module.training for module in model] == [False, True]
    assert model.training
    assert not model[1]._forward_pre_hooks


def test_a_layer_without_affine_parameters_is_refused_since_it_could_not_compute_the_same() -> None:
    with pytest.raises(ValueError, match="affine"):
        fit_components(CompoundBatchNorm2d(3, affine=False), torch.randn(4, 3, 5, 5))


def test_components_that_have_parted_are_refused() -> None:
    norm, images = CompoundBatchNorm2d(3), torch.randn(4, 3, 5, 5)
    fit_components(norm, images)
    with pytest.raises(ValueError, match="never parted"):
        fit_components(norm, images)


def test_fewer_points_than_components_are_refused() -> None:
    with pytest.raises(ValueError, match="a point for each of 4 components, got 2"):
        fit_components(CompoundBatchNorm1d(3), torch.randn(2, 3))
