"""What `Method` promises, held for every name in the registry with its default settings."""

import ast
import copy
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import onnxruntime
import pytest
import torch
import torch.distributed as dist
import yaml
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from longtail.data.samplers import SAMPLERS
from longtail.data.views import VIEWS, Batch
from longtail.methods import METHODS, Method, MethodOutput
from longtail.methods._norms import StatisticsLayer
from longtail.methods.base import HeadedModel
from longtail.models import create_model
from longtail.nn import CompoundBatchNorm
from longtail.training.microbatches import cut_microbatches

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 0, 1, 1, 2])
PROGRESS = [0.0, 0.25, 0.5, 0.75, 0.9, 1.0]
SOURCE = Path(inspect.getfile(Method)).parents[1]

each_method = pytest.mark.parametrize("name", METHODS)


# A method that takes no convolutional network.
NETWORKS = {"lift": "test_vit"}
# Methods that mix images within the batch of a rank: two ranks equal one process once the batch is mixed.
MIXES = {"glmc", "mislas", "unimix"}


def network(name: str) -> nn.Module:
    return create_model(NETWORKS.get(name, "resnet8"), len(COUNTS), image_size=16)


def method(name: str, seed: int = 0, model: nn.Module | None = None, **settings: Any) -> Method:
    torch.manual_seed(5)  # networks of finished runs are the same whatever the seed
    networks: dict[str, Any] = {need: network(name).eval().requires_grad_(False) for need in METHODS[name].needs}
    torch.manual_seed(seed)
    return METHODS[name](model or network(name), COUNTS, **networks, **settings)


def trainable(trained: Method) -> dict[str, nn.Parameter]:
    return {key: parameter for key, parameter in trained.named_parameters() if parameter.requires_grad}


def batches(trained: Method, *, views: int | None = None, seed: int = 1) -> tuple[Batch, ...]:
    generator = torch.Generator().manual_seed(seed)
    number = len(trained.views) if views is None else views
    return tuple(
        Batch(
            tuple(torch.randn(len(TARGET), 3, 16, 16, generator=generator) for _ in range(number)),
            TARGET.roll(turn),
            torch.arange(len(TARGET)),
        )
        for turn in range(len(trained.samplers))
    )


def step(trained: Method, given: tuple[Batch, ...] | None = None) -> MethodOutput:
    torch.manual_seed(1)
    output: MethodOutput = trained(*trained.prepare(*(given or batches(trained))))
    return output


class TrainingSet:
    """What `start_epoch` looks at, on one rank."""

    def __init__(self, trained: Method) -> None:
        self.trained = trained

    def batches(self) -> Iterator[Batch]:
        yield batches(self.trained, views=1)[0]

    def sum_over_ranks(self, tensor: Tensor) -> Tensor:
        return tensor


def sgd(trained: Method) -> torch.optim.SGD:
    return torch.optim.SGD(trained.parameter_groups(), lr=0.05, momentum=0.9, weight_decay=0.01)


def assert_same_state(one: Method, other: Method) -> None:
    assert one.state_dict().keys() == other.state_dict().keys()
    for key, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key


@each_method
def test_a_step_gives_a_scalar_logits_and_named_parts(name: str) -> None:
    trained = method(name)
    loss, logits, parts = step(trained)
    assert loss.shape == ()
    assert loss.isfinite()
    assert loss.requires_grad
    assert logits.shape == (6, len(COUNTS))
    assert not logits.requires_grad
    assert parts
    assert all(part.shape == () and not part.requires_grad for part in parts.values())


@each_method
@pytest.mark.parametrize("progress", PROGRESS)
def test_the_parts_sum_to_the_loss(name: str, progress: float) -> None:
    trained = method(name)
    trained.set_progress(progress)
    loss, _, parts = step(trained)
    torch.testing.assert_close(torch.stack(list(parts.values())).sum(), loss.detach())


