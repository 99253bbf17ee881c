"""The command `longtail`: its subcommands, exit codes and output.

A subcommand is a plain function in a file of its own: its signature gives the parser, its docstring the help. It is
listed in `COMMANDS`. Its module is imported when the subcommand is used, and imports torch and other large packages
inside the function, so that help and usage errors are fast.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 a bug, 2 usage, 3 data, 4 memory,
5 diverged, 130 Ctrl-C, 143 SIGTERM.
"""

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

    from cyclopts import App

    from longtail._errors import LongtailError

# Name: (function, its line in the list of commands).
COMMANDS = {
    "check": ("longtail.cli.check:check", "Check a data set, without training: sizes, problems, advice."),
    "train": ("longtail.cli.train:train", "Train on a data set, evaluate, and write a report."),
    "tune": ("longtail.cli.tune:tune", "Search settings on validation images, and train the best."),
    "finish": ("longtail.cli.finish:finish", "Turn a run that was stopped into a usable model."),
    "list": ("longtail.cli.list_units:list_units", "Show methods, models, data sets, losses, recipes or runs."),
    "doctor": ("longtail.cli.doctor:doctor", "Show versions and hardware, and test the installation."),
    "evaluate": ("longtail.cli.evaluate:evaluate", "Measure a run on another data set or split."),
    "report": ("longtail.cli.report:report", "Rebuild the report of a run, or compare several runs."),
    "adjust": ("longtail.cli.adjust:adjust", "Calibrate or shift the predictions of a run, without training."),
    "predict": ("longtail.cli.predict:predict", "Classify images with the model of a run."),
    "export": ("longtail.cli.export:export", "Export the model of a run as ONNX or safetensors."),
    "reproduce": ("longtail.cli.reproduce:reproduce", "Rerun the paper's tables and figures, and compare."),
    "data": ("longtail.cli.fetch:app", "Fetch data sets."),
}


# Commands that show how far they are, once what they need is imported.
_SLOW = [["train"], ["tune"], ["finish"], ["check"], ["predict"], ["evaluate"], ["report"], ["adjust"], ["export"]]


def main() -> None:
    """Run the command `longtail` and exit with its exit code."""
    import signal

    from longtail.cli.end_in_time import end_in_time, leave

    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        end_in_time()
    except RuntimeError as error:
        sys.exit(_outside_fault(error) or _bug())
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 # to the end of the process
    # Before torch is loaded, which reads it once. By default the threads of a step spin while they wait for each other:
    # on a machine that does anything else, most of the time goes to that.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names may not fit the terminal's encoding
            stream.reconfigure(errors="backslashreplace")
    _show_warnings_plainly()
    if sys.argv[1:2] in _SLOW and sys.stderr.isatty() and "--help" not in sys.argv:
        # What is imported next may take a second. The line is written over by the next one, which is longer.
        print("starting", end="\r", file=sys.stderr, flush=True)
    try:
        code = run(sys.argv[1:])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    if code in (130, 143):
        leave(code)  # whatever the exit handlers would wait for
    _leave(code)


def _show_warnings_plainly() -> None:
    """Show our own warnings as a line, without the place in the code that they come from."""
    import warnings

    from longtail._printable import show

    raw, ours = warnings.showwarning, str(Path(__file__).parents[1])

    def show_plainly(message: Warning | str, *place: Any, **more: Any) -> None:
        _, file, *_ = place
        if str(file).startswith(ours):
            show(f"note: {message}", file=sys.stderr)
        else:
            raw(message, *place, **more)

    warnings.showwarning = show_plainly


def _leave(code: int) -> None:
    """Exit once the exit handlers have run, without taking torch apart first, which takes seconds on a busy machine."""
    import atexit

    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)


def _interrupt(number: int, frame: "FrameType | None") -> None:
    """Answer Ctrl-C at once: what runs may take seconds to unwind. A training has a handler of its own."""
    import signal

    os.write(2, b"\nstopping\n")
    signal.default_int_handler(number, frame)


def _terminate(_: int, frame: "FrameType | None") -> None:
    """Exit by an exception, so that every `finally` cleans up; wait for destructors, which would swallow it."""
    import signal

    while frame is not None:
        if frame.f_code.co_name == "__del__" and hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, _terminate)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            return
        frame = frame.f_back
    sys.exit(143)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    from cyclopts import CycloptsError

    from longtail._errors import LongtailError

    try:
        result = build_app()(_complete(list(arguments)), exit_on_error=False, result_action="return_value")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except CycloptsError:
        return 2  # cyclopts has printed what is wrong
    except LongtailError as error:
        _tell(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _tell("stopped")
        return 130
    except BrokenPipeError:
        _forget_output()  # the reader, such as `head`, has closed the pipe
        return 0
    except Exception as error:
        return _outside_fault(error) or _bug()


def _forget_output() -> None:
    """Drop what cannot be written: Python would complain about it at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _outside_fault(error: Exception) -> int:
    """Report what the system refused, and return its exit code; 0 if it is no such error."""
    from longtail._errors import DataError, MemoryFullError, ran_out_of_memory

    told: LongtailError
    if ran_out_of_memory(error):
        told = MemoryFullError(
            "there is not enough memory", "the work does not fit", "use smaller settings, or a machine with more memory"
        )
    elif isinstance(error, OSError) and error.errno is not None:
        place = error.filename or "the output"
        told = DataError(
            f"{os.fsdecode(place) if isinstance(place, str | bytes) else place}: {error.strerror}",
            "it cannot be read or written",
            "check the path, its permissions and the space",
        )
        if error.filename is None:
            _forget_output()
    else:
        return 0
    _tell(str(told))
    return told.exit_code


def _tell(what: str) -> None:
    """Say on stderr what ends the command, if anything can be written there: the exit code says it too."""
    from longtail._printable import show

    with contextlib.suppress(OSError):
        show(f"longtail: {what}", file=sys.stderr)


def _complete(arguments: list[str]) -> list[str]:
    """`--resume` alone stands for `--resume auto`."""
    completed: list[str] = []
    for number, argument in enumerate(arguments):
        completed.append(argument)
        following = arguments[number + 1] if number + 1 < len(arguments) else "--"
        if argument == "--resume" and following.startswith("-"):
            completed.append("auto")
    return completed


def build_app() -> "App":
    """The parser of the command line."""
    from cyclopts import App, CycloptsPanel

    from longtail import __version__
    from longtail._printable import printable

    app = App(
        name="longtail",
        help="Train image classifiers on long-tailed data.",
        version=__version__,
        suppress_keyboard_interrupt=False,
        error_formatter=lambda error: CycloptsPanel(printable(str(error))),
    )
    for name, (function, help_line) in COMMANDS.items():
        app.command(function, name=name, help=help_line)
    return app


def _bug() -> int:
    """Write the traceback to a file and print its name."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="longtail-", suffix=".txt", delete=False) as file:
        traceback.print_exc(file=file)
    kind, error, _ = sys.exc_info()
    _tell(
        f"{kind.__name__ if kind else 'Error'}: {error}\n"
        f"this is a bug in longtail\nplease report it with the file {file.name}"
    )
    return 1
