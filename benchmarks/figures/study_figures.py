"""Pictures from the studies of compound batch norm, of the methods, and of the promises of `longtail adjust`."""

import math
import statistics

from scipy.stats import t as student

from benchmarks.figures.canvas import Canvas
from benchmarks.record import ROOT, read_records
from benchmarks.studies.compound_bn.evidence import ADJUSTED
from benchmarks.studies.compound_bn.ladder import Setting, read_runs
from benchmarks.studies.methods_learn.table import runs_by_arm

STUDIES = ROOT / "benchmarks" / "studies"
CIFAR10 = Setting("cifar10-lt-fifth-16px:100", "resnet8", 400, 128, 0.1, 0.001)
STRENGTH = "0.3"  # of the adjustment of the baseline's logits: the best on held-out images


def gain_of_compound_bn() -> str:
    """What each row of the paper's ladder gains over batch norm, with its interval."""
    rows = read_runs()[CIFAR10]
    base = {seed: 100 * run["metrics"]["accuracy"]["balanced"] for seed, run in rows["baseline", "measured"].items()}
    found = {
        name: _gains(
            {s: 100 * run["metrics"]["accuracy"]["balanced"] for s, run in rows[row, "measured"].items()}, base
        )
        for row, name in (("cbn", "its norm alone"), ("cbn_sbn", "with split path"), ("cbn_sbn_dpl", "all of it"))
    }
    adjusted = read_runs(ADJUSTED)[CIFAR10]["baseline", "measured"]
    found["adjusted logits"] = _gains(
        {seed: 100 * run["metrics"]["balanced"][STRENGTH] for seed, run in adjusted.items()},
        {seed: 100 * run["metrics"]["balanced"]["0.0"] for seed, run in adjusted.items()},
    )
    canvas = Canvas(
        258,
        "Gain over a tuned batch norm",
        "Differences in balanced accuracy to batch norm with 95 % intervals: all rows of compound batch norm have "
        "zero in their interval; batch norm with adjusted logits is clearly above it.",
    )
    canvas.text(16, 48, "a fifth of CIFAR-10-LT, points of balanced accuracy", kind="quiet")
    zero, unit = 232.0, 56.0
    for mark in (-1, 0, 1, 2, 3):
        x = zero + unit * mark
        canvas.rule(x, 62, x, 206, "rule" if mark else "stroke grey")
        canvas.text(x, 226, f"{mark:+d}" if mark else "0", anchor="middle", kind="quiet")
    for place, (name, (mean, half, seeds)) in enumerate(found.items()):
        y = 82 + 36 * place
        kind = "plain" if name == "adjusted logits" else "ours"
        canvas.text(16, y, name)
        canvas.text(16, y + 15, "no training" if kind == "plain" else f"{seeds} seeds", kind="quiet")
        canvas.rule(zero + unit * (mean - half), y, zero + unit * (mean + half), y, f"stroke {kind}")
        canvas.dot(zero + unit * mean, y, kind, radius=5)
        canvas.text(zero + unit * (mean + half) + 8, y + 4, f"{mean:+.1f}", kind=kind)
    canvas.text(16, 246, "the paper has +2.3 for its norm alone, and +3.1 for all of it", kind="quiet")
    return canvas.svg()


def _gains(values: dict[int, float], base: dict[int, float]) -> tuple[float, float, int]:
    """The mean difference, half of its 95 % interval by Student's t, and the number of seeds."""
    pairs = [values[seed] - base[seed] for seed in sorted(values.keys() & base.keys())]
    half = student.ppf(0.975, len(pairs) - 1) * statistics.stdev(pairs) / math.sqrt(len(pairs))
    return statistics.fmean(pairs), float(half), len(pairs)


