"""The accuracies of a split as a row of metrics.csv."""

import numpy as np
from numpy.typing import NDArray

from longtail.data import LongTailData
from longtail.data.splits import SplitName
from longtail.evaluation.confusion_matrix import confusion_matrix, mean_over_support, recall_per_class
from longtail.training.callback import Row


def metrics_row(split: SplitName, logits: NDArray[np.float32], data: LongTailData) -> Row:
    """Plain and balanced accuracy, and that of each group; a class without images in the split does not count."""
    confusion = confusion_matrix(data.split(split).targets, logits.argmax(1), len(data.classes))
    recall = recall_per_class(confusion)
    row: Row = {
        f"{split}/accuracy": float(np.trace(confusion) / confusion.sum()),
        f"{split}/balanced": mean_over_support(recall),
    }
    for group, classes in data.class_counts.groups().items():
        row[f"{split}/accuracy_{group}"] = mean_over_support(recall[classes])
    return row
