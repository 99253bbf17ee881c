"""The command `longtail`: its subcommands, exit codes and the way it speaks.

A subcommand is a plain function in a file of its own; its parser comes from its signature, the help of its
arguments from its docstring. It enters `COMMANDS` with one line. Its module is imported when it is asked for,
and imports torch and the like inside of the function, so that help and usage errors answer at once.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 a bug, 2 usage, 3 data, 4 memory,
5 diverged, 130 Ctrl-C, 143 SIGTERM.
"""

import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from cyclopts import App

# Name: (function, what the list of commands says about it).
COMMANDS = {
    "check": ("longtail.cli.check:check", "FileScan at a data set, without training: sizes, problems, advice."),
    "train": ("longtail.cli.train:train", "Train on a data set, evaluate, and write a report."),
    "list": ("longtail.cli.list_units:list_units", "Show methods, models, data sets, losses, recipes or runs."),
    "doctor": ("longtail.cli.doctor:doctor", "Say what this machine has, and test the installation."),
    "evaluate": ("longtail.cli.evaluate:evaluate", "Measure a run on another data set or split."),
    "report": ("longtail.cli.report:report", "Build the report of a run again, or compare several runs."),
    "predict": ("longtail.cli.predict:predict", "Label images with the model of a run."),
    "export": ("longtail.cli.export:export", "Write the model of a run for use elsewhere."),
    "reproduce": ("longtail.cli.reproduce:reproduce", "Run the paper's tables and figures again, ours beside theirs."),
    "data": ("longtail.cli.fetch:app", "Fetch data sets."),
}


def main() -> None:
    """Run the command `longtail` and leave with its exit code."""
    import signal

    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files may be no text of the terminal's encoding
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def _terminate(_: int, frame: "FrameType | None") -> None:
    """Leave by an exception, so that every `finally` cleans up; a destructor would swallow it, so after that."""
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

    app = build_app()
    try:
        result = app(_complete(list(arguments)), exit_on_error=False, result_action="return_value")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except CycloptsError:
        return 2  # it has printed what is wrong
    except LongtailError as error:
        print(f"longtail: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("longtail: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Who reads us, `head` say, has enough. Python would complain at exit about what it cannot write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        return _bug()


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
    from cyclopts import App

    from longtail import __version__

    app = App(
        name="longtail",
        help="Train image classifiers on long-tailed data.",
        version=__version__,
        suppress_keyboard_interrupt=False,
    )
    for name, (function, help_line) in COMMANDS.items():
        app.command(function, name=name, help=help_line)
    return app


def _bug() -> int:
    """Keep the traceback in a file and say where."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="longtail-", suffix=".txt", delete=False) as file:
        traceback.print_exc(file=file)
    kind, error, _ = sys.exc_info()
    print(f"longtail: {kind.__name__ if kind else 'Error'}: {error}", file=sys.stderr)
    print("this is a fault of longtail and not of yours", file=sys.stderr)
    print(f"please report it with {file.name}", file=sys.stderr)
    return 1
