"""The model and the method of a run, from its settings."""

import difflib
from collections.abc import Mapping

from torch import nn

from longtail._errors import UsageError, ran_out_of_memory
from longtail.heads import HEADS
from longtail.methods import METHODS, Method
from longtail.models import create_model
from longtail.models.pretrained_weights import PretrainedWeights
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.models.translate_names import has_mixtures
from longtail.models.weights import fit_mixtures
from longtail.training.check_method import refusal
from longtail.training.optimizer import reseed
from longtail.training.recipes import list_presets
from longtail.training.run_config import RunConfig, check_head_settings, check_method_settings


def build_method(
    config: RunConfig,
    *,
    class_counts: list[int],
    in_channels: int,
    image_size: int,
    weights: PretrainedWeights | None = None,
    networks: Mapping[str, nn.Module | None] | None = None,
) -> Method:
    """The model and the method around it; `networks` are those that the method needs, None to load a trained model."""
    kind = find_method(config)
    settings = {key: value for key, value in config.method.items() if key != "name"}
    settings |= networks if networks is not None else dict.fromkeys(kind.needs)
    reseed(config.seed, 0)
    network = config.model.name or "resnet32"
    try:
        model = create_model(
            network, len(class_counts), in_channels=in_channels, pretrained=weights or False, image_size=image_size
        )
    except (ValueError, FileNotFoundError) as error:
        if weights is None:
            raise refusal(config.method["name"], error) from error
        raise UsageError(
            str(error),
            f"nothing can be trained from weights that do not fit {network}",
            "name the network of these weights by --model, or train without them by --from-scratch",
        ) from error
    try:
        if config.model.features != "last":
            features = config.model.features or "stages"
            model = StageFeatureNet(
                model, len(class_counts), in_channels=in_channels, image_size=image_size, features=features
            )
            if config.head is not None:
                name, *rest = config.head["name"], {k: v for k, v in config.head.items() if k != "name"}
                model.classifier = HEADS[name](class_counts, **rest[0]).blank(model.num_features)
        method = kind(model, class_counts, **settings)
        if weights is not None and weights.kind == "file" and has_mixtures(read := weights.read()):
            fit_mixtures(method.model, read, weights.file)
        return method
    except (ValueError, OSError, LookupError, TypeError, ArithmeticError, AttributeError, AssertionError) as error:
        raise refusal(config.method["name"], error) from error
    except RuntimeError as error:  # torch refuses sizes that are too large, or that do not fit together
        if ran_out_of_memory(error):
            raise
        raise UsageError(f"the network cannot be built: {str(error).splitlines()[0]}") from error


def find_method(config: RunConfig) -> type[Method]:
    """The class of the method, once its arguments are known to be its own."""
    name = config.method["name"]
    if name not in METHODS:
        known = [*METHODS, *list_presets()]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UsageError(
            f"there is no {name!r} among the methods{hint}; choose from {', '.join(sorted(known))}",
            "",
            "`longtail list methods` shows all",
        )
    kind = METHODS[name]
    check_method_settings(kind, config.method, "the run's settings")
    check_head_settings(HEADS, config.head)
    return kind
