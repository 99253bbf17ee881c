"""Components are fitted into a trained network without changing it; EM keeps clusters, and not class groups."""

from pathlib import Path

import pytest

from benchmarks.parting import PASSES, measure
from longtail.training import load_run


@pytest.mark.parametrize("by_groups", [True, False])
def test_clusters_stay_where_they_were_fitted_and_class_groups_do_not(digits_run: Path, by_groups: bool) -> None:
    found = measure(digits_run, by_groups)
    assert list(found) == [str(passes) for passes in PASSES]
    assert found["0"]["balanced"] == pytest.approx(load_run(digits_run).metrics["balanced"], abs=5e-3)
    before, after = found["0"]["distance"], found["100"]["distance"]
    assert before > 0
    assert (after == pytest.approx(before, rel=0.1)) is not by_groups
