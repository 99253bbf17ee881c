"""Go on with a run: what may change, and what may not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from longtail._errors import DataError, UsageError
from longtail.training.layering import merge
from longtail.training.run_config import FREE_ON_RESUME, RunConfig, build_config


def read_config(folder: Path) -> dict[str, Any]:
    """The settings of the run in `folder`."""
    file = folder / "config.yaml"
    if not file.is_file():
        raise DataError(
            f"{folder} is no run: it has no config.yaml",
            "a run folder is what `longtail train` writes",
            "`longtail list runs` shows those that there are",
            code="no-run",
        )
    try:
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{file} is broken: {str(error).splitlines()[0]}", code="broken-config") from error
    if not isinstance(settings, dict):
        raise DataError(f"{file} is broken: it holds no settings", code="broken-config")
    return settings


def resume_config(folder: Path, changes: Mapping[str, Any]) -> RunConfig:
    """The settings of the run in `folder`, with what may change on resuming changed."""
    old = read_config(folder)
    where = str(folder / "config.yaml")
    config = build_config(merge(old, changes), where)
    check_settings(build_config(old, where).as_dict(), config.as_dict())
    return config


def check_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse to resume with settings that change what comes out."""
    changed = [name for name in new if name not in FREE_ON_RESUME and new[name] != old.get(name)]
    if changed:
        shown = ", ".join(f"{name} ({old.get(name)!r} to {new[name]!r})" for name in changed)
        raise UsageError(
            f"a resumed run cannot change {shown}",
            "the result would be of neither setting",
            f"leave them out, or start a new run; free to change are {', '.join(sorted(FREE_ON_RESUME))}",
        )
