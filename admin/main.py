"""nsqadmin's entry point: it reads the options and listens, and only then imports the rest of the daemon.

Exit codes: 0 after SIGINT or SIGTERM, 1 if the address cannot be bound or a bug shows, 2 for wrong options.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from admin.options import PROGRAM, AdminOptions, without_scheme
from shared.process.partial_import import import_http_client
from shared.startup import importing, run_daemon
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


def main() -> int:
    """Run nsqadmin and return the exit code of the process."""
    return run_daemon(
        AdminOptions, PROGRAM, certificates_problem, lambda options: FILES + bool(options.https_address), _serve
    )


def _serve(options: AdminOptions) -> None:
    """Serve until a signal. Raises TlsError, ListenError, StartError if the daemon cannot start; any other error is a bug."""
    from shared.auth.own_token import show_to
    from shared.process.daemon import listening, listening_if_given

    with ExitStack() as ports:
        with _instantiating():
            show_to(shows_token_to(options))
            certificates = load_certificates(options)
            authorizes = bool(options.auth_file or options.oidc_issuer or options.admin_user)
            http = ports.enter_context(listening(options.http_address, authorizes))
            https = ports.enter_context(listening_if_given(options.https_address, authorizes))
            with importing():
                import_http_client()
                from admin.daemon import prepare
            serve = prepare(options, http, https, certificates)
        serve()


@contextmanager
def _instantiating() -> Iterator[None]:
    """Raise StartError for addresses and files that cannot be used."""
    from shared.process.daemon import StartError

    try:
        yield
    except (StartError, OSError, ValueError) as error:
        raise StartError(f"failed to instantiate nsqadmin - {error}") from None
