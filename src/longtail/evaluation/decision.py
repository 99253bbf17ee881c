"""How the logits of a trained model become predictions: the one type that all who predict apply.

    z'_k = z_k / T + log q_k − τ log π_k,    p = softmax(z'),    no prediction where max_k p_k < c

with the logits z of the trained model, class priors π of its training images, the strength τ with which π is taken out,
the priors q of the images to come, a temperature T and a confidence c. τ = 0, equal q, T = 1 and c = 0 leave a model as
it was trained. A model trained by plain cross-entropy has π in its logits (τ = 1 takes it out); one trained by balanced
softmax or logit adjustment has not (τ = 0).

T comes first: priors are exchanged by Bayes' rule, which takes probabilities that can be believed. Alone it changes no
label. References: `longtail.evaluation.posthoc`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.class_counts import ClassCounts
from longtail.evaluation._arrays import Bools, Floats, as_logits, softmax
from longtail.evaluation.posthoc import adjust_logits
from longtail.evaluation.promise import Promise, read_promise

# Stands for a prior of 0, whose logarithm does not exist.
_NEVER = 1e-9
_NUMBERS = ("temperature", "tau", "abstain_below")


@dataclass(frozen=True)
class Decision:
    """See the module's docstring; made by `decide` or `choose_decision`.

    Args:
        shift: log q − τ log π of each class, with mean 0.
        temperature: T.
        tau: τ, of which `shift` was made.
        prior: q; None for equal priors.
        prior_name: what the user called q: uniform, train, or a file.
        abstain_below: c.
        how: how each parameter was found, in words, by its name.
        promised: what it gave on validation images that did not choose it; None without such images.
        before: what the model as trained gave on the same images.
    """

    shift: tuple[float, ...] = field(repr=False)
    temperature: float = 1.0
    tau: float = 0.0
    prior: tuple[float, ...] | None = field(default=None, repr=False)
    prior_name: str = "uniform"
    abstain_below: float = 0.0
    how: Mapping[str, str] = field(default_factory=dict)
    promised: Promise | None = None
    before: Promise | None = None

    def apply(self, logits: npt.ArrayLike) -> Floats:
        """Logits (N, K) of the trained model to those of the decision.

        Example:
            >>> decide([90, 10], tau=1.0).apply([[2.0, 0.0]]).argmax(1).tolist()
            [1]
        """
        values = as_logits(logits)
        if values.shape[1] != len(self.shift):
            raise ValueError(f"logits must have a column for each of {len(self.shift)} classes, got {values.shape[1]}")
        shift, temperature = (np.asarray(number, dtype=values.dtype) for number in (self.shift, self.temperature))
        result: Floats = values / temperature + shift
        return result

    def abstains(self, logits: npt.ArrayLike) -> Bools:
        """Which rows of logits that `apply` gave are too unsure for a prediction."""
        return np.asarray(softmax(as_logits(logits)).max(axis=1) < self.abstain_below)

    @property
    def priors(self) -> Floats:
        """q, (K,)."""
        number = len(self.shift)
        return np.full(number, 1 / number) if self.prior is None else np.array(self.prior)

    @property
    def changes_labels(self) -> bool:
        """Whether a label may differ from that of the model as trained."""
        return bool(np.ptp(self.shift) > 0)

    def __str__(self) -> str:
        parts = []
        if self.tau:
            parts.append(f"logit adjustment, tau {self.tau:.3g}")
        if self.prior is not None:
            parts.append(f"prior {self.prior_name}")
        if self.temperature != 1:
            parts.append(f"temperature {self.temperature:.3g}")
        if self.abstain_below:
            parts.append(f"no prediction below {self.abstain_below:.1%}")
        return "; ".join(parts) or "as trained"

    def as_json(self) -> dict[str, Any]:
        """Plain values, from which `read_decision` makes it again."""
        return asdict(self)


def decide(
    class_counts: Sequence[int],
    *,
    tau: float = 0.0,
    temperature: float = 1.0,
    prior: Sequence[float] | None = None,
    prior_name: str = "uniform",
    abstain_below: float = 0.0,
    how: Mapping[str, str] | None = None,
) -> Decision:
    """The decision of these parameters.

    Args:
        class_counts: training images of each class, whose priors are π.
        tau: τ, zero or more.
        temperature: T, above zero.
        prior: q, a share for each class; None for equal ones.
        prior_name: what to call it.
        abstain_below: c, from 0 to less than 1.
        how: see `Decision`.
    """
    counts = ClassCounts(class_counts)
    if not 0 < temperature < np.inf:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    if not 0 <= tau < np.inf:
        raise ValueError(f"tau must be 0 or more, got {tau}")
    if not 0 <= abstain_below < 1:
        raise ValueError(f"abstain_below must be at least 0 and less than 1, got {abstain_below}")
    zeros = np.zeros((1, len(counts)))
    shift = adjust_logits(zeros, counts, tau)[0] if tau else zeros[0]
    if prior is not None:
        shares = np.asarray(prior, dtype=np.float64)
        if shares.shape != (len(counts),) or not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-6:
            raise ValueError(f"prior must have {len(counts)} shares of 0 or more that sum to 1, got {list(prior)[:5]}")
        shift = shift + np.log(np.maximum(shares, _NEVER))
    return Decision(
        shift=tuple((shift - shift.mean()).tolist()),
        temperature=float(temperature),
        tau=float(tau),
        prior=None if prior is None else tuple(float(share) for share in prior),
        prior_name=prior_name,
        abstain_below=float(abstain_below),
        how=dict(how or {}),
    )


def read_decision(content: Any, num_classes: int) -> Decision:
    """The decision that `as_json` gave as `content`.

    Raises:
        ValueError: it is none, or of another number of classes.
    """
    try:
        numbers = {key: float(content[key]) for key in _NUMBERS}
        prior_name, how = str(content["prior_name"]), dict(content["how"])
        shift, prior = (None if content[key] is None else tuple(map(float, content[key])) for key in ("shift", "prior"))
        promised, before = (read_promise(content[key]) for key in ("promised", "before"))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"decision must be what longtail adjust wrote, got {str(content)[:60]} ({error!r})") from error
    if shift is None or len(shift) != num_classes or not np.isfinite([*shift, *numbers.values()]).all():
        raise ValueError(f"decision must have a finite shift for each of {num_classes} classes, got {str(shift)[:60]}")
    return Decision(
        shift,
        numbers["temperature"],
        numbers["tau"],
        prior,
        prior_name,
        numbers["abstain_below"],
        how,
        promised,
        before,
    )
