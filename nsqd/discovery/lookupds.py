"""Keep the registrations at all nsqlookupds up to date: a task for each registers and unregisters topics and channels.

A new topic waits, undistributed, until the nsqlookupds were asked which channels it has on other nodes. So the first message
already reaches all of them. Only the client that creates a topic or channel waits for this, for PATIENCE at most; an
nsqlookupd that did not answer the last time is not waited for.

See docs/contributing/design/nsqlookupd.md#what-nsqd-does.
"""

import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterable
from types import ModuleType

import trio

from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany
from nsqd.core.registry import Change, ChangeKind
from nsqd.core.topic import Topic
from nsqd.discovery.comparison import GRACE, Comparison, Inventory, Name
from nsqd.discovery.link import LinkError, LookupdLink, explained
from penstock.protocol.lookup import register, unregister
from penstock.protocol.names import is_ephemeral, is_valid_name
from shared.auth.own_token import own_token
from shared.http.bounded import AnswerError
from shared.log import log
from shared.process.listen import ListenError, is_loopback
from shared.tls.client import ClientCertificates

PING_INTERVAL = 15.0  # s
WITNESS_WITHIN = 0.9  # s for the responses of all nsqlookupds about a node: an election waits for 1 s
MOST_REQUESTS = 16  # about new topics, in progress at once: each is a connection
PATIENCE = 1.0  # s that a client waits, at most, until the topic or channel that it created is registered
# s; doubled with each failure up to PING_INTERVAL, so that an nsqlookupd that is just starting is found soon
FIRST_RETRY = 1.0

_FLAG = "-lookupd-tls-root-ca-file"

Ask = Callable[[str, str, tuple[float, float], ssl.SSLContext | None], Awaitable[list[str]]]


class _Lookupd:
    """One nsqlookupd: the link to it, and the changes that were not sent to it yet."""

    def __init__(self, link: LookupdLink) -> None:
        self.link = link
        self.scope = trio.CancelScope()
        self.patience = FIRST_RETRY  # s until the next try after a failure
        self.comparison = Comparison()  # what it lacks of what was registered over the connection
        self.ping_at = 0.0  # s of trio's clock: when the next ping is due
        self.news = trio.Event()  # set when there is something to send, or a reason to try again
        self._commands: list[bytes] = []  # filled only while connected, because connecting registers everything anyway
        self._queued_count = 0  # calls of `queue_command`
        self._taken = 0  # calls that the last `pop_commands` covers
        self._known = 0  # calls that the nsqlookupd has acknowledged
        self.is_no_witness = False  # its HTTP API does not answer, which was logged
        self.answers = True  # False: the last exchange failed, and so did the next try
        self._progress = trio.Event()  # set, and replaced, when `_known` or `answers` changes

    def queue_command(self, command: bytes) -> None:
        """Queue a REGISTER or UNREGISTER command, to be sent soon."""
        if self.link.connected:
            self._commands.append(command)
        self._queued_count += 1
        self.news.set()

    def pop_commands(self) -> list[bytes]:
        """Return the commands to send now."""
        self.news = trio.Event()
        commands, self._commands = self._commands, []
        self._taken = self._queued_count
        return commands

    def acknowledged(self) -> None:
        """Note that the nsqlookupd has answered the commands of the last `pop_commands`."""
        self._known, self.answers = self._taken, True
        self._notify()

    def failed(self) -> None:
        """Note that the nsqlookupd did not answer, twice in a row."""
        self.answers = False
        self._notify()

    async def until_known(self) -> None:
        """Wait until the nsqlookupd has acknowledged all commands so far, or does not answer."""
        queued = self._queued_count
        while self.answers and self._known < queued:
            await self._progress.wait()

    def _notify(self) -> None:
        self._progress.set()
        self._progress = trio.Event()


