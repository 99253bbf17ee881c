"""The losses written out as loops over rows and classes, from the papers' equations, in Python's floats.

Slow and obvious on purpose. Each takes rows of logits, a list of labels and a list of counts, and returns one
loss a row.
"""

import math
from collections.abc import Callable, Sequence

Rows = Sequence[Sequence[float]]
RowLosses = Callable[[Rows, Sequence[int], Sequence[int]], list[float]]


def log_sum_exp(values: Sequence[float]) -> float:
    largest = max(values)
    total = 0.0
    for value in values:
        total += math.exp(value - largest)
    return largest + math.log(total)


def cross_entropy(logits: Rows, labels: Sequence[int], _counts: Sequence[int]) -> list[float]:
    return [log_sum_exp(row) - row[label] for row, label in zip(logits, labels, strict=True)]


def balanced_softmax(logits: Rows, labels: Sequence[int], counts: Sequence[int]) -> list[float]:
    losses = []
    for row, label in zip(logits, labels, strict=True):
        denominator = 0.0
        for k in range(len(row)):
            denominator += counts[k] * math.exp(row[k])
        losses.append(-math.log(counts[label] * math.exp(row[label]) / denominator))
    return losses


def logit_adjustment(strength: float) -> RowLosses:
    def losses_of(logits: Rows, labels: Sequence[int], counts: Sequence[int]) -> list[float]:
        losses = []
        for row, label in zip(logits, labels, strict=True):
            denominator = 0.0
            for k in range(len(row)):
                denominator += (counts[k] / sum(counts)) ** strength * math.exp(row[k])
            losses.append(-math.log((counts[label] / sum(counts)) ** strength * math.exp(row[label]) / denominator))
        return losses

    return losses_of


def effective_number_weights(counts: Sequence[int], beta: float) -> list[float]:
    inverse = [(1 - beta) / (1 - beta**count) for count in counts]
    return [len(counts) * value / sum(inverse) for value in inverse]


def inverse_frequency_weights(counts: Sequence[int]) -> list[float]:
    inverse = [1 / count for count in counts]
    return [len(counts) * value / sum(inverse) for value in inverse]


def weighted(losses_of: RowLosses, weights_of: Callable[[Sequence[int]], list[float]]) -> RowLosses:
    def weighted_losses_of(logits: Rows, labels: Sequence[int], counts: Sequence[int]) -> list[float]:
        weights = weights_of(counts)
        losses = losses_of(logits, labels, counts)
        return [weights[label] * loss for label, loss in zip(labels, losses, strict=True)]

    return weighted_losses_of


def focal(gamma: float) -> RowLosses:
    def losses_of(logits: Rows, labels: Sequence[int], _counts: Sequence[int]) -> list[float]:
        losses = []
        for row, label in zip(logits, labels, strict=True):
            p = math.exp(row[label] - log_sum_exp(row))
            losses.append(-((1 - p) ** gamma) * math.log(p))
        return losses

    return losses_of


def ldam(max_margin: float, scale: float) -> RowLosses:
    def losses_of(logits: Rows, labels: Sequence[int], counts: Sequence[int]) -> list[float]:
        # The constant C of Δ_k = C / n_k^(1/4) is the one that gives the smallest class the largest margin.
        constant = max_margin / max(1 / count**0.25 for count in counts)
        losses = []
        for row, label in zip(logits, labels, strict=True):
            moved = []
            for k in range(len(row)):
                margin = constant / counts[k] ** 0.25 if k == label else 0.0
                moved.append(scale * (row[k] - margin))
            losses.append(log_sum_exp(moved) - moved[label])
        return losses

    return losses_of


def label_aware_smoothing(head: float, tail: float, shape: str) -> RowLosses:
    def smoothing(count: int, counts: Sequence[int]) -> float:
        share = (count - min(counts)) / (max(counts) - min(counts))
        if shape == "concave":
            return tail + (head - tail) * math.sin(math.pi * share / 2)
        if shape == "linear":
            return tail + (head - tail) * share
        return head + (head - tail) * math.sin(3 * math.pi / 2 + math.pi * share / 2)

    def losses_of(logits: Rows, labels: Sequence[int], counts: Sequence[int]) -> list[float]:
        losses = []
        for row, label in zip(logits, labels, strict=True):
            epsilon = smoothing(counts[label], counts)
            loss = 0.0
            for k in range(len(row)):
                q = 1 - epsilon if k == label else epsilon / (len(row) - 1)
                loss -= q * (row[k] - log_sum_exp(row))
            losses.append(loss)
        return losses

    return losses_of


def vs(stretch: float, shift: float) -> RowLosses:
    def losses_of(logits: Rows, labels: Sequence[int], counts: Sequence[int]) -> list[float]:
        losses = []
        for row, label in zip(logits, labels, strict=True):
            total = 0.0
            for k in range(len(row)):
                delta_k, delta_y = ((counts[c] / max(counts)) ** stretch for c in (k, label))
                iota_k, iota_y = (shift * math.log(counts[c] / sum(counts)) for c in (k, label))
                total += math.exp(iota_k - iota_y) * math.exp(delta_k * row[k] - delta_y * row[label])
            losses.append(math.log(total))
        return losses

    return losses_of


def negative_cosine(predictions: Rows, goals: Rows) -> list[float]:
    losses = []
    for p, g in zip(predictions, goals, strict=True):
        dot = sum(a * b for a, b in zip(p, g, strict=True))
        losses.append(-dot / math.sqrt(sum(a * a for a in p)) / math.sqrt(sum(b * b for b in g)))
    return losses
