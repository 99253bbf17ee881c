import signal

import pytest

from longtail.training.stop_request import StoppedError, StopRequest


def leave(error: type[Exception] | None) -> None:
    """Go through a loop that a signal reaches, and that ends in its own way."""
    with StopRequest(None) as request:
        signal.raise_signal(signal.SIGINT)
        if error is StoppedError:
            raise StoppedError(request.reason, "stopped")
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_a_signal_that_nobody_asked_for_is_passed_on(error: type[Exception] | None) -> None:
    with pytest.raises(KeyboardInterrupt):
        leave(error)


def test_a_signal_that_was_acted_upon_is_not() -> None:
    with pytest.raises(StoppedError) as stopped:
        leave(StoppedError)
    assert stopped.value.exit_code == 130
