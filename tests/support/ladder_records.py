"""Records as the ladder of the study of compound batch norm leaves them, made up."""

import json
from pathlib import Path
from typing import Any

from benchmarks.studies.compound_bn.ladder import Setting

SETTING = Setting("cifar10-lt:100", "resnet8", 10, 128, 0.05, 5e-4)


def ladder_record(row: str, seed: int, reading: str = "measured", epochs: int = 10, **metrics: Any) -> dict[str, Any]:
    """A run of `SETTING`, or of as many epochs as given."""
    return {
        "commit": "abc1234",
        "split": "test",
        "row": row,
        "reading": reading,
        "seed": seed,
        "settings": {
            "data": SETTING.data,
            "model": {"name": SETTING.model},
            "epochs": epochs,
            "batch_size": SETTING.batch_size,
            "optim": {"lr": SETTING.lr, "weight_decay": SETTING.weight_decay},
        },
        "metrics": metrics,
    }


def write_records(folder: Path, *records: dict[str, Any]) -> Path:
    """The file of these records."""
    file = folder / "results.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file
