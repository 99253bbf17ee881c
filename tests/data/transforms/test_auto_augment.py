"""AutoAugment against torchvision's, operation by operation and as a whole."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import AutoAugment as TorchvisionAutoAugment
from torchvision.transforms.v2 import AutoAugmentPolicy

from longtail.data.transforms.auto_augment import AutoAugment, choose_moves, list_moves
from longtail.data.transforms.operations import OPERATIONS
from longtail.data.transforms.policies import POLICIES

TORCHVISION = TorchvisionAutoAugment()
BLENDS = {"Color", "Contrast", "Sharpness"}


def pictures(count: int, channels: int = 3, height: int = 32, width: int = 32, seed: int = 0) -> Tensor:
    """Smooth, noisy, flat, dark and half-black images: each finds other faults."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator)
    ramp = torch.linspace(0, 255, width).to(torch.uint8)
    images[1::5] = ramp
    images[2::5] //= 4
    images[3::5, :, : height // 2] = 0
    images[4::5] = 77
    return images


def torchvision_result(image: Tensor, operation: str, magnitude: float) -> Tensor:
    done: Tensor = TORCHVISION._apply_image_or_video_transform(
        image, operation, magnitude, interpolation="nearest", fill={}
    )
    return done


def assert_alike(ours: Tensor, theirs: Tensor, operations: set[str]) -> None:
    if operations & BLENDS:
        # torch rounds `add(alpha=)` once or twice, by processor and by place in memory: a step, hardly ever.
        apart = (ours.int() - theirs.int()).abs()
        assert apart.max() <= 1
        assert (apart > 0).float().mean() < 1e-3
    else:
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("size", [(32, 32), (8, 8), (28, 20), (65, 64)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_an_operation_equals_torchvisions(operation: str, channels: int, size: tuple[int, int]) -> None:
    height, width = size
    images = pictures(10, channels, height, width)
    unit = OPERATIONS[operation]
    magnitudes_of, signed = TORCHVISION._AUGMENTATION_SPACE[operation]
    theirs_of_level = magnitudes_of(10, height, width)
    assert signed == unit.signed
    for level in range(10):
        magnitude = 0.0 if theirs_of_level is None else float(theirs_of_level[level])
        assert unit.magnitude(level, height, width) == pytest.approx(magnitude, rel=1e-6)
        for signed_magnitude in (magnitude, -magnitude) if signed else (magnitude,):
            row = unit.parameters(signed_magnitude, height, width)
            ours = unit.run(images, row.expand(len(images), *row.shape))
            theirs = torch.stack([torchvision_result(image, operation, signed_magnitude) for image in images])
            assert_alike(ours, theirs, {operation})


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_policy_is_torchvisions(name: str) -> None:
    assert list(POLICIES[name]) == TorchvisionAutoAugment(AutoAugmentPolicy(name))._policies


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_batch_equals_torchvision_image_by_image(name: str) -> None:
    images = pictures(200)
    draws = np.random.default_rng(1).random((200, 5))
    ours = AutoAugment(name, 32, 32)(images, draws)
    changed = 0
    for image, result, draw in zip(images, ours, draws, strict=True):
        expected, done = image, set()
        pair = POLICIES[name][int(draw[0] * 25)]
        for step, (chance, sign) in zip(pair, (draw[1:3], draw[3:5]), strict=True):
            if chance >= step.probability:
                continue
            magnitudes_of, signed = TORCHVISION._AUGMENTATION_SPACE[step.operation]
            magnitude = 0.0 if step.level is None else float(magnitudes_of(10, 32, 32)[step.level])
            expected = torchvision_result(expected, step.operation, -magnitude if signed and sign < 0.5 else magnitude)
            done.add(step.operation)
        if not done & BLENDS or len(done) == 1:
            assert_alike(result, expected, done)
        else:
            # A step of one before an operation that stretches the values.
            assert (result.int() - expected.int()).abs().float().mean() < 1
        changed += not torch.equal(image, result)
    assert changed > 100


def test_an_image_is_treated_alike_in_any_batch() -> None:
    images, draws = pictures(64), np.random.default_rng(2).random((64, 5))
    augment = AutoAugment("cifar10", 32, 32)
    alone = torch.cat([augment(images[i : i + 1], draws[i : i + 1]) for i in range(64)])
    assert torch.equal(augment(images, draws), alone)


def test_the_images_given_are_left_alone() -> None:
    images = pictures(32)
    before = images.clone()
    AutoAugment("imagenet", 32, 32)(images, np.random.default_rng(3).random((32, 5)))
    assert torch.equal(images, before)


def test_steps_are_done_with_their_probability_and_signs_are_even() -> None:
    policy = POLICIES["cifar10"]
    moves = choose_moves(policy, np.random.default_rng(0).random((100_000, 5)))
    for number, pair in enumerate(policy):
        for place, step in enumerate(pair):
            of_step = [(number * 2 + place) * 2 + negative for negative in (0, 1)]
            positive, negative = ((moves[:, place] == move).sum() for move in of_step)
            assert (positive + negative) / 4000 == pytest.approx(step.probability, abs=0.05)
            assert positive == pytest.approx(negative, abs=250)
    assert len(list_moves(policy, 32, 32)) == 100


def test_a_wrong_policy_and_a_wrong_batch_are_named() -> None:
    with pytest.raises(ValueError, match="policy must be one of cifar10, svhn, imagenet, got 'cifar'"):
        AutoAugment("cifar", 32, 32)
    with pytest.raises(ValueError, match=r"images must be uint8 of shape \(n, channels, 32, 32\), got torch.float32"):
        AutoAugment("cifar10", 32, 32)(torch.zeros(1, 3, 32, 32), np.zeros((1, 5)))
