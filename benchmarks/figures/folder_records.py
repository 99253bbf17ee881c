"""What the figures take from the study of folders: recall of each class, as the mean over the seeds of a peer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.record import ROOT, read_records
from benchmarks.studies.folders.score import Floats, class_means, labels_of
from longtail.class_counts import ClassCounts

RECORDS = ROOT / "benchmarks" / "studies" / "folders" / "results.jsonl"
NAMES = {
    "longtail": "longtail",
    "timm": "plain fine-tuning",
    "linear_probe_balanced": "logistic regression",
    "fastai": "fastai",
}
KINDS = {"longtail": "ours", "timm": "plain", "linear_probe_balanced": "third", "fastai": "grey"}


class FolderRecords:
    """The runs of a peer on a folder, all seeds.

    Args:
        folder: such as "plants".
        peer: a key of `PEERS` of the study.
        records: all lines of the study; those of the repository if there are none.
    """

    def __init__(self, folder: str, peer: str, records: Sequence[dict[str, Any]] | None = None) -> None:
        found = read_records(RECORDS) if records is None else records
        runs = [run for run in found if run["set"] == folder and run["peer"] == peer]
        if not runs:
            raise ValueError(f"the study must have runs of {peer} on {folder}, got none; benchmarks/studies/folders")
        self.class_counts: list[int] = runs[0]["class_counts"]
        self.test_counts: list[int] = runs[0]["test_counts"]
        self.groups = {str(name): list(classes) for name, classes in ClassCounts(self.class_counts).groups().items()}
        self.labels = labels_of(self.test_counts)
        self.predictions = [np.asarray(run["predictions"]) for run in runs]

    def recall(self) -> Floats:
        """Of each class, the mean over seeds."""
        right = np.mean([predicted == self.labels for predicted in self.predictions], axis=0)
        return class_means(right, self.test_counts)

    def mean_recall(self, group: str) -> float:
        """Of a group of classes."""
        return float(self.recall()[self.groups[group]].mean())

    def lost_to(self, group: str, *, among: str) -> float:
        """The share of images of the classes `among` that are given to classes of `group`, each class alike."""
        given = np.mean([np.isin(predicted, self.groups[group]) for predicted in self.predictions], axis=0)
        return float(class_means(given, self.test_counts)[self.groups[among]].mean())

    def never_right(self) -> float:
        """The number of classes of which no test image is right, mean over seeds."""
        counts = [
            (class_means((predicted == self.labels).astype(float), self.test_counts) == 0).sum()
            for predicted in self.predictions
        ]
        return float(np.mean(counts))

    def as_in_training(self) -> float:
        """Accuracy if test images were as frequent as training images."""
        return float(np.average(self.recall(), weights=self.class_counts))
