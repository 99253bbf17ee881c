"""`longtail doctor`."""

from typing import Annotated, Any

from cyclopts import Parameter

from longtail._printable import show

# The packages of the extras.
_EXTRAS = ("onnx", "onnxruntime", "onnxscript", "tensorboard", "mlflow-skinny", "wandb", "optuna")


def doctor(*, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Show versions, accelerator, memory, disk and extras of this machine, and run a two-second self-test.

    Parameters
    ----------
    json
        Print one JSON object.
    """
    found = _examine()
    if json:
        import json as encoder

        show(encoder.dumps(found, indent=2))
    else:
        for name, value in found.items():
            if isinstance(value, dict):
                show(f"{name}:")
                for key, part in value.items():
                    show(f"  {key:<17}{'not installed' if part is None else part}")
            else:
                show(f"{name:<19}{value}")
    return 0 if found["self-test"] == "passed" else 1


def _examine() -> dict[str, Any]:
    import os
    import shutil
    from pathlib import Path

    import torch

    from longtail.data.open_dataset import data_root
    from longtail.training.run_folder.write import environment, package_version

    found = environment(command="", device="")
    root = data_root()
    place = next(path for path in (root, *root.parents, Path.cwd()) if path.exists())
    free = shutil.disk_usage(place).free
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return {
        "longtail": found["longtail"],
        "python": found["python"],
        "system": found["system"],
        "accelerator": str(accelerator) if accelerator else "none: training runs on the CPU",
        "cores": os.cpu_count(),
        "memory": f"{_memory() / 2**30:.1f} GiB",
        "data": f"{root} ({free / 2**30:.0f} GiB free)",
        "versions": found["versions"],
        "extras": {name: package_version(name) for name in _EXTRAS},
        "self-test": _self_test(),
    }


def _memory() -> int:
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


def _self_test() -> str:
    """With equal components, compound batch norm must equal batch norm, forward and backward."""
    import torch

    from longtail.nn import CompoundBatchNorm2d, Reading

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 6, 5, 5, generator=generator).requires_grad_()
    direction = torch.randn(x.shape, generator=generator)
    ours, theirs = CompoundBatchNorm2d(6, reading=Reading(component_init="equal"))(x), torch.nn.BatchNorm2d(6)(x)
    gradient, expected = (torch.autograd.grad(y, x, direction)[0] for y in (ours, theirs))
    same = torch.allclose(ours, theirs, atol=1e-4) and torch.allclose(gradient, expected, atol=1e-4)
    return "passed" if same else "failed: compound batch norm differs from batch norm"
