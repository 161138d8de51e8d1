"""Clients of beanstalkd and the auth file: every command without a token, with a wrong one, and with each right."""

from nsqd.protocols.beanstalk.client import AUTH, BeanstalkContext
from nsqd.protocols.beanstalk.commands import VERBS
from nsqd.protocols.beanstalk.rights import NEEDS
from shared.auth.auth_file import Identity
from shared.auth.rules import Rights, Rule
from shared.auth.verbs import Verb
from shared.tls.info import TlsInfo
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire
from tests.nsqd.protocols.rights.proofs import Proofs, token

REFUSED = b"UNAUTHORIZED\r\n"
PUT = b"put 0 0 60 1\r\nx\r\n"
# a line of each command, about the tube `work` and its job 1
LINES: dict[bytes, bytes] = {
    b"put ": PUT,
    b"put-unique ": b"put-unique k 0 0 60 1\r\nx\r\n",
    b"put-unless-pending ": b"put-unless-pending k 0 0 60 1\r\nx\r\n",
    b"put-batch ": b"put-batch b 0 0 60 1\r\nx\r\n",
    b"put-grouped ": b"put-grouped g 0 0 60 1\r\nx\r\n",
    b"put-replicated ": b"put-replicated 1 0 0 60 1\r\nx\r\n",
    b"use ": b"use work\r\n",
    b"watch ": b"watch work\r\n",
    b"ignore ": b"ignore other\r\n",
    b"reserve": b"reserve-with-timeout 0\r\n",
    b"reserve-with-timeout ": b"reserve-with-timeout 0\r\n",
    b"reserve-batch ": b"reserve-batch 1 0\r\n",
    b"stats-tube ": b"stats-tube work\r\n",
    b"pause-tube": b"pause-tube work 0\r\n",
    b"clear-tube ": b"clear-tube work\r\n",
    b"move-job ": b"move-job 1 work\r\n",
    b"list-jobs ": b"list-jobs work ready 5\r\n",
    b"release ": b"release 1 0 0\r\n",
    b"bury ": b"bury 1 0\r\n",
    b"kick ": b"kick 1\r\n",
}
# commands about a batch without members, which need a right to any tube
OF_BATCHES = {b"stats-batch ": Verb.STATS, b"close-batch ": Verb.PUBLISH}


class OneRight(Proofs):
    """A file with one token, which has one right on `work`, or on everything."""

    def __init__(self, *verbs: Verb, topics: tuple[str, ...] = ("work",)) -> None:
        super().__init__()
        self.identity = Identity("one", "token", (), Rights([Rule(frozenset(verbs), topics)]))

    def with_token(self, secret: bytes) -> Identity | None:
        return self.identity


def line_of(verb: bytes) -> bytes:
    return LINES.get(verb) or (verb + b"1\r\n" if verb.endswith(b" ") else verb + b"\r\n")


def client(proofs: Proofs, node: Node | None = None, *lines: bytes) -> Wire:
    """A client that has shown a token, if there are lines, and uses and watches `work`."""
    wire = Wire(node, BeanstalkContext(proofs=proofs))
    for line in lines:
        wire.send(line)
    wire.said()
    return wire


def prepared() -> Node:
    """A node with a job in the tube `work`."""
    wire = Wire()
    assert wire.ask(b"use work\r\n" + PUT).endswith(b"INSERTED 1\r\n")
    return wire.node


def test_every_command_is_in_the_table() -> None:
    assert set(NEEDS) == set(VERBS) | {AUTH}


@each("secret", [b"", b"auth pst_" + b"x" * 43 + b"\r\n", b"auth \r\n", b"auth \xff\xff\r\n"])
def test_a_stranger_is_refused_every_command(secret: bytes) -> None:
    node = prepared()
    for verb in sorted(set(NEEDS) - {b"quit", AUTH}):
        wire = client(Proofs("worker"), node)
        assert not secret or wire.ask(secret) == REFUSED
        assert wire.ask(line_of(verb)) == REFUSED, verb
    tube = node.broker.tubes.tube("work")
    assert tube.jobs.count == 1
    assert Wire().ask(secret) == b"UNKNOWN_COMMAND\r\n" * bool(secret), "without an auth file the command is not known"


