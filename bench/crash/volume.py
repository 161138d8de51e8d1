"""The place of the server's data, and its crashes: kills of the process, or power cuts.

For power cuts it is a file system in a file, mounted through a loop device, which is shut down at once without writing its
journal (EXT4_IOC_SHUTDOWN, which is XFS_IOC_GOINGDOWN): data that was not synced is gone when it is mounted again. This
does not tear or reorder blocks below the file system; the simulator does.

A sync that is in progress while the file system goes down may succeed and have written nothing: Linux 6.18 did so with ext4
and xfs in two of 60 cuts, tried with nothing but pwrite and fdatasync. So the process is stopped meanwhile, as every process
would be. Where it runs on, losses of requests sent before and answered after that moment are not counted as its fault.

See docs/contributing/testing.md#power-cuts.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bench.crash.process import CrashError, Process

_GOING_DOWN = (2 << 30) | (4 << 16) | (ord("X") << 8) | 125  # _IOR('X', 125, __u32)
_NO_LOG_FLUSH = 2
_SIZE = 1 << 30  # bytes of the file system; its file is sparse
_MAKERS = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}
_GOES_ON = 0.01  # s for which a process runs on with a dead disk
_COMMAND_TIMEOUT = 60.0  # s


class Cut(Enum):
    """How a process and its file system go down."""

    STILL = "still"  # the process is stopped while the power is cut, as all would be
    FAILING = "failing"  # the process sees its disk fail first, and its replies after that count, too
    KILL = "kill"  # only the process: the next process has to sync the data that it had not synced


@dataclass(frozen=True, slots=True)
class Strike:
    """A crash that has happened. Times are ns of the monotonic clock."""

    at: int  # just before the crash
    power: bool = False  # True: data that the system had not written is lost, too
    gone: int = 0  # when the process began to see the failure, after which no sync of it succeeds; 0: it saw nothing


class PlainDirectory:
    """A directory that outlives the process: a crash is SIGKILL."""

    cuts_power = False

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-crash-"))

    def crash(self, process: Process) -> Strike:
        """End the process by a crash, and return what happened."""
        at = time.monotonic_ns()
        process.kill()
        return Strike(at)

    def recover(self) -> None:
        """Make the directory usable again after a crash."""

    def close(self) -> None:
        """Remove the volume and all data in it."""
        shutil.rmtree(self.directory)


class LoopDevice:
    """A file system of its own: a crash is a power cut, or a kill. Needs root. Raises CrashError."""

    cuts_power = True

    def __init__(self, kind: str, how: Callable[[], Cut]) -> None:
        """Make the file system; `kind` is ext4 or xfs, and `how` is asked at each crash."""
        self._how = how
        self._place = Path(tempfile.mkdtemp(prefix="penstock-crash-"))
        self._image = self._place / "image"
        self._mount = self._place / "mount"
        self._mount.mkdir()
        self._mounted = False
        self._down = True  # it must be mounted again
        try:
            self._make(kind)
        except BaseException:
            self.close()
            raise

    def _make(self, kind: str) -> None:
        with self._image.open("wb") as image:
            image.truncate(_SIZE)
        _run(*_MAKERS[kind], str(self._image))
        self.recover()
        self.directory = self._mount / "data"
        self.directory.mkdir()
        _run("sync", "-f", str(self._mount))

    def crash(self, process: Process) -> Strike:
        how, at, gone = self._how(), time.monotonic_ns(), 0
        if how is not Cut.KILL:
            process.disk_fails = True
            if how is Cut.STILL:
                process.stop()
            self.fail()
            if how is Cut.FAILING:
                gone = time.monotonic_ns()
                time.sleep(_GOES_ON)
        process.kill()
        return Strike(at, how is not Cut.KILL, gone)

    def recover(self) -> None:
        if not self._down:
            return
        self._unmount()
        _run("mount", "-o", "loop", str(self._image), str(self._mount))
        self._mounted, self._down = True, False

    def fail(self) -> None:
        """Let every call fail from now on, until `recover`. Data that was not synced is lost."""
        descriptor = os.open(self._mount, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _GOING_DOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)
        self._down = True

    def close(self) -> None:
        self._unmount()
        shutil.rmtree(self._place)

    def _unmount(self) -> None:
        if self._mounted:
            _run("umount", str(self._mount))
            self._mounted = False


Volume = PlainDirectory | LoopDevice


def kinds() -> tuple[list[str], str]:
    """Return the file systems whose power can be cut here, or the reason why there are none."""
    if os.geteuid() != 0:
        return [], "only root can mount a file system to cut its power"
    if not Path("/dev/loop-control").exists():
        return [], "there are no loop devices here"
    known = Path("/proc/filesystems").read_text().split()
    found = [kind for kind, maker in _MAKERS.items() if kind in known and shutil.which(maker[0])]
    return found, "" if found else "neither mkfs.ext4 nor mkfs.xfs is here"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT)
    if done.returncode != 0:
        raise CrashError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
