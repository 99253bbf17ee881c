"""AutoAugment on whole batches: images that need the same kind of operation are processed together.

Each image gets one of the policy's 25 pairs of steps at random, and each of the two steps is applied with its
probability; the sign of a signed magnitude is random too. Image by image, almost all of the time would go into
calls. Here the 14 operations are seven batched functions (`operations`), so a batch of any size takes at most 14
calls. The random numbers of an image are its own, so the grouping changes nothing.

Cubuk et al., "AutoAugment: Learning augmentation strategies from data", CVPR 2019.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.data.transforms.operations import OPERATIONS, BatchFunction
from longtail.data.transforms.policies import POLICIES, Policy

LEAVE = -1


class Move(NamedTuple):
    """An operation at a signed magnitude, as it is applied to an image."""

    operation: str
    magnitude: float


def choose_moves(policy: Policy, draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """The two moves of each image, as indices into `list_moves`; `LEAVE` for none.

    Args:
        policy: the pairs of steps.
        draws: five uniform numbers per image: pair, first applied?, first sign, second applied?, second sign.

    Returns:
        Shape (images, 2).
    """
    probability = np.array([[step.probability for step in pair] for pair in policy])
    pair = (draws[:, 0] * len(policy)).astype(np.int64)
    done = draws[:, [1, 3]] < probability[pair]
    negative = draws[:, [2, 4]] < 0.5
    move = (pair[:, None] * 2 + np.arange(2)) * 2 + negative
    return np.where(done, move, LEAVE)


def list_moves(policy: Policy, height: int, width: int) -> list[Move]:
    """Every move of a policy, numbered by (pair, step, negative?)."""
    moves = []
    for step in (step for pair in policy for step in pair):
        operation = OPERATIONS[step.operation]
        magnitude = operation.magnitude(step.level or 0, height, width)
        moves += [
            Move(step.operation, magnitude),
            Move(step.operation, -magnitude if operation.signed else magnitude),
        ]
    return moves


class AutoAugment:
    """Apply a policy to batches of one image size.

    Args:
        policy: "cifar10", "svhn", "imagenet", or your own pairs of steps.
        height: of the images, in pixels.
        width: of the images, in pixels.
    """

    DRAWS = 5

    def __init__(self, policy: str | Policy, height: int, width: int) -> None:
        if isinstance(policy, str) and policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
        self.policy = POLICIES[policy] if isinstance(policy, str) else policy
        self.size = (height, width)
        self._prepare(list_moves(self.policy, height, width))

    def _prepare(self, moves: list[Move]) -> None:
        functions = list(dict.fromkeys(OPERATIONS[move.operation].run for move in moves))
        rows: dict[BatchFunction, dict[Move, Tensor]] = {function: {} for function in functions}
        self._function, self._row = np.zeros((2, len(moves)), np.int64)
        for number, move in enumerate(moves):
            operation = OPERATIONS[move.operation]
            known = rows[operation.run]
            if move not in known:
                known[move] = operation.parameters(move.magnitude, *self.size)
            self._function[number] = functions.index(operation.run)
            self._row[number] = list(known).index(move)
        self._parameters = [(function, torch.stack(list(rows[function].values()))) for function in functions]

    def __call__(self, images: Tensor, draws: NDArray[np.float64]) -> Tensor:
        """Augment a uint8 batch of shape (n, channels, height, width) with `DRAWS` uniform numbers per image."""
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[2:] != self.size:
            raise ValueError(
                f"images must be uint8 of shape (n, channels, {self.size[0]}, {self.size[1]}), "
                f"got {images.dtype} of shape {tuple(images.shape)}"
            )
        images = images.clone(memory_format=torch.contiguous_format)
        for moves in choose_moves(self.policy, draws).T:
            self._move(images, moves)
        return images

    def _move(self, images: Tensor, moves: NDArray[np.int64]) -> None:
        # NumPy copies whole images in and out; torch's index_copy_ goes byte by byte.
        pixels = images.numpy()
        function_of = np.where(moves == LEAVE, LEAVE, self._function[moves])
        for number, (function, parameters) in enumerate(self._parameters):
            chosen = np.flatnonzero(function_of == number)
            if len(chosen):
                rows = torch.from_numpy(self._row[moves[chosen]])
                moved = function(torch.from_numpy(pixels[chosen]), parameters.index_select(0, rows))
                pixels[chosen] = moved.numpy()
