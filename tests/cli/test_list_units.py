import json

import pytest

from longtail.cli import run
from longtail.cli.list_units import _about


def test_each_method_is_shown_with_the_first_sentence_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "methods", "--json"]) == 0
    found = {row["name"]: row["about"] for row in json.loads(capsys.readouterr().out)}
    assert found["erm"] == "Empirical risk minimisation: one view, one loss."
    assert all(about.endswith(".") and about.count(". ") == 0 for about in found.values())


def test_a_unit_of_a_module_without_a_docstring_speaks_for_itself() -> None:
    class Unit:
        """One sentence
        on two lines. Another one.

        More.
        """

    assert _about(Unit) == "One sentence on two lines."
