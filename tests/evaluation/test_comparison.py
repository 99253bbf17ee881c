from dataclasses import replace

import numpy as np
import pytest

from longtail.evaluation import adjust_logits, compare_runs
from longtail.evaluation.comparison import Difference
from tests.support.simulated_logits import simulate

SIMULATED = simulate(40, images_per_class=25)
NOISE = np.random.default_rng(8).normal(0, 0.5, (2, *SIMULATED.logits.shape)).astype(np.float32)
# Two runs of the same skill that make other mistakes, and one that was told to mind the tail.
PLAIN, AGAIN = (replace(SIMULATED, logits=SIMULATED.logits + noise) for noise in NOISE)
BALANCED = replace(PLAIN, logits=adjust_logits(PLAIN.logits, PLAIN.counts, 1.6).astype(np.float32))


COMPARISON = compare_runs(
    {"plain": PLAIN.logits, "again": AGAIN.logits, "balanced": BALANCED.logits},
    PLAIN.target,
    PLAIN.counts,
    PLAIN.classes,
)


def difference(run: str, metric: str) -> Difference:
    return next(d for d in COMPARISON.differences if (d.run, d.metric) == (run, metric))


def test_a_run_of_the_same_skill_shows_no_difference() -> None:
    assert COMPARISON.verdict("again") == "No difference shown between again and plain."
    assert {d.verdict for d in COMPARISON.differences if d.run == "again"} == {"no difference shown"}


def test_equal_runs_are_called_different_about_once_in_twenty_comparisons() -> None:
    small = simulate(12, images_per_class=20)
    rng = np.random.default_rng(3)
    claims = 0
    for _ in range(60):
        runs = {name: small.logits + rng.normal(0, 1, small.logits.shape) for name in ("a", "b")}
        found = compare_runs(runs, small.target, small.counts, replicates=200)
        claims += not found.verdict("b").startswith("No difference shown")
    assert claims <= 8  # three are expected; more than eight happen once in 300 times


def test_balanced_logits_show_what_they_gain_and_lose() -> None:
    assert difference("balanced", "few").verdict == "better"
    assert difference("balanced", "many").verdict == "worse"
    assert "few-shot accuracy is" in COMPARISON.verdict("balanced")
    assert "points higher" in COMPARISON.verdict("balanced")


def test_differences_are_those_of_the_metrics() -> None:
    for d in COMPARISON.differences:
        own, other = (COMPARISON.evaluations[run].metrics[d.metric] for run in (d.run, "plain"))
        assert own is not None
        assert other is not None
        assert d.value == pytest.approx(own - other)


def test_pairing_makes_the_interval_narrower_than_that_of_independent_runs() -> None:
    d = difference("again", "balanced")
    assert d.low is not None
    assert d.high is not None
    single = COMPARISON.evaluations["plain"].balanced
    assert single.low is not None
    assert single.high is not None
    # although it is widened to hold jointly with the other metrics
    assert d.high - d.low < 0.9 * np.sqrt(2) * (single.high - single.low)


def test_identical_runs_differ_in_nothing() -> None:
    same = compare_runs({"a": PLAIN.logits, "b": PLAIN.logits}, PLAIN.target, PLAIN.counts, replicates=50)
    assert {d.value for d in same.differences} == {0.0}
    assert same.verdict("b") == "No difference shown between b and a."
    assert not any(d.differs for d in same.class_differences)


def test_lower_calibration_error_is_better() -> None:
    assert Difference("b", "ece", -0.1, -0.2, -0.05).verdict == "better"
    assert Difference("b", "top1", -0.1, -0.2, -0.05).verdict == "worse"
    assert Difference("b", "top1", -0.1, -0.2, 0.0).verdict == "no difference shown"


def test_class_differences_count_what_is_gained_and_lost() -> None:
    for d in COMPARISON.class_differences:
        mine = PLAIN.target == d.class_index
        logits = {"again": AGAIN, "balanced": BALANCED}[d.run].logits[mine]
        own = logits.argmax(1) == d.class_index
        other = PLAIN.logits[mine].argmax(1) == d.class_index
        assert (d.gained, d.lost) == ((own & ~other).sum(), (other & ~own).sum())
        assert d.value == pytest.approx(own.mean() - other.mean())
    assert any(d.differs for d in COMPARISON.class_differences if d.run == "balanced")
    assert not any(d.differs for d in COMPARISON.class_differences if d.run == "again")


def test_one_image_shows_no_difference() -> None:
    found = compare_runs({"a": [[1.0, 0.0]], "b": [[0.0, 1.0]]}, [0], [5, 5])
    assert {d.verdict for d in found.differences} == {"no difference shown"}


def test_runs_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two runs to compare, got 1"):
        compare_runs({"a": PLAIN.logits}, PLAIN.target, PLAIN.counts)
    with pytest.raises(ValueError, match=r"same images and classes, got the shapes a: \(1000, 40\), b: \(999, 40\)"):
        compare_runs({"a": PLAIN.logits, "b": PLAIN.logits[1:]}, PLAIN.target, PLAIN.counts)


def test_a_notebook_shows_a_table_in_which_names_are_text() -> None:
    shown = compare_runs({"<a>": [[1.0, 0.0]], "<b>": [[0.0, 1.0]]}, [0], [5, 5])._repr_html_()
    assert "<td>&lt;b&gt;</td><td>balanced accuracy</td><td>-100.0</td><td>no difference shown</td>" in shown
    assert "difference from &lt;a&gt; in points" in shown
