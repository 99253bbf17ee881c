import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor

from longtail.nn.functional import mixture_moments, responsibilities


def mixture(components: int, channels: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(components * 100 + channels)
    prior = torch.rand(components, generator=generator, dtype=dtype) + 0.2
    mean = torch.randn(components, channels, generator=generator, dtype=dtype)
    var = torch.rand(components, channels, generator=generator, dtype=dtype) + 0.3
    return prior / prior.sum(), mean, var


def sklearn_mixture(prior: Tensor, mean: Tensor, var: Tensor) -> GaussianMixture:
    model = GaussianMixture(len(prior), covariance_type="diag", reg_covar=0)
    model.weights_, model.means_, model.covariances_ = prior.numpy(), mean.numpy(), var.numpy()
    model.precisions_cholesky_ = 1 / np.sqrt(var.numpy())
    return model


@pytest.mark.parametrize(("components", "channels"), [(1, 3), (4, 16), (8, 50)])
def test_responsibilities_equal_sklearns(components: int, channels: int) -> None:
    prior, mean, var = mixture(components, channels)
    x = torch.randn(200, channels, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = sklearn_mixture(prior, mean, var).predict_proba(x.numpy())
    ours = responsibilities(x, prior, mean, var, eps=0.0)
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-10, atol=1e-12)
    single = responsibilities(x.float(), prior.float(), mean.float(), var.float(), eps=0.0)
    np.testing.assert_allclose(single.numpy(), expected, atol=2e-5)


def test_one_m_step_equals_sklearns() -> None:
    prior, mean, var = mixture(4, 16)
    x = torch.randn(300, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + mean.repeat(75, 1)
    model = sklearn_mixture(prior, mean, var)
    log_resp = model._e_step(x.numpy())[1]
    model._m_step(x.numpy(), log_resp)
    mass, new_mean, new_var = mixture_moments(x, responsibilities(x, prior, mean, var, eps=0.0))
    np.testing.assert_allclose(mass.numpy() / len(x), model.weights_, rtol=1e-9)
    np.testing.assert_allclose(new_mean.numpy(), model.means_, rtol=1e-9)
    np.testing.assert_allclose(new_var.numpy(), model.covariances_, rtol=1e-7)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_sum_to_one_whatever_comes_in(scale: float, dtype: torch.dtype) -> None:
    prior, mean, var = mixture(4, 64, torch.float32)
    x = (torch.randn(50, 64, generator=torch.Generator().manual_seed(3)) * scale).to(dtype)
    weights = responsibilities(x, prior, mean, var, eps=1e-5)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(1), torch.ones(50))


def test_variance_does_not_cancel_beside_a_large_mean() -> None:
    generator = torch.Generator().manual_seed(4)
    x = (1e3 + 1e-2 * torch.randn(4096, 8, generator=generator, dtype=torch.float64)).float()
    weights = torch.rand(4096, 3, generator=generator).softmax(1)
    _, mean, var = mixture_moments(x, weights)
    exact = x.double().numpy()
    for j in range(3):
        centre = np.average(exact, 0, weights[:, j].numpy())
        np.testing.assert_allclose(mean[j].numpy(), centre, rtol=1e-6)
        np.testing.assert_allclose(
            var[j].numpy(), np.average((exact - centre) ** 2, 0, weights[:, j].numpy()), rtol=1e-3
        )


def test_a_component_without_mass_has_finite_moments() -> None:
    x = torch.randn(10, 3)
    mass, mean, var = mixture_moments(x, torch.tensor([1.0, 0.0]).expand(10, 2))
    assert mass.tolist() == [10, 0]
    torch.testing.assert_close(mean[1], x.mean(0))
    torch.testing.assert_close(var[0], x.var(0, correction=0))
    assert not var[1].any()
