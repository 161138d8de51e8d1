"""Errors that clients were answered are counted by protocol and code, and what a client sends makes no new code."""

from nsqd.core.limits import Limits
from nsqd.protocols.beanstalk.client import BeanstalkContext
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire
from tests.nsqd.protocols.disque.wire import Wire as DisqueWire


def test_errors_of_beanstalkd_clients() -> None:
    wire = BeanstalkWire(Node(Limits()), BeanstalkContext(max_job_size=3))
    wire.ask(b"put 0 0 9 1\r\na\r\nreserve-with-timeout 0\r\nreserve-with-timeout 0\r\nlist-tubes\r\n")
    assert not wire.node.broker.client_errors
    wire.ask(
        b"nosuch\r\nnosuch again\r\nput x\r\n" + b"x" * 300 + b"\r\nput 0 0 9 4\r\nabcd\r\nput 0 0 9 1\r\nabcd\r\n"
    )
    wire.ask(b"delete 9\r\nignore default\r\n")
    assert wire.node.broker.client_errors == {
        ("beanstalkd", "UNKNOWN_COMMAND"): 3,  # the rest of the long body, too
        ("beanstalkd", "BAD_FORMAT"): 2,
        ("beanstalkd", "JOB_TOO_BIG"): 1,
        ("beanstalkd", "EXPECTED_CRLF"): 1,
        ("beanstalkd", "NOT_FOUND"): 1,
        ("beanstalkd", "NOT_IGNORED"): 1,
    }


def test_errors_of_disque_clients() -> None:
    node = Node(Limits(whole_job_ids=True))
    wire = DisqueWire(node)
    assert wire.do("NOSUCH")[:4] == "-ERR"
    assert wire.do("ADDJOB", "q")[:4] == "-ERR"
    assert wire.do("ACKJOB", "x")[:6] == "-BADID"
    job = wire.do("ADDJOB", "q", "body", 0)
    assert wire.do("DELJOB", job.lstrip("+")) == 1
    assert wire.do("WORKING", job.lstrip("+"))[:6] == "-NOJOB"
    wire.do("DEBUG", "ERROR", "MINE is not a code of ours")
    wire.peer.receive(b"*1\r\nx\r\n", node.now)
    assert node.broker.client_errors == {("disque", "ERR"): 3, ("disque", "BADID"): 1, ("disque", "NOJOB"): 1}
