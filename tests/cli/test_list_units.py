import errno
import json
from pathlib import Path

import pytest

from longtail.cli import run
from longtail.cli.list_units import _about, _lines


def test_each_method_is_shown_with_the_first_sentence_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "methods", "--json"]) == 0
    found = {row["name"]: row["about"] for row in json.loads(capsys.readouterr().out)}
    assert found["erm"] == "Empirical risk minimisation: one view, one loss."
    assert all(about.endswith(".") and about.count(". ") == 0 for about in found.values())


def test_methods_and_presets_are_shown_with_what_they_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "methods"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "passes", "stages", "views", "needs"]
    rows = {line.split()[0]: line.split()[1:5] for line in lines}
    assert rows["erm"] == rows["ldam_drw"] == ["1", "1", "1", "-"]
    assert rows["crt"] == ["1", "2", "1", "-"]
    assert rows["dive"][3] == "teacher"
    assert list(rows) == sorted(rows)


def test_a_description_goes_on_below_itself_where_the_terminal_ends() -> None:
    about = "experts on one trunk, the rarer the classes of one, the slower it learns."
    units = [{"name": "ace", "passes": 1.7, "stages": [0.0], "views": ["weak"], "needs": [], "about": about}]
    _, first, *rest = _lines(units, 70)
    assert len(rest) == 2
    assert {line[: first.index("experts")] for line in rest} == {" " * first.index("experts")}
    assert " ".join([first[first.index("experts") :], *map(str.strip, rest)]) == about
    assert max(map(len, [first, *rest])) <= 70


def test_a_preset_says_of_which_method_it_is_and_with_which_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "methods", "cmo", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["preset_of"], row["settings"]["mixing"], row["samplers"]) == (
        "erm",
        "cmo",
        ["instance", "class_balanced"],
    )


def test_a_unit_of_a_module_without_a_docstring_speaks_for_itself() -> None:
    class Unit:
        """One sentence
        on two lines. Another one.

        More.
        """

    assert _about(Unit) == "One sentence on two lines."


def test_an_empty_list_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "runs", "--runs", str(tmp_path)]) == 0
    assert capsys.readouterr().err == f"no runs in {tmp_path}\n"
    assert run(["list", "methods", "nothing*"]) == 0
    assert capsys.readouterr().err == "nothing matches nothing*\n"


def test_a_folder_of_runs_that_cannot_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert run(["list", "runs", "--runs", str(tmp_path)]) == 3
    assert f"{tmp_path}: Permission denied" in capsys.readouterr().err
