"""After fine-tuning: fit the head anew on the new features, and keep the better of the two networks.

Both are compared on validation images that neither saw. The frozen one stays unless the other is better by more than a
standard error, so that a run never ends below its first stage but by chance. If the validation images were drawn from
the training images for this, the head of the kept network is then fitted on all of them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.data import LongTailData
from longtail.data.images import ImageDataset
from longtail.data.preprocessing import Preprocessing
from longtail.evaluation.posthoc import fit_temperature
from longtail.heads import HEADS, balanced_accuracy, is_better
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.training.embed_images import embed_images

# Bounds of a temperature.
_COLDEST, _HOTTEST = 0.1, 10.0

State = dict[str, Tensor]
Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Candidate:
    """One of the two networks.

    Args:
        state: its weights.
        train: features of the training images.
        val: features of the validation images.
        logits: of the validation images.
    """

    state: State
    train: Tensor
    val: Tensor
    logits: Logits


class KeepBetter:
    """Holds the frozen network while another is made of it.

    Args:
        net: with its head fitted; later the fine-tuned one.
        train: features of the training images by the frozen backbone.
        data: the images, some of them for validation.
        preprocessing: how they are seen.
        head: name and settings.
        workers: processes that decode.
        device: where to embed.
    """

    def __init__(
        self,
        net: StageFeatureNet,
        train: Tensor,
        data: LongTailData,
        preprocessing: Preprocessing,
        head: dict[str, Any],
        *,
        workers: int,
        device: torch.device | str,
    ) -> None:
        self._net, self._data, self._head = net, data, head
        self._preprocessing, self._workers, self._device = preprocessing, workers, device
        self._frozen = self._candidate(train)
        net.temperature.fill_(1.0)  # it belongs to the head that was fitted, not to the training

    def choose(self, *, all_images: bool) -> tuple[str, Logits]:
        """Leave the better network in `net`; a sentence about it, and its logits of the validation images.

        Args:
            all_images: whether to fit the head of the better one on the validation images as well.
        """
        features = self._embed(self._data.train)
        self._fit(features, self._data.train.targets)
        tuned, target = self._candidate(features), self._data.val.targets
        before, after = (candidate.logits.argmax(1) == target for candidate in (self._frozen, tuned))
        better = is_better(after, before, target)
        kept = tuned if better else self._frozen
        self._net.load_state_dict(kept.state)
        if all_images:
            labels = np.concatenate([self._data.train.targets, target])
            self._fit(torch.cat([kept.train, kept.val]), labels)
        scores = [f"{balanced_accuracy(correct, target):.1%}" for correct in (before, after)]
        verdict = "keeping the fine-tuned network" if better else "keeping the frozen network"
        what = f"fine-tuning: balanced accuracy on validation {scores[0]} before, {scores[1]} after; {verdict}"
        return what, kept.logits

    def _embed(self, images: ImageDataset) -> Tensor:
        return embed_images(self._net, images, self._preprocessing, device=self._device, workers=self._workers)

    def _candidate(self, train: Tensor) -> Candidate:
        net = self._net
        val = self._embed(self._data.val)
        with torch.no_grad():
            logits = net.cpu().classifier((val - net.centre) / net.spread).numpy()
        temperature = believable_temperature(logits, self._data.val.targets)
        net.temperature.fill_(temperature)
        logits = logits / np.float32(temperature)
        return Candidate({name: value.clone() for name, value in net.state_dict().items()}, train, val, logits)

    def _fit(self, features: Tensor, labels: NDArray[np.int64]) -> None:
        net = self._net.cpu()
        net.standardise(features)
        settings = {key: value for key, value in self._head.items() if key != "name"}
        counts = np.bincount(labels, minlength=len(self._data.classes)).tolist()
        head = HEADS[self._head["name"]](counts, **settings)
        fitted = head.fit((features - net.centre) / net.spread, torch.from_numpy(labels))
        net.classifier.load_state_dict(fitted.state_dict())


def believable_temperature(logits: Logits, target: NDArray[np.int64]) -> float:
    """The temperature that makes the confidences of images that the head was not trained on honest, classes alike.

    It is bounded: with few images none may be wrong, and certainty would follow.
    """
    return float(np.clip(fit_temperature(logits, target, by_class=True), _COLDEST, _HOTTEST))
