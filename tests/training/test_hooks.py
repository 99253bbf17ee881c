"""The hooks of a method, as the trainer calls them; and what a run keeps of its settings."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from benchmarks.robustness.kill_and_resume import differences
from longtail._errors import LongtailError
from longtail.data.images import ImageDataset
from longtail.data.views import Batch
from longtail.evaluation import read_metrics
from longtail.methods import METHODS, Method, MethodOutput
from longtail.methods.base import EpochData, sum_parts
from longtail.training import Callback, build_config, loop, train
from longtail.training.optimizer import ascended
from longtail.training.plan_run import resolve_run
from longtail.training.predict_logits import predict_logits
from longtail.training.run_folder.model import load_model
from longtail.training.settings import read_config
from tests.support.tiny_runs import Interrupt, config, fail


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "reference"
    train(config(), out=folder)
    return folder


class Hooked(Method):
    """Two samplers, a mean of all training images at each epoch, a shift of the images at each step, and a queue."""

    calls: ClassVar[list[str]] = []
    mean: Tensor
    queue: Tensor

    def __init__(self, model: nn.Module, class_counts: Sequence[int], *, slow: float = 0.5) -> None:
        super().__init__(model, class_counts, views=("weak",), samplers=("instance", "class_balanced"))
        self.slow = slow
        self.stages = (0.0, 0.5)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("queue", torch.zeros(4))

    def set_progress(self, progress: float) -> None:
        super().set_progress(progress)
        self.lr_scale = 1.0 if progress < 0.5 else self.slow

    def start_epoch(self, data: EpochData) -> None:
        self.calls.append("start_epoch")
        sums = torch.zeros(2, dtype=torch.float64)
        for batch in data.batches():
            sums += torch.stack([batch.views[0].double().mean((1, 2, 3)).sum(), torch.tensor(len(batch.target))])
        total, count = data.sum_over_ranks(sums)
        assert count == sum(self.class_counts)
        self.mean.copy_(total / count)

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        self.calls.append("prepare")
        first, second = batches
        return first._replace(extra={"shift": torch.rand(len(first.target))}), second

    def forward(self, *batches: Batch) -> MethodOutput:
        self.calls.append("forward")
        first, second = batches
        logits = self.model(first.views[0] - self.mean + first.extra["shift"].view(-1, 1, 1, 1))
        parts = {
            "natural": nn.functional.cross_entropy(logits, first.target),
            "balanced": nn.functional.cross_entropy(self.model(second.views[0] + self.queue.sum()), second.target),
        }
        return sum_parts(logits, parts)

    def after_step(self) -> None:
        self.calls.append("after_step")
        self.queue.copy_(torch.cat([self.queue[1:], self.queue[-1:] + 0.01]))

    def epoch_row(self) -> Mapping[str, float]:
        return {"hooked/queue": float(self.queue.sum())}

    def diagnose(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, Any]:
        return {"hooked": {"images": sum(len(model(batch.views[0])) for batch in batches)}}


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setitem(METHODS._units, "hooked", Hooked)
    monkeypatch.setattr(Hooked, "calls", [])
    return {"method": {"name": "hooked"}, "batch_size": 96, "epochs": 2}


def test_hooks_are_called_in_the_order_of_the_contract(hooked: dict[str, Any], tmp_path: Path) -> None:
    run = train(config(**hooked), out=tmp_path / "run")
    step = ["prepare", "forward", "after_step"]
    assert Hooked.calls == 2 * ["start_epoch", *5 * step]
    rows = read_metrics(run.path / "metrics.csv")
    for row in rows:
        assert row["train/loss"] == pytest.approx((row["train/natural"] or 0) + (row["train/balanced"] or 0))
    assert [row["hooked/queue"] for row in rows] == pytest.approx([0.14, 0.34])
    assert [record["hooked"] for record in run.records] == [{"images": 256}, {"images": 512}]


def test_forward_runs_once_for_each_microbatch_and_the_other_hooks_once_a_step(
    hooked: dict[str, Any], tmp_path: Path
) -> None:
    train(config(**hooked | {"epochs": 1, "optim": {"accumulate": 3}}), out=tmp_path / "run")
    assert Hooked.calls == ["start_epoch", *5 * ["prepare", "forward", "forward", "forward", "after_step"]]


@pytest.mark.parametrize("steps", [1, 5, 7])
def test_a_method_with_every_hook_goes_on_to_the_same_bits(hooked: dict[str, Any], tmp_path: Path, steps: int) -> None:
    train(config(**hooked), out=tmp_path / "whole")
    with pytest.raises(ConnectionResetError):
        train(config(**hooked, checkpoint_steps=1), out=tmp_path / "cut", callback=Interrupt(steps + 1, fail))
    train(config(**hooked), out=tmp_path / "cut", resume=True)
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


def test_the_schedule_starts_again_with_each_stage(hooked: dict[str, Any], tmp_path: Path) -> None:
    seen: list[float] = []

    class Rates(Callback):
        def step(self, *, lr: float, **_: Any) -> None:
            seen.append(lr)

    train(config(**hooked, optim={"lr": 0.1, "warmup_epochs": 0.4}), out=tmp_path / "run", callback=Rates())
    assert seen[5:] == pytest.approx([0.5 * lr for lr in seen[:5]])  # its second stage is half as fast
    assert seen[:3] == pytest.approx([0.0, 0.05, 0.1])


def test_two_samplers_of_one_kind_draw_different_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[list[int], ...]] = []

    class Twice(Hooked):
        def __init__(self, model: nn.Module, class_counts: Sequence[int]) -> None:
            super().__init__(model, class_counts)
            self.samplers = ("class_balanced", "class_balanced")

        def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
            drawn.append(tuple(batch.indices.tolist() for batch in batches))
            return super().prepare(*batches)

    monkeypatch.setitem(METHODS._units, "twice", Twice)
    train(config(method={"name": "twice"}, epochs=1), out=tmp_path / "run")
    assert all(first != second for first, second in drawn)


def test_the_ascent_of_sam_is_that_of_its_equation() -> None:
    layer = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.randn(4, 3)).square().sum().backward()
    before = [p.detach().clone() for p in layer.parameters()]
    flat = torch.cat([p.grad.flatten() for p in layer.parameters() if p.grad is not None])
    with ascended(optimizer, 0.05):
        moved = torch.cat([(p - old).flatten() for p, old in zip(layer.parameters(), before, strict=True)])
        torch.testing.assert_close(moved, 0.05 * flat / flat.norm())
    assert all(map(torch.equal, layer.parameters(), before))


def test_sam_takes_the_gradient_after_the_ascent_and_counts_statistics_once(tmp_path: Path) -> None:
    runs = [train(config(optim={"sam": radius}, epochs=1), out=tmp_path / str(radius)) for radius in (None, 1e-9, 0.5)]
    states = [torch.load(run.path / "last.ckpt", weights_only=True)["method"] for run in runs]
    weights = [state["model.conv.weight"] for state in states]
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-3, atol=1e-4)
    assert not torch.allclose(weights[2], weights[0], atol=1e-3)
    tracked = [value for key, value in states[2].items() if key.endswith("num_batches_tracked")]
    assert tracked == [torch.tensor(3)] * len(tracked)


def test_the_final_evaluation_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def count(model: nn.Module, images: ImageDataset, *rest: Any) -> Any:
        lengths.append(len(images))
        return predict_logits(model, images, *rest)

    monkeypatch.setattr(loop, "predict_logits", count)
    train(config(epochs=1, val_fraction=0.1), out=tmp_path / "run")
    assert lengths == [48, 540]


def test_a_config_repeats_its_run_when_a_default_changes(
    hooked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(config(**hooked), out=tmp_path / "a")
    monkeypatch.setattr(Hooked.__init__, "__kwdefaults__", {"slow": 0.1})
    train(build_config(read_config(tmp_path / "a")), out=tmp_path / "b")
    train(config(**hooked), out=tmp_path / "c")
    assert differences(tmp_path / "a", tmp_path / "b") == []
    assert differences(tmp_path / "a", tmp_path / "c") != []


def test_nothing_in_a_written_config_is_left_open(reference: Path) -> None:
    settings = read_config(reference)
    assert settings == resolve_run(build_config(settings)).as_dict()
    free = {"root", "head", "time", "max_time", "patience", "checkpoint_steps"}  # which change nothing that comes out
    none = {"mixing", "path_column", "label_column"}  # which stand for nothing of the kind
    assert [name for name, value in settings.items() if value is None and name not in free | none] == []


def test_a_teacher_is_the_network_of_a_finished_run(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Taught(Method):
        needs = ("teacher",)

        def __init__(self, model: nn.Module, class_counts: Sequence[int], *, teacher: nn.Module | None) -> None:
            super().__init__(model, class_counts)
            self.teachers = [teacher]

        def forward(self, *batches: Batch) -> MethodOutput:
            (images,) = self.views_of(batches[0])
            logits = self.model(images)
            (teacher,) = self.teachers
            assert teacher is not None
            assert not teacher.training
            return sum_parts(logits, {"distance": (logits - teacher(images)).square().mean()})

    monkeypatch.setitem(METHODS._units, "taught", Taught)
    out = tmp_path / "run"
    train(config(method={"name": "taught", "teacher": str(reference)}), out=out)
    assert read_config(out)["method"] == {"name": "taught", "teacher": str(reference)}
    losses = [row["train/distance"] or 0.0 for row in read_metrics(out / "metrics.csv")]
    assert losses[-1] < losses[0]
    assert load_model(out / "model").classes == load_model(reference / "model").classes
    with pytest.raises(LongtailError, match=r"method\.teacher must name a finished run, got None"):
        train(config(method={"name": "taught"}), out=tmp_path / "none")
    with pytest.raises(LongtailError, match="is not a run"):
        train(config(method={"name": "taught", "teacher": str(tmp_path)}), out=tmp_path / "nowhere")
