"""The same images with the same augmentation, whatever the workers, the ranks and the restarts."""

import numpy as np
import psutil
import pytest
import torch
from PIL import Image

from longtail.data.images import ArrayImages, FileImages, ImageDataset
from longtail.data.loader import Loader, eval_loader, train_loader
from longtail.data.preprocessing import Preprocessing
from longtail.data.samplers import SAMPLERS
from longtail.data.views import Batch

RNG = np.random.default_rng(0)
TARGETS = np.repeat([0, 1, 2, 3], [40, 18, 8, 1])
CIFAR = Preprocessing(32, (0.5, 0.5, 0.4), (0.2, 0.2, 0.3), "cifar10")
OWN = Preprocessing(32, (0.5, 0.5, 0.4), (0.2, 0.2, 0.3), "imagenet", resized=True)
ARRAY = ArrayImages(RNG.integers(0, 256, (67, 32, 32, 3), np.uint8), TARGETS)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> FileImages:
    folder = tmp_path_factory.mktemp("images")
    paths = [folder / f"{number}.jpg" for number in range(67)]
    for path in paths:
        height, width = RNG.integers(40, 90, 2)
        Image.fromarray(RNG.integers(0, 256, (height, width, 3), np.uint8)).save(path)
    return FileImages([str(path) for path in paths], TARGETS)


def build(
    images: ImageDataset = ARRAY,
    preprocessing: Preprocessing = CIFAR,
    *,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    sampler: str = "class_balanced",
) -> Loader:
    return train_loader(
        images,
        preprocessing,
        batch_size=16,
        views=("weak", "strong"),
        sampler=sampler,
        seed=3,
        epochs=5,
        workers=workers,
        rank=rank,
        world_size=world_size,
    )


def run(loader: Loader, epochs: int = 2) -> list[Batch]:
    batches = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        batches += list(loader)
    return batches


def assert_same(some: list[Batch], others: list[Batch]) -> None:
    assert len(some) == len(others) > 0
    for one, other in zip(some, others, strict=True):
        assert torch.equal(one.indices, other.indices)
        assert torch.equal(one.target, other.target)
        for view, same in zip(one.views, other.views, strict=True):
            assert torch.equal(view, same)


def interleave(ranks: list[list[Batch]]) -> list[Batch]:
    """The batches of one process from those of several ranks: image by image in turn."""

    def weave(parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(parts, dim=1).flatten(0, 1)

    return [
        Batch(
            views=tuple(weave(list(views)) for views in zip(*(part.views for part in parts), strict=True)),
            target=weave([part.target for part in parts]),
            indices=weave([part.indices for part in parts]),
        )
        for parts in zip(*ranks, strict=True)
    ]


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_and_ranks_see_the_same_images_with_the_same_augmentation(workers: int, world_size: int) -> None:
    ranks = [run(build(workers=workers, rank=rank, world_size=world_size)) for rank in range(world_size)]
    assert_same(interleave(ranks), run(build()))


@pytest.mark.parametrize(("workers", "world_size"), [(1, 1), (0, 2), (2, 2)])
def test_files_are_seen_alike_too(files: FileImages, workers: int, world_size: int) -> None:
    ranks = [run(build(files, OWN, workers=workers, rank=rank, world_size=world_size)) for rank in range(world_size)]
    assert_same(interleave(ranks), run(build(files, OWN)))


@pytest.mark.parametrize("sampler", list(SAMPLERS))
def test_any_sampler_is_seen_alike(sampler: str) -> None:
    ranks = [run(build(rank=rank, world_size=2, sampler=sampler)) for rank in range(2)]
    assert_same(interleave(ranks), run(build(sampler=sampler)))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_a_run_goes_on_in_mid_epoch_as_if_it_had_not_stopped(stop: int, workers: int) -> None:
    whole = build()
    whole.set_epoch(1)
    expected = list(whole)

    stopped = build(workers=workers)
    stopped.set_epoch(1)
    seen = [batch for _, batch in zip(range(stop), stopped, strict=False)]
    state = stopped.state_dict()

    resumed = build(workers=2 - workers)
    resumed.load_state_dict(state)
    resumed.set_epoch(1)  # as a trainer does before each epoch
    assert len(resumed) == 4, "the length is the whole epoch's"
    assert_same(seen + list(resumed), expected)
    resumed.set_epoch(2)
    whole.set_epoch(2)
    assert_same(list(resumed), list(whole))


def test_a_run_of_one_process_goes_on_with_two_ranks() -> None:
    one = build()
    iterator = iter(one)
    seen = [next(iterator), next(iterator)]
    ranks = [build(rank=rank, world_size=2) for rank in range(2)]
    for rank in ranks:
        rank.load_state_dict(one.state_dict())
    assert_same(seen + interleave([list(rank) for rank in ranks]), run(build(), epochs=1))


def test_a_state_saved_after_the_epoch_has_nothing_left_of_it() -> None:
    loader = build()
    list(loader)
    again = build()
    again.load_state_dict(loader.state_dict())
    assert list(again) == []
    again.set_epoch(1)
    assert len(list(again)) == 4


def test_a_state_of_another_run_is_refused() -> None:
    state = build().state_dict()
    with pytest.raises(ValueError, match="seed must be 4 as in the run that is resumed, got 3"):
        build().load_state_dict(state | {"seed": 4})


def test_the_global_generators_are_left_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(build(workers=1))
    assert torch.equal(torch.get_rng_state(), before)


def test_an_image_that_is_repeated_in_an_epoch_is_augmented_anew() -> None:
    batches = run(build(sampler="reverse"), epochs=1)
    lonely = torch.cat([batch.views[1][batch.target == 3] for batch in batches])
    assert len(lonely) > 30, "the class of one image is drawn most"
    assert len({view.numpy().tobytes() for view in lonely}) > 20


@pytest.mark.parametrize("images", [1, 15, 16, 17, 67])
@pytest.mark.parametrize("world_size", [1, 2])
def test_evaluation_sees_each_image_once_and_as_it_is(images: int, world_size: int) -> None:
    data = ARRAY.select(np.arange(images))
    loaders = [eval_loader(data, CIFAR, batch_size=16, rank=r, world_size=world_size) for r in range(world_size)]
    seen = [batch for loader in loaders for batch in loader]
    assert sorted(torch.cat([batch.indices for batch in seen]).tolist()) == list(range(images))
    assert [len(list(loader)) for loader in loaders] == [len(loader) for loader in loaders]


def test_workers_that_are_killed_in_an_evaluation_are_replaced() -> None:
    killed: list[psutil.Process] = []
    seen: list[int] = []
    for batch in eval_loader(ARRAY, CIFAR, batch_size=4, workers=2):
        seen += batch.indices.tolist()
        if not killed:
            killed = psutil.Process().children()
            for worker in killed:
                worker.kill()
    assert killed
    assert seen == list(range(67))


def test_a_view_that_does_not_exist_and_a_sampler_of_other_images_are_refused() -> None:
    with pytest.raises(KeyError, match=r"there is no 'srong' among the views .did you mean 'strong'"):
        train_loader(ARRAY, CIFAR, batch_size=16, views=("srong",))
    with pytest.raises(ValueError, match="sampler must have one label per image, 67, got 3"):
        Loader(build().images, SAMPLERS["instance"]([0, 1, 2]), batch_size=2)
    with pytest.raises(ValueError, match="workers must be 0 or more, got -1"):
        build(workers=-1)
