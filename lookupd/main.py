"""nsqlookupd's entry point: it reads the options and listens, and only then imports the rest of the daemon.

Exit codes: 0 after SIGINT or SIGTERM, 1 if an address cannot be bound or a bug shows, 2 for wrong options.
"""

from __future__ import annotations

import time

from lookupd.options import PROGRAM, LookupdOptions
from shared.startup import importing, run_daemon
from shared.tls.options import certificates_problem, load_certificates

FILES = 15  # opened before the first client connects: two listeners, the loops of both threads, one connection


def main() -> int:
    """Run nsqlookupd and return the exit code of the process."""
    return run_daemon(
        LookupdOptions, PROGRAM, certificates_problem, lambda options: FILES + bool(options.https_address), _serve
    )


def _serve(options: LookupdOptions) -> None:
    """Serve until a signal. Raises TlsError, ListenError, StartError."""
    from shared.auth.keyring import open_rights
    from shared.process.daemon import listening, listening_if_given

    knows, certificates = bool(options.auth_file), load_certificates(options)
    with (
        listening(options.tcp_address, knows) as tcp,
        listening_if_given(options.http_address, knows) as http,
        listening_if_given(options.https_address, knows) as https,
    ):
        with importing():
            from lookupd.daemon import Listeners, serve
        serve(options, Listeners(tcp, http, https), certificates, open_rights(options.auth_file, "", time.time))
