"""A life: work that is started in new processes, killed at random moments, started again, and at last let finish.

The processes are forked after the imports, so that many kills take minutes. A group of ranks ends as torchrun would end
it: when one dies, so do the others. A group that hangs is told from one that a busy machine starves by the processor
time that it uses, and says where it stood.
"""

import contextlib
import faulthandler
import importlib
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from mmap import mmap
from pathlib import Path

import psutil
import torch

from longtail._errors import LongtailError
from longtail.training import Callback

PLACES = ("start", "training", "checkpoint", "epoch", "evaluation", "report")
# A group that uses less of a processor in so many seconds waits for nothing that will come.
_WINDOW, _LEAST = 120.0, 0.3
# One that has used so much runs in circles.
_MOST = 600.0
# Below those that the system gives to connections, which might take it before it is listened on.
_PORTS = range(20_000, 30_000)


class BrokenLifeError(Exception):
    """A life ended otherwise than it should."""


class Whereabouts(Callback):
    """Tells the parent, through shared memory, what the child is doing."""

    def __init__(self, shared: mmap) -> None:
        self.shared = shared

    def step(self, **_: object) -> None:
        """Training."""
        self.shared[0] = PLACES.index("training")

    def epoch(self, _: object) -> None:
        """An epoch is over."""
        self.shared[0] = PLACES.index("epoch")

    def progress(self, *_: object) -> None:
        """A split is predicted."""
        self.shared[0] = PLACES.index("evaluation")

    def say(self, message: str) -> None:
        """The report is announced."""
        if message == "writing the report":
            self.shared[0] = PLACES.index("report")


@dataclass
class Life:
    """What is started again and again; a process for each rank."""

    start: Callable[["Life"], list[int]]
    folder: Path
    shared: mmap = field(default_factory=lambda: mmap(-1, 1))

    @property
    def log(self) -> Path:
        """What its processes say."""
        return self.folder.with_name(f"{self.folder.name}.txt")

    def place(self) -> str:
        """Where it is now."""
        if (self.folder / ".last.ckpt.tmp").exists():
            return "checkpoint"
        return PLACES[self.shared[0]]


def fork(work: Callable[[], object], log: Path, **variables: str) -> int:
    """Do something in a new process, which writes to `log`; returns its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with log.open("ab") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        faulthandler.register(signal.SIGUSR1, file=2)
        os.environ.update(variables)
        found = work()
        code = found if isinstance(found, int) else 0
        modules = log.with_suffix(".modules")
        if not modules.exists():
            modules.write_text("\n".join(sys.modules), "utf-8")
    except LongtailError as error:
        os.write(2, f"{error}\n".encode())
        code = error.exit_code
    finally:
        os._exit(code)  # none of the parent's own clean-up


def import_as(log: Path) -> None:
    """Import here what a process that wrote to `log` has imported, for all that are forked from now on."""
    for name in log.with_suffix(".modules").read_text("utf-8").split():
        with contextlib.suppress(Exception):  # some exist only where others have made them
            importlib.import_module(name)


def fork_ranks(work: Callable[[], object], log: Path, ranks: int, draw: random.Random) -> list[int]:
    """A process for each rank, as torchrun starts them."""
    if ranks == 1:
        return [fork(work, log)]
    port = str(_free_port(draw))
    everybody = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": port,
    }
    return [fork(work, log, RANK=str(rank), LOCAL_RANK=str(rank), **everybody) for rank in range(ranks)]


def _free_port(draw: random.Random) -> int:
    while True:
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port := draw.choice(_PORTS)))
            return port


def wait(children: Sequence[int]) -> list[int]:
    """The exit codes of a group of processes; when one fails, the others are ended.

    Raises:
        BrokenLifeError: they hang, and were ended.
    """
    codes: dict[int, int] = {}
    left, used, since = list(children), 0.0, time.monotonic()
    while left:
        for child in left:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                codes[child] = os.waitstatus_to_exitcode(status)
        left = [child for child in children if child not in codes]
        if any(codes.values()):
            end(left)
            codes |= dict.fromkeys(left, -signal.SIGKILL)
        elif time.monotonic() - since > _WINDOW:
            before, used, since = used, processor_time(left), time.monotonic()
            if used - before < _LEAST or used > _MOST:
                for child in left:
                    os.kill(child, signal.SIGUSR1)  # each writes down where it stands
                time.sleep(2)
                end(left)
                raise BrokenLifeError(f"hung after {used:.1f} s of processor time")
        left = [child for child in children if child not in codes]
        time.sleep(0.002)
    return [codes[child] for child in children]


def end(children: Iterable[int]) -> None:
    """Kill processes that have not been waited for."""
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def processor_time(processes: Iterable[int]) -> float:
    """The seconds of processor that processes have used."""
    times = (psutil.Process(number).cpu_times() for number in processes)
    return float(sum(found.user + found.system for found in times))


def kill_once(life: Life, draw: random.Random, *, seconds: float) -> str | None:
    """Start, wait, kill one of the processes; where that met it, or None if it had ended well.

    In one of four times the moment is drawn from the beginning on, else from the end of the start on.
    """
    life.shared[0] = PLACES.index("start")
    children = life.start(life)
    if draw.random() < 0.75:
        while life.place() == "start" and not any(map(has_ended, children)):
            time.sleep(0.002)
    time.sleep(draw.uniform(0, seconds))
    victim = draw.choice(children)
    if has_ended(victim):
        if any(codes := wait(children)):
            raise BrokenLifeError(f"ended by itself with {codes}")
        return None
    place = life.place()
    end([victim, *(child for child in children if child != victim)])
    return place


def has_ended(child: int) -> bool:
    """Whether a process that has not been waited for is over."""
    return bool(psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


def live(life: Life, draw: random.Random, *, kills: int, seconds: float, once: bool = True) -> list[str]:
    """Kill a life some times, then let it finish; returns where the kills met it.

    Args:
        life: to be lived.
        draw: for the moments.
        kills: how many are tried.
        seconds: that it takes without its start when it is left alone.
        once: whether it is over when it has ended before a kill; else it starts from the beginning again.
    """
    met: list[str] = []
    for _ in range(kills):
        place = kill_once(life, draw, seconds=seconds)
        if place is not None:
            met.append(place)
        elif once:
            break
    if any(codes := wait(life.start(life))):
        raise BrokenLifeError(f"could not go on: {codes}")
    return met


def live_alone(life: Life) -> float:
    """Let a life finish without a kill; the seconds that it takes without its start."""
    start = time.monotonic()
    children = life.start(life)
    while life.place() == "start" and not any(map(has_ended, children)):
        time.sleep(0.002)
    begun = time.monotonic()
    if any(codes := wait(children)):
        raise BrokenLifeError(f"ended with {codes}: {life.log.read_text('utf-8')[-500:]}")
    return time.monotonic() - (begun if life.shared[0] else start)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """A forked process must not wait for threads that only its parent has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
