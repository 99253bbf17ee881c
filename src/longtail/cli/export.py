"""`longtail export RUN`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from longtail._printable import show


def export(
    run: Annotated[Path, Parameter(name="RUN")],
    /,
    *,
    format_: Annotated[Literal["onnx", "safetensors"], Parameter(name="--format")] = "onnx",
    out: Path | None = None,
    push_to_hub: str | None = None,
    as_trained: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Export the model of a run as ONNX or safetensors.

    An ONNX file holds its classes and preprocessing. It is checked: onnxruntime must agree with torch at three batch
    sizes.

    Parameters
    ----------
    run
        The folder of a run.
    format_
        onnx: one file. safetensors: a folder with the weights, config.json and a model card, README.md.
    out
        The file or the folder (default: model.onnx, or hub, in RUN).
    push_to_hub
        Upload the safetensors folder to this repository on the Hugging Face hub, such as me/birds.
    as_trained
        Export without what `longtail adjust` stored.
    """
    from longtail._errors import UsageError

    if push_to_hub is not None and format_ == "onnx":
        raise UsageError("--push-to-hub uploads a safetensors folder", "the format is onnx", "add --format safetensors")
    if format_ == "onnx":
        from longtail.inference.export import require_onnx

        require_onnx()  # before torch is imported
        if out is not None and out.suffix != ".onnx":
            raise UsageError(f"--out must end in .onnx, got {out}", "", "change --out, or choose --format safetensors")
    elif out is not None and (out.is_file() or out.suffix == ".onnx"):
        raise UsageError(f"--out must be a folder for --format safetensors, got {out}", "", "change --out")
    from longtail.cli.screen import Status

    with Status(f"exporting {run} to {format_}"):  # a deep model takes a minute
        from longtail.inference import load

        classifier = load(run, as_trained=as_trained)
        written = classifier.export(out or run / ("model.onnx" if format_ == "onnx" else "hub"))
    show(written.path)
    if written.max_difference is not None:
        sizes = ", ".join(map(str, written.batch_sizes))
        show(f"largest difference from torch: {written.max_difference:.2g} (batches of {sizes})")
    if push_to_hub is not None:
        from longtail.inference.hub_folder import push_to_hub as push

        show(push(written.path, push_to_hub))
    return 0
