"""From what a user asked for, on the command line or in Python, to the settings of a run and where it goes."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from longtail._errors import UsageError
from longtail.training.layering import merge, parse_override, resolve, without_none
from longtail.training.resuming import resume_config
from longtail.training.run_config import RunConfig, build_config


def settle(
    flags: Mapping[str, Any],
    *,
    out: Path | None = None,
    resume: str | None = None,
    config: Path | None = None,
    overrides: Iterable[str] = (),
    budget: str = "paper",
) -> tuple[RunConfig, Path | None, bool]:
    """The settings, the folder, and whether to look for a checkpoint there.

    Args:
        flags: nested settings; None stands for not given.
        out: the run's folder.
        resume: a run to go on with; "auto" for the one in `out` if there is one.
        config: a YAML file of settings.
        overrides: `key=value` texts.
        budget: see `resolve`.
    """
    if resume is not None and resume != "auto":
        changes = without_none(flags)
        for text in overrides:
            changes = merge(changes, parse_override(text))
        return resume_config(Path(resume), changes), Path(resume), True
    if resume == "auto" and out is None:
        raise UsageError("--resume auto needs --out", "it goes on with the run in that folder", "--out runs/NAME")
    if flags.get("data") is None and config is None:
        raise UsageError(
            "DATA is missing", "", "name a folder of class folders, a CSV, or a data set such as digits-lt"
        )
    settings = resolve(flags, config_file=config, overrides=overrides, budget=budget)
    where = f"{config} or the flags" if config else "the settings"
    return build_config(settings, where), out, resume == "auto"
