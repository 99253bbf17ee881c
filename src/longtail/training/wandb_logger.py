"""`--loggers wandb`."""

import secrets
from collections.abc import Mapping
from typing import Any

from longtail._errors import UsageError
from longtail._files import write_text
from longtail.training.logger import Logger

_OFFLINE = "or keep the numbers here, to be sent with `wandb sync` later: WANDB_MODE=offline"


class WandbLogger(Logger):
    """Sends settings and numbers to Weights & Biases, or with WANDB_MODE=offline to `wandb` in the folder.

    A resumed run goes on in the same curves: its id there is kept in `wandb_run`.
    """

    title = "Weights & Biases"
    _run: Any

    def open(self, *, epoch: int) -> None:
        """Open the run."""
        import wandb

        del epoch
        kept = self.folder / "wandb_run"
        if not kept.exists():
            write_text(kept, secrets.token_hex(8) + "\n")
        if is_online():
            self.say_to_user("connecting to Weights & Biases")
        try:
            self._run = wandb.init(
                project="longtail",
                name=self.folder.name,
                id=kept.read_text(encoding="utf-8").strip(),
                config=self.settings(),
                resume="allow",
                dir=str(self.folder),
                # The screen is ours: it neither prints and asks, nor records what is printed.
                settings=wandb.Settings(silent=True, console="off"),
            )
        except wandb.Error as error:
            what = f"Weights & Biases cannot be reached: {str(error).splitlines()[0]}"
            raise UsageError(what, "the loggers of the run name it", f"try again, {_OFFLINE}") from error
        self.say_to_user(f"wandb    {self._run.url if is_online() else self._run.settings.sync_dir}")

    def write(self, numbers: Mapping[str, float], step: int) -> None:
        """Send the numbers."""
        self._run.log(dict(numbers), step=step)

    def shut(self, *, done: bool) -> None:
        """Close the run, and wait until everything is written: wandb's own process may be killed before."""
        import wandb

        self._run.finish(exit_code=0 if done else 1)
        wandb.teardown()


def is_online() -> bool:
    """Whether the numbers are sent to a server."""
    import wandb

    return wandb.setup().settings.mode not in ("offline", "disabled")


def check_key() -> None:
    """Refuse a server without a key, before anything is trained."""
    import wandb

    if is_online() and not wandb.login(prompt=False):
        raise UsageError(
            "Weights & Biases has no key for its server", "the loggers of the run name it", f"wandb login, {_OFFLINE}"
        )
