"""The other nodes of a cluster, for clients of beanstalkd: the lender of a job, and its owner."""

from __future__ import annotations

from collections.abc import Callable

from nsqd.cluster.remote_jobs.job_owners import JobOwners
from nsqd.cluster.remote_jobs.lending import TOO_LARGE, Lending
from nsqd.core.work_queue.loan import Loan
from nsqd.protocols.beanstalk.client import NOT_FOUND, OUT_OF_MEMORY
from nsqd.protocols.beanstalk.guest import request_of
from nsqd.protocols.disque.ids import JobIds


class TubeOwners:
    """The other nodes as beanstalkd's clients need them. Implements nsqd.protocols.beanstalk.client.OtherNodes."""

    def __init__(self, owners: JobOwners, lending: Lending, ids: JobIds) -> None:
        """`ids`: those of the cluster, by which acknowledgements are kept."""
        self._owners = owners
        self._lending = lending
        self._ids = ids

    def ask(
        self, verb: bytes, job_id: int, loan: Loan | None, line: bytes, rights: bytes, then: Callable[[bytes], None]
    ) -> bool:
        numbers = self._owners.owners(job_id >> 48)
        # a deletion that may not have been done is done when its owner can be asked, if the client had the job
        kept = (
            [(self._ids.encode(job_id, loan.ttl, loan.retry), job_id)]
            if loan is not None and verb == b"delete "
            else []
        )
        if not self._owners.reachable(numbers):
            self._owners.keep_those(kept, rights)
            return False

        def answered(replies: list[bytes]) -> None:
            found = (OUT_OF_MEMORY if one == TOO_LARGE else one for one in replies)
            answers = [one for one in found if not one.startswith(b"-")]  # other errors say nothing of the job
            reply = next((one for one in answers if one != NOT_FOUND), NOT_FOUND)
            if reply == NOT_FOUND and len(answers) < len(numbers):
                self._owners.keep_those(kept, rights)
            then(reply)

        request = request_of(loan.reservation if loan is not None else 0, line)
        self._lending.ask(numbers, rights, request, answered)
        return True

    def end_loan(self, lender: int, loan: Loan) -> None:
        self._lending.end_loan(lender, loan)

    def __repr__(self) -> str:
        return f"<TubeOwners: {self._owners!r}>"
