"""What compound batch norm costs a whole network: ResNet-32, batch 128, 32 x 32 images, M = 4.

    python -m benchmarks.speed.resnet_step

A training step (forward, cross entropy, backward, SGD), inference, a full dual-path step, and the peak memory of a
training step, each against the same network with `nn.BatchNorm2d`. The networks take turns within one run, so that
noise of the machine meets them alike.

The dual-path step is the method's arithmetic with nothing around it: weak and strong view of each image through both
paths, the weak views without gradient, one loss, one backward pass. In forward passes of the network (a backward pass
counts for two) that is 8 against 3 of the plain step.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.record import append_record
from benchmarks.speed import RESULTS
from benchmarks.speed.norm_layer import peak_memory
from longtail.models.cifar_resnet import CifarResNet
from longtail.nn import class_groups, convert_batch_norm, split_path
from longtail.training.memory import keep_freed_memory

BATCH, CLASSES, COMPONENTS = 128, 10, 4

Run = Callable[[], object]


def make_passes() -> dict[str, Run]:
    """The passes to time, by name; all on the same images."""
    torch.manual_seed(0)
    images = [torch.randn(BATCH, 3, 32, 32).to(memory_format=torch.channels_last) for _ in range(2)]
    target = torch.randint(CLASSES, (BATCH,))
    groups = class_groups(CLASSES, COMPONENTS)[target]
    plain = CifarResNet(32, CLASSES).to(memory_format=torch.channels_last)
    compound = convert_batch_norm(CifarResNet(32, CLASSES), components=COMPONENTS)
    compound = compound.to(memory_format=torch.channels_last)

    def train(model: nn.Module, loss: Callable[[], Tensor]) -> Run:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=2e-4)

        def step() -> None:
            model.train()
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()

        return step

    def infer(model: nn.Module) -> Run:
        def run() -> None:
            model.eval()
            with torch.inference_mode():
                model(images[0])

        return run

    def dual_path_loss() -> Tensor:
        weak, strong = images
        with torch.no_grad():
            compound_weak = compound(weak)
            with split_path(compound, groups):
                split_weak = compound(weak)
        compound_strong = compound(strong)
        with split_path(compound, groups):
            split_strong = compound(strong)
        likeness = F.cosine_similarity(compound_strong, split_weak) + F.cosine_similarity(split_strong, compound_weak)
        return F.cross_entropy(compound_strong, target) - likeness.mean()

    return {
        "batch_norm_step": train(plain, lambda: F.cross_entropy(plain(images[0]), target)),
        "compound_step": train(compound, lambda: F.cross_entropy(compound(images[0]), target)),
        "dual_path_step": train(compound, dual_path_loss),
        "batch_norm_inference": infer(plain),
        "compound_inference": infer(compound),
    }


def main() -> None:
    """Measure, print the ratios and append the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25, help="turns of each pass")
    rounds = parser.parse_args().rounds
    keep_freed_memory()  # as a run does
    passes = make_passes()
    memory = {name: peak_memory(passes[name]) for name in ("batch_norm_step", "compound_step")}
    seconds: dict[str, list[float]] = {name: [] for name in passes}
    for turn in range(-1, rounds):  # the first round warms up
        for name, run in passes.items():
            start = time.perf_counter()
            run()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    ratios: dict[str, dict[str, object]] = {}
    for name, reference in (
        ("compound_step", "batch_norm_step"),
        ("dual_path_step", "batch_norm_step"),
        ("compound_inference", "batch_norm_inference"),
    ):
        low, _, high = statistics.quantiles(
            [a / b for a, b in zip(seconds[name], seconds[reference], strict=True)], n=4
        )
        ratio = median[name] / median[reference]
        ratios[name] = {"over": reference, "ratio": ratio, "quartiles": (low, high)}
        print(f"{name:>20} over {reference:<22} {ratio:5.2f}x ({low:.2f} to {high:.2f}), {1e3 * median[name]:.0f} ms")
    memory_ratio = memory["compound_step"] / memory["batch_norm_step"]
    print(f"{'peak memory':>20} over {'batch_norm_step':<22} {memory_ratio:5.2f}x")
    append_record(
        RESULTS,
        labels={"benchmark": "resnet_step"},
        command=f"python -m benchmarks.speed.resnet_step --rounds {rounds}",
        settings={"model": "ResNet-32", "batch": BATCH, "components": COMPONENTS, "rounds": rounds},
        metrics={
            "milliseconds": {name: 1e3 * value for name, value in median.items()},
            "ratios": ratios,
            "peak_bytes": memory,
            "memory_over_batch_norm": memory_ratio,
        },
    )


if __name__ == "__main__":
    main()
