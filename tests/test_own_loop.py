"""What docs/own-loop.md shows runs with torch, timm, Lightning and transformers, each of them the real one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "own-loop.md").read_text()
# Made by the Makefile: the packages of this environment, and lightning, transformers and accelerate on top.
PYTHON = Path(sys.prefix) / "loops" / "bin" / "python"
TRAINING_SET = """
import torch
class_counts_wanted = (12, 6, 3)
labels = torch.tensor([k for k, n in enumerate(class_counts_wanted) for _ in range(n)])
images = torch.randn(len(labels), 3, 32, 32)
train_set = torch.utils.data.TensorDataset(images, labels)
from torch import nn
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
"""
TRANSFORMERS = """
from transformers import MobileNetV2Config, MobileNetV2ForImageClassification
model = MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=3, depth_multiplier=0.25, image_size=32))
train_set = [{"pixel_values": image, "labels": label} for image, label in zip(images, labels)]
"""


def snippet(title: str) -> str:
    """The Python of one section, as it stands."""
    section = re.search(rf"^#+ {title}$(.*?)(?=^#|\Z)", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert section, title
    return "\n".join(re.findall(r"```python\n(.*?)```", section[1], flags=re.DOTALL))


COUNTS = snippet("In your own loop")


@pytest.mark.parametrize("title", ["torch", "timm", "Dual-path learning"])
def test_the_snippets_of_torch_and_timm_run_as_they_stand(title: str) -> None:
    names: dict[str, object] = {}
    exec(compile(TRAINING_SET + COUNTS + snippet(title), title, "exec"), names)
    if title != "Dual-path learning":
        assert names["class_counts"] == [12, 6, 3]


def test_the_loss_of_the_timm_snippet_trains_its_model() -> None:
    names: dict[str, object] = {}
    after = "loss(model(images), labels).backward()\ngradient = model.fc.weight.grad.abs().sum().item()"
    exec(compile(TRAINING_SET + COUNTS + snippet("timm") + after, "timm", "exec"), names)
    assert isinstance(names["gradient"], float)
    assert names["gradient"] > 0


@pytest.mark.parametrize(
    ("title", "before", "after"),
    [
        ("Lightning", "", "assert not torch.equal(start, model[0].weight), 'nothing was trained'"),
        ("Hugging Face Trainer", TRANSFORMERS, "assert trainer.state.global_step == 2"),
    ],
)
def test_the_snippets_of_trainers_run_as_they_stand(title: str, before: str, after: str, tmp_path: Path) -> None:
    if not PYTHON.exists():
        reason = f"there is no {PYTHON}: make pytest makes it"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    start = "start = model[0].weight.clone()\n" if title == "Lightning" else ""
    code = "\n".join([TRAINING_SET, COUNTS, before, start, snippet(title), after])
    # Without PYTHONPATH the code under test would be the one installed; nothing is to be downloaded.
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONPATH"] = str(Path(__file__).parent.parent / "src")
    done = subprocess.run(
        [PYTHON, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
