"""What every named data set promises; a new one is tested as soon as it is registered."""

import socket
from pathlib import Path

import pytest

from longtail._errors import DataError
from longtail.data import open_dataset
from longtail.data.datasets import DATASETS
from longtail.data.datasets.fashion_mnist import DEBIAN_FOLDER

# What is there without fetching: Fashion-MNIST too, where Debian's package is installed.
BUNDLED = {"digits-lt"} | ({"fashion-mnist-lt"} if Path("/", DEBIAN_FOLDER).is_dir() else set())


def test_the_benchmarks_are_registered() -> None:
    named = {"cifar10-lt", "cifar100-lt", "fashion-mnist-lt", "imagenet-lt", "places-lt", "inaturalist2018"}
    assert set(DATASETS) >= named | BUNDLED


@pytest.mark.parametrize("name", sorted(set(DATASETS) - BUNDLED))
def test_opening_a_set_that_is_not_there_asks_no_network_and_writes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nobody asked for a download")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(DataError) as caught:
        open_dataset(name, root=tmp_path)
    assert caught.value.code == "not-fetched"
    assert name in caught.value.fix
    assert list(tmp_path.iterdir()) == []
