"""A method that trains by another one, its base, for a part of the training."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from longtail.data.views import Batch
from longtail.methods.base import METHODS, EpochData, Method


class WrappedMethod(Method):
    """Hands every hook to the base while `follows_base`; what is left to do is the rest of the training.

    The base sees the model without registering it: one owner, so that each weight is in the state once.

    Args:
        model: from images to logits; the base may replace it.
        class_counts: training images of each class.
        base: a name in `METHODS`.
        base_settings: its keyword arguments.
    """

    def __init__(
        self, model: nn.Module, class_counts: Sequence[int], base: str, base_settings: Mapping[str, Any] | None
    ) -> None:
        if METHODS[base].needs:
            raise ValueError(
                f"base must be a method that needs no finished run, got {base!r} "
                f"(train by {base!r} itself, or take another base such as 'erm')"
            )
        built = METHODS[base](model, class_counts, **(base_settings or {}))
        super().__init__(built.model, class_counts, views=built.views, samplers=built.samplers)
        del built.model
        object.__setattr__(built, "model", self.model)
        self.base, self.base_method, self.follows_base = base, built, True
        self.departures, self.microbatches, self.lr_scale = built.departures, built.microbatches, built.lr_scale

    @property
    def base_settings(self) -> dict[str, Any]:
        """The base's resolved arguments."""
        return self.base_method.settings()

    def start_epoch(self, data: EpochData) -> None:
        """The base's."""
        if self.follows_base:
            self.base_method.start_epoch(data)

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """The base's."""
        return self.base_method.prepare(*batches) if self.follows_base else batches

    def after_step(self) -> None:
        """The base's."""
        if self.follows_base:
            self.base_method.after_step()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The base's, which has the model among its modules for as long as this takes."""
        self.base_method._modules["model"] = self.model
        try:
            return self.base_method.parameter_groups()
        finally:
            del self.base_method._modules["model"]

    def epoch_row(self) -> Mapping[str, float]:
        """The base's, to the end: metrics.csv keeps its columns."""
        return self.base_method.epoch_row()

    def diagnose(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, Any]:
        """The base's."""
        return self.base_method.diagnose(model, batches)
