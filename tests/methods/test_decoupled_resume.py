"""Decoupled training that is resumed, and the classifier that starts once."""

import copy
from typing import Any

import pytest
import torch

from longtail.methods import Decoupled
from tests.support.two_stages import (
    COUNTS,
    EPOCHS,
    changed,
    network,
    sgd,
    train,
    two_stages,
)

each_base = pytest.mark.parametrize("base", ["erm", "compound_bn"])


@each_base
@pytest.mark.parametrize("policy", ["frozen", "shifted", "reestimated"])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_resumed_run_ends_as_an_uninterrupted_one(base: str, policy: str, cut: int) -> None:
    settings: dict[str, Any] = {"base": base, "norm_policy": policy, "reset_classifier": True}
    whole = two_stages(**settings)
    train(whole, sgd(whole), range(EPOCHS))

    first = two_stages(**settings)
    optimiser = sgd(first)
    train(first, optimiser, range(cut))
    second = two_stages(**settings)
    torch.rand(9)  # the new process has drawn other numbers
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    resumed = sgd(second)
    resumed.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    train(second, resumed, range(cut, EPOCHS))
    assert changed(second, whole.state_dict()) == set()


def test_resuming_within_the_second_stage_does_not_reset_the_classifier_again() -> None:
    first = Decoupled(network(), COUNTS, reset_classifier=True)
    first.set_progress(0.8)
    with torch.no_grad():
        first.model.get_parameter("classifier.weight").fill_(7)
    second = Decoupled(network(), COUNTS, reset_classifier=True)
    second.load_state_dict(first.state_dict())
    second.set_progress(0.9)
    second.set_progress(0.9)
    assert (second.model.get_parameter("classifier.weight") == 7).all()


@pytest.mark.parametrize("reset", [True, False])
def test_the_classifier_starts_anew_only_on_request(reset: bool) -> None:
    method = Decoupled(network(), COUNTS, reset_classifier=reset)
    weight = method.model.get_parameter("classifier.weight")
    old, draws = weight.clone(), torch.random.get_rng_state()
    method.set_progress(0.9)
    assert torch.equal(weight, old) is not reset
    assert torch.equal(torch.random.get_rng_state(), draws)
    assert weight.abs().max() <= 64**-0.5  # torch's uniform start of a linear layer with 64 inputs
