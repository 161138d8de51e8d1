"""nsqadmin: reads its options, serves the API and the pages until a signal. The only wiring.

Everything happens in the HTTP thread's event loop; the main thread waits for signals. Exit codes: 0 after SIGINT or SIGTERM,
1 when the address cannot be bound or a bug shows, 2 for wrong options.
"""

from __future__ import annotations

import ssl
from functools import partial

import trio
from starlette.middleware.gzip import GZipMiddleware

from admin.access import Access
from admin.actions import Actions, Notifier
from admin.api import JsonApi, Settings
from admin.cluster import Cluster
from admin.options import AdminOptions
from admin.pages import Pages
from admin.upstreams import Times, Upstreams
from shared.daemon import SIGNALS, TrioThread, listening, raise_file_limit, until_told_to_stop
from shared.http.api import Api, Hosts, Routes
from shared.http.server import HttpServer
from shared.listen import Listener, ListenError
from shared.log import log
from shared.startup import Exit, begin, reload_log_level
from shared.values import SECOND

PROGRAM = "nsqadmin"
LEAST_PACKED = 500  # bytes of an answer that is worth packing


def main() -> int:
    """The process's exit code."""
    try:
        options = begin(AdminOptions, PROGRAM)
    except Exit as ended:
        return ended.code
    raise_file_limit()
    try:
        context = client_context(options)
        with listening(options.http_address) as listener:
            trio.run(_run, options, listener, context)
    except (ListenError, OSError) as error:
        log.critical("%s", error)
        return 1
    return 0


async def _run(options: AdminOptions, listener: Listener, context: ssl.SSLContext) -> None:
    """Serve until SIGINT or SIGTERM."""
    with trio.open_signal_receiver(*SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            trio_thread = TrioThread()
            nursery.start_soon(trio_thread.raise_bugs)
            server = HttpServer(
                GZipMiddleware(application(options, context), LEAST_PACKED), [listener.socket], trio_thread.report
            )
            server.start()
            log.info("HTTP: listening on %s", listener.address)
            await until_told_to_stop(signals, partial(reload_log_level, options, PROGRAM))
            await trio.to_thread.run_sync(server.stop)
            nursery.cancel_scope.cancel()
    log.info("HTTP: closing %s", listener.address)


def application(options: AdminOptions, context: ssl.SSLContext) -> Api:
    """What is served."""
    settings = Settings(options.lookupd_http_address)
    times = Times(options.http_client_connect_timeout / SECOND, options.http_client_request_timeout / SECOND)
    cluster = Cluster(Upstreams(times, context), lambda: settings.lookupds, options.nsqd_http_address)
    actions, access = Actions(cluster, Notifier(options.notification_http_endpoint)), Access(options)
    api = JsonApi(options, settings, cluster, actions, access)
    pages = Pages(options, settings, cluster, actions, access, api)
    return Api(below(options.base_path, {**pages.routes(), **api.routes()}), Hosts(list(options.allowed_host)), _note)


def below(base: str, routes: Routes) -> Routes:
    """The same, below a path."""
    return {
        base.rstrip("/") + path if path != "/" else base.rstrip("/") or "/": methods for path, methods in routes.items()
    }


def _note(bug: BaseException) -> None:
    """It is in the log; whoever asked was told. An operator needs the other pages now."""


def client_context(options: AdminOptions) -> ssl.SSLContext:
    """For nodes that are asked over TLS. Raises OSError for files that cannot be used."""
    context = ssl.create_default_context(cafile=options.http_client_tls_root_ca_file or None)
    if options.http_client_tls_insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.http_client_tls_cert:
        context.load_cert_chain(options.http_client_tls_cert, options.http_client_tls_key)
    return context
