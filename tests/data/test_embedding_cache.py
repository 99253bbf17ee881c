import os
from pathlib import Path

import numpy as np
import pytest

from longtail.data.embedding_cache import EmbeddingCache, image_digests
from longtail.data.images import ArrayImages, FileImages
from tests.support.image_folders import write_image

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)
DIGESTS = [bytes([i]) * 32 for i in range(3)]


def test_rows_come_back_by_the_digests_of_their_images(tmp_path: Path) -> None:
    cache = EmbeddingCache({"weights": "a"}, tmp_path)
    assert cache.write(DIGESTS[:2], ROWS[:2])
    assert cache.write(DIGESTS[2:], ROWS[2:])
    found = EmbeddingCache({"weights": "a"}, tmp_path).read()
    assert [found[digest].tolist() for digest in DIGESTS] == ROWS.tolist()


def test_other_weights_have_other_embeddings(tmp_path: Path) -> None:
    EmbeddingCache({"weights": "a"}, tmp_path).write(DIGESTS, ROWS)
    assert EmbeddingCache({"weights": "b"}, tmp_path).read() == {}


@pytest.mark.parametrize("place", [20, 200, -5])
def test_a_flipped_bit_makes_a_file_absent(tmp_path: Path, place: int) -> None:
    cache = EmbeddingCache({}, tmp_path)
    cache.write(DIGESTS, ROWS)
    (file,) = cache.folder.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)
    assert cache.read() == {}
    assert "broken" in cache.problem
    assert not file.exists()


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "embeddings").write_text("a file where the folder should be")
    cache = EmbeddingCache({}, tmp_path)
    assert not cache.write(DIGESTS, ROWS)
    assert "going on without it" in cache.problem


def test_what_was_longest_unused_is_forgotten_first(tmp_path: Path) -> None:
    caches = [EmbeddingCache({"weights": i}, tmp_path) for i in range(3)]
    for cache in caches:
        cache.write(DIGESTS, ROWS)
    caches[0].trim()
    size = sum(file.stat().st_size for file in caches[0].folder.iterdir())
    caches[2].trim(most_bytes=2 * size)
    assert [cache.folder.exists() for cache in caches] == [True, False, True]


def test_a_renamed_file_has_the_same_digest_and_a_changed_one_another(tmp_path: Path) -> None:
    first = write_image(tmp_path / "a.png")
    digest = image_digests(FileImages([first], [0]))
    assert image_digests(FileImages([first.rename(tmp_path / "b.png")], [0])) == digest
    write_image(tmp_path / "c.png").replace(tmp_path / "b.png")
    assert image_digests(FileImages([tmp_path / "b.png"], [0])) != digest


def test_a_pipe_has_a_digest_of_its_own_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    assert image_digests(FileImages([tmp_path / "a.png"], [0])) != image_digests(FileImages([tmp_path / "b.png"], [0]))


def test_arrays_are_told_apart_by_pixels_and_shape() -> None:
    tall, wide = np.zeros((1, 4, 2, 1), np.uint8), np.zeros((1, 2, 4, 1), np.uint8)
    assert image_digests(ArrayImages(tall, [0])) != image_digests(ArrayImages(wide, [0]))
