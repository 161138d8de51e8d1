"""One command about a job of this node for a client of another node."""

from __future__ import annotations

import re

from nsqd.core.work_queue.job import JobState
from nsqd.protocols.beanstalk.peer import Peer

_REQUEST = re.compile(
    rb"([0-9]{1,10}) ((?:delete|release|bury|touch|peek|stats-job|kick-job) ([0-9]{1,20})(?: [0-9]{1,10}){0,2})"
)


_OF_HOLDERS = (b"delete ", b"release ", b"bury ", b"touch ")  # these read nothing from disk


def request_of(reservation: int, line: bytes) -> bytes:
    """Return the request to the owner of a job: the reservation that the client has (0: none), and its command."""
    return b"%d %s" % (reservation, line)


def read_request(request: bytes) -> tuple[int, int, bytes] | None:
    """Return reservation, number of the job, and command; None if the command is not allowed."""
    match = _REQUEST.fullmatch(request)
    return (int(match[1]), int(match[3]), match[2]) if match is not None else None


class Guest(Peer):
    """Stands for a client of another node, with the rights of that client on the job."""

    __slots__ = ()

    def do(self, reservation: int, job_id: int, line: bytes) -> None:
        """Execute a command about a job. Its reply comes by `take_output`. See `read_request`."""
        own, found = self.worker, self.broker.tubes.find(job_id)
        is_its = found is not None and found[1].state is JobState.RESERVED and found[1].reserves == reservation
        if found is not None and is_its and line.startswith(_OF_HOLDERS):
            self.worker = found[0].reserved[found[1].ordinal]
        own.takes_headers = True
        self.receive(line + b"\r\n", self.broker.now)
        self.worker = own

    def _count(self, command: str) -> None:
        """Count nothing: the client's own node has counted the command."""
