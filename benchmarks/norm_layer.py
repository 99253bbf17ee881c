"""Compound batch norm against `nn.BatchNorm2d` and against the paper's form written naively.

    python -m benchmarks.norm_layer

Forward, forward and backward, and peak memory, for the shapes of a CIFAR ResNet and one of an ImageNet ResNet; M = 4,
channels_last, and a channels_last gradient, as in a network. The variants take turns within one run, so that noise of
the machine meets them alike; what is reported is ratios of medians, with the quartiles of the paired ratios as spread.
"""

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks._record import write_result
from longtail.nn import CompoundBatchNorm2d
from tests.reference.compound_batch_norm import naive_compound_batch_norm

SHAPES = [(128, 16, 32, 32), (128, 32, 16, 16), (128, 64, 8, 8), (32, 256, 28, 28)]
COMPONENTS = 4
NAIVE_EVERY = 5  # the naive form is slow: it takes its turn in every fifth round

Layer = Callable[[Tensor], Tensor]


@dataclass
class Timing:
    """The medians of one pass, and what they say of each other."""

    milliseconds: dict[str, float]
    compound_over_batch_norm: float
    quartiles: tuple[float, float]
    naive_over_compound: float


@dataclass
class Row:
    """All figures at one shape."""

    shape: tuple[int, int, int, int]
    forward: Timing
    forward_backward: Timing
    peak_bytes: dict[str, int]
    memory_over_batch_norm: float


def make_variants(channels: int) -> dict[str, Layer]:
    """The layers to compare, by name; all in training mode, the mixtures with components apart."""
    torch.manual_seed(0)
    compound = CompoundBatchNorm2d(channels, COMPONENTS, component_init="random")
    compound.running_mean *= 0.3
    mixture = (compound.prior.clone(), compound.running_mean.clone(), compound.running_var.clone())
    weight, bias = nn.Parameter(torch.ones(COMPONENTS, channels)), nn.Parameter(torch.zeros(COMPONENTS, channels))
    return {
        "batch_norm": nn.BatchNorm2d(channels),
        "compound": compound,
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
        naive_over_compound=median["naive"] / median["compound"],
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


def measure(shape: tuple[int, int, int, int], rounds: int) -> Row:
    """Time all variants at one shape."""
    x = torch.randn(shape).to(memory_format=torch.channels_last).requires_grad_()
    grad = torch.randn(shape).to(memory_format=torch.channels_last)

    def forward(layer: Layer) -> Callable[[], object]:
        return lambda: layer(x)

    def forward_backward(layer: Layer) -> Callable[[], object]:
        def run() -> None:
            x.grad = None  # as an activation, which has none before
            layer(x).backward(grad)

        return run

    variants = make_variants(shape[1])
    both = {name: forward_backward(layer) for name, layer in variants.items()}
    memory = {name: peak_memory(run) for name, run in both.items()}
    return Row(
        shape=shape,
        forward=time_in_turns({name: forward(layer) for name, layer in variants.items()}, rounds),
        forward_backward=time_in_turns(both, rounds),
        peak_bytes=memory,
        memory_over_batch_norm=memory["compound"] / memory["batch_norm"],
    )


def summarise(rows: list[Row]) -> dict[str, float]:
    """The geometric mean over the shapes of each ratio."""
    columns = {
        "forward": [row.forward.compound_over_batch_norm for row in rows],
        "forward_backward": [row.forward_backward.compound_over_batch_norm for row in rows],
        "naive_over_compound": [row.forward_backward.naive_over_compound for row in rows],
        "memory": [row.memory_over_batch_norm for row in rows],
    }
    return {name: math.exp(statistics.fmean(map(math.log, column))) for name, column in columns.items()}


def main() -> None:
    """Measure, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="turns of each variant at each shape")
    rounds = parser.parse_args().rounds
    print("compound batch norm over nn.BatchNorm2d, median and quartiles:")
    print(f"{'shape':>18} {'forward':>9} {'forward+backward':>25} {'faster than naive':>18} {'peak memory':>12}")
    rows = []
    for shape in SHAPES:
        row = measure(shape, rounds)
        rows.append(row)
        low, high = row.forward_backward.quartiles
        print(
            f"{'x'.join(map(str, shape)):>18} {row.forward.compound_over_batch_norm:8.2f}x "
            f"{row.forward_backward.compound_over_batch_norm:7.2f}x ({low:5.2f} to {high:5.2f}) "
            f"{row.forward_backward.naive_over_compound:17.1f}x {row.memory_over_batch_norm:11.2f}x"
        )
    mean = summarise(rows)
    print(
        f"{'geometric mean':>18} {mean['forward']:8.2f}x {mean['forward_backward']:7.2f}x {'':16} "
        f"{mean['naive_over_compound']:17.1f}x {mean['memory']:11.2f}x"
    )
    path = write_result(
        "norm_layer",
        {"components": COMPONENTS, "rounds": rounds, "geometric_mean": mean, "shapes": [asdict(row) for row in rows]},
        command=f"python -m benchmarks.norm_layer --rounds {rounds}",
    )
    print(f"written to {path.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
