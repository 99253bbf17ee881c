import functools
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from longtail.data.mixing import MIXINGS, Mixed, cmo, cutmix, mixup, remix, unimix

COUNTS = [500, 120, 100, 30, 5]


def batch(count: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, 8, 6, generator=generator), torch.randint(0, 5, (count,), generator=generator)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def further(name: str) -> dict[str, Any]:
    images, target = batch()
    arguments: dict[str, dict[str, Any]] = {
        "remix": {"class_counts": COUNTS},
        "unimix": {"class_counts": COUNTS},
        "cmo": {"patches": images.flip(0), "patch_target": target.flip(0)},
    }
    return arguments.get(name, {})


def run(name: str, seed: int) -> Mixed:
    images, target = batch()
    return MIXINGS[name](images, target, generator=seeded(seed), **further(name))


@pytest.mark.parametrize("name", list(MIXINGS))
def test_the_generator_decides(name: str) -> None:
    before = torch.get_rng_state()
    for one, other in zip(run(name, 4), run(name, 4), strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(run(name, 4).images, run(name, 5).images)
    assert torch.equal(torch.get_rng_state(), before), "the global generator is left alone"


@pytest.mark.parametrize("name", list(MIXINGS))
def test_the_images_given_are_left_alone_and_the_layout_stays(name: str) -> None:
    images, target = batch()
    images = images.contiguous(memory_format=torch.channels_last)
    copy = images.clone()
    mixed = MIXINGS[name](images, target, generator=seeded(0), **further(name))
    assert torch.equal(images, copy)
    assert mixed.images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", list(MIXINGS))
def test_the_loss_is_the_cross_entropy_with_soft_labels(name: str) -> None:
    mixed = run(name, 1)
    logits = torch.randn(40, 5, generator=seeded(9))
    weight = mixed.weight[:, None]
    soft = weight * F.one_hot(mixed.target_a, 5) + (1 - weight) * F.one_hot(mixed.target_b, 5)
    ours = mixed.loss(functools.partial(F.cross_entropy, reduction="none"), logits)
    assert torch.allclose(ours, F.cross_entropy(logits, soft))


def test_a_loss_that_is_already_a_mean_is_refused() -> None:
    with pytest.raises(ValueError, match=r"loss must give one number per image, .*\(build it with reduction='none'\)"):
        run("mixup", 0).loss(F.cross_entropy, torch.zeros(40, 5))


def test_mixup_averages_each_image_with_one_whose_label_it_names() -> None:
    images, target = batch()
    mixed = mixup(images, target, alpha=1.0, generator=seeded(2))
    share = float(mixed.weight[0])
    assert 0.05 < share < 0.95
    partners = []
    for i in range(40):
        rest = (mixed.images[i] - share * images[i]) / (1 - share)
        (j,) = [k for k in range(40) if torch.allclose(rest, images[k], atol=1e-3)]
        assert mixed.target_b[i] == target[j]
        partners.append(j)
    assert sorted(partners) == list(range(40))
    assert torch.equal(mixed.target_a, target)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_the_share_is_drawn_from_the_beta_distribution(alpha: float) -> None:
    images, target = torch.zeros(1, 1, 1, 1), torch.zeros(1, dtype=torch.int64)
    generator = seeded(0)
    shares = [float(mixup(images, target, alpha=alpha, generator=generator).weight) for _ in range(1000)]
    assert stats.kstest(shares, stats.beta(alpha, alpha).cdf).pvalue > 1e-3


@pytest.mark.parametrize("seed", range(12))
def test_cutmix_fills_one_box_and_weighs_by_its_area(seed: int) -> None:
    # Each pixel of image i is i, so that the mixed image tells where each pixel came from.
    images = torch.arange(10.0).view(10, 1, 1, 1).expand(10, 3, 8, 6)
    mixed = cutmix(images, torch.arange(10), generator=seeded(seed))
    assert torch.equal(mixed.target_a, torch.arange(10))
    for i in range(10):
        own = mixed.images[i] == i
        partner = int(mixed.target_b[i])
        assert bool((own | (mixed.images[i] == partner)).all())
        if partner == i:
            continue
        assert float(mixed.weight[i]) == pytest.approx(float(own.float().mean()))
        rows, columns = (~own[0]).any(1).nonzero(), (~own[0]).any(0).nonzero()
        if len(rows):
            box = own[0, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
            assert not box.any(), "what is filled is one box"


def test_remix_follows_its_equation_image_by_image() -> None:
    images, target = batch(200)
    seen = set()
    for seed in range(20):
        mixed = remix(images, target, class_counts=COUNTS, kappa=3, tau=0.5, generator=seeded(seed))
        plain = mixup(images, target, alpha=1.0, generator=seeded(seed))
        assert torch.equal(mixed.images, plain.images)
        share = float(plain.weight[0])
        for a, b, weight in zip(mixed.target_a.tolist(), mixed.target_b.tolist(), mixed.weight.tolist(), strict=True):
            ratio = COUNTS[a] / COUNTS[b]
            if ratio >= 3 and share < 0.5:
                expected = 0.0
            elif ratio <= 1 / 3 and 1 - share < 0.5:
                expected = 1.0
            else:
                expected = share
            assert weight == pytest.approx(expected)
            seen.add(expected if expected in (0.0, 1.0) else "share")
    assert seen == {0.0, 1.0, "share"}


def test_unimix_averages_each_image_with_the_partner_whose_label_it_names() -> None:
    # Each pixel of image i is i, and so is its label: the mixed image tells which partner it has.
    images = torch.arange(20.0).view(20, 1, 1, 1)
    counts = [500, 120, 100, 30, 5] * 4
    mixed = unimix(images, torch.arange(20), class_counts=counts, tau=-1.0, generator=seeded(3))
    expected = mixed.weight * mixed.target_a + (1 - mixed.weight) * mixed.target_b
    assert torch.allclose(mixed.images.flatten(), expected, atol=1e-5)
    assert len(mixed.weight.unique()) == 20, "one draw for each image"


@pytest.mark.parametrize("tau", [0.0, -1.0])
def test_unimix_draws_partners_by_the_power_of_their_class_size(tau: float) -> None:
    target = torch.arange(5).repeat(4000)
    mixed = unimix(torch.zeros(20000, 1, 1, 1), target, class_counts=COUNTS, tau=tau, generator=seeded(1))
    chances = torch.tensor(COUNTS, dtype=torch.float64) ** tau
    found = torch.bincount(mixed.target_b, minlength=5).numpy()
    assert stats.chisquare(found, (20000 * chances / chances.sum()).numpy()).pvalue > 1e-3


def test_the_weight_of_unimix_is_a_beta_variable_moved_by_the_share_of_the_partner_s_class() -> None:
    target = torch.tensor([0, 4]).repeat(2000)
    mixed = unimix(torch.zeros(4000, 1, 1, 1), target, class_counts=COUNTS, tau=0.0, generator=seeded(2))
    for a in (0, 4):
        for b in (0, 4):
            weight = mixed.weight[(mixed.target_a == a) & (mixed.target_b == b)].double()
            drawn = (weight - COUNTS[b] / (COUNTS[a] + COUNTS[b])) % 1
            assert stats.kstest(drawn.numpy(), stats.beta(0.8, 0.8).cdf).pvalue > 1e-3


def test_a_wrong_argument_is_named() -> None:
    images, target = batch()
    with pytest.raises(ValueError, match="alpha must be above 0, got 0"):
        mixup(images, target, alpha=0, generator=seeded(0))
    with pytest.raises(ValueError, match=r"kappa must be at least 1, got 0\.5"):
        remix(images, target, class_counts=COUNTS, kappa=0.5, generator=seeded(0))
    with pytest.raises(ValueError, match="tau must be from 0 to 1, got 2"):
        remix(images, target, class_counts=COUNTS, tau=2, generator=seeded(0))
    with pytest.raises(ValueError, match="alpha must be above 0, got -1"):
        unimix(images, target, class_counts=COUNTS, alpha=-1, generator=seeded(0))
    with pytest.raises(ValueError, match="tau must be finite, got inf"):
        unimix(images, target, class_counts=COUNTS, tau=float("inf"), generator=seeded(0))
    with pytest.raises(ValueError, match="class_counts must be at least 1 for every class, got 0"):
        unimix(images, target, class_counts=[5, 4, 3, 2, 0], generator=seeded(0))


@pytest.mark.parametrize("seed", range(8))
def test_cmo_pastes_from_the_image_at_the_same_place_of_the_second_batch(seed: int) -> None:
    images, patches = torch.zeros(10, 3, 8, 6), torch.arange(1.0, 11).view(10, 1, 1, 1).expand(10, 3, 8, 6)
    mixed = cmo(images, torch.arange(10), patches=patches, patch_target=torch.arange(10, 20), generator=seeded(seed))
    assert torch.equal(mixed.target_b, torch.arange(10, 20))
    for i in range(10):
        pasted = mixed.images[i] == i + 1
        assert bool((pasted | (mixed.images[i] == 0)).all())
        assert float(mixed.weight[i]) == pytest.approx(1 - float(pasted.float().mean()))


def test_cmo_needs_two_batches_of_one_size() -> None:
    images, target = batch()
    with pytest.raises(ValueError, match=r"patches must have the shape of the images, \(40, .* got \(39, 3, 8, 6\)"):
        cmo(images, target, patches=images[1:], patch_target=target[1:], generator=seeded(0))