@each_method
def test_the_gradient_reaches_every_parameter(name: str) -> None:
    trained = method(name)
    optimiser = sgd(trained)
    reached = set[str]()
    # At 0 a part may have no weight yet; one that skips parameters trains each in some stage.
    for progress in PROGRESS if trained.skips_parameters else (0.5,):
        trained.set_progress(progress)
        for _ in range(2):  # the first step moves layers that start at zero
            optimiser.zero_grad()
            step(trained).loss.backward()
            optimiser.step()
        reached |= {key for key, p in trainable(trained).items() if p.grad is not None and p.grad.abs().sum() > 0}
    assert trainable(trained).keys() - reached == set()


@each_method
def test_the_same_step_twice_gives_the_same(name: str) -> None:
    first = method(name)
    second = copy.deepcopy(first)
    assert torch.equal(step(first).loss, step(second).loss)
    assert_same_state(first, second)


@each_method
def test_a_step_leaves_its_batches_alone(name: str) -> None:
    trained = method(name)
    given = batches(trained)
    before = copy.deepcopy(given)
    step(trained, given)
    for batch, old in zip(given, before, strict=True):
        assert all(map(torch.equal, batch.views, old.views))
        assert torch.equal(batch.target, old.target)


@each_method
@pytest.mark.parametrize("progress", [0.5, 0.9])
def test_forward_changes_no_state_but_the_statistics_of_batch_norms(name: str, progress: float) -> None:
    trained = method(name)
    trained.set_progress(progress)
    norms = {path for path, module in trained.named_modules() if isinstance(module, StatisticsLayer)}
    prepared = trained.prepare(*batches(trained))
    before = copy.deepcopy(trained.state_dict())
    trained(*prepared)
    changed = {key for key, value in trained.state_dict().items() if not torch.equal(value, before[key])}
    assert {key for key in changed if key.rpartition(".")[0] not in norms} == set()


@each_method
def test_what_is_deployed_is_the_model(name: str) -> None:
    """The weights of `model` alone give its logits, which do not depend on the rest of the batch."""
    trained, fresh = method(name), method(name, seed=5)
    step(trained)
    fresh.model.load_state_dict(trained.model.state_dict())
    x = batches(trained)[0].views[0]
    with torch.no_grad():
        logits = trained.eval().model(x)
        assert logits.shape == (6, len(COUNTS))
        assert torch.equal(fresh.eval().model(x), logits)
        torch.testing.assert_close(torch.cat([trained.model(image[None]) for image in x]), logits)
    assert not hasattr(trained, "predict")


@each_method
def test_the_features_are_what_the_classifier_takes(name: str) -> None:
    trained = method(name).eval()
    x = batches(trained)[0].views[0]
    classifier = cast("HeadedModel", trained.model).get_classifier()
    assert any(module is classifier for module in trained.model.children())
    with torch.no_grad():
        torch.testing.assert_close(classifier(trained.features(x)), trained.model(x))


@each_method
def test_onnx_computes_what_the_model_does(name: str, tmp_path: Path) -> None:
    trained = method(name)
    step(trained)
    x = batches(trained)[0].views[0]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of torch about its own internals
        expected = trained.eval().model(x)
        program = torch.onnx.export(trained.model, (x[:2],), dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False)
    assert program is not None
    program.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-4)


@each_method
def test_the_state_is_that_of_the_model_and_loads_again(name: str) -> None:
    trained, fresh = method(name), method(name, seed=5)
    assert {f"model.{key}" for key in trained.model.state_dict()} <= trained.state_dict().keys()
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(step(fresh).loss, step(trained).loss)


@each_method
def test_too_many_or_too_few_views_are_refused(name: str) -> None:
    trained = method(name)
    needed = len(trained.views)
    for views in (needed - 1, needed + 1):
        with pytest.raises(ValueError, match=rf"batch\.views must hold {needed} view.* got {views}"):
            step(trained, batches(trained, views=views))


@each_method
@pytest.mark.parametrize("progress", [0.0, 0.9])
def test_a_step_takes_one_batch_from_each_sampler(name: str, progress: float) -> None:
    trained = method(name)
    trained.set_progress(progress)
    given = batches(trained)
    assert step(trained, given).loss.isfinite()
    for wrong in (given[1:], (*given, given[0])):
        with pytest.raises(ValueError, match="unpack"):
            trained(*trained.prepare(*wrong))


