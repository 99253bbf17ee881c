import io
import json
import random
from pathlib import Path

import pytest
import torch

from longtail._errors import DataError
from longtail.training.checkpoint import load_checkpoint, read_checkpoint, save_checkpoint
from longtail.training.seal import has_seal, object_is_sound, seal_object, seal_zip, zip_is_sound


def _flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_sealed_zip_is_still_a_file_for_torch() -> None:
    packed = io.BytesIO()
    torch.save({"x": torch.arange(4)}, packed)
    sealed = seal_zip(packed.getvalue())
    assert zip_is_sound(sealed)
    assert torch.equal(torch.load(io.BytesIO(sealed), weights_only=True)["x"], torch.arange(4))


def test_any_flipped_bit_of_a_sealed_zip_is_seen() -> None:
    packed = io.BytesIO()
    torch.save({"x": torch.arange(4)}, packed)
    sealed = seal_zip(packed.getvalue())
    draw = random.Random(0)
    bits = {draw.randrange(8 * len(sealed)) for _ in range(300)} | set(range(8 * len(sealed) - 700, 8 * len(sealed)))
    assert not any(zip_is_sound(_flipped(sealed, bit)) for bit in bits)


def test_a_file_without_a_digest_is_not_sound() -> None:
    assert not zip_is_sound(b"")
    assert not has_seal(b"PK")


def test_the_spelling_of_an_object_does_not_count_and_its_content_does() -> None:
    sealed = seal_object({"mean": [0.5, 0.25], "name": "\udce9t\u00e9"})
    assert object_is_sound(json.loads(json.dumps(dict(reversed(sealed.items())), indent=3)))
    assert not object_is_sound(sealed | {"mean": [0.5, 0.26]})
    assert not object_is_sound({"mean": [0.5]})


def test_a_flipped_bit_in_the_last_checkpoint_is_said_and_the_one_before_is_taken(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, {"step": 1, "weights": torch.zeros(500)})
    save_checkpoint(tmp_path, {"step": 2, "weights": torch.ones(500)})
    last = tmp_path / "last.ckpt"
    whole = last.read_bytes()
    draw = random.Random(1)
    for _ in range(100):
        last.write_bytes(_flipped(whole, draw.randrange(8 * len(whole))))
        content, remark = load_checkpoint(tmp_path)
        assert content["step"] == 1
        assert remark == f"{last} is broken; going on from the checkpoint before it"


def test_a_checkpoint_that_lost_its_digest_is_broken(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, {"step": 1})
    content = read_checkpoint(tmp_path / "last.ckpt")
    torch.save(content, tmp_path / "last.ckpt")
    with pytest.raises(DataError, match="has no digest") as caught:
        load_checkpoint(tmp_path)
    assert caught.value.code == "broken-checkpoint"
