import pickle

from longtail._errors import DataError, LongtailError, UsageError


def test_each_kind_has_its_exit_code() -> None:
    assert (LongtailError.exit_code, UsageError.exit_code, DataError.exit_code) == (1, 2, 3)


def test_the_message_is_three_lines() -> None:
    assert str(DataError("what", "why", "fix")) == "what\nwhy\nfix"
    assert str(DataError("what")) == "what"


def test_an_error_survives_the_way_to_another_process() -> None:
    copy = pickle.loads(pickle.dumps(DataError("what", "why", "fix")))
    assert (copy.what, copy.why, copy.fix) == ("what", "why", "fix")
