"""What `Method` promises of a step, held for every name in the registry with its default settings."""

import copy
import warnings
from pathlib import Path
from typing import cast

import onnxruntime
import pytest
import torch

from longtail.methods._norms import StatisticsLayer
from longtail.methods.base import HeadedModel
from tests.support.every_method import (
    COUNTS,
    PROGRESS,
    assert_same_state,
    batches,
    each_method,
    method,
    sgd,
    step,
    trainable,
)


@each_method
def test_a_step_gives_a_scalar_logits_and_named_parts(name: str) -> None:
    trained = method(name)
    loss, logits, parts = step(trained)
    assert loss.shape == ()
    assert loss.isfinite()
    assert loss.requires_grad
    assert logits.shape == (6, len(COUNTS))
    assert not logits.requires_grad
    assert parts
    assert all(part.shape == () and not part.requires_grad for part in parts.values())


@each_method
@pytest.mark.parametrize("progress", PROGRESS)
def test_the_parts_sum_to_the_loss(name: str, progress: float) -> None:
    trained = method(name)
    trained.set_progress(progress)
    loss, _, parts = step(trained)
    torch.testing.assert_close(torch.stack(list(parts.values())).sum(), loss.detach())


@each_method
def test_the_gradient_reaches_every_parameter(name: str) -> None:
    trained = method(name)
    optimiser = sgd(trained)
    reached = set[str]()
    # At 0 a part may have no weight yet; one that skips parameters trains each in some stage.
    for progress in PROGRESS if trained.skips_parameters else (0.5,):
        trained.set_progress(progress)
        for _ in range(2):  # the first step moves layers that start at zero
            optimiser.zero_grad()
            step(trained).loss.backward()
            optimiser.step()
        reached |= {key for key, p in trainable(trained).items() if p.grad is not None and p.grad.abs().sum() > 0}
    assert trainable(trained).keys() - reached == set()


@each_method
def test_the_same_step_twice_gives_the_same(name: str) -> None:
    first = method(name)
    second = copy.deepcopy(first)
    assert torch.equal(step(first).loss, step(second).loss)
    assert_same_state(first, second)


@each_method
def test_a_step_leaves_its_batches_alone(name: str) -> None:
    trained = method(name)
    given = batches(trained)
    before = copy.deepcopy(given)
    step(trained, given)
    for batch, old in zip(given, before, strict=True):
        assert all(map(torch.equal, batch.views, old.views))
        assert torch.equal(batch.target, old.target)


@each_method
@pytest.mark.parametrize("progress", [0.5, 0.9])
def test_forward_changes_no_state_but_the_statistics_of_batch_norms(name: str, progress: float) -> None:
    trained = method(name)
    trained.set_progress(progress)
    norms = {path for path, module in trained.named_modules() if isinstance(module, StatisticsLayer)}
    prepared = trained.prepare(*batches(trained))
    before = copy.deepcopy(trained.state_dict())
    trained(*prepared)
    changed = {key for key, value in trained.state_dict().items() if not torch.equal(value, before[key])}
    assert {key for key in changed if key.rpartition(".")[0] not in norms} == set()


@each_method
def test_what_is_deployed_is_the_model(name: str) -> None:
    """The weights of `model` alone give its logits, which do not depend on the rest of the batch."""
    trained, fresh = method(name), method(name, seed=5)
    step(trained)
    fresh.model.load_state_dict(trained.model.state_dict())
    x = batches(trained)[0].views[0]
    with torch.no_grad():
        logits = trained.eval().model(x)
        assert logits.shape == (6, len(COUNTS))
        assert torch.equal(fresh.eval().model(x), logits)
        torch.testing.assert_close(torch.cat([trained.model(image[None]) for image in x]), logits)
    assert not hasattr(trained, "predict")


@each_method
def test_the_features_are_what_the_classifier_takes(name: str) -> None:
    trained = method(name).eval()
    x = batches(trained)[0].views[0]
    classifier = cast("HeadedModel", trained.model).get_classifier()
    assert any(module is classifier for module in trained.model.children())
    with torch.no_grad():
        torch.testing.assert_close(classifier(trained.features(x)), trained.model(x))


@each_method
def test_onnx_computes_what_the_model_does(name: str, tmp_path: Path) -> None:
    trained = method(name)
    step(trained)
    x = batches(trained)[0].views[0]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of torch about its own internals
        expected = trained.eval().model(x)
        program = torch.onnx.export(trained.model, (x[:2],), dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False)
    assert program is not None
    program.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-4)


@each_method
def test_the_state_is_that_of_the_model_and_loads_again(name: str) -> None:
    trained, fresh = method(name), method(name, seed=5)
    assert {f"model.{key}" for key in trained.model.state_dict()} <= trained.state_dict().keys()
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(step(fresh).loss, step(trained).loss)


@each_method
def test_too_many_or_too_few_views_are_refused(name: str) -> None:
    trained = method(name)
    needed = len(trained.views)
    for views in (needed - 1, needed + 1):
        with pytest.raises(ValueError, match=rf"batch\.views must hold {needed} view.* got {views}"):
            step(trained, batches(trained, views=views))


@each_method
@pytest.mark.parametrize("progress", [0.0, 0.9])
def test_a_step_takes_one_batch_from_each_sampler(name: str, progress: float) -> None:
    trained = method(name)
    trained.set_progress(progress)
    given = batches(trained)
    assert step(trained, given).loss.isfinite()
    for wrong in (given[1:], (*given, given[0])):
        with pytest.raises(ValueError, match="unpack"):
            trained(*trained.prepare(*wrong))


@each_method
def test_progress_outside_the_training_is_refused(name: str) -> None:
    method(name).set_progress(1.0)
    with pytest.raises(ValueError, match=r"progress must be from 0 to 1, got 1\.5"):
        method(name).set_progress(1.5)
