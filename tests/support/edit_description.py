"""Change config.json of a model as its writer would, with a digest that fits."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from longtail.training.seal import seal_object


def edit_description(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = folder / "config.json"
    description = json.loads(file.read_text(encoding="utf-8", errors="surrogateescape"))
    change(description)
    file.write_text(json.dumps(seal_object(description)))
