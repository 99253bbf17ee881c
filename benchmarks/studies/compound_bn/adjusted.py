"""The accuracy of finished runs after post-hoc logit adjustment, which costs nothing: does a method gain more?

    python -m benchmarks.studies.compound_bn.adjusted runs/ladder/NAME ...

For each strength τ the balanced accuracy of argmax_k z_k − τ log π_k on the run's own test split (held-out training
images in a `-val` set), from the logits of its predictions; no training, no model. `evidence` makes the table.
"""

from benchmarks.studies.compound_bn.finished_runs import record_runs
from longtail.evaluation import adjust_logits
from longtail.evaluation.confusion_matrix import balanced_accuracy, confusion_matrix
from longtail.training.run_folder.read import FinishedRun, open_run

STRENGTHS = tuple(number / 10 for number in range(7))


def adjusted(run: FinishedRun) -> dict[str, float]:
    """Balanced accuracy by strength."""
    seen = run.predictions()
    found = {}
    for strength in STRENGTHS:
        prediction = adjust_logits(seen.logits, run.class_counts, strength).argmax(1)
        value = balanced_accuracy(confusion_matrix(seen.target, prediction, len(run.classes)))
        assert value is not None
        found[f"{strength:.1f}"] = value
    return found


def main() -> None:
    """Measure runs and append their records."""
    record_runs("adjusted", __doc__, lambda run: {"balanced": adjusted(open_run(run))})


if __name__ == "__main__":
    main()
