"""Compound batch norm against `nn.BatchNorm2d`, its own eager path, and the paper's form written naively.

    python -m benchmarks.speed.norm_layer

Forward and backward in training, forward in eval, and peak memory, for the shapes of a CIFAR ResNet and one of an
ImageNet ResNet; M = 4, channels_last, and a channels_last gradient, as in a network. The variants take turns within one
run, so that noise of the machine meets them alike; what is reported is ratios of medians, with the quartiles of the
paired ratios as spread. Then the cost against the number of components and of channels.
"""

import argparse
import copy
import dataclasses
import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.record import append_record
from benchmarks.speed import RESULTS
from longtail.nn import READINGS, CompoundBatchNorm2d
from longtail.nn.backends.cpu import backend
from longtail.nn.backends.cpu.library import load
from longtail.nn.functional.naive import naive_compound_batch_norm

SHAPES = [(128, 16, 32, 32), (128, 32, 16, 16), (128, 64, 8, 8), (32, 256, 28, 28)]
COMPONENTS = 4
SWEEP_COMPONENTS = [1, 2, 4, 8]
SWEEP_CHANNELS = [16, 64, 256, 1024, 2048]
SWEEP_ELEMENTS = 1 << 21
NAIVE_EVERY = 5  # the naive form is slow: it takes its turn in every fifth round

Layer = Callable[[Tensor], Tensor]
Shape = tuple[int, int, int, int]


@dataclass
class Timing:
    """The medians of one pass, and what they say of each other."""

    milliseconds: dict[str, float]
    compound_over_batch_norm: float
    quartiles: tuple[float, float]
    eager_over_compound: float | None
    naive_over_compound: float | None


@dataclass
class Row:
    """All figures at one shape."""

    shape: Shape
    forward: Timing
    forward_backward: Timing
    eval_forward: Timing
    peak_bytes: dict[str, int]
    memory_over_batch_norm: float


def eager(layer: Layer) -> Layer:
    """The same layer with the kernels turned off."""

    def run(x: Tensor) -> Tensor:
        with patch.object(backend, "takes", return_value=False):
            return layer(x)

    return run


def make_variants(channels: int, components: int = COMPONENTS) -> dict[str, Layer]:
    """The layers to compare, by name; all in training mode, the mixtures with components apart."""
    torch.manual_seed(0)
    # The dearest gradient, and affine gradients as they come, as in earlier records. The layer's default scales them
    # (`scale_affine`), which took it from 1.4 to 1.6 and from 1.5 to 1.7 times batch norm, forward and with backward.
    reading = dataclasses.replace(READINGS["measured"], detach_responsibilities=False, scale_affine=False)
    compound = CompoundBatchNorm2d(channels, components, reading=reading)
    compound.running_mean *= 0.3
    mixture = (compound.prior.clone(), compound.running_mean.clone(), compound.running_var.clone())
    weight, bias = nn.Parameter(torch.ones(components, channels)), nn.Parameter(torch.zeros(components, channels))
    return {
        "batch_norm": nn.BatchNorm2d(channels),
        "compound": compound,
        "eager": eager(copy.deepcopy(compound)),
        "naive": lambda x: naive_compound_batch_norm(x, *mixture, weight, bias, eps=1e-5)[0],
    }


def time_in_turns(passes: dict[str, Callable[[], object]], rounds: int) -> Timing:
    """Run the passes in turns, so that noise of the machine meets them alike."""
    seconds: dict[str, list[float]] = {variant: [] for variant in passes}
    for turn in range(-2, rounds):  # the first two rounds warm up
        for variant, run in passes.items():
            if variant == "naive" and turn % NAIVE_EVERY:
                continue
            start = time.perf_counter()
            run()
            if turn >= 0:
                seconds[variant].append(time.perf_counter() - start)
    median = {variant: statistics.median(values) for variant, values in seconds.items()}
    paired = [a / b for a, b in zip(seconds["compound"], seconds["batch_norm"], strict=True)]
    low, _, high = statistics.quantiles(paired, n=4)
    return Timing(
        milliseconds={variant: 1e3 * value for variant, value in median.items()},
        compound_over_batch_norm=median["compound"] / median["batch_norm"],
        quartiles=(low, high),
        eager_over_compound=median["eager"] / median["compound"] if "eager" in median else None,
        naive_over_compound=median["naive"] / median["compound"] if "naive" in median else None,
    )


