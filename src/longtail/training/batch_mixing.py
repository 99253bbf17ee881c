"""Mixed images for any method of one stage, before the method sees them.

A method knows one label of an image. So a mixed image, of labels a and b with the weights w and 1 - w, gets a with the
probability w and else b. For a loss that is a mean over images this is, on average over the draws, the loss of both
labels with their weights, at no cost. `erm` weighs both labels by itself, with less noise, and so do methods that mix.

All views of an image are mixed alike, and each batch of a step with itself, but for "cmo", whose patches come from a
further batch. What is drawn is a function of the seed and the position, so a resumed run mixes alike.
"""

import difflib
import inspect
from collections.abc import Mapping
from typing import Any

import torch

from longtail._errors import UsageError
from longtail.class_counts import ClassCounts
from longtail.data.mixing import MIXINGS
from longtail.data.views import Batch

# What a mixing gets from here, not from the settings.
_GIVEN = {"images", "target", "generator", "class_counts", "patches", "patch_target"}


class BatchMixing:
    """Mixes the batches of a step; see the module's docstring.

    Args:
        settings: name, a name in `MIXINGS`; the share of the steps that are mixed, probability, 1 if left out; and the
            mixing's own arguments, such as alpha.
        class_counts: training images of each class.
        seed: of the run.
    """

    def __init__(self, settings: Mapping[str, Any], class_counts: ClassCounts, seed: int) -> None:
        self._own = {key: value for key, value in settings.items() if key not in ("name", "probability")}
        self._name, self._seed = str(settings.get("name")), seed
        self._probability = float(settings.get("probability", 1.0))
        if self._name not in MIXINGS:
            raise UsageError(f"mixing.name must be one of {', '.join(MIXINGS)}, got {settings.get('name')!r}")
        if not 0 < self._probability <= 1:
            raise UsageError(f"mixing.probability must be above 0 and at most 1, got {self._probability}")
        taken = list(inspect.signature(MIXINGS[self._name]).parameters)
        known = [name for name in taken if name not in _GIVEN]
        for key in self._own:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                fix = f"did you mean mixing.{near[0]}?" if near else f"{self._name} has {', '.join(known)}"
                raise UsageError(f"unknown setting mixing.{key}", "", fix)
        if "class_counts" in taken:
            self._own["class_counts"] = class_counts

    @property
    def samplers(self) -> tuple[str, ...]:
        """Those of further batches of a step, behind the method's."""
        return ("class_balanced",) if self._name == "cmo" else ()

    def __call__(self, batches: tuple[Batch, ...], *position: int) -> tuple[Batch, ...]:
        """The batches of the method, mixed.

        Args:
            batches: those of the method's samplers, then those of `samplers`.
            position: of the step; the same numbers give the same mixed batches.
        """
        generator = torch.Generator()
        state = torch.Generator().manual_seed(self._seed)
        for part in position:
            state.manual_seed(int(torch.randint(2**62, (), generator=state)) ^ part)
        generator.set_state(state.get_state())
        own, further = batches[: len(batches) - len(self.samplers)], batches[len(batches) - len(self.samplers) :]
        if float(torch.rand((), generator=generator)) >= self._probability:
            return own
        return tuple(self._mixed(batch, further, generator) for batch in own)

    def _mixed(self, batch: Batch, further: tuple[Batch, ...], generator: torch.Generator) -> Batch:
        start, views = generator.get_state(), []
        for number, images in enumerate(batch.views):
            generator.set_state(start)
            given: dict[str, Any] = {}
            for other in further:
                given = {"patches": other.views[number], "patch_target": other.target}
            mixed = MIXINGS[self._name](images, batch.target, generator=generator, **given, **self._own)
            views.append(mixed.images)
        first = torch.rand(len(batch.target), generator=generator) < mixed.weight
        return batch._replace(views=tuple(views), target=torch.where(first, mixed.target_a, mixed.target_b))
