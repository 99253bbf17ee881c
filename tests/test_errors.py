import pickle

import pytest

from longtail._errors import DataError, LongtailError, UsageError, ran_out_of_memory


def test_each_kind_has_its_exit_code() -> None:
    assert (LongtailError.exit_code, UsageError.exit_code, DataError.exit_code) == (1, 2, 3)


def test_the_message_is_three_lines() -> None:
    assert str(DataError("what", "why", "fix")) == "what\nwhy\nfix"
    assert str(DataError("what")) == "what"


def test_an_error_survives_the_way_to_another_process() -> None:
    copy = pickle.loads(pickle.dumps(DataError("what", "why", "fix")))
    assert (copy.what, copy.why, copy.fix) == ("what", "why", "fix")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_memory_that_is_refused_to_a_library_or_a_thread_is_known_as_such(error: Exception) -> None:
    assert ran_out_of_memory(error)
    assert not ran_out_of_memory(ImportError("No module named 'nothing'"))
