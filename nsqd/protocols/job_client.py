"""A client that puts and reserves jobs, as the account of its identity sees it: what beanstalkd's and Disque's have in common.

A client whose account has no room for more reserved jobs waits as if there were none. See nsqd/protocols/account.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from nsqd.core.tubes import Tubes
from nsqd.core.work_queue.worker import FEW, Worker
from nsqd.protocols.account import LOOK_AGAIN, NO_LIMIT, Account
from nsqd.protocols.credential import Proofs, credential_of
from nsqd.protocols.outbox import Outbox
from nsqd.protocols.transport import NEVER, Transport, UntilRegistered
from shared.audit.event import Note
from shared.auth.verbs import Verb

if TYPE_CHECKING:
    from nsqd.protocols.account import Accounts


@dataclass(slots=True, kw_only=True)
class JobContext:
    """What all such clients of a node share, whatever protocol they speak."""

    proofs: Proofs | None = None  # the auth file; None: everybody may do everything
    accounts: Accounts | None = None  # of those who are in it
    audit: Note | None = None  # what operators do, and what is refused, is recorded there; None: nowhere
    until_registered: UntilRegistered | None = None  # None: there is no nsqlookupd


class JobClient:
    """The base of such clients. Implements nsqd.protocols.account.AccountClient."""

    __slots__ = (
        "_buffer",
        "_eof",
        "_is_held",
        "_long",
        "_room_due",
        "_transport",
        "_tubes",
        "_until_registered",
        "_wait",
        "bytes_published",
        "credential",
        "has_more",
        "is_heavy",
        "jobs_published",
        "outbox",
        "remote_ip",
        "waiting",
        "worker",
    )
    worker: Worker

    def __init__(self, tubes: Tubes, context: JobContext, transport: Transport, remote_ip: str, lost: bytes) -> None:
        """`remote_ip`: the client's, "" for a unix socket. `lost`: as in Outbox."""
        self._tubes = tubes
        self._transport = transport
        self._until_registered = context.until_registered
        self.remote_ip = remote_ip
        self.outbox = Outbox(transport, lost)
        self.waiting = False  # True: so much input is kept that no more is to be read
        self.has_more = False  # True: there is input to handle even if no more comes
        self._buffer = bytearray()  # input that is kept
        self._wait = False  # True: no command is looked at until one has its answer, from a job, the disk or nsqlookupd
        self._eof = False  # True: the client sends no more
        self._is_held = False  # True: a publish waits until the account of the client is out of debt
        self._long: Callable[[], bytes | None] | None = None  # a command that takes several turns
        self._room_due = NEVER  # ns: when to look again whether a client that waits may have a job; NEVER: it may
        self.jobs_published = self.bytes_published = 0  # bytes of their bodies; counted where there is an auth file
        self.is_heavy = False  # True: the client watches many tubes, and each reserve looks at all of them
        self.credential = credential_of(context.proofs, context.accounts, self, transport, remote_ip)

    # as AccountClient has them

    def published(self) -> tuple[int, int]:
        return self.jobs_published, self.bytes_published

    def in_flight(self) -> int:
        """Return how many jobs the worker holds: those of Disque's clients stay fetched, and their account holds them."""
        return len(self.worker.holds)

    @property
    def is_amid(self) -> bool:
        return self._long is not None

    @property
    def is_stranger(self) -> bool:
        """Return True until the client has shown who it is, where that is asked for."""
        return self.credential is not None and self.credential.identity is None

    def joined_account(self, account: Account) -> None:
        """Do nothing: the worker counts what it holds."""

    def limits_changed(self) -> None:
        """Do nothing: whoever asks for a job looks at the limits."""

    def debt_began(self) -> None:
        """Do nothing: `is_in_debt` is asked before each publish."""

    def pause_ended(self, now: int) -> None:
        """Go on with a publish that was held back. Such clients may be silent indefinitely."""
        if self._is_held:
            self._is_held = False
            self.continue_input()

    def hold_back(self) -> None:
        if self.worker.waiting and self.room_in_flight() <= 0:
            self._tubes.waiters.stop_waiting(self.worker)
            self._room_due = self._tubes.now + LOOK_AGAIN
            self._transport.timer_changed()

    # input that waits

    def wait_for_start(self, topic: str) -> None:
        """Look at no further command until nsqlookupd has told the channels of a new topic: it has the jobs then."""
        if self._until_registered is not None:
            self._wait = True
            self._transport.suspend(partial(self._until_registered, topic))

    def resume(self, now: int) -> None:
        """Go on with what has come since `wait_for_start`."""
        self.continue_input()

    def continue_input(self) -> None:
        """Handle the kept input in the next turn."""
        self._wait = self.waiting = False
        self.has_more = bool(self._buffer)
        self._transport.output_ready()
        if self._eof and not self.has_more:
            self.outbox.end()

    # for the protocols

    def rights_elsewhere(self, verb: Verb | None) -> bytes:
        """Return on which tubes of other nodes the client may do this (Rights.dump). Call it if the client may ask them."""
        if self.credential is None or verb is None:
            return b""
        rights = self.credential.dump(verb)
        assert rights is not None, "who may ask no other node was refused"
        return rights

    def make_tube(self, name: str) -> None:
        """Make the topic of a tube, if there is none, as the limits of the client allow. Raises TooMany."""
        tubes = self._tubes
        if self.credential is not None and name not in tubes.topics:
            self.credential.make_topic(name, tubes.topics, lambda: tubes.made(name))

    def note_watched(self) -> None:
        """Take note that the worker watches other tubes."""
        self.is_heavy = len(self.worker.watching) > FEW

    def count_published(self, jobs: int, size: int) -> None:
        """Count jobs that were put, with `size` bytes of bodies."""
        self.jobs_published += jobs
        self.bytes_published += size

    def is_in_debt(self) -> bool:
        """Return True if the client may not publish now, because its account has published too much."""
        usage = self.credential.usage if self.credential is not None else None
        return usage is not None and usage.debt(self._tubes.now)

    def is_held_back(self) -> bool:
        """Return True if the client may not publish now; then no command is looked at until it may."""
        if self.is_in_debt():
            self._wait = self._is_held = True
        return self._is_held

    def room_in_flight(self) -> int:
        """Return for how many more reserved jobs there is room in the account; at most 0: none."""
        usage = self.credential.usage if self.credential is not None else None
        return usage.room() if usage is not None else NO_LIMIT

    @property
    def waits_for_job(self) -> bool:
        """Return True while the client waits for a job, or for room in flight."""
        return self.worker.waiting or self._room_due != NEVER

    def note_reserved(self) -> None:
        """Keep other connections of the account from getting jobs, if this one has got the last that may be reserved."""
        usage = self.credential.usage if self.credential is not None else None
        if usage is not None and usage.limits.in_flight:
            usage.account.hold_back()

    def look_for_room(self, now: int) -> None:
        """Let the client go on waiting for a job, if it may have one by now (ns)."""
        if self.room_in_flight() > 0:
            self._room_due = NEVER
            self._tubes.wait_again(self.worker)
        else:
            self._room_due = now + LOOK_AGAIN
        self._transport.timer_changed()

    def leave_account(self) -> None:
        """Take note that the connection is gone."""
        if self.credential is not None:
            self.credential.leave()
