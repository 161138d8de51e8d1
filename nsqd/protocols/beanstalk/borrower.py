"""Jobs of other nodes of a cluster, as a client of beanstalkd sees them, and commands that their owners execute.

A waiting reserve may be answered with a job of another node. The client has that job reserved like any other: until it
deletes, releases or buries it, until its time to run is over, or until the client disconnects. The owner of the job executes
commands about it, while the client waits for the reply.

See docs/contributing/design/cluster-protocol.md#lending.
"""

from __future__ import annotations

from functools import partial

from nsqd.core.work_queue.loan import Loan
from nsqd.core.work_queue.worker import BORROWED
from nsqd.protocols.beanstalk.client import (
    BAD_FORMAT,
    DRAINING,
    NOT_FOUND,
    OUT_OF_MEMORY,
    UNAUTHORIZED,
    UNKNOWN_COMMAND,
    Client,
    job_reply,
)
from nsqd.protocols.beanstalk.rights import NEEDS
from penstock.protocol.headers import body_of
from shared.audit.event import Outcome
from shared.values import SECOND

TOUCHED, DELETED, KICKED = b"TOUCHED\r\n", b"DELETED\r\n", b"KICKED\r\n"
# errors that owners answer to commands about their jobs
_ERRORS = frozenset(
    (NOT_FOUND, OUT_OF_MEMORY, UNAUTHORIZED, DRAINING, BAD_FORMAT, UNKNOWN_COMMAND, b"INTERNAL_ERROR\r\n")
)
_ENDS = (b"delete ", b"release ", b"bury ")  # these end the reservation


class Borrower(Client):
    """A client that may have jobs of other nodes."""

    __slots__ = ()

    def lent(self, loan: Loan, lender: int) -> bool:
        """Answer the waiting reserve with a job of another node. See nsqd.cluster.remote_jobs.lending.LoanSink."""
        if loan.retry:
            self._loans[loan.message_id] = lender, loan
            self.worker.hold(BORROWED, loan.message_id, self.broker.now + loan.retry * SECOND)
        content = loan.content if self.worker.takes_headers else loan.body
        self.end_wait(job_reply(b"RESERVED", self.broker.tubes.index.client_id(loan.message_id), content))
        return loan.retry > 0

    def _end_borrowed(self) -> None:
        """Forget the jobs of other nodes whose time to run is over."""
        for job_id in self.worker.end_borrowed(self.now):
            self._loans.pop(job_id, None)

    def _ask_owner(self, verb: bytes, job_id: int, *arguments: int) -> None:
        """Have the owner of a job on another node execute a command, and pass its reply on; NOT_FOUND if none can be asked."""
        others = self.context.others
        if others is not None:
            self._end_borrowed()
            line = verb + b" ".join(b"%d" % number for number in (job_id, *arguments))
            then = partial(self._answered, verb, job_id)
            if others.ask(verb, job_id, self._loan(job_id), line, self.rights_elsewhere(NEEDS[verb].verb), then):
                self._wait = True
                return
        self.fail(NOT_FOUND)

    def _delete_elsewhere(self, job_ids: list[int], done: int) -> None:
        """Have other nodes delete their jobs among these, and answer with the sum of `done` and their number."""
        others, left, is_refused = self.context.others, 0, False
        rights = self.rights_elsewhere(NEEDS[b"delete "].verb)

        def answered(job_id: int, reply: bytes) -> None:
            nonlocal left, done, is_refused
            left -= 1
            done += reply == DELETED
            is_refused |= reply == UNAUTHORIZED
            if self.is_gone:
                return
            if job_id in self._loans and reply in (DELETED, NOT_FOUND):
                self._forget_loan(job_id)
            if not left:
                self.now = self.broker.now
                if is_refused:
                    self.record("delete-batch", "", Outcome.REFUSED)
                    self._count_error(UNAUTHORIZED)
                self.end_wait(UNAUTHORIZED if is_refused else b"DELETED_BATCH %d\r\n" % done)

        self._end_borrowed()
        for job_id in job_ids if others is not None else ():
            assert others is not None
            line, then = b"delete %d" % job_id, partial(answered, job_id)
            left += others.ask(b"delete ", job_id, self._loan(job_id), line, rights, then)
        if left:
            self._wait = True
        else:
            self.reply(b"DELETED_BATCH %d\r\n" % done)

    def _answered(self, verb: bytes, job_id: int, reply: bytes) -> None:
        """Pass on the owner's reply to a command."""
        if self.is_gone:
            return
        self.now = self.broker.now
        if reply.startswith(b"FOUND ") and not self.worker.takes_headers:
            content = reply[reply.index(b"\r\n") + 2 : -2]
            reply = job_reply(b"FOUND", job_id, body_of(content))
        if reply == UNAUTHORIZED:
            self.record(verb.decode().rstrip(), str(job_id), Outcome.REFUSED)
        elif verb == b"kick-job ":
            self.record("kick-job", str(job_id), Outcome.DONE if reply == KICKED else Outcome.FAILED)
        if job_id in self._loans:
            if reply == TOUCHED:
                self.worker.hold(BORROWED, job_id, self.now + self._loans[job_id][1].retry * SECOND)
            elif reply == NOT_FOUND or (verb in _ENDS and reply not in (OUT_OF_MEMORY, UNAUTHORIZED)):
                self._forget_loan(job_id)
        if reply in _ERRORS:
            self._count_error(reply)
        self.end_wait(reply)

    def _loan(self, job_id: int) -> Loan | None:
        found = self._loans.get(job_id)
        return found[1] if found is not None else None

    def _forget_loan(self, job_id: int) -> None:
        del self._loans[job_id]
        self.worker.lost(BORROWED, job_id)

    def _leave(self) -> None:
        others = self.context.others
        if others is not None:
            for lender, loan in self._loans.values():
                others.end_loan(lender, loan)
            self._loans.clear()
        super()._leave()
