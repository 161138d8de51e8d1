"""The nsqadmin daemon: serves the API and the pages until a signal arrives.

This is the only file that connects the parts; `admin/main.py` runs before it. All work is done in the event loop of the HTTP
thread, and the main thread waits for signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request

from admin.alarms.book import AlarmBook
from admin.alarms.checks import Checks
from admin.alarms.monitor import Monitor
from admin.alarms.pages import AlarmPages
from admin.alarms.rules import Thresholds
from admin.alarms.state_store import StateStore
from admin.alarms.webhook import Webhooks
from admin.messages.actions import Actions, Notifier
from admin.messages.browsing import Browsing
from admin.messages.message_forms import MessageForms
from admin.messages.republish import Republish
from admin.messages.tasks import Tasks
from admin.nodes.answer_budget import AnswerBudget
from admin.nodes.cluster import AllFailed, Cluster
from admin.nodes.fallback import FallbackUpstreams
from admin.nodes.history import History
from admin.nodes.inventory import Inventory
from admin.nodes.places import Places, Settings
from admin.nodes.queries import Queries
from admin.nodes.upstreams import Times, UpstreamError, Upstreams
from admin.options import PROGRAM, AdminOptions, without_scheme
from admin.output.form_answers import FormAnswers
from admin.output.layout import Fields, PageRenderer
from admin.output.site import Site
from admin.pages.api import JsonApi
from admin.pages.configuration import Configuration
from admin.pages.forms import Forms
from admin.pages.health import Health
from admin.pages.login import Login
from admin.pages.node_pages import NodePages
from admin.pages.record_pages import RecordPages
from admin.pages.start import Pages
from admin.pages.topic_pages import TopicPages
from admin.users.access import Access
from admin.users.audit import Audit
from admin.users.oidc_roles import OidcRoles
from admin.users.refused_attempts import RefusedAttempts
from admin.users.tombstones import Tombstones
from shared.auth.keyring import Keyring, open_rights
from shared.http.api import Api, Routes, WithHeaders
from shared.http.hosts import Hosts
from shared.http.server import Https, HttpServer
from shared.log import log
from shared.process.daemon import SIGNALS
from shared.process.listen import Listener
from shared.process.service_manager import ServiceManager
from shared.startup import reload_with_certificates
from shared.tls.certificates import Certificates
from shared.tls.client import ClientCertificates, load_client
from shared.tls.dates import CertificateDates
from shared.tls.options import REQUIRED
from shared.values import SECOND

_LEVEL_FLAG = "-http-client-tls-security-level"
# Headers of answers over TLS. For a year browsers ask this host by HTTPS only, at every port.
OVER_TLS = {"strict-transport-security": "max-age=31536000"}
CHECK_EVERY = 0.5  # s between two checks whether the file of users has changed
LEAST_PACKED = 1  # bytes of an answer that is compressed: all of them, as in the original (gorilla's CompressHandler)
PACKING = 4  # of 9 levels: takes a third of the time of 9 in the event loop, and an answer is 5 % larger


def prepare(
    options: AdminOptions, http: Listener, https: Listener | None = None, certificates: Certificates | None = None
) -> Callable[[], None]:
    """Return a function that serves until SIGINT or SIGTERM. `https` and `certificates` come together.

    Raises OSError, ValueError, TlsError, StartError, StateError for addresses and files that cannot be used.
    """
    trusted = ClientCertificates(partial(client_context, options), is_lazy=not _has_client_files(options))
    users = open_rights(options.auth_file, options.auth_token_file, time.time)
    resolve(options)
    if options.oidc_issuer:  # invalid options and files end the start with one line
        from admin.pages.oidc import open_provider

        OidcRoles(options.oidc_role, users)
        open_provider(options)
    site = application(options, trusted.following_context(), users)
    return lambda: asyncio.run(_run(options, site, http, https, certificates, trusted, users))


async def _run(
    options: AdminOptions,
    site: Application,
    http: Listener,
    https: Listener | None,
    certificates: Certificates | None,
    trusted: ClientCertificates,
    users: Keyring | None,
) -> None:
    """Serve until SIGINT or SIGTERM arrives."""
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in SIGNALS:
        loop.add_signal_handler(number, signals.put_nowait, number)
    bug: asyncio.Future[None] = loop.create_future()  # fails with the first bug of the HTTP thread
    app = GZipMiddleware(site.api, LEAST_PACKED, PACKING)
    tls = Https(WithHeaders(app, OVER_TLS), https, certificates, options.tls_required == REQUIRED)
    server = HttpServer(app, [http.socket], partial(_report, loop, bug), https=tls)
    server.start()
    server.call_soon(site.start)
    log.info("HTTP: listening on %s", http.address)
    if https is not None:
        log.info("HTTPS: listening on %s", https.address)
    loaded = (certificates, ""), (trusted if _has_client_files(options) else None, " of the HTTP client")
    reload = partial(reload_with_certificates, options, PROGRAM, *loaded, dates=site.dates)
    site.dates.start()
    ends = {bug, asyncio.ensure_future(ServiceManager(os.environ).serve(_each(signals), reload))}
    if users is not None:
        ends.add(asyncio.ensure_future(_reload_users(users)))
    ended, others = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for one in others:
        one.cancel()
    for one in ended:
        one.result()
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(site.close)
    log.info("HTTP: closing %s", http.address)


def _report(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None], bug: BaseException) -> None:
    """Stop the daemon because of this exception. Any thread may call it."""

    def fail() -> None:
        if not future.done():
            future.set_exception(bug)

    with contextlib.suppress(RuntimeError):  # the daemon has stopped, so nothing waits for this
        loop.call_soon_threadsafe(fail)


async def _each(signals: asyncio.Queue[int]) -> AsyncIterator[int]:
    """Yield the numbers of signals as they arrive."""
    while True:
        yield await signals.get()


async def _reload_users(users: Keyring) -> None:
    """Read the file of users again when it changes; in a thread, because thousands of users take seconds."""
    while True:
        await asyncio.sleep(CHECK_EVERY)
        await asyncio.to_thread(users.reload_if_changed)


@dataclass(frozen=True, slots=True)
class Application:
    """The ASGI application, and the monitors of the clusters."""

    api: Api
    monitors: list[Monitor]
    dates: CertificateDates  # of nsqadmin's own certificates

    def start(self) -> None:
        """Begin to check the nodes. Called in the event loop that serves the application."""
        for one in self.monitors:
            one.start()

    def close(self) -> None:
        """Finish writing the state. Called when the event loop has ended."""
        for one in self.monitors:
            one.store.close()


def application(options: AdminOptions, context: ssl.SSLContext, users: Keyring | None) -> Application:
    """Return the application. `users`: those who may log in; None: there is no file of them. Raises StateError."""
    access = Access(options, users)
    home = options.base_path.rstrip("/")
    named = [part.partition("=")[::2] for part in options.cluster]
    others = {name: f"{home}/clusters/{name}" for name, _ in named}
    clusters = ((options.cluster_name, home), *others.items()) if others else ()
    common = _Common(context, access, home, clusters, AnswerBudget(options.max_upstream_response))
    first = _ClusterSite(options, options.cluster_name, common)
    login = Login(first.site)
    logins = login.routes()
    if options.oidc_issuer:
        from admin.pages.oidc import OidcLogin, open_provider  # here, because its libraries make a start slower

        logins |= OidcLogin(options, access, login, open_provider(options)).routes()
    routes = {**first.routes(), **access.guarded(logins, first.site.renderer.refuse)}
    found, sites, dates = dict(below(home, routes)), [first], CertificateDates(options)
    for name, addresses in named:
        lookupds = tuple(addresses.split(","))
        own = replace(options, base_path=others[name], lookupd_http_address=lookupds, nsqd_http_address=())
        sites.append(_ClusterSite(own, name, common, first.site.audit))
        found |= below(others[name], sites[-1].routes())
    for site in sites:
        site.monitor.own_dates = dates
    api = Api(found, Hosts(list(options.allowed_host)), _note, first.site.renderer.not_found)
    return Application(api, [site.monitor for site in sites], dates)


@dataclass(frozen=True, slots=True)
class _Common:
    """The parts that the sites of all clusters share."""

    context: ssl.SSLContext  # of requests to nodes
    access: Access
    home: str  # base path of the first cluster
    clusters: tuple[tuple[str, str], ...]  # names and base paths
    answer_budget: AnswerBudget


class _ClusterSite:
    """The API and the pages of one cluster."""

    def __init__(self, options: AdminOptions, name: str, common: _Common, audit: Audit | None = None) -> None:
        access, home = common.access, common.home
        settings = Settings(options.lookupd_http_address)
        direct, fallback = _upstreams(options, settings, common)
        cluster = Cluster(direct, lambda: settings.lookupds, options.nsqd_http_address)
        asked = Cluster(fallback, lambda: settings.lookupds, options.nsqd_http_address)
        store = StateStore(Path(options.state_dir) / f"nsqadmin-{name}.sqlite" if options.state_dir else None)
        queries = Queries(settings, asked, fallback, direct, Inventory(store.nodes()))
        publish = partial(_publish, cluster, options.audit_topic) if options.audit_topic else None
        audit = audit or Audit(options.audit_file, publish)
        tombstones = Tombstones(time.time)
        actions = Actions(cluster, Notifier(options.notification_http_endpoint), audit, tombstones)
        answers = FormAnswers(access, home, RefusedAttempts(audit, time.monotonic))
        renderer = PageRenderer(options, access, self._banners, home, answers, common.clusters)
        self.api = JsonApi(options, settings, cluster, actions, access)
        tasks = Tasks(audit)
        webhooks = Webhooks(options.alarm_webhook, options.alarm_webhook_format == "slack", name)
        checks, book = Checks(Thresholds(options.alarm, store.thresholds())), AlarmBook(store.alarms(), store.snoozes())
        self.monitor = Monitor(queries, checks, book, store, options.alarm_interval / SECOND, webhooks.notify)
        self.site = site = Site(options, settings, queries, renderer, access, audit)
        alarms = AlarmPages(site, self.monitor, webhooks, name)
        nodes = NodePages(site, self.api, alarms, tombstones)
        records = RecordPages(site, tasks, History(options.lake))
        self.pages = Pages(site, TopicPages(site, alarms), nodes, records, alarms)
        self.browsing = Browsing(site)
        self.configuration = Configuration(site, actions)
        self.health = Health(site)
        self.forms = Forms(site, actions, tasks, self.monitor)
        self.message_forms = MessageForms(site, actions, tasks, self.browsing)
        self.republish = Republish(site, actions, self.browsing)

    async def _banners(self, request: Request) -> Fields:
        return await self.pages.banners(request)

    def routes(self) -> Routes:
        """Return the handlers of every path, by method, guarded by rights."""
        shown = {**self.pages.routes(), **self.browsing.routes(), **self.health.routes()}
        posted = {**self.forms.routes(shown), **self.message_forms.routes(shown), **self.configuration.routes()}
        pages = {path: {**shown.get(path, {}), **posted.get(path, {})} for path in {**shown, **posted}}
        guarded, refuse = self.site.access.guarded, self.site.renderer.refuse
        return {**guarded(pages, refuse), **guarded(self.republish.routes(), refuse), **guarded(self.api.routes())}


async def _publish(cluster: Cluster, topic: str, line: bytes) -> None:
    """Publish an audit record to the first node that accepts it. Raises UpstreamError, AllFailed."""
    failure: Exception = AllFailed("no nsqd is known")
    for producer in (await cluster.producers()).producers:
        try:
            await cluster.upstreams.post(producer.address, "/pub", {"topic": topic}, line)
            return
        except UpstreamError as error:
            failure = error
    raise failure


def _upstreams(options: AdminOptions, settings: Settings, common: _Common) -> tuple[Upstreams, FallbackUpstreams]:
    """Return the clients of a cluster's servers for commands, and for pages, which do not wait for a server that is down."""
    times = Times(options.http_client_connect_timeout / SECOND, options.http_client_request_timeout / SECOND)
    places = Places(lambda: (*settings.lookupds, *options.nsqd_http_address), https_only=options.nsqd_https)
    given = times, common.context, common.answer_budget, places, bool(options.http_client_tls_cert)
    direct, fallback = Upstreams(*given), FallbackUpstreams(*given)
    fallback.answer_times = direct.answer_times
    return direct, fallback


