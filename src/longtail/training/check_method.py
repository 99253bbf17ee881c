"""The gate between a method and its training: what it cannot train on is refused here, before anything is trained.

A method says what is wrong with its arguments, its model, the epochs and the batches by a `ValueError`. Its hint, in
brackets at the end, becomes the line that says what to do.
"""

import torch.distributed as dist

from longtail._errors import UsageError, counted
from longtail.methods import Method
from longtail.training.batch_mixing import BatchMixing
from longtail.training.run_config import RunConfig

_MIX_THEMSELVES = ("glmc", "mislas", "unimix")


def check_method(method: Method, config: RunConfig, batch_size: int) -> tuple[str, ...]:
    """Refuse a training that the method cannot do; what the user should know of one that it can.

    Args:
        method: with its model.
        config: of the run.
        batch_size: the images of a step, over all ranks.
    """
    name = config.method["name"]
    if config.optim.accumulate > 1 and not method.microbatches:
        raise UsageError(
            f"optim.accumulate must be 1 for {name}, got {config.optim.accumulate}",
            "its loss compares the images of a whole batch",
            "use a smaller --batch-size instead",
        )
    if config.optim.sam_classes == "tail" and not (method.microbatches and len(method.samplers) == 1):
        raise UsageError(
            f"optim.sam_classes must be all for {name}, got tail",
            "its images cannot be taken by themselves: a step compares them, or pairs those of two samplers",
            "leave optim.sam_classes out",
        )
    if config.mixing is not None:
        _check_mixing(method, config)
    if not config.planned_epochs:
        return ()
    _check_batch_size(batch_size, config.optim.accumulate)
    try:
        method.plan(config.planned_epochs)
        return tuple(f"{name}: {remark}" for remark in method.check_batch(batch_size))
    except ValueError as error:
        raise refusal(name, error) from error


def _check_batch_size(batch_size: int, accumulate: int) -> None:
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    if batch_size < 2 * ranks or batch_size % ranks:
        of = "at least 2" if ranks == 1 else f"a multiple of {ranks}, and at least {2 * ranks}"
        raise UsageError(
            f"batch_size must be {of}, got {batch_size} for {counted(ranks, 'rank')}",
            "it counts the images of all ranks, and a batch norm needs two on each",
            f"--batch-size {max(2 * ranks, batch_size // ranks * ranks)}",
        )
    own = batch_size // ranks
    if accumulate > own:
        raise UsageError(
            f"optim.accumulate must be at most {own}, the images of a batch on each rank, got {accumulate}",
            "it cuts a batch into so many parts, and none may be empty",
            f"--set optim.accumulate={max(1, own // 2)}",
        )


def _check_mixing(method: Method, config: RunConfig) -> None:
    name = config.method["name"]
    if "mixing" in method.settings():
        raise UsageError(
            f"mixing must be null for {name}, got {dict(config.mixing or {})}",
            "it mixes by itself, and weighs both labels of an image",
            "--set method.mixing=cutmix and the like",
        )
    if len(method.stages) > 1 or name in _MIX_THEMSELVES:
        raise UsageError(
            f"mixing must be null for {name}, got {dict(config.mixing or {})}",
            "it mixes images by itself, or has stages that are to see plain ones",
            "take a method of one stage; or --method decoupled --set 'method.base_settings={mixing: cutmix}'",
        )
    BatchMixing(config.mixing or {}, method.class_counts, config.seed)


def refusal(name: str, error: Exception) -> UsageError:
    """What a method, or its model, cannot be built or trained with, in three lines."""
    text = str(error.args[0] if error.args else error)
    what, bracket, hint = text.removesuffix(")").rpartition(" (") if text.endswith(")") else (text, "", "")
    if not bracket:
        what, hint = text, ""
    if what.startswith("model must"):
        hint = f"{hint or 'take --model resnet18, or resnet20 for small images'}; --method erm takes any network"
    return UsageError(
        what,
        f"{name} cannot train on that",
        hint or f"`longtail list methods` shows what {name} needs",
    )
