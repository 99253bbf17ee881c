"""Pictures from the study of folders: what happens to classes with few images."""

import itertools

import numpy as np

from benchmarks.figures.canvas import Canvas
from benchmarks.figures.folder_records import KINDS, NAMES, FolderRecords

FOLDERS = {"plants": "plants", "groceries": "groceries", "cifar100-lt": "CIFAR-100-LT", "digits-lt": "digits"}


def recall_by_class() -> str:
    """Each class of plants: its training images, and its recall by plain fine-tuning and by longtail."""
    ours, plain = FolderRecords("plants", "longtail"), FolderRecords("plants", "timm")
    order = sorted(range(len(ours.class_counts)), key=lambda k: -ours.class_counts[k])
    canvas = Canvas(
        350,
        "38 plants: the rare ones need not be lost",
        "Recall of each class of plants, from 400 training images to 4: plain fine-tuning falls to almost nothing "
        "for rare classes, longtail stays near 90 %.",
    )
    left, right = 56, 468
    step = (right - left) / len(order)
    canvas.text(16, 50, "Training images of each class", kind="quiet")
    largest = max(ours.class_counts)
    for place, k in enumerate(order):
        height = 62 * ours.class_counts[k] / largest
        canvas.bar(left + place * step + 1, 124 - height, step - 2, height, "grey")
    canvas.rule(left, 124, right, 124)
    canvas.text(left - 6, 72, str(largest), anchor="end", kind="quiet")
    canvas.text(right, 118, f"{min(ours.class_counts)} images", anchor="end", kind="quiet")
    canvas.text(16, 150, "Test images that are right", kind="quiet")
    canvas.key(196, 150, [(KINDS[peer], NAMES[peer]) for peer in ("timm", "longtail")])
    top, bottom = 166, 306
    canvas.percent_axis(left, right, top, bottom)
    recalls = {peer: found.recall() for peer, found in (("timm", plain), ("longtail", ours))}
    for place, k in enumerate(order):
        x = left + (place + 0.5) * step
        heights = {peer: bottom - (bottom - top) * recall[k] for peer, recall in recalls.items()}
        canvas.rule(x, heights["timm"], x, heights["longtail"])
        canvas.dot(x, heights["timm"], KINDS["timm"], ring=True, radius=3.2)
        canvas.dot(x, heights["longtail"], KINDS["longtail"], radius=3.6)
    canvas.text(left, 336, "classes, most images first; same weights, 3 minutes of one core", kind="quiet")
    return canvas.svg()


def recall_by_images() -> str:
    """Recall against the number of training images, in two folders."""
    canvas = Canvas(
        292,
        "How many images does a class need?",
        "Recall against training images of a class: with longtail a handful is enough on plants, and on CIFAR-100-LT "
        "each doubling helps; plain fine-tuning needs a hundred.",
    )
    canvas.key(16, 50, [(KINDS[peer], NAMES[peer]) for peer in ("longtail", "linear_probe_balanced", "timm")])
    edges = [1, 10, 20, 50, 100, 1000]
    names = ["<10", "10+", "20+", "50+", "100+"]
    for number, folder in enumerate(("plants", "cifar100-lt")):
        left = 58 + 214 * number
        right, top, bottom = left + 190, 88, 240
        canvas.text(left, 76, FOLDERS[folder], kind="quiet")
        if number == 0:
            canvas.percent_axis(left, right, top, bottom)
        else:
            for mark in (0, 50, 100):
                y = bottom - (bottom - top) * mark / 100
                canvas.rule(left, y, right, y)
        for peer in ("timm", "linear_probe_balanced", "longtail"):
            found = FolderRecords(folder, peer)
            counts, recall = np.asarray(found.class_counts), found.recall()
            points = []
            for place, (low, high) in enumerate(itertools.pairwise(edges)):
                inside = (counts >= low) & (counts < high)
                x = left + 18 + 38.5 * place
                points.append((x, bottom - (bottom - top) * float(recall[inside].mean())))
            canvas.curve(points, KINDS[peer])
            for x, y in points:
                canvas.dot(x, y, KINDS[peer], radius=3.4)
        for place, name in enumerate(names):
            canvas.text(left + 18 + 38.5 * place, bottom + 20, name, anchor="middle", kind="quiet")
    canvas.text(58, 282, "training images of a class", kind="quiet")
    return canvas.svg()


