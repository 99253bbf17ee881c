import json

import numpy as np
import pytest

from longtail.evaluation import Evaluation, evaluate
from tests.support.simulated_logits import simulate

DATA = simulate(30, images_per_class=5)
FOUND = evaluate(DATA.logits, DATA.target, DATA.counts, DATA.classes, replicates=50)


def test_json_keeps_everything() -> None:
    assert Evaluation.from_json(FOUND.to_json()) == FOUND


def test_json_keeps_what_is_absent() -> None:
    found = evaluate([[0.0, 2.0, 1.0]], [1], [200, 50, 5], replicates=5)
    assert Evaluation.from_json(found.to_json()) == found


def test_json_is_strict_json() -> None:
    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(evaluate([[0.0, 1.0]], [0], [200, 5]).to_json(), parse_constant=refuse)


@pytest.mark.parametrize("text", ['{"format": 99}', "[]"])
def test_another_format_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be an evaluation of format 1"):
        Evaluation.from_json(text)


def test_a_notebook_shows_a_table_in_which_names_are_text() -> None:
    shown = evaluate(np.eye(2), [1, 0], [200, 5], ["<b>", "b & c"], replicates=5)._repr_html_()
    assert shown.startswith("<table>")
    assert "worst class: &lt;b&gt;" in shown
    assert "<b>" not in shown
