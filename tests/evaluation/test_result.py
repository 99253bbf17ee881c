import json
from dataclasses import asdict

import numpy as np

from longtail.evaluation import evaluate
from tests.support.simulated_logits import simulate


def test_json_holds_every_number() -> None:
    data = simulate(30, images_per_class=5)
    found = evaluate(data.logits, data.target, data.counts, data.classes, replicates=50)
    written = json.loads(found.to_json())
    assert written.pop("format") == 1
    assert written == json.loads(json.dumps(asdict(found)))


def test_json_has_null_for_what_is_absent() -> None:
    written = json.loads(evaluate([[0.0, 2.0, 1.0]], [1], [200, 50, 5], replicates=5).to_json())
    assert written["head_tail_gap"] is None
    assert written["classes"][0]["recall"] is None
    assert written["groups"]["few"]["accuracy"] is None


def test_json_is_strict_json() -> None:
    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(evaluate([[0.0, 1.0]], [0], [200, 5]).to_json(), parse_constant=refuse)


def test_a_notebook_shows_a_table_in_which_names_are_text() -> None:
    shown = evaluate(np.eye(2), [1, 0], [200, 5], ["<b>", "b & c"], replicates=5)._repr_html_()
    assert shown.startswith("<table>")
    assert "worst class: &lt;b&gt;" in shown
    assert "<b>" not in shown