class Lookupds:
    """All nsqlookupds of the node. Runs in the trio thread, between turns."""

    def __init__(
        self,
        broker: Broker,
        identity: dict[str, object],
        timeouts: tuple[float, float],
        wake: Callable[[], None],
        nursery: trio.Nursery,
        ping_interval: float = PING_INTERVAL,
        tls: ClientCertificates | None = None,
    ) -> None:
        """`ping_interval`: s between two pings of each nsqlookupd. `tls`: the authorities to trust; None: there is no TLS."""
        self._tls = tls
        self._has_warned = False
        self._ping_interval = ping_interval
        self._broker = broker
        self._identity = identity
        self._timeouts = timeouts  # s: to connect, and for each wait for more of an answer
        self._ask: Ask | None = None  # `queries.channels_of`; None until the first request
        self._wake = wake  # makes the reactor run a turn
        self._nursery = nursery
        self._asking = trio.CapacityLimiter(MOST_REQUESTS)
        self._lookupds: dict[str, _Lookupd] = {}  # by TCP address
        self._names: Inventory | None = None  # what `_registrations` returns; None: something came or went since
        # by new topic: set when the nsqlookupds were asked for the topic's channels
        self._asked: dict[str, trio.Event] = {}

    def addresses(self) -> list[str]:
        """Return the addresses of all nsqlookupds, in the order given."""
        return list(self._lookupds)

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Keep exactly these nsqlookupds informed from now on. May be called at any time."""
        wanted = list(dict.fromkeys(addresses))
        for address in [known for known in self._lookupds if known not in wanted]:
            log.info("LOOKUP: removing peer %s", address)
            self._lookupds.pop(address).scope.cancel()
        for address in wanted:
            if address not in self._lookupds:
                log.info("LOOKUP: adding peer %s", address)
                self._warn_of_clear_text(address)
                lookupd = self._lookupds[address] = _Lookupd(LookupdLink(address, self._identity, self._tls))
                self._nursery.start_soon(self._keep_informed, lookupd)
        self._broker.directory.ask_for_channels = bool(self._lookupds)

    def queue_changes(self, changes: list[Change]) -> None:
        """Register or unregister topics and channels at every nsqlookupd, and ask for the channels of new topics."""
        self._names = None
        for change in changes:
            if change.kind is ChangeKind.TOPIC_CREATED:
                asked = self._asked[change.topic] = trio.Event()
                self._nursery.start_soon(self._ask_for_channels, change.topic, asked)
            command = _command(change)
            if command:
                for lookupd in self._lookupds.values():
                    lookupd.queue_command(command)

    def until_registered(self, topic: str, then: Callable[[], None]) -> None:
        """Call `then`, between turns, when every nsqlookupd that answers knows what was created in this turn and before.

        By then the topic also has the channels that they name. `then` is called after PATIENCE at the latest.
        """
        self._nursery.start_soon(self._until_registered, topic, then)

    async def _until_registered(self, topic: str, then: Callable[[], None]) -> None:
        try:
            with trio.move_on_after(PATIENCE):
                for lookupd in list(self._lookupds.values()):
                    await lookupd.until_known()
                if topic in self._asked:
                    await self._asked[topic].wait()
        finally:
            then()

    # one nsqlookupd

    async def _keep_informed(self, lookupd: _Lookupd) -> None:
        with lookupd.scope:
            try:
                while True:
                    await self._speak(lookupd)
            finally:
                with trio.CancelScope(shield=True):
                    await lookupd.link.close()

    async def _speak(self, lookupd: _Lookupd) -> None:
        """Make one exchange: connect if needed, then send the changes, or ping when it is time."""
        link = lookupd.link
        retry_at_once = link.connected  # the nsqlookupd may only have been restarted
        try:
            if not link.connected:
                lookupd.pop_commands()  # registering everything covers these commands
                await link.connect(self._registrations)
                lookupd.patience, lookupd.comparison = FIRST_RETRY, Comparison()
                lookupd.ping_at = trio.current_time() + self._ping_interval
                lookupd.acknowledged()
                log.info("LOOKUPD(%s): connected, its HTTP API is at %s", link.address, link.http_url or "?")
            with trio.move_on_at(lookupd.ping_at):
                await lookupd.news.wait()
            await link.send(lookupd.pop_commands())
            lookupd.acknowledged()
            if trio.current_time() >= lookupd.ping_at:
                await self._ping(lookupd)
        except LinkError as error:
            log.error("LOOKUPD(%s): %s", link.address, error)
            await link.close()
            if retry_at_once:
                return
            lookupd.failed()
            with trio.move_on_after(lookupd.patience):  # or until there is news
                await lookupd.news.wait()
            lookupd.patience = min(2 * lookupd.patience, PING_INTERVAL)

    async def _ping(self, lookupd: _Lookupd) -> None:
        """Ping, and register again what the nsqlookupd has forgotten. Raises LinkError."""
        counts = await lookupd.link.ping()
        now, comparison = trio.current_time(), lookupd.comparison
        if not lookupd.news.is_set():  # else it does not know yet what is new
            if self._names is None:
                self._names = Inventory(self._registrations())
            again = comparison.missing(self._names, counts, now)
            if again and counts is not None:
                log.info("LOOKUPD(%s): topics or channels are missing there: registering again", lookupd.link.address)
            await lookupd.link.send([register(topic, channel) for topic, channel in again], is_new=False)
        lookupd.ping_at = now + (min(self._ping_interval, GRACE) if comparison.doubts else self._ping_interval)

    def _registrations(self) -> list[Name]:
        """Return every channel, and every topic that has none, as (topic, channel or None)."""
        found: list[Name] = []
        for topic in self._broker.topics.values():
            if is_valid_name(topic.name):  # other names are tubes that only clients of beanstalkd see
                found += [(topic.name, channel) for channel in topic.channels] or [(topic.name, None)]
        return found

    # a new topic

    async def _ask_for_channels(self, name: str, asked: trio.Event) -> None:
        """Create the channels that the topic has on other nodes, and let it start. Sets `asked` after the responses."""
        try:
            await self._find_channels(name, asked)
        finally:
            asked.set()
            if self._asked.get(name) is asked:  # else the topic was deleted and created again meanwhile
                del self._asked[name]

    async def _find_channels(self, name: str, asked: trio.Event) -> None:
        topic = self._broker.topics.get(name)
        if topic is None or not topic.starting:
            return
        known = [lookupd for lookupd in self._lookupds.values() if lookupd.link.http_url]
        answering = [lookupd.link.http_url for lookupd in known if lookupd.answers]
        others = [lookupd.link.http_url for lookupd in known if not lookupd.answers]
        for urls in (answering, others):
            found: dict[str, None] = {}
            async with trio.open_nursery() as nursery:
                for url in urls:
                    nursery.start_soon(self._query, url, name, found)
            if not topic.deleted:
                self._create_channels(topic, found)
            asked.set()  # no client waits for the nsqlookupds that did not answer the last time
        if not topic.deleted:
            topic.start()
            self._wake()

    def _create_channels(self, topic: Topic, names: Iterable[str]) -> None:
        try:
            for name in names:
                if is_valid_name(name) and not is_ephemeral(name):
                    topic.channel(name)
        except TooMany as full:
            log.error("LOOKUPD: cannot create all channels of topic %s: %s", topic.name, full)

    async def find_cluster_peers(self, cluster: str) -> list[str] | None:
        """Return the cluster addresses of the nodes of that cluster which the nsqlookupds know; None: none of these answers."""
        found: dict[str, None] = {}
        silent = bool(self._lookupds)
        for lookupd in list(self._lookupds.values()):
            if lookupd.link.http_url:
                url = f"{lookupd.link.http_url}/nodes"
                queries = await trio.to_thread.run_sync(_import_queries)
                try:
                    found.update(dict.fromkeys(await queries.cluster_peers_of(url, cluster, *self._how())))
                except AnswerError as error:
                    self._warn_of_no_witness(lookupd, url, error)
                else:
                    silent = lookupd.is_no_witness = False
        return None if silent else list(found)

    def ask_witnesses(self, cluster: str, number: int, then: Callable[[int | None], None]) -> None:
        """Call `then` with the ns since an nsqlookupd last had contact with a node of a cluster, None if unknown.

        That is when all have answered, or WITNESS_WITHIN is over. It comes between turns.
        """
        self._nursery.start_soon(self._ask_witnesses, cluster, number, then)

    async def _ask_witnesses(self, cluster: str, number: int, then: Callable[[int | None], None]) -> None:
        found: list[float] = []

        async def ask(url: str) -> None:
            queries = await trio.to_thread.run_sync(_import_queries)
            with contextlib.suppress(AnswerError):  # what does not answer postpones nothing
                ages = await queries.contact_ages_of(f"{url}/nodes", cluster, *self._how())
                found.extend([ages[number]] if number in ages else [])

        with trio.move_on_after(WITNESS_WITHIN):
            async with trio.open_nursery() as nursery:
                for lookupd in list(self._lookupds.values()):
                    if lookupd.link.http_url:
                        nursery.start_soon(ask, lookupd.link.http_url)
        then(int(min(found) * 1e9) if found else None)
        self._wake()

    async def _query(self, base: str, topic: str, found: dict[str, None]) -> None:
        """Add the channels of a topic that an nsqlookupd knows. `base`: its URL, without a path."""
        url = f"{base}/channels"
        if self._ask is None:
            self._ask = (await trio.to_thread.run_sync(_import_queries)).channels_of
        try:
            async with self._asking:
                found.update(dict.fromkeys(await self._ask(url, topic, *self._how())))
        except AnswerError as error:  # the topic starts without that answer
            log.warning("LOOKUPD: failed to query channels of %s at %s - %s", topic, url, explained(str(error)))

    def _how(self) -> tuple[tuple[float, float], ssl.SSLContext | None]:
        """Return the timeouts of a request, and the authorities to trust over TLS."""
        return self._timeouts, self._tls.context if self._tls is not None else None

    def _warn_of_no_witness(self, lookupd: _Lookupd, url: str, error: AnswerError) -> None:
        """Log once that the HTTP API of a connected nsqlookupd does not answer."""
        if lookupd.link.connected and not lookupd.is_no_witness:
            lookupd.is_no_witness = True
            log.warning(
                "LOOKUPD(%s): failed to query %s - %s; it finds no nodes and cannot be a witness: it needs a -broadcast-address"
                " that can be dialed from here", lookupd.link.address, url, explained(str(error)),
            )  # fmt: skip

    def _warn_of_clear_text(self, address: str) -> None:
        """Log once that the token of this node can be read on the way to an nsqlookupd."""
        if self._tls is None and own_token() and not self._has_warned and not _is_here(address):
            self._has_warned = True
            log.warning(
                "LOOKUPD(%s): the token of -auth-token-file is sent in clear text: use TLS, by %s", address, _FLAG
            )


def ping_interval(failover_after: int) -> float:
    """Return the s between two pings of a node of a cluster. `failover_after` is in ns.

    An nsqlookupd has had contact with a live node within half of `failover_after`, even if a response takes a while.
    """
    return min(PING_INTERVAL, failover_after / 3e9)


def _is_here(address: str) -> bool:
    """Return whether an address is one of this machine, or invalid, so that nothing is sent there."""
    try:
        return is_loopback(address)
    except ListenError:
        return True


def _import_queries() -> ModuleType:
    """Import httpx, which takes tens of milliseconds and so runs in a thread, and return the module of the queries."""
    from nsqd.discovery import queries

    return queries


def _command(change: Change) -> bytes:
    """Return the command for a change, or b""."""
    channel = change.channel or None
    if change.kind in (ChangeKind.TOPIC_CREATED, ChangeKind.CHANNEL_CREATED):
        return register(change.topic, channel)
    if change.kind in (ChangeKind.TOPIC_DELETED, ChangeKind.CHANNEL_DELETED):
        return unregister(change.topic, channel)
    return b""
