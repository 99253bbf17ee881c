"""Weights on the Hugging Face hub: those in the local cache, and the download of others.

The hub's client tries again and again where there is no network. A single quick question goes before it, so that the
lack of a network is known after `PATIENCE` seconds at most.
"""

import os
import queue
import threading
from pathlib import Path

FILE = "model.safetensors"
PATIENCE = 1.5


def cached_hub_weights(repository: str) -> Path | None:
    """The file of `repository` in the local cache, or None; asks no network."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, FILE)
    return Path(found) if isinstance(found, str) else None


def download_hub_weights(repository: str) -> Path:
    """The file of `repository`, downloaded to the local cache.

    Raises:
        ConnectionError: the hub cannot be reached or refuses. `HF_HUB_ETAG_TIMEOUT` sets how many seconds to wait
            for its first answer.
    """
    from huggingface_hub import hf_hub_download

    try:
        _ask_hub(repository)
        return Path(hf_hub_download(repository, FILE))
    except Exception as error:  # of requests or httpx, depending on the hub's version, and those of the file system
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise ConnectionError(
            f"cannot download weights from huggingface.co/{repository}: {reason} "
            f"(download {FILE} from there on another machine, and pass its path as pretrained)"
        ) from error


def _ask_hub(repository: str) -> None:
    """Return if the hub answers; in a thread, since looking up a name knows no timeout."""
    from huggingface_hub import get_session, hf_hub_url

    patience = float(os.environ.get("HF_HUB_ETAG_TIMEOUT", PATIENCE))
    answers: queue.SimpleQueue[Exception | int] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(get_session().head(hf_hub_url(repository, FILE), timeout=patience).status_code)
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=patience)
    except queue.Empty:
        raise TimeoutError(f"no answer within {patience:g} s, HF_HUB_ETAG_TIMEOUT=10 waits longer") from None
    if isinstance(answer, Exception):
        raise answer
    if answer >= 500:  # the client would try again; what is below 500 it reports at once
        raise OSError(f"the hub answered with status {answer}")
