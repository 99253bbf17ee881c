"""Train on a folder of images, look at the rare classes, predict and export: all of it from Python.

python examples/own_folder.py birds/ [--images new/] [--time 3m] [--out runs/birds]

Without a folder it writes the embedded digits as one, a long tail of ten class folders, so that it runs as it stands.
"""

import argparse
from pathlib import Path

from PIL import Image

import longtail
from longtail.data import open_dataset


def digits_folder(folder: Path) -> Path:
    """Write the embedded digits as folders of images, one for each class; 120 images of the first and 1 of the last."""
    data = open_dataset("digits-lt:100", seed=0)
    for number in range(len(data.train)):
        pixels, label = data.train[number]
        place = folder / data.classes[label] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[0].numpy()).save(place)
    return folder


def main() -> None:
    """Check, train, predict, and say which classes are weak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="class folders, or train/ and test/ with class folders")
    parser.add_argument("--images", type=Path, help="images to predict")
    parser.add_argument("--time", default="3m", help="for the training")
    parser.add_argument("--out", type=Path, default=Path("runs/own-folder"), help="the folder of the run")
    arguments = parser.parse_args()
    folder = arguments.folder or digits_folder(arguments.out.with_name(f"{arguments.out.name}-images"))

    checked = longtail.check(folder)
    print(f"{len(checked.data.classes)} classes, imbalance factor {checked.data.class_counts.imbalance_factor:.0f}")

    run = longtail.train(folder, time=arguments.time, out=arguments.out, show=False)
    few = run.metrics["few"]
    print(f"balanced accuracy {run.metrics['balanced']:.1%}, few-shot {'-' if few is None else format(few, '.1%')}")
    for found in sorted(run.evaluation.classes, key=lambda c: c.recall if c.recall is not None else 2)[:3]:
        recall = "no test image" if found.recall is None else f"{found.recall:.0%}"
        print(f"  weakest: {found.name}, {found.train} training images, recall {recall}")

    classifier = longtail.load(run.path)
    for image in classifier.predict(arguments.images or folder / checked.data.classes[0], top=2)[:5]:
        print(f"  {image.path}: {image.guesses[0].name} ({image.guesses[0].probability:.0%})")
    print(f"report: {run.path / 'report.html'}")


if __name__ == "__main__":
    main()
