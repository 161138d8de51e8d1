"""The agenda of a turn: the time, which readers can deliver, which topics have new messages, and which queue is due when.

Topics and their readers add entries, and the broker works them off. The agenda itself knows only the Protocols below.

To a client, an emptied channel is empty at once, and a deleted topic is gone at once. To free three million messages takes a
second, in which no client would be served. So the agenda has a *reclaimer*, which frees them a little in each turn.
"""

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from nsqd.core.timing.duequeue import DueQueue

AT_ONCE = 6  # steps that are done in a row


class ScanQueue(Protocol):
    """An object with messages that wait for a time: a reader of a topic, or a topic with its delay queue."""

    scan_entry: tuple[int, int] | None  # (due, handle) of the queue's entry in the agenda; None: no entry

    def scan(self, now: int, limit: int) -> int:
        """Serve up to about `limit` messages that are due. Return how many; 0 means that nothing was due."""

    def next_due(self) -> int | None:
        """Return the time at which `scan` has something to do (monotonic ns), or None if nothing waits for a time."""


class Server(Protocol):
    """An object that can deliver messages to consumers."""

    def serve(self, now: int) -> None:
        """Give each consumer that has room its share, once."""


class AgendaReader(ScanQueue, Server, Protocol):
    """A reader of a topic as the agenda sees it: both a ScanQueue and a Server."""


class Source(Protocol):
    """An object that takes messages during a turn: a topic."""

    def seal(self, wall: int) -> None:
        """Give the messages of the turn their ids and ordinals. `wall`: ns since the epoch."""

    def seal_puts(self) -> None:
        """Give the jobs of the turn their ordinals, before those of the messages."""


class Agenda:
    """The agenda of one broker: the time of this turn, and what is to be done in it or later."""

    __slots__ = (
        "_held", "awake", "dead_letters", "index", "is_held", "is_stopping", "longest_gap", "now", "reclaimer", "scan_at",
        "stood_still_at", "unsealed", "unsealed_puts", "wall",
    )  # fmt: skip

    def __init__(self) -> None:
        self.now = 0  # monotonic ns, of this turn
        self.wall = 0  # ns since the epoch, of this turn
        self.is_held = False  # nothing is delivered: the node leaves its cluster, or was paused
        # ns between two turns; after a longer one nothing is delivered until `resume`, because other nodes may have promoted
        # the log meanwhile
        self.longest_gap = 1 << 62
        self.stood_still_at = 0  # when such a gap ended (monotonic ns); 0: nothing is held for that
        self._held: dict[Server, None] = {}  # readers that were awake while deliveries were held
        self.is_stopping = False  # connections end because the node stops: what clients have in flight has not failed
        self.awake: dict[Server, None] = {}  # readers that may have messages for a consumer with room
        # ids of messages that failed too often and are to go to another topic, the first buried first, by their channel
        self.dead_letters: dict[Server, deque[bytes]] = {}
        self.unsealed: list[Source] = []  # topics with messages published in this turn
        self.unsealed_puts: list[Source] = []  # topics with jobs put in this turn
        self.index: DueQueue[ScanQueue] = DueQueue()  # queues by a lower bound of the earliest due time of each
        self.scan_at = 0  # monotonic ns: the scan has nothing to do before, see ScanPool.turn
        self.reclaimer = Reclaimer(self)  # frees what emptied and deleted readers had

    def seal_puts(self) -> None:
        """Settle the jobs that were put so far in this turn, so that other commands of the same turn find them."""
        sources, self.unsealed_puts = self.unsealed_puts, []
        for source in sources:
            source.seal_puts()

    def seal(self) -> None:
        """Seal everything that was put or published so far in this turn. From now on it can be delivered."""
        if self.unsealed_puts:
            self.seal_puts()
        if self.unsealed:
            unsealed, self.unsealed = self.unsealed, []
            for source in unsealed:
                source.seal(self.wall)

    def serve(self) -> None:
        """Have each reader that can deliver give each of its consumers a share, once."""
        if self.awake:
            awake, self.awake = self.awake, {}
            if self.is_held:
                self._held |= awake
                return
            for reader in awake:
                reader.serve(self.now)

    def leave(self) -> None:
        """Deliver nothing more in this run: the node leaves its cluster."""
        self.is_held, self.stood_still_at = True, 0

    @property
    def is_leaving(self) -> bool:
        """Return True if nothing more is delivered in this run."""
        return self.is_held and not self.stood_still_at

    def note_pause(self, now: int) -> None:
        """Deliver nothing from `now` on, until `resume`: there was no turn for longer than `longest_gap`."""
        if not self.is_leaving:
            self.is_held, self.stood_still_at = True, now

    def resume(self) -> None:
        """Resume deliveries after a pause of the process."""
        self.is_held, self.stood_still_at = False, 0
        self.awake |= self._held
        self._held = {}

    def schedule_scan(self, queue: ScanQueue, due: int) -> None:
        """See to it that `queue` is scanned by `due` (monotonic ns)."""
        watched = queue.scan_entry
        if watched is not None:
            if watched[0] <= due:
                return
            self.index.remove(watched[1])
        queue.scan_entry = (due, self.index.push(due, queue))
        self.scan_at = 0

    def cancel_scan(self, queue: ScanQueue) -> None:
        """Remove the entry of a queue that no longer waits for a time."""
        if queue.scan_entry is not None:
            self.index.remove(queue.scan_entry[1])
            queue.scan_entry = None

    def remove_reader(self, reader: AgendaReader) -> None:
        """Remove all entries of a reader that was deleted."""
        self.cancel_scan(reader)
        self.awake.pop(reader, None)
        self._held.pop(reader, None)
        self.dead_letters.pop(reader, None)

    def __repr__(self) -> str:
        return f"<Agenda: {len(self.awake)} awake, {len(self.index)} watched>"