@each_method
def test_progress_outside_the_training_is_refused(name: str) -> None:
    method(name).set_progress(1.0)
    with pytest.raises(ValueError, match=r"progress must be from 0 to 1, got 1\.5"):
        method(name).set_progress(1.5)


def keywords(name: str) -> list[inspect.Parameter]:
    model, class_counts, *settings = inspect.signature(METHODS[name]).parameters.values()
    assert (model.name, class_counts.name) == ("model", "class_counts")
    return settings


@each_method
def test_arguments_are_keywords_whose_defaults_a_yaml_file_can_hold(name: str) -> None:
    for setting in keywords(name):
        assert setting.kind == inspect.Parameter.KEYWORD_ONLY, setting.name
        assert yaml.safe_load(yaml.safe_dump(setting.default)) == setting.default, setting.name


@each_method
def test_settings_are_complete_and_plain_and_repeat_the_method(name: str) -> None:
    trained = method(name)
    settings = trained.settings()
    assert settings.keys() == {setting.name for setting in keywords(name)} - set(METHODS[name].needs)
    read = yaml.safe_load(yaml.safe_dump(settings))
    assert read == settings
    again = method(name, **read)
    assert again.settings() == settings
    for progress in (0.0, 0.9):
        for each in (trained, again):
            each.set_progress(progress)
        assert torch.equal(step(again).loss, step(trained).loss)


@each_method
def test_settings_hold_what_the_plan_has_resolved(name: str) -> None:
    trained = method(name)
    trained.plan(7)
    again = method(name, **trained.settings())
    again.plan(7)
    assert again.settings() == trained.settings()
    assert again.stages == trained.stages


@each_method
def test_views_samplers_and_stages_are_known_at_any_time(name: str) -> None:
    trained = method(name)
    views = trained.views
    assert views
    assert set(views) <= set(VIEWS)
    for progress in PROGRESS:
        trained.set_progress(progress)
        assert trained.views == views
        assert trained.samplers
        assert set(trained.samplers) <= set(SAMPLERS)
    assert trained.stages[0] == 0
    assert all(before < after < 1 for before, after in itertools.pairwise(trained.stages))


SAMPLER_ARGUMENTS = [
    (name, setting.name) for name in METHODS for setting in keywords(name) if setting.name.endswith("sampler")
]


@pytest.mark.parametrize(("name", "argument"), SAMPLER_ARGUMENTS)
def test_any_registered_sampler_is_accepted_and_no_other(name: str, argument: str) -> None:
    for sampler in SAMPLERS:
        settings: dict[str, Any] = {argument: sampler}
        trained = method(name, **settings)
        assert sampler in trained.samplers
        assert trained.settings()[argument] == sampler
    settings = {argument: "lucky"}
    with pytest.raises(ValueError, match=r"sampler must be one of .* got 'lucky'"):
        method(name, **settings)


@each_method
def test_the_optimiser_gets_each_trainable_parameter_once_and_no_other(name: str) -> None:
    trained = method(name)
    wanted = list(trainable(trained).values())
    wanted.pop(0).requires_grad_(False)
    given = [parameter for group in trained.parameter_groups() for parameter in group["params"]]
    assert len(given) == len(wanted)
    assert {id(parameter) for parameter in given} == {id(parameter) for parameter in wanted}


Hook = Callable[[Method, torch.optim.Optimizer, dict[str, tuple[Batch, ...]]], None]


def hooks_of_two_epochs(progress: float) -> Iterator[tuple[str, Hook]]:
    """In the trainer's order, as the contract's table has them; the last argument of each holds a step's batches."""

    def set_progress(position: float) -> Hook:
        return lambda trained, _, __: trained.set_progress(position)

    def prepare(seed: int) -> Hook:
        def call(trained: Method, _: torch.optim.Optimizer, held: dict[str, tuple[Batch, ...]]) -> None:
            torch.manual_seed(seed)
            held["batches"] = trained.prepare(*batches(trained, seed=seed))

        return call

    def forward(trained: Method, optimiser: torch.optim.Optimizer, held: dict[str, tuple[Batch, ...]]) -> None:
        optimiser.zero_grad()
        trained(*held["batches"]).loss.backward()
        optimiser.step()

    for epoch in range(2):
        yield "set_progress", set_progress(progress + 0.05 * epoch)
        yield "start_epoch", lambda trained, _, __: trained.start_epoch(TrainingSet(trained))
        for step in range(2):
            yield "prepare", prepare(10 * epoch + step)
            yield "forward", forward
            yield "after_step", lambda trained, _, __: trained.after_step()


