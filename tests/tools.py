"""A tool that runs until it is stopped, such as nsq_to_file, ours or the original.

with Tool(our_command("nsq_to_file"), "-topic", "t", ...) as tool:
    tool.wait_for_line("opening")
    assert tool.stop() == 0
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence

from tests.daemons import ROOT, STOP_TIMEOUT, eventually
from tests.forkserver import LAUNCH, Popen


def our_command(program: str) -> list[str]:
    """Return the command that starts a program of this project."""
    return [*LAUNCH, program]


class Tool:
    """One process. Leaving the block sends SIGTERM, and asserts exit code 0 and no traceback."""

    def __init__(self, command: Sequence[str], *flags: str) -> None:
        self.out: list[str] = []  # lines of standard output so far
        self.err: list[str] = []  # lines of standard error so far
        self.process = Popen(
            [*command, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            threading.Thread(target=lines.extend, args=(stream,), daemon=True)
            for lines, stream in ((self.out, self.process.stdout), (self.err, self.process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Tool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            if error is None and self.process.poll() is None:
                assert self.stop() == 0, self.err
        finally:
            self.kill()
        if error is not None:
            error.add_note("".join(self.err))
        else:
            assert "Traceback" not in "".join(self.err), self.err

    def kill(self) -> None:
        """End it at once. May be called twice."""
        self.process.kill()
        self.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(STOP_TIMEOUT)
        for reader in self._readers:
            reader.join(STOP_TIMEOUT)
        return code

    def wait_for_line(self, part: str, times: int = 1) -> str:
        """Wait until `times` lines of standard error contain `part`, and return the first of them."""
        eventually(lambda: sum(part in line for line in [*self.err]) >= times)
        return next(line for line in self.err if part in line)
