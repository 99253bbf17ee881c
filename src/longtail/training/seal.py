"""A SHA-256 inside a file, so that what was read is proven to be what was written.

Disks, networks and memory flip bits, and neither a zip as torch reads it nor safetensors notices. A checkpoint has the
digest of all bytes before it as its zip comment, so that it stays a file for `torch.load`. A JSON object has the
digest of its other keys, in one fixed spelling, under `sha256`: spaces and the order of keys do not count.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

KEY = "sha256"

_MARK = b"longtail sha256 "
_COMMENT = len(_MARK) + hashlib.sha256().digest_size * 2
# The last bytes of a zip without a comment are the length of its comment.
_LENGTH = 2


def seal_zip(packed: bytes) -> bytes:
    """The zip with its digest as its comment."""
    sealed = packed[:-_LENGTH] + _COMMENT.to_bytes(_LENGTH, "little") + _MARK
    return sealed + digest_of(sealed).encode("ascii")


def has_seal(packed: bytes) -> bool:
    """Whether there is a digest, right or wrong."""
    return packed[-_COMMENT:].startswith(_MARK)


def zip_is_sound(packed: bytes) -> bool:
    """Whether there is a digest, and the bytes have it."""
    digits = _COMMENT - len(_MARK)
    return has_seal(packed) and digest_of(packed[:-digits]).encode("ascii") == packed[-digits:]


def seal_object(content: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object with its digest."""
    return {**content, KEY: _digest_of_object(content)}


def object_is_sound(content: Mapping[str, Any]) -> bool:
    """Whether the JSON object has a digest, and it is the right one."""
    return content.get(KEY) == _digest_of_object(content)


def digest_of(content: bytes) -> str:
    """The SHA-256 as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _digest_of_object(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != KEY}
    return digest_of(json.dumps(rest, sort_keys=True).encode("utf-8", "surrogatepass"))
