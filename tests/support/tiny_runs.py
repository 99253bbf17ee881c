"""Runs of seconds on the digits, to be cut off anywhere."""

from typing import Any

from longtail.training import Callback, RunConfig, build_config

SETTINGS: dict[str, Any] = {
    "data": "digits-lt:10",
    "method": {"name": "erm", "loss": "balanced_softmax"},
    "model": {"name": "resnet8"},
    "epochs": 2,
    "batch_size": 128,
    "workers": 0,
}


def config(**changes: Any) -> RunConfig:
    return build_config(SETTINGS | changes)


class Interrupt(Callback):
    """Does something after a number of steps."""

    def __init__(self, after: int, action: Any) -> None:
        self.left, self.action, self.said = after, action, ""

    def say(self, message: str) -> None:
        self.said += message + "\n"

    def step(self, **_: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.action()


def fail() -> None:
    raise ConnectionResetError("as if the power went")
