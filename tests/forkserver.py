"""Programs of this project as processes that are forked from one that has imported them: a start takes a tenth of the CPU.

    process = Popen([*LAUNCH, "nsqd", "-data-path", path], stderr=subprocess.PIPE, text=True)

Such a process is as if that command had started it, but that its modules are there already: the imports of a start are for real
starts to show (tests/project/test_start.py). PENSTOCK_TESTS_EXEC=1 makes all starts real ones.
"""

import atexit
import functools
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock import launch

ROOT = Path(__file__).resolve().parent.parent
LAUNCH = [sys.executable, "-m", "penstock.launch"]
REAL = "PENSTOCK_TESTS_EXEC"
ROOMS = ("nsqd", "lookupd", "admin", "apps", "shared")  # whose modules are imported before the first fork
_NOTHING_SPECIAL = [None, None, None, -1, False, -1]  # user, groups, umask, session and process group
MOST = 200_000  # bytes of an order: arguments and environment


class Popen(subprocess.Popen[Any]):
    """subprocess.Popen, but that it forks what begins with LAUNCH and asks for nothing special."""

    _pidfd = -1  # of a process that was forked and has not been waited for

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *rest: Any) -> None:
        """Start the process, as Popen's method of this name does: sets `pid`, and closes the child's ends of the pipes."""
        pass_fds, cwd, env, _, _, _, *pipes = rest
        stdin, to_stdin, from_stdout, stdout, from_stderr, stderr, _, *special = pipes
        is_special = preexec_fn is not None or pass_fds or special != _NOTHING_SPECIAL or os.environ.get(REAL)
        if is_special or list(args[: len(LAUNCH)]) != LAUNCH or not _server().is_in_this_network():
            super()._execute_child(args, executable, preexec_fn, close_fds, *rest)  # type: ignore[misc]
            return
        files = [own if own != -1 else number for number, own in enumerate((stdin, stdout, stderr))]
        words = [os.fspath(word) for word in args[len(LAUNCH) :]]
        try:
            self.pid = _server().start(words, cwd or os.getcwd(), env if env is not None else os.environ, files)
        finally:
            self._close_pipe_fds(stdin, to_stdin, from_stdout, stdout, from_stderr, stderr)  # type: ignore[attr-defined]
        self._pidfd = os.pidfd_open(self.pid)
        self._child_created = True

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """Return what os.waitpid would return if the process were a child of this one."""
        if self._pidfd < 0:
            return super()._try_wait(flags)  # type: ignore[misc, no-any-return]
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        if not ended.poll(0 if flags & os.WNOHANG else None):
            return 0, 0
        os.close(self._pidfd)
        self._pidfd = -1
        return self.pid, _server().status(self.pid)

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        """Return the exit code; None: the process runs. It is not waited for in a destructor."""
        if self._pidfd < 0:
            return super()._internal_poll(_deadstate)  # type: ignore[misc, no-any-return]
        if _deadstate is None and self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def run(
    command: Sequence[str],
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """subprocess.run, with a Popen of this module."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **options) as process:
        try:
            stdout, stderr = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
    if check:
        done.check_returncode()
    return done


class _Server:
    """The process that forks, as seen by the one that asks it to. Any thread may call."""

    def __init__(self) -> None:
        self._socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        command = [sys.executable, "-m", "tests.forkserver", str(child_socket.fileno())]
        self._process = subprocess.Popen(
            command, cwd=ROOT, pass_fds=[child_socket.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        child_socket.close()
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def is_in_this_network(self) -> bool:
        """Return whether what it forks is in the network namespace of the calling thread."""
        own, forked = (os.readlink(f"/proc/{task}/ns/net") for task in ("thread-self", self._process.pid))
        return own == forked

    def start(self, words: Sequence[str], cwd: str | os.PathLike[str], env: Mapping[str, str], files: list[int]) -> int:
        """Fork a program with these standard files, and return its process id."""
        order = {"words": [*words], "cwd": os.fspath(cwd), "env": dict(env)}
        return self._ask(order, files)

    def status(self, pid: int) -> int:
        """Wait for a program that has ended, and return its status as os.waitpid does."""
        return self._ask({"ended": pid}, [])

    def _ask(self, order: object, files: list[int]) -> int:
        data = json.dumps(order).encode()
        assert len(data) <= MOST
        with self._lock:
            socket.send_fds(self._socket, [data], files)
            return int(self._socket.recv(100))


_starting = threading.Lock()  # threads that start programs at once must get one server


def _server() -> _Server:
    with _starting:
        return _the_server()


@functools.cache
def _the_server() -> _Server:
    return _Server()


def _serve(number: int) -> list[str]:
    """Fork programs until the other end is closed. Returns in each program, with its name and arguments."""
    for room in ROOMS:
        for module in pkgutil.walk_packages(import_module(room).__path__, f"{room}."):
            import_module(module.name)
    gc.collect()
    gc.freeze()  # a collection of a program does not copy the pages of these objects
    with socket.socket(fileno=number) as orders:
        while True:
            data, files, _, _ = socket.recv_fds(orders, MOST, 3)
            if not data:
                os._exit(0)
            order = json.loads(data)
            if "ended" in order:
                orders.send(b"%d" % os.waitpid(order["ended"], 0)[1])
                continue
            pid = os.fork()
            if not pid:
                break
            orders.send(b"%d" % pid)
            for file in files:
                os.close(file)
    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    return list(order["words"])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, which stops what it has started
    words = _serve(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv, sys.orig_argv = [launch.__file__, *words], [*LAUNCH, *words]
    launch.main()
