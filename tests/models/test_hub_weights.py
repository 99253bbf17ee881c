import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import timm
import torch
from safetensors.torch import save

from longtail.models import create_model, find_weights
from longtail.models.hub_weights import cached_hub_weights, download_hub_weights

REPOSITORY = "timm/test_resnet.r160_in1k"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.delenv("HF_HUB_ETAG_TIMEOUT", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def use_endpoint(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    endpoint = f"http://127.0.0.1:{port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


class Hub(BaseHTTPRequestHandler):
    """The little of the hub's protocol that a download takes."""

    content = b""
    status = 200
    asked: list[str]

    def do_HEAD(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        self.send_response(self.status)
        self.send_header("ETag", f'"{hashlib.sha256(self.content).hexdigest()}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(self.content)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 (the name is http.server's)
        """Stay silent."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    """A hub on this machine that has the weights of timm's miniature."""
    handler = type("SmallHub", (Hub,), {"content": save(timm.create_model("test_resnet").state_dict()), "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    use_endpoint(monkeypatch, server.server_port)
    yield handler
    server.shutdown()
    server.server_close()


def test_what_is_not_cached_is_downloaded_once_and_only_if_that_is_allowed(hub: type[Hub]) -> None:
    assert find_weights("test_resnet", None) is None
    assert hub.asked == []
    weights = find_weights("test_resnet", True)
    assert weights is not None
    assert weights.file.read_bytes() == hub.content
    assert weights.digest == hashlib.sha256(hub.content).hexdigest()
    asked = len(hub.asked)
    for pretrained in (True, None):
        again = find_weights("test_resnet", pretrained)
        assert again is not None
        assert again.file == weights.file == cached_hub_weights(REPOSITORY)
    assert len(hub.asked) == asked


def test_a_downloaded_model_has_the_weights_of_the_hub(hub: type[Hub]) -> None:
    model = create_model("test_resnet", 1000, pretrained=True)
    weights = find_weights("test_resnet", None)
    assert hub.asked
    assert weights is not None
    for key, value in weights.read().items():
        assert torch.equal(model.state_dict()[key], value), key


def fails_at_once(reason: str) -> None:
    start = time.perf_counter()
    with pytest.raises(
        ConnectionError, match=rf"^cannot download weights from huggingface.co/{REPOSITORY}: "
    ) as caught:
        download_hub_weights(REPOSITORY)
    assert time.perf_counter() - start < 2
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_closed_port_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        use_endpoint(monkeypatch, free.getsockname()[1])  # bound, and nobody listens
        fails_at_once("refused")


def test_a_hub_that_never_answers_is_given_up_in_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        use_endpoint(monkeypatch, silent.getsockname()[1])
        fails_at_once("")


def test_a_name_that_nobody_resolves_is_given_up_in_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    forever = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: forever.wait(30))
    fails_at_once("no answer within 1.5 s, HF_HUB_ETAG_TIMEOUT=10 waits longer")
    forever.set()


@pytest.mark.parametrize("status", [401, 403, 404, 503])
def test_a_refusal_is_told_at_once(status: int, hub: type[Hub]) -> None:
    hub.status = status
    fails_at_once("")


def test_offline_mode_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    fails_at_once("offline")
