"""How longtail is built, in one picture: the way of a batch, and the way of a tensor within the network."""

from benchmarks.figures.canvas import WIDTH, Canvas

BATCH: list[tuple[str, str]] = [
    ("DATA", "your folder, a CSV, a name"),
    ("data", "check, splits, class list"),
    ("loader", "f(seed, epoch, number)"),
    ("mixing, method.prepare", "mixup, CutMix, queues"),
    ("micro-batches", "where memory is short"),
    ("method.forward", "(loss, logits, parts)"),
    ("training", "optimiser, checkpoint"),
    ("evaluation", "intervals, decision"),
    ("run folder", "model, predictions, report"),
]
TENSOR: list[tuple[str, str]] = [
    ("image", "uint8, (3, H, W)"),
    ("preprocessing", "resize, crop, augment"),
    ("backbone", "timm or a CIFAR ResNet"),
    ("norm layer", "plain or compound"),
    ("nn.functional", "the definition is naive.py"),
    ("choose_backend", "CPU, Triton, or torch"),
    ("classifier", "linear, cosine, experts"),
    ("logits", "longtail adjust corrects them"),
    ("loss", "knows the class sizes"),
]


def architecture() -> str:
    """Both ways, side by side."""
    width = (WIDTH - 3 * 14) / 2
    canvas = Canvas(
        590,
        "A batch's way, and a tensor's",
        "Left, the way of a batch: data, loader, mixing, micro-batches, method, training, evaluation, run folder. "
        "Right, the way of a tensor: image, preprocessing, backbone, norm, functional, backend, classifier, logits, "
        "loss.",
    )
    for column, stations in enumerate((BATCH, TENSOR)):
        x = 14 + column * (width + 14)
        y = 44.0
        for number, lines in enumerate(stations):
            if number:
                canvas.arrow(x + width / 2, y, y + 16)
                y += 16
            y = canvas.box(x, y, width, lines)
    return canvas.svg()
