import numpy as np

from longtail.evaluation import surest_mistakes
from tests.support.simulated_logits import simulate


def test_the_most_confident_errors_come_first() -> None:
    data = simulate(10)
    rows = surest_mistakes(data.logits, data.target, limit=15)
    confidence = np.exp(data.logits.max(axis=1)) / np.exp(data.logits).sum(axis=1)
    wrong = data.logits.argmax(axis=1) != data.target
    assert len(rows) == 15
    assert wrong[rows].all()
    np.testing.assert_allclose(confidence[rows], np.sort(confidence[wrong])[::-1][:15], rtol=1e-5)


def test_a_model_without_errors_has_none() -> None:
    assert surest_mistakes(np.eye(3), [0, 1, 2]).size == 0