@each_method
@pytest.mark.parametrize("progress", [0.3, 0.78])  # 0.78: a stage of `decoupled` begins with the second epoch
def test_a_method_built_anew_goes_on_exactly_after_any_hook(name: str, progress: float) -> None:
    hooks = list(hooks_of_two_epochs(progress))
    whole = method(name)
    optimiser, held = sgd(whole), dict[str, tuple[Batch, ...]]()
    saved = []
    position = 0.0
    for number, (hook, call) in enumerate(hooks):
        call(whole, optimiser, held)
        if hook == "set_progress":
            position = progress if number == 0 else progress + 0.05
        states = copy.deepcopy((whole.state_dict(), optimiser.state_dict()))
        saved.append((*states, dict(held), position))
    for number in (1, 2, 3, 4, 7, 8, 9, 10):  # each kind of hook, in both epochs
        state, momenta, batch, position = saved[number]
        fresh = method(name, seed=5)  # other weights and other draws than the first had
        resumed = sgd(fresh)
        fresh.load_state_dict(copy.deepcopy(state))
        resumed.load_state_dict(copy.deepcopy(momenta))
        for _ in range(2):  # once or twice is the same
            fresh.set_progress(position)
        held = dict(batch)
        for _, call in hooks[number + 1 :]:
            call(fresh, resumed, held)
        assert fresh.samplers == whole.samplers
        assert_same_state(fresh, whole)
        assert [m.training for m in fresh.modules()] == [m.training for m in whole.modules()]


@each_method
def test_the_gradient_reaches_every_parameter_under_autocast(name: str) -> None:
    """A weight's copy in half precision, kept from a pass without gradients, would cut it off."""
    trained = method(name)
    reached = set[str]()
    for progress in PROGRESS if trained.skips_parameters else (0.0,):
        trained.set_progress(progress)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = step(trained).loss
        assert loss.dtype == torch.float32
        loss.backward()
        reached |= {key for key, parameter in trainable(trained).items() if parameter.grad is not None}
    assert trainable(trained).keys() - reached == set()


class OneLayer(nn.Module):
    """The least that a model is: compiling the four passes of a ResNet takes too long for a test."""

    def __init__(self) -> None:
        super().__init__()
        # The names are those of timm's ResNets, by which methods find stages.
        self.conv1, self.bn1, self.act1, self.maxpool = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Identity()
        self.layer1, self.layer2 = nn.Sequential(nn.Identity()), nn.Sequential(nn.Identity())
        block = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.layer3, self.layer4 = nn.Sequential(nn.Identity()), nn.Sequential(block)
        self.global_pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(8, len(COUNTS))

    def get_classifier(self) -> nn.Module:
        return self.fc

    def forward_features(self, x: Tensor) -> Tensor:
        features: Tensor = self.layer4(self.act1(self.bn1(self.conv1(x))))
        return features

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        features: Tensor = self.global_pool(x)
        logits: Tensor = features if pre_logits else self.fc(features)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


@each_method
def test_a_compiled_model_takes_the_same_step(name: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    eager = method(name, model=None if name in NETWORKS else OneLayer())
    compiled = copy.deepcopy(eager)
    compiled.model.compile(backend="aot_eager", fullgraph=True)
    for _ in range(2):
        losses = [step(each).loss for each in (eager, compiled)]
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
        losses[0].backward()
        losses[1].backward()
    for (key, parameter), other in zip(compiled.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-3, atol=1e-3, msg=key)
    for key, value in eager.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[key], value, rtol=1e-4, atol=1e-4, msg=key)