class IdleAgenda(Agenda):
    """The agenda of a broker that is filled in another thread than the running one. It has no turns, so nothing is entered."""

    __slots__ = ()

    def schedule_scan(self, queue: ScanQueue, due: int) -> None:
        """Do nothing: the queue is entered into the agenda in which it takes part later."""


class Reclaimer:
    """Frees what emptied and deleted readers and topics had, oldest first. The agenda serves it as a Server.

    The work is a generator, which takes containers apart that nothing else uses: each `next` is a step of up to about 0.1 ms.
    Nothing that is visible, and nothing in the log, depends on how far it is.
    """

    __slots__ = ("_agenda", "_work")

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._work: deque[Iterator[None]] = deque()

    def add(self, steps: Iterator[None]) -> None:
        """Begin work at once, and continue in later turns if AT_ONCE steps do not end it."""
        if self._advance(steps):
            self._work.append(steps)
            self._agenda.awake[self] = None

    def add_later(self, steps: Iterator[None]) -> None:
        """Have work done in later turns only: much of it may come at once."""
        self._work.append(steps)
        self._agenda.awake[self] = None

    def serve(self, now: int) -> None:
        """Do some steps, and ask for another turn if there is more to do."""
        if self._work and not self._advance(self._work[0]):
            self._work.popleft()
        if self._work:
            self._agenda.awake[self] = None

    def _advance(self, steps: Iterator[None]) -> bool:
        """Do up to AT_ONCE steps. Return True if there may be more."""
        return all(next(steps, self) is None for _ in range(AT_ONCE))

    @property
    def is_idle(self) -> bool:
        """Return True if there is nothing left to free."""
        return not self._work

    def finish(self) -> None:
        """Do all the work that is left, however long it takes."""
        while self._work:
            for _ in self._work.popleft():
                pass

    def __repr__(self) -> str:
        return f"<Reclaimer: {len(self._work)} to take apart>"