def peak_memory(run: Callable[[], object]) -> int:
    """The most bytes that were allocated at once beyond what was there before, as the profiler saw them."""
    run()
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    assert profiler.profiler is not None
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    now = most = 0
    for event in events:
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def passes(shape: Shape, variants: dict[str, Layer]) -> tuple[dict[str, Callable[[], object]], ...]:
    """The forward pass of each variant while training, forward and backward, and forward in eval without gradient."""
    x = torch.randn(shape).to(memory_format=torch.channels_last).requires_grad_()
    grad = torch.randn(shape).to(memory_format=torch.channels_last)

    def forward_backward(layer: Layer) -> None:
        x.grad = None  # as an activation, which has none before
        layer(x).backward(grad)

    def eval_forward(layer: nn.Module) -> None:
        with torch.inference_mode():
            layer.eval()(x)
        layer.train()

    return (
        {name: partial(layer, x) for name, layer in variants.items()},
        {name: partial(forward_backward, layer) for name, layer in variants.items()},
        {name: partial(eval_forward, layer) for name, layer in variants.items() if isinstance(layer, nn.Module)},
    )


def measure(shape: Shape, rounds: int) -> Row:
    """Time all variants at one shape."""
    forward, forward_backward, eval_forward = passes(shape, make_variants(shape[1]))
    memory = {name: peak_memory(run) for name, run in forward_backward.items()}
    return Row(
        shape=shape,
        forward=time_in_turns(forward, rounds),
        forward_backward=time_in_turns(forward_backward, rounds),
        eval_forward=time_in_turns(eval_forward, rounds),
        peak_bytes=memory,
        memory_over_batch_norm=memory["compound"] / memory["batch_norm"],
    )


def sweep(rounds: int) -> list[dict[str, object]]:
    """Forward and backward against the number of components, and of channels at the same number of elements."""
    cases = [(64, components) for components in SWEEP_COMPONENTS] + [(channels, 4) for channels in SWEEP_CHANNELS]
    results: list[dict[str, object]] = []
    for channels, components in cases:
        shape = (SWEEP_ELEMENTS // channels // 64, channels, 8, 8)
        variants = {name: make_variants(channels, components)[name] for name in ("batch_norm", "compound")}
        timing = time_in_turns(passes(shape, variants)[1], rounds)
        results.append({"channels": channels, "components": components, **asdict(timing)})
        print(f"{f'C = {channels}, M = {components}':>18} {timing.compound_over_batch_norm:17.2f}x")
    return results


def summarise(rows: list[Row]) -> dict[str, float]:
    """The geometric mean over the shapes of each ratio."""
    columns = {
        "forward": [row.forward.compound_over_batch_norm for row in rows],
        "forward_backward": [row.forward_backward.compound_over_batch_norm for row in rows],
        "eval_forward": [row.eval_forward.compound_over_batch_norm for row in rows],
        "eager_over_compound": [row.forward_backward.eager_over_compound or math.nan for row in rows],
        "naive_over_compound": [row.forward_backward.naive_over_compound or math.nan for row in rows],
        "memory": [row.memory_over_batch_norm for row in rows],
    }
    return {name: math.exp(statistics.fmean(map(math.log, column))) for name, column in columns.items()}


def main() -> None:
    """Measure, print the table and append the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="turns of each variant at each shape")
    rounds = parser.parse_args().rounds
    print("compound batch norm over nn.BatchNorm2d, medians, with quartiles; and how much slower the other forms are:")
    print(f"{'shape':>18} {'forward':>9} {'forward+backward':>25} {'eval':>8} {'eager':>11} {'naive':>8} {'memory':>8}")
    rows = []
    for shape in SHAPES:
        row = measure(shape, rounds)
        rows.append(row)
        low, high = row.forward_backward.quartiles
        print(
            f"{'x'.join(map(str, shape)):>18} {row.forward.compound_over_batch_norm:8.2f}x "
            f"{row.forward_backward.compound_over_batch_norm:7.2f}x ({low:5.2f} to {high:5.2f}) "
            f"{row.eval_forward.compound_over_batch_norm:7.2f}x {row.forward_backward.eager_over_compound:10.1f}x "
            f"{row.forward_backward.naive_over_compound:7.1f}x {row.memory_over_batch_norm:7.2f}x"
        )
    mean = summarise(rows)
    print(
        f"{'geometric mean':>18} {mean['forward']:8.2f}x {mean['forward_backward']:7.2f}x {'':16} "
        f"{mean['eval_forward']:7.2f}x {mean['eager_over_compound']:10.1f}x {mean['naive_over_compound']:7.1f}x "
        f"{mean['memory']:7.2f}x"
    )
    swept = sweep(rounds)
    append_record(
        RESULTS,
        labels={"benchmark": "norm_layer"},
        command=f"python -m benchmarks.speed.norm_layer --rounds {rounds}",
        settings={"kernels": load() is not None, "components": COMPONENTS, "rounds": rounds},
        metrics={"geometric_mean": mean, "shapes": [asdict(row) for row in rows], "sweep": swept},
    )


if __name__ == "__main__":
    main()
