"""The ids by which clients of Disque name jobs. An id contains the owner of the job, and follows from the id of its message.

    D-<8 hex digits of the owner's Disque id>-<24 characters of Base64>-<4 hex digits>

The 24 characters are 18 bytes: 10 that belong to the node whose number is in the message id, and the message id. The last field
is the time to live in minutes, at most ffff; it is even if the job is delivered once at most. In a cluster all nodes make the
same id of a message, and recognize ids of other clusters, and invented ones, without a search for the job.
"""

from binascii import Error, a2b_base64, b2a_base64
from hashlib import sha1
from struct import Struct
from struct import error as StructError

from nsqd.core.work_queue.job import Job

ID_SIZE = 40  # bytes
MOST_MINUTES = 0xFFFF
_FIXED_END = 23  # offset in an id: the bytes before it are the same for all ids of a node
_VARIABLE_END = 35
_VARIABLE = Struct(">BQ")  # the byte that belongs to the node, and the message id
_MOST_ENDS = 1024  # remembered ends of ids
_NUMBERS = 1024  # node numbers: more are not known, whatever a client sends


class JobIds:
    """The ids of one node, or of one cluster."""

    def __init__(self, name: bytes) -> None:
        """`name`: unique: the cluster's name, or the log id of a node that is alone."""
        self._name = name
        # by node number: the fixed beginning of ids, and the byte after it
        self._of_nodes: dict[int, tuple[bytes, int]] = {}
        self._ends: dict[tuple[int, bool], bytes] = {}  # of ids, by ttl and whether the job may be redelivered

    def node_id(self, number: int) -> bytes:
        """Return the Disque id of the node with that number: 40 hex digits."""
        return sha1(b"%s/%d" % (self._name, number), usedforsecurity=False).hexdigest().encode()

    def _of_node(self, number: int) -> tuple[bytes, int]:
        known = self._of_nodes.get(number)
        if known is None:
            own = sha1(b"%s/%d/jobs" % (self._name, number), usedforsecurity=False).digest()
            fixed = b"D-%s-%s" % (self.node_id(number)[:8], b2a_base64(own[:9], newline=False))
            known = self._of_nodes[number] = fixed, own[9]
        return known

    def encode(self, message_id: int, ttl: int, retry: int) -> bytes:
        """Return the id of a job. `ttl` and `retry` in s; 0: it has no end of its life, and it is delivered once at most."""
        fixed, byte = self._of_nodes.get(message_id >> 48) or self._of_node(message_id >> 48)
        middle = b2a_base64(_VARIABLE.pack(byte, message_id), newline=False)
        return fixed + middle + (self._ends.get((ttl, retry > 0)) or self._end(ttl, retry > 0))

    def _end(self, ttl: int, is_redelivered: bool) -> bytes:
        minutes = min(ttl // 60, MOST_MINUTES) if ttl else MOST_MINUTES
        if len(self._ends) >= _MOST_ENDS:
            self._ends.clear()
        end = self._ends[ttl, is_redelivered] = b"-%04x" % (minutes | 1 if is_redelivered else minutes & ~1)
        return end

    def of_job(self, job: Job) -> bytes:
        """Return the id of a job."""
        return self.encode(job.id, job.ttl, job.ttr)

    def names(self, job_id: bytes, ttl: int, retry: int) -> bool:
        """Return True if an id whose message id is a job's is the job's id. `ttl` and `retry` of the job: as in `encode`."""
        return job_id[_VARIABLE_END:] == (self._ends.get((ttl, retry > 0)) or self._end(ttl, retry > 0))

    def decode(self, job_id: bytes) -> int | None:
        """Return the message id in an id that has the right form, or None if no node of this cluster has made it."""
        try:
            byte, message_id = _VARIABLE.unpack(a2b_base64(job_id[_FIXED_END:_VARIABLE_END]))
        except (Error, StructError):
            return None
        number = message_id >> 48
        if number >= _NUMBERS:
            return None
        fixed, own = self._of_nodes.get(number) or self._of_node(number)
        return message_id if byte == own and job_id.startswith(fixed) else None
