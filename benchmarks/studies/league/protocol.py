"""What all runs of a track of the league share, and what tells its arms apart. Settled before the first run.

Compute is counted in passes. `erm` has the epochs of its track, and a method whose step costs k of its steps has 1/k of
them, so that every run takes about the core-minutes of `erm`, on whatever machine and beside whatever other work.

An arm has `TRIALS` trials on held-out training images, of half the length, with one seed: four pairs of learning rate
and weight decay, and then two other values of its main knob at the best pair. An arm without a knob tries two more
pairs. The best trial settles its runs; the strength of a post-hoc logit adjustment is chosen on the same images.
"""

from typing import Any, NamedTuple

from longtail.methods import METHODS
from longtail.training.recipes import find_recipe

Pair = tuple[float, float]


class Track(NamedTuple):
    """What all runs of a track share.

    Attributes:
        arms: those that take part.
        sets: names of the sets, with what is trained on, and what stands there for the trials.
        model: the settings of the network.
        image_size: None for that of the images.
        epochs: of `erm`; a trial has half of them.
        batch_size: None for that of the recipes.
        pairs: of learning rate and weight decay, which every arm tries.
        more_pairs: that an arm without a knob tries as well.
    """

    arms: tuple[str, ...]
    sets: dict[str, tuple[str, str]]
    model: dict[str, Any]
    image_size: int | None
    epochs: int
    batch_size: int | None
    pairs: tuple[Pair, ...]
    more_pairs: tuple[Pair, ...]


SEEDS, TRIAL_SEED = (100, 101, 102), 0
TRIALS = 6
STRENGTHS = tuple(number / 4 for number in range(9))


class Arm(NamedTuple):
    """A method or a preset, with its settings for CIFAR-LT.

    Attributes:
        recipe: whose settings of the method it has.
        knob: the one that is tuned; None if it has none.
        values: that the knob tries beside the one of the recipe.
        changes: settings of the method that differ from the recipe: one view, the weak one, for all that have one.
        passes: that a step costs; None for those of the method.
    """

    recipe: str
    knob: str | None = None
    values: tuple[Any, ...] = ()
    changes: tuple[tuple[str, Any], ...] = ()
    passes: float | None = None


WEAK = (("view", "weak"),)
# Authors train the second stage for a twentieth of 210 epochs. Of 40 that would be one or two.
FIFTH = (("classifier_from", 0.8),)
ARMS: dict[str, Arm] = {
    "cross_entropy": Arm("cross_entropy"),
    "balanced_softmax": Arm("balanced_softmax"),
    "compound_bn": Arm("compound_bn", "components", (2, 8)),
    "logit_adjustment": Arm("logit_adjustment", "loss_settings.strength", (0.75, 1.25)),
    "cross_entropy_drw": Arm("cross_entropy_drw", "reweight_from", (0.6, 0.9)),
    "ldam_drw": Arm("ldam_drw", "loss_settings.max_margin", (0.25, 1.0)),
    "vs": Arm("vs", "loss_settings.stretch", (0.0, 0.3)),
    "tau_norm": Arm("tau_norm", "tau", (0.5, 1.5)),
    "crt": Arm("crt", changes=(("representation_share", 0.8),)),
    "experts": Arm("experts", "strengths", ((0.75, 1.0, 1.25), (1.0, 1.0, 1.0)), WEAK),
    "weight_balancing": Arm("weight_balancing", "classifier_decay", (0.03, 0.3), FIFTH),
    "los": Arm("los", "label_smoothing", (0.9, 0.99), FIFTH),
    "mislas": Arm("mislas", "head", (0.2, 0.6), FIFTH),
    "ride": Arm("ride", "diversity_weight", (0.2, 1.0)),
    "glmc": Arm("glmc", "consistency_weight", (1.0, 10.0)),
    "cbn": Arm("compound_bn", "components", (2, 8), (("row", "cbn"),), passes=1.2),
    "cmo": Arm("cmo", "mixing_probability", (0.25, 1.0)),
    "lade": Arm("lade", "regularizer_weight", (0.03, 0.3)),
    "lws": Arm("lws", changes=FIFTH),
    "disalign": Arm("disalign", "power", (1.0, 2.0), FIFTH),
    "unimix": Arm("unimix", "tau", (-0.3, 0.0)),
    "bbn": Arm("bbn"),
    "ib": Arm("ib", "alpha", (300.0, 3000.0)),
    "mode_norm": Arm("mode_norm", "modes", (3, 4), WEAK),
    "nbn": Arm("nbn", changes=WEAK),
    "paco": Arm("paco", "sample_weight", (0.03, 0.1)),
    "ace": Arm("ace", "complementary_weight", (0.3, 3.0)),
    "gistnet": Arm("gistnet", "balanced_weight", (0.25, 1.0)),
    "mixup": Arm("mixup", "mixing_settings.alpha", (0.2, 0.5)),
    "remix": Arm("remix", "mixing_settings.alpha", (0.2, 0.5)),
    "focal": Arm("focal", "loss_settings.gamma", (0.5, 2.0)),
    "fine_tune": Arm("fine_tune", "layer_decay", (0.5, 1.0)),
    "class_balanced": Arm("class_balanced", "loss_settings.beta", (0.99, 0.999)),
}


