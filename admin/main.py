"""nsqadmin's entry point: it reads the options and listens, and only then imports the rest of the daemon.

Exit codes: 0 after SIGINT or SIGTERM, 1 if the address cannot be bound or a bug shows, 2 for wrong options.
"""

from __future__ import annotations

import gc
import time

from admin.options import PROGRAM, AdminOptions, without_scheme
from shared.process.partial_import import without
from shared.startup import Exit, begin
from shared.tls.options import certificates_problem, load_certificates

# Files opened before the first answer: a listener, the loops of both threads, a browser, and some nodes that are asked.
FILES = 17


def shows_token_to(options: AdminOptions) -> list[str]:
    """Return the hosts, as patterns, to which nsqadmin presents its token.

    With a client certificate none over HTTPS, unless -auth-token-for is given: a server that recognizes nsqadmin by its
    certificate gets no token, which it could present to others.
    """
    given: list[str] = [*options.lookupd_http_address, *options.nsqd_http_address]
    if options.http_client_tls_cert and not options.auth_token_for:
        given = [address for address in given if not address.startswith("https://")]
    return [*map(without_scheme, given), *options.auth_token_for]


def _import_client() -> None:
    """Import the HTTP client without its command line and trio, which take longer than the client itself."""
    with without("httpx._main", "trio"):
        import httpcore
        import httpx

    assert httpcore
    assert httpx


def main() -> int:
    """Run nsqadmin and return the exit code of the process."""
    try:
        options = begin(AdminOptions, PROGRAM, certificates_problem)
    except Exit as ended:
        return ended.code
    from shared.auth.keyring import RightsError, open_rights
    from shared.auth.own_token import show_to
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
        open_rights("", options.auth_token_file, time.time)
        show_to(shows_token_to(options))
        certificates = load_certificates(options)
        authorizes = bool(options.auth_file or options.users_file or options.oidc_issuer or options.admin_user)
        with (
            listening(options.http_address, authorizes) as http,
            listening_if_given(options.https_address, authorizes) as https,
        ):
            gc.disable()  # saves a tenth of the time: imports create no garbage
            _import_client()
            from admin.daemon import serve

            gc.enable()
            serve(options, http, https, certificates)
    except (TooFewFilesError, ListenError, RightsError, TlsError, OSError, ValueError) as error:
        log.critical("failed to instantiate nsqadmin - %s", error)
        return 1
    return 0
