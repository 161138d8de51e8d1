"""A client that puts and reserves jobs, as the account of its identity sees it: what beanstalkd's and Disque's have in common.

A client whose account has no room for more reserved jobs waits as if there were none. See nsqd/protocols/account.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nsqd.core.tubes import Tubes
from nsqd.core.work_queue.worker import Worker
from nsqd.protocols.account import LOOK_AGAIN, NO_LIMIT, Account
from nsqd.protocols.credential import Proofs, credential_of
from nsqd.protocols.outbox import Outbox
from nsqd.protocols.transport import NEVER, Transport

if TYPE_CHECKING:
    from nsqd.protocols.account import Accounts


class JobClient:
    """The base of such clients. Implements nsqd.protocols.account.AccountClient."""

    __slots__ = (
        "_long",
        "_room_due",
        "_transport",
        "_tubes",
        "bytes_published",
        "credential",
        "jobs_published",
        "outbox",
        "worker",
    )
    worker: Worker

    def __init__(
        self,
        tubes: Tubes,
        transport: Transport,
        address: str,
        lost: bytes,
        proofs: Proofs | None,
        accounts: Accounts | None,
    ) -> None:
        """`address`: the client's, "" for a unix socket. `lost`: as in Outbox. `proofs`: the auth file; None: there is none.

        `accounts`: of those who are in it.
        """
        self._tubes = tubes
        self._transport = transport
        self.outbox = Outbox(transport, lost)
        self._long: Callable[[], bytes | None] | None = None  # a command that takes several turns
        self._room_due = NEVER  # ns: when to look again whether a client that waits may have a job; NEVER: it may
        self.jobs_published = self.bytes_published = 0  # bytes of their bodies; counted where there is an auth file
        self.credential = credential_of(proofs, accounts, self, transport, address)

    # as AccountClient has them

    def published(self) -> tuple[int, int]:
        return self.jobs_published, self.bytes_published

    def in_flight(self) -> int:
        """Return how many jobs the worker holds: those of Disque's clients stay fetched, and their account holds them."""
        return len(self.worker.holds)

    @property
    def is_amid(self) -> bool:
        return self._long is not None

    def joined_account(self, account: Account) -> None:
        """Do nothing: the worker counts what it holds."""

    def limits_changed(self) -> None:
        """Do nothing: whoever asks for a job looks at the limits."""

    def pause_ended(self, now: int) -> None:
        """Do nothing: such clients may be silent for ever."""

    def hold_back(self) -> None:
        if self.worker.waiting and self.room_in_flight() <= 0:
            self._tubes.waiters.stop_waiting(self.worker)
            self._room_due = self._tubes.now + LOOK_AGAIN
            self._transport.timer_changed()

    # for the protocols

    def count_published(self, jobs: int, size: int) -> None:
        """Count jobs that were put, with `size` bytes of bodies."""
        self.jobs_published += jobs
        self.bytes_published += size

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
