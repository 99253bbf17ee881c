"""Reports with every part filled, from simulated logits."""

import io
from typing import Any

import numpy as np
from PIL import Image

from longtail.evaluation import (
    Comparison,
    MixtureLayer,
    adjust_logits,
    choose_tau,
    compare_runs,
    evaluate,
    pack_layer,
    scale_temperature,
    shifted_accuracy,
)
from longtail.evaluation.report import PostHoc, Report, Thumbnail
from tests.support.simulated_logits import simulate

STRANGE = [
    "<img src=x onerror=alert(1)>",
    'say "cheese", please',
    "🦜 κακάπο",
    "w" * 200,
    "</script><b>",
    "a & b",
]


def full_report(
    num_classes: int = 100,
    *,
    images_per_class: int = 20,
    classes: list[str] | None = None,
    largest: int = 500,
    replicates: int = 200,
) -> Report:
    imbalance_factor = 256 if num_classes >= 1000 else 100
    test, val = (
        simulate(
            num_classes,
            images_per_class=images_per_class,
            largest=largest,
            imbalance_factor=imbalance_factor,
            seed=seed,
        )
        for seed in (0, 1)
    )
    names = classes or test.classes
    found = evaluate(test.logits, test.target, test.counts, names, replicates=replicates)
    posthoc = []
    for logits, choice in (
        choose_tau(val.logits, val.target, test.logits, test.counts),
        scale_temperature(val.logits, val.target, test.logits),
    ):
        posthoc.append(PostHoc(choice, evaluate(logits, test.target, test.counts, names, replicates=replicates)))
    return Report(
        evaluation=found,
        title=f"compound_bn on {num_classes} classes",
        summary="Compound batch normalization with 4 components, ResNet-32, balanced softmax",
        selection="weights of the last epoch",
        posthoc=posthoc,
        shifted=shifted_accuracy(test.logits, test.target, test.counts, model_prior="train"),
        records=mixture_records(num_classes),
        training=training_rows(60),
        worst_errors=[thumbnail(i, names) for i in range(12)],
        problems=[
            "3 images could not be decoded and were left out: cat/0007.jpg, cat/0031.jpg, oak/2.png.",
            "2 images are in both train and test: see split.csv.",
        ],
        departures=["group_scheme is interleaved, the paper's contiguous", "temperature is channels, the paper's 1.0"],
        config="data: cifar100-lt\nmethod: compound_bn\nmodel: resnet32\nepochs: 60\nbatch_size: 128\n"
        "optim:\n  lr: 0.05\n  momentum: 0.9\n  weight_decay: 0.0005\nseed: 0",
        environment={"python": "3.11.7", "torch": "2.15.0", "device": "CPU, 2 cores", "commit": "344e71b"},
        command="longtail train --config runs/demo/config.yaml",
    )


def comparison(num_classes: int = 40) -> Comparison:
    base = simulate(num_classes, images_per_class=25)
    noise = np.random.default_rng(9).normal(0, 0.5, (3, *base.logits.shape))
    runs = {
        "erm": base.logits + noise[0],
        "erm, seed 1": base.logits + noise[1],
        "balanced_softmax": adjust_logits(base.logits, base.counts, 1.4) + noise[2],
    }
    settings = {
        name: {"method.loss_settings.reduction": "mean", "method.loss": "balanced_softmax" if number == 2 else "ce"}
        for number, name in enumerate(runs)
    }
    settings["erm"].pop("method.loss_settings.reduction")
    return compare_runs(runs, base.target, base.counts, base.classes, replicates=300, settings=settings)


def mixture(num_classes: int, layers: int = 31, components: int = 4) -> list[MixtureLayer]:
    rng = np.random.default_rng(0)
    found = []
    for i in range(layers):
        weights = rng.dirichlet([0.2 if i == 3 else 4.0] * components)
        weights = np.array([0.997, 0.001, 0.001, 0.001]) if i == 3 else weights
        means = rng.normal(0, 0 if i == 7 else 1, (components, 8))
        distances = np.abs(means[:, None] - means[None]).mean(axis=2)
        slope = np.linspace(-1, 1, num_classes)[:, None] * np.linspace(-1.5, 1.5, components)[None]
        usage = np.exp(slope + np.log(weights))
        usage /= usage.sum(axis=1, keepdims=True)
        found.append(
            MixtureLayer(
                f"layer{i // 11 + 1}.{i % 11 // 2}.bn{i % 2 + 1}",
                tuple(float(w) for w in weights),
                tuple(tuple(float(d) for d in row) for row in distances),
                tuple(tuple(round(float(u), 4) for u in row) for row in usage),
            )
        )
    return found


def mixture_records(num_classes: int, records: int = 20) -> list[dict[str, Any]]:
    """Components that separate, up to the layers of `mixture` in the last of 60 epochs.

    As in a run, the sample has images of 256 classes at most.
    """
    last = mixture(num_classes)
    step = -(-num_classes // 256)
    found = []
    for record in range(1, records + 1):
        share = record / records
        layers = []
        for layer in last:
            even = 1 / len(layer.priors)
            rows = (layer.priors, *(row if k % step == 0 else None for k, row in enumerate(layer.usage)))
            blend = [None if row is None else tuple(even + share * (p - even) for p in row) for row in rows]
            distances = tuple(tuple(share * d for d in row) for row in layer.distances)
            layers.append(MixtureLayer(layer.name, blend[0] or (), distances, tuple(blend[1:])))
        found.append({"epoch": 3 * record, "mixture": [pack_layer(layer) for layer in layers]})
    return found


def training_rows(epochs: int) -> list[dict[str, float | None]]:
    rows: list[dict[str, float | None]] = []
    for epoch in range(epochs):
        t = epoch / epochs
        many, medium, few = (top * (1 - np.exp(-rate * t)) for top, rate in ((0.68, 6), (0.45, 4), (0.22, 2.5)))
        rows.append(
            {
                "epoch": epoch,
                "train/loss": float(4.6 * np.exp(-3 * t) + 0.4),
                "train/classification": float(4.6 * np.exp(-3 * t) + 1.3),
                "train/similarity": -0.9,
                "val/loss": float(4.6 * np.exp(-2.2 * t) + 1.1),
                "val/accuracy": float((many + medium + few) / 3 + 0.02),
                "val/accuracy_many": float(many),
                "val/accuracy_medium": float(medium),
                "val/accuracy_few": float(few),
                "lr": float(0.05 * (1 + np.cos(np.pi * t)) / 2),
            }
        )
    return rows


def thumbnail(index: int, names: list[str]) -> Thumbnail:
    y, x = np.mgrid[:64, :64] / 64.0
    phase = index * 0.7
    pixels = np.stack([np.sin(6 * x + phase), np.cos(5 * y + phase), np.sin(4 * (x + y) - phase)], axis=-1)
    file = io.BytesIO()
    Image.fromarray((127 * (1 + pixels)).astype(np.uint8)).save(file, "PNG")
    return Thumbnail(
        file.getvalue(),
        names[-1 - index % len(names)],
        names[index % len(names)],
        0.999 - 0.004 * index,
        f"{index}.png",
    )
