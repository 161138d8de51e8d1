"""A job that its owner has lent: a client of another node of the cluster gets it."""

from dataclasses import dataclass

from penstock.protocol.headers import body_of


@dataclass(frozen=True, slots=True)
class Loan:
    """A job that its owner has given out to a client of another node."""

    number: int  # of the loans of its owner to this node, ascending
    queue: str
    message_id: int
    ttl: int  # s, that the job had at its creation; 0: it has no end
    retry: int  # s; 0: the job is delivered once at most, and its owner has forgotten it
    reservation: int  # which one of the job it is, counted from 1: no other client has that one
    nacks: int
    additional_deliveries: int
    content: bytes  # the job's headers and its body (penstock/protocol/headers.py)
    lent: int = 0  # ns by the owner's monotonic clock: when it was lent
    ends: int = 0  # ns since the epoch by the owner's clock: when its time to live is over; 0: never

    @property
    def body(self) -> bytes:
        """Return the job's body, without the headers before it."""
        return body_of(self.content)
