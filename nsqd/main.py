"""nsqd's entry: read the options, lock the data directory, listen, and only then import the rest of the daemon.

`-version`, `-help` and every error in the options are answered with little more than the options imported. Connections that
come during the imports wait in the listener's backlog, as they do while the log is read. Exit codes: 0 after SIGINT or SIGTERM,
1 when the node cannot start or a bug shows, 2 for wrong options.
"""

from __future__ import annotations

import contextlib
import gc

from nsqd.options import PROGRAM, NsqdOptions
from nsqd.start.listeners import SecretError, files_needed, files_problem, open_listeners
from shared.startup import Exit, begin


def main() -> int:
    """Run nsqd until a signal. Return the process's exit code."""
    try:
        options = begin(NsqdOptions, PROGRAM, files_problem)
    except Exit as ended:
        return ended.code
    from nsqd.storage.directory import DataDirectory, DirectoryError, LockError
    from shared.log import log
    from shared.process.daemon import TooFewFilesError, exit_on_early_signals, raise_file_limit
    from shared.process.listen import ListenError
    from shared.tls.info import TlsError

    log.info("ID: %d", options.node_number())
    exit_on_early_signals()
    try:
        raise_file_limit(files_needed(options))
        with contextlib.closing(DataDirectory(options.data_path)) as directory, open_listeners(options) as listeners:
            gc.disable()  # saves a tenth of the time: no imported object is garbage
            from nsqd.start.daemon import serve

            gc.enable()
            serve(options, directory, listeners)
    except (TlsError, ListenError, LockError) as error:
        log.critical("failed to instantiate nsqd - %s", error)
        return 1
    except (TooFewFilesError, SecretError, DirectoryError) as error:
        log.critical("%s", error)
        return 1
    return 0