@each("verb", sorted(set(NEEDS) - {AUTH}))
@each("right", list(Verb))
def test_a_command_needs_its_right_and_no_other(verb: bytes, right: Verb) -> None:
    need = NEEDS[verb]
    everywhere = need.verb is Verb.STATS and verb in (b"stats", b"list-tubes")
    proofs = OneRight(right, topics=("*",) if everywhere else ("work",))
    wire = client(proofs, prepared(), b"auth x\r\n", b"use work\r\n")
    wire.peer.worker.watching.add("work")
    wire.peer.worker.watching.remove("default")
    said = wire.ask(line_of(verb))
    needed = OF_BATCHES.get(verb, need.verb)
    allowed = needed is None or (needed is right and verb != b"move-job ")
    assert (said == REFUSED) is not allowed, said


def test_a_job_is_moved_with_two_rights_and_a_certificate_is_a_proof_too() -> None:
    both = client(OneRight(Verb.ACT, Verb.PUBLISH), prepared(), b"auth x\r\n")
    assert both.ask(b"move-job 1 work\r\n").startswith(b"MOVED ")
    wire = client(Proofs())
    wire.peer.upgraded(TlsInfo("TLS1.3", "", "", True, "billing", subject="CN=billing"))
    assert wire.ask(PUT).startswith(b"INSERTED")


def test_the_rights_of_one_tube_are_none_of_another_and_do_not_hold_a_worker_up() -> None:
    wire = client(Proofs("worker"), None, b"auth " + token("worker") + b"\r\n")
    assert wire.ask(b"use other\r\n" + PUT) == b"USING other\r\n" + REFUSED
    assert wire.ask(b"watch other\r\n") == REFUSED
    assert wire.ask(b"use work\r\n" + PUT + PUT) == b"USING work\r\nINSERTED 1\r\nINSERTED 2\r\n"
    wire.ask(b"use other\r\n")
    assert wire.ask(PUT + PUT) == REFUSED * 2  # the line is known by now
    wire = client(Proofs("worker"), None, b"auth " + token("worker") + b"\r\n")
    assert wire.ask(b"reserve-with-timeout 0\r\n") == REFUSED
    assert wire.ask(b"watch work\r\nreserve-with-timeout 0\r\n") == b"WATCHING 2\r\nTIMED_OUT\r\n"
    assert wire.ask(b"list-tubes-watched\r\n") == b"OK 11\r\n---\n- work\n\r\n"


def test_a_waiting_worker_gets_an_error_when_its_right_ends() -> None:
    proofs = Proofs("worker")
    wire = client(proofs, None, b"auth " + token("worker") + b"\r\n", b"watch work\r\n")
    assert wire.ask(b"reserve\r\n") == b""
    wire.peer.rights_changed()
    assert wire.said() == b""
    proofs.set("orders")
    wire.peer.rights_changed()
    assert wire.said() == REFUSED
    assert wire.peer.outbox.closing
    wire.leave()
    wire.node.broker.check()


@each("right", [Verb.CREATE, Verb.PUBLISH])
def test_a_pause_makes_a_tube_only_for_who_may_make_one(right: Verb) -> None:
    for verbs, answer in (((Verb.ACT,), b"UNAUTHORIZED\r\n"), ((Verb.ACT, right), b"PAUSED\r\n")):
        wire = client(OneRight(*verbs, topics=("*",)), None, b"auth x\r\n", b"use new\r\n")
        assert wire.ask(b"pause-tube new 5\r\n") == answer
        assert ("new" in wire.node.broker.topics) is (answer == b"PAUSED\r\n")
    made = client(OneRight(Verb.ACT), prepared(), b"auth x\r\n")
    assert made.ask(b"pause-tube work 5\r\n") == b"PAUSED\r\n"
