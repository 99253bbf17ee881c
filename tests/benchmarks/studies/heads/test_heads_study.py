"""The tables are those of the records, and the draws are what they are said to be."""

import numpy as np
import pytest
import torch
from scipy import stats

from benchmarks.record import read_records
from benchmarks.studies.folders.table import fill
from benchmarks.studies.heads.run import ARMS, HERE, draw
from benchmarks.studies.heads.table import DEFAULT, difference, tables
from longtail.heads import HEADS


def test_every_head_has_an_arm() -> None:
    assert {settings["name"] for settings in ARMS.values()} == set(HEADS)
    assert DEFAULT in ARMS


def test_a_draw_keeps_nine_in_ten_of_each_class_and_never_none() -> None:
    target = torch.repeat_interleave(torch.arange(3), torch.tensor([40, 10, 1]))
    rows = draw(target, 0)
    assert torch.bincount(target[rows]).tolist() == [36, 9, 1]
    assert not torch.equal(rows, draw(target, 1))


def test_the_interval_is_that_of_a_paired_t_test() -> None:
    generator = np.random.default_rng(0)
    ours, other = generator.random(6), generator.random(6)
    found = difference(*({s: {"balanced": float(v)} for s, v in enumerate(each)} for each in (ours, other)))
    interval = stats.ttest_rel(ours, other).confidence_interval(0.95)
    expected = f"{100 * (ours - other).mean():+.1f} ({100 * interval.low:+.1f} to {100 * interval.high:+.1f})"
    assert found == expected


def test_the_page_has_the_tables_of_the_records() -> None:
    records = read_records(HERE / "results.jsonl")
    if not records:
        pytest.fail("results.jsonl has no records")
    page = (HERE / "README.md").read_text(encoding="utf-8")
    assert fill(page, tables(records)) == page
