"""nsqd's entry: read the options, lock the data directory, listen, and only then import the rest of the daemon.

`-version`, `-help` and every error in the options are answered with little more than the options imported. Connections that
come during the imports wait in the listener's backlog, as they do while the log is read. Exit codes: 0 after SIGINT or SIGTERM,
1 when the node cannot start or a bug shows, 2 for wrong options.
"""

from __future__ import annotations

import contextlib

from nsqd.options import PROGRAM, NsqdOptions
from nsqd.start.listeners import files_needed, files_problem, open_listeners
from shared.log import log
from shared.process.daemon import StartError
from shared.startup import importing, run_daemon


def main() -> int:
    """Run nsqd until a signal. Return the process's exit code."""
    return run_daemon(NsqdOptions, PROGRAM, files_problem, files_needed, _serve)


def _serve(options: NsqdOptions) -> None:
    """Serve until a signal. Raises TlsError, ListenError, StartError."""
    from nsqd.storage.directory import DataDirectory, DirectoryError, LockError

    log.info("ID: %d", options.node_number())
    try:
        with contextlib.closing(DataDirectory(options.data_path)) as directory, open_listeners(options) as listeners:
            with importing():
                from nsqd.start.daemon import serve
            serve(options, directory, listeners)
    except LockError as error:
        raise StartError(f"failed to instantiate nsqd - {error}") from None
    except DirectoryError as error:
        raise StartError(str(error)) from None
