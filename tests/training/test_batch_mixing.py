from pathlib import Path
from typing import Any

import pytest
import torch

from longtail._errors import UsageError
from longtail.class_counts import ClassCounts
from longtail.cli import run
from longtail.data.mixing import MIXINGS
from longtail.data.views import Batch
from longtail.training.batch_mixing import BatchMixing

COUNTS = ClassCounts([500, 50, 5])


def batch(images: int = 64, views: int = 1) -> Batch:
    """Each pixel of an image is its label."""
    target = torch.arange(images) % 3
    picture = target.float().view(-1, 1, 1, 1).expand(-1, 1, 16, 16).clone()
    return Batch((picture,) * views, target, torch.arange(images))


def mixing(name: str, **settings: Any) -> BatchMixing:
    return BatchMixing({"name": name, **settings}, COUNTS, seed=3)


def mixed(made: BatchMixing, *position: int, images: int = 64, views: int = 1) -> Batch:
    other = batch(images, views)
    other = other._replace(views=tuple(view.roll(1, 0) for view in other.views), target=other.target.roll(1))
    (found,) = made((batch(images, views), *(other for _ in made.samplers)), *position)
    return found


@pytest.mark.parametrize("name", ["mixup", "cutmix", "unimix"])
def test_the_drawn_label_is_on_average_the_weighted_one(name: str) -> None:
    """The mean of a mixed image's pixels is the weighted mean of its labels, since each pixel is a label."""
    found = mixed(mixing(name), 0, 0, images=20_000)
    difference = found.target - found.views[0].mean((1, 2, 3))
    assert difference.abs().max() > 0.1
    assert abs(difference.mean().item()) < 5 * difference.std().item() / 20_000**0.5


@pytest.mark.parametrize("name", MIXINGS)
def test_all_views_of_an_image_are_mixed_alike(name: str) -> None:
    first, second = mixed(mixing(name), 1, 2, views=2).views
    assert torch.equal(first, second)
    assert not torch.equal(first, batch().views[0])


@pytest.mark.parametrize("name", MIXINGS)
def test_what_is_drawn_depends_on_the_position_and_nothing_else(name: str) -> None:
    torch.manual_seed(0)
    one = mixed(mixing(name), 4, 2, 0)
    torch.manual_seed(1)
    again, other = mixed(mixing(name), 4, 2, 0), mixed(mixing(name), 4, 3, 0)
    assert torch.equal(one.views[0], again.views[0])
    assert torch.equal(one.target, again.target)
    assert not torch.equal(one.views[0], other.views[0])


def test_some_steps_are_left_plain() -> None:
    made = mixing("mixup", probability=0.25)
    plain = sum(torch.equal(mixed(made, 0, step).views[0], batch().views[0]) for step in range(400))
    assert 260 < plain < 340


def test_patches_of_cmo_come_from_the_further_batch() -> None:
    made = mixing("cmo")
    assert made.samplers == ("class_balanced",)
    patches = Batch((torch.full((64, 1, 16, 16), 9.0),), torch.full((64,), 9), torch.arange(64))
    (found,) = made((batch(), patches), 0, 0)
    assert set(found.target.tolist()) == {0, 1, 2, 9}
    assert 9.0 in found.views[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "mixupp"}, "mixing.name must be one of"),
        ({"name": "mixup", "probability": 0}, "mixing.probability must be above 0 and at most 1"),
        ({"name": "mixup", "alfa": 1.0}, "did you mean mixing.alpha?"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", "[?]")):
        BatchMixing(settings, COUNTS, seed=0)


def train(out: Path, name: str, *given: str) -> int:
    flags = ["--method", name, "--model", "resnet8", "--image-size", "8", "--epochs", "2", "--workers", "0"]
    return run(["train", "digits-lt:100", "--from-scratch", *flags, *given, "--out", str(out)])


@pytest.mark.parametrize(("name", "way"), [("tau_norm", "cmo"), ("bbn", "remix"), ("paco", "cutmix")])
def test_a_method_of_one_stage_trains_on_mixed_images(name: str, way: str, tmp_path: Path) -> None:
    assert train(tmp_path / "run", name, "--set", f"mixing.name={way}") == 0
    assert train(tmp_path / "plain", name) == 0
    weights = [(tmp_path / folder / "model" / "model.safetensors").read_bytes() for folder in ("run", "plain")]
    assert weights[0] != weights[1]


@pytest.mark.parametrize("name", ["erm", "lws", "glmc"])
def test_a_method_that_cannot_take_it_is_refused_with_what_works(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", name, "--set", "mixing.name=mixup") == 2
    lines = capsys.readouterr().err.rstrip().splitlines()[-3:]
    assert f"mixing must be null for {name}" in lines[0]
    assert "mixing" in lines[2]