def below(base: str, routes: Routes) -> Routes:
    """Return the routes below a base path."""
    base = base.rstrip("/")
    return {base + path if path != "/" else base or "/": methods for path, methods in routes.items()}


def _note(bug: BaseException) -> None:
    """Ignore a bug: it is logged and answered, and operators need the other pages."""


def resolve(options: AdminOptions) -> None:
    """Raise OSError for an address that cannot be resolved: the original does not start with one either."""
    given = [("lookupd-http-address", one) for one in options.lookupd_http_address]
    given += [("nsqd-http-address", one) for one in options.nsqd_http_address]
    for flag, address in given:
        parts = urlsplit(f"//{without_scheme(address)}")
        try:
            socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise OSError(f"failed to resolve --{flag} ({address}) - {error}") from None


def _has_client_files(options: AdminOptions) -> bool:
    """Return whether requests to the nodes use certificates from files, and not only the system's authorities."""
    return bool(options.http_client_tls_root_ca_file or options.http_client_tls_cert)


def client_context(options: AdminOptions) -> ssl.SSLContext:
    """Return the TLS context for requests to nodes. Raises TlsError for files that cannot be used."""
    files = options.http_client_tls_root_ca_file, options.http_client_tls_cert, options.http_client_tls_key
    context = load_client(*files, "http-client-tls-", options.http_client_tls_security_level, _LEVEL_FLAG)
    if options.http_client_tls_insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
