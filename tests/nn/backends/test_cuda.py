"""The Triton passes in Triton's interpreter, on the CPU, against the eager backend: outputs, gradients and statistics.

The interpreter has to be chosen before Triton is imported, so the comparison runs in a process of its own.
"""

import importlib.util
import os
import subprocess
import sys

import pytest

COMPARISON = """
import torch
from longtail.nn.backends import cuda
from longtail.nn.backends.base import Options
from longtail.nn.backends.cuda import CudaBackend
from longtail.nn.backends.choose_backend import MixtureNorm
from longtail.nn.backends.eager import EagerBackend

cuda._CHUNK = 32  # so that few rows make several chunks: the interpreter is slow

torch.manual_seed(0)

def step(backend, x, groups, statistics, affine, options):
    x, affine = x.detach().requires_grad_(), [t.clone().requires_grad_() for t in affine]
    result = MixtureNorm.apply(backend, x, groups, *statistics, *affine, options, 0.3, None)
    y, *new = result if options.training else (result,)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(1)))
    for layout in (torch.contiguous_format, torch.channels_last):
        assert {t.is_contiguous(memory_format=layout) for t in (y, x.grad)} == {x.is_contiguous(memory_format=layout)}
    return [y.detach(), x.grad, *(t.grad for t in affine), *new]

cases = [  # shape, components, training, statistics, split path, detached
    ((37, 3, 1, 1), 1, True, "batch", False, False),
    ((37, 3, 1, 1), 3, False, "running", False, False),
    ((2, 70, 5, 4), 3, True, "batch", False, False),
    ((2, 5, 5, 4), 8, True, "running", False, False),
    ((2, 5, 5, 4), 3, True, "batch", False, True),
    ((2, 5, 5, 4), 3, True, "updated", False, False),
    ((5, 6, 3, 3), 4, True, "batch", True, True),
    ((5, 6, 3, 3), 4, True, "updated", True, True),
]
for shape, components, training, source, split, detach in cases:
    x = torch.randn(shape) * 2 + 1
    if shape[1] != 5:
        x = x.to(memory_format=torch.channels_last)
    rows = (components, shape[1])
    spread = shape[1] ** -0.5
    statistics = torch.rand(components).softmax(0), torch.randn(rows) * spread, 2 + torch.rand(rows) * spread
    affine = torch.rand(rows) + 0.5, torch.randn(rows)
    groups = torch.arange(shape[0]).remainder(components - 1) if split else None  # the last group is empty
    options = Options(training, source, 1e-5, detach, 2.0, source != "updated")
    arguments = (x, groups, statistics, affine, options)
    for ours, expected in zip(step(CudaBackend, *arguments), step(EagerBackend, *arguments), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
print("equal")
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_equals_the_eager_backend_at_odd_sizes_in_the_interpreter() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", COMPARISON], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "equal", done.stderr
