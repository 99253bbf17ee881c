"""The head of a run: fitted on the first rank and given to all; and what compares it with fine-tuning."""

from dataclasses import replace
from typing import Any

from lightning_fabric import Fabric

from longtail._errors import UsageError
from longtail.heads import HEADS
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.training.build import Parts, workers_for
from longtail.training.callback import Callback
from longtail.training.frozen_head import FrozenHead, fit_frozen_head
from longtail.training.keep_better import KeepBetter


def fit_head(
    parts: Parts, seconds: float | None, fabric: Fabric, callback: Callback, *, own_validation: bool
) -> tuple[Parts, FrozenHead | None]:
    """Fit the head that the settings ask for on the first rank, and give it to all; the settings then have it all.

    Args:
        parts: of the run.
        seconds: of the whole run; None for no limit.
        fabric: launched.
        callback: is told what happens.
        own_validation: whether the validation images are the user's own, rather than drawn to judge fine-tuning.
    """
    if parts.config.head is None:
        return parts, None
    net, head = parts.method.model, None
    if not isinstance(net, StageFeatureNet):
        raise UsageError(f"head must be null for {parts.config.method['name']}, got {dict(parts.config.head)}")
    if fabric.is_global_zero:
        head = fit_frozen_head(
            net,
            parts.data,
            parts.preprocessing,
            parts.weights,
            dict(parts.config.head),
            mirror=bool(parts.config.mirror_features) and not parts.config.planned_epochs,
            seed=parts.config.seed,
            seconds=seconds,
            workers=workers_for(parts.config, parts.data.train),
            device=fabric.device,
            say=callback.say,
            progress=callback.progress,
            own_validation=own_validation,
        )
    settings: dict[str, Any]
    state, settings = fabric.broadcast((net.state_dict(), head.settings if head else {}))
    parts = replace(parts, config=replace(parts.config, head=settings))
    if not fabric.is_global_zero:
        net.classifier = HEADS[settings["name"]](
            list(parts.data.class_counts), **{key: value for key, value in settings.items() if key != "name"}
        ).blank(net.num_features)
    net.load_state_dict(state)
    net.requires_grad_(True)
    return parts, head


def keeper_for(parts: Parts, head: FrozenHead, fabric: Fabric) -> KeepBetter:
    """What judges fine-tuning, once the head is fitted."""
    net = parts.method.model
    assert isinstance(net, StageFeatureNet)
    workers = workers_for(parts.config, parts.data.train)
    return KeepBetter(
        net, head.features, parts.data, parts.preprocessing, head.settings, workers=workers, device=fabric.device
    )
