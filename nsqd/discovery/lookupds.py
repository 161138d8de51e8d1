"""All nsqlookupds of this node: a task for each, told of every topic and channel that comes or goes.

A new topic waits, undistributed, until they were asked which channels it has elsewhere: then the first message already
reaches all of them. Only who creates a topic or channel waits for this, PATIENCE at most; an nsqlookupd that did not answer
the last time is not waited for.
"""

from collections.abc import Awaitable, Callable, Iterable

import trio

from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany
from nsqd.core.registry import Change, ChangeKind
from nsqd.core.topic import Topic
from nsqd.discovery.link import Link, LinkError
from penstock.protocol.lookup import register, unregister
from penstock.protocol.names import is_ephemeral, is_valid_name
from shared.http.bounded import AnswerError
from shared.log import log

PING_INTERVAL = 15.0  # s
MOST_QUESTIONS = 16  # about new topics under way at once: each is a connection
PATIENCE = 1.0  # s that a client waits at most until the topic or channel it created is registered
FIRST_RETRY = 1.0  # s; doubled with each failure up to PING_INTERVAL: one that is just starting is not missed for long

Ask = Callable[[str, str, tuple[float, float]], Awaitable[list[str]]]


class _Lookupd:
    """One nsqlookupd: the link to it, and what it has not been told yet."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.scope = trio.CancelScope()
        self.patience = FIRST_RETRY  # s until the next try after a failure
        self.news = trio.Event()  # set: there is something to say, or to try again for
        self._commands: list[bytes] = []  # while it is connected; connecting registers everything anyway
        self._told = 0  # calls of `tell`
        self._taken = 0  # of those, how many the last `take` covers
        self._known = 0  # of those, how many it has acknowledged
        self.answers = True  # False: the last exchange failed, and the next try did, too
        self._progress = trio.Event()  # set, and replaced, when one of both changes

    def tell(self, command: bytes) -> None:
        """REGISTER or UNREGISTER something, soon."""
        if self.link.connected:
            self._commands.append(command)
        self._told += 1
        self.news.set()

    def take(self) -> list[bytes]:
        """What to say now."""
        self.news = trio.Event()
        commands, self._commands = self._commands, []
        self._taken = self._told
        return commands

    def acknowledged(self) -> None:
        """It has answered to what `take` returned last."""
        self._known, self.answers = self._taken, True
        self._notify()

    def failed(self) -> None:
        """It did not answer, twice in a row."""
        self.answers = False
        self._notify()

    async def until_known(self) -> None:
        """Return when it has acknowledged everything told so far, or does not answer."""
        told = self._told
        while self.answers and self._known < told:
            await self._progress.wait()

    def _notify(self) -> None:
        self._progress.set()
        self._progress = trio.Event()


class Lookupds:
    """See above. Runs in the trio thread, between turns."""

    def __init__(
        self,
        broker: Broker,
        identity: dict[str, object],
        timeouts: tuple[float, float],
        wake: Callable[[], None],
        nursery: trio.Nursery,
    ) -> None:
        self._broker = broker
        self._identity = identity
        self._timeouts = timeouts  # s: to connect, and for each wait for more of the answer
        self._ask: Ask | None = None  # `question.channels_of`; None until the first question
        self._wake = wake  # the reactor has something to do
        self._nursery = nursery
        self._asking = trio.CapacityLimiter(MOST_QUESTIONS)
        self._lookupds: dict[str, _Lookupd] = {}  # by TCP address
        self._asked: dict[str, trio.Event] = {}  # by new topic: set when its channels were asked for

    def addresses(self) -> list[str]:
        """The nsqlookupds there are, in the order given."""
        return list(self._lookupds)

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Keep exactly these told from now on. May be changed at any time."""
        wanted = list(dict.fromkeys(addresses))
        for address in [known for known in self._lookupds if known not in wanted]:
            log.info("LOOKUP: removing peer %s", address)
            self._lookupds.pop(address).scope.cancel()
        for address in wanted:
            if address not in self._lookupds:
                log.info("LOOKUP: adding peer %s", address)
                lookupd = self._lookupds[address] = _Lookupd(Link(address, self._identity))
                self._nursery.start_soon(self._keep_told, lookupd)
        self._broker.directory.ask_for_channels = bool(self._lookupds)

    def tell(self, changes: list[Change]) -> None:
        """Topics or channels came or went."""
        for change in changes:
            if change.kind is ChangeKind.TOPIC_CREATED:
                asked = self._asked[change.topic] = trio.Event()
                self._nursery.start_soon(self._ask_for_channels, change.topic, asked)
            command = _command(change)
            if command:
                for lookupd in self._lookupds.values():
                    lookupd.tell(command)

    def until_registered(self, topic: str, then: Callable[[], None]) -> None:
        """Call `then`, between turns, when every nsqlookupd that answers knows what this turn and those before have created,
        and the topic has the channels they name; at the latest after PATIENCE."""
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

    async def _keep_told(self, lookupd: _Lookupd) -> None:
        with lookupd.scope:
            try:
                while True:
                    await self._speak(lookupd)
            finally:
                with trio.CancelScope(shield=True):
                    await lookupd.link.close()

    async def _speak(self, lookupd: _Lookupd) -> None:
        """One exchange: connect if need be, else what is new, else a ping when it is time."""
        link = lookupd.link
        retry_at_once = link.connected  # it may only have been restarted
        try:
            if not link.connected:
                lookupd.take()  # registering everything covers it
                await link.connect(self._registrations)
                lookupd.patience = FIRST_RETRY
                lookupd.acknowledged()
                log.info("LOOKUPD(%s): connected, its HTTP API is at %s", link.address, link.http_address or "?")
            with trio.move_on_after(PING_INTERVAL) as waiting:
                await lookupd.news.wait()
            commands = lookupd.take()
            if waiting.cancelled_caught:
                await link.ping()
            await link.send(commands)
            lookupd.acknowledged()
        except LinkError as error:
            log.error("LOOKUPD(%s): %s", link.address, error)
            await link.close()
            if retry_at_once:
                return
            lookupd.failed()
            with trio.move_on_after(lookupd.patience):  # or until there is news
                await lookupd.news.wait()
            lookupd.patience = min(2 * lookupd.patience, PING_INTERVAL)

    def _registrations(self) -> list[tuple[str, str | None]]:
        """Every channel, and every topic that has none."""
        found: list[tuple[str, str | None]] = []
        for topic in self._broker.topics.values():
            if is_valid_name(topic.name):  # else it is a tube of beanstalkd's clients alone
                found += [(topic.name, channel) for channel in topic.channels] or [(topic.name, None)]
        return found

    # a new topic

    async def _ask_for_channels(self, name: str, asked: trio.Event) -> None:
        """Create the channels it has elsewhere, then let it start. `asked` is set when those that answer have."""
        try:
            await self._find_channels(name, asked)
        finally:
            asked.set()
            if self._asked.get(name) is asked:  # else it was deleted and created again meanwhile
                del self._asked[name]

    async def _find_channels(self, name: str, asked: trio.Event) -> None:
        topic = self._broker.topics.get(name)
        if topic is None or not topic.starting:
            return
        known = [lookupd for lookupd in self._lookupds.values() if lookupd.link.http_address]
        answering = [lookupd.link.http_address for lookupd in known if lookupd.answers]
        others = [lookupd.link.http_address for lookupd in known if not lookupd.answers]
        for addresses in (answering, others):
            found: dict[str, None] = {}
            async with trio.open_nursery() as nursery:
                for address in addresses:
                    nursery.start_soon(self._query, address, name, found)
            if not topic.deleted:
                self._create_channels(topic, found)
            asked.set()  # nobody waits for the others
        if not topic.deleted:
            topic.start()
            self._wake()

    def _create_channels(self, topic: Topic, names: Iterable[str]) -> None:
        try:
            for name in names:
                if is_valid_name(name) and not is_ephemeral(name):
                    topic.channel(name)
        except TooMany as full:
            log.error("LOOKUPD: not all channels of %s were created: %s", topic.name, full)

    async def _query(self, address: str, topic: str, found: dict[str, None]) -> None:
        url = f"http://{address}/channels"
        if self._ask is None:
            self._ask = await trio.to_thread.run_sync(_import_ask)
        try:
            async with self._asking:
                found.update(dict.fromkeys(await self._ask(url, topic, self._timeouts)))
        except AnswerError as error:  # start without it
            log.warning("LOOKUPD: failed to query channels of %s at %s - %s", topic, url, error)


def _import_ask() -> Ask:
    """In a thread: httpx takes tens of milliseconds to import, and no client waits for it."""
    from nsqd.discovery.question import channels_of

    return channels_of


def _command(change: Change) -> bytes:
    """What a nsqlookupd is told, or b""."""
    channel = change.channel or None
    if change.kind in (ChangeKind.TOPIC_CREATED, ChangeKind.CHANNEL_CREATED):
        return register(change.topic, channel)
    if change.kind in (ChangeKind.TOPIC_DELETED, ChangeKind.CHANNEL_DELETED):
        return unregister(change.topic, channel)
    return b""