@each_method
@pytest.mark.parametrize("progress", [0.0, 0.4, 0.9])
def test_micro_batches_have_the_gradient_of_the_batch(name: str, progress: float) -> None:
    """Batch norms apart, which see a micro-batch at a time; a method that allows no micro-batches gets none."""
    trained = method(name)
    trained.set_progress(progress)
    for module in trained.modules():
        if isinstance(module, StatisticsLayer):
            module.eval()
    torch.manual_seed(1)
    prepared = trained.prepare(*batches(trained))
    found = []
    for number in (1, 3 if trained.microbatches else 1):
        trained.zero_grad()
        for micro in cut_microbatches(prepared, number):
            (trained(*micro).loss * len(micro[0].target) / len(prepared[0].target)).backward()
        found.append({key: p.grad for key, p in trainable(trained).items() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for key, gradient in found[0].items():
        torch.testing.assert_close(found[1][key], gradient, rtol=1e-3, atol=1e-5, msg=key)


def train_in_every_stage(name: str, rank: int | None = None) -> dict[str, Tensor]:
    """Steps with half of the batch of two ranks, under DDP; or with all of it alone."""
    trained = method(name)
    # The contract leaves plain batch norms to each rank; compound ones are synchronised.
    norms = [m for m in trained.modules() if isinstance(m, StatisticsLayer) and not isinstance(m, CompoundBatchNorm)]
    wrapped: nn.Module = trained if rank is None else DistributedDataParallel(trained, find_unused_parameters=True)
    optimiser = sgd(trained)
    for number, progress in enumerate((0.0, 0.4, 0.9)):
        trained.set_progress(progress)
        for norm in norms:
            norm.eval()
        given = batches(trained, seed=number)
        torch.manual_seed(number)
        if name in MIXES:
            given = trained.prepare(*given)
        if rank is not None:
            given = tuple(part(batch, rank) for batch in given)
        prepared = given if name in MIXES else trained.prepare(*given)
        optimiser.zero_grad()
        wrapped(*prepared).loss.backward()
        optimiser.step()
        trained.after_step()
    return trained.state_dict()


def part(batch: Batch, rank: int) -> Batch:
    extra = {name: tensor[rank::2] for name, tensor in batch.extra.items()}
    return Batch(tuple(view[rank::2] for view in batch.views), batch.target[rank::2], batch.indices[rank::2], extra)


def run_rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.save({name: train_in_every_stage(name, rank) for name in METHODS}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    folder = tmp_path_factory.mktemp("ranks")
    spawn(run_rank, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@each_method
def test_two_ranks_with_half_of_each_batch_equal_one_process(
    ranks: list[dict[str, dict[str, Tensor]]], name: str
) -> None:
    alone = train_in_every_stage(name)
    for rank in ranks:
        assert rank[name].keys() == alone.keys()
        for key, value in alone.items():
            torch.testing.assert_close(rank[name][key], value, rtol=1e-3, atol=1e-4, msg=key)


def used(folder: Path) -> tuple[set[str], set[str]]:
    """Names that are called on, and read from, something called a method in the source of a package."""
    called, read = set[str](), set[str]()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if "method" in ast.unparse(node.func.value).lower():
                    called.add(node.func.attr)
            elif isinstance(node, ast.Attribute) and "method" in ast.unparse(node.value).lower():
                read.add(node.attr)
    return called, read


# What methods themselves call, and what torch calls: a step calls the module.
FOR_METHODS = {"features", "views_of"}
OF_TORCH = {"forward"}
# What `longtail list methods` shows.
FOR_USERS = {"passes"}


@pytest.mark.parametrize(
    "hook",
    [name for name, value in vars(Method).items() if inspect.isfunction(value) and not name.startswith("_")],
)
def test_every_hook_is_called(hook: str) -> None:
    if hook in FOR_METHODS:
        assert any(f"self.{hook}(" in file.read_text() for file in (SOURCE / "methods").glob("*.py"))
    elif hook not in OF_TORCH:
        assert hook in used(SOURCE / "training")[0]


@pytest.mark.parametrize("attribute", [name for name in inspect.get_annotations(Method) if not name.startswith("_")])
def test_every_attribute_is_read(attribute: str) -> None:
    if attribute in FOR_USERS:
        assert f"kind.{attribute}" in (SOURCE / "cli" / "list_units.py").read_text()
    else:
        assert attribute in used(SOURCE / "training")[1]
