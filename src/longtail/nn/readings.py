"""Readings of the paper: what is done where it is silent or contradicts itself, each choice under a name.

| Field | `measured` | `appendix` | `text` |
|---|---|---|---|
| `statistics` | batch | running | updated |
| `detach_responsibilities` | yes | no | no |
| `component_init` | random | equal | equal |
| `scale_affine` | yes | no | no |
| `min_mass` | 2 | 0 | 0 |
| `running_variance` | sample | population | population |
| `group_scheme` | interleaved | contiguous | contiguous |
| `update_on_split` | no | yes | yes |
| `momentum` | each batch norm's own | 0.1 | 0.1 |

- `measured`, the default, is what our comparisons led to: batch norm's own order, with a mixture in its place.
- `appendix` is Algorithm 2: normalise by the running statistics, through which no gradient flows, then update them.
- `text` is the order of sections 3.1 and 3.2: E-step with the accumulated statistics, M-step on the batch,
  accumulate, and normalise by the *updated* statistics. The gradient flows through the batch's share in them.

`appendix` and `text` follow the paper's letter. Three points of it need a word:

- λ = 0.1 in μ := λμ + (1 - λ)μ̂ gives the new batch 90 % if it is taken literally, which is `momentum=0.9`. The paper
  says it of its plain batch norm too, so torch's momentum of 0.1 is the likelier meaning, and the default here. The
  layer and the method take `momentum` as an argument.
- The paper has no least mass. μ̂ and σ̂² of a component without any mass are 0/0: it keeps its mean and variance.
  τ̂ = 0 is well defined, so its prior shrinks, as the letter has it. For a class group without images in the batch
  N_j = 0, and the same holds.
- How components start is not said. Equal ones are parted by the split path alone; without that path they would stay
  equal for ever, so there the method `compound_bn` starts them at random.

For an ablation change a field: `dataclasses.replace(READINGS["measured"], component_init="equal")`.

Reference: Cheng et al., "Compound Batch Normalization for Long-tailed Image Classification", MM 2022.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

StatisticsSource = Literal["batch", "running", "updated"]
ComponentInit = Literal["random", "equal"]
RunningVariance = Literal["sample", "population"]
GroupScheme = Literal["contiguous", "interleaved"]

_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "statistics": ("batch", "running", "updated"),
        "component_init": ("random", "equal"),
        "running_variance": ("sample", "population"),
        "group_scheme": ("contiguous", "interleaved"),
    }
)


def check_momentum(momentum: float | None) -> None:
    """Raise unless `momentum` is None or a share."""
    if momentum is not None and not 0 <= momentum <= 1:
        raise ValueError(f"momentum must be None or between 0 and 1, got {momentum}")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One way to read the paper; the defaults are those of `measured`.

    Args:
        statistics: what normalises while training. "batch": the batch's own moments, with a gradient through them, as
            in batch norm. "running": the running statistics as they were before the batch, without one. "updated":
            the running statistics after the batch, with a gradient through the batch's share. In eval always the
            running ones.
        detach_responsibilities: whether the responsibilities are constants in the backward pass, as in EM.
        component_init: "random" draws each mean from N(0, 1) and sets the affine parameters such that the layer
            computes what batch norm does in eval; "equal" components stay batch norm until the split path parts them.
        scale_affine: whether the gradients of `weight` and `bias` count M times. The responsibilities of a point sum
            to one, so each of the M sets gets a share of the gradient, 1/M of it while components are equal, but the
            whole of SGD's weight decay; with the factor equal components learn as batch norm does.
        min_mass: a component with fewer points than this in the batch keeps its statistics and its prior. At 0 only
            one without any mass keeps its mean and variance, and priors follow the mass of the batch.
        running_variance: whether the running variance averages "sample" variances, N/(N - 1) times the batch's, as
            torch's does, or "population" variances, the paper's 1/N.
        group_scheme: how the method cuts classes into groups; see `class_groups`.
        update_on_split: whether passes through the split path move the statistics.
        momentum: the share of a batch in the running statistics of a converted layer; None keeps that of each batch
            norm.
    """

    statistics: StatisticsSource = "batch"
    detach_responsibilities: bool = True
    component_init: ComponentInit = "random"
    scale_affine: bool = True
    min_mass: float = 2.0
    running_variance: RunningVariance = "sample"
    group_scheme: GroupScheme = "interleaved"
    update_on_split: bool = False
    momentum: float | None = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
        for name in ("detach_responsibilities", "scale_affine", "update_on_split"):
            if not isinstance(value := getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, got {value!r}")
        if not 0 <= self.min_mass < math.inf:
            raise ValueError(f"min_mass must be a finite number of zero or more, got {self.min_mass}")
        check_momentum(self.momentum)


_LETTER = Reading(
    statistics="running",
    detach_responsibilities=False,
    component_init="equal",
    scale_affine=False,
    min_mass=0.0,
    running_variance="population",
    group_scheme="contiguous",
    update_on_split=True,
    momentum=0.1,
)

READINGS: Mapping[str, Reading] = MappingProxyType(
    {"measured": Reading(), "appendix": _LETTER, "text": replace(_LETTER, statistics="updated")}
)


def find_reading(reading: str | Reading) -> Reading:
    """The reading itself, or the one of that name in `READINGS`.

    Example:
        >>> find_reading("text").statistics
        'updated'
    """
    if isinstance(reading, Reading):
        return reading
    if reading not in READINGS:
        raise ValueError(f"reading must be one of {', '.join(READINGS)}, got {reading!r}")
    return READINGS[reading]