TRACKS = {
    "scratch": Track(
        arms=tuple(name for name in ARMS if name != "fine_tune"),
        sets={name: (f"{name}-16px:100", f"{name}-16px-val:100") for name in ("cifar100-lt", "cifar10-lt")},
        model={"name": "resnet20", "pretrained": False},
        image_size=None,
        epochs=40,
        batch_size=None,
        pairs=((0.05, 5e-4), (0.15, 5e-4), (0.05, 2e-3), (0.15, 2e-3)),
        more_pairs=((0.1, 1e-3), (0.3, 1e-3)),
    ),
    # Folders of benchmarks.studies.folders, and lists of their images.
    "pretrained": Track(
        arms=(
            "balanced_softmax",
            "cross_entropy",
            "fine_tune",
            "compound_bn",
            "cbn",
            "logit_adjustment",
            "experts",
            "ldam_drw",
            "crt",
            "mode_norm",
            "nbn",
        ),
        sets={name: (name, f"{name}-held-out.csv") for name in ("plants", "groceries", "cifar100-lt")},
        model={"name": "tf_efficientnet_lite0"},
        image_size=64,
        epochs=6,
        batch_size=32,
        pairs=((0.003, 5e-4), (0.01, 5e-4), (0.03, 5e-4), (0.1, 5e-4)),
        more_pairs=((0.01, 2e-3), (0.03, 2e-3)),
    ),
}


class Choice(NamedTuple):
    """What trials choose: learning rate, weight decay, and the value of the knob (None: that of the recipe)."""

    lr: float
    weight_decay: float
    value: Any = None


def next_choices(track: Track, arm: Arm, tried: dict[Choice, float]) -> list[Choice]:
    """The trials that are still to do, as far as they are known: the knob follows the best pair.

    Example:
        >>> track = TRACKS["scratch"]
        >>> [choice.lr for choice in next_choices(track, ARMS["tau_norm"], {})]
        [0.05, 0.15, 0.05, 0.15]
        >>> scores = {Choice(*pair): lr for lr, pair in enumerate(track.pairs)}
        >>> next_choices(track, ARMS["tau_norm"], scores)
        [Choice(lr=0.15, weight_decay=0.002, value=0.5), Choice(lr=0.15, weight_decay=0.002, value=1.5)]
    """
    pairs = [*track.pairs, *(track.more_pairs if arm.knob is None else ())]
    waiting = [Choice(*pair) for pair in pairs if Choice(*pair) not in tried]
    if waiting or arm.knob is None:
        return waiting
    lr, decay, _ = max((Choice(*pair) for pair in pairs), key=tried.__getitem__)
    return [choice for value in arm.values if (choice := Choice(lr, decay, value)) not in tried]


def epochs_for(arm: Arm, epochs: int) -> int:
    """The epochs of an arm that cost what so many of `erm` do.

    Example:
        >>> epochs_for(ARMS["balanced_softmax"], 40), epochs_for(ARMS["glmc"], 40)
        (40, 20)
    """
    recipe = find_recipe("cifar100-lt", arm.recipe)
    return round(epochs / (arm.passes or METHODS[recipe["method"]["name"]].passes))


def settings_of(track: Track, arm: Arm, name: str, choice: Choice, *, held_out: bool, seed: int) -> dict[str, Any]:
    """The settings of a run on the set `name`.

    Args:
        track: of `TRACKS`.
        arm: of `ARMS`.
        name: of the sets of the track.
        choice: of the trials.
        held_out: whether it is a trial: held-out training images stand in the place of the test.
        seed: of the run.
    """
    recipe = find_recipe(name, arm.recipe)
    method: dict[str, Any] = recipe["method"] | dict(arm.changes)
    if arm.knob is not None and choice.value is not None:
        place, _, field = arm.knob.rpartition(".")
        change = {field: list(choice.value) if isinstance(choice.value, tuple) else choice.value}
        method = method | ({place: method.get(place, {}) | change} if place else change)
    epochs = epochs_for(arm, track.epochs // 2 if held_out else track.epochs)
    return {
        "data": track.sets[name][held_out],
        "model": track.model,
        "method": method,
        "image_size": track.image_size,
        "epochs": epochs,
        "eval_every": epochs,
        "batch_size": track.batch_size or recipe["batch_size"],
        "val_fraction": 0.0,
        "optim": {"lr": choice.lr, "weight_decay": choice.weight_decay, "warmup_epochs": max(1, epochs // 20)},
        "seed": seed,
        "workers": 0,
    }
