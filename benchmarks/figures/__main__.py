"""Draw all figures of the pages, or say which are not those of the records.

python -m benchmarks.figures [--check]
"""

import argparse
import sys
from collections.abc import Callable

from benchmarks.figures import architecture, folder_figures, speed_figures, study_figures
from benchmarks.figures.league_figures import league_figures
from benchmarks.record import ROOT

FOLDER = ROOT / "docs" / "figures"
FIGURES: dict[str, Callable[[], str]] = {
    draw.__name__: draw
    for draw in (
        architecture.architecture,
        folder_figures.recall_by_class,
        folder_figures.recall_by_images,
        folder_figures.rare_classes_kept,
        folder_figures.classes_never_right,
        folder_figures.three_numbers,
        study_figures.gain_of_compound_bn,
        study_figures.tuning_moves_more,
        study_figures.methods_beside_cross_entropy,
        study_figures.promises_held,
        speed_figures.norm_layer_cost,
    )
} | league_figures()


def main() -> None:
    """Write docs/figures/NAME.svg for each figure."""
    parser = argparse.ArgumentParser(description="Draw the figures of the pages from the records of the studies.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a figure is not up to date")
    arguments = parser.parse_args()
    stale = []
    for name, draw in FIGURES.items():
        place, picture = FOLDER / f"{name}.svg", draw()
        if not place.exists() or place.read_text(encoding="utf-8") != picture:
            stale.append(name)
            if not arguments.check:
                place.write_text(picture, encoding="utf-8")
    if arguments.check and stale:
        sys.exit(f"not made of these records: {', '.join(stale)}; run python -m benchmarks.figures")
    print(f"drawn anew: {', '.join(stale) or 'none'}")


if __name__ == "__main__":
    main()