def rare_classes_kept() -> str:
    """What rare classes bring, and what they can cost the frequent ones at most."""
    canvas = Canvas(
        246,
        "Rare classes cost the others little",
        "Share of images of rare classes that longtail gets right, beside the share of images of all other classes "
        "that it gives to a rare class, for four folders.",
    )
    canvas.key(16, 50, [("ours", "rare, and right"), ("plain", "others, given to a rare class")])
    y = 82.0
    for folder, name in FOLDERS.items():
        found = FolderRecords(folder, "longtail")
        others = [group for group in found.groups if group != "few"]
        sizes = [len(found.groups[group]) for group in others]
        lost = np.average([found.lost_to("few", among=group) for group in others], weights=sizes)
        canvas.text(104, y + 11, name, anchor="end")
        for offset, value, kind in ((0, found.mean_recall("few"), "ours"), (15, float(lost), "plain")):
            canvas.bar(112, y - 6 + offset, 300 * value, 12, kind)
            canvas.text(118 + 300 * value, y + 5 + offset, f"{100 * value:.0f} %", kind=kind)
        y += 42
    return canvas.svg()


def classes_never_right() -> str:
    """How many classes have no right image."""
    canvas = Canvas(
        286,
        "Classes without a single right image",
        "Share of classes without a single right test image, by four ways to train on four folders: none or few with "
        "longtail, up to half of them with plain training.",
    )
    canvas.key(16, 50, [(KINDS[peer], NAMES[peer]) for peer in ("longtail", "timm", "fastai")])
    y = 80.0
    for folder, name in FOLDERS.items():
        total = len(FolderRecords(folder, "longtail").class_counts)
        canvas.text(104, y + 20, name, anchor="end")
        for offset, peer in enumerate(("longtail", "timm", "fastai")):
            never = FolderRecords(folder, peer).never_right()
            canvas.bar(112, y + 14 * offset, 300 * never / total, 11, KINDS[peer])
            shown = f"{never:.0f} of {total}"
            canvas.text(118 + 300 * never / total, y + 10 + 14 * offset, shown, kind=KINDS[peer])
        y += 50
    return canvas.svg()


def three_numbers() -> str:
    """The same models by three numbers."""
    canvas = Canvas(
        296,
        "One model, three numbers (plants)",
        "Accuracy with classes as frequent as in training, balanced accuracy, and accuracy of rare classes: close "
        "together for longtail, far apart for plain fine-tuning and fastai.",
    )
    peers = ("longtail", "linear_probe_balanced", "timm", "fastai")
    columns = (("as frequent", "as in training"), ("each class", "alike"), ("rare", "classes"))
    left, right, top, bottom = 62, 286, 66, 246
    canvas.percent_axis(left, right, top, bottom)
    for place, lines in enumerate(columns):
        for line, words in enumerate(lines):
            canvas.text(left + 20 + 92 * place, bottom + 22 + 16 * line, words, anchor="middle", kind="quiet")
    taken: list[float] = []
    for peer in peers:
        found = FolderRecords("plants", peer)
        values = (found.as_in_training(), float(found.recall().mean()), found.mean_recall("few"))
        points = [(left + 20 + 92 * place, bottom - (bottom - top) * value) for place, value in enumerate(values)]
        canvas.curve(points, KINDS[peer])
        for (x, y), value in zip(points, values, strict=True):
            canvas.dot(x, y, KINDS[peer])
            if x > left + 190:
                level = y if all(abs(y - other) > 14 for other in taken) else y + 14
                taken.append(level)
                kind = KINDS[peer].replace("grey", "quiet")
                canvas.text(x + 10, level + 4, f"{100 * value:.0f} %  {NAMES[peer]}", kind=kind)
    return canvas.svg()
