"""The Triton passes in Triton's interpreter, on the CPU, against the eager path: outputs, gradients and statistics.

The interpreter has to be chosen before Triton is imported, so the comparison runs in a process of its own.
"""

import importlib.util
import os
import subprocess
import sys

import pytest

COMPARISON = """
import torch
from longtail.nn.functional.mixture_norm import MixtureNorm, Passes
from longtail.nn.functional.options import Options
from longtail.nn.kernels import triton_mixture_norm
from longtail.nn.kernels.triton_mixture_norm import TritonPasses

triton_mixture_norm._CHUNK = 32  # so that few rows make several chunks: the interpreter is slow

torch.manual_seed(0)

def step(passes, x, assigned, statistics, affine, options):
    x, affine = x.detach().requires_grad_(), [t.clone().requires_grad_() for t in affine]
    y, mass, mean, var = MixtureNorm.apply(x, *affine, assigned, *statistics, options, passes)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(1)))
    for layout in (torch.contiguous_format, torch.channels_last):
        assert {t.is_contiguous(memory_format=layout) for t in (y, x.grad)} == {x.is_contiguous(memory_format=layout)}
    moments = (mass, mean, var) if options.training else ()
    return [y.detach(), x.grad, *(t.grad for t in affine), *moments]

cases = [  # shape, components, training, batch statistics, split path, detached
    ((37, 3, 1, 1), 1, True, True, False, False),
    ((37, 3, 1, 1), 3, False, False, False, False),
    ((2, 70, 5, 4), 3, True, True, False, False),
    ((2, 5, 5, 4), 8, True, False, False, False),
    ((2, 5, 5, 4), 3, True, True, False, True),
    ((5, 6, 3, 3), 4, True, True, True, True),
]
for shape, components, training, batch, split, detach in cases:
    x = torch.randn(shape) * 2 + 1
    if shape[1] != 5:
        x = x.to(memory_format=torch.channels_last)
    rows = (components, shape[1])
    statistics = torch.rand(components).softmax(0), torch.randn(rows), torch.rand(rows) + 0.5
    affine = torch.rand(rows) + 0.5, torch.randn(rows)
    assigned = None
    if split:
        groups = torch.arange(shape[0]).remainder(components - 1)  # the last group is empty
        members = groups == torch.arange(components)[:, None]
        assigned = members[:, :, None].expand(-1, -1, shape[2] * shape[3]).flatten(1)
    options = Options(training, batch, 1e-5, float(shape[1]), detach, 2.0, False, None)
    arguments = (x, assigned, statistics, affine, options)
    for ours, expected in zip(step(TritonPasses, *arguments), step(Passes, *arguments), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
print("equal")
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_equals_the_eager_path_at_odd_sizes_in_the_interpreter() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", COMPARISON], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "equal", done.stderr
