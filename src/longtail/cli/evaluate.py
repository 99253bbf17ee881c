"""`longtail evaluate RUN [DATA]`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from longtail._errors import UsageError, counted
from longtail._printable import show

if TYPE_CHECKING:
    from longtail.inference.measure import Measurement


def evaluate(
    run: Annotated[str, Parameter(name="RUN")],
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
    weights: Path | None = None,
    model: str | None = None,
    image_size: int | None = None,
    mean: str | None = None,
    std: str | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Measure a run on another data set or split; or, with --weights and --model, any file of weights on DATA.

    Parameters
    ----------
    run
        The folder of a run; with --weights, the data.
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
    weights
        A file of weights that is no run: safetensors, .pth, .pt, .pth.tar, .bin or .ckpt.
    model
        The network that the weights are of; see `longtail list models`.
    image_size
        With --weights, height and width of what the network sees (default: those of the images).
    mean
        With --weights, the mean of each channel, such as 0.485,0.456,0.406 (default: that of the data, or of timm's
        weights of this network).
    std
        With --weights, the standard deviation of each channel.
    json
        Print one JSON object with every number.
    """
    many, few = _shots(shots)
    from longtail.cli.screen import Screen

    if weights is not None or model is not None:
        if weights is None or model is None or data is not None:
            raise UsageError(
                "--weights, --model and one DATA go together",
                "a file of weights does not say what network it is of",
                "for example longtail evaluate --weights resnet32.th.pth --model resnet32 cifar10-lt",
            )
        with Screen(f"evaluating {weights}") as screen:
            from longtail.inference.measure_weights import measure_weights

            foreign = measure_weights(
                weights,
                model,
                run,
                split=split or "test",
                image_size=image_size,
                mean=_channels(mean, "--mean"),
                std=_channels(std, "--std"),
                many=many,
                few=few,
                root=root,
                path_column=path_column,
                label_column=label_column,
                progress=screen.advance,
            )
        _print(str(weights), foreign, json)
        return 0
    if image_size is not None or mean is not None or std is not None:
        raise UsageError("--image-size, --mean and --std go with --weights", "a run knows how it sees images")
    with Screen(f"evaluating {run}") as screen:
        from longtail.inference.measure import measure

        found = measure(
            Path(run),
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
        show(note, file=sys.stderr)
    _print(run, found, json)
    return 0


def _channels(text: str | None, flag: str) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{flag} must be numbers, got {text!r}", "", f"for example {flag} 0.5,0.5,0.5") from None


def _print(run: str, found: "Measurement", as_json: bool) -> None:
    if as_json:
        _print_json(run, found)
    else:
        from longtail.cli.print_table import accuracy_lines

        show(f"{found.data}, {found.split}: {counted(found.evaluation.images, 'image')}")
        if found.decision is not None:
            show(f"adjusted: {found.decision}")
        show("\n".join(accuracy_lines(found.evaluation)))
        if found.answered is not None and found.answered.precision is not None:
            answered = f"{found.answered.answered.value:.1%} of the images get a prediction"
            show(f"{answered}, {found.answered.precision.value:.1%} of these are right")
        show(found.evaluation.definition)


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


def _print_json(run: str, found: "Measurement") -> None:
    import json

    show(
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
