"""The errors of penstock.jobs, by what the caller can do about them.

Every method of Jobs and AsyncJobs raises only subclasses of JobsError, TypeError for an argument of the wrong type (a
body that is str), and ValueError for a value that can never be valid (a delay that is not finite).
"""

from penstock.protocol import ProtocolError
from penstock.protocol.beanstalk import Reply


class JobsError(Exception):
    """The base class of all errors of penstock.jobs."""


class ConnectionLost(JobsError):
    """The server cannot be reached, closed the connection, or did not answer in time; the command was not executed.

    A command whose repetition changes nothing (peek, stats, a reserve ...) may have been executed.

    >>> try:
    ...     Jobs("127.0.0.1:1", JobsSettings(retry_s=0)).put(b"work")
    ... except ConnectionLost:
    ...     print("try again later")
    try again later
    """


class AnswerLost(ConnectionLost):
    """The command was sent and its answer did not come: it may have been executed, or not.

    To put again without the risk of a second job, use put_unique, which does that by itself.
    """


class BadServer(ConnectionLost):
    """The server sent something that beanstalkd's protocol does not allow; the connection was closed."""


class ReservationLost(JobsError):
    """The connection over which the job was reserved is gone, and so is the reservation; nothing was sent.

    Also raised in a process that was forked after the job was reserved: only the parent can answer the job.

    >>> job_id = jobs.put(b"work")
    >>> job = jobs.reserve()
    >>> jobs.close()
    >>> try:
    ...     job.touch()
    ... except ReservationLost:
    ...     print("the job may be with another worker")
    the job may be with another worker
    """


class ClientClosed(JobsError):
    """The AsyncJobs was closed, before the call or during it. It does not connect again: make a new one, or `clone` it.

    A command whose answer had not come may have been executed.

    >>> client = AsyncJobs(address)
    >>> await client.aclose()
    >>> try:
    ...     await client.put(b"work")
    ... except ClientClosed as error:
    ...     print(error)
    the client is closed
    """


class Refused(JobsError):
    """The server answered that it did not do what was asked; `word` is its answer.

    >>> try:
    ...     jobs.delete(123456789)
    ... except Refused as error:
    ...     print(error.word)
    NOT_FOUND
    """

    def __init__(self, reply: Reply) -> None:
        super().__init__(self.__doc__.partition("\n")[0] if type(self) is not Refused and self.__doc__ else reply.word)
        self.word = reply.word


class NotFound(Refused):
    """The job does not exist, is in the wrong state, or is reserved by another connection; or the tube does not exist."""


class TooBig(Refused):
    """The body is larger than the server's -max-job-size (JOB_TOO_BIG)."""


class Draining(Refused):
    """The server takes no new jobs (DRAINING): put to another node, or later."""


class OutOfMemory(Refused):
    """The server has no room, or the client would watch too many tubes (OUT_OF_MEMORY): try again later."""


class Buried(Refused):
    """The server had no memory to queue the job, and buried it: `job_id` is its id. Only the original beanstalkd does so.

    >>> Buried(Reply("BURIED", 17)).job_id
    17
    """

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self.job_id = reply.number


class BatchDone(Refused):
    """The batch is done and takes no more members (BATCH_DONE): take another name."""


class DeadlineSoon(Refused):
    """A job that this client has reserved has less than a second left (DEADLINE_SOON): touch it or finish it."""


class NotIgnored(Refused):
    """The last tube that is watched cannot be ignored (NOT_IGNORED)."""


class Unsupported(Refused):
    """The server does not know the command: it is an extension, or the server is very old (UNKNOWN_COMMAND, BAD_FORMAT)."""


class ServerFailed(Refused):
    """The server has an error of its own (INTERNAL_ERROR)."""


_REFUSALS: dict[str, type[Refused]] = {
    "NOT_FOUND": NotFound,
    "JOB_TOO_BIG": TooBig,
    "DRAINING": Draining,
    "OUT_OF_MEMORY": OutOfMemory,
    "BURIED": Buried,
    "BATCH_DONE": BatchDone,
    "DEADLINE_SOON": DeadlineSoon,
    "NOT_IGNORED": NotIgnored,
    "UNKNOWN_COMMAND": Unsupported,
    "BAD_FORMAT": Unsupported,
    "INTERNAL_ERROR": ServerFailed,
}


def refusal(reply: Reply) -> Refused | ProtocolError:
    """Return the error for a reply that is not the one that the command asks for."""
    kind = _REFUSALS.get(reply.word)
    return ProtocolError(f"{reply.word} does not answer the command") if kind is None else kind(reply)
