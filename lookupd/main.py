"""nsqlookupd's entry point: it reads the options and listens, and only then imports the rest of the daemon.

Exit codes: 0 after SIGINT or SIGTERM, 1 if an address cannot be bound or a bug shows, 2 for wrong options.
"""

from __future__ import annotations

import gc
import time

from lookupd.options import PROGRAM, LookupdOptions
from shared.startup import Exit, begin
from shared.tls.options import certificates_problem, load_certificates

FILES = 15  # opened before the first client connects: two listeners, the loops of both threads, one connection


def main() -> int:
    """Run nsqlookupd and return the exit code of the process."""
    try:
        options = begin(LookupdOptions, PROGRAM, certificates_problem)
    except Exit as ended:
        return ended.code
    from shared.auth.keyring import RightsError, open_rights
    from shared.log import log
    from shared.process.daemon import (
        TooFewFilesError,
        exit_on_early_signals,
        listening,
        listening_if_given,
        raise_file_limit,
    )
    from shared.process.listen import ListenError
    from shared.tls.info import TlsError

    exit_on_early_signals()
    try:
        raise_file_limit(FILES + bool(options.https_address))
        knows, certificates = bool(options.auth_file), load_certificates(options)
        with (
            listening(options.tcp_address, knows) as tcp,
            listening_if_given(options.http_address, knows) as http,
            listening_if_given(options.https_address, knows) as https,
        ):
            gc.disable()  # saves a tenth of the time: imports create no garbage
            from lookupd.daemon import Listeners, serve

            gc.enable()
            keyring = open_rights(options.auth_file, "", time.time)
            serve(options, Listeners(tcp, http, https), certificates, keyring)
    except (TlsError, ListenError) as error:
        log.critical("failed to instantiate nsqlookupd - %s", error)
        return 1
    except (TooFewFilesError, RightsError) as error:
        log.critical("%s", error)
        return 1
    return 0