def tuning_moves_more() -> str:
    """What tuning the baseline, another seed and the method change."""
    tuned = Setting("cifar10-lt-fifth-16px-val:100", "resnet8", 200, 128, 0.1, 0.001)
    runs = read_runs()
    same = {s: runs[s] for s in runs if s._replace(lr=0, weight_decay=0) == tuned._replace(lr=0, weight_decay=0)}
    first = {s: 100 * r["baseline", "measured"][0]["metrics"]["accuracy"]["balanced"] for s, r in same.items()}
    seeds = [100 * run["metrics"]["accuracy"]["balanced"] for run in runs[CIFAR10]["baseline", "measured"].values()]
    mean = _gains(
        {
            seed: 100 * run["metrics"]["accuracy"]["balanced"]
            for seed, run in runs[CIFAR10]["cbn_sbn_dpl", "measured"].items()
        },
        {
            seed: 100 * run["metrics"]["accuracy"]["balanced"]
            for seed, run in runs[CIFAR10]["baseline", "measured"].items()
        },
    )[0]
    spans = {
        "rate and decay": (
            max(first.values()) - min(first.values()),
            f"{len(first)} settings of one baseline",
        ),
        "the seed": (max(seeds) - min(seeds), f"{len(seeds)} seeds of one baseline"),
        "the method": (mean, "all of compound batch norm, mean of seeds"),
    }
    canvas = Canvas(
        214,
        "What moves a published number",
        "Tuning learning rate and weight decay of the baseline moves balanced accuracy by over four points, another "
        "seed by about as much, and the method by less than one.",
    )
    canvas.text(16, 48, "a fifth of CIFAR-10-LT, points of balanced accuracy", kind="quiet")
    for place, (name, (span, about)) in enumerate(spans.items()):
        y = 64 + 50 * place
        kind = "ours" if name == "the method" else "plain"
        canvas.bar(168, y, 48 * span, 20, kind)
        canvas.text(160, y + 15, name, anchor="end")
        canvas.text(176 + 48 * span, y + 15, f"{span:.1f}", kind=kind)
        canvas.text(168, y + 36, about, kind="quiet")
    return canvas.svg()


def methods_beside_cross_entropy() -> str:
    """All methods and presets on the digits."""
    arms = runs_by_arm(read_records(STUDIES / "methods_learn" / "results.jsonl"))
    means = {arm: statistics.fmean(100 * m["balanced"] for m in runs.values()) for arm, runs in arms.items()}
    order = sorted(means, key=lambda arm: -means[arm])
    half = (len(order) + 1) // 2
    canvas = Canvas(
        74 + 17.5 * half,
        "Every method on the digits, three seeds",
        "Balanced accuracy of all methods and presets after 120 epochs on the embedded digits, "
        "a line for cross-entropy; most are above it.",
    )
    canvas.text(16, 48, "balanced accuracy, from scratch; the line is cross-entropy", kind="quiet")
    for column, names in enumerate((order[:half], order[half:])):
        left = 134 + 238 * column
        for place, arm in enumerate(names):
            y = 66 + 17.5 * place
            kind = "plain" if means[arm] < means["cross_entropy"] else "ours"
            canvas.text(left - 6, y + 4, arm, anchor="end", kind="plain" if arm == "cross_entropy" else "")
            canvas.bar(left, y - 5, 0.72 * means[arm], 10, kind)
            canvas.text(left + 0.72 * means[arm] + 5, y + 4, f"{means[arm]:.0f}", kind="quiet")
        x = left + 0.72 * means["cross_entropy"]
        canvas.rule(x, 56, x, 60 + 17.5 * len(names), "stroke grey")
    return canvas.svg()


def promises_held() -> str:
    """What `longtail adjust` promised beside what held on test images."""
    canvas = Canvas(
        364,
        "Promised on validation, held on test",
        "Each promise of longtail adjust, the promised number against the one on test images: most lie on the "
        "diagonal; thresholds for a precision that few images reach lie far from it.",
    )
    canvas.key(16, 50, [("ours", "accuracy"), ("plain", "precision of a threshold")])
    left, right, top, bottom = 70, 330, 66, 306
    canvas.percent_axis(left, right, top, bottom)
    canvas.rule(left, bottom, right, top, "stroke grey dashed")
    for record in read_records(STUDIES / "promises" / "results.jsonl"):
        threshold = "--precision" in record["way"]
        metric = "precision" if threshold else "accuracy"
        promised = record["metrics"]["validation"]["promised"][metric]["value"]
        held = record["metrics"]["test"]["held"][metric]["value"]
        kind = "plain" if threshold else "ours"
        canvas.dot(left + (right - left) * promised, bottom - (bottom - top) * held, kind, ring=threshold)
    for mark in (0, 50, 100):
        canvas.text(left + (right - left) * mark / 100, bottom + 20, f"{mark} %", anchor="middle", kind="quiet")
    canvas.text((left + right) / 2, 350, "promised", anchor="middle", kind="quiet")
    canvas.text(right + 14, top + 12, "held", kind="quiet")
    return canvas.svg()
