"""`longtail evaluate RUN [DATA]`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from longtail._errors import UsageError, counted

if TYPE_CHECKING:
    from longtail.inference.measure import Measurement


def evaluate(
    run: Annotated[Path, Parameter(name="RUN")],
    data: Annotated[str | None, Parameter(name="DATA")] = None,
    /,
    *,
    split: Literal["test", "val", "train"] | None = None,
    shots: str = "100,20",
    root: Path | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    ignore_unknown: Annotated[bool, Parameter(negative="")] = False,
    as_trained: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Measure a run on another data set or split.

    Parameters
    ----------
    run
        The folder of a run.
    data
        A folder, a CSV or a name, as for `longtail train` (default: the run's own data).
    split
        The split to measure (default: test, or all images of data without splits).
    shots
        MANY,FEW: classes with more than MANY training images are many-shot, with fewer than FEW few-shot.
    root
        The folder of the named data sets (default: LONGTAIL_DATA, else the user's cache folder).
    path_column
        Of a CSV, the column of image files (default: path, filename, image and the like).
    label_column
        Of a CSV, the column of classes (default: label, class, ClassId, category and the like).
    ignore_unknown
        Leave out images of classes that the run does not know, instead of stopping.
    as_trained
        Measure without what `longtail adjust` stored.
    json
        Print one JSON object with every number.
    """
    many, few = _shots(shots)
    from longtail.cli.screen import Screen
    from longtail.inference.measure import measure

    with Screen(f"evaluating {run}") as screen:
        found = measure(
            run,
            data,
            split=split,
            many=many,
            few=few,
            root=root,
            path_column=path_column,
            label_column=label_column,
            ignore_unknown=ignore_unknown,
            as_trained=as_trained,
            progress=screen.advance,
        )
    for note in found.notes:
        print(note, file=sys.stderr)
    if json:
        _print_json(run, found)
    else:
        from longtail.cli.print_table import accuracy_lines

        print(f"{found.data}, {found.split}: {counted(found.evaluation.images, 'image')}")
        if found.decision is not None:
            print(f"adjusted: {found.decision}")
        print("\n".join(accuracy_lines(found.evaluation)))
        if found.answered is not None and found.answered.precision is not None:
            answered = f"{found.answered.answered.value:.1%} of the images get a prediction"
            print(f"{answered}, {found.answered.precision.value:.1%} of these are right")
        print(found.evaluation.definition)
    return 0


def _shots(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdigit() for part in parts):
        raise UsageError(f"--shots must be two whole numbers MANY,FEW, got {text!r}", "", "for example --shots 100,20")
    many, few = (int(part) for part in parts)
    if few > many + 1:
        raise UsageError(
            f"--shots must have the larger number first, got {text}", "", f"for example --shots {few},{many}"
        )
    return many, few


def _print_json(run: Path, found: "Measurement") -> None:
    import json

    print(
        json.dumps(
            {
                "run": str(run),
                "data": found.data,
                "split": found.split,
                "decision": None if found.decision is None else found.decision.as_json(),
                "metrics": found.evaluation.metrics,
                "evaluation": json.loads(found.evaluation.to_json()),
            },
            indent=1,
        )
    )
