"""`--loggers tensorboard`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from longtail.training.logger import Logger

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardLogger(Logger):
    """Writes every number of each epoch, many/medium/few among them, for TensorBoard, to `tensorboard` in the folder.

    A resumed run goes on in the same curves: what was written of the epochs that are trained again is dropped.
    """

    title = "TensorBoard"
    _writer: "SummaryWriter"

    def open(self, *, epoch: int) -> None:
        """Open the event file."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self.folder / "tensorboard"), purge_step=epoch + 1 if epoch else None)

    def write(self, numbers: Mapping[str, float], step: int) -> None:
        """Write the numbers."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def shut(self, *, done: bool) -> None:
        """Close the event file."""
        del done
        self._writer.close()
